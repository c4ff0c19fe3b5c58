//! Tables of particular shapes, and what surrounds reading and writing them.

use super::*;
use crate::error::Error;
use crate::vfs::OsVfs;

#[test]
fn values_of_every_size_come_back() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut entries = Vec::new();
    for (i, len) in [0, 1, 118, 119, 10 << 10, 3 << 20, 0, 8 << 10, 1]
        .into_iter()
        .enumerate()
    {
        let noise: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
        entries.push(put(format!("key{i}"), 20, noise));
        entries.push(put(format!("key{i}"), 10, vec![b'x'; len]));
    }
    for compression in [Compression::None, Compression::Lz4] {
        let bench = Bench::with_cache(64 << 20);
        let table = bench.table(
            1,
            &TableOptions {
                compression,
                ..Default::default()
            },
            &entries,
        );
        table.verify().unwrap();
        assert_eq!(all_of(&table, false).unwrap(), entries);
        for (key, revision, kind, value) in &entries {
            let found = table.get(key, *revision).unwrap().unwrap();
            assert_eq!((found.revision, found.kind), (*revision, *kind));
            assert!(found.value[..] == value[..]);
        }
        let mut cursor = table.read_cursor(15);
        cursor.seek_last().unwrap();
        for (key, _, _, value) in entries.iter().skip(1).step_by(2).rev() {
            assert!(cursor.key() == key && value_owned(&cursor)[..] == value[..]);
            cursor.prev().unwrap();
        }
        assert!(!cursor.valid());
    }
}

#[test]
fn versions_of_one_key_over_many_pages_are_all_found() {
    let bench = Bench::new();
    let mut entries = vec![put("a", 5, "first")];
    entries.extend(
        (1..=2000u64)
            .rev()
            .map(|i| put("hot", 2 * i, i.to_string())),
    );
    entries.push(put("z", 5, "last"));
    let table = bench.table(1, &tiny(), &entries);
    let report = table.verify().unwrap();
    assert!(report.pages > 100 && report.keys == 3, "{report:?}");
    for at in 2..=4100u64 {
        let found = table.get(b"hot", at).unwrap().unwrap();
        assert_eq!(found.revision, at.min(4000) / 2 * 2);
        let mut cursor = table.read_cursor(at);
        cursor.seek(b"h").unwrap();
        assert_eq!(
            (cursor.key(), cursor.revision()),
            (&b"hot"[..], found.revision)
        );
    }
    assert_eq!(table.get(b"hot", 1).unwrap(), None);

    let before = bench.counters.snapshot();
    table.get(b"hot", 2).unwrap();
    let after = bench.counters.snapshot();
    let looked =
        |counters: &crate::counters::CountersSnapshot| counters.cache_hits + counters.cache_misses;
    assert_eq!(
        looked(&after) - looked(&before),
        1,
        "one page is enough for any version"
    );

    let mut cursor = table.read_cursor(5);
    cursor.seek_last().unwrap();
    for (key, revision) in [(&b"z"[..], 5), (b"hot", 4), (b"a", 5)] {
        assert_eq!((cursor.key(), cursor.revision()), (key, revision));
        cursor.prev().unwrap();
    }
    assert!(!cursor.valid());
}

#[test]
fn an_empty_table_is_a_table() {
    let bench = Bench::new();
    let table = bench.table(1, &TableOptions::default(), &[]);
    assert_eq!(table.verify().unwrap().entries, 0);
    assert_eq!(table.get(b"", 9).unwrap(), None);
    assert_eq!(table.memory_bytes(), 0);
    assert!(all_of(&table, true).unwrap().is_empty());
    let mut cursor = table.read_cursor(9);
    cursor.seek_last().unwrap();
    assert!(!cursor.valid());
    cursor.seek_before(b"z").unwrap();
    assert!(!cursor.valid());
}

#[test]
fn the_writer_refuses_disorder_and_repetition() {
    let bench = Bench::new();
    let mut writer = bench.writer(1, &TableOptions::default());
    writer.add(b"b", 5, EntryKind::Put, b"").unwrap();
    for (key, revision) in [(&b"b"[..], 5), (b"b", 6), (b"a", 1), (b"", 9)] {
        let error = writer.add(key, revision, EntryKind::Put, b"").unwrap_err();
        assert!(
            matches!(error, Error::Internal(_)),
            "{key:?} at {revision}: {error}"
        );
    }
    writer.add(b"b", 4, EntryKind::Put, b"").unwrap();
    writer.add(b"b\0", 9, EntryKind::Delete, b"").unwrap();
    assert_eq!(
        (writer.entries(), writer.last_key()),
        (3, Some(&b"b\0"[..]))
    );
    let meta = writer.finish().unwrap();
    assert_eq!((meta.entries, meta.tombstones), (3, 1));
    assert_eq!((&*meta.min_key, &*meta.max_key), (&b"b"[..], &b"b\0"[..]));
    assert_eq!(
        (meta.min_revision, meta.max_revision, meta.raw_bytes),
        (4, 9, 4)
    );
    bench.open(&meta).unwrap().verify().unwrap();
}

