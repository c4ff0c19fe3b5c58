//! Transactions that were dropped, refused or failed half-way leave nothing.

use std::time::Duration;

use bowline::{Db, Error, Expected, History, Revision};
use bowline_testing::lease_id;
use bowline_testing::model::Change;

use super::put;
use crate::harness::{Outcome, Run, check, holds, same, with_prefix};

/// Nothing may be left of what began with this.
const ABORTED: &str = "aborted";

/// Aborts a transaction in one of five ways; it staged keys and an overwrite of `kept`.
fn abort(run: &mut Run, way: usize) {
    let stage = |tx: &mut bowline::Transaction| -> Result<(), Error> {
        tx.put(format!("{ABORTED}/{way}"), ABORTED)?;
        tx.put("kept", ABORTED)?;
        tx.delete("always").map(drop)
    };
    match way % 5 {
        0 => {
            let mut tx = run.db().begin();
            stage(&mut tx).expect("staged");
            tx.rollback();
        }
        1 => stage(&mut run.db().begin()).expect("staged"),
        2 => {
            let error = run.refused(|db| {
                db.transact(|tx| {
                    stage(tx)?;
                    tx.compare_and_swap("kept", Expected::Revision(Revision::new(1 << 40)), ABORTED)
                })
            });
            assert!(matches!(error, Error::CompareFailed { .. }), "{error}");
        }
        3 => {
            let error = run.refused(|db| {
                db.transact(|tx| {
                    stage(tx)?;
                    Err::<(), _>(Error::EmptyKey)
                })
            });
            assert!(matches!(error, Error::EmptyKey), "{error}");
        }
        _ => {
            let mut tx = run.db().begin();
            tx.get("changing").expect("read");
            stage(&mut tx).expect("staged");
            run.put("changing", way.to_string());
            let error = run.refused(|_| tx.commit());
            assert!(matches!(error, Error::Conflict { .. }), "{error}");
        }
    }
}

/// Commits with an abort after each.
fn commits_and_aborts(run: &mut Run, commits: usize) {
    run.put("always", "here");
    for at in 0..commits {
        run.put("kept", at.to_string());
        abort(run, at);
        if at % 5 == 4 {
            run.upkeep_or_end();
        }
    }
}

fn has_nothing_aborted(db: &Db) -> Outcome {
    for entry in db.range(..)? {
        let entry = entry?;
        holds!(
            !entry.key.starts_with(ABORTED.as_bytes()) && entry.value != *ABORTED.as_bytes(),
            "there is {entry:?}"
        );
    }
    Ok(())
}

#[test]
fn aborted_transaction_invisible_after_recovery() {
    check(
        "aborted_transaction_invisible_after_recovery",
        History::All,
        |run| commits_and_aborts(run, 30),
        |found, ()| {
            has_nothing_aborted(&found.db)?;
            same!(
                found.value("always")?,
                found.expected_value("always"),
                "a key whose deletion was aborted"
            );
            same!(
                found.value("kept")?,
                found.expected_value("kept"),
                "a key whose overwrite was aborted"
            );
            Ok(())
        },
    );
}

/// An error after some of a transaction's writes: none of them is there, before and after a crash.
#[test]
fn mid_transaction_error_no_partial_state() {
    let fail = |db: &Db, way: u64| {
        db.transact(|tx| {
            tx.put("a", "partial")?;
            tx.put(format!("partial/{way}"), "partial")?;
            stage_failure(tx, way)?;
            tx.put("b", "partial")
        })
    };
    check(
        "mid_transaction_error_no_partial_state",
        History::All,
        |run| {
            // Names the kinds that the failures use; that is a commit of its own.
            let block = Change::put_block(1, "service", b"");
            run.transact(&[block, Change::put_edge(1, "calls", 1, b"")]);
            for round in 0..24 {
                run.transact(&[put("a", round.to_string()), put("b", round.to_string())]);
                run.refused(|db| fail(db, round));
                if round % 5 == 4 {
                    run.upkeep_or_end();
                }
            }
        },
        |found, ()| {
            for turn in 0..2 {
                let (a, b) = (found.value("a")?, found.value("b")?);
                same!(a, b, "two keys that change together (turn {turn})");
                same!(a, found.expected_value("a"), "turn {turn}");
                same!(
                    with_prefix(&found.db, "partial")?,
                    [],
                    "partial keys (turn {turn})"
                );
                same!(found.db.revision(), found.revision, "the revision");
                let failed = fail(&found.db, found.number);
                holds!(failed.is_err(), "it went on after an error");
                found.stir()?;
            }
            Ok(())
        },
    );
}

fn stage_failure(tx: &mut bowline::Transaction, way: u64) -> Result<(), Error> {
    use bowline::{Block, BlockId, Edge};
    match way % 4 {
        0 => tx.put("", "an empty key"),
        1 => {
            tx.put_block(&Block::new(BlockId(1), "service"))?;
            tx.put_edge(&Edge::new(BlockId(1), "calls", BlockId(99)))
        }
        2 => tx.put_with_lease("leased", "x", lease_id(12345)),
        _ => tx.expect("a", Expected::Revision(Revision::new(1 << 40))),
    }
}

