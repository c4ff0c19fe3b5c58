//! [`OverlayVfs`]: a file system over another one, which it never writes to.
//!
//! An open database has a directory of its own. To read one that another process has open, or one that must stay as
//! it is, the engine opens it through an overlay: recovery cuts, renames and creates files as ever, and all of that
//! stays in memory.
//!
//! The names below the root are those of the moment the overlay was made: what the owner creates later is not there,
//! so its new files and those of this recovery, which choose the same numbers, do not meet. A file that is written to
//! keeps the pages that changed; the others are read from below. Files, once open, stay readable when the owner removes
//! their names. What the owner writes into them later is seen: a reader has to check what it read, as the log's and the
//! tables' readers do by checksums.
//!
//! Invariant: no call changes anything in the file system below, nor takes a lock there.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::{Metadata, OpenMode, Vfs, VfsFile, VfsLock};

/// The unit that is copied when a part of it changes.
const PAGE_BYTES: usize = 4096;

/// How deep directories are listed: the root and those in it, as of the log and the tables.
const DEPTH_MAX: u32 = 2;

/// See the module.
///
/// ```
/// use std::path::Path;
/// use bowline_storage::vfs::{MemoryVfs, OpenMode, OverlayVfs, Vfs};
/// use std::sync::Arc;
///
/// let below: Arc<dyn Vfs> = Arc::new(MemoryVfs::default());
/// below.create_dir(Path::new("d"))?;
/// below.open(Path::new("d/f"), OpenMode::CreateNew)?.write_at(b"theirs", 0)?;
///
/// let overlay = OverlayVfs::new(below.clone(), Path::new("d"))?;
/// overlay.open(Path::new("d/f"), OpenMode::ReadWrite)?.write_at(b"ours!!", 0)?;
/// let mut bytes = [0; 6];
/// below.open(Path::new("d/f"), OpenMode::Read)?.read_at(&mut bytes, 0)?;
/// assert_eq!(&bytes, b"theirs");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct OverlayVfs {
    below: Arc<dyn Vfs>,
    root: PathBuf,
    /// The root and the names in it, when the overlay was made.
    listed: Arc<BTreeSet<PathBuf>>,
    /// The names that are not as they were listed.
    names: Arc<Mutex<BTreeMap<PathBuf, Node>>>,
}

/// What a name stands for here.
#[derive(Debug, Clone)]
enum Node {
    Removed,
    Directory,
    File(Arc<OverlayFile>),
}

/// A file with pages of its own over one below, if there is one.
#[derive(Debug)]
struct OverlayFile {
    below: Option<Arc<dyn VfsFile>>,
    own: RwLock<Own>,
}

#[derive(Debug)]
struct Own {
    pages: BTreeMap<u64, Box<[u8; PAGE_BYTES]>>,
    len: u64,
    /// What lies below from here on was cut off.
    below_len: u64,
    /// Nothing was written or cut.
    is_as_below: bool,
}

#[derive(Debug)]
struct NoLock;

impl VfsLock for NoLock {}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl OverlayVfs {
    /// An overlay over the directory `root`, which need not exist. What is outside of it is as it is below; what lies
    /// deeper than a directory in it, where a database has nothing, is not there.
    ///
    /// # Errors
    /// Those of listing the directories.
    pub fn new(below: Arc<dyn Vfs>, root: &Path) -> io::Result<OverlayVfs> {
        let mut listed = BTreeSet::new();
        let mut left = vec![(root.to_owned(), 0)];
        while let Some((path, depth)) = left.pop() {
            // One that is gone again was not there.
            let Some(found) = below.metadata(&path)? else {
                continue;
            };
            // A link to a directory may lead in a circle.
            if found.is_dir && depth < DEPTH_MAX {
                let names = below.read_dir(&path)?.into_iter();
                left.extend(names.map(|name| (path.join(name), depth + 1)));
            }
            listed.insert(path);
        }
        Ok(OverlayVfs {
            below,
            root: root.to_owned(),
            listed: Arc::new(listed),
            names: Arc::default(),
        })
    }

