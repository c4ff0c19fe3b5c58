//! A checker of transaction isolation: it infers dependencies between transactions from their reads and
//! writes, and searches for cycles.
//!
//! It works as Elle (Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental
//! Observations", VLDB 2020). Every write of a history has a unique value, so a read identifies the write
//! that it saw. From that, and from the order of the versions of each key, follow the dependencies of Adya
//! ("Weak Consistency", MIT 1999):
//!
//! | edge | meaning |
//! |---|---|
//! | `ww` | the second overwrote a version of the first |
//! | `wr` | the second read a version of the first |
//! | `rw` | the second overwrote a version that the first read: *anti-dependency* |
//! | `process` | the first came before the second on the same thread |
//! | `realtime` | the first had completed before the second began |
//!
//! A history is strictly serializable only if these have no cycle. Under (strong) snapshot isolation every
//! cycle has two `rw` edges in a row, and neither is implied by other edges: Fekete et al., "Making Snapshot
//! Isolation Serializable" (TODS 2005), and in the form used here, `(process ∪ realtime ∪ ww ∪ wr) ; rw?` has
//! no cycle, Cerone and Gotsman, "Analysing Snapshot Isolation" (JACM 2018). Write skew is such a cycle; a
//! lost update is not.
//!
//! The order of versions is taken from, in rising order of [`Trust`]:
//!
//! - lists: a list that was read shows the order of its elements;
//! - a transaction that read a version and wrote one: the first is older;
//! - real time, for keys that are not lists: a write that was complete before another began;
//! - the revisions that readers received with the values ([`Trust::Read`]);
//! - the revisions that committers received ([`Trust::Commits`]).
//!
//! The last is a claim of the database under test. So a history is judged twice: once without any revision,
//! and once with them, when they must also agree with all the rest (`revisions`).
//!
//! ```text
//! text ── History ── observe ── order ── graph ── cycles ── Report
//!                       │          │                │          ▲
//!                       └──────────┴─── revisions ──┴──────────'
//! ```
//!
//! Not checked: a key without a reader; an absent key that was deleted, when revisions are not trusted
//! (`Counts::unresolved`). A range read counts as a read of every known key within its bounds, found or
//! absent, which detects phantoms.
//!
//! ```
//! use bowline_testing::isolation::{check, History, Level, Trust};
//!
//! let history = History::parse(
//!     "t 0 1 4 committed - - r x 0; w x 7\n\
//!      t 1 2 5 committed - - r x 0; w x 8\n",
//! )?;
//! let report = check(&history, Level::Snapshot, Trust::Nothing);
//! assert_eq!(report.names(), ["lost-update", "G2-item"]);
//! # Ok::<(), String>(())
//! ```

mod components;
mod cycles;
mod graph;
mod history;
mod observe;
mod order;
mod report;
mod revisions;
#[cfg(test)]
mod tests;
mod text;

pub use history::{History, Level, Op, Outcome, Seen, Transaction, Trust, Version};
pub use report::{Anomaly, Counts, Kind, Report};

/// Judges a history. Anomalies that `level` allows are in the report, but not among its
/// [violations](Report::violations).
///
/// # Panics
/// For an invalid history: two writes with one number, or a number of 0.
#[must_use]
pub fn check(history: &History, level: Level, trust: Trust) -> Report {
    let mut report = Report::new(level);
    let observed = observe::Observed::of(history, level, trust, &mut report);
    let orders = order::orders(&observed, trust, &mut report);
    if trust == Trust::Commits {
        revisions::check(&observed, level, &mut report);
    }
    let graph = graph::Graph::of(&observed, &orders, &mut report.counts);
    cycles::find(&graph, &observed, &mut report);
    report
}
