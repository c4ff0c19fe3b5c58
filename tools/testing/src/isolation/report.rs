//! The results of the checker, with texts.

use std::fmt;

use super::history::Level;

/// The kind of an anomaly, with Adya's name where there is one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// A transaction did not see its own writes, or two of its reads contradict each other.
    Internal,
    /// A value was read that nobody wrote.
    Garbage,
    /// Dirty read: a value was read that was rolled back.
    G1a,
    /// Intermediate read: a value was read that its own transaction replaced.
    G1b,
    /// A list has an element twice.
    Duplicate,
    /// Two reads of a list, neither of which is a prefix of the other.
    IncompatibleOrder,
    /// The versions of a key have no order that agrees with all observations.
    CyclicVersions,
    /// Two transactions read the same version of a key, and both replaced it.
    LostUpdate,
    /// A revision contradicts the values.
    Revisions,
    /// A cycle of dependencies.
    Cycle(Class, Order),
}

/// The class of a cycle, the worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Of `ww` edges only: dirty writes.
    G0,
    /// Of `ww` and `wr` edges: information flows in a circle.
    G1c,
    /// With one `rw` edge: read skew, a lost update.
    GSingle,
    /// With several `rw` edges, no two in a row: long fork.
    GNonadjacent,
    /// With two `rw` edges in a row, of reads of single keys: write skew.
    G2Item,
    /// The same, with at least one read of a range: phantoms.
    G2,
}

/// The edges of a cycle besides data dependencies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Order {
    /// Nothing.
    Data,
    /// The order of transactions of one process.
    Process,
    /// The order in time.
    RealTime,
}

impl Kind {
    /// Whether this level allows it.
    #[must_use]
    pub fn is_allowed(self, level: Level) -> bool {
        let skew = matches!(self, Kind::Cycle(Class::G2Item | Class::G2, _));
        level == Level::Snapshot && skew
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (class, order) = match self {
            Kind::Internal => return f.write_str("internal"),
            Kind::Garbage => return f.write_str("garbage-read"),
            Kind::G1a => return f.write_str("G1a"),
            Kind::G1b => return f.write_str("G1b"),
            Kind::Duplicate => return f.write_str("duplicate-element"),
            Kind::IncompatibleOrder => return f.write_str("incompatible-order"),
            Kind::CyclicVersions => return f.write_str("cyclic-versions"),
            Kind::LostUpdate => return f.write_str("lost-update"),
            Kind::Revisions => return f.write_str("revisions"),
            Kind::Cycle(class, order) => (class, order),
        };
        f.write_str(match class {
            Class::G0 => "G0",
            Class::G1c => "G1c",
            Class::GSingle => "G-single",
            Class::GNonadjacent => "G-nonadjacent",
            Class::G2Item => "G2-item",
            Class::G2 => "G2",
        })?;
        f.write_str(match order {
            Order::Data => "",
            Order::Process => "-process",
            Order::RealTime => "-realtime",
        })
    }
}

/// An observation that no serial execution explains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Anomaly {
    /// Its name.
    pub kind: Kind,
    /// Its transactions, as indexes of the history; those of a cycle in its order.
    pub transactions: Vec<usize>,
    /// The observations, one per line.
    pub text: String,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({} transactions)",
            self.kind,
            self.transactions.len()
        )?;
        for line in self.text.lines() {
            write!(f, "\n    {line}")?;
        }
        Ok(())
    }
}

/// The size of the judged history.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Committed transactions, including unknown ones whose writes were seen.
    pub committed: u64,
    /// Edges by kind.
    pub ww: u64,
    /// Edges by kind.
    pub wr: u64,
    /// Edges by kind: of reads of single keys.
    pub rw: u64,
    /// Edges by kind: of reads of ranges only.
    pub rw_range: u64,
    /// Edges by kind.
    pub process: u64,
    /// Edges by kind, without those implied by others.
    pub realtime: u64,
    /// Reads of absent keys by an unknown deletion.
    pub unresolved: u64,
    /// Pairs of transactions, each of which overwrote what the other read.
    pub skews: u64,
}

impl Counts {
    /// Adds another history's counts.
    pub fn add(&mut self, other: &Counts) {
        self.committed += other.committed;
        self.ww += other.ww;
        self.wr += other.wr;
        self.rw += other.rw;
        self.rw_range += other.rw_range;
        self.process += other.process;
        self.realtime += other.realtime;
        self.unresolved += other.unresolved;
        self.skews += other.skews;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts {
            committed,
            ww,
            wr,
            rw,
            rw_range,
            process,
            realtime,
            unresolved,
            skews,
        } = self;
        write!(
            f,
            "{committed} committed; edges: {ww} ww, {wr} wr, {rw} rw, {rw_range} rw of ranges, \
             {process} process, {realtime} realtime; {unresolved} reads unresolved; {skews} skews"
        )
    }
}

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The promised level.
    pub level: Level,
    /// The anomalies, allowed by the level or not; of each kind at most a few.
    pub anomalies: Vec<Anomaly>,
    /// The size of the history.
    pub counts: Counts,
}

/// The most reported anomalies of one kind.
const EACH_MAX: usize = 5;

impl Report {
    pub(super) fn new(level: Level) -> Report {
        Report {
            level,
            anomalies: Vec::new(),
            counts: Counts::default(),
        }
    }

    pub(super) fn add(&mut self, kind: Kind, transactions: Vec<usize>, text: String) {
        let same = self.anomalies.iter().filter(|anomaly| anomaly.kind == kind);
        if same.count() < EACH_MAX {
            self.anomalies.push(Anomaly {
                kind,
                transactions,
                text,
            });
        }
    }

    /// The anomalies that the level forbids.
    pub fn violations(&self) -> impl Iterator<Item = &Anomaly> {
        let level = self.level;
        let forbidden = move |anomaly: &&Anomaly| !anomaly.kind.is_allowed(level);
        self.anomalies.iter().filter(forbidden)
    }

    /// Whether the store kept its promise.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violations().next().is_none()
    }

    /// The names of all anomalies, each once, in the order of detection.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for anomaly in &self.anomalies {
            let name = anomaly.kind.to_string();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.level, self.counts)?;
        for anomaly in &self.anomalies {
            let allowed = anomaly.kind.is_allowed(self.level);
            let word = if allowed { "allowed" } else { "FORBIDDEN" };
            write!(f, "\n  {word} {anomaly}")?;
        }
        Ok(())
    }
}
