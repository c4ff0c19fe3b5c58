//! `tour`: what Bowline does, on a real dependency graph, step by step.
//!
//! Every step really happens, in a database of its own, and is printed with the command that does
//! the same. What a step finds is checked: a tour that cannot show what it says ends with an error.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bowline::{BlockId, Db, Direction, Error, Expected, Graph, Range};
use tempfile::TempDir;

use super::transfer::Batch;
use crate::args::{Output, Tour};
use crate::context::{Context, builder};
use crate::exit::{Exit, Failure};
use crate::import::{self, Event, Format, NAME_ATTRIBUTE};
use crate::output::Field;
use crate::session::Directory;
use crate::store::resolve::Labels;
use crate::store::target::Target;
use crate::store::view::View;

/// The lock file of this very program, for where there is none at hand.
const OWN_LOCK: &str = include_str!("../../../../Cargo.lock");

/// The package the tour asks about, where the graph has it.
const FAVOURITE: &str = "libc";

pub(crate) fn run(context: &mut Context<'_, '_>, args: &Tour) -> Result<(), Failure> {
    let start = Instant::now();
    let (data_dir, temporary) = place(args.keep.as_deref())?;
    let mut guide = Guide {
        context,
        data_dir,
        steps: 0,
    };
    guide.say(&format!("A tour of Bowline {}.", env!("CARGO_PKG_VERSION")))?;
    let db = open(&guide.data_dir)?;

    import_step(&mut guide, &db)?;
    transaction_step(&mut guide, &db)?;
    compare_step(&mut guide, &db)?;
    graph_steps(&mut guide, &db)?;
    watch_step(&mut guide, &db)?;
    history_step(&mut guide, &db)?;
    reopen_step(&mut guide, db)?;

    let took = start.elapsed().as_millis();
    let kept = guide.data_dir.display();
    guide.say(&match temporary {
        None => format!("\nDone in {took} ms. The database is in {kept}."),
        Some(_) => format!(
            "\nDone in {took} ms. The database was temporary; `bowline tour --keep DIR` keeps it."
        ),
    })
}

fn open(path: &Path) -> Result<Db, Failure> {
    Ok(builder().open(path)?)
}

/// A new directory that goes with its owner, or the one to keep.
fn place(keep: Option<&Path>) -> Result<(PathBuf, Option<TempDir>), Failure> {
    let Some(path) = keep else {
        let temporary = tempfile::Builder::new().prefix("bowline-tour-").tempdir()?;
        return Ok((temporary.path().to_owned(), Some(temporary)));
    };
    let is_used = std::fs::read_dir(path).is_ok_and(|mut names| names.next().is_some());
    if is_used {
        let text = format!("{} is not empty; name a new directory", path.display());
        return Err(Failure::new(Exit::Invalid, text));
    }
    Ok((path.to_owned(), None))
}

/// Prints steps.
struct Guide<'c, 'a, 's> {
    context: &'c mut Context<'a, 's>,
    data_dir: PathBuf,
    steps: u32,
}

impl Guide<'_, '_, '_> {
    fn say(&mut self, text: &str) -> Result<(), Failure> {
        self.context.remark(text)
    }

    /// One step: what it shows, the command that does the same, what came out.
    fn step(&mut self, title: &str, command: &str, results: &[String]) -> Result<(), Failure> {
        self.steps += 1;
        if self.context.global.output == Output::Json {
            let number = u64::from(self.steps);
            return Ok(self.context.printer(false).record(&[
                ("step", number.into()),
                ("title", title.into()),
                ("command", command.into()),
                ("result", Field::List(results.to_vec())),
            ])?);
        }
        let out = &mut *self.context.streams.stdout;
        writeln!(out, "\n{}. {title}\n   $ bowline {command}", self.steps)?;
        for line in results {
            writeln!(out, "     {}", bowline::text::line(line))?;
        }
        // A person reads along.
        Ok(out.flush()?)
    }
}

fn unexpected(what: &str) -> Failure {
    Failure::new(Exit::Internal, format!("the tour expected {what}"))
}

