//! Values that a server has returned, as those of the library, so that both are printed alike.

use std::sync::Arc;

use bowline::Attributes;
use bowline::cypher;
use bowline_client::graph::{Node, Relationship, Value};

/// A value of the library.
pub(crate) fn of_wire(value: Value) -> cypher::Value {
    match value {
        Value::Plain(value) => value.into(),
        Value::List(list) => cypher::Value::list(list.into_iter().map(of_wire).collect()),
        Value::Map(map) => {
            let entry = |(name, value): (String, Value)| (name.into(), of_wire(value));
            cypher::Value::map(map.into_iter().map(entry).collect())
        }
        Value::Node(found) => cypher::Value::Node(node(found)),
        Value::Relationship(found) => cypher::Value::Relationship(relationship(found)),
        Value::Path(path) => cypher::Value::Path(Arc::new(cypher::Path {
            nodes: path.nodes.into_iter().map(node).collect(),
            relationships: path.relationships.into_iter().map(relationship).collect(),
        })),
        // A type that this program does not know.
        _ => cypher::Value::Null,
    }
}

fn properties(attributes: Attributes) -> cypher::Properties {
    let all = attributes.into_iter();
    all.map(|(name, value)| (name.into(), value.into()))
        .collect()
}

fn node(node: Node) -> cypher::Node {
    let record = cypher::NodeRecord {
        labels: node.kinds.into_iter().map(Into::into).collect(),
        properties: properties(node.attributes),
    };
    cypher::Node {
        id: node.id,
        record: (!node.is_deleted).then(|| Arc::new(record)),
    }
}

fn relationship(relationship: Relationship) -> cypher::Relationship {
    let id = cypher::RelationshipId {
        source: relationship.source,
        kind: relationship.kind.into(),
        target: relationship.target,
        discriminator: relationship.discriminator,
    };
    cypher::Relationship {
        id: Arc::new(id),
        properties: (!relationship.is_deleted)
            .then(|| Arc::new(properties(relationship.attributes))),
    }
}
