//! Functions of nodes, relationships, paths and maps.

use super::row::{Env, Function, function, lenient};
use crate::error::{Class, Detail, Error, Result};
use crate::value::{Node, NodeRecord, Properties, Relationship, Type, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    function("labels", 1, 1, &[&[Type::Node]], Type::List, labels),
    function("type", 1, 1, &[&[Type::Relationship]], Type::Text, kind),
    function(
        "properties",
        1,
        1,
        &[&[Type::Node, Type::Relationship, Type::Map]],
        Type::Map,
        properties,
    ),
    function(
        "keys",
        1,
        1,
        &[&[Type::Node, Type::Relationship, Type::Map]],
        Type::List,
        keys,
    ),
    function(
        "startNode",
        1,
        1,
        &[&[Type::Relationship]],
        Type::Node,
        start_node,
    ),
    function(
        "endNode",
        1,
        1,
        &[&[Type::Relationship]],
        Type::Node,
        end_node,
    ),
    function("nodes", 1, 1, &[&[Type::Path]], Type::List, nodes),
    function(
        "relationships",
        1,
        1,
        &[&[Type::Path]],
        Type::List,
        relationships,
    ),
    function("length", 1, 1, &[&[Type::Path]], Type::Int, length),
    function(
        "elementId",
        1,
        1,
        &[&[Type::Node, Type::Relationship]],
        Type::Text,
        element_id,
    ),
    lenient("exists", 1, 1, Type::Bool, exists),
    lenient("coalesce", 1, usize::MAX, Type::Any, coalesce),
];

/// openCypher calls a value of a wrong type, met at run time, an invalid value.
fn invalid(name: &str, wanted: &str, value: &Value) -> Error {
    let message = format!("`{name}` takes {wanted}, not {}", value.type_name());
    Error::runtime(Class::TypeError, Detail::InvalidArgumentValue, message)
}

fn deleted() -> Error {
    Error::runtime(
        Class::EntityNotFound,
        Detail::DeletedEntityAccess,
        "this was deleted by the query",
    )
    .help("read what you need before DELETE, in a WITH")
}

fn record(env: &Env<'_>, node: &Node) -> Result<std::sync::Arc<NodeRecord>> {
    env.graph.node(node.id)?.ok_or_else(deleted)
}

fn held(env: &Env<'_>, relationship: &Relationship) -> Result<std::sync::Arc<Properties>> {
    env.graph
        .relationship(&relationship.id)?
        .ok_or_else(deleted)
}

fn labels(env: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    match &values[0] {
        Value::Node(node) => {
            let record = record(env, node)?;
            Ok(Value::list(
                record
                    .labels
                    .iter()
                    .map(|label| Value::Text(label.clone()))
                    .collect(),
            ))
        }
        other => Err(invalid("labels", "a node", other)),
    }
}

fn kind(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    match &values[0] {
        Value::Relationship(relationship) => Ok(Value::Text(relationship.id.kind.clone())),
        other => Err(invalid("type", "a relationship", other)),
    }
}

fn all_properties(env: &Env<'_>, name: &str, value: &Value) -> Result<Properties> {
    match value {
        Value::Node(node) => Ok(record(env, node)?.properties.clone()),
        Value::Relationship(relationship) => Ok((*held(env, relationship)?).clone()),
        Value::Map(map) => Ok((**map).clone()),
        other => Err(invalid(name, "a node, a relationship or a map", other)),
    }
}

fn properties(env: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    Ok(Value::map(all_properties(env, "properties", &values[0])?))
}

fn keys(env: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    let properties = all_properties(env, "keys", &values[0])?;
    Ok(Value::list(
        properties.into_keys().map(Value::Text).collect(),
    ))
}

fn start_node(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    match &values[0] {
        Value::Relationship(relationship) => Ok(Value::Node(Node::from(relationship.id.source))),
        other => Err(invalid("startNode", "a relationship", other)),
    }
}

fn end_node(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    match &values[0] {
        Value::Relationship(relationship) => Ok(Value::Node(Node::from(relationship.id.target))),
        other => Err(invalid("endNode", "a relationship", other)),
    }
}

fn nodes(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    match &values[0] {
        Value::Path(path) => Ok(Value::list(
            path.nodes.iter().cloned().map(Value::Node).collect(),
        )),
        other => Err(invalid("nodes", "a path", other)),
    }
}

fn relationships(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    match &values[0] {
        Value::Path(path) => Ok(Value::list(
            path.relationships
                .iter()
                .cloned()
                .map(Value::Relationship)
                .collect(),
        )),
        other => Err(invalid("relationships", "a path", other)),
    }
}

fn length(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    match &values[0] {
        Value::Path(path) => Ok(Value::Int(path.relationships.len() as i64)),
        other => Err(invalid("length", "a path", other)),
    }
}

fn element_id(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    match &values[0] {
        Value::Node(node) => Ok(Value::from(node.id.to_string())),
        Value::Relationship(relationship) => {
            let id = &relationship.id;
            Ok(Value::from(format!(
                "{}-{}-{}-{}",
                id.source, id.kind, id.target, id.discriminator
            )))
        }
        other => Err(invalid("elementId", "a node or a relationship", other)),
    }
}

fn exists(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    Ok(Value::Bool(!values[0].is_null()))
}

fn coalesce(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    Ok(values
        .iter()
        .find(|value| !value.is_null())
        .cloned()
        .unwrap_or_default())
}
