//! Operators that write. Each has read all of its input before its first write, because an eager read stands below it;
//! and each writes for all rows before it yields the first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bowline_types::{BlockId, Direction};

use super::access::{self, node_record, relationship_properties};
use super::context::Context;
use super::evaluate::evaluate;
use super::steps::Steps;
use super::stream::{Input, Row, Stream};
use crate::error::{Class, Detail, Error, Result};
use crate::plan::{CreateNode, CreateRelationship, Expr, Plan, Remove, Set, Slot};
use crate::value::{Name, Node, NodeRecord, Properties, Relationship, RelationshipId, Value};

/// What an operator does to each row.
pub(super) enum Action<'p> {
    Create {
        nodes: &'p [CreateNode],
        relationships: &'p [CreateRelationship],
    },
    Set(&'p [Set]),
    Remove(&'p [Remove]),
    Foreach {
        slot: Slot,
        list: &'p Expr,
        inner: &'p Plan,
        open: fn(&'p Plan, Row) -> Input<'p>,
    },
}

pub(super) struct Write<'p> {
    pub input: Input<'p>,
    pub action: Action<'p>,
    pub done: Option<std::vec::IntoIter<Row>>,
    pub bytes: u64,
}

impl Stream for Write<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        if self.done.is_none() {
            let mut rows = Vec::new();
            while let Some(mut row) = self.input.next(cx)? {
                match &self.action {
                    Action::Create {
                        nodes,
                        relationships,
                    } => {
                        create(nodes, relationships, &mut row, cx)?;
                    }
                    Action::Set(items) => set(items, &mut row, cx)?,
                    Action::Remove(items) => remove(items, &mut row, cx)?,
                    Action::Foreach {
                        slot,
                        list,
                        inner,
                        open,
                    } => {
                        foreach(*slot, list, inner, *open, &mut row, cx)?;
                    }
                }
                self.bytes += cx.charge(&row)?;
                rows.push(row);
            }
            self.done = Some(rows.into_iter());
        }
        let next = self.done.as_mut().and_then(Iterator::next);
        if next.is_none() {
            cx.release(std::mem::take(&mut self.bytes));
        }
        Ok(next)
    }
}

fn foreach<'p>(
    slot: Slot,
    list: &Expr,
    inner: &'p Plan,
    open: fn(&'p Plan, Row) -> Input<'p>,
    row: &mut Row,
    cx: &mut Context<'_>,
) -> Result<()> {
    let values = match evaluate(list, row, cx)? {
        Value::Null => return Ok(()),
        Value::List(list) => list,
        other => {
            let message = format!("a list is needed, not {}", other.type_name());
            return Err(Error::wrong_type(message).at(list.span));
        }
    };
    for value in values.iter() {
        let mut argument = row.clone();
        argument[slot] = value.clone();
        let mut stream = open(inner, argument);
        while stream.next(cx)?.is_some() {}
    }
    Ok(())
}

/// Creates nodes, then relationships, and puts them into the row.
pub(super) fn create(
    nodes: &[CreateNode],
    relationships: &[CreateRelationship],
    row: &mut Row,
    cx: &mut Context<'_>,
) -> Result<()> {
    for node in nodes {
        let properties = new_properties(node.properties.as_ref(), row, cx)?;
        let labels: BTreeSet<Name> = node.labels.iter().cloned().collect();
        cx.effects.nodes_created += 1;
        cx.effects.labels_added += labels.len() as u64;
        cx.effects.properties_set += properties.len() as u64;
        let record = NodeRecord {
            labels: labels.into_iter().collect(),
            properties,
        };
        let id = cx.graph_mut()?.create_node(record)?;
        row[node.slot] = Value::Node(Node::from(id));
    }
    for relationship in relationships {
        let properties = new_properties(relationship.properties.as_ref(), row, cx)?;
        let source = end(&row[relationship.source]).map_err(|error| error.at(relationship.span))?;
        let target = end(&row[relationship.target]).map_err(|error| error.at(relationship.span))?;
        cx.effects.relationships_created += 1;
        cx.effects.properties_set += properties.len() as u64;
        let kind = relationship.kind.clone();
        let id = cx
            .graph_mut()?
            .create_relationship(source, kind, target, properties)?;
        row[relationship.slot] = Value::Relationship(Relationship::from(id));
    }
    Ok(())
}

fn end(value: &Value) -> Result<BlockId> {
    match value {
        Value::Node(node) => Ok(node.id),
        Value::Null => Err(Error::runtime(
            Class::SemanticError,
            Detail::InvalidArgumentValue,
            "a relationship needs two nodes, but this end is null",
        )
        .help("filter rows without the node before creating")),
        other => Err(Error::wrong_type(format!(
            "a node is needed, not {}",
            other.type_name()
        ))),
    }
}

