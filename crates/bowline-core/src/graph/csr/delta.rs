//! [`Delta`]: what changed in the rows of one direction since the base.
//!
//! A changed row lists the edges that were added and the places of the base's row that were removed, with the
//! revisions between which an added edge is there. So one delta answers every revision from the base on.
//!
//! ```text
//! base row     place   0        1        2
//!                      a        c        d
//! removed              .        @12                  c is there before revision 12
//! added           at 1: b [11, 14)    at 3: e [13, ∞)
//!
//! at 11:  a b c d      at 13:  a b d e      at 14:  a d e
//! ```
//!
//! An added edge stands before the place where the order (kind, id) puts it, so reading merges both without
//! comparing ids.
//!
//! Deltas are persistent: a new one shares all rows but the changed ones with the one before, in chunks of
//! 1,024 ordinals. A reader holds one and needs no lock.
//!
//! # Cost
//!
//! A change finds its place by a binary search, and moves what stands behind it: that is little for one change, but for
//! many at one block the square of their number. So those that come together are sorted, and merged with the row at once.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use super::super::kind_id::KindId;
use super::flat::{Flat, FlatBytes, FlatSlot, ROW_MAX};
use super::rows::{Rows, RowsBuilder};

/// Ordinals in a chunk.
const CHUNK: usize = 1024;
/// The end of an edge that is there.
const NEVER: u64 = u64::MAX;
/// So many changes of a row are worth a merge, which goes over the whole row.
const MERGE_MIN: usize = 8;

#[cfg(test)]
thread_local! {
    /// How many added edges were compared on this thread, and how many moved one by one.
    pub(super) static COST: std::cell::Cell<[usize; 2]> = const { std::cell::Cell::new([0; 2]) };
}

#[cfg(test)]
fn count(compared: usize, moved: usize) {
    let [before, moved_before] = COST.get();
    COST.set([before + compared, moved_before + moved]);
}

/// An edge that the base does not have, or has no longer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Added {
    /// It stands before this place of the base's row.
    pub(super) at: u32,
    pub(super) far: u32,
    pub(super) kind: KindId,
    /// The first revision that has it.
    begin: u64,
    /// The first later revision that does not.
    end: u64,
}

impl Added {
    /// Whether a revision has it.
    #[inline]
    pub(super) fn is_at(&self, revision: u64) -> bool {
        self.begin <= revision && revision < self.end
    }
}

/// A place of the base's row that is there until a revision.
#[derive(Clone, Copy, Debug)]
struct Removed {
    at: u32,
    end: u64,
}

/// A place where a row differs from that of the base.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cut<'a> {
    /// This edge stands before its place.
    Added(&'a Added),
    /// The edge at this place is not there.
    Removed(u32),
}

/// The changes of one row.
#[derive(Clone, Debug, Default)]
pub(super) struct DeltaRow {
    /// By place, then kind and id, then revision.
    added: Vec<Added>,
    /// By place.
    removed: Vec<Removed>,
}

/// Where an edge belongs in a row. All changes of one edge have the same spot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    /// The place in the base's row, from its start.
    pub(super) at: u32,
    /// Whether the base has the edge there.
    pub(super) is_base: bool,
    pub(super) kind: KindId,
    pub(super) far: u32,
}

/// A change of an edge, as the row knows it that has the edge.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowChange {
    pub(super) spot: Spot,
    pub(super) revision: u64,
    /// Whether the edge is there afterwards.
    pub(super) is_put: bool,
}

impl Added {
    fn new(spot: Spot, revision: u64) -> Added {
        Added {
            at: spot.at,
            far: spot.far,
            kind: spot.kind,
            begin: revision,
            end: NEVER,
        }
    }

    /// Whether it is the edge of `spot`, and there.
    fn is_live(&self, spot: Spot) -> bool {
        (self.at, self.kind, self.far, self.end) == (spot.at, spot.kind, spot.far, NEVER)
    }

