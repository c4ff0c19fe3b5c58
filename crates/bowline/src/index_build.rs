//! The work on indexes: creating, building while others write, dropping, and going on after a crash.
//!
//! # Algorithm
//!
//! An index is registered by a commit of its own; every later commit keeps it ([`bowline_core::write::index`]). Then its
//! builder walks over the blocks in the order of their ids, in a fresh snapshot for each chunk, and commits the entries of the
//! chunk together with a mark of how far it has come. The leader of that commit takes each block as it is then, so the
//! builder neither misses nor repeats what others write, and never conflicts. At the end a commit says that the index is
//! complete. Snapshots of that revision and later ones are read by it.
//!
//! An index is dropped by a commit, from which on nobody keeps it or reads by it. Its entries are deleted after that, in chunks;
//! the record of what is dropped goes last.
//!
//! Both go on where a crash has ended them: in a thread of their own after the next opening, or, without threads, with the next
//! call that creates or drops an index.
//!
//! # Invariants
//!
//! - One thread at a time creates, builds or clears.
//! - A builder holds one chunk in memory, whatever the size of the graph.
//! - The mark of a builder never passes a block that was left out, as it clashed with another.
//! - The set of indexes changes in the commit order, between two groups.

use std::ops::Bound;
use std::sync::Arc;

use bowline_storage::engine::ScanDirection;
use bowline_types::{BlockId, Index, Revision};

use crate::commit_queue::{Reindexed, Request};
use crate::handle::{Shared, open_or_closed};
use bowline_core::error::{Error, Result};
use bowline_core::graph;
use bowline_core::index::{Definition, State};
use bowline_core::trees;
use bowline_core::write::mutation::{Action, Mutation};

/// Blocks whose entries one commit of a builder puts.
const CHUNK: usize = 256;
/// Blocks, of any kind, that it looks at for them.
const CHUNK_READ: usize = 8_192;
/// Entries that one commit deletes.
const CLEARED: usize = 1_024;
/// Pairs of blocks that are named where a unique index cannot be.
const PAIRS_MAX: usize = 10;

/// An index as programs see it.
pub(crate) fn index_of(shared: &Shared, index: &Definition) -> Index {
    let kind = shared.kinds.name(index.kind);
    Index {
        kind: kind.map(|kind| kind.to_string()).unwrap_or_default(),
        attributes: index.attributes.clone(),
        is_unique: index.is_unique,
        ready_since: match index.state {
            State::Ready { since } => Some(since),
            State::Building { .. } | State::Dropped => None,
        },
    }
}

fn find(shared: &Shared, kind: &str, attributes: &[String]) -> Option<Arc<Definition>> {
    let kind = shared.kinds.id(kind)?;
    shared.indexes.now().find(kind, attributes).cloned()
}

fn not_found(kind: &str, attributes: &[String]) -> Error {
    Error::IndexNotFound {
        kind: kind.to_owned(),
        attributes: attributes.join(", "),
    }
}

pub(crate) fn drop_index(shared: &Shared, kind: &str, attributes: &[String]) -> Result<()> {
    shared.check_open()?;
    let find = || find(shared, kind, attributes).ok_or_else(|| not_found(kind, attributes));
    // A builder of this index gives the lock up.
    let _leaving = shared.indexes.begin_drop(find()?.id);
    let _working = shared.indexes.working.lock();
    let index = find()?;
    remove(shared, &index)
}

