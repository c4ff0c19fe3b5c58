//! The check of revisions against all other observations.
//!
//! With a revision for each commit and one for each snapshot, the claims can be checked without a search for
//! cycles: the commits are replayed in the order of their revisions, and
//!
//! - each read finds the version at its snapshot;
//! - under serializability, each read of a transaction that wrote also finds the version just before its own
//!   revision: the order of revisions is the serial order. Under any isolation that holds for its conditions;
//! - a value returned with a revision was committed at it;
//! - no two commits have one revision, and commits and snapshots that begin after a commit completed have at
//!   least its revision.

use std::collections::HashMap;

use super::history::{Level, Outcome};
use super::observe::{INITIAL, Observed, Read};
use super::report::{Kind, Report};

pub(super) fn check(observed: &Observed<'_>, level: Level, report: &mut Report) {
    let replay = Replay::of(observed, report);
    let transactions = &observed.history.transactions;
    for read in &observed.reads {
        let reader = &transactions[read.transaction];
        if let (Some(snapshot), false) = (reader.snapshot, read.at_commit) {
            replay.compare(observed, read, snapshot, report);
        }
        if let Outcome::Committed(Some(revision)) = reader.outcome
            && (level == Level::Serializable || read.at_commit)
        {
            replay.compare(observed, read, revision - 1, report);
        }
        let writer = read.version.filter(|version| *version != INITIAL);
        let writer = writer.and_then(|version| observed.writer(read.key, version));
        if let Some(writer) = writer
            && let Outcome::Committed(Some(committed)) = transactions[writer].outcome
            && let Some(shown) = read.revision
            && shown != committed
        {
            let text = format!(
                "T{} was shown {} at revision {shown}, T{writer} had committed it at {committed}",
                read.transaction, observed.keys[read.key].name
            );
            report.add(Kind::Revisions, vec![read.transaction, writer], text);
        }
    }
    real_time(observed, report);
}

/// The versions of each key by revision.
struct Replay {
    versions: Vec<Vec<(u64, u64)>>,
}

impl Replay {
    fn of(observed: &Observed<'_>, report: &mut Report) -> Replay {
        let mut owners: HashMap<u64, usize> = HashMap::new();
        for (number, transaction) in observed.history.transactions.iter().enumerate() {
            if let Outcome::Committed(Some(revision)) = transaction.outcome
                && let Some(other) = owners.insert(revision, number)
            {
                let text = format!("T{other} and T{number} both have revision {revision}");
                report.add(Kind::Revisions, vec![other, number], text);
            }
        }
        let mut versions = Vec::new();
        for key in &observed.keys {
            let mut of_key = Vec::new();
            for (version, write) in &key.writes {
                let outcome = observed.transaction(write.transaction).outcome;
                if let (Outcome::Committed(Some(revision)), true) = (outcome, write.is_last) {
                    of_key.push((revision, *version));
                }
            }
            of_key.sort_unstable();
            versions.push(of_key);
        }
        Replay { versions }
    }

    fn compare(&self, observed: &Observed<'_>, read: &Read, at: u64, report: &mut Report) {
        let versions = &self.versions[read.key];
        let until = versions.partition_point(|(revision, _)| *revision <= at);
        let held = until
            .checked_sub(1)
            .map_or(INITIAL, |last| versions[last].1);
        let key = &observed.keys[read.key];
        let is_gone = held == INITIAL || key.writes[&held].is_delete;
        let agrees = match read.version {
            Some(version) => version == held,
            None => is_gone,
        };
        if agrees {
            return;
        }
        // An unknown transaction without a revision may have written it.
        let writer = read.version.and_then(|v| observed.writer(read.key, v));
        let is_unknown = |number: usize| {
            !matches!(
                observed.transaction(number).outcome,
                Outcome::Committed(Some(_))
            )
        };
        if writer.is_some_and(is_unknown) {
            return;
        }
        let (reader, name) = (read.transaction, &key.name);
        let text = format!(
            "T{reader} read {name} = {}; at revision {at} it is {held}\nT{reader}: {}",
            read.version.map_or("nothing".to_owned(), |v| v.to_string()),
            observed.transaction(reader)
        );
        report.add(Kind::Revisions, vec![reader], text);
    }
}

/// Revisions grow with time.
fn real_time(observed: &Observed<'_>, report: &mut Report) {
    // Starts and ends in order of time; of the ended ones, the highest revision.
    let mut events = Vec::new();
    for (number, transaction) in observed.history.transactions.iter().enumerate() {
        events.push((transaction.invoked, number, true));
        events.extend(transaction.completed.map(|at| (at, number, false)));
    }
    events.sort_unstable();
    let mut highest: (u64, usize) = (0, 0);
    for (_, number, is_begin) in events {
        let transaction = observed.transaction(number);
        let committed = match transaction.outcome {
            Outcome::Committed(revision) => revision,
            _ => None,
        };
        if is_begin {
            let (least, other) = highest;
            let is_early = transaction.snapshot.is_some_and(|at| at < least)
                || committed.is_some_and(|at| at <= least);
            if is_early {
                let text = format!(
                    "T{other} had completed at revision {least} when this began\nT{number}: {transaction}"
                );
                report.add(Kind::Revisions, vec![other, number], text);
            }
        } else {
            let reached = committed.or(transaction.snapshot).unwrap_or(0);
            highest = highest.max((reached, number));
        }
    }
}
