//! History: versions of a key, snapshots of old revisions, and trimming.

use std::collections::BTreeMap;

use bowline::{Db, Error, History, Result, Revision};

use crate::support::{Disk, assert_error, contents, entry, in_every_stage, keys_of, manual};

#[test]
fn history_tells_every_version_and_every_deletion() {
    in_every_stage(
        manual().history(History::All),
        |db| {
            db.put("k", "1")?; // 2
            db.put("other", "x")?; // 3
            db.put("k", "2")?; // 4
            db.flush()?;
            db.delete("k")?; // 5
            db.delete("k")?;
            db.put("k", "3") // 6
        },
        |db, _, stage| {
            let history: Vec<_> = db
                .history("k")?
                .into_iter()
                .map(|version| (version.revision.get(), version.entry))
                .collect();
            let expected = [
                (6, Some(entry("k", "3", 6, 6, 1))),
                (5, None),
                (4, Some(entry("k", "2", 2, 4, 2))),
                (2, Some(entry("k", "1", 2, 2, 1))),
            ];
            assert_eq!(history, expected, "{stage:?}");
            assert_eq!(db.history("never")?, [], "{stage:?}");
            assert_eq!(db.oldest_revision(), 1, "{stage:?}");
            Ok(())
        },
    );
}

#[test]
fn history_ends_with_what_a_reader_at_the_floor_sees() {
    in_every_stage(
        manual().history(History::All),
        |db| {
            for value in 0..10 {
                db.put("k", value.to_string())?; // 2..=11
            }
            db.delete("k")?; // 12
            db.put("other", "x")?; // 13
            db.trim_history(Revision::new(7))
        },
        |db, (), stage| {
            let revisions = |key| -> Result<Vec<_>> {
                Ok(db
                    .history(key)?
                    .iter()
                    .map(|version| version.revision.get())
                    .collect())
            };
            assert_eq!(revisions("k")?, [12, 11, 10, 9, 8, 7], "{stage:?}");
            db.trim_history(Revision::new(13))?;
            assert!(
                matches!(revisions("k")?[..], [12] | []),
                "{stage:?}: the tombstone may stay until a compaction"
            );
            Ok(())
        },
    );
}

/// Random writes; then every revision is read again and must be what it was.
#[test]
fn every_past_revision_reads_as_it_was() {
    for seed in crate::seeds(0x0ead_ba5e..0x0ead_ba5f) {
        let write = |db: &Db| -> Result<Vec<BTreeMap<Vec<u8>, Vec<u8>>>> {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut now = BTreeMap::new();
            // Index = revision; 0 is never read, 1 is empty.
            let mut states = vec![now.clone(), now.clone()];
            while states.len() < 120 {
                let mut tx = db.begin();
                for _ in 0..random.usize(1..4) {
                    let key = format!("k{}", random.u8(..14)).into_bytes();
                    if random.u8(..3) == 0 {
                        tx.delete(&key)?;
                        now.remove(&key);
                    } else {
                        let value = format!("{}", random.u64(..)).into_bytes();
                        tx.put(&key, &value)?;
                        now.insert(key, value);
                    }
                }
                if tx.commit()?.changed {
                    states.push(now.clone());
                }
                if states.len() % 40 == 0 {
                    db.flush()?;
                }
            }
            Ok(states)
        };
        in_every_stage(
            manual().history(History::All),
            write,
            |db, states, stage| {
                assert_eq!(db.revision(), states.len() as u64 - 1, "{stage:?}");
                for (revision, state) in states.iter().enumerate().skip(1) {
                    let snapshot = db.snapshot_at(Revision::new(revision as u64))?;
                    let expected: Vec<_> = state.clone().into_iter().collect();
                    assert_eq!(
                        contents(&snapshot),
                        expected,
                        "{stage:?}, revision {revision}"
                    );
                    let mut backwards = expected.clone();
                    backwards.reverse();
                    let found: Result<Vec<_>> = snapshot
                        .range(..)?
                        .rev()
                        .map(|e| e.map(|e| (e.key.to_vec(), e.value.to_vec())))
                        .collect();
                    assert_eq!(found?, backwards, "{stage:?}, revision {revision}");
                    for key in 0..15u8 {
                        let key = format!("k{key}").into_bytes();
                        let expected = state.get(&key).map(|value| &value[..]);
                        assert_eq!(
                            snapshot.get(&key)?.as_deref(),
                            expected,
                            "{stage:?} {revision}"
                        );
                    }
                }
                Ok(())
            },
        );
    }
}