    /// Whether it stands before the next edge that might be added at `spot`.
    fn is_before(&self, spot: Spot, by_id: impl Fn(u32, u32) -> Ordering) -> bool {
        #[cfg(test)]
        count(1, 0);
        let by_kind = (self.at, self.kind).cmp(&(spot.at, spot.kind));
        by_kind.then_with(|| by_id(self.far, spot.far)).is_le()
    }
}

impl DeltaRow {
    /// Where a revision's row differs from the base's, by place. What was added stands before the place itself.
    #[inline]
    pub(super) fn cuts(&self, revision: u64) -> impl Iterator<Item = Cut<'_>> {
        let added = self.added.iter().filter(move |edge| edge.is_at(revision));
        let removed = self.removed.iter().filter(move |it| it.end <= revision);
        let (mut added, mut removed) = (added.peekable(), removed.peekable());
        std::iter::from_fn(move || {
            let next = removed.peek().map_or(u32::MAX, |removed| removed.at);
            match added.next_if(|edge| edge.at <= next) {
                Some(edge) => Some(Cut::Added(edge)),
                None => removed.next().map(|removed| Cut::Removed(removed.at)),
            }
        })
    }

    /// Whether a revision has the base's edge at a place.
    #[inline]
    pub(super) fn has_base(&self, at: u32, revision: u64) -> bool {
        match self.removed.binary_search_by_key(&at, |removed| removed.at) {
            Ok(found) => revision < self.removed[found].end,
            Err(_) => true,
        }
    }

    /// Whether the newest revision has the base's edge of `spot`.
    fn has_live_base(&self, spot: Spot) -> bool {
        spot.is_base && self.has_base(spot.at, NEVER - 1)
    }

    /// Copies the row as it is at a revision; `false` if there is no room for its places.
    fn copy_to(
        &self,
        rows: &mut RowsBuilder,
        near: u32,
        base: &Rows,
        row: Range<usize>,
        revision: u64,
    ) -> bool {
        let mut from = row.start;
        for cut in self.cuts(revision) {
            let (at, next) = match cut {
                Cut::Added(edge) => (row.start + edge.at as usize, row.start + edge.at as usize),
                Cut::Removed(at) => (row.start + at as usize, row.start + at as usize + 1),
            };
            if !rows.copy(near, base, from..at) {
                return false;
            }
            from = next;
            if let Cut::Added(edge) = cut
                && !rows.push(near, edge.kind, edge.far)
            {
                return false;
            }
        }
        rows.copy(near, base, from..row.end)
    }

    /// Adds or ends an edge; `false` when it is as the change says. `by_id` orders other ends.
    fn apply(&mut self, change: RowChange, by_id: impl Fn(u32, u32) -> Ordering) -> bool {
        let RowChange { spot, revision, .. } = change;
        if self.has_live_base(spot) {
            if !change.is_put {
                let removed = self.removed.partition_point(|it| it.at < spot.at);
                let (at, end) = (spot.at, revision);
                self.removed.insert(removed, Removed { at, end });
            }
            return !change.is_put;
        }
        // Of the edges that were this one the newest is the last, and only that may be there.
        let place = self.added.partition_point(|it| it.is_before(spot, &by_id));
        let live = self.added[..place].last_mut().filter(|it| it.is_live(spot));
        match (live, change.is_put) {
            (None, true) => {
                // Most rows get one edge: no room for more.
                self.added.reserve_exact(usize::from(self.added.is_empty()));
                #[cfg(test)]
                count(0, self.added.len() - place);
                self.added.insert(place, Added::new(spot, revision));
                true
            }
            (Some(live), false) => {
                live.end = revision;
                true
            }
            (Some(_), true) | (None, false) => false,
        }
    }

    /// Applies many changes, in the order of their edges and for each edge in that of revisions. Returns how many
    /// changed something.
    fn merge(&mut self, changes: &[RowChange], by_id: impl Fn(u32, u32) -> Ordering) -> u64 {
        let puts = changes.iter().filter(|change| change.is_put).count();
        let mut added = Vec::with_capacity(self.added.len() + puts);
        let mut old = std::mem::take(&mut self.added).into_iter().peekable();
        let mut removed: Vec<Removed> = Vec::new();
        let mut changed = 0;
        for &RowChange {
            spot,
            revision,
            is_put,
        } in changes
        {
            while let Some(before) = old.next_if(|it| it.is_before(spot, &by_id)) {
                added.push(before);
            }
            // The changes ascend, so an edge of the base that one of them removed is the last of those.
            let is_gone = removed.last().is_some_and(|last| last.at == spot.at);
            let in_base = !is_gone && self.has_live_base(spot);
            let live = added.last_mut().filter(|it| it.is_live(spot));
            match (live, is_put) {
                _ if in_base && is_put => continue,
                _ if in_base => removed.push(Removed {
                    at: spot.at,
                    end: revision,
                }),
                (None, true) => added.push(Added::new(spot, revision)),
                (Some(live), false) => live.end = revision,
                (Some(_), true) | (None, false) => continue,
            }
            changed += 1;
        }
        added.extend(old);
        self.added = added;
        self.removed.extend(removed);
        // Two lists that ascend, one behind the other: to sort them is to merge them.
        self.removed.sort_by_key(|removed| removed.at);
        changed
    }

    /// With the counters of its [`Arc`].
    fn memory_bytes(&self) -> usize {
        let added = self.added.capacity() * size_of::<Added>();
        let removed = self.removed.capacity() * size_of::<Removed>();
        16 + size_of::<DeltaRow>() + added + removed
    }
}

