//! Crash tests: after a power loss at any point, with any of the unsynced operations lost or
//! torn, the database opens and is at a prefix of its commit order that holds every acknowledged
//! commit, transactions whole.
//!
//! A workload runs on a [`SimDisk`](bowline_testing::SimDisk) with everything small, so that a few
//! hundred commits rotate and recycle the log, flush, merge and edit the manifest; at the end each
//! test asserts that they did. Then images of the crashes are tried: at every point, and a sample
//! of what may be lost there. Each is opened with the shipped code: see [`verify`]. Of some, the
//! recovery is crashed again, up to three deep, by power losses and by kills.
//!
//! | variable | what |
//! |---|---|
//! | `BOWLINE_CRASH_IMAGES` | how many images all tests together try (default 24,000); more than that are rounds of other workloads |
//! | `BOWLINE_SEED` | the seed |
//! | `BOWLINE_CRASH_IMAGE` | the one image to try, as a failure names it |
//!
//! `--nocapture` shows what was covered and what was not, in one table at the end: see [`ledger`].

#[path = "../support/mod.rs"]
mod support;

mod damaged;
mod ledger;
mod places;
mod updates;
mod verify;
mod workload;

use std::time::Duration;

use bowline::{Background, BlobOptions, Durability, Error, History, Revision};
use bowline_testing::crash::{ImageId, ImageKind};
use bowline_testing::disk::Recording;
use bowline_testing::{CrashImage, Images, Seed};

use places::Places;
use support::Contents;
use verify::Verifier;
use workload::{Action, Crossed, Run, Workload};

/// The images of all tests together, unless the environment says otherwise.
const IMAGES_DEFAULT: u64 = 24_000;

/// A place with fewer crashes than this gets some more.
const RARE: u64 = 40;

/// One test: its name, the part of the images for each of its workloads, and its seed.
struct Test {
    name: &'static str,
    percent: u64,
    seed: Seed,
    fresh: Option<Seed>,
}

/// The images of all tests together.
fn images_wanted() -> u64 {
    match std::env::var("BOWLINE_CRASH_IMAGES") {
        Ok(text) => text.parse().expect("BOWLINE_CRASH_IMAGES must be a number"),
        Err(_) => IMAGES_DEFAULT,
    }
}

/// The one image to try: the label of its run, and its name.
fn only_image() -> Option<(String, ImageId)> {
    let text = std::env::var("BOWLINE_CRASH_IMAGE").ok()?;
    let (label, id) = text
        .split_once('/')
        .expect("BOWLINE_CRASH_IMAGE must be like keys/pair:1234");
    let id = id.parse().unwrap_or_else(|why| panic!("{why}"));
    Some((label.to_owned(), id))
}

impl Test {
    fn new(name: &'static str, percent: u64, seed: u64) -> Test {
        Test {
            name,
            percent,
            seed: Seed::from_env_or(seed),
            fresh: Seed::fresh(&format!("-p bowline --test crash {name}")),
        }
    }

    /// Says how to repeat the test when it fails.
    fn guard(&self) -> impl Drop + use<> {
        let (seed, name) = (self.seed, self.name);
        seed.print_on_failure(Box::leak(format!("-p bowline --test crash {name}").into()))
    }

    fn images(&self, of: u64) -> u64 {
        (of * self.percent).div_ceil(100)
    }

    /// Whether the ordinary number of images, or more, are tried: what such a run must cover is
    /// asserted only then.
    fn is_ordinary(&self) -> bool {
        images_wanted() >= IMAGES_DEFAULT && only_image().is_none()
    }

    /// The seed and the number of images of each round. No round is much larger than an ordinary
    /// run, so that memory stays bounded and a long run sees other workloads.
    fn rounds(&self) -> impl Iterator<Item = (Seed, u64)> + use<> {
        let (wanted, ordinary) = (self.images(images_wanted()), self.images(IMAGES_DEFAULT));
        let rounds = match only_image() {
            Some(_) => 1,
            None => wanted.div_ceil(ordinary).max(1),
        };
        let seed = self.seed;
        let fixed = (0..rounds).map(move |round| {
            let seed = if round == 0 {
                seed
            } else {
                seed.part(1000 + round)
            };
            (seed, wanted.div_ceil(rounds))
        });
        // A tenth more is new in each run.
        let fresh = self.fresh.filter(|_| only_image().is_none());
        fixed.chain(fresh.map(|seed| (seed, wanted.div_ceil(10))))
    }

