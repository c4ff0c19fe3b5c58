//! Maintenance: checkpoints, `check`, statistics, and the files of a directory.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bowline::vfs::{OsVfs, Vfs};
use bowline::{
    Block, BlockId, Db, Edge, Error, History, Result, Revision, StorageError, check_files,
};

use crate::support::{Disk, Stage, assert_error, contents, manual, number};

#[test]
fn a_checkpoint_is_a_database_of_its_own() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (path, copy) = (dir.path().join("db"), dir.path().join("copy"));
    let db = Db::builder().history(History::All).open(&path)?;
    let lease = db.grant_lease(Duration::from_secs(1000))?;
    db.put("k", "1")?;
    db.put_with_lease("leased", "v", lease)?;
    db.delete("k")?;
    db.put("k", "2")?;
    db.transact(|tx| {
        tx.put_block(&Block::new(BlockId(1), "node"))?;
        tx.put_edge(&Edge::new(BlockId(1), "to", BlockId(1)))
    })?;
    let revision = db.checkpoint(&copy)?;
    assert_eq!(revision, 6);
    db.put("k", "only in the first")?;
    assert!(check_files(&copy)?.is_clean());

    let twin = Db::builder().history(History::All).open(&copy)?;
    assert_eq!((twin.revision(), twin.id()), (Revision::new(6), db.id()));
    assert_eq!(twin.get("k")?.as_deref(), Some(&b"2"[..]));
    assert_eq!(
        twin.entry("k")?,
        db.snapshot_at(Revision::new(6))?.entry("k")?
    );
    assert_eq!(twin.history("k")?.len(), 3);
    assert_eq!(
        twin.snapshot_at(Revision::new(2))?.get("k")?.as_deref(),
        Some(&b"1"[..])
    );
    assert_eq!(
        twin.lease_keys(lease)?.collect::<Result<Vec<_>>>()?,
        [&b"leased"[..]]
    );
    assert_eq!(twin.stats().kinds, ["node", "to"]);
    let check = twin.check()?;
    assert!(check.is_clean() && check.edges == 1, "{check:?}");
    twin.put("k", "only in the copy")?;
    assert_eq!(db.get("k")?.as_deref(), Some(&b"only in the first"[..]));
    drop(twin);
    assert_eq!(
        Db::open(&copy)?.get("k")?.as_deref(),
        Some(&b"only in the copy"[..])
    );
    Ok(())
}

/// A checkpoint of a checkpoint, of an empty database, and of a reopened one.
#[test]
fn checkpoints_of_every_stage_are_equal() -> Result<()> {
    for stage in Stage::ALL {
        let disk = Disk::new();
        let db = disk.open(manual());
        for at in 0..500 {
            db.put(format!("k{at}"), at.to_string())?;
        }
        let db = stage.reach(db, &disk, manual())?;
        db.checkpoint("/copy")?;
        assert_error!(db.checkpoint("/copy"), Error::Storage(StorageError::Io { path, .. }) if path == Path::new("/copy"));
        assert!(db.check()?.is_clean());
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Db::open(dir.path().join("empty"))?;
    let mut at = dir.path().join("0");
    assert_eq!(db.checkpoint(&at)?, 1);
    for number in 1..4 {
        let db = Db::open(&at)?;
        db.put(number.to_string(), "x")?;
        at = dir.path().join(number.to_string());
        assert_eq!(db.checkpoint(&at)?, number + 1);
        assert_eq!(Db::open(&at)?.range(..)?.count() as u64, number);
    }
    Ok(())
}

#[test]
fn a_checkpoint_needs_an_empty_place() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Db::open(dir.path().join("db"))?;
    db.put("k", "v")?;
    let full = dir.path().join("full");
    std::fs::create_dir(&full).expect("a directory");
    std::fs::write(full.join("thesis.txt"), "years of work").expect("a file");
    assert_error!(db.checkpoint(&full), Error::Storage(StorageError::Io { path, .. }) if path == full);
    let names: Vec<_> = std::fs::read_dir(&full).expect("a directory").collect();
    assert_eq!(names.len(), 1, "nothing was written into it");
    assert_error!(
        db.checkpoint(full.join("thesis.txt")),
        Error::Storage(StorageError::Io { .. })
    );
    assert_error!(
        db.checkpoint(dir.path().join("no/parent")),
        Error::Storage(StorageError::Io { .. })
    );
    assert_error!(
        db.checkpoint(dir.path().join("db")),
        Error::Storage(StorageError::Io { .. })
    );
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).expect("a directory");
    assert_eq!(db.checkpoint(&empty)?, 2);
    assert_eq!(Db::open(&empty)?.get("k")?.as_deref(), Some(&b"v"[..]));
    Ok(())
}

