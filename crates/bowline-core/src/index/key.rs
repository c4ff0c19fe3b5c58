//! Values as bytes in the order of values.
//!
//! ```text
//! value         | class u8 | content |
//! 10 bool       0, 1                        44 time of day          ns of the day u64
//! 20 number     float u64, rest i16         48 time with offset     ns in UTC, offset s: i64, i32
//! 30 text       escaped                     4c date and time        as 40, as 44
//! 38 bytes      escaped                     50 instant              s i64, ns u32
//! 40 date       year i16, month, day
//! ```
//!
//! Numbers are big-endian. A signed one has its first bit inverted; a float has all bits inverted if it is negative, else the
//! first one. So the order of bytes is that of values.
//!
//! **Numbers.** An integer and a float that are equal have one key. An integer is written as the float nearest to it, and
//! by how much it is greater, at most 512: rounding never reverses an order, so the float decides where it differs, and the
//! rest where it does not. -0.0 is 0.0.
//!
//! **Texts and bytes.** A zero is written as `00 ff`, and `00 01` ends the text. Of one longer than [`PREFIX_BYTES`] that
//! prefix is written, then `00 02` and the hash of the whole. So an entry is short; equal texts have one key; among those that
//! agree in so many bytes there is no order, and a range that ends among them takes all of them.
//!
//! **Not in an index** is a block one of whose values is absent, null or NaN, none of which is equal to anything; a duration,
//! which has no order; a list; or a map. An instant is the same in every zone.
//!
//! Invariants: values that are equal in Cypher have one key; `a < b` in Cypher implies that the key of `a` is not above that of
//! `b`. So a range of keys holds at least what is asked for, and the caller compares the values again.

use bowline_types::{AttributeValue, BlockId, nanos_of};
use jiff::civil;

/// How much of a text an entry holds.
pub(super) const PREFIX_BYTES: usize = 128;

/// The most bytes that a value takes in a key.
pub const VALUE_MAX_BYTES: usize = 1 + 2 * PREFIX_BYTES + 2 + 16;

const BOOL: u8 = 0x10;
const NUMBER: u8 = 0x20;
const TEXT: u8 = 0x30;
const BYTES: u8 = 0x38;
const DATE: u8 = 0x40;
const LOCAL_TIME: u8 = 0x44;
const TIME: u8 = 0x48;
const LOCAL_DATE_TIME: u8 = 0x4c;
const DATE_TIME: u8 = 0x50;

const ESCAPED: u8 = 0xff;
const END: u8 = 0x01;
const CUT: u8 = 0x02;

/// Whether a value has a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoded {
    /// It was appended.
    Whole,
    /// A part of it was appended: others of the same prefix are not ordered against it.
    Cut,
    /// It is equal to nothing, and neither above nor below anything.
    Nothing,
    /// An index cannot have it.
    NotIndexable,
}

/// Appends the key of a value.
pub(super) fn put_value(value: &AttributeValue, out: &mut Vec<u8>) -> Encoded {
    match value {
        AttributeValue::Null => return Encoded::Nothing,
        AttributeValue::Bool(value) => out.extend([BOOL, u8::from(*value)]),
        AttributeValue::Int(number) => put_int(*number, out),
        AttributeValue::Float(number) if number.is_nan() => return Encoded::Nothing,
        AttributeValue::Float(number) => put_number(*number, 0, out),
        AttributeValue::Text(text) => return put_text(TEXT, text.as_bytes(), out),
        AttributeValue::Bytes(bytes) => return put_text(BYTES, bytes, out),
        AttributeValue::Date(date) => {
            out.push(DATE);
            put_date(*date, out);
        }
        AttributeValue::LocalTime(time) => {
            out.push(LOCAL_TIME);
            put_signed(nanos_of(*time), out);
        }
        AttributeValue::Time(at) => {
            out.push(TIME);
            put_signed(
                nanos_of(at.time) - i64::from(at.offset.seconds()) * 1_000_000_000,
                out,
            );
            put_signed(at.offset.seconds().into(), out);
        }
        AttributeValue::LocalDateTime(at) => {
            out.push(LOCAL_DATE_TIME);
            put_date(at.date(), out);
            put_signed(nanos_of(at.time()), out);
        }
        AttributeValue::DateTime(at) => {
            out.push(DATE_TIME);
            let nanos = at.instant.as_nanosecond();
            let second = i64::try_from(nanos.div_euclid(1_000_000_000)).unwrap_or(i64::MAX);
            put_signed(second, out);
            out.extend((nanos.rem_euclid(1_000_000_000) as u32).to_be_bytes());
        }
        _ => return Encoded::NotIndexable,
    }
    Encoded::Whole
}

