//! A disk for tests: it keeps what is durable apart from what is merely written, fails a chosen
//! operation, and crashes into any state that the fault model allows.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::vfs::{Metadata, OpenMode, Vfs, VfsFile, VfsLock};

const SECTOR_BYTES: usize = 512;

/// What can be counted and made to fail.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::log) enum Operation {
    Create,
    Write,
    Sync,
    SyncDir,
    Rename,
    Remove,
    SetLen,
}

/// What survives a crash.
pub(in crate::log) enum Crash<'a> {
    /// Everything written: the process died, the machine did not. What was not synced is still
    /// lost when the machine dies later.
    Kill,
    /// Only what was synced.
    PowerLoss,
    /// What was synced, and any of the sectors and directory entries that were not.
    Torn(&'a mut fastrand::Rng),
}

#[derive(Clone, Debug)]
pub(in crate::log) struct Disk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    names: BTreeMap<PathBuf, Node>,
    durable_names: BTreeMap<PathBuf, Node>,
    /// Changes of names that no directory sync has covered.
    pending: Vec<NameChange>,
    files: Vec<FileState>,
    counts: BTreeMap<Operation, u64>,
    failing: Option<(Operation, u64, io::ErrorKind)>,
    operations_left: Option<u64>,
    /// Whether no file can be made until one is removed.
    is_full: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Node {
    Directory,
    File(usize),
}

#[derive(Clone, Debug)]
enum NameChange {
    Add(PathBuf, Node),
    Rename(PathBuf, PathBuf, Node),
    Remove(PathBuf),
}

#[derive(Debug, Default)]
struct FileState {
    bytes: Vec<u8>,
    durable: Vec<u8>,
}

#[derive(Debug)]
struct DiskFile {
    disk: Disk,
    number: usize,
}

fn apply(names: &mut BTreeMap<PathBuf, Node>, change: &NameChange) {
    match change {
        NameChange::Add(path, node) => {
            names.insert(path.clone(), *node);
        }
        NameChange::Rename(from, to, node) => {
            // Where `from` was removed or used anew since, the rename still moved this file.
            if names.get(from) == Some(node) {
                names.remove(from);
            }
            names.insert(to.clone(), *node);
        }
        NameChange::Remove(path) => {
            names.remove(path);
        }
    }
}

impl State {
    fn change(&mut self, change: NameChange) {
        apply(&mut self.names, &change);
        self.pending.push(change);
    }

