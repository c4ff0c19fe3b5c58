//! Ctrl-C while a command of a session runs.
//!
//! The first ends a command that waits or computes, and not the session. The second ends the process: the command that
//! runs does not look for the first.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline::Cancel;

use tokio::signal::unix::{SignalKind, signal};

/// Whether signals are caught at all.
static IS_CAUGHT: AtomicBool = AtomicBool::new(false);
/// Whether one came since the command began.
static IS_PRESSED: AtomicBool = AtomicBool::new(false);

/// What ends the computation of the command that runs, if it has one.
static CANCEL: Mutex<Option<Cancel>> = Mutex::new(None);

/// How a process ends that an interrupt has ended, to its shell.
const EXIT_CODE: i32 = 130;
/// How often a command that waits looks.
const INTERVAL: Duration = Duration::from_millis(100);

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
                if IS_PRESSED.swap(true, Ordering::Relaxed) {
                    std::process::exit(EXIT_CODE);
                }
                if let Some(cancel) = &*computation() {
                    cancel.cancel();
                }
            }
        });
    };
    std::thread::Builder::new()
        .name("interrupts".to_owned())
        .spawn(wait)?;
    Ok(())
}

/// Forgets what came before a command.
pub(crate) fn begin() {
    IS_PRESSED.store(false, Ordering::Relaxed);
    *computation() = None;
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

/// Whether the command that waits is to end.
pub(crate) fn is_pressed() -> bool {
    IS_PRESSED.load(Ordering::Relaxed)
}

/// How long a command that may wait for `left` waits before it looks: not at all, where nobody catches interrupts.
pub(crate) fn wait_max(left: Duration) -> Duration {
    match IS_CAUGHT.load(Ordering::Relaxed) {
        true => left.min(INTERVAL),
        false => left,
    }
}
