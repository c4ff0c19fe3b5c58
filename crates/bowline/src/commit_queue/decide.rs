//! Validation and encoding of a commit group: one request after the other, each against the state after
//! the previous ones.

use std::ops::Bound;
use std::sync::Arc;

use bowline_storage::TreeId;
use bowline_storage::engine::{CommitGroup, Engine};
use bowline_storage::sync::atomic::{AtomicBool, Ordering};
use bowline_types::{Expected, Revision};
use smallvec::SmallVec;

use super::outcome::Committed;
use super::request::{Prepared, Request};
use bowline_core::error::{Error, Result, show_key};
use bowline_core::graph::KindId;
use bowline_core::graph::csr::GraphChanges;
use bowline_core::index::{Definition, IndexSet};
use bowline_core::kinds::Kinds;
use bowline_core::trees;
use bowline_core::watch::Change;
use bowline_core::write::index::{Clash, IndexChanges};
use bowline_core::write::lookup::{Lookup, Newest};
use bowline_core::write::mutation::Action;
use bowline_core::write::previous::Previous;
use bowline_core::write::validate::{self, Guard, Violation};
use bowline_core::write::writer::{Collect, Writer};

/// The outcomes of a group's requests, in order.
pub(super) type Outcomes = SmallVec<[Result<Committed>; 1]>;

/// The outcomes, and whether the group is durable.
type Decided = (Outcomes, bowline_storage::Result<u64>);

/// The context in which a group is encoded.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) collect: Collect,
    pub(super) has_leases: &'a AtomicBool,
    /// The indexes that are kept.
    pub(super) indexes: &'a Arc<IndexSet>,
    pub(super) kinds: &'a Kinds,
}

/// Buffers that groups reuse.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    writer: Writer<()>,
    pub(super) published: Vec<(Revision, Vec<Change>)>,
    /// The changes of the graph, for its view.
    pub(super) graph: GraphChanges,
}

impl Scratch {
    /// Frees the memory of a large commit.
    pub(super) fn shrink(&mut self) {
        self.writer.shrink();
    }
}

pub(super) fn decide_all(
    engine: &Engine,
    around: Surroundings<'_>,
    mut group: CommitGroup<'_>,
    requests: &[&Prepared],
    scratch: &mut Scratch,
) -> Decided {
    let mut newest = group.last_revision();
    let mut outcomes = Outcomes::with_capacity(requests.len());
    let mut broken = None;
    for request in requests {
        if let Some(error) = &broken {
            outcomes.push(Err(Error::Storage(Clone::clone(error))));
            continue;
        }
        let decided = decide(engine, &group, &request.request, around.indexes)
            .and_then(|()| encode(engine, &group, request, around, &mut scratch.writer));
        outcomes.push(match decided {
            Ok(committed) if !committed.changed => Ok(committed),
            Ok(committed) => match group.apply(scratch.writer.batch()) {
                Ok(_) => {
                    // Published also without changes of keys, so watchers need not read the trees.
                    scratch.graph.append(scratch.writer.graph());
                    if around.collect.events && committed.revision > newest {
                        newest = committed.revision.get();
                        let changes = scratch.writer.take_changes();
                        scratch.published.push((committed.revision, changes));
                    }
                    Ok(committed)
                }
                Err(error) => {
                    broken = Some(error.clone());
                    Err(error.into())
                }
            },
            Err(error) => Err(error),
        });
    }
    let finished = match broken {
        Some(error) => Err(error),
        None => group.finish(),
    };
    (outcomes, finished)
}

/// Validates a request against the newest state.
fn decide(
    engine: &Engine,
    group: &CommitGroup<'_>,
    request: &Request,
    indexes: &IndexSet,
) -> Result<()> {
    let snapshot = request.snapshot;
    // Every commit of a key, a block or an edge takes a revision: without a new one nothing has changed.
    let is_current = group.last_revision() == snapshot.get();
    if !is_current {
        for (tree, key) in &request.keys {
            validate::check_unchanged(engine, *tree, key, snapshot)?.map_err(refusal)?;
            // The definition of an index. A drop is visible a moment before commits know of it: who began in between has
            // read by the index, and nobody says any more what would be in it.
            let is_kept = |kept: &Arc<Definition>| key.as_slice() == kept.key();
            if *tree == trees::INDEX && !indexes.kept.iter().any(is_kept) {
                return Err(Error::Conflict {
                    what: what(*tree, key),
                    revision: Revision::new(group.last_revision()),
                    snapshot,
                });
            }
        }
        for (tree, lower, upper) in &request.ranges {
            let bounds = (slice(lower), slice(upper));
            validate::check_range_unchanged(engine, *tree, bounds, snapshot)?.map_err(refusal)?;
        }
    }
    let newest = Newest(engine);
    if let Some(KindId(next)) = request.next_kind
        && newest.exists(trees::SYSTEM, &trees::kind_key(next))?
    {
        return Err(Error::Conflict {
            what: "edge of a kind that was new".to_owned(),
            revision: Revision::new(group.last_revision()),
            snapshot,
        });
    }
    for guard in &request.guards {
        // A transaction has found the block in its snapshot before it required it.
        let is_known = is_current && matches!(guard, Guard::Block { .. });
        if !is_known {
            guard.check(&newest)?.map_err(refusal)?;
        }
    }
    Ok(())
}

fn slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// The outcome of the look-ups for a request.
struct Found {
    /// The previous version for each write of the kv tree.
    previous: SmallVec<[Previous; 1]>,
    /// For each write outside the kv tree: whether it deletes an absent record.
    voids: Vec<bool>,
    /// Whether the commit takes a revision. A batch of only leases and kinds takes none.
    is_numbered: bool,
    /// Whether anything changes.
    changed: bool,
}

