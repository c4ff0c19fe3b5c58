//! [`Expand`]: a step from each row's node to its neighbors.

use bowline_types::{BlockId, Direction};

use super::batch::{Batch, Column, Keeps};
use super::pipeline::BATCH;
use crate::error::{Error, Result};
use crate::execute::aggregate::too_many;
use crate::execute::context::Context;
use crate::plan::{Expansion, Slot};
use crate::value::Value;

/// A batch ends behind the node at which it has so many rows.
const ROWS_MAX: usize = 4096;
/// Or at which so many relationships were looked at: then a query that was cancelled ends, whatever it finds.
const VISITS_MAX: u64 = 1 << 16;

/// How a step must differ from an earlier one of the same kind, which its MATCH may not take again. There is one
/// relationship of a kind from one node to another, so its ends tell which it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Differs {
    /// The earlier one led in the same direction to where this one starts: only a step from a node to itself could be taken
    /// twice. The slot tells whether it was one.
    FromLoop(Slot),
    /// Not over the same ends again. The slots have those of the earlier one.
    InEnds {
        from: Slot,
        to: Slot,
        is_same_direction: bool,
    },
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Expand<'p> {
    pub expansion: &'p Expansion,
    /// Whether anything asks for the node that is reached.
    pub is_read: bool,
    /// Whether equal rows may be one with a weight.
    pub has_weights: bool,
    pub differs: Vec<Differs>,
    /// Gets whether the step leads from a node to itself.
    pub loops: Option<Slot>,
}

/// The nodes from which a batch goes on, and their rows.
pub(super) struct Starts {
    ids: Vec<BlockId>,
    /// None: each of its own.
    rows: Option<Vec<u32>>,
    next: usize,
}

impl Starts {
    fn row(&self, place: usize) -> usize {
        match &self.rows {
            Some(rows) => rows[place] as usize,
            None => place,
        }
    }
}

fn id(column: &Column, row: usize) -> Option<BlockId> {
    match column {
        Column::Nodes(nodes) => Some(nodes.ids[row]),
        Column::Values(values) => match &values[row] {
            Value::Node(node) => Some(node.id),
            _ => None,
        },
        Column::Unread | Column::Loops(_) => None,
    }
}

/// The steps that were found from some of the starts.
#[derive(Default)]
struct Found {
    rows: Vec<u32>,
    ends: Vec<BlockId>,
    loops: Vec<bool>,
}

