//! The search for an order.
//!
//! A history may be long, but few of its operations are under way at a time. So a set of operations is held as a window:
//! all answered ones before it are in the set, and none behind it. A step costs as much as what is under way, not as
//! much as the history.

use std::collections::{HashMap, HashSet};

use super::{Failure, Held, Operation, Stuck};

/// A set of operations. Equal sets are equal values: no word of the window is full in front, or empty at its end.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct Set {
    /// How many words of answered operations are full in front of the window.
    full: usize,
    /// A bit for each answered operation from `64 * full` on.
    window: Vec<u64>,
    /// The unanswered operations, in ascending order.
    unanswered: Vec<usize>,
}

impl Set {
    fn has_answered(&self, at: usize) -> bool {
        let Some(word) = (at / 64).checked_sub(self.full) else {
            return true;
        };
        { self.window.get(word) }.is_some_and(|word| word & (1 << (at % 64)) != 0)
    }

    fn add_answered(&mut self, at: usize) {
        let Some(word) = (at / 64).checked_sub(self.full) else {
            return;
        };
        if self.window.len() <= word {
            self.window.resize(word + 1, 0);
        }
        self.window[word] |= 1 << (at % 64);
        let full = { self.window.iter() }.take_while(|word| **word == u64::MAX);
        let full = full.count();
        self.window.drain(..full);
        self.full += full;
    }

    fn has_unanswered(&self, at: usize) -> bool {
        self.unanswered.binary_search(&at).is_ok()
    }

    fn add_unanswered(&mut self, at: usize) {
        if let Err(place) = self.unanswered.binary_search(&at) {
            self.unanswered.insert(place, at);
        }
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
struct Best {
    order: Vec<usize>,
    state: Vec<Held>,
    next: Vec<usize>,
    left: usize,
}

pub(super) struct Search<'a> {
    /// The answered ones in the order of their start times, then the others in that of theirs.
    operations: Vec<&'a Operation>,
    answered: usize,
    /// For each unanswered one the one before it that expects and writes the same, as all deletions of a key do.
    same_before: Vec<Option<usize>>,
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
        operations.sort_by_key(|operation| (operation.end.is_none(), operation.start));
        let answered = operations.partition_point(|operation| operation.end.is_some());
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
        let mut last: HashMap<_, usize> = HashMap::new();
        let unanswered = operations.iter().enumerate().skip(answered);
        let same_before = unanswered
            .map(|(at, one)| last.insert((&one.expects, &one.writes), at))
            .collect();
        let lists = |one: &'a Operation| one.expects.iter().chain(&one.writes).chain(&one.seen);
        let keys = history.iter().flat_map(lists).map(|&(key, _)| key + 1);
        Search {
            same_before,
            operations,
            answered,
            keys: keys.max().unwrap_or(0),
            readers,
            tried: HashSet::new(),
            order: Vec::new(),
        }
    }

    pub(super) fn run(mut self, states_max: usize) -> Result<(), Failure> {
        let mut best = Best {
            order: Vec::new(),
            state: Vec::new(),
            next: Vec::new(),
            left: usize::MAX,
        };
        let Some(first) = self.enter(Set::default(), vec![None; self.keys], self.answered) else {
            return Ok(());
        };
        let mut path = vec![first];
        while let Some(place) = path.last_mut() {
            self.order.truncate(place.depth);
            if place.choices.is_empty() || self.tried.len() >= states_max {
                if place.left < best.left {
                    best = Best {
                        order: self.order.clone(),
                        state: place.state.clone(),
                        next: self.choices(&place.done),
                        left: place.left,
                    };
                }
                if self.tried.len() >= states_max {
                    return Err(Failure::TooManyStates(self.stuck(&best)));
                }
                path.pop();
                continue;
            }
            let Some(at) = place.choices.pop() else {
                continue;
            };
            if self.is_too_early(at, place) {
                continue;
            }
            let Some(state) = self.operations[at].step(&place.state) else {
                continue;
            };
            // An unanswered operation without an effect need not have happened.
            if !self.is_answered(at) && state == place.state {
                continue;
            }
            let mut done = place.done.clone();
            self.add(&mut done, at);
            self.order.push(at);
            if !self.tried.insert((done.clone(), state.clone())) {
                continue;
            }
            let left = place.left - usize::from(self.is_answered(at));
            match self.enter(done, state, left) {
                Some(next) => path.push(next),
                None => return Ok(()),
            }
        }
        Err(Failure::NotLinearizable(self.stuck(&best)))
    }

