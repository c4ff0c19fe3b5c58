//! Keys and values: reading, writing, ranges, metadata, revisions.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::time::Duration;

use bowline::{Db, Entry, Error, Expected, History, Range, Result, Revision, Value};

use crate::support::{Disk, Stage, assert_error, contents, entry, in_every_stage, keys_of, manual};

#[test]
fn a_new_database_is_empty_and_at_revision_1() -> Result<()> {
    let db = Disk::new().open(manual());
    assert_eq!(
        (db.revision(), db.oldest_revision()),
        (Revision::new(1), Revision::new(1))
    );
    assert_eq!(db.get("k")?, None);
    assert_eq!(db.entry("k")?, None);
    assert_eq!(db.history("k")?, []);
    assert_eq!(db.range(..)?.count(), 0);
    assert_eq!(db.range(..)?.rev().count(), 0);
    assert_eq!(db.put("k", "v")?, 2, "the first write takes revision 2");
    Ok(())
}

#[test]
fn each_changing_transaction_takes_exactly_the_next_revision() -> Result<()> {
    let db = Disk::new().open(manual());
    assert_eq!(db.put("a", "1")?, 2);
    assert_eq!(db.put("a", "1")?, 3, "the same value again is a change");
    assert_eq!(db.delete("a")?, Some(Revision::new(4)));
    assert_eq!(db.compare_and_swap("a", Expected::Absent, "2")?, 5);
    let mut tx = db.begin();
    for at in 0..100 {
        tx.put(format!("many/{at}"), "v")?;
    }
    tx.delete("a")?;
    let committed = tx.commit()?;
    assert_eq!(
        (committed.revision, committed.deleted, committed.changed),
        (Revision::new(6), 1, true)
    );
    assert_eq!(db.delete_range(Range::prefix("many/"))?, 100);
    assert_eq!(db.revision(), 7, "a hundred deletions are one transaction");
    Ok(())
}

#[test]
fn what_changes_nothing_takes_no_revision() -> Result<()> {
    let db = Disk::new().open(manual());
    db.put("a", "1")?;
    let before = db.revision();
    assert_eq!(db.delete("absent")?, None);
    assert_eq!(db.delete_range("x".."y")?, 0);
    let committed = db.begin().commit()?;
    assert_eq!((committed.revision, committed.changed), (before, false));
    let mut tx = db.begin();
    tx.put("new", "v")?;
    assert!(tx.delete("new")?, "it is there, for the transaction");
    assert!(!tx.delete("absent")?);
    let committed = tx.commit()?;
    assert_eq!(
        (committed.revision, committed.changed, committed.deleted),
        (before, false, 0)
    );
    let mut tx = db.begin();
    tx.expect("a", Expected::Revision(before))?;
    assert!(!tx.commit()?.changed);
    assert_eq!(db.revision(), before);
    assert_eq!(db.history("new")?, []);
    assert_eq!(db.put("b", "1")?, before + 1);
    Ok(())
}

#[test]
fn entries_carry_etcds_metadata() {
    in_every_stage(
        manual(),
        |db| {
            db.put("a", "1")?; // 2
            db.put("a", "2")?; // 3
            db.put("b", "1")?; // 4
            db.put("a", "3")?; // 5
            db.delete("b")?; // 6
            db.put("c", "1")?; // 7
            db.delete("c")?; // 8
            db.put("c", "2")?; // 9
            db.put("c", "3") // 10
        },
        |db, _, stage| {
            let (a, c) = (entry("a", "3", 2, 5, 3), entry("c", "3", 9, 10, 2));
            assert_eq!(db.entry("a")?, Some(a.clone()), "{stage:?}");
            assert_eq!(db.entry("b")?, None, "{stage:?}");
            assert_eq!(db.entry("c")?, Some(c.clone()), "{stage:?}");
            let all: Result<Vec<_>> = db.range(..)?.collect();
            assert_eq!(all?, [a, c], "{stage:?}: ranges carry the same metadata");
            // And they go on from there.
            db.put("a", "4")?;
            assert_eq!(db.entry("a")?, Some(entry("a", "4", 2, 11, 4)), "{stage:?}");
            db.put("b", "2")?;
            assert_eq!(
                db.entry("b")?,
                Some(entry("b", "2", 12, 12, 1)),
                "{stage:?}"
            );
            let mut tx = db.begin();
            tx.delete("a")?;
            tx.put("a", "5")?;
            tx.commit()?;
            assert_eq!(
                db.entry("a")?,
                Some(entry("a", "5", 2, 13, 5)),
                "{stage:?}: of two writes in one transaction the last counts"
            );
            Ok(())
        },
    );
}