impl Expand<'_> {
    /// Where a batch starts. The node may be missing, as after OPTIONAL MATCH: then there is no step.
    pub fn starts(&self, batch: &Batch) -> Result<Starts> {
        let values = match &batch.columns[self.expansion.from] {
            Column::Nodes(nodes) => {
                return Ok(Starts {
                    ids: nodes.ids.clone(),
                    rows: None,
                    next: 0,
                });
            }
            Column::Values(values) => values.as_slice(),
            Column::Unread | Column::Loops(_) => &[],
        };
        let (mut ids, mut rows) = (Vec::new(), Vec::new());
        for (row, value) in values.iter().enumerate() {
            match value {
                Value::Node(node) => {
                    ids.push(node.id);
                    rows.push(row as u32);
                }
                Value::Null => {}
                other => {
                    let message = format!("a node is needed, not {}", other.type_name());
                    return Err(Error::wrong_type(message));
                }
            }
        }
        Ok(Starts {
            ids,
            rows: Some(rows),
            next: 0,
        })
    }

    /// Whether a step is none that the MATCH has taken, and leads to where it should.
    fn fits(&self, batch: &Batch, row: usize, from: BlockId, to: BlockId) -> bool {
        let differs = |differs: &Differs| match *differs {
            Differs::FromLoop(slot) => {
                to != from || !matches!(&batch.columns[slot], Column::Loops(it) if it[row])
            }
            Differs::InEnds {
                from: earlier_from,
                to: earlier_to,
                is_same_direction,
            } => {
                let earlier = (
                    id(&batch.columns[earlier_from], row),
                    id(&batch.columns[earlier_to], row),
                );
                let ends = match is_same_direction {
                    true => (Some(from), Some(to)),
                    false => (Some(to), Some(from)),
                };
                earlier != ends
            }
        };
        let expansion = self.expansion;
        let is_there = !expansion.to_bound || id(&batch.columns[expansion.to], row) == Some(to);
        is_there && self.differs.iter().all(differs)
    }

    /// The rows of the next starts; `None` if there are no more.
    pub fn next(
        &self,
        batch: &Batch,
        starts: &mut Starts,
        keeps: &Keeps,
        cx: &mut Context<'_>,
    ) -> Result<Option<Batch>> {
        if starts.next >= starts.ids.len() {
            return Ok(None);
        }
        match self.has_weights && !self.is_read && self.loops.is_none() {
            true => self.count(batch, starts, keeps, cx).map(Some),
            false => self.step(batch, starts, keeps, cx).map(Some),
        }
    }

    /// A row for each step.
    fn step(
        &self,
        batch: &Batch,
        starts: &mut Starts,
        keeps: &Keeps,
        cx: &mut Context<'_>,
    ) -> Result<Batch> {
        let expansion = self.expansion;
        let (begin, mut next) = (starts.next, starts.ids.len());
        let mut found = Found::default();
        // The place of the start, and whether its steps have to be looked at.
        let (mut current, mut is_bound, mut visits) = (usize::MAX, false, 0);
        cx.graph().ends(
            &starts.ids[begin..],
            expansion.direction,
            &expansion.kinds,
            &mut |place, to| {
                let is_full = found.rows.len() >= ROWS_MAX || visits >= VISITS_MAX;
                if place != current && is_full {
                    // It is the next one's turn.
                    next = begin + place;
                    return false;
                }
                visits += 1;
                let row = starts.row(begin + place);
                let from = starts.ids[begin + place];
                if place != current {
                    current = place;
                    is_bound = self.is_bound(batch, row);
                }
                if !is_bound || self.fits(batch, row, from, to) {
                    found.rows.push(row as u32);
                    found.ends.push(to);
                    if self.loops.is_some() {
                        found.loops.push(from == to);
                    }
                }
                true
            },
        )?;
        starts.next = next;
        cx.tick_many(visits)?;
        let (to, loops) = (expansion.to, self.loops);
        let mut stepped = batch.at(&found.rows, keeps);
        if self.is_read {
            stepped.columns[to] = Column::Nodes(found.ends.into());
        }
        if let Some(slot) = loops {
            stepped.columns[slot] = Column::Loops(found.loops);
        }
        Ok(stepped)
    }

    /// Whether some step from a row may not fit.
    fn is_bound(&self, batch: &Batch, row: usize) -> bool {
        let is_bound = |differs: &Differs| match *differs {
            Differs::FromLoop(slot) => {
                matches!(&batch.columns[slot], Column::Loops(loops) if loops[row])
            }
            Differs::InEnds { .. } => true,
        };
        self.expansion.to_bound || self.differs.iter().any(is_bound)
    }

    /// The rows from which there are steps, weighted by their number.
    fn count(
        &self,
        batch: &Batch,
        starts: &mut Starts,
        keeps: &Keeps,
        cx: &mut Context<'_>,
    ) -> Result<Batch> {
        let Expansion {
            direction, kinds, ..
        } = self.expansion;
        let mut counts = Vec::with_capacity(starts.ids.len());
        for ids in starts.ids.chunks(BATCH) {
            let graph = cx.graph();
            graph.degrees(ids, *direction, kinds, &mut counts)?;
            cx.tick_many(ids.len() as u64)?;
        }
        for (place, from) in starts.ids.iter().enumerate() {
            let row = starts.row(place);
            if counts[place] > 0 && self.is_bound(batch, row) {
                let mut fitting = 0;
                cx.graph().ends(&[*from], *direction, kinds, &mut |_, to| {
                    fitting += u64::from(self.fits(batch, row, *from, to));
                    true
                })?;
                cx.tick_many(counts[place])?;
                counts[place] = fitting;
            }
        }
        starts.next = starts.ids.len();
        let (mut rows, mut weights) = (Vec::new(), Vec::new());
        for (place, count) in counts.into_iter().enumerate() {
            if count > 0 {
                let row = starts.row(place);
                rows.push(row as u32);
                let weight = batch.weight(row).checked_mul(count);
                weights.push(weight.ok_or_else(too_many)?);
            }
        }
        let mut counted = batch.at(&rows, keeps);
        counted.weights = weights;
        Ok(counted)
    }
}

/// Whether the columns can take a step.
pub(super) fn is_plain(expansion: &Expansion) -> bool {
    expansion.length.is_none()
        && expansion.shortest.is_none()
        && !expansion.relationship_bound
        && expansion.properties.is_empty()
        && expansion.direction != Direction::Both
}
