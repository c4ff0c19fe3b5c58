//! Bowline's JSON Lines, as [`import::json_lines`](crate::import::json_lines) reads them.
//!
//! Whatever is written is read back as the same items, byte for byte: text where it is UTF-8,
//! Base64 where it is not. What a terminal would obey is escaped ([`bowline::text`]). Fields that are empty are left out where leaving them out means empty.
//! Write blocks before the edges between them; an import puts them in the order of the file.

use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bowline::text;
use serde::Serialize;

use super::ItemWriter;
use crate::import::AttributesJson;
use crate::import::{Attributes, BlockRef, Item};

/// Writes JSON Lines.
pub(crate) struct JsonLinesWriter<W> {
    out: W,
}

impl<W: Write> JsonLinesWriter<W> {
    /// Writes onto `out`, which should be buffered.
    pub fn new(out: W) -> JsonLinesWriter<W> {
        JsonLinesWriter { out }
    }
}

impl<W: Write> ItemWriter for JsonLinesWriter<W> {
    fn item(&mut self, item: &Item) -> io::Result<()> {
        let line = match item {
            Item::KeyValue(pair) => {
                let (key, key_base64) = text_or_base64(&pair.key);
                let (value, value_base64) = text_or_base64(&pair.value);
                Line::KeyValue(KeyValueFields {
                    key,
                    key_base64,
                    value,
                    value_base64,
                })
            }
            Item::Block(block) => {
                let (id, name) = match &block.block {
                    BlockRef::Id(_) => (Some(block.block.to_string()), None),
                    BlockRef::Name(name) => (None, Some(name.as_str())),
                };
                let (content, content_base64) = text_or_base64(&block.content);
                let content = content.filter(|text| !text.is_empty());
                let kind = block.kinds.only();
                let kinds = kind.is_none().then_some(&block.kinds[..]);
                let attributes = some(&block.attributes);
                Line::Block(BlockFields {
                    id,
                    name,
                    kind,
                    kinds,
                    content,
                    content_base64,
                    attributes,
                })
            }
            Item::Edge(edge) => Line::Edge(EdgeFields {
                source: edge.source.to_string(),
                kind: &edge.kind,
                target: edge.target.to_string(),
                attributes: some(&edge.attributes),
            }),
        };
        let json = serde_json::to_string(&line)?;
        self.out.write_all(text::in_json(&json).as_bytes())?;
        self.out.write_all(b"\n")
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// One line.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Line<'a> {
    Block(BlockFields<'a>),
    Edge(EdgeFields<'a>),
    #[serde(untagged)]
    KeyValue(KeyValueFields<'a>),
}

#[derive(Serialize)]
struct KeyValueFields<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
}

#[derive(Serialize)]
struct BlockFields<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kinds: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<AttributesJson<'a>>,
}

#[derive(Serialize)]
struct EdgeFields<'a> {
    source: String,
    kind: &'a str,
    target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<AttributesJson<'a>>,
}

/// Attributes, if there are any.
fn some(attributes: &Attributes) -> Option<AttributesJson<'_>> {
    (!attributes.is_empty()).then_some(AttributesJson(attributes))
}

