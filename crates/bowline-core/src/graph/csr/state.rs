//! [`State`]: a base and the changes since, which together answer every revision from the base on.
//!
//! # Invariants
//!
//! - Ordinals of the base are ranks of ids; a block that got its first edge later has the next ordinal after
//!   them, in order of appearance. An ordinal means the same block in a base and in all states on top of it.
//! - Rows are given in the order (kind, id), as the trees give them.
//! - A block that no ordinal stands for has no edge at any revision that the state answers.

use std::cmp::Ordering;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::super::kind_id::KindId;
use super::super::source::KindFilter;
use super::changes::EdgeChange;
use super::delta::{Cut, Delta, DeltaRow, RowChange, Spot};
use super::ids::Ids;
use super::rows::{Rows, RowsBuilder, named};
use bowline_storage::workers;
use bowline_types::IdMap;
use bowline_types::{BlockId, Direction};

/// A fold is not worth it for fewer changes.
const FOLD_MIN: u64 = if cfg!(any(test, bowline_shuttle)) {
    8
} else {
    16_384
};
/// Nor for fewer bytes of deltas: so much do as many changes take where each has two rows of its own.
const FOLD_MIN_BYTES: u64 = FOLD_MIN * 256;
/// The deltas may grow to this part of the base's edges, and to this part of its bytes.
const FOLD_PART: u64 = 8;
/// Fewer changes are applied one by one.
const SORT_MIN: usize = 8;
/// So many ordinals at most: fewer than what [`Ids`] can have.
pub(super) const ORDINALS_MAX: usize = if cfg!(test) {
    1 << 16
} else {
    u32::MAX as usize - 1
};
/// Ids in a chunk of [`Extra`].
const CHUNK: usize = 1024;
/// Maps of [`Extra`]: a change copies one of them.
const SHARDS: usize = 64;

/// All edges at one revision.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) revision: u64,
    /// Whether it knows every block of its revision, and no other one.
    pub(super) has_all_blocks: bool,
    pub(super) ids: Ids,
    pub(super) out: Rows,
    pub(super) incoming: Rows,
}

impl Base {
    pub(super) fn new(revision: u64, has_all_blocks: bool, ids: Ids, out: Rows) -> Base {
        Base {
            incoming: out.transposed(ids.len()),
            revision,
            has_all_blocks,
            ids,
            out,
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.ids.memory_bytes() + self.out.memory_bytes() + self.incoming.memory_bytes()
    }
}

/// Blocks that the base does not know.
#[derive(Clone, Debug, Default)]
struct Extra {
    ids: Vec<Arc<Vec<BlockId>>>,
    ordinals: Vec<Arc<IdMap<u32>>>,
}

impl Extra {
    fn len(&self) -> usize {
        let full = self.ids.len().saturating_sub(1) * CHUNK;
        full + self.ids.last().map_or(0, |last| last.len())
    }

    fn shard(id: BlockId) -> usize {
        // Any bits do: the map inside hashes with a seed.
        ((id.0 ^ (id.0 >> 64)) % SHARDS as u128) as usize
    }

    fn push(&mut self, id: BlockId, ordinal: u32) {
        if self.ids.last().is_none_or(|last| last.len() == CHUNK) {
            self.ids.push(Arc::default());
        }
        if let Some(last) = self.ids.last_mut() {
            Arc::make_mut(last).push(id);
        }
        self.ordinals.resize_with(SHARDS, Arc::default);
        Arc::make_mut(&mut self.ordinals[Extra::shard(id)]).insert(id, ordinal);
    }

    /// A block takes 16 bytes in its list, and 32 in a map that is about two thirds full.
    fn memory_bytes(&self) -> u64 {
        self.len() as u64 * 64
    }
}

/// The rows of one direction, of every kind, that lie in one piece.
#[derive(Clone, Copy, Debug)]
pub struct PlainRows<'a> {
    rows: &'a Rows,
    /// `None` without changes.
    delta: Option<&'a Delta>,
    state: &'a State,
    revision: u64,
    direction: Direction,
    is_lent: bool,
    is_worth_prefetching: bool,
}

impl<'a> PlainRows<'a> {
    /// The neighbors of an ordinal as they lie in memory; `None` when they do not lie in one piece.
    #[inline(always)]
    pub(crate) fn get(&self, near: u32) -> Option<(&'a [u32], PlainKinds<'a>)> {
        if !self.is_lent {
            return None;
        }
        if let Some(delta) = self.delta
            && delta.has(near)
        {
            return self.get_changed(delta, near);
        }
        let rows = self.rows;
        let row = rows.row(near);
        let first = row.start;
        Some((rows.far(row), PlainKinds { rows, first }))
    }

