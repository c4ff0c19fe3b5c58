//! [`Request`]: a transaction ready to commit, with its preconditions and its writes.

use std::ops::Bound;

use bowline_storage::TreeId;
use bowline_storage::engine::Engine;
use bowline_types::Revision;
use smallvec::SmallVec;

use bowline_core::error::Result;
use bowline_core::graph::KindId;
use bowline_core::kv::record;
use bowline_core::trees;
use bowline_core::write::mutation::{Action, Mutation, Mutations};
use bowline_core::write::previous::Previous;
use bowline_core::write::validate::Guard;

/// A range of a tree: lower bound, upper bound.
pub(crate) type TreeRange = (TreeId, Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A transaction ready to commit.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) snapshot: Revision,
    /// Keys that must not have changed since the snapshot.
    pub(crate) keys: Vec<(TreeId, Vec<u8>)>,
    /// Ranges that must not have changed since the snapshot.
    pub(crate) ranges: Vec<TreeRange>,
    /// A kind number that must still be unused, because an edge of an unregistered kind was read.
    pub(crate) next_kind: Option<KindId>,
    pub(crate) guards: Vec<Guard>,
    pub(crate) writes: Mutations,
}

/// A request whose kv keys have been looked up.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) request: Request,
    /// For each kv write: the version of its key at `looked_up_at`. The leader reads only newer
    /// versions.
    pub(super) previous: SmallVec<[Previous; 1]>,
    pub(super) looked_up_at: Revision,
    pub(super) encoded_bytes: u64,
}

impl Request {
    /// A single write without preconditions.
    #[inline]
    pub(crate) fn of(write: Mutation) -> Request {
        Request {
            writes: Mutations::from_buf([write]),
            ..Request::default()
        }
    }

    /// Looks up the kv keys before the commit group, on the committer's thread.
    pub(super) fn prepare(self, engine: &Engine, may_be_blind: bool) -> Result<Prepared> {
        const OPERATION_OVERHEAD_BYTES: u64 = 32;
        // Read before the look-ups, so the leader misses no newer version.
        let looked_up_at = engine.visible();
        let mut previous = SmallVec::new();
        let mut encoded_bytes = 16;
        for write in &self.writes {
            let value_bytes = match &write.action {
                Action::PutEntry { value, .. } => (value.len() + record::HEAD_MAX_BYTES) as u64,
                Action::PutRaw { value } => value.len() as u64,
                Action::Delete => 0,
            };
            encoded_bytes += write.key.len() as u64 + value_bytes + OPERATION_OVERHEAD_BYTES;
            if write.tree == trees::KV {
                let may_be_blind = may_be_blind && write.action.may_be_blind();
                // Space for attaching the key to a lease and detaching it from another.
                encoded_bytes += 2 * (write.key.len() as u64 + OPERATION_OVERHEAD_BYTES);
                previous.push(Previous::prefetch(engine, &write.key, may_be_blind)?);
            }
        }
        Ok(Prepared {
            request: self,
            previous,
            looked_up_at: Revision::new(looked_up_at),
            encoded_bytes,
        })
    }
}

impl Prepared {
    /// An upper bound of the number of operations, attachments included.
    pub(super) fn operations(&self) -> u64 {
        3 * self.request.writes.len() as u64
    }

    /// Whether the request only deletes; such requests are admitted on a full disk.
    pub(super) fn frees_space(&self) -> bool {
        let mut writes = self.request.writes.iter();
        writes.all(|write| matches!(write.action, Action::Delete))
    }
}
