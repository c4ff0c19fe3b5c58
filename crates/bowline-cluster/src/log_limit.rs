//! A limit on how often one message is logged.
//!
//! Whatever is tried again and again, and logs that it failed, has one of these.
//!
//! Invariant: within [`WINDOW`] at most one message is let through, and the next one says how many
//! were left out since.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// One message is logged in so long.
const WINDOW: Duration = Duration::from_secs(10);

/// Limits the messages of one kind about one subject.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    last: Option<Instant>,
    left_out: u64,
}

impl LogLimit {
    /// Whether a message is to be logged at `now`: then, how many like it were left out before it.
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

/// A [`LogLimit`] that is shared.
#[derive(Debug, Default)]
pub(crate) struct SharedLogLimit(Mutex<LogLimit>);

impl SharedLogLimit {
    /// Whether a message is to be logged now: then, what it says of those that were left out before it.
    pub(crate) fn admit_now(&self) -> Option<String> {
        self.0.lock().admit(Instant::now()).map(and_more)
    }
}

/// What a message says of those that were left out before it: nothing when there were none.
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

    /// A message that comes thousands of times a second is logged once per window, with a count.
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
