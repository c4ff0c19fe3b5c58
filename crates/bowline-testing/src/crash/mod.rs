//! Every state a power loss could leave, built from a [`Recording`].
//!
//! ```text
//! operations  0   1   2   3   4   5   6          a recording
//!             safe    safe        ^
//!                 maybe   maybe   |   maybe...   at point 5: 0 and 2 were synced, 1, 3, 4 not
//! ```
//!
//! At each point, `Durable` splits the operations before it into what is safe and what is
//! pending; [`Faults`] decides the fate of each pending one; [`CrashImage::build`] applies what
//! survives, in order. [`Images`] goes through points in ascending order, carrying `Durable`
//! along, and through the faults of each [`ImageKind`]; it yields all of them or an even,
//! repeatable sample, and counts them in [`Coverage`].
//!
//! The kinds, for a point with `u` pending operations:
//!
//! | kind | images | what is on the disk |
//! |---|---|---|
//! | prefix | 1 | everything: also what a killed process leaves |
//! | lost-all | 1 | only what is safe |
//! | missing-one | u | all but one pending operation |
//! | only-one | u | one pending operation, which overtook the rest |
//! | pair | u(u-1)/2 | all but two pending operations |
//! | torn512, torn4096 | see [`Tear`] | one write torn, the rest kept, or the rest lost |
//! | random | 8 | each pending operation kept, lost or torn at random |
//!
//! Where two kinds would give the same states (few pending operations), only the first counts.

mod coverage;
mod durable;
mod faults;
mod images;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

pub use coverage::{Coverage, ImageKind};
use durable::Durable;
pub use faults::{Faults, Tear, TearPattern};
pub use images::Images;

use crate::disk::{Recording, SimDisk};

/// One state that a crash could leave: a point of a recording, and what was lost there.
#[derive(Clone, Debug)]
pub struct CrashImage {
    recording: Recording,
    durable: Arc<Durable>,
    point: usize,
    faults: Faults,
}

impl CrashImage {
    /// The image of one crash, for example to repeat what a failed test printed.
    ///
    /// # Panics
    /// When the recording has no such point.
    #[must_use]
    pub fn at(recording: &Recording, point: usize, faults: Faults) -> CrashImage {
        let mut durable = Durable::new(recording);
        for (index, operation) in recording.operations()[..point].iter().enumerate() {
            durable.advance(index, operation, recording);
        }
        let recording = recording.clone();
        CrashImage {
            recording,
            durable: Arc::new(durable),
            point,
            faults,
        }
    }

    /// How many operations of the recording came before the crash.
    #[must_use]
    pub fn point(&self) -> usize {
        self.point
    }

    /// What was lost.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The numbers that [`SimDisk::mark`] noted before the crash, in order.
    #[must_use]
    pub fn marks(&self) -> Vec<u64> {
        self.recording.marks_until(self.point)
    }

    /// The disk after the crash: everything on it is durable, and nothing is recorded yet.
    #[must_use]
    pub fn build(&self) -> SimDisk {
        SimDisk::from_tree(self.durable.build(&self.faults, &self.recording))
    }
}

/// Says all that is needed to build the image again from the same recording.
impl fmt::Display for CrashImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recording = &self.recording;
        write!(f, "crash at point {} of {}", self.point, recording.len())?;
        if let Some(last) = self.point.checked_sub(1) {
            write!(f, " (after {})", recording.describe(last))?;
        }
        write!(f, ": {}", self.faults)?;
        for index in self.faults.named() {
            write!(f, "; {}", recording.describe(*index))?;
        }
        Ok(())
    }
}