fn new_properties(expr: Option<&Expr>, row: &mut Row, cx: &mut Context<'_>) -> Result<Properties> {
    let Some(expr) = expr else {
        return Ok(Properties::new());
    };
    let map = evaluate(expr, row, cx)?;
    let Some(mut properties) =
        access::properties(cx.graph(), &map).map_err(|error| error.at(expr.span))?
    else {
        return Ok(Properties::new());
    };
    properties.retain(|_, value| !value.is_null());
    for (name, value) in &properties {
        check_storable(name, value).map_err(|error| error.at(expr.span))?;
    }
    Ok(properties)
}

fn check_storable(name: &str, value: &Value) -> Result<()> {
    if value.is_storable() {
        return Ok(());
    }
    let message = format!("property `{name}` cannot hold {}", value.type_name());
    Err(
        Error::runtime(Class::TypeError, Detail::InvalidPropertyType, message)
            .help("properties hold simple values and lists of them"),
    )
}

/// A node or a relationship, with what it holds now.
enum Entity {
    Node(Node, NodeRecord),
    Relationship(Relationship, Properties),
}

impl Entity {
    fn load(value: &Value, cx: &Context<'_>) -> Result<Option<Entity>> {
        Ok(match value {
            Value::Null => None,
            Value::Node(node) => Some(Entity::Node(
                node.clone(),
                (*node_record(cx.graph(), node)?).clone(),
            )),
            Value::Relationship(relationship) => {
                let properties = relationship_properties(cx.graph(), relationship)?;
                Some(Entity::Relationship(
                    relationship.clone(),
                    (*properties).clone(),
                ))
            }
            other => {
                let message = format!(
                    "a node or a relationship is needed, not {}",
                    other.type_name()
                );
                return Err(Error::wrong_type(message));
            }
        })
    }

    fn properties(&mut self) -> &mut Properties {
        match self {
            Entity::Node(_, record) => &mut record.properties,
            Entity::Relationship(_, properties) => properties,
        }
    }

    fn put(&mut self, name: &Name, value: Value) -> Result<()> {
        if value.is_null() {
            self.properties().remove(name);
        } else {
            check_storable(name, &value)?;
            self.properties().insert(name.clone(), value);
        }
        Ok(())
    }

    fn store(self, cx: &mut Context<'_>) -> Result<()> {
        match self {
            Entity::Node(node, record) => cx.graph_mut()?.set_node(node.id, record)?,
            Entity::Relationship(relationship, properties) => {
                cx.graph_mut()?
                    .set_relationship(&relationship.id, properties)?;
            }
        }
        Ok(())
    }
}

/// Applies the items of SET to a row.
pub(super) fn set(items: &[Set], row: &mut Row, cx: &mut Context<'_>) -> Result<()> {
    for item in items {
        match item {
            Set::Property { target, key, value } => {
                let holder = evaluate(target, row, cx)?;
                let new = evaluate(value, row, cx)?;
                let at = |error: Error| error.at(target.span);
                if let Some(mut entity) = Entity::load(&holder, cx).map_err(at)? {
                    entity.put(key, new).map_err(|error| error.at(value.span))?;
                    entity.store(cx)?;
                    cx.effects.properties_set += 1;
                }
            }
            Set::Properties {
                target,
                value,
                replace,
                span,
            } => {
                let new = evaluate(value, row, cx)?;
                let new =
                    access::properties(cx.graph(), &new).map_err(|error| error.at(value.span))?;
                let Some(mut entity) =
                    Entity::load(&row[*target], cx).map_err(|error| error.at(*span))?
                else {
                    continue;
                };
                let Some(new) = new else {
                    continue;
                };
                if *replace {
                    cx.effects.properties_set += entity.properties().len() as u64;
                    entity.properties().clear();
                }
                for (name, new) in new {
                    entity
                        .put(&name, new)
                        .map_err(|error| error.at(value.span))?;
                    cx.effects.properties_set += 1;
                }
                entity.store(cx)?;
            }
            Set::Labels {
                target,
                labels,
                span,
            } => {
                change_labels(&row[*target].clone(), cx, |held| {
                    let before = held.len();
                    held.extend(labels.iter().cloned());
                    (held.len() - before) as i64
                })
                .map_err(|error| error.at(*span))?;
            }
        }
    }
    Ok(())
}

