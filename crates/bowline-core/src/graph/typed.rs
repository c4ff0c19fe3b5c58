//! The encoding of attribute values that are not all text.
//!
//! ```text
//! value           | tag u8 | content |
//!  0 null, 1 false, 2 true: nothing        7 date                 year, month u8, day u8
//!  3 integer          signed               8 time of day          ns of the day varint
//!  4 float            8 bytes, little      9 time with offset     ns of the day varint, offset s signed
//!                     endian               10 local date-time     as 7, then as 8
//!  5 text, 6 bytes    bytes                11 date-time           s signed, ns varint, offset s signed, zone bytes
//!  12 duration        months, days, seconds signed; ns varint
//!  13 list            count varint, each   14 map                 count varint, (name bytes, value) each
//!
//! bytes           | length varint | that many bytes |
//! signed          varint of the number folded to unsigned: 0, -1, 1, -2 are 0, 1, 2, 3
//! ```
//!
//! Every value has one encoding: any NaN is written as the same bits, varints are minimal, the names of a map are strictly
//! ascending, parts are in their ranges. Lists and maps nest at most [`AttributeValue::DEPTH_MAX`] deep. What does not
//! hold to this is refused. A zone is a name and is not looked up: decoding asks no database.

use std::collections::BTreeMap;

use bowline_storage::codec::{Reader, put_bytes, put_varint};
use bowline_types::{AttributeValue, Duration, OffsetTime, ZonedInstant, nanos_of, time_of};
use bytes::Bytes;
use jiff::tz::Offset;
use jiff::{Timestamp, civil};

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INT: u8 = 3;
const FLOAT: u8 = 4;
pub(super) const TEXT: u8 = 5;
const BYTES: u8 = 6;
const DATE: u8 = 7;
const LOCAL_TIME: u8 = 8;
const TIME: u8 = 9;
const LOCAL_DATE_TIME: u8 = 10;
const DATE_TIME: u8 = 11;
const DURATION: u8 = 12;
const LIST: u8 = 13;
const MAP: u8 = 14;

const DAY_NANOS: u64 = 86_400_000_000_000;
const SECOND_NANOS: u32 = 1_000_000_000;

fn put_signed(out: &mut Vec<u8>, number: i64) {
    put_varint(out, ((number << 1) ^ (number >> 63)).cast_unsigned());
}

fn signed(reader: &mut Reader<'_>) -> Option<i64> {
    let folded = reader.varint()?;
    Some((folded >> 1).cast_signed() ^ -(folded & 1).cast_signed())
}

fn put_date(out: &mut Vec<u8>, date: civil::Date) {
    put_signed(out, date.year().into());
    out.push(date.month().cast_unsigned());
    out.push(date.day().cast_unsigned());
}

fn date(reader: &mut Reader<'_>) -> Option<civil::Date> {
    let year = i16::try_from(signed(reader)?).ok()?;
    let (month, day) = (reader.u8()?, reader.u8()?);
    civil::Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()
}

fn put_time(out: &mut Vec<u8>, time: civil::Time) {
    put_varint(out, nanos_of(time).cast_unsigned());
}

fn time(reader: &mut Reader<'_>) -> Option<civil::Time> {
    let nanos = reader.varint().filter(|nanos| *nanos < DAY_NANOS)?;
    Some(time_of(nanos.cast_signed()))
}

fn offset(reader: &mut Reader<'_>) -> Option<Offset> {
    Offset::from_seconds(i32::try_from(signed(reader)?).ok()?).ok()
}

fn nanos(reader: &mut Reader<'_>) -> Option<u32> {
    reader.varint_u32().filter(|nanos| *nanos < SECOND_NANOS)
}

fn text<'a>(reader: &mut Reader<'a>) -> Option<&'a str> {
    std::str::from_utf8(reader.bytes()?).ok()
}

