//! The order of commits, of versions and of overwrites.

use bowline::{History, Revision};

use super::put;
use crate::harness::{check, holds, number, same};

/// The history of a key counts its revisions and versions as they were written.
#[test]
fn version_order_preserved_after_recovery() {
    check(
        "version_order_preserved_after_recovery",
        History::All,
        |run| {
            for round in 0..45u64 {
                let key = format!("k{}", round % 3);
                if round % 11 == 10 && run.value(&key).is_some() {
                    run.delete(&key);
                } else {
                    run.put(&key, round.to_string());
                }
                if round % 6 == 5 {
                    run.upkeep_or_end();
                }
            }
        },
        |found, ()| {
            for key in ["k0", "k1", "k2"] {
                let history = found.db.history(key)?;
                let found_at: Vec<_> = history
                    .iter()
                    .map(|version| {
                        (
                            version.revision,
                            version
                                .entry
                                .as_ref()
                                .map(|e| (e.version, e.create_revision)),
                        )
                    })
                    .collect();
                let expected: Vec<_> = found
                    .run
                    .model
                    .history(key.as_bytes())
                    .iter()
                    .rev()
                    .filter(|(revision, _)| *revision <= found.revision)
                    .map(|(revision, entry)| {
                        (
                            *revision,
                            entry.as_ref().map(|e| (e.version, e.create_revision)),
                        )
                    })
                    .collect();
                same!(
                    found_at,
                    expected,
                    "revisions, versions and creations of {key}"
                );
            }
            Ok(())
        },
    );
}

/// Of many writes of one key, the last one before the crash holds, and the past is in order.
#[test]
fn overwrite_order_preserved() {
    const COUNT: u64 = 60;
    check(
        "overwrite_order_preserved",
        History::All,
        |run| {
            for at in 1..=COUNT {
                // Long enough that the log rotates and a replay fills more than one memtable.
                run.put("k", format!("{at:0700}"));
                if at % 25 == 24 {
                    run.upkeep_or_end();
                }
            }
        },
        |found, ()| {
            let last = number(found.value("k")?);
            same!(last, found.revision.get() - 1, "the last overwrite");
            holds!(
                last >= (found.acknowledged - 1).get(),
                "overwrite {last} holds, {} was acknowledged",
                found.acknowledged - 1
            );
            for at in 1..=last {
                let past = found.db.snapshot_at(Revision::new(at + 1))?.get("k")?;
                same!(
                    number(past.map(|v| v.to_vec())),
                    at,
                    "as of revision {}",
                    at + 1
                );
            }
            Ok(())
        },
    );
}

/// Three writers with overlapping transactions: what is recovered is a prefix of the one order.
#[test]
fn interleaved_writes_global_order() {
    check(
        "interleaved_writes_global_order",
        History::All,
        |run| {
            let mut sequence = 0u64;
            for round in 0..15 {
                let transactions: Vec<_> =
                    (0..3).map(|writer| (writer, run.db().begin())).collect();
                let mut waiting = transactions;
                while !waiting.is_empty() {
                    let (writer, mut tx) = waiting.swap_remove(run.rng.usize(..waiting.len()));
                    sequence += 1;
                    let own = put(format!("w{writer}/{round:02}"), sequence.to_string());
                    let shared = put("last", sequence.to_string());
                    tx.put(format!("w{writer}/{round:02}"), sequence.to_string())
                        .expect("staged");
                    tx.put("last", sequence.to_string()).expect("staged");
                    run.commit(tx, &[own, shared]);
                }
                if round % 3 == 2 {
                    run.upkeep_or_end();
                }
            }
        },
        |found, ()| {
            let mut seen = Vec::new();
            for entry in found.db.range("w".."x")? {
                let entry = entry?;
                seen.push((entry.mod_revision.get(), number(Some(entry.value.to_vec()))));
            }
            seen.sort_unstable();
            let count = found.revision.get() - 1;
            let expected: Vec<_> = (1..=count).map(|at| (at + 1, at)).collect();
            same!(seen, expected, "the writes, in order");
            same!(number(found.value("last")?), count, "the last one");
            holds!(
                count + 1 >= found.acknowledged.get(),
                "an acknowledged write is missing"
            );
            Ok(())
        },
    );
}
