//! Crash tests: after a power loss at any point, with any of the unsynced operations lost or
//! torn, the database opens and is at a prefix of its commit order that holds every acknowledged
//! commit, transactions whole.
//!
//! A workload runs on a [`SimDisk`](bowline_testing::SimDisk) with everything small, so that a few
//! hundred commits rotate and recycle the log, flush, merge and edit the manifest; at the end each
//! test asserts that they did. Then images of the crashes at all points are sampled, and each is
//! opened with the shipped code: see [`verify`]. Of some, the recovery is crashed again, twice.
//!
//! `BOWLINE_CRASH_IMAGES` sets how many images all tests together try (default 6,000), and
//! `BOWLINE_SEED` the seed. `--nocapture` shows what was covered.

#[path = "../support/mod.rs"]
mod support;
mod verify;
mod workload;

use std::time::Duration;

use bowline::{Durability, Error, History};
use bowline_testing::{Images, Seed};

use support::Contents;
use verify::{Tried, Verifier};
use workload::{Action, Crossed, Run, Workload};

/// The images of all tests together, unless the environment says otherwise.
const IMAGES_DEFAULT: u64 = 6_000;

/// A test's part of the images to try.
fn share(percent: u64) -> u64 {
    let images = match std::env::var("BOWLINE_CRASH_IMAGES") {
        Ok(text) => text.parse().expect("BOWLINE_CRASH_IMAGES must be a number"),
        Err(_) => IMAGES_DEFAULT,
    };
    (images * percent).div_ceil(100)
}

/// Runs a workload, then judges images of its crashes.
fn crash(workload: Workload, seed: Seed, images: u64) -> Crossed {
    let mut run = Run::new(workload, seed.0);
    run.work();
    let crossed = run.crossed();
    let (tried, report) = judge(&run, seed, images);
    println!("{}: {report}", workload.name);
    println!("{}: {tried:?}", workload.name);
    println!("{}: {crossed:?}", workload.name);
    let total: u32 = workload.mix.iter().map(|(weight, _)| weight).sum();
    for (weight, action) in workload.mix {
        // With other seeds a rare action may be missing.
        let is_certain = *weight as usize * workload.recorded >= 8 * total as usize;
        assert!(
            !is_certain || crossed.actions.contains_key(action),
            "{action:?} was never done"
        );
    }
    crossed
}

fn judge(run: &Run, seed: Seed, images: u64) -> (Tried, String) {
    let mut sample = Images::sample(&run.disk.recording(), seed.0, images);
    let mut verifier = Verifier::new(run);
    for image in &mut sample {
        if let Err(why) = verifier.verify(&image) {
            panic!("{}, {image}: {why}", run.workload.name);
        }
    }
    (verifier.tried, sample.coverage().to_string())
}

#[test]
fn keys_survive_any_crash() {
    let seed = Seed::from_env_or(11);
    let _guard = seed.print_on_failure("-p bowline --test crash keys_survive_any_crash");
    let crossed = crash(
        Workload {
            name: "keys",
            durability: Durability::Sync,
            history: History::None,
            mix: &[
                (50, Action::Put),
                (4, Action::PutLarge),
                (15, Action::Delete),
                (4, Action::DeleteRange),
                (12, Action::Swap),
                (1, Action::CompactTables),
                (1, Action::Reopen),
            ],
            before: 0,
            recorded: 400,
        },
        seed,
        share(18),
    );
    assert!(
        crossed.flushes > 0 && crossed.compactions > 0,
        "{crossed:?}"
    );
    assert!(
        crossed.log_rotations > 0 && crossed.segments_recycled > 0,
        "{crossed:?}"
    );
    assert!(crossed.tables_removed > 0, "{crossed:?}");
}

#[test]
fn transactions_over_keys_and_graph_are_whole_after_any_crash() {
    let seed = Seed::from_env_or(12);
    let _guard = seed.print_on_failure("-p bowline --test crash transactions_over_keys_and_graph");
    let crossed = crash(
        Workload {
            name: "graph",
            durability: Durability::Sync,
            history: History::None,
            mix: &[
                (60, Action::Transaction),
                (8, Action::DeleteBlock),
                (10, Action::Put),
                (1, Action::Flush),
                (1, Action::Reopen),
            ],
            before: 150,
            recorded: 250,
        },
        seed,
        share(18),
    );
    assert!(
        crossed.flushes > 0 && crossed.compactions > 0,
        "{crossed:?}"
    );
    assert!(
        crossed.log_rotations > 0 && crossed.segments_recycled > 0,
        "{crossed:?}"
    );
}

