//! Sizes at and beyond the limits: each has an error of its own, and raised ones hold.

use bowline::{Block, BlockId, Db, Edge, Error, Expected, Limits, Result, Revision};

use crate::support::{Disk, assert_error, manual};

#[test]
fn keys_are_limited_to_64_kib() -> Result<()> {
    let db = Disk::new().open(manual());
    let lease = db.grant_lease(std::time::Duration::from_secs(100))?;
    let (longest, too_long) = (vec![b'k'; 65_536], vec![b'k'; 65_537]);
    db.put(&longest, "v")?;
    db.put_with_lease(&longest, "v", lease)?;
    db.flush()?;
    assert_eq!(
        db.lease_keys(lease)?.collect::<Result<Vec<_>>>()?,
        [&longest[..]]
    );
    let refuse = |result: Result<()>| {
        assert_error!(
            result,
            Error::KeyTooLarge {
                size: 65_537,
                limit: 65_536
            }
        );
    };
    refuse(db.put(&too_long, "v").map(drop));
    refuse(db.put_with_lease(&too_long, "v", lease).map(drop));
    refuse(db.delete(&too_long).map(drop));
    refuse(
        db.compare_and_swap(&too_long, Expected::Absent, "v")
            .map(drop),
    );
    refuse(db.history(&too_long).map(drop));
    let mut tx = db.begin();
    refuse(tx.put(&too_long, "v"));
    refuse(tx.delete(&too_long).map(drop));
    refuse(tx.compare_and_swap(&too_long, Expected::Absent, "v"));
    refuse(tx.expect(&too_long, Expected::Absent));
    drop(tx);
    assert_eq!(db.get(&too_long)?, None, "reading it is no harm");
    assert_eq!(db.revoke_lease(lease)?, 1);
    assert_eq!(db.range(..)?.count(), 0);
    Ok(())
}

#[test]
fn values_and_blocks_are_limited() -> Result<()> {
    let limits = Limits {
        value_size_max_bytes: 1_000,
        ..Limits::default()
    };
    let db = Disk::new().open(manual().limits(limits));
    db.put("k", [0; 1_000])?;
    assert_error!(
        db.put("k", [0; 1_001]),
        Error::ValueTooLarge {
            size: 1_001,
            limit: 1_000
        }
    );
    let swap = db.compare_and_swap("k", Expected::Revision(Revision::new(2)), [0; 1_001]);
    assert_error!(
        swap,
        Error::ValueTooLarge {
            size: 1_001,
            limit: 1_000
        }
    );
    let id = BlockId(1);
    let mut tx = db.begin();
    assert_error!(tx.put("k", [0; 1_001]), Error::ValueTooLarge { .. });
    let block = Block::new(id, "kind").content(vec![0; 1_000]);
    assert_error!(
        tx.put_block(&block),
        Error::ValueTooLarge { limit: 1_000, .. }
    );
    tx.put_block(&Block::new(id, "kind").content(vec![0; 900]))?;
    let edge = Edge::new(id, "to", id).attribute("long", "x".repeat(1_000));
    assert_error!(
        tx.put_edge(&edge),
        Error::ValueTooLarge { limit: 1_000, .. }
    );
    tx.commit()?;
    assert_eq!(db.snapshot().graph().edge(id, "to", id)?, None);
    Ok(())
}

#[test]
fn raised_limits_hold_what_they_promise() -> Result<()> {
    let limits = Limits {
        key_size_max_bytes: 1 << 20,
        ..Limits::default()
    };
    let disk = Disk::new();
    let db = disk.open(manual().limits(limits));
    let key = vec![b'k'; 1 << 20];
    let lease = db.grant_lease(std::time::Duration::from_secs(100))?;
    db.put_with_lease(&key, "v", lease)?;
    db.compact()?;
    db.put("small", "v")?;
    drop(db);
    let db = disk.open(manual().limits(limits));
    assert_eq!(db.get(&key)?.as_deref(), Some(&b"v"[..]));
    assert_eq!(db.range(..)?.rev().count(), 2);
    assert!(db.check()?.is_clean());
    Ok(())
}

/// A limit that the storage cannot hold must be refused as such, not break the database.
#[test]
fn limits_beyond_what_storage_can_hold_do_no_harm() -> Result<()> {
    let limits = Limits {
        key_size_max_bytes: u64::MAX,
        value_size_max_bytes: u64::MAX,
        transaction_size_max_bytes: u64::MAX,
    };
    let db = Db::builder()
        .background(bowline::Background::Manual)
        .limits(limits)
        .durability(bowline::Durability::Memory)
        .open("memory")?;
    db.put("before", "v")?;
    // Longer than a key in a memtable can be.
    let result = db.put(vec![0; (64 << 20) + 1], "v");
    if result.is_err() {
        assert_error!(result, Error::KeyTooLarge { .. });
    }
    db.put("after", "v")?;
    assert!(db.get("before")?.is_some());
    Ok(())
}