/// Appends a value.
pub fn put_value(value: &AttributeValue, out: &mut Vec<u8>) {
    match value {
        AttributeValue::Null => out.push(NULL),
        AttributeValue::Bool(value) => out.push(if *value { TRUE } else { FALSE }),
        AttributeValue::Int(number) => {
            out.push(INT);
            put_signed(out, *number);
        }
        AttributeValue::Float(number) => {
            out.push(FLOAT);
            let number = if number.is_nan() { f64::NAN } else { *number };
            out.extend_from_slice(&number.to_le_bytes());
        }
        AttributeValue::Text(text) => {
            out.push(TEXT);
            put_bytes(out, text.as_bytes());
        }
        AttributeValue::Bytes(bytes) => {
            out.push(BYTES);
            put_bytes(out, bytes);
        }
        AttributeValue::Date(date) => {
            out.push(DATE);
            put_date(out, *date);
        }
        AttributeValue::LocalTime(time) => {
            out.push(LOCAL_TIME);
            put_time(out, *time);
        }
        AttributeValue::Time(at) => {
            out.push(TIME);
            put_time(out, at.time);
            put_signed(out, at.offset.seconds().into());
        }
        AttributeValue::LocalDateTime(at) => {
            out.push(LOCAL_DATE_TIME);
            put_date(out, at.date());
            put_time(out, at.time());
        }
        AttributeValue::DateTime(at) => {
            out.push(DATE_TIME);
            let nanos = at.instant.as_nanosecond();
            let second = i128::from(SECOND_NANOS);
            put_signed(out, nanos.div_euclid(second) as i64);
            put_varint(out, nanos.rem_euclid(second) as u64);
            put_signed(out, at.offset.seconds().into());
            put_bytes(out, at.zone.as_deref().unwrap_or("").as_bytes());
        }
        AttributeValue::Duration(duration) => {
            out.push(DURATION);
            for part in [duration.months, duration.days, duration.seconds] {
                put_signed(out, part);
            }
            put_varint(out, duration.nanos.into());
        }
        AttributeValue::List(list) => {
            out.push(LIST);
            put_varint(out, list.len() as u64);
            list.iter().for_each(|value| put_value(value, out));
        }
        AttributeValue::Map(map) => {
            out.push(MAP);
            put_varint(out, map.len() as u64);
            for (name, value) in map {
                put_bytes(out, name.as_bytes());
                put_value(value, out);
            }
        }
        // Whoever adds a kind of value gives it a tag here.
        other => unreachable!("a {} has no encoding", other.type_name()),
    }
}

/// Reads a value; `None` for what [`put_value`] does not write.
pub fn read_value(reader: &mut Reader<'_>) -> Option<AttributeValue> {
    read_nested(reader, AttributeValue::DEPTH_MAX)
}

fn read_nested(reader: &mut Reader<'_>, depth: usize) -> Option<AttributeValue> {
    Some(match reader.u8()? {
        NULL => AttributeValue::Null,
        FALSE => AttributeValue::Bool(false),
        TRUE => AttributeValue::Bool(true),
        INT => AttributeValue::Int(signed(reader)?),
        FLOAT => {
            let number = f64::from_le_bytes(reader.take(8)?.try_into().ok()?);
            let is_own = !number.is_nan() || number.to_bits() == f64::NAN.to_bits();
            AttributeValue::Float(is_own.then_some(number)?)
        }
        TEXT => AttributeValue::Text(text(reader)?.to_owned()),
        BYTES => AttributeValue::Bytes(Bytes::copy_from_slice(reader.bytes()?)),
        DATE => AttributeValue::Date(date(reader)?),
        LOCAL_TIME => AttributeValue::LocalTime(time(reader)?),
        TIME => AttributeValue::Time(OffsetTime {
            time: time(reader)?,
            offset: offset(reader)?,
        }),
        LOCAL_DATE_TIME => AttributeValue::LocalDateTime(date(reader)?.to_datetime(time(reader)?)),
        DATE_TIME => {
            let (second, nanos) = (signed(reader)?, nanos(reader)?);
            let all = i128::from(second) * i128::from(SECOND_NANOS) + i128::from(nanos);
            let instant = Timestamp::from_nanosecond(all).ok()?;
            let offset = offset(reader)?;
            let zone = Some(text(reader)?).filter(|zone| !zone.is_empty());
            AttributeValue::DateTime(ZonedInstant {
                instant,
                offset,
                zone: zone.map(str::to_owned),
            })
        }
        DURATION => AttributeValue::Duration(Duration {
            months: signed(reader)?,
            days: signed(reader)?,
            seconds: signed(reader)?,
            nanos: nanos(reader)?,
        }),
        LIST => {
            let depth = depth.checked_sub(1)?;
            let count = reader.varint_usize()?;
            // A wrong count ends the loop at the end of the bytes, of which each value takes one.
            let mut list = Vec::with_capacity(count.min(reader.remaining()).min(64));
            for _ in 0..count {
                list.push(read_nested(reader, depth)?);
            }
            AttributeValue::List(list)
        }
        MAP => {
            let depth = depth.checked_sub(1)?;
            let mut map = BTreeMap::new();
            for _ in 0..reader.varint_usize()? {
                let name = text(reader)?;
                let follows = |(last, _): (&String, _)| last.as_str() < name;
                if !map.last_key_value().is_none_or(follows) {
                    return None;
                }
                map.insert(name.to_owned(), read_nested(reader, depth)?);
            }
            AttributeValue::Map(map)
        }
        _ => return None,
    })
}

