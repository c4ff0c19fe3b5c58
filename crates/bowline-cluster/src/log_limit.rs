//! A rate limit for repeated log messages.
//!
//! Each operation that is retried indefinitely and logs its failures has one.
//!
//! Invariant: within [`WINDOW`] at most one message is logged, and the next one has the count of those left
//! out since.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The minimum time between two messages.
const WINDOW: Duration = Duration::from_secs(10);

/// The limit of one kind of message about one subject.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    last: Option<Instant>,
    left_out: u64,
}

impl LogLimit {
    /// Whether to log a message at `now`; if so, the count of messages left out before it.
    pub(crate) fn admit(&mut self, now: Instant) -> Option<u64> {
        if self
            .last
            .is_some_and(|last| now.saturating_duration_since(last) < WINDOW)
        {
            self.left_out += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

/// A shared [`LogLimit`].
#[derive(Debug, Default)]
pub(crate) struct SharedLogLimit(Mutex<LogLimit>);

impl SharedLogLimit {
    /// Whether to log a message now; if so, the text about those left out before it.
    pub(crate) fn admit_now(&self) -> Option<String> {
        self.0.lock().admit(Instant::now()).map(and_more)
    }
}

/// The text about messages left out; empty when there were none.
pub(crate) fn and_more(left_out: u64) -> String {
    match left_out {
        0 => String::new(),
        count => format!(
            " (and {count} more like it in the last {} s)",
            WINDOW.as_secs()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message repeated thousands of times a second is logged once per window, with a count.
    #[test]
    fn repeated_messages_are_counted_and_not_logged() {
        let mut limit = LogLimit::default();
        let start = Instant::now();
        assert_eq!(limit.admit(start), Some(0));
        for number in 0..1000 {
            assert_eq!(limit.admit(start + Duration::from_millis(number)), None);
        }
        assert_eq!(limit.admit(start + WINDOW), Some(1000));
        assert_eq!(limit.admit(start + 2 * WINDOW), Some(0));
        assert_eq!(and_more(0), "");
        assert_eq!(and_more(42), " (and 42 more like it in the last 10 s)");
    }
}
