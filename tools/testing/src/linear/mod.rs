//! A checker of linearizability: is there one order of the operations of a history, in keeping with
//! real time, in which each saw what it should have seen?
//!
//! In the manner of Wing and Gong ("Testing and verifying concurrent objects", JPDC 1993), with the
//! memoisation of Lowe ("Testing for linearizability", CCPE 2017): a search, depth first, through
//! sets of operations that have taken effect, each with the state they left. A pair of set and state
//! that led nowhere once is not tried again.
//!
//! The object is a handful of keys, each of which holds a number or nothing. An [`Operation`] is a
//! transaction on them: it may expect values, see values and write values, all at one moment. So a
//! read, a put, a deletion and a compare-and-swap of one key are operations, and a transfer between two
//! keys is one, too. Keys that no transaction joins are better checked in histories of their own.
//!
//! An operation without an answer may take effect at any time after it began, or never.
//!
//! What keeps the search small, without a change of its result:
//!
//! - an answered operation that could come next, and that changes nothing wherever it stands, comes
//!   next: whatever order there is stays one when it is moved to the front;
//! - operations with an answer are tried before those without;
//! - an unanswered one whose values nobody can have seen is left out (`Search::new` says when).
//!
//! Running out of time is a failure, as a history that was not judged proves nothing.
//!
//! ```
//! use std::time::Duration;
//! use bowline_testing::linear::{Operation, check};
//!
//! let mut history = vec![
//!     Operation::put(0, 7).lasted(0, 10),
//!     Operation::read(0, Some(7)).lasted(5, 20),
//!     Operation::read(0, Some(7)).lasted(21, 22),
//! ];
//! assert!(check(&history, Duration::from_secs(1)).is_ok());
//! history.push(Operation::read(0, None).lasted(23, 24)); // stale
//! assert!(check(&history, Duration::from_secs(1)).is_err());
//! ```

mod search;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use search::Search;

/// What a key holds: nothing, or a number. The numbers that are written should be unique.
pub type Held = Option<u64>;

/// One operation of a history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// When it began.
    pub start: u64,
    /// When its answer came; `None` for one whose outcome is unknown.
    pub end: Option<u64>,
    /// What must hold for the writes to be made.
    pub expects: Vec<(usize, Held)>,
    /// What is written: the keys, and their new values.
    pub writes: Vec<(usize, Held)>,
    /// What it was told that keys held just before it wrote.
    pub seen: Vec<(usize, Held)>,
    /// Whether what it expected held, where it was answered.
    pub held: bool,
    /// Who did it, and how; only shown.
    pub note: String,
}

impl Operation {
    fn new() -> Operation {
        Operation {
            start: 0,
            end: None,
            expects: Vec::new(),
            writes: Vec::new(),
            seen: Vec::new(),
            held: true,
            note: String::new(),
        }
    }

    /// A read of one key.
    #[must_use]
    pub fn read(key: usize, seen: Held) -> Operation {
        Operation::new().saw(key, seen)
    }

    /// A write of one key.
    #[must_use]
    pub fn put(key: usize, value: u64) -> Operation {
        Operation::new().writing(key, Some(value))
    }

    /// The end of one key.
    #[must_use]
    pub fn delete(key: usize) -> Operation {
        Operation::new().writing(key, None)
    }

    /// A write of one key on the condition that it holds what is expected.
    #[must_use]
    pub fn swap(key: usize, expected: Held, value: u64) -> Operation {
        Operation::put(key, value).expecting(key, expected)
    }

    /// One more condition.
    #[must_use]
    pub fn expecting(mut self, key: usize, held: Held) -> Operation {
        self.expects.push((key, held));
        self
    }

    /// One more write.
    #[must_use]
    pub fn writing(mut self, key: usize, value: Held) -> Operation {
        self.writes.push((key, value));
        self
    }

    /// One more key that was seen.
    #[must_use]
    pub fn saw(mut self, key: usize, held: Held) -> Operation {
        self.seen.push((key, held));
        self
    }

