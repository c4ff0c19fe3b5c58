//! The memtable as a whole, against a plain map, and with readers beside the writer.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use proptest::prelude::*;

use super::*;
use crate::Error;

const TREE: TreeId = TreeId(0);

fn memtable(capacity_bytes: usize) -> Arc<Memtable> {
    Arc::new(Memtable::new(1, 2, capacity_bytes))
}

fn put(memtable: &Memtable, key: &[u8], revision: Revision, value: &[u8]) {
    memtable
        .writer()
        .insert(TREE, key, revision, EntryKind::Put, value)
        .expect("room");
}

/// An entry with its key, owned.
type Row = (Vec<u8>, Revision, EntryKind, Vec<u8>);

/// A key and a revision, in the order a version cursor goes.
type Place = (Vec<u8>, Reverse<Revision>);

/// What a memtable must hold.
#[derive(Default)]
struct Model(BTreeMap<Place, (EntryKind, Vec<u8>)>);

impl Model {
    fn rows(&self) -> Vec<Row> {
        self.0
            .iter()
            .map(|((key, revision), (kind, value))| (key.clone(), revision.0, *kind, value.clone()))
            .collect()
    }

    fn seen_at(&self, at: Revision) -> Vec<Row> {
        let mut rows = self.rows();
        rows.retain(|row| row.1 <= at);
        rows.dedup_by(|later, kept| later.0 == kept.0);
        rows
    }
}

macro_rules! row {
    ($cursor:expr) => {
        $cursor.valid().then(|| {
            let cursor = &$cursor;
            (
                cursor.key().to_vec(),
                cursor.revision(),
                cursor.kind(),
                cursor.value().to_vec(),
            )
        })
    };
}

fn check_points(memtable: &Memtable, model: &Model, keys: &[Vec<u8>], at: Revision) {
    let seen = model.seen_at(at);
    let newest = model.seen_at(Revision::MAX);
    for key in keys {
        let expect = |rows: &[Row]| rows.iter().find(|row| row.0 == *key).cloned();
        let actual = |entry: Option<Entry<'_>>| {
            entry.map(|entry| {
                (
                    key.clone(),
                    entry.revision,
                    entry.kind,
                    entry.value.to_vec(),
                )
            })
        };
        assert_eq!(
            actual(memtable.get(TREE, key, at)),
            expect(&seen),
            "{key:?} at {at}"
        );
        assert_eq!(
            actual(memtable.newest(TREE, key)),
            expect(&newest),
            "{key:?}"
        );
    }
}

fn check_scans(memtable: &Arc<Memtable>, model: &Model, keys: &[Vec<u8>], at: Revision) {
    let seen = model.seen_at(at);
    let mut cursor = memtable.read_cursor(TREE, at);
    assert!(!cursor.valid());

    cursor.seek_first();
    for row in &seen {
        assert_eq!(row!(cursor).as_ref(), Some(row));
        cursor.next();
    }
    assert!(!cursor.valid());
    cursor.next();
    cursor.prev();
    assert!(!cursor.valid(), "only a seek makes a cursor valid");

    cursor.seek_last();
    for row in seen.iter().rev() {
        assert_eq!(row!(cursor).as_ref(), Some(row));
        cursor.prev();
    }
    assert!(!cursor.valid());

    for key in keys {
        let split = seen.partition_point(|row| row.0 < *key);
        cursor.seek(key);
        assert_eq!(row!(cursor).as_ref(), seen.get(split));
        cursor.prev();
        let prev = split.checked_sub(1).filter(|_| split < seen.len());
        assert_eq!(
            row!(cursor).as_ref(),
            prev.map(|i| &seen[i]),
            "back from {key:?}"
        );
        cursor.seek_before(key);
        assert_eq!(
            row!(cursor).as_ref(),
            split.checked_sub(1).map(|i| &seen[i])
        );
        let was_valid = cursor.valid();
        cursor.next();
        assert_eq!(row!(cursor).as_ref(), seen.get(split).filter(|_| was_valid));
    }
}

fn check_versions(memtable: &Arc<Memtable>, model: &Model, keys: &[Vec<u8>]) {
    let rows = model.rows();
    let mut cursor = memtable.version_cursor(TREE);
    assert!(!cursor.valid());
    cursor.seek_first();
    for row in &rows {
        assert_eq!(row!(cursor).as_ref(), Some(row));
        cursor.next();
    }
    assert!(!cursor.valid());
    for key in keys {
        cursor.seek(key);
        let split = rows.partition_point(|row| row.0 < *key);
        assert_eq!(row!(cursor).as_ref(), rows.get(split));
    }
}