/// Where a table would have to be read for it, a put does not look at what it writes over. What that
/// was is told all the same, by whoever reads, also while it is in several tables.
#[test]
fn metadata_that_no_put_looked_up_is_told_by_every_reader() -> Result<()> {
    let open = |disk: &Disk| disk.open(manual().history(History::All));
    let disk = Disk::new();
    let mut db = open(&disk);
    let mut expected: Vec<Entry> = Vec::new();
    let mut create_revision = 0;
    let mut snapshots = Vec::new();
    for round in 0..40_u64 {
        let version = expected.last().map_or(0, |last| last.version) + 1;
        let value = match round % 9 {
            // These are looked up, and then lie in a blob file.
            4 => vec![7; 3000],
            _ => round.to_be_bytes().to_vec(),
        };
        let revision = match round % 13 {
            6 => {
                let mut ingest = db.ingest()?;
                ingest.put("j", "")?;
                ingest.put("k", &value)?;
                ingest.commit()?.revision
            }
            _ => db.put("k", &value)?,
        };
        if create_revision == 0 {
            create_revision = revision.get();
        }
        expected.push(Entry {
            key: Value::copy_from(b"k"),
            value: Value::copy_from(&value),
            create_revision: Revision::new(create_revision),
            mod_revision: revision,
            version,
            lease: None,
        });
        snapshots.push(db.snapshot());
        match round % 6 {
            // Twice in one memtable, too.
            0 => {}
            5 if round % 4 == 1 => db.compact()?,
            _ => db.flush()?,
        }
        if round == 20 {
            snapshots.clear();
            db.close()?;
            db = open(&disk);
        }

        let last = expected.last().expect("there is one");
        assert_eq!(db.entry("k")?.as_ref(), Some(last));
        assert_eq!(db.begin().entry("k")?.as_ref(), Some(last));
        let ranged = db.range("k"..="k")?.collect::<Result<Vec<_>>>()?;
        assert_eq!(&ranged, std::slice::from_ref(last));
        let backward = db.range("k"..="k")?.rev().collect::<Result<Vec<_>>>()?;
        assert_eq!(&backward, std::slice::from_ref(last));
        for snapshot in &snapshots {
            let at = snapshot.revision();
            let found = snapshot.entry("k")?.expect("it is there");
            assert_eq!(
                expected.iter().rfind(|e| e.mod_revision <= at),
                Some(&found)
            );
        }
        let history = db.history("k")?;
        let told = history
            .into_iter()
            .rev()
            .filter_map(|version| version.entry);
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }
    let mut watcher = db.watch(Range::key("k")).from(Revision::new(2)).start()?;
    for entry in &expected {
        let changes = watcher.try_recv()?.expect("it is in history");
        assert_eq!(&changes.changes[0].entry, entry);
    }
    drop(watcher);
    // However often it is written in memory.
    db.flush()?;
    for put in 1..30 {
        db.put("k", "often")?;
        let entry = db.entry("k")?.expect("it is there");
        let last = expected.last().expect("there is one");
        assert_eq!(
            (entry.create_revision, entry.version),
            (Revision::new(create_revision), last.version + put)
        );
    }
    // A deletion begins anew, whether or not it was looked up.
    db.flush()?;
    db.delete("k")?;
    for put in 1..4 {
        db.flush()?;
        let revision = db.put("k", "again")?;
        let entry = db.entry("k")?.expect("it is there");
        assert_eq!(
            (entry.create_revision, entry.version),
            (revision - put + 1, put)
        );
    }
    assert!(db.check()?.is_clean());
    Ok(())
}

