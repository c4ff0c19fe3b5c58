//! Fuzzing of tables, their parts and their pages; see [`crate::fuzzing`].

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use super::filter::{Filter, key_hash};
use super::footer::{FOOTER_BYTES, Footer};
use super::index::{Index, IndexBuilder};
use super::meta::Properties;
use super::page::Page;
use super::page_builder::PageBuilder;
use super::page_cursor::PageCursor;
use super::{PageCache, Table, TableMeta, TableOptions, TableWriter};
use crate::codec::Reader;
use crate::counters::Counters;
use crate::error::Result;
use crate::frame::Compression;
use crate::frame::{self, OVERHEAD_BYTES, Payload};
use crate::fuzzing::{assert_blames_the_bytes, number};
use crate::memtable::Memtable;
use crate::types::{EntryKind, Revision, TreeId};
use crate::vfs::{self, MemoryVfs, OpenMode, Vfs};

const FILE_ID: u64 = 7;
const SALT: u64 = 0x5A17;
const TREE: TreeId = TreeId(3);

/// A key, its revision, what it is, its value.
type Entry = (Vec<u8>, Revision, EntryKind, Vec<u8>);

fn is_sorted(entries: &[Entry]) -> bool {
    entries.is_sorted_by(|a, b| (&a.0, Reverse(a.1)) < (&b.0, Reverse(b.1)))
}

// --- Pages and sections ---------------------------------------------------------------------

/// A byte that says which part of a table, and the part, without its checksum.
pub fn page(data: &[u8]) {
    match data.split_first() {
        Some((0, data)) => one_page(data),
        Some((1, data)) => index(data),
        Some((2, data)) => filter(data),
        Some((3, data)) => properties(data),
        Some((4, data)) => stored_frame(data),
        Some((_, data)) => footer(data),
        None => {}
    }
}

fn forward(cursor: &mut PageCursor) -> Result<Vec<Entry>, frame::Reason> {
    let mut entries = Vec::new();
    cursor.seek_first()?;
    loop {
        entries.push(entry_of(cursor));
        if !cursor.next()? {
            return Ok(entries);
        }
    }
}

fn backward(cursor: &mut PageCursor) -> Result<Vec<Entry>, frame::Reason> {
    let mut entries = Vec::new();
    cursor.seek_last()?;
    loop {
        entries.push(entry_of(cursor));
        if !cursor.prev()? {
            entries.reverse();
            return Ok(entries);
        }
    }
}

fn entry_of(cursor: &PageCursor) -> Entry {
    let entry = cursor.entry();
    let value = cursor.page().value(entry).to_vec();
    (cursor.key().to_vec(), entry.revision, entry.kind, value)
}

/// Whether the intervals follow each other without a gap from the start of the page to its end.
fn is_gapless(page: &Page) -> bool {
    let mut offset = 0;
    for interval in 0..page.restarts() {
        let (Ok(start), Ok(end)) = (page.interval_start(interval), page.interval_end(interval))
        else {
            return false;
        };
        if start != offset || start >= end {
            return false;
        }
        while offset < end {
            match page.entry_at(offset) {
                Ok(entry) => offset = entry.end,
                Err(_) => return false,
            }
        }
        if offset != end {
            return false;
        }
    }
    true
}

/// Whether a search finds each entry: then its key shares exactly what it has in common with the
/// key before, which a seek relies on as the search does. [`Table::verify`] demands this too.
fn is_searchable(page: &Page) -> Result<bool, frame::Reason> {
    let mut cursor = PageCursor::new();
    cursor.enter(page.clone());
    cursor.seek_first()?;
    loop {
        let (key, entry) = (cursor.key(), cursor.entry());
        let found = page.find(key, key_hash(key), entry.revision)?;
        if found.is_none_or(|found| found.end != entry.end) {
            return Ok(false);
        }
        if !cursor.next()? {
            return Ok(true);
        }
    }
}

