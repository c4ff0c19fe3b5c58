//! [`Batch`]: rows in columns.

use bowline_types::BlockId;

use crate::execute::stream::Row;
use crate::graph::FieldColumns;
use crate::plan::Slot;
use crate::value::{Node, Value};

/// Nodes, and, once something has asked for them, their fields.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    pub ids: Vec<BlockId>,
    /// None, or one for each.
    pub fields: FieldColumns,
}

impl From<Vec<BlockId>> for Nodes {
    fn from(ids: Vec<BlockId>) -> Nodes {
        Nodes {
            ids,
            fields: FieldColumns::default(),
        }
    }
}

/// The columns that are read behind an operator.
#[derive(Debug, Default)]
pub(super) struct Keeps {
    pub slots: Vec<Slot>,
    /// Those of nodes whose fields are read.
    pub fields: Vec<Slot>,
}

/// The values of a slot in all rows of a batch.
#[derive(Clone, Debug, Default)]
pub(super) enum Column {
    /// Nothing asks for it.
    #[default]
    Unread,
    Nodes(Nodes),
    Values(Vec<Value>),
    /// Of each step whether it led from a node to itself.
    Loops(Vec<bool>),
}

/// Rows in columns. A row with a weight stands for so many equal ones.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub len: usize,
    /// By slot.
    pub columns: Vec<Column>,
    /// None: each is one; else one for each.
    pub weights: Vec<u64>,
}

fn at<T: Clone>(values: &[T], rows: &[u32]) -> Vec<T> {
    let value = |row: &u32| values[*row as usize].clone();
    rows.iter().map(value).collect()
}

impl Column {
    fn at(&self, rows: &[u32], keeps_fields: bool) -> Column {
        match self {
            Column::Unread => Column::Unread,
            Column::Nodes(nodes) => Column::Nodes(Nodes {
                ids: at(&nodes.ids, rows),
                fields: match keeps_fields && !nodes.fields.is_empty() {
                    true => nodes.fields.at(rows),
                    false => FieldColumns::default(),
                },
            }),
            Column::Values(values) => Column::Values(at(values, rows)),
            Column::Loops(loops) => Column::Loops(at(loops, rows)),
        }
    }

    /// Values as a column: of nodes, if they all are.
    pub fn of(values: Vec<Value>) -> Column {
        let id = |value: &Value| match value {
            Value::Node(node) => Some(node.id),
            _ => None,
        };
        match values.iter().map(id).collect::<Option<Vec<_>>>() {
            Some(ids) => Column::Nodes(ids.into()),
            None => Column::Values(values),
        }
    }

    pub fn value(&self, row: usize) -> Value {
        match self {
            Column::Unread => Value::Null,
            Column::Nodes(nodes) => Value::Node(Node::from(nodes.ids[row])),
            Column::Values(values) => values[row].clone(),
            Column::Loops(loops) => Value::Bool(loops[row]),
        }
    }
}

impl Batch {
    /// A batch with so many columns, in which nothing is read.
    pub fn of(len: usize, slots: usize) -> Batch {
        Batch {
            len,
            columns: vec![Column::Unread; slots],
            weights: Vec::new(),
        }
    }

    pub fn weight(&self, row: usize) -> u64 {
        self.weights.get(row).copied().unwrap_or(1)
    }

    /// How many rows it stands for. More than fit are as many as fit, which no count allows.
    pub fn rows(&self) -> u64 {
        match self.weights.is_empty() {
            true => self.len as u64,
            false => self.weights.iter().copied().fold(0, u64::saturating_add),
        }
    }

    /// These rows, with these columns.
    pub fn at(&self, rows: &[u32], keeps: &Keeps) -> Batch {
        let mut batch = Batch::of(rows.len(), self.columns.len());
        for slot in &keeps.slots {
            let keeps_fields = keeps.fields.contains(slot);
            batch.columns[*slot] = self.columns[*slot].at(rows, keeps_fields);
        }
        if !self.weights.is_empty() {
            batch.weights = at(&self.weights, rows);
        }
        batch
    }

    /// Leaves only these columns.
    pub fn keep(&mut self, keeps: &Keeps) {
        for (slot, column) in self.columns.iter_mut().enumerate() {
            if !keeps.slots.contains(&slot) {
                *column = Column::Unread;
            }
        }
    }

    /// Writes the values of some columns into a row.
    pub fn fill(&self, row: usize, slots: &[Slot], values: &mut Row) {
        for slot in slots {
            values[*slot] = self.columns[*slot].value(row);
        }
    }
}
