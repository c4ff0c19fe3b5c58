//! The manifest file: a header, then one checksummed record per edit.
//!
//! ```text
//! 0   magic "BOWLMANI"      8 bytes
//! 8   format version        u32
//! 12  crc32c of the above   u32
//! 16  records, each starting at a multiple of 8:
//!     length of the payload u32 | crc32c u32 | payload | zeros up to a multiple of 8
//! ```
//!
//! A record's checksum is seeded with the database's id, the manifest's number and the record's
//! offset, so that bytes of another database, of another manifest or of another place are never
//! taken for a record.
//!
//! Invariants:
//!
//! - One record is written and synced at a time, so a crash can damage only the last one. That is a torn
//!   tail: the edit never happened. An invalid record before a valid one is damage.
//! - The first record is synced before `BOWLINE` names the manifest, so it is never torn. An edit whose
//!   loss nothing else would detect is part of a first record. The loss of any other edit is detected by
//!   the opening (`engine/open`).
//! - After a failed sync nothing is appended any more, until an opening has written that record again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::version::{Edit, FORMAT_VERSION, Identity, Layout, State};
use crate::vfs::{self, OpenMode, Vfs, VfsFile};

const MAGIC: &[u8; 8] = b"BOWLMANI";
const HEADER_BYTES: u64 = 16;
const RECORD_HEADER_BYTES: usize = 8;
/// No manifest becomes nearly as large. It bounds the allocation for a damaged length.
const MANIFEST_MAX_BYTES: u64 = 1 << 30;

/// The end of the valid records of a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManifestPosition {
    /// Where the last valid record begins, in bytes.
    pub last: u64,
    /// The end of the last valid record, in bytes.
    pub end: u64,
    /// Whether bytes of a torn record follow.
    pub torn: bool,
}

/// An open manifest, to append to.
#[derive(Debug)]
pub struct Manifest {
    path: PathBuf,
    identity: Identity,
    file: Arc<dyn VfsFile>,
    end: u64,
    failed: Option<Error>,
    counters: Arc<Counters>,
    buffer: Vec<u8>,
}

fn record_crc(identity: &Identity, offset: u64, payload: &[u8]) -> u32 {
    let mut seed = [0; 32];
    seed[..16].copy_from_slice(&identity.database_id.to_le_bytes());
    seed[16..24].copy_from_slice(&identity.manifest.to_le_bytes());
    seed[24..].copy_from_slice(&offset.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&seed), payload)
}

fn encode_record(identity: &Identity, offset: u64, edit: &Edit, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
    edit.encode(out);
    let payload = start + RECORD_HEADER_BYTES;
    let len = u32::try_from(out.len() - payload).unwrap_or(u32::MAX);
    let crc = record_crc(identity, offset, &out[payload..]);
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
    out[start + 4..payload].copy_from_slice(&crc.to_le_bytes());
    out.resize(out.len().next_multiple_of(8), 0);
}

/// The record at `offset`: its payload and where the next one starts.
fn record_at<'a>(bytes: &'a [u8], identity: &Identity, offset: usize) -> Option<(&'a [u8], usize)> {
    let header = bytes.get(offset..offset + RECORD_HEADER_BYTES)?;
    let len = u32::from_le_bytes(header[..4].try_into().ok()?) as usize;
    let crc = u32::from_le_bytes(header[4..].try_into().ok()?);
    let payload = offset + RECORD_HEADER_BYTES;
    let payload = bytes.get(payload..payload.checked_add(len)?)?;
    // An edit is never empty, so zeros are never a record.
    if len == 0 || record_crc(identity, offset as u64, payload) != crc {
        return None;
    }
    Some((
        payload,
        (offset + RECORD_HEADER_BYTES + len).next_multiple_of(8),
    ))
}

