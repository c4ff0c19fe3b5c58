//! Maintenance: `compact` on a directory or a cluster, `check`, `stats` and `checkpoint` on a directory, `defrag` and
//! `alarm` on a cluster, `completions` and `version`.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use bowline::StorageError;
use bowline_storage::version::Layout;
use clap::CommandFactory;

use crate::args::cluster::Alarm;
use crate::args::{Checkpoint, Cli, Compact, Completions, Output, Stats};
use crate::context::{Context, counted, usage};
use crate::exit::{Exit, Failure};
use crate::output::Field;
use crate::remote::{GRAPH_TIMEOUT, KEYS_TIMEOUT, Remote};
use crate::store::target::Target;
use bowline_load::units::show_size;

pub(crate) fn compact(context: &mut Context<'_, '_>, args: &Compact) -> Result<(), Failure> {
    // A cluster answers once its tables are compacted.
    let target = Target::open(context, GRAPH_TIMEOUT)?;
    let fields = match (&target, args.revision) {
        (Target::Local(db), revision) => {
            let before = db.stats().engine;
            if let Some(revision) = revision {
                db.to_write()?.trim_history(revision)?;
            }
            db.compact()?;
            let stats = db.stats();
            vec![
                ("oldest_revision", stats.oldest_revision.into()),
                ("revision", stats.revision.into()),
                ("table_bytes_before", before.table_bytes.into()),
                ("table_bytes", stats.engine.table_bytes.into()),
                ("blob_bytes_before", before.blob_bytes.into()),
                ("blob_bytes", stats.engine.blob_bytes.into()),
            ]
        }
        (Target::Remote(remote), Some(revision)) => {
            let header = remote.wait(remote.client.trim_history(revision, true))?;
            vec![
                ("oldest_revision", revision.into()),
                ("revision", header.revision.into()),
            ]
        }
        (Target::Remote(_), None) => {
            let text = "give a revision: `compact REVISION` trims the history of a cluster; `defrag` gives space \
                        back to the disks";
            return Err(usage(text.to_owned()));
        }
    };
    target.close()?;
    context.record(&fields)
}

pub(crate) fn defrag(context: &mut Context<'_, '_>) -> Result<(), Failure> {
    let credentials = context.credentials()?;
    for endpoint in context.endpoints() {
        let remote = Remote::member(&endpoint, &credentials)?;
        let before = remote.wait(remote.client.status())?.db_size_bytes;
        remote.wait(remote.client.defragment())?;
        let after = remote.wait(remote.client.status())?.db_size_bytes;
        context.record(&[
            ("endpoint", endpoint.into()),
            ("bytes_before", before.into()),
            ("bytes", after.into()),
        ])?;
    }
    Ok(())
}

pub(crate) fn alarm(context: &mut Context<'_, '_>, args: &Alarm) -> Result<(), Failure> {
    let remote = context.remote(KEYS_TIMEOUT)?;
    let alarms = match args {
        Alarm::List => remote.wait(remote.client.alarms())?,
        Alarm::Disarm => remote.wait(remote.client.disarm())?,
    };
    let rows = alarms.into_iter().map(|alarm| {
        let member = alarm.member_id.to_string();
        Ok(vec![member.into(), alarm.kind.to_string().into()])
    });
    context.rows(&["member", "alarm"], rows)
}

pub(crate) fn check(context: &mut Context<'_, '_>) -> Result<(), Failure> {
    let path = context.global.data_dir.clone();
    match context.open() {
        Ok(db) => {
            let check = db.check()?;
            db.close()?;
            print_check(context, &check)
        }
        // A damaged database may refuse to open, and all damage is listed.
        Err(failure) if failure.exit == Exit::Corrupt => {
            let files = bowline::check_files(&path)?;
            print_files(context, &files)?;
            Err(damaged(files.errors().count().max(1)))
        }
        Err(_) if path.join("MEMBER").exists() => check_member(context, &path),
        Err(failure) => Err(failure),
    }
}

/// Verifies the directory of a member that is stopped.
fn check_member(context: &mut Context<'_, '_>, path: &Path) -> Result<(), Failure> {
    let check = bowline::check_member(path).map_err(|error| match error {
        bowline::Error::Storage(StorageError::Locked { .. }) => {
            let text = format!(
                "{} belongs to a member that runs: stop it first, or compare the members with `bowline endpoint \
                 hashkv`",
                path.display()
            );
            Failure::new(Exit::Invalid, text)
        }
        error => error.into(),
    })?;
    print_check(context, &check)?;
    // A check without a problem has read the trees.
    let Some(revision) = check.revision else {
        return Ok(());
    };
    context.remark(&format!(
        "the directory of a member: verified as of revision {revision}; the member applies what its log holds after \
         that when it starts"
    ))
}

/// Prints the verdict on each file, each inconsistency, and what was read.
fn print_check(context: &mut Context<'_, '_>, check: &bowline::Check) -> Result<(), Failure> {
    print_files(context, &check.files)?;
    for problem in &check.problems {
        context.record(&[("problem", problem.as_str().into())])?;
    }
    let more = check.more_problems;
    if more > 0 {
        context.record(&[("problem", format!("and {more} more").into())])?;
    }
    if check.is_clean() {
        return context.record(&[
            ("keys", check.keys.into()),
            ("blocks", check.blocks.into()),
            ("edges", check.edges.into()),
            ("revision", check.revision.into()),
        ]);
    }
    let listed = check.files.errors().count() + check.problems.len();
    Err(damaged(
        listed + usize::try_from(more).unwrap_or(usize::MAX),
    ))
}

