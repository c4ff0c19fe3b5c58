//! Reading graphs and key-values from files, without the database.
//!
//! Three formats become one stream of [`Event`]s, in the order of the file:
//!
//! ```text
//!   Cargo.lock ──▶ cargo_lock ─┐
//!   edge list  ──▶ edge_list  ─┼──▶ Event::Item { at, item }     to be written
//!   JSON Lines ──▶ json_lines ─┘    Event::Refused(Refusal)      to be counted and shown
//! ```
//!
//! Invariants, whatever the bytes:
//!
//! * A malformed part gives one [`Refusal`] with its line and column, and reading goes on after
//!   it. Only a failing reader ends the stream early, with its `io::Error`.
//! * Memory does not grow with the file. Edge lists and JSON Lines hold one line (bounded, see
//!   [`Options::line_max_bytes`]) and what it says; `Cargo.lock` is read whole, up to
//!   [`cargo_lock::SIZE_MAX_BYTES`].
//! * The same file gives the same items, so importing it twice changes nothing: a block's id
//!   follows from its name, and blocks that an edge list only mentions are marked
//!   [`Block::if_absent`].
//!
//! Lines and columns count from 1; a column counts characters, as editors do.

pub mod cargo_lock;
mod detect;
pub mod edge_list;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod json_lines;
mod lines;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead};

pub use detect::{DetectError, detect};

/// Attributes of a block or an edge.
pub type Attributes = BTreeMap<String, String>;

/// The attribute that keeps the name a block was given. Ids are hashes of names, so without it a
/// name could not be shown again.
pub const NAME_ATTRIBUTE: &str = "name";

/// The attribute that shows a block under another text than its `name`, which a format may need
/// for something else: the `name` of a package is not the name of its block.
pub const LABEL_ATTRIBUTE: &str = "label";

/// The longest name of a kind, in bytes. The database refuses longer ones too; checking here
/// gives the line and column.
pub const KIND_SIZE_MAX_BYTES: usize = 256;

/// The format of a file to import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A `Cargo.lock`.
    CargoLock,
    /// Two ids per line, as SNAP publishes.
    EdgeList,
    /// Bowline's own JSON Lines.
    JsonLines,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::CargoLock => "cargo-lock",
            Format::EdgeList => "edge-list",
            Format::JsonLines => "jsonl",
        })
    }
}

/// Where in a file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The line.
    pub line: u64,
    /// The column, in characters.
    pub column: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A part of a file that is not imported, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Where it starts.
    pub at: Position,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {}, column {}: {}",
            self.at.line, self.at.column, self.message
        )
    }
}

/// How a file or a user refers to a block.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockRef {
    /// By its id.
    Id(u128),
    /// By its name; the id is the hash of it.
    Name(String),
}

impl BlockRef {
    /// Reads `text` as an id if it has a UUID's form (`8-4-4-4-12` hexadecimal digits), and as a
    /// name otherwise.
    #[must_use]
    pub fn parse(text: &str) -> BlockRef {
        match parse_uuid(text) {
            Some(id) => BlockRef::Id(id),
            None => BlockRef::Name(text.to_owned()),
        }
    }

    /// Bytes it holds on the heap.
    fn size_bytes(&self) -> usize {
        match self {
            BlockRef::Id(_) => 0,
            BlockRef::Name(name) => name.len(),
        }
    }
}

impl fmt::Display for BlockRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlockRef::Id(id) => f.write_str(&show_uuid(*id)),
            BlockRef::Name(name) => f.write_str(name),
        }
    }
}

/// A block to put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Which block.
    pub block: BlockRef,
    /// Its kind.
    pub kind: String,
    /// Its content.
    pub content: Vec<u8>,
    /// Its attributes. A block given by name has it here too, under [`NAME_ATTRIBUTE`] or
    /// [`LABEL_ATTRIBUTE`].
    pub attributes: Attributes,
    /// Whether the file only mentions the block: put it if no such block exists, and leave an
    /// existing one as it is.
    pub if_absent: bool,
}

/// An edge to put. Both of its blocks must exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// The block it leaves.
    pub source: BlockRef,
    /// Its kind.
    pub kind: String,
    /// The block it enters.
    pub target: BlockRef,
    /// Its attributes.
    pub attributes: Attributes,
}

/// A key and its value to put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The key, at least one byte.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

/// One thing to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A block.
    Block(Block),
    /// An edge.
    Edge(Edge),
    /// A key and its value.
    KeyValue(KeyValue),
}

impl Item {
    /// About how many bytes it takes in memory, so that a batch can be bounded by size as well
    /// as by count.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let attributes = |map: &Attributes| -> usize {
            // Two `String`s and their share of a tree node.
            map.iter()
                .map(|(key, value)| key.len() + value.len() + 64)
                .sum()
        };
        size_of::<Item>()
            + match self {
                Item::Block(block) => {
                    block.block.size_bytes()
                        + block.kind.len()
                        + block.content.len()
                        + attributes(&block.attributes)
                }
                Item::Edge(edge) => {
                    edge.source.size_bytes()
                        + edge.kind.len()
                        + edge.target.size_bytes()
                        + attributes(&edge.attributes)
                }
                Item::KeyValue(pair) => pair.key.len() + pair.value.len(),
            }
    }
}

