//! The search for an order.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::{Failure, Held, Operation, Stuck};

/// A set of operations, a bit for each.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Set(Box<[u64]>);

impl Set {
    fn empty(size: usize) -> Set {
        Set(vec![0; size.div_ceil(64)].into())
    }

    fn has(&self, at: usize) -> bool {
        self.0[at / 64] & (1 << (at % 64)) != 0
    }

    fn add(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }
}

/// A node of the search: the executed operations, the resulting state, and the next candidates.
struct Place {
    done: Set,
    state: Vec<Held>,
    /// The number of operations in the order before this node.
    depth: usize,
    choices: Vec<usize>,
    /// How many answered operations are left.
    left: usize,
}

/// The node with the fewest answered operations left: what is shown when there is no order.
#[derive(Default)]
struct Best {
    order: Vec<usize>,
    state: Vec<Held>,
    next: Vec<usize>,
    left: usize,
}

pub(super) struct Search<'a> {
    /// In the order of their start times.
    operations: Vec<&'a Operation>,
    keys: usize,
    /// Who must find a value that is written once: it cannot be overwritten before, as it does not come back.
    readers: HashMap<(usize, u64), Vec<usize>>,
    tried: HashSet<(Set, Vec<Held>)>,
    order: Vec<usize>,
}

impl<'a> Search<'a> {
    /// Omits each unanswered operation none of whose values was seen, and that deletes nothing.
    ///
    /// In any order with it, nobody read its keys between it and the next write to them, since every read
    /// returns exactly what it saw. So the order without it is as good. An unanswered operation counts as
    /// having seen its expected values, if its own values were seen. If a refused operation does not say what
    /// it saw instead, all are kept.
    pub(super) fn new(history: &'a [Operation]) -> Search<'a> {
        let mut seen: HashSet<(usize, u64)> = HashSet::new();
        let mut exact = true;
        let values = |list: &[(usize, Held)]| -> Vec<(usize, u64)> {
            let value = |&(key, held): &(usize, Held)| Some((key, held?));
            list.iter().filter_map(value).collect()
        };
        for operation in history.iter().filter(|one| one.end.is_some()) {
            seen.extend(values(&operation.seen));
            if operation.held {
                seen.extend(values(&operation.expects));
            } else {
                let says = |key| operation.seen.iter().any(|&(seen, _)| seen == key);
                exact &= operation.expects.iter().all(|&(key, _)| says(key));
            }
        }
        let is_seen = |operation: &Operation, seen: &HashSet<(usize, u64)>| {
            let deletes = operation.writes.iter().any(|(_, held)| held.is_none());
            deletes
                || values(&operation.writes)
                    .iter()
                    .any(|one| seen.contains(one))
        };
        loop {
            let before = seen.len();
            for operation in history.iter().filter(|one| one.end.is_none()) {
                if is_seen(operation, &seen) {
                    seen.extend(values(&operation.expects));
                }
            }
            if seen.len() == before {
                break;
            }
        }
        let mut operations: Vec<_> = history
            .iter()
            .filter(|one| one.end.is_some() || !exact || is_seen(one, &seen))
            .collect();
        operations.sort_by_key(|operation| operation.start);
        let mut writers: HashMap<(usize, u64), usize> = HashMap::new();
        for value in history.iter().flat_map(|one| values(&one.writes)) {
            *writers.entry(value).or_default() += 1;
        }
        let mut readers: HashMap<(usize, u64), Vec<usize>> = HashMap::new();
        for (at, operation) in operations.iter().enumerate() {
            let found = match (operation.end.is_some(), operation.held) {
                (false, _) => Vec::new(),
                (true, true) => [values(&operation.seen), values(&operation.expects)].concat(),
                (true, false) => values(&operation.seen),
            };
            for value in found
                .into_iter()
                .filter(|value| writers.get(value) == Some(&1))
            {
                readers.entry(value).or_default().push(at);
            }
        }
        let lists = |one: &'a Operation| one.expects.iter().chain(&one.writes).chain(&one.seen);
        let keys = history.iter().flat_map(lists).map(|&(key, _)| key + 1);
        Search {
            operations,
            keys: keys.max().unwrap_or(0),
            readers,
            tried: HashSet::new(),
            order: Vec::new(),
        }
    }

    pub(super) fn run(mut self, budget: Duration) -> Result<(), Failure> {
        let deadline = Instant::now() + budget;
        let done = Set::empty(self.operations.len());
        let left = { self.operations.iter() }.filter(|one| one.end.is_some());
        let left = left.count();
        let mut best = Best {
            left: usize::MAX,
            ..Best::default()
        };
        let Some(first) = self.enter(done, vec![None; self.keys], left, &mut best) else {
            return Ok(());
        };
        let mut path = vec![first];
        while let Some(place) = path.last_mut() {
            self.order.truncate(place.depth);
            let Some(at) = place.choices.pop() else {
                path.pop();
                continue;
            };
            if Instant::now() >= deadline {
                return Err(Failure::OutOfTime(self.stuck(&best)));
            }
            if self.is_too_early(at, place) {
                continue;
            }
            let Some(state) = self.operations[at].step(&place.state) else {
                continue;
            };
            // An unanswered operation without an effect need not have happened.
            if self.operations[at].end.is_none() && state == place.state {
                continue;
            }
            let mut done = place.done.clone();
            done.add(at);
            self.order.push(at);
            if !self.tried.insert((done.clone(), state.clone())) {
                continue;
            }
            let left = place.left - usize::from(self.operations[at].end.is_some());
            match self.enter(done, state, left, &mut best) {
                Some(next) => path.push(next),
                None => return Ok(()),
            }
        }
        Err(Failure::NotLinearizable(self.stuck(&best)))
    }

    /// Whether an operation would overwrite a value that others have yet to find.
    fn is_too_early(&self, at: usize, place: &Place) -> bool {
        let operation = self.operations[at];
        if operation.is_passive() {
            return false;
        }
        operation.writes.iter().any(|&(key, _)| {
            let readers = place.state[key].and_then(|value| self.readers.get(&(key, value)));
            let waits = |reader: &usize| *reader != at && !place.done.has(*reader);
            readers.is_some_and(|readers| readers.iter().any(waits))
        })
    }

    fn stuck(&self, best: &Best) -> Stuck {
        let copies = |list: &[usize]| -> Vec<_> {
            list.iter().map(|&at| self.operations[at].clone()).collect()
        };
        Stuck {
            order: copies(&best.order),
            state: best.state.clone(),
            next: copies(&best.next),
            left: best.left,
        }
    }

    /// The node after these operations, which leave `left` answered ones, and all that can follow at once without
    /// ever changing anything; `None` if no answered operation is left.
    fn enter(
        &mut self,
        mut done: Set,
        state: Vec<Held>,
        mut left: usize,
        best: &mut Best,
    ) -> Option<Place> {
        let choices = loop {
            let choices = self.choices(&done);
            let changes_nothing = |at: &usize| {
                let operation = self.operations[*at];
                operation.is_passive() && operation.step(&state).is_some()
            };
            let free: Vec<_> = choices.iter().copied().filter(changes_nothing).collect();
            if free.is_empty() {
                break choices;
            }
            for at in free {
                done.add(at);
                left -= usize::from(self.operations[at].end.is_some());
                self.order.push(at);
            }
        };
        if left < best.left {
            best.order.clone_from(&self.order);
            best.state.clone_from(&state);
            best.next.clone_from(&choices);
            best.left = left;
        }
        (left > 0).then_some(Place {
            done,
            state,
            depth: self.order.len(),
            choices,
            left,
        })
    }

    /// The operations that may be next by real time: those that began before the first end among the
    /// remaining answered ones. The last is tried first.
    fn choices(&self, done: &Set) -> Vec<usize> {
        let mut first_end = u64::MAX;
        let mut choices = Vec::new();
        for (at, operation) in self.operations.iter().enumerate() {
            if operation.start > first_end {
                break;
            }
            if !done.has(at) {
                first_end = first_end.min(operation.end.unwrap_or(u64::MAX));
                choices.push(at);
            }
        }
        choices.retain(|&at| self.operations[at].start <= first_end);
        // Unanswered ones come last; of the others, the first to end is the likeliest.
        choices.sort_by_key(|&at| std::cmp::Reverse(self.operations[at].end.unwrap_or(u64::MAX)));
        choices
    }
}