fn one_page(data: &[u8]) {
    let Ok(page) = Page::parse(Bytes::copy_from_slice(data)) else {
        return;
    };
    let mut cursor = PageCursor::new();
    cursor.enter(page.clone());
    let entries = forward(&mut cursor);
    let reversed = backward(&mut cursor);
    let mut keys = vec![Vec::new(), b"key".to_vec()];
    if let Ok(entries) = &entries {
        keys.extend(entries.iter().take(64).map(|entry| entry.0.clone()));
    }
    for key in &keys {
        for at in [0, 300, Revision::MAX] {
            // Any answer will do for a page that is not what its writer made.
            let _ = page.find(key, key_hash(key), at);
            let _ = cursor.seek(key, at).and_then(|_| cursor.prev());
        }
    }
    let Ok(entries) = entries else {
        return;
    };
    if !is_gapless(&page) || !is_sorted(&entries) || is_searchable(&page) != Ok(true) {
        return;
    }
    assert_eq!(reversed.as_ref(), Ok(&entries));
    for entry in &entries {
        assert_eq!(cursor.seek(&entry.0, entry.1), Ok(true));
        assert_eq!(entry_of(&cursor), *entry);
    }
}

fn index(data: &[u8]) {
    // What the pages fill, as a valid index says.
    let mut pages_bytes = 0_u64;
    let mut reader = Reader::new(data);
    let mut walk = || {
        for _ in 0..reader.varint()? {
            reader.bytes()?;
            reader.varint()?;
            pages_bytes = pages_bytes.saturating_add(reader.varint()?);
            reader.varint()?;
        }
        Some(())
    };
    walk();
    let Ok(index) = Index::decode(data, pages_bytes) else {
        return;
    };
    let mut builder = IndexBuilder::default();
    for page in 0..index.len() {
        let (key, revision) = (index.last_key(page), index.last_revision(page));
        let location = index.location(page);
        builder.add(key, revision, location.stored_bytes, location.raw_bytes);
        assert!(
            index
                .find(key, revision)
                .is_none_or(|found| found < index.len())
        );
    }
    assert_eq!(builder.finish(), data, "two encodings of one index");
    assert!(index.memory_bytes() <= 16 * data.len());
}

fn filter(data: &[u8]) {
    if let Ok(filter) = Filter::decode(data) {
        let mut out = Vec::new();
        filter.encode(&mut out);
        assert_eq!(out, data);
        for hash in [0, u64::MAX, key_hash(data)] {
            let _ = filter.may_contain(hash);
        }
    }
}

fn properties(data: &[u8]) {
    if let Some(properties) = Properties::decode(data) {
        let mut out = Vec::new();
        properties.encode(&mut out);
        assert_eq!(out, data, "two encodings of the same properties");
    }
}

fn stored_frame(mut data: &[u8]) {
    let payload_bytes = usize::from(u16::from_le_bytes(number(&mut data)));
    let mut frame = data.to_vec();
    frame.extend_from_slice(&frame::checksum(data, SALT, 4096).to_le_bytes());
    match frame::open(&frame, payload_bytes, SALT, 4096) {
        Ok(Payload::Plain(len)) => assert!(len == payload_bytes && len < data.len()),
        Ok(Payload::Decompressed(payload)) => assert_eq!(payload.len(), payload_bytes),
        Err(_) => {}
    }
    let _ = frame::open_plain(&frame, SALT, 4096);
    assert!(frame::open(data, payload_bytes, SALT, 4096).is_err());
}

fn footer(mut data: &[u8]) {
    let before = u64::from(u32::from_le_bytes(number(&mut data)));
    let mut window = data.to_vec();
    let file_bytes = before + window.len() as u64;
    let _ = Footer::decode(&window, file_bytes, SALT);
    if window.len() >= FOOTER_BYTES {
        let start = window.len() - FOOTER_BYTES;
        repair_footer(&mut window[start..], before + start as u64);
        if let Ok(footer) = Footer::decode(&window, file_bytes, SALT) {
            assert_eq!(footer.offset(), before + start as u64);
            let mut out = Vec::new();
            footer.encode(&mut out, SALT);
            assert_eq!(out, window[start..]);
        }
    }
}

