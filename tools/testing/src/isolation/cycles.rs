//! Cycles of dependencies: found by Tarjan's strong components, named, and shown by a shortest one.
//!
//! Classes are searched from the worst to the mildest, each first with data dependencies alone, then with the
//! order of processes and with real time. A component with a cycle that was already reported is skipped, so
//! the report has the worst of each component, and an allowed cycle never hides a forbidden one.
//!
//! Cycles without two `rw` edges in a row are found in a graph of twice the size: each transaction is split
//! in two, and the half that is entered by an `rw` edge can only be left by another kind.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt::Write;

use super::components::strong_components;
use super::graph::{Dependency, Edge, Graph};
use super::observe::{INITIAL, Observed};
use super::report::{Class, Kind, Order, Report};

/// The most nodes of a component from which a shortest cycle is searched.
const STARTS_MAX: usize = 64;

/// The edges that a cycle may have.
#[derive(Clone, Copy)]
struct Rule {
    wr: bool,
    rw: bool,
    /// Two `rw` edges in a row.
    rw_rw: bool,
    order: Order,
}

impl Rule {
    fn allows(self, kind: Dependency) -> bool {
        match kind {
            Dependency::Ww => true,
            Dependency::Wr => self.wr,
            Dependency::Rw | Dependency::RwRange => self.rw,
            Dependency::Process => self.order == Order::Process,
            Dependency::RealTime => self.order == Order::RealTime,
        }
    }
}

/// Reports the cycles of a graph.
pub(super) fn find(graph: &Graph, observed: &Observed<'_>, report: &mut Report) {
    let mut shown: Vec<BTreeSet<usize>> = Vec::new();
    for (wr, rw, rw_rw) in [
        (false, false, false),
        (true, false, false),
        (true, true, false),
        (true, true, true),
    ] {
        for order in [Order::Data, Order::Process, Order::RealTime] {
            let rule = Rule {
                wr,
                rw,
                rw_rw,
                order,
            };
            let halves = Halves::of(graph, rule);
            for component in strong_components(&halves.next) {
                let members: BTreeSet<usize> = component.iter().map(|half| half / 2).collect();
                if shown.iter().any(|cycle| cycle.is_subset(&members)) {
                    continue;
                }
                let cycle = halves.shortest_cycle(&component);
                let edges = edges_of(graph, rule, &cycle);
                let cycle: Vec<usize> = cycle.iter().map(|half| half / 2).collect();
                report.add(name(&edges), cycle.clone(), tell(observed, &cycle, &edges));
                shown.push(cycle.into_iter().collect());
            }
        }
    }
}

/// Each transaction twice: entered by an `rw` edge (odd), and otherwise (even).
struct Halves {
    next: Vec<Vec<usize>>,
}

impl Halves {
    fn of(graph: &Graph, rule: Rule) -> Halves {
        let mut next = vec![Vec::new(); graph.edges.len() * 2];
        for (from, edges) in graph.edges.iter().enumerate() {
            for edge in edges.iter().filter(|edge| rule.allows(edge.kind)) {
                let is_rw = edge.kind.is_rw() && !rule.rw_rw;
                next[from * 2].push(edge.to * 2 + usize::from(is_rw));
                if !is_rw {
                    next[from * 2 + 1].push(edge.to * 2);
                }
            }
        }
        Halves { next }
    }

    /// A cycle of a component, the shortest from some of its members.
    fn shortest_cycle(&self, component: &[usize]) -> Vec<usize> {
        let members: BTreeSet<usize> = component.iter().copied().collect();
        let step = component.len().div_ceil(STARTS_MAX);
        let starts = component.iter().step_by(step);
        let cycles = starts.map(|start| self.cycle_from(*start, &members));
        let shortest = cycles.min_by_key(Vec::len);
        shortest.expect("a component has members")
    }