#[test]
fn a_delete_gives_the_key_a_new_life() {
    in_every_stage(
        manual(),
        |db| {
            for round in 0..5 {
                db.put("k", format!("{round}"))?;
                db.put("k", format!("{round}+"))?;
                db.flush()?;
                db.delete("k")?;
                if round % 2 == 0 {
                    db.compact()?;
                }
            }
            Ok(())
        },
        |db, (), stage| {
            assert_eq!(db.get("k")?, None, "{stage:?}");
            let revision = db.put("k", "again")?;
            let expected = entry("k", "again", revision.get(), revision.get(), 1);
            assert_eq!(db.entry("k")?, Some(expected), "{stage:?}");
            Ok(())
        },
    );
}

/// Bounds around, on and between the keys k000, k002, … k398.
fn probes() -> Vec<Bound<Vec<u8>>> {
    let mut bounds = vec![Bound::Unbounded];
    for key in [
        "", "k", "k000", "k001", "k002", "k199", "k200", "k397", "k398", "k3980", "z",
    ] {
        bounds.push(Bound::Included(key.into()));
        bounds.push(Bound::Excluded(key.into()));
    }
    bounds
}

#[test]
fn ranges_give_every_key_once_from_both_ends() {
    in_every_stage(
        manual(),
        |db| {
            // In an order that is not the order of the keys, over several runs and the memtable.
            for at in 0..200u32 {
                let key = at * 77 % 200 * 2;
                db.put(format!("k{key:03}"), key.to_string())?;
                db.put(format!("k{:03}", key + 1), "to be deleted")?;
                if at == 60 || at == 120 {
                    db.flush()?;
                }
            }
            db.transact(|tx| {
                for key in (1..400).step_by(2) {
                    tx.delete(format!("k{key:03}"))?;
                }
                Ok(())
            })
        },
        |db, (), stage| {
            let all: BTreeMap<Vec<u8>, Vec<u8>> = (0..400u32)
                .step_by(2)
                .map(|key| (format!("k{key:03}").into(), key.to_string().into()))
                .collect();
            assert_eq!(
                contents(&db.snapshot()),
                all.clone().into_iter().collect::<Vec<_>>()
            );
            let mut random = fastrand::Rng::with_seed(1);
            for lower in probes() {
                for upper in probes() {
                    let range = Range::from((lower.clone(), upper.clone()));
                    let mut iter = match db.range(range.clone()) {
                        Err(Error::InvalidRange { .. }) => {
                            assert!(bytes(&lower) > bytes(&upper), "{lower:?} {upper:?}");
                            continue;
                        }
                        other => other?,
                    };
                    let inside = all.keys().filter(|key| range.contains(key));
                    let mut left: Vec<_> = inside.collect();
                    let mut taken = 0;
                    while !left.is_empty() {
                        let (got, expected) = if random.bool() {
                            (iter.next(), left.remove(0))
                        } else {
                            (iter.next_back(), left.pop().expect("not empty"))
                        };
                        let got = got.expect("another entry")?;
                        assert_eq!(got.key, &expected[..], "{stage:?} {lower:?} {upper:?}");
                        assert_eq!(got.value, &all[expected][..]);
                        taken += 1;
                        if taken == 40 {
                            break;
                        }
                    }
                    if left.is_empty() {
                        for _ in 0..2 {
                            assert!(iter.next().is_none() && iter.next_back().is_none());
                        }
                    }
                }
            }
            Ok(())
        },
    );
}