/// One seed of each part.
#[cfg_attr(fuzzing, allow(dead_code))]
pub(crate) fn page_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let mut builder = PageBuilder::new(4);
    for (key, revision, kind, value) in sample() {
        builder.add(&key, revision, kind, &value);
    }
    seeds.push([&[0], builder.finish()].concat());
    // Keys that share less than they have in common: a seek of the last one stops before it. The
    // fuzzer took such a page for one that its writer made.
    let mut loose = vec![0];
    for last in b"abc" {
        loose.extend([0, 2, 0, EntryKind::Put as u8, 1, b'a', *last]);
    }
    for number in [0_u32, 0, 1] {
        loose.extend(number.to_le_bytes());
    }
    seeds.push(loose);
    let mut builder = IndexBuilder::default();
    builder.add(b"b", 10, 100, 200);
    builder.add(b"hot", 50, 110, 220);
    builder.add(b"hot", 20, 120, 240);
    seeds.push([&[1], &builder.finish()[..]].concat());
    let mut section = vec![2];
    let hashes: Vec<_> = sample().iter().map(|entry| key_hash(&entry.0)).collect();
    Filter::build(&hashes, 16)
        .expect("there are keys")
        .encode(&mut section);
    seeds.push(section);
    let (bytes, footer) = sample_file(Compression::Lz4);
    let properties_start = (footer.offset() - footer.properties_bytes) as usize;
    let section = &bytes[properties_start..footer.offset() as usize - OVERHEAD_BYTES];
    seeds.push([&[3], section].concat());
    let text = b"abcabcabc".repeat(20);
    let mut out = Vec::new();
    let mut frames = frame::FrameWriter::default();
    frames.append(&mut out, &text, Compression::Lz4, SALT, 4096);
    let stored = &out[..out.len() - 4];
    seeds.push([&[4], &(text.len() as u16).to_le_bytes()[..], stored].concat());
    let before = (footer.offset() as u32).to_le_bytes();
    seeds.push([&[5], &before[..], &bytes[footer.offset() as usize..]].concat());
    seeds
}

// --- Whole files ----------------------------------------------------------------------------

/// Entries with history, deletions, a long value and a key that fills pages.
fn sample() -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut put = |key: &str, revision, value: &[u8]| {
        let kind = match value {
            [] => EntryKind::Delete,
            _ => EntryKind::Put,
        };
        entries.push((key.as_bytes().to_vec(), revision, kind, value.to_vec()));
    };
    put("", 3, b"the empty key");
    put("a", 9, b"new");
    put("a", 7, b"");
    put("a", 4, b"old");
    for revision in (20..50).rev() {
        put("hot", revision, b"v");
    }
    put("long/name/one", 300, &[b'x'; 300]);
    put("long/name/two", 301, &[]);
    entries
}

fn sample_file(compression: Compression) -> (Vec<u8>, Footer) {
    let options = TableOptions {
        page_bytes: 150,
        restart_interval: 3,
        compression,
        ..TableOptions::default()
    };
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::default());
    let meta = write(&vfs, &options, &sample());
    let bytes = vfs::read_file(&*vfs, &path(), u64::MAX).expect("it was written");
    let footer = Footer::decode(&bytes, meta.file_bytes, SALT).expect("it is whole");
    (bytes, footer)
}

fn path() -> PathBuf {
    PathBuf::from("7.table")
}

fn write(vfs: &Arc<dyn Vfs>, options: &TableOptions, entries: &[Entry]) -> TableMeta {
    let mut writer =
        TableWriter::create(vfs, path(), FILE_ID, TREE, options).expect("memory takes it");
    // Not a random one: the fuzzer's bytes are sealed with it.
    writer.meta.salt = SALT;
    for (key, revision, kind, value) in entries {
        writer.add(key, *revision, *kind, value).expect("in order");
    }
    writer.finish().expect("memory takes it")
}

fn open(vfs: &Arc<dyn Vfs>, meta: &TableMeta, cache_bytes: u64) -> Result<Arc<Table>> {
    let counters = Arc::<Counters>::default();
    let cache = Arc::new(PageCache::new(cache_bytes, counters.clone()));
    Table::open(vfs, path(), meta, cache, counters).map(Arc::new)
}

/// Makes the magic, length, version and checksum of a footer right.
fn repair_footer(footer: &mut [u8], offset: u64) {
    let mut whole = Vec::new();
    Footer {
        pages_bytes: offset,
        filter_bytes: 0,
        index_bytes: 0,
        properties_bytes: 0,
    }
    .encode(&mut whole, SALT);
    footer[32..].copy_from_slice(&whole[32..]);
    let checksum = frame::checksum(&footer[..40], SALT, offset);
    footer[40..44].copy_from_slice(&checksum.to_le_bytes());
}