    fn cycle_from(&self, start: usize, members: &BTreeSet<usize>) -> Vec<usize> {
        let mut from: HashMap<usize, usize> = HashMap::new();
        let mut waiting = VecDeque::from([start]);
        while let Some(place) = waiting.pop_front() {
            for next in self.next[place]
                .iter()
                .filter(|next| members.contains(next))
            {
                if *next == start {
                    let mut cycle = vec![place];
                    let mut place = place;
                    while place != start {
                        place = from[&place];
                        cycle.push(place);
                    }
                    cycle.reverse();
                    return cycle;
                }
                if !from.contains_key(next) {
                    from.insert(*next, place);
                    waiting.push_back(*next);
                }
            }
        }
        unreachable!("in a strong component every member leads back to itself")
    }
}

/// The edges along a cycle of halves. Of several kinds between two nodes, the worst that the rule allows, and by which the
/// cycle came there: another one could make it a cycle of a kind that is allowed.
fn edges_of(graph: &Graph, rule: Rule, cycle: &[usize]) -> Vec<Edge> {
    let next = cycle.iter().cycle().skip(1);
    let between = cycle.iter().zip(next).map(|(from, to)| {
        let edges = graph.edges[from / 2].iter();
        let leads = |edge: &&Edge| edge.to == to / 2 && rule.allows(edge.kind);
        let enters = |edge: &&Edge| rule.rw_rw || edge.kind.is_rw() == (to % 2 == 1);
        let mut fitting = edges.filter(|edge| leads(edge) && enters(edge));
        *fitting.next().expect("the cycle came from these edges")
    });
    between.collect()
}

fn name(edges: &[Edge]) -> Kind {
    let has = |kind| edges.iter().any(|edge| edge.kind == kind);
    let rw: Vec<bool> = edges.iter().map(|edge| edge.kind.is_rw()).collect();
    let next = rw.iter().cycle().skip(1);
    let in_a_row = rw.iter().zip(next).any(|(one, other)| *one && *other);
    let class = match rw.iter().filter(|is| **is).count() {
        0 if has(Dependency::Wr) => Class::G1c,
        0 => Class::G0,
        1 => Class::GSingle,
        _ if !in_a_row => Class::GNonadjacent,
        _ if has(Dependency::RwRange) => Class::G2,
        _ => Class::G2Item,
    };
    let order = if has(Dependency::RealTime) {
        Order::RealTime
    } else if has(Dependency::Process) {
        Order::Process
    } else {
        Order::Data
    };
    Kind::Cycle(class, order)
}

/// The text of a cycle: its transactions and edges.
fn tell(observed: &Observed<'_>, cycle: &[usize], edges: &[Edge]) -> String {
    let mut text = String::new();
    for number in cycle {
        let _ = writeln!(text, "T{number}: {}", observed.transaction(*number));
    }
    for (from, edge) in cycle.iter().zip(edges) {
        let key = observed.keys.get(edge.because.key);
        let key = key.map_or("", |key| &key.name);
        let (to, older, newer) = (edge.to, edge.because.older, edge.because.newer);
        let held = |version| match version {
            INITIAL => "nothing".to_owned(),
            version => version.to_string(),
        };
        let (arrow, why) = match edge.kind {
            Dependency::Ww => (
                "ww",
                format!("T{from} wrote {key} = {older}, T{to} the newer {newer}"),
            ),
            Dependency::Wr => (
                "wr",
                format!("T{from} wrote {key} = {newer}, T{to} read it"),
            ),
            Dependency::Rw | Dependency::RwRange => {
                let read = if edge.kind == Dependency::Rw {
                    "read"
                } else {
                    "found by range"
                };
                let held = held(older);
                (
                    "rw",
                    format!("T{from} {read} {key} = {held}, T{to} wrote the newer {newer}"),
                )
            }
            Dependency::Process => ("process", format!("T{to} came later on the same process")),
            Dependency::RealTime => (
                "realtime",
                format!("T{from} had completed when T{to} began"),
            ),
        };
        let _ = writeln!(text, "T{from} -{arrow}-> T{to}: {why}");
    }
    text
}