    /// Answered: what it expected did not hold.
    #[must_use]
    pub fn refused(mut self) -> Operation {
        self.held = false;
        self
    }

    /// When it began, and when the answer came.
    #[must_use]
    pub fn lasted(mut self, start: u64, end: u64) -> Operation {
        (self.start, self.end) = (start, Some(end));
        self
    }

    /// When it began. What became of it is unknown.
    #[must_use]
    pub fn unanswered(mut self, start: u64) -> Operation {
        (self.start, self.end) = (start, None);
        self
    }

    /// Who did it, and how.
    #[must_use]
    pub fn noted(mut self, note: impl Into<String>) -> Operation {
        self.note = note.into();
        self
    }

    /// Answered, and without an effect wherever it stands. (A deletion of what is absent is not: later
    /// it may delete something.)
    fn is_passive(&self) -> bool {
        self.end.is_some() && (self.writes.is_empty() || !self.held)
    }

    fn expectations_hold(&self, state: &[Held]) -> bool {
        self.expects.iter().all(|&(key, held)| state[key] == held)
    }

    /// The state after it, or `None` if it cannot have happened in this one.
    fn step(&self, state: &[Held]) -> Option<Vec<Held>> {
        let holds = self.expectations_hold(state);
        if self.end.is_some() {
            let as_seen = self.seen.iter().all(|&(key, held)| state[key] == held);
            if holds != self.held || !as_seen {
                return None;
            }
        }
        let mut after = state.to_vec();
        if holds {
            for &(key, value) in &self.writes {
                after[key] = value;
            }
        }
        Some(after)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = |held: &Held| held.map_or("-".to_owned(), |value| value.to_string());
        write!(f, "{:>9}..", self.start)?;
        match self.end {
            Some(end) => write!(f, "{end:<9}")?,
            None => write!(f, "{:<9}", "?")?,
        }
        for (word, list) in [
            ("expects", &self.expects),
            ("saw", &self.seen),
            ("wrote", &self.writes),
        ] {
            if !list.is_empty() {
                let list: Vec<_> = list
                    .iter()
                    .map(|(k, v)| format!("{k}={}", held(v)))
                    .collect();
                write!(f, " {word} {}", list.join(" "))?;
            }
        }
        if self.end.is_some() && !self.held {
            write!(f, " REFUSED")?;
        }
        write!(f, "  {}", self.note)
    }
}

/// Why a history was not found linearizable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// There is no such order.
    NotLinearizable(Stuck),
    /// The time was over before the history was judged.
    OutOfTime(Stuck),
}

/// How far the search came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stuck {
    /// The longest order that was found.
    pub order: Vec<Operation>,
    /// What the keys held after it.
    pub state: Vec<Held>,
    /// The operations that could have come next by real time; none of the answered ones fits.
    pub next: Vec<Operation>,
    /// How many answered operations were left.
    pub left: usize,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 30;
        let (what, stuck) = match self {
            Failure::NotLinearizable(stuck) => ("not linearizable", stuck),
            Failure::OutOfTime(stuck) => ("not judged in time", stuck),
        };
        let skipped = stuck.order.len().saturating_sub(SHOWN);
        writeln!(f, "{what}; the longest order, without its first {skipped}:")?;
        for operation in &stuck.order[skipped..] {
            writeln!(f, "    {operation}")?;
        }
        writeln!(
            f,
            "then the keys hold {:?}, and none of these fits:",
            stuck.state
        )?;
        for operation in &stuck.next {
            writeln!(f, "    {operation}")?;
        }
        write!(f, "with {} answered operations left", stuck.left)
    }
}

impl std::error::Error for Failure {}

/// Whether a history is linearizable. At first the keys hold nothing; times are of one clock.
pub fn check(history: &[Operation], budget: Duration) -> Result<(), Failure> {
    Search::new(history).run(budget)
}
