//! Opening a directory: scan, plan, apply.
//!
//! *Scan* reads `BOWLINE`, the manifest and the directory and changes nothing. *Plan* decides from
//! that what is missing, what is left over and whether the manifest must be replaced. *Apply* opens
//! the tables, replays the log into memtables, and then removes leftovers. Every step may be cut
//! off by a crash and repeated: leftovers are only removed, and replay only reads.
//!
//! What a scan reads may not be on the disk: a process that was killed leaves names and an edit
//! that it had not synced yet, or whose sync had failed. So before anything is removed that only
//! the older state needs, the names are synced and the last edit is written and synced again.
//!
//! A damaged record at the manifest's end counts as torn, an edit that never happened. It may also
//! be one that was synced and has rotted since. What that would lose is found elsewhere: the log
//! then begins too late, or a table that a merge replaced is missing. (Edits of which nothing else
//! tells, those of an ingestion and of the start of a member's log, are the first record of a new
//! manifest, which is never torn.) Tables that nothing names are therefore removed only if the
//! manifest's end is whole; else they are renamed and kept.
//!
//! Creating a database ends with the atomic appearance of `BOWLINE`. A directory without it that
//! holds nothing but what creation makes before that point is an unfinished creation, and is
//! created again.

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use super::ballast::Ballast;
use super::batch::BatchReader;
use super::replicated::Replicated;
use super::{
    CommitState, EngineOptions, ManifestState, Readers, Shared, Signals, SuperVersion, SyncPolicy,
};
use crate::blob::BlobFile;
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::log::{Log, LogOptions};
use crate::memtable::{Memtable, MemtableBuilder, MemtableWriter, Retirement};
use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::sync::{Condvar, Mutex, Swap};
use crate::table::{PageCache, Table};
use crate::version::{Edit, Identity, Layout, Manifest, ManifestPosition, State, Version};
use crate::vfs::{Vfs, VfsLock};
use crate::{Clock, Index, Revision, workers};

/// What a scan found.
struct Scanned {
    identity: Identity,
    state: State,
    position: ManifestPosition,
    names: Vec<String>,
    table_names: Vec<String>,
}

/// What opening will change.
#[derive(Debug, PartialEq)]
struct Plan {
    /// Files that nothing names: unfinished outputs, replaced manifests.
    leftovers: Vec<PathBuf>,
    /// Files of tables that nothing names while the manifest's last record is in doubt, and the
    /// names under which they are kept.
    set_aside: Vec<(PathBuf, PathBuf)>,
    /// The manifest ends in a torn record, so it is not appended to.
    replace_manifest: bool,
}

/// Opens the directory. With `replicated` the log is given to the caller instead of being replayed.
pub(super) fn open(
    vfs: Arc<dyn Vfs>,
    clock: Arc<dyn Clock>,
    layout: Layout,
    options: EngineOptions,
    mut replicated: Option<Replicated<'_>>,
) -> Result<(Shared, Option<Log>)> {
    let counters = Arc::new(Counters::default());
    prepare_directory(&*vfs, &layout, &options, replicated.is_some())?;
    let lock = take_lock(&*vfs, &layout)?;
    let has_database = Identity::read(&*vfs, &layout)?.is_some();
    if let Some(replicated) = &mut replicated {
        (replicated.locked)(has_database)?;
    }
    if !has_database {
        let (id, base) = match &replicated {
            Some(replicated) => (replicated.database_id, replicated.file_id_base),
            None => (fastrand::u128(1..), 0),
        };
        create(&*vfs, &layout, id, base + 1, counters.clone())?;
    }
    let scanned = scan(&*vfs, &layout)?;
    let plan = plan(&scanned, &layout)?;
    apply(
        vfs, clock, layout, options, counters, lock, scanned, &plan, replicated,
    )
}

