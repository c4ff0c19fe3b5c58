//! The results of algorithms with a value for each block: ids and values in two arrays, in the order of ids.

use std::iter::Zip;
use std::vec;

use bowline_core::graph::BlockId;

/// A value for each block, or for each block that was reached, in the order of ids.
///
/// ```
/// use bowline::{Block, BlockId, Db, Edge};
///
/// # let db = Db::in_memory()?;
/// db.transact(|tx| {
///     (1..=4).try_for_each(|id| tx.put_block(&Block::new(BlockId(id), "page")))?;
///     (2..=4).try_for_each(|id| tx.put_edge(&Edge::new(BlockId(id), "links_to", BlockId(1))))
/// })?;
/// let ranks = db.snapshot().graph().page_rank().run()?;
/// assert_eq!((ranks.len(), ranks.is_empty(), ranks.iter().count()), (4, false, 4));
/// assert!(ranks.get(BlockId(1)) > ranks.get(BlockId(2)));
/// assert_eq!(ranks.largest(1)[0].0, BlockId(1));
/// for (id, rank) in ranks {
///     println!("{id} {rank:.4}");
/// }
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct BlockValues<T> {
    ids: Vec<BlockId>,
    /// Parallel to `ids`.
    values: Vec<T>,
}

impl<T: Copy> BlockValues<T> {
    /// `ids` ascend.
    pub(super) fn new(ids: Vec<BlockId>, values: Vec<T>) -> BlockValues<T> {
        debug_assert!(ids.len() == values.len() && ids.is_sorted());
        BlockValues { ids, values }
    }

    /// Without the blocks whose value does not pass.
    pub(super) fn retain(mut self, passes: impl Fn(T) -> bool) -> BlockValues<T> {
        let mut values = self.values.iter();
        self.ids
            .retain(|_| values.next().is_some_and(|value| passes(*value)));
        self.values.retain(|value| passes(*value));
        self
    }

    /// The number of blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are no blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The value of a block, by binary search.
    #[must_use]
    pub fn get(&self, id: BlockId) -> Option<T> {
        let at = self.ids.binary_search(&id).ok()?;
        Some(self.values[at])
    }

    /// The blocks with their values, in the order of ids.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (BlockId, T)> + '_ {
        self.ids.iter().copied().zip(self.values.iter().copied())
    }

    /// The blocks with the `count` largest values, the largest first; of equal ones those with smaller ids.
    #[must_use]
    pub fn largest(&self, count: usize) -> Vec<(BlockId, T)>
    where
        T: PartialOrd,
    {
        // No algorithm gives a number that does not compare.
        let order = |a: &usize, b: &usize| {
            let values = self.values[*b].partial_cmp(&self.values[*a]);
            values.unwrap_or(std::cmp::Ordering::Equal).then(a.cmp(b))
        };
        let mut places: Vec<usize> = (0..self.len()).collect();
        if count < places.len() {
            places.select_nth_unstable_by(count, order);
            places.truncate(count);
        }
        places.sort_unstable_by(order);
        let pair = |at: usize| (self.ids[at], self.values[at]);
        places.into_iter().map(pair).collect()
    }
}

impl<T> IntoIterator for BlockValues<T> {
    type Item = (BlockId, T);
    type IntoIter = Zip<vec::IntoIter<BlockId>, vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.ids.into_iter().zip(self.values)
    }
}

/// A label for each block, in the order of ids. Blocks with the same label belong together; a label is the id of a block.
///
/// ```
/// use bowline::{Block, BlockId, Db, Edge};
///
/// # let db = Db::in_memory()?;
/// db.transact(|tx| {
///     (1..=4).try_for_each(|id| tx.put_block(&Block::new(BlockId(id), "host")))?;
///     tx.put_edge(&Edge::new(BlockId(1), "link", BlockId(4)))
/// })?;
/// let labels = db.snapshot().graph().weak_component_labels(["link"])?;
/// assert_eq!(labels.get(BlockId(4)), Some(BlockId(1)));
/// assert_eq!((labels.len(), labels.is_empty()), (4, false));
/// assert_eq!(labels.iter().next(), Some((BlockId(1), BlockId(1))));
/// assert_eq!(labels.groups(), [vec![BlockId(1), BlockId(4)], vec![BlockId(2)], vec![BlockId(3)]]);
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockLabels {
    ids: Vec<BlockId>,
    /// Parallel to `ids`: where in `ids` the label stands.
    labels: Vec<u32>,
}

impl BlockLabels {
    /// `ids` ascend, and each label is a place among them.
    pub(super) fn new(ids: Vec<BlockId>, labels: Vec<u32>) -> BlockLabels {
        debug_assert_eq!(ids.len(), labels.len());
        BlockLabels { ids, labels }
    }

    /// The number of blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are no blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The label of a block, by binary search.
    #[must_use]
    pub fn get(&self, id: BlockId) -> Option<BlockId> {
        let at = self.ids.binary_search(&id).ok()?;
        Some(self.ids[self.labels[at] as usize])
    }

    /// The blocks with their labels, in the order of ids.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (BlockId, BlockId)> + '_ {
        let labels = self.labels.iter().map(|label| self.ids[*label as usize]);
        self.ids.iter().copied().zip(labels)
    }

    /// The blocks of each label: each group in the order of ids, the groups in the order of their first blocks.
    #[must_use]
    pub fn groups(&self) -> Vec<Vec<BlockId>> {
        let mut group_of = vec![usize::MAX; self.labels.len()];
        let mut groups: Vec<Vec<BlockId>> = Vec::new();
        for (id, label) in self.ids.iter().zip(&self.labels) {
            let group = &mut group_of[*label as usize];
            if *group == usize::MAX {
                *group = groups.len();
                groups.push(Vec::new());
            }
            groups[*group].push(*id);
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_come_first_and_equal_ones_by_id() {
        let ids: Vec<BlockId> = (10..16).map(BlockId).collect();
        let values = BlockValues::new(ids, vec![2.0, 7.0, 0.0, 7.0, 3.0, 2.0]);
        let largest = |count| -> Vec<u128> {
            let found = values.largest(count);
            found.into_iter().map(|(id, _)| id.0).collect()
        };
        assert_eq!(largest(0), []);
        assert_eq!(largest(1), [11]);
        assert_eq!(largest(4), [11, 13, 14, 10]);
        assert_eq!(largest(99), [11, 13, 14, 10, 15, 12]);
        assert_eq!(values.get(BlockId(14)), Some(3.0));
        assert_eq!(values.get(BlockId(9)), None);
        let kept = values.clone().retain(|value| value > 2.0);
        let kept: Vec<_> = kept.into_iter().collect();
        assert_eq!(
            kept,
            [(BlockId(11), 7.0), (BlockId(13), 7.0), (BlockId(14), 3.0)]
        );
    }
}
