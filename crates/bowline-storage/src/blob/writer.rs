//! Writes a blob file: values in order go in, one file comes out.
//!
//! Records are collected into writes of about [`WRITE_BYTES`]. A writer that is dropped before
//! [`BlobWriter::finish`] succeeded removes its file: a blob file either is whole or does not
//! exist. (After a crash, the manifest does not name it.)

use std::path::PathBuf;
use std::sync::Arc;

use super::meta::{BlobMeta, FOOTER_BYTES};
use super::{BlobPointer, RECORD_HEAD_BYTES, owner_of};
use crate::error::{Error, Result};
use crate::frame::Compression;
use crate::frame::FrameWriter;
use crate::types::{Revision, TreeId};
use crate::vfs::{self, OpenMode, Vfs, VfsFile};

/// How much is collected for one write.
const WRITE_BYTES: usize = 256 << 10;

/// Writes one blob file.
#[derive(Debug)]
pub(crate) struct BlobWriter {
    vfs: Arc<dyn Vfs>,
    file: Arc<dyn VfsFile>,
    path: PathBuf,
    compression: Compression,
    is_finished: bool,
    /// Bytes that are in the file, and those that go there next.
    flushed_bytes: u64,
    buffer: Vec<u8>,
    frames: FrameWriter,
    meta: BlobMeta,
}

impl BlobWriter {
    /// Creates the file, which must not exist. The caller makes its name durable.
    pub fn create(
        vfs: &Arc<dyn Vfs>,
        path: PathBuf,
        file_id: u64,
        tree: TreeId,
        compression: Compression,
    ) -> Result<BlobWriter> {
        let file = vfs
            .open(&path, OpenMode::CreateNew)
            .map_err(|e| Error::io("create", &path, e))?;
        let meta = BlobMeta {
            file_id,
            salt: fastrand::u64(..),
            tree,
            file_bytes: 0,
            records: 0,
            value_bytes: 0,
            content_crc: 0,
        };
        Ok(BlobWriter {
            vfs: vfs.clone(),
            file,
            path,
            compression,
            is_finished: false,
            flushed_bytes: 0,
            buffer: meta.header().to_vec(),
            frames: FrameWriter::default(),
            meta,
        })
    }

    /// Adds the value of an entry.
    pub fn add(&mut self, key: &[u8], revision: Revision, value: &[u8]) -> Result<BlobPointer> {
        let offset = self.written_bytes();
        let owner = owner_of(key, revision);
        let start = self.buffer.len();
        let Ok(value_bytes) = u32::try_from(value.len()) else {
            let (path, len) = (self.path.display(), value.len());
            return Err(Error::Internal(format!(
                "{path}: a value of {len} bytes does not fit into a blob file"
            )));
        };
        self.buffer.extend_from_slice(&owner.to_le_bytes());
        self.buffer.extend_from_slice(&[0; 4]);
        self.buffer.extend_from_slice(&value_bytes.to_le_bytes());
        let salt = self.meta.salt ^ owner;
        let compression = self.compression;
        let frame_bytes = self
            .frames
            .append(&mut self.buffer, value, compression, salt, offset);
        // A frame is hardly longer than its value, and that fits with much room to spare.
        let frame_len = (frame_bytes as u32).to_le_bytes();
        self.buffer[start + 8..start + 12].copy_from_slice(&frame_len);
        let record = &self.buffer[start..];
        let pointer = BlobPointer {
            file_id: self.meta.file_id,
            offset,
            record_bytes: (RECORD_HEAD_BYTES + frame_bytes) as u64,
            value_bytes: value.len() as u64,
        };
        self.meta.content_crc = crc32c::crc32c_append(self.meta.content_crc, record);
        self.meta.records += 1;
        self.meta.value_bytes += value.len() as u64;
        if self.buffer.len() >= WRITE_BYTES {
            self.flush()?;
        }
        Ok(pointer)
    }

    /// How long the file is so far.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.flushed_bytes + self.buffer.len() as u64
    }

    /// Writes the rest of the file and makes the file's content durable; the caller syncs its
    /// directory before it relies on the name.
    pub fn finish(mut self) -> Result<BlobMeta> {
        self.meta.file_bytes = self.written_bytes() + FOOTER_BYTES as u64;
        let footer = self.meta.footer();
        self.buffer.extend_from_slice(&footer);
        self.flush()?;
        vfs::sync_data(&*self.file, &self.path)?;
        self.is_finished = true;
        Ok(self.meta.clone())
    }

    fn flush(&mut self) -> Result<()> {
        vfs::write_all_at(&*self.file, &self.path, &self.buffer, self.flushed_bytes)?;
        self.flushed_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

impl Drop for BlobWriter {
    fn drop(&mut self) {
        if !self.is_finished {
            // A file that stays is none of the manifest, and is removed when the directory is
            // next opened.
            let _ = self.vfs.remove_file(&self.path);
        }
    }
}
