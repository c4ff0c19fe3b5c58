//! Conversion of queries in Cypher: parameters, rows and refusals.
//!
//! A value that is nested too deep for the decoder of messages, and a row beyond [`ROW_BYTES_MAX`], are refused: no client
//! could read them.

use bowline::cypher::{
    self, Effects, Node, Parameters, Path, Phase, Problem, Properties, Relationship, Value,
};
use bowline::{AttributeValue, Error};
use bowline_proto::attributes::{value_of_wire, value_to_wire};
use bowline_proto::problem::to_details;
use bowline_proto::v1 as pb;
use pb::query_problem::Kind;
use pb::query_value::Value as Wire;
use prost::Message;
use tonic::{Code, Status};

use super::graph::id_bytes;
use crate::status::{Fault, REFUSAL_BYTES_MAX, status};

/// The largest row.
pub(crate) const ROW_BYTES_MAX: usize = 1 << 20;
/// How many lists and maps that contain nodes, relationships or paths may contain one another.
const DEPTH_MAX: usize = 10;

/// The parameters of a query.
pub(crate) fn parameters(
    all: impl IntoIterator<Item = (String, pb::AttributeValue)>,
) -> Result<Parameters, Fault> {
    let parameter = |(name, value): (String, pb::AttributeValue)| {
        let value = value_of_wire(value, AttributeValue::DEPTH_MAX);
        Ok((name.into(), Value::from(value.map_err(Fault::Invalid)?)))
    };
    all.into_iter().map(parameter).collect()
}

/// A row, and its bytes.
pub(crate) fn row(values: Vec<Value>) -> Result<(pb::QueryRow, usize), Fault> {
    let values = values.into_iter().map(|value| of_value(value, 0));
    let row = pb::QueryRow {
        values: values.collect::<Result<_, _>>()?,
    };
    let bytes = row.encoded_len();
    match bytes <= ROW_BYTES_MAX {
        true => Ok((row, bytes)),
        false => Err(Fault::Unfit(
            "a row has more than 1 MiB: return fewer or shorter values, or a row for each element of a list".to_owned(),
        )),
    }
}

fn too_deep() -> Fault {
    Fault::Unfit(
        "a value has too many lists and maps that contain one another: return its parts".to_owned(),
    )
}

fn of_value(value: Value, depth: usize) -> Result<pb::QueryValue, Fault> {
    let value = match value {
        Value::Node(node) => Wire::Node(of_node(&node)?),
        Value::Relationship(relationship) => Wire::Relationship(of_relationship(&relationship)?),
        Value::Path(path) => Wire::Path(of_path(&path)?),
        plain_or_not => match plain_or_not.to_attribute() {
            Some(value) => Wire::Plain(of_plain(value)?),
            None if depth >= DEPTH_MAX => return Err(too_deep()),
            None => of_container(&plain_or_not, depth + 1)?,
        },
    };
    Ok(pb::QueryValue { value: Some(value) })
}

fn of_plain(value: AttributeValue) -> Result<pb::AttributeValue, Fault> {
    match value.depth() <= AttributeValue::DEPTH_MAX {
        true => Ok(value_to_wire(value)),
        false => Err(too_deep()),
    }
}

/// A list or a map with nodes, relationships or paths in it.
fn of_container(value: &Value, depth: usize) -> Result<Wire, Fault> {
    let inner = |value: &Value| of_value(value.clone(), depth);
    Ok(match value {
        Value::Map(map) => {
            let entries = map
                .iter()
                .map(|(name, value)| Ok((name.to_string(), inner(value)?)));
            Wire::Map(pb::QueryMap {
                values: entries.collect::<Result<_, Fault>>()?,
            })
        }
        Value::List(list) => Wire::List(pb::QueryList {
            values: list.iter().map(inner).collect::<Result<_, _>>()?,
        }),
        other => {
            let text = format!("a {} has no field", other.type_name());
            return Err(Fault::Internal(text));
        }
    })
}

type Attributes = std::collections::BTreeMap<String, pb::AttributeValue>;

fn of_properties(properties: &Properties) -> Result<Attributes, Fault> {
    let attribute = |(name, value): (&cypher::Name, &Value)| {
        let value = value.to_attribute().unwrap_or_default();
        Ok((name.to_string(), of_plain(value)?))
    };
    properties.iter().map(attribute).collect()
}

