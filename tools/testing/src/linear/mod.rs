//! A checker of linearizability: is there an order of the operations of a history, consistent with real time,
//! in which each result is correct?
//!
//! It works as in Wing and Gong ("Testing and verifying concurrent objects", JPDC 1993), with the memoisation
//! of Lowe ("Testing for linearizability", CCPE 2017): a depth-first search through sets of operations that
//! have taken effect, each with the resulting state. A pair of set and state that failed once is not tried
//! again.
//!
//! The object is a handful of keys, each of which holds a number or nothing. An [`Operation`] is a
//! transaction on them: it may expect values, see values and write values, all at one moment. So a read, a
//! put, a deletion and a compare-and-swap of one key are operations, and so is a transfer between two keys.
//! Keys that share no transaction are better checked in separate histories.
//!
//! An operation without an answer may take effect at any time after it began, or never.
//!
//! Optimizations that do not change the result:
//!
//! - an answered operation that could be next, and that never changes anything, is next: any valid order
//!   stays valid when it is moved to the front;
//! - operations with an answer are tried before those without;
//! - an unanswered one whose values nobody can have seen is left out (`Search::new` says when).
//!
//! A search that visits too many states is a failure, as a history that was not judged proves nothing. States are
//! counted, and not seconds: the verdict is the same on every machine.
//!
//! ```
//! use bowline_testing::linear::{Operation, check};
//!
//! let mut history = vec![
//!     Operation::put(0, 7).lasted(0, 10),
//!     Operation::read(0, Some(7)).lasted(5, 20),
//!     Operation::read(0, Some(7)).lasted(21, 22),
//! ];
//! assert!(check(&history).is_ok());
//! history.push(Operation::read(0, None).lasted(23, 24)); // stale
//! assert!(check(&history).is_err());
//! ```

mod search;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;

use search::Search;

/// A key's contents: nothing, or a number. Written numbers should be unique.
pub type Held = Option<u64>;

/// One operation of a history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Its start time.
    pub start: u64,
    /// The time of its answer; `None` if the outcome is unknown.
    pub end: Option<u64>,
    /// The conditions of the writes.
    pub expects: Vec<(usize, Held)>,
    /// The written keys, with their new values.
    pub writes: Vec<(usize, Held)>,
    /// The returned values of keys, from just before the writes.
    pub seen: Vec<(usize, Held)>,
    /// Whether the conditions held, if it was answered.
    pub held: bool,
    /// Its origin, for messages.
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

    /// A deletion of one key.
    #[must_use]
    pub fn delete(key: usize) -> Operation {
        Operation::new().writing(key, None)
    }

    /// A write of one key if it holds the expected value.
    #[must_use]
    pub fn swap(key: usize, expected: Held, value: u64) -> Operation {
        Operation::put(key, value).expecting(key, expected)
    }

    /// A transaction that takes effect only if what it has read is unchanged: it has these conditions, also while its outcome
    /// is unknown. Its writes are to be added.
    ///
    /// ```
    /// use bowline_testing::linear::{Operation, check};
    ///
    /// let commit = Operation::transaction([(0, Some(1))]).writing(1, Some(9));
    /// let history = [
    ///     Operation::put(0, 2).lasted(0, 1),
    ///     commit.unanswered(2),
    ///     Operation::read(1, Some(9)).lasted(3, 4),
    /// ];
    /// assert!(check(&history).is_err(), "what it has read had changed");
    /// ```
    #[must_use]
    pub fn transaction(read: impl IntoIterator<Item = (usize, Held)>) -> Operation {
        let expects = read.into_iter().collect();
        Operation {
            expects,
            ..Operation::new()
        }
    }

    /// Adds a condition.
    #[must_use]
    pub fn expecting(mut self, key: usize, held: Held) -> Operation {
        self.expects.push((key, held));
        self
    }

    /// Adds a write.
    #[must_use]
    pub fn writing(mut self, key: usize, value: Held) -> Operation {
        self.writes.push((key, value));
        self
    }

    /// Adds a returned value.
    #[must_use]
    pub fn saw(mut self, key: usize, held: Held) -> Operation {
        self.seen.push((key, held));
        self
    }

    /// An answer that the conditions did not hold.
    #[must_use]
    pub fn refused(mut self) -> Operation {
        self.held = false;
        self
    }

    /// Sets the times of start and answer.
    #[must_use]
    pub fn lasted(mut self, start: u64, end: u64) -> Operation {
        (self.start, self.end) = (start, Some(end));
        self
    }

    /// Sets the start time. The outcome is unknown.
    #[must_use]
    pub fn unanswered(mut self, start: u64) -> Operation {
        (self.start, self.end) = (start, None);
        self
    }

    /// Sets its origin.
    #[must_use]
    pub fn noted(mut self, note: impl Into<String>) -> Operation {
        self.note = note.into();
        self
    }

    /// Whether it is answered, and has no effect at any position. (A deletion of an absent key may: later it
    /// may delete something.)
    fn is_passive(&self) -> bool {
        self.end.is_some() && (self.writes.is_empty() || !self.held)
    }

    fn expectations_hold(&self, state: &[Held]) -> bool {
        self.expects.iter().all(|&(key, held)| state[key] == held)
    }

    /// The state after it, or `None` if it is impossible in this state.
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

