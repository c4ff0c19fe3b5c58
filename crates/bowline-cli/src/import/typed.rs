//! Values of attributes in JSON.
//!
//! ```text
//!   text, boolean, list       as in JSON           integer    a number without a point or exponent
//!   null                      null                 float      a number with one
//!   map                       an object            bytes      {"$bytes": "<Base64>"}
//!   a float that JSON cannot have                  {"$float": "NaN"}, "inf", "-inf"
//!   {"$date": "2026-01-02"}                        {"$local_time": "12:30"}, {"$time": "12:30Z"}
//!   {"$local_date_time": "2026-01-02T12:30"}       {"$date_time": "2026-01-02T12:30+01:00[Europe/Berlin]"}
//!   {"$duration": "P1DT2H"}                        {"$map": {…}}: a map whose first name begins with `$`
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bowline_types::{AttributeValue, parse_date, parse_datetime};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::item::Attributes;

/// Attributes that are written.
pub(crate) struct AttributesJson<'a>(pub(crate) &'a Attributes);

impl Serialize for AttributesJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, Shown(value))))
    }
}

/// A value that is written.
pub(crate) struct Shown<'a>(pub(crate) &'a AttributeValue);

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tagged = |serializer: S, tag: &str, text: &str| {
            let mut map = serializer.serialize_map(Some(1))?;
            map.serialize_entry(tag, text)?;
            map.end()
        };
        let shown = || self.0.to_string();
        match self.0 {
            AttributeValue::Bool(value) => serializer.serialize_bool(*value),
            AttributeValue::Int(number) => serializer.serialize_i64(*number),
            AttributeValue::Float(number) if number.is_finite() => {
                serializer.serialize_f64(*number)
            }
            AttributeValue::Float(_) => tagged(serializer, "$float", &shown()),
            AttributeValue::Text(text) => serializer.serialize_str(text),
            AttributeValue::Bytes(bytes) => tagged(serializer, "$bytes", &STANDARD.encode(bytes)),
            AttributeValue::Date(_) => tagged(serializer, "$date", &shown()),
            AttributeValue::LocalTime(_) => tagged(serializer, "$local_time", &shown()),
            AttributeValue::Time(_) => tagged(serializer, "$time", &shown()),
            AttributeValue::LocalDateTime(_) => tagged(serializer, "$local_date_time", &shown()),
            AttributeValue::DateTime(_) => tagged(serializer, "$date_time", &shown()),
            AttributeValue::Duration(_) => tagged(serializer, "$duration", &shown()),
            AttributeValue::List(list) => serializer.collect_seq(list.iter().map(Shown)),
            AttributeValue::Map(map) if is_tagged(map.keys().map(String::as_str)) => {
                let mut outer = serializer.serialize_map(Some(1))?;
                outer.serialize_entry("$map", &AttributesJson(map))?;
                outer.end()
            }
            AttributeValue::Map(map) => AttributesJson(map).serialize(serializer),
            // `AttributeValue` may get more types before this program knows them.
            AttributeValue::Null | _ => serializer.serialize_none(),
        }
    }
}

/// Whether an object with these names, in their order, would be read as one that stands for a value.
fn is_tagged<'a>(mut names: impl Iterator<Item = &'a str>) -> bool {
    names.next().is_some_and(|name| name.starts_with('$'))
}

/// A value that is read.
pub(crate) struct Read(pub(crate) AttributeValue);

impl<'de> Deserialize<'de> for Read {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Read, D::Error> {
        deserializer.deserialize_any(Any)
    }
}

/// An object, whatever its names.
struct Plain(BTreeMap<String, AttributeValue>);

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Plain, D::Error> {
        match deserializer.deserialize_map(Object)? {
            Read(AttributeValue::Map(map)) => Ok(Plain(map)),
            Read(_) => Err(D::Error::custom("expected an object")),
        }
    }
}

