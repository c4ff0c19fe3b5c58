//! Values as text, in the notation of Cypher's literals.

use std::fmt;

use super::{Name, Node, Path, Properties, Relationship, Value};
use crate::calendar::show_zoned;
use bowline_types::{show_date, show_datetime, show_time};

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => value.fmt(f),
            Value::Int(value) => value.fmt(f),
            Value::Float(value) => f.write_str(&show_float(*value)),
            Value::Text(text) => quote(f, text),
            Value::Bytes(bytes) => {
                f.write_str("bytes('")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str("')")
            }
            Value::Date(date) => write!(f, "'{}'", show_date(*date)),
            Value::LocalTime(time) => write!(f, "'{}'", show_time(*time)),
            Value::Time(time) => write!(f, "'{time}'"),
            Value::LocalDateTime(datetime) => write!(f, "'{}'", show_datetime(*datetime)),
            Value::DateTime(zoned) => write!(f, "'{}'", show_zoned(zoned)),
            Value::Duration(duration) => write!(f, "'{duration}'"),
            Value::List(list) => {
                f.write_str("[")?;
                for (i, value) in list.iter().enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    value.fmt(f)?;
                }
                f.write_str("]")
            }
            Value::Map(map) => show_map(f, map),
            Value::Node(node) => show_node(f, node),
            Value::Relationship(relationship) => show_relationship(f, relationship),
            Value::Path(path) => show_path(f, path),
        }
    }
}

/// A float with a point or an exponent, so that it is read back as a float.
pub(crate) fn show_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 {
            "Infinity".into()
        } else {
            "-Infinity".into()
        };
    }
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-3..1e7).contains(&magnitude) {
        let text = format!("{value:E}");
        let (digits, exponent) = text.split_once('E').unwrap_or((&text, "0"));
        if digits.contains('.') {
            text
        } else {
            format!("{digits}.0E{exponent}")
        }
    } else {
        format!("{value:?}")
    }
}

fn quote(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("'")?;
    for c in text.chars() {
        match c {
            '\'' => f.write_str("\\'")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("'")
}

fn show_name(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    let plain = name.chars().all(|c| c.is_alphanumeric() || c == '_')
        && name.chars().next().is_some_and(|c| !c.is_numeric());
    if plain {
        f.write_str(name)
    } else {
        write!(f, "`{}`", name.replace('`', "``"))
    }
}

fn show_map(f: &mut fmt::Formatter<'_>, map: &Properties) -> fmt::Result {
    f.write_str("{")?;
    for (i, (key, value)) in map.iter().enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        show_name(f, key)?;
        write!(f, ": {value}")?;
    }
    f.write_str("}")
}

fn show_labels(f: &mut fmt::Formatter<'_>, labels: &[Name]) -> fmt::Result {
    labels.iter().try_for_each(|label| {
        f.write_str(":")?;
        show_name(f, label)
    })
}

fn show_node(f: &mut fmt::Formatter<'_>, node: &Node) -> fmt::Result {
    f.write_str("(")?;
    if let Some(record) = &node.record {
        show_labels(f, &record.labels)?;
        if !record.properties.is_empty() {
            if !record.labels.is_empty() {
                f.write_str(" ")?;
            }
            show_map(f, &record.properties)?;
        }
    } else {
        write!(f, "{}", node.id)?;
    }
    f.write_str(")")
}

fn show_relationship(f: &mut fmt::Formatter<'_>, relationship: &Relationship) -> fmt::Result {
    f.write_str("[")?;
    show_labels(f, std::slice::from_ref(&relationship.id.kind))?;
    if let Some(properties) = relationship.properties.as_ref().filter(|p| !p.is_empty()) {
        f.write_str(" ")?;
        show_map(f, properties)?;
    }
    f.write_str("]")
}

fn show_path(f: &mut fmt::Formatter<'_>, path: &Path) -> fmt::Result {
    f.write_str("<")?;
    for (i, node) in path.nodes.iter().enumerate() {
        if let Some(before) = i.checked_sub(1) {
            let relationship = &path.relationships[before];
            let forward = relationship.id.source == path.nodes[before].id;
            f.write_str(if forward { "-" } else { "<-" })?;
            show_relationship(f, relationship)?;
            f.write_str(if forward { "->" } else { "-" })?;
        }
        show_node(f, node)?;
    }
    f.write_str(">")
}