/// Makes sure the path is a directory that is, or may become, a database. Writes nothing into a
/// directory that is not.
fn prepare_directory(
    vfs: &dyn Vfs,
    layout: &Layout,
    options: &EngineOptions,
    is_replicated: bool,
) -> Result<()> {
    let root = layout.root();
    let stat = |path: &std::path::Path| vfs.metadata(path).map_err(|e| Error::io("stat", path, e));
    let refuse = |reason: &str| {
        Err(Error::NotADatabase {
            path: root.to_owned(),
            reason: reason.to_owned(),
        })
    };
    match stat(root)? {
        None if !options.create => return refuse("the directory does not exist"),
        None => {
            return vfs
                .create_dir(root)
                .map_err(|e| Error::io("create", root, e));
        }
        Some(found) if !found.is_dir => return refuse("it is a file"),
        Some(_) => {}
    }
    if !is_replicated && stat(&layout.member())?.is_some() {
        return Err(Error::Member {
            path: root.to_owned(),
        });
    }
    if stat(&layout.identity())?.is_some() {
        return Ok(());
    }
    let names = vfs.read_dir(root).map_err(|e| Error::io("list", root, e))?;
    if names.iter().any(|name| name == Layout::UNFINISHED) {
        return refuse("it is a checkpoint that was not finished; delete it and make it again");
    }
    let of_creation = |name: &String| {
        matches!(name.as_str(), "LOCK" | "BOWLINE.new" | "log" | "tables")
            || Layout::manifest_number(name).is_some()
            || is_replicated && matches!(name.as_str(), "MEMBER" | "MEMBER.new")
    };
    if let Some(foreign) = names.iter().find(|name| !of_creation(name)) {
        return refuse(&format!("it holds {foreign:?} and no file BOWLINE"));
    }
    for directory in [layout.log(), layout.tables()] {
        if stat(&directory)?.is_some() {
            let list = vfs.read_dir(&directory);
            if !list
                .map_err(|e| Error::io("list", &directory, e))?
                .is_empty()
            {
                let reason = format!("{} has files, but BOWLINE is gone", directory.display());
                return Err(Error::MissingFile {
                    path: layout.identity(),
                    reason,
                });
            }
        }
    }
    if !options.create {
        // Also when a creation, or a checkpoint into it, was interrupted: that would make an empty
        // database of it.
        return refuse(match names.is_empty() {
            true => "the directory is empty",
            false => "its creation was interrupted: it was never a database",
        });
    }
    Ok(())
}

fn take_lock(vfs: &dyn Vfs, layout: &Layout) -> Result<Box<dyn VfsLock>> {
    let path = layout.lock();
    match vfs.lock(&path).map_err(|e| Error::io("lock", &path, e))? {
        Some(lock) => Ok(lock),
        None => Err(Error::Locked {
            path: layout.root().to_owned(),
        }),
    }
}

fn create(
    vfs: &dyn Vfs,
    layout: &Layout,
    database_id: u128,
    next_file_id: u64,
    counters: Arc<Counters>,
) -> Result<()> {
    // Also when the directory was there: whoever made it may have died before this.
    crate::vfs::sync_parent(vfs, layout.root())?;
    let tables = layout.tables();
    if vfs
        .metadata(&tables)
        .map_err(|e| Error::io("stat", &tables, e))?
        .is_none()
    {
        vfs.create_dir(&tables)
            .map_err(|e| Error::io("create", &tables, e))?;
    }
    let state = State {
        // As in etcd, a new database is at revision 1.
        flushed_revision: 1,
        history_floor: 1,
        next_file_id,
        next_run_id: 1,
        ..State::default()
    };
    // Creation syncs the directory, so `tables` and the manifest are durable before BOWLINE is.
    let identity = Identity {
        database_id,
        manifest: 1,
    };
    Manifest::create(vfs, layout, &identity, &state, counters)?;
    identity.write(vfs, layout)
}

fn scan(vfs: &dyn Vfs, layout: &Layout) -> Result<Scanned> {
    let identity = Identity::read(vfs, layout)?.ok_or_else(|| Error::MissingFile {
        path: layout.identity(),
        reason: "it was there a moment ago".to_owned(),
    })?;
    let (state, position) = Manifest::read(vfs, layout, &identity)?;
    let list = |path: &std::path::Path| vfs.read_dir(path).map_err(|e| Error::io("list", path, e));
    let names = list(layout.root())?;
    let table_names = list(&layout.tables())?;
    Ok(Scanned {
        identity,
        state,
        position,
        names,
        table_names,
    })
}

