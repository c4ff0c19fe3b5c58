//! The snapshot file: the stream of `Maintenance.Snapshot`.
//!
//! ```text
//! magic            8 bytes, "BOWLSNP1"
//! index            u64, of the newest log entry in it
//! revision         u64
//! state length     u64
//! table count      u32
//! for each table:  name length u16, name, length u64
//! state
//! tables           one after the other
//! padding          zeros, up to a multiple of 512 bytes
//! SHA-256          32 bytes, of everything before it
//! ```
//!
//! Numbers are little-endian. State and tables are opaque here: the storage wrote them, with checksums of
//! their own. The size is a multiple of 512, plus 32: etcd's tools recognize a complete snapshot by that.

use bowline_cluster::Frozen;

/// The head of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotFile {
    /// The index of the newest log entry in it.
    pub index: u64,
    /// The revision.
    pub revision: u64,
    /// The state outside the tables.
    pub state: Vec<u8>,
    /// Names and lengths of the tables, in their order.
    pub tables: Vec<(String, u64)>,
}

/// Why a file is not a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at byte {offset}: {expected}")]
pub struct BadSnapshot {
    /// The offset of the error.
    pub offset: usize,
    /// What was expected there.
    pub expected: &'static str,
}

impl SnapshotFile {
    /// The first bytes.
    pub const MAGIC: &'static [u8; 8] = b"BOWLSNP1";
    /// The size without the hash is a multiple of this.
    pub(crate) const ALIGNMENT: u64 = 512;
    /// The most tables accepted.
    const TABLES_MAX: u32 = 1 << 20;

    /// The head for a frozen state.
    #[must_use]
    pub fn of(frozen: &Frozen) -> SnapshotFile {
        let tables = frozen.tables.iter();
        SnapshotFile {
            index: frozen.index,
            revision: frozen.revision.get(),
            state: frozen.state.clone(),
            tables: tables
                .map(|table| (table.name.clone(), table.bytes))
                .collect(),
        }
    }

    /// Encodes everything before the tables.
    ///
    /// # Errors
    /// When there are more tables, or longer names, than the format allows.
    pub fn encode_head(&self) -> Result<Vec<u8>, String> {
        let mut out = Vec::with_capacity(64 + self.state.len() + self.tables.len() * 64);
        out.extend_from_slice(SnapshotFile::MAGIC);
        out.extend_from_slice(&self.index.to_le_bytes());
        out.extend_from_slice(&self.revision.to_le_bytes());
        out.extend_from_slice(&(self.state.len() as u64).to_le_bytes());
        let count = u32::try_from(self.tables.len()).ok();
        let count = count.filter(|count| *count <= SnapshotFile::TABLES_MAX);
        let count = count.ok_or("too many tables for a snapshot")?;
        out.extend_from_slice(&count.to_le_bytes());
        for (name, bytes) in &self.tables {
            let len = u16::try_from(name.len()).map_err(|_| "too long a name of a table")?;
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(&bytes.to_le_bytes());
        }
        out.extend_from_slice(&self.state);
        Ok(out)
    }

    /// Decodes a head from the first bytes of a file; also returns its length.
    ///
    /// # Errors
    /// With the offset of what is wrong or missing.
    pub fn decode_head(bytes: &[u8]) -> Result<(SnapshotFile, usize), BadSnapshot> {
        let mut reader = Reader { bytes, offset: 0 };
        if reader.take(8, "the magic number")? != SnapshotFile::MAGIC {
            return Err(BadSnapshot {
                offset: 0,
                expected: "a snapshot of Bowline begins with BOWLSNP1",
            });
        }
        let index = reader.number("the index")?;
        let revision = reader.number("the revision")?;
        let state_len = reader.number("the length of the state")?;
        let count = u32::from_le_bytes(reader.array("the number of tables")?);
        if count > SnapshotFile::TABLES_MAX {
            return Err(reader.bad("a possible number of tables"));
        }
        let mut tables = Vec::new();
        for _ in 0..count {
            let len = u16::from_le_bytes(reader.array("the length of a name")?);
            let name = reader.take(usize::from(len), "the name of a table")?;
            let name = String::from_utf8(name.to_vec());
            let name = name.map_err(|_| reader.bad("a name in UTF-8"))?;
            tables.push((name, reader.number("the length of a table")?));
        }
        let state_len = usize::try_from(state_len).unwrap_or(usize::MAX);
        let state = reader.take(state_len, "the state")?.to_vec();
        let head = SnapshotFile {
            index,
            revision,
            state,
            tables,
        };
        Ok((head, reader.offset))
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    fn bad(&self, expected: &'static str) -> BadSnapshot {
        BadSnapshot {
            offset: self.offset,
            expected,
        }
    }

    fn take(&mut self, len: usize, expected: &'static str) -> Result<&'a [u8], BadSnapshot> {
        let end = self.offset.checked_add(len);
        let taken = end.and_then(|end| self.bytes.get(self.offset..end));
        let taken = taken.ok_or_else(|| self.bad(expected))?;
        self.offset += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, expected: &'static str) -> Result<[u8; N], BadSnapshot> {
        let taken = self.take(N, expected)?;
        taken.try_into().map_err(|_| self.bad(expected))
    }

    fn number(&mut self, expected: &'static str) -> Result<u64, BadSnapshot> {
        Ok(u64::from_le_bytes(self.array(expected)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> SnapshotFile {
        SnapshotFile {
            index: 7,
            revision: 9,
            state: b"state".to_vec(),
            tables: vec![("1.table".to_owned(), 100), ("2.table".to_owned(), 0)],
        }
    }

    #[test]
    fn heads_round_trip() {
        let mut bytes = file().encode_head().unwrap();
        let len = bytes.len();
        bytes.extend_from_slice(&[1; 100]);
        assert_eq!(SnapshotFile::decode_head(&bytes), Ok((file(), len)));
    }

    #[test]
    fn every_cut_is_an_error_and_none_panics() {
        let bytes = file().encode_head().unwrap();
        for len in 0..bytes.len() {
            assert!(SnapshotFile::decode_head(&bytes[..len]).is_err(), "{len}");
        }
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] = 0xff;
            let _ = SnapshotFile::decode_head(&damaged);
        }
    }
}
