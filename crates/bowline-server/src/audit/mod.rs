//! The audit log: who called what, when, with which result, as lines of JSON.
//!
//! ```text
//!  call ─▶ admit ─▶ service ─▶ Record ─▶ line ─▶ queue ─▶ thread ─▶ file (rotates), or standard output
//! ```
//!
//! A call asks to be admitted before its service sees it, and leaves its line when it has ended. The line is made on the
//! call's thread; one thread of the log's own takes the lines from the queue and writes them.
//!
//! The queue has a limit in bytes. What happens when it is full is the operator's choice ([`Overflow`]). With `block` a call
//! waits for room before it begins, for at most [`AuditOptions::wait_max`], and is then refused: nothing was done. A call that
//! was admitted leaves its line whatever the queue holds by then. With `drop` lines beyond the limit are dropped, and counted.
//! A disk that fails is the same as one that is slow: the thread keeps its lines and tries again.
//!
//! | module | |
//! |---|---|
//! | [`options`] | what is written, where, and what happens when that is not possible |
//! | [`what`] | what is written of each method: one exhaustive match |
//! | [`details`], [`record`] | the parts of a line |
//! | [`log_file`] | the file and its rotation |
//! | [`writer`] | the thread |
//! | [`watches`] | the creation and the end of each watch |
//!
//! Invariants:
//!
//! - With `block`, a call whose class is asked for has its line, or was refused before it began.
//! - Every line that is not written is counted.
//! - The queue holds at most its limit, and the lines of the calls that were admitted before it was full. A line has at most
//!   [`record::LINE_BYTES_MAX`].
//! - No line has a value, an attribute, a password or a token: [`what`] names what it takes from a request, and no more.

mod details;
mod log_file;
mod options;
mod record;
#[cfg(test)]
mod tests;
mod watches;
mod what;
mod writer;

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use bowline::Clock;
use bowline::vfs::Vfs;
use bowline_cluster::LocalClient;
use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;
use tonic::{Code, Status};

pub(crate) use details::Details;
pub(crate) use options::{AuditOptions, Class, Events, Overflow, Target};
pub(crate) use record::{Event, Record, Who};
pub(crate) use watches::WatchAudit;
pub(crate) use what::{Told, class_of, describe, other_class_of};

use crate::metrics::{Counter, Method};
use crate::status::Fault;
use writer::Sink;

/// Why the log could not be opened.
pub use log_file::OpenError;

/// The clock of a node.
#[derive(Debug)]
pub(crate) struct NodeClock(pub(crate) LocalClient);

impl Clock for NodeClock {
    fn monotonic(&self) -> Duration {
        self.0.clock().monotonic()
    }

    fn wall_ms(&self) -> u64 {
        self.0.clock().wall_ms()
    }
}

/// The lines that wait for the thread.
#[derive(Debug, Default)]
struct Queue {
    bytes: Vec<u8>,
    lines: u64,
    is_closed: bool,
}