fn plan(scanned: &Scanned, layout: &Layout) -> Result<Plan> {
    let mut leftovers = Vec::new();
    let mut set_aside = Vec::new();
    let state = &scanned.state;
    let tables = state.tables.keys().map(|id| layout.table(*id));
    let blobs = state.blobs.keys().map(|id| layout.blob(*id));
    for path in tables.chain(blobs) {
        let is_there = path
            .file_name()
            .is_some_and(|name| scanned.table_names.iter().any(|other| **other == *name));
        if !is_there {
            let reason = "the manifest names it".to_owned();
            return Err(Error::MissingFile { path, reason });
        }
    }
    for name in &scanned.table_names {
        let id_before = |suffix| {
            let stem = name.strip_suffix(suffix);
            stem.and_then(|hex: &str| u64::from_str_radix(hex, 16).ok())
        };
        let (table, blob) = (id_before(".table"), id_before(".blob"));
        let is_unnamed = table.is_some_and(|id| !state.tables.contains_key(&id))
            || blob.is_some_and(|id| !state.blobs.contains_key(&id));
        if is_unnamed {
            let path = layout.tables().join(name);
            if scanned.position.torn {
                // The record may have been whole once, and have named it.
                let kept = Layout::set_aside(name, scanned.identity.manifest);
                set_aside.push((path, layout.tables().join(kept)));
            } else {
                leftovers.push(path);
            }
        }
    }
    for name in &scanned.names {
        let number = Layout::manifest_number(name);
        if number.is_some_and(|number| number != scanned.identity.manifest) {
            leftovers.push(layout.root().join(name));
        }
    }
    if scanned.names.iter().any(|name| name == "BOWLINE.new") {
        leftovers.push(layout.identity_new());
    }
    if scanned.names.iter().any(|name| name == Layout::UNFINISHED) {
        leftovers.push(layout.unfinished());
    }
    Ok(Plan {
        leftovers,
        set_aside,
        replace_manifest: scanned.position.torn,
    })
}

/// Renames tables that no manifest names, durably, so that nothing takes them for the database's and
/// their numbers can be given anew.
fn set_aside(vfs: &dyn Vfs, layout: &Layout, files: &[(PathBuf, PathBuf)]) -> Result<()> {
    for (path, kept) in files {
        vfs.rename(path, kept)
            .map_err(|e| Error::io("rename", path, e))?;
        tracing::warn!(
            path = %kept.display(),
            "the manifest ends in a damaged record, which may have named this file: it is kept. \
             Remove it when nothing is missing from the database"
        );
    }
    if files.is_empty() {
        return Ok(());
    }
    let tables = layout.tables();
    vfs.sync_dir(&tables)
        .map_err(|e| Error::io("sync", &tables, e))
}

/// Writes a new manifest that starts with `state` and makes it the current one.
fn replace_manifest(
    vfs: &dyn Vfs,
    layout: &Layout,
    old: &Identity,
    state: &State,
    counters: Arc<Counters>,
) -> Result<Manifest> {
    let next = Identity {
        manifest: old.manifest + 1,
        ..old.clone()
    };
    let manifest = Manifest::create(vfs, layout, &next, state, counters)?;
    next.write(vfs, layout)?;
    let path = layout.manifest(old.manifest);
    if let Err(cause) = vfs.remove_file(&path) {
        tracing::warn!(path = %path.display(), %cause, "a replaced manifest stays until the next open");
    }
    Ok(manifest)
}

