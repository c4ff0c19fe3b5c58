//! Opening a directory: scan, plan, apply.
//!
//! *Scan* reads `BOWLINE`, the manifest and the directory, and changes nothing. *Plan* decides from them
//! which files are missing, which are left over, and whether the manifest must be replaced. *Apply* opens
//! the tables, replays the log into memtables, and then removes leftovers. A crash may interrupt any
//! step, and the next opening repeats it: leftovers are only removed, and replay only reads.
//!
//! What a scan reads may not be durable: a killed process may leave names and an edit that it had not
//! synced, or whose sync had failed. So before apply removes a file that only an older state needs, it
//! syncs the names, and writes and syncs the last edit again.
//!
//! A damaged record at the end of the manifest counts as torn: as an edit that never happened. It may
//! also be a synced record that has rotted. The loss of such an edit is detected elsewhere: the log then
//! begins too late, or an input of a compaction is missing. (An edit whose loss nothing else detects, an
//! ingestion or the start of a member's log, is the first record of a new manifest, which is never torn.)
//! So tables that the manifest does not name are removed only if its end is whole; otherwise they are
//! renamed and kept.
//!
//! The creation of a database ends when `BOWLINE` appears, atomically. A directory without `BOWLINE` that
//! has only files which creation makes earlier is an unfinished creation, and is created again.

mod replay;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use replay::{Replayed, replay};

use super::ballast::Ballast;
use super::check::missing_tables;
use super::core::Core;
use super::files::FileSet;
use super::group_commit::CommitState;
use super::history::HistoryPins;
use super::jobs::BackgroundJobs;
use super::log_barrier::LogBarrier;
use super::options::{EngineOptions, SyncPolicy};
use super::replicated::Replicated;
use super::version_set::VersionSet;
use super::view::ReadView;
use crate::blob::BlobFile;
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::log::{Log, LogOptions};
use crate::sync::Mutex;
use crate::table::{PageCache, Table};
use crate::version::{Edit, Identity, Layout, Manifest, ManifestPosition, State, Version};
use crate::vfs::{Vfs, VfsLock};
use crate::{Clock, workers};

/// The result of a scan.
struct Scanned {
    identity: Identity,
    state: State,
    position: ManifestPosition,
    names: Vec<String>,
    table_names: Vec<String>,
}

/// The changes that opening will make.
#[derive(Debug, PartialEq)]
struct Plan {
    /// Files that the manifest does not name: unfinished outputs, replaced manifests.
    leftovers: Vec<PathBuf>,
    /// Tables that the manifest does not name while its last record is in doubt, with the names under
    /// which they are kept.
    set_aside: Vec<(PathBuf, PathBuf)>,
    /// The manifest ends in a torn record, so it is not appended to.
    replace_manifest: bool,
}

/// The state of the step *apply*.
struct Opening<'a> {
    vfs: Arc<dyn Vfs>,
    clock: Arc<dyn Clock>,
    layout: Layout,
    options: EngineOptions,
    counters: Arc<Counters>,
    cache: Arc<PageCache>,
    lock: Box<dyn VfsLock>,
    identity: Identity,
    state: State,
    position: ManifestPosition,
    plan: Plan,
    replicated: Option<Replicated<'a>>,
}

/// Opens the directory. With `replicated` the log is returned to the caller instead of being replayed.
pub(super) fn open(
    vfs: Arc<dyn Vfs>,
    clock: Arc<dyn Clock>,
    layout: Layout,
    options: EngineOptions,
    mut replicated: Option<Replicated<'_>>,
) -> Result<(Core, Option<Log>)> {
    let counters = Arc::new(Counters::default());
    prepare_directory(&*vfs, &layout, &options, replicated.is_some())?;
    let lock = take_lock(&*vfs, &layout)?;
    let has_database = Identity::read(&*vfs, &layout)?.is_some();
    if let Some(replicated) = &mut replicated {
        (replicated.locked)(has_database)?;
    }
    if !has_database {
        let (id, first_file_id) = match &replicated {
            Some(replicated) => (replicated.database_id, replicated.first_file_id),
            None => (fastrand::u128(1..), 1),
        };
        create(&*vfs, &layout, id, first_file_id, counters.clone())?;
    }
    let scanned = scan(&*vfs, &layout)?;
    let plan = plan(&scanned, &layout)?;
    let opening = Opening {
        cache: Arc::new(PageCache::new(options.cache_bytes, counters.clone())),
        vfs,
        clock,
        layout,
        options,
        counters,
        lock,
        identity: scanned.identity,
        state: scanned.state,
        position: scanned.position,
        plan,
        replicated,
    };
    opening.execute()
}

