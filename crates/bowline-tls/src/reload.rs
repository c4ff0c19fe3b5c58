//! [`Reloading`]: what is made of a set of files, made again when they change.
//!
//! ```text
//!           metadata as before ──▶ nothing
//!          /
//! look ──▶ read all ──▶ content as before ──▶ nothing
//!                  \
//!                   check, make ──▶ good ──▶ take its place for connections to come
//!                              \
//!                               bad ──▶ the old one stays; a warning, once per content
//! ```
//!
//! Files are rarely replaced all at once. A set that does not fit together is looked at again, and reported only when it
//! is the same at the next look. A set that is bad for a reason that may pass is read at each look until it is good or
//! replaced ([`TlsError::may_pass`]).
//!
//! Invariants:
//!
//! - Users see a whole set of files or another whole set, never parts of two.
//! - A bad set changes nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::task::JoinHandle;

use crate::error::TlsError;
use crate::files::{Content, Stamp};

/// How often the files are looked at.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What came of a look at the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looked {
    /// They are as before.
    Unchanged,
    /// They were taken.
    Taken,
}

type Make<T> = Box<dyn Fn(&[Content]) -> Result<T, TlsError> + Send + Sync>;

pub(crate) struct Reloading<T> {
    /// For the log.
    what: &'static str,
    files: Vec<PathBuf>,
    make: Make<T>,
    current: ArcSwap<T>,
    seen: Mutex<Seen>,
    /// How many sets were taken after the first one, and how many were refused.
    taken: AtomicU64,
    refused: AtomicU64,
}

#[derive(Default)]
struct Seen {
    stamps: Vec<Option<Stamp>>,
    digest: [u8; 32],
    refused: Refused,
}

/// The sets that were refused since the files have these stamps, each by its digest and with whether it was reported. What
/// cannot be read has the digest of the error.
#[derive(Default)]
struct Refused {
    stamps: Vec<Option<Stamp>>,
    sets: BTreeMap<[u8; 32], bool>,
}

impl<T> Reloading<T> {
    /// Reads the files for the first time.
    pub(crate) fn new(
        what: &'static str,
        files: Vec<PathBuf>,
        make: impl Fn(&[Content]) -> Result<T, TlsError> + Send + Sync + 'static,
    ) -> Result<Reloading<T>, TlsError> {
        let stamps = files.iter().map(|path| Stamp::of(path)).collect();
        let (contents, digest) = read(&files)?;
        let current = make(&contents)?;
        Ok(Reloading {
            what,
            files,
            make: Box::new(make),
            current: ArcSwap::from_pointee(current),
            seen: Mutex::new(Seen {
                stamps,
                digest,
                refused: Refused::default(),
            }),
            taken: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    pub(crate) fn current(&self) -> Arc<T> {
        self.current.load_full()
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Looks at the files. `is_asked` says that somebody wants to know, and so an error is reported at once.
    pub(crate) fn look(&self, is_asked: bool) -> Result<Looked, TlsError> {
        let mut seen = self.seen.lock();
        // Before the content: what is written after this is found at the next look.
        let stamps: Vec<_> = self.files.iter().map(|path| Stamp::of(path)).collect();
        if !is_asked && stamps == seen.stamps {
            return Ok(Looked::Unchanged);
        }
        let (made, digest) = match read(&self.files) {
            Ok((_, digest)) if digest == seen.digest => {
                seen.stamps = stamps;
                seen.refused = Refused::default();
                return Ok(Looked::Unchanged);
            }
            Ok((contents, digest)) => ((self.make)(&contents), digest),
            Err(error) => {
                let text = error.to_string();
                (Err(error), Sha256::digest(text).into())
            }
        };
        match made {
            Ok(made) => {
                self.current.store(Arc::new(made));
                *seen = Seen {
                    stamps,
                    digest,
                    refused: Refused::default(),
                };
                self.taken.fetch_add(1, Ordering::Relaxed);
                tracing::info!(files = ?self.files, "{} were read again", self.what);
                Ok(Looked::Taken)
            }
            Err(error) => {
                let refused = &mut seen.refused;
                if refused.stamps != stamps {
                    refused.stamps.clone_from(&stamps);
                    refused.sets.retain(|known, _| *known == digest);
                }
                let before = refused.sets.get(&digest).copied();
                let (is_repeated, is_reported) = (before.is_some(), before == Some(true));
                let is_due = (is_asked || is_repeated) && !is_reported;
                refused.sets.insert(digest, is_reported || is_due);
                if is_due {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(%error, "new {} were refused: those from before stay", self.what);
                }
                if is_repeated && !error.may_pass() {
                    // Not looked at again before they change.
                    seen.stamps = stamps;
                }
                Err(error)
            }
        }
    }
}

fn read(files: &[PathBuf]) -> Result<(Vec<Content>, [u8; 32]), TlsError> {
    let contents: Vec<_> = { files.iter() }
        .map(|path| Content::read(path))
        .collect::<Result<_, _>>()?;
    let mut digest = Sha256::new();
    for content in &contents {
        content.digest(&mut digest);
    }
    Ok((contents, digest.finalize().into()))
}

/// Something with files that can be read again.
pub trait Reload: Send + Sync {
    /// Looks whether the files have changed. A change that cannot be used is logged; what there was before stays.
    ///
    /// # Errors
    /// What is wrong with the new files.
    fn look(&self) -> Result<Looked, TlsError>;

    /// Reads the files again, whether or not they seem to have changed, as after SIGHUP.
    ///
    /// # Errors
    /// What is wrong with the new files.
    fn reload(&self) -> Result<Looked, TlsError>;
}

/// Looks at the files of all of these at an interval, until it is dropped.
#[derive(Debug)]
pub struct Watching {
    task: JoinHandle<()>,
}

impl Watching {
    /// Begins, on the caller's tokio runtime.
    #[must_use]
    pub fn begin(all: Vec<Arc<dyn Reload>>, interval: Duration) -> Watching {
        let task = tokio::spawn(async move {
            let all = Arc::new(all);
            loop {
                tokio::time::sleep(interval).await;
                let all = all.clone();
                // Disks may be slow. An error was logged.
                let looking = tokio::task::spawn_blocking(move || {
                    for one in all.iter() {
                        let _ = one.look();
                    }
                });
                if looking.await.is_err() {
                    return;
                }
            }
        });
        Watching { task }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.task.abort();
    }
}