#[test]
fn a_walk_shows_what_an_iterator_gives() {
    in_every_stage(
        manual(),
        |db| {
            let lease = db.grant_lease(Duration::from_secs(60))?;
            for round in 0..3u32 {
                for key in 0..100u32 {
                    let length = if key % 10 == round { 3_000 } else { 10 };
                    let value = vec![key as u8 ^ round as u8; length];
                    match key % 7 {
                        0 => db.put_with_lease(format!("k{key:03}"), value, lease)?,
                        _ => db.put(format!("k{key:03}"), value)?,
                    };
                }
                if round == 1 {
                    db.flush()?;
                }
            }
            Ok(())
        },
        |db, (), stage| {
            let all: Vec<Entry> = db.range(..)?.collect::<Result<_>>()?;
            assert_eq!(all.len(), 100);
            for (from_front, from_back) in [(0, 0), (1, 0), (0, 1), (30, 40), (60, 40), (60, 60)] {
                let mut iter = db.range(..)?;
                let front = iter.by_ref().take(from_front).count();
                let back = iter.by_ref().rev().take(from_back).count();
                let mut seen = Vec::new();
                let end = iter.visit(|at| {
                    let kept = at.to_entry();
                    if let Ok(kept) = &kept {
                        assert_eq!((at.key, at.value), (&kept.key[..], &kept.value[..]));
                        assert_eq!(at.mod_revision, kept.mod_revision);
                    }
                    seen.push(kept);
                    ControlFlow::<()>::Continue(())
                })?;
                assert!(end.is_continue());
                let seen: Vec<Entry> = seen.into_iter().collect::<Result<_>>()?;
                assert_eq!(seen, all[front..100 - back], "{stage:?}");
            }
            let mut left = 5;
            let end = db.snapshot().range("k050"..)?.visit(|at| {
                left -= 1;
                match left {
                    0 => ControlFlow::Break(at.key.to_vec()),
                    _ => ControlFlow::Continue(()),
                }
            })?;
            assert_eq!(end, ControlFlow::Break(b"k054".to_vec()));
            Ok(())
        },
    );
}

fn bytes(bound: &Bound<Vec<u8>>) -> &[u8] {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => unreachable!("a range without a bound is never refused"),
    }
}

#[test]
fn keys_are_ordered_as_bytes() {
    let keys: [&[u8]; 11] = [
        b"\0",
        b"\0\0",
        b"\0\x01",
        b"a",
        b"a\0",
        b"a\0\xff",
        b"aa",
        b"b",
        b"\x7f",
        b"\x80",
        b"\xff\xff",
    ];
    in_every_stage(
        manual(),
        |db| {
            for key in keys.iter().rev() {
                db.put(key, key)?;
            }
            Ok(())
        },
        |db, (), stage| {
            let mut sorted = keys.to_vec();
            sorted.sort_unstable();
            let found: Vec<_> = contents(&db.snapshot())
                .into_iter()
                .map(|(key, _)| key)
                .collect();
            assert_eq!(found, sorted, "{stage:?}");
            for key in keys {
                assert_eq!(db.get(key)?.as_deref(), Some(key), "{stage:?}");
                let only = db.range(Range::key(key))?.count();
                assert_eq!(only, 1, "{stage:?} {key:?}");
                let prefixed = keys.iter().filter(|other| other.starts_with(key)).count();
                assert_eq!(
                    db.range(Range::prefix(key))?.count(),
                    prefixed,
                    "{stage:?} {key:?}"
                );
            }
            Ok(())
        },
    );
}

#[test]
fn compare_and_swap_wins_on_the_expected_revision_and_names_the_actual_one() {
    in_every_stage(
        manual(),
        |db| {
            db.put("k", "1")?; // 2
            db.put("gone", "1")?; // 3
            db.delete("gone") // 4
        },
        |db, _, stage| {
            for wrong in [0, 1, 3, 4, 99, u64::MAX] {
                let lost = db.compare_and_swap("k", Expected::Revision(Revision::new(wrong)), "no");
                assert_error!(lost, Error::CompareFailed { expected, actual, .. } if actual == Some(Revision::new(2)) && expected.mod_revision() == wrong);
            }
            let lost = db.compare_and_swap("gone", Expected::Revision(Revision::new(3)), "no");
            assert_error!(lost, Error::CompareFailed { actual: None, .. });
            let lost = db.compare_and_swap("never", Expected::Revision(Revision::new(1)), "no");
            assert_error!(lost, Error::CompareFailed { actual: None, .. });
            assert_eq!(
                (db.revision(), db.get("k")?),
                (Revision::new(4), Some(Value::from("1"))),
                "{stage:?}"
            );
            assert_eq!(
                db.compare_and_swap("k", Expected::Revision(Revision::new(2)), "2")?,
                5,
                "{stage:?}"
            );
            assert_eq!(
                db.compare_and_swap("gone", Expected::Absent, "back")?,
                6,
                "{stage:?}"
            );
            assert_eq!(
                db.compare_and_swap("never", Expected::Absent, "now")?,
                7,
                "{stage:?}"
            );
            let lost = db.compare_and_swap("never", Expected::Absent, "no");
            assert_error!(
                lost,
                Error::CompareFailed {
                    expected: Expected::Absent,
                    actual,
                    ..
                } if actual == Some(Revision::new(7))
            );
            let text = db
                .compare_and_swap("k", Expected::Revision(Revision::new(2)), "no")
                .unwrap_err()
                .to_string();
            assert!(
                text.contains("\"k\"") && text.contains('5') && text.contains('2'),
                "{text}"
            );
            Ok(())
        },
    );
}