#[expect(
    clippy::too_many_arguments,
    reason = "called once; a struct would only rename them"
)]
fn apply(
    vfs: Arc<dyn Vfs>,
    clock: Arc<dyn Clock>,
    layout: Layout,
    options: EngineOptions,
    counters: Arc<Counters>,
    lock: Box<dyn VfsLock>,
    scanned: Scanned,
    plan: &Plan,
    replicated: Option<Replicated<'_>>,
) -> Result<(Shared, Option<Log>)> {
    let Scanned {
        identity,
        mut state,
        position,
        ..
    } = scanned;
    let root = layout.root();
    vfs.sync_dir(root).map_err(|e| Error::io("sync", root, e))?;
    let intact = match plan.replace_manifest {
        true => None,
        false => Some(Manifest::open(
            &*vfs,
            &layout,
            &identity,
            position,
            counters.clone(),
        )?),
    };
    let cache = Arc::new(PageCache::new(options.cache_bytes, counters.clone()));
    let trees = options.trees.len();
    let mut opened = std::collections::HashMap::new();
    for placed in state.tables.values() {
        let id = placed.meta.file_id;
        let path = layout.table(id);
        if usize::from(placed.meta.tree.0) >= trees {
            let reason = format!(
                "it belongs to tree {}, which is unknown",
                placed.meta.tree.0
            );
            return Err(Error::corrupt(&path, 0, reason));
        }
        let table = Table::open(&vfs, path, &placed.meta, cache.clone(), counters.clone())?;
        opened.insert(id, Arc::new(table));
    }
    let mut blobs = std::collections::HashMap::new();
    for meta in state.blobs.values() {
        let path = layout.blob(meta.file_id);
        let blob = BlobFile::open(&vfs, path, meta, counters.clone())?;
        blobs.insert(meta.file_id, Arc::new(blob));
    }
    let version = Version::from_state(&state, trees, &mut |id| opened.remove(&id), &mut |id| {
        blobs.remove(&id)
    });

    let is_replicated = replicated.is_some();
    // Where nothing was flushed, a damaged record may have said that the log has begun. It is read then.
    let is_in_doubt = position.torn && state.flushed_index == 0;
    if is_replicated && !state.log_started && !is_in_doubt {
        // The manifest calls it void, or it was created and never used.
        let log = layout.log();
        let found = vfs.metadata(&log).map_err(|e| Error::io("stat", &log, e))?;
        if found.is_some() {
            Log::discard(&*vfs, &log)?;
        }
    }
    let mut replayed = Replayed {
        memtables: Vec::new(),
        last_revision: state.flushed_revision,
        last_index: state.flushed_index,
    };
    let mut replicated = replicated;
    let log = match options.sync {
        SyncPolicy::Never => None,
        SyncPolicy::Always | SyncPolicy::Every(_) => {
            let own = LogOptions {
                owner: identity.database_id,
                ..options.log.clone()
            };
            let log = Log::recover(
                vfs.clone(),
                layout.log(),
                own,
                counters.clone(),
                state.flushed_index,
                state.log_started,
            )?;
            match &mut replicated {
                Some(replicated) => {
                    for stretch in log.replay(state.flushed_index, 1) {
                        stretch.visit(&mut *replicated.visit)?;
                    }
                }
                None => {
                    let threads = workers::threads_for(options.log.background, log.size_bytes());
                    replayed = replay(&log, &layout, &options, &state, threads)?;
                }
            }
            Some(log)
        }
    };
    // Only now, when the log has proven that it goes on from where the manifest ends: if not, the
    // manifest has lost its end, and what it does not name is no leftover. And before the manifest
    // is replaced, whose files have the names that an interrupted replacement has left.
    for path in &plan.leftovers {
        vfs.remove_file(path)
            .map_err(|e| Error::io("remove", path, e))?;
    }
    set_aside(&*vfs, &layout, &plan.set_aside)?;
    let starts_log = log.is_some() && !state.log_started;
    let log_started = Edit {
        log_started: true,
        ..Edit::default()
    };
    if starts_log {
        state.apply(&log_started).map_err(Error::Internal)?;
    }
    let manifest = match intact {
        // Without this edit the log of a member counts as void and is discarded, so it must not
        // pass for a torn record once something has been acknowledged in that log. Nor may it in what
        // may become a member's.
        Some(_) if starts_log && (is_replicated || state.flushed_index > 0) => {
            replace_manifest(&*vfs, &layout, &identity, &state, counters.clone())?
        }
        Some(mut manifest) => {
            if starts_log {
                manifest.append(&log_started)?;
            }
            manifest
        }
        None => replace_manifest(&*vfs, &layout, &identity, &state, counters.clone())?,
    };
    let Replayed {
        mut memtables,
        last_revision,
        last_index,
    } = replayed;
    let mut active = memtables
        .pop()
        .unwrap_or_else(|| Arc::new(Memtable::new(1, trees, options.memtable_bytes)));
    memtables.reverse();
    let retirement = Retirement::new();
    for memtable in memtables.iter_mut().chain([&mut active]) {
        if let Some(memtable) = Arc::get_mut(memtable) {
            memtable.retire_to(retirement.clone());
        }
    }
    let super_version = SuperVersion {
        active,
        sealed: memtables,
        version: Arc::new(version),
    };
    let readers = Readers::new(options.history, options.watch_lag_max, state.history_floor);
    if is_replicated {
        // Until it is known from where on they are needed.
        readers.hold_tombstones(0);
    }
    let log_sync = log.as_ref().map(Log::sync_handle);
    let (own_log, given_log) = match is_replicated {
        true => (None, log),
        false => (log, None),
    };
    let commit = CommitState {
        log: own_log,
        last_revision,
        last_index,
        throttle_debt_ns: 0,
        failure: None,
    };
    let ballast = Ballast::new(
        vfs.clone(),
        layout.log().join("spare-ballast.tmp"),
        options.log.first_segment_bytes,
    );
    let shared = Shared {
        is_replicated,
        log_sync,
        commit: Mutex::new(commit),
        super_version: Swap::new(Arc::new(super_version)),
        retirement,
        super_version_update: Mutex::new(()),
        visible: AtomicU64::new(last_revision),
        next_file_id: AtomicU64::new(state.next_file_id),
        next_run_id: AtomicU64::new(state.next_run_id),
        manifest: Mutex::new(ManifestState { manifest, state }),
        readers: Arc::new(readers),
        flushing: Mutex::new(()),
        compacting: Mutex::new(()),
        signals: Mutex::new(Signals {
            flush_wanted: true,
            compaction_wanted: true,
            ..Signals::default()
        }),
        work: Condvar::new(),
        done: Condvar::new(),
        is_closing: AtomicBool::new(false),
        ballast,
        lock: Mutex::new(Some(lock)),
        database_id: identity.database_id,
        vfs,
        clock,
        layout,
        options,
        counters,
        cache,
    };
    Ok((shared, given_log))
}