/// The changed rows of 1,024 ordinals.
#[derive(Clone, Debug)]
struct Chunk {
    /// One bit for each ordinal.
    changed: [u64; CHUNK / 64],
    /// How many bits are set before each word.
    ranks: [u16; CHUNK / 64],
    /// The rows of the set bits, in order.
    rows: Vec<Arc<DeltaRow>>,
    /// The newest revision that changes a row.
    newest: u64,
    flat: FlatSlot,
}

impl Chunk {
    #[inline]
    fn has(&self, slot: usize) -> bool {
        self.changed[slot / 64] >> (slot % 64) & 1 == 1
    }

    /// How many changed rows are before a slot.
    #[inline]
    fn rank(&self, slot: usize) -> usize {
        let part = self.changed[slot / 64] & ((1 << (slot % 64)) - 1);
        usize::from(self.ranks[slot / 64]) + part.count_ones() as usize
    }

    /// Notes that a row changes; whether it is the first time.
    fn insert(&mut self, slot: usize) -> bool {
        if self.has(slot) {
            return false;
        }
        self.changed[slot / 64] |= 1 << (slot % 64);
        self.ranks[slot / 64 + 1..]
            .iter_mut()
            .for_each(|rank| *rank += 1);
        true
    }

    /// The slots of the changed rows, and the rows.
    fn changed_rows(&self) -> impl Iterator<Item = (usize, &DeltaRow)> {
        let slots = (0..CHUNK).filter(|&slot| self.has(slot));
        slots.zip(self.rows.iter().map(|row| &**row))
    }

    /// Without its rows.
    fn memory_bytes(&self) -> usize {
        16 + size_of::<Chunk>() + self.rows.capacity() * size_of::<Arc<DeltaRow>>()
    }
}

/// The changed rows of one direction.
#[derive(Clone, Debug, Default)]
pub(super) struct Delta {
    chunks: Vec<Option<Arc<Chunk>>>,
    /// Of all chunks and rows: to count them when it is asked for would take a walk over all of them.
    bytes: usize,
    flat_bytes: FlatBytes,
}