    fn attempt(&mut self, operation: Operation) -> io::Result<()> {
        if let Some(left) = &mut self.operations_left {
            *left = left
                .checked_sub(1)
                .ok_or_else(|| io::Error::other("the machine is off"))?;
        }
        let count = self.counts.entry(operation).or_default();
        *count += 1;
        match &mut self.failing {
            Some((failing, left, kind)) if *failing == operation => {
                *left -= 1;
                let kind = *kind;
                if *left == 0 {
                    self.failing = None;
                    return Err(kind.into());
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Disk {
    /// A disk with the directory `data`.
    pub(in crate::log) fn new() -> Disk {
        let disk = Disk(Arc::default());
        disk.create_dir(Path::new("data")).expect("create");
        disk.sync_dir(Path::new("")).expect("sync");
        disk
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// How often `operation` was attempted.
    pub(in crate::log) fn count(&self, operation: Operation) -> u64 {
        self.state().counts.get(&operation).copied().unwrap_or(0)
    }

    /// Makes the `nth` such operation from now on fail, once.
    pub(in crate::log) fn fail(&self, operation: Operation, nth: u64, kind: io::ErrorKind) {
        self.state().failing = Some((operation, nth, kind));
    }

    /// From now on no file can be made, until one is removed.
    pub(in crate::log) fn fill_up(&self) {
        self.state().is_full = true;
    }

    /// Takes back [`Disk::fail`].
    pub(in crate::log) fn heal(&self) {
        self.state().failing = None;
    }

    /// Lets `count` more operations that change something through, then none.
    pub(in crate::log) fn stop_after(&self, count: u64) {
        self.state().operations_left = Some(count);
    }

    /// The disk as the next start of the machine finds it.
    pub(in crate::log) fn crashed(&self, mut crash: Crash<'_>) -> Disk {
        let state = self.state();
        let files = state
            .files
            .iter()
            .map(|file| survivor(file, &mut crash))
            .collect();
        if matches!(crash, Crash::Kill) {
            return Disk(Arc::new(Mutex::new(State {
                names: state.names.clone(),
                durable_names: state.durable_names.clone(),
                pending: state.pending.clone(),
                files,
                ..State::default()
            })));
        }
        let mut names = state.durable_names.clone();
        for change in &state.pending {
            let survives = match &mut crash {
                Crash::Kill | Crash::PowerLoss => false,
                Crash::Torn(random) => random.bool(),
            };
            if survives {
                apply(&mut names, change);
            }
        }
        let durable_names = names.clone();
        Disk(Arc::new(Mutex::new(State {
            names,
            durable_names,
            files,
            ..State::default()
        })))
    }
}

fn survivor(file: &FileState, crash: &mut Crash<'_>) -> FileState {
    let bytes = match crash {
        Crash::Kill => {
            return FileState {
                bytes: file.bytes.clone(),
                durable: file.durable.clone(),
            };
        }
        Crash::PowerLoss => file.durable.clone(),
        Crash::Torn(random) => {
            let len = if random.bool() {
                file.bytes.len()
            } else {
                file.durable.len()
            };
            let mut bytes = vec![0; len];
            for start in (0..len).step_by(SECTOR_BYTES) {
                let source = if random.bool() {
                    &file.bytes
                } else {
                    &file.durable
                };
                let end = (start + SECTOR_BYTES).min(len).min(source.len());
                if start < end {
                    bytes[start..end].copy_from_slice(&source[start..end]);
                }
            }
            bytes
        }
    };
    FileState {
        durable: bytes.clone(),
        bytes,
    }
}

impl Vfs for Disk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        let mut state = self.state();
        let number = match (state.names.get(path), mode) {
            (Some(_), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(Node::File(number)), _) => *number,
            (Some(Node::Directory), _) => return Err(io::ErrorKind::IsADirectory.into()),
            (None, OpenMode::CreateNew) => {
                state.attempt(Operation::Create)?;
                if state.is_full {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                state.files.push(FileState::default());
                let number = state.files.len() - 1;
                state.change(NameChange::Add(path.to_owned(), Node::File(number)));
                number
            }
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Arc::new(DiskFile {
            disk: self.clone(),
            number,
        }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        if state.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.attempt(Operation::Create)?;
        state.change(NameChange::Add(path.to_owned(), Node::Directory));
        Ok(())
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        let state = self.state();
        if !state.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let children = state
            .names
            .keys()
            .filter(|name| name.parent() == Some(path));
        let names = children.filter_map(|name| name.file_name());
        Ok(names
            .map(|name| name.to_string_lossy().into_owned())
            .collect())
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        let state = self.state();
        Ok(state.names.get(path).map(|node| {
            let (len, is_dir) = match node {
                Node::Directory => (0, true),
                Node::File(number) => (state.files[*number].bytes.len() as u64, false),
            };
            Metadata {
                len,
                allocated: len,
                is_dir,
            }
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.attempt(Operation::Rename)?;
        let node = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        state.change(NameChange::Rename(from.to_owned(), to.to_owned(), node));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.attempt(Operation::Remove)?;
        if !state.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.is_full = false;
        state.change(NameChange::Remove(path.to_owned()));
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.attempt(Operation::SyncDir)?;
        let (covered, rest) = std::mem::take(&mut state.pending)
            .into_iter()
            .partition(|change| {
                let (NameChange::Add(name, _)
                | NameChange::Remove(name)
                | NameChange::Rename(name, ..)) = change;
                name.parent() == Some(path)
            });
        state.pending = rest;
        let covered: Vec<NameChange> = covered;
        for change in &covered {
            apply(&mut state.durable_names, change);
        }
        Ok(())
    }

    fn lock(&self, _path: &Path) -> io::Result<Option<Box<dyn VfsLock>>> {
        Ok(None)
    }
}

impl VfsFile for DiskFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.state();
        let bytes = &state.files[self.number].bytes;
        let start = (offset as usize).min(bytes.len());
        let count = buffer.len().min(bytes.len() - start);
        buffer[..count].copy_from_slice(&bytes[start..start + count]);
        Ok(count)
    }

    fn write_at(&self, new: &[u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.state();
        state.attempt(Operation::Write)?;
        let bytes = &mut state.files[self.number].bytes;
        let end = offset as usize + new.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(new);
        Ok(new.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.attempt(Operation::Sync)?;
        let file = &mut state.files[self.number];
        file.durable.clone_from(&file.bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.attempt(Operation::SetLen)?;
        state.files[self.number].bytes.resize(len as usize, 0);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state().files[self.number].bytes.len() as u64)
    }
}