fn repair_frame(bytes: &mut [u8], start: usize, end: usize) -> Option<()> {
    let body = bytes.get(start..end.checked_sub(4)?)?;
    let checksum = frame::checksum(body, SALT, start as u64).to_le_bytes();
    bytes[end - 4..end].copy_from_slice(&checksum);
    Some(())
}

/// Makes every checksum and length of a table file right, as far as its parts can be found.
/// Returns the metadata that its properties then state.
pub(super) fn repair(bytes: &mut [u8]) -> Option<TableMeta> {
    let offset = bytes.len().checked_sub(FOOTER_BYTES)?;
    let mut parts = [0_usize; 4];
    for (part, field) in parts.iter_mut().zip(bytes[offset..].as_chunks::<8>().0) {
        *part = usize::try_from(u64::from_le_bytes(*field)).ok()?;
    }
    let [_, filter_bytes, index_bytes, properties_bytes] = parts;
    let properties_start = offset.checked_sub(properties_bytes)?;
    let index_start = properties_start.checked_sub(index_bytes)?;
    let filter_start = index_start.checked_sub(filter_bytes)?;
    bytes[offset..offset + 8].copy_from_slice(&(filter_start as u64).to_le_bytes());
    repair_footer(&mut bytes[offset..], offset as u64);
    if filter_bytes > 0 {
        repair_frame(bytes, filter_start, index_start)?;
    }
    repair_frame(bytes, index_start, properties_start)?;

    let section = bytes.get(index_start..properties_start.checked_sub(OVERHEAD_BYTES)?)?;
    let mut content_crc = 0;
    if let Ok(index) = Index::decode(section, filter_start as u64) {
        for page in 0..index.len() {
            let location = index.location(page);
            let (start, len) = (location.offset as usize, location.stored_bytes);
            repair_frame(bytes, start, start + len);
            let frame = &bytes[start..start + len];
            content_crc = match frame::open(frame, location.raw_bytes, SALT, start as u64) {
                Ok(Payload::Plain(len)) => crc32c::crc32c_append(content_crc, &frame[..len]),
                Ok(Payload::Decompressed(page)) => crc32c::crc32c_append(content_crc, &page),
                Err(_) => content_crc,
            };
        }
    }
    let end = offset.checked_sub(OVERHEAD_BYTES)?;
    let mut properties = Properties::decode(bytes.get(properties_start..end)?)?;
    properties.meta.file_id = FILE_ID;
    properties.meta.salt = SALT;
    properties.meta.file_bytes = bytes.len() as u64;
    properties.meta.content_crc = content_crc;
    let mut section = Vec::new();
    properties.encode(&mut section);
    bytes
        .get_mut(properties_start..end)
        .filter(|old| old.len() == section.len())?
        .copy_from_slice(&section);
    repair_frame(bytes, properties_start, offset)?;
    Some(properties.meta)
}

fn all_of(table: &Arc<Table>, use_cache: bool) -> Result<Vec<Entry>> {
    let mut cursor = table.version_cursor(use_cache);
    let mut entries = Vec::new();
    cursor.seek_first()?;
    while cursor.valid() {
        let (key, value) = (cursor.key().to_vec(), cursor.value().to_vec());
        entries.push((key, cursor.revision(), cursor.kind(), value));
        cursor.next()?;
    }
    Ok(entries)
}

fn seen_at(table: &Arc<Table>, at: Revision, limit: usize) -> Result<[Vec<Entry>; 2]> {
    let mut seen = [Vec::new(), Vec::new()];
    for (backward, seen) in seen.iter_mut().enumerate() {
        let mut cursor = table.read_cursor(at);
        match backward {
            0 => cursor.seek_first()?,
            _ => cursor.seek_last()?,
        }
        while cursor.valid() {
            let (key, value) = (cursor.key().to_vec(), cursor.value().to_vec());
            seen.push((key, cursor.revision(), cursor.kind(), value));
            assert!(seen.len() <= limit, "a cursor runs for ever");
            match backward {
                0 => cursor.next()?,
                _ => cursor.prev()?,
            }
        }
    }
    seen[1].reverse();
    Ok(seen)
}