fn check_changes(memtable: &Memtable, model: &Model, keys: &[Vec<u8>], since: Revision) {
    let rows = model.rows();
    for pair in keys.windows(2) {
        let (low, high) = (pair[0].as_slice(), pair[1].as_slice());
        let bounds = |key| [Bound::Unbounded, Bound::Included(key), Bound::Excluded(key)];
        for lower in bounds(low) {
            for upper in bounds(high) {
                let expected = rows.iter().any(|(key, revision, ..)| {
                    let key = key.as_slice();
                    let above = match lower {
                        Bound::Unbounded => true,
                        Bound::Included(low) => key >= low,
                        Bound::Excluded(low) => key > low,
                    };
                    let below = match upper {
                        Bound::Unbounded => true,
                        Bound::Included(high) => key <= high,
                        Bound::Excluded(high) => key < high,
                    };
                    above && below && *revision > since
                });
                let actual = memtable.changed_since(TREE, lower, upper, since);
                assert_eq!(actual, expected, "{lower:?} {upper:?} since {since}");
            }
        }
    }
}

/// Keys that share prefixes, differ in length only, or are empty.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(0..3_u8, 0..4),
        proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(0)], 7..11),
        "prefix/[a-c]{0,2}".prop_map(String::into_bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        // Miri is some thousand times slower, and has no directory to keep failures in.
        cases: if cfg!(miri) { 1 } else { 64 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_memtable_is_a_sorted_map_of_versions(
        writes in proptest::collection::vec(
            (key(), 0..2_u64, any::<bool>(), proptest::collection::vec(any::<u8>(), 0..20)),
            0..if cfg!(miri) { 8 } else { 150 },
        ),
        probes in proptest::collection::vec(key(), 1..if cfg!(miri) { 3 } else { 20 }),
        reads in proptest::collection::vec(0..160_u64, 4),
    ) {
        let memtable = memtable(1 << 20);
        let mut model = Model::default();
        let mut revision = 1;
        let mut keys = probes;
        for (key, step, delete, value) in writes {
            revision += step;
            let kind = if delete { EntryKind::Delete } else { EntryKind::Put };
            memtable.writer().insert(TREE, &key, revision, kind, &value).expect("room");
            keys.push(key.clone());
            model.0.insert((key, Reverse(revision)), (kind, value));
        }
        for at in reads.into_iter().chain([revision, Revision::MAX]) {
            check_points(&memtable, &model, &keys, at);
            check_scans(&memtable, &model, &keys, at);
            check_changes(&memtable, &model, &keys, at);
        }
        check_versions(&memtable, &model, &keys);
        let revisions = model.0.keys().map(|(_, revision)| revision.0);
        prop_assert_eq!(memtable.entries(), model.0.len() as u64);
        prop_assert_eq!(memtable.min_revision(), revisions.clone().min().unwrap_or(0));
        prop_assert_eq!(memtable.max_revision(), revisions.max().unwrap_or(0));
        let mut other_tree = memtable.version_cursor(TreeId(1));
        other_tree.seek_first();
        prop_assert!(!other_tree.valid());
    }
}

#[test]
fn a_key_with_100_000_versions_is_read_at_any_revision() {
    const VERSIONS: u64 = if cfg!(miri) { 100 } else { 100_000 };
    for seed in crate::seeds(3..4) {
        let memtable = memtable(VERSIONS as usize * 160 + (4 << 10));
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut revisions = Vec::new();
        let mut revision = 10;
        {
            let mut writer = memtable.writer();
            for _ in 0..VERSIONS {
                revision += rng.u64(1..5);
                let value = revision.to_le_bytes();
                writer
                    .insert(TREE, b"hot", revision, EntryKind::Put, &value)
                    .expect("room");
                revisions.push(revision);
            }
        }
        for _ in 0..VERSIONS / 5 {
            let at = rng.u64(..revision + 5);
            let expected = revisions[..revisions.partition_point(|r| *r <= at)].last();
            let entry = memtable.get(TREE, b"hot", at);
            assert_eq!(entry.map(|entry| entry.revision), expected.copied());
            assert_eq!(
                entry.map(|entry| entry.value),
                expected.map(|r| r.to_le_bytes()).as_ref().map(|v| &v[..])
            );
        }
        assert_eq!(
            memtable.newest(TREE, b"hot").map(|entry| entry.revision),
            Some(revision)
        );
    }
}

#[test]
fn a_new_memtable_is_empty_and_has_room_for_its_capacity() {
    for capacity_bytes in [0, 8, 1 << 10, 64 << 20] {
        let memtable = Memtable::new(9, 5, capacity_bytes);
        assert_eq!(memtable.generation(), 9);
        assert_eq!(memtable.capacity_bytes(), capacity_bytes);
        assert!(memtable.is_empty());
        assert_eq!(
            (memtable.entries(), memtable.tree_entries(TreeId(4))),
            (0, 0)
        );
        assert_eq!((memtable.used_bytes(), memtable.max_index()), (0, 0));
        assert_eq!((memtable.min_revision(), memtable.max_revision()), (0, 0));
        assert!(memtable.writer().has_room(capacity_bytes));
        assert!(!memtable.writer().has_room(capacity_bytes + 1));
        assert!(memtable.get(TreeId(4), b"", 1).is_none());
        assert!(!memtable.changed_since(TREE, Bound::Unbounded, Bound::Unbounded, 0));
    }
}

#[test]
fn counts_follow_what_is_inserted() {
    let memtable = memtable(1 << 20);
    let mut writer = memtable.writer();
    for (tree, key, revision) in [
        (0, "a", 5),
        (1, "a", 6),
        (0, "a", 8),
        (0, "a", 8),
        (0, "b", 4),
    ] {
        writer
            .insert(
                TreeId(tree),
                key.as_bytes(),
                revision,
                EntryKind::Delete,
                b"",
            )
            .expect("room");
    }
    writer.set_max_index(17);
    writer.set_max_index(16);
    assert_eq!(
        memtable.entries(),
        4,
        "an entry that replaces one is not one more"
    );
    assert_eq!(
        (
            memtable.tree_entries(TreeId(0)),
            memtable.tree_entries(TreeId(1))
        ),
        (3, 1)
    );
    assert_eq!((memtable.min_revision(), memtable.max_revision()), (4, 8));
    assert_eq!(memtable.max_index(), 17, "the index never falls");
    assert!(!memtable.is_empty());
}

#[test]
fn whatever_had_room_goes_in_and_what_has_none_leaves_no_trace() {
    const CAPACITY: usize = 40_000;
    for seed in crate::seeds(11..12) {
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..if cfg!(miri) { 1 } else { 20 } {
            let memtable = memtable(CAPACITY);
            let mut writer = memtable.writer();
            let mut inserted = 0;
            loop {
                let key = vec![1; rng.usize(..100)];
                let value = vec![2; rng.usize(..3000)];
                let room = writer.has_room(MemtableWriter::cost_bytes(key.len(), value.len()));
                let entries = memtable.entries();
                let result = writer.insert(TREE, &key, inserted + 1, EntryKind::Put, &value);
                if result.is_ok() {
                    inserted += 1;
                    continue;
                }
                assert!(!room, "an insertion failed that had room");
                assert!(matches!(result, Err(Error::Internal(_))));
                assert_eq!(memtable.entries(), entries);
                assert!(
                    memtable
                        .newest(TREE, &key)
                        .is_none_or(|entry| entry.revision <= inserted)
                );
                break;
            }
            assert!(inserted > 5 && memtable.used_bytes() <= CAPACITY + (8 << 8));
        }
    }
}

#[test]
fn breaking_the_contract_is_an_error_and_changes_nothing() {
    let memtable = memtable(1 << 20);
    put(&memtable, b"k", 5, b"five");
    let mut writer = memtable.writer();
    let falling = writer.insert(TREE, b"k", 4, EntryKind::Put, b"four");
    let no_tree = writer.insert(TreeId(2), b"k", 6, EntryKind::Put, b"six");
    let long_key = writer.insert(TREE, &vec![0; 16 << 20], 6, EntryKind::Put, b"");
    for result in [falling, no_tree, long_key] {
        assert!(matches!(result, Err(Error::Internal(_))));
    }
    assert_eq!((memtable.entries(), memtable.max_revision()), (1, 5));
    assert_eq!(
        memtable.get(TREE, b"k", 9).map(|entry| entry.value),
        Some(&b"five"[..])
    );
}

#[test]
fn long_keys_and_large_values_come_back_whole() {
    const VALUE_BYTES: u32 = if cfg!(miri) { 6 << 10 } else { 20 << 20 };
    let memtable = memtable(3 * VALUE_BYTES as usize + (1 << 20));
    let key = vec![7; VALUE_BYTES as usize / 320];
    let value: Vec<u8> = (0..VALUE_BYTES).map(|i| (i % 251) as u8).collect();
    put(&memtable, &key, 1, &value);
    put(&memtable, &key, 2, b"");
    put(&memtable, b"", 3, &value[..5000]);
    assert_eq!(
        memtable.get(TREE, &key, 1).map(|entry| entry.value),
        Some(&value[..])
    );
    assert_eq!(
        memtable.get(TREE, &key, 2).map(|entry| entry.value),
        Some(&b""[..])
    );
    assert_eq!(
        memtable.get(TREE, b"", 3).map(|entry| entry.value),
        Some(&value[..5000])
    );
    let mut cursor = memtable.read_cursor(TREE, 3);
    cursor.seek_last();
    assert_eq!((cursor.key(), cursor.value()), (&key[..], &b""[..]));
}

#[test]
fn a_cursor_outlives_every_other_reference_to_its_memtable() {
    let memtable = memtable(1 << 20);
    put(&memtable, b"k", 1, b"v");
    let mut cursor = memtable.read_cursor(TREE, 1);
    drop(memtable);
    let (key, value) = std::thread::spawn(move || {
        cursor.seek_first();
        (cursor.key().to_vec(), cursor.value().to_vec())
    })
    .join()
    .expect("no panic");
    assert_eq!((&key[..], &value[..]), (&b"k"[..], &b"v"[..]));
}

#[test]
fn equal_insertions_give_equal_memtables() {
    const KEYS: u64 = if cfg!(miri) { 30 } else { 1000 };
    let fill = || {
        let memtable = memtable(1 << 20);
        for i in 0..KEYS {
            put(&memtable, &(i * 7919 % KEYS).to_be_bytes(), i, b"v");
        }
        memtable.used_bytes()
    };
    assert_eq!(fill(), fill());
}

/// A value that can be checked from its key and revision alone, of a length that varies.
fn derived_value(key: &[u8], revision: Revision) -> Vec<u8> {
    let seed = key.iter().fold(revision, |sum, byte| {
        sum.wrapping_mul(31) + u64::from(*byte)
    });
    let len = seed % 200;
    (0..len).map(|i| (seed >> (i % 8 * 8)) as u8).collect()
}

/// One writer commits revisions of several keys each, first all entries, then the visible
/// revision, as the engine does. Readers meanwhile must find every visible entry, never one above
/// their revision, every value whole, and every cursor in order; all while the hash index doubles
/// several times.
#[test]
fn readers_beside_the_writer_see_whole_entries_in_order() {
    const REVISIONS: u64 = if cfg!(miri) { 20 } else { 4_000 };
    const KEYS_PER_REVISION: u64 = 8;
    const READERS: u64 = if cfg!(miri) { 2 } else { 3 };
    const POINTS: u64 = if cfg!(miri) { 2 } else { 50 };
    let memtable = memtable(REVISIONS as usize * (16 << 10));
    let visible = AtomicU64::new(0);
    let key_of = |revision: u64, i: u64| {
        // A quarter of all writes goes to a few hot keys.
        let spread = (revision * KEYS_PER_REVISION + i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let number = if i < 2 { i } else { spread % DISTINCT };
        format!("key-{number:06}").into_bytes()
    };

    std::thread::scope(|scope| {
        for reader in 0..READERS {
            let (memtable, visible) = (&memtable, &visible);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(reader);
                loop {
                    let at = visible.load(Acquire);
                    for _ in 0..POINTS {
                        let revision = rng.u64(..at.max(1)) + 1;
                        if revision > at {
                            continue;
                        }
                        let key = key_of(revision, rng.u64(..KEYS_PER_REVISION));
                        let entry = memtable.get(TREE, &key, revision).expect("it is visible");
                        assert_eq!(entry.revision, revision);
                        assert_eq!(entry.value, derived_value(&key, revision));
                        let newest = memtable.newest(TREE, &key).expect("it is there");
                        assert!(newest.revision >= revision);
                        assert_eq!(newest.value, derived_value(&key, newest.revision));
                    }
                    walk(memtable, at, &mut rng);
                    if at == REVISIONS {
                        return;
                    }
                }
            });
        }
        for revision in 1..=REVISIONS {
            let mut writer = memtable.writer();
            for i in 0..KEYS_PER_REVISION {
                let key = key_of(revision, i);
                let value = derived_value(&key, revision);
                writer
                    .insert(TREE, &key, revision, EntryKind::Put, &value)
                    .expect("room");
            }
            drop(writer);
            visible.store(revision, Release);
        }
    });
    assert!(memtable.entries() > 3 * REVISIONS);
}