/// Checks that the path is a directory that is, or may become, a database. Writes nothing into any other
/// directory.
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
            // A server may have made certificates of its own in `fixtures`.
            || is_replicated && matches!(name.as_str(), "MEMBER" | "MEMBER.new" | "fixtures")
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
        // An interrupted creation or checkpoint is refused too: opening would turn it into an empty
        // database.
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
    // Also if the directory existed: its creator may have died before this sync.
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
    let tables = layout.tables();
    let has_tables = vfs.metadata(&tables);
    if has_tables
        .map_err(|e| Error::io("stat", &tables, e))?
        .is_none()
    {
        return Err(missing_tables(layout, &state));
    }
    let table_names = list(&tables)?;
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
                // The damaged record may have named this table.
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

/// Renames tables that the manifest does not name, durably. So nothing mistakes them for tables of the
/// database, and their ids can be given again.
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

impl Opening<'_> {
    /// Executes the plan. The order of the steps makes every crash between them harmless.
    fn execute(mut self) -> Result<(Core, Option<Log>)> {
        let root = self.layout.root();
        let synced = self.vfs.sync_dir(root);
        synced.map_err(|e| Error::io("sync", root, e))?;
        let intact = self.open_intact_manifest()?;
        let version = self.open_version()?;
        self.discard_void_log()?;
        let (log, replayed) = self.recover_log()?;
        // Only now, because the log is known to continue where the manifest ends. Otherwise the manifest
        // has lost its end, and a file that it does not name is no leftover. And before the manifest is
        // replaced, because an interrupted replacement has left files with the same names.
        self.remove_leftovers()?;
        let manifest = self.start_log(intact, log.is_some())?;
        Ok(self.into_core(version, manifest, log, replayed))
    }

    fn open_intact_manifest(&self) -> Result<Option<Manifest>> {
        if self.plan.replace_manifest {
            return Ok(None);
        }
        let manifest = Manifest::open(
            &*self.vfs,
            &self.layout,
            &self.identity,
            self.position,
            self.counters.clone(),
        )?;
        Ok(Some(manifest))
    }

    /// Opens the tables and blob files that the state names.
    fn open_version(&self) -> Result<Version> {
        let trees = self.options.trees.len();
        let mut tables = HashMap::new();
        for placed in self.state.tables.values() {
            let id = placed.meta.file_id;
            let path = self.layout.table(id);
            if usize::from(placed.meta.tree.0) >= trees {
                let reason = format!(
                    "it belongs to tree {}, which is unknown",
                    placed.meta.tree.0
                );
                return Err(Error::corrupt(&path, 0, reason));
            }
            let (cache, counters) = (self.cache.clone(), self.counters.clone());
            let table = Table::open(&self.vfs, path, &placed.meta, cache, counters)?;
            tables.insert(id, Arc::new(table));
        }
        let mut blobs = HashMap::new();
        for meta in self.state.blobs.values() {
            let path = self.layout.blob(meta.file_id);
            let (cache, counters) = (self.cache.clone(), self.counters.clone());
            let blob = BlobFile::open(&self.vfs, path, meta, cache, counters)?;
            blobs.insert(meta.file_id, Arc::new(blob));
        }
        let version = Version::from_state(
            &self.state,
            trees,
            &mut |id| tables.remove(&id),
            &mut |id| blobs.remove(&id),
        );
        Ok(version)
    }

    /// Removes the log of a member of a cluster if the manifest says that it is void, or that it was never
    /// used.
    fn discard_void_log(&self) -> Result<()> {
        // If nothing was flushed, a damaged record may have said that the log has begun. Then the log is
        // read.
        let is_in_doubt = self.position.torn && self.state.flushed_index == 0;
        if self.replicated.is_none() || self.state.log_started || is_in_doubt {
            return Ok(());
        }
        let log = self.layout.log();
        let found = self.vfs.metadata(&log);
        match found.map_err(|e| Error::io("stat", &log, e))? {
            Some(_) => Log::discard(&*self.vfs, &log),
            None => Ok(()),
        }
    }

    /// Recovers the log, and replays it into memtables or passes its entries to the owner.
    fn recover_log(&mut self) -> Result<(Option<Log>, Replayed)> {
        let flushed_index = self.state.flushed_index;
        let mut replayed = Replayed::nothing_behind(&self.state);
        if self.options.sync == SyncPolicy::Never {
            return Ok((None, replayed));
        }
        let log_options = LogOptions {
            owner: self.identity.database_id,
            ..self.options.log.clone()
        };
        let recover = |must_exist| {
            Log::recover(
                self.vfs.clone(),
                self.layout.log(),
                log_options.clone(),
                self.counters.clone(),
                flushed_index,
                must_exist,
            )
        };
        let mut recovered = recover(self.state.log_started);
        if let (Err(damage), Some(replicated)) = (&recovered, &mut self.replicated)
            && damage.is_corruption()
            && (replicated.damaged)(damage)?
        {
            // The owner's note is durable, so a crash from here on leads here again, or to a shorter log.
            Log::set_aside(&*self.vfs, &self.layout.log())?;
            recovered = recover(false);
        }
        let log = recovered?;
        match &mut self.replicated {
            Some(replicated) => {
                for stretch in log.replay(flushed_index, 1) {
                    stretch.visit(&mut *replicated.visit)?;
                }
            }
            None => {
                let background = self.options.log.background;
                let threads = workers::threads_for(background, log.size_bytes());
                replayed = replay(&log, &self.layout, &self.options, &self.state, threads)?;
            }
        }
        Ok((Some(log), replayed))
    }

    fn remove_leftovers(&self) -> Result<()> {
        for path in &self.plan.leftovers {
            let removed = self.vfs.remove_file(path);
            removed.map_err(|e| Error::io("remove", path, e))?;
        }
        set_aside(&*self.vfs, &self.layout, &self.plan.set_aside)
    }

    /// Records that the log has begun, if it has not been recorded, and replaces a damaged manifest.
    fn start_log(&mut self, intact: Option<Manifest>, has_log: bool) -> Result<Manifest> {
        let is_new = has_log && !self.state.log_started;
        let log_started = Edit {
            log_started: true,
            ..Edit::default()
        };
        if is_new {
            self.state.apply(&log_started).map_err(Error::Internal)?;
        }
        // Without this edit the log of a member counts as void and is discarded. So once the log has
        // acknowledged something, this edit must never be taken for torn. The same holds for a database
        // that may become a member's.
        let must_be_whole = self.replicated.is_some() || self.state.flushed_index > 0;
        match intact {
            Some(mut manifest) if !(is_new && must_be_whole) => {
                if is_new {
                    manifest.append(&log_started)?;
                }
                Ok(manifest)
            }
            _ => {
                let counters = self.counters.clone();
                let (identity, state) = (&self.identity, &self.state);
                replace_manifest(&*self.vfs, &self.layout, identity, state, counters)
            }
        }
    }

    /// The parts of the engine, and the log if the caller keeps it.
    fn into_core(
        self,
        version: Version,
        manifest: Manifest,
        log: Option<Log>,
        replayed: Replayed,
    ) -> (Core, Option<Log>) {
        let first_file_id = self.replicated.as_ref().map(|it| it.first_file_id);
        let is_replicated = first_file_id.is_some();
        let (state, options) = (self.state, self.options);
        // Copies were once made whose floor was above their newest revision.
        let floor = match is_replicated {
            true => state.history_floor,
            false => state.history_floor.min(replayed.last_revision),
        };
        let pins = HistoryPins::new(options.history, options.watch_lag_max, floor);
        for (tree, revision) in &state.held {
            pins.hold_tree(*tree, Some(*revision));
        }
        if is_replicated {
            // Keep all tombstones until the owner says which ones are needed.
            pins.hold_tombstones(0);
        }
        let log_barrier = LogBarrier::new(
            log.as_ref().map(Log::sync_handle),
            self.layout.log(),
            is_replicated,
            options.has_threads(),
        );
        let (own_log, given_log) = match is_replicated {
            true => (None, log),
            false => (log, None),
        };
        let Replayed {
            memtables,
            last_revision,
            last_index,
        } = replayed;
        let ballast = Ballast::new(
            self.vfs.clone(),
            self.layout.log().join("spare-ballast.tmp"),
            options.log.first_segment_bytes,
        );
        let files = Arc::new(FileSet::new(
            self.vfs,
            self.layout,
            self.cache,
            self.counters.clone(),
            first_file_id.unwrap_or(state.next_file_id),
            first_file_id.is_some(),
        ));
        let database_id = self.identity.database_id;
        let rewrite_bytes = options.manifest_rewrite_bytes;
        let core = Core {
            view: ReadView::new(memtables, version, options.memtable_bytes, last_revision),
            commit: Mutex::new(CommitState::new(own_log, last_revision, last_index)),
            versions: VersionSet::new(manifest, state, files.clone(), database_id, rewrite_bytes),
            pins: Arc::new(pins),
            jobs: BackgroundJobs::new(),
            log: log_barrier,
            ballast,
            directory: Mutex::new(Some(self.lock)),
            is_replicated,
            database_id,
            clock: self.clock,
            counters: self.counters,
            files,
            options,
        };
        (core, given_log)
    }
}
