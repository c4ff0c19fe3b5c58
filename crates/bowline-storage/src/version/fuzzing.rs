//! Fuzzing of the manifest and of the file `BOWLINE`; see [`crate::fuzzing`].

use std::path::Path;
use std::sync::Arc;

use super::{BlobReference, BlobReferences, Edit, Identity, Layout, Manifest, PlacedTable, State};
use crate::TreeId;
use crate::blob::BlobMeta;
use crate::counters::Counters;
use crate::fuzzing::assert_blames_the_bytes;
use crate::table::TableMeta;
use crate::vfs::{MemoryVfs, OpenMode, Vfs};

const IDENTITY: u8 = 1;
const REPAIR: u8 = 2;
const BARE_EDIT: u8 = 4;
/// The manifest's number.
const NUMBER: u64 = 5;
const OWN: Identity = Identity {
    database_id: 0xfeed << 64,
    manifest: NUMBER,
};

fn put(vfs: &MemoryVfs, path: &Path, bytes: &[u8]) {
    let file = vfs.open(path, OpenMode::CreateNew).expect("it is new");
    file.write_at(bytes, 0).expect("memory takes it");
}

fn bytes_of(vfs: &MemoryVfs, path: &Path) -> Vec<u8> {
    crate::vfs::read_file(vfs, path, u64::MAX).expect("it is there")
}

/// A byte of flags, then a manifest, an identity or one edit.
pub fn manifest(data: &[u8]) {
    let Some((&flags, data)) = data.split_first() else {
        return;
    };
    match flags {
        flags if flags & IDENTITY != 0 => identity(data, flags & REPAIR != 0),
        flags if flags & BARE_EDIT != 0 => edit(data),
        flags => records(data, flags & REPAIR != 0),
    }
}

fn identity(data: &[u8], repair: bool) {
    let (vfs, layout) = (MemoryVfs::default(), Layout::new("/db"));
    let mut bytes = data.to_vec();
    if repair {
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(format!("crc32c {crc:08x}\n").as_bytes());
    }
    put(&vfs, &layout.identity(), &bytes);
    match Identity::read(&vfs, &layout) {
        Err(error) => assert_blames_the_bytes(&error),
        Ok(None) => panic!("the file is there"),
        Ok(Some(identity)) => {
            let (vfs, layout) = (MemoryVfs::default(), Layout::new("/db"));
            identity.write(&vfs, &layout).expect("memory takes it");
            assert_eq!(bytes_of(&vfs, &layout.identity()), bytes);
        }
    }
}

fn edit(data: &[u8]) {
    let Some(edit) = Edit::decode(data) else {
        return;
    };
    let mut out = Vec::new();
    edit.encode(&mut out);
    assert!(out.len() <= data.len(), "an edit grew");
    assert_eq!(Edit::decode(&out).as_ref(), Some(&edit));
    let before = State::default();
    let mut state = before.clone();
    if state.apply(&edit).is_err() {
        assert_eq!(state, before, "a refused edit changed the state");
    }
}

fn records(data: &[u8], repair: bool) {
    let (vfs, layout) = (MemoryVfs::default(), Layout::new("/db"));
    let mut bytes = data.to_vec();
    if repair {
        super::manifest::repair(&mut bytes, &OWN);
    }
    put(&vfs, &layout.manifest(NUMBER), &bytes);
    let (state, position) = match Manifest::read(&vfs, &layout, &OWN) {
        Ok(read) => read,
        Err(error) => return assert_blames_the_bytes(&error),
    };
    assert!(position.last < position.end && position.end <= bytes.len() as u64);

    // Going on from there keeps what was read, and a manifest that begins with it says the same.
    let counters = || Arc::new(Counters::default());
    let more = Edit {
        history_floor: Some(state.history_floor.max(77)),
        ..Edit::default()
    };
    let mut expected = state.clone();
    expected.apply(&more).expect("a floor that rises");
    if !position.torn {
        let mut old = Manifest::open(&vfs, &layout, &OWN, position, counters()).expect("opens");
        old.append(&more).expect("memory takes it");
        let (read, _) = Manifest::read(&vfs, &layout, &OWN).expect("reads");
        assert_eq!(read, expected);
    }
    let next = Identity { manifest: 6, ..OWN };
    let mut new =
        Manifest::create(&vfs, &layout, &next, &state, counters()).expect("memory takes it");
    new.append(&more).expect("memory takes it");
    let (read, position) = Manifest::read(&vfs, &layout, &next).expect("reads");
    assert_eq!(read, expected);
    assert!(!position.torn && position.end <= new.size_bytes());
}

