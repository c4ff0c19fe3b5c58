//! Parts of values: properties, components, elements.

use std::sync::Arc;

use super::context::Context;
use crate::error::{Class, Detail, Error, Result};
use crate::graph::Graph;
use crate::syntax::ast::Labels;
use crate::temporal::component;
use crate::value::{Node, NodeRecord, Path, Properties, Relationship, Value};

/// The record of a node that must exist.
pub(crate) fn node_record(graph: &dyn Graph, node: &Node) -> Result<Arc<NodeRecord>> {
    match graph.node(node.id)? {
        Some(record) => Ok(record),
        None => Err(deleted("node")),
    }
}

/// The properties of a relationship that must exist.
pub(crate) fn relationship_properties(
    graph: &dyn Graph,
    relationship: &Relationship,
) -> Result<Arc<Properties>> {
    match graph.relationship(&relationship.id)? {
        Some(properties) => Ok(properties),
        None => Err(deleted("relationship")),
    }
}

pub(super) fn deleted(what: &str) -> Error {
    let message = format!("this {what} was deleted by the query");
    Error::runtime(Class::EntityNotFound, Detail::DeletedEntityAccess, message)
        .help("read what you need before DELETE, in a WITH")
}

/// A property of an entity, an entry of a map, or a component of a temporal value.
pub(crate) fn property(graph: &dyn Graph, holder: &Value, key: &str) -> Result<Value> {
    Ok(match holder {
        Value::Null => Value::Null,
        Value::Node(node) => node_record(graph, node)?
            .properties
            .get(key)
            .cloned()
            .unwrap_or_default(),
        Value::Relationship(relationship) => relationship_properties(graph, relationship)?
            .get(key)
            .cloned()
            .unwrap_or_default(),
        Value::Map(map) => map.get(key).cloned().unwrap_or_default(),
        _ => match component(holder, key) {
            Some(value) => value,
            None => {
                return Err(Error::wrong_type(format!(
                    "{} has no property `{key}`",
                    holder.type_name()
                )));
            }
        },
    })
}

/// All properties of an entity, or the map itself.
pub(super) fn properties(graph: &dyn Graph, holder: &Value) -> Result<Option<Properties>> {
    Ok(match holder {
        Value::Null => None,
        Value::Node(node) => Some(node_record(graph, node)?.properties.clone()),
        Value::Relationship(relationship) => {
            Some((*relationship_properties(graph, relationship)?).clone())
        }
        Value::Map(map) => Some((**map).clone()),
        _ => {
            return Err(Error::wrong_type(format!(
                "{} has no properties",
                holder.type_name()
            )));
        }
    })
}

/// `holder[index]`.
pub(super) fn index(graph: &dyn Graph, holder: &Value, index: &Value) -> Result<Value> {
    match (holder, index) {
        (Value::Null, _) | (_, Value::Null) => Ok(Value::Null),
        (Value::List(list), Value::Int(at)) => Ok(element(list, *at)),
        (Value::List(_), _) => Err(Error::runtime(
            Class::TypeError,
            Detail::ListElementAccessByNonInteger,
            format!(
                "a list is indexed by integers, not by {}",
                index.type_name()
            ),
        )),
        (Value::Map(_) | Value::Node(_) | Value::Relationship(_), Value::Text(key)) => {
            property(graph, holder, key)
        }
        (Value::Map(_) | Value::Node(_) | Value::Relationship(_), _) => Err(Error::runtime(
            Class::TypeError,
            Detail::MapElementAccessByNonString,
            format!("a map is indexed by strings, not by {}", index.type_name()),
        )),
        _ => Err(Error::wrong_type(format!(
            "{} cannot be indexed",
            holder.type_name()
        ))),
    }
}

fn element(list: &[Value], at: i64) -> Value {
    let at = if at < 0 { at + list.len() as i64 } else { at };
    usize::try_from(at)
        .ok()
        .and_then(|at| list.get(at))
        .cloned()
        .unwrap_or_default()
}

