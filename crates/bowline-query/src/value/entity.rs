//! Nodes, relationships and paths as values.
//!
//! Within a running query an entity is its id alone, and its record is read when an expression asks for it, so that
//! every expression sees the newest state. The rows that a query returns carry the records.

use std::sync::Arc;

use bowline_types::BlockId;

use super::{Name, Properties};

/// What a node holds.
///
/// ```
/// use bowline_query::NodeRecord;
///
/// let record = NodeRecord { labels: vec!["Person".into()], properties: Default::default() };
/// assert!(record.has_label("Person"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct NodeRecord {
    /// The labels, which Bowline calls kinds; sorted, each once.
    pub labels: Vec<Name>,
    /// The properties; none is null.
    pub properties: Properties,
}

impl NodeRecord {
    /// Whether the node has the label.
    pub fn has_label(&self, label: &str) -> bool {
        self.labels.iter().any(|known| &**known == label)
    }
}

/// A node as a value. Two are equal if their ids are.
#[derive(Clone, Debug)]
pub struct Node {
    /// The id.
    pub id: BlockId,
    /// What the node held when the row was returned. `None` within a running query, and for a deleted node.
    pub record: Option<Arc<NodeRecord>>,
}

/// What identifies a relationship: where it starts, its kind, where it ends, and a number that distinguishes it from
/// others of the kind between the same nodes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RelationshipId {
    /// Where it starts.
    pub source: BlockId,
    /// Its kind, which Cypher calls its type.
    pub kind: Name,
    /// Where it ends.
    pub target: BlockId,
    /// Which of several.
    pub discriminator: u64,
}

impl RelationshipId {
    /// The end that is not `node`; `node` itself for a loop.
    pub fn other(&self, node: BlockId) -> BlockId {
        if self.source == node {
            self.target
        } else {
            self.source
        }
    }
}

/// A relationship as a value. Two are equal if their ids are.
#[derive(Clone, Debug)]
pub struct Relationship {
    /// The id.
    pub id: Arc<RelationshipId>,
    /// The properties when the row was returned. `None` within a running query, and for a deleted relationship.
    pub properties: Option<Arc<Properties>>,
}

impl From<BlockId> for Node {
    fn from(id: BlockId) -> Node {
        Node { id, record: None }
    }
}

impl From<Arc<RelationshipId>> for Relationship {
    fn from(id: Arc<RelationshipId>) -> Relationship {
        Relationship {
            id,
            properties: None,
        }
    }
}

/// A walk: nodes, and between each two of them a relationship, followed in either direction.
#[derive(Clone, Debug)]
pub struct Path {
    /// The nodes: one more than relationships.
    pub nodes: Vec<Node>,
    /// The relationships.
    pub relationships: Vec<Relationship>,
}
