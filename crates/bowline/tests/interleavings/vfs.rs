//! A file system with a scheduling point before every call, and a sync that can be made to panic.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bowline_storage::sync::step;
use bowline_storage::vfs::{Metadata, OpenMode, Vfs, VfsFile, VfsLock};

#[derive(Debug, Clone)]
pub(crate) struct StepVfs {
    inner: Arc<dyn Vfs>,
    panics: Arc<AtomicBool>,
}

#[derive(Debug)]
struct StepFile {
    inner: Arc<dyn VfsFile>,
    panics: Arc<AtomicBool>,
}

impl StepVfs {
    pub(crate) fn new(inner: impl Vfs + 'static) -> StepVfs {
        StepVfs {
            inner: Arc::new(inner),
            panics: Arc::default(),
        }
    }

    /// The next sync of a file panics.
    pub(crate) fn panic_at_next_sync(&self) {
        self.panics.store(true, Ordering::Relaxed);
    }
}

impl Vfs for StepVfs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        step();
        let inner = self.inner.open(path, mode)?;
        let panics = self.panics.clone();
        Ok(Arc::new(StepFile { inner, panics }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.inner.read_dir(path)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        self.inner.metadata(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        step();
        self.inner.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        step();
        self.inner.remove_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        step();
        self.inner.sync_dir(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn VfsLock>>> {
        self.inner.lock(path)
    }
}

impl VfsFile for StepFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        step();
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        step();
        self.inner.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        step();
        if self.panics.swap(false, Ordering::Relaxed) {
            // Without the hook, which would print it each of some thousand times.
            std::panic::resume_unwind(Box::new("this sync was told to panic"));
        }
        self.inner.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
}
