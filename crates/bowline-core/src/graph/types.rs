//! What a user puts into the graph and asks of it: blocks, edges, kinds, directions.

use std::collections::BTreeMap;

use super::id::BlockId;

/// Named texts on a block or an edge, in the order of their names.
pub type Attributes = BTreeMap<String, String>;

/// A node of the graph: content with an id, a kind and attributes.
///
/// ```
/// use bowline::{Block, BlockId};
///
/// let block = Block::new(BlockId::from_name("svc/billing"), "service")
///     .content("owner: payments")
///     .attribute("tier", "1");
/// assert_eq!(block.attributes["tier"], "1");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// Its id, unique in the database.
    pub id: BlockId,
    /// The name of its kind.
    pub kind: String,
    /// Any bytes.
    pub content: Vec<u8>,
    /// Its attributes.
    pub attributes: Attributes,
}

impl Block {
    /// A block without content and attributes.
    #[must_use]
    pub fn new(id: BlockId, kind: impl Into<String>) -> Block {
        Block {
            id,
            kind: kind.into(),
            content: Vec::new(),
            attributes: Attributes::new(),
        }
    }

    /// Replaces the content.
    #[must_use]
    pub fn content(mut self, content: impl Into<Vec<u8>>) -> Block {
        self.content = content.into();
        self
    }

    /// Adds or replaces one attribute.
    #[must_use]
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> Block {
        self.attributes.insert(name.into(), value.into());
        self
    }
}

/// A directed tie between two blocks. Source, kind and target together are its identity: two
/// blocks may be tied by several edges of different kinds, and a block may be tied to itself.
///
/// ```
/// use bowline::{BlockId, Edge};
///
/// let (billing, ledger) = (BlockId::from_name("svc/billing"), BlockId::from_name("svc/ledger"));
/// let edge = Edge::new(billing, "calls", ledger).attribute("weight", "2.5");
/// assert_eq!(edge.target, ledger);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edge {
    /// Where it starts.
    pub source: BlockId,
    /// The name of its kind.
    pub kind: String,
    /// Where it ends.
    pub target: BlockId,
    /// Its attributes.
    pub attributes: Attributes,
}

impl Edge {
    /// An edge without attributes.
    #[must_use]
    pub fn new(source: BlockId, kind: impl Into<String>, target: BlockId) -> Edge {
        Edge {
            source,
            kind: kind.into(),
            target,
            attributes: Attributes::new(),
        }
    }

    /// Adds or replaces one attribute.
    #[must_use]
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> Edge {
        self.attributes.insert(name.into(), value.into());
        self
    }
}

/// The number a kind's name is registered under; keys and records carry it instead of the name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KindId(pub u32);

/// Which edges of a block are followed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Direction {
    /// From source to target.
    #[default]
    Out,
    /// From target to source.
    In,
    /// Either way.
    Both,
}

impl Direction {
    /// The direction that leads back.
    #[must_use]
    pub fn reversed(self) -> Direction {
        match self {
            Direction::Out => Direction::In,
            Direction::In => Direction::Out,
            Direction::Both => Direction::Both,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constructors_fill_what_is_named_and_nothing_else() {
        let block = Block::new(BlockId(1), "service");
        assert_eq!((block.content.len(), block.attributes.len()), (0, 0));
        let block = block
            .content(*b"text")
            .attribute("a", "1")
            .attribute("a", "2");
        assert_eq!(block.content, b"text");
        assert_eq!(
            block.attributes,
            Attributes::from([("a".into(), "2".into())])
        );

        let edge = Edge::new(BlockId(1), "calls", BlockId(2)).attribute("w", "3");
        assert_eq!((edge.source, edge.target), (BlockId(1), BlockId(2)));
        assert_eq!(
            edge.attributes,
            Attributes::from([("w".into(), "3".into())])
        );
    }

    #[test]
    fn reversing_twice_changes_nothing() {
        for direction in [Direction::Out, Direction::In, Direction::Both] {
            assert_eq!(direction.reversed().reversed(), direction);
        }
        assert_eq!(Direction::Out.reversed(), Direction::In);
    }
}
