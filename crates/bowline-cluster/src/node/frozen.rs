//! Consistent copies of a member's state, for backups.

use std::sync::Arc;

use bowline::Revision;
use bowline_storage::engine;

use super::client::LocalClient;
use crate::error::Result;

impl LocalClient {
    /// A consistent copy of the state: immutable tables, and what a restore needs. None is made of data that nobody may
    /// read: it would look sound.
    ///
    /// # Errors
    /// Those of [`LocalClient::check_reading`]; `Storage` when the disk fails or is full.
    pub fn freeze(&self) -> Result<Frozen> {
        self.core().check_reading()?;
        let (frozen, _) = self.core().replica.freeze()?;
        let tables = frozen.tables.iter().map(|table| FrozenTable {
            name: table.name(),
            bytes: table.file_bytes(),
            file: table.file().clone(),
            table: table.clone(),
        });
        Ok(Frozen {
            database_id: self.db().id(),
            index: frozen.index,
            revision: Revision::new(frozen.revision),
            tables: tables.collect(),
            state: frozen.state,
        })
    }

    /// Reads a table of a copy and compares it with its checksums, so that no copy of a rotten one is kept for a good one.
    /// Damage is repaired from another member, as that which a read meets.
    ///
    /// # Errors
    /// `Storage` when it is damaged or the disk fails.
    pub fn check_table(&self, table: &FrozenTable) -> Result<()> {
        table.table.verify().map_err(|error| {
            if error.is_corruption() {
                self.core().damage.note(error.to_string());
            }
            error.into()
        })
    }
}

/// A table of a copy. Its open file stays readable.
#[derive(Debug, Clone)]
pub struct FrozenTable {
    /// Its file name.
    pub name: String,
    /// Its size, in bytes.
    pub bytes: u64,
    /// The open file.
    pub file: Arc<dyn bowline::vfs::VfsFile>,
    table: engine::FrozenTable,
}

/// A consistent copy of a member's state. Made by [`LocalClient::freeze`].
#[derive(Debug, Clone)]
pub struct Frozen {
    /// The database's id, which the tables' checksums cover.
    pub database_id: u128,
    /// The index of the last log entry in it, from 1.
    pub index: u64,
    /// The newest revision in it.
    pub revision: Revision,
    /// The structure of the tables.
    pub state: Vec<u8>,
    /// The tables.
    pub tables: Vec<FrozenTable>,
}
