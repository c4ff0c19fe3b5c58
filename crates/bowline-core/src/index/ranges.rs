//! [`Asked`]: what is looked for by an index, as ranges of its keys.

use std::ops::Bound;

use bowline_types::AttributeValue;

use super::definition::Definition;
use super::key::{self, Encoded};
use crate::trees;

/// Keys from the first, included, to the last, excluded.
pub type KeyRange = (Vec<u8>, Vec<u8>);

/// What the last attribute that is asked for must be.
#[derive(Debug, Clone, PartialEq)]
pub enum Last {
    /// Equal to one of these.
    OneOf(Vec<AttributeValue>),
    /// Between these.
    Between(Bound<AttributeValue>, Bound<AttributeValue>),
    /// A text that begins so.
    StartsWith(String),
}

/// What the attributes of an index must be: the first ones equal to values, the last one as it says.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    pub equal: Vec<AttributeValue>,
    pub last: Last,
}

impl Asked {
    /// The ranges of keys, ascending and disjoint, that hold all that is asked for, and perhaps more. `None` where the
    /// index cannot tell: for values that it does not have.
    #[must_use]
    pub fn ranges(&self, index: &Definition) -> Option<Vec<KeyRange>> {
        if self.equal.len() + 1 != index.attributes.len() {
            return None;
        }
        let mut prefix = index.prefix().to_vec();
        match index.put_values(&self.equal, &mut prefix) {
            Encoded::Whole | Encoded::Cut => {}
            Encoded::Nothing => return Some(Vec::new()),
            Encoded::NotIndexable => return None,
        }
        let ranges = match &self.last {
            Last::OneOf(values) => one_of(&prefix, values)?,
            Last::Between(lower, upper) => between(&prefix, lower, upper)?.into_iter().collect(),
            Last::StartsWith(text) => {
                let mut lower = prefix;
                key::put_text_prefix(text, &mut lower);
                let upper = trees::prefix_end(&lower)?;
                vec![(lower, upper)]
            }
        };
        Some(ranges)
    }
}

fn one_of(prefix: &[u8], values: &[AttributeValue]) -> Option<Vec<KeyRange>> {
    let mut ranges = Vec::with_capacity(values.len());
    for value in values {
        let mut lower = prefix.to_vec();
        match key::put_value(value, &mut lower) {
            Encoded::Whole | Encoded::Cut => {
                let upper = trees::prefix_end(&lower)?;
                ranges.push((lower, upper));
            }
            Encoded::Nothing => {}
            Encoded::NotIndexable => return None,
        }
    }
    ranges.sort_unstable();
    ranges.dedup();
    Some(ranges)
}

/// The range, if it is not empty.
fn between(
    prefix: &[u8],
    lower: &Bound<AttributeValue>,
    upper: &Bound<AttributeValue>,
) -> Option<Option<KeyRange>> {
    let (mut from, mut to): KeyRange = (Vec::new(), vec![u8::MAX]);
    for (bound, is_lower) in [(lower, true), (upper, false)] {
        let (value, is_included) = match bound {
            Bound::Unbounded => continue,
            Bound::Included(value) => (value, true),
            Bound::Excluded(value) => (value, false),
        };
        let mut own = Vec::new();
        let encoded = key::put_value(value, &mut own);
        let (mut is_included, mut at) = (is_included, &own[..]);
        match encoded {
            Encoded::Nothing => return Some(None),
            Encoded::NotIndexable => return None,
            Encoded::Whole => {}
            Encoded::Cut => {
                // Those with this prefix may be on either side.
                at = key::without_hash(&own);
                is_included = true;
            }
        }
        // A value compares only with those of its class.
        let (first, end) = key::class_of(&own);
        let behind = trees::prefix_end(at)?;
        let (own_from, own_to) = match (is_lower, is_included) {
            (true, true) => (at.to_vec(), end),
            (true, false) => (behind, end),
            (false, true) => (first, behind),
            (false, false) => (first, at.to_vec()),
        };
        from = from.max(own_from);
        to = to.min(own_to);
    }
    let whole = |end: &[u8]| [prefix, end].concat();
    Some((from < to).then(|| (whole(&from), whole(&to))))
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;
    use crate::graph::KindId;

    fn index(attributes: &[&str]) -> Definition {
        Definition {
            id: 1,
            kind: KindId(1),
            attributes: attributes.iter().map(|&name| name.to_owned()).collect(),
            is_unique: false,
            state: State::Dropped,
        }
    }

    fn holds(ranges: &[KeyRange], index: &Definition, values: &[AttributeValue]) -> bool {
        let mut key = index.prefix().to_vec();
        index.put_values(values, &mut key);
        key.extend([7; 16]);
        ranges.iter().any(|(from, to)| *from <= key && key < *to)
    }

    #[test]
    fn ranges_hold_what_is_between_their_bounds_and_of_their_class() {
        let one = index(&["a"]);
        let asked = |lower, upper| {
            let last = Last::Between(lower, upper);
            let asked = Asked {
                equal: Vec::new(),
                last,
            };
            asked.ranges(&one).expect("it tells")
        };
        let ranges = asked(Bound::Excluded(3.into()), Bound::Included(7.5.into()));
        for (value, is_in) in [(3, false), (4, true), (7, true), (8, false)] {
            assert_eq!(holds(&ranges, &one, &[value.into()]), is_in, "{value}");
        }
        assert!(holds(&ranges, &one, &[3.25.into()]) && holds(&ranges, &one, &[7.5.into()]));
        assert!(!holds(&ranges, &one, &["5".into()]));
        assert!(asked(Bound::Included(1.into()), Bound::Included("b".into())).is_empty());
        assert!(asked(Bound::Included(2.into()), Bound::Excluded(2.into())).is_empty());
        assert!(asked(Bound::Unbounded, Bound::Excluded(AttributeValue::Null)).is_empty());
        let above = asked(Bound::Excluded(true.into()), Bound::Unbounded);
        assert!(!holds(&above, &one, &[true.into()]) && !holds(&above, &one, &[0.into()]));
        let long = "x".repeat(key::PREFIX_BYTES + 1);
        let above = asked(Bound::Excluded(long.as_str().into()), Bound::Unbounded);
        assert!(holds(&above, &one, &[format!("{long}y").as_str().into()]));
    }

    #[test]
    fn several_attributes_are_asked_for_in_their_order() {
        let two = index(&["a", "b"]);
        let last = Last::OneOf(vec![1.into(), AttributeValue::Null, 1.0.into(), "z".into()]);
        let asked = Asked {
            equal: vec!["x".into()],
            last,
        };
        let ranges = asked.ranges(&two).expect("it tells");
        assert_eq!(ranges.len(), 2);
        assert!(holds(&ranges, &two, &["x".into(), 1.into()]));
        assert!(!holds(&ranges, &two, &["y".into(), 1.into()]));
        assert!(!holds(&ranges, &two, &["x".into(), 2.into()]));
        let list = AttributeValue::List(Vec::new());
        let of = |equal: Vec<AttributeValue>, value| Asked {
            equal,
            last: Last::OneOf(vec![value]),
        };
        assert_eq!(of(vec![list.clone()], 1.into()).ranges(&two), None);
        assert_eq!(of(vec![1.into()], list).ranges(&two), None);
        assert_eq!(
            of(vec![AttributeValue::Null], 1.into()).ranges(&two),
            Some(Vec::new())
        );
        assert_eq!(of(Vec::new(), 1.into()).ranges(&two), None);
    }
}