    /// The same of a row with changes. Not inlined, so that the loops over rows without changes keep their state in
    /// registers.
    #[inline(never)]
    fn get_changed(&self, delta: &'a Delta, near: u32) -> Option<(&'a [u32], PlainKinds<'a>)> {
        let revision = self.revision;
        let Some((rows, row)) = delta.flat_row(near, revision) else {
            // Perhaps for the last time.
            delta.flatten(near, revision, self.rows, || self.state.flat_room_bytes());
            return None;
        };
        let first = row.start;
        Some((rows.far(row), PlainKinds { rows, first }))
    }

    /// Asks for where the row of an ordinal begins.
    #[inline]
    pub(super) fn prefetch_start(&self, near: u32) {
        self.rows.prefetch_start(near);
    }

    /// Whether [`PlainRows::get`] would give no edges; `false` also if that is not known at once.
    #[inline(always)]
    pub(crate) fn is_empty(&self, near: u32) -> bool {
        let is_changed = self.delta.is_some_and(|delta| delta.has(near));
        self.is_lent && !is_changed && self.rows.is_empty_row(near)
    }

    /// The place of the first node whose row has edges, or is not known at once; `None` among them is skipped.
    #[inline(never)]
    pub(crate) fn first_with_edges(
        &self,
        mut nodes: impl Iterator<Item = Option<u32>>,
    ) -> Option<usize> {
        let rows = self.rows;
        // What is the same for all is looked at here: this is a loop of three loads.
        match self.delta {
            _ if !self.is_lent => nodes.position(|node| node.is_some()),
            None => nodes.position(|node| node.is_some_and(|node| !rows.is_empty_row(node))),
            Some(delta) => nodes.position(|node| {
                node.is_some_and(|node| delta.has(node) || !rows.is_empty_row(node))
            }),
        }
    }

    #[inline]
    pub(crate) fn direction(&self) -> Direction {
        self.direction
    }

    #[inline]
    pub(crate) fn is_worth_prefetching(&self) -> bool {
        self.is_worth_prefetching
    }

    /// Asks for the memory of rows that are read soon: of `later` where it begins, of `next` the row itself.
    #[inline]
    pub(crate) fn prefetch_rows(&self, later: Option<u32>, next: Option<u32>) {
        if let Some(later) = later {
            self.rows.prefetch_start(later);
        }
        if let Some(next) = next {
            self.rows.prefetch_row(next);
        }
    }
}

/// The kinds of a row of the base.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainKinds<'a> {
    rows: &'a Rows,
    first: usize,
}

impl PlainKinds<'_> {
    /// Asks for the first kinds of the row.
    #[inline]
    pub(super) fn prefetch(self) {
        self.rows.prefetch_kinds(self.first);
    }

    /// The kind by the edge's place in the row.
    #[inline]
    pub fn get(self, place: usize) -> KindId {
        self.rows.kind(self.first + place)
    }

    /// Visits the edges of the row, or its first ones, with their kinds.
    #[inline]
    pub(crate) fn for_each<N>(self, nodes: &[N], visit: impl FnMut(&N, KindId)) {
        self.rows.for_each(self.first, nodes, visit);
    }
}

/// A piece of a row, in the row's order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part<'a> {
    /// Edges that lie together in the base: the other ends and the kinds.
    Base(&'a [u32], PlainKinds<'a>),
    /// An edge that came later.
    Added(u32, KindId),
}

/// The edges of every revision from its base to its newest change.
#[derive(Clone)]
pub struct State {
    pub(super) base: Arc<Base>,
    extra: Extra,
    out: Delta,
    incoming: Delta,
    changes: u64,
    /// Whether a change was left out, as all ordinals are given: then it must not answer.
    pub(super) is_full: bool,
    /// No edge of any revision has a larger kind.
    kind_max: KindId,
    /// What it should take in memory at most.
    budget_bytes: u64,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("base", &self.base.revision)
            .field("changes", &self.changes)
            .finish_non_exhaustive()
    }
}

/// Of a row, so many ids are asked for ahead: two cache lines of ordinals.
const IDS_AHEAD: usize = 32;

