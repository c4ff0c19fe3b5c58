//! The keys of a prefix, against a walk through the memtable's order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use super::groups::GROUP_BYTES;
use super::*;

const TREE: TreeId = TreeId(1);

/// A key of one of some groups, of which two differ only in their last byte, or one that is too short
/// to have a group.
fn key(rng: &mut fastrand::Rng, groups: u64) -> Vec<u8> {
    let mut key = vec![0; GROUP_BYTES - 8];
    key.extend(rng.u64(..groups).to_be_bytes());
    match rng.u8(..8) {
        0 => key.truncate(rng.usize(..GROUP_BYTES)),
        1 => {}
        _ => key.extend((0..rng.usize(1..4)).map(|_| rng.u8(..3))),
    }
    key
}

/// Keys, revisions and kinds of the entries with a prefix, by the cursor of a prefix.
fn found(memtable: &Memtable, prefix: &[u8], at: Revision) -> Vec<(Vec<u8>, EntryKind)> {
    let mut cursor = memtable.first_with_prefix(TREE, prefix, at);
    let mut found = Vec::new();
    while let Some(here) = cursor {
        found.push((here.key().to_vec(), here.kind()));
        cursor = here.next(prefix, at);
    }
    found
}

/// The same by a walk.
fn walked(memtable: &Arc<Memtable>, prefix: &[u8], at: Revision) -> Vec<(Vec<u8>, EntryKind)> {
    let mut cursor = memtable.read_cursor(TREE, at);
    cursor.seek(prefix);
    let mut found = Vec::new();
    while cursor.valid() && cursor.key().starts_with(prefix) {
        found.push((cursor.key().to_vec(), cursor.kind()));
        cursor.next();
    }
    found
}

fn groups_bytes(memtable: &Memtable) -> u64 {
    memtable.counts.groups_bytes.load(Acquire)
}

/// Entries come between the reads, into old groups, before their first keys, and into new groups,
/// while the table of groups doubles several times.
#[test]
fn the_keys_of_a_prefix_are_those_of_a_walk() {
    const ROUNDS: u64 = if cfg!(miri) { 30 } else { 6_000 };
    for seed in crate::seeds(0..4) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let groups = [3, 40, 300, 5_000][seed as usize % 4];
        let memtable = Arc::new(Memtable::new(1, 2, 4 << 20));
        for revision in 1..=ROUNDS {
            for _ in 0..rng.u8(..3) {
                let (key, kind) = (key(&mut rng, groups), [EntryKind::Put, EntryKind::Delete]);
                let kind = kind[usize::from(rng.u8(..4) == 0)];
                let inserted = memtable.writer().insert(TREE, &key, revision, kind, b"");
                inserted.expect("room");
            }
            let mut prefix = key(&mut rng, groups);
            if rng.bool() {
                prefix.truncate(GROUP_BYTES);
            }
            let at = rng.u64(..=revision);
            let expected = walked(&memtable, &prefix, at);
            assert_eq!(
                found(&memtable, &prefix, at),
                expected,
                "{prefix:?} at {at}"
            );
        }
        assert!(groups_bytes(&memtable) > 0, "no table was made");
    }
}

#[test]
#[cfg_attr(miri, ignore = "there, the first read makes the table")]
fn a_table_of_groups_is_made_for_many_reads_and_counted() {
    let memtable = Arc::new(Memtable::new(1, 2, 1 << 20));
    let key = |number: u64| [[0; 8], number.to_be_bytes()].concat();
    for number in 0..1_000 {
        let mut writer = memtable.writer();
        writer
            .insert(TREE, &key(number), 1, EntryKind::Put, b"")
            .expect("room");
    }
    let used_bytes = memtable.used_bytes();
    for number in 0..20 {
        assert_eq!(found(&memtable, &key(number), 1).len(), 1);
    }
    assert_eq!(
        memtable.used_bytes(),
        used_bytes,
        "too few reads to pay for it"
    );
    for number in 20..40 {
        assert_eq!(found(&memtable, &key(number), 1).len(), 1);
        assert!(found(&memtable, &key(1_000 + number), 1).is_empty());
    }
    // 2,048 slots of 8 bytes hold 1,000 groups.
    assert_eq!(memtable.used_bytes(), used_bytes + (8 << 11));
}

/// Whoever reads at a visible revision finds all its entries, however the groups change meanwhile.
#[test]
fn readers_beside_the_writer_find_whole_groups() {
    const REVISIONS: u64 = if cfg!(miri) { 12 } else { 3_000 };
    const GROUPS: u64 = if cfg!(miri) { 4 } else { 700 };
    let memtable = Arc::new(Memtable::new(1, 2, 64 << 20));
    let visible = AtomicU64::new(0);
    // Each revision adds a key to some groups, before or behind the others.
    let key_of = |group: u64, revision: u64| {
        let tail = revision.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        [[0; 8], group.to_be_bytes(), tail].concat()
    };
    let is_in = |group: u64, revision: u64| (group * 31 + revision * 17).is_multiple_of(GROUPS / 4);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (memtable, visible) = (&memtable, &visible);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(reader);
                for round in 0u64.. {
                    let newest = visible.load(Acquire);
                    let (group, at) = (rng.u64(..GROUPS), rng.u64(..=newest));
                    let prefix = [[0; 8], group.to_be_bytes()].concat();
                    let found = found(memtable, &prefix, at);
                    let found: Vec<_> = found.into_iter().map(|(key, _)| key).collect();
                    let revisions = (1..=at).filter(|revision| is_in(group, *revision));
                    let expected: BTreeSet<_> = revisions.map(|it| key_of(group, it)).collect();
                    assert!(found.iter().eq(&expected), "group {group} at {at}");
                    // A reader that comes late finds the end only, but often.
                    if newest == REVISIONS && round >= GROUPS {
                        return;
                    }
                }
            });
        }
        for revision in 1..=REVISIONS {
            let mut writer = memtable.writer();
            for group in (0..GROUPS).filter(|group| is_in(*group, revision)) {
                let key = key_of(group, revision);
                let inserted = writer.insert(TREE, &key, revision, EntryKind::Put, b"");
                inserted.expect("room");
            }
            drop(writer);
            visible.store(revision, Release);
        }
    });
    assert!(groups_bytes(&memtable) > 0, "no table was made");
}
