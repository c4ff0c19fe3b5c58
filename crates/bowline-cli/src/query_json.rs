//! What queries return, in JSON.

use bowline::cypher::{Node, Properties, Relationship, Value};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::import::ValueJson;

/// A value in JSON: attributes as exports have them; nodes, relationships and paths as objects of their parts.
pub(crate) struct QueriedJson<'a>(pub(crate) &'a Value);

impl Serialize for QueriedJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Node(node) => NodeJson(node).serialize(serializer),
            Value::Relationship(relationship) => {
                RelationshipJson(relationship).serialize(serializer)
            }
            Value::Path(path) => {
                let mut map = serializer.serialize_map(Some(2))?;
                let nodes: Vec<_> = path.nodes.iter().map(NodeJson).collect();
                let edges: Vec<_> = path.relationships.iter().map(RelationshipJson).collect();
                map.serialize_entry("nodes", &nodes)?;
                map.serialize_entry("relationships", &edges)?;
                map.end()
            }
            Value::List(list) => serializer.collect_seq(list.iter().map(QueriedJson)),
            Value::Map(map) if self.0.to_attribute().is_none() => serializer.collect_map(
                map.iter()
                    .map(|(name, value)| (&**name, QueriedJson(value))),
            ),
            other => match other.to_attribute() {
                Some(value) => ValueJson(&value).serialize(serializer),
                None => serializer.serialize_none(),
            },
        }
    }
}

struct NodeJson<'a>(&'a Node);

impl Serialize for NodeJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.0.id.to_string())?;
        if let Some(record) = &self.0.record {
            let labels: Vec<&str> = record.labels.iter().map(|label| &**label).collect();
            map.serialize_entry("labels", &labels)?;
            map.serialize_entry("properties", &PropertiesJson(&record.properties))?;
        }
        map.end()
    }
}

struct RelationshipJson<'a>(&'a Relationship);

impl Serialize for RelationshipJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let id = &self.0.id;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("source", &id.source.to_string())?;
        map.serialize_entry("kind", &*id.kind)?;
        map.serialize_entry("target", &id.target.to_string())?;
        if let Some(properties) = &self.0.properties {
            map.serialize_entry("properties", &PropertiesJson(properties))?;
        }
        map.end()
    }
}

struct PropertiesJson<'a>(&'a Properties);

impl Serialize for PropertiesJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let all = self.0.iter();
        serializer.collect_map(all.map(|(name, value)| (&**name, QueriedJson(value))))
    }
}
