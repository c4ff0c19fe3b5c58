//! A full disk: writes are refused, reads go on, and when space is back everything does. And a disk
//! that fails: what was acknowledged is there after a reopening.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bowline::vfs::MemoryVfs;
use bowline::{Db, DbBuilder, Error, Result, StorageError};
use bowline_testing::FaultVfs;
use bowline_testing::fault::{Call, Failure, Rule};

use crate::support::{TIMEOUT, assert_error, contents, manual};

fn small() -> DbBuilder {
    manual()
        .memtable_bytes(64 << 10)
        .log_segment_bytes(64 << 10)
}

fn open(disk: &FaultVfs, builder: DbBuilder) -> Result<Db> {
    builder.vfs(Arc::new(disk.clone())).open("/db")
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Writes until it is refused; what was acknowledged goes into the model.
fn write_until_refused(db: &Db, model: &mut Model, tag: &str) -> Error {
    let mut random = fastrand::Rng::with_seed(7);
    for at in 0..3_000u32 {
        // Not to be compressed, or the disk would never be full.
        let (key, mut value) = (format!("{tag}{at:05}"), vec![0; 900]);
        random.fill(&mut value);
        match db.put(&key, &value) {
            Ok(_) => drop(model.insert(key.into(), value)),
            Err(error) => return error,
        }
    }
    panic!("nothing was refused");
}

fn assert_holds(db: &Db, model: &Model) {
    let expected: Vec<_> = model.clone().into_iter().collect();
    assert!(
        contents(&db.snapshot()) == expected,
        "something was lost or added"
    );
}

#[test]
fn a_full_disk_refuses_writes_and_nothing_else() -> Result<()> {
    // At different fill levels different files are the first that cannot grow.
    for space_bytes in (0..600_000).step_by(37_000) {
        let disk = FaultVfs::new(MemoryVfs::default());
        let db = open(&disk, small())?;
        let mut model = Model::new();
        for at in 0..50u32 {
            db.put(format!("early{at}"), [1; 500])?;
            model.insert(format!("early{at}").into(), vec![1; 500]);
        }
        disk.limit_space(space_bytes);
        let error = write_until_refused(&db, &mut model, "a");
        assert_error!(
            Err::<(), _>(error.clone()),
            Error::Storage(StorageError::NoSpace { .. })
        );
        assert!(error.is_retryable());
        // Reads go on, and so do attempts to write.
        let revision = db.revision();
        for at in 0..20 {
            assert_holds(&db, &model);
            if let Err(error) = db.put(format!("refused{at}"), vec![0; 100_000]) {
                assert_error!(
                    Err::<(), _>(error),
                    Error::Storage(StorageError::NoSpace { .. })
                );
            } else {
                model.insert(format!("refused{at}").into(), vec![0; 100_000]);
            }
        }
        assert!(db.revision() >= revision);
        // Flush and merge may fail for lack of space; they lose nothing.
        for result in [db.flush(), db.compact()] {
            if let Err(error) = result {
                assert_error!(
                    Err::<(), _>(error),
                    Error::Storage(StorageError::NoSpace { .. })
                );
            }
        }
        assert_holds(&db, &model);
        // Space is back: the same handle works on.
        disk.lift_space_limit();
        for at in 0..200u32 {
            db.put(format!("late{at}"), [2; 900])?;
            model.insert(format!("late{at}").into(), vec![2; 900]);
        }
        db.compact()?;
        assert_holds(&db, &model);
        let check = db.check()?;
        assert!(check.is_clean(), "space {space_bytes}: {check:?}");
        drop(db);
        let db = open(&disk, small())?;
        assert_holds(&db, &model);
        assert!(db.check()?.is_clean());
    }
    Ok(())
}

/// A process that ends on a full disk, and the next one that still finds it full.
#[test]
fn a_full_disk_at_reopening_loses_nothing() -> Result<()> {
    for space_bytes in [0, 10_000, 90_000, 300_000] {
        let disk = FaultVfs::new(MemoryVfs::default());
        let db = open(&disk, small())?;
        let mut model = Model::new();
        disk.limit_space(200_000 + space_bytes);
        write_until_refused(&db, &mut model, "a");
        drop(db);
        match open(&disk, small()) {
            Ok(db) => assert_holds(&db, &model),
            Err(Error::Storage(StorageError::NoSpace { .. })) => {}
            Err(error) => panic!("another error: {error:?}"),
        }
        disk.lift_space_limit();
        let db = open(&disk, small())?;
        assert_holds(&db, &model);
        db.put("more", "x")?;
        assert!(db.check()?.is_clean());
    }
    Ok(())
}

/// With the background threads: writers that have to wait for a flush are told of the full disk,
/// instead of waiting for ever, and go on by themselves when space is back.
#[test]
fn a_full_disk_does_not_hang_writers() -> Result<()> {
    let disk = FaultVfs::new(MemoryVfs::default());
    let settings = Db::builder()
        .memtable_bytes(64 << 10)
        .log_segment_bytes(64 << 10);
    let db = open(&disk, settings.clone())?;
    let mut model = Model::new();
    disk.limit_space(700_000);
    let start = Instant::now();
    let error = write_until_refused(&db, &mut model, "a");
    assert_error!(
        Err::<(), _>(error),
        Error::Storage(StorageError::NoSpace { .. })
    );
    assert!(start.elapsed() < TIMEOUT, "{:?}", start.elapsed());
    assert_holds(&db, &model);
    disk.lift_space_limit();
    // A writer that has to wait for the flush that failed makes it try again.
    for at in 0..500u32 {
        let (key, value) = (format!("late{at}"), vec![2; 900]);
        db.put(&key, &value)?;
        model.insert(key.into(), value);
    }
    assert_holds(&db, &model);
    drop(db);
    assert_holds(&open(&disk, settings)?, &model);
    Ok(())
}

/// After a failed flush of the log nothing is acknowledged any more, and reads never show what was
/// refused; a reopening finds everything that was acknowledged.
#[test]
fn a_failed_sync_stops_writes_until_reopened() -> Result<()> {
    for nth in 1..12 {
        let disk = FaultVfs::new(MemoryVfs::default());
        let db = open(&disk, small())?;
        let mut model = Model::new();
        disk.add(
            Rule::on(Call::Sync)
                .nth(nth)
                .path("/log/")
                .fail(Failure::Io),
        );
        let mut watcher = db.watch(..).start()?;
        let error = write_until_refused(&db, &mut model, "a");
        assert_eq!(disk.injected().len(), 1);
        // When a sync of upkeep failed, the next write is the first to be told.
        assert_error!(
            Err::<(), _>(error),
            Error::Storage(StorageError::Io { .. } | StorageError::Poisoned { .. })
        );
        assert_holds(&db, &model);
        let revision = db.revision();
        for _ in 0..3 {
            assert_error!(
                db.put("k", "v"),
                Error::Storage(StorageError::Poisoned { .. })
            );
            let refused = db.transact(|tx| tx.put("k", "v"));
            assert_error!(refused, Error::Storage(StorageError::Poisoned { .. }));
        }
        assert_eq!(db.revision(), revision);
        assert_holds(&db, &model);
        let mut seen = 0;
        while watcher.try_recv()?.is_some() {
            seen += 1;
        }
        assert_eq!(
            seen,
            model.len(),
            "a watch tells what was acknowledged, no more"
        );
        drop((watcher, db));
        let db = open(&disk, small())?;
        let found = contents(&db.snapshot());
        let lost = model
            .iter()
            .any(|(key, value)| !found.contains(&(key.clone(), value.clone())));
        assert!(!lost, "sync {nth}: an acknowledged write is gone");
        assert!(
            found.len() <= model.len() + 1,
            "at most the refused one is there as well"
        );
        db.put("k", "v")?;
        assert!(db.check()?.is_clean());
    }
    Ok(())
}

/// Every write call in turn fails once; whatever the database then says, it must hold.
#[test]
fn any_failed_write_call_loses_nothing() -> Result<()> {
    let run = |disk: &FaultVfs| -> (Model, usize) {
        let mut model = Model::new();
        let mut refused = 0;
        let Ok(db) = open(disk, small()) else {
            return (model, 1);
        };
        for at in 0..120u32 {
            let (key, value) = (format!("k{:03}", at * 7 % 50), vec![at as u8; 1_500]);
            match db.put(&key, &value) {
                Ok(_) => drop(model.insert(key.into(), value)),
                Err(_) => refused += 1,
            }
            if at % 50 == 49 {
                // Failures of upkeep are not the user's.
                let _unimportant = db.compact();
            }
        }
        (model, refused)
    };
    let disk = FaultVfs::new(MemoryVfs::default());
    run(&disk);
    let calls = disk.counts().changes();
    assert!(calls > 100, "{calls}");
    for nth in (1..=calls).step_by(3) {
        for failure in [Failure::Io, Failure::NoSpace] {
            let disk = FaultVfs::new(MemoryVfs::default());
            disk.add(Rule::on_changes().nth(nth).fail(failure));
            let (model, refused) = run(&disk);
            disk.clear();
            let context = format!("{failure:?} at {nth}: {:?}", disk.injected());
            let db = open(&disk, small()).unwrap_or_else(|error| panic!("{context}: {error}"));
            let found: Model = contents(&db.snapshot()).into_iter().collect();
            if refused == 0 {
                assert!(found == model, "{context}");
            }
            for (key, value) in &model {
                // A refused put of the same key may have reached the disk after all.
                let is_right = found
                    .get(key)
                    .is_some_and(|other| other == value || refused > 0);
                assert!(is_right, "{context}: {}", String::from_utf8_lossy(key));
            }
            db.put("k", "v")
                .unwrap_or_else(|error| panic!("{context}: {error}"));
            let check = db.check()?;
            assert!(check.is_clean(), "{context}: {check:?}");
        }
    }
    Ok(())
}
