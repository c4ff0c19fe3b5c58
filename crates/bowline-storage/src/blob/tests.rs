//! Blob files by themselves: every byte, every length, every place a pointer can lead to.

use std::path::PathBuf;
use std::sync::Arc;

use super::file::BlobReport;
use super::meta::{FOOTER_BYTES, HEADER_BYTES};
use super::*;
use crate::TreeId;
use crate::cache::PageCache;
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::frame::Compression;
use crate::fuzzing::assert_blames_the_bytes;
use crate::vfs::{self, MemoryVfs, OpenMode, Vfs};

const TREE: TreeId = TreeId(2);

struct Bench {
    vfs: Arc<dyn Vfs>,
    meta: BlobMeta,
    /// Keys, revisions, values, and where these are.
    values: Vec<(Vec<u8>, u64, Vec<u8>, BlobPointer)>,
    bytes: Vec<u8>,
}

fn path() -> PathBuf {
    PathBuf::from("7.blob")
}

impl Bench {
    fn new(file_id: u64, lengths: &[usize], compression: Compression) -> Bench {
        let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::default());
        let mut writer = BlobWriter::create(&vfs, path(), file_id, TREE, compression).unwrap();
        let mut values = Vec::new();
        for (number, len) in lengths.iter().enumerate() {
            let key = format!("key-{number}").into_bytes();
            let value: Vec<u8> = (0..*len).map(|at| (at * number) as u8 | 1).collect();
            let revision = number as u64 + 5;
            let pointer = writer.add(&key, revision, &value).unwrap();
            values.push((key, revision, value, pointer));
        }
        let meta = writer.finish().unwrap();
        let bytes = vfs::read_file(&*vfs, &path(), u64::MAX).unwrap();
        Bench {
            vfs,
            meta,
            values,
            bytes,
        }
    }

    fn open(&self) -> Result<BlobFile> {
        self.open_with(1 << 20, &Arc::default())
    }

    fn open_with(&self, cache_bytes: u64, counters: &Arc<Counters>) -> Result<BlobFile> {
        let cache = Arc::new(PageCache::new(cache_bytes, counters.clone()));
        BlobFile::open(&self.vfs, path(), &self.meta, cache, counters.clone())
    }

    fn set(&self, bytes: &[u8]) {
        self.vfs.remove_file(&path()).unwrap();
        let file = self.vfs.open(&path(), OpenMode::CreateNew).unwrap();
        file.write_at(bytes, 0).unwrap();
    }

    /// Reads everything in every way; the first error, or the values.
    fn read_all(&self) -> (Result<BlobReport>, Vec<Result<Loaded>>) {
        let file = match self.open() {
            Ok(file) => file,
            Err(error) => return (Err(error.clone()), vec![Err(error)]),
        };
        let mut readers = [BlobReader::default(), BlobReader::cached()];
        let mut read = Vec::new();
        let counters = Counters::default();
        for (key, revision, value, pointer) in &self.values {
            let one = file.read(pointer, key, *revision);
            let mut ways = Vec::new();
            for reader in &mut readers {
                ways.push(reader.read(&file, pointer, key, *revision, &counters.read_bytes));
            }
            // From memory, by now.
            ways.push(file.read(pointer, key, *revision));
            ways.push(file.read(pointer, key, *revision));
            for found in ways.iter().chain([&one]) {
                match found {
                    Ok(found) => assert_eq!(found[..], value[..], "a wrong answer"),
                    Err(error) => assert_blames_the_bytes(error),
                }
                assert_eq!(one.is_ok(), found.is_ok());
            }
            read.push(one);
        }
        (file.verify(), read)
    }
}

