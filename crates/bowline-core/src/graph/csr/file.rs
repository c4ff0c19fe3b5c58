//! The file `graph-view`: a base that outlives the close of its database.
//!
//! ```text
//! head (64 bytes) │ ids │ out: starts, far, kinds │ in: starts, far, kinds      each section with a checksum
//! ```
//!
//! `docs/format.md` describes every byte. The file is written to another name, synced, and renamed.
//!
//! # Invariants
//!
//! - A file is read as a whole, or refused: every byte is under a checksum, and the checksum of a section continues
//!   that of the head and its number, so that sections of two files do not fit together, nor two of one file in the
//!   other order. Sections can be read side by side.
//! - Nothing is allocated for a length that the file does not have.
//! - What was read is a valid base also if its checksums were forged: starts and rows ascend, and every ordinal
//!   is that of a block.

use std::path::{Path, PathBuf};

use bowline_storage::vfs::{self, OpenMode, Vfs, VfsFile};
use bowline_storage::{Error, Result, workers};
use bowline_types::BlockId;

use super::ids::Ids;
use super::rows::{Kinds, Rows};
use super::state::Base;

const MAGIC: &[u8; 8] = b"BOWLVIEW";
const VERSION: u32 = 1;
const FILE: &str = "graph-view";
const FILE_NEW: &str = "graph-view.new";
const HEAD_LEN: usize = 64;
/// Bytes that are read or written at once.
const CHUNK: usize = 1 << 20;

/// Where the saved view of a database is.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub vfs: &'a dyn Vfs,
    /// The directory of the database.
    pub directory: &'a Path,
    pub database_id: u128,
}

impl Place<'_> {
    /// The file.
    pub fn path(&self) -> PathBuf {
        self.directory.join(FILE)
    }
}

/// What a file says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub(super) revision: u64,
    blocks: u64,
    edges: u64,
    /// Bytes of a kind: 1 or 4.
    kind_bytes: u32,
    checksum: u32,
}

impl Head {
    fn encode(&self, database_id: u128) -> [u8; HEAD_LEN] {
        let mut bytes = [0; HEAD_LEN];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.kind_bytes.to_le_bytes());
        bytes[16..32].copy_from_slice(&database_id.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.revision.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.edges.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The length of the file; `None` when no file is so long.
    fn file_len(&self) -> Option<u64> {
        let ids = self.blocks.checked_mul(16)?.checked_add(4)?;
        let rows = self.rows_len()?.checked_mul(2)?;
        (HEAD_LEN as u64).checked_add(ids)?.checked_add(rows)
    }

    /// The length of the sections of one direction.
    fn rows_len(&self) -> Option<u64> {
        let starts = self.blocks.checked_add(1)?.checked_mul(4)?.checked_add(4)?;
        let edge = 4 + u64::from(self.kind_bytes);
        let edges = self.edges.checked_mul(edge)?.checked_add(8)?;
        starts.checked_add(edges)
    }

    /// What the base takes in memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        let edge = 2 * (4 + u64::from(self.kind_bytes));
        let blocks = self.blocks.saturating_mul(30);
        blocks.saturating_add(self.edges.saturating_mul(edge))
    }
}

/// An open file whose head is valid.
#[derive(Debug)]
pub(super) struct Saved {
    file: std::sync::Arc<dyn VfsFile>,
    path: PathBuf,
    pub(super) head: Head,
}

/// Writes a base as that of `revision`, durably. When it fails, the file before stands, and what was written of the new
/// one is gone.
pub(super) fn write(place: &Place<'_>, revision: u64, base: &Base) -> Result<()> {
    remove_unfinished(place)?;
    replace(place.vfs, place.directory, |file, new| {
        write_base(file, new, place.database_id, revision, base)
    })
}

