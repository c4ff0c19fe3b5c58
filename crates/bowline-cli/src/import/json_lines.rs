//! Bowline's JSON Lines: one JSON object per line, as `bowline export` writes them.
//!
//! ```text
//!   {"key": "…", "value": "…"}
//!   {"block": {"id" or "name": "…", "kind": "…" or "kinds": […], "content": "…", "attributes": {…}}}
//!   {"edge": {"source": "…", "kind": "…", "target": "…", "attributes": {…}}}
//! ```
//!
//! `key_base64`, `value_base64` and `content_base64` carry bytes that are not UTF-8. `docs/import.md`
//! defines the format in full. It is read strictly: an unknown, doubled, missing or null field
//! refuses the line, because data that is dropped in silence is lost.

use std::fmt;
use std::io::{self, BufRead};
use std::marker::PhantomData;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bowline_types::BlockKinds;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

use super::item::{
    Attributes, Block, BlockRef, Edge, Event, Item, KeyValue, NAME_ATTRIBUTE, Options, Position,
    Refusal, check_kind, parse_uuid,
};
use super::lines::{LineReader, column_of};
use super::typed::Read;

/// The longest line taken unless another limit is asked for: 2 GiB. Every line of an export fits: a
/// line holds a whole value, of up to 64 MiB, and some values are up to 19 times as long in JSON. Only
/// as much memory is taken as the line is long.
pub(crate) const LINE_MAX_BYTES: usize = 2 << 30;

/// Reads JSON Lines.
pub(crate) struct JsonLines<R> {
    lines: LineReader<R>,
}

impl<R: BufRead> JsonLines<R> {
    /// Reads `input`.
    pub fn new(input: R, options: &Options) -> JsonLines<R> {
        let line_max_bytes = options.line_max_bytes.unwrap_or(LINE_MAX_BYTES);
        JsonLines {
            lines: LineReader::new(input, line_max_bytes),
        }
    }
}

impl<R: BufRead> Iterator for JsonLines<R> {
    type Item = io::Result<Event>;

    fn next(&mut self) -> Option<io::Result<Event>> {
        loop {
            let line = match self.lines.next_line().transpose()? {
                Ok(Ok(line)) if line.trim_ascii().is_empty() => continue,
                Ok(Ok(line)) => parse_line(line),
                Ok(Err(refusal)) => return Some(Ok(Event::Refused(refusal))),
                Err(error) => return Some(Err(error)),
            };
            let line_number = self.lines.line_number();
            let at = |column| Position {
                line: line_number,
                column,
            };
            return Some(Ok(match line {
                Ok((column, item)) => Event::Item {
                    at: at(column),
                    item,
                },
                Err((column, message)) => Event::Refused(Refusal {
                    at: at(column),
                    message,
                }),
            }));
        }
    }
}

/// Parses a line into the column where its object starts and what it says, or refuses it with
/// the column and the reason.
fn parse_line(line: &[u8]) -> Result<(u64, Item), (u64, String)> {
    let start = line.len() - line.trim_ascii_start().len();
    let column = column_of(line, start);
    match serde_json::from_slice::<Object<Line>>(line) {
        Ok(Object(line)) => match line.into_item() {
            Ok(item) => Ok((column, item)),
            Err(message) => Err((column, message)),
        },
        Err(error) => Err(explain(line, &error)),
    }
}

/// The column and the reason of a refusal by the JSON parser, which counts bytes up to and
/// including the offending one.
fn explain(line: &[u8], error: &serde_json::Error) -> (u64, String) {
    let mut message = error.to_string();
    message.truncate(message.rfind(" at line ").unwrap_or(message.len()));
    if error.is_eof() {
        message.push_str("; an object has to end on the line it starts on");
        return (column_of(line, line.len()), message);
    }
    (
        column_of(line, token_start(line, error.column(), &message)),
        message,
    )
}

