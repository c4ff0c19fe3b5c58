//! A full disk refuses what needs space; reads, deletions and compaction go on, and make room.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bowline::vfs::Vfs;
use bowline::{Background, Block, BlockId, Db, DbBuilder, Durability, Edge, Error, StorageError};
use bowline_storage::version::{Edit, Identity, Layout, Manifest, State};
use bowline_testing::fault::{Call, Failure, Rule, Traced};
use bowline_testing::lease_id;
use bowline_testing::{FaultVfs, SimDisk};

/// What takes longer hangs.
const TIMEOUT: Duration = Duration::from_secs(60);

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn settings(background: Background) -> DbBuilder {
    Db::builder()
        .background(background)
        .memtable_bytes(64 << 10)
        .log_segment_bytes(64 << 10)
}

fn open(vfs: &FaultVfs, background: Background) -> Result<Db, Error> {
    settings(background).vfs(Arc::new(vfs.clone())).open("db")
}

fn is_no_space(error: &Error) -> bool {
    matches!(error, Error::Storage(StorageError::NoSpace { .. }))
}

/// Writes what does not compress until it is refused.
fn fill(db: &Db, model: &mut Model) {
    let mut random = fastrand::Rng::with_seed(7);
    for at in 0..5_000 {
        let (key, mut value) = (format!("k{at:05}"), vec![0; 900]);
        random.fill(&mut value);
        match db.put(&key, &value) {
            Ok(_) => drop(model.insert(key.into(), value)),
            Err(error) => {
                assert!(is_no_space(&error) && error.is_retryable(), "{error}");
                return;
            }
        }
    }
    panic!("nothing was refused");
}

fn assert_holds(db: &Db, model: &Model) {
    let snapshot = db.snapshot();
    let found = snapshot.range(..).expect("a range").map(|entry| {
        let entry = entry.expect("an entry");
        (entry.key.to_vec(), entry.value.to_vec())
    });
    assert!(found.eq(model.clone()), "something was lost or added");
}

/// Deletes the oldest keys until none is left, merging now and then; what was deleted before a
/// power loss stays deleted.
fn delete_all(db: &Db, model: &mut Model) {
    let mut in_a_row = 0;
    while let Some((key, _)) = model.first_key_value() {
        let key = key.clone();
        match db.delete(&key) {
            Ok(revision) => {
                assert!(revision.is_some());
                model.remove(&key);
                in_a_row += 1;
            }
            Err(error) => {
                assert!(is_no_space(&error), "{error}");
                assert!(in_a_row > 0, "stuck with {} keys", model.len());
                in_a_row = 0;
                // A merge needs room for what remains of what it merges.
                if let Err(error) = db.compact() {
                    assert!(is_no_space(&error), "{error}");
                }
            }
        }
    }
}

#[test]
fn deletions_and_compaction_go_on_and_give_space_back() {
    for background in [Background::Manual, Background::Threads] {
        for space_bytes in [60_000, 150_000, 410_000] {
            let disk = SimDisk::new();
            let vfs = FaultVfs::new(disk.clone());
            let db = open(&vfs, background).expect("it opens");
            let mut model = Model::new();
            // The thread takes the reserve in when the database has been open for a second.
            let deadline = Instant::now() + TIMEOUT;
            while !disk.paths().iter().any(|path| path.contains("ballast")) {
                assert!(Instant::now() < deadline, "no reserve was taken in");
                std::thread::sleep(Duration::from_millis(5));
            }
            vfs.limit_space(space_bytes);
            fill(&db, &mut model);
            assert_holds(&db, &model);
            // The last byte is gone, too.
            vfs.limit_space(0);
            for key in model.keys().take(12).cloned().collect::<Vec<_>>() {
                db.delete(&key).expect("a deletion on a full disk");
                model.remove(&key);
            }
            // None of it was acknowledged before it was flushed.
            let survivor = FaultVfs::new(disk.after_power_loss());
            let after = open(&survivor, Background::Manual).expect("it opens");
            assert_holds(&after, &model);
            drop(after);
            if background == Background::Threads {
                // How far it goes from here depends on what the thread of the log takes first.
                vfs.lift_space_limit();
            }
            delete_all(&db, &mut model);
            db.compact().expect("compaction goes on");
            let left_bytes = vfs.space_left_bytes().unwrap_or(0);
            println!("{background:?}, {space_bytes} bytes filled: {left_bytes} bytes came back");
            // Without a byte from outside.
            for at in 0..20 {
                db.put(format!("new{at}"), [1; 500]).expect("there is room");
                model.insert(format!("new{at}").into(), vec![1; 500]);
            }
            assert_holds(&db, &model);
            assert!(db.check().expect("a check").is_clean());
            drop(db);
            assert_holds(&open(&vfs, background).expect("it opens"), &model);
        }
    }
}