/// Found by this test: a database in memory wrote its checkpoint into memory, too, and said that
/// all was well.
#[test]
fn a_database_in_memory_does_not_pretend_to_make_a_checkpoint() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let copy = dir.path().join("copy");
    let db = Db::in_memory()?;
    db.put("k", "v")?;
    assert_error!(db.checkpoint(&copy), Error::NotSupported { .. });
    assert!(!copy.exists());
    Ok(())
}

/// Each checkpoint that is made while others write equals the database at its revision.
#[test]
fn a_checkpoint_under_load_is_a_prefix() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let settings = || {
        Db::builder()
            .history(History::All)
            .memtable_bytes(256 << 10)
    };
    let db = settings().open(dir.path().join("db"))?;
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        for writer in 0..3u64 {
            let (db, is_done) = (&db, &is_done);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(writer);
                while !is_done.load(Ordering::Relaxed) {
                    let change = |tx: &mut bowline::Transaction| {
                        let sum = number(tx.get("sum")?);
                        let key = format!("k{}", random.u8(..40));
                        let old = number(tx.get(&key)?);
                        let new = random.u64(..1_000);
                        tx.put(&key, new.to_be_bytes())?;
                        tx.put("sum", (sum + new - old).to_be_bytes())
                    };
                    db.transact(change).expect("a commit");
                }
            });
        }
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                db.compact().expect("a merge");
            }
        });
        for number in 0..5 {
            thread::sleep(Duration::from_millis(60));
            let copy = dir.path().join(format!("copy{number}"));
            let before = db.revision();
            let revision = db.checkpoint(&copy)?;
            assert!((before..=db.revision()).contains(&revision));
        }
        is_done.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    for copy in 0..5 {
        let copy = settings().open(dir.path().join(format!("copy{copy}")))?;
        let revision = copy.revision();
        let original = db.snapshot_at(revision)?;
        assert!(
            contents(&copy.snapshot()) == contents(&original),
            "revision {revision}"
        );
        let snapshot = copy.snapshot();
        let parts: Result<Vec<_>> = snapshot.range("k".."l")?.collect();
        let total: u64 = parts?
            .into_iter()
            .map(|entry| number(Some(entry.value)))
            .sum();
        assert_eq!(total, number(snapshot.get("sum")?));
        assert!(copy.check()?.is_clean());
    }
    Ok(())
}

/// A table of another database under the name of one of this: each file is whole, and yet they do not
/// belong together.
#[test]
fn a_file_of_another_database_is_found() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let make = |name: &str, key: &str| -> Result<_> {
        let path = dir.path().join(name);
        let db = manual().open(&path)?;
        db.put(key, "v")?;
        db.flush()?;
        db.close()?;
        let table = std::fs::read_dir(path.join("tables"))
            .expect("a directory")
            .next();
        Ok((path, table.expect("a table").expect("an entry").path()))
    };
    let (path, table) = make("one", "this")?;
    let (_, foreign) = make("two", "that")?;
    assert_eq!(table.file_name(), foreign.file_name());
    std::fs::copy(&foreign, &table).expect("a copy");
    let is_found = !check_files(&path)?.is_clean();
    let opened = Db::open(&path).and_then(|db| db.get("k"));
    assert!(
        is_found && opened.is_err(),
        "found: {is_found}, read: {opened:?}"
    );
    Ok(())
}