impl Delta {
    /// Whether no row changed.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The changes of a row, if it has some.
    #[inline]
    pub(super) fn row(&self, ordinal: u32) -> Option<&DeltaRow> {
        let ordinal = ordinal as usize;
        let chunk = self.chunks.get(ordinal / CHUNK)?.as_deref()?;
        let slot = ordinal % CHUNK;
        chunk.has(slot).then(|| &*chunk.rows[chunk.rank(slot)])
    }

    /// Whether a row has changes.
    #[inline(always)]
    pub(super) fn has(&self, ordinal: u32) -> bool {
        let ordinal = ordinal as usize;
        match self.chunks.get(ordinal / CHUNK) {
            Some(Some(chunk)) => chunk.has(ordinal % CHUNK),
            _ => false,
        }
    }

    /// Where a changed row lies in one piece, as it is at a revision.
    #[inline]
    pub(super) fn flat_row(&self, ordinal: u32, revision: u64) -> Option<(&Rows, Range<usize>)> {
        let ordinal = ordinal as usize;
        let chunk = self.chunks.get(ordinal / CHUNK)?.as_deref()?;
        match revision >= chunk.newest {
            true => chunk.flat.get()?.row(ordinal % CHUNK),
            false => None,
        }
    }

    /// Notes that a row is read in parts. Perhaps the chunk's rows are copied for later readers, into at most
    /// `room_bytes`.
    pub(super) fn flatten(
        &self,
        ordinal: u32,
        revision: u64,
        base: &Rows,
        room_bytes: impl FnOnce() -> u64,
    ) {
        let index = ordinal as usize / CHUNK;
        let Some(Some(chunk)) = self.chunks.get(index) else {
            return;
        };
        let is_due = revision >= chunk.newest
            && chunk.flat.get().is_none()
            && chunk.flat.is_worth_while(chunk.rows.len());
        if !is_due {
            return;
        }
        let room_bytes = room_bytes();
        let mut rows = RowsBuilder::new(CHUNK);
        for (slot, changes) in chunk.changed_rows() {
            if rows.finished_bytes() > room_bytes {
                return;
            }
            let row = base.row((index * CHUNK + slot) as u32);
            if row.len() + changes.added.len() <= ROW_MAX
                && !changes.copy_to(&mut rows, slot as u32, base, row, chunk.newest)
            {
                return;
            }
        }
        if let Some(flat) = Flat::new(rows.finish(), &self.flat_bytes, room_bytes) {
            chunk.flat.set(flat);
        }
    }

    /// What the copies take that readers have had made.
    pub(super) fn flat_bytes(&self) -> u64 {
        self.flat_bytes.get()
    }

    /// Adds or ends an edge; `false` when it is as the change says. `by_id` orders other ends.
    pub(super) fn apply(
        &mut self,
        near: u32,
        change: RowChange,
        by_id: impl Fn(u32, u32) -> Ordering,
    ) -> bool {
        self.change_row(near, change.revision, |row| row.apply(change, by_id))
    }

    /// Applies the changes of one row, in the order (kind, id) of their edges and for each edge in that of revisions.
    /// Returns how many changed something.
    pub(super) fn apply_sorted(
        &mut self,
        near: u32,
        changes: &[RowChange],
        by_id: impl Fn(u32, u32) -> Ordering,
    ) -> u64 {
        let newest = changes.iter().map(|change| change.revision).max();
        self.change_row(near, newest.unwrap_or(0), |row| {
            match changes.len() < MERGE_MIN {
                true => {
                    let each = changes.iter();
                    let changed = each.filter(|change| row.apply(**change, &by_id));
                    changed.count() as u64
                }
                false => row.merge(changes, by_id),
            }
        })
    }

