//! A directory that is opened to be read: as it is, beside its owner, and unchanged.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bowline::{CompactionOptions, Db, Error, History, Result, StorageError};

use crate::support::assert_error;

/// Every file below a directory, with its bytes.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).expect("a listing") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => left.push(path),
                false => {
                    let bytes = std::fs::read(&path).expect("a file");
                    found.insert(path.display().to_string(), bytes);
                }
            }
        }
    }
    found
}

#[test]
fn a_reader_beside_the_owner_sees_what_was_acknowledged_and_changes_nothing() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("data");
    let builder = Db::builder().history(History::All);
    let db = builder.clone().open(&path)?;
    db.put("k", "1")?;
    db.flush()?;
    let second = db.put("k", "2")?;
    // Nothing else writes from here on.
    let before = files(&path);
    let reader = builder.open_read_only(&path)?;
    assert_eq!(reader.get("k")?.as_deref(), Some(&b"2"[..]));
    assert_eq!(reader.revision(), second);
    let old = reader.snapshot_at(second - 1)?;
    assert_eq!(old.get("k")?.as_deref(), Some(&b"1"[..]));
    assert_eq!(files(&path), before);
    db.put("k", "3")?;
    assert_eq!(
        reader.get("k")?.as_deref(),
        Some(&b"2"[..]),
        "the moment it was opened"
    );
    let later = builder.open_read_only(&path)?;
    assert_eq!(later.get("k")?.as_deref(), Some(&b"3"[..]));
    db.close()?;
    drop(db);
    // Also where nobody has it open, and recovery would write.
    let before = files(&path);
    let reader = builder.open_read_only(&path)?;
    assert_eq!(reader.get("k")?.as_deref(), Some(&b"3"[..]));
    drop(reader);
    assert_eq!(files(&path), before);
    Ok(())
}

/// The owner flushes, merges and removes files all the time. Each reader finds one state, which has every commit that was
/// acknowledged before it was opened.
#[test]
fn readers_beside_a_busy_owner_find_one_state_each() -> Result<()> {
    const READERS: u32 = 40;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("data");
    let builder = Db::builder()
        .memtable_bytes(64 << 10)
        .log_segment_bytes(256 << 10)
        .compaction(CompactionOptions {
            threads: 1,
            ..CompactionOptions::default()
        });
    let db = builder.clone().open(&path)?;
    db.put("a", "0")?;
    db.put("b", "0")?;
    let (acknowledged, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| -> Result<()> {
        let writer = scope.spawn(|| -> Result<()> {
            for number in 1.. {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                let text = number.to_string();
                db.transact(|tx| {
                    tx.put("a", &text)?;
                    tx.put(format!("row/{number:06}"), vec![b'x'; 900])?;
                    tx.put("b", &text)
                })?;
                acknowledged.store(number, Ordering::Release);
            }
            Ok(())
        });
        let read = || -> Result<()> {
            let deadline = Instant::now() + Duration::from_secs(60);
            let mut opened = 0;
            while opened < READERS {
                assert!(Instant::now() < deadline, "{opened} readers in a minute");
                let least = acknowledged.load(Ordering::Acquire);
                let reader = match builder.open_read_only(&path) {
                    Ok(reader) => reader,
                    // As documented: the owner was too quick.
                    Err(Error::Storage(error)) if error.is_corruption() => continue,
                    Err(error) => return Err(error),
                };
                opened += 1;
                let number = |key: &str| -> Result<u64> {
                    let value = reader.get(key)?.expect("it is there");
                    Ok(String::from_utf8_lossy(&value).parse().expect("a number"))
                };
                let (a, b) = (number("a")?, number("b")?);
                assert_eq!(a, b, "half of a transaction");
                assert!(a >= least, "{least} was acknowledged, and {a} is seen");
                let rows = reader
                    .range("row/".."row0")?
                    .try_fold(0, |rows, row| row.map(|_| rows + 1));
                assert_eq!(rows?, a, "a row for each, whatever the owner removes");
            }
            Ok(())
        };
        let found = read();
        is_done.store(true, Ordering::Relaxed);
        writer.join().expect("no panic")?;
        found
    })
}

#[test]
fn what_is_no_database_is_refused_and_not_made_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let none = directory.path().join("none");
    assert_error!(
        Db::builder().open_read_only(&none),
        Error::Storage(StorageError::NotADatabase { .. })
    );
    assert!(!none.exists());
    assert_error!(
        Db::builder().open_read_only(directory.path()),
        Error::Storage(StorageError::NotADatabase { .. })
    );
    assert!(files(directory.path()).is_empty());
}

#[test]
fn a_lease_that_has_expired_is_ended_for_the_reader_only() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("data");
    let clock = bowline_testing::ManualClock::new();
    let builder = Db::builder()
        .background(bowline::Background::Manual)
        .clock(std::sync::Arc::new(clock.clone()));
    let db = builder.clone().open(&path)?;
    let lease = db.grant_lease(Duration::from_secs(10))?;
    db.put_with_lease("k", "v", lease)?;
    assert!(builder.open_read_only(&path)?.get("k")?.is_some());
    clock.advance(Duration::from_secs(11));
    assert_eq!(builder.open_read_only(&path)?.get("k")?, None);
    assert!(db.get("k")?.is_some(), "until its owner ends it");
    Ok(())
}
