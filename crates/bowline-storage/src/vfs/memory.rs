//! A file system in memory, for `Durability::Memory`: nothing survives its last handle.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::{Metadata, OpenMode, Vfs, VfsFile, VfsLock};

/// A file system whose files are vectors.
#[derive(Debug, Default, Clone)]
pub struct MemoryVfs {
    names: Arc<Mutex<BTreeMap<PathBuf, Node>>>,
}

#[derive(Debug, Clone)]
enum Node {
    Directory,
    File(Arc<MemoryFile>),
}

#[derive(Debug, Default)]
struct MemoryFile(RwLock<Vec<u8>>);

#[derive(Debug)]
struct MemoryLock {
    names: Arc<Mutex<BTreeMap<PathBuf, Node>>>,
    path: PathBuf,
}

impl VfsLock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.names.lock().remove(&self.path);
    }
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Vfs for MemoryVfs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        let mut names = self.names.lock();
        match (names.get(path), mode) {
            (Some(_), OpenMode::CreateNew) => Err(io::ErrorKind::AlreadyExists.into()),
            (Some(Node::File(file)), _) => Ok(file.clone()),
            (Some(Node::Directory), _) => Err(io::ErrorKind::IsADirectory.into()),
            (None, OpenMode::CreateNew) => {
                let file = Arc::new(MemoryFile::default());
                names.insert(path.to_owned(), Node::File(file.clone()));
                Ok(file)
            }
            (None, _) => Err(missing()),
        }
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut names = self.names.lock();
        if names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        names.insert(path.to_owned(), Node::Directory);
        Ok(())
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        let names = self.names.lock();
        let children = names.keys().filter(|name| name.parent() == Some(path));
        Ok(children
            .filter_map(|name| name.file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .collect())
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        Ok(self.names.lock().get(path).map(|node| match node {
            Node::Directory => Metadata {
                len: 0,
                allocated: 0,
                is_dir: true,
            },
            Node::File(file) => {
                let len = file.0.read().len() as u64;
                Metadata {
                    len,
                    allocated: len,
                    is_dir: false,
                }
            }
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut names = self.names.lock();
        let node = names.remove(from).ok_or_else(missing)?;
        names.insert(to.to_owned(), node);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.names
            .lock()
            .remove(path)
            .map(|_| ())
            .ok_or_else(missing)
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn VfsLock>>> {
        let mut names = self.names.lock();
        if names.contains_key(path) {
            return Ok(None);
        }
        names.insert(path.to_owned(), Node::File(Arc::default()));
        Ok(Some(Box::new(MemoryLock {
            names: self.names.clone(),
            path: path.to_owned(),
        })))
    }
}

impl VfsFile for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = self.0.read();
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let count = buffer.len().min(bytes.len() - start);
        buffer[..count].copy_from_slice(&bytes[start..start + count]);
        Ok(count)
    }

    fn write_at(&self, new: &[u8], offset: u64) -> io::Result<usize> {
        let mut bytes = self.0.write();
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let end = start
            .checked_add(new.len())
            .ok_or(io::ErrorKind::FileTooLarge)?;
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(new);
        Ok(new.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.0.write().resize(len, 0);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.read().len() as u64)
    }
}
