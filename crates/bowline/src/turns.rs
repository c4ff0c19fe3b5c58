//! [`Turns`]: a transaction that has lost twice takes its turn.
//!
//! A transaction that is run again after each conflict may lose again and again to shorter ones. So who has lost twice
//! waits in the line of the key that the conflict named. The first of a line has the turn: it runs again, and whoever is about to
//! commit a change of that key waits until it is done. Who loses four times in spite of that, on one key after another, waits in the
//! line of everybody, and all commits wait for the first of that.
//!
//! ```text
//!   transact ──conflict, conflict──► line of the key ──first──► runs again, commits ──► next of the line
//!   put, update, commit ──the key's turn is taken? wait for who has it──► queue
//! ```
//!
//! Keys share a fixed number of lines, by their hash. Whoever waits does so for a bounded time, and then goes on as if nobody
//! had the turn: the body of a transaction is its user's code, and may itself wait for another thread that wants to commit. A thread that
//! has a turn waits for nobody else's.
//!
//! Invariants:
//!
//! - While a turn lasts less than [`PASS_MAX`], a commit takes a key from who has its turn only if it was past the check when the
//!   turn began, is a ticket's, or is of a thread that has a turn itself.
//! - A turn goes to those who wait in the order in which they came.
//! - Without a turn anywhere a commit pays one load.

use std::cell::Cell;
use std::collections::VecDeque;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use bowline_storage::sync::atomic::{AtomicUsize, Ordering};
use bowline_storage::sync::{Condvar, Instant, Mutex};

use crate::commit_queue::{Request, what};

/// How many lines the keys share.
const LINES: usize = 64;
/// The line of everybody.
const EVERYBODY: usize = LINES;
/// How many losses bring a transaction into the line of a key, and how many into that of everybody.
pub(crate) const LOSSES: u32 = 2;
const LOSSES_OF_EVERYBODY: u32 = 6;
/// How long a commit waits for who has a turn.
const PASS_MAX: Duration = Duration::from_millis(20);
/// How long a transaction waits for its turn.
const TAKE_MAX: Duration = Duration::from_secs(1);

thread_local! {
    /// How many turns this thread has.
    static HAS: Cell<usize> = const { Cell::new(0) };
}

/// The lines of a database.
#[derive(Debug)]
pub(crate) struct Turns {
    /// How many lines have somebody in them.
    used: AtomicUsize,
    lines: Vec<Line>,
}

#[derive(Debug, Default)]
struct Line {
    state: Mutex<Waiting>,
    /// The first of the line is another one, or nobody.
    moved: Condvar,
}

/// Numbers of transactions; the first one has the turn.
#[derive(Debug, Default)]
struct Waiting {
    numbers: VecDeque<u64>,
    next: u64,
}

/// The turn of a transaction, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    line: usize,
    number: u64,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns {
            used: AtomicUsize::new(0),
            lines: (0..=EVERYBODY).map(|_| Line::default()).collect(),
        }
    }
}

impl Turns {
    /// The turn for the next attempt of a transaction that has lost so often, the last time by a change of `what`; waits for it.
    /// `None` where it has none: too early, or after a long wait.
    pub(crate) fn after_loss<'a>(
        &'a self,
        turn: Option<Turn<'a>>,
        losses: u32,
        what: &str,
    ) -> Option<Turn<'a>> {
        let line = match losses >= LOSSES_OF_EVERYBODY {
            true => EVERYBODY,
            false => line_of(what),
        };
        if let Some(turn) = turn.filter(|turn| turn.line == line) {
            return Some(turn);
        }
        // Where others take turns already, it would lose a second time.
        (losses >= LOSSES || self.is_used(line)).then(|| self.take(line))?
    }

    /// Waits while others have the turn of what a request writes, for a bounded time.
    #[inline]
    pub(crate) fn pass(&self, request: &Request) {
        if self.used.load(Ordering::Relaxed) > 0 {
            self.pass_used(request);
        }
    }

    #[cold]
    fn pass_used(&self, request: &Request) {
        if HAS.get() > 0 {
            return;
        }
        let start = Instant::now();
        self.wait_for_first(EVERYBODY, start);
        for (tree, key) in request.written() {
            self.wait_for_first(line_of(&what(tree, key)), start);
        }
    }

    /// Waits until the one who is first in a line now is done.
    fn wait_for_first(&self, line: usize, start: Instant) {
        let line = &self.lines[line];
        let mut state = line.state.lock();
        let Some(first) = state.numbers.front().copied() else {
            return;
        };
        while state.numbers.front() == Some(&first) {
            let left = PASS_MAX.saturating_sub(start.elapsed());
            if left.is_zero() {
                return;
            }
            line.moved.wait_for(&mut state, left);
        }
    }

    fn is_used(&self, line: usize) -> bool {
        self.used.load(Ordering::Relaxed) > 0 && !self.lines[line].state.lock().numbers.is_empty()
    }

    /// Waits in a line until it is the turn of the caller, or for a long time.
    fn take(&self, line: usize) -> Option<Turn<'_>> {
        let start = Instant::now();
        if line != EVERYBODY && HAS.get() == 0 {
            self.wait_for_first(EVERYBODY, start);
        }
        let at = &self.lines[line];
        let mut state = at.state.lock();
        let number = state.next;
        state.next += 1;
        if state.numbers.is_empty() {
            self.used.fetch_add(1, Ordering::Relaxed);
        }
        state.numbers.push_back(number);
        while state.numbers.front() != Some(&number) {
            let left = TAKE_MAX.saturating_sub(start.elapsed());
            if left.is_zero() {
                drop(state);
                self.leave(line, number);
                return None;
            }
            at.moved.wait_for(&mut state, left);
        }
        drop(state);
        HAS.set(HAS.get() + 1);
        Some(Turn {
            turns: self,
            line,
            number,
        })
    }

    /// Whether nobody has a turn, or waits for one.
    #[cfg(test)]
    pub(crate) fn are_unused(&self) -> bool {
        self.used.load(Ordering::Relaxed) == 0 && HAS.get() == 0
    }

    fn leave(&self, line: usize, number: u64) {
        let at = &self.lines[line];
        let mut state = at.state.lock();
        state.numbers.retain(|other| *other != number);
        if state.numbers.is_empty() {
            self.used.fetch_sub(1, Ordering::Relaxed);
        }
        drop(state);
        at.moved.notify_all();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        HAS.set(HAS.get() - 1);
        self.turns.leave(self.line, self.number);
    }
}