#[test]
fn delete_range_deletes_what_is_inside_and_nothing_else() {
    in_every_stage(
        manual(),
        |db| {
            for key in ["a", "b", "b\0", "b1", "b2", "c"] {
                db.put(key, key)?;
            }
            Ok(())
        },
        |db, (), stage| {
            let before = db.revision();
            assert_eq!(db.delete_range("b".."b2")?, 3, "{stage:?}");
            assert_eq!(db.revision(), before + 1);
            assert_eq!(keys_of(db.range(..)?)?, ["a", "b2", "c"], "{stage:?}");
            assert_eq!(db.delete_range("b".."b2")?, 0);
            assert_eq!(db.delete_range(Range::key("c"))?, 1);
            assert_eq!(db.delete_range(..)?, 2);
            assert_eq!(db.range(..)?.count(), 0, "{stage:?}");
            db.flush()?;
            assert_eq!(db.range(..)?.rev().count(), 0, "{stage:?}");
            Ok(())
        },
    );
}

/// Bytes that do not compress and tell their place.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed ^ len as u64);
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}

#[test]
fn values_of_every_size_come_back() {
    const SIZES: [usize; 17] = [
        0,
        1,
        117,
        118,
        119,
        255,
        256,
        1023,
        1024,
        4095,
        4096,
        8191,
        8192,
        65_535,
        65_536,
        1 << 20,
        5 << 20,
    ];
    in_every_stage(
        manual(),
        |db| {
            for size in SIZES {
                db.put(format!("noise{size:08}"), noise(size, 1))?;
                db.put(format!("zeros{size:08}"), vec![0; size])?;
            }
            Ok(())
        },
        |db, (), stage| {
            for size in SIZES {
                let found = db.get(format!("noise{size:08}"))?.expect("it is there");
                assert!(
                    found[..] == noise(size, 1)[..],
                    "{stage:?}: noise of {size}"
                );
                let found = db.get(format!("zeros{size:08}"))?.expect("it is there");
                assert!(found[..] == vec![0; size][..], "{stage:?}: zeros of {size}");
            }
            let lens: Result<Vec<_>> = db
                .range(Range::prefix("noise"))?
                .map(|entry| entry.map(|entry| entry.value.len()))
                .collect();
            assert_eq!(lens?, SIZES, "{stage:?}");
            Ok(())
        },
    );
}

#[test]
fn a_value_of_64_mib_is_a_value_as_any() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("db");
    let value = noise(64 << 20, 2);
    let db = Db::open(&path)?;
    db.put("small", "1")?;
    db.put("large", &value)?;
    db.put("small", "2")?;
    assert!(db.get("large")?.expect("it is there")[..] == value[..]);
    db.close()?;
    drop(db);
    let db = Db::open(&path)?;
    assert!(db.get("large")?.expect("recovered from the log")[..] == value[..]);
    db.flush()?;
    assert!(db.get("large")?.expect("it is in a table")[..] == value[..]);
    assert_eq!(db.get("small")?.as_deref(), Some(&b"2"[..]));
    assert_eq!(db.range(..)?.count(), 2);
    assert!(db.check()?.is_clean());
    Ok(())
}