/// Appends where the values of another's class begin and end, all of which compare with it.
pub(super) fn class_of(key: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let class = key.first().copied().unwrap_or_default();
    (vec![class], vec![class + 1])
}

/// Appends what the keys of all texts begin with that begin with this one. That is so of others, too, where it is long.
pub(super) fn put_text_prefix(text: &str, out: &mut Vec<u8>) {
    out.push(TEXT);
    let bytes = text.as_bytes();
    put_escaped(&bytes[..bytes.len().min(PREFIX_BYTES)], out);
}

/// [`put_value`] of a text.
pub(super) fn put_text_value(text: &str, out: &mut Vec<u8>) -> Encoded {
    put_text(TEXT, text.as_bytes(), out)
}

fn put_text(class: u8, bytes: &[u8], out: &mut Vec<u8>) -> Encoded {
    out.push(class);
    let Some(prefix) = bytes
        .get(..PREFIX_BYTES)
        .filter(|_| bytes.len() > PREFIX_BYTES)
    else {
        put_escaped(bytes, out);
        out.extend([0, END]);
        return Encoded::Whole;
    };
    put_escaped(prefix, out);
    out.extend([0, CUT]);
    out.extend(xxhash_rust::xxh3::xxh3_128(bytes).to_be_bytes());
    Encoded::Cut
}

/// The beginning of a key that is cut, which is that of all others with this prefix.
pub(super) fn without_hash(key: &[u8]) -> &[u8] {
    &key[..key.len().saturating_sub(16)]
}

fn put_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        out.push(byte);
        if byte == 0 {
            out.push(ESCAPED);
        }
    }
}

fn put_int(number: i64, out: &mut Vec<u8>) {
    let nearest = number as f64;
    // The nearest float of an integer is one itself, of 2^63 at most.
    let rest = i128::from(number) - nearest as i128;
    put_number(nearest, rest as i16, out);
}

fn put_number(float: f64, rest: i16, out: &mut Vec<u8>) {
    const FIRST: u64 = 1 << 63;
    out.push(NUMBER);
    let bits = (float + 0.0).to_bits();
    let ordered = if bits & FIRST == 0 {
        bits | FIRST
    } else {
        !bits
    };
    out.extend(ordered.to_be_bytes());
    out.extend((rest.cast_unsigned() ^ (1 << 15)).to_be_bytes());
}

fn put_signed(number: i64, out: &mut Vec<u8>) {
    out.extend((number.cast_unsigned() ^ (1 << 63)).to_be_bytes());
}

fn put_date(date: civil::Date, out: &mut Vec<u8>) {
    out.extend((date.year().cast_unsigned() ^ (1 << 15)).to_be_bytes());
    out.extend([date.month().cast_unsigned(), date.day().cast_unsigned()]);
}