/// A byte that says whether to put checksums right, and a table file.
pub fn table_file(data: &[u8]) {
    let Some((&flags, data)) = data.split_first() else {
        return;
    };
    let mut bytes = data.to_vec();
    let repaired = if flags & 1 != 0 {
        repair(&mut bytes)
    } else {
        None
    };
    let meta = repaired.unwrap_or_else(|| TableMeta {
        file_id: FILE_ID,
        salt: SALT,
        tree: TREE,
        file_bytes: bytes.len() as u64,
        entries: 1,
        tombstones: 0,
        raw_bytes: 2,
        min_key: b"k"[..].into(),
        max_key: b"k"[..].into(),
        min_revision: 1,
        max_revision: 1,
        content_crc: 0,
    });
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::default());
    let file = vfs.open(&path(), OpenMode::CreateNew).expect("it is new");
    file.write_at(&bytes, 0).expect("memory takes it");
    let cache_bytes = if flags & 2 != 0 { 1 << 20 } else { 0 };
    let table = match open(&vfs, &meta, cache_bytes) {
        Ok(table) => table,
        Err(error) => return assert_blames_the_bytes(&error),
    };
    // No entry is shorter than five bytes, and LZ4 makes at most 256 of one.
    let limit = 256 * bytes.len() / 5 + 1;
    let verified = table.verify();
    let entries = all_of(&table, true);
    let keys: Vec<Vec<u8>> = match &entries {
        Ok(entries) => entries
            .iter()
            .take(100)
            .map(|entry| entry.0.clone())
            .collect(),
        Err(_) => vec![b"a".to_vec(), b"hot".to_vec()],
    };
    for at in [0, 8, 33, Revision::MAX] {
        let seen = seen_at(&table, at, limit);
        if let Err(error) = &seen {
            assert_blames_the_bytes(error);
        }
        for key in &keys {
            let found = table.get(key, at);
            if verified.is_ok() {
                let expected = entries
                    .iter()
                    .flatten()
                    .find(|it| it.0 == *key && it.1 <= at);
                let found = found.expect("a verified table reads");
                let found = found.map(|it| (key.clone(), it.revision, it.kind, it.value.to_vec()));
                assert_eq!(found.as_ref(), expected);
            } else if let Err(error) = &found {
                assert_blames_the_bytes(error);
            }
        }
        if verified.is_ok() {
            let entries = entries.as_ref().expect("a verified table reads");
            let expected = model_at(entries, at);
            assert_eq!(
                seen.expect("a verified table reads"),
                [expected.clone(), expected]
            );
        }
    }
    match verified {
        Err(error) => assert_blames_the_bytes(&error),
        Ok(report) => {
            let entries = entries.expect("a verified table reads");
            assert!(is_sorted(&entries));
            assert_eq!(report.entries, entries.len() as u64);
            assert_eq!(
                all_of(&table, false).expect("a verified table reads"),
                entries
            );
        }
    }
}

/// Whole tables, plain and compressed.
#[cfg_attr(fuzzing, allow(dead_code))]
pub(crate) fn table_seeds() -> Vec<Vec<u8>> {
    let plain = sample_file(Compression::None).0;
    let compressed = sample_file(Compression::Lz4).0;
    vec![
        [&[1], &plain[..]].concat(),
        [&[3], &compressed[..]].concat(),
        [&[0], &compressed[..]].concat(),
    ]
}

// --- Entries of the fuzzer's choice ---------------------------------------------------------

/// What a reader at a revision sees of sorted entries.
fn model_at(entries: &[Entry], at: Revision) -> Vec<Entry> {
    let mut seen: Vec<_> = entries.iter().filter(|it| it.1 <= at).cloned().collect();
    seen.dedup_by(|later, kept| later.0 == kept.0);
    seen
}

/// Options, then entries: each shares the beginning of its key with the one before.
fn parse_entries(mut data: &[u8]) -> (TableOptions, Vec<Entry>) {
    let [page, restart, filter, compression] = number(&mut data);
    let options = TableOptions {
        page_bytes: 20 + usize::from(page) * 4,
        restart_interval: usize::from(restart % 20),
        filter_bits_per_key: usize::from(filter % 21),
        compression: match compression % 2 {
            0 => Compression::None,
            _ => Compression::Lz4,
        },
    };
    let mut entries = BTreeMap::new();
    let mut key = Vec::new();
    while !data.is_empty() {
        let [shape, value, revision] = number(&mut data);
        key.truncate(usize::from(shape & 15));
        let (suffix, rest) = data.split_at(usize::from(shape >> 4).min(data.len()));
        key.extend_from_slice(suffix);
        data = rest;
        let kind = match value {
            0 => EntryKind::Delete,
            _ => EntryKind::Put,
        };
        // Some values are longer than a page.
        let value = vec![value; usize::from(value & 31) * if value > 200 { 50 } else { 1 }];
        entries.insert(
            (key.clone(), Reverse(Revision::from(revision))),
            (kind, value),
        );
    }
    let entries = entries
        .into_iter()
        .map(|((key, revision), (kind, value))| (key, revision.0, kind, value))
        .collect();
    (options, entries)
}

