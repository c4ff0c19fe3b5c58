//! Blocks, edges and the writes of both.

use std::fmt;

use bytes::Bytes;

use crate::{AttributeValue, Attributes, BlockId, BlockKinds};

/// A node of the graph: content with an id, kinds and attributes.
///
/// ```
/// use bowline_types::{Block, BlockId};
///
/// let block = Block::new(BlockId::from_name("svc/billing"), "service")
///     .content("10.0.0.7")
///     .attribute("tier", "1");
/// assert_eq!(block.content, "10.0.0.7");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The id; unique in the database.
    pub id: BlockId,
    /// The names of its kinds, such as `service`; most blocks have one.
    pub kinds: BlockKinds,
    /// Any bytes.
    pub content: Bytes,
    /// Named values.
    pub attributes: Attributes,
}

impl Block {
    /// A block without content and attributes.
    ///
    /// ```
    /// # use bowline_types::{Block, BlockId};
    /// let block = Block::new(BlockId::from_name("app"), "package");
    /// assert!(block.content.is_empty() && block.attributes.is_empty());
    /// // Of several kinds.
    /// let block = Block::new(BlockId::from_name("ada"), ["person", "author"]);
    /// assert_eq!(block.kinds.len(), 2);
    /// ```
    #[must_use]
    pub fn new(id: BlockId, kinds: impl Into<BlockKinds>) -> Block {
        Block {
            id,
            kinds: kinds.into(),
            content: Bytes::new(),
            attributes: Attributes::new(),
        }
    }

    /// Adds a kind.
    ///
    /// ```
    /// # use bowline_types::{Block, BlockId};
    /// let block = Block::new(BlockId::from_name("ada"), "person").kind("author");
    /// assert_eq!(block.kinds, ["author", "person"]);
    /// ```
    #[must_use]
    pub fn kind(mut self, kind: impl Into<String>) -> Block {
        self.kinds.insert(kind);
        self
    }

    /// Replaces the content.
    ///
    /// ```
    /// # use bowline_types::{Block, BlockId};
    /// let block = Block::new(BlockId::from_name("readme"), "file").content("# Hello");
    /// assert_eq!(block.content, "# Hello");
    /// ```
    #[must_use]
    pub fn content(mut self, content: impl Into<Vec<u8>>) -> Block {
        self.content = Bytes::from(content.into());
        self
    }

    /// Adds or replaces one attribute.
    ///
    /// ```
    /// # use bowline_types::{Block, BlockId};
    /// let block = Block::new(BlockId::from_name("app"), "package").attribute("version", "1.2");
    /// assert_eq!(block.attributes["version"], "1.2");
    /// ```
    #[must_use]
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<AttributeValue>) -> Block {
        self.attributes.insert(name.into(), value.into());
        self
    }
}

/// The identity of an edge: between two blocks there is at most one edge of each kind and direction.
///
/// ```
/// use bowline_types::{BlockId, Edge, EdgeKey};
///
/// let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
/// // Attributes are no part of it.
/// let edge = Edge::new(app, "depends_on", lib).attribute("version", "1.2");
/// assert_eq!(edge.key(), EdgeKey::new(app, "depends_on", lib));
/// assert_ne!(edge.key(), EdgeKey::new(lib, "depends_on", app));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EdgeKey {
    /// The block where the edge starts.
    pub source: BlockId,
    /// The name of the kind.
    pub kind: String,
    /// The block where the edge ends.
    pub target: BlockId,
}

impl EdgeKey {
    /// The identity of an edge of `kind` from `source` to `target`.
    ///
    /// ```
    /// # use bowline_types::{BlockId, Edge, EdgeKey};
    /// let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
    /// let key = EdgeKey::new(app, "depends_on", lib);
    /// assert_eq!(key, Edge::new(app, "depends_on", lib).key());
    /// ```
    #[must_use]
    pub fn new(source: BlockId, kind: impl Into<String>, target: BlockId) -> EdgeKey {
        EdgeKey {
            source,
            kind: kind.into(),
            target,
        }
    }

    /// The edge with this identity and these attributes.
    ///
    /// ```
    /// # use bowline_types::{Attributes, BlockId, EdgeKey};
    /// let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
    /// let attributes = Attributes::from([("version".to_owned(), "1.2".into())]);
    /// let edge = EdgeKey::new(app, "depends_on", lib).with_attributes(attributes);
    /// assert_eq!(edge.attributes["version"], "1.2");
    /// ```
    #[must_use]
    pub fn with_attributes(self, attributes: Attributes) -> Edge {
        Edge {
            source: self.source,
            kind: self.kind,
            target: self.target,
            attributes,
        }
    }
}