/// The audit log.
#[derive(Debug)]
pub(crate) struct Audit {
    options: AuditOptions,
    clock: Arc<dyn Clock>,
    queue: Mutex<Queue>,
    /// Lines have come, or the log is closed.
    has_lines: Condvar,
    /// What is queued or being written.
    used_bytes: AtomicUsize,
    /// There is room again.
    room: Notify,
    /// Why the last attempt to write has failed.
    failure: Mutex<Option<String>>,
    is_failing: AtomicBool,
    pub(crate) written: Counter,
    pub(crate) dropped: Counter,
    /// Calls that were refused because their lines would have no room.
    pub(crate) refused: Counter,
    pub(crate) rotations: Counter,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Audit {
    /// Opens the log and starts its thread.
    pub(crate) fn start(
        options: AuditOptions,
        vfs: &Arc<dyn Vfs>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Audit>, OpenError> {
        let sink = Sink::open(&options, vfs)?;
        let audit = Arc::new(Audit {
            options,
            clock,
            queue: Mutex::default(),
            has_lines: Condvar::new(),
            used_bytes: AtomicUsize::new(0),
            room: Notify::new(),
            failure: Mutex::default(),
            is_failing: AtomicBool::new(false),
            written: Counter::default(),
            dropped: Counter::default(),
            refused: Counter::default(),
            rotations: Counter::default(),
            thread: Mutex::default(),
        });
        let of_thread = audit.clone();
        let thread = std::thread::Builder::new().name("bowline-audit".to_owned());
        let thread = thread
            .spawn(move || writer::run(&of_thread, sink))
            .map_err(OpenError::Thread)?;
        *audit.thread.lock() = Some(thread);
        Ok(audit)
    }

    /// Whether a call of a method may have a line: its class is asked for, or would be if it were refused.
    pub(crate) fn may_write(&self, method: Method) -> bool {
        let class = class_of(method);
        let events = self.options.events;
        let may_be_another = other_class_of(method).is_some_and(|class| events.has(class));
        events.has(class) || may_be_another || events.refused && class != Class::Health
    }

    /// Whether a record is to be written.
    fn wants(&self, class: Class, code: Code) -> bool {
        let events = self.options.events;
        events.has(class) || events.refused && code != Code::Ok && class != Class::Health
    }

    /// Lets a call begin, now or not at all.
    pub(crate) fn admit_now(&self) -> Result<(), Status> {
        if self.options.overflow == Overflow::Drop || self.has_room() {
            return Ok(());
        }
        self.refused.add(1);
        Err(Fault::AuditLogFull.into())
    }

    /// Lets a call begin, once there is room for its line.
    pub(crate) async fn admit(&self) -> Result<(), Status> {
        if self.options.overflow == Overflow::Drop || self.has_room() {
            return Ok(());
        }
        let waiting = async {
            loop {
                let mut room = pin!(self.room.notified());
                // From here on no notice is missed.
                room.as_mut().enable();
                if self.has_room() {
                    return;
                }
                room.await;
            }
        };
        match tokio::time::timeout(self.options.wait_max, waiting).await {
            Ok(()) => Ok(()),
            Err(_) => self.admit_now(),
        }
    }

    fn has_room(&self) -> bool {
        self.used_bytes.load(Ordering::Relaxed) < self.options.queue_bytes_max
    }

    /// Writes a record, if its class is asked for.
    pub(crate) fn write(&self, record: &Record<'_>) {
        if self.wants(record.class(), record.code) {
            self.push(record.line().as_bytes());
        }
    }

    fn push(&self, line: &[u8]) {
        let used = self.used_bytes.fetch_add(line.len(), Ordering::Relaxed) + line.len();
        let is_over = used > self.options.queue_bytes_max;
        let mut queue = self.queue.lock();
        if queue.is_closed || is_over && self.options.overflow == Overflow::Drop {
            drop(queue);
            self.used_bytes.fetch_sub(line.len(), Ordering::Relaxed);
            self.dropped.add(1);
            return;
        }
        queue.bytes.extend_from_slice(line);
        queue.lines += 1;
        let is_first = queue.lines == 1;
        drop(queue);
        if is_first {
            self.has_lines.notify_one();
        }
    }

    /// Milliseconds since the Unix epoch.
    pub(crate) fn wall_ms(&self) -> u64 {
        self.clock.wall_ms()
    }

    /// The time since some start.
    pub(crate) fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Bytes of lines that are queued or being written.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Why lines are not written at present.
    pub(crate) fn failure(&self) -> Option<String> {
        match self.is_failing.load(Ordering::Relaxed) {
            true => self.failure.lock().clone(),
            false => None,
        }
    }

    /// Why calls are refused, or would be soon; nothing keeps a log that drops lines from serving.
    pub(crate) fn problem(&self) -> Option<String> {
        match self.options.overflow {
            Overflow::Block => self.failure(),
            Overflow::Drop => None,
        }
    }

    /// Writes what is queued, and ends the thread. A disk that fails keeps it no longer than one more attempt.
    pub(crate) fn close(&self) {
        self.queue.lock().is_closed = true;
        self.has_lines.notify_one();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the audit log did not end well");
        }
    }
}

thread_local! {
    /// The revision of the newest header that the call being polled has made.
    static REVISION: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Notes the revision in the header of a reply.
pub(crate) fn note_revision(revision: u64) {
    REVISION.set(Some(revision));
}

/// A call's output, and the revision in its reply.
pub(crate) async fn noting<T>(call: impl Future<Output = T>) -> (T, Option<u64>) {
    let mut call = pin!(call);
    let mut newest = None;
    std::future::poll_fn(|task| {
        let outer = REVISION.take();
        let polled = call.as_mut().poll(task);
        newest = REVISION.replace(outer).or(newest);
        match polled {
            Poll::Ready(output) => Poll::Ready((output, newest)),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
