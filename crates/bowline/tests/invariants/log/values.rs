//! Deletions, revision numbers, empty databases, and values of every shape.

use bowline::History;
use bowline_testing::model::Change;

use super::{delete, put};
use crate::harness::{Found, Outcome, check, holds, same, value};
use crate::support::Contents;

/// What was deleted stays deleted, wherever the older versions and the tombstone lie.
#[test]
fn deletes_are_durable() {
    const KEYS: usize = 20;
    check(
        "deletes_are_durable",
        History::None,
        |run| {
            for at in 0..KEYS {
                run.put(format!("k{at:02}"), "x");
            }
            run.db().compact().expect("merged");
            run.begin_recording();
            for at in 0..KEYS - 6 {
                run.delete(format!("k{at:02}"));
                if at % 3 == 2 {
                    run.upkeep_or_end();
                }
            }
            let (from, to) = (format!("k{:02}", KEYS - 6), format!("k{:02}", KEYS - 3));
            let changes: Vec<_> = (KEYS - 6..KEYS - 3)
                .map(|at| delete(format!("k{at:02}")))
                .collect();
            run.step(&changes, |db| {
                db.delete_range(from..to)?;
                Ok(db.revision())
            });
            run.upkeep_or_end();
        },
        |found, ()| {
            let is_there = |found: &Found<'_>, at: usize| -> Outcome<bool> {
                Ok(found.value(format!("k{at:02}"))?.is_some())
            };
            for turn in 0..2 {
                for at in 0..KEYS {
                    let key = format!("k{at:02}");
                    let acknowledged = found.run.model.get(key.as_bytes(), found.acknowledged);
                    holds!(
                        acknowledged.is_some() || !is_there(found, at)?,
                        "{key} is back (turn {turn})"
                    );
                    same!(
                        is_there(found, at)?,
                        found.expected(&key).is_some(),
                        "{key}, turn {turn}"
                    );
                }
                found.stir()?;
            }
            Ok(())
        },
    );
}

/// A crash while a database is made, or while it is opened and closed with nothing in it.
#[test]
fn empty_database_recovery() {
    check(
        "empty_database_recovery",
        History::All,
        |run| {
            run.reopen();
            run.kill();
            run.db().flush().expect("nothing to flush");
            run.reopen();
        },
        |found, ()| {
            same!(found.db.revision(), 1, "the revision of a new database");
            same!(found.db.oldest_revision(), 1, "its oldest revision");
            same!(found.db.range(..)?.count(), 0, "its keys");
            holds!(
                Contents::of_snapshot(&found.db.snapshot())? == Contents::default(),
                "it is not empty"
            );
            same!(found.db.put("first", "1")?, 2, "the first revision");
            let entry = found.db.entry("first")?.ok_or("the first key is gone")?;
            same!(
                (entry.create_revision.get(), entry.version),
                (2, 1),
                "its metadata"
            );
            Ok(())
        },
    );
}

/// A revision that was given to a commit is never given to another one, and none is left out; a
/// key's version goes on from where it was.
#[test]
fn version_counter_persistence() {
    check(
        "version_counter_persistence",
        History::None,
        |run| {
            for round in 0..24 {
                run.put("counted", round.to_string());
                run.put(format!("gone{round}"), "x");
                // The newest revision may be one of which nothing is left but the number.
                run.delete(format!("gone{round}"));
                match round % 6 {
                    2 => run.db().compact().expect("merged"),
                    3 => run.reopen(),
                    4 => run.kill(),
                    _ => {}
                }
            }
        },
        |found, ()| {
            let before = found.expected("counted").map_or(0, |entry| entry.version);
            let next = found.db.put("counted", "next")?;
            same!(next, found.revision + 1, "the next revision");
            holds!(
                next > found.acknowledged,
                "revision {next} was acknowledged before, up to {}",
                found.acknowledged
            );
            for turn in 1..=3 {
                let entry = found.db.entry("counted")?.ok_or("it was just written")?;
                same!(entry.version, before + turn, "the key's version");
                same!(entry.mod_revision, found.revision + turn, "its revision");
                found.stir()?;
                found.db.put("counted", "next")?;
            }
            Ok(())
        },
    );
}

/// Empty and long values, any bytes, in keys, values, blocks and edges.
#[test]
fn all_value_types_survive_recovery() {
    let values: Vec<(&str, Vec<u8>)> = vec![
        ("empty", vec![]),
        ("zero", vec![0]),
        ("zeros", vec![0; 600]),
        ("ones", vec![0xff; 40]),
        ("every byte", (0..=255).collect()),
        ("text", "Grüße, 世界 🦀".as_bytes().to_vec()),
        ("number", u64::MAX.to_be_bytes().to_vec()),
        ("inline", vec![b'i'; bowline::Value::INLINE_MAX]),
        ("shared", vec![b's'; bowline::Value::INLINE_MAX + 1]),
        ("page", vec![b'p'; 513]),
        (
            "long",
            (0..9_000u32)
                .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
                .collect(),
        ),
        ("key", b"the key of this one is any bytes".to_vec()),
    ];
    let keys: Vec<Vec<u8>> = values
        .iter()
        .map(|(name, _)| match *name {
            "zero" => vec![0],
            "ones" => vec![0xff; 3],
            "key" => (0..=255).rev().collect(),
            name => name.as_bytes().to_vec(),
        })
        .collect();
    check(
        "all_value_types_survive_recovery",
        History::All,
        |run| {
            for (key, (_, value)) in keys.iter().zip(&values) {
                run.put(key, value);
            }
            run.db().flush().expect("flushed");
            for (at, (key, (_, value))) in keys.iter().zip(&values).enumerate() {
                let id = at as u128 + 1;
                run.transact(&[
                    put(key, value),
                    Change::put_block(id, "any", value),
                    Change::put_edge(id, "self", id, format!("{value:?}").as_bytes()),
                ]);
                if at % 4 == 3 {
                    run.upkeep_or_end();
                }
            }
        },
        |found, ()| {
            for turn in 0..2 {
                for (key, (name, bytes)) in keys.iter().zip(&values) {
                    let is_there = found.run.model.get(key, found.revision).is_some();
                    let expected = is_there.then_some(bytes);
                    holds!(
                        value(&found.db, key)?.as_ref() == expected,
                        "{name}, turn {turn}"
                    );
                    let entry = found.db.entry(key)?;
                    holds!(
                        entry.map(|e| e.value.to_vec()).as_ref() == expected,
                        "the entry of {name}"
                    );
                }
                found.is_as_the_model()?;
                found.stir()?;
            }
            Ok(())
        },
    );
}
