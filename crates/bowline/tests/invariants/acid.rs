//! Consistency: what every transaction keeps, every crash keeps.

use bowline::{Error, History, Isolation, Revision};
use bowline_testing::model::Change;

use crate::harness::{Run, check, number, same, tx_value};
use crate::support::Contents;

const BLOCKS: u128 = 5;
const OPENING: u64 = 50;

fn account(number: u128) -> String {
    format!("account/{number}")
}

fn change(key: impl AsRef<[u8]>, value: u64) -> Change {
    Change::put(key.as_ref(), value.to_string().as_bytes())
}

/// Under snapshot isolation, accounts are opened, closed and moved between, each with a block of the
/// graph that repeats its balance, and a key that repeats their sum.
fn round(run: &mut Run) {
    let (from, to) = (run.rng.u128(1..=BLOCKS), run.rng.u128(1..=BLOCKS));
    let mut tx = run.db().begin_with(Isolation::Snapshot);
    let have = number(tx_value(&mut tx, account(from)).expect("read"));
    let other = number(tx_value(&mut tx, account(to)).expect("read"));
    if from == to || have == 0 {
        return;
    }
    // Moves all now and then: the account is closed, and its block is gone.
    let amount = if run.rng.u8(..4) == 0 {
        have
    } else {
        run.rng.u64(1..=have)
    };
    let (left, more) = (have - amount, other + amount);
    let block = |id, balance: u64| Change::put_block(id, "account", balance.to_string().as_bytes());
    let mut changes = vec![change(account(to), more), block(to, more)];
    if left == 0 {
        changes.push(Change::delete(account(from).as_bytes()));
        changes.push(Change::DeleteBlock { id: from });
    } else {
        changes.extend([change(account(from), left), block(from, left)]);
        changes.push(Change::put_edge(
            from,
            "paid",
            to,
            amount.to_string().as_bytes(),
        ));
    }
    // Another one moves from the same account at the same time; the first to commit wins.
    let mut late = run.db().begin_with(Isolation::Snapshot);
    late.delete(account(from)).expect("staged");
    late.put(account(9), have.to_string()).expect("staged");
    for change in &changes {
        crate::support::stage(&mut tx, change).expect("staged");
    }
    run.commit(tx, &changes);
    run.upkeep();
    let error = run.refused(|_| late.commit());
    assert!(matches!(error, Error::Conflict { .. }), "{error}");
}

#[test]
fn consistency_sum_invariant_maintained() {
    check(
        "consistency_sum_invariant_maintained",
        History::All,
        |run| {
            let accounts = (1..=BLOCKS).flat_map(|id| {
                let text = OPENING.to_string();
                [
                    change(account(id), OPENING),
                    Change::put_block(id, "account", text.as_bytes()),
                ]
            });
            run.transact(&accounts.collect::<Vec<_>>());
            run.begin_recording();
            for at in 0..30 {
                round(run);
                if at % 10 == 9 {
                    run.reopen();
                }
            }
        },
        |found, ()| {
            found.run_on(|run| (0..3).for_each(|_| round(run)))?;
            for revision in 2..=found.db.revision().get() {
                let contents =
                    Contents::of_snapshot(&found.db.snapshot_at(Revision::new(revision))?)?;
                let balances = contents
                    .keys
                    .values()
                    .map(|entry| number(Some(entry.value.clone())));
                same!(
                    balances.sum::<u64>(),
                    OPENING * BLOCKS as u64,
                    "the sum as of {revision}"
                );
                for (id, block) in &contents.blocks {
                    let key = contents.keys.get(account(*id).as_bytes());
                    let balance = key.map(|entry| &entry.value);
                    same!(
                        balance,
                        Some(&block.content),
                        "account {id} and its block, as of {revision}"
                    );
                }
                same!(
                    contents.keys.len(),
                    contents.blocks.len(),
                    "accounts as of {revision}"
                );
                let edges: Vec<_> = contents.edges.keys().collect();
                let backwards: Vec<_> = contents.edges_backwards.iter().collect();
                same!(edges, backwards, "edges from both ends as of {revision}");
            }
            Ok(())
        },
    );
}