/// One step through a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Something to write.
    Item {
        /// Where it stands, for the case that the database refuses it.
        at: Position,
        /// What to write.
        item: Item,
    },
    /// Something malformed. Reading goes on.
    Refused(Refusal),
}

/// The steps through a file. After an `Err` there are no more.
pub type Events<'a> = Box<dyn Iterator<Item = io::Result<Event>> + 'a>;

/// What may be chosen about reading a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The kind of blocks, where the file does not say it; `None` for the format's own:
    /// `package` or `node`.
    pub block_kind: Option<String>,
    /// The kind of edges, where the file does not say it; `None` for the format's own:
    /// `depends_on` or `links`.
    pub edge_kind: Option<String>,
    /// The attribute that takes an edge list's third column. A column called `weight` has to be
    /// a finite number; any other is taken as it is.
    pub third_column: String,
    /// How many lines of an edge list to skip at its start, such as a header.
    pub skip_lines: u64,
    /// The longest line taken, in bytes; `None` for the format's own:
    /// [`edge_list::LINE_MAX_BYTES`] or [`json_lines::LINE_MAX_BYTES`].
    pub line_max_bytes: Option<usize>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            block_kind: None,
            edge_kind: None,
            third_column: "weight".to_owned(),
            skip_lines: 0,
            line_max_bytes: None,
        }
    }
}

/// Reads `input` as `format`.
///
/// ```
/// use bowline_cli::import::{self, Event, Format, Options};
///
/// let file = "# who knows whom\nann bob\nann\n";
/// let events: Vec<Event> = import::read(file.as_bytes(), Format::EdgeList, &Options::default())
///     .collect::<Result<_, _>>()?;
/// // Two blocks and one edge; the last line lacks its target.
/// assert_eq!(events.len(), 4);
/// let Event::Refused(refusal) = &events[3] else { panic!("{events:?}") };
/// assert_eq!(refusal.to_string(), "line 3, column 4: the target is missing: expected two ids");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read<'a>(input: impl BufRead + 'a, format: Format, options: &Options) -> Events<'a> {
    match format {
        Format::CargoLock => match cargo_lock::CargoLock::read(input, options) {
            Ok(events) => Box::new(events.map(Ok)),
            Err(error) => Box::new(std::iter::once(Err(error))),
        },
        Format::EdgeList => Box::new(edge_list::EdgeList::new(input, options)),
        Format::JsonLines => Box::new(json_lines::JsonLines::new(input, options)),
    }
}

/// What to call a block in front of people: its `label` or `name`, whichever of these attributes
/// it has, and else how it is referred to. For every block imported by name it is that name,
/// which the commands take, unless the file chose these attributes itself.
#[must_use]
pub fn label(block: &BlockRef, attributes: &Attributes) -> String {
    let get = |key: &str| attributes.get(key).filter(|text| !text.is_empty());
    get(LABEL_ATTRIBUTE)
        .or_else(|| get(NAME_ATTRIBUTE))
        .map_or_else(|| block.to_string(), Clone::clone)
}

/// Writes an id in a UUID's form.
#[must_use]
pub fn show_uuid(id: u128) -> String {
    let digits = format!("{id:032x}");
    let parts = [
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..],
    ];
    parts.join("-")
}

/// Reads an id in a UUID's form: 8-4-4-4-12 hexadecimal digits in either case, nothing else.
#[must_use]
pub fn parse_uuid(text: &str) -> Option<u128> {
    let bytes = text.as_bytes();
    if bytes.len() != 36 {
        return None;
    }
    let mut id = 0_u128;
    for (index, &byte) in bytes.iter().enumerate() {
        if matches!(index, 8 | 13 | 18 | 23) {
            if byte != b'-' {
                return None;
            }
        } else {
            id = id << 4 | u128::from(char::from(byte).to_digit(16)?);
        }
    }
    Some(id)
}