/// What the log holds behind the tables.
struct Replayed {
    /// Oldest first; none when the log holds nothing.
    memtables: Vec<Arc<Memtable>>,
    last_revision: Revision,
    last_index: Index,
}

/// Rebuilds memtables from the log: stretches of it one beside the other, by at most `threads`
/// threads, each into memtables of its own. Which are in order as the stretches are, so what is read
/// from them does not depend on how many there are; and neither does the error, which is the one
/// that a single stretch comes to first.
fn replay(
    log: &Log,
    layout: &Layout,
    options: &EngineOptions,
    state: &State,
    threads: usize,
) -> Result<Replayed> {
    let stretches: Vec<_> = log
        .replay(state.flushed_index, threads)
        .into_iter()
        .enumerate()
        .collect();
    let parts = workers::map(&stretches, threads, |(number, stretch)| {
        let first_index = stretch.first_index();
        // What the stretch before ends with is known when it has been read.
        let revision = (*number == 0).then_some(state.flushed_revision);
        let mut part = Replay::new(*number, options, first_index, revision);
        let result = stretch.visit(&mut |index, payload| part.entry(layout, index, payload));
        part.finish_memtable();
        (part, result)
    });
    let mut replayed = Replayed {
        memtables: Vec::new(),
        last_revision: state.flushed_revision,
        last_index: state.flushed_index,
    };
    for (part, result) in parts {
        if let Some((index, revision)) = part.begins_with {
            check_order(layout, index, revision, replayed.last_revision)?;
        }
        result?;
        replayed.last_revision = part.last_revision.unwrap_or(replayed.last_revision);
        replayed.last_index = part.last_index;
        replayed.memtables.extend(part.memtables);
    }
    Ok(replayed)
}