#[test]
fn the_writer_says_how_much_it_has_written() {
    let bench = Bench::new();
    let options = TableOptions {
        compression: Compression::None,
        ..Default::default()
    };
    let mut writer = bench.writer(1, &options);
    let mut before = 0;
    for i in 0..5000u32 {
        writer
            .add(&i.to_be_bytes(), 1, EntryKind::Put, &[1; 100])
            .unwrap();
        assert!(writer.written_bytes() >= before + 100);
        before = writer.written_bytes();
    }
    let meta = writer.finish().unwrap();
    let filter_bytes = 2 * 5000;
    assert!(
        meta.file_bytes.abs_diff(before + filter_bytes) < 1000,
        "{before} {meta:?}"
    );
}

#[test]
fn an_unfinished_table_leaves_no_file() {
    let bench = Bench::new();
    let exists = || bench.vfs.metadata(&Bench::path(1)).unwrap().is_some();
    let writer = bench.writer(1, &TableOptions::default());
    assert!(exists());
    writer.abandon();
    assert!(!exists());
    drop(bench.writer(1, &TableOptions::default()));
    assert!(!exists());
    bench.write(1, &TableOptions::default(), &[]);
    assert!(exists());
    let again = TableWriter::create(&bench.vfs, Bench::path(1), 1, TreeId(0), &tiny());
    assert!(again.is_err(), "a table is never overwritten");
    assert!(exists());
}

#[test]
fn an_obsolete_table_goes_with_its_last_user() {
    let bench = Bench::new();
    let table = bench.table(1, &tiny(), &[put("a", 1, "v"), put("b", 1, vec![1; 90])]);
    table.get(b"a", 1).unwrap();
    let mut cursor = table.read_cursor(1);
    table.mark_obsolete();
    drop(table);
    assert!(bench.cache.used_bytes() > 0);
    cursor.seek_last().unwrap();
    assert_eq!(cursor.key(), b"b");
    drop(cursor);
    assert_eq!(bench.vfs.metadata(&Bench::path(1)).unwrap(), None);
    assert_eq!(bench.cache.used_bytes(), 0);
}

#[test]
fn reads_are_counted_by_cause() {
    let bench = Bench::new();
    let entries: Vec<Entry> = (0..2000)
        .map(|i| put(format!("{i:06}"), 1, vec![0; 50]))
        .collect();
    let options = TableOptions {
        compression: Compression::None,
        ..Default::default()
    };
    let table = bench.table(1, &options, &entries);
    let pages_bytes: u64 = (0..table.index().len())
        .map(|page| table.index().location(page).stored_bytes as u64)
        .sum();

    all_of(&table, false).unwrap();
    let counters = bench.counters.snapshot();
    assert_eq!(
        counters.compaction_bytes_read, pages_bytes,
        "every byte is read once"
    );
    assert_eq!(
        (
            counters.cache_hits,
            counters.cache_misses,
            counters.read_bytes
        ),
        (0, 0, 0)
    );
    assert_eq!(bench.cache.used_bytes(), 0);

    all_of(&table, true).unwrap();
    all_of(&table, true).unwrap();
    let counters = bench.counters.snapshot();
    assert_eq!(counters.read_bytes, pages_bytes);
    assert_eq!(counters.cache_misses, table.index().len() as u64);
    assert_eq!(counters.cache_hits, counters.cache_misses);

    for i in 0..1000 {
        table.get(format!("{i:06}x").as_bytes(), 1).unwrap();
    }
    let counters = bench.counters.snapshot();
    assert_eq!(
        counters.filter_negatives + counters.filter_false_positives,
        1000
    );
    assert!(counters.filter_false_positives < 20);
}

#[test]
fn a_value_that_fills_its_page_shares_its_memory() {
    let bench = Bench::new();
    let table = bench.table(1, &TableOptions::default(), &[put("k", 1, vec![9; 6000])]);
    let one = table.get(b"k", 1).unwrap().unwrap().value;
    let other = table.get(b"k", 1).unwrap().unwrap().value;
    assert_eq!(one.as_ptr(), other.as_ptr());
}

#[test]
fn a_table_works_on_the_real_file_system() {
    let directory = tempfile::tempdir().unwrap();
    let vfs: Arc<dyn Vfs> = Arc::new(OsVfs);
    let path = directory.path().join("1.table");
    let mut writer =
        TableWriter::create(&vfs, path.clone(), 1, TreeId(0), &TableOptions::default()).unwrap();
    for i in 0..50_000u32 {
        writer
            .add(&i.to_be_bytes(), 1, EntryKind::Put, &[i as u8; 20])
            .unwrap();
    }
    let meta = writer.finish().unwrap();
    let counters = Arc::<Counters>::default();
    let cache = Arc::new(PageCache::new(1 << 20, counters.clone()));
    let table = Arc::new(Table::open(&vfs, path.clone(), &meta, cache, counters).unwrap());
    assert_eq!(table.verify().unwrap().keys, 50_000);
    // Readers on several threads share the table and its cache.
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let table = &table;
            scope.spawn(move || {
                for i in (thread..50_000u32).step_by(7) {
                    let found = table.get(&i.to_be_bytes(), 9).unwrap().unwrap();
                    assert_eq!(*found.value, [i as u8; 20]);
                }
            });
        }
    });
    table.mark_obsolete();
    drop(table);
    assert!(!path.exists());
}

#[test]
fn cursors_and_tables_can_be_sent_to_other_threads() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<TableReadCursor>();
    send::<TableVersionCursor>();
    send::<TableWriter>();
    send::<Table>();
    sync::<Table>();
    sync::<PageCache>();
}