impl fmt::Display for EdgeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {}", self.source, self.kind, self.target)
    }
}

/// A typed, directed tie between two blocks.
///
/// ```
/// use bowline_types::{BlockId, Edge};
///
/// let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
/// let edge = Edge::new(app, "depends_on", lib).attribute("version", "1.2");
/// assert_eq!(edge.key().target, lib);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// The block where the edge starts.
    pub source: BlockId,
    /// The name of the kind, such as `depends_on`.
    pub kind: String,
    /// The block where the edge ends.
    pub target: BlockId,
    /// Named values.
    pub attributes: Attributes,
}

impl Edge {
    /// An edge without attributes.
    ///
    /// ```
    /// # use bowline_types::{BlockId, Edge};
    /// let edge = Edge::new(BlockId::from_name("app"), "depends_on", BlockId::from_name("lib"));
    /// assert_eq!(edge.kind, "depends_on");
    /// ```
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
    ///
    /// ```
    /// # use bowline_types::{BlockId, Edge};
    /// let (a, b) = (BlockId::from_name("a"), BlockId::from_name("b"));
    /// let edge = Edge::new(a, "link", b).attribute("latency_ms", "12");
    /// assert_eq!(edge.attributes["latency_ms"], "12");
    /// ```
    #[must_use]
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<AttributeValue>) -> Edge {
        self.attributes.insert(name.into(), value.into());
        self
    }

    /// The identity of this edge.
    ///
    /// ```
    /// # use bowline_types::{BlockId, Edge};
    /// let (a, b) = (BlockId::from_name("a"), BlockId::from_name("b"));
    /// assert_eq!(Edge::new(a, "link", b).key().target, b);
    /// ```
    #[must_use]
    pub fn key(&self) -> EdgeKey {
        EdgeKey::new(self.source, self.kind.clone(), self.target)
    }
}

/// Which edges of a block are followed.
///
/// ```
/// use bowline_types::Direction;
///
/// assert_eq!(Direction::default(), Direction::Out);
/// // Dependencies lead out of a package, users lead in.
/// assert_eq!(Direction::Out.reversed(), Direction::In);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
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
    /// The direction that sees the same edges from their other ends.
    ///
    /// ```
    /// # use bowline_types::Direction;
    /// assert_eq!(Direction::Out.reversed(), Direction::In);
    /// assert_eq!(Direction::Both.reversed(), Direction::Both);
    /// ```
    #[must_use]
    pub fn reversed(self) -> Direction {
        match self {
            Direction::Out => Direction::In,
            Direction::In => Direction::Out,
            Direction::Both => Direction::Both,
        }
    }
}

/// One write of the graph.
///
/// ```
/// use bowline_types::{Block, BlockId, Edge, EdgeKey, GraphWrite};
///
/// let (app, old, new) = (BlockId(1), BlockId(2), BlockId(3));
/// let replace = [
///     GraphWrite::PutBlock(Block::new(new, "package")),
///     GraphWrite::PutEdge(Edge::new(app, "depends_on", new)),
///     GraphWrite::DeleteEdge(EdgeKey::new(app, "depends_on", old)),
///     GraphWrite::DeleteBlock(old),
/// ];
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GraphWrite {
    /// Creates or replaces a block.
    PutBlock(Block),
    /// Deletes a block with every edge from or to it.
    DeleteBlock(BlockId),
    /// Creates or replaces an edge between two blocks that exist.
    PutEdge(Edge),
    /// Deletes an edge.
    DeleteEdge(EdgeKey),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constructors_fill_what_is_named_and_nothing_else() {
        let block = Block::new(BlockId(1), "service");
        assert_eq!(block.kinds, "service");
        assert_eq!((block.content.len(), block.attributes.len()), (0, 0));
        let block = block
            .content("text")
            .attribute("a", "1")
            .attribute("a", "2");
        assert_eq!(block.content, "text");
        assert_eq!(
            block.attributes,
            Attributes::from([("a".into(), "2".into())])
        );

        let edge = Edge::new(BlockId(1), "calls", BlockId(2)).attribute("w", "3");
        assert_eq!(edge.key(), EdgeKey::new(BlockId(1), "calls", BlockId(2)));
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