impl State {
    pub(super) fn new(base: Base, budget_bytes: u64) -> State {
        State {
            kind_max: base.out.kind_max(),
            base: Arc::new(base),
            extra: Extra::default(),
            out: Delta::default(),
            incoming: Delta::default(),
            changes: 0,
            is_full: false,
            budget_bytes,
        }
    }

    /// Ordinals are below.
    pub fn ordinals(&self) -> usize {
        self.base.ids.len() + self.extra.len()
    }

    /// Whether rows of a direction are others than in the base.
    pub(super) fn has_changed_rows(&self, direction: Direction) -> bool {
        match direction {
            Direction::In => !self.incoming.is_empty(),
            Direction::Out | Direction::Both => !self.out.is_empty(),
        }
    }

    /// How many edges the base has.
    pub(super) fn edge_count(&self) -> u64 {
        self.base.out.edge_count() as u64
    }

    /// How many changes came since the base.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether the changes should be folded into a new base: they are many, they take much more memory than they would
    /// as a part of it, or there is no memory left.
    #[inline]
    pub fn is_fold_due(&self) -> bool {
        let (base, deltas) = (self.base.memory_bytes(), self.delta_bytes());
        self.changes > FOLD_MIN.max(self.edge_count() / FOLD_PART)
            || deltas > FOLD_MIN_BYTES.max(base / 2)
            || base + deltas + self.flat_bytes() > self.budget_bytes
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.base.memory_bytes() + self.delta_bytes() + self.flat_bytes()
    }

    /// What copies of changed rows may take beside those that there are.
    fn flat_room_bytes(&self) -> u64 {
        let taken = self.base.memory_bytes() + self.delta_bytes();
        let half = self.budget_bytes.saturating_sub(taken) / 2;
        half.saturating_sub(self.flat_bytes())
    }

    /// What the copies of changed rows take.
    pub(super) fn flat_bytes(&self) -> u64 {
        self.out.flat_bytes() + self.incoming.flat_bytes()
    }

    /// What the changes take.
    fn delta_bytes(&self) -> u64 {
        self.extra.memory_bytes() + self.out.memory_bytes() + self.incoming.memory_bytes()
    }

    /// No edge has a larger kind; [`u32::MAX`] if one has the kind 0.
    #[inline]
    pub fn kind_max(&self) -> KindId {
        self.kind_max
    }

    /// The block of an ordinal.
    #[inline]
    pub fn id(&self, ordinal: u32) -> BlockId {
        id_of(&self.base, &self.extra, ordinal)
    }

    /// The ordinal of a block; without one it has no edge.
    #[inline]
    pub fn ordinal(&self, id: BlockId) -> Option<u32> {
        self.base.ids.ordinal(id).or_else(|| self.extra_ordinal(id))
    }

    /// The ordinal of a block that the base does not know.
    #[inline]
    pub(super) fn extra_ordinal(&self, id: BlockId) -> Option<u32> {
        let shard = self.extra.ordinals.get(Extra::shard(id))?;
        shard.get(&id).copied()
    }

