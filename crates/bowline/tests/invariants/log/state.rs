//! The state is there as a whole: keys, blocks, edges, leases, the past, checkpoints.

use std::path::Path;
use std::time::Duration;

use bowline::{Error, History, Revision};
use bowline_testing::lease_id;
use bowline_testing::model::{Change, EdgeKey};

use super::{put, random_work};
use crate::harness::{Run, check, holds, refused, same, with_prefix};
use crate::support::Contents;

/// Acknowledged commits are there with all their metadata, and nothing but a prefix is.
#[test]
fn full_state_preserved_after_recovery() {
    check(
        "full_state_preserved_after_recovery",
        History::All,
        |run| random_work(run, 60),
        |found, ()| {
            found.is_in_span()?;
            found.is_as_the_model()?;
            let check = found.db.check()?;
            holds!(check.is_clean(), "{:?} {:?}", check.problems, check.files);
            Ok(())
        },
    );
}

/// A state of several memtables, tables and log segments, most of it before the crash's reach.
#[test]
fn large_state_fully_preserved() {
    const KEYS: u32 = 700;
    const EACH: u32 = 50;
    let value_of = |at: u32| format!("{at:06}").repeat(9);
    let write = |run: &mut Run, from: u32| {
        let changes: Vec<_> = (from..from + EACH)
            .map(|at| put(format!("key{at:04}"), value_of(at)))
            .collect();
        run.transact(&changes);
    };
    check(
        "large_state_fully_preserved",
        History::None,
        |run| {
            (0..KEYS / 2)
                .step_by(EACH as usize)
                .for_each(|at| write(run, at));
            run.begin_recording();
            (KEYS / 2..KEYS)
                .step_by(EACH as usize)
                .for_each(|at| write(run, at));
            let counters = run.db().stats().engine.counters;
            assert!(counters.flushes > 0, "it fits into one memtable");
        },
        |found, ()| {
            found.is_in_span()?;
            let entries = with_prefix(&found.db, "key")?;
            let transactions = u32::try_from(found.revision.get() - 1)?;
            same!(
                entries.len(),
                (transactions * EACH) as usize,
                "how many keys"
            );
            for (at, (key, value)) in (0..).zip(entries) {
                same!(key, format!("key{at:04}").into_bytes(), "key {at}");
                same!(value, value_of(at).into_bytes(), "the value of key {at}");
            }
            Ok(())
        },
    );
}

/// A committed transaction over keys, blocks, edges and a lease is there as a whole.
#[test]
fn transaction_state_preserved() {
    const LEASE: i64 = 7;
    check(
        "transaction_state_preserved",
        History::All,
        |run| {
            let ttl = Duration::from_secs(60);
            run.db()
                .grant_lease_with_id(lease_id(LEASE), ttl)
                .expect("granted");
            for round in 0..24u64 {
                let text = round.to_string();
                let changes = [
                    put("a", &text),
                    put(format!("only/{round}"), &text),
                    Change::Put {
                        key: format!("leased/{round}").into_bytes(),
                        value: text.clone().into_bytes(),
                        lease: LEASE,
                    },
                    Change::put_block(1, "service", text.as_bytes()),
                    Change::put_block(2 + u128::from(round), "service", text.as_bytes()),
                    Change::put_edge(1, "calls", 2 + u128::from(round), text.as_bytes()),
                ];
                run.transact(&changes);
                if round % 4 == 3 {
                    run.upkeep_or_end();
                }
            }
        },
        |found, ()| {
            found.is_in_span()?;
            let rounds = found.revision.get() - 1;
            let contents = Contents::of_snapshot(&found.db.snapshot())?;
            for round in 0..24 {
                let is_there = round < rounds;
                let block = 2 + u128::from(round);
                let edge = EdgeKey::new(1, "calls", block);
                let parts = [
                    contents
                        .keys
                        .contains_key(format!("only/{round}").as_bytes()),
                    contents
                        .keys
                        .contains_key(format!("leased/{round}").as_bytes()),
                    contents.blocks.contains_key(&block),
                    contents.edges.contains_key(&edge),
                    contents.edges_backwards.contains(&edge),
                ];
                same!(parts, [is_there; 5], "the parts of transaction {round}");
            }
            if rounds > 0 {
                same!(
                    found.db.lease_keys(lease_id(LEASE))?.count() as u64,
                    rounds,
                    "the keys of the lease"
                );
            }
            found.is_as_the_model()
        },
    );
}

