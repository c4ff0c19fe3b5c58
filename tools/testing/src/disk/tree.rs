//! A file system's state at one moment: directories that name inodes, and inodes with bytes.
//!
//! Inodes and names are separate, because a crash treats them separately: a file's bytes may be safe without
//! any name. [`Tree::apply`] executes one operation and ignores an impossible one, so that a sequence with
//! gaps (a crash image) has a meaning:
//!
//! - a create whose name is taken, and a rename or remove whose name does not (or no longer) belong to the
//!   same inode, do nothing;
//! - a write to a removed inode does nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path};
use std::sync::Arc;

use super::contents::Contents;
use super::operation::{Inode, Operation, Payload, Place};

/// The directory that always exists: the paths `/` and the empty one.
pub(crate) const ROOT: Inode = Inode(0);

pub(crate) type Entries = BTreeMap<Arc<str>, Inode>;

#[derive(Clone, Debug)]
pub(crate) enum Node {
    Directory(Arc<Entries>),
    File(Arc<Contents>),
}

/// A whole file system. Cloning it copies names and pointers, no bytes of files.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    nodes: BTreeMap<Inode, Node>,
}

impl Tree {
    pub(crate) fn new() -> Tree {
        Tree {
            nodes: BTreeMap::from([(ROOT, Node::Directory(Arc::default()))]),
        }
    }

    pub(crate) fn next_inode(&self) -> Inode {
        Inode(self.nodes.keys().next_back().map_or(0, |last| last.0) + 1)
    }

    pub(crate) fn node(&self, inode: Inode) -> Option<&Node> {
        self.nodes.get(&inode)
    }

    pub(crate) fn file(&self, inode: Inode) -> Option<&Contents> {
        match self.nodes.get(&inode) {
            Some(Node::File(contents)) => Some(contents),
            _ => None,
        }
    }

    pub(crate) fn file_mut(&mut self, inode: Inode) -> Option<&mut Contents> {
        match self.nodes.get_mut(&inode) {
            Some(Node::File(contents)) => Some(Arc::make_mut(contents)),
            _ => None,
        }
    }

    pub(crate) fn entries(&self, directory: Inode) -> Option<&Entries> {
        match self.nodes.get(&directory) {
            Some(Node::Directory(entries)) => Some(entries),
            _ => None,
        }
    }

    fn entries_mut(&mut self, directory: Inode) -> Option<&mut Entries> {
        match self.nodes.get_mut(&directory) {
            Some(Node::Directory(entries)) => Some(Arc::make_mut(entries)),
            _ => None,
        }
    }

    /// The inode with this name.
    pub(crate) fn entry(&self, place: &Place) -> Option<Inode> {
        self.entries(place.directory)?.get(&place.name).copied()
    }

    /// The inode of a path; `None` when its last name is absent.
    pub(crate) fn resolve(&self, path: &Path) -> io::Result<Option<Inode>> {
        if names_of(path)?.is_empty() {
            return Ok(Some(ROOT));
        }
        Ok(self.entry(&self.place(path)?))
    }

