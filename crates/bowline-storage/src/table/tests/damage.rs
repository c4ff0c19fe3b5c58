//! Damaged files: whatever the damage, an error and never an answer that was not written.

use super::super::footer::Footer;
use super::super::verify::TableReport;
use super::*;
use crate::error::Error;
use crate::frame;
use crate::vfs::{OpenMode, read_file};

fn entries() -> Vec<Entry> {
    let mut entries = Vec::new();
    for i in 0..12u8 {
        for revision in (1..=3).rev() {
            let kind = if revision == 2 {
                EntryKind::Delete
            } else {
                EntryKind::Put
            };
            let value = if revision == 2 {
                Vec::new()
            } else {
                vec![i; 9]
            };
            entries.push((
                format!("key/{i:02}").into_bytes(),
                10 * revision,
                kind,
                value,
            ));
        }
    }
    entries
}

/// Replaces the file of a table.
fn replace(bench: &Bench, file_id: u64, bytes: &[u8]) {
    let path = Bench::path(file_id);
    let file = bench.vfs.open(&path, OpenMode::ReadWrite).unwrap();
    file.set_len(0).unwrap();
    assert_eq!(file.write_at(bytes, 0).unwrap(), bytes.len());
}

fn bytes_of(bench: &Bench, file_id: u64) -> Vec<u8> {
    read_file(&*bench.vfs, &Bench::path(file_id), 1 << 20).unwrap()
}

/// Opens and verifies. Where opening succeeds, every read must give what was written or an error.
fn open_and_verify(bench: &Bench, meta: &TableMeta, written: &[Entry]) -> Result<TableReport> {
    // A cache of its own, so that no page of the undamaged file answers.
    let bench = Bench {
        vfs: bench.vfs.clone(),
        ..Bench::new()
    };
    let table = bench.open(meta)?;
    let report = table.verify();
    for (key, revision, kind, value) in written {
        if let Ok(found) = table.get(key, *revision) {
            let found = found.expect("an entry vanished without an error");
            assert_eq!((found.revision, found.kind), (*revision, *kind));
            assert_eq!(found.value[..], value[..]);
        }
    }
    for use_cache in [true, false] {
        if let Ok(entries) = all_of(&table, use_cache) {
            assert_eq!(entries, written);
        }
    }
    let mut cursor = table.read_cursor(15);
    let mut went_through = cursor.seek_last().is_ok();
    let mut keys = 0;
    while cursor.valid() {
        keys += 1;
        assert_eq!(cursor.revision(), 10);
        went_through &= cursor.prev().is_ok();
    }
    assert!(!went_through || keys == written.len() / 3);
    report
}

fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Corrupt { .. })
}

#[test]
fn every_flipped_bit_is_noticed() {
    for compression in [Compression::None, Compression::Lz4] {
        let bench = Bench::new();
        let options = TableOptions {
            page_bytes: 200,
            compression,
            ..tiny()
        };
        let meta = bench.write(1, &options, &entries());
        assert!(open_and_verify(&bench, &meta, &entries()).is_ok());
        let good = bytes_of(&bench, 1);
        for at in 0..good.len() {
            for flip in [0x01, 0x02, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                replace(&bench, 1, &bad);
                let error = open_and_verify(&bench, &meta, &entries()).unwrap_err();
                assert!(is_damage(&error), "byte {at} ^ {flip}: {error}");
            }
        }
    }
}

#[test]
fn every_truncation_and_extension_is_noticed() {
    let bench = Bench::new();
    let meta = bench.write(1, &tiny(), &entries());
    let good = bytes_of(&bench, 1);
    for len in 0..good.len() {
        replace(&bench, 1, &good[..len]);
        assert!(
            is_damage(&bench.open(&meta).unwrap_err()),
            "cut to {len} bytes"
        );
        // Even if the manifest agreed with the false length.
        let believed = TableMeta {
            file_bytes: len as u64,
            ..meta.clone()
        };
        assert!(
            is_damage(&bench.open(&believed).unwrap_err()),
            "believed to have {len} bytes"
        );
    }
    replace(&bench, 1, &[&good[..], &[0]].concat());
    assert!(is_damage(&bench.open(&meta).unwrap_err()));
}