    /// Runs a workload, then judges images of its crashes, in each round.
    fn crash(&self, workload: Workload) -> Crossed {
        let mut first = None;
        for (seed, images) in self.rounds() {
            let mut run = Run::new(workload, seed.part(workload.part).0);
            run.work();
            let crossed = run.crossed();
            self.judge(&run, workload.name, seed, images);
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
            first.get_or_insert(crossed);
        }
        first.expect("there is a first round")
    }

    /// Judges images of a run. `seed` is that of the round. In the ordinary run every prefix must
    /// have been tried, and a crash at each place that `expected.txt` lists.
    fn judge(&self, run: &Run, label: &str, seed: Seed, images: u64) {
        let recording = run.disk.recording();
        let mut verifier = Verifier::new(run, seed.0);
        if let Some((only, id)) = only_image() {
            if only == label {
                let image = Images::one(&recording, seed.0, id).expect("the run has such an image");
                self.verify(&mut verifier, label, seed, &image, &recording);
                println!("{label}/{id}: {image}: all is well");
            }
            return;
        }
        // A tenth goes to the places that the even sample has hardly met.
        let mut sample = Images::sample(&recording, seed.0, images - images / 10);
        for image in &mut sample {
            self.verify(&mut verifier, label, seed, &image, &recording);
        }
        let coverage = sample.coverage();
        let rare = verifier.rare_points(RARE);
        let mut rest = Images::sample_at(&recording, &rare, seed.0, images / 10);
        for image in &mut rest {
            self.verify(&mut verifier, label, seed, &image, &recording);
        }
        println!(
            "{label}: {coverage}; {} more at rare places",
            rest.coverage().total_tried()
        );
        ledger::add(
            &coverage,
            rest.coverage(),
            &verifier.tried,
            &verifier.places,
        );
        if self.is_ordinary() && Some(seed) != self.fresh && Places::are_listed(label) {
            let (tried, points) = (
                coverage.tried(ImageKind::Prefix),
                recording.len() as u64 + 1,
            );
            assert_eq!(tried, points, "{label}: not every prefix was tried");
            // The list is that of the ordinary workload; other seeds make others.
            if seed == self.seed && std::env::var_os("BOWLINE_SEED").is_none() {
                let missing = verifier.places.missing(label);
                assert!(
                    missing.is_empty(),
                    "{label} was not crashed at {missing:#?}"
                );
            }
        }
    }

    fn verify(
        &self,
        verifier: &mut Verifier<'_>,
        label: &str,
        seed: Seed,
        image: &CrashImage,
        recording: &Recording,
    ) {
        if let Err(why) = verifier.verify(image) {
            self.fail(label, seed, image, recording, &why);
        }
    }

    fn fail(
        &self,
        label: &str,
        seed: Seed,
        image: &CrashImage,
        recording: &Recording,
        why: &str,
    ) -> ! {
        let id = image.id().map_or_else(String::new, |id| id.to_string());
        let from = image.point().saturating_sub(12);
        for index in from..(image.point() + 2).min(recording.len()) {
            eprintln!("{}", recording.describe(index));
        }
        panic!(
            "{label}, {image}: {why}\nthis image only: BOWLINE_SEED={} \
             BOWLINE_CRASH_IMAGES={} BOWLINE_CRASH_IMAGE={label}/{id} cargo test -p bowline \
             --test crash {}",
            seed.0,
            images_wanted().min(IMAGES_DEFAULT),
            self.name
        );
    }
}

const BATCHED: Durability = Durability::Batched {
    every: Duration::from_secs(3600),
};