fn remove(items: &[Remove], row: &mut Row, cx: &mut Context<'_>) -> Result<()> {
    for item in items {
        match item {
            Remove::Property { target, key } => {
                let holder = evaluate(target, row, cx)?;
                let entity = Entity::load(&holder, cx).map_err(|error| error.at(target.span))?;
                if let Some(mut entity) = entity
                    && entity.properties().remove(key).is_some()
                {
                    entity.store(cx)?;
                    cx.effects.properties_set += 1;
                }
            }
            Remove::Labels {
                target,
                labels,
                span,
            } => {
                change_labels(&row[*target].clone(), cx, |held| {
                    let before = held.len();
                    held.retain(|label| !labels.contains(label));
                    -((before - held.len()) as i64)
                })
                .map_err(|error| error.at(*span))?;
            }
        }
    }
    Ok(())
}

/// Changes the labels of a node; the callback says by how many.
fn change_labels(
    value: &Value,
    cx: &mut Context<'_>,
    change: impl FnOnce(&mut BTreeSet<Name>) -> i64,
) -> Result<()> {
    match value {
        Value::Null => Ok(()),
        Value::Node(node) => {
            let record = node_record(cx.graph(), node)?;
            let mut labels: BTreeSet<Name> = record.labels.iter().cloned().collect();
            let changed = change(&mut labels);
            if changed == 0 {
                return Ok(());
            }
            if changed > 0 {
                cx.effects.labels_added += changed.unsigned_abs();
            } else {
                cx.effects.labels_removed += changed.unsigned_abs();
            }
            let record = NodeRecord {
                labels: labels.into_iter().collect(),
                properties: record.properties.clone(),
            };
            cx.graph_mut()?.set_node(node.id, record)?;
            Ok(())
        }
        other => Err(Error::wrong_type(format!(
            "a node is needed, not {}",
            other.type_name()
        ))),
    }
}

pub(super) struct Delete<'p> {
    pub input: Input<'p>,
    pub expressions: &'p [Expr],
    pub detach: bool,
    pub done: Option<std::vec::IntoIter<Row>>,
}

/// What is to be deleted. Nodes remember where the query names them.
#[derive(Default)]
struct Doomed {
    nodes: BTreeMap<BlockId, crate::error::Span>,
    relationships: BTreeSet<Arc<RelationshipId>>,
}

impl Stream for Delete<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        if self.done.is_none() {
            let mut doomed = Doomed::default();
            let mut rows = Vec::new();
            while let Some(mut row) = self.input.next(cx)? {
                for expr in self.expressions {
                    let value = evaluate(expr, &mut row, cx)?;
                    doom(&value, expr, &mut doomed)?;
                }
                rows.push(row);
            }
            self.delete(doomed, cx)?;
            self.done = Some(rows.into_iter());
        }
        Ok(self.done.as_mut().and_then(Iterator::next))
    }
}

fn doom(value: &Value, expr: &Expr, doomed: &mut Doomed) -> Result<()> {
    match value {
        Value::Null => {}
        Value::Node(node) => {
            doomed.nodes.insert(node.id, expr.span);
        }
        Value::Relationship(relationship) => {
            doomed.relationships.insert(relationship.id.clone());
        }
        Value::Path(path) => {
            doomed
                .nodes
                .extend(path.nodes.iter().map(|node| (node.id, expr.span)));
            doomed
                .relationships
                .extend(path.relationships.iter().map(|r| r.id.clone()));
        }
        other => {
            let message = format!("{} cannot be deleted", other.type_name());
            return Err(Error::wrong_type(message).at(expr.span));
        }
    }
    Ok(())
}

impl Delete<'_> {
    fn delete(&self, mut doomed: Doomed, cx: &mut Context<'_>) -> Result<()> {
        // Every relationship of every node is looked at before the first write, so a refusal changes nothing.
        for (node, span) in &doomed.nodes {
            let mut steps = Steps::new(*node, Direction::Both);
            while let Some(id) = steps.next(&[], cx)? {
                if self.detach {
                    doomed.relationships.insert(id);
                } else if !doomed.relationships.contains(&id) {
                    let message = "a node that still has relationships cannot be deleted";
                    return Err(Error::runtime(
                        Class::ConstraintVerificationFailed,
                        Detail::DeleteConnectedNode,
                        message,
                    )
                    .help("use DETACH DELETE to delete them, too")
                    .at(*span));
                }
            }
        }
        for id in &doomed.relationships {
            if cx.graph().relationship(id)?.is_some() {
                cx.graph_mut()?.delete_relationship(id)?;
                cx.effects.relationships_deleted += 1;
            }
        }
        for node in doomed.nodes.keys() {
            if cx.graph().node(*node)?.is_some() {
                cx.graph_mut()?.delete_node(*node)?;
                cx.effects.nodes_deleted += 1;
            }
        }
        Ok(())
    }
}
