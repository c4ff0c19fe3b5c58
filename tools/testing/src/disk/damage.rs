//! Decay of data at rest: flipped bits, zeroed and misdirected sectors, lost files.

use std::io;
use std::path::Path;

use super::SimDisk;
use super::operation::Operation;

const SECTOR_BYTES: u64 = 512;

/// Damage of one file on the medium, without any action of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// One bit is inverted.
    FlipBit {
        /// Byte of the file.
        offset: u64,
        /// Bit of the byte, 0 to 7.
        bit: u8,
    },
    /// A sector of 512 bytes reads as zeros.
    ZeroSector {
        /// Number of the sector in the file.
        sector: u64,
    },
    /// A write meant for one sector landed on another, which now holds a copy of it.
    Misdirect {
        /// Number of the sector that is copied.
        from: u64,
        /// Number of the sector that is overwritten.
        to: u64,
    },
    /// The file ends early.
    Cut {
        /// The remaining length in bytes.
        len: u64,
    },
    /// The file is gone.
    Lose,
}

impl SimDisk {
    /// A copy of this disk as the running program sees it, with everything durable and one file damaged.
    /// Damage beyond the end of the file is an `InvalidInput` error.
    pub fn damaged(&self, path: &Path, damage: Damage) -> io::Result<SimDisk> {
        let mut tree = self.shared.lock().live.clone();
        let at = tree.place(path)?;
        let inode = tree.entry(&at).ok_or(io::ErrorKind::NotFound)?;
        let contents = tree.file_mut(inode).ok_or(io::ErrorKind::IsADirectory)?;
        let len = contents.len();
        let in_file = |offset: u64| {
            if offset < len {
                Ok(offset)
            } else {
                Err(io::ErrorKind::InvalidInput)
            }
        };
        match damage {
            Damage::FlipBit { offset, bit } => {
                contents.flip_bit(in_file(offset)?, bit);
            }
            Damage::ZeroSector { sector } => {
                let start = in_file(sector.saturating_mul(SECTOR_BYTES))?;
                contents.write_zeros(SECTOR_BYTES.min(len - start), start);
            }
            Damage::Misdirect { from, to } => {
                let mut bytes = [0; SECTOR_BYTES as usize];
                contents.read(&mut bytes, in_file(from.saturating_mul(SECTOR_BYTES))?);
                let start = in_file(to.saturating_mul(SECTOR_BYTES))?;
                let count = SECTOR_BYTES.min(len - start) as usize;
                contents.write(&bytes[..count], start);
            }
            Damage::Cut { len: left } => contents.set_len(left.min(len)),
            Damage::Lose => tree.apply(&Operation::Remove { at, inode }),
        }
        tree.forget_unreachable();
        Ok(SimDisk::from_tree(tree))
    }

    /// Inverts a bit of a file while a program may run: the medium decays, so no flush is needed for it to last, and
    /// none ends it. Beyond the end of the file it is an `InvalidInput` error.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        let mut shared = self.shared.lock();
        let inode = shared.live.resolve(path)?.ok_or(io::ErrorKind::NotFound)?;
        let contents = shared.live.file_mut(inode);
        if offset >= contents.ok_or(io::ErrorKind::IsADirectory)?.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        shared.record(Operation::FlipBit { inode, offset, bit });
        Ok(())
    }

    /// A copy of this disk as the running program sees it, with everything durable and the file at `path`
    /// replaced by `bytes`: for damage that [`Damage`] does not have, an older version of the file, or
    /// another file's contents.
    pub fn replaced(&self, path: &Path, bytes: &[u8]) -> io::Result<SimDisk> {
        let mut tree = self.shared.lock().live.clone();
        let at = tree.place(path)?;
        let inode = tree.entry(&at).ok_or(io::ErrorKind::NotFound)?;
        let contents = tree.file_mut(inode).ok_or(io::ErrorKind::IsADirectory)?;
        contents.set_len(0);
        contents.write(bytes, 0);
        Ok(SimDisk::from_tree(tree))
    }
}