/// Whether `kind` is a name the database takes.
fn check_kind(kind: &str) -> Result<(), String> {
    if kind.is_empty() || kind.len() > KIND_SIZE_MAX_BYTES {
        return Err(format!(
            "a kind has 1 to {KIND_SIZE_MAX_BYTES} bytes, this one has {}",
            kind.len()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0123abcd-4567-89ef-fedc-ba9876543210";

    #[test]
    fn ids_read_and_write_in_uuid_form() {
        let id = 0x0123_abcd_4567_89ef_fedc_ba98_7654_3210;
        assert_eq!(parse_uuid(UUID), Some(id));
        assert_eq!(parse_uuid(&UUID.to_uppercase()), Some(id));
        assert_eq!(show_uuid(id), UUID);
        assert_eq!(parse_uuid(&show_uuid(0)), Some(0));
        assert_eq!(parse_uuid(&show_uuid(u128::MAX)), Some(u128::MAX));
    }

    #[test]
    fn what_is_not_quite_a_uuid_is_a_name() {
        for text in [
            "",
            "libc",
            "0123abcd456789effedcba9876543210",
            "0123abcd-4567-89ef-fedc-ba987654321",
            "0123abcd-4567-89ef-fedc-ba98765432100",
            "0123abcd+4567-89ef-fedc-ba9876543210",
            "0123abcg-4567-89ef-fedc-ba9876543210",
            "+123abcd-4567-89ef-fedc-ba9876543210",
        ] {
            assert_eq!(BlockRef::parse(text), BlockRef::Name(text.to_owned()));
        }
        assert!(matches!(BlockRef::parse(UUID), BlockRef::Id(_)));
    }

    #[test]
    fn size_counts_what_is_on_the_heap() {
        let small = Item::KeyValue(KeyValue {
            key: vec![0; 10],
            value: vec![],
        });
        let large = Item::KeyValue(KeyValue {
            key: vec![0; 10],
            value: vec![0; 5000],
        });
        assert_eq!(large.size_bytes() - small.size_bytes(), 5000);
    }

    #[test]
    fn labels_prefer_what_people_chose() {
        let block = BlockRef::parse(UUID);
        let mut attributes = Attributes::new();
        let mut put = |key: &str, value: &str| {
            attributes.insert(key.to_owned(), value.to_owned());
            label(&block, &attributes)
        };
        assert_eq!(put("version", "1.0.0"), UUID);
        assert_eq!(put("name", ""), UUID);
        assert_eq!(put("name", "libc"), "libc");
        assert_eq!(put("label", "libc@1.0.0"), "libc@1.0.0");
    }

    /// Whatever the bytes are: no panic, an end, and positions within the file.
    #[test]
    fn garbage_never_panics_and_is_refused_at_places_that_exist() {
        let mut random = fastrand::Rng::with_seed(0x00B0_1111);
        // Pieces that lead deep into each parser, with noise between them.
        let pieces: &[&[u8]] = &[
            b"{\"block\":{\"id\":\"0123abcd-4567-89ef-fedc-ba9876543210\",\"kind\":\"k\"}}",
            b"{\"edge\":{\"source\":\"a\",\"kind\":\"k\",\"target\":\"b\",\"attributes\":{\"a\":\"b\"}}}",
            b"{\"key\":\"\\ud800\",\"value\":\"b\"}",
            b"\"block\"",
            b"[[package]]\n",
            b"name = \"a\"\nversion = \"1.0.0\"\n",
            b"dependencies = [\"a\", \"a 1.0.0\"]\n",
            b"version = 4\n",
            b"[metadata]\n",
            b"\n",
            b"\r\n",
            b"\xEF\xBB\xBF",
            b"\xFF\xC3",
            "é".as_bytes(),
            b"1 2\n",
            b"a,b,3\n",
            b",",
            b"\"",
            b"{",
            b"}",
            b"#",
            b"\0",
        ];
        for round in 0..3_000 {
            let mut file = Vec::new();
            for _ in 0..random.usize(0..20) {
                if random.bool() {
                    file.extend_from_slice(pieces[random.usize(0..pieces.len())]);
                } else {
                    for _ in 0..random.usize(0..12) {
                        file.push(random.u8(..));
                    }
                }
            }
            let lines = file.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
            let options = Options {
                line_max_bytes: Some(200),
                ..Options::default()
            };
            for format in [Format::CargoLock, Format::EdgeList, Format::JsonLines] {
                // A tiny buffer, so that every refill happens in the middle of something.
                let input = io::BufReader::with_capacity(1 + round % 7, file.as_slice());
                let mut events = 0_usize;
                for event in read(input, format, &options) {
                    let at = match event.expect("a slice does not fail") {
                        Event::Item { at, .. } => at,
                        Event::Refused(refusal) => refusal.at,
                    };
                    assert!(
                        (1..=lines).contains(&at.line),
                        "{format} {at} of {lines} lines"
                    );
                    assert!(
                        (1..=file.len() as u64 + 1).contains(&at.column),
                        "{format} {at}"
                    );
                    events += 1;
                }
                assert!(events <= file.len() * 3 + 1, "{format}: {events} events");
            }
            let _ = detect(None, &file);
        }
    }

    /// A reader that fails after its first bytes.
    struct Failing(&'static [u8]);

    impl io::Read for Failing {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Err(io::Error::other("the cable is out"));
            }
            io::Read::read(&mut self.0, buffer)
        }
    }

    #[test]
    fn a_failing_reader_ends_the_stream_with_its_error() {
        for format in [Format::CargoLock, Format::EdgeList, Format::JsonLines] {
            let input = io::BufReader::new(Failing(b"a b\nc"));
            let events: Vec<_> = read(input, format, &Options::default()).collect();
            let (last, before) = events.split_last().expect("an error at least");
            assert_eq!(last.as_ref().unwrap_err().to_string(), "the cable is out");
            assert!(before.iter().all(Result::is_ok));
        }
    }
}