#[test]
fn leases_and_their_keys_agree_after_any_crash() {
    let seed = Seed::from_env_or(13);
    let _guard = seed.print_on_failure("-p bowline --test crash leases_and_their_keys");
    let crossed = crash(
        Workload {
            name: "leases",
            durability: Durability::Sync,
            history: History::None,
            mix: &[
                (25, Action::Grant),
                (60, Action::PutLeased),
                (10, Action::Put),
                (8, Action::Delete),
                (10, Action::Revoke),
                (12, Action::Expire),
                (2, Action::Flush),
                (1, Action::Reopen),
            ],
            before: 100,
            recorded: 300,
        },
        seed,
        share(12),
    );
    assert!(
        crossed.flushes > 0 && crossed.log_rotations > 0,
        "{crossed:?}"
    );
}

#[test]
fn history_and_its_limits_survive_any_crash() {
    let seed = Seed::from_env_or(14);
    let _guard = seed.print_on_failure("-p bowline --test crash history_and_its_limits");
    let mix = &[
        (40, Action::Put),
        (20, Action::Transaction),
        (10, Action::Delete),
        (8, Action::PutLeased),
        (2, Action::Grant),
        (3, Action::Compact),
        (3, Action::Flush),
        (2, Action::CompactTables),
        (2, Action::Checkpoint),
    ];
    for (part, history) in [History::All, History::Revisions(20)]
        .into_iter()
        .enumerate()
    {
        let workload = Workload {
            name: "history",
            durability: Durability::Sync,
            history,
            mix,
            before: 100,
            recorded: 200,
        };
        let crossed = crash(workload, seed.part(part as u64), share(8));
        assert!(
            crossed.checkpoints > 0 && crossed.compactions > 0,
            "{crossed:?}"
        );
    }
}

#[test]
fn a_manifest_is_replaced_whole() {
    let seed = Seed::from_env_or(15);
    let _guard = seed.print_on_failure("-p bowline --test crash a_manifest_is_replaced_whole");
    let crossed = crash(
        Workload {
            name: "manifest",
            durability: Durability::Sync,
            history: History::None,
            mix: &[(4, Action::PutLongKey), (1, Action::Put)],
            before: 6,
            recorded: 24,
        },
        seed,
        share(6),
    );
    assert!(crossed.manifest_replacements > 0, "{crossed:?}");
}

#[test]
fn an_unfinished_creation_is_finished_by_the_next_opening() {
    let seed = Seed::from_env_or(16);
    let _guard = seed.print_on_failure("-p bowline --test crash an_unfinished_creation");
    let workload = Workload {
        name: "creation",
        durability: Durability::Sync,
        history: History::None,
        mix: &[(3, Action::Put), (1, Action::Reopen)],
        before: 0,
        recorded: 8,
    };
    crash(workload, seed, share(6));
}

/// Acknowledged commits may be lost, but only from the end, and none that came before a `sync`.
#[test]
fn batched_commits_are_lost_only_from_the_end() {
    let seed = Seed::from_env_or(17);
    let _guard = seed.print_on_failure("-p bowline --test crash batched_commits");
    let crossed = crash(
        Workload {
            name: "batched",
            durability: Durability::Batched {
                every: Duration::from_secs(3600),
            },
            history: History::None,
            mix: &[
                (50, Action::Put),
                (20, Action::Transaction),
                (10, Action::Delete),
                (10, Action::PutLeased),
                (4, Action::Grant),
                (4, Action::Expire),
                (8, Action::Sync),
                (3, Action::Compact),
                (1, Action::CompactTables),
                (2, Action::Reopen),
                (4, Action::Kill),
            ],
            before: 60,
            recorded: 300,
        },
        seed,
        share(12),
    );
    assert!(
        crossed.flushes > 0 && crossed.compactions > 0,
        "{crossed:?}"
    );
    assert!(crossed.log_rotations > 0, "{crossed:?}");
}

