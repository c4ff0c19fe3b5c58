//! A `Vfs` with injected faults.
//!
//! [`FaultVfs`] passes every call on to another `Vfs`, counts it, and lets [`Rule`]s make it fail, fail after
//! its work, or read or write less than requested. It can also run out of space. Nothing is random: the same
//! calls and the same rules give the same faults. One lock guards counts and rules, so that the n-th call is
//! well defined with several threads, too.
//!
//! To try a fault at every step of a program, run it once, read [`FaultVfs::counts`], and run it once per
//! call with [`Rule::nth`]. After a failed sync, a disk may have dropped the data for good; for that, use
//! [`SimDisk::fail_syncs`](crate::SimDisk::fail_syncs) instead.

mod file;
mod rule;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use bowline_storage::vfs::{Metadata, OpenMode, Vfs, VfsFile, VfsLock};
use parking_lot::Mutex;

use file::FaultFile;
use rule::Effect;
pub use rule::{Call, Counts, Failure, Rule};

/// A `Vfs` with injected faults. Clones share their rules and counts.
///
/// ```
/// use bowline_storage::vfs::{OpenMode, Vfs};
/// use bowline_testing::fault::{Call, Failure, FaultVfs, Rule};
/// use bowline_testing::SimDisk;
/// use std::path::{Path, PathBuf};
///
/// let vfs = FaultVfs::new(SimDisk::new());
/// vfs.add(Rule::on(Call::Sync).nth(2).fail(Failure::Io));
/// let file = vfs.open(Path::new("log"), OpenMode::CreateNew)?;
/// assert!(file.sync_data().is_ok());
/// assert!(file.sync_data().is_err());
/// assert_eq!(vfs.counts().get(Call::Sync), 2);
/// assert_eq!(vfs.injected(), ["Sync 2 on log: Fail(Io)"]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FaultVfs {
    inner: Arc<dyn Vfs>,
    faults: Arc<Mutex<Faults>>,
}

#[derive(Debug, Default)]
struct Faults {
    counts: Counts,
    /// Each rule with the number of calls it matched.
    rules: Vec<(Rule, u64)>,
    injected: Vec<String>,
    /// The names of open files; a rename changes them.
    open_names: Vec<Weak<Mutex<PathBuf>>>,
    /// Every call since tracing was started.
    trace: Option<Vec<Traced>>,
    /// The bytes by which files may still grow; `None` without a limit.
    space_bytes: Option<u64>,
}

/// A call in [`FaultVfs::trace`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Traced {
    /// Its kind.
    pub call: Call,
    /// Its path; two for a rename.
    pub paths: Vec<PathBuf>,
    /// Whether a rule injected a fault.
    pub is_injected: bool,
}

impl Faults {
    /// Counts a call and finds its fault. The first rule that applies wins; every rule that matches counts
    /// the call.
    fn before(&mut self, call: Call, paths: &[&Path]) -> Option<Effect> {
        let number = self.counts.add(call);
        let mut effect = None;
        for (rule, seen) in &mut self.rules {
            if rule.matches(call, paths) {
                *seen += 1;
                if rule.applies_to(*seen) {
                    effect = effect.or(Some(rule.effect));
                }
            }
        }
        if let Some(trace) = &mut self.trace {
            trace.push(Traced {
                call,
                paths: paths.iter().map(|path| path.to_path_buf()).collect(),
                is_injected: effect.is_some(),
            });
        }
        if let Some(effect) = effect {
            let path = paths
                .first()
                .map_or_else(String::new, |path| path.display().to_string());
            self.injected
                .push(format!("{call:?} {number} on {path}: {effect:?}"));
        }
        effect
    }
}

/// Executes `work` with the fault that the rules choose.
fn run<T>(
    faults: &Mutex<Faults>,
    call: Call,
    paths: &[&Path],
    work: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    // The lock is not held during the work: a slow call must not order the others.
    let effect = faults.lock().before(call, paths);
    match effect {
        Some(Effect::Fail(failure)) => Err(failure.to_error()),
        Some(Effect::FailAfter(failure)) => {
            work()?;
            Err(failure.to_error())
        }
        Some(Effect::Panic) => panicked(call, paths.first().unwrap_or(&Path::new(""))),
        Some(Effect::Short(_)) | None => work(),
    }
}

fn panicked(call: Call, path: &Path) -> ! {
    panic!("{call:?} of {} was told to panic", path.display())
}