fn corrupt_entry(layout: &Layout, index: Index, reason: &str) -> Error {
    Error::corrupt(&layout.log(), 0, format!("log entry {index}: {reason}"))
}

/// Whether an entry of `revision` may follow one of `last`.
fn check_order(layout: &Layout, index: Index, revision: Revision, last: Revision) -> Result<()> {
    if revision != last && revision != last + 1 {
        let reason = format!("revision {revision} follows {last}");
        return Err(corrupt_entry(layout, index, &reason));
    }
    Ok(())
}

/// Rebuilds memtables from the entries of one stretch of the log, oldest first.
struct Replay {
    trees: usize,
    memtable_bytes: usize,
    memtables: Vec<Arc<Memtable>>,
    /// The memtable that takes the next entries.
    builder: Option<MemtableBuilder>,
    generation: u64,
    /// The first entry, where what is before it is not known: its index and revision.
    begins_with: Option<(Index, Revision)>,
    last_revision: Option<Revision>,
    last_index: Index,
}

impl Replay {
    /// `number` is that of the stretch, `first_index` that of its first entry, and `last_revision`
    /// is what is before it, if that is known.
    fn new(
        number: usize,
        options: &EngineOptions,
        first_index: Index,
        last_revision: Option<Revision>,
    ) -> Replay {
        Replay {
            trees: options.trees.len(),
            memtable_bytes: options.memtable_bytes,
            memtables: Vec::new(),
            builder: None,
            // They grow from stretch to stretch, however many memtables one has.
            generation: (number as u64) << 32,
            begins_with: None,
            last_revision,
            last_index: first_index.saturating_sub(1),
        }
    }

    fn entry(&mut self, layout: &Layout, index: Index, payload: &[u8]) -> Result<()> {
        let corrupt = |reason: String| corrupt_entry(layout, index, &reason);
        if index != self.last_index + 1 {
            return Err(corrupt(format!(
                "entry {} was expected",
                self.last_index + 1
            )));
        }
        let mut reader = BatchReader::new(payload)
            .ok_or_else(|| corrupt("its batch does not decode".to_owned()))?;
        let revision = reader.revision();
        match self.last_revision {
            Some(last) => check_order(layout, index, revision, last)?,
            None => self.begins_with = Some((index, revision)),
        }
        // Every operation takes at least two bytes of the payload.
        let mut count = reader.clone();
        let mut room = payload.len();
        while let Some(op) = count
            .next_operation()
            .map_err(|reason| corrupt(reason.to_owned()))?
        {
            if usize::from(op.tree.0) >= self.trees {
                return Err(corrupt(format!("tree {} is unknown", op.tree.0)));
            }
            room += MemtableWriter::cost_bytes(0, 0) + 16;
        }
        let is_full = |builder: &mut MemtableBuilder| !builder.writer().has_room(room);
        if self.builder.as_mut().is_none_or(is_full) {
            self.finish_memtable();
            self.generation += 1;
            let capacity = self.memtable_bytes.max(room);
            self.builder = Some(MemtableBuilder::new(self.generation, self.trees, capacity));
        }
        if let Some(builder) = &mut self.builder {
            let mut writer = builder.writer();
            while let Some(op) = reader
                .next_operation()
                .map_err(|reason| corrupt(reason.to_owned()))?
            {
                writer.insert(op.tree, op.key, revision, op.kind, op.value)?;
            }
            writer.set_max_index(index);
        }
        (self.last_index, self.last_revision) = (index, Some(revision));
        Ok(())
    }

    fn finish_memtable(&mut self) {
        let finished = self.builder.take().map(MemtableBuilder::finish);
        self.memtables.extend(finished.map(Arc::new));
    }
}
