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
    /// At most [`LABELS_MAX`](FieldsAsked::LABELS_MAX).
    pub labels: &'a [Name],
    /// In ascending order.
    pub properties: &'a [Name],
}

impl FieldsAsked<'_> {
    /// How many labels can be asked for at once.
    pub const LABELS_MAX: usize = 64;

    /// What a record has of them.
    ///
    /// ```
    /// use bowline_query::{FieldsAsked, NodeRecord, Value};
    ///
    /// let record = NodeRecord {
    ///     labels: vec!["Person".into()],
    ///     properties: [("age".into(), Value::Int(36))].into(),
    /// };
    /// let asked = FieldsAsked { labels: &["City".into(), "Person".into()], properties: &["age".into(), "name".into()] };
    /// let fields = asked.of(&record);
    /// assert_eq!((fields.labels, fields.has_labels), (0b10, true));
    /// assert_eq!(*fields.values, [Value::Int(36), Value::Null]);
    /// ```
    pub fn of(&self, record: &NodeRecord) -> NodeFields {
        let mut labels = 0;
        for (at, label) in self.labels.iter().enumerate() {
            labels |= u64::from(record.has_label(label)) << at;
        }
        let value = |name| record.properties.get(name).cloned().unwrap_or_default();
        NodeFields {
            labels,
            has_labels: !record.labels.is_empty(),
            values: self.properties.iter().map(value).collect(),
        }
    }
}

/// What a node has of what was asked.
///
/// ```
/// let fields = bowline_query::NodeFields { labels: 1, has_labels: true, values: Box::default() };
/// assert!(fields.values.is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct NodeFields {
    /// A bit for each label that was asked for, the first one's lowest: whether the node has it.
    pub labels: u64,
    /// Whether it has any label.
    pub has_labels: bool,
    /// The properties that were asked for; null where it has none.
    pub values: Box<[Value]>,
}