#[test]
fn zeroed_sectors_are_noticed() {
    let bench = Bench::new();
    let many: Vec<Entry> = (0..600)
        .map(|i| put(format!("{i:05}"), 10, vec![i as u8 | 1; 10]))
        .collect();
    let meta = bench.write(1, &TableOptions::default(), &many);
    let good = bytes_of(&bench, 1);
    for start in (0..good.len()).step_by(512) {
        let mut bad = good.clone();
        let end = good.len().min(start + 512);
        bad[start..end].fill(0);
        replace(&bench, 1, &bad);
        let result = bench.open(&meta).and_then(|table| table.verify());
        assert!(is_damage(&result.unwrap_err()), "zeros from {start}");
    }
}

/// Where pages of a table begin and how long they are.
fn pages_of(table: &Table) -> Vec<std::ops::Range<usize>> {
    let locate = |page| {
        let location = table.index().location(page);
        location.offset as usize..location.offset as usize + location.stored_bytes
    };
    (0..table.index().len()).map(locate).collect()
}

#[test]
fn pages_that_changed_places_are_noticed() {
    let bench = Bench::new();
    let same_length: Vec<Entry> = (0..40)
        .map(|i| put(format!("key{i:03}"), 10, vec![7; 30]))
        .collect();
    let options = TableOptions {
        compression: Compression::None,
        ..tiny()
    };
    let meta = bench.write(1, &options, &same_length);
    let good = bytes_of(&bench, 1);
    let pages = pages_of(&bench.open(&meta).unwrap());
    let (first, second) = (pages[0].clone(), pages[1].clone());
    assert_eq!(first.len(), second.len());

    let mut swapped = good.clone();
    swapped[first.clone()].copy_from_slice(&good[second.clone()]);
    swapped[second.clone()].copy_from_slice(&good[first.clone()]);
    replace(&bench, 1, &swapped);
    let table = bench.open(&meta).expect("only pages are damaged");
    assert!(is_damage(&table.verify().unwrap_err()));
    assert!(is_damage(&table.get(b"key000", 10).unwrap_err()));

    let mut doubled = good.clone();
    doubled[second].copy_from_slice(&good[first]);
    replace(&bench, 1, &doubled);
    assert!(is_damage(&bench.open(&meta).unwrap().verify().unwrap_err()));
}

#[test]
fn a_page_or_file_of_another_table_is_noticed() {
    let bench = Bench::new();
    let options = TableOptions {
        compression: Compression::None,
        ..tiny()
    };
    let older: Vec<Entry> = (0..40)
        .map(|i| put(format!("key{i:03}"), 10, "old"))
        .collect();
    let newer: Vec<Entry> = (0..40)
        .map(|i| put(format!("key{i:03}"), 10, "new"))
        .collect();
    let meta = bench.write(1, &options, &older);
    let other = bench.write(2, &options, &newer);
    let (good, foreign) = (bytes_of(&bench, 1), bytes_of(&bench, 2));
    assert_eq!(good.len(), foreign.len());

    let page = pages_of(&bench.open(&meta).unwrap())[0].clone();
    let mut mixed = good.clone();
    mixed[page.clone()].copy_from_slice(&foreign[page]);
    replace(&bench, 1, &mixed);
    assert!(is_damage(
        &bench.open(&meta).unwrap().get(b"key000", 10).unwrap_err()
    ));

    replace(&bench, 1, &foreign);
    assert!(is_damage(&bench.open(&meta).unwrap_err()));
    // Right for its own properties, wrong for what the manifest expects.
    let expected = TableMeta {
        entries: 41,
        ..other
    };
    assert!(is_damage(&bench.open(&expected).unwrap_err()));
}

/// Two tables that agree in length, counts, bounds, file id and salt, and differ in one value.
#[test]
fn a_table_in_the_place_of_its_twin_is_noticed() {
    let (bench, other) = (Bench::new(), Bench::new());
    let mut changed = entries();
    let last = changed.last_mut().expect("entries");
    let value = last.3.last_mut().expect("a value");
    *value ^= 1;
    let plain = TableOptions {
        compression: Compression::None,
        ..tiny()
    };
    let write = |bench: &Bench, entries: &[Entry]| {
        fastrand::seed(3);
        bench.write(1, &plain, entries)
    };
    let meta = write(&bench, &entries());
    let twin = write(&other, &changed);
    let same = TableMeta {
        content_crc: meta.content_crc,
        ..twin.clone()
    };
    assert_eq!(same, meta, "they differ in content alone");
    assert_ne!(twin.content_crc, meta.content_crc);
    replace(&bench, 1, &bytes_of(&other, 1));
    assert!(is_damage(&bench.open(&meta).unwrap_err()));
}

