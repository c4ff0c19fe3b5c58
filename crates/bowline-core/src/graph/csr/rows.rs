//! [`Rows`]: the edges of a base in one direction, in compressed sparse rows.
//!
//! ```text
//! starts  [ 0      2  2    3 ]     row of ordinal 0 is far[0..2]
//! far     [ 1  2   |  |  2   ]     the other end
//! kinds   [ 1  1   |  |  3   ]     the kind of the edge: a byte, or four where a number needs them
//! ```
//!
//! Each row is in the order (kind, id of the other end), which is (kind, ordinal), as ordinals are ranks.

use std::ops::Range;

use bowline_storage::prefetch::prefetch_from;

use super::super::kind_id::KindId;
use super::super::source::KindFilter;

/// So many edges at most: the place behind the last one is a number of 32 bits, too.
pub(super) const EDGES_MAX: usize = if cfg!(test) {
    1 << 16
} else {
    u32::MAX as usize
};

/// The kinds of the edges, by place.
#[derive(Debug)]
pub(super) enum Kinds {
    Narrow(Vec<u8>),
    Wide(Vec<u32>),
}

/// Adjacency in one direction.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) starts: Vec<u32>,
    pub(super) far: Vec<u32>,
    pub(super) kinds: Kinds,
}

impl Rows {
    /// How many edges there are.
    pub(super) fn edge_count(&self) -> usize {
        self.far.len()
    }

    /// The places of a row; empty for an ordinal that the base does not know.
    #[inline]
    pub(super) fn row(&self, ordinal: u32) -> Range<usize> {
        match self.starts.get(ordinal as usize + 1) {
            Some(&end) => self.starts[ordinal as usize] as usize..end as usize,
            None => 0..0,
        }
    }

    /// Whether a row that the base knows has no edges.
    #[inline(always)]
    pub(super) fn is_empty_row(&self, ordinal: u32) -> bool {
        let start = ordinal as usize;
        matches!(self.starts.get(start..start + 2), Some(&[start, end]) if start == end)
    }

    /// Asks for where a row begins, ahead of [`Rows::prefetch_row`].
    #[inline]
    pub(super) fn prefetch_start(&self, ordinal: u32) {
        if let Some(start) = self.starts.get(ordinal as usize) {
            prefetch_from(start, 1);
        }
    }

    /// Asks for the first other ends of a row.
    #[inline]
    pub(super) fn prefetch_row(&self, ordinal: u32) {
        if let Some(far) = self.far.get(self.row(ordinal).start) {
            prefetch_from(far, 1);
        }
    }

    /// Asks for the kinds from a place on.
    #[inline]
    pub(super) fn prefetch_kinds(&self, place: usize) {
        match &self.kinds {
            Kinds::Narrow(kinds) => kinds
                .get(place)
                .inspect(|kind| prefetch_from(*kind, 1))
                .is_some(),
            Kinds::Wide(kinds) => kinds
                .get(place)
                .inspect(|kind| prefetch_from(*kind, 1))
                .is_some(),
        };
    }

    /// The other ends at these places.
    #[inline]
    pub(super) fn far(&self, places: Range<usize>) -> &[u32] {
        &self.far[places]
    }

    /// The kind of the edge at a place.
    #[inline]
    pub(super) fn kind(&self, place: usize) -> KindId {
        match &self.kinds {
            Kinds::Narrow(kinds) => KindId(u32::from(kinds[place])),
            Kinds::Wide(kinds) => KindId(kinds[place]),
        }
    }

    /// The largest kind of an edge; [`u32::MAX`] if one is 0, which no name has.
    pub(super) fn kind_max(&self) -> KindId {
        let largest = match &self.kinds {
            Kinds::Narrow(kinds) => match kinds.contains(&0) {
                true => u32::MAX,
                false => u32::from(kinds.iter().copied().max().unwrap_or(0)),
            },
            Kinds::Wide(kinds) => match kinds.contains(&0) {
                true => u32::MAX,
                false => kinds.iter().copied().max().unwrap_or(0),
            },
        };
        KindId(largest)
    }

    /// Visits what belongs to the places from `first` on, with the kinds of the edges there.
    #[inline]
    pub(super) fn for_each<N>(&self, first: usize, nodes: &[N], mut visit: impl FnMut(&N, KindId)) {
        match &self.kinds {
            Kinds::Narrow(kinds) => {
                for (node, &kind) in nodes.iter().zip(&kinds[first..]) {
                    visit(node, KindId(u32::from(kind)));
                }
            }
            Kinds::Wide(kinds) => {
                for (node, &kind) in nodes.iter().zip(&kinds[first..]) {
                    visit(node, KindId(kind));
                }
            }
        }
    }