/// Without a sync in between, the log goes from segment to segment at nearly every commit.
#[test]
fn an_unsynced_log_is_lost_only_from_the_end_across_its_segments() {
    let seed = Seed::from_env_or(19);
    let _guard = seed.print_on_failure("-p bowline --test crash an_unsynced_log");
    let crossed = crash(
        Workload {
            name: "segments",
            durability: Durability::Batched {
                every: Duration::from_secs(3600),
            },
            history: History::None,
            mix: &[
                (8, Action::PutLarge),
                (8, Action::Put),
                (1, Action::Sync),
                (1, Action::Kill),
            ],
            before: 10,
            recorded: 60,
        },
        seed,
        share(6),
    );
    assert!(crossed.log_rotations > 10, "{crossed:?}");
}

/// Syncs fail at some moment of many short runs. A commit that was acknowledged is never lost,
/// after the first that was not nothing is accepted any more, and reading goes on.
#[test]
fn nothing_is_acknowledged_after_a_failed_sync() {
    let seed = Seed::from_env_or(18);
    let _guard = seed.print_on_failure("-p bowline --test crash nothing_is_acknowledged");
    let workload = Workload {
        name: "failed syncs",
        durability: Durability::Sync,
        history: History::None,
        mix: &[
            (40, Action::Put),
            (20, Action::Transaction),
            (5, Action::Delete),
            (5, Action::Flush),
            (2, Action::CompactTables),
        ],
        before: 40,
        recorded: 0,
    };
    const RUNS: u64 = 30;
    let (mut refused, mut happened, mut survived, mut images) = (0, 0, 0, 0);
    for part in 0..RUNS {
        let seed = seed.part(part);
        let mut rng = seed.rng();
        let mut run = Run::new(workload, seed.0);
        run.disk.fail_syncs_after(rng.u64(0..20), rng.u64(1..4));
        if rng.u8(0..3) == 0 {
            // With the log synced already, the syncs of tables and of the manifest come first.
            run.disk.fail_syncs_after(rng.u64(0..8), 1);
            drop(run.db().compact_tables());
        }
        let mut stopped = false;
        let mut before = (run.model.clone(), run.steps.len());
        for _ in 0..30 {
            before = (run.model.clone(), run.steps.len());
            let acknowledged = run.last().revision;
            let result = run.act();
            if let Err(error) = result {
                assert!(matches!(error, Error::Storage(_)), "{error}");
                stopped = run.steps.len() > before.1;
            }
            if stopped {
                refused += 1;
                verify_refusal(&run, acknowledged);
                break;
            }
        }
        let stayed = run.kill_after_failure(before);
        happened += u64::from(stopped && stayed);
        survived += u64::from(!stopped);
        // What the next process found must stay, though the sync of it had failed.
        for _ in 0..12 {
            run.act().expect("a new process writes again");
        }
        images += judge(&run, seed, (share(6) / RUNS).max(1)).0.images;
    }
    println!(
        "failed syncs: {images} images, {refused} runs refused (in {happened} of them the commit \
         had happened), {survived} survived"
    );
    assert!(happened > 0 && survived > 0);
}

/// Reads go on at the last acknowledged revision; writes do not, however often they are tried.
fn verify_refusal(run: &Run, acknowledged: u64) {
    let db = run.db();
    assert_eq!(db.revision(), acknowledged);
    let found = Contents::of_snapshot(&db.snapshot()).expect("reading goes on");
    assert_eq!(
        found.difference(&Contents::of_model(&run.model, acknowledged)),
        None
    );
    for _ in 0..3 {
        let error = db
            .put("late", "")
            .expect_err("no write is accepted after a failure");
        assert!(
            matches!(
                error,
                Error::Storage(bowline::StorageError::Poisoned { .. })
            ),
            "{error}"
        );
        db.delete("k00").expect_err("nor a delete");
        db.transact(|tx| tx.put("late", ""))
            .expect_err("nor a transaction");
    }
    assert_eq!(db.get("late").expect("reading goes on"), None);
    assert_eq!(db.revision(), acknowledged);
}