/// Hundreds of aborts between a few commits write nothing, and count for nothing.
#[test]
fn many_aborted_transactions_no_traces() {
    const EACH: usize = 40;
    let give_up = |db: &Db, at: usize| -> Result<(), Error> {
        let mut tx = db.begin();
        tx.put(format!("{ABORTED}/{at}"), ABORTED)?;
        tx.put("kept", ABORTED)?;
        if at.is_multiple_of(2) {
            tx.rollback();
        }
        Ok(())
    };
    check(
        "many_aborted_transactions_no_traces",
        History::All,
        |run| {
            for round in 0..16 {
                let point = run.disk.point();
                (0..EACH).for_each(|at| give_up(run.db(), at).expect("staged"));
                assert_eq!(run.disk.point(), point, "an abort wrote to the disk");
                run.put("kept", round.to_string());
                if round % 4 == 3 {
                    run.upkeep_or_end();
                }
            }
        },
        |found, ()| {
            let point = found.disk.point();
            (0..EACH).try_for_each(|at| give_up(&found.db, at))?;
            same!(
                found.disk.point(),
                point,
                "an abort after recovery wrote to the disk"
            );
            has_nothing_aborted(&found.db)?;
            same!(
                found.db.history("kept")?.len() as u64,
                found.revision.get() - 1,
                "changes of the key"
            );
            same!(
                found.db.put("kept", "next")?,
                found.revision + 1,
                "the next revision"
            );
            let version = found.db.entry("kept")?.map(|entry| entry.version);
            same!(version, Some(found.revision.get()), "the key's version");
            Ok(())
        },
    );
}

/// Not even where only a number would show it: no revision, version, history, lease or file.
#[test]
fn aborted_transaction_leaves_no_trace_after_recovery() {
    const LEASE: i64 = 9;
    check(
        "aborted_transaction_leaves_no_trace_after_recovery",
        History::All,
        |run| {
            let ttl = Duration::from_secs(60);
            run.db()
                .grant_lease_with_id(lease_id(LEASE), ttl)
                .expect("granted");
            run.put("always", "here");
            for round in 0..20 {
                run.put("kept", round.to_string());
                let mut tx = run.db().begin();
                tx.put_with_lease("kept", ABORTED, lease_id(LEASE))
                    .expect("staged");
                tx.put_with_lease(format!("{ABORTED}/{round}"), ABORTED, lease_id(LEASE))
                    .expect("staged");
                tx.rollback();
                abort(run, round);
                if round % 5 == 4 {
                    run.upkeep_or_end();
                }
            }
        },
        |found, ()| {
            for round in 0..20 {
                same!(
                    found.db.history(format!("{ABORTED}/{round}"))?,
                    [],
                    "history of an aborted key"
                );
            }
            for version in found.db.history("kept")? {
                let entry = version
                    .entry
                    .ok_or("an aborted deletion is in the history")?;
                holds!(
                    entry.value != *ABORTED.as_bytes(),
                    "the history has {entry:?}"
                );
            }
            if !found.db.leases().is_empty() {
                same!(
                    found.db.lease_keys(lease_id(LEASE))?.count(),
                    0,
                    "keys of the lease"
                );
            }
            let before = found.expected("kept").map_or(0, |entry| entry.version);
            same!(
                found.db.put("kept", "next")?,
                found.revision + 1,
                "the next revision"
            );
            let version = found.db.entry("kept")?.map(|entry| entry.version);
            same!(version, Some(before + 1), "the next version");
            Ok(())
        },
    );
}

/// Aborts keep nothing: no memory, no pinned revision, no byte of log.
#[test]
fn multiple_aborts_no_accumulation() {
    let abort_many = |db: &Db| -> Result<(), Error> {
        for at in 0..30 {
            let mut tx = db.begin();
            tx.get("k")?;
            tx.put(format!("{ABORTED}/{at}"), [7; 200])?;
            drop(tx);
            let failed = db.transact(|tx| {
                tx.put("k", ABORTED)?;
                Err::<(), _>(Error::EmptyKey)
            });
            assert!(matches!(failed, Err(Error::EmptyKey)), "{failed:?}");
        }
        Ok(())
    };
    let sizes = |db: &Db| {
        let engine = db.stats().engine;
        (
            engine.memtable_bytes,
            engine.log_bytes,
            engine.table_bytes + engine.blob_bytes,
            db.revision(),
        )
    };
    check(
        "multiple_aborts_no_accumulation",
        History::None,
        |run| {
            for round in 0..16 {
                run.put("k", round.to_string());
                let (before, point) = (sizes(run.db()), run.disk.point());
                abort_many(run.db()).expect("aborted");
                assert_eq!(sizes(run.db()), before, "aborts take space");
                assert_eq!(run.disk.point(), point, "aborts write to the disk");
                if round % 4 == 3 {
                    run.upkeep_or_end();
                }
            }
        },
        |found, ()| {
            let before = (sizes(&found.db), found.disk.point());
            abort_many(&found.db)?;
            same!(
                (sizes(&found.db), found.disk.point()),
                before,
                "what aborts take"
            );
            // An aborted transaction that still pinned its snapshot would keep old versions.
            for at in 0..4 {
                found.db.put("k", at.to_string())?;
            }
            found.db.compact()?;
            let levels = found.db.stats().engine.levels;
            let entries: u64 = levels[0].iter().map(|level| level.entries).sum();
            same!(entries, 1, "versions kept of the one key");
            Ok(())
        },
    );
}