    /// The parts of a row whose kinds pass, in order.
    pub(super) fn passing<'a>(
        &'a self,
        row: Range<usize>,
        kinds: &'a [KindId],
    ) -> impl Iterator<Item = Range<usize>> + 'a {
        let mut from = row.start;
        kinds.iter().map(move |&kind| {
            let start = self.first(from..row.end, |at| at >= kind);
            let end = self.first(start..row.end, |at| at > kind);
            from = end;
            start..end
        })
    }

    /// The first of ascending places whose kind is at or past what is asked for.
    fn first(&self, mut places: Range<usize>, is_past: impl Fn(KindId) -> bool) -> usize {
        // Most rows are short, and most have few kinds: look at both ends before the middle.
        while !places.is_empty() {
            if is_past(self.kind(places.start)) {
                return places.start;
            }
            if !is_past(self.kind(places.end - 1)) {
                return places.end;
            }
            let middle = places.start + places.len() / 2;
            match is_past(self.kind(middle)) {
                true => places = places.start + 1..middle + 1,
                false => places.start = middle + 1,
            }
        }
        places.end
    }

    /// The place of the first edge of a row that is not before (kind, ordinal).
    pub(super) fn lower_bound(&self, row: Range<usize>, kind: KindId, far: u32) -> usize {
        let mut places = row;
        while !places.is_empty() {
            let middle = places.start + places.len() / 2;
            match (self.kind(middle), self.far[middle]) < (kind, far) {
                true => places.start = middle + 1,
                false => places.end = middle,
            }
        }
        places.start
    }

    /// The same edges from their other ends, for `rows` ordinals. O(rows + edges), and a sort of each row that
    /// has several kinds.
    pub(super) fn transposed(&self, rows: usize) -> Rows {
        let mut starts = vec![0u32; rows + 1];
        for &far in &self.far {
            starts[far as usize + 1] += 1;
        }
        for row in 1..starts.len() {
            starts[row] += starts[row - 1];
        }
        let mut next = starts.clone();
        let mut edges: Vec<(u32, u32)> = vec![(0, 0); self.far.len()];
        for near in 0..self.starts.len().saturating_sub(1) as u32 {
            for place in self.row(near) {
                let slot = &mut next[self.far[place] as usize];
                edges[*slot as usize] = (self.kind(place).0, near);
                *slot += 1;
            }
        }
        for row in starts.windows(2) {
            edges[row[0] as usize..row[1] as usize].sort_unstable();
        }
        let far = edges.iter().map(|edge| edge.1).collect();
        let kinds = match &self.kinds {
            Kinds::Narrow(_) => Kinds::Narrow(edges.iter().map(|edge| edge.0 as u8).collect()),
            Kinds::Wide(_) => Kinds::Wide(edges.iter().map(|edge| edge.0).collect()),
        };
        Rows { starts, far, kinds }
    }

    /// Whether these are the rows of a graph of so many blocks, which bytes from disk need not be.
    pub(super) fn is_valid(&self, blocks: usize) -> bool {
        let kinds = match &self.kinds {
            Kinds::Narrow(kinds) => kinds.len(),
            Kinds::Wide(kinds) => kinds.len(),
        };
        let edges = self.far.len();
        let are_ends = self.starts.len() == blocks + 1
            && self.starts.first() == Some(&0)
            && self.starts.last().map(|&last| last as usize) == Some(edges)
            && kinds == edges;
        are_ends
            && self.starts.is_sorted()
            && self.far.iter().all(|&far| (far as usize) < blocks)
            && self.starts.windows(2).all(|row| {
                let edge = |place: usize| (self.kind(place), self.far[place]);
                let later = row[0] as usize + 1..row[1] as usize;
                later.into_iter().all(|place| edge(place - 1) < edge(place))
            })
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let kinds = match &self.kinds {
            Kinds::Narrow(kinds) => kinds.capacity(),
            Kinds::Wide(kinds) => kinds.capacity() * size_of::<u32>(),
        };
        ((self.starts.capacity() + self.far.capacity()) * size_of::<u32>() + kinds) as u64
    }
}

/// Appends edges in the order (near, kind, far).
#[derive(Debug)]
pub(super) struct RowsBuilder {
    rows: usize,
    built: Rows,
}

impl RowsBuilder {
    /// For so many rows.
    pub(super) fn new(rows: usize) -> RowsBuilder {
        let mut starts = Vec::with_capacity(rows + 1);
        starts.push(0);
        RowsBuilder {
            rows,
            built: Rows {
                starts,
                far: Vec::new(),
                kinds: Kinds::Narrow(Vec::new()),
            },
        }
    }