/// Puts the checksums of the header and of every record right, as far as the records' lengths
/// lead.
#[cfg(any(test, fuzzing))]
pub(super) fn repair(bytes: &mut [u8], identity: &Identity) {
    if bytes.len() < HEADER_BYTES as usize {
        return;
    }
    bytes[..8].copy_from_slice(MAGIC);
    let crc = crc32c::crc32c(&bytes[..12]).to_le_bytes();
    bytes[12..16].copy_from_slice(&crc);
    let mut offset = HEADER_BYTES as usize;
    while let Some(header) = bytes.get(offset..offset + RECORD_HEADER_BYTES) {
        let len = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let start = offset + RECORD_HEADER_BYTES;
        let Some(payload) = bytes.get(start..start + len) else {
            return;
        };
        let crc = record_crc(identity, offset as u64, payload).to_le_bytes();
        bytes[offset + 4..start].copy_from_slice(&crc);
        offset = (start + len).next_multiple_of(8);
    }
}

impl Manifest {
    /// Writes a new manifest that starts with `state`, durably (the directory too).
    pub fn create(
        vfs: &dyn Vfs,
        layout: &Layout,
        identity: &Identity,
        state: &State,
        counters: Arc<Counters>,
    ) -> Result<Manifest> {
        let path = layout.manifest(identity.manifest);
        let exists = vfs
            .metadata(&path)
            .map_err(|e| Error::io("stat", &path, e))?
            .is_some();
        if exists {
            // Left behind by a crash before it became current.
            vfs.remove_file(&path)
                .map_err(|e| Error::io("remove", &path, e))?;
        }
        let file = vfs
            .open(&path, OpenMode::CreateNew)
            .map_err(|e| Error::io("create", &path, e))?;
        let mut bytes = Vec::new();
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        encode_record(identity, HEADER_BYTES, &state.as_edit(), &mut bytes);
        vfs::write_all_at(&*file, &path, &bytes, 0)?;
        vfs::sync_data(&*file, &path)?;
        vfs::sync_parent(vfs, &path)?;
        counters.manifest_bytes_written.add(bytes.len() as u64);
        let end = bytes.len() as u64;
        Ok(Manifest {
            path,
            identity: identity.clone(),
            file,
            end,
            failed: None,
            counters,
            buffer: Vec::new(),
        })
    }

    /// Reads a manifest: the state it leads to, and where its valid records end. Changes nothing.
    pub fn read(
        vfs: &dyn Vfs,
        layout: &Layout,
        identity: &Identity,
    ) -> Result<(State, ManifestPosition)> {
        let path = layout.manifest(identity.manifest);
        if vfs
            .metadata(&path)
            .map_err(|e| Error::io("stat", &path, e))?
            .is_none()
        {
            let reason = "BOWLINE names it as the current manifest".to_owned();
            return Err(Error::MissingFile { path, reason });
        }
        let bytes = vfs::read_file(vfs, &path, MANIFEST_MAX_BYTES)?;
        Self::parse(&path, identity, &bytes)
    }

    fn parse(path: &Path, identity: &Identity, bytes: &[u8]) -> Result<(State, ManifestPosition)> {
        let header = bytes
            .get(..16)
            .ok_or_else(|| Error::corrupt(path, 0, "shorter than a manifest's header"))?;
        if &header[..8] != MAGIC {
            return Err(Error::corrupt(path, 0, "it does not start with BOWLMANI"));
        }
        if header[12..16] != crc32c::crc32c(&header[..12]).to_le_bytes() {
            return Err(Error::corrupt(
                path,
                12,
                "the header's checksum does not match",
            ));
        }
        let format = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if format > FORMAT_VERSION {
            let path = path.to_owned();
            return Err(Error::NewerFormat {
                path,
                found: format,
                supported: FORMAT_VERSION,
            });
        }
        let mut state = State::default();
        let mut offset = 16;
        let mut last = offset;
        while let Some((payload, next)) = record_at(bytes, identity, offset) {
            let edit = Edit::decode(payload)
                .ok_or_else(|| Error::corrupt(path, offset as u64, "the edit does not decode"))?;
            state.apply(&edit).map_err(|reason| {
                Error::corrupt(path, offset as u64, format!("an edit {reason}"))
            })?;
            last = offset;
            offset = next;
        }
        if offset == 16 {
            // The first record is synced before the manifest becomes current.
            return Err(Error::corrupt(path, 16, "the first record is damaged"));
        }
        let mut later = offset + 8;
        while later < bytes.len() {
            if record_at(bytes, identity, later).is_some() {
                let reason = format!("a record is damaged, but a later one (at {later}) is whole");
                return Err(Error::corrupt(path, offset as u64, reason));
            }
            later += 8;
        }
        let end = offset.min(bytes.len()) as u64;
        Ok((
            state,
            ManifestPosition {
                last: last as u64,
                end,
                torn: bytes.len() > offset,
            },
        ))
    }

