//! The items of a file, and how they name blocks and places.

use std::fmt;

pub use bowline_types::Attributes;
use bowline_types::BlockKinds;

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
    /// Its kinds.
    pub kinds: BlockKinds,
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
                .map(|(key, value)| key.len() + value.size_bytes() + 96)
                .sum()
        };
        size_of::<Item>()
            + match self {
                Item::Block(block) => {
                    block.block.size_bytes()
                        + block
                            .kinds
                            .iter()
                            .map(|kind| kind.len() + 24)
                            .sum::<usize>()
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
    /// `edge_list::LINE_MAX_BYTES` or `json_lines::LINE_MAX_BYTES`.
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

/// What to call a block in front of people: its `label` or `name`, whichever of these attributes
/// it has, and else how it is referred to. For every block imported by name it is that name,
/// which the commands take, unless the file chose these attributes itself.
#[must_use]
pub fn label(block: &BlockRef, attributes: &Attributes) -> String {
    let get = |key: &str| {
        let shown = attributes.get(key).map(ToString::to_string);
        shown.filter(|text| !text.is_empty())
    };
    get(LABEL_ATTRIBUTE)
        .or_else(|| get(NAME_ATTRIBUTE))
        .unwrap_or_else(|| block.to_string())
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
pub(super) fn check_kind(kind: &str) -> Result<(), String> {
    if kind.is_empty() || kind.len() > KIND_SIZE_MAX_BYTES {
        return Err(format!(
            "a kind has 1 to {KIND_SIZE_MAX_BYTES} bytes, this one has {}",
            kind.len()
        ));
    }
    Ok(())
}