fn import_step(guide: &mut Guide<'_, '_, '_>, db: &Db) -> Result<(), Failure> {
    const BATCH_ITEMS: usize = 1_000;
    const BATCH_BYTES: u64 = 4 << 20;
    let (text, name) = match std::fs::read_to_string("Cargo.lock") {
        Ok(text) => (text, "Cargo.lock"),
        Err(_) => (OWN_LOCK.to_owned(), "Cargo.lock (of this program)"),
    };
    let start = Instant::now();
    let target = Target::Local(Directory::Kept(db.clone()));
    let mut batch = Batch::new(&target, BATCH_ITEMS, BATCH_BYTES, false);
    let mut refused = 0;
    for event in import::read(
        text.as_bytes(),
        Format::CargoLock,
        &import::Options::default(),
    ) {
        match event? {
            Event::Item { at, item } => refused += batch.add(at, item)?.len(),
            Event::Refused(_) => refused += 1,
        }
    }
    refused += batch.write()?.len();
    let imported = batch.imported;
    if imported.blocks == 0 {
        return Err(Failure::new(
            Exit::Invalid,
            format!("{name} names no packages"),
        ));
    }
    let took = start.elapsed().as_millis();
    guide.step(
        &format!("Import the dependency graph of {name}."),
        "import Cargo.lock",
        &[format!(
            "{} blocks, {} edges, {refused} refused in {took} ms; revision {}",
            imported.blocks,
            imported.edges,
            db.revision()
        )],
    )
}

fn transaction_step(guide: &mut Guide<'_, '_, '_>, db: &Db) -> Result<(), Failure> {
    let mut tx = db.begin();
    tx.put("release/candidate", "0.1.0")?;
    tx.put("release/approved-by", "ann")?;
    let committed = tx.commit()?;
    let mut lines = vec![format!("both keys at revision {}", committed.revision)];
    for entry in db.range(Range::prefix("release/"))? {
        let entry = entry?;
        lines.push(format!(
            "{} = {} (revision {})",
            entry.key.escape_ascii(),
            entry.value.escape_ascii(),
            entry.mod_revision
        ));
    }
    guide.step(
        "Write two keys in one transaction: one revision, all or nothing.",
        "range release/ --prefix",
        &lines,
    )
}

fn compare_step(guide: &mut Guide<'_, '_, '_>, db: &Db) -> Result<(), Failure> {
    let won = db.compare_and_swap("leader", Expected::Absent, "node-1")?;
    guide.step(
        "Compare and swap: the key must be absent (revision 0). It wins.",
        "cas leader 0 node-1",
        &[format!("revision {won}")],
    )?;
    match db.compare_and_swap("leader", Expected::Absent, "node-2") {
        Err(error @ Error::CompareFailed { .. }) => guide.step(
            "The same again: the key is there by now. It loses, and nothing is written.",
            "cas leader 0 node-2",
            &[format!("error: {error}")],
        ),
        Err(other) => Err(other.into()),
        Ok(_) => Err(unexpected("the second compare-and-swap to lose")),
    }
}

fn graph_steps(guide: &mut Guide<'_, '_, '_>, db: &Db) -> Result<(), Failure> {
    const SHOWN_MAX: usize = 8;
    let snapshot = db.snapshot();
    let graph = snapshot.graph();
    let view = View::Local(snapshot);
    let target = choose_target(&graph)?;
    let mut labels = Labels::of(&view, [target])?;
    let name = labels.get(target)?;
    let found = graph
        .traverse(target)
        .direction(Direction::In)
        .max_depth(3)
        .run()?;
    let mut dependents = found.visits();
    dependents.next();
    let count = dependents.len();
    let mut lines = vec![format!("{count} packages")];
    for visit in dependents.take(SHOWN_MAX) {
        lines.push(format!("depth {}  {}", visit.depth, labels.get(visit.id)?));
    }
    if count > SHOWN_MAX {
        lines.push(format!("… and {} more", count - SHOWN_MAX));
    }
    guide.step(
        &format!("Who depends on {name}, within three steps?"),
        &format!("graph reach {name} --direction in --max-depth 3"),
        &lines,
    )?;

    // From whoever is farthest away, so that the path is worth looking at.
    let all = graph.traverse(target).direction(Direction::In).run()?;
    let Some(farthest) = all.ids().next_back() else {
        return Err(unexpected("a traversal to visit its start"));
    };
    let path = graph.shortest_path(farthest, target).find()?;
    let path = path.ok_or_else(|| unexpected("a path back along a traversal"))?;
    let names = labels.all(&path.blocks)?;
    guide.step(
        "The shortest path between two packages.",
        &format!("graph path {} {name}", names[0]),
        &[names.join(" -> ")],
    )
}