/// Encodes the request at the next revision into the writer.
fn encode(
    engine: &Engine,
    group: &CommitGroup<'_>,
    prepared: &Prepared,
    around: Surroundings<'_>,
    writer: &mut Writer<()>,
) -> Result<Committed> {
    if let Some(update) = &prepared.request.update {
        return update.encode(engine, group, around.collect, writer);
    }
    let found = look_up(engine, group, prepared, around)?;
    let (changed, is_numbered) = (found.changed, found.is_numbered);
    let revision = match changed && is_numbered {
        true => group.next_revision(),
        false => group.last_revision(),
    };
    let mut deleted = 0;
    if changed {
        let indexed = index_changes(engine, group, prepared, around)?;
        writer.begin(Revision::new(revision), around.collect);
        deleted = write_all(&prepared.request, found, writer)?;
        indexed.write(writer);
    }
    Ok(Committed {
        revision: Revision::new(revision),
        deleted,
        changed,
    })
}

/// Finds what the writes of a request change, and checks the leases that they name.
#[inline]
fn look_up(
    engine: &Engine,
    group: &CommitGroup<'_>,
    prepared: &Prepared,
    around: Surroundings<'_>,
) -> Result<Found> {
    let mut found = Found {
        previous: SmallVec::new(),
        voids: Vec::new(),
        is_numbered: false,
        changed: false,
    };
    // Every commit of a key takes a revision: without a new revision the look-up is current.
    let looked_up_at = prepared.looked_up_at;
    let is_current = group.last_revision() == looked_up_at.get();
    let mut prefetched = prepared.previous.iter();
    for write in &prepared.request.writes {
        if write.tree != trees::KV {
            let takes_revision = trees::takes_revision(write.tree);
            let is_void = takes_revision
                && matches!(write.action, Action::Delete)
                && !Newest(engine).exists(write.tree, &write.key)?;
            found.is_numbered |= takes_revision && !is_void;
            found.changed |= !is_void;
            found.voids.push(is_void);
            continue;
        }
        let previous = prefetched.next().copied().unwrap_or(Previous::UNKNOWN);
        // A watcher or a lease may have come since the look-up.
        let must_know = around.collect.events || around.has_leases.load(Ordering::Relaxed);
        let look_up = (looked_up_at, is_current);
        let previous = previous.refresh(engine, &write.key, &write.action, look_up, must_know)?;
        match (&write.action, previous) {
            (Action::Delete, Previous::Absent) => {}
            (action, _) => {
                if let Action::PutEntry {
                    lease: Some(lease), ..
                } = action
                {
                    validate::check_lease(&Newest(engine), *lease, true)?.map_err(refusal)?;
                    around.has_leases.store(true, Ordering::Relaxed);
                }
                found.is_numbered = true;
                found.changed = true;
            }
        }
        found.previous.push(previous);
    }
    Ok(found)
}

/// What a request changes in the indexes. Refuses two blocks with the same values in a unique one.
fn index_changes(
    engine: &Engine,
    group: &CommitGroup<'_>,
    prepared: &Prepared,
    around: Surroundings<'_>,
) -> Result<IndexChanges> {
    let mut changes = IndexChanges::default();
    let is_current = group.last_revision() == prepared.looked_up_at.get();
    prepared.for_each_index_change(
        engine,
        around.indexes,
        is_current,
        &mut |index, before, after| changes.note(index, before, after),
    )?;
    match changes.find_clash(engine)? {
        None => Ok(changes),
        Some(clash) => Err(not_unique(&clash, around.kinds)),
    }
}

fn not_unique(clash: &Clash, kinds: &Kinds) -> Error {
    let kind = kinds.name(clash.index.kind);
    Error::NotUnique {
        kind: kind.map(|kind| kind.to_string()).unwrap_or_default().into(),
        attributes: clash.index.attributes.join(", ").into(),
        block: clash.block,
        other: clash.other,
    }
}

/// Encodes the writes of a request on top of what was found; returns the number of deleted keys.
#[inline]
fn write_all(request: &Request, found: Found, writer: &mut Writer<()>) -> Result<u64> {
    let mut deleted = 0;
    let (mut known, mut voids) = (found.previous.into_iter(), found.voids.into_iter());
    for write in &request.writes {
        let key = &write.key[..];
        if write.tree != trees::KV {
            if voids.next() == Some(true) {
                continue;
            }
            writer.write_record(write)?;
            continue;
        }
        let previous = known.next().unwrap_or(Previous::Absent);
        deleted += u64::from(writer.write_key(key, &write.action, previous)?);
    }
    Ok(deleted)
}

/// What a conflict names.
pub(crate) fn what(tree: TreeId, key: &[u8]) -> String {
    format!("{} {}", tree_name(tree), show_key(key))
}

/// The error of a refused transaction.
fn refusal(violation: Violation) -> Error {
    match violation {
        Violation::Changed {
            tree,
            key,
            revision,
            since,
        } => Error::Conflict {
            what: what(tree, &key),
            revision,
            snapshot: since,
        },
        Violation::Revision {
            key,
            expected,
            actual,
        } => Error::CompareFailed {
            key: show_key(&key),
            expected: Expected::of_mod_revision(expected),
            actual: Expected::of_mod_revision(actual).revision(),
        },
        Violation::MissingBlock { id } => Error::MissingBlock { id },
        Violation::LeaseNotFound { id } => Error::LeaseNotFound { id },
        Violation::LeaseExists { id } => Error::LeaseExists { id },
    }
}

fn tree_name(tree: TreeId) -> &'static str {
    match tree {
        trees::KV => "key",
        trees::BLOCK => "block",
        trees::EDGE_OUT | trees::EDGE_IN => "edge",
        trees::INDEX => "index",
        _ => "record",
    }
}
