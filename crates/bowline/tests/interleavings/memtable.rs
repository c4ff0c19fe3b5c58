//! The memtable: one writer beside readers.

use std::sync::Arc;

use bowline_storage::memtable::Memtable;
use bowline_storage::sync::atomic::{AtomicU64, Ordering};
use bowline_storage::sync::thread;
use bowline_storage::{EntryKind, TreeId};

use crate::bytes;
use crate::explore::explore;

const TREE: TreeId = TreeId(0);
/// Interleaved with what is there, and twice the same.
const WRITES: [(&str, u64); 5] = [("m", 1), ("c", 2), ("x", 2), ("m", 3), ("m", 3)];

/// What is visible is found, by key and by scan, whole and in order, at every step of an insertion.
#[test]
fn readers_find_whatever_is_visible() {
    explore("readers_find_whatever_is_visible", 120_000, || {
        let memtable = Arc::new(Memtable::new(1, 1, 4 << 10));
        let visible = Arc::new(AtomicU64::new(0));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (memtable, visible) = (memtable.clone(), visible.clone());
                thread::spawn(move || {
                    let at = visible.load(Ordering::Acquire);
                    for key in ["c", "m", "x"] {
                        let newest = WRITES
                            .iter()
                            .filter(|write| write.0 == key && write.1 <= at);
                        let expected = newest.map(|write| write.1).max();
                        let found = memtable.get(TREE, key.as_bytes(), at);
                        assert_eq!(found.map(|found| found.revision), expected, "{key} at {at}");
                        assert!(found.is_none_or(|found| found.value == bytes(found.revision)));
                    }
                    let mut cursor = memtable.read_cursor(TREE, at);
                    let mut keys = Vec::new();
                    cursor.seek_first();
                    while cursor.valid() {
                        assert!(cursor.revision() <= at);
                        assert_eq!(cursor.value(), bytes(cursor.revision()));
                        keys.push(String::from_utf8_lossy(cursor.key()).into_owned());
                        cursor.next();
                    }
                    let mut expected: Vec<_> =
                        WRITES.iter().filter(|write| write.1 <= at).collect();
                    expected.sort_unstable();
                    expected.dedup_by_key(|write| write.0);
                    assert!(
                        keys.iter().eq(expected.iter().map(|write| write.0)),
                        "{keys:?}"
                    );
                })
            })
            .collect();
        let mut writes = WRITES.iter().peekable();
        while let Some((key, revision)) = writes.next() {
            let mut writer = memtable.writer();
            writer
                .insert(
                    TREE,
                    key.as_bytes(),
                    *revision,
                    EntryKind::Put,
                    &bytes(*revision),
                )
                .expect("room");
            drop(writer);
            if writes.peek().is_none_or(|next| next.1 > *revision) {
                visible.store(*revision, Ordering::Release);
            }
        }
        for reader in readers {
            reader.join().expect("no panic");
        }
    });
}

/// Keys of two groups: each begins with one of these sixteen bytes.
const GROUPS: [&str; 2] = ["the-first-group-", "the-other-group-"];
const IN_GROUPS: [(usize, &str); 4] = [(0, "m"), (0, "c"), (1, "m"), (0, "x")];

/// The visible keys of a prefix are found while the table of groups is made, grows, and gets another
/// first key of a group.
#[test]
fn readers_find_the_visible_keys_of_a_prefix() {
    explore("readers_find_the_visible_keys_of_a_prefix", 60_000, || {
        let memtable = Arc::new(Memtable::new(1, 1, 4 << 10));
        let visible = Arc::new(AtomicU64::new(0));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (memtable, visible) = (memtable.clone(), visible.clone());
                thread::spawn(move || {
                    let at = visible.load(Ordering::Acquire);
                    for (group, prefix) in GROUPS.iter().enumerate() {
                        let mut cursor = memtable.first_with_prefix(TREE, prefix.as_bytes(), at);
                        let mut keys = Vec::new();
                        while let Some(here) = cursor {
                            keys.push(String::from_utf8_lossy(here.key()).into_owned());
                            cursor = here.next(prefix.as_bytes(), at);
                        }
                        let visible = IN_GROUPS.iter().take(at as usize);
                        let expected = visible.filter(|write| write.0 == group);
                        let mut expected: Vec<_> = expected
                            .map(|write| format!("{prefix}{}", write.1))
                            .collect();
                        expected.sort_unstable();
                        assert_eq!(keys, expected, "at {at}");
                    }
                })
            })
            .collect();
        for (revision, (group, name)) in (1..).zip(IN_GROUPS) {
            let key = format!("{}{name}", GROUPS[group]);
            let mut writer = memtable.writer();
            let inserted = writer.insert(TREE, key.as_bytes(), revision, EntryKind::Put, b"");
            inserted.expect("room");
            drop(writer);
            visible.store(revision, Ordering::Release);
        }
        for reader in readers {
            reader.join().expect("no panic");
        }
    });
}