/// Where the token starts that was refused when `read` bytes had been read: fields, strings and
/// numbers are refused after their last byte, arrays and objects before their first.
fn token_start(line: &[u8], read: usize, message: &str) -> usize {
    if message.starts_with("invalid type: sequence") || message.starts_with("invalid type: map") {
        return read;
    }
    let offset = read.saturating_sub(1);
    let is_scalar = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    if message.starts_with("invalid type") && line.get(offset).is_some_and(is_scalar) {
        return line[..offset]
            .iter()
            .rposition(|byte| !is_scalar(byte))
            .map_or(0, |at| at + 1);
    }
    // Whether a quote opens or closes a string is known only from the start of the line.
    let mut opened = None;
    let mut escaped = false;
    for (at, byte) in line.iter().enumerate().take(offset + 1) {
        match (byte, opened) {
            (b'"', None) => opened = Some(at),
            (b'"', Some(start)) if !escaped => {
                if at == offset {
                    return start;
                }
                opened = None;
            }
            _ => {}
        }
        escaped = opened.is_some() && *byte == b'\\' && !escaped;
    }
    offset
}

/// One line. Exactly one of `block`, `edge` and a key with its value.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default, deserialize_with = "present")]
    block: Option<Object<BlockFields>>,
    #[serde(default, deserialize_with = "present")]
    edge: Option<Object<EdgeFields>>,
    #[serde(default, deserialize_with = "present")]
    key: Option<String>,
    #[serde(default, deserialize_with = "present")]
    key_base64: Option<Base64>,
    #[serde(default, deserialize_with = "present")]
    value: Option<String>,
    #[serde(default, deserialize_with = "present")]
    value_base64: Option<Base64>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct BlockFields {
    #[serde(default, deserialize_with = "present")]
    id: Option<Id>,
    #[serde(default, deserialize_with = "present")]
    name: Option<Name>,
    #[serde(default, deserialize_with = "present")]
    kind: Option<Kind>,
    #[serde(default, deserialize_with = "present")]
    kinds: Option<Vec<Kind>>,
    #[serde(default, deserialize_with = "present")]
    content: Option<String>,
    #[serde(default, deserialize_with = "present")]
    content_base64: Option<Base64>,
    #[serde(default, deserialize_with = "attributes")]
    attributes: Attributes,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct EdgeFields {
    source: Reference,
    kind: Kind,
    target: Reference,
    #[serde(default, deserialize_with = "attributes")]
    attributes: Attributes,
}

impl Line {
    fn into_item(self) -> Result<Item, String> {
        let key = either("key", self.key, self.key_base64)?;
        let value = either("value", self.value, self.value_base64)?;
        match (self.block, self.edge, key, value) {
            (Some(Object(block)), None, None, None) => block.into_block().map(Item::Block),
            (None, Some(Object(edge)), None, None) => Ok(Item::Edge(Edge {
                source: edge.source.0,
                kind: edge.kind.0,
                target: edge.target.0,
                attributes: edge.attributes,
            })),
            (None, None, Some(key), Some(_)) if key.is_empty() => {
                Err("the key is empty".to_owned())
            }
            (None, None, Some(key), Some(value)) => Ok(Item::KeyValue(KeyValue { key, value })),
            (None, None, Some(_), None) => Err("the key has no value".to_owned()),
            (None, None, None, Some(_)) => Err("the value has no key".to_owned()),
            (None, None, None, None) => {
                Err("nothing to import: expected `block`, `edge`, or `key` and `value`".to_owned())
            }
            _ => Err(
                "several things on one line: expected one of `block`, `edge`, or `key` and \
                      `value`"
                    .to_owned(),
            ),
        }
    }
}

impl BlockFields {
    fn into_block(self) -> Result<Block, String> {
        let mut attributes = self.attributes;
        let block = match (self.id, self.name) {
            (Some(id), None) => BlockRef::Id(id.0),
            (None, Some(name)) => {
                attributes
                    .entry(NAME_ATTRIBUTE.to_owned())
                    .or_insert_with(|| name.0.as_str().into());
                BlockRef::Name(name.0)
            }
            (Some(_), Some(_)) => {
                return Err(
                    "a block has an `id` or a `name`, not both; a name beside an id goes \
                            into the attributes"
                        .to_owned(),
                );
            }
            (None, None) => return Err("the block has neither `id` nor `name`".to_owned()),
        };
        let kinds = kinds(self.kind, self.kinds)?;
        let content = either("content", self.content, self.content_base64)?.unwrap_or_default();
        Ok(Block {
            block,
            kinds,
            content,
            attributes,
            if_absent: false,
        })
    }
}

/// The kinds of a block: one, or a list with each once.
fn kinds(kind: Option<Kind>, kinds: Option<Vec<Kind>>) -> Result<BlockKinds, String> {
    let listed = match (kind, kinds) {
        (Some(kind), None) => return Ok(kind.0.into()),
        (None, Some(kinds)) => kinds,
        (Some(_), Some(_)) => {
            return Err("a block has a `kind` or `kinds`, not both".to_owned());
        }
        (None, None) => {
            return Err(
                "the block has neither `kind` nor `kinds`; one of no kind has `\"kinds\": []`"
                    .to_owned(),
            );
        }
    };
    let mut kinds = BlockKinds::none();
    for Kind(kind) in listed {
        if kinds.contains(&kind) {
            return Err(format!("the kind {kind:?} is listed twice"));
        }
        kinds.insert(kind);
    }
    Ok(kinds)
}

/// A field as text or as Base64, not both.
fn either(
    name: &str,
    text: Option<String>,
    base64: Option<Base64>,
) -> Result<Option<Vec<u8>>, String> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(format!("`{name}` and `{name}_base64` on one line")),
        (Some(text), None) => Ok(Some(text.into_bytes())),
        (None, Some(base64)) => Ok(Some(base64.0)),
        (None, None) => Ok(None),
    }
}