/// Removes what a save left that was killed, or that could not remove it. The caller knows that no save is under way.
pub(super) fn remove_unfinished(place: &Place<'_>) -> Result<()> {
    let new = place.directory.join(FILE_NEW);
    let found = place.vfs.metadata(&new);
    if found.map_err(|e| Error::io("stat", &new, e))?.is_some() {
        let removed = place.vfs.remove_file(&new);
        removed.map_err(|e| Error::io("remove", &new, e))?;
    }
    Ok(())
}

/// Has `write` fill a new file, makes it durable, and gives it the name of the saved view of a directory. When that
/// fails, the new file is removed: on a full disk its bytes would be missing for what the database has to write.
fn replace(
    vfs: &dyn Vfs,
    directory: &Path,
    write: impl FnOnce(&dyn VfsFile, &Path) -> Result<()>,
) -> Result<()> {
    let (path, new) = (directory.join(FILE), directory.join(FILE_NEW));
    let filled = || {
        let file = vfs.open(&new, OpenMode::CreateNew);
        let file = file.map_err(|e| Error::io("create", &new, e))?;
        write(&*file, &new)?;
        vfs::sync_data(&*file, &new)?;
        let renamed = vfs.rename(&new, &path);
        renamed.map_err(|e| Error::io("rename", &new, e))?;
        vfs::sync_parent(vfs, &path)
    };
    // The file is closed by now: its bytes are free once its name is gone.
    filled().inspect_err(|_| drop(vfs.remove_file(&new)))
}

fn write_base(
    file: &dyn VfsFile,
    path: &Path,
    database_id: u128,
    revision: u64,
    base: &Base,
) -> Result<()> {
    let head = Head {
        revision,
        blocks: base.ids.len() as u64,
        edges: base.out.edge_count() as u64,
        kind_bytes: match base.out.kinds {
            Kinds::Narrow(_) => 1,
            Kinds::Wide(_) => 4,
        },
        checksum: 0,
    };
    let bytes = head.encode(database_id);
    let mut writer = Writer {
        file,
        path,
        head_checksum: crc32c::crc32c(&bytes),
        sections: 0,
        offset: HEAD_LEN as u64,
    };
    vfs::write_all_at(file, path, &bytes, 0)?;
    writer.section(base.ids.all(), |id| id.to_bytes())?;
    for rows in [&base.out, &base.incoming] {
        writer.section(&rows.starts, |start| start.to_le_bytes())?;
        writer.section(&rows.far, |far| far.to_le_bytes())?;
        match &rows.kinds {
            Kinds::Narrow(kinds) => writer.section(kinds, |kind| [*kind])?,
            Kinds::Wide(kinds) => writer.section(kinds, |kind| kind.to_le_bytes())?,
        }
    }
    Ok(())
}

struct Writer<'a> {
    file: &'a dyn VfsFile,
    path: &'a Path,
    head_checksum: u32,
    /// How many were written.
    sections: u8,
    offset: u64,
}

/// What the checksum of a section begins with.
fn begin_section(head_checksum: u32, number: u8) -> u32 {
    crc32c::crc32c_append(head_checksum, &[number])
}

