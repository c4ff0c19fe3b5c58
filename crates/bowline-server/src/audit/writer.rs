//! The thread that writes the lines.

use std::io::{self, Write};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bowline::vfs::Vfs;

use super::Audit;
use super::log_file::{LogFile, OpenError};
use super::options::{AuditOptions, Target};

/// So long after a failure the thread tries again.
const RETRY: Duration = Duration::from_millis(500);
/// What is written is flushed to the disk within this time.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// Where lines are written to.
#[derive(Debug)]
pub(super) enum Sink {
    File(LogFile),
    StandardOutput,
}

impl Sink {
    pub(super) fn open(options: &AuditOptions, vfs: &Arc<dyn Vfs>) -> Result<Sink, OpenError> {
        Ok(match &options.target {
            Target::File(path) => Sink::File(LogFile::open(
                vfs,
                path,
                options.file_bytes_max,
                options.files_max,
            )?),
            Target::StandardOutput => Sink::StandardOutput,
        })
    }

    /// Appends lines, and takes from them what is written.
    fn append(&mut self, lines: &mut &[u8]) -> io::Result<u64> {
        match self {
            Sink::File(file) => file.append(lines),
            Sink::StandardOutput => {
                let mut output = io::stdout().lock();
                output.write_all(lines)?;
                output.flush()?;
                *lines = &[];
                Ok(0)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::File(file) => file.flush(),
            Sink::StandardOutput => Ok(()),
        }
    }
}

/// Writes lines until the log is closed.
pub(super) fn run(audit: &Audit, mut sink: Sink) {
    let mut flushed = Instant::now();
    loop {
        let mut queue = audit.queue.lock();
        if queue.lines == 0 && !queue.is_closed {
            let _ = audit.has_lines.wait_for(&mut queue, FLUSH_INTERVAL);
        }
        let (bytes, lines) = (mem::take(&mut queue.bytes), mem::take(&mut queue.lines));
        let is_closed = queue.is_closed;
        drop(queue);
        if lines > 0 {
            write(audit, &mut sink, &bytes, lines);
        }
        if is_closed || flushed.elapsed() >= FLUSH_INTERVAL {
            flushed = Instant::now();
            match sink.flush() {
                Ok(()) => works(audit),
                Err(error) => fails(audit, &error),
            }
        }
        // What came in between is written before the end: nothing comes after it.
        if is_closed && audit.queue.lock().lines == 0 {
            return;
        }
    }
}

/// Writes some lines, however long that takes; once the log is closed, by one attempt.
fn write(audit: &Audit, sink: &mut Sink, bytes: &[u8], lines: u64) {
    let mut rest = bytes;
    loop {
        match sink.append(&mut rest) {
            Ok(rotations) => {
                audit.rotations.add(rotations);
                audit.written.add(lines);
                works(audit);
                break;
            }
            Err(error) => fails(audit, &error),
        }
        let mut queue = audit.queue.lock();
        if !queue.is_closed {
            let _ = audit.has_lines.wait_for(&mut queue, RETRY);
        }
        if queue.is_closed {
            drop(queue);
            let dropped = rest.iter().filter(|byte| **byte == b'\n').count() as u64;
            if dropped > 0 && sink.append(&mut rest).is_err() {
                let left = rest.iter().filter(|byte| **byte == b'\n').count() as u64;
                audit.dropped.add(left);
                audit.written.add(lines.saturating_sub(left));
                tracing::error!(lines = left, "lines of the audit log were not written");
            } else {
                audit.written.add(lines);
            }
            break;
        }
    }
    audit.used_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
    audit.room.notify_waiters();
}

fn fails(audit: &Audit, error: &io::Error) {
    *audit.failure.lock() = Some(error.to_string());
    if !audit.is_failing.swap(true, Ordering::Relaxed) {
        tracing::error!(%error, "the audit log cannot be written: its lines wait, and then calls do as --audit-overflow says");
    }
}

fn works(audit: &Audit) {
    if audit.is_failing.swap(false, Ordering::Relaxed) {
        tracing::info!("the audit log is written again");
    }
}
