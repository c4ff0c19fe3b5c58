//! Ctrl-C while a command of a session runs.
//!
//! The first one ends the command, and not the session. A command checks for it while it waits, and between two items that
//! it reads or writes; a computation on the graph checks every few thousand steps. A command that computes for long without
//! a check, such as the check of a directory, ends only when it is done: after a second the session says so, and another
//! Ctrl-C ends the process.
//!
//! At the prompt Ctrl-C is a key of the editor. A signal that comes then is for no command, and is ignored.

use std::io::{self, BufRead, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bowline::Cancel;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Failure, Interrupted};

/// Whether signals are caught at all.
static IS_CAUGHT: AtomicBool = AtomicBool::new(false);
/// Whether a command runs.
static IS_RUNNING: AtomicBool = AtomicBool::new(false);
/// Whether one came since the command began.
static IS_PRESSED: AtomicBool = AtomicBool::new(false);
/// How many commands have begun.
static COMMANDS: AtomicU64 = AtomicU64::new(0);

/// What ends the computation of the command that runs, if it has one.
static CANCEL: Mutex<Option<Cancel>> = Mutex::new(None);

/// How a process ends that an interrupt has ended, to its shell.
const EXIT_CODE: i32 = 130;
/// How often a command that waits looks.
const INTERVAL: Duration = Duration::from_millis(100);
/// How long a command may take to end before the session says that it does not.
const HINT_AFTER: Duration = Duration::from_secs(1);

/// Catches interrupts from now on.
///
/// # Errors
/// The system refuses a thread or the handler.
pub(crate) fn catch() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut interrupts = {
        let _entered = runtime.enter();
        signal(SignalKind::interrupt())?
    };
    IS_CAUGHT.store(true, Ordering::Relaxed);
    let wait = move || {
        runtime.block_on(async {
            while interrupts.recv().await.is_some() {
                if !IS_RUNNING.load(Ordering::Relaxed) {
                    continue;
                }
                if IS_PRESSED.swap(true, Ordering::Relaxed) {
                    std::process::exit(EXIT_CODE);
                }
                if let Some(cancel) = &*computation() {
                    cancel.cancel();
                }
                tokio::spawn(hint(COMMANDS.load(Ordering::Relaxed)));
            }
        });
    };
    std::thread::Builder::new()
        .name("interrupts".to_owned())
        .spawn(wait)?;
    Ok(())
}

/// Says that a command goes on, if it does.
async fn hint(command: u64) {
    tokio::time::sleep(HINT_AFTER).await;
    let is_same = COMMANDS.load(Ordering::Relaxed) == command;
    if is_same && is_pressed() {
        let text = "this command does not stop before its end; Ctrl-C again ends the session\n";
        // Without a reader there is nobody to be told.
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

fn computation() -> MutexGuard<'static, Option<Cancel>> {
    // Nothing that holds it can panic half-way.
    CANCEL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What an interrupt sets while the command runs, for its computation.
pub(crate) fn cancel() -> Cancel {
    let cancel = Cancel::new();
    *computation() = Some(cancel.clone());
    // One that came before this line found nothing to set.
    if is_pressed() {
        cancel.cancel();
    }
    cancel
}

/// A command that runs. What comes before or after it does not concern it.
pub(crate) struct Running;

impl Running {
    /// Begins a command.
    pub(crate) fn begin() -> Running {
        COMMANDS.fetch_add(1, Ordering::Relaxed);
        IS_PRESSED.store(false, Ordering::Relaxed);
        *computation() = None;
        IS_RUNNING.store(true, Ordering::Relaxed);
        Running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        IS_RUNNING.store(false, Ordering::Relaxed);
        IS_PRESSED.store(false, Ordering::Relaxed);
    }
}

/// Whether the command is to end.
pub(crate) fn is_pressed() -> bool {
    IS_PRESSED.load(Ordering::Relaxed)
}

/// Ends a command that is to end, as a failure of it.
pub(crate) fn check() -> Result<(), Failure> {
    match is_pressed() {
        true => Err(Failure::interrupted()),
        false => Ok(()),
    }
}

/// How long a command that may wait for `left` waits before it looks: not at all, where nobody catches interrupts.
pub(crate) fn wait_max(left: Duration) -> Duration {
    match IS_CAUGHT.load(Ordering::Relaxed) {
        true => left.min(INTERVAL),
        false => left,
    }
}

/// Sleeps, unless the command is to end; tells whether it goes on.
pub(crate) fn sleep(time: Duration) -> bool {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if is_pressed() || left.is_zero() {
            return !is_pressed();
        }
        std::thread::sleep(wait_max(left));
    }
}

/// Waits for a reply; `None` when the command is to end before it comes.
pub(crate) async fn or_interrupt<T>(reply: impl Future<Output = T>) -> Option<T> {
    if !IS_CAUGHT.load(Ordering::Relaxed) {
        return Some(reply.await);
    }
    let pressed = async {
        while !is_pressed() {
            tokio::time::sleep(INTERVAL).await;
        }
    };
    tokio::select! {
        biased;
        reply = reply => Some(reply),
        () = pressed => None,
    }
}

/// The terminal, for a command of a session that reads from it: a read ends when the command is to end.
pub(crate) struct Terminal<'a>(pub(crate) &'a mut dyn BufRead);

impl Read for Terminal<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        const WAIT: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        // A terminal gives a line at a time, and what follows it lies in no buffer yet.
        let input = io::stdin();
        loop {
            match poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&WAIT)) {
                Ok(1..) => return self.0.read(buffer),
                Ok(0) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if is_pressed() {
                return Err(io::Error::other(Interrupted));
            }
        }
    }
}
