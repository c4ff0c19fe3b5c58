//! The spans of keys that a command has visited, so that none is visited twice.
//!
//! A command may name the same keys in any number of ranges: each range takes a few bytes, and a visit takes
//! time in proportion to the database. The state before the command does not change within it. So only those
//! parts of each range are visited that no earlier range had.
//!
//! ```text
//!  walked        [b---d)      [g---k)
//!  add [a, h)  ► [a-b)  [d----g)            the new parts
//!  walked      [a------------------k)
//! ```
//!
//! Invariants: the spans are disjoint and do not touch; all parts that [`Walked::add`] ever returned are
//! disjoint, and their union is what was added.

use std::collections::BTreeMap;

/// A span: its first key, and its exclusive end; `None` is the end of all keys.
pub(crate) type Part = (Vec<u8>, Option<Vec<u8>>);

/// The visited spans.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    spans: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Walked {
    /// Adds a span. Returns its new parts, in order.
    pub(crate) fn add(&mut self, from: &[u8], end: Option<&[u8]>) -> Vec<Part> {
        if end.is_some_and(|end| from >= end) {
            return Vec::new();
        }
        let reaches = |span_end: &Option<Vec<u8>>, key: &[u8]| {
            span_end
                .as_ref()
                .is_none_or(|span_end| &span_end[..] >= key)
        };
        let before = self.spans.range(..from.to_vec()).next_back();
        let first = before.filter(|(_, span_end)| reaches(span_end, from));
        let mut merged: Part = match first {
            Some((start, _)) => (start.clone(), Some(from.to_vec())),
            None => (from.to_vec(), Some(from.to_vec())),
        };
        // The end of the visited keys so far; `None` is the end of all keys.
        let mut parts = Vec::new();
        while let Some(at) = merged.1.clone() {
            let next = self.spans.range(merged.0.clone()..).next();
            let next = next.filter(|(start, _)| end.is_none_or(|end| &start[..] <= end));
            let Some((start, span_end)) = next else {
                if end.is_none_or(|end| &at[..] < end) {
                    parts.push((at, end.map(<[u8]>::to_vec)));
                    merged.1 = end.map(<[u8]>::to_vec);
                }
                break;
            };
            if *start > at {
                parts.push((at.clone(), Some(start.clone())));
            }
            let is_behind = span_end.as_ref().is_none_or(|span_end| *span_end > at);
            let (start, span_end) = (start.clone(), span_end.clone());
            self.spans.remove(&start);
            merged.1 = if is_behind { span_end } else { Some(at) };
        }
        self.spans.insert(merged.0, merged.1);
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared with a model of single keys.
    #[test]
    fn every_key_is_in_one_part() {
        let mut random = fastrand::Rng::with_seed(11);
        for round in 0..2_000 {
            let (mut walked, mut known) = (Walked::default(), [false; 64]);
            for _ in 0..random.usize(1..12) {
                let from = random.u8(0..64);
                let end = (random.u8(0..6) > 0).then(|| random.u8(0..64));
                let end_key = end.map(|end| vec![end]);
                let parts = walked.add(&[from], end_key.as_deref());
                for key in 0..64 {
                    let has = |(start, end): &&Part| {
                        start[..] <= [key][..] && end.as_ref().is_none_or(|end| end[..] > [key][..])
                    };
                    let found = parts.iter().filter(has).count();
                    let is_added = from <= key && end.is_none_or(|end| key < end);
                    let place = &mut known[usize::from(key)];
                    let expected = usize::from(is_added && !*place);
                    assert_eq!(found, expected, "round {round}, key {key}: {parts:?}");
                    *place |= is_added;
                }
            }
            let spans: Vec<_> = walked.spans.iter().collect();
            for pair in spans.windows(2) {
                assert!(
                    pair[0].1.as_ref().is_some_and(|end| end < pair[1].0),
                    "{spans:?}"
                );
            }
        }
    }
}