/// Why a history is not accepted as linearizable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// There is no such order.
    NotLinearizable(Stuck),
    /// The search has visited as many states as it may before the history was judged.
    TooManyStates(Stuck),
}

/// The furthest state of the search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stuck {
    /// The longest valid order.
    pub order: Vec<Operation>,
    /// The keys' contents after it.
    pub state: Vec<Held>,
    /// The operations that could be next by real time; none of the answered ones is possible.
    pub next: Vec<Operation>,
    /// The number of remaining answered operations.
    pub left: usize,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 30;
        let (what, stuck) = match self {
            Failure::NotLinearizable(stuck) => ("not linearizable", stuck),
            Failure::TooManyStates(stuck) => ("not judged: too many states", stuck),
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

/// How many states a search visits at most. It keeps some hundred bytes of each.
const STATES_MAX: usize = 4_000_000;

/// Checks whether a history is linearizable. Keys are initially empty; times are of one clock.
///
/// What has no answer may have happened or not, which makes the search long. Most of it was seen by nobody: a
/// history that has an order without it is linearizable, and only otherwise all of it is tried.
pub fn check(history: &[Operation]) -> Result<(), Failure> {
    check_within(history, STATES_MAX)
}

/// The same with at most so many states in each search.
fn check_within(history: &[Operation], states_max: usize) -> Result<(), Failure> {
    let seen = without_unseen(history);
    if seen.len() < history.len() && Search::new(&seen).run(states_max).is_ok() {
        return Ok(());
    }
    Search::new(history).run(states_max)
}

/// The history without unanswered writes whose values are in no answer, and in no condition of what is left.
fn without_unseen(history: &[Operation]) -> Vec<Operation> {
    let mut kept: Vec<bool> = { history.iter() }
        .map(|operation| {
            operation.end.is_some() || operation.writes.iter().any(|(_, held)| held.is_none())
        })
        .collect();
    let mut seen = BTreeSet::new();
    loop {
        let left = history.iter().zip(&kept).filter(|(_, kept)| **kept);
        for (operation, _) in left {
            let conditions = operation.expects.iter().filter(|_| operation.held);
            seen.extend(operation.seen.iter().chain(conditions).copied());
        }
        let mut has_changed = false;
        for (operation, kept) in history.iter().zip(&mut kept) {
            if !*kept && operation.writes.iter().any(|write| seen.contains(write)) {
                (*kept, has_changed) = (true, true);
            }
        }
        if !has_changed {
            let left = history.iter().zip(kept).filter(|(_, kept)| *kept);
            return left.map(|(operation, _)| operation.clone()).collect();
        }
    }
}