fn of_node(node: &Node) -> Result<pb::QueryNode, Fault> {
    let mut wire = pb::QueryNode {
        id: id_bytes(node.id),
        is_deleted: node.record.is_none(),
        ..pb::QueryNode::default()
    };
    if let Some(record) = &node.record {
        wire.kinds = record.labels.iter().map(ToString::to_string).collect();
        wire.attributes = of_properties(&record.properties)?;
    }
    Ok(wire)
}

fn of_relationship(relationship: &Relationship) -> Result<pb::QueryRelationship, Fault> {
    let id = &relationship.id;
    let properties = relationship.properties.as_deref().map(of_properties);
    Ok(pb::QueryRelationship {
        source: id_bytes(id.source),
        kind: id.kind.to_string(),
        target: id_bytes(id.target),
        discriminator: id.discriminator,
        is_deleted: properties.is_none(),
        attributes: properties.transpose()?.unwrap_or_default(),
    })
}

fn of_path(path: &Path) -> Result<pb::QueryPath, Fault> {
    let relationships = path.relationships.iter().map(of_relationship);
    Ok(pb::QueryPath {
        nodes: path.nodes.iter().map(of_node).collect::<Result<_, _>>()?,
        relationships: relationships.collect::<Result<_, _>>()?,
    })
}

/// What was changed.
pub(crate) fn effects(effects: Effects) -> pb::QueryEffects {
    pb::QueryEffects {
        blocks_created: effects.nodes_created,
        blocks_deleted: effects.nodes_deleted,
        edges_created: effects.relationships_created,
        edges_deleted: effects.relationships_deleted,
        attributes_set: effects.properties_set,
        kinds_added: effects.labels_added,
        kinds_removed: effects.labels_removed,
    }
}

/// The refusal of a query.
pub(crate) fn refusal(error: cypher::Error) -> Status {
    let text = error.to_string();
    match error {
        cypher::Error::Query(problem) => {
            let code = match problem.phase {
                Phase::CompileTime => Code::InvalidArgument,
                Phase::Runtime => Code::FailedPrecondition,
            };
            with_problem(code, &text, of_problem(&problem))
        }
        cypher::Error::Unsupported { what, place, .. } => {
            let problem = pb::QueryProblem {
                kind: Kind::Unsupported.into(),
                message: what,
                ..placed(place.as_deref())
            };
            with_problem(Code::InvalidArgument, &text, problem)
        }
        cypher::Error::LimitExceeded { setting, .. } => {
            let problem = pb::QueryProblem {
                kind: Kind::Limit.into(),
                message: text.clone(),
                limit: setting.to_owned(),
                ..pb::QueryProblem::default()
            };
            with_problem(Code::FailedPrecondition, &text, problem)
        }
        cypher::Error::Store(source) => match source.downcast::<Error>() {
            Ok(error) => status(*error),
            Err(source) => Fault::Unfit(source.to_string()).into(),
        },
        _ => Fault::Unfit(text).into(),
    }
}

fn of_problem(problem: &Problem) -> pb::QueryProblem {
    pb::QueryProblem {
        kind: Kind::Query.into(),
        class: problem.class.to_string(),
        detail: problem.detail.to_string(),
        message: problem.message.clone(),
        help: problem.help.clone().unwrap_or_default(),
        ..placed(problem.place.as_deref())
    }
}

fn placed(place: Option<&cypher::Place>) -> pb::QueryProblem {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    place.map_or_else(pb::QueryProblem::default, |place| pb::QueryProblem {
        line: number(place.line),
        column: number(place.column),
        width: number(place.width),
        caret: place.to_string(),
        ..pb::QueryProblem::default()
    })
}

fn with_problem(code: Code, text: &str, mut problem: pb::QueryProblem) -> Status {
    let texts = [&mut problem.message, &mut problem.help, &mut problem.caret];
    for text in texts {
        *text = cut(text).to_owned();
    }
    let details = to_details(code.into(), cut(text), &problem);
    Status::with_details(code, cut(text), details)
}

/// At most so much of a text as a header takes.
fn cut(text: &str) -> &str {
    crate::status::cut(text, REFUSAL_BYTES_MAX)
}