/// Every revision up to the recovered one can be read, and is what it was.
#[test]
fn prefix_states_are_reconstructible() {
    check(
        "prefix_states_are_reconstructible",
        History::All,
        |run| random_work(run, 30),
        |found, ()| {
            same!(found.db.oldest_revision(), 1, "the oldest revision");
            found.past_is_as_the_model()?;
            let future = found.db.snapshot_at(found.revision + 1);
            refused!(future, Error::FutureRevision { .. });
            Ok(())
        },
    );
}

/// Each transaction gives one stamp to keys, a block and an edge: all have the same, at any time.
#[test]
fn transactions_appear_atomically() {
    const KEYS: [&str; 4] = ["a", "m", "y", "z"];
    fn stamps(contents: &Contents) -> Vec<Vec<u8>> {
        let mut stamps: Vec<_> = contents
            .keys
            .values()
            .map(|entry| entry.value.clone())
            .collect();
        stamps.extend(contents.blocks.values().map(|block| block.content.clone()));
        stamps.extend(contents.edges.values().cloned());
        stamps
    }
    check(
        "transactions_appear_atomically",
        History::All,
        |run| {
            for round in 0..20u32 {
                // Beyond a sector, so that a torn write can tear it.
                let stamp = format!("{round:0300}").into_bytes();
                let mut changes: Vec<_> = KEYS.iter().map(|key| put(key, &stamp)).collect();
                changes.push(Change::put_block(1, "service", &stamp));
                changes.push(Change::put_block(2, "service", &stamp));
                changes.push(Change::put_edge(1, "calls", 2, &stamp));
                run.transact(&changes);
                if round % 5 == 4 {
                    run.upkeep_or_end();
                }
            }
        },
        |found, ()| {
            for revision in [
                found.revision,
                found.revision.saturating_sub(1).max(Revision::new(1)),
            ] {
                let contents = Contents::of_snapshot(&found.db.snapshot_at(revision)?)?;
                let stamps = stamps(&contents);
                let expected = if revision == 1 { 0 } else { KEYS.len() + 3 };
                same!(stamps.len(), expected, "parts as of {revision}");
                holds!(
                    stamps.windows(2).all(|pair| pair[0] == pair[1]),
                    "torn as of {revision}: {stamps:?}"
                );
                let backwards: Vec<_> = contents.edges_backwards.iter().collect();
                same!(
                    backwards,
                    contents.edges.keys().collect::<Vec<_>>(),
                    "the edge from its target"
                );
            }
            found.is_in_span()
        },
    );
}

/// A checkpoint that was done before the crash is the database as of its revision. One that was not
/// done is no database, or a whole one.
#[test]
fn checkpoint_states_consistent() {
    struct Copy {
        path: String,
        revision: Revision,
        begun_at: usize,
        done_at: usize,
    }
    check(
        "checkpoint_states_consistent",
        History::All,
        |run| {
            let mut copies = Vec::new();
            for round in 0..4 {
                random_work(run, 8);
                let (path, begun_at) = (format!("copy{round}"), run.disk.point());
                let revision = run.db().checkpoint(&path).expect("a copy");
                assert_eq!(revision, run.model.revision());
                let done_at = run.disk.point();
                copies.push(Copy {
                    path,
                    revision,
                    begun_at,
                    done_at,
                });
            }
            copies
        },
        |found, copies| {
            found.is_as_the_model()?;
            for copy in copies
                .iter()
                .filter(|copy| copy.begun_at < found.image.point())
            {
                let is_done = copy.done_at <= found.image.point();
                let builder = found.run.builder(&found.disk).create(false);
                match builder.open(Path::new(&copy.path)) {
                    Ok(db) => {
                        let result = found.db_is_as_the_model(&db, copy.revision);
                        result.map_err(|why| format!("{}: {why}", copy.path))?;
                    }
                    Err(error) => holds!(!is_done, "{} was done: {error}", copy.path),
                }
            }
            Ok(())
        },
    );
}
