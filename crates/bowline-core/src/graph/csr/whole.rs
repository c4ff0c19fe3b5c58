//! The rows of all blocks, for algorithms over the whole graph: lent where they lie as they are asked for, else copied
//! row by row. Nothing is numbered anew: the caller has seen that the blocks are those of the base, in its order.

use std::ops::ControlFlow;

use super::super::source::KindFilter;
use super::super::view::Rows;
use super::rows::Kinds;
use super::state::{Part, State};
use bowline_types::{BlockId, Direction};

impl State {
    /// The ids of all blocks that it knows, ascending, if that is the order of ordinals.
    pub(crate) fn all_ids(&self) -> Option<&[BlockId]> {
        let ids = self.base.ids.all();
        (ids.len() == self.ordinals()).then_some(ids)
    }

    /// The rows of one direction at a revision that pass a filter: those of leaving edges in the order (kind, id), those
    /// of arriving ones in the order of ids.
    pub(crate) fn whole_rows(
        &self,
        direction: Direction,
        revision: u64,
        filter: &KindFilter,
    ) -> Rows<'_> {
        let is_arriving = direction == Direction::In;
        let (rows, has_changes) = match is_arriving {
            true => (&self.base.incoming, self.has_changed_rows(Direction::In)),
            false => (&self.base.out, self.has_changed_rows(Direction::Out)),
        };
        let has_one_kind = || match &rows.kinds {
            Kinds::Narrow(kinds) => kinds.iter().all(|kind| *kind == kinds[0]),
            Kinds::Wide(kinds) => kinds.iter().all(|kind| *kind == kinds[0]),
        };
        if *filter == KindFilter::All && !has_changes && (!is_arriving || has_one_kind()) {
            return Rows::lent(&rows.starts, &rows.far);
        }
        let mut starts = Vec::with_capacity(self.ordinals() + 1);
        let mut ends = Vec::with_capacity(rows.far.len());
        starts.push(0);
        for near in 0..self.ordinals() as u32 {
            let from = ends.len();
            let _ = self.visit_parts(near, direction, revision, filter, |part, _| {
                match part {
                    Part::Base(nodes, _) => ends.extend_from_slice(nodes),
                    Part::Added(far, _) => ends.push(far),
                }
                ControlFlow::<()>::Continue(())
            });
            if is_arriving && !ends[from..].is_sorted() {
                ends[from..].sort_unstable();
            }
            starts.push(ends.len());
        }
        Rows::own(starts, ends)
    }
}