    /// What is here under a name: `None` when it is as it was listed.
    fn own(&self, path: &Path) -> Option<Node> {
        self.names.lock().get(path).cloned()
    }

    /// Whether a name that is not an own one is there below.
    fn is_listed(&self, path: &Path) -> bool {
        !path.starts_with(&self.root) || self.listed.contains(path)
    }
}

impl Vfs for OverlayVfs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        let mut names = self.names.lock();
        let is_free = match names.get(path) {
            None => !self.is_listed(path),
            Some(Node::Removed) => true,
            Some(Node::Directory) => return Err(io::ErrorKind::IsADirectory.into()),
            Some(Node::File(_)) => false,
        };
        let below = match (mode, is_free, names.get(path)) {
            (OpenMode::CreateNew, false, _) => return Err(io::ErrorKind::AlreadyExists.into()),
            (OpenMode::CreateNew, true, _) => None,
            (_, true, _) => return Err(missing()),
            (_, _, Some(Node::File(file))) => return Ok(file.clone()),
            // Also to read: what is written through another handle is seen through this one.
            _ => Some(self.below.open(path, OpenMode::Read)?),
        };
        let file = Arc::new(OverlayFile::over(below)?);
        names.insert(path.to_owned(), Node::File(file.clone()));
        Ok(file)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        if self.metadata(path)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.names.lock().insert(path.to_owned(), Node::Directory);
        Ok(())
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut found: Vec<String> = match self.own(path) {
            Some(_) => Vec::new(),
            None if !self.is_listed(path) => return Err(missing()),
            None if path.starts_with(&self.root) => {
                let names = self
                    .listed
                    .iter()
                    .filter(|name| name.parent() == Some(path));
                let names = names.filter_map(|name| name.file_name());
                names
                    .map(|name| name.to_string_lossy().into_owned())
                    .collect()
            }
            None => self.below.read_dir(path)?,
        };
        let names = self.names.lock();
        for (name, node) in names.iter().filter(|(name, _)| name.parent() == Some(path)) {
            let Some(name) = name.file_name() else {
                continue;
            };
            let name = name.to_string_lossy().into_owned();
            found.retain(|other| *other != name);
            if !matches!(node, Node::Removed) {
                found.push(name);
            }
        }
        found.sort();
        Ok(found)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        Ok(match self.own(path) {
            None if !self.is_listed(path) => None,
            None => return self.below.metadata(path),
            Some(Node::Removed) => None,
            Some(Node::Directory) => Some(Metadata {
                len: 0,
                allocated: 0,
                is_dir: true,
            }),
            Some(Node::File(file)) => {
                let len = file.len()?;
                Some(Metadata {
                    len,
                    allocated: len,
                    is_dir: false,
                })
            }
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let node = match self.own(from) {
            None if !self.is_listed(from) => return Err(missing()),
            None => {
                let below = self.below.open(from, OpenMode::Read)?;
                Node::File(Arc::new(OverlayFile::over(Some(below))?))
            }
            Some(Node::Removed) => return Err(missing()),
            Some(node) => node,
        };
        let mut names = self.names.lock();
        names.insert(from.to_owned(), Node::Removed);
        names.insert(to.to_owned(), node);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut names = self.names.lock();
        let is_there = match names.get(path) {
            // Also when the owner has removed it meanwhile.
            None => self.is_listed(path),
            Some(node) => !matches!(node, Node::Removed),
        };
        if !is_there {
            return Err(missing());
        }
        names.insert(path.to_owned(), Node::Removed);
        Ok(())
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    /// Always free: whoever has the lock below is not disturbed.
    fn lock(&self, _path: &Path) -> io::Result<Option<Box<dyn VfsLock>>> {
        Ok(Some(Box::new(NoLock)))
    }
}

impl OverlayFile {
    fn over(below: Option<Arc<dyn VfsFile>>) -> io::Result<OverlayFile> {
        let len = match &below {
            Some(below) => below.len()?,
            None => 0,
        };
        Ok(OverlayFile {
            below,
            own: RwLock::new(Own {
                pages: BTreeMap::new(),
                len,
                below_len: len,
                is_as_below: true,
            }),
        })
    }

    /// Reads a part of a page that is not an own one: from below, and zeros behind that.
    fn read_below(&self, buffer: &mut [u8], offset: u64, below_len: u64) -> io::Result<()> {
        let mut done = 0;
        if let Some(below) = &self.below {
            let there = below_len.saturating_sub(offset);
            let wanted = buffer
                .len()
                .min(usize::try_from(there).unwrap_or(usize::MAX));
            while done < wanted {
                match below.read_at(&mut buffer[done..wanted], offset + done as u64) {
                    Ok(0) => break,
                    Ok(count) => done += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        buffer[done..].fill(0);
        Ok(())
    }
}

impl VfsFile for OverlayFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let own = self.own.read();
        if let (Some(below), true) = (&self.below, own.is_as_below) {
            return below.read_at(buffer, offset);
        }
        let there = own.len.saturating_sub(offset);
        let (number, start) = place(offset);
        // At most to the end of the page: reads may be short.
        let count = (buffer.len().min(PAGE_BYTES - start))
            .min(usize::try_from(there).unwrap_or(usize::MAX));
        match own.pages.get(&number) {
            Some(page) => buffer[..count].copy_from_slice(&page[start..start + count]),
            None => self.read_below(&mut buffer[..count], offset, own.below_len)?,
        }
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut own = self.own.write();
        own.is_as_below = false;
        let (number, start) = place(offset);
        let count = bytes.len().min(PAGE_BYTES - start);
        if !own.pages.contains_key(&number) {
            let mut page = Box::new([0; PAGE_BYTES]);
            let below_len = own.below_len;
            self.read_below(&mut page[..], number * PAGE_BYTES as u64, below_len)?;
            // Zeros over nothing, as of a segment that is prepared, take no memory.
            let is_new = page.iter().chain(&bytes[..count]).any(|byte| *byte != 0);
            if is_new {
                own.pages.insert(number, page);
            }
        }
        if let Some(page) = own.pages.get_mut(&number) {
            page[start..start + count].copy_from_slice(&bytes[..count]);
        }
        own.len = own.len.max(offset + count as u64);
        Ok(count)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut own = self.own.write();
        own.is_as_below = false;
        if len < own.len {
            own.below_len = own.below_len.min(len);
            let (number, start) = place(len);
            own.pages.retain(|page, _| *page <= number);
            if let Some(page) = own.pages.get_mut(&number) {
                page[start..].fill(0);
            }
        }
        own.len = len;
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.own.read().len)
    }
}

/// The page of an offset, and the place in it.
fn place(offset: u64) -> (u64, usize) {
    let page = PAGE_BYTES as u64;
    (offset / page, (offset % page) as usize)
}

#[cfg(test)]
mod tests {
    use super::super::MemoryVfs;
    use super::*;

    /// Everything in a file system: names with contents.
    fn contents(vfs: &dyn Vfs) -> Vec<(String, Vec<u8>)> {
        let names = vfs.read_dir(Path::new("d")).unwrap();
        let read = |name: String| {
            let file = vfs
                .open(&Path::new("d").join(&name), OpenMode::Read)
                .unwrap();
            let mut bytes = vec![0; file.len().unwrap() as usize];
            let mut done = 0;
            while done < bytes.len() {
                let count = file.read_at(&mut bytes[done..], done as u64).unwrap();
                assert!(count > 0, "short at {done} of {}", bytes.len());
                done += count;
            }
            (name, bytes)
        };
        names.into_iter().map(read).collect()
    }

    fn write_all(file: &dyn VfsFile, mut bytes: &[u8], mut offset: u64) {
        while !bytes.is_empty() {
            let count = file.write_at(bytes, offset).unwrap();
            (bytes, offset) = (&bytes[count..], offset + count as u64);
        }
    }

    /// Random calls on an overlay and on a copy of what is below give the same, and below nothing changes.
    #[test]
    fn an_overlay_is_as_a_copy_and_changes_nothing_below() {
        for seed in crate::seeds(7..8) {
            let mut random = fastrand::Rng::with_seed(seed);
            for _ in 0..200 {
                let (below, copy) = (MemoryVfs::default(), MemoryVfs::default());
                for vfs in [&below, &copy] {
                    vfs.create_dir(Path::new("d")).unwrap();
                }
                for name in ["d/a", "d/b"] {
                    let bytes: Vec<u8> =
                        (0..random.usize(..10_000)).map(|_| random.u8(..)).collect();
                    for vfs in [&below, &copy] {
                        let file = vfs.open(Path::new(name), OpenMode::CreateNew).unwrap();
                        write_all(&*file, &bytes, 0);
                    }
                }
                let before = contents(&below);
                let overlay = OverlayVfs::new(Arc::new(below.clone()), Path::new("d")).unwrap();
                let both: [&dyn Vfs; 2] = [&overlay, &copy];
                for _ in 0..30 {
                    let [path, other] =
                        [0; 2].map(|_| *random.choice(&["d/a", "d/b", "d/c"]).unwrap());
                    let (path, other) = (Path::new(path), Path::new(other));
                    let offset = random.u64(..12_000);
                    let byte = random.u8(..3);
                    let bytes = vec![byte; random.usize(1..9_000)];
                    let call = random.u8(..6);
                    let done = both.map(|vfs| match call {
                        0 => vfs.remove_file(path).is_ok(),
                        1 => path != other && vfs.rename(path, other).is_ok(),
                        2 => vfs.open(path, OpenMode::CreateNew).is_ok(),
                        3 => vfs.open(path, OpenMode::Read).is_ok(),
                        4 => match vfs.open(path, OpenMode::ReadWrite) {
                            Ok(file) => {
                                write_all(&*file, &bytes, offset);
                                true
                            }
                            Err(_) => false,
                        },
                        _ => match vfs.open(path, OpenMode::ReadWrite) {
                            Ok(file) => file.set_len(offset).is_ok(),
                            Err(_) => false,
                        },
                    });
                    assert_eq!(done[0], done[1], "call {call} of {path:?}");
                    assert_eq!(contents(&overlay), contents(&copy), "after call {call}");
                }
                assert_eq!(contents(&below), before);
            }
        }
    }

    /// A table that the owner was writing had the number that recovery chose for one of its own.
    #[test]
    fn what_appears_below_later_is_not_there() {
        let below = MemoryVfs::default();
        below.create_dir(Path::new("d")).unwrap();
        let overlay = OverlayVfs::new(Arc::new(below.clone()), Path::new("d")).unwrap();
        let theirs = below.open(Path::new("d/1"), OpenMode::CreateNew).unwrap();
        write_all(&*theirs, b"theirs", 0);
        assert!(overlay.metadata(Path::new("d/1")).unwrap().is_none());
        assert!(overlay.open(Path::new("d/1"), OpenMode::Read).is_err());
        let ours = overlay.open(Path::new("d/1"), OpenMode::CreateNew).unwrap();
        write_all(&*ours, b"ours", 0);
        assert_eq!(contents(&overlay), [("1".to_owned(), b"ours".to_vec())]);
        assert_eq!(contents(&below), [("1".to_owned(), b"theirs".to_vec())]);
    }

    #[test]
    fn the_lock_below_is_left_alone() {
        let below: Arc<dyn Vfs> = Arc::new(MemoryVfs::default());
        let held = below.lock(Path::new("LOCK")).unwrap();
        let overlay = OverlayVfs::new(below.clone(), Path::new("d")).unwrap();
        assert!(overlay.lock(Path::new("LOCK")).unwrap().is_some());
        assert!(below.lock(Path::new("LOCK")).unwrap().is_none());
        drop(held);
    }
}
