//! Random executions of a store of known quality: the checker finds its anomalies, and none in one that is
//! strong enough.

use super::store::{Quality, execute};
use crate::isolation::{Level, Report, Trust, check};

const SEEDS: u64 = 30;
const TRANSACTIONS: usize = 150;

fn reports(quality: Quality, level: Level, trust: Trust) -> Vec<Report> {
    let seeds = 0..SEEDS;
    let histories = seeds.map(|seed| execute(quality, seed, TRANSACTIONS));
    histories
        .map(|history| check(&history, level, trust))
        .collect()
}

const TRUSTS: [Trust; 3] = [Trust::Nothing, Trust::Read, Trust::Commits];

#[test]
fn serial_executions_are_always_clean() {
    for trust in TRUSTS {
        for report in reports(Quality::Serial, Level::Serializable, trust) {
            assert!(report.anomalies.is_empty(), "{trust:?} {report}");
            assert!(report.counts.committed > 100 && report.counts.ww > 0);
        }
    }
}

#[test]
fn validated_executions_are_always_clean() {
    for trust in TRUSTS {
        for report in reports(Quality::Serializable, Level::Serializable, trust) {
            assert!(report.anomalies.is_empty(), "{trust:?} {report}");
        }
    }
}

#[test]
fn snapshots_show_skew_and_nothing_worse() {
    for trust in TRUSTS {
        let reports = reports(Quality::Snapshot, Level::Snapshot, trust);
        for report in &reports {
            assert!(report.is_clean(), "{trust:?} {report}");
        }
        let skews = reports.iter().filter(|report| !report.anomalies.is_empty());
        assert!(skews.count() > 10, "{trust:?}");
    }
}

/// The number of executions in which each anomaly is found.
fn found(quality: Quality, level: Level, trust: Trust, names: &[&str]) -> usize {
    let reports = reports(quality, level, trust);
    let mut count = 0;
    for report in &reports {
        let shown = report.violations().map(|anomaly| anomaly.kind.to_string());
        if shown.into_iter().any(|name| names.contains(&&name[..])) {
            count += 1;
        }
    }
    println!("{quality:?} {level:?} {trust:?}: {names:?} in {count} of {SEEDS}");
    count
}

#[test]
fn each_weakness_is_found_without_any_revision() {
    let serializable = Level::Serializable;
    for (quality, level, names) in [
        (Quality::Snapshot, serializable, &["G2-item"][..]),
        (
            Quality::NoRangeValidation,
            serializable,
            &["G2", "G-single"],
        ),
        (Quality::NoValidation, Level::Snapshot, &["lost-update"]),
        (Quality::ReadCommitted, Level::Snapshot, &["G-single"]),
        (Quality::ReadUncommitted, Level::Snapshot, &["G1a"]),
        (Quality::ReadUncommitted, Level::Snapshot, &["G1b", "G1c"]),
        (Quality::OwnWritesUnseen, Level::Snapshot, &["internal"]),
        (Quality::AbortedApplied, Level::Snapshot, &["G1a"]),
        (
            Quality::HalfVisible,
            Level::Snapshot,
            &["G-single", "G-single-realtime"],
        ),
        (
            Quality::Stale,
            Level::Snapshot,
            &["G-single-realtime", "G-single-process"],
        ),
    ] {
        let count = found(quality, level, Trust::Nothing, names);
        assert!(
            count > 0,
            "{quality:?} under {level:?}: {names:?} not found"
        );
    }
}

#[test]
fn revisions_find_each_weakness_in_nearly_every_execution() {
    for quality in [
        Quality::NoValidation,
        Quality::ReadCommitted,
        Quality::ReadUncommitted,
        Quality::OwnWritesUnseen,
        Quality::AbortedApplied,
        Quality::HalfVisible,
        Quality::Stale,
    ] {
        let reports = reports(quality, Level::Serializable, Trust::Commits);
        let guilty = reports.iter().filter(|report| !report.is_clean());
        assert!(guilty.count() > 25, "{quality:?}");
    }
}