    /// Adds an edge; `false` when there are as many as places can number.
    #[must_use]
    pub(super) fn push(&mut self, near: u32, kind: KindId, far: u32) -> bool {
        let built = &mut self.built;
        let place = built.far.len();
        if place >= EDGES_MAX {
            return false;
        }
        // Closes the rows before this one; those between are empty.
        built.starts.resize(near as usize + 1, place as u32);
        built.far.push(far);
        match (&mut built.kinds, u8::try_from(kind.0)) {
            (Kinds::Narrow(kinds), Ok(kind)) => kinds.push(kind),
            (Kinds::Wide(kinds), _) => kinds.push(kind.0),
            (Kinds::Narrow(kinds), Err(_)) => {
                let mut wide: Vec<u32> = kinds.iter().map(|&kind| u32::from(kind)).collect();
                wide.push(kind.0);
                built.kinds = Kinds::Wide(wide);
            }
        }
        true
    }

    /// Adds edges of another row; `false` when there are as many as places can number.
    #[must_use]
    pub(super) fn copy(&mut self, near: u32, other: &Rows, places: Range<usize>) -> bool {
        places
            .into_iter()
            .all(|place| self.push(near, other.kind(place), other.far[place]))
    }

    /// What the rows of so many edges take in memory, once they are closed.
    pub(super) fn finished_bytes(&self) -> u64 {
        let kind_bytes = match self.built.kinds {
            Kinds::Narrow(_) => 1,
            Kinds::Wide(_) => 4,
        };
        (self.rows as u64 + 1) * 4 + self.built.far.len() as u64 * (4 + kind_bytes)
    }

    /// Closes the rows.
    pub(super) fn finish(mut self) -> Rows {
        let count = self.built.far.len() as u32;
        self.built.starts.resize(self.rows + 1, count);
        self.built.far.shrink_to_fit();
        match &mut self.built.kinds {
            Kinds::Narrow(kinds) => kinds.shrink_to_fit(),
            Kinds::Wide(kinds) => kinds.shrink_to_fit(),
        }
        self.built
    }
}

/// The kinds of a filter, if it names some.
pub(super) fn named(filter: &KindFilter) -> Option<&[KindId]> {
    match filter {
        KindFilter::All => None,
        KindFilter::Only(kinds) => Some(kinds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: usize, edges: &[(u32, u32, u32)]) -> Rows {
        let mut builder = RowsBuilder::new(count);
        for &(near, kind, far) in edges {
            assert!(builder.push(near, KindId(kind), far));
        }
        builder.finish()
    }

    fn list(rows: &Rows, count: u32) -> Vec<(u32, u32, u32)> {
        (0..count)
            .flat_map(|near| rows.row(near).map(move |place| (near, place)))
            .map(|(near, place)| (near, rows.kind(place).0, rows.far(place..place + 1)[0]))
            .collect()
    }

    #[test]
    fn rows_and_their_transposition_hold_every_edge_in_order() {
        for widest in [4, 300] {
            for seed in crate::seeds(0..300) {
                let mut random = fastrand::Rng::with_seed(seed);
                let count = random.u32(1..12);
                let edge = |random: &mut fastrand::Rng| {
                    (
                        random.u32(..count),
                        random.u32(1..widest),
                        random.u32(..count),
                    )
                };
                let mut edges: Vec<_> = (0..random.u32(..40)).map(|_| edge(&mut random)).collect();
                edges.sort_unstable();
                edges.dedup();
                let out = rows(count as usize, &edges);
                assert_eq!(list(&out, count), edges);
                assert_eq!(out.row(count), 0..0, "an ordinal that is not known");

                let mut turned: Vec<_> = edges.iter().map(|&(a, kind, b)| (b, kind, a)).collect();
                turned.sort_unstable();
                assert_eq!(list(&out.transposed(count as usize), count), turned);

                for near in 0..count {
                    let kinds = [KindId(1), KindId(3), KindId(200)];
                    let found: Vec<_> = out.passing(out.row(near), &kinds).flatten().collect();
                    let wanted: Vec<_> = out
                        .row(near)
                        .filter(|&place| kinds.contains(&out.kind(place)))
                        .collect();
                    assert_eq!(found, wanted, "seed {seed}");
                    for kind in 0..5 {
                        let place = out.lower_bound(out.row(near), KindId(kind), 3);
                        let wanted = out
                            .row(near)
                            .find(|&place| (out.kind(place), out.far[place]) >= (KindId(kind), 3));
                        assert_eq!(place, wanted.unwrap_or(out.row(near).end));
                    }
                }
            }
        }
    }

    #[test]
    fn an_edge_takes_five_bytes_where_kinds_are_few() {
        let edges: Vec<_> = (0..1000).map(|n| (n, 1 + n % 200, 999 - n)).collect();
        let mut edges = edges;
        edges.sort_unstable();
        assert_eq!(rows(1000, &edges).memory_bytes(), 1000 * 5 + 1001 * 4);
    }
}
