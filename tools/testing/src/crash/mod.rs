//! Every state that a power loss could leave, built from a [`Recording`].
//!
//! ```text
//! operations  0   1   2   3   4   5   6          a recording
//!             safe    safe        ^
//!                 maybe   maybe   |   maybe...   at point 5: 0 and 2 were synced, 1, 3, 4 not
//! ```
//!
//! At each point, `Durable` divides the earlier operations into safe and pending ones; [`Faults`] decides the
//! fate of each pending one; [`CrashImage::build`] applies the survivors, in order. [`Images`] advances
//! `Durable` through the points in ascending order, and through the faults of each [`ImageKind`]; it yields
//! all of them or an even, repeatable sample, and counts them in [`Coverage`].
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
//! | garbage | see [`Tear`] | one write leaves garbage where it is not new, in a part of it or in all |
//! | random | 8 | each pending operation kept, lost or torn at random |
//!
//! Every image has a name, its kind and a number ([`ImageId`]), by which it is built again from the same
//! recording and seed ([`Images::one`]). [`CrashImage::kill`] is the crash without the power loss: another
//! process continues with what was written, and [`Images::sample_after_kill`] yields the power losses that
//! may follow.
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

impl SimDisk {
    /// The disk that a new process finds when this one is killed now: everything was kept.
    #[must_use]
    pub fn after_kill(&self) -> SimDisk {
        self.crashed(Faults::AllKept)
    }

    /// The disk after a power loss now, when everything that was not synced is lost.
    #[must_use]
    pub fn after_power_loss(&self) -> SimDisk {
        self.crashed(Faults::AllLost)
    }

    /// The disk of a recording at one of its points, as the next process finds it when the recorded one is
    /// killed there: all writes read back, and unsynced ones stay unsynced. The recording continues from
    /// there, with its marks.
    ///
    /// # Panics
    /// When the recording has no such point.
    #[must_use]
    pub fn killed_at(recording: &Recording, point: usize) -> SimDisk {
        CrashImage::at(recording, point, Faults::AllKept).kill()
    }

    fn crashed(&self, faults: Faults) -> SimDisk {
        let recording = self.recording();
        CrashImage::at(&recording, recording.len(), faults).build()
    }
}

/// One state that a crash could leave: a point of a recording, and the losses there.
#[derive(Clone, Debug)]
pub struct CrashImage {
    recording: Recording,
    durable: Arc<Durable>,
    point: usize,
    faults: Faults,
    id: Option<ImageId>,
}

/// The name of an image within a recording: its kind, and its number within the kind. Displayed and parsed as
/// `pair:1234`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ImageId {
    /// The kind.
    pub kind: ImageKind,
    /// The number, from 0, in ascending order of the points.
    pub number: u64,
}

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name(), self.number)
    }
}

impl std::str::FromStr for ImageId {
    type Err = String;

    fn from_str(text: &str) -> Result<ImageId, String> {
        let parse = || {
            let (name, number) = text.split_once(':')?;
            let kind = ImageKind::ALL
                .into_iter()
                .find(|kind| kind.name() == name)?;
            let number = number.parse().ok()?;
            Some(ImageId { kind, number })
        };
        parse().ok_or_else(|| format!("{text:?} names no image; one is named like pair:1234"))
    }
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
            id: None,
        }
    }

    /// The image's name; none when it was built by [`CrashImage::at`].
    #[must_use]
    pub fn id(&self) -> Option<ImageId> {
        self.id
    }

    /// The number of operations before the crash.
    #[must_use]
    pub fn point(&self) -> usize {
        self.point
    }

    /// The losses.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The operations that are not safe at this point, in order.
    #[must_use]
    pub fn pending(&self) -> Vec<usize> {
        self.durable.uncertain().collect()
    }

    /// What becomes of each operation that is not safe, in words.
    ///
    /// ```
    /// use std::path::Path;
    /// use bowline_storage::vfs::{OpenMode, Vfs};
    /// use bowline_testing::SimDisk;
    /// use bowline_testing::crash::{CrashImage, Faults};
    ///
    /// let disk = SimDisk::new();
    /// let file = disk.open(Path::new("f"), OpenMode::CreateNew).unwrap();
    /// file.write_at(b"unsynced", 0).unwrap();
    /// let recording = disk.recording();
    /// let image = CrashImage::at(&recording, recording.len(), Faults::AllLost);
    /// assert!(image.fates().iter().all(|fate| fate.ends_with("is lost")));
    /// ```
    #[must_use]
    pub fn fates(&self) -> Vec<String> {
        let mut fates = self.faults.fates();
        let describe = |index: usize| {
            let fate = fates.decide(index, &self.recording.operations()[index]);
            format!("{} {fate}", self.recording.describe(index))
        };
        self.durable.uncertain().map(describe).collect()
    }

    /// The marks before the crash, in order; see [`SimDisk::mark`].
    #[must_use]
    pub fn marks(&self) -> Vec<u64> {
        self.recording.marks_until(self.point)
    }

    /// The disk after the crash: everything on it is durable, and nothing is recorded yet.
    #[must_use]
    pub fn build(&self) -> SimDisk {
        SimDisk::from_tree(self.durable.build(&self.faults, &self.recording))
    }

    /// The disk that the next process finds when this one is killed at the image's point, without a power
    /// loss: all writes read back, whatever the image's faults, and unsynced ones stay unsynced. The
    /// recording continues from there, with its marks; [`Images::sample_after_kill`] yields the power losses
    /// that may follow.
    #[must_use]
    pub fn kill(&self) -> SimDisk {
        let live = self.durable.build(&Faults::AllKept, &self.recording);
        SimDisk::continued(&self.recording, self.point, live)
    }
}

/// Prints all that is needed to build the image again from the same recording.
impl fmt::Display for CrashImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recording = &self.recording;
        if let Some(id) = &self.id {
            write!(f, "{id}, ")?;
        }
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
