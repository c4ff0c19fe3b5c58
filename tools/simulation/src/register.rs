//! What a watch of one register over the network has told, and its judge.
//!
//! It is told of every change of the register once and in order, each with what was there before; and when it is told that
//! everything up to a revision has come, everything has.

use std::collections::BTreeMap;
use std::sync::Arc;

use bowline::Revision;
use bowline_testing::linear::Held;
use parking_lot::Mutex;

/// What the registers held, each from a revision on.
pub(crate) type Registers = BTreeMap<(usize, Revision), Held>;

/// A change of the register.
#[derive(Clone, Copy)]
pub(crate) struct Change {
    pub(crate) revision: Revision,
    pub(crate) held: Held,
    /// What was there before, and since when.
    pub(crate) previous: Option<(Revision, Held)>,
}

#[derive(Default)]
struct State {
    changes: Vec<Change>,
    /// When it was told that everything up to a revision has come: how many changes it had been told of by then.
    progress: Vec<(usize, Revision)>,
    /// Below this revision it was not told of everything: it began there, or the history was compacted.
    from: Revision,
}

/// What one who watches a register was told. Clones are the same.
#[derive(Clone)]
pub(crate) struct SeenRegister {
    name: String,
    register: usize,
    state: Arc<Mutex<State>>,
}

impl SeenRegister {
    pub(crate) fn new(name: String, register: usize) -> SeenRegister {
        let state = Arc::default();
        SeenRegister {
            name,
            register,
            state,
        }
    }

    pub(crate) fn register(&self) -> usize {
        self.register
    }

    pub(crate) fn add(&self, change: Change) {
        self.state.lock().changes.push(change);
    }

    /// It is told that everything up to a revision has come.
    pub(crate) fn has_all_up_to(&self, revision: Revision) {
        let mut state = self.state.lock();
        let count = state.changes.len();
        state.progress.push((count, revision));
    }

    /// It is told of everything from there on: it begins, or what it was to be told next is compacted.
    pub(crate) fn is_behind(&self, oldest: Revision) {
        let mut state = self.state.lock();
        state.from = oldest.max(state.from);
    }

    /// What it was told of, for a past that others may not have seen.
    pub(crate) fn registers(&self) -> Registers {
        let state = self.state.lock();
        let changes = state.changes.iter();
        let changes = changes.map(|change| ((self.register, change.revision), change.held));
        changes.collect()
    }

    /// Compares what it was told with what the register held. Of a history that is compacted, what was there before a
    /// change may be left out.
    pub(crate) fn judge(&self, registers: &Registers, is_compacted: bool) -> Result<(), String> {
        let state = self.state.lock();
        let (name, register) = (&self.name, self.register);
        let mut due = registers.range((register, state.from)..=(register, Revision::MAX));
        for change in { state.changes.iter() }.filter(|change| change.revision >= state.from) {
            let told = (change.revision, change.held);
            let next = due.next().map(|((_, revision), held)| (*revision, *held));
            if next != Some(told) {
                return Err(format!("{name} was told {told:?} instead of {next:?}"));
            }
            let before = registers.range((register, Revision::ZERO)..(register, change.revision));
            let before = before
                .map(|((_, revision), held)| (*revision, *held))
                .next_back();
            // What was deleted is not there.
            let before = before.filter(|(_, held)| held.is_some());
            let may_lack = is_compacted && change.previous.is_none();
            if change.previous != before && !may_lack {
                let previous = change.previous;
                return Err(format!(
                    "{name} was told that {previous:?} was there before {told:?}, and it was {before:?}"
                ));
            }
        }
        if let Some(((_, missing), _)) = due.next() {
            return Err(format!("{name} was never told {missing}"));
        }
        state.judge_progress(name, register, registers)
    }
}

impl State {
    fn judge_progress(
        &self,
        name: &str,
        register: usize,
        registers: &Registers,
    ) -> Result<(), String> {
        for &(count, revision) in { self.progress.iter() }.filter(|(_, up_to)| *up_to >= self.from)
        {
            let last = count.checked_sub(1).map(|at| self.changes[at].revision);
            let mut due = registers.range((register, self.from)..=(register, revision));
            let newest = due.next_back().map(|((_, newest), _)| *newest);
            if newest > last {
                return Err(format!(
                    "{name} was told that all up to {revision} has come, after {last:?} and before {newest:?}"
                ));
            }
            if last.is_some_and(|last| revision < last) {
                return Err(format!(
                    "{name} was told that it is at {revision}, after {last:?}"
                ));
            }
        }
        Ok(())
    }
}