#[test]
fn revisions_out_of_bounds_are_refused_with_the_bounds() {
    in_every_stage(
        manual().history(History::All),
        |db| {
            for value in 0..9 {
                db.put("k", value.to_string())?; // 2..=10
            }
            db.trim_history(Revision::new(5))
        },
        |db, (), stage| {
            assert_eq!(
                (db.oldest_revision(), db.revision()),
                (Revision::new(5), Revision::new(10)),
                "{stage:?}"
            );
            for gone in [0, 1, 4] {
                let refused = db.snapshot_at(Revision::new(gone));
                assert_error!(refused, Error::Compacted { requested, oldest, current } if oldest == 5 && current == 10 && requested == gone);
                let refused = db.trim_history(Revision::new(gone));
                assert_error!(refused, Error::Compacted { requested, oldest, current } if oldest == 5 && current == 10 && requested == gone);
                let text = db.snapshot_at(Revision::new(gone)).unwrap_err().to_string();
                for number in [gone, 5, 10] {
                    assert!(text.contains(&number.to_string()), "{text}");
                }
            }
            for future in [11, u64::MAX] {
                let refused = db.snapshot_at(Revision::new(future));
                assert_error!(refused, Error::FutureRevision { requested, current, oldest } if current == 10 && oldest == 5 && requested == future);
                let refused = db.trim_history(Revision::new(future));
                assert_error!(refused, Error::FutureRevision { requested, current, oldest } if current == 10 && oldest == 5 && requested == future);
            }
            for (revision, value) in [(5, "3"), (10, "8")] {
                let read = db.snapshot_at(Revision::new(revision))?.get("k")?;
                assert_eq!(read.as_deref(), Some(value.as_bytes()), "{stage:?}");
            }
            db.trim_history(Revision::new(5))?;
            db.trim_history(Revision::new(10))?;
            assert_eq!(db.oldest_revision(), 10);
            Ok(())
        },
    );
}

#[test]
fn a_snapshot_stays_readable_after_compact_and_merges() -> Result<()> {
    let disk = Disk::new();
    let db = disk.open(manual());
    db.put("k", "old")?;
    db.put("deleted", "old")?;
    let snapshot = db.snapshot();
    let twin = db.snapshot_at(snapshot.revision())?;
    db.put("k", "new")?;
    db.delete("deleted")?;
    db.put("later", "x")?;
    db.trim_history(db.revision())?;
    for _ in 0..3 {
        db.compact()?;
        for snapshot in [&snapshot, &twin, &snapshot.clone()] {
            assert_eq!(snapshot.get("k")?.as_deref(), Some(&b"old"[..]));
            assert_eq!(snapshot.get("deleted")?.as_deref(), Some(&b"old"[..]));
            assert_eq!(keys_of(snapshot.range(..)?)?, ["deleted", "k"]);
        }
        db.put("k", "newer")?;
    }
    let at = snapshot.revision();
    drop((snapshot, twin));
    db.compact()?;
    assert_error!(db.snapshot_at(at), Error::Compacted { .. });
    Ok(())
}

#[test]
fn history_is_kept_as_long_as_the_setting_says() -> Result<()> {
    use bowline_testing::ManualClock;
    use std::sync::Arc;
    use std::time::Duration;

    let db = Disk::new().open(manual().history(History::Revisions(5)));
    for value in 0..20 {
        db.put("k", value.to_string())?; // 2..=21
    }
    db.compact()?;
    assert_eq!(db.oldest_revision(), 16);
    for revision in 16..=21 {
        let read = db.snapshot_at(Revision::new(revision))?.get("k")?;
        assert_eq!(read.as_deref(), Some((revision - 2).to_string().as_bytes()));
    }
    assert_error!(db.snapshot_at(Revision::new(15)), Error::Compacted { oldest, .. } if oldest == 16);

    let clock = ManualClock::new();
    let settings = manual().history(History::Last(Duration::from_secs(10)));
    let db = Disk::new().open(settings.clock(Arc::new(clock.clone())));
    for value in 0..60 {
        db.put("k", value.to_string())?; // 2 at 1 s, 3 at 2 s, …
        clock.advance(Duration::from_secs(1));
        db.flush()?;
    }
    let oldest = db.oldest_revision();
    assert!(
        (40..=51).contains(&oldest.get()),
        "ten seconds are ten revisions here, not {oldest}"
    );
    for revision in (oldest.get()..=db.revision().get()).map(Revision::new) {
        let read = db.snapshot_at(revision)?.get("k")?;
        assert_eq!(read.as_deref(), Some((revision - 2).to_string().as_bytes()));
    }
    Ok(())
}
