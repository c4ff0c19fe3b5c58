//! The file `BOWLINE`: it makes a directory a database, and names the current manifest.
//!
//! Five lines of text, so that a person who finds the directory can identify it:
//!
//! ```text
//! bowline database
//! format 1
//! id 5f1b6c0de9a14f0c8a3d0b7a51c2d9e4
//! manifest 0000000000000003
//! crc32c 7d1f20aa
//! ```
//!
//! It is replaced by writing `BOWLINE.new`, syncing it, renaming it and syncing the directory, so
//! a crash leaves the old one or the new one.

use crate::error::{Error, Result};
use crate::version::{FORMAT_VERSION, Layout};
use crate::vfs::{self, OpenMode, Vfs};

const FIRST_LINE: &str = "bowline database";
const SIZE_MAX_BYTES: u64 = 4096;

/// The identity of a database, and the number of its manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Random, given at creation, kept for ever; a checkpoint keeps it too.
    pub database_id: u128,
    /// The number of the current manifest.
    pub manifest: u64,
}

impl Identity {
    fn text(&self) -> String {
        let body = format!(
            "{FIRST_LINE}\nformat {FORMAT_VERSION}\nid {:032x}\nmanifest {:016x}\n",
            self.database_id, self.manifest
        );
        let crc = crc32c::crc32c(body.as_bytes());
        format!("{body}crc32c {crc:08x}\n")
    }