    /// The rows of one direction and filter at a revision that lie in one piece.
    #[inline]
    pub(crate) fn plain_rows(
        &self,
        direction: Direction,
        revision: u64,
        filter: &KindFilter,
    ) -> PlainRows<'_> {
        /// The arrays of fewer blocks stay in the caches anyway.
        const WORTH_PREFETCHING: usize = 1 << 15;
        let (rows, delta) = match direction {
            Direction::In => (&self.base.incoming, &self.incoming),
            Direction::Out | Direction::Both => (&self.base.out, &self.out),
        };
        PlainRows {
            rows,
            delta: Some(delta).filter(|delta| !delta.is_empty()),
            state: self,
            revision,
            direction,
            is_lent: direction != Direction::Both && matches!(filter, KindFilter::All),
            is_worth_prefetching: self.base.ids.len() >= WORTH_PREFETCHING,
        }
    }

    /// Visits the neighbors of an ordinal at a revision, in the order of [`GraphSource::neighbors`], until
    /// `visit` breaks.
    ///
    /// [`GraphSource::neighbors`]: super::super::GraphSource::neighbors
    #[inline]
    pub fn visit<B>(
        &self,
        near: u32,
        direction: Direction,
        revision: u64,
        filter: &KindFilter,
        mut visit: impl FnMut(u32, KindId, Direction) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        // The common case has a loop of its own, into which `visit` is compiled.
        let Some((nodes, kinds)) = self.plain_rows(direction, revision, filter).get(near) else {
            return self.visit_any(near, direction, revision, filter, &mut visit);
        };
        self.prefetch_ids(nodes);
        self.visit_lent(nodes, kinds, direction, &mut visit)
    }

    /// Visits the edges of a row that lies together. The ids of its first ends were asked for.
    #[inline(always)]
    pub(super) fn visit_lent<B>(
        &self,
        nodes: &[u32],
        kinds: PlainKinds<'_>,
        direction: Direction,
        visit: &mut impl FnMut(u32, KindId, Direction) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        if nodes.len() > IDS_AHEAD {
            return self.visit_long(nodes, kinds, direction, visit);
        }
        for (place, &far) in nodes.iter().enumerate() {
            visit(far, kinds.get(place), direction)?;
        }
        ControlFlow::Continue(())
    }

    /// The same for a long row, whose later ids are asked for on the way. Not inlined: a short row is over before this
    /// would pay.
    #[inline(never)]
    fn visit_long<B>(
        &self,
        nodes: &[u32],
        kinds: PlainKinds<'_>,
        direction: Direction,
        visit: &mut impl FnMut(u32, KindId, Direction) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        for (place, &far) in nodes.iter().enumerate() {
            if let Some(&later) = nodes.get(place + IDS_AHEAD) {
                self.base.ids.prefetch(later);
            }
            visit(far, kinds.get(place), direction)?;
        }
        ControlFlow::Continue(())
    }

    /// Asks for the ids of the first ends of a row: whoever visits a row reads them. Asked for one after the other, they
    /// are waited for one after the other: what is done with each fills the window in which the processor looks ahead.
    #[inline]
    pub(super) fn prefetch_ids(&self, nodes: &[u32]) {
        for &far in nodes.iter().take(IDS_AHEAD) {
            self.base.ids.prefetch(far);
        }
    }

    pub(super) fn visit_any<B>(
        &self,
        near: u32,
        direction: Direction,
        revision: u64,
        filter: &KindFilter,
        visit: &mut dyn FnMut(u32, KindId, Direction) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.visit_parts(near, direction, revision, filter, |part, direction| {
            match part {
                Part::Base(nodes, kinds) => {
                    for (place, &far) in nodes.iter().enumerate() {
                        visit(far, kinds.get(place), direction)?;
                    }
                }
                Part::Added(far, kind) => visit(far, kind, direction)?,
            }
            ControlFlow::Continue(())
        })
    }

    /// How many edges [`State::visit`] visits.
    #[inline]
    pub fn degree(
        &self,
        near: u32,
        direction: Direction,
        revision: u64,
        filter: &KindFilter,
    ) -> u64 {
        let mut degree = 0;
        let _ = self.visit_parts(near, direction, revision, filter, |part, _| {
            degree += match part {
                Part::Base(nodes, _) => nodes.len() as u64,
                Part::Added(..) => 1,
            };
            ControlFlow::<()>::Continue(())
        });
        degree
    }

    /// The same in parts: adjacent edges of the base come as one slice, so that a row is copied by slices.
    #[inline]
    pub(crate) fn visit_parts<B>(
        &self,
        near: u32,
        direction: Direction,
        revision: u64,
        filter: &KindFilter,
        mut visit: impl FnMut(Part<'_>, Direction) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        if direction != Direction::In {
            let (rows, delta) = (&self.base.out, self.out.row(near));
            let mut visit = |part: Part<'_>| visit(part, Direction::Out);
            visit_row(rows, near, delta, revision, filter, &mut visit)?;
        }
        if direction != Direction::Out {
            let (rows, delta) = (&self.base.incoming, self.incoming.row(near));
            let mut visit = |part: Part<'_>| visit(part, Direction::In);
            visit_row(rows, near, delta, revision, filter, &mut visit)?;
        }
        ControlFlow::Continue(())
    }

    /// All blocks in the order of their ids, with their ordinals.
    pub(crate) fn ordinals_by_id(&self) -> Vec<(BlockId, u32)> {
        let mut all: Vec<_> = (0..self.ordinals() as u32)
            .map(|ordinal| (self.id(ordinal), ordinal))
            .collect();
        // Only the blocks that came later are out of order.
        all.sort();
        all
    }

    /// Applies a change; changes come in the order of revisions.
    pub(super) fn apply(&mut self, change: &EdgeChange) {
        let Some(change) = self.numbered(change) else {
            return;
        };
        let State {
            base,
            extra,
            out,
            incoming,
            ..
        } = self;
        if apply_to(out, &base.out, base, extra, &change)
            && apply_to(incoming, &base.incoming, base, extra, &change.reversed())
        {
            self.changes += 1;
        }
    }

    /// Applies changes, in the order of revisions: if they are many, each direction row by row, side by side with
    /// `has_threads`.
    pub(super) fn apply_all(&mut self, changes: &[EdgeChange], has_threads: bool) {
        if changes.len() < SORT_MIN {
            changes.iter().for_each(|change| self.apply(change));
            return;
        }
        let numbered = changes.iter().filter_map(|change| self.numbered(change));
        let mut there: Vec<Numbered> = numbered.collect();
        let mut back: Vec<_> = there.iter().map(Numbered::reversed).collect();
        let State {
            base,
            extra,
            out,
            incoming,
            ..
        } = self;
        let (base, extra) = (&**base, &*extra);
        let by_id = |left, right| order_of(base, extra, left, right);
        let apply = |delta: &mut Delta, rows, changes: &mut Vec<Numbered>| {
            // Stable: those of one edge stay in their order.
            changes.sort_by(|a, b| {
                let by_kind = (a.near, a.kind).cmp(&(b.near, b.kind));
                by_kind.then_with(|| by_id(a.far, b.far))
            });
            let mut changed = 0;
            let mut of_row = Vec::new();
            for same in changes.chunk_by(|a, b| a.near == b.near) {
                of_row.clear();
                of_row.extend(same.iter().map(|it| it.placed(base, extra, rows)));
                changed += delta.apply_sorted(same[0].near, &of_row, by_id);
            }
            changed
        };
        let (_, changed) = workers::both(
            has_threads,
            || apply(incoming, &base.incoming, &mut back),
            || apply(out, &base.out, &mut there),
        );
        self.changes += changed;
    }

    /// The change with the ordinals of its ends; `None` if it changes nothing.
    fn numbered(&mut self, change: &EdgeChange) -> Option<Numbered> {
        let (near, far) = match change.is_put {
            true => (self.known(change.source)?, self.known(change.target)?),
            false => (self.ordinal(change.source)?, self.ordinal(change.target)?),
        };
        self.kind_max = self.kind_max.max(change.kind);
        Some(Numbered {
            near,
            far,
            kind: change.kind,
            revision: change.revision,
            is_put: change.is_put,
        })
    }

    /// The ordinal of a block, which gets one if it has none; `None` when all are given.
    fn known(&mut self, id: BlockId) -> Option<u32> {
        if let Some(ordinal) = self.ordinal(id) {
            return Some(ordinal);
        }
        let next = self.ordinals();
        if next >= ORDINALS_MAX {
            self.is_full = true;
            return None;
        }
        self.extra.push(id, next as u32);
        Some(next as u32)
    }

    /// A base of the edges at `revision`, which no change is newer than; `None` when there are more than places can number.
    /// Blocks without edges are left out, unless `keeps_blocks`: then the blocks are those of the base.
    pub(super) fn folded(&self, revision: u64, keeps_blocks: bool) -> Option<Base> {
        let count = self.ordinals() as u32;
        let none = KindFilter::All;
        let mut kept: Vec<(BlockId, u32)> = Vec::new();
        for ordinal in 0..count {
            let stop = |_, _, _| ControlFlow::Break(());
            let found = self.visit(ordinal, Direction::Both, revision, &none, stop);
            if keeps_blocks || found.is_break() {
                kept.push((self.id(ordinal), ordinal));
            }
        }
        // Only the blocks that came later are out of order.
        kept.sort_unstable();
        let mut ranks = vec![u32::MAX; count as usize];
        for (rank, (_, ordinal)) in kept.iter().enumerate() {
            ranks[*ordinal as usize] = rank as u32;
        }
        let mut rows = RowsBuilder::new(kept.len());
        for (rank, (_, ordinal)) in kept.iter().enumerate() {
            let near = rank as u32;
            let add = |far: u32, kind, _| match rows.push(near, kind, ranks[far as usize]) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            };
            let added = self.visit(*ordinal, Direction::Out, revision, &none, add);
            if added.is_break() {
                return None;
            }
        }
        let ids = Ids::new(kept.into_iter().map(|(id, _)| id).collect());
        Some(Base::new(revision, keeps_blocks, ids, rows.finish()))
    }
}