/// The block of an entry.
#[must_use]
pub fn block_of_entry(key: &[u8]) -> Option<BlockId> {
    key.last_chunk().copied().map(BlockId::from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Ordering;

    fn key(value: &AttributeValue) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match put_value(value, &mut out) {
            Encoded::Whole | Encoded::Cut => Some(out),
            Encoded::Nothing | Encoded::NotIndexable => None,
        }
    }

    /// Compares an integer with a float by its exact value, in numbers that hold both.
    fn exactly(int: i64, float: f64) -> Ordering {
        if float >= 2f64.powi(63) {
            return Ordering::Less;
        }
        if float < -(2f64.powi(63)) {
            return Ordering::Greater;
        }
        let whole = float.floor();
        let by_whole = i128::from(int).cmp(&(whole as i128));
        let fraction = if float > whole {
            Ordering::Less
        } else {
            Ordering::Equal
        };
        by_whole.then(fraction)
    }

    #[test]
    fn numbers_are_in_the_order_of_their_exact_values() {
        let big = 1i64 << 53;
        let mut ints = vec![
            0,
            1,
            -1,
            2,
            40,
            big,
            big + 1,
            big + 2,
            big + 3,
            -big - 1,
            i64::MAX,
        ];
        ints.extend([
            i64::MAX - 1,
            i64::MAX - 511,
            i64::MAX - 512,
            i64::MIN,
            i64::MIN + 1,
        ]);
        let mut floats = vec![
            0.0,
            -0.0,
            0.5,
            -0.5,
            1.0,
            40.0,
            f64::INFINITY,
            f64::NEG_INFINITY,
        ];
        floats.extend([
            big as f64,
            (big + 2) as f64,
            2f64.powi(63),
            -(2f64.powi(63)),
            1e300,
        ]);
        floats.extend([f64::MIN_POSITIVE, 5e-324, -5e-324]);
        for seed in crate::seeds(0x1dec_0000..0x1dec_0002) {
            let mut random = fastrand::Rng::with_seed(seed);
            for _ in 0..60 {
                let shift = random.u32(0..64);
                ints.push(random.i64(..) >> shift);
                floats.push((random.i64(..) >> shift) as f64 + random.f64());
            }
        }
        for &a in &ints {
            for &b in &ints {
                assert_eq!(key(&a.into()).cmp(&key(&b.into())), a.cmp(&b), "{a} {b}");
            }
            for &b in &floats {
                assert_eq!(
                    key(&a.into()).cmp(&key(&b.into())),
                    exactly(a, b),
                    "{a} {b}"
                );
            }
        }
        for &a in &floats {
            for &b in &floats {
                let order = a.partial_cmp(&b).expect("no NaN");
                assert_eq!(key(&a.into()).cmp(&key(&b.into())), order, "{a} {b}");
            }
        }
        assert_eq!(key(&f64::NAN.into()), None);
    }

    #[test]
    fn texts_are_in_their_order_and_long_ones_in_that_of_their_prefix() {
        let long = "x".repeat(PREFIX_BYTES);
        let more = [
            format!("{long}a"),
            format!("{long}b"),
            format!("{long}\0"),
            "y".to_owned(),
        ];
        let mut texts = vec![
            "",
            "\0",
            "\0\0",
            "a",
            "a\0",
            "a\0b",
            "a\u{1}",
            "ab",
            "ä",
            long.as_str(),
        ];
        texts.extend(more.iter().map(String::as_str));
        for a in &texts {
            for b in &texts {
                let (x, y) = (key(&(*a).into()), key(&(*b).into()));
                assert_eq!(x == y, a == b, "{a:?} {b:?}");
                let cut = |text: &str| text.as_bytes()[..text.len().min(PREFIX_BYTES)].to_vec();
                if cut(a) != cut(b) {
                    assert_eq!(x.cmp(&y), a.cmp(b), "{a:?} {b:?}");
                }
                let mut prefix = Vec::new();
                put_text_prefix(a, &mut prefix);
                let starts = y.is_some_and(|y| y.starts_with(&prefix));
                assert!(starts || !b.starts_with(a), "{a:?} {b:?}");
                assert!(!starts || cut(b).starts_with(&cut(a)), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn no_key_is_longer_than_is_said_and_the_layout_is_fixed() {
        for value in crate::graph::typed::samples() {
            let key = key(&value).unwrap_or_default();
            assert!(key.len() <= VALUE_MAX_BYTES, "{value}");
        }
        let zeros = AttributeValue::from("\0".repeat(10 * PREFIX_BYTES).as_str());
        assert_eq!(key(&zeros).map(|key| key.len()), Some(VALUE_MAX_BYTES));
        let fixed: [(AttributeValue, &[u8]); 5] = [
            (true.into(), b"\x10\x01"),
            (1.into(), b"\x20\xbf\xf0\0\0\0\0\0\0\x80\0"),
            ("a\0".into(), b"\x30a\0\xff\0\x01"),
            (
                AttributeValue::Date(civil::date(2026, 11, 29)),
                b"\x40\x87\xea\x0b\x1d",
            ),
            (
                AttributeValue::LocalTime(civil::time(0, 0, 1, 0)),
                b"\x44\x80\0\0\0\x3b\x9a\xca\0",
            ),
        ];
        for (value, bytes) in fixed {
            assert_eq!(key(&value).as_deref(), Some(bytes), "{value}");
        }
    }
}