impl Writer<'_> {
    fn section<T, const N: usize>(
        &mut self,
        items: &[T],
        encode: impl Fn(&T) -> [u8; N],
    ) -> Result<()> {
        let mut checksum = begin_section(self.head_checksum, self.sections);
        self.sections += 1;
        let mut bytes = Vec::with_capacity(CHUNK.min(items.len() * N));
        for part in items.chunks(CHUNK / N) {
            bytes.clear();
            part.iter().for_each(|item| bytes.extend(encode(item)));
            checksum = crc32c::crc32c_append(checksum, &bytes);
            self.put(&bytes)?;
        }
        self.put(&checksum.to_le_bytes())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        vfs::write_all_at(self.file, self.path, bytes, self.offset)?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

/// Opens the file of a database and reads its head; `None` when there is none.
pub(super) fn open(place: &Place<'_>) -> Result<Option<Saved>> {
    let path = place.path();
    let found = place.vfs.metadata(&path);
    if found.map_err(|e| Error::io("stat", &path, e))?.is_none() {
        return Ok(None);
    }
    let file = place.vfs.open(&path, OpenMode::Read);
    let file = file.map_err(|e| Error::io("open", &path, e))?;
    let mut bytes = [0; HEAD_LEN];
    vfs::read_exact_at(&*file, &path, &mut bytes, 0)?;
    let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    let damaged = |offset, reason: &str| Err(Error::corrupt(&path, offset, reason));
    if bytes[..8] != *MAGIC {
        return damaged(0, "it does not begin as a saved graph view");
    }
    if u32_at(60) != crc32c::crc32c(&bytes[..60]) {
        return damaged(0, "the checksum of the head does not match");
    }
    let found = u32_at(8);
    if found > VERSION {
        let supported = VERSION;
        return Err(Error::NewerFormat {
            path,
            found,
            supported,
        });
    }
    let id = u128::from_le_bytes(std::array::from_fn(|byte| bytes[16 + byte]));
    if id != place.database_id {
        return damaged(16, "it belongs to another database: delete it");
    }
    let head = Head {
        kind_bytes: u32_at(12),
        revision: u64_at(32),
        blocks: u64_at(40),
        edges: u64_at(48),
        checksum: crc32c::crc32c(&bytes),
    };
    let is_numbered = head.blocks < u64::from(u32::MAX) && head.edges <= u64::from(u32::MAX);
    if !is_numbered || !matches!(head.kind_bytes, 1 | 4) || head.encode(id) != bytes {
        return damaged(0, "its head is not written as this program writes it");
    }
    let len = file.len().map_err(|e| Error::io("stat", &path, e))?;
    if Some(len) != head.file_len() {
        return damaged(
            len.min(40),
            "its length is not that of its blocks and edges",
        );
    }
    Ok(Some(Saved { file, path, head }))
}

impl Saved {
    /// Reads and validates all of it, on two threads if there are some.
    pub(super) fn read(&self, has_threads: bool) -> Result<Base> {
        let blocks = self.head.blocks as usize;
        let from = |number, offset| Reader {
            saved: self,
            number,
            offset,
        };
        // Opening has compared the lengths with that of the file.
        let ids_len = self.head.blocks * 16 + 4;
        let rows_len = self.head.rows_len().unwrap_or(0);
        let rows_at = HEAD_LEN as u64 + ids_len;
        let ids_and_out = || {
            let mut reader = from(0, HEAD_LEN as u64);
            let ids: Vec<BlockId> = reader.section(blocks, BlockId::from_bytes)?;
            if !ids.is_sorted_by(|a, b| a < b) {
                return Err(reader.invalid("its ids do not ascend"));
            }
            let ids = Ids::new(ids);
            Ok((ids, from(1, rows_at).rows()?))
        };
        let incoming = || from(4, rows_at + rows_len).rows();
        let (incoming, ids_and_out) = workers::both(has_threads, incoming, ids_and_out);
        let (ids, out) = ids_and_out?;
        Ok(Base {
            revision: self.head.revision,
            // The file does not say.
            has_all_blocks: false,
            ids,
            out,
            incoming: incoming?,
        })
    }
}

/// Reads sections from one on.
struct Reader<'a> {
    saved: &'a Saved,
    /// Of the next section.
    number: u8,
    offset: u64,
}