#[test]
fn values_read_back_alone_and_ahead() {
    for compression in [Compression::None, Compression::Lz4] {
        let lengths = [64, 1, 0, 5_000, 70_000, 300_000, 2, 900, 200_000, 100];
        let bench = Bench::new(7, &lengths, compression);
        let (report, read) = bench.read_all();
        assert!(read.iter().all(Result::is_ok), "{read:?}");
        let expected = BlobReport {
            records: lengths.len() as u64,
            value_bytes: lengths.iter().map(|len| *len as u64).sum(),
        };
        assert_eq!(report.unwrap(), expected);
        assert_eq!(bench.meta.file_bytes, bench.bytes.len() as u64);
        let records: u64 = bench.values.iter().map(|it| it.3.record_bytes).sum();
        assert_eq!(records, bench.meta.record_bytes());
    }
}

#[cfg(not(feature = "zstd"))]
#[test]
fn without_zstd_a_value_that_needs_it_is_refused_by_name() {
    let bench = Bench::new(7, &[900], Compression::Lz4);
    let (key, revision, _, pointer) = &bench.values[0];
    let end = (pointer.offset + pointer.record_bytes) as usize;
    let start = pointer.offset as usize + RECORD_HEAD_BYTES;
    let mut bytes = bench.bytes.clone();
    // The byte that says how it is compressed, and the checksum over it.
    bytes[end - 5] = 2;
    let salt = bench.meta.salt ^ owner_of(key, *revision);
    let checksum = crate::frame::checksum(&bytes[start..end - 4], salt, pointer.offset);
    bytes[end - 4..end].copy_from_slice(&checksum.to_le_bytes());
    bench.set(&bytes);
    let (report, read) = bench.read_all();
    for error in [report.err(), read.into_iter().next().unwrap().err()] {
        let is_named = matches!(
            &error,
            Some(Error::Unsupported {
                feature: "zstd",
                ..
            })
        );
        assert!(is_named, "{error:?}");
    }
}

#[test]
fn a_value_does_not_keep_alive_what_was_read_ahead() {
    let bench = Bench::new(7, &[1000; 50], Compression::None);
    let file = bench.open().unwrap();
    let counters = Counters::default();
    let mut reader = BlobReader::default();
    for (key, revision, _, pointer) in &bench.values {
        reader
            .read(&file, pointer, key, *revision, &counters.read_bytes)
            .unwrap();
    }
    // The first one alone, the rest at once.
    let first = bench.values[0].3.record_bytes;
    assert_eq!(counters.read_bytes.get(), bench.meta.record_bytes());
    assert!(first < 1100);
}

/// Neighbors in the order of keys lie in as many files as there were flushes: only the file read last was read ahead, so each
/// value of a scan was a read of the disk.
#[test]
fn several_files_are_read_ahead_in_both_directions() {
    for backward in [false, true] {
        let benches = [7, 8, 9].map(|id| Bench::new(id, &[1000; 50], Compression::None));
        let files = benches.each_ref().map(|bench| bench.open().unwrap());
        let counters = Counters::default();
        let mut reader = BlobReader::default();
        let total: u64 = benches.iter().map(|bench| bench.meta.record_bytes()).sum();
        for number in 0..50 {
            let number = if backward { 49 - number } else { number };
            for (bench, file) in benches.iter().zip(&files) {
                let (key, revision, value, pointer) = &bench.values[number];
                let found = reader.read(file, pointer, key, *revision, &counters.read_bytes);
                assert_eq!(found.unwrap()[..], value[..]);
            }
            // The first of each alone, the rest at once.
            if number == 1 || number == 48 {
                assert_eq!(counters.read_bytes.get(), total);
            }
        }
        assert_eq!(counters.read_bytes.get(), total);
    }
}

