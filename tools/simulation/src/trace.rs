//! What happened, in the order in which it happened.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

#[derive(Default)]
struct State {
    now: Duration,
    text: String,
    hash: u64,
}

/// The trace of a run. Clones are the same one.
#[derive(Clone, Default)]
pub(crate) struct Trace(Arc<Mutex<State>>);

impl Trace {
    pub(crate) fn set_now(&self, now: Duration) {
        self.0.lock().now = now;
    }

    pub(crate) fn now(&self) -> Duration {
        self.0.lock().now
    }

    /// Notes what `who` did, or what was done to it.
    pub(crate) fn note(&self, who: impl std::fmt::Display, what: impl std::fmt::Display) {
        let mut state = self.0.lock();
        let start = state.text.len();
        let millis = state.now.as_millis();
        let _ = writeln!(state.text, "{millis:>6} ms  {who:<4} {what}");
        // FNV-1a.
        let hashed = { state.text[start..].bytes() }.fold(state.hash, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        state.hash = hashed;
    }

    /// Notes what a member says of itself, which no hash has: `|` marks the line.
    pub(crate) fn say(&self, who: impl std::fmt::Display, what: impl std::fmt::Display) {
        let mut state = self.0.lock();
        let millis = state.now.as_millis();
        let _ = writeln!(state.text, "{millis:>6} ms| {who:<4} {what}");
    }

    /// The text, and a hash of what two runs must have in common.
    pub(crate) fn finish(&self) -> (String, u64) {
        let state = self.0.lock();
        (state.text.clone(), state.hash)
    }
}

/// The name of a member in it.
pub(crate) fn name(member: usize) -> String {
    format!("m{member}")
}