impl Reader<'_> {
    fn rows(&mut self) -> Result<Rows> {
        let Head { blocks, edges, .. } = self.saved.head;
        let (blocks, edges) = (blocks as usize, edges as usize);
        let starts = self.section(blocks + 1, u32::from_le_bytes)?;
        let far = self.section(edges, u32::from_le_bytes)?;
        let kinds = match self.saved.head.kind_bytes {
            1 => Kinds::Narrow(self.section(edges, |[kind]| kind)?),
            _ => Kinds::Wide(self.section(edges, u32::from_le_bytes)?),
        };
        let rows = Rows { starts, far, kinds };
        match rows.is_valid(blocks) {
            true => Ok(rows),
            false => Err(self.invalid("its rows are not those of a graph")),
        }
    }

    fn section<T, const N: usize>(
        &mut self,
        count: usize,
        decode: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>> {
        let Saved { file, path, head } = self.saved;
        let mut checksum = begin_section(head.checksum, self.number);
        self.number += 1;
        let mut items = Vec::with_capacity(count);
        let mut bytes = vec![0; CHUNK.min(count * N)];
        while items.len() < count {
            let part = (CHUNK / N).min(count - items.len());
            let bytes = &mut bytes[..part * N];
            vfs::read_exact_at(&**file, path, bytes, self.offset)?;
            checksum = crc32c::crc32c_append(checksum, bytes);
            self.offset += bytes.len() as u64;
            let parts = bytes.as_chunks::<N>().0;
            items.extend(parts.iter().map(|item| decode(*item)));
        }
        let mut stated = [0; 4];
        vfs::read_exact_at(&**file, path, &mut stated, self.offset)?;
        if u32::from_le_bytes(stated) != checksum {
            return Err(self.invalid("the checksum of a section does not match"));
        }
        self.offset += 4;
        Ok(items)
    }

    fn invalid(&self, reason: &str) -> Error {
        Error::corrupt(&self.saved.path, self.offset, reason)
    }
}

/// Copies the saved view of a database into its checkpoint at `revision`, unless it is newer than that.
pub fn copy(place: &Place<'_>, target: &Path, revision: u64) -> Result<()> {
    let Some(saved) = open(place)? else {
        return Ok(());
    };
    // At a later revision the copy may have other edges than this database.
    if saved.head.revision > revision {
        return Ok(());
    }
    replace(place.vfs, target, |file, new| {
        let (mut bytes, mut offset) = (vec![0; CHUNK], 0);
        loop {
            let read = vfs::read_full_at(&*saved.file, &saved.path, &mut bytes, offset)?;
            if read == 0 {
                return Ok(());
            }
            vfs::write_all_at(file, new, &bytes[..read], offset)?;
            offset += read as u64;
        }
    })
}

/// Removes the saved view from a directory, if there is one, and what an unfinished save left.
pub fn remove(place: &Place<'_>) -> Result<()> {
    remove_unfinished(place)?;
    let path = place.path();
    let found = place.vfs.metadata(&path);
    if found.map_err(|e| Error::io("stat", &path, e))?.is_none() {
        return Ok(());
    }
    let removed = place.vfs.remove_file(&path);
    removed.map_err(|e| Error::io("remove", &path, e))?;
    vfs::sync_parent(place.vfs, &path)
}

/// Verifies the saved view of a database, if there is one: what it holds, or its damage.
pub fn check(place: &Place<'_>) -> Result<Option<String>> {
    let Some(saved) = open(place)? else {
        return Ok(None);
    };
    saved.read(false)?;
    let Head {
        revision,
        blocks,
        edges,
        ..
    } = saved.head;
    Ok(Some(format!(
        "graph view of revision {revision}, {blocks} blocks, {edges} edges"
    )))
}

#[cfg(test)]
mod tests {
    use super::super::rows::RowsBuilder;
    use super::*;
    use crate::graph::KindId;
    use bowline_storage::vfs::MemoryVfs;

    fn base(widest: u32) -> Base {
        let ids = [3, 5, 9, 1 << 70].map(BlockId);
        let mut rows = RowsBuilder::new(ids.len());
        for (near, kind, far) in [(0, 1, 1), (0, 2, 0), (1, 1, 3), (3, widest, 2)] {
            assert!(rows.push(near, KindId(kind), far));
        }
        Base::new(7, false, Ids::new(ids.into()), rows.finish())
    }