/// The package to ask about: the favourite, or else the one that most others depend on.
fn choose_target(graph: &Graph) -> Result<BlockId, Failure> {
    let mut favourite = None;
    let mut ids = Vec::new();
    graph.for_each_block(|block| {
        if block
            .attributes
            .get(NAME_ATTRIBUTE)
            .is_some_and(|name| name == FAVOURITE)
        {
            favourite = Some(block.id);
        }
        ids.push(block.id);
        Ok(())
    })?;
    if let Some(id) = favourite {
        return Ok(id);
    }
    let mut best = None;
    for id in ids {
        let dependents = graph.neighbors(id, Direction::In, [] as [&str; 0])?.len();
        if best.is_none_or(|(most, _)| dependents > most) {
            best = Some((dependents, id));
        }
    }
    best.map(|(_, id)| id)
        .ok_or_else(|| unexpected("a graph with a package"))
}

fn watch_step(guide: &mut Guide<'_, '_, '_>, db: &Db) -> Result<(), Failure> {
    const TIMEOUT: Duration = Duration::from_secs(10);
    let mut watcher = db.watch(Range::prefix("release/")).start()?;
    let writer = {
        let db = db.clone();
        std::thread::spawn(move || db.put("release/candidate", "0.2.0"))
    };
    // A slow disk takes its time, and that is no reason for the watch to be late.
    let written = writer
        .join()
        .map_err(|_| unexpected("a writer to end well"))??;
    let seen = watcher.recv_timeout(TIMEOUT)?;
    let seen = seen.filter(|seen| seen.revision == written);
    let seen = seen.ok_or_else(|| unexpected("the watch to report the write"))?;
    let lines: Vec<_> = seen
        .changes
        .iter()
        .map(|change| {
            let (key, value) = (&change.entry.key, &change.entry.value);
            let (key, value) = (key.escape_ascii(), value.escape_ascii());
            format!("revision {}: put {key} = {value}", seen.revision)
        })
        .collect();
    guide.step(
        "Watch a prefix while another thread writes to it.",
        &format!("watch release/ --prefix --from {written} --count 1"),
        &lines,
    )
}

fn history_step(guide: &mut Guide<'_, '_, '_>, db: &Db) -> Result<(), Failure> {
    let versions = db.history("release/candidate")?;
    let [newest, oldest] = &versions[..] else {
        return Err(unexpected("two versions of release/candidate"));
    };
    let then = db.snapshot_at(oldest.revision)?.get("release/candidate")?;
    let then = then.ok_or_else(|| unexpected("the old version to be readable"))?;
    guide.step(
        "The past is still there: every version of a key, and any revision to read at.",
        "history release/candidate",
        &[
            format!("revisions {} and {}", newest.revision, oldest.revision),
            format!(
                "at revision {} it was {}",
                oldest.revision,
                then.escape_ascii()
            ),
        ],
    )
}

fn reopen_step(guide: &mut Guide<'_, '_, '_>, db: Db) -> Result<(), Failure> {
    let before = db.revision();
    db.close()?;
    drop(db);
    let start = Instant::now();
    let db = open(&guide.data_dir)?;
    let took = start.elapsed();
    if db.revision() != before {
        return Err(unexpected("the same revision after reopening"));
    }
    guide.step(
        "Close, and open again: everything acknowledged is there.",
        "stats",
        &[format!(
            "revision {before}, opened in {:.1} ms",
            took.as_secs_f64() * 1e3
        )],
    )?;
    let check = db.check()?;
    if !check.is_clean() {
        return Err(Failure::new(Exit::Corrupt, "the check found damage"));
    }
    db.close()?;
    guide.step(
        "Check every file, and that both directions of every edge agree.",
        "check",
        &[format!(
            "{} files, {} keys, {} blocks, {} edges: no damage",
            check.files.files.len(),
            check.keys,
            check.blocks,
            check.edges
        )],
    )
}