fn line_of(what: &str) -> usize {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(what);
    (hash % LINES as u64) as usize
}

#[cfg(all(test, not(bowline_shuttle)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use bowline_core::trees;
    use bowline_core::write::mutation::{Action, Mutation};

    use super::*;

    fn write_of(key: &str) -> Request {
        Request::of(Mutation::new(trees::KV, key.as_bytes(), Action::Delete))
    }

    fn line_of_key(key: &str) -> usize {
        line_of(&what(trees::KV, key.as_bytes()))
    }

    fn length(turns: &Turns, line: usize) -> usize {
        turns.lines[line].state.lock().numbers.len()
    }

    fn wait_for_length(turns: &Turns, line: usize, wanted: usize) {
        while length(turns, line) != wanted {
            thread::yield_now();
        }
    }

    #[test]
    fn turns_come_in_the_order_of_a_line() {
        let turns = Turns::default();
        let came = Mutex::new(Vec::new());
        thread::scope(|scope| {
            let first = turns.take(3).expect("nobody is before it");
            for number in 0..3 {
                let (turns, came) = (&turns, &came);
                scope.spawn(move || {
                    let _turn = turns.take(3);
                    came.lock().push(number);
                });
                wait_for_length(turns, 3, 2 + number);
            }
            assert!(came.lock().is_empty());
            drop(first);
        });
        assert_eq!(*came.lock(), [0, 1, 2]);
        assert_eq!(turns.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_turn_is_kept_while_the_same_key_is_lost() {
        let turns = Turns::default();
        assert!(
            turns.after_loss(None, 1, "key a").is_none(),
            "one loss is none"
        );
        let turn = turns.after_loss(None, 2, "key a");
        let line = turn.as_ref().expect("its turn").line;
        let number = turn.as_ref().map(|turn| turn.number);
        let kept = turns.after_loss(turn, 3, "key a");
        assert_eq!(kept.as_ref().map(|turn| turn.number), number);
        // Another key, another line; the first one is left.
        let other = (0..).map(|at| format!("key {at}"));
        let other = other.into_iter().find(|what| line_of(what) != line);
        let moved = turns.after_loss(kept, 4, &other.expect("one"));
        assert_eq!(length(&turns, line), 0);
        let last = turns.after_loss(moved, LOSSES_OF_EVERYBODY, "key a");
        assert_eq!(last.expect("its turn").line, EVERYBODY);
        assert_eq!(turns.used.load(Ordering::Relaxed), 0);
    }

    /// Where others take turns, one loss is enough.
    #[test]
    fn who_loses_where_others_take_turns_joins_them() {
        let turns = Turns::default();
        let turn = turns.take(line_of("key a"));
        thread::scope(|scope| {
            scope.spawn(|| assert!(turns.after_loss(None, 1, "key a").is_some()));
            wait_for_length(&turns, line_of("key a"), 2);
            drop(turn);
        });
    }

    /// Whether a commit of `key` waits for who has the turn of a line: each time, unless the machine was slower than the
    /// longest wait.
    fn waits(line: usize, key: &str) -> bool {
        const ROUNDS: u32 = 10;
        (0..ROUNDS).all(|_| {
            let (turns, is_over) = (Turns::default(), AtomicBool::new(false));
            let begun = AtomicBool::new(false);
            let turn = turns.take(line);
            thread::scope(|scope| {
                let passing = scope.spawn(|| {
                    let start = Instant::now();
                    begun.store(true, Ordering::SeqCst);
                    turns.pass(&write_of(key));
                    is_over.load(Ordering::SeqCst) || start.elapsed() >= PASS_MAX
                });
                while !begun.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
                thread::sleep(PASS_MAX / 10);
                is_over.store(true, Ordering::SeqCst);
                drop(turn);
                passing.join().expect("it passes")
            })
        })
    }

    #[test]
    fn a_commit_waits_for_the_turn_of_its_key_and_of_everybody() {
        assert!(waits(line_of_key("a"), "a"));
        assert!(waits(EVERYBODY, "a"));
        // Who has a turn does not wait for itself: each time would take the longest wait.
        const TIMES: u32 = 50;
        let turns = Turns::default();
        let turn = turns.take(line_of_key("a"));
        let start = Instant::now();
        (0..TIMES).for_each(|_| turns.pass(&write_of("a")));
        assert!(start.elapsed() < PASS_MAX * TIMES, "it waits for itself");
        drop(turn);
    }
}