/// `list[low..high]`. `None` is an open end.
pub(super) fn slice(list: &Value, low: Option<&Value>, high: Option<&Value>) -> Result<Value> {
    let list = match list {
        Value::Null => return Ok(Value::Null),
        Value::List(list) => list,
        other => {
            return Err(Error::wrong_type(format!(
                "{} cannot be sliced",
                other.type_name()
            )));
        }
    };
    let length = list.len() as i64;
    let bound = |bound: Option<&Value>, open: i64| match bound {
        None => Ok(Some(open)),
        Some(Value::Null) => Ok(None),
        Some(Value::Int(at)) => Ok(Some(
            if *at < 0 { at + length } else { *at }.clamp(0, length),
        )),
        Some(other) => Err(Error::wrong_type(format!(
            "a bound of a slice is an integer, not {}",
            other.type_name()
        ))),
    };
    match (bound(low, 0)?, bound(high, length)?) {
        (Some(low), Some(high)) if low < high => {
            Ok(Value::list(list[low as usize..high as usize].to_vec()))
        }
        (Some(_), Some(_)) => Ok(Value::list(Vec::new())),
        _ => Ok(Value::Null),
    }
}

/// Whether an entity has labels.
pub(super) fn has_labels(
    graph: &dyn Graph,
    value: &Value,
    labels: &Labels,
) -> Result<Option<bool>> {
    match value {
        Value::Null => Ok(None),
        Value::Node(node) => {
            let record = node_record(graph, node)?;
            Ok(Some(satisfies(
                labels,
                &|label| record.has_label(label),
                !record.labels.is_empty(),
            )))
        }
        Value::Relationship(relationship) => Ok(Some(satisfies(
            labels,
            &|label| *relationship.id.kind == *label,
            true,
        ))),
        other => Err(Error::wrong_type(format!(
            "{} has no labels",
            other.type_name()
        ))),
    }
}

pub(super) fn satisfies(labels: &Labels, has: &dyn Fn(&str) -> bool, any: bool) -> bool {
    match labels {
        Labels::Name(name) => has(name),
        Labels::Any => any,
        Labels::Not(inner) => !satisfies(inner, has, any),
        Labels::And(parts) => parts.iter().all(|part| satisfies(part, has, any)),
        Labels::Or(parts) => parts.iter().any(|part| satisfies(part, has, any)),
    }
}

/// A value for the caller: entities get their records.
pub(crate) fn materialize(cx: &Context<'_>, value: Value) -> Result<Value> {
    Ok(match value {
        Value::Node(node) => Value::Node(full_node(cx.graph(), &node)?),
        Value::Relationship(relationship) => {
            Value::Relationship(full_relationship(cx.graph(), relationship)?)
        }
        Value::Path(path) => {
            let nodes = path.nodes.iter().map(|node| full_node(cx.graph(), node));
            let relationships = path
                .relationships
                .iter()
                .map(|r| full_relationship(cx.graph(), r.clone()));
            Value::Path(Arc::new(Path {
                nodes: nodes.collect::<Result<_>>()?,
                relationships: relationships.collect::<Result<_>>()?,
            }))
        }
        Value::List(list) if list.iter().any(holds_entity) => Value::list(
            list.iter()
                .map(|value| materialize(cx, value.clone()))
                .collect::<Result<_>>()?,
        ),
        Value::Map(map) if map.values().any(holds_entity) => Value::map(
            map.iter()
                .map(|(key, value)| Ok((key.clone(), materialize(cx, value.clone())?)))
                .collect::<Result<_>>()?,
        ),
        other => other,
    })
}

fn holds_entity(value: &Value) -> bool {
    match value {
        Value::Node(_) | Value::Relationship(_) | Value::Path(_) => true,
        Value::List(list) => list.iter().any(holds_entity),
        Value::Map(map) => map.values().any(holds_entity),
        _ => false,
    }
}

fn full_node(graph: &dyn Graph, node: &Node) -> Result<Node> {
    Ok(Node {
        record: graph.node(node.id)?,
        id: node.id,
    })
}

fn full_relationship(graph: &dyn Graph, relationship: Relationship) -> Result<Relationship> {
    Ok(Relationship {
        properties: graph.relationship(&relationship.id)?,
        ..relationship
    })
}