/// The first table of two databases is number 1 in both, and when their keys and values are of one
/// length, so are their pages. A page that a misdirected write brought from the one into the other
/// was read without notice: its checksum covered the file id and the place, which were the same.
#[test]
fn a_page_of_another_databases_twin_is_noticed() {
    let (bench, other) = (Bench::new(), Bench::new());
    let mut changed = entries();
    for (_, _, _, value) in &mut changed {
        value.iter_mut().for_each(|byte| *byte ^= 1);
    }
    let plain = TableOptions {
        compression: Compression::None,
        ..tiny()
    };
    let meta = bench.write(1, &plain, &entries());
    let twin = other.write(1, &plain, &changed);
    let (good, foreign) = (bytes_of(&bench, 1), bytes_of(&other, 1));
    let pages = pages_of(&bench.open(&meta).unwrap());
    assert_eq!(pages, pages_of(&other.open(&twin).unwrap()));
    for page in pages {
        let mut mixed = good.clone();
        mixed[page.clone()].copy_from_slice(&foreign[page]);
        replace(&bench, 1, &mixed);
        // The cache of this bench is its own.
        let fresh = Bench {
            vfs: bench.vfs.clone(),
            ..Bench::new()
        };
        let table = fresh.open(&meta).unwrap();
        let read = |(key, revision, _, _): &Entry| table.get(key, *revision).err();
        let errors: Vec<_> = entries().iter().filter_map(read).collect();
        assert!(
            !errors.is_empty() && errors.iter().all(is_damage),
            "{errors:?}"
        );
    }
}

#[test]
fn a_missing_file_is_named() {
    let bench = Bench::new();
    let meta = bench.write(1, &tiny(), &entries());
    bench.vfs.remove_file(&Bench::path(1)).unwrap();
    let error = bench.open(&meta).unwrap_err();
    assert!(matches!(&error, Error::MissingFile { path, .. } if *path == Bench::path(1)));
}

/// Changes the payload of a section and gives it a right checksum: not damage, but a lie.
fn forge(file: &mut [u8], salt: u64, offset: u64, len: u64, change: impl FnOnce(&mut [u8])) {
    let section = &mut file[offset as usize..(offset + len) as usize];
    let (body, checksum) = section.split_last_chunk_mut::<4>().unwrap();
    let payload_bytes = body.len() - 1;
    change(&mut body[..payload_bytes]);
    *checksum = frame::checksum(body, salt, offset).to_le_bytes();
}

/// A table whose sections and pages are changed and sealed again.
struct Forged {
    bench: Bench,
    meta: TableMeta,
    good: Vec<u8>,
    footer: Footer,
    first_page: u64,
}

impl Forged {
    fn new() -> Forged {
        let bench = Bench::new();
        let options = TableOptions {
            compression: Compression::None,
            ..tiny()
        };
        let meta = bench.write(1, &options, &entries());
        let good = bytes_of(&bench, 1);
        let table = bench.open(&meta).unwrap();
        let footer = table.file().read_sections(&meta).unwrap().footer;
        let first = &pages_of(&table)[0];
        assert_eq!(first.start, 0);
        let first_page = first.len() as u64;
        Forged {
            bench,
            meta,
            good,
            footer,
            first_page,
        }
    }

    /// What verification says when `change` was made to `len` sealed bytes at `at`, and the manifest
    /// expects `expected`.
    fn verify(
        &self,
        (at, len): (u64, u64),
        expected: &TableMeta,
        change: impl FnOnce(&mut [u8]),
    ) -> String {
        let mut bad = self.good.clone();
        forge(&mut bad, self.meta.salt, at, len, change);
        replace(&self.bench, 1, &bad);
        let bench = Bench {
            vfs: self.bench.vfs.clone(),
            ..Bench::new()
        };
        let error = bench
            .open(expected)
            .expect("what is sealed opens")
            .verify()
            .unwrap_err();
        assert!(is_damage(&error), "{error}");
        error.to_string()
    }

    fn filter(&self) -> (u64, u64) {
        (self.footer.pages_bytes, self.footer.filter_bytes)
    }

    fn index(&self) -> (u64, u64) {
        let (at, len) = self.filter();
        (at + len, self.footer.index_bytes)
    }

    fn properties(&self) -> (u64, u64) {
        let (at, len) = self.index();
        (at + len, self.footer.properties_bytes)
    }

    /// What verification says of a change to the first page.
    fn verify_page(&self, change: impl FnOnce(&mut [u8])) -> String {
        self.verify((0, self.first_page), &self.meta, change)
    }
}

