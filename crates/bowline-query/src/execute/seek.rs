//! Nodes found by an index.
//!
//! Where the index cannot tell, for a value that it does not have, or an operand that fails, all nodes with the label are
//! read: the filter above decides, and fails where it would have failed without an index.

use std::ops::Bound;

use bowline_types::BlockId;

use super::context::Context;
use super::evaluate::evaluate;
use super::read::PAGE;
use super::stream::{Input, Row, Stream};
use crate::error::Result;
use crate::graph::{Seek, SeekLast};
use crate::plan::{Expr, NodeSeek, SeekKeys, Slot};
use crate::value::{Node, Value};

/// What is asked for with the values of a row; `None` to read all nodes with the label.
type Asked = Option<(Vec<Value>, SeekLast)>;

pub(super) struct NodeSeeks<'p> {
    input: Input<'p>,
    slot: Slot,
    seek: &'p NodeSeek,
    row: Option<Row>,
    asked: Asked,
    page: std::vec::IntoIter<BlockId>,
    /// Where the next page of the index begins.
    place: Option<Vec<u8>>,
    /// The last node, where all are read.
    last: Option<BlockId>,
    exhausted: bool,
}

impl<'p> NodeSeeks<'p> {
    pub fn new(input: Input<'p>, slot: Slot, seek: &'p NodeSeek) -> NodeSeeks<'p> {
        NodeSeeks {
            input,
            slot,
            seek,
            row: None,
            asked: None,
            page: Vec::new().into_iter(),
            place: None,
            last: None,
            exhausted: false,
        }
    }

    fn next_page(&mut self, cx: &mut Context<'_>) -> Result<()> {
        let mut page = Vec::new();
        if let Some((equal, last)) = &self.asked {
            let seek = Seek {
                label: &self.seek.label,
                properties: &self.seek.properties,
                equal,
                last,
            };
            if !cx.graph().seek(&seek, &mut self.place, PAGE, &mut page)? {
                self.asked = None;
            }
        }
        if self.asked.is_none() {
            let label = Some(&*self.seek.label);
            cx.graph().nodes(label, self.last, PAGE, &mut page)?;
            self.last = page.last().copied();
        }
        self.exhausted = page.len() < PAGE;
        self.page = page.into_iter();
        Ok(())
    }
}

impl Stream for NodeSeeks<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        loop {
            if self.row.is_none() {
                self.row = self.input.next(cx)?;
                self.page = Vec::new().into_iter();
                (self.place, self.last, self.exhausted) = (None, None, false);
                if let Some(row) = &mut self.row {
                    self.asked = asked(self.seek, row, cx);
                }
            }
            let Some(row) = &self.row else {
                return Ok(None);
            };
            if let Some(id) = self.page.next() {
                cx.tick()?;
                let mut row = row.clone();
                row[self.slot] = Value::Node(Node::from(id));
                return Ok(Some(row));
            }
            if self.exhausted {
                self.row = None;
                continue;
            }
            self.next_page(cx)?;
        }
    }
}

fn asked(seek: &NodeSeek, row: &mut Row, cx: &mut Context<'_>) -> Asked {
    let mut value = |expr: &Expr| evaluate(expr, row, cx).ok();
    let equal = seek.equal.iter().map(&mut value).collect::<Option<_>>()?;
    let last = match &seek.last {
        SeekKeys::Equal(expr) => SeekLast::OneOf(vec![value(expr)?]),
        SeekKeys::In(expr) => match value(expr)? {
            Value::List(list) => SeekLast::OneOf(list.to_vec()),
            _ => return None,
        },
        SeekKeys::StartsWith(expr) => match value(expr)? {
            Value::Text(text) => SeekLast::StartsWith(text),
            _ => return None,
        },
        SeekKeys::Between { lower, upper } => {
            let mut bound = |bound: &Option<(Expr, bool)>| {
                Some(match bound {
                    None => Bound::Unbounded,
                    Some((expr, true)) => Bound::Included(value(expr)?),
                    Some((expr, false)) => Bound::Excluded(value(expr)?),
                })
            };
            SeekLast::Between(bound(lower)?, bound(upper)?)
        }
    };
    Some((equal, last))
}
