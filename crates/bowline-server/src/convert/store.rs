//! Conversion between the messages of `bowline.v1.Store` and the node's commands.
//!
//! Requests that could never succeed are refused here, before anything is read or proposed: an empty key, an
//! invalid id, an empty read or write, reads without a revision, more than the limits allow.

use std::ops::Bound;

use bowline::{Entry, Isolation, Range, Version};
use bowline::{LeaseId, Revision};
use bowline_proto::update;
use bowline_proto::v1 as pb;
use bowline_replica::{Commit, CommitRead, CommitWrite, Expectation, Touched, UpdatedKey};
use bytes::Bytes;
use pb::conflict::What;
use pb::transaction_read::Read;
use pb::transaction_write::Write;

use super::graph::{self, ITEMS_MAX};
use crate::status::Fault;

/// A key.
pub(crate) fn key(key: Bytes) -> Result<Vec<u8>, Fault> {
    match key.is_empty() {
        true => Err(Fault::KeyNotProvided),
        false => Ok(key.into()),
    }
}

/// Several keys.
pub(crate) fn keys(all: Vec<Bytes>) -> Result<Vec<Vec<u8>>, Fault> {
    graph::check_count(all.len())?;
    all.into_iter().map(key).collect()
}

/// The first key and the end of a range, in wire form.
fn bounds(range: Option<pb::KeyRange>) -> Result<(Vec<u8>, Vec<u8>), Fault> {
    let range = range.unwrap_or_default();
    Ok((key(range.key)?, range.range_end.into()))
}

/// A range; `None` when it is empty.
pub(crate) fn range(range: Option<pb::KeyRange>) -> Result<Option<Range>, Fault> {
    let (key, end) = bounds(range)?;
    let first = Bound::Included(key.clone());
    Ok(match &end[..] {
        [] => Some(Range::key(&key)),
        [0] => Some((first, Bound::Unbounded).into()),
        _ if key >= end => None,
        _ => Some((first, Bound::Excluded(end)).into()),
    })
}

/// A transaction's commit.
pub(crate) fn commit(request: pb::CommitRequest) -> Result<Commit, Fault> {
    for count in [
        request.reads.len(),
        request.expectations.len(),
        request.writes.len(),
    ] {
        if count > ITEMS_MAX {
            return Err(Fault::Invalid(
                "the transaction has more than 10,000 reads, expectations or writes: split it",
            ));
        }
    }
    if request.read_revision == 0 && !request.reads.is_empty() {
        return Err(Fault::Invalid(
            "the transaction has reads and no read_revision: send the one that its reads were answered at",
        ));
    }
    let isolation = match pb::Isolation::try_from(request.isolation) {
        Ok(pb::Isolation::Serializable) => Isolation::Serializable,
        Ok(pb::Isolation::Snapshot) => Isolation::Snapshot,
        Err(_) => return Err(Fault::Invalid("the isolation is not known: use 0 or 1")),
    };
    let expectation = |expected: pb::Expectation| {
        Ok(Expectation {
            key: key(expected.key)?,
            mod_revision: Revision::new(expected.mod_revision),
        })
    };
    let expectations = request.expectations.into_iter().map(expectation);
    Ok(Commit {
        read_revision: Revision::new(request.read_revision),
        isolation,
        reads: request
            .reads
            .into_iter()
            .map(read)
            .collect::<Result<_, _>>()?,
        expectations: expectations.collect::<Result<_, Fault>>()?,
        writes: request
            .writes
            .into_iter()
            .map(write)
            .collect::<Result<_, _>>()?,
    })
}

fn read(read: pb::TransactionRead) -> Result<CommitRead, Fault> {
    Ok(match read.read {
        Some(Read::Key(bytes)) => CommitRead::Key(key(bytes)?),
        Some(Read::Range(range)) => {
            let (key, range_end) = bounds(Some(range))?;
            CommitRead::Range { key, range_end }
        }
        Some(Read::Block(id)) => CommitRead::Block(graph::id(&id)?),
        Some(Read::Edge(edge)) => {
            let (source, kind, target) = graph::key(edge)?;
            CommitRead::Edge {
                source,
                kind,
                target,
            }
        }
        Some(Read::EdgesOut(id)) => CommitRead::EdgesOut(graph::id(&id)?),
        Some(Read::EdgesIn(id)) => CommitRead::EdgesIn(graph::id(&id)?),
        None => {
            return Err(Fault::Invalid(
                "a read says nothing that this server knows: a key, a range, a block, an edge or edges",
            ));
        }
    })
}

fn write(write: pb::TransactionWrite) -> Result<CommitWrite, Fault> {
    Ok(match write.write {
        Some(Write::Put(put)) => CommitWrite::Put {
            key: key(put.key)?,
            value: put.value.into(),
            lease: put.lease,
        },
        Some(Write::Delete(bytes)) => CommitWrite::Delete { key: key(bytes)? },
        Some(Write::DeleteRange(range)) => {
            let (key, range_end) = bounds(Some(range))?;
            CommitWrite::DeleteRange { key, range_end }
        }
        Some(Write::Graph(write)) => CommitWrite::Graph(graph::write(write)?),
        Some(Write::Update(update)) => CommitWrite::Update {
            key: key(update.key)?,
            update: update::of_wire(update.change).ok_or(Fault::Invalid(
                "an update says nothing that this server knows: add, add_within, max, min, append, set_if_absent or swap",
            ))?,
        },
        None => {
            return Err(Fault::Invalid(
                "a write says nothing that this server knows: put, update or delete a key, delete a range, put or delete a block or an edge",
            ));
        }
    })
}

// --- replies ---

/// What came of an update.
pub(crate) fn updated(updated: UpdatedKey) -> pb::KeyUpdated {
    pb::KeyUpdated {
        changed: updated.is_changed,
        value: updated.value.map(Bytes::from),
    }
}

/// An entry; without its value when the request asked for keys only.
pub(crate) fn entry(entry: Entry, keys_only: bool) -> pb::Entry {
    pb::Entry {
        key: entry.key.into(),
        value: match keys_only {
            true => Bytes::new(),
            false => entry.value.into(),
        },
        create_revision: entry.create_revision.get(),
        mod_revision: entry.mod_revision.get(),
        version: entry.version,
        lease: LeaseId::number_of(entry.lease),
    }
}

/// A change of a key.
pub(crate) fn version(version: Version) -> pb::Version {
    pb::Version {
        revision: version.revision.get(),
        entry: version.entry.map(|found| entry(found, false)),
        author: None,
    }
}

/// The conflicting key and its revision.
pub(crate) fn conflict(what: Touched, revision: u64) -> pb::Conflict {
    let what = match what {
        Touched::Key(key) => What::Key(key),
        Touched::Block(id) => What::Block(graph::id_bytes(id)),
        Touched::Edge(key) => What::Edge(pb::EdgeKey {
            source: graph::id_bytes(key.source),
            kind: key.kind,
            target: graph::id_bytes(key.target),
        }),
    };
    pb::Conflict {
        what: Some(what),
        revision,
    }
}
