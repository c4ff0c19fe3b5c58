//! [`Merge`]: equal rows become one, whose weight tells how many they were.
//!
//! Where of all that a row has only its last node is asked for, the same node is reached many times: two steps on from each
//! would be taken as often. So the rows are gathered, each node once, before they go on. What no longer fits in
//! memory goes on early, which costs time and no answer.

use bowline_types::{BlockId, IdMap};

use super::batch::{Batch, Column};
use crate::error::Result;
use crate::execute::aggregate::too_many;
use crate::execute::context::Context;
use crate::plan::Slot;

/// What a row takes here.
const ROW_BYTES: u64 = 80;

#[derive(Clone, Copy, Debug)]
struct Merged {
    id: BlockId,
    is_loop: bool,
    weight: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Merge {
    pub node: Slot,
    /// Has whether the step to the node led from itself.
    pub loops: Option<Slot>,
    /// Where the rows of a node are, without and with a loop.
    places: [IdMap<usize>; 2],
    rows: Vec<Merged>,
    held_bytes: u64,
}

impl Merge {
    pub fn new(node: Slot, loops: Option<Slot>) -> Merge {
        Merge {
            node,
            loops,
            places: [IdMap::default(), IdMap::default()],
            rows: Vec::new(),
            held_bytes: 0,
        }
    }

    /// Takes rows in. Says whether there is memory for more.
    pub fn take(&mut self, batch: &Batch, cx: &Context<'_>) -> Result<bool> {
        let Column::Nodes(nodes) = &batch.columns[self.node] else {
            unreachable!("a step has led to the node");
        };
        let loops = match self.loops.map(|slot| &batch.columns[slot]) {
            Some(Column::Loops(loops)) => loops.as_slice(),
            _ => &[],
        };
        let before = self.rows.len();
        for (row, id) in nodes.ids.iter().enumerate() {
            let is_loop = loops.get(row).copied().unwrap_or(false);
            let next = self.rows.len();
            let place = *self.places[usize::from(is_loop)].entry(*id).or_insert(next);
            let weight = batch.weight(row);
            match self.rows.get_mut(place) {
                Some(merged) => {
                    merged.weight = merged.weight.checked_add(weight).ok_or_else(too_many)?;
                }
                None => self.rows.push(Merged {
                    id: *id,
                    is_loop,
                    weight,
                }),
            }
        }
        let bytes = (self.rows.len() - before) as u64 * ROW_BYTES;
        let held = cx.setting.held;
        let has_room = !held.has_no_room() && held.take_for_node(bytes);
        if has_room {
            self.held_bytes += bytes;
        }
        Ok(has_room)
    }

    /// The rows that were taken in, in batches of at most so many.
    pub fn hand_over(&mut self, most: usize, slots: usize, cx: &Context<'_>) -> Vec<Batch> {
        self.places = [IdMap::default(), IdMap::default()];
        cx.setting
            .held
            .give_back_for_nodes(std::mem::take(&mut self.held_bytes));
        let rows = std::mem::take(&mut self.rows);
        let batch = |rows: &[Merged]| {
            let mut batch = Batch::of(rows.len(), slots);
            batch.columns[self.node] =
                Column::Nodes(rows.iter().map(|row| row.id).collect::<Vec<_>>().into());
            if let Some(slot) = self.loops {
                batch.columns[slot] = Column::Loops(rows.iter().map(|row| row.is_loop).collect());
            }
            batch.weights = rows.iter().map(|row| row.weight).collect();
            batch
        };
        rows.chunks(most).map(batch).collect()
    }
}