#[test]
fn a_section_that_is_sealed_but_false_fails_verification() {
    let table = Forged::new();
    let why = table.verify(table.filter(), &table.meta, |blocks| blocks.fill(0));
    assert!(why.contains("filter"), "{why}");

    // The last key of the first page, as the index has it: after the page count and its length.
    let why = table.verify(table.index(), &table.meta, |index| index[2] = b'j');
    assert!(why.contains("index"), "{why}");

    // One distinct key more than there are, before the last number.
    let why = table.verify(table.properties(), &table.meta, |section| {
        section[section.len() - 2] += 1;
    });
    assert!(why.contains("keys"), "{why}");

    // The manifest and the properties agree on a tombstone that does not exist.
    let expected = TableMeta {
        tombstones: table.meta.tombstones + 1,
        ..table.meta.clone()
    };
    let why = table.verify(table.properties(), &expected, |section| {
        let mut front = Vec::new();
        expected.encode(&mut front);
        section[..front.len()].copy_from_slice(&front);
    });
    assert!(why.contains("tombstones"), "{why}");
}

/// The slots of a page's hash index.
fn slots_of(page: &mut [u8]) -> &mut [u8] {
    let (rest, _restarts) = page.split_last_chunk_mut::<4>().unwrap();
    let (rest, slot_bytes) = rest.split_last_chunk_mut::<4>().unwrap();
    let start = rest.len() - u32::from_le_bytes(*slot_bytes) as usize;
    &mut rest[start..]
}

#[test]
fn a_page_that_is_sealed_but_false_fails_verification() {
    let table = Forged::new();
    // The first entry's revision (byte 4 of the first page) made older than the second's.
    assert_eq!(table.good[4], 30);
    let why = table.verify_page(|page| page[4] = 5);
    assert!(why.contains("order"), "{why}");

    // A slot of no key of the first page names an interval that is not there. Found by fuzzing:
    // the table passed, and a read of a key that is not in the page could meet it.
    let mut free_slots = 0;
    let why = table.verify_page(|page| {
        for slot in slots_of(page).as_chunks_mut::<2>().0 {
            if slot[0] == 255 {
                *slot = [253, 0];
                free_slots += 1;
            }
        }
    });
    assert!(free_slots > 0);
    assert!(why.contains("a slot names"), "{why}");

    // Every slot of the first page's hash index says that there is no key.
    let why = table.verify_page(|page| slots_of(page).fill(255));
    assert!(why.contains("search"), "{why}");
}

/// Found by fuzzing. Keys out of order behind checksums that are right (a bug of a writer, memory
/// that flipped before the page was written) led a cursor in a circle: each time it skipped the
/// versions of one key by a search, the search landed before the place where it had begun.
#[test]
fn a_cursor_over_keys_out_of_order_ends() {
    let entries: Vec<Entry> = (b'b'..=b'y')
        .flat_map(|letter| {
            (1..=20)
                .rev()
                .map(move |revision| put([letter], revision, "v"))
        })
        .collect();
    let options = TableOptions {
        compression: Compression::None,
        ..tiny()
    };
    let watchdog = bowline_testing::replay::Watchdog::new("a_cursor_over_keys_out_of_order_ends");
    let bench = Bench::new();
    bench.write(7, &options, &entries);
    let path = Bench::path(7);
    let good = read_file(&*bench.vfs, &path, u64::MAX).unwrap();
    let file = bench.vfs.open(&path, OpenMode::ReadWrite).unwrap();
    let mut refused = 0;
    // Whole keys stand before the value of a newest version and behind its revision.
    for at in (0..good.len()).filter(|at| good[*at].is_ascii_lowercase() && good[*at] != b'v') {
        for letter in [b'a', b'm', b'z'] {
            let mut bad = good.clone();
            bad[at] = letter;
            let Some(meta) = fuzzing::repair(&mut bad) else {
                continue;
            };
            watchdog.step(&[at as u8, letter]);
            file.write_at(&bad, 0).unwrap();
            let Ok(table) = bench.open(&meta) else {
                continue;
            };
            for revision in [0, 5, 20] {
                for backward in [false, true] {
                    let mut cursor = table.read_cursor(revision);
                    let mut moved = match backward {
                        false => cursor.seek_first(),
                        true => cursor.seek_last(),
                    };
                    let mut steps = 0;
                    while moved.is_ok() && cursor.valid() {
                        moved = match backward {
                            false => cursor.next(),
                            true => cursor.prev(),
                        };
                        steps += 1;
                        assert!(steps <= entries.len(), "{letter} at {at} leads in a circle");
                    }
                    refused += u32::from(moved.is_err());
                }
            }
        }
    }
    assert!(refused > 0, "no search went the wrong way");
}