/// Reads a field that is there. A plain `Option` would take `null` for absent.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A structure read from an object only. What `serde` derives takes an array of its fields too.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<T>, D::Error> {
        struct Map<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Map<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(Map(PhantomData))
    }
}

/// Declares a type that is read from a JSON string through a check. The check runs inside the
/// visitor, so that the parser reports its refusal where the string stands.
macro_rules! checked_string {
    ($(#[$doc:meta])* $name:ident($inner:ty), $check:expr) => {
        $(#[$doc])*
        struct $name($inner);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                let check: fn(&str) -> Result<$inner, String> = $check;
                deserializer.deserialize_str(Checked(check)).map($name)
            }
        }
    };
}

/// Reads a string and what the check makes of it.
struct Checked<T>(fn(&str) -> Result<T, String>);

impl<T> Visitor<'_> for Checked<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).map_err(E::custom)
    }
}

checked_string! {
    /// Bytes in Base64, standard alphabet, padded.
    Base64(Vec<u8>), |text| {
        STANDARD.decode(text).map_err(|error| format!("not Base64: {error}"))
    }
}

checked_string! {
    /// A block's id.
    Id(u128), |text| {
        parse_uuid(text).ok_or_else(|| {
            format!("{text:?} is not an id: expected a UUID; a name goes into `name`")
        })
    }
}

checked_string! {
    /// A block's name, which must not look like an id: edges could never refer to it.
    Name(String), |text| match BlockRef::parse(text) {
        BlockRef::Id(_) => Err("the name has the form of an id: put it into `id`".to_owned()),
        BlockRef::Name(name) if name.is_empty() => Err("the name is empty".to_owned()),
        BlockRef::Name(name) => Ok(name),
    }
}

checked_string! {
    /// An edge's end, by id or name.
    Reference(BlockRef), |text| {
        if text.is_empty() {
            return Err("the reference is empty: expected an id or a name".to_owned());
        }
        Ok(BlockRef::parse(text))
    }
}

checked_string! {
    /// A kind.
    Kind(String), |text| check_kind(text).map(|()| text.to_owned())
}

/// Reads attributes and refuses one that is given twice.
fn attributes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Attributes, D::Error> {
    struct Map;

    impl<'de> Visitor<'de> for Map {
        type Value = Attributes;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Attributes, A::Error> {
            let mut attributes = Attributes::new();
            while let Some(key) = map.next_key::<String>()? {
                if attributes.contains_key(&key) {
                    return Err(A::Error::custom(format_args!("duplicate field `{key}`")));
                }
                let Read(value) = map.next_value()?;
                attributes.insert(key, value);
            }
            Ok(attributes)
        }
    }

    deserializer.deserialize_map(Map)
}

#[cfg(test)]
#[path = "json_lines_tests.rs"]
mod tests;