#[test]
fn a_check_counts_what_it_saw() -> Result<()> {
    let db = Disk::new().open(manual());
    db.put("k", "v")?;
    db.put("l", "v")?;
    db.delete("l")?;
    db.transact(|tx| {
        tx.put_block(&Block::new(BlockId(1), "node"))?;
        tx.put_block(&Block::new(BlockId(2), "node"))?;
        tx.put_edge(&Edge::new(BlockId(1), "to", BlockId(2)))
    })?;
    for _ in 0..2 {
        let check = db.check()?;
        assert!(check.is_clean(), "{check:?}");
        assert_eq!((check.keys, check.blocks, check.edges), (1, 2, 1));
        db.compact()?;
    }
    assert!(
        db.check()?
            .files
            .files
            .iter()
            .any(|file| file.summary.contains("entries"))
    );
    Ok(())
}

#[test]
fn statistics_tell_what_was_done() -> Result<()> {
    let db = Disk::new().open(manual());
    let value = vec![b'x'; 1_000];
    for at in 0..1_000 {
        db.put(format!("k{at:03}"), &value)?;
    }
    let stats = db.stats();
    let counters = &stats.engine.counters;
    assert_eq!(
        (stats.revision, stats.oldest_revision),
        (Revision::new(1_001), Revision::new(1))
    );
    assert_eq!((counters.commits, counters.commit_rounds), (1_000, 1_000));
    assert!(counters.log_syncs >= 1_000, "{counters:?}");
    let user_bytes = counters.user_bytes_written;
    assert!((1_004_000..1_030_000).contains(&user_bytes), "{user_bytes}");
    assert!(counters.log_bytes_written > user_bytes);
    assert_eq!((counters.flushes, stats.engine.table_bytes), (0, 0));
    assert!(stats.engine.memtable_bytes >= user_bytes);

    db.flush()?;
    let stats = db.stats().engine;
    assert_eq!(stats.counters.flushes, 1);
    assert_eq!(stats.table_bytes, stats.counters.flush_bytes_written);
    assert!(stats.table_bytes > 0 && stats.memtable_bytes < user_bytes);
    let entries: u64 = stats
        .levels
        .iter()
        .flatten()
        .map(|level| level.entries)
        .sum();
    assert_eq!(entries, 1_000);

    db.delete_range(..)?;
    db.compact()?;
    let stats = db.stats().engine;
    assert!(
        stats.counters.compactions >= 1 && stats.counters.compaction_bytes_read > 0,
        "{stats:?}"
    );
    let before = stats.counters.filter_negatives + stats.counters.cache_misses;
    db.put("k5005", "x")?;
    db.flush()?;
    assert_eq!(db.get("k5004")?, None);
    let counters = db.stats().engine.counters;
    assert!(counters.filter_negatives + counters.cache_misses >= before);
    let names: Vec<_> = counters.named().into_iter().map(|(name, _)| name).collect();
    assert!(names.contains(&"log_syncs") && names.contains(&"throttle_ms"));
    Ok(())
}

#[test]
fn deleted_data_gives_its_space_back() -> Result<()> {
    let db = Disk::new().open(manual());
    let mut value = vec![0; 10_000];
    for at in 0..500u32 {
        fastrand::Rng::with_seed(at.into()).fill(&mut value);
        db.put(at.to_be_bytes(), &value)?;
    }
    db.compact()?;
    let stats = db.stats().engine;
    assert!(stats.blob_bytes > 5_000_000 && stats.table_bytes < 100_000);
    db.delete_range(..)?;
    db.compact()?;
    db.put("one", "x")?;
    db.compact()?;
    let stats = db.stats().engine;
    assert!(stats.table_bytes < 50_000, "{}", stats.table_bytes);
    assert_eq!((stats.blob_bytes, stats.blob_files), (0, 0));
    Ok(())
}

