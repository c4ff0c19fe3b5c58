//! Sorts entries of an arena by their keys.
//!
//! It looks at eight bytes of each key at a time, behind what all of them have in common, so that
//! keys with a long common beginning do not cost a look at both keys for every comparison. Entries
//! of one key stay in the order in which they were written.

use super::arena::Arena;
use super::record::{Node, NodeAt, prefix_of};

/// Groups of keys up to this size are compared as they are.
const COMPARED_MAX: usize = 24;
/// How often a group of keys is cut by eight more bytes before its keys are compared as they are.
const CUTS_MAX: usize = 16;

/// What can be sorted: an entry, by its node, with room for a part of its key.
pub(super) trait Sorted: Copy {
    fn node(self) -> NodeAt;

    /// Eight bytes of the key, while it is sorted.
    fn part(self) -> u64;

    fn set_part(&mut self, part: u64);
}

/// Sorts entries by key, those of one key by their places, which is the order of their insertion.
pub(super) fn sort(arena: &Arena, nodes: &mut [impl Sorted]) {
    // Groups that are still to be sorted: where, from which byte on, and after how many cuts.
    let mut groups = vec![(0..nodes.len(), 0, 0)];
    while let Some((range, from, cuts)) = groups.pop() {
        let (start, group) = (range.start, &mut nodes[range]);
        if group.len() <= COMPARED_MAX || cuts >= CUTS_MAX {
            compare(arena, group);
            continue;
        }
        let from = from + common(arena, group, from);
        for loose in &mut *group {
            loose.set_part(prefix_of(&key(arena, *loose)[from..]));
        }
        group.sort_unstable_by_key(|loose| loose.part());
        let mut at = 0;
        while at < group.len() {
            let part = group[at].part();
            let same = group[at..].iter().take_while(|it| it.part() == part);
            let count = same.count();
            if count > 1 {
                // A key that ends within its eight bytes has zeros for the rest: it is a beginning
                // of every longer one here.
                let alike = &mut group[at..at + count];
                let end = from + size_of::<u64>();
                alike.sort_unstable_by_key(|it| (key(arena, *it).len().min(end + 1), it.node()));
                let ended = alike.partition_point(|it| key(arena, *it).len() <= end);
                let longer = &mut alike[ended..];
                if longer.len() <= COMPARED_MAX {
                    compare(arena, longer);
                } else {
                    groups.push((start + at + ended..start + at + count, end, cuts + 1));
                }
            }
            at += count;
        }
    }
}

/// Sorts by whole keys.
fn compare(arena: &Arena, group: &mut [impl Sorted]) {
    group.sort_unstable_by(|a, b| {
        let by_key = key(arena, *a).cmp(key(arena, *b));
        by_key.then_with(|| a.node().cmp(&b.node()))
    });
}

/// How many bytes from `from` on all keys of the group have in common.
fn common(arena: &Arena, group: &[impl Sorted], from: usize) -> usize {
    let Some((first, others)) = group.split_first() else {
        return 0;
    };
    let first = &key(arena, *first)[from..];
    let mut common = first.len();
    for other in others {
        let other = &key(arena, *other)[from..];
        let pairs = first[..common].iter().zip(other);
        common = pairs.take_while(|(a, b)| a == b).count();
        if common == 0 {
            break;
        }
    }
    common
}

pub(super) fn key(arena: &Arena, entry: impl Sorted) -> &[u8] {
    Node::new(arena, entry.node()).key()
}
