//! `bowline serve --fault-disk FILE`: a disk that fails as a file says, for tests of the real program.
//!
//! A [`FaultDisk`] stands between the server and the operating system's file system. FILE has a [rule](rules) in each
//! line, for example:
//!
//! ```text
//! # The next ten flushes of the log fail, and tables cannot be read.
//! flush eio path /log/ times 10
//! read eio path .table
//! ```
//!
//! A test replaces FILE (by a rename, so that no half of it is read) while the server runs. The server compares the
//! content before a call, at most every ten milliseconds, and starts to count anew when it has changed. A missing FILE
//! has no rules, and one with a wrong line leaves the rules as they were. Each fault adds a line to `FILE.injected`,
//! before the call returns: a test counts what has happened, also when the server has ended since.
//!
//! **No shipped program has the flag.** This module is compiled with debug assertions, as the programs of `cargo test`
//! are, and without them for the feature `fault-disk` only. `CARGO_BIN_EXE_bowline`, the program that tests run, is
//! built with the profile and the features of the test run: so `cargo test --workspace` needs no option, and
//! `cargo build --release` makes a program without the flag. A second program for tests would be built into each
//! release as well; a feature that a dependency of the tests turns on would need this package among its own
//! dependencies, and would compile it twice for `cargo run` and `cargo test`.
//!
//! `FaultVfs` of `tools/testing` has the same purpose within one process, where a test holds its rules. A shipped crate
//! uses no tool, whatever features it is built with.

mod rules;
#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use bowline_storage::vfs::{Metadata, OpenMode, Vfs, VfsFile, VfsLock};
use rules::{Call, Effect, Rules};

/// The shortest time between two looks at FILE.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A file system with the faults that a file asks for.
#[derive(Debug)]
pub(crate) struct FaultDisk {
    inner: Arc<dyn Vfs>,
    faults: Arc<Faults>,
    /// The names of open files; a rename changes them.
    open_names: Mutex<Vec<Weak<Mutex<PathBuf>>>>,
}

#[derive(Debug)]
struct Faults {
    file: PathBuf,
    injected: File,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    looked_at: Instant,
    text: String,
    rules: Rules,
}

/// The value behind a lock. A panic of another thread leaves it whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The text of the rules; none where there is no file.
fn read_text(file: &Path) -> io::Result<String> {
    match std::fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        result => result,
    }
}

impl Faults {
    /// Reads the rules again if it is time to.
    fn look(&self, state: &mut State) {
        if state.looked_at.elapsed() < LOOK_INTERVAL {
            return;
        }
        state.looked_at = Instant::now();
        let Ok(text) = read_text(&self.file) else {
            return;
        };
        if text == state.text {
            return;
        }
        match Rules::parse(&text) {
            Ok(rules) => state.rules = rules,
            Err(why) => eprintln!(
                "{}: {why}: the rules stay as they were",
                self.file.display()
            ),
        }
        state.text = text;
    }

    /// The effect of the rules on a call of `len` bytes, which is then in the list of injected faults.
    fn effect(&self, call: Call, path: &Path, len: usize) -> Option<Effect> {
        let mut state = locked(&self.state);
        self.look(&mut state);
        let effect = state.rules.effect(call, path)?;
        drop(state);
        if matches!(effect, Effect::Short(most) if most >= len) {
            return None;
        }
        // One write for each line: lines of several threads, and of a process before this one, stay whole.
        let line = format!("{call} {effect} {}\n", path.display());
        let written = (&self.injected).write_all(line.as_bytes());
        if let Err(error) = written {
            eprintln!("{}: {error}", self.file.display());
        }
        Some(effect)
    }

    /// Fails a call, or delays it, as the rules say; otherwise gives how many of `len` bytes it may transfer.
    fn meet(&self, call: Call, path: &Path, len: usize) -> io::Result<usize> {
        match self.effect(call, path, len) {
            Some(Effect::Fail(errno)) => Err(errno.into()),
            Some(Effect::Short(most)) => Ok(most),
            Some(Effect::Slow(delay)) => {
                thread::sleep(delay);
                Ok(len)
            }
            None => Ok(len),
        }
    }
}

impl FaultDisk {
    /// Puts the faults of `file` on another file system.
    ///
    /// # Errors
    /// `file` has a wrong line (`InvalidData`), or it or its list of injected faults cannot be opened.
    pub(crate) fn new(inner: Arc<dyn Vfs>, file: &Path) -> io::Result<FaultDisk> {
        let text = read_text(file)?;
        let rules = Rules::parse(&text)
            .map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why.to_string()))?;
        let mut injected = file.as_os_str().to_owned();
        injected.push(".injected");
        let injected = OpenOptions::new()
            .create(true)
            .append(true)
            .open(injected)?;
        let state = State {
            looked_at: Instant::now(),
            text,
            rules,
        };
        Ok(FaultDisk {
            inner,
            faults: Arc::new(Faults {
                file: file.to_owned(),
                injected,
                state: Mutex::new(state),
            }),
            open_names: Mutex::default(),
        })
    }
}

impl Vfs for FaultDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        if mode == OpenMode::CreateNew {
            self.faults.meet(Call::Grow, path, 0)?;
        }
        let inner = self.inner.open(path, mode)?;
        let name = Arc::new(Mutex::new(path.to_owned()));
        let mut open_names = locked(&self.open_names);
        open_names.retain(|name| name.strong_count() > 0);
        open_names.push(Arc::downgrade(&name));
        Ok(Arc::new(FaultFile {
            inner,
            name,
            faults: self.faults.clone(),
        }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.faults.meet(Call::Grow, path, 0)?;
        self.inner.create_dir(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.inner.read_dir(path)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        self.inner.metadata(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)?;
        let open_names = locked(&self.open_names);
        for name in open_names.iter().filter_map(Weak::upgrade) {
            let mut name = locked(&name);
            if *name == from {
                to.clone_into(&mut name);
            }
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.faults.meet(Call::Flush, path, 0)?;
        self.inner.sync_dir(path)
    }

    fn available(&self, path: &Path) -> io::Result<Option<u64>> {
        self.inner.available(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn VfsLock>>> {
        self.inner.lock(path)
    }
}

#[derive(Debug)]
struct FaultFile {
    inner: Arc<dyn VfsFile>,
    /// Its present name.
    name: Arc<Mutex<PathBuf>>,
    faults: Arc<Faults>,
}

impl FaultFile {
    fn meet(&self, call: Call, len: usize) -> io::Result<usize> {
        let path = locked(&self.name).clone();
        self.faults.meet(call, &path, len)
    }

    /// Fails if the file may not have `len` bytes.
    fn may_have(&self, len: u64) -> io::Result<()> {
        if len > self.inner.len()? {
            self.meet(Call::Grow, 0)?;
        }
        Ok(())
    }
}

impl VfsFile for FaultFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let most = self.meet(Call::Read, buffer.len())?;
        self.inner.read_at(&mut buffer[..most], offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let most = self.meet(Call::Write, bytes.len())?;
        self.may_have(offset + most as u64)?;
        self.inner.write_at(&bytes[..most], offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.meet(Call::Flush, 0)?;
        self.inner.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.may_have(len)?;
        self.inner.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
}