/// A manifest with tables and blob files that come and go, an identity and an edit.
#[cfg_attr(fuzzing, allow(dead_code))]
pub(crate) fn manifest_seeds() -> Vec<Vec<u8>> {
    let placed = |file_id: u64, run: u64, min: &str, max: &str| PlacedTable {
        level: (run % 3) as u8,
        run,
        meta: TableMeta {
            file_id,
            salt: 11,
            tree: TreeId(2),
            file_bytes: 4096,
            entries: 300,
            tombstones: 1,
            raw_bytes: 77,
            min_key: min.as_bytes().into(),
            max_key: max.as_bytes().into(),
            min_revision: 4,
            max_revision: 800,
            content_crc: 5,
        },
    };
    let blob = |file_id: u64| BlobMeta {
        file_id,
        salt: 12,
        tree: TreeId(2),
        file_bytes: 5000,
        records: 4,
        value_bytes: 4800,
        content_crc: 6,
    };
    let refers = |to: &[(u64, u64)]| -> BlobReferences {
        let to = to.iter();
        to.map(|&(file_id, bytes)| BlobReference { file_id, bytes })
            .collect()
    };
    let first = Edit {
        added: vec![placed(7, 9, "a", "m"), placed(8, 9, "n", "z")],
        flushed: Some((100, 90)),
        next_file_id: Some(9),
        next_run_id: Some(10),
        history_floor: Some(3),
        log_started: true,
        blobs: vec![blob(10)],
        references: vec![(8, refers(&[(10, 700)]))],
        ..Edit::default()
    };
    let second = Edit {
        added: vec![placed(9, 11, "a", "z")],
        removed: vec![7, 8],
        flushed: Some((200, 190)),
        blobs: vec![blob(11)],
        references: vec![(9, refers(&[(11, 60)]))],
        held: vec![(TreeId(2), 150)],
        ..Edit::default()
    };
    let (vfs, layout) = (MemoryVfs::default(), Layout::new("/db"));
    let counters = Arc::new(Counters::default());
    let mut manifest = Manifest::create(&vfs, &layout, &OWN, &State::default(), counters)
        .expect("memory takes it");
    for edit in [&first, &second] {
        manifest.append(edit).expect("memory takes it");
    }
    OWN.write(&vfs, &layout).expect("memory takes it");
    let manifest = bytes_of(&vfs, &layout.manifest(NUMBER));
    let identity = bytes_of(&vfs, &layout.identity());
    // Without its last line, which the repair writes.
    let body = &identity[..identity.len() - "crc32c 00000000\n".len()];
    let mut edit = Vec::new();
    first.encode(&mut edit);
    second.encode(&mut edit);
    // A merge under way, as earlier versions wrote it down.
    edit.extend_from_slice(b"\x10\x02\x0c\x01\x01\x01\x09\x00\x02\x01g\x01p");
    edit.extend_from_slice(b"\x11\x02\x0c\x01\x00\x00\x00");
    vec![
        [&[REPAIR][..], &manifest].concat(),
        [&[0][..], &manifest].concat(),
        [&[IDENTITY][..], &identity].concat(),
        [&[IDENTITY | REPAIR][..], body].concat(),
        [&[BARE_EDIT][..], &edit].concat(),
    ]
}
