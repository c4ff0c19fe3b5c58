//! The keys of a history, and how the numbers of the checker are stored in them.
//!
//! | key | in the database | holds |
//! |---|---|---|
//! | `r/03` | a key | the number of a write, and padding |
//! | `l/3.002` | a key | the numbers of its appends, with a comma before the first or not; full after a while, then `l/3.003` comes |
//! | `m/5` | a key | what process 5 wrote last; every writing transaction has one |
//! | `b/2` | block 2 | the number of a write, as content |
//! | `e/2/4` | the edge from 2 to 4 | the number of a write, as attribute |

use bowline::{Block, BlockId, Edge, Entry};
use bowline_testing::isolation::{Seen, Version};

/// Blocks have the ids from 1 to this.
pub const BLOCKS: u128 = 4;
/// The kind of all edges.
pub const KIND: &str = "to";
const ATTRIBUTE: &str = "v";

pub const ABSENT: Seen = Seen {
    version: Version::Absent,
    revision: None,
};

pub fn is_list(key: &str) -> bool {
    key.starts_with("l/")
}

pub fn register(number: u64) -> String {
    format!("r/{number:02}")
}

pub fn block_key(id: u128) -> String {
    format!("b/{id}")
}

pub fn edge_key(source: u128, target: u128) -> String {
    format!("e/{source}/{target}")
}

pub fn value_bytes(number: u64, padding: usize) -> Vec<u8> {
    format!("{number}{:_>padding$}", "").into_bytes()
}

pub fn list_bytes(items: &[u64]) -> Vec<u8> {
    let items: Vec<_> = items.iter().map(u64::to_string).collect();
    items.join(",").into_bytes()
}

fn number(text: &str) -> u64 {
    let digits = text.trim_end_matches('_');
    digits.parse().unwrap_or_else(|_| panic!("torn: {text:?}"))
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).expect("it was written as text")
}

/// What an entry shows. Revision 0 is that of an own write, which has none yet.
pub fn seen_entry(key: &str, entry: Option<&Entry>) -> Seen {
    let Some(entry) = entry else {
        return ABSENT;
    };
    let revision = (entry.mod_revision > 0).then_some(entry.mod_revision.get());
    Seen {
        revision,
        ..seen_bytes(key, &entry.value)
    }
}

/// What a value shows.
pub fn seen_bytes(key: &str, bytes: &[u8]) -> Seen {
    let text = text(bytes);
    let version = if is_list(key) {
        // The first of a list may have come by an update, which does not know that it is the first.
        let items = text.strip_prefix(',').unwrap_or(text);
        Version::List(items.split(',').map(number).collect())
    } else {
        Version::Value(number(text))
    };
    Seen {
        version,
        revision: None,
    }
}

pub fn block(id: u128, value: u64) -> Block {
    Block::new(BlockId(id), "node").content(value_bytes(value, 40))
}

pub fn seen_block(block: Option<&Block>) -> Seen {
    block.map_or(ABSENT, |block| seen_bytes("b", &block.content))
}

pub fn edge(source: u128, target: u128, value: u64) -> Edge {
    let edge = Edge::new(BlockId(source), KIND, BlockId(target));
    edge.attribute(ATTRIBUTE, value.to_string())
}

pub fn seen_edge(edge: Option<&Edge>) -> Seen {
    edge.map_or(ABSENT, |edge| {
        let text = edge.attributes[ATTRIBUTE].as_text();
        seen_bytes("e", text.expect("a text").as_bytes())
    })
}