fn disk_usage(path: &Path) -> u64 {
    let mut bytes = 0;
    for name in OsVfs.read_dir(path).expect("a directory") {
        let path = path.join(name);
        let found = OsVfs
            .metadata(&path)
            .expect("readable")
            .expect("it is there");
        bytes += if found.is_dir {
            disk_usage(&path)
        } else {
            found.allocated
        };
    }
    bytes
}

#[test]
fn a_data_directory_is_private_and_small_when_empty() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("db");
    for round in 0..3 {
        let db = Db::open(&path)?;
        assert_eq!(db.range(..)?.count(), 0);
        db.close()?;
        drop(db);
        let usage = disk_usage(&path);
        assert!(
            usage <= 100 << 10,
            "{usage} bytes after opening {}",
            round + 1
        );
    }
    let mode = |path: &Path| {
        std::fs::metadata(path)
            .expect("it is there")
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode(&path), 0o700);
    let mut rest = vec![path];
    while let Some(dir) = rest.pop() {
        for entry in std::fs::read_dir(&dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            assert_eq!(mode(&path) & 0o077, 0, "{path:?} is open to others");
            if path.is_dir() {
                rest.push(path);
            }
        }
    }
    Ok(())
}

/// Directories of before files were private, or copied by other tools, open as ever; what is made in them is
/// private.
#[test]
fn a_directory_that_others_may_read_still_opens() -> Result<()> {
    use std::fs::{Permissions, set_permissions};
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("db");
    let db = Db::open(&path)?;
    db.put("k", "v")?;
    db.close()?;
    let files = |path: &Path| -> Vec<std::path::PathBuf> {
        let names = ["", "log", "tables"].map(|name| path.join(name));
        let entries = names
            .iter()
            .map(|dir| std::fs::read_dir(dir).expect("a directory"));
        entries
            .flatten()
            .map(|entry| entry.expect("an entry").path())
            .collect()
    };
    let before = files(&path);
    for file in &before {
        let mode = if file.is_dir() { 0o755 } else { 0o644 };
        set_permissions(file, Permissions::from_mode(mode)).expect("set");
    }
    set_permissions(&path, Permissions::from_mode(0o755)).expect("set");
    let db = Db::open(&path)?;
    assert!(db.get("k")?.is_some());
    db.put("more", "v")?;
    db.flush()?;
    db.close()?;
    let made: Vec<_> = files(&path)
        .into_iter()
        .filter(|file| !before.contains(file))
        .collect();
    assert!(made.len() >= 2, "{made:?}");
    for file in made {
        let mode = std::fs::metadata(&file)
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o077, 0, "{file:?}");
    }
    Ok(())
}

#[test]
fn a_database_in_memory_leaves_no_files() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("db");
    let db = Db::builder()
        .durability(bowline::Durability::Memory)
        .open(&path)?;
    for at in 0..1_000 {
        db.put(format!("k{at}"), vec![0; 1_000])?;
    }
    db.compact()?;
    assert_eq!(db.range(..)?.count(), 1_000);
    assert!(db.check()?.is_clean());
    drop(db);
    assert!(!path.exists());
    Ok(())
}

#[test]
fn every_durability_survives_a_clean_close() -> Result<()> {
    let every = Duration::from_millis(1);
    for durability in [
        bowline::Durability::Sync,
        bowline::Durability::Batched { every },
    ] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("db");
        let settings = || Db::builder().durability(durability);
        for round in 0..5 {
            let db = settings().open(&path)?;
            assert_eq!(db.range(..)?.count(), round * 50, "{durability:?}");
            for at in 0..50 {
                db.put(format!("{round}/{at}"), "v")?;
            }
            if round % 2 == 0 {
                db.sync()?;
            }
        }
    }
    Ok(())
}
