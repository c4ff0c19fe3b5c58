//! The graph of dependencies between transactions.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::observe::{INITIAL, Observed};
use super::order::VersionOrder;
use super::report::Counts;

/// The kind of a dependency; of several, the first is used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Dependency {
    Ww,
    Wr,
    Rw,
    /// A `rw` of a read that was of a range only.
    RwRange,
    Process,
    RealTime,
}

impl Dependency {
    pub(super) fn is_rw(self) -> bool {
        matches!(self, Dependency::Rw | Dependency::RwRange)
    }
}

/// The reason of an edge: the key, the older and the newer version.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Because {
    pub(super) key: usize,
    pub(super) older: u64,
    pub(super) newer: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) to: usize,
    pub(super) kind: Dependency,
    pub(super) because: Because,
}

/// The edges of each transaction, sorted by kind.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) edges: Vec<Vec<Edge>>,
}

impl Graph {
    pub(super) fn of(
        observed: &Observed<'_>,
        orders: &[VersionOrder],
        counts: &mut Counts,
    ) -> Graph {
        let mut builder = Builder {
            edges: vec![BTreeMap::new(); observed.history.transactions.len()],
        };
        builder.data(observed, orders);
        builder.process_order(observed);
        builder.real_time(observed);
        let mut graph = Graph { edges: Vec::new() };
        for edges in builder.edges {
            let edges = edges.into_iter().map(|((kind, to), because)| {
                *match kind {
                    Dependency::Ww => &mut counts.ww,
                    Dependency::Wr => &mut counts.wr,
                    Dependency::Rw => &mut counts.rw,
                    Dependency::RwRange => &mut counts.rw_range,
                    Dependency::Process => &mut counts.process,
                    Dependency::RealTime => &mut counts.realtime,
                } += 1;
                Edge { to, kind, because }
            });
            graph.edges.push(edges.collect());
        }
        counts.skews = graph.skews();
        graph
    }

    /// The number of pairs that overwrote what the other read.
    fn skews(&self) -> u64 {
        let mut pairs = BTreeSet::new();
        for (from, edges) in self.edges.iter().enumerate() {
            let rw = edges.iter().filter(|edge| edge.kind.is_rw());
            pairs.extend(rw.map(|edge| (from, edge.to)));
        }
        let mutual = pairs
            .iter()
            .filter(|(a, b)| a < b && pairs.contains(&(*b, *a)));
        mutual.count() as u64
    }
}

struct Builder {
    edges: Vec<BTreeMap<(Dependency, usize), Because>>,
}

impl Builder {
    fn add(&mut self, from: usize, to: usize, kind: Dependency, because: Because) {
        if from != to {
            self.edges[from].entry((kind, to)).or_insert(because);
        }
    }

    fn data(&mut self, observed: &Observed<'_>, orders: &[VersionOrder]) {
        let mut readers: HashMap<(usize, u64), Vec<(usize, bool)>> = HashMap::new();
        for read in observed.dependencies() {
            let Some(version) = read.version else {
                continue;
            };
            let (reader, key) = (read.transaction, read.key);
            let all = readers.entry((key, version)).or_default();
            all.push((reader, read.in_range));
            let writer = observed.writer(key, version).filter(|_| version != INITIAL);
            if let Some(writer) = writer.filter(|writer| observed.committed[*writer]) {
                let because = Because {
                    key,
                    older: version,
                    newer: version,
                };
                self.add(writer, reader, Dependency::Wr, because);
            }
        }
        for (key, order) in orders.iter().enumerate() {
            for (older, newer) in order {
                let committed = |version| {
                    let writer = observed.writer(key, version);
                    writer.filter(|writer| observed.committed[*writer])
                };
                let Some(to) = committed(*newer) else {
                    continue;
                };
                let because = Because {
                    key,
                    older: *older,
                    newer: *newer,
                };
                if let Some(from) = committed(*older) {
                    self.add(from, to, Dependency::Ww, because);
                }
                for (reader, in_range) in readers.get(&(key, *older)).into_iter().flatten() {
                    let kind = if *in_range {
                        Dependency::RwRange
                    } else {
                        Dependency::Rw
                    };
                    self.add(*reader, to, kind, because);
                }
            }
        }
    }

    fn process_order(&mut self, observed: &Observed<'_>) {
        let mut processes: BTreeMap<u64, Vec<(u64, usize)>> = BTreeMap::new();
        for (number, transaction) in observed.history.transactions.iter().enumerate() {
            if observed.committed[number] {
                let of_process = processes.entry(transaction.process).or_default();
                of_process.push((transaction.invoked, number));
            }
        }
        for mut transactions in processes.into_values() {
            transactions.sort_unstable();
            for pair in transactions.windows(2) {
                let because = Because::default();
                self.add(pair[0].1, pair[1].1, Dependency::Process, because);
            }
        }
    }

    /// Edges from completed transactions to those that begin later, without edges implied by others: a
    /// transaction leaves the frontier when one completes that began after its end.
    fn real_time(&mut self, observed: &Observed<'_>) {
        let mut events = Vec::new();
        for (number, transaction) in observed.history.transactions.iter().enumerate() {
            if observed.committed[number] {
                events.push((transaction.invoked, true, number));
                events.extend(transaction.completed.map(|at| (at, false, number)));
            }
        }
        events.sort_unstable();
        let mut frontier: BTreeSet<usize> = BTreeSet::new();
        let mut before: HashMap<usize, Vec<usize>> = HashMap::new();
        for (_, is_begin, number) in events {
            if is_begin {
                for done in &frontier {
                    self.add(*done, number, Dependency::RealTime, Because::default());
                }
                before.insert(number, frontier.iter().copied().collect());
            } else {
                for done in before.remove(&number).into_iter().flatten() {
                    frontier.remove(&done);
                }
                frontier.insert(number);
            }
        }
    }
}