/// Bytes as text if they are UTF-8, as Base64 if not.
fn text_or_base64(bytes: &[u8]) -> (Option<&str>, Option<String>) {
    match str::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline::{AttributeValue, BlockKinds};

    use crate::import::{self, Block, Edge, Event, Format, KeyValue, Options};

    fn written(items: &[Item]) -> String {
        let mut out = Vec::new();
        let mut writer = JsonLinesWriter::new(&mut out);
        let all = items.iter().cloned().map(Ok::<Item, io::Error>);
        assert_eq!(
            super::super::write_all(&mut writer, all).unwrap(),
            items.len() as u64
        );
        String::from_utf8(out).expect("JSON is UTF-8")
    }

    fn read(file: &str) -> Vec<Item> {
        let item = |event: io::Result<Event>| match event {
            Ok(Event::Item { item, .. }) => item,
            other => panic!("{other:?}"),
        };
        import::read(file.as_bytes(), Format::JsonLines, &Options::default())
            .map(item)
            .collect()
    }

    #[test]
    fn the_form_is_the_documented_one() {
        let block = Block {
            block: BlockRef::Id(1),
            kinds: "file".into(),
            content: b"\xFF".to_vec(),
            attributes: Attributes::from([("a".into(), "é".into())]),
            if_absent: false,
        };
        let edge = Edge {
            source: BlockRef::Id(1),
            kind: "in".into(),
            target: BlockRef::Name("top".into()),
            attributes: Attributes::new(),
        };
        let pair = KeyValue {
            key: b"k".to_vec(),
            value: vec![],
        };
        assert_eq!(
            written(&[Item::KeyValue(pair), Item::Block(block), Item::Edge(edge)]),
            "{\"key\":\"k\",\"value\":\"\"}\n\
             {\"block\":{\"id\":\"00000000-0000-0000-0000-000000000001\",\"kind\":\"file\",\
             \"content_base64\":\"/w==\",\"attributes\":{\"a\":\"é\"}}}\n\
             {\"edge\":{\"source\":\"00000000-0000-0000-0000-000000000001\",\"kind\":\"in\",\
             \"target\":\"top\"}}\n"
        );
    }

    /// Bytes that are sometimes text, sometimes not, sometimes empty.
    fn some_bytes(random: &mut fastrand::Rng) -> Vec<u8> {
        let length = random.usize(0..20);
        if random.bool() {
            (0..length).map(|_| random.u8(..)).collect()
        } else {
            some_text(random).into_bytes()
        }
    }

    fn some_text(random: &mut fastrand::Rng) -> String {
        (0..random.usize(0..8)).map(|_| random.char(..)).collect()
    }

    /// A value of any type.
    fn some_value(random: &mut fastrand::Rng, depth: u32) -> AttributeValue {
        match random.u8(..if depth == 0 { 8 } else { 10 }) {
            0 => AttributeValue::Null,
            1 => random.bool().into(),
            2 => random.i64(..).into(),
            3 => f64::from_bits(random.u64(..)).into(),
            4 => AttributeValue::Bytes(some_text(random).into_bytes().into()),
            5 => AttributeValue::Date("2026-11-29".parse().expect("a date")),
            8 => AttributeValue::List(
                (0..random.usize(..3))
                    .map(|_| some_value(random, depth - 1))
                    .collect(),
            ),
            9 => AttributeValue::Map(
                (0..random.usize(..3))
                    .map(|_| (some_text(random), some_value(random, depth - 1)))
                    .collect(),
            ),
            _ => some_text(random).into(),
        }
    }

    #[test]
    fn what_is_written_is_read_back_whatever_it_holds() {
        let mut random = fastrand::Rng::with_seed(20);
        let mut items = Vec::new();
        for number in 0..2_000_u32 {
            let mut attributes = Attributes::new();
            for _ in 0..random.usize(0..3) {
                attributes.insert(some_text(&mut random), some_value(&mut random, 3));
            }
            let kind = format!("k{}", some_text(&mut random));
            let kinds = match random.u8(..4) {
                0 => BlockKinds::none(),
                1 => BlockKinds::from([kind.clone(), format!("l{}", some_text(&mut random))]),
                _ => kind.clone().into(),
            };
            items.push(match number % 3 {
                0 => {
                    let mut key = some_bytes(&mut random);
                    key.push(0);
                    Item::KeyValue(KeyValue {
                        key,
                        value: some_bytes(&mut random),
                    })
                }
                1 => Item::Block(Block {
                    block: BlockRef::Id(random.u128(..)),
                    kinds,
                    content: some_bytes(&mut random),
                    attributes,
                    if_absent: false,
                }),
                _ => Item::Edge(Edge {
                    source: BlockRef::Id(random.u128(..)),
                    kind,
                    target: BlockRef::Name(format!("n{}", some_text(&mut random))),
                    attributes,
                }),
            });
        }
        let file = written(&items);
        assert_eq!(file.lines().count(), items.len(), "one line each");
        assert_eq!(read(&file), items);
    }

    /// A line of more than 64 MiB was refused: 11 MiB of zero bytes, each of which is written as `\u0000`, were lost.
    #[test]
    fn the_longest_line_of_an_export_is_taken() {
        // What a database takes of a value and a key, and what stands beside them.
        let limits = bowline::Limits::default();
        let names_bytes = 6 * (usize::try_from(limits.key_size_max_bytes).unwrap() + 64 * 256);
        let value_bytes = usize::try_from(limits.value_size_max_bytes).unwrap();
        let key_value = |byte: u8, count| {
            let (key, value) = (b"k".to_vec(), vec![byte; count]);
            Item::KeyValue(KeyValue { key, value })
        };
        let edge = |value: AttributeValue, count| {
            let list = AttributeValue::List(vec![value; count]);
            Item::Edge(Edge {
                source: BlockRef::Id(1),
                kind: "in".to_owned(),
                target: BlockRef::Id(2),
                attributes: Attributes::from([("a".into(), list)]),
            })
        };
        let long_time = AttributeValue::LocalTime("00:00:00.000000127".parse().expect("a time"));
        let dearest: [(&dyn Fn(usize) -> Item, usize); 4] = [
            (&|count| key_value(0, count), 1),
            (&|count| key_value(0xFF, count), 1),
            (&|count| edge(AttributeValue::Null, count), 1),
            // A tag, and a number that takes one byte.
            (&|count| edge(long_time.clone(), count), 2),
        ];
        for (item, stored_bytes) in dearest {
            let [few, many] = [1, 3_001].map(|count| written(&[item(count)]).len());
            let longest = (many - few).div_ceil(3_000) * value_bytes / stored_bytes + names_bytes;
            let limit = import::json_lines::LINE_MAX_BYTES;
            assert!(longest <= limit, "{longest} bytes: {}", written(&[item(1)]));
        }
    }

    #[test]
    fn a_block_by_name_reads_back_with_its_name_and_kinds() {
        for kinds in ["\"kind\":\"k\"", "\"kinds\":[]", "\"kinds\":[\"k\",\"l\"]"] {
            let line = format!(
                "{{\"block\":{{\"name\":\"a\",{kinds},\"attributes\":{{\"name\":\"a\"}}}}}}\n"
            );
            assert_eq!(written(&read(&line)), line);
        }
    }

    #[test]
    fn an_error_of_the_source_stops_the_export() {
        let mut out = Vec::new();
        let items = [Err(io::Error::other("the snapshot is gone"))];
        let result = super::super::write_all(&mut JsonLinesWriter::new(&mut out), items);
        assert_eq!(result.unwrap_err().to_string(), "the snapshot is gone");
    }
}
