//! A disk whose syncs wait at a gate, and threads that queue up behind it: commit groups whose members are known.

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use bowline::vfs::{MemoryVfs, Metadata, OpenMode, Vfs, VfsFile, VfsLock};

/// A file system whose syncs wait while its gate is shut.
#[derive(Debug, Clone, Default)]
pub struct Gated {
    pub inner: MemoryVfs,
    pub gate: Arc<Gate>,
}

#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<GateState>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    is_shut: bool,
    waiting: u32,
}

impl Gate {
    pub fn pass(&self) {
        let mut state = self.state.lock().expect("no panic");
        state.waiting += 1;
        self.moved.notify_all();
        while state.is_shut {
            state = self.moved.wait(state).expect("no panic");
        }
        state.waiting -= 1;
    }

    /// Shuts it, until what is returned is dropped: also when a test fails meanwhile, which would
    /// else wait for the threads behind it for ever.
    pub fn shut(&self) -> Shut<'_> {
        self.state.lock().expect("no panic").is_shut = true;
        Shut(self)
    }

    pub fn wait_until_somebody_waits(&self) {
        let mut state = self.state.lock().expect("no panic");
        while state.waiting == 0 {
            state = self.moved.wait(state).expect("no panic");
        }
    }
}

/// A gate that is shut.
pub struct Shut<'a>(&'a Gate);

impl Drop for Shut<'_> {
    fn drop(&mut self) {
        self.0.state.lock().expect("no panic").is_shut = false;
        self.0.moved.notify_all();
    }
}

#[derive(Debug)]
struct GatedFile(Arc<dyn VfsFile>, Arc<Gate>);

impl VfsFile for GatedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.1.pass();
        self.0.sync_data()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

impl Vfs for Gated {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        Ok(Arc::new(GatedFile(
            self.inner.open(path, mode)?,
            self.gate.clone(),
        )))
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
        self.inner.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_dir(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn VfsLock>>> {
        self.inner.lock(path)
    }
}

/// Starts a thread, and waits until it sleeps or has ended. Behind a gate that is shut it sleeps in the queue of
/// commits, so threads that are started one after the other are there in this order.
pub fn queue_up<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    job: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    /// Looks, a millisecond apart, at which it sleeps: it may wait for something else for a moment.
    const LOOKS: u32 = 5;
    let (starting, started) = mpsc::channel();
    let thread = scope.spawn(move || {
        let _ = starting.send(std::fs::read_link("/proc/thread-self"));
        job()
    });
    let Ok(Ok(task)) = started.recv() else {
        // Only Linux shows what a thread does.
        thread::sleep(Duration::from_millis(100));
        return thread;
    };
    let stat = Path::new("/proc").join(task).join("stat");
    let mut asleep = 0;
    while asleep < LOOKS && !thread.is_finished() {
        thread::sleep(Duration::from_millis(1));
        // The state follows the name, which is in brackets.
        let stat = std::fs::read_to_string(&stat).unwrap_or_default();
        let state = stat.rsplit(')').next().unwrap_or_default();
        asleep = if state.starts_with(" S") {
            asleep + 1
        } else {
            0
        };
    }
    thread
}
