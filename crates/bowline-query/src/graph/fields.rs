//! What a query asks of many nodes at once.

use crate::value::{Name, NodeRecord, Value};

/// The labels and properties that a query asks of its nodes: all that its expressions name.
///
/// ```
/// let asked = bowline_query::FieldsAsked { labels: &["Person".into()], properties: &["age".into()] };
/// assert_eq!((asked.labels.len(), asked.properties.len()), (1, 1));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct FieldsAsked<'a> {
    /// At most [`LABELS_MAX`](FieldsAsked::LABELS_MAX), the first one's bit the lowest.
    pub labels: &'a [Name],
    /// In ascending order.
    pub properties: &'a [Name],
}

impl FieldsAsked<'_> {
    /// How many labels can be asked for at once.
    pub const LABELS_MAX: usize = 63;
}

/// What nodes have of what was asked, in columns.
///
/// ```
/// use bowline_query::{FieldColumns, FieldsAsked, NodeRecord, Value};
///
/// let asked = FieldsAsked { labels: &["City".into(), "Person".into()], properties: &["age".into(), "name".into()] };
/// let record = NodeRecord {
///     labels: vec!["Person".into()],
///     properties: [("age".into(), Value::Int(36))].into(),
/// };
/// let mut columns = FieldColumns::default();
/// columns.extend(asked, 2);
/// columns.set(asked, 1, &record);
/// assert_eq!(columns.labels, [0, FieldColumns::ANY | 0b10]);
/// assert_eq!(columns.values, [vec![Value::Null, Value::Int(36)], vec![Value::Null, Value::Null]]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct FieldColumns {
    /// For each node a bit for each label that was asked for, the first one's lowest: whether the node has it; and
    /// [`ANY`](FieldColumns::ANY) if it has any.
    pub labels: Vec<u64>,
    /// For each property that was asked for the values of the nodes; null for one that has none.
    pub values: Vec<Vec<Value>>,
}

impl FieldColumns {
    /// The bit of a node that has any label.
    pub const ANY: u64 = 1 << 63;

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Adds so many nodes that have nothing.
    pub fn extend(&mut self, asked: FieldsAsked<'_>, nodes: usize) {
        let len = self.len() + nodes;
        self.labels.resize(len, 0);
        self.values.resize_with(asked.properties.len(), Vec::new);
        for values in &mut self.values {
            values.resize(len, Value::Null);
        }
    }

    /// Sets what a node has.
    pub fn set(&mut self, asked: FieldsAsked<'_>, node: usize, record: &NodeRecord) {
        let mut labels = match record.labels.is_empty() {
            true => 0,
            false => FieldColumns::ANY,
        };
        for (at, label) in asked.labels.iter().enumerate() {
            labels |= u64::from(record.has_label(label)) << at;
        }
        self.labels[node] = labels;
        for (name, values) in asked.properties.iter().zip(&mut self.values) {
            values[node] = record.properties.get(name).cloned().unwrap_or_default();
        }
    }

    /// These nodes, in this order.
    pub(crate) fn at(&self, nodes: &[u32]) -> FieldColumns {
        let of = |values: &Vec<Value>| {
            let value = |node: &u32| values[*node as usize].clone();
            nodes.iter().map(value).collect()
        };
        let labels = |node: &u32| self.labels[*node as usize];
        FieldColumns {
            labels: nodes.iter().map(labels).collect(),
            values: self.values.iter().map(of).collect(),
        }
    }
}
