//! Recovered once, twice, again and again, and crashed while recovering: always the same.

use bowline::{Db, History, Revision};
use bowline_testing::Images;
use bowline_testing::model::Change;

use super::{delete, put, random_work};
use crate::harness::{Found, Outcome, check, holds, same};
use crate::support::Contents;

/// A crash while recovering, and one while recovering from that, lose nothing.
#[test]
fn repeated_crash_recovery_preserves_state() {
    fn crash_again(found: &Found<'_>, disk: &bowline_testing::SimDisk, depth: u64) -> Outcome {
        let recording = disk.recording();
        for image in Images::sample(&recording, found.number + depth, 3) {
            let disk = image.build();
            let db = found.open(&disk)?;
            let result = found.db_is_as_the_model(&db, found.revision);
            result.map_err(|why| format!("crash {depth} while recovering, {image}: {why}"))?;
            if depth < 3 {
                crash_again(found, &disk, depth + 1)?;
            }
        }
        Ok(())
    }
    check(
        "repeated_crash_recovery_preserves_state",
        History::All,
        |run| random_work(run, 40),
        |found, ()| {
            found.is_in_span()?;
            found.is_as_the_model()?;
            if found.number.is_multiple_of(4) {
                crash_again(found, &found.disk, 1)?;
            }
            Ok(())
        },
    );
}

fn dump(db: &Db) -> Outcome<(Revision, Contents)> {
    Ok((db.revision(), Contents::of_snapshot(&db.snapshot())?))
}

fn is_the_same(
    found: &(Revision, Contents),
    expected: &(Revision, Contents),
    what: &str,
) -> Outcome {
    same!(found.0, expected.0, "{what}: the revision");
    let difference = found.1.difference(&expected.1);
    holds!(
        difference.is_none(),
        "{what}: {}",
        difference.unwrap_or_default()
    );
    Ok(())
}

/// The same log replayed by two processes, neither of which wrote anything or closed.
#[test]
fn replay_twice_produces_identical_state() {
    check(
        "replay_twice_produces_identical_state",
        History::All,
        |run| random_work(run, 40),
        |found, ()| {
            let first = dump(&found.db)?;
            let apart = dump(&found.open(&found.image.build())?)?;
            is_the_same(&apart, &first, "replayed apart")?;
            let again = dump(&found.open(&found.disk.after_kill())?)?;
            is_the_same(&again, &first, "replayed again")
        },
    );
}

/// Recovered, closed in order, and recovered from that.
#[test]
fn double_recovery_same_state() {
    check(
        "double_recovery_same_state",
        History::All,
        |run| random_work(run, 40),
        |found, ()| {
            let first = dump(&found.db)?;
            found.db.close()?;
            found.db = found.open(&found.disk)?;
            is_the_same(&dump(&found.db)?, &first, "opened after a close")?;
            found.is_as_the_model()
        },
    );
}

/// Six cycles, ended by kills, power losses, closes and flushes in turn.
#[test]
fn multiple_recovery_cycles_identical() {
    check(
        "multiple_recovery_cycles_identical",
        History::All,
        |run| random_work(run, 40),
        |found, ()| {
            let first = dump(&found.db)?;
            for cycle in 0..6 {
                let next = match cycle % 4 {
                    0 => found.disk.after_kill(),
                    1 => found.disk.after_power_loss(),
                    2 => {
                        found.db.close()?;
                        found.disk.after_power_loss()
                    }
                    _ => {
                        found.db.flush()?;
                        found.disk.after_power_loss()
                    }
                };
                let db = found.open(&next)?;
                is_the_same(&dump(&db)?, &first, &format!("cycle {cycle}"))?;
                (found.db, found.disk) = (db, next);
            }
            Ok(())
        },
    );
}

/// Put, deleted, put again, in one transaction and in several, partly in tables and partly in the
/// log: replaying it over what the tables hold already counts nothing twice.
#[test]
fn idempotence_with_complex_patterns() {
    check(
        "idempotence_with_complex_patterns",
        History::All,
        |run| {
            for round in 0..10u64 {
                let text = round.to_string();
                run.transact(&[put("a", &text), put("b", &text), put("c", &text)]);
                run.delete("b");
                if round % 3 == 1 {
                    run.upkeep_or_end();
                }
                run.transact(&[put("b", "again"), delete("a"), put("a", &text)]);
                run.transact(&[put("d", &text), delete("d"), put("c", "twice")]);
                run.step(&[delete("a"), delete("b")], |db| {
                    db.delete_range("a".."c")?;
                    Ok(db.revision())
                });
                let block = u128::from(round % 3) + 1;
                run.transact(&[
                    Change::put_block(block, "service", text.as_bytes()),
                    Change::put_edge(block, "calls", block, text.as_bytes()),
                ]);
                if round % 3 == 2 {
                    run.transact(&[Change::DeleteBlock { id: block }]);
                }
            }
        },
        |found, ()| {
            for turn in 0..3 {
                found
                    .is_as_the_model()
                    .map_err(|why| format!("turn {turn}: {why}"))?;
                for key in ["a", "b", "c", "d"] {
                    let history = found.db.history(key)?;
                    let expected = found.run.model.history(key.as_bytes());
                    let expected = expected.iter().filter(|(at, _)| *at <= found.revision);
                    same!(
                        history.len(),
                        expected.count(),
                        "changes of {key}, turn {turn}"
                    );
                }
                let next = found.disk.after_kill();
                (found.db, found.disk) = (found.open(&next)?, next);
                found.stir()?;
            }
            Ok(())
        },
    );
}