/// A change of an edge, as one of its two rows sees it.
#[derive(Clone, Copy, Debug)]
struct Numbered {
    near: u32,
    far: u32,
    kind: KindId,
    revision: u64,
    is_put: bool,
}

impl Numbered {
    fn reversed(&self) -> Numbered {
        Numbered {
            near: self.far,
            far: self.near,
            ..*self
        }
    }

    fn placed(&self, base: &Base, extra: &Extra, rows: &Rows) -> RowChange {
        RowChange {
            spot: spot(base, extra, rows, self.near, self.kind, self.far),
            revision: self.revision,
            is_put: self.is_put,
        }
    }
}

/// Applies a change to one direction; `false` if the edge was as it says.
fn apply_to(delta: &mut Delta, rows: &Rows, base: &Base, extra: &Extra, change: &Numbered) -> bool {
    let by_id = |left, right| order_of(base, extra, left, right);
    delta.apply(change.near, change.placed(base, extra, rows), by_id)
}

/// The order of two blocks by their ids.
#[inline]
fn order_of(base: &Base, extra: &Extra, left: u32, right: u32) -> Ordering {
    // Ordinals of the base are ranks: they say it without the ids, which are elsewhere in memory.
    match (left.max(right) as usize) < base.ids.len() {
        true => left.cmp(&right),
        false => id_of(base, extra, left).cmp(&id_of(base, extra, right)),
    }
}