#[test]
fn values_of_many_files_in_any_order_are_those_that_were_written() {
    let lengths = [64, 1, 0, 5_000, 70_000, 130_000, 2, 900, 30_000, 100];
    let benches: Vec<_> = (7..19)
        .map(|id| Bench::new(id, &lengths, Compression::Lz4))
        .collect();
    let files: Vec<_> = benches.iter().map(|bench| bench.open().unwrap()).collect();
    let counters = Counters::default();
    let mut random = fastrand::Rng::with_seed(7);
    let mut reader = BlobReader::default();
    for _ in 0..3_000 {
        let at = random.usize(..benches.len());
        let number = random.usize(..lengths.len());
        let (key, revision, value, pointer) = &benches[at].values[number];
        let found = reader.read(&files[at], pointer, key, *revision, &counters.read_bytes);
        assert_eq!(found.unwrap()[..], value[..]);
    }
}

#[test]
fn every_damaged_byte_is_noticed() {
    for compression in [Compression::None, Compression::Lz4] {
        let bench = Bench::new(7, &[64, 300, 100], compression);
        for at in 0..bench.bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut bytes = bench.bytes.clone();
                bytes[at] ^= flip;
                bench.set(&bytes);
                let (report, _) = bench.read_all();
                assert_blames_the_bytes(&report.unwrap_err());
            }
        }
        for len in 0..bench.bytes.len() {
            bench.set(&bench.bytes[..len]);
            assert_blames_the_bytes(&bench.open().unwrap_err());
        }
        bench.set(&[&bench.bytes[..], &[0]].concat());
        assert_blames_the_bytes(&bench.open().unwrap_err());
    }
}

/// What verification relies on, a point read relies on, too: no damage gives a wrong value there.
#[test]
fn a_damaged_record_is_no_value() {
    let bench = Bench::new(7, &[200, 200], Compression::None);
    let (first, second) = (&bench.values[0], &bench.values[1]);
    for at in 0..first.3.record_bytes as usize {
        let mut bytes = bench.bytes.clone();
        bytes[first.3.offset as usize + at] ^= 4;
        bench.set(&bytes);
        let file = bench.open().unwrap();
        // From the disk, and from memory.
        for _ in 0..3 {
            assert!(file.read(&first.3, &first.0, first.1).is_err(), "at {at}");
            assert!(file.read(&second.3, &second.0, second.1).is_ok());
        }
    }
}

#[test]
fn a_pointer_leads_to_its_own_value_or_to_an_error() {
    let bench = Bench::new(7, &[200, 200, 200], Compression::None);
    let file = bench.open().unwrap();
    let (key, revision, value, pointer) = &bench.values[1];
    // From the disk, from memory, and as one that is known to be whole.
    for _ in 0..3 {
        assert_eq!(file.read(pointer, key, *revision).unwrap()[..], value[..]);
    }
    let end = bench.meta.file_bytes - FOOTER_BYTES as u64;
    let neighbor = bench.values[2].3;
    let wrong = [
        BlobPointer {
            offset: 0,
            ..*pointer
        },
        BlobPointer {
            offset: HEADER_BYTES as u64 - 1,
            ..*pointer
        },
        BlobPointer {
            offset: pointer.offset + 1,
            ..*pointer
        },
        BlobPointer {
            offset: end - pointer.record_bytes + 1,
            ..*pointer
        },
        BlobPointer {
            offset: end,
            ..*pointer
        },
        BlobPointer {
            offset: u64::MAX,
            ..*pointer
        },
        BlobPointer {
            record_bytes: 0,
            ..*pointer
        },
        BlobPointer {
            record_bytes: pointer.record_bytes - 1,
            ..*pointer
        },
        BlobPointer {
            record_bytes: pointer.record_bytes + 1,
            ..*pointer
        },
        BlobPointer {
            record_bytes: u64::MAX,
            ..*pointer
        },
        BlobPointer {
            value_bytes: 199,
            ..*pointer
        },
        BlobPointer {
            value_bytes: u64::MAX,
            ..*pointer
        },
        BlobPointer {
            file_id: 8,
            ..*pointer
        },
        neighbor,
    ];
    let counters = Counters::default();
    for wrong in wrong {
        let alone = file.read(&wrong, key, *revision).unwrap_err();
        assert_blames_the_bytes(&alone);
        let mut reader = BlobReader::default();
        let ahead = reader.read(&file, &wrong, key, *revision, &counters.read_bytes);
        assert_blames_the_bytes(&ahead.unwrap_err());
    }
    // Whole in itself, but the value of another entry.
    let other = file.read(pointer, b"key-2", *revision).unwrap_err();
    assert!(other.to_string().contains("another entry"), "{other}");
    let other = file.read(pointer, key, revision + 1).unwrap_err();
    assert!(other.to_string().contains("another entry"), "{other}");
}