pub(crate) fn create(
    shared: &Shared,
    kind: &str,
    attributes: Vec<String>,
    is_unique: bool,
) -> Result<Index> {
    shared.check_open()?;
    Definition::check_attributes(&attributes)?;
    let kind_id = shared.kind_id(kind)?;
    let _working = shared.indexes.working.lock();
    clear_dropped(shared)?;
    let index = match find(shared, kind, &attributes) {
        Some(index) if index.is_unique != is_unique => {
            return Err(Error::IndexExists {
                kind: kind.to_owned(),
                attributes: attributes.join(", "),
                is_unique: index.is_unique,
            });
        }
        Some(index) => index,
        None => {
            let id = shared.indexes.now().next_id;
            let index = Definition {
                id,
                kind: kind_id,
                attributes,
                is_unique,
                state: State::Building { done: None },
            };
            let next = record(&Definition::key_of(0), (id + 1).to_be_bytes().to_vec());
            commit_state(shared, index.clone(), [next])?;
            Arc::new(index)
        }
    };
    build(shared, &index)?;
    let built = find(shared, kind, &index.attributes);
    let built = built.ok_or_else(|| not_found(kind, &index.attributes))?;
    Ok(index_of(shared, &built))
}

fn record(key: &[u8], value: Vec<u8>) -> Mutation {
    Mutation::new(trees::INDEX, key, Action::PutRaw { value })
}

/// Commits the record of an index, and more, and has later commits know of it.
fn commit_state(
    shared: &Shared,
    index: Definition,
    more: impl IntoIterator<Item = Mutation>,
) -> Result<()> {
    let mut request = Request::of(record(&index.key(), index.encode()));
    request.writes.extend(more);
    commit_alone(shared, request, |revision| {
        let state = match index.state {
            State::Ready { .. } => State::Ready { since: revision },
            state => state,
        };
        shared.indexes.put(Definition { state, ..index });
    })
}

fn commit_alone(shared: &Shared, request: Request, then: impl FnOnce(Revision)) -> Result<()> {
    shared.check_open()?;
    let committed = shared.queue.commit_alone(&shared.core, request, then);
    open_or_closed(committed).map(drop)
}

/// Builds an index to its end, from where it is.
fn build(shared: &Shared, index: &Definition) -> Result<()> {
    let State::Building { mut done } = index.state else {
        return Ok(());
    };
    // How far there were no clashes: who goes on after a crash finds them again from there.
    let mut clean = done;
    let mut pairs = Vec::new();
    let is_over = loop {
        shared.check_open()?;
        if shared.indexes.is_being_dropped(index.id) {
            let kind = index_of(shared, index).kind;
            return Err(not_found(&kind, &index.attributes));
        }
        let (blocks, last) = next_chunk(shared, index, done)?;
        let Some(last) = last else {
            break pairs.is_empty();
        };
        put_chunk(shared, index, blocks, (clean, last), &mut pairs)?;
        if pairs.len() >= PAIRS_MAX {
            break false;
        }
        done = Some(last);
        if pairs.is_empty() {
            clean = done;
        }
    };
    if is_over {
        let state = State::Ready {
            since: Revision::ZERO,
        };
        let ready = Definition {
            state,
            ..index.clone()
        };
        return commit_state(shared, ready, []);
    }
    remove(shared, index)?;
    Err(Error::BuiltNotUnique {
        kind: index_of(shared, index).kind.into(),
        attributes: index.attributes.join(", ").into(),
        pairs,
    })
}

/// The next blocks of the index's kind, and the last block that was looked at, if there was one.
fn next_chunk(
    shared: &Shared,
    index: &Definition,
    done: Option<BlockId>,
) -> Result<(Vec<BlockId>, Option<BlockId>)> {
    let engine = &shared.engine;
    let lower = done.map_or(Bound::Unbounded, |id| {
        Bound::Excluded(graph::block_key(id).to_vec())
    });
    let pin = engine.pin_newest();
    let (at, direction) = (pin.revision(), ScanDirection::Forward);
    let scan = engine.scan(trees::BLOCK, lower, Bound::Unbounded, at, direction);
    let mut scan = scan.heads();
    let (mut blocks, mut last) = (Vec::new(), None);
    for _ in 0..CHUNK_READ {
        if blocks.len() >= CHUNK || !scan.advance()? {
            break;
        }
        let Ok(id) = scan.key().try_into().map(BlockId::from_bytes) else {
            continue;
        };
        last = Some(id);
        // A beginning that ends within the kinds says nothing.
        let kinds = graph::block_kinds(scan.bytes());
        if kinds.is_none_or(|kinds| kinds.contains(index.kind)) {
            blocks.push(id);
        }
    }
    Ok((blocks, last))
}