#[test]
fn keys_survive_any_crash() {
    let _entered = ledger::enter();
    let test = Test::new("keys_survive_any_crash", 14, 11);
    let _guard = test.guard();
    let crossed = test.crash(Workload {
        name: "keys",
        mix: &[
            (50, Action::Put),
            (4, Action::PutLarge),
            (15, Action::Delete),
            (4, Action::DeleteRange),
            (6, Action::Swap),
            (6, Action::Update),
            (1, Action::CompactTables),
            (1, Action::Reopen),
            (1, Action::Kill),
        ],
        recorded: 400,
        ..Workload::default()
    });
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

/// Most values in blob files, which are cut early and emptied often.
#[test]
fn large_values_survive_any_crash() {
    let _entered = ledger::enter();
    let test = Test::new("large_values_survive_any_crash", 6, 31);
    let _guard = test.guard();
    let crossed = test.crash(Workload {
        name: "blobs",
        mix: &[
            (50, Action::Put),
            (4, Action::PutLarge),
            (8, Action::Delete),
            (20, Action::Transaction),
            (3, Action::Flush),
            (2, Action::CompactTables),
            (1, Action::Checkpoint),
            (1, Action::Reopen),
            (1, Action::Kill),
        ],
        before: 100,
        recorded: 250,
        blobs: Some(BlobOptions {
            threshold_bytes: Some(64),
            garbage_percent_max: 20,
            file_bytes: 2 << 10,
        }),
        ..Workload::default()
    });
    assert!(
        crossed.flushes > 0 && crossed.compactions > 0,
        "{crossed:?}"
    );
    assert!(crossed.blobs_removed > 0, "{crossed:?}");
}

#[test]
fn transactions_over_keys_and_graph_are_whole_after_any_crash() {
    let _entered = ledger::enter();
    let test = Test::new("transactions_over_keys_and_graph", 14, 12);
    let _guard = test.guard();
    let crossed = test.crash(Workload {
        name: "graph",
        mix: &[
            (60, Action::Transaction),
            (8, Action::DeleteBlock),
            (10, Action::Put),
            (1, Action::Flush),
            (1, Action::Reopen),
            (1, Action::Kill),
        ],
        before: 150,
        recorded: 130,
        ..Workload::default()
    });
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
    let _entered = ledger::enter();
    let test = Test::new("leases_and_their_keys", 9, 13);
    let _guard = test.guard();
    let crossed = test.crash(Workload {
        name: "leases",
        mix: &[
            (25, Action::Grant),
            (50, Action::PutLeased),
            (10, Action::UpdateLeased),
            (10, Action::Put),
            (8, Action::Delete),
            (10, Action::Revoke),
            (12, Action::Expire),
            (2, Action::Flush),
            (1, Action::Reopen),
            (2, Action::Kill),
        ],
        before: 100,
        recorded: 300,
        ..Workload::default()
    });
    assert!(
        crossed.flushes > 0 && crossed.log_rotations > 0,
        "{crossed:?}"
    );
}

#[test]
fn history_and_its_limits_survive_any_crash() {
    let _entered = ledger::enter();
    let test = Test::new("history_and_its_limits", 10, 14);
    let _guard = test.guard();
    let parts = [
        ("history-all", History::All),
        ("history-20", History::Revisions(20)),
    ];
    for (part, (name, history)) in parts.into_iter().enumerate() {
        let workload = Workload {
            name,
            part: part as u64,
            history,
            mix: &[
                (40, Action::Put),
                (20, Action::Transaction),
                (10, Action::Delete),
                (8, Action::PutLeased),
                (2, Action::Grant),
                (4, Action::Compact),
                (3, Action::Flush),
                (2, Action::CompactTables),
                (3, Action::Checkpoint),
                (1, Action::Kill),
            ],
            before: 100,
            recorded: 110,
            ..Workload::default()
        };
        let crossed = test.crash(workload);
        assert!(
            crossed.checkpoints > 0 && crossed.compactions > 0,
            "{crossed:?}"
        );
    }
}

#[test]
fn a_manifest_is_replaced_whole() {
    let _entered = ledger::enter();
    let test = Test::new("a_manifest_is_replaced_whole", 7, 15);
    let _guard = test.guard();
    let crossed = test.crash(Workload {
        name: "manifest",
        mix: &[
            (16, Action::PutLongKey),
            (4, Action::Put),
            (1, Action::Kill),
        ],
        before: 6,
        recorded: 24,
        ..Workload::default()
    });
    assert!(crossed.manifest_replacements > 0, "{crossed:?}");
}

#[test]
fn an_unfinished_creation_is_finished_by_the_next_opening() {
    let _entered = ledger::enter();
    let test = Test::new("an_unfinished_creation", 4, 16);
    let _guard = test.guard();
    let workload = Workload {
        name: "creation",
        mix: &[(3, Action::Put), (1, Action::Reopen)],
        recorded: 8,
        ..Workload::default()
    };
    test.crash(workload);
}

/// Acknowledged commits may be lost, but only from the end, and none that came before a `sync`.
#[test]
fn batched_commits_are_lost_only_from_the_end() {
    let _entered = ledger::enter();
    let test = Test::new("batched_commits", 11, 17);
    let _guard = test.guard();
    let crossed = test.crash(Workload {
        name: "batched",
        durability: BATCHED,
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
        recorded: 200,
        ..Workload::default()
    });
    assert!(
        crossed.flushes > 0 && crossed.compactions > 0,
        "{crossed:?}"
    );
    assert!(crossed.log_rotations > 0, "{crossed:?}");
}

/// Without a sync in between, the log goes from segment to segment at nearly every commit.
#[test]
fn an_unsynced_log_is_lost_only_from_the_end_across_its_segments() {
    let _entered = ledger::enter();
    let test = Test::new("an_unsynced_log", 6, 19);
    let _guard = test.guard();
    let crossed = test.crash(Workload {
        name: "segments",
        durability: BATCHED,
        mix: &[
            (8, Action::PutLarge),
            (8, Action::Put),
            (1, Action::Sync),
            (2, Action::Kill),
        ],
        before: 10,
        recorded: 60,
        ..Workload::default()
    });
    assert!(crossed.log_rotations > 10, "{crossed:?}");
}

/// Commits of several threads share a commit group, one write and one flush: all of a group is there
/// or a beginning of it, each transaction whole. Meanwhile another thread flushes and merges, first
/// by itself, then beside the database's own threads.
#[test]
fn groups_of_several_writers_survive_any_crash() {
    let _entered = ledger::enter();
    let test = Test::new("groups_of_several_writers", 5, 20);
    let _guard = test.guard();
    let parts = [
        ("writers", Background::Manual, Durability::Sync),
        ("threads", Background::Threads, Durability::Sync),
    ];
    for (part, (name, background, durability)) in parts.into_iter().enumerate() {
        for (seed, images) in test.rounds() {
            let workload = Workload {
                name,
                background,
                durability,
                mix: &[(1, Action::Put)],
                before: 20,
                recorded: 200,
                ..Workload::default()
            };
            let mut run = Run::new(workload, seed.part(part as u64).0);
            run.work_at_once(4);
            let crossed = run.crossed();
            test.judge(&run, name, seed, images);
            println!("{name}: {crossed:?}");
            assert!(
                crossed.flushes > 0 && crossed.compactions > 0,
                "{crossed:?}"
            );
        }
    }
}

/// A power loss during a checkpoint left its directory without `BOWLINE`, and with no tables in
/// it yet, or not even their directory: opening took that for the creation of a database that was
/// cut off, finished it, and showed an empty database where a copy was expected. Whatever is
/// there of a copy, it opens whole or is refused.
#[test]
fn an_unfinished_checkpoint_is_refused() {
    let seed = Seed::from_env_or(21);
    let _guard = seed.print_on_failure("-p bowline --test crash an_unfinished_checkpoint");
    let workload = Workload {
        name: "checkpoint",
        mix: &[(1, Action::Put)],
        before: 30,
        ..Workload::default()
    };
    let run = Run::new(workload, seed.0);
    let (begun_at, revision) = (run.disk.point(), run.db().revision());
    run.db().checkpoint("copy").expect("the disk is sound");
    let (mut whole, mut refused) = (0, 0);
    for image in Images::sample_from(&run.disk.recording(), begun_at, seed.0, 400) {
        let disk = image.build();
        let paths = disk.paths();
        if !paths.iter().any(|path| path.starts_with("copy/")) {
            continue;
        }
        let is_whole = paths.iter().any(|path| path == "copy/BOWLINE");
        let opened = support::small_database(&disk, &run.clock).open("copy");
        match opened {
            Ok(db) if is_whole => {
                assert_eq!(db.revision(), revision, "{image}");
                whole += 1;
            }
            Err(_) if !is_whole => refused += 1,
            Ok(db) => panic!("{image}: it opened at revision {}", db.revision()),
            Err(error) => panic!("{image}: {error}"),
        }
    }
    assert!(
        whole > 0 && refused > 100,
        "{whole} whole, {refused} refused"
    );
}

/// What is ingested is there as a whole, at its revision and with all before it, or nothing of it is;
/// and no revision is given twice.
#[test]
fn an_ingestion_is_there_as_a_whole_or_not_at_all() {
    let _entered = ledger::enter();
    let test = Test::new("an_ingestion_is_there", 4, 22);
    let _guard = test.guard();
    let crossed = test.crash(Workload {
        name: "ingestion",
        mix: &[
            (20, Action::Ingest),
            (20, Action::Put),
            (8, Action::PutLeased),
            (4, Action::Grant),
            (3, Action::Expire),
            (6, Action::Delete),
            (2, Action::Flush),
            (1, Action::CompactTables),
            (1, Action::Checkpoint),
            (2, Action::Reopen),
            (3, Action::Kill),
        ],
        before: 30,
        recorded: 90,
        ..Workload::default()
    });
    assert!(
        crossed.flushes > 0 && crossed.compactions > 0 && crossed.tables_removed > 0,
        "{crossed:?}"
    );
}

/// Syncs fail at some moment of many short runs. A commit that was acknowledged is never lost,
/// after the first that was not nothing is accepted any more, and reading goes on.
#[test]
fn nothing_is_acknowledged_after_a_failed_sync() {
    let _entered = ledger::enter();
    let test = Test::new("nothing_is_acknowledged", 5, 18);
    let _guard = test.guard();
    let workload = Workload {
        name: "failed-syncs",
        mix: &[
            (40, Action::Put),
            (20, Action::Transaction),
            (5, Action::Delete),
            (5, Action::Flush),
            (2, Action::CompactTables),
        ],
        before: 40,
        ..Workload::default()
    };
    const RUNS: u64 = 30;
    for (round, images) in test.rounds() {
        let (mut refused, mut happened, mut survived) = (0, 0, 0);
        for part in 0..RUNS {
            let seed = round.part(part);
            let mut rng = seed.rng();
            let mut run = Run::new(workload, seed.0);
            if rng.u8(0..4) == 0 {
                run.disk
                    .fail_directory_syncs_after(rng.u64(0..4), rng.u64(1..3));
            } else {
                run.disk.fail_syncs_after(rng.u64(0..20), rng.u64(1..4));
            }
            if rng.u8(0..3) == 0 {
                // With the log synced already, the syncs of tables and of the manifest come first.
                run.disk.fail_syncs_after(rng.u64(0..8), 1);
                drop(run.db().compact());
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
                    verify_refusal(&run, acknowledged.get());
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
            let label = format!("failed-syncs-{part}");
            test.judge(&run, &label, round, (images / RUNS).max(1));
        }
        println!(
            "failed syncs: {refused} runs refused (in {happened} of them the commit had \
             happened), {survived} survived"
        );
        assert!(happened > 0 && survived > 0);
    }
}

/// Reads go on at the last acknowledged revision; writes do not, however often they are tried.
fn verify_refusal(run: &Run, acknowledged: u64) {
    let db = run.db();
    assert_eq!(db.revision(), acknowledged);
    let found = Contents::of_snapshot(&db.snapshot()).expect("reading goes on");
    assert_eq!(
        found.difference(&Contents::of_model(&run.model, Revision::new(acknowledged))),
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
