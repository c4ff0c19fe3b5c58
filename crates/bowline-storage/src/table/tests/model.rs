//! Random tables against a sorted map: every read, at random revisions, with random options.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use fastrand::Rng;

use super::*;

/// Entries in table order.
type Model = BTreeMap<(Vec<u8>, Reverse<Revision>), (EntryKind, Vec<u8>)>;

/// What a reader sees of one key.
type Seen = (Vec<u8>, Revision, EntryKind, Vec<u8>);

fn random_key(random: &mut Rng) -> Vec<u8> {
    match random.u8(..10) {
        // Few letters, so that keys are prefixes of each other.
        0..5 => (0..random.usize(..6))
            .map(|_| random.u8(b'a'..=b'c'))
            .collect(),
        5..8 => format!("services/backend/{:03}", random.u32(..60)).into_bytes(),
        8 => vec![0xff; random.usize(..4)],
        _ => (0..random.usize(..40)).map(|_| random.u8(..)).collect(),
    }
}

fn random_options(random: &mut Rng) -> TableOptions {
    TableOptions {
        page_bytes: random.choice([1, 64, 100, 256, 1000, 8192]).unwrap(),
        restart_interval: random.choice([0, 1, 2, 3, 16, 50]).unwrap(),
        filter_bits_per_key: random.choice([0, 1, 10, 16]).unwrap(),
        compression: random
            .choice([Compression::None, Compression::Lz4])
            .unwrap(),
    }
}

fn random_model(random: &mut Rng) -> Model {
    let mut model = Model::new();
    for _ in 0..random.usize(..120) {
        let key = random_key(random);
        let versions = if random.u8(..8) == 0 {
            random.usize(..100)
        } else {
            random.usize(..4)
        };
        for _ in 0..versions {
            let kind = if random.u8(..4) == 0 {
                EntryKind::Delete
            } else {
                EntryKind::Put
            };
            let len = if random.u8(..40) == 0 {
                700
            } else {
                random.usize(..20)
            };
            let value = (0..len).map(|_| random.u8(b'p'..=b'z')).collect();
            model.insert((key.clone(), Reverse(random.u64(..200))), (kind, value));
        }
    }
    model
}

/// The newest entry of each key at a revision.
fn seen_at(model: &Model, at: Revision) -> Vec<Seen> {
    let mut seen: Vec<Seen> = Vec::new();
    for ((key, Reverse(revision)), (kind, value)) in model {
        if *revision <= at && seen.last().is_none_or(|last| last.0 != *key) {
            seen.push((key.clone(), *revision, *kind, value.clone()));
        }
    }
    seen
}

fn shown(cursor: &TableReadCursor) -> Option<Seen> {
    assert!(!cursor.valid() || *value_owned(cursor) == *cursor.value());
    let shown = || {
        (
            cursor.key().into(),
            cursor.revision(),
            cursor.kind(),
            cursor.value().into(),
        )
    };
    cursor.valid().then(shown)
}

fn check_gets(random: &mut Rng, table: &Table, model: &Model, at: Revision, seen: &[Seen]) {
    let absent = (0..20).map(|_| random_key(random));
    for key in model.keys().map(|(key, _)| key.clone()).chain(absent) {
        let expected = seen.iter().find(|entry| entry.0 == key);
        let found = table.get(&key, at).unwrap();
        let found = found.map(|found| (key, found.revision, found.kind, found.value.to_vec()));
        assert_eq!(found.as_ref(), expected);
    }
}

fn check_read_cursor(random: &mut Rng, table: &Arc<Table>, at: Revision, seen: &[Seen]) {
    let mut cursor = table.read_cursor(at);
    assert!(!cursor.valid());
    cursor.next().unwrap();
    cursor.prev().unwrap();
    assert!(!cursor.valid(), "a cursor that is nowhere stays there");

    let mut forward = Vec::new();
    cursor.seek_first().unwrap();
    while let Some(entry) = shown(&cursor) {
        forward.push(entry);
        cursor.next().unwrap();
    }
    assert_eq!(forward, seen);
    let mut backward = Vec::new();
    cursor.seek_last().unwrap();
    while let Some(entry) = shown(&cursor) {
        backward.push(entry);
        cursor.prev().unwrap();
    }
    backward.reverse();
    assert_eq!(backward, seen);

    // A walk of random moves, with the position in `seen` beside it.
    let mut position = None;
    for _ in 0..150 {
        match random.u8(..8) {
            0 => {
                let key = random_key(random);
                cursor.seek(&key).unwrap();
                position = Some(seen.partition_point(|entry| entry.0 < key));
            }
            1 => {
                let key = random_key(random);
                cursor.seek_before(&key).unwrap();
                position = seen.partition_point(|entry| entry.0 < key).checked_sub(1);
            }
            2..5 => {
                cursor.next().unwrap();
                position = position.map(|position| position + 1);
            }
            _ => {
                cursor.prev().unwrap();
                position = position.and_then(|position| position.checked_sub(1));
            }
        }
        position = position.filter(|position| *position < seen.len());
        assert_eq!(
            shown(&cursor).as_ref(),
            position.map(|position| &seen[position])
        );
    }
}

fn check_version_cursor(random: &mut Rng, table: &Arc<Table>, model: &Model) {
    let entries = flatten(model);
    for use_cache in [true, false] {
        assert_eq!(all_of(table, use_cache).unwrap(), entries);
        for _ in 0..10 {
            let key = random_key(random);
            let mut cursor = table.version_cursor(use_cache);
            cursor.seek(&key).unwrap();
            let start = entries.partition_point(|entry| entry.0 < key);
            assert_eq!(rest_of(cursor).unwrap(), entries[start..]);
        }
    }
}

fn flatten(model: &Model) -> Vec<Entry> {
    model
        .iter()
        .map(|((key, revision), (kind, value))| (key.clone(), revision.0, *kind, value.clone()))
        .collect()
}

#[test]
fn a_table_reads_as_a_sorted_map_does() {
    for seed in crate::seeds(0..120) {
        let mut random = Rng::with_seed(seed);
        let (options, model) = (random_options(&mut random), random_model(&mut random));
        println!("seed {seed}: {} entries, {options:?}", model.len());
        let bench = Bench::with_cache(random.choice([0, 20_000, 1 << 20]).unwrap());
        let table = bench.table(seed, &options, &flatten(&model));

        let report = table.verify().unwrap();
        let tombstones = model
            .values()
            .filter(|(kind, _)| *kind == EntryKind::Delete)
            .count();
        assert_eq!(
            (report.entries, report.tombstones),
            (model.len() as u64, tombstones as u64)
        );
        assert_eq!(
            (table.meta().entries, table.meta().tombstones),
            (report.entries, report.tombstones)
        );

        check_version_cursor(&mut random, &table, &model);
        for at in [0, random.u64(..200), random.u64(..200), 199, Revision::MAX] {
            let seen = seen_at(&model, at);
            check_gets(&mut random, &table, &model, at, &seen);
            check_read_cursor(&mut random, &table, at, &seen);
        }
        assert!(bench.cache.used_bytes() <= bench.cache.budget_bytes());
    }
}