    /// Opens an intact manifest to append to it.
    ///
    /// Writes its last record again, and syncs: the process that wrote it may have been killed
    /// before its sync, or the sync may have failed, after which the system takes the bytes for
    /// clean although they are not on the disk. Records before the last were synced before it.
    pub fn open(
        vfs: &dyn Vfs,
        layout: &Layout,
        identity: &Identity,
        position: ManifestPosition,
        counters: Arc<Counters>,
    ) -> Result<Manifest> {
        let path = layout.manifest(identity.manifest);
        let file = vfs
            .open(&path, OpenMode::ReadWrite)
            .map_err(|e| Error::io("open", &path, e))?;
        let mut buffer = vec![0; usize::try_from(position.end - position.last).unwrap_or(0)];
        vfs::read_exact_at(&*file, &path, &mut buffer, position.last)?;
        vfs::write_all_at(&*file, &path, &buffer, position.last)?;
        vfs::sync_data(&*file, &path)?;
        let end = position.end.next_multiple_of(8);
        Ok(Manifest {
            path,
            identity: identity.clone(),
            file,
            end,
            failed: None,
            counters,
            buffer,
        })
    }

    /// Appends an edit and makes it durable.
    ///
    /// When the write fails (a full disk) nothing has happened and the call may be repeated. When
    /// the sync fails, the content of the disk is unknown, and every later call fails, too.
    pub fn append(&mut self, edit: &Edit) -> Result<()> {
        self.check_intact()?;
        self.buffer.clear();
        encode_record(&self.identity, self.end, edit, &mut self.buffer);
        if let Err(error) = vfs::write_all_at(&*self.file, &self.path, &self.buffer, self.end) {
            // A part of it may be there, and would have to be replaced at the next opening, for
            // which a full disk may have no room. When this fails too, it is.
            if let Err(cause) = self.file.set_len(self.end) {
                tracing::warn!(path = %self.path.display(), %cause, "a part of a record stays");
            }
            return Err(error);
        }
        if let Err(error) = vfs::sync_data(&*self.file, &self.path) {
            // Not `NoSpace`, which would say that it can be tried again.
            let reason = error.to_string().into();
            self.failed = Some(error);
            return Err(Error::Poisoned { reason });
        }
        self.end += self.buffer.len() as u64;
        self.counters
            .manifest_bytes_written
            .add(self.buffer.len() as u64);
        Ok(())
    }

    /// Makes sure, durably, that nothing of an append that has failed is there. When the file cannot be
    /// cut nothing has changed: an append may still be tried.
    ///
    /// # Errors
    /// A crash may bring the edit back. After a failed sync every later append fails, too.
    pub(crate) fn retract(&mut self) -> Result<()> {
        self.check_intact()?;
        let cut = self.file.set_len(self.end);
        cut.map_err(|error| Error::io("cut", &self.path, error))?;
        let result = vfs::sync_data(&*self.file, &self.path);
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    /// Whether every edit so far is known to be on the disk, or known not to be.
    ///
    /// # Errors
    /// `Poisoned` when that of one is unknown: every later append is refused. `Closed`.
    pub(crate) fn check_intact(&self) -> Result<()> {
        match &self.failed {
            None => Ok(()),
            Some(Error::Closed) => Err(Error::Closed),
            Some(error) => Err(Error::Poisoned {
                reason: error.to_string().into(),
            }),
        }
    }

    /// Refuses every later append: this may no longer be the current manifest.
    pub fn fail(&mut self, error: Error) {
        self.failed = Some(error);
    }

    /// Bytes of valid records.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.end
    }

