//! Anomalies of concurrent transactions, and what they would leave for ever: skewed writes, lost
//! updates, money made or lost.

use std::sync::Mutex;
use std::thread;

use bowline::{Error, History, Isolation, Revision};

use super::{put, some};
use crate::harness::{ISOLATIONS, Run, check, holds, number, same, tx_value, with_prefix};

/// Two doctors are on call; each goes off if another one stays. Serializable, one of them stays, at
/// every revision and after every crash. Snapshot isolation allows that both go.
#[test]
fn write_skew_scenario_doctors_on_call() {
    fn round(run: &mut Run, isolation: Isolation) {
        let ward = match isolation {
            Isolation::Serializable => "strict",
            Isolation::Snapshot => "loose",
        };
        let (alice, bob) = (format!("{ward}/alice"), format!("{ward}/bob"));
        run.transact(&[put(&alice, "yes"), put(&bob, "yes")]);
        let on_call = |tx: &mut bowline::Transaction| {
            let range = tx.range(bowline::Range::prefix(ward)).expect("read");
            range
                .flatten()
                .filter(|entry| *entry.value == *b"yes")
                .count()
        };
        let mut leaving: Vec<_> = [alice, bob]
            .into_iter()
            .map(|name| {
                let mut tx = run.db().begin_with(isolation);
                assert_eq!(on_call(&mut tx), 2);
                tx.put(&name, "no").expect("staged");
                (name, tx)
            })
            .collect();
        run.rng.shuffle(&mut leaving);
        let (second_name, second) = leaving.pop().expect("there are two");
        let (first_name, first) = leaving.pop().expect("there are two");
        run.commit(first, &[put(first_name, "no")]);
        run.upkeep();
        match isolation {
            Isolation::Serializable => {
                let error = run.refused(|_| second.commit());
                assert!(matches!(error, Error::Conflict { .. }), "{error}");
                assert_eq!(on_call(&mut run.db().begin()), 1);
            }
            Isolation::Snapshot => {
                run.commit(second, &[put(second_name, "no")]);
                assert_eq!(
                    on_call(&mut run.db().begin()),
                    0,
                    "snapshot isolation allows it"
                );
            }
        }
    }
    check(
        "write_skew_scenario_doctors_on_call",
        History::All,
        |run| {
            for at in 0..8 {
                for isolation in ISOLATIONS {
                    round(run, isolation);
                }
                if at % 3 == 2 {
                    run.reopen();
                }
            }
        },
        |found, ()| {
            for revision in 2..=found.revision.get() {
                let snapshot = found.db.snapshot_at(Revision::new(revision))?;
                let ward = snapshot.range(bowline::Range::prefix("strict/"))?;
                let on_call = ward
                    .flatten()
                    .filter(|entry| *entry.value == *b"yes")
                    .count();
                holds!(on_call > 0, "nobody is on call as of {revision}");
            }
            for (key, value) in with_prefix(&found.db, "")? {
                same!(
                    Some(value),
                    found.expected_value(&key),
                    "{}",
                    key.escape_ascii()
                );
            }
            found.run_on(|run| {
                for isolation in ISOLATIONS {
                    round(run, isolation);
                }
            })
        },
    );
}

/// Four threads increment one counter and try again when they conflict. After a crash it has every
/// increment that was acknowledged, each once; it counts on from there.
///
/// The threads share commit groups, in an order that no seed repeats; the statement holds for
/// every order.
#[test]
fn lost_update_prevented_many_increments() {
    const THREADS: u64 = 4;
    const EACH: u64 = 10;
    const COUNTERS: [(&str, Isolation); 2] = [
        ("serializable", Isolation::Serializable),
        ("snapshot", Isolation::Snapshot),
    ];
    let increment = |db: &bowline::Db, (key, isolation): (&str, Isolation)| {
        db.transact_with(isolation, |tx| {
            let next = number(tx_value(tx, key)?) + 1;
            // Lets the others read the same value.
            (0..8).for_each(|_| thread::yield_now());
            tx.put(key, next.to_string())
        })
    };
    check(
        "lost_update_prevented_many_increments",
        History::All,
        |run| {
            // Marks are made in the order of their numbers.
            let acknowledged = Mutex::new(0);
            let begun = run.disk.point();
            thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        for at in 0..EACH {
                            let counter = COUNTERS[(at % 2) as usize];
                            increment(run.db(), counter).expect("it is tried until it wins");
                            let mut acknowledged = acknowledged.lock().expect("no panic");
                            *acknowledged += 1;
                            // So many increments were acknowledged, whichever they were.
                            run.disk.mark(1 + *acknowledged);
                        }
                    });
                }
            });
            for (key, _) in COUNTERS {
                assert_eq!(number(run.value(key)), THREADS * EACH / 2, "{key}");
            }
            run.issue(Revision::new(1 + THREADS * EACH), begun);
        },
        |found, ()| {
            let mut sum = 0;
            for (key, _) in COUNTERS {
                let counted = number(found.value(key)?);
                let version = found.db.entry(key)?.map_or(0, |entry| entry.version);
                same!(counted, version, "increments of {key}, by its versions");
                sum += counted;
            }
            holds!(
                sum >= (found.acknowledged - 1).get(),
                "{sum} increments, {} were acknowledged",
                found.acknowledged - 1
            );
            same!(sum, found.revision.get() - 1, "increments, by the revision");
            let again = [0, 1].map(|at| increment(&found.db, COUNTERS[at]));
            holds!(again.iter().all(Result::is_ok), "{again:?}");
            let after: u64 = COUNTERS
                .iter()
                .map(|(key, _)| number(found.value(key).ok().flatten()))
                .sum();
            same!(after, sum + 2, "increments after going on");
            Ok(())
        },
    );
}