/// How many keys the writes of the test above are spread over.
const DISTINCT: u64 = 12_000;

/// Parts of a scan in each direction, and of a scan of all versions.
fn walk(memtable: &Arc<Memtable>, at: Revision, rng: &mut fastrand::Rng) {
    const STEPS: u64 = if cfg!(miri) { 8 } else { 200 };
    let start = format!("key-{:06}", rng.u64(..DISTINCT)).into_bytes();
    let mut cursor = memtable.read_cursor(TREE, at);
    let check = |key: &[u8], revision: Revision, value: &[u8]| {
        assert_eq!(value, derived_value(key, revision));
    };
    let mut previous: Option<Vec<u8>> = None;
    cursor.seek(&start);
    for _ in 0..STEPS {
        if !cursor.valid() {
            break;
        }
        assert!(cursor.revision() <= at && cursor.key() >= &start[..]);
        check(cursor.key(), cursor.revision(), cursor.value());
        assert!(previous.is_none_or(|previous| *previous < *cursor.key()));
        previous = Some(cursor.key().to_vec());
        cursor.next();
    }
    let mut previous: Option<Vec<u8>> = None;
    cursor.seek_before(&start);
    for _ in 0..STEPS / 4 {
        if !cursor.valid() {
            break;
        }
        assert!(cursor.revision() <= at && cursor.key() < &start[..]);
        check(cursor.key(), cursor.revision(), cursor.value());
        assert!(previous.is_none_or(|previous| *previous > *cursor.key()));
        previous = Some(cursor.key().to_vec());
        cursor.prev();
    }
    let mut versions = memtable.version_cursor(TREE);
    let mut previous: Option<Place> = None;
    versions.seek(&start);
    for _ in 0..STEPS {
        if !versions.valid() {
            break;
        }
        check(versions.key(), versions.revision(), versions.value());
        let here = (versions.key().to_vec(), Reverse(versions.revision()));
        assert!(previous.is_none_or(|previous| previous < here));
        previous = Some(here);
        versions.next();
    }
}