    fn is_answered(&self, at: usize) -> bool {
        at < self.answered
    }

    fn has(&self, done: &Set, at: usize) -> bool {
        match self.is_answered(at) {
            true => done.has_answered(at),
            false => done.has_unanswered(at),
        }
    }

    fn add(&self, done: &mut Set, at: usize) {
        match self.is_answered(at) {
            true => done.add_answered(at),
            false => done.add_unanswered(at),
        }
    }

    /// Whether an operation would overwrite a value that others have yet to find.
    fn is_too_early(&self, at: usize, place: &Place) -> bool {
        let operation = self.operations[at];
        if operation.is_passive() {
            return false;
        }
        operation.writes.iter().any(|&(key, _)| {
            let readers = place.state[key].and_then(|value| self.readers.get(&(key, value)));
            let waits = |reader: &usize| *reader != at && !self.has(&place.done, *reader);
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
    fn enter(&mut self, mut done: Set, state: Vec<Held>, mut left: usize) -> Option<Place> {
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
                self.add(&mut done, at);
                left -= 1;
                self.order.push(at);
            }
        };
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
    ///
    /// Of unanswered ones that expect and write the same only the first is one: in any order with a later one in its place, the two can
    /// change places.
    fn choices(&self, done: &Set) -> Vec<usize> {
        let mut first_end = u64::MAX;
        let mut choices = Vec::new();
        for at in (64 * done.full)..self.answered {
            let operation = self.operations[at];
            if operation.start > first_end {
                break;
            }
            if !done.has_answered(at) {
                first_end = first_end.min(operation.end.unwrap_or(u64::MAX));
                choices.push(at);
            }
        }
        choices.retain(|&at| self.operations[at].start <= first_end);
        let begun = |at: &usize| self.operations[*at].start <= first_end;
        let unanswered = (self.answered..self.operations.len()).take_while(begun);
        let is_first = |at: &usize| {
            let before = self.same_before[at - self.answered];
            !done.has_unanswered(*at) && before.is_none_or(|before| done.has_unanswered(before))
        };
        choices.extend(unanswered.filter(is_first));
        // Unanswered ones come last; of the others, the first to end is the likeliest.
        choices.sort_by_key(|&at| std::cmp::Reverse(self.operations[at].end.unwrap_or(u64::MAX)));
        choices
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Set;

    /// The memory of what was tried finds a set again however it came about: equal contents are equal values.
    #[test]
    fn a_set_is_equal_however_it_came_about() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..200 {
            let size = random.usize(1..400);
            let mut answered: Vec<usize> = (0..400).collect();
            random.shuffle(&mut answered);
            // Most of them begin early, as in a history.
            answered.sort_by_cached_key(|at| at + random.usize(0..80));
            answered.truncate(size);
            let unanswered: Vec<usize> = (400..420).filter(|_| random.bool()).collect();
            let mut sets = [Set::default(), Set::default()];
            for set in &mut sets {
                random.shuffle(&mut answered);
                answered.iter().for_each(|at| set.add_answered(*at));
                unanswered.iter().for_each(|at| set.add_unanswered(*at));
            }
            assert!(sets[0] == sets[1]);
            let expected: BTreeSet<_> = answered.iter().chain(&unanswered).copied().collect();
            let has = |at: &usize| match *at < 400 {
                true => sets[0].has_answered(*at),
                false => sets[0].has_unanswered(*at),
            };
            assert_eq!((0..420).filter(has).collect::<BTreeSet<_>>(), expected);
        }
    }
}