fn damaged(count: usize) -> Failure {
    let problems = counted(count, "problem");
    let text = format!("{problems} found; restore from a checkpoint or an export");
    Failure::new(Exit::Corrupt, text)
}

fn print_files(
    context: &mut Context<'_, '_>,
    report: &bowline::CheckReport,
) -> Result<(), Failure> {
    let rows = report.files.iter().map(|file| {
        let (verdict, found) = match &file.error {
            None => ("ok", file.summary.clone()),
            Some(error) => ("damaged", error.to_string()),
        };
        let path = file.path.display().to_string();
        Ok(vec![path.into(), verdict.into(), found.into()])
    });
    context.rows(&["file", "verdict", "found"], rows)
}

/// The first of the statistics, which a table shows.
const SHOWN: usize = 10;

pub(crate) fn stats(context: &mut Context<'_, '_>, args: &Stats) -> Result<(), Failure> {
    let db = context.open_to_read()?;
    let stats = db.stats();
    let id = db.id();
    let is_table = context.global.output == Output::Table;
    let size = |bytes: u64| {
        if is_table {
            Field::Text(show_size(bytes))
        } else {
            Field::Number(bytes)
        }
    };
    let engine = &stats.engine;
    let entries = |tree: usize| -> u64 {
        engine
            .levels
            .get(tree)
            .map_or(0, |levels| levels.iter().map(|level| level.entries).sum())
    };
    let mut fields = vec![
        ("id", Field::Text(format!("{id:032x}"))),
        ("revision", stats.revision.into()),
        ("oldest_revision", stats.oldest_revision.into()),
        ("leases", stats.leases.into()),
        ("kinds", Field::List(stats.kinds.clone())),
        ("table_bytes", size(engine.table_bytes)),
        ("blob_bytes", size(engine.blob_bytes)),
        ("log_bytes", size(engine.log_bytes)),
        ("memtable_bytes", size(engine.memtable_bytes)),
        ("cache_bytes", size(engine.cache_bytes)),
        ("manifest_bytes", size(engine.manifest_bytes)),
        ("table_memory_bytes", size(engine.table_memory_bytes)),
        ("entries_key_table", entries(0).into()),
        ("entries_block_table", entries(1).into()),
        ("entries_edge_tables", (entries(2) + entries(3)).into()),
    ];
    let counters = engine.counters.named();
    fields.extend(
        counters
            .into_iter()
            .map(|(name, value)| (name, Field::Number(value))),
    );
    db.close()?;
    let is_cut = is_table && !args.all;
    if is_cut {
        fields.truncate(SHOWN);
    }
    context.record(&fields)?;
    match is_cut {
        true => context.remark("every counter: bowline stats --all"),
        false => Ok(()),
    }
}

pub(crate) fn checkpoint(context: &mut Context<'_, '_>, args: &Checkpoint) -> Result<(), Failure> {
    let db = context.open()?;
    if let Some(parent) = args.path.parent() {
        // `checkpoint backup/monday` is not to fail for want of `backup`.
        fs::create_dir_all(parent).map_err(|error| {
            Failure::new(
                Exit::Io,
                format!("cannot create {}: {error}", parent.display()),
            )
        })?;
    }
    let _locked = claim(&args.path)?;
    let revision = db.to_write()?.checkpoint(&args.path)?;
    db.close()?;
    context.record(&[
        ("path", args.path.display().to_string().into()),
        ("revision", revision.into()),
    ])
}

/// Makes the directory of a checkpoint ready: creates it, and takes away what an interrupted one left in it. The directory
/// stays locked while the result lives, so that a checkpoint that is being written is not taken for an interrupted one.
fn claim(path: &Path) -> Result<Option<File>, Failure> {
    let failed = |error: io::Error| {
        let text = format!(
            "cannot prepare {} for a checkpoint: {error}",
            path.display()
        );
        Failure::new(Exit::Io, text)
    };
    match fs::create_dir(path) {
        // Other things than directories are refused by the library.
        Err(_) if path.exists() && !path.is_dir() => return Ok(None),
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let directory = File::open(path).map_err(failed)?;
    if let Err(TryLockError::WouldBlock) = directory.try_lock() {
        let path = path.display();
        let text =
            format!("another checkpoint is being written into {path}: name another directory");
        return Err(Failure::new(Exit::Locked, text));
    }
    let layout = Layout::new(path);
    if layout.unfinished().exists() && !layout.identity().exists() {
        let tables = layout.tables();
        if tables.is_dir() {
            fs::remove_dir_all(&tables).map_err(failed)?;
        }
        // The mark is the last: without it the rest would look like a database whose creation was interrupted.
        for file in [
            layout.manifest(1),
            path.join("BOWLINE.new"),
            layout.unfinished(),
        ] {
            match fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
    }
    Ok(Some(directory))
}

pub(crate) fn completions(
    context: &mut Context<'_, '_>,
    args: &Completions,
) -> Result<(), Failure> {
    // The generator panics where its writer fails, so it writes into memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "bowline", &mut script);
    Ok(context.streams.stdout.write_all(&script)?)
}

pub(crate) fn version(context: &mut Context<'_, '_>) -> Result<(), Failure> {
    context.record(&[
        ("bowline", env!("CARGO_PKG_VERSION").into()),
        ("etcd_api", bowline_server::ETCD_VERSION.into()),
    ])
}