    /// The directory and name of a path. The directory must exist, the name need not.
    pub(crate) fn place(&self, path: &Path) -> io::Result<Place> {
        let names = names_of(path)?;
        let Some((name, parents)) = names.split_last() else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the root has no name",
            ));
        };
        let mut directory = ROOT;
        for parent in parents {
            let entries = self
                .entries(directory)
                .ok_or(io::ErrorKind::NotADirectory)?;
            directory = *entries.get(*parent).ok_or(io::ErrorKind::NotFound)?;
        }
        self.entries(directory)
            .ok_or(io::ErrorKind::NotADirectory)?;
        Ok(Place {
            directory,
            name: Arc::from(*name),
            path: Arc::from(path),
        })
    }

    /// Every file and directory by path, for tests and messages.
    pub(crate) fn paths(&self) -> Vec<(String, Inode)> {
        let mut found = Vec::new();
        let mut open = vec![(String::new(), ROOT)];
        while let Some((prefix, directory)) = open.pop() {
            for (name, inode) in self.entries(directory).into_iter().flatten() {
                let path = format!("{prefix}{name}");
                if self.entries(*inode).is_some() {
                    open.push((format!("{path}/"), *inode));
                }
                found.push((path, *inode));
            }
        }
        found.sort();
        found
    }

    pub(crate) fn path_of(&self, inode: Inode) -> Option<String> {
        if inode == ROOT {
            return Some("/".to_owned());
        }
        self.paths()
            .into_iter()
            .find_map(|(path, found)| (found == inode).then_some(path))
    }

    /// Creates the inode of a create, with no name yet.
    pub(crate) fn prepare(&mut self, operation: &Operation) {
        match operation {
            Operation::CreateDir { inode, .. } => {
                self.nodes
                    .entry(*inode)
                    .or_insert_with(|| Node::Directory(Arc::default()));
            }
            Operation::Create { inode, .. } => {
                self.nodes
                    .entry(*inode)
                    .or_insert_with(|| Node::File(Arc::default()));
            }
            _ => {}
        }
    }

    /// Executes one operation, or nothing where it is impossible. Syncs change no state.
    pub(crate) fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::CreateDir { at, inode } | Operation::Create { at, inode } => {
                self.prepare(operation);
                if let Some(entries) = self.entries_mut(at.directory) {
                    entries.entry(at.name.clone()).or_insert(*inode);
                }
            }
            Operation::Rename { from, to, inode } => {
                if self.entry(from) == Some(*inode) && self.entries(to.directory).is_some() {
                    if let Some(entries) = self.entries_mut(from.directory) {
                        entries.remove(&from.name);
                    }
                    if let Some(entries) = self.entries_mut(to.directory) {
                        entries.insert(to.name.clone(), *inode);
                    }
                }
            }
            Operation::Remove { at, inode } => {
                if self.entry(at) == Some(*inode)
                    && let Some(entries) = self.entries_mut(at.directory)
                {
                    entries.remove(&at.name);
                }
            }
            Operation::Write {
                inode,
                offset,
                data,
                ..
            } => {
                if let Some(contents) = self.file_mut(*inode) {
                    match data {
                        Payload::Zeros(len) => contents.write_zeros(*len, *offset),
                        Payload::Bytes(bytes) => contents.write(bytes, *offset),
                    }
                }
            }
            Operation::FlipBit { inode, offset, bit } => {
                if let Some(contents) = self.file_mut(*inode) {
                    contents.flip_bit(*offset, *bit);
                }
            }
            Operation::SetLen { inode, len } => {
                if let Some(contents) = self.file_mut(*inode) {
                    contents.set_len(*len);
                }
            }
            Operation::SyncFile { .. }
            | Operation::SyncFileFailed { .. }
            | Operation::SyncDir { .. }
            | Operation::SyncDirFailed { .. } => {}
        }
    }

    /// Removes inodes that neither a directory names nor `also` holds. A file without a name never gets one
    /// again.
    pub(crate) fn forget_unnamed(&mut self, also: impl IntoIterator<Item = Inode>) {
        let mut named: BTreeSet<Inode> = also.into_iter().collect();
        named.insert(ROOT);
        for node in self.nodes.values() {
            if let Node::Directory(entries) = node {
                named.extend(entries.values().copied());
            }
        }
        self.nodes.retain(|inode, _| named.contains(inode));
    }

    /// Removes inodes that no path leads to.
    pub(crate) fn forget_unreachable(&mut self) {
        let mut reachable: BTreeSet<Inode> = self.paths().into_iter().map(|(_, i)| i).collect();
        reachable.insert(ROOT);
        self.nodes.retain(|inode, _| reachable.contains(inode));
    }
}

/// The names along a path. `/a/b` and `a/b` are the same: there is one root.
fn names_of(path: &Path) -> io::Result<Vec<&str>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => {
                let name = name.to_str().ok_or(io::ErrorKind::InvalidInput)?;
                names.push(name);
            }
            Component::ParentDir | Component::Prefix(_) => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{}: the test disk takes no `..`", path.display()),
                ));
            }
        }
    }
    Ok(names)
}