/// Commits the entries of a chunk, without those of blocks that clash with others. The mark goes from `clean` to `last` only if
/// there has been no clash: what was left out is known to this builder alone, and not to one after a crash.
fn put_chunk(
    shared: &Shared,
    index: &Definition,
    mut blocks: Vec<BlockId>,
    (clean, last): (Option<BlockId>, BlockId),
    pairs: &mut Vec<(BlockId, BlockId)>,
) -> Result<()> {
    loop {
        let done = if pairs.is_empty() { Some(last) } else { clean };
        let building = Definition {
            state: State::Building { done },
            ..index.clone()
        };
        let mut request = Request::of(record(&index.key(), building.encode()));
        request.reindexed = Some(Reindexed {
            index: index.id,
            blocks: blocks.clone(),
        });
        match shared.commit(request) {
            Err(Error::NotUnique { block, other, .. }) => {
                pairs.push((block.min(other), block.max(other)));
                // Whichever of them this chunk has.
                let clashing = |id: &BlockId| *id == block;
                match blocks.iter().position(clashing) {
                    Some(place) => drop(blocks.remove(place)),
                    None => return Ok(()),
                }
                if pairs.len() >= PAIRS_MAX {
                    return Ok(());
                }
            }
            committed => return committed.map(drop),
        }
    }
}

/// Drops an index, and deletes its entries.
fn remove(shared: &Shared, index: &Definition) -> Result<()> {
    let dropped = Definition {
        state: State::Dropped,
        ..index.clone()
    };
    commit_state(shared, dropped.clone(), [])?;
    clear(shared, &dropped)
}

/// Deletes the entries of an index that is dropped, then its record.
fn clear(shared: &Shared, index: &Definition) -> Result<()> {
    let prefix = index.prefix();
    let engine = &shared.engine;
    loop {
        shared.check_open()?;
        let lower = Bound::Included(prefix.to_vec());
        let upper = trees::prefix_end(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
        let at = engine.visible();
        let mut scan = engine.scan(trees::INDEX, lower, upper, at, ScanDirection::Forward);
        let mut request = Request::default();
        while request.writes.len() < CLEARED && scan.advance()? {
            let delete = Mutation::new(trees::INDEX, scan.key(), Action::Delete);
            request.writes.push(delete);
        }
        if request.writes.is_empty() {
            break;
        }
        shared.commit(request)?;
    }
    let delete = Mutation::new(trees::INDEX, &index.key(), Action::Delete);
    commit_alone(shared, Request::of(delete), |_| {
        shared.indexes.remove(index.id);
    })
}

fn clear_dropped(shared: &Shared) -> Result<()> {
    let all = shared.indexes.now();
    all.dropped
        .iter()
        .try_for_each(|index| clear(shared, index))
}

/// Whether a crash has left something to do.
pub(crate) fn are_unfinished(shared: &Shared) -> bool {
    let all = shared.indexes.now();
    let is_built = |index: &Arc<Definition>| matches!(index.state, State::Building { .. });
    !all.dropped.is_empty() || all.kept.iter().any(is_built)
}

/// The body of the thread that goes on with what a crash has left.
pub(crate) fn run(shared: &Shared) {
    let _working = shared.indexes.working.lock();
    let note = |result: Result<()>| match result {
        Ok(()) | Err(Error::Closed | Error::IndexNotFound { .. }) => {}
        Err(error) => tracing::error!(%error, "an index is not built: create it again"),
    };
    note(clear_dropped(shared));
    let all = shared.indexes.now();
    all.kept.iter().for_each(|index| note(build(shared, index)));
}
