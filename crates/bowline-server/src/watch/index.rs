//! An index from keys to watches.
//!
//! Watches of one key, and of all keys with a prefix, are found by hashing the key itself, and its prefixes
//! of every length that some watch has. Other ranges are searched one by one; equal ranges count once.
//! Kubernetes and etcdctl watch keys and prefixes.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// The keys of a watch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Span {
    /// One key.
    Key(Vec<u8>),
    /// Every key with this prefix.
    Prefix(Vec<u8>),
    /// From the first key to before the second, or to the end.
    Range(Vec<u8>, Option<Vec<u8>>),
}

impl Span {
    /// The span of `key` and `range_end`, as in etcd; `None` when it is empty.
    pub(super) fn new(key: &[u8], range_end: &[u8]) -> Option<Span> {
        // Keys are not empty, so the first possible key is one zero byte.
        let key = if key.is_empty() { &[0][..] } else { key };
        match range_end {
            [] => Some(Span::Key(key.to_vec())),
            [0] if key == [0] => Some(Span::Prefix(Vec::new())),
            [0] => Some(Span::Range(key.to_vec(), None)),
            end if end <= key => None,
            end if is_prefix_end(key, end) => Some(Span::Prefix(key.to_vec())),
            end => Some(Span::Range(key.to_vec(), Some(end.to_vec()))),
        }
    }

    /// The same as a range of the database.
    pub(super) fn range(&self) -> bowline::Range {
        match self {
            Span::Key(key) => bowline::Range::key(key),
            Span::Prefix(prefix) => bowline::Range::prefix(prefix),
            Span::Range(start, Some(end)) => bowline::Range::from(start..end),
            Span::Range(start, None) => bowline::Range::from(start..),
        }
    }
}

/// Whether `end` is `prefix` with its last byte incremented.
fn is_prefix_end(prefix: &[u8], end: &[u8]) -> bool {
    match (prefix.split_last(), end.split_last()) {
        (Some((last, head)), Some((end_last, end_head))) => {
            head == end_head && last.checked_add(1) == Some(*end_last)
        }
        _ => false,
    }
}

/// The first key of a range, and its exclusive end.
type Bounds = (Vec<u8>, Option<Vec<u8>>);

/// A watch of the index. Those of equal keys are ordered by stream, so that a stream's stand together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Member {
    /// The number of its stream.
    pub(super) stream: u64,
    /// Its slot.
    pub(super) place: u32,
}

/// The index.
#[derive(Debug, Default)]
pub(super) struct Index {
    keys: HashMap<Vec<u8>, Vec<Member>>,
    prefixes: HashMap<Vec<u8>, Vec<Member>>,
    /// The number of prefixes of each length.
    lengths: BTreeMap<usize, usize>,
    ranges: HashMap<Bounds, Vec<Member>>,
}

impl Index {
    pub(super) fn insert(&mut self, span: &Span, watch: Member) {
        match span {
            Span::Key(key) => add(self.keys.entry(key.clone()).or_default(), watch),
            Span::Prefix(prefix) => {
                let watches = self.prefixes.entry(prefix.clone()).or_default();
                if watches.is_empty() {
                    *self.lengths.entry(prefix.len()).or_default() += 1;
                }
                add(watches, watch);
            }
            Span::Range(start, end) => {
                let range = (start.clone(), end.clone());
                add(self.ranges.entry(range).or_default(), watch);
            }
        }
    }

    pub(super) fn remove(&mut self, span: &Span, watch: Member) {
        match span {
            Span::Key(key) => {
                take(&mut self.keys, key, watch);
            }
            Span::Prefix(prefix) => {
                if take(&mut self.prefixes, prefix, watch)
                    && let Some(count) = self.lengths.get_mut(&prefix.len())
                {
                    *count -= 1;
                    if *count == 0 {
                        self.lengths.remove(&prefix.len());
                    }
                }
            }
            Span::Range(start, end) => {
                take(&mut self.ranges, &(start.clone(), end.clone()), watch);
            }
        }
    }

    /// Calls `visit` with every watch of `key`, each once.
    pub(super) fn for_each(&self, key: &[u8], mut visit: impl FnMut(Member)) {
        let mut all = |watches: &[Member]| watches.iter().for_each(|watch| visit(*watch));
        if let Some(watches) = self.keys.get(key) {
            all(watches);
        }
        for length in self.lengths.keys() {
            let Some(prefix) = key.get(..*length) else {
                break;
            };
            if let Some(watches) = self.prefixes.get(prefix) {
                all(watches);
            }
        }
        for ((start, end), watches) in &self.ranges {
            if key >= &start[..] && end.as_ref().is_none_or(|end| key < &end[..]) {
                all(watches);
            }
        }
    }
}