/// Checks that a value is not nested too deep.
fn checked<E: Error>(value: AttributeValue) -> Result<Read, E> {
    if value.depth() > AttributeValue::DEPTH_MAX {
        let depth = AttributeValue::DEPTH_MAX;
        return Err(E::custom(format_args!("nested deeper than {depth} levels")));
    }
    Ok(Read(value))
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Read;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value of an attribute")
    }

    fn visit_unit<E: Error>(self) -> Result<Read, E> {
        Ok(Read(AttributeValue::Null))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Read, E> {
        Ok(Read(value.into()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Read, E> {
        Ok(Read(number.into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Read, E> {
        match i64::try_from(number) {
            Ok(number) => Ok(Read(number.into())),
            Err(_) => Err(E::custom(format_args!(
                "{number} is no integer of 64 bits with a sign"
            ))),
        }
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Read, E> {
        Ok(Read(number.into()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Read, E> {
        Ok(Read(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Read, A::Error> {
        let mut list = Vec::new();
        while let Some(Read(value)) = seq.next_element()? {
            list.push(value);
        }
        checked(AttributeValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Read, A::Error> {
        let Some(name) = map.next_key::<String>()? else {
            return Ok(Read(AttributeValue::Map(BTreeMap::new())));
        };
        if !name.starts_with('$') {
            return entries(Some(name), map);
        }
        let value = match &name[..] {
            "$map" => map.next_value().map(|Plain(map)| AttributeValue::Map(map)),
            _ => map.next_value::<String>().and_then(|text| {
                let told = || {
                    format!("{{{name:?}: {text:?}}} is no value: a map with such a name is {{\"$map\": {{…}}}}")
                };
                tagged(&name, &text).ok_or_else(|| A::Error::custom(told()))
            }),
        }?;
        match map.next_key::<String>()? {
            None => checked(value),
            Some(_) => Err(A::Error::custom(format_args!(
                "something beside {name:?}: a map with such a name is {{\"$map\": {{…}}}}"
            ))),
        }
    }
}

/// The value that a tag and a text stand for.
fn tagged(tag: &str, text: &str) -> Option<AttributeValue> {
    fn of<T: FromStr>(text: &str) -> Option<T> {
        text.parse().ok()
    }
    Some(match tag {
        "$bytes" => AttributeValue::Bytes(STANDARD.decode(text).ok()?.into()),
        "$float" => AttributeValue::Float(of(text)?),
        "$date" => AttributeValue::Date(parse_date(text).ok()?),
        "$local_time" => AttributeValue::LocalTime(of(text)?),
        "$time" => AttributeValue::Time(of(text)?),
        "$local_date_time" => AttributeValue::LocalDateTime(parse_datetime(text).ok()?),
        "$date_time" => AttributeValue::DateTime(of(text)?),
        "$duration" => AttributeValue::Duration(of(text)?),
        _ => return None,
    })
}

/// The entries of an object, of which the first name may have been read.
fn entries<'de, A: MapAccess<'de>>(first: Option<String>, mut map: A) -> Result<Read, A::Error> {
    let mut entries = BTreeMap::new();
    let mut next = match first {
        Some(name) => Some(name),
        None => map.next_key::<String>()?,
    };
    while let Some(name) = next {
        let Read(value) = map.next_value()?;
        if entries.contains_key(&name) {
            return Err(A::Error::custom(format_args!("{name:?} twice")));
        }
        entries.insert(name, value);
        next = map.next_key()?;
    }
    checked(AttributeValue::Map(entries))
}

/// An object whose names have no meaning.
struct Object;

impl<'de> Visitor<'de> for Object {
    type Value = Read;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Read, A::Error> {
        entries(None, map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<AttributeValue, String> {
        let read = serde_json::from_str::<Read>(json);
        read.map(|Read(value)| value)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn values_of_every_type_come_back_in_the_same_form() {
        for json in [
            "null",
            "true",
            "-9223372036854775808",
            "0.5",
            "2.0",
            "-0.0",
            r#"{"$float":"NaN"}"#,
            r#"{"$float":"-inf"}"#,
            r#""größe\n""#,
            r#"{"$bytes":"/w=="}"#,
            r#"{"$date":"-0044-03-15"}"#,
            r#"{"$local_time":"12:30:00.000000001"}"#,
            r#"{"$time":"12:30+02:00"}"#,
            r#"{"$local_date_time":"2026-11-29T19:27"}"#,
            r#"{"$date_time":"2026-11-29T19:27+01:00[Europe/Berlin]"}"#,
            r#"{"$duration":"P14M3DT-0.5S"}"#,
            r#"[1,[],{"a":[null]}]"#,
            "{}",
            r#"{"a":1,"b":{"c":2.5}}"#,
            r#"{"$map":{"$date":"x"}}"#,
            r#"{"$map":{"$map":{"$map":{"$a":1}}}}"#,
        ] {
            let value = read(json).expect(json);
            let shown = serde_json::to_string(&Shown(&value)).expect("it is shown");
            let expected = match json {
                // Months are shown as years.
                r#"{"$duration":"P14M3DT-0.5S"}"# => r#"{"$duration":"P1Y2M3DT-0.5S"}"#,
                json => json,
            };
            assert_eq!(shown, expected);
            assert_eq!(read(&shown), Ok(value));
        }
        // Behind others, a name may begin as it likes.
        let value = read(r#"{"a":1,"$b":2}"#).unwrap();
        let shown = serde_json::to_string(&Shown(&value)).unwrap();
        assert_eq!(shown, r#"{"$map":{"$b":2,"a":1}}"#);
        assert_eq!(read(&shown), Ok(value));
    }

    #[test]
    fn what_is_no_value_is_refused() {
        let deep = format!("{}1{}", "[".repeat(17), "]".repeat(17));
        for (json, told) in [
            ("18446744073709551615", "no integer of 64 bits"),
            (r#"{"$date":"2026-02-30"}"#, "is no value"),
            (r#"{"$date":7}"#, "expected a string"),
            (r#"{"$unknown":"x"}"#, "is no value"),
            (r#"{"$date":"2026-01-02","a":1}"#, "something beside"),
            (r#"{"a":1,"a":2}"#, "twice"),
            (r#"{"$map":[1]}"#, "expected an object"),
            (&deep, "nested deeper"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(told), "{json}: {error}");
        }
    }
}
