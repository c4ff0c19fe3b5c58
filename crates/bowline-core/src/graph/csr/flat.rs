//! [`Flat`]: the changed rows of a chunk, each in one piece, as the newest revision has them.
//!
//! A changed row is read in parts: its own list of cuts, and between them the row of the base. To find the parts costs a
//! search more than the edges in them. So once the changed rows of a chunk were read about as often as there are such rows,
//! they are copied, which costs about as much as those reads did. A change makes a new chunk, whose rows are read in parts
//! again.
//!
//! # Invariants
//!
//! - A copy belongs to one state of its chunk, which never changes after a reader had it.
//! - It answers the revisions from the newest change of its chunk on. Older ones are read in parts.
//! - Copies take at most half of what the budget leaves.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::rows::Rows;

/// A longer row is not copied: it has many edges between two cuts, and to copy it after each change of a hub is dear.
pub(super) const ROW_MAX: usize = 1024;
/// So many reads more than there are changed rows make a copy worth while: it has a fixed cost, too.
const READS_MIN: u32 = if cfg!(test) { 1 } else { 16 };

/// Rows by their place in the chunk; those without a copy are empty.
#[derive(Debug)]
pub(super) struct Flat {
    rows: Rows,
    total: FlatBytes,
}

impl Flat {
    /// `None` if the copies would take more than `room_bytes`.
    pub(super) fn new(rows: Rows, total: &FlatBytes, room_bytes: u64) -> Option<Flat> {
        let bytes = rows.memory_bytes();
        if bytes > room_bytes {
            return None;
        }
        total.0.fetch_add(bytes, Ordering::Relaxed);
        let total = total.clone();
        Some(Flat { rows, total })
    }

    /// The places of a row in the rows; `None` if it has no copy, or no edges.
    #[inline]
    pub(super) fn row(&self, slot: usize) -> Option<(&Rows, Range<usize>)> {
        let row = self.rows.row(slot as u32);
        (!row.is_empty()).then_some((&self.rows, row))
    }
}

impl Drop for Flat {
    fn drop(&mut self) {
        let bytes = self.rows.memory_bytes();
        self.total.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What all copies take that belong to states of one base.
#[derive(Clone, Debug, Default)]
pub(super) struct FlatBytes(Arc<AtomicU64>);

impl FlatBytes {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The copy of a state of a chunk, if there is one. A clone is of a state that has none.
#[derive(Debug, Default)]
pub(super) struct FlatSlot {
    flat: OnceLock<Box<Flat>>,
    /// Reads of changed rows in parts.
    reads: AtomicU32,
}

impl FlatSlot {
    #[inline]
    pub(super) fn get(&self) -> Option<&Flat> {
        self.flat.get().map(|flat| &**flat)
    }

    /// Notes a read in parts; whether a copy is worth while now, of so many rows. Then it is not for as many reads.
    pub(super) fn is_worth_while(&self, rows: usize) -> bool {
        let reads = self.reads.fetch_add(1, Ordering::Relaxed) + 1;
        let is_worth_while = reads >= rows as u32 + READS_MIN;
        if is_worth_while {
            self.reads.store(0, Ordering::Relaxed);
        }
        is_worth_while
    }

    /// Sets the copy; one that another reader has set meanwhile stays.
    pub(super) fn set(&self, flat: Flat) {
        let _ = self.flat.set(Box::new(flat));
    }
}

impl Clone for FlatSlot {
    fn clone(&self) -> FlatSlot {
        FlatSlot::default()
    }
}
