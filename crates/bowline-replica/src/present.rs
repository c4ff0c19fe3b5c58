//! [`Newest`]: what the newest state has of leases and blocks, for the check of rights.

use std::ops::Bound;

use bowline_core::error::{Error, Result, show_key};
use bowline_core::graph::{self, block_key};
use bowline_core::kinds::Kinds;
use bowline_core::lease::LeaseId;
use bowline_core::trees;
use bowline_storage::EntryKind;
use bowline_storage::engine::{Engine, ScanDirection};
use bowline_types::{BlockId, Revision};

use crate::needs::Present;

/// The newest state.
pub(crate) struct Newest<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) kinds: &'a Kinds,
}

impl Present for Newest<'_> {
    type Error = Error;

    fn key_of_lease(&self, id: i64, from: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(id) = LeaseId::new(id) else {
            return Ok(None);
        };
        let prefix = trees::attachment_prefix(id);
        let lower = Bound::Included([&prefix[..], from].concat());
        let upper = trees::prefix_end(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
        let (newest, forward) = (Revision::MAX.get(), ScanDirection::Forward);
        let scan = self
            .engine
            .scan(trees::SYSTEM, lower, upper, newest, forward);
        let mut scan = scan.heads();
        let is_found = scan.advance()?;
        Ok(is_found.then(|| scan.key().get(prefix.len()..).unwrap_or_default().to_vec()))
    }

    fn kinds_of_block(
        &self,
        id: BlockId,
        visit: &mut dyn FnMut(Option<&str>) -> bool,
    ) -> Result<()> {
        let key = block_key(id);
        let record = self.engine.peek_since(trees::BLOCK, &key, 0, |found| {
            let put = found.filter(|found| found.kind == EntryKind::Put);
            put.map(|found| found.bytes().to_vec())
        })?;
        let Some(record) = record else {
            return Ok(());
        };
        let kinds = graph::block_kinds(&record).ok_or_else(|| Error::InvalidRecord {
            what: "block",
            key: show_key(&key),
            reason: "it does not decode",
        })?;
        let mut is_without = true;
        for kind in kinds.iter() {
            is_without = false;
            let name = self.kinds.name(kind);
            // A kind without a name is not told apart from any: only who may write all of them may write it.
            if !visit(name.as_deref()) {
                return Ok(());
            }
        }
        if is_without {
            visit(None);
        }
        Ok(())
    }
}
