//! Fuzzing of blob files and pointers; see [`crate::fuzzing`].

use std::path::PathBuf;
use std::sync::Arc;

use super::meta::{FOOTER_BYTES, HEADER_BYTES};
use super::{BlobFile, BlobMeta, BlobPointer, BlobReader, BlobWriter, RECORD_HEAD_BYTES};
use crate::TreeId;
use crate::cache::PageCache;
use crate::codec::Reader;
use crate::counters::Counters;
use crate::frame;
use crate::frame::Compression;
use crate::fuzzing::{assert_blames_the_bytes, number};
use crate::vfs::{self, MemoryVfs, OpenMode, Vfs};

const SALT: u64 = 0xB10B;
const FILE_ID: u64 = 7;
const KEY: &[u8] = b"key";
const REVISION: u64 = 9;

fn path() -> PathBuf {
    PathBuf::from("7.blob")
}

/// A byte of flags, then a pointer, the manifest's record of a blob file, or a blob file.
pub fn blob(data: &[u8]) {
    match data.split_first() {
        Some((0, data)) => pointer(data),
        Some((1, data)) => meta(data),
        Some((flags, data)) => file(data, flags & 1 != 0),
        None => {}
    }
}

fn pointer(data: &[u8]) {
    if let Some((pointer, head)) = BlobPointer::decode(data) {
        let mut out = Vec::new();
        pointer.encode(head, &mut out);
        assert_eq!(out, data, "two encodings of one pointer");
    }
}

fn meta(data: &[u8]) {
    let mut reader = Reader::new(data);
    if let Some(meta) = BlobMeta::decode(&mut reader) {
        let mut out = Vec::new();
        meta.encode(&mut out);
        assert_eq!(
            out,
            data[..reader.position()],
            "two encodings of one record"
        );
        assert!(meta.record_bytes() > 0);
    }
}

/// A pointer's place and lengths, then the records of a file.
fn file(mut data: &[u8], repairs: bool) {
    let pointer = BlobPointer {
        file_id: FILE_ID,
        offset: u16::from_le_bytes(number(&mut data)).into(),
        record_bytes: u16::from_le_bytes(number(&mut data)).into(),
        value_bytes: u32::from_le_bytes(number(&mut data)).into(),
    };
    let mut records = data.to_vec();
    let (count, value_bytes) = repair(&mut records, repairs);
    let meta = BlobMeta {
        file_id: FILE_ID,
        salt: SALT,
        tree: TreeId(1),
        file_bytes: (HEADER_BYTES + records.len() + FOOTER_BYTES) as u64,
        records: count,
        value_bytes,
        content_crc: crc32c::crc32c(&records),
    };
    let bytes = [&meta.header()[..], &records, &meta.footer()].concat();
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::default());
    let file = vfs.open(&path(), OpenMode::CreateNew).expect("it is new");
    file.write_at(&bytes, 0).expect("memory takes it");
    let counters = Arc::<Counters>::default();
    let cache = Arc::new(PageCache::new(1 << 20, counters.clone()));
    let blob = BlobFile::open(&vfs, path(), &meta, cache, counters.clone());
    let blob = blob.expect("its ends are right");
    match blob.verify() {
        Ok(report) => assert_eq!(report.records, count),
        Err(error) => assert_blames_the_bytes(&error),
    }
    let alone = blob.read(&pointer, KEY, REVISION);
    let mut beside = BlobReader::default();
    let mut through = BlobReader::cached();
    let mut again = |is_cached: bool| {
        let reader = match is_cached {
            true => &mut through,
            false => &mut beside,
        };
        reader.read(&blob, &pointer, KEY, REVISION, &counters.read_bytes)
    };
    for ahead in [false, false, true, true, true].map(&mut again) {
        match (&alone, &ahead) {
            (Ok(alone), Ok(ahead)) => {
                assert_eq!(alone[..], ahead[..]);
                assert_eq!(alone.len() as u64, pointer.value_bytes);
            }
            (Err(alone), Err(ahead)) => {
                assert_blames_the_bytes(alone);
                assert_blames_the_bytes(ahead);
            }
            _ => panic!("one value reads in one way and not in another"),
        }
    }
}

/// Makes the checksums of records right, as far as their lengths can be followed. Returns how many
/// there are, and how long their values.
fn repair(records: &mut [u8], seals: bool) -> (u64, u64) {
    let (mut count, mut value_bytes, mut at) = (0_u64, 0_u64, 0);
    while let Some(rest) = records.get_mut(at..).filter(|rest| !rest.is_empty()) {
        let mut reader = Reader::new(rest);
        let head = (|| Some((reader.u64()?, reader.u32()?, reader.u32()?)))();
        let Some((owner, frame_bytes, len)) = head else {
            break;
        };
        let end = RECORD_HEAD_BYTES + frame_bytes as usize;
        let Some(frame) = rest.get_mut(RECORD_HEAD_BYTES..end) else {
            break;
        };
        if let Some((body, crc)) = frame.split_last_chunk_mut::<4>().filter(|_| seals) {
            let offset = (HEADER_BYTES + at) as u64;
            *crc = frame::checksum(body, SALT ^ owner, offset).to_le_bytes();
        }
        count += 1;
        value_bytes += u64::from(len);
        at += end;
    }
    (count, value_bytes)
}

/// A pointer, a record of the manifest, and files, plain and compressed.
#[cfg_attr(fuzzing, allow(dead_code))]
pub(crate) fn blob_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::default());
    for compression in [Compression::None, Compression::Lz4] {
        let mut writer = BlobWriter::create(&vfs, path(), FILE_ID, TreeId(1), compression)
            .expect("memory takes it");
        let value = b"abcabcabc".repeat(20);
        writer.add(b"other", 3, &value).expect("memory takes it");
        let pointer = writer.add(KEY, REVISION, &value).expect("memory takes it");
        let meta = writer.finish().expect("memory takes it");
        let bytes = vfs::read_file(&*vfs, &path(), u64::MAX).expect("it was written");
        vfs.remove_file(&path()).expect("it is there");
        let records = &bytes[HEADER_BYTES..bytes.len() - FOOTER_BYTES];
        let mut seed = vec![3];
        seed.extend_from_slice(&(pointer.offset as u16).to_le_bytes());
        seed.extend_from_slice(&(pointer.record_bytes as u16).to_le_bytes());
        seed.extend_from_slice(&(pointer.value_bytes as u32).to_le_bytes());
        seed.extend_from_slice(records);
        seeds.push(seed);
        let mut seed = vec![0];
        pointer.encode(BlobPointer::head_of(&value), &mut seed);
        seeds.push(seed);
        let mut seed = vec![1];
        meta.encode(&mut seed);
        seeds.push(seed);
    }
    seeds
}