/// The smallest race there is, so that Miri can go through it with many seeds: three threads, and
/// every kind of publication once. A new key, one before a present one, a newer version, a version
/// that replaces one of its own revision, and the hash index's first array.
#[test]
fn a_few_insertions_are_seen_whole_or_not_at_all() {
    let memtable = memtable(1 << 12);
    let visible = AtomicU64::new(0);
    let writes: [(&[u8], Revision); 4] = [(b"b", 1), (b"a", 2), (b"b", 3), (b"b", 3)];
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let at = visible.load(Acquire);
                let seen = memtable.get(TREE, b"b", Revision::MAX);
                if let Some(seen) = seen {
                    assert_eq!(seen.value, derived_value(b"b", seen.revision));
                }
                assert!(at == 0 || seen.is_some(), "a visible entry is there");
                let mut cursor = memtable.read_cursor(TREE, Revision::MAX);
                cursor.seek_first();
                let mut keys = Vec::new();
                while cursor.valid() {
                    let (key, revision) = (cursor.key(), cursor.revision());
                    keys.push(key.to_vec());
                    assert_eq!(cursor.value(), derived_value(key, revision));
                    cursor.next();
                }
                assert!(keys.is_sorted() && keys.len() >= at.min(2) as usize);
                let mut versions = memtable.version_cursor(TREE);
                versions.seek(b"b");
                while versions.valid() {
                    assert_eq!(versions.value(), derived_value(b"b", versions.revision()));
                    versions.next();
                }
            });
        }
        for (key, revision) in writes {
            put(&memtable, key, revision, &derived_value(key, revision));
            visible.store(revision, Release);
        }
    });
}

#[test]
fn a_memtable_can_be_shared_and_cursors_can_be_sent() {
    fn shared<T: Send + Sync>() {}
    shared::<Memtable>();
    shared::<MemtableReadCursor>();
    shared::<MemtableVersionCursor>();
}

#[test]
fn a_dropped_memtable_leaves_its_memory_to_who_frees_it() {
    let deferred_reclaim = DeferredReclaim::new();
    let mut memtable = Memtable::new(1, 2, 1 << 20);
    memtable.reclaim_with(deferred_reclaim.clone());
    let memtable = Arc::new(memtable);
    put(&memtable, b"key", 1, b"value");
    let cursor = memtable.read_cursor(TREE, 1);
    drop(memtable);
    assert_eq!(deferred_reclaim.free(), 0, "a cursor is in it");
    drop(cursor);
    assert_eq!(deferred_reclaim.free(), 1);
    assert_eq!(deferred_reclaim.free(), 0);
}
