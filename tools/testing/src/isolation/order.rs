//! The order of the versions of each key, as far as it is known: an acyclic graph from each version to newer
//! ones. An edge need not lead to the next version. With a partial order the checker only detects less.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::components::strong_components;
use super::history::{Outcome, Trust};
use super::observe::{INITIAL, Observed};
use super::report::{Kind, Report};

/// Of one key: older version, newer version.
pub(super) type VersionOrder = BTreeSet<(u64, u64)>;

/// The order of each key's versions; empty for a key with contradictions.
pub(super) fn orders(
    observed: &Observed<'_>,
    trust: Trust,
    report: &mut Report,
) -> Vec<VersionOrder> {
    let mut claims: Vec<VersionOrder> = vec![BTreeSet::new(); observed.keys.len()];
    lists(observed, &mut claims, report);
    reads_before_writes(observed, &mut claims, report);
    if trust >= Trust::Read {
        revisions_read(observed, &mut claims, report);
    }
    for (key, claims) in claims.iter_mut().enumerate() {
        if trust == Trust::Commits {
            committed_revisions(observed, key, claims);
        } else if !observed.keys[key].is_list {
            real_time(observed, key, claims);
        }
        if contradict(observed, key, claims, report) {
            claims.clear();
            continue;
        }
        let versions = known_versions(observed, key);
        let not_oldest: BTreeSet<u64> = claims.iter().map(|(_, newer)| *newer).collect();
        let oldest = versions.difference(&not_oldest);
        let first: Vec<_> = oldest.map(|version| (INITIAL, *version)).collect();
        claims.extend(first);
    }
    claims
}

/// The versions that were, or may have been, committed to the key.
fn known_versions(observed: &Observed<'_>, key: usize) -> BTreeSet<u64> {
    let key = &observed.keys[key];
    let writes = key.writes.iter();
    let known = writes.filter(|(_, write)| {
        observed.committed[write.transaction] && (write.is_last || key.is_list)
    });
    known.map(|(version, _)| *version).collect()
}

fn lists(observed: &Observed<'_>, claims: &mut [VersionOrder], report: &mut Report) {
    // The longest list of each key, and its reader.
    let mut longest: HashMap<usize, (&[u64], usize)> = HashMap::new();
    for read in observed.committed_reads() {
        if let Some(list) = &read.list {
            let best = longest.entry(read.key).or_insert((&[], read.transaction));
            if list.len() > best.0.len() {
                *best = (list, read.transaction);
            }
        }
    }
    for read in observed.committed_reads() {
        if let Some(list) = &read.list
            && let Some((best, reader)) = longest.get(&read.key)
            && !best.starts_with(list)
        {
            let name = &observed.keys[read.key].name;
            let text = format!(
                "T{} read {name} = {list:?}\nT{reader} read {name} = {best:?}",
                read.transaction
            );
            let both = vec![read.transaction, *reader];
            report.add(Kind::IncompatibleOrder, both, text);
        }
    }
    for (key, (list, _)) in longest {
        let pairs = list.windows(2).map(|pair| (pair[0], pair[1]));
        // A duplicate element has been reported.
        claims[key].extend(pairs.filter(|(older, newer)| older != newer));
    }
}

/// A transaction that reads a version and writes one writes a newer one. Of several that read the same
/// version, only one may write.
fn reads_before_writes(observed: &Observed<'_>, claims: &mut [VersionOrder], report: &mut Report) {
    // The writes of each transaction: by key, its first and its last version.
    let mut writes: Vec<BTreeMap<usize, u64>> =
        vec![BTreeMap::new(); observed.history.transactions.len()];
    for (key, known) in observed.keys.iter().enumerate() {
        for (version, write) in &known.writes {
            if write.is_last {
                writes[write.transaction].insert(key, *version);
            }
        }
    }
    let mut replaced: BTreeMap<(usize, u64), Vec<usize>> = BTreeMap::new();
    for read in observed.dependencies() {
        let written = writes[read.transaction].get(&read.key);
        let (Some(version), Some(written)) = (read.version, written) else {
            continue;
        };
        if version != *written {
            if version != INITIAL {
                claims[read.key].insert((version, *written));
            }
            let all = replaced.entry((read.key, version)).or_default();
            if !all.contains(&read.transaction) {
                all.push(read.transaction);
            }
        }
    }
    for ((key, version), transactions) in replaced {
        if transactions.len() < 2 {
            continue;
        }
        let name = &observed.keys[key].name;
        let told = |number: &usize| {
            let written = writes[*number][&key];
            format!("T{number} read {name} = {version} and wrote {written}\n")
        };
        let text = transactions.iter().map(told).collect();
        report.add(Kind::LostUpdate, transactions, text);
    }
}