    /// This manifest's number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.identity.manifest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::MemoryVfs;

    fn number(manifest: u64) -> Identity {
        Identity {
            database_id: 0xB0,
            manifest,
        }
    }

    fn floor(revision: u64) -> Edit {
        Edit {
            history_floor: Some(revision),
            ..Edit::default()
        }
    }

    fn written() -> (MemoryVfs, Layout, Vec<u64>) {
        let vfs = MemoryVfs::default();
        let layout = Layout::new("/db");
        let counters = Arc::new(Counters::default());
        let mut manifest =
            Manifest::create(&vfs, &layout, &number(5), &State::default(), counters).unwrap();
        let mut ends = vec![manifest.size_bytes()];
        for revision in [10, 20, 30] {
            manifest.append(&floor(revision)).unwrap();
            ends.push(manifest.size_bytes());
        }
        (vfs, layout, ends)
    }

    #[test]
    fn appended_edits_are_read_back() {
        let (vfs, layout, ends) = written();
        let (state, position) = Manifest::read(&vfs, &layout, &number(5)).unwrap();
        assert_eq!(state.history_floor, 30);
        assert_eq!(
            position,
            ManifestPosition {
                last: ends[2],
                end: ends[3],
                torn: false
            }
        );
        assert!(
            Manifest::read(&vfs, &layout, &number(6)).is_err(),
            "missing"
        );
    }

    #[test]
    fn a_torn_last_record_never_happened() {
        let (vfs, layout, ends) = written();
        let file = vfs.open(&layout.manifest(5), OpenMode::ReadWrite).unwrap();
        for cut in ends[2]..ends[3] - 7 {
            file.set_len(cut).unwrap();
            let (state, position) = Manifest::read(&vfs, &layout, &number(5)).unwrap();
            assert_eq!(state.history_floor, 20, "cut at {cut}");
            assert_eq!(
                position,
                ManifestPosition {
                    last: ends[1],
                    end: ends[2],
                    torn: cut > ends[2]
                }
            );
        }
    }

    #[test]
    fn damage_before_a_whole_record_is_an_error_at_its_offset() {
        let (vfs, layout, ends) = written();
        let file = vfs.open(&layout.manifest(5), OpenMode::ReadWrite).unwrap();
        for at in ends[0]..ends[2] {
            let mut byte = [0];
            file.read_at(&mut byte, at).unwrap();
            file.write_at(&[byte[0] ^ 0x40], at).unwrap();
            let found = Manifest::read(&vfs, &layout, &number(5));
            let start = if at < ends[1] { ends[0] } else { ends[1] };
            match found {
                Err(Error::Corrupt { offset, .. }) => assert_eq!(offset, start, "byte {at}"),
                // Padding between records carries nothing.
                Ok((state, _)) => assert_eq!(state.history_floor, 30, "byte {at}"),
                Err(other) => panic!("byte {at}: {other}"),
            }
            file.write_at(&byte, at).unwrap();
        }
    }

    #[test]
    fn records_of_another_database_are_not_accepted() {
        let (vfs, layout, _) = written();
        let other = Identity {
            database_id: 0xB1,
            manifest: 5,
        };
        let error = Manifest::read(&vfs, &layout, &other).unwrap_err();
        assert!(error.is_corruption(), "{error}");
    }

    #[test]
    fn records_of_another_manifest_are_not_accepted() {
        let (vfs, layout, _) = written();
        vfs.rename(&layout.manifest(5), &layout.manifest(6))
            .unwrap();
        let error = Manifest::read(&vfs, &layout, &number(6)).unwrap_err();
        assert!(
            matches!(error, Error::Corrupt { offset: 16, .. }),
            "{error}"
        );
    }
}
