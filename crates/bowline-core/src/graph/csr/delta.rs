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

use std::sync::Arc;

use super::super::kind_id::KindId;

/// Ordinals in a chunk.
const CHUNK: usize = 1024;
/// The end of an edge that is there.
const NEVER: u64 = u64::MAX;

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

/// Where an edge belongs in a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    /// The place in the base's row, from its start.
    pub(super) at: u32,
    /// Whether the base has the edge there.
    pub(super) is_base: bool,
    pub(super) kind: KindId,
    pub(super) far: u32,
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

    /// Adds an edge from `revision` on; `false` when it is there. `is_before` orders other ends by id.
    fn put(&mut self, spot: Spot, revision: u64, is_before: impl Fn(u32, u32) -> bool) -> bool {
        if spot.is_base && self.has_base(spot.at, NEVER - 1) || self.live(spot).is_some() {
            return false;
        }
        let added = Added {
            at: spot.at,
            far: spot.far,
            kind: spot.kind,
            begin: revision,
            end: NEVER,
        };
        let place = self.added.partition_point(|other| {
            let (left, right) = ((other.at, other.kind), (added.at, added.kind));
            left < right || left == right && !is_before(added.far, other.far)
        });
        self.added.insert(place, added);
        true
    }

    /// Ends an edge at `revision`; `false` when it is not there.
    fn delete(&mut self, spot: Spot, revision: u64) -> bool {
        if spot.is_base
            && let Err(place) = self.removed.binary_search_by_key(&spot.at, |it| it.at)
        {
            let (at, end) = (spot.at, revision);
            self.removed.insert(place, Removed { at, end });
            return true;
        }
        let Some(place) = self.live(spot) else {
            return false;
        };
        self.added[place].end = revision;
        true
    }

    /// The added edge that is there.
    fn live(&self, spot: Spot) -> Option<usize> {
        let from = self.added.partition_point(|it| it.at < spot.at);
        let same = |it: &Added| (it.kind, it.far, it.end) == (spot.kind, spot.far, NEVER);
        let here = self.added[from..].iter().take_while(|it| it.at == spot.at);
        here.into_iter().position(same).map(|place| from + place)
    }

    fn memory_bytes(&self) -> usize {
        self.added.capacity() * size_of::<Added>() + self.removed.capacity() * size_of::<Removed>()
    }
}

/// The changed rows of 1,024 ordinals.
#[derive(Clone, Debug)]
struct Chunk {
    /// One bit for each ordinal.
    changed: [u64; CHUNK / 64],
    /// The rows of the set bits, in order.
    rows: Vec<Arc<DeltaRow>>,
}

impl Chunk {
    #[inline]
    fn has(&self, slot: usize) -> bool {
        self.changed[slot / 64] >> (slot % 64) & 1 == 1
    }

    /// How many changed rows are before a slot.
    fn rank(&self, slot: usize) -> usize {
        let whole = &self.changed[..slot / 64];
        let before: u32 = whole.iter().map(|word| word.count_ones()).sum();
        let part = self.changed[slot / 64] & ((1 << (slot % 64)) - 1);
        (before + part.count_ones()) as usize
    }
}

/// The changed rows of one direction.
#[derive(Clone, Debug, Default)]
pub(super) struct Delta {
    chunks: Vec<Option<Arc<Chunk>>>,
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

    /// Adds an edge from `revision` on; `false` when it is there.
    pub(super) fn put(
        &mut self,
        near: u32,
        spot: Spot,
        revision: u64,
        is_before: impl Fn(u32, u32) -> bool,
    ) -> bool {
        self.row_mut(near).put(spot, revision, is_before)
    }

    /// Ends an edge at `revision`; `false` when it is not there.
    pub(super) fn delete(&mut self, near: u32, spot: Spot, revision: u64) -> bool {
        self.row_mut(near).delete(spot, revision)
    }

    fn row_mut(&mut self, ordinal: u32) -> &mut DeltaRow {
        let (chunk, slot) = (ordinal as usize / CHUNK, ordinal as usize % CHUNK);
        if self.chunks.len() <= chunk {
            self.chunks.resize(chunk + 1, None);
        }
        let chunk = Arc::make_mut(self.chunks[chunk].get_or_insert_with(|| {
            Arc::new(Chunk {
                changed: [0; CHUNK / 64],
                rows: Vec::new(),
            })
        }));
        let rank = chunk.rank(slot);
        if !chunk.has(slot) {
            chunk.changed[slot / 64] |= 1 << (slot % 64);
            chunk.rows.insert(rank, Arc::default());
        }
        Arc::make_mut(&mut chunk.rows[rank])
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let chunks = self.chunks.iter().flatten();
        let rows = |chunk: &Arc<Chunk>| {
            let each = |row: &Arc<DeltaRow>| size_of::<DeltaRow>() + 16 + row.memory_bytes();
            let rows: usize = chunk.rows.iter().map(each).sum();
            size_of::<Chunk>() + chunk.rows.capacity() * 8 + rows
        };
        (chunks.map(rows).sum::<usize>() + self.chunks.capacity() * 8) as u64
    }
}
