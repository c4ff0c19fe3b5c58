//! Reads of the newest state, which a write is decided against.

use std::ops::Bound;

use bowline_storage::engine::{Engine, ScanDirection};
use bowline_storage::{EntryKind, TreeId};
use bowline_types::Revision;

use crate::error::Result;
use crate::kv::record::{self, Meta};
use crate::trees;

/// Reads of the newest state, with all earlier decisions, published or not.
pub trait Lookup {
    /// Whether a tree has a record under a key.
    fn exists(&self, tree: TreeId, key: &[u8]) -> Result<bool>;

    /// The metadata of a key of the kv tree; `None` when it is absent.
    fn meta(&self, key: &[u8]) -> Result<Option<Meta>>;

    /// The modification revision of a key of the kv tree; 0 when it is absent.
    fn mod_revision(&self, key: &[u8]) -> Result<Revision>;

    /// Visits the keys of a tree that begin with a prefix, until `visit` returns `false`.
    fn for_each_key(
        &self,
        tree: TreeId,
        prefix: &[u8],
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<()>;
}

/// The newest version of each key in the engine.
#[derive(Debug, Clone, Copy)]
pub struct Newest<'a>(pub &'a Engine);

impl Lookup for Newest<'_> {
    #[inline]
    fn exists(&self, tree: TreeId, key: &[u8]) -> Result<bool> {
        let kind = self
            .0
            .peek_since(tree, key, 0, |found| found.map(|found| found.kind))?;
        Ok(kind == Some(EntryKind::Put))
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Meta>> {
        self.0.peek_since(trees::KV, key, 0, |found| {
            record::meta_of(key, found.as_ref())
        })?
    }

    fn mod_revision(&self, key: &[u8]) -> Result<Revision> {
        // A blind record has the right modification revision, so nothing below it is read.
        let head = self.0.peek_since(trees::KV, key, 0, |found| {
            record::head_of(key, found.as_ref())
        })??;
        Ok(head.map_or(Revision::ZERO, |head| head.meta.mod_revision))
    }

    fn for_each_key(
        &self,
        tree: TreeId,
        prefix: &[u8],
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<()> {
        let upper = trees::prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        let lower = Bound::Included(prefix.to_vec());
        let scan = self.0.scan(
            tree,
            lower,
            upper,
            Revision::MAX.get(),
            ScanDirection::Forward,
        );
        let mut scan = scan.heads();
        while scan.advance()? {
            if !visit(scan.key()) {
                break;
            }
        }
        Ok(())
    }
}