fn revisions_read(observed: &Observed<'_>, claims: &mut [VersionOrder], report: &mut Report) {
    let mut seen: Vec<BTreeMap<u64, u64>> = vec![BTreeMap::new(); observed.keys.len()];
    for read in observed.committed_reads() {
        let (Some(version), Some(revision)) = (read.version, read.revision) else {
            continue;
        };
        let other = *seen[read.key].entry(revision).or_insert(version);
        if other != version {
            let name = &observed.keys[read.key].name;
            let text = format!(
                "T{} read {name} = {version} of revision {revision}, others {other}",
                read.transaction
            );
            report.add(Kind::Revisions, vec![read.transaction], text);
        }
    }
    for (claims, seen) in claims.iter_mut().zip(seen) {
        let versions: Vec<u64> = seen.into_values().collect();
        let pairs = versions.windows(2).map(|pair| (pair[0], pair[1]));
        claims.extend(pairs.filter(|(older, newer)| older != newer));
    }
}

fn committed_revisions(observed: &Observed<'_>, key: usize, claims: &mut VersionOrder) {
    if observed.keys[key].is_list {
        // Several elements of one transaction have one revision; the lists have the order.
        return;
    }
    let mut versions: Vec<(u64, u64)> = Vec::new();
    for (version, write) in &observed.keys[key].writes {
        let outcome = observed.transaction(write.transaction).outcome;
        if let (Outcome::Committed(Some(revision)), true) = (outcome, write.is_last) {
            versions.push((revision, *version));
        }
    }
    versions.sort_unstable();
    claims.extend(versions.windows(2).map(|pair| (pair[0].1, pair[1].1)));
}

/// A write that was complete before another began is older. Only adjacent pairs.
fn real_time(observed: &Observed<'_>, key: usize, claims: &mut VersionOrder) {
    // Begin, end, version.
    let mut writes: Vec<(u64, u64, u64)> = Vec::new();
    for version in known_versions(observed, key) {
        let writer = observed.keys[key].writes[&version].transaction;
        let transaction = observed.transaction(writer);
        let completed = transaction.completed.unwrap_or(u64::MAX);
        writes.push((transaction.invoked, completed, version));
    }
    writes.sort_unstable();
    for (invoked, completed, version) in &writes {
        // The earliest end among the writes that began after this one's end: later ones follow through that
        // write.
        let later = writes.partition_point(|(begin, _, _)| begin <= completed);
        let mut until = u64::MAX;
        for (begin, end, newer) in &writes[later..] {
            if *begin > until {
                break;
            }
            claims.insert((*version, *newer));
            until = until.min(*end);
        }
        debug_assert!(invoked <= completed);
    }
}

fn contradict(
    observed: &Observed<'_>,
    key: usize,
    claims: &VersionOrder,
    report: &mut Report,
) -> bool {
    let versions: BTreeSet<u64> = claims.iter().flat_map(|(a, b)| [*a, *b]).collect();
    let versions: Vec<u64> = versions.into_iter().collect();
    let place = |version: u64| versions.binary_search(&version).expect("it is one of them");
    let mut newer: Vec<Vec<usize>> = vec![Vec::new(); versions.len()];
    for (a, b) in claims {
        newer[place(*a)].push(place(*b));
    }
    let circles = strong_components(&newer);
    for circle in &circles {
        let shown: Vec<u64> = circle.iter().map(|place| versions[*place]).collect();
        let writers = shown.iter().filter_map(|v| observed.writer(key, *v));
        let writers: BTreeSet<usize> = writers.collect();
        let text = format!(
            "{}: each of the versions {shown:?} is older than another of them",
            observed.keys[key].name
        );
        report.add(Kind::CyclicVersions, writers.into_iter().collect(), text);
    }
    !circles.is_empty()
}