/// Blocks, edges and leases, and a delete that comes with a put in the same commit group.
#[test]
fn every_kind_of_deletion_goes_on() {
    let vfs = FaultVfs::new(SimDisk::new());
    let db = open(&vfs, Background::Manual).expect("it opens");
    for id in 1..=4 {
        db.transact(|tx| {
            tx.put_block(&Block::new(BlockId(id), "host"))?;
            tx.put_edge(&Edge::new(BlockId(id), "calls", BlockId(1)))
        })
        .expect("a block and an edge");
    }
    db.grant_lease_with_id(lease_id(5), Duration::from_secs(60))
        .expect("a lease");
    db.put_with_lease("leased", "v", lease_id(5))
        .expect("a put");
    let mut model = Model::new();
    vfs.limit_space(100_000);
    fill(&db, &mut model);
    vfs.limit_space(0);
    // What is small still finds some room, up to the part that is kept for deletions.
    let grants = std::iter::repeat_with(|| db.grant_lease(Duration::from_secs(1)));
    let refused = grants.take(2_000).find_map(Result::err);
    assert!(refused.is_some_and(|error| is_no_space(&error)));
    assert_eq!(db.revoke_lease(lease_id(5)).expect("a revocation"), 1);
    db.transact(|tx| tx.delete_edge(BlockId(2), "calls", BlockId(1)).map(drop))
        .expect("an edge goes");
    db.transact(|tx| tx.delete_block(BlockId(3)).map(drop))
        .expect("a block goes, with its edge");
    assert_eq!(db.delete_range("k00000".."k00010").expect("a range"), 10);
    assert!(db.check().expect("a check").is_clean());
}

/// Those who delete are not refused for those who put in the same commit group.
#[test]
fn deletions_are_not_refused_with_the_puts_they_come_with() {
    let vfs = FaultVfs::new(SimDisk::new());
    let db = open(&vfs, Background::Manual).expect("it opens");
    let mut model = Model::new();
    vfs.limit_space(100_000);
    fill(&db, &mut model);
    vfs.limit_space(0);
    let keys: Vec<_> = model.keys().take(64).cloned().collect();
    let (db_handle, deleting) = (&db, &AtomicUsize::new(4));
    std::thread::scope(|scope| {
        for part in keys.chunks(16) {
            scope.spawn(move || {
                let deleted = part
                    .iter()
                    .try_for_each(|key| db_handle.delete(key).map(drop));
                deleting.fetch_sub(1, Ordering::Relaxed);
                deleted.expect("deletions");
            });
            scope.spawn(move || {
                while deleting.load(Ordering::Relaxed) > 0 {
                    // What the others free may be enough for some.
                    if let Err(error) = db_handle.put("k", [0; 2_000]) {
                        assert!(is_no_space(&error), "{error}");
                    }
                }
            });
        }
    });
    for key in &keys {
        model.remove(key);
    }
    if let Some(value) = db.get("k").expect("a read") {
        model.insert(b"k".to_vec(), value.to_vec());
    }
    assert_holds(&db, &model);
}

