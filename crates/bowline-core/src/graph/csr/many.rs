//! The rows of many blocks at once.
//!
//! A row of one block is four loads behind one another: where the id's search begins, the id it is compared with, where
//! the row begins, and the row; then the ids of its ends. Here the blocks take each step together, and each step asks for
//! the memory that the next one reads, so that the loads of many blocks are under way at once.

use std::ops::ControlFlow;

use bowline_storage::prefetch::prefetch_from;
use bowline_types::{BlockId, Direction};

use super::super::kind_id::KindId;
use super::super::source::KindFilter;
use super::state::{PlainKinds, State};

/// Blocks that take the steps together.
const TURN: usize = 32;
/// The ids of a row's ends are asked for while so many rows before it are visited.
const ROWS_AHEAD: usize = 2;
/// No ordinal: the view does not know the block.
const NONE: u32 = u32::MAX;

impl State {
    /// Visits the neighbors of each of some blocks, block by block, each as [`State::visit`] does; the first argument is
    /// the place of the block in `ids`.
    pub fn visit_many<B>(
        &self,
        ids: &[BlockId],
        direction: Direction,
        revision: u64,
        filter: &KindFilter,
        mut visit: impl FnMut(usize, u32, KindId, Direction) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let rows = self.plain_rows(direction, revision, filter);
        let known = &self.base.ids;
        for (turn, ids) in ids.chunks(TURN).enumerate() {
            let mut slots = [0; TURN];
            let mut ordinals = [NONE; TURN];
            let mut lent: [Option<(&[u32], PlainKinds<'_>)>; TURN] = [None; TURN];
            for (slot, &id) in slots.iter_mut().zip(ids) {
                *slot = known.begin(id);
            }
            let slots = &slots[..ids.len()];
            slots.iter().for_each(|&slot| known.prefetch_first(slot));
            for ((ordinal, &slot), &id) in ordinals.iter_mut().zip(slots).zip(ids) {
                let found = known.ordinal_from(slot, id);
                *ordinal = found.or_else(|| self.extra_ordinal(id)).unwrap_or(NONE);
                rows.prefetch_start(*ordinal);
            }
            let ordinals = &ordinals[..ids.len()];
            for (lent, &near) in lent.iter_mut().zip(ordinals) {
                *lent = rows.get(near);
                if let Some((nodes, kinds)) = lent {
                    nodes.first().inspect(|first| prefetch_from(*first, 1));
                    kinds.prefetch();
                }
            }
            for &(nodes, _) in lent[..ROWS_AHEAD].iter().flatten() {
                self.prefetch_ids(nodes);
            }
            for (at, &near) in ordinals.iter().enumerate() {
                if let Some(&Some((nodes, _))) = lent.get(at + ROWS_AHEAD) {
                    self.prefetch_ids(nodes);
                }
                let place = turn * TURN + at;
                let mut visit = |far, kind, direction| visit(place, far, kind, direction);
                match lent[at] {
                    Some((nodes, kinds)) => {
                        self.visit_lent(nodes, kinds, direction, &mut visit)?;
                    }
                    None if near == NONE => {}
                    None => self.visit_any(near, direction, revision, filter, &mut visit)?,
                }
            }
        }
        ControlFlow::Continue(())
    }
}