/// Random transfers in overlapping transactions. At every revision, before and after any crash, the
/// accounts sum up to what was there at first.
#[test]
fn bank_transfer_sum_invariant() {
    const ACCOUNTS: u64 = 6;
    const OPENING: u64 = 100;
    fn account(number: u64) -> String {
        format!("account/{number}")
    }
    /// Two transfers that overlap; the one who comes second is refused if they share an account.
    fn round(run: &mut Run) {
        let mut open = Vec::new();
        for _ in 0..2 {
            let (from, to) = (run.rng.u64(..ACCOUNTS), run.rng.u64(..ACCOUNTS));
            let amount = run.rng.u64(1..20);
            let mut tx = run.db().begin();
            let have = number(tx_value(&mut tx, account(from)).expect("read"));
            if have < amount || from == to {
                continue;
            }
            let other = number(tx_value(&mut tx, account(to)).expect("read"));
            let writes = [(from, have - amount), (to, other + amount)];
            for (number, balance) in writes {
                tx.put(account(number), balance.to_string())
                    .expect("staged");
            }
            open.push((tx, writes));
        }
        let mut taken = Vec::new();
        for (tx, writes) in open {
            let changes = writes.map(|(number, balance)| put(account(number), balance.to_string()));
            if writes.iter().any(|(number, _)| taken.contains(number)) {
                let error = run.refused(|_| tx.commit());
                assert!(matches!(error, Error::Conflict { .. }), "{error}");
            } else {
                run.commit(tx, &changes);
                taken.extend(writes.map(|(number, _)| number));
            }
        }
        run.upkeep();
    }
    check(
        "bank_transfer_sum_invariant",
        History::All,
        |run| {
            let opening: Vec<_> = (0..ACCOUNTS)
                .map(|n| put(account(n), OPENING.to_string()))
                .collect();
            run.transact(&opening);
            run.begin_recording();
            for at in 0..20 {
                round(run);
                if at % 8 == 7 {
                    run.reopen();
                }
            }
        },
        |found, ()| {
            found.run_on(|run| (0..3).for_each(|_| round(run)))?;
            for revision in 2..=found.db.revision().get() {
                let range = found
                    .db
                    .snapshot_at(Revision::new(revision))?
                    .range("account/".."account0")?;
                let balances: Vec<_> = range
                    .flatten()
                    .map(|e| number(Some(e.value.to_vec())))
                    .collect();
                same!(
                    balances.iter().sum::<u64>(),
                    ACCOUNTS * OPENING,
                    "as of {revision}, {balances:?}"
                );
            }
            Ok(())
        },
    );
}

/// A committed transaction of many keys is there as a whole, at one revision.
#[test]
fn committed_transaction_all_keys_present() {
    const KEYS: usize = 120;
    check(
        "committed_transaction_all_keys_present",
        History::None,
        |run| {
            for round in 0..6 {
                let changes: Vec<_> = (0..KEYS)
                    .map(|at| put(format!("{round}/{at:03}"), "value"))
                    .collect();
                run.transact(&changes);
                if round % 2 == 1 {
                    run.upkeep_or_end();
                }
            }
        },
        |found, ()| {
            for round in 0..6 {
                let mut revisions = Vec::new();
                for entry in found
                    .db
                    .range(bowline::Range::prefix(format!("{round}/")))?
                {
                    revisions.push(entry?.mod_revision);
                }
                let revision = Revision::new(round + 2);
                if revision <= found.acknowledged || !revisions.is_empty() {
                    same!(revisions.len(), KEYS, "keys of transaction {round}");
                    let one = revisions.iter().all(|other| *other == revision);
                    holds!(one, "transaction {round} is at {revisions:?}");
                }
                for at in (0..KEYS).step_by(40) {
                    let value = found.value(format!("{round}/{at:03}"))?;
                    same!(
                        value,
                        (!revisions.is_empty()).then(|| b"value".to_vec()),
                        "key {at}"
                    );
                }
            }
            Ok(())
        },
    );
}

/// A transaction of many keys that was refused left none of them.
#[test]
fn aborted_transaction_no_keys_present() {
    const KEYS: usize = 120;
    fn round(run: &mut Run) {
        let name = run.model.revision().to_string();
        let mut tx = run.db().begin();
        tx.get("read").expect("read");
        for at in 0..KEYS {
            tx.put(format!("aborted/{at:03}"), &name).expect("staged");
        }
        run.put("read", &name);
        let error = run.refused(|_| tx.commit());
        assert!(matches!(error, Error::Conflict { .. }), "{error}");
        run.upkeep();
        assert_eq!(with_prefix(run.db(), "aborted").expect("read"), []);
    }
    check(
        "aborted_transaction_no_keys_present",
        History::All,
        |run| {
            for at in 0..12 {
                round(run);
                if at % 5 == 4 {
                    run.reopen();
                }
            }
        },
        |found, ()| {
            same!(
                with_prefix(&found.db, "aborted")?,
                [],
                "keys of an aborted transaction"
            );
            same!(
                found.db.history("aborted/000")?,
                [],
                "the history of one of them"
            );
            let read = found.value("read")?;
            let expected = (found.revision > 1).then(|| some((found.revision - 1).to_string()));
            same!(read, expected.flatten(), "the key that it conflicted on");
            found.run_on(round)
        },
    );
}
