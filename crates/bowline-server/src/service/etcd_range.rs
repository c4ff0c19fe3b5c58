//! What the ranges of `KV` share: their keys, and the count of the keys beyond a limit.
//!
//! The reply of a range with a limit has the count of all its keys. [`Beyond`] counts those that the limit
//! leaves out by the heads of their records, as a range that only counts does: their values may be in blob
//! files, and are not read.

use std::ops::ControlFlow;

use bowline::{Entry, Range, Snapshot};
use bowline_cluster::{LocalClient, ReadLevel};
use bowline_replica::{Caller, RangeOp, SortOrder, SortTarget};
use tokio::runtime::Handle;
use tonic::Status;

use crate::context::Context;
use crate::status::status;

/// The range of a request.
pub(super) fn range_of(op: &RangeOp) -> Range {
    let key = op.key.clone();
    match &op.range_end[..] {
        [] => Range::key(key),
        [0] => Range::from(key..),
        end if end <= &key[..] => Range::from(key.clone()..key),
        end => Range::from(key..end.to_vec()),
    }
}

/// Whether a range has bounds for the revisions of its entries.
pub(super) fn has_bounds(op: &RangeOp) -> bool {
    let of_mod = [op.min_mod_revision, op.max_mod_revision];
    let of_create = [op.min_create_revision, op.max_create_revision];
    of_mod
        .iter()
        .chain(&of_create)
        .any(|bound| bound.get() != 0)
}

/// Whether the revisions of an entry are within the bounds of a range.
pub(super) fn passes(op: &RangeOp, entry: &Entry) -> bool {
    let is_within = |min: u64, max: u64, revision: u64| {
        (min == 0 || revision >= min) && (max == 0 || revision <= max)
    };
    is_within(
        op.min_mod_revision.get(),
        op.max_mod_revision.get(),
        entry.mod_revision.get(),
    ) && is_within(
        op.min_create_revision.get(),
        op.max_create_revision.get(),
        entry.create_revision.get(),
    )
}

/// Counts what is beyond the limit of a range.
#[derive(Debug, Clone)]
pub(super) struct Beyond {
    client: LocalClient,
    runtime: Handle,
    snapshot: Snapshot,
    /// The range at the revision of the snapshot: one key shows whether there are more.
    op: RangeOp,
}

/// What is beyond the limit of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rest {
    /// The number of its keys.
    pub(super) count: u64,
    /// Whether one of them would be in the reply without the limit.
    pub(super) more: bool,
}

impl Beyond {
    pub(super) fn new(context: &Context, op: &RangeOp, snapshot: &Snapshot) -> Beyond {
        Beyond {
            client: context.client.clone(),
            runtime: Handle::current(),
            snapshot: snapshot.clone(),
            op: RangeOp {
                revision: snapshot.revision(),
                limit: 1,
                keys_only: true,
                count_only: false,
                sort_order: SortOrder::None,
                sort_target: SortTarget::Key,
                ..op.clone()
            },
        }
    }

    /// Counts the keys of the range from this one on. For threads that may block.
    pub(super) fn count(&self, from: &[u8]) -> Result<Rest, Status> {
        let op = RangeOp {
            key: from.to_vec(),
            ..self.op.clone()
        };
        // The caller's right to the range was checked.
        let client = self.client.by(&Caller::Process);
        let read = client.range(&op, ReadLevel::Eventual);
        match self.runtime.block_on(read) {
            Ok(read) => Ok(Rest {
                count: read.value.count,
                more: !read.value.entries.is_empty(),
            }),
            // Its history may be trimmed meanwhile: the snapshot still has it.
            Err(_) => walk(&self.snapshot, &op).map_err(status),
        }
    }
}

/// [`Beyond::count`] by the entries of the snapshot.
fn walk(snapshot: &Snapshot, op: &RangeOp) -> bowline::Result<Rest> {
    let mut rest = Rest {
        count: 0,
        more: false,
    };
    let walked = snapshot.range(range_of(op))?.visit(|at| {
        rest.count += 1;
        if !rest.more {
            match at.to_entry_without_value() {
                Ok(entry) => rest.more = passes(op, &entry),
                Err(error) => return ControlFlow::Break(error),
            }
        }
        ControlFlow::Continue(())
    })?;
    match walked {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(rest),
    }
}

#[cfg(test)]
mod tests {
    use bowline::Revision;

    use super::*;
    use crate::test_server::TestServer;

    /// The history of the snapshot may be gone for all others by the time that its keys are counted.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_rest_is_counted_as_of_the_snapshot_also_when_its_history_is_trimmed() {
        let server = TestServer::start().await;
        let context = server.context();
        let put = async |number: u32| {
            let put = bowline_replica::Op::Put(bowline_replica::PutOp {
                key: format!("k{number:02}").into(),
                ..bowline_replica::PutOp::default()
            });
            let command = bowline_replica::Command::Txn(bowline_replica::Txn::of(put));
            context
                .client
                .execute(command)
                .await
                .unwrap()
                .reply
                .revision
        };
        for number in 0..20 {
            put(number).await;
        }
        let snapshot = context.client.db().snapshot();
        let op = |min_mod_revision| RangeOp {
            key: b"k".to_vec(),
            range_end: b"l".to_vec(),
            limit: 2,
            min_mod_revision,
            ..RangeOp::default()
        };
        let last = snapshot.revision();
        let (any, none) = (op(Revision::ZERO), op(last + 1));
        let count = async |op: &RangeOp| {
            let beyond = Beyond::new(context, op, &snapshot);
            let counted = context.wide_reads.run(move || beyond.count(b"k05"));
            let rest = counted.await.unwrap().unwrap();
            (rest.count, rest.more)
        };
        put(30).await;
        assert_eq!(count(&any).await, (15, true));
        assert_eq!(count(&none).await, (15, false));
        let revision = put(31).await;
        let compact = bowline_replica::Command::Compact { revision };
        assert!(
            context
                .client
                .execute(compact)
                .await
                .unwrap()
                .reply
                .result
                .is_ok()
        );
        assert!(context.client.db().snapshot_at(last).is_err());
        assert_eq!(count(&any).await, (15, true));
        assert_eq!(count(&none).await, (15, false));
    }
}