/// Passes over a value that [`read_value`] would return.
pub(super) fn skip_value(reader: &mut Reader<'_>) -> Option<()> {
    // Most values are texts, which need no copy to be checked.
    match reader.clone().u8()? {
        TEXT => {
            reader.u8()?;
            text(reader).map(drop)
        }
        _ => read_value(reader).map(drop),
    }
}

/// One value of each kind, and at its bounds: for tests.
#[cfg(any(test, fuzzing))]
pub(crate) fn samples() -> Vec<AttributeValue> {
    use AttributeValue as V;
    let at = |year| civil::date(year, 2, 28).at(23, 59, 59, 999_999_999);
    let instant = |instant, zone: Option<&str>| {
        V::DateTime(ZonedInstant {
            instant,
            offset: Offset::from_seconds(-3_601).expect("an offset"),
            zone: zone.map(str::to_owned),
        })
    };
    let mut samples = vec![
        V::Null,
        V::Bool(false),
        V::Bool(true),
        V::Int(0),
        V::Int(-1),
        V::Int(i64::MAX),
        V::Int(i64::MIN),
        V::Float(0.0),
        V::Float(-0.0),
        V::Float(f64::NAN),
        V::Float(f64::NEG_INFINITY),
        V::from(""),
        V::from("größe"),
        V::Bytes(Bytes::from_static(b"\xff\0")),
        V::Date(civil::Date::MIN),
        V::Date(civil::Date::MAX),
        V::LocalTime(civil::Time::MIN),
        V::LocalTime(civil::Time::MAX),
        V::Time(OffsetTime {
            time: civil::Time::MAX,
            offset: Offset::MIN,
        }),
        V::LocalDateTime(at(-44)),
        V::LocalDateTime(at(2026)),
        instant(Timestamp::MIN, None),
        instant(Timestamp::MAX, Some("Europe/Berlin")),
        V::Duration(Duration {
            months: -14,
            days: i64::MAX,
            seconds: i64::MIN,
            nanos: 999_999_999,
        }),
        V::List(Vec::new()),
        V::Map(BTreeMap::new()),
    ];
    let mut deep = V::Int(7);
    for _ in 0..AttributeValue::DEPTH_MAX / 2 {
        deep = V::List(vec![V::Map(BTreeMap::from([("in".to_owned(), deep)]))]);
    }
    samples.push(deep);
    samples.push(V::List(samples.clone()[..24].to_vec()));
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(value: &AttributeValue) -> Vec<u8> {
        let mut out = Vec::new();
        put_value(value, &mut out);
        out
    }

    #[test]
    fn values_round_trip_and_nothing_shorter_or_longer_is_one() {
        for value in samples() {
            let bytes = encoded(&value);
            let mut reader = Reader::new(&bytes);
            assert_eq!(read_value(&mut reader), Some(value.clone()));
            assert!(reader.is_empty(), "{value}");
            let mut reader = Reader::new(&bytes);
            skip_value(&mut reader).expect("it is one");
            assert!(reader.is_empty(), "{value}");
            for end in 0..bytes.len() {
                assert_eq!(read_value(&mut Reader::new(&bytes[..end])), None, "{value}");
            }
        }
    }

    #[test]
    fn the_layout_is_fixed() {
        let fixed: [(AttributeValue, &[u8]); 6] = [
            (AttributeValue::Int(-2), b"\x03\x03"),
            (AttributeValue::Float(1.0), b"\x04\0\0\0\0\0\0\xf0\x3f"),
            (AttributeValue::from("a"), b"\x05\x01a"),
            (
                AttributeValue::Date(civil::date(2026, 11, 29)),
                b"\x07\xd4\x1f\x0b\x1d",
            ),
            (
                AttributeValue::List(vec![AttributeValue::Null, true.into()]),
                b"\x0d\x02\x00\x02",
            ),
            (
                AttributeValue::Map(BTreeMap::from([("a".to_owned(), false.into())])),
                b"\x0e\x01\x01a\x01",
            ),
        ];
        for (value, bytes) in fixed {
            assert_eq!(encoded(&value), bytes, "{value}");
        }
    }

    #[test]
    fn what_is_never_written_is_refused() {
        let mut deep = [LIST, 1].repeat(AttributeValue::DEPTH_MAX + 1);
        deep.push(NULL);
        let nan = [&[FLOAT][..], &(f64::NAN.to_bits() + 1).to_le_bytes()].concat();
        let long_day = [&[LOCAL_TIME][..], &encoded_varint(DAY_NANOS)].concat();
        for (bytes, why) in [
            (&deep[..], "too deep"),
            (&nan, "another NaN"),
            (&long_day, "a time behind the end of the day"),
            (b"\x07\xd4\x1f\x02\x1e", "the thirtieth of February"),
            (b"\x09\x00\xff\xff\xff\x7f", "an offset of years"),
            (
                b"\x0c\x00\x00\x00\x80\x94\xeb\xdc\x03",
                "a second of nanoseconds",
            ),
            (b"\x0e\x02\x01b\x00\x01a\x00", "names out of order"),
            (b"\x0e\x02\x01a\x00\x01a\x00", "a name twice"),
            (
                b"\x0d\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
                "a count beyond the bytes",
            ),
            (b"\x05\x01\xff", "a text that is none"),
            (b"\x03\x80\x00", "a padded varint"),
            (b"\x0f", "a tag never written"),
        ] {
            assert_eq!(read_value(&mut Reader::new(bytes)), None, "{why}");
        }
    }

    fn encoded_varint(number: u64) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, number);
        out
    }

    /// Whatever decodes, encodes to the same bytes.
    #[test]
    fn mutated_values_are_refused_or_decode_to_what_encodes_to_them() {
        let all = AttributeValue::List(samples()[..26].to_vec());
        for seed in crate::seeds(0x7a1e_0000..0x7a1e_0002) {
            let mut random = fastrand::Rng::with_seed(seed);
            let original = encoded(&all);
            let mut accepted = 0;
            for _ in 0..20_000 {
                let mut bytes = original.clone();
                for _ in 0..random.usize(1..4) {
                    let at = random.usize(..bytes.len());
                    match random.u8(..3) {
                        0 => bytes[at] = random.u8(..),
                        1 => bytes.insert(at, random.u8(..)),
                        _ => drop(bytes.remove(at)),
                    }
                }
                let mut reader = Reader::new(&bytes);
                if let Some(found) = read_value(&mut reader) {
                    accepted += 1;
                    assert_eq!(encoded(&found), bytes[..reader.position()]);
                }
            }
            assert!(accepted > 0, "some mutations only change a number");
        }
    }
}