    /// Reads the identity; `None` when the directory has none.
    pub fn read(vfs: &dyn Vfs, layout: &Layout) -> Result<Option<Identity>> {
        let path = layout.identity();
        if vfs
            .metadata(&path)
            .map_err(|e| Error::io("stat", &path, e))?
            .is_none()
        {
            return Ok(None);
        }
        let bytes = vfs::read_file(vfs, &path, SIZE_MAX_BYTES)?;
        let corrupt = |reason: &str| Error::corrupt(&path, 0, reason);
        let text = std::str::from_utf8(&bytes).map_err(|_| corrupt("it is not text"))?;
        let mut lines = text.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err(corrupt("the first line is not `bowline database`"));
        }
        let format = lines.next().and_then(|line| line.strip_prefix("format "));
        let format: u32 = format
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| corrupt("the line `format` is damaged"))?;
        if format > FORMAT_VERSION {
            return Err(Error::NewerFormat {
                path,
                found: format,
                supported: FORMAT_VERSION,
            });
        }
        let body_len = text
            .rfind("crc32c ")
            .ok_or_else(|| corrupt("the checksum is missing"))?;
        let stated = text[body_len..].trim_end().strip_prefix("crc32c ");
        let stated = stated.and_then(|hex| u32::from_str_radix(hex, 16).ok());
        if stated != Some(crc32c::crc32c(&text.as_bytes()[..body_len])) {
            return Err(corrupt("the checksum does not match"));
        }
        let id = lines.next().and_then(|line| line.strip_prefix("id "));
        let manifest = lines.next().and_then(|line| line.strip_prefix("manifest "));
        let identity = Identity {
            database_id: id
                .and_then(|hex| u128::from_str_radix(hex, 16).ok())
                .ok_or_else(|| corrupt("the line `id` is damaged"))?,
            manifest: manifest
                .and_then(|hex| u64::from_str_radix(hex, 16).ok())
                .ok_or_else(|| corrupt("the line `manifest` is damaged"))?,
        };
        // The checksum does not cover its own line, nor does it say that a number has one form.
        if identity.text() != text {
            return Err(corrupt("it is not written as this program writes it"));
        }
        Ok(Some(identity))
    }

    /// Replaces the identity, durably and atomically.
    pub fn write(&self, vfs: &dyn Vfs, layout: &Layout) -> Result<()> {
        self.stage(vfs, layout)?;
        Identity::switch(vfs, layout)
    }

    /// The first half: writes `BOWLINE.new`. When it fails, the current identity stands.
    pub fn stage(&self, vfs: &dyn Vfs, layout: &Layout) -> Result<()> {
        let new = layout.identity_new();
        if vfs
            .metadata(&new)
            .map_err(|e| Error::io("stat", &new, e))?
            .is_some()
        {
            vfs.remove_file(&new)
                .map_err(|e| Error::io("remove", &new, e))?;
        }
        let file = vfs
            .open(&new, OpenMode::CreateNew)
            .map_err(|e| Error::io("create", &new, e))?;
        vfs::write_all_at(&*file, &new, self.text().as_bytes(), 0)?;
        vfs::sync_data(&*file, &new)
    }

    /// The second half: makes the staged identity the current one. When it fails, either may be.
    pub fn switch(vfs: &dyn Vfs, layout: &Layout) -> Result<()> {
        let path = layout.identity();
        vfs.rename(&layout.identity_new(), &path)
            .map_err(|e| Error::io("rename", &path, e))?;
        vfs::sync_parent(vfs, &path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::MemoryVfs;

    fn written() -> (MemoryVfs, Layout, Identity) {
        let vfs = MemoryVfs::default();
        let layout = Layout::new("/db");
        let identity = Identity {
            database_id: 0xfeed << 64,
            manifest: 3,
        };
        identity.write(&vfs, &layout).unwrap();
        (vfs, layout, identity)
    }

    #[test]
    fn identity_round_trips_and_is_replaced() {
        let (vfs, layout, mut identity) = written();
        assert_eq!(
            Identity::read(&vfs, &layout).unwrap(),
            Some(identity.clone())
        );
        identity.manifest = 4;
        identity.write(&vfs, &layout).unwrap();
        assert_eq!(Identity::read(&vfs, &layout).unwrap(), Some(identity));
        assert_eq!(Identity::read(&vfs, &Layout::new("/other")).unwrap(), None);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let (vfs, layout, identity) = written();
        let text = identity.text().into_bytes();
        let file = vfs.open(&layout.identity(), OpenMode::ReadWrite).unwrap();
        for (at, byte) in text.iter().enumerate() {
            for bit in 0..8 {
                file.write_at(&[byte ^ (1 << bit)], at as u64).unwrap();
                let found = Identity::read(&vfs, &layout);
                assert!(found.is_err(), "byte {at}, bit {bit}");
            }
            file.write_at(&[*byte], at as u64).unwrap();
        }
        file.write_at(b" ", text.len() as u64).unwrap();
        assert!(Identity::read(&vfs, &layout).is_err(), "one more byte");
    }

    /// Found by fuzzing: what stood behind the checksum, a checksum in upper case and a number
    /// with a sign were all taken for what had been written.
    #[test]
    fn an_identity_has_one_text() {
        let (vfs, layout, identity) = written();
        let file = vfs.open(&layout.identity(), OpenMode::ReadWrite).unwrap();
        let text = identity.text();
        let signed = text[..text.rfind("crc32c").unwrap()].replace("manifest 00", "manifest +0");
        let crc = crc32c::crc32c(signed.as_bytes());
        for other in [
            format!("{text}\n"),
            text.trim_end().to_owned(),
            format!("{signed}crc32c {crc:08x}\n"),
        ] {
            file.set_len(0).unwrap();
            file.write_at(other.as_bytes(), 0).unwrap();
            let error = Identity::read(&vfs, &layout).unwrap_err();
            assert!(error.is_corruption(), "{other:?}: {error}");
        }
    }

    #[test]
    fn a_newer_format_is_named() {
        let (vfs, layout, identity) = written();
        let text = identity.text().replace("format 1", "format 2");
        let file = vfs.open(&layout.identity(), OpenMode::ReadWrite).unwrap();
        file.write_at(text.as_bytes(), 0).unwrap();
        let error = Identity::read(&vfs, &layout).unwrap_err();
        assert!(
            matches!(
                error,
                Error::NewerFormat {
                    found: 2,
                    supported: 1,
                    ..
                }
            ),
            "{error}"
        );
    }
}