/// A database whose last flush could remove none of the segments of the log that it made superfluous.
fn with_released_segments() -> (SimDisk, FaultVfs, Db, Model) {
    let disk = SimDisk::new();
    let vfs = FaultVfs::new(disk.clone());
    let db = settings(Background::Manual)
        .memtable_bytes(4 << 20)
        .vfs(Arc::new(vfs.clone()))
        .open("db")
        .expect("it opens");
    let mut model = Model::new();
    let mut random = fastrand::Rng::with_seed(11);
    for at in 0..500 {
        let (key, mut value) = (format!("k{at:05}"), vec![0; 900]);
        random.fill(&mut value);
        db.put(&key, &value).expect("a put");
        model.insert(key.into(), value);
    }
    for call in [Call::Remove, Call::Rename] {
        vfs.add(Rule::on(call).path("log/").for_ever().fail(Failure::Io));
    }
    db.flush().expect("the tables are written");
    vfs.clear();
    assert!(segments(&disk) > 5, "{:?}", disk.paths());
    (disk, vfs, db, model)
}

/// How many segments of the log there are, whether it needs them or not.
fn segments(disk: &SimDisk) -> usize {
    let paths = disk.paths();
    let names = paths.iter().filter_map(|path| path.split_once("log/"));
    let is_segment = |name: &str| name.starts_with(|first: char| first.is_ascii_hexdigit());
    names.filter(|(_, name)| is_segment(name)).count()
}

/// The reserve of the disk is not given up for it.
#[test]
fn a_flush_on_a_full_disk_takes_the_room_of_released_segments() {
    let (disk, vfs, db, mut model) = with_released_segments();
    db.put("small", "v").expect("a put");
    model.insert(b"small".to_vec(), b"v".to_vec());
    let before = segments(&disk);
    vfs.limit_space(0);
    vfs.start_trace();
    db.flush().expect("a flush");
    assert!(segments(&disk) < before, "{:?}", disk.paths());
    let is_given_up = |traced: &Traced| {
        let of_it = |path: &std::path::PathBuf| path.ends_with("spare-ballast.tmp");
        traced.call == Call::Remove && traced.paths.iter().any(of_it)
    };
    assert!(!vfs.trace().iter().any(is_given_up), "the reserve is gone");
    vfs.lift_space_limit();
    assert_holds(&db, &model);
    assert!(db.check().expect("a check").is_clean());
}

/// Else they would stay until the first flush, which in a small database may be long.
#[test]
fn an_opening_removes_what_the_life_before_had_given_up() {
    let (disk, vfs, db, model) = with_released_segments();
    std::mem::forget(db);
    disk.kill();
    let db = open(&vfs, Background::Manual).expect("it opens");
    assert!(segments(&disk) <= 3, "{:?}", disk.paths());
    assert_holds(&db, &model);
    assert!(db.check().expect("a check").is_clean());
}

/// The next process still finds the disk full, whether the one before was closed or killed.
#[test]
fn a_full_disk_at_reopening_lets_read_and_delete() {
    for is_killed in [false, true] {
        for space_bytes in [100_000, 310_000, 700_000] {
            let disk = SimDisk::new();
            let vfs = FaultVfs::new(disk.clone());
            let db = open(&vfs, Background::Manual).expect("it opens");
            let mut model = Model::new();
            vfs.limit_space(space_bytes);
            fill(&db, &mut model);
            vfs.limit_space(0);
            if is_killed {
                std::mem::forget(db);
                disk.kill();
            } else {
                db.close().expect("it closes");
                drop(db);
            }
            let context = format!("killed: {is_killed}, {space_bytes} bytes");
            let db =
                open(&vfs, Background::Manual).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_holds(&db, &model);
            // A smaller segment of the log, and what of it is kept for this.
            for key in model.keys().take(8).cloned().collect::<Vec<_>>() {
                db.delete(&key)
                    .unwrap_or_else(|error| panic!("{context}: {error}"));
                model.remove(&key);
            }
            assert_holds(&db, &model);
            vfs.lift_space_limit();
            db.put("new", "v").expect("there is room");
            db.compact().expect("compaction goes on");
            assert!(db.check().expect("a check").is_clean());
        }
    }
}