impl FaultVfs {
    /// Wraps `inner`, without faults so far.
    pub fn new(inner: impl Vfs + 'static) -> FaultVfs {
        FaultVfs {
            inner: Arc::new(inner),
            faults: Arc::default(),
        }
    }

    /// Adds a rule. Of several that apply to a call, the oldest wins.
    pub fn add(&self, rule: Rule) {
        self.faults.lock().rules.push((rule, 0));
    }

    /// Removes all rules. The limit of space stays.
    pub fn clear(&self) {
        self.faults.lock().rules.clear();
    }

    /// The numbers of calls, including failed ones.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.faults.lock().counts
    }

    /// The faults so far, one line each, except those of a full disk.
    #[must_use]
    pub fn injected(&self) -> Vec<String> {
        self.faults.lock().injected.clone()
    }

    /// Starts to keep every call, for [`FaultVfs::trace`].
    pub fn start_trace(&self) {
        self.faults.lock().trace = Some(Vec::new());
    }

    /// The calls since [`FaultVfs::start_trace`], in order.
    #[must_use]
    pub fn trace(&self) -> Vec<Traced> {
        self.faults.lock().trace.clone().unwrap_or_default()
    }

    /// Lets files grow by `bytes` more in total; then writes are cut short, and growth and creation fail with
    /// `ENOSPC`. Overwriting still works. Truncation and removal give their bytes back (removal of an open
    /// file, at once).
    pub fn limit_space(&self, bytes: u64) {
        self.faults.lock().space_bytes = Some(bytes);
    }

    /// Removes the limit of space.
    pub fn lift_space_limit(&self) {
        self.faults.lock().space_bytes = None;
    }

    /// The bytes by which files may still grow; `None` without a limit.
    #[must_use]
    pub fn space_left_bytes(&self) -> Option<u64> {
        self.faults.lock().space_bytes
    }

    fn run<T>(
        &self,
        call: Call,
        paths: &[&Path],
        work: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        run(&self.faults, call, paths, work)
    }

    fn check_space(&self) -> io::Result<()> {
        match self.faults.lock().space_bytes {
            Some(0) => Err(Failure::NoSpace.to_error()),
            _ => Ok(()),
        }
    }

    /// Executes `work`, which removes the file at `path`, and gives back its space.
    fn freeing(&self, path: &Path, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let freed_bytes = self
            .inner
            .metadata(path)?
            .map_or(0, |metadata| metadata.len);
        work()?;
        if let Some(space) = &mut self.faults.lock().space_bytes {
            *space += freed_bytes;
        }
        Ok(())
    }
}

impl Vfs for FaultVfs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        let call = if mode == OpenMode::CreateNew {
            Call::Create
        } else {
            Call::Open
        };
        let inner = self.run(call, &[path], || {
            if call == Call::Create {
                self.check_space()?;
            }
            self.inner.open(path, mode)
        })?;
        let name = Arc::new(Mutex::new(path.to_owned()));
        let mut faults = self.faults.lock();
        faults.open_names.retain(|name| name.strong_count() > 0);
        faults.open_names.push(Arc::downgrade(&name));
        drop(faults);
        Ok(Arc::new(FaultFile {
            inner,
            name,
            faults: self.faults.clone(),
        }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.run(Call::CreateDir, &[path], || {
            self.check_space()?;
            self.inner.create_dir(path)
        })
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.run(Call::ReadDir, &[path], || self.inner.read_dir(path))
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        self.run(Call::Stat, &[path], || self.inner.metadata(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.run(Call::Rename, &[from, to], || {
            if from == to {
                return self.inner.rename(from, to);
            }
            self.freeing(to, || self.inner.rename(from, to))?;
            for name in &self.faults.lock().open_names {
                if let Some(name) = name.upgrade()
                    && *name.lock() == from
                {
                    to.clone_into(&mut name.lock());
                }
            }
            Ok(())
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.run(Call::Remove, &[path], || {
            self.freeing(path, || self.inner.remove_file(path))
        })
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.run(Call::SyncDir, &[path], || self.inner.sync_dir(path))
    }

    fn available(&self, path: &Path) -> io::Result<Option<u64>> {
        match self.space_left_bytes() {
            Some(bytes) => Ok(Some(bytes)),
            None => self.inner.available(path),
        }
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn VfsLock>>> {
        self.run(Call::Lock, &[path], || self.inner.lock(path))
    }
}