#[test]
fn a_file_in_the_place_of_another_is_noticed() {
    let lengths = [300, 200];
    let bench = Bench::new(7, &lengths, Compression::None);
    // The same values under the same number: only the salt tells them apart.
    let twin = Bench::new(7, &lengths, Compression::None);
    bench.set(&twin.bytes);
    assert_blames_the_bytes(&bench.open().unwrap_err());
    // Also when only a record came from there.
    let (start, len) = (HEADER_BYTES, bench.values[0].3.record_bytes as usize);
    let mut mixed = bench.bytes.clone();
    mixed[start..start + len].copy_from_slice(&twin.bytes[start..start + len]);
    bench.set(&mixed);
    let file = bench.open().unwrap();
    let (key, revision, _, pointer) = &bench.values[0];
    assert_blames_the_bytes(&file.read(pointer, key, *revision).unwrap_err());
    assert_blames_the_bytes(&file.verify().unwrap_err());
    bench.vfs.remove_file(&path()).unwrap();
    let missing = bench.open().unwrap_err();
    assert!(matches!(missing, Error::MissingFile { .. }), "{missing}");
}

#[test]
fn a_newer_format_is_told_from_damage() {
    let bench = Bench::new(7, &[100], Compression::None);
    let mut bytes = bench.bytes.clone();
    bytes[8] = 2;
    let crc = crc32c::crc32c(&bytes[..12]);
    let crc = crc32c::crc32c_append(crc, &bytes[16..HEADER_BYTES]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bench.set(&bytes);
    let error = bench.open().unwrap_err();
    assert!(
        matches!(error, Error::NewerFormat { found: 2, .. }),
        "{error}"
    );
}

#[test]
fn an_unfinished_file_leaves_nothing() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::default());
    let mut writer = BlobWriter::create(&vfs, path(), 7, TREE, Compression::None).unwrap();
    writer.add(b"key", 1, &[7; 400_000]).unwrap();
    assert!(vfs.metadata(&path()).unwrap().is_some());
    drop(writer);
    assert!(vfs.metadata(&path()).unwrap().is_none());
}

#[test]
fn a_pointer_has_one_encoding() {
    for value_bytes in [0, 1, 31, 32, 33, 5_000] {
        let pointer = BlobPointer {
            file_id: 300,
            offset: 1 << 40,
            record_bytes: value_bytes + 21,
            value_bytes,
        };
        let value = vec![9; value_bytes as usize];
        let head = BlobPointer::head_of(&value);
        let mut bytes = Vec::new();
        pointer.encode(head, &mut bytes);
        assert_eq!(BlobPointer::decode(&bytes), Some((pointer, head)));
        for len in 0..bytes.len() {
            assert_eq!(BlobPointer::decode(&bytes[..len]), None, "cut at {len}");
        }
        bytes.push(9);
        assert_eq!(BlobPointer::decode(&bytes), None, "a head that is too long");
    }
}

#[test]
fn the_bound_is_a_share_of_all() {
    let options = BlobOptions {
        garbage_percent_max: 60,
        ..BlobOptions::default()
    };
    assert!(!options.is_over(0, 0));
    assert!(!options.is_over(60, 100));
    assert!(options.is_over(61, 100));
    assert!(options.is_over(u64::MAX, u64::MAX));
    assert!(options.takes(1024) && !options.takes(1023));
    let none = BlobOptions {
        threshold_bytes: None,
        ..options
    };
    assert!(!none.takes(usize::MAX));
    let tiny = BlobOptions {
        threshold_bytes: Some(0),
        ..options
    };
    assert!(!tiny.takes(63) && tiny.takes(64));
}