/// Adds a watch to a group.
fn add(watches: &mut Vec<Member>, watch: Member) {
    let at = watches.partition_point(|other| *other < watch);
    watches.insert(at, watch);
}

/// Removes a watch from a group; returns whether the group is now empty.
fn take<K: Eq + Hash>(groups: &mut HashMap<K, Vec<Member>>, group: &K, watch: Member) -> bool {
    let Some(watches) = groups.get_mut(group) else {
        return false;
    };
    if let Ok(at) = watches.binary_search(&watch) {
        watches.remove(at);
    }
    if watches.is_empty() {
        groups.remove(group);
        return true;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(index: &Index, key: &str) -> Vec<u32> {
        let mut found = Vec::new();
        index.for_each(key.as_bytes(), |watch| found.push(watch.place));
        found.sort_unstable();
        found
    }

    /// A watch of one of three streams.
    fn member(place: u32) -> Member {
        Member {
            stream: u64::from(place % 3),
            place,
        }
    }

    #[test]
    fn spans_are_those_of_etcd() {
        let span = |key: &str, end: &str| Span::new(key.as_bytes(), end.as_bytes());
        assert_eq!(span("a", ""), Some(Span::Key(b"a".to_vec())));
        assert_eq!(span("a", "b"), Some(Span::Prefix(b"a".to_vec())));
        assert_eq!(span("", "\0"), Some(Span::Prefix(Vec::new())));
        assert_eq!(span("\0", "\0"), Some(Span::Prefix(Vec::new())));
        assert_eq!(span("a", "\0"), Some(Span::Range(b"a".to_vec(), None)));
        assert_eq!(
            span("a", "c"),
            Some(Span::Range(b"a".to_vec(), Some(b"c".to_vec())))
        );
        assert_eq!(span("b", "a"), None);
        assert_eq!(span("a", "a"), None);
        let high = Span::new(&[1, 0xff], &[2]);
        assert_eq!(high, Some(Span::Range(vec![1, 0xff], Some(vec![2]))));
    }

    #[test]
    fn every_watch_of_a_key_is_found_once() {
        let spans = [
            ("a", ""),
            ("a", "b"),
            ("a/", "a0"),
            ("", "\0"),
            ("a", "\0"),
            ("a", "c"),
            ("a", "c"),
            ("b", "c"),
        ];
        let spans: Vec<Span> = spans
            .iter()
            .map(|(key, end)| Span::new(key.as_bytes(), end.as_bytes()).unwrap())
            .collect();
        let mut index = Index::default();
        for (watch, span) in spans.iter().enumerate() {
            index.insert(span, member(watch as u32));
        }
        assert_eq!(of(&index, "a"), [0, 1, 3, 4, 5, 6]);
        assert_eq!(of(&index, "a/x"), [1, 2, 3, 4, 5, 6]);
        assert_eq!(of(&index, "b"), [3, 4, 5, 6, 7]);
        assert_eq!(of(&index, "z"), [3, 4]);
        assert_eq!(of(&index, "A"), [3]);
        for (watch, span) in spans.iter().enumerate().filter(|(watch, _)| *watch != 5) {
            index.remove(span, member(watch as u32));
        }
        assert_eq!(of(&index, "a"), [5]);
        index.remove(&spans[5], member(5));
        assert!(of(&index, "a").is_empty() && index.lengths.is_empty() && index.ranges.is_empty());
    }

    #[test]
    fn the_index_and_the_database_agree_on_ranges() {
        let ends = ["", "\0", "a", "b", "ab", "c"];
        let keys = ["\0", "a", "aa", "ab", "abc", "b", "c", "\u{7f}"];
        for start in ["", "\0", "a", "aa", "b"] {
            for end in ends {
                let Some(span) = Span::new(start.as_bytes(), end.as_bytes()) else {
                    continue;
                };
                let mut index = Index::default();
                index.insert(&span, member(7));
                for key in keys {
                    let is_inside = span.range().contains(key.as_bytes());
                    assert_eq!(
                        of(&index, key),
                        vec![7; usize::from(is_inside)],
                        "{span:?} {key}"
                    );
                }
            }
        }
    }
}