    /// Changes a row of its own: what a reader may hold is copied.
    fn change_row<T>(
        &mut self,
        ordinal: u32,
        revision: u64,
        change: impl FnOnce(&mut DeltaRow) -> T,
    ) -> T {
        let (chunk, slot) = (ordinal as usize / CHUNK, ordinal as usize % CHUNK);
        if self.chunks.len() <= chunk {
            self.chunks.resize(chunk + 1, None);
        }
        let chunk = &mut self.chunks[chunk];
        let mut before = chunk.as_ref().map_or(0, |chunk| chunk.memory_bytes());
        let chunk = Arc::make_mut(chunk.get_or_insert_with(|| {
            Arc::new(Chunk {
                changed: [0; CHUNK / 64],
                ranks: [0; CHUNK / 64],
                rows: Vec::new(),
                newest: 0,
                flat: FlatSlot::default(),
            })
        }));
        chunk.newest = chunk.newest.max(revision);
        // One that no reader has is changed where it is.
        chunk.flat = FlatSlot::default();
        let rank = chunk.rank(slot);
        if chunk.insert(slot) {
            chunk.rows.insert(rank, Arc::default());
        } else {
            // Before it is copied: a copy has no room to grow.
            before += chunk.rows[rank].memory_bytes();
        }
        let row = Arc::make_mut(&mut chunk.rows[rank]);
        let result = change(row);
        let after = row.memory_bytes() + chunk.memory_bytes();
        self.bytes = self.bytes + after - before;
        result
    }

    /// Without the copies that readers have had made.
    pub(super) fn memory_bytes(&self) -> u64 {
        (self.bytes + self.chunks.capacity() * 8) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(far: u32) -> RowChange {
        let (at, is_base, kind) = (0, false, KindId(1));
        RowChange {
            spot: Spot {
                at,
                is_base,
                kind,
                far,
            },
            revision: 1,
            is_put: true,
        }
    }

    fn counted_bytes(delta: &Delta) -> u64 {
        let chunks = delta.chunks.iter().flatten();
        let bytes = chunks.map(|chunk| {
            let rows: usize = chunk.rows.iter().map(|row| row.memory_bytes()).sum();
            rows + chunk.memory_bytes()
        });
        (bytes.sum::<usize>() + delta.chunks.capacity() * 8) as u64
    }

    /// An edge that came was looked for among all that had come to the same place of the row, which are all of a block
    /// that the base does not know: many at one block cost the square of their number.
    #[test]
    fn an_edge_is_found_among_many_by_few_comparisons() {
        const PUTS: usize = 20_000;
        let mut row = DeltaRow::default();
        COST.take();
        for far in 0..PUTS as u32 {
            assert!(row.apply(put(far), |a, b| a.cmp(&b)));
        }
        let [compared, moved] = COST.take();
        assert!(compared < 20 * PUTS, "{compared} comparisons");
        assert_eq!(moved, 0, "those that ascend");
        assert!(!row.apply(put(7), |a, b| a.cmp(&b)), "it is there");
    }

    /// What the rows take is kept up to date by each change: also where a reader has the rows of before, so that they
    /// are copied, and where a change changes nothing.
    #[test]
    fn the_bytes_of_rows_are_counted_as_they_change() {
        for seed in crate::seeds(0..40) {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut delta = Delta::default();
            let mut held = Vec::new();
            for revision in 1..60 {
                let mut any = || RowChange {
                    revision,
                    is_put: random.u8(..3) > 0,
                    ..put(random.u32(..30))
                };
                let mut changes = [(); 12].map(|()| any());
                let near = random.u32(..4) * 700;
                if random.bool() {
                    changes.sort_by_key(|change| change.spot.far);
                    delta.apply_sorted(near, &changes, |a, b| a.cmp(&b));
                } else {
                    delta.apply(near, changes[0], |a, b| a.cmp(&b));
                }
                if random.bool() {
                    held.push(delta.clone());
                }
                assert_eq!(delta.memory_bytes(), counted_bytes(&delta), "seed {seed}");
            }
            for delta in &held {
                assert_eq!(delta.memory_bytes(), counted_bytes(delta), "seed {seed}");
            }
        }
    }
}