#[test]
fn keys_of_every_length_come_back() {
    const LENGTHS: [usize; 14] = [
        1, 2, 31, 32, 127, 128, 255, 256, 4095, 4096, 32_767, 65_534, 65_535, 65_536,
    ];
    in_every_stage(
        manual(),
        |db| {
            for len in LENGTHS {
                db.put(vec![b'x'; len], len.to_string())?;
                db.put(noise(len, 3), len.to_string())?;
            }
            // Long keys that differ in their last byte only.
            for last in 0..8u8 {
                let mut key = vec![b'y'; 65_536];
                key[65_535] = last;
                db.put(key, [last])?;
            }
            Ok(())
        },
        |db, (), stage| {
            for len in LENGTHS {
                for key in [vec![b'x'; len], noise(len, 3)] {
                    let found = db.get(&key)?;
                    assert_eq!(
                        found.as_deref(),
                        Some(len.to_string().as_bytes()),
                        "{stage:?}"
                    );
                }
            }
            let found: Result<Vec<_>> = db
                .range(Range::prefix("yy"))?
                .map(|entry| entry.map(|entry| entry.value[0]))
                .collect();
            assert_eq!(found?, [0, 1, 2, 3, 4, 5, 6, 7], "{stage:?}");
            let lens: Result<Vec<_>> = db
                .range(Range::prefix("x"))?
                .rev()
                .map(|entry| entry.map(|entry| entry.key.len()))
                .collect();
            let xs = lens?
                .into_iter()
                .filter(|len| LENGTHS.contains(len))
                .count();
            assert!(xs >= LENGTHS.len(), "{stage:?}");
            Ok(())
        },
    );
}

#[test]
fn a_key_that_was_written_very_often_reads_its_newest_value() {
    in_every_stage(
        manual().history(History::All),
        |db| {
            for value in 0..20_000u32 {
                db.put("hot", value.to_be_bytes())?;
            }
            Ok(())
        },
        |db, (), stage| {
            let entry = db.entry("hot")?.expect("it is there");
            assert_eq!(entry.value, &19_999u32.to_be_bytes()[..], "{stage:?}");
            assert_eq!(
                (entry.version, entry.mod_revision),
                (20_000, Revision::new(20_001)),
                "{stage:?}"
            );
            for revision in [2, 777, 20_000] {
                let found = db.snapshot_at(Revision::new(revision))?.get("hot")?;
                let expected = (revision as u32 - 2).to_be_bytes();
                assert_eq!(found.as_deref(), Some(&expected[..]), "{stage:?}");
            }
            assert_eq!(db.history("hot")?.len(), 20_000, "{stage:?}");
            Ok(())
        },
    );
}

#[test]
fn a_reopened_database_goes_on_where_it_was() -> Result<()> {
    let disk = Disk::new();
    let mut expected = BTreeMap::new();
    let mut revision = 1;
    let id = disk.open(manual()).id();
    for round in 0..12 {
        let db = disk.open(manual());
        assert_eq!(
            (db.revision(), db.id()),
            (Revision::new(revision), id),
            "round {round}"
        );
        assert_eq!(
            contents(&db.snapshot()),
            expected.clone().into_iter().collect::<Vec<_>>()
        );
        for at in 0..5 {
            let key = format!("{}", (round * 5 + at) % 17).into_bytes();
            revision += 1;
            assert_eq!(db.put(&key, [round])?, revision);
            expected.insert(key, vec![round]);
        }
        match round % 3 {
            0 => db.flush()?,
            1 => db.compact()?,
            _ => {}
        }
    }
    Ok(())
}

#[test]
fn stages_are_what_they_say() -> Result<()> {
    for stage in Stage::ALL {
        let disk = Disk::new();
        let db = disk.open(manual());
        db.put("k", "v")?;
        let stats = stage.reach(db, &disk, manual())?.stats().engine;
        let in_tables = stats.table_bytes > 0;
        let expected = !matches!(stage, Stage::Written | Stage::Reopened);
        assert_eq!(in_tables, expected, "{stage:?}: {stats:?}");
    }
    Ok(())
}
