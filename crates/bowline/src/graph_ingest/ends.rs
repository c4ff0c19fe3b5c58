//! [`Ends`]: the check that the blocks of edges exist, by a merge of the sorted edges with the sorted loaded blocks.
//!
//! Edges come sorted by one of their ends, so the blocks at that end come in ascending order, and one pass over the
//! loaded blocks suffices. A block that is not loaded is looked up in the database.
//!
//! Invariant: the blocks are checked in ascending order.

use bowline_core::error::{Error, Result};
use bowline_core::graph::{BlockId, block_key};
use bowline_core::state::Core;
use bowline_core::trees;
use bowline_storage::EntryKind;
use bowline_storage::compaction::VersionMerge;
use bowline_storage::engine::{Found, StagedTables};

/// See the module.
#[derive(Debug)]
pub(super) struct Ends<'a> {
    core: &'a Core,
    loaded: VersionMerge,
    known: Option<BlockId>,
}

impl<'a> Ends<'a> {
    pub(super) fn new(core: &'a Core, blocks: &StagedTables) -> Result<Ends<'a>> {
        Ok(Ends {
            core,
            loaded: blocks.read()?,
            known: None,
        })
    }

    /// Returns an error if the block is neither loaded nor there.
    #[inline]
    pub(super) fn require(&mut self, id: BlockId) -> Result<()> {
        if self.known == Some(id) {
            return Ok(());
        }
        let key = block_key(id);
        while self.loaded.current().is_some_and(|it| it.0 < &key[..]) {
            self.loaded.advance()?;
        }
        let is_loaded = self.loaded.current().is_some_and(|it| it.0 == &key[..]);
        if !is_loaded && !exists(self.core, &key)? {
            return Err(Error::MissingBlock { id });
        }
        self.known = Some(id);
        Ok(())
    }
}

/// Whether a block is in the database.
pub(super) fn exists(core: &Core, block_key: &[u8]) -> Result<bool> {
    let is_put = |found: Option<Found<'_>>| found.is_some_and(|f| f.kind == EntryKind::Put);
    Ok(core.engine.peek_newest(trees::BLOCK, block_key, is_put)?)
}
