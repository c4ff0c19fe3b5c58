//! [`Traversed`]: the result of a traversal, in columns that lend the visited blocks.

use std::sync::Arc;

use super::records::unregistered;
use bowline_core::error::Result;
use bowline_core::graph::BlockId;
use bowline_core::graph::csr::State;
use bowline_core::graph::visits::{Visited, Visits};
use bowline_core::kinds::KindNames;
use bowline_types::{Stop, Traversal, Visit};

/// The result of a traversal. It lends the visited blocks in the order in which they were visited; a visit takes
/// 16 bytes where the graph view answered.
///
/// ```
/// # use bowline::{Block, BlockId, Edge, Stop};
/// # let db = bowline::Db::in_memory()?;
/// # let (a, b) = (BlockId::from_name("a"), BlockId::from_name("b"));
/// # db.transact(|tx| {
/// #     tx.put_block(&Block::new(a, "host"))?;
/// #     tx.put_block(&Block::new(b, "host"))?;
/// #     tx.put_edge(&Edge::new(a, "link", b))
/// # })?;
/// let found = db.snapshot().graph().traverse(a).run()?;
/// assert_eq!((found.len(), found.stop()), (2, Stop::Exhausted));
/// let last = found.visits().last().expect("a visit");
/// assert_eq!((last.id, last.depth, last.parent, last.kind), (b, 1, Some(a), Some("link")));
/// assert_eq!(found.ids().collect::<Vec<_>>(), [a, b]);
/// assert_eq!(found.get(1), Some(last));
/// assert_eq!((found.is_empty(), found.edges_touched()), (false, 1));
/// assert_eq!(found.to_traversal().visits.len(), 2);
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Traversed {
    columns: Columns,
    names: KindNames,
}

#[derive(Debug, Clone)]
enum Columns {
    Ids(Visits<BlockId>),
    Ordinals(Visits<u32>, Arc<State>),
}

/// One visited block of a [`Traversed`].
///
/// ```
/// fn show(visit: bowline::VisitRef<'_>) -> String {
///     format!("{} by {}", visit.id, visit.kind.unwrap_or("being the start"))
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VisitRef<'a> {
    /// The block.
    pub id: BlockId,
    /// How many edges lie between the block and the start, along the parents.
    pub depth: u32,
    /// The block that this one was reached from, which was visited earlier; `None` for a start.
    pub parent: Option<BlockId>,
    /// The kind of the edge from or to the parent; `None` for a start.
    pub kind: Option<&'a str>,
}

/// Calls the same function of both columns.
macro_rules! either {
    ($columns:expr, $visits:ident => $then:expr) => {
        match $columns {
            Columns::Ids($visits) => $then,
            Columns::Ordinals($visits, _) => $then,
        }
    };
}

impl Traversed {
    pub(super) fn of_ids(visits: Visits<BlockId>, names: KindNames) -> Result<Traversed> {
        check_kinds(&visits, &names)?;
        let columns = Columns::Ids(visits);
        Ok(Traversed { columns, names })
    }

    pub(super) fn of_view(
        visits: Visits<u32>,
        state: Arc<State>,
        names: KindNames,
    ) -> Result<Traversed> {
        // A state that is newer than the names may have kinds that they have not: those were not visited.
        if !names.have_all_to(state.kind_max()) {
            check_kinds(&visits, &names)?;
        }
        let columns = Columns::Ordinals(visits, state);
        Ok(Traversed { columns, names })
    }

    /// How many blocks were visited.
    #[must_use]
    pub fn len(&self) -> usize {
        either!(&self.columns, visits => visits.count())
    }

    /// Whether none was visited: a bound of no blocks or bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Which bound ended the traversal.
    #[must_use]
    pub fn stop(&self) -> Stop {
        either!(&self.columns, visits => visits.stop)
    }

    /// How many ends of edges were read, those beyond a bound included.
    #[must_use]
    pub fn edges_touched(&self) -> u64 {
        either!(&self.columns, visits => visits.edges_touched)
    }

    /// The visited blocks.
    pub fn visits(&self) -> impl ExactSizeIterator<Item = VisitRef<'_>> + DoubleEndedIterator {
        (0..self.len()).map(|place| self.at(place))
    }

    /// The ids of the visited blocks.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = BlockId> + DoubleEndedIterator {
        (0..self.len()).map(|place| match &self.columns {
            Columns::Ids(visits) => visits.node(place),
            Columns::Ordinals(visits, state) => state.id(visits.node(place)),
        })
    }

    /// A visit by its place, from 0 on.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<VisitRef<'_>> {
        (place < self.len()).then(|| self.at(place))
    }

    fn at(&self, place: usize) -> VisitRef<'_> {
        let visit = match &self.columns {
            Columns::Ids(visits) => visits.get(place, |id| id),
            Columns::Ordinals(visits, state) => visits.get(place, |ordinal| state.id(ordinal)),
        };
        VisitRef {
            id: visit.id,
            depth: visit.depth,
            parent: visit.parent,
            kind: visit
                .kind
                .and_then(|kind| self.names.name(kind))
                .map(|name| &**name),
        }
    }

    /// The visits with names of their own, as a client of a server gets them.
    #[must_use]
    pub fn to_traversal(&self) -> Traversal {
        let own = |place| {
            let VisitRef {
                id, depth, parent, ..
            } = self.at(place);
            let kind = either!(&self.columns, visits => visits.kind(place));
            let kind = kind.and_then(|kind| self.names.name(kind).cloned());
            Visit {
                id,
                depth,
                parent,
                kind,
            }
        };
        Traversal {
            visits: (0..self.len()).map(own).collect(),
            stop: self.stop(),
            edges_touched: self.edges_touched(),
        }
    }
}

/// Refuses kinds without a name, so that lending cannot fail.
fn check_kinds<N: Visited>(visits: &Visits<N>, names: &KindNames) -> Result<()> {
    let mut named = None;
    for place in 0..visits.count() {
        let kind = visits.kind(place);
        if kind != named
            && let Some(kind) = kind
        {
            names.name(kind).ok_or_else(|| unregistered(kind))?;
            named = Some(kind);
        }
    }
    Ok(())
}