/// Whatever the entries, a table and a memtable hold exactly these.
pub fn entries(data: &[u8]) {
    let (options, entries) = parse_entries(data);
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::default());
    let meta = write(&vfs, &options, &entries);
    let table = open(&vfs, &meta, 1 << 14).expect("what was written opens");
    let report = table.verify().expect("what was written is whole");
    assert_eq!(report.entries, entries.len() as u64);
    for use_cache in [true, false] {
        assert_eq!(all_of(&table, use_cache).expect("it reads"), entries);
    }

    let memtable = Arc::new(Memtable::new(1, 4, 1 << 20));
    let mut by_revision: Vec<_> = entries.iter().collect();
    by_revision.sort_by_key(|entry| entry.1);
    for (key, revision, kind, value) in by_revision {
        let mut writer = memtable.writer();
        writer
            .insert(TREE, key, *revision, *kind, value)
            .expect("there is room");
    }
    let mut cursor = memtable.version_cursor(TREE);
    cursor.seek_first();
    for entry in &entries {
        assert!(cursor.valid());
        assert_eq!((cursor.key(), cursor.revision()), (&entry.0[..], entry.1));
        assert_eq!((cursor.kind(), cursor.value()), (entry.2, &entry.3[..]));
        cursor.next();
    }
    assert!(!cursor.valid());

    for at in [0, 1, 100, Revision::MAX] {
        let expected = model_at(&entries, at);
        let seen = seen_at(&table, at, entries.len()).expect("it reads");
        assert_eq!(seen, [expected.clone(), expected.clone()]);
        let mut forward = memtable.read_cursor(TREE, at);
        forward.seek_first();
        let mut backward = memtable.read_cursor(TREE, at);
        backward.seek_last();
        for number in 0..expected.len() {
            let (first, last) = (&expected[number], &expected[expected.len() - 1 - number]);
            assert_eq!((forward.key(), forward.revision()), (&first.0[..], first.1));
            assert_eq!((backward.key(), backward.revision()), (&last.0[..], last.1));
            forward.next();
            backward.prev();
        }
        assert!(!forward.valid() && !backward.valid());
        for entry in &entries {
            for key in [&entry.0[..], &[&entry.0[..], b"\0"].concat()] {
                let place = expected.binary_search_by(|it| it.0.as_slice().cmp(key));
                let wanted = place.ok().map(|found| {
                    let (_, revision, kind, value) = &expected[found];
                    (*revision, *kind, &value[..])
                });
                let found = table.get(key, at).expect("it reads");
                let found = found
                    .as_ref()
                    .map(|it| (it.revision, it.kind, &it.value[..]));
                assert_eq!(found, wanted);
                let found = memtable.get(TREE, key, at);
                assert_eq!(found.map(|it| (it.revision, it.kind, it.value)), wanted);
                let mut cursor = table.read_cursor(at);
                cursor.seek(key).expect("it reads");
                let first = expected.get(place.unwrap_or_else(|at| at));
                assert_eq!(
                    cursor.valid().then(|| cursor.key()),
                    first.map(|it| &it.0[..])
                );
            }
        }
    }
}

/// Many versions of few keys, deletions, long values.
#[cfg_attr(fuzzing, allow(dead_code))]
pub(crate) fn entries_seeds() -> Vec<Vec<u8>> {
    let mut small = vec![10, 3, 16, 1];
    for revision in 0..30 {
        small.extend_from_slice(&[0x01, revision % 5, revision * 3]);
        small.extend_from_slice(&[0x21, 0, revision, b'a', b'b']);
    }
    let mut long = vec![60, 16, 10, 0];
    for letter in b'a'..=b'p' {
        long.extend_from_slice(&[0x13, 201 + letter % 32, letter, letter]);
    }
    vec![small, long]
}