#[inline]
fn id_of(base: &Base, extra: &Extra, ordinal: u32) -> BlockId {
    let known = base.ids.len();
    match (ordinal as usize).checked_sub(known) {
        None => base.ids.id(ordinal),
        Some(later) => extra.ids[later / CHUNK][later % CHUNK],
    }
}

/// Where an edge belongs in the row of `near`.
fn spot(base: &Base, extra: &Extra, rows: &Rows, near: u32, kind: KindId, far: u32) -> Spot {
    let row = rows.row(near);
    let is_known = (far as usize) < base.ids.len();
    let rank = match is_known {
        true => far,
        // Ordinals of the base are ranks: the edge stands where its id would.
        false => {
            let id = id_of(base, extra, far);
            base.ids.all().partition_point(|other| *other < id) as u32
        }
    };
    let place = rows.lower_bound(row.clone(), kind, rank);
    let is_there = || rows.kind(place) == kind && rows.far(place..place + 1) == [far];
    Spot {
        at: (place - row.start) as u32,
        is_base: is_known && place < row.end && is_there(),
        kind,
        far,
    }
}

/// Visits one row at a revision.
#[inline]
fn visit_row<B>(
    rows: &Rows,
    near: u32,
    delta: Option<&DeltaRow>,
    revision: u64,
    filter: &KindFilter,
    visit: &mut impl FnMut(Part<'_>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let row = rows.row(near);
    match delta {
        Some(delta) => visit_changed(rows, row, delta, revision, filter, visit),
        None => visit_base(rows, row, filter, visit),
    }
}

/// Visits what passes of these places of the base, which belong to one row.
#[inline]
fn visit_base<B>(
    rows: &Rows,
    places: Range<usize>,
    filter: &KindFilter,
    visit: &mut impl FnMut(Part<'_>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let mut part = |places: Range<usize>| {
        let first = places.start;
        match places.is_empty() {
            true => ControlFlow::Continue(()),
            false => visit(Part::Base(rows.far(places), PlainKinds { rows, first })),
        }
    };
    match named(filter) {
        None => part(places),
        Some(kinds) => {
            for passing in rows.passing(places, kinds) {
                part(passing)?;
            }
            ControlFlow::Continue(())
        }
    }
}

/// Merges the base's row with its changes: only where something changed is the base's row cut.
fn visit_changed<B>(
    rows: &Rows,
    row: Range<usize>,
    delta: &DeltaRow,
    revision: u64,
    filter: &KindFilter,
    visit: &mut impl FnMut(Part<'_>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let mut from = row.start;
    for cut in delta.cuts(revision) {
        let (at, skipped) = match cut {
            Cut::Added(edge) => (row.start + edge.at as usize, 0),
            Cut::Removed(at) => (row.start + at as usize, 1),
        };
        visit_base(rows, from..at, filter, visit)?;
        from = at + skipped;
        if let Cut::Added(edge) = cut
            && filter.passes(edge.kind)
        {
            visit(Part::Added(edge.far, edge.kind))?;
        }
    }
    visit_base(rows, from..row.end, filter, visit)
}