/// Whoever comes when space is back does not get yesterday's error.
#[test]
fn the_first_writer_after_space_is_back_succeeds() {
    for _ in 0..3 {
        let vfs = FaultVfs::new(SimDisk::new());
        let db = open(&vfs, Background::Threads).expect("it opens");
        let mut model = Model::new();
        vfs.limit_space(700_000);
        fill(&db, &mut model);
        let start = Instant::now();
        // A merge that ends meanwhile may give room to one or the other.
        let (mut refused, mut taken) = (0, 0);
        while refused < 3 {
            let key = format!("more{taken}");
            match db.put(&key, [0; 60_000]) {
                Ok(_) => {
                    model.insert(key.into(), vec![0; 60_000]);
                    taken += 1;
                    assert!(taken < 12, "more than the disk holds");
                }
                Err(error) => {
                    assert!(is_no_space(&error), "{error}");
                    refused += 1;
                }
            }
        }
        vfs.lift_space_limit();
        for at in 0..200 {
            db.put(format!("late{at}"), [2; 900])
                .expect("there is space");
            model.insert(format!("late{at}").into(), vec![2; 900]);
        }
        assert!(start.elapsed() < TIMEOUT);
        assert_holds(&db, &model);
    }
}

/// With commits flushed by a thread, too.
#[test]
fn batched_commits_meet_a_full_disk_in_the_same_way() {
    let disk = SimDisk::new();
    let vfs = FaultVfs::new(disk.clone());
    let every = Duration::from_millis(1);
    let db = settings(Background::Threads)
        .durability(Durability::Batched { every })
        .vfs(Arc::new(vfs.clone()))
        .open("db")
        .expect("it opens");
    let mut model = Model::new();
    vfs.limit_space(300_000);
    fill(&db, &mut model);
    for key in model.keys().take(12) {
        db.delete(key).expect("a deletion on a full disk");
    }
    vfs.lift_space_limit();
    db.put("new", "v").expect("there is room");
    db.sync().expect("a sync");
    let survivor = FaultVfs::new(disk.after_power_loss());
    let after = open(&survivor, Background::Manual).expect("it opens");
    assert_eq!(
        after.get("new").expect("a read").as_deref(),
        Some(&b"v"[..])
    );
}

/// What a full disk took of a manifest's record stayed in the file: the next opening had to replace
/// the manifest, for which there might be no room.
#[test]
fn what_a_full_disk_took_of_a_manifests_record_is_cut_off() {
    let mut refused = 0;
    for space_bytes in 0..100 {
        let vfs = FaultVfs::new(SimDisk::new());
        vfs.create_dir(Path::new("db")).expect("a directory");
        let layout = Layout::new("db");
        let identity = Identity {
            database_id: 7,
            manifest: 1,
        };
        let manifest =
            Manifest::create(&vfs, &layout, &identity, &State::default(), Arc::default());
        let mut manifest = manifest.expect("a manifest");
        let edit = Edit {
            history_floor: Some(1 << 60),
            ..Edit::default()
        };
        vfs.limit_space(space_bytes);
        let result = manifest.append(&edit);
        let path = layout.manifest(1);
        let file = vfs
            .metadata(&path)
            .expect("metadata")
            .expect("the manifest");
        assert_eq!(
            file.len,
            manifest.size_bytes(),
            "{space_bytes} bytes of space"
        );
        if let Err(error) = result {
            assert!(matches!(error, StorageError::NoSpace { .. }), "{error}");
            refused += 1;
            vfs.lift_space_limit();
            manifest.append(&edit).expect("there is space");
        }
        let (state, position) = Manifest::read(&vfs, &layout, &identity).expect("it reads");
        assert_eq!(state.history_floor, 1 << 60);
        assert!(!position.torn);
    }
    assert!((10..100).contains(&refused), "{refused}");
}