/// As many values as chunks have, of lengths up to what is cached, and more.
fn many(compression: Compression) -> Bench {
    let mut random = fastrand::Rng::with_seed(11);
    let lengths: Vec<usize> = (0..200).map(|_| random.usize(64..5_000)).collect();
    Bench::new(7, &lengths, compression)
}

#[test]
fn values_are_the_same_from_memory_whatever_lies_there() {
    for compression in [Compression::None, Compression::Lz4] {
        let bench = many(compression);
        let mut random = fastrand::Rng::with_seed(7);
        // Of the chunks all stay, a few, or none.
        for cache_bytes in [8 << 20, 200 << 10, 0] {
            let file = bench.open_with(cache_bytes, &Arc::default()).unwrap();
            let counters = Counters::default();
            let mut scan = BlobReader::cached();
            for _ in 0..4_000 {
                let (key, revision, value, pointer) = random.choice(&bench.values).unwrap();
                let found = match random.bool() {
                    true => file.read(pointer, key, *revision),
                    false => scan.read(&file, pointer, key, *revision, &counters.read_bytes),
                };
                assert_eq!(found.unwrap()[..], value[..]);
            }
            // All in their order, there and back.
            for (key, revision, value, pointer) in
                bench.values.iter().chain(bench.values.iter().rev())
            {
                let found = scan.read(&file, pointer, key, *revision, &counters.read_bytes);
                assert_eq!(found.unwrap()[..], value[..]);
            }
        }
    }
}

/// A value that is read once brings nothing else into memory; the second one of a chunk brings the chunk.
#[test]
fn a_chunk_is_read_when_two_of_its_values_are_wanted() {
    let bench = Bench::new(7, &[1000; 15], Compression::None);
    let counters = Arc::<Counters>::default();
    let file = bench.open_with(1 << 20, &counters).unwrap();
    let mut read = Vec::new();
    for (key, revision, _, pointer) in bench.values.iter().rev() {
        let before = counters.read_bytes.get();
        file.read(pointer, key, *revision).unwrap();
        read.push(counters.read_bytes.get() - before);
    }
    let all = HEADER_BYTES as u64 + bench.meta.record_bytes();
    assert!(all < 16 << 10, "one chunk");
    assert_eq!(read[..2], [bench.values[14].3.record_bytes, all]);
    assert!(read[2..].iter().all(|bytes| *bytes == 0), "{read:?}");
}

/// What a chunk holds may be damaged in memory, or have been read amiss: then the record is read for itself.
#[test]
fn a_record_that_is_damaged_in_memory_is_read_anew() {
    let bench = Bench::new(7, &[1000; 5], Compression::None);
    let file = bench.open().unwrap();
    let (key, revision, value, pointer) = &bench.values[2];
    let at = pointer.offset + 500;
    let byte = bench.bytes[at as usize];
    let disk = bench.vfs.open(&path(), OpenMode::ReadWrite).unwrap();
    disk.write_at(&[byte ^ 1], at).unwrap();
    for _ in 0..3 {
        assert_blames_the_bytes(&file.read(pointer, key, *revision).unwrap_err());
    }
    let (other, its_revision, its_value, there) = &bench.values[3];
    let found = file.read(there, other, *its_revision).unwrap();
    assert!(matches!(found, Loaded::InChunk { .. }));
    assert_eq!(found[..], its_value[..]);
    disk.write_at(&[byte], at).unwrap();
    let found = file.read(pointer, key, *revision).unwrap();
    assert!(matches!(found, Loaded::Owned(_)));
    assert_eq!(found[..], value[..]);
}