    fn place(vfs: &MemoryVfs, database_id: u128) -> Place<'_> {
        Place {
            vfs,
            directory: Path::new("/db"),
            database_id,
        }
    }

    fn read(place: &Place<'_>) -> Result<Base> {
        let is_threaded = fastrand::bool();
        open(place)?.expect("there is a file").read(is_threaded)
    }

    #[test]
    fn a_base_is_read_as_it_was_written() {
        for widest in [3, 300] {
            let vfs = MemoryVfs::default();
            vfs.create_dir(Path::new("/db")).expect("a directory");
            let place = place(&vfs, 42);
            assert!(open(&place).expect("looks").is_none());
            // The second one replaces the first.
            for revision in [7, 8] {
                let base = base(widest);
                write(&place, revision, &base).expect("is written");
                let found = read(&place).expect("is read");
                assert_eq!(found.revision, revision);
                assert_eq!(found.ids.all(), base.ids.all());
                assert_eq!(format!("{:?}", found.out), format!("{:?}", base.out));
                let (found, wanted) = (found.incoming, base.incoming);
                assert_eq!(format!("{found:?}"), format!("{wanted:?}"));
            }
        }
    }

    #[test]
    fn every_flipped_bit_and_every_other_length_is_noticed() {
        for widest in [3, 300] {
            let vfs = MemoryVfs::default();
            vfs.create_dir(Path::new("/db")).expect("a directory");
            let place = place(&vfs, 42);
            write(&place, 7, &base(widest)).expect("is written");
            let file = vfs.open(&place.path(), OpenMode::ReadWrite).expect("opens");
            let bytes = vfs::read_file(&vfs, &place.path(), 1 << 20).expect("is read");
            for (at, byte) in bytes.iter().enumerate() {
                for bit in 0..8 {
                    file.write_at(&[byte ^ (1 << bit)], at as u64)
                        .expect("writes");
                    assert!(read(&place).is_err(), "byte {at}, bit {bit}");
                }
                file.write_at(&[*byte], at as u64).expect("writes");
            }
            file.write_at(&[0], bytes.len() as u64).expect("writes");
            assert!(read(&place).is_err(), "one more byte");
            for len in (0..bytes.len()).rev() {
                file.set_len(len as u64).expect("cuts");
                assert!(read(&place).is_err(), "{len} bytes");
            }
        }
    }

    #[test]
    fn a_file_of_another_database_is_refused() {
        let vfs = MemoryVfs::default();
        vfs.create_dir(Path::new("/db")).expect("a directory");
        write(&place(&vfs, 42), 7, &base(3)).expect("is written");
        let error = open(&place(&vfs, 43)).expect_err("another database");
        assert!(error.is_corruption(), "{error}");
    }

    #[test]
    fn a_copy_gets_no_view_of_later() {
        let vfs = MemoryVfs::default();
        let target = Path::new("/copy");
        for path in ["/db", "/copy"] {
            vfs.create_dir(Path::new(path)).expect("a directory");
        }
        let place = place(&vfs, 42);
        let there = || vfs.metadata(&target.join(FILE)).expect("looks").is_some();
        copy(&place, target, 9).expect("there is nothing to copy");
        assert!(!there());
        write(&place, 7, &base(3)).expect("is written");
        copy(&place, target, 6).expect("it is of later");
        assert!(!there());
        copy(&place, target, 7).expect("is copied");
        let copied = Place {
            directory: target,
            ..place
        };
        assert_eq!(read(&copied).expect("is read").revision, 7);
    }

    /// Checksums that fit do not make a graph of other bytes.
    #[test]
    fn what_is_no_graph_is_refused_in_spite_of_its_checksums() {
        let spoil: [fn(&mut Rows); 5] = [
            |rows| rows.starts[1] = 9,
            |rows| rows.starts[0] = 1,
            |rows| rows.starts[4] = 3,
            |rows| rows.far[3] = 4,
            // The first row is then 1, 0 of one kind: it descends.
            |rows| rows.kinds = Kinds::Narrow(vec![1; 4]),
        ];
        for (number, spoil) in spoil.iter().enumerate() {
            let vfs = MemoryVfs::default();
            vfs.create_dir(Path::new("/db")).expect("a directory");
            let mut base = base(3);
            spoil(&mut base.out);
            write(&place(&vfs, 42), 7, &base).expect("is written");
            assert!(read(&place(&vfs, 42)).is_err(), "{number}");
        }
    }
}
