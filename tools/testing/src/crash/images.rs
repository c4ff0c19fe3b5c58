//! The iterator over crash images.
//!
//! The images of one kind are numbered: those of point 0 first, then those of point 1, and so on. The first
//! pass over the recording counts them; a sample draws numbers; the second pass, which is the iteration,
//! converts each chosen number to its faults. So neither the whole space nor a list of it is ever in memory.
//!
//! The sample has every prefix if that is at most three quarters of it, so that there is a crash at every
//! operation. The other kinds get equal shares (a small kind's remainder goes to the others). Each kind's
//! numbers are divided into as many equal stretches as its share, with one drawn from each: the images lie
//! evenly along the recording.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::coverage::{Coverage, ImageKind};
use super::durable::Durable;
use super::faults::{Faults, Tear};
use super::{CrashImage, ImageId};
use crate::disk::{Operation, Recording};

const KINDS: usize = ImageKind::ALL.len();
const RANDOM_PER_POINT: u64 = 8;
const GARBAGE_SECTOR_BYTES: u64 = 512;

/// Crash images of a recording, in ascending order of their point.
///
/// ```
/// use bowline_storage::vfs::{OpenMode, Vfs};
/// use bowline_testing::{Images, SimDisk};
/// use std::path::Path;
///
/// let disk = SimDisk::new();
/// let file = disk.open(Path::new("log"), OpenMode::CreateNew)?;
/// for round in 0..50 {
///     file.write_at(&[round; 3000], 3000 * u64::from(round))?;
/// }
/// let mut images = Images::sample(&disk.recording(), 42, 100);
/// for image in &mut images {
///     let crashed = image.build(); // open it, and compare what it holds with `image.marks()`
///     assert!(crashed.recording().is_empty());
/// }
/// assert_eq!(images.coverage().total_tried(), 100);
/// println!("{}", images.coverage());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Images {
    recording: Recording,
    seed: u64,
    chosen: [Chosen; KINDS],
    coverage: Coverage,
    // The position of the iteration: at this point, the kinds before `kind` are done.
    point: usize,
    kind: usize,
    durable: Arc<Durable>,
    counts: PointCounts,
    /// The number of each kind's first image at this point.
    starts: [u64; KINDS],
    /// The last point with a yielded image.
    last_tried: Option<usize>,
}

/// The chosen numbers of one kind's images, in ascending order.
#[derive(Debug)]
enum Chosen {
    Every { next: u64 },
    Some { numbers: std::vec::IntoIter<u64> },
}

impl Chosen {
    /// The next number, if it is below `end`.
    fn next_below(&mut self, end: u64) -> Option<u64> {
        match self {
            Chosen::Every { next } if *next < end => {
                *next += 1;
                Some(*next - 1)
            }
            Chosen::Some { numbers } if *numbers.as_slice().first()? < end => numbers.next(),
            _ => None,
        }
    }
}

impl Images {
    /// Every image of every kind. For small recordings: the number of images grows with the square of the
    /// pending operations.
    #[must_use]
    pub fn all(recording: &Recording, seed: u64) -> Images {
        Images::new(recording, 0, Durable::new(recording), seed, |_| {
            [const { Chosen::Every { next: 0 } }; KINDS]
        })
    }

    /// At most `count` images, spread evenly over kinds and points. The same recording, seed and count yield
    /// the same images.
    #[must_use]
    pub fn sample(recording: &Recording, seed: u64, count: u64) -> Images {
        Images::sample_from(recording, 0, seed, count)
    }

    /// At most `count` images of crashes at these points only, spread evenly over kinds and points: for rare
    /// moments of a recording.
    #[must_use]
    pub fn sample_at(
        recording: &Recording,
        points: &BTreeSet<usize>,
        seed: u64,
        count: u64,
    ) -> Images {
        // Of each kind, the stretches of numbers of the points, and their sum.
        let mut stretches: [Vec<(u64, u64)>; KINDS] = Default::default();
        let mut starts = [0; KINDS];
        let mut durable = Durable::new(recording);
        for point in 0..=recording.len() {
            let counts = PointCounts::of(&durable, recording).by_kind;
            for kind in 0..KINDS {
                if points.contains(&point) {
                    stretches[kind].push((starts[kind], counts[kind]));
                }
                starts[kind] += counts[kind];
            }
            if let Some(operation) = recording.operations().get(point) {
                durable.advance(point, operation, recording);
            }
        }
        let existing = stretches
            .each_ref()
            .map(|of_kind| of_kind.iter().map(|(_, count)| count).sum());
        let (mut random, shares) = (fastrand::Rng::with_seed(seed), shares(&existing, count));
        let durable = Durable::new(recording);
        Images::new(recording, 0, durable, seed, |_| {
            std::array::from_fn(|kind| {
                let mut left = stretches[kind].iter();
                let (mut start, mut end, mut before) = (0, 0, 0);
                let drawn = draw(&mut random, existing[kind], shares[kind]).into_iter();
                let numbers: Vec<u64> = drawn
                    .map(|number| {
                        while number >= end {
                            let (next, count) = left.next().expect("it is below the sum");
                            (start, before, end) = (*next, end, end + count);
                        }
                        start + (number - before)
                    })
                    .collect();
                Chosen::Some {
                    numbers: numbers.into_iter(),
                }
            })
        })
    }

    /// The image with this name, if the recording has it. The seed must be that of its sample.
    #[must_use]
    pub fn one(recording: &Recording, seed: u64, id: ImageId) -> Option<CrashImage> {
        let mut images = Images::new(recording, 0, Durable::new(recording), seed, |_| {
            std::array::from_fn(|kind| {
                let chosen = kind == id.kind as usize;
                Chosen::Some {
                    numbers: Vec::from_iter(chosen.then_some(id.number)).into_iter(),
                }
            })
        });
        images.next()
    }

    /// [`Images::sample`] of the crashes at point `first` and later.
    ///
    /// # Panics
    /// When the recording has no such point.
    #[must_use]
    pub fn sample_from(recording: &Recording, first: usize, seed: u64, count: u64) -> Images {
        let mut durable = Durable::new(recording);
        for (index, operation) in recording.operations()[..first].iter().enumerate() {
            durable.advance(index, operation, recording);
        }
        Images::sample_with(recording, first, durable, seed, count)
    }

    /// [`Images::sample`] of the power losses after the process was killed at `killed`. `recording` is that
    /// of the disk from [`CrashImage::kill`].
    ///
    /// # Panics
    /// When the recording does not reach the point of the kill.
    #[must_use]
    pub fn sample_after_kill(
        recording: &Recording,
        killed: &CrashImage,
        seed: u64,
        count: u64,
    ) -> Images {
        let durable = Durable::clone(&killed.durable);
        Images::sample_with(recording, killed.point, durable, seed, count)
    }

    fn sample_with(
        recording: &Recording,
        first: usize,
        durable: Durable,
        seed: u64,
        count: u64,
    ) -> Images {
        let mut random = fastrand::Rng::with_seed(seed);
        Images::new(recording, first, durable, seed, |existing| {
            let shares = shares(existing, count);
            std::array::from_fn(|kind| {
                let numbers = draw(&mut random, existing[kind], shares[kind]);
                Chosen::Some {
                    numbers: numbers.into_iter(),
                }
            })
        })
    }

    /// `at_first` is the state at point `first`.
    fn new(
        recording: &Recording,
        first: usize,
        at_first: Durable,
        seed: u64,
        choose: impl FnOnce(&[u64; KINDS]) -> [Chosen; KINDS],
    ) -> Images {
        let mut coverage = Coverage {
            points: (recording.len() - first) as u64 + 1,
            ..Coverage::default()
        };
        let mut durable = at_first.clone();
        for point in first..=recording.len() {
            let counts = PointCounts::of(&durable, recording);
            for (total, count) in coverage.existing.iter_mut().zip(counts.by_kind) {
                *total = total.saturating_add(count);
            }
            if let Some(operation) = recording.operations().get(point) {
                durable.advance(point, operation, recording);
            }
        }
        let durable = Arc::new(at_first);
        Images {
            recording: recording.clone(),
            seed,
            chosen: choose(&coverage.existing),
            coverage,
            point: first,
            kind: 0,
            counts: PointCounts::of(&durable, recording),
            durable,
            starts: [0; KINDS],
            last_tried: None,
        }
    }

    /// The numbers of yielded and existing images so far.
    #[must_use]
    pub fn coverage(&self) -> Coverage {
        self.coverage
    }

    /// Advances to the next point; `false` after the last.
    fn next_point(&mut self) -> bool {
        let Some(operation) = self.recording.operations.get(self.point) else {
            return false;
        };
        // Copies the state only while an image of this point is still held.
        Arc::make_mut(&mut self.durable).advance(self.point, operation, &self.recording);
        for (start, count) in self.starts.iter_mut().zip(self.counts.by_kind) {
            *start += count;
        }
        self.counts = PointCounts::of(&self.durable, &self.recording);
        self.point += 1;
        self.kind = 0;
        true
    }
}

impl Iterator for Images {
    type Item = CrashImage;

    fn next(&mut self) -> Option<CrashImage> {
        loop {
            let Some(kind) = ImageKind::ALL.get(self.kind).copied() else {
                if self.next_point() {
                    continue;
                }
                return None;
            };
            let start = self.starts[self.kind];
            let end = start + self.counts.by_kind[self.kind];
            let Some(number) = self.chosen[self.kind].next_below(end) else {
                self.kind += 1;
                continue;
            };
            self.coverage.tried[self.kind] += 1;
            if self.last_tried != Some(self.point) {
                self.coverage.points_tried += 1;
                self.last_tried = Some(self.point);
            }
            let seed = mix(self.seed, number);
            return Some(CrashImage {
                faults: self
                    .counts
                    .faults(kind, number - start, seed, &self.recording),
                recording: self.recording.clone(),
                durable: self.durable.clone(),
                point: self.point,
                id: Some(ImageId { kind, number }),
            });
        }
    }
}

/// The images of one point: their number per kind, and their faults.
#[derive(Debug)]
struct PointCounts {
    uncertain: Vec<usize>,
    by_kind: [u64; KINDS],
}

impl PointCounts {
    fn of(durable: &Durable, recording: &Recording) -> PointCounts {
        let uncertain: Vec<usize> = durable.uncertain().collect();
        let pending = uncertain.len() as u64;
        let others = PointCounts::others(&uncertain);
        let tears = |sector_bytes| {
            let count = |index: &usize| Tear::count(&recording.operations[*index], sector_bytes);
            uncertain.iter().map(count).sum::<u64>() * others
        };
        let at_least = |least, count| if pending >= least { count } else { 0 };
        let by_kind = ImageKind::ALL.map(|kind| match kind {
            ImageKind::Prefix => 1,
            ImageKind::LostAll => at_least(1, 1),
            ImageKind::MissingOne => at_least(2, pending),
            // With two pending, keeping one is the same as losing the other.
            ImageKind::OnlyOne => at_least(3, pending),
            ImageKind::Pair => at_least(4, pending * pending.saturating_sub(1) / 2),
            ImageKind::Torn512 => tears(512),
            ImageKind::Torn4096 => tears(4096),
            ImageKind::Garbage => {
                let count = |index: &usize| {
                    Tear::count_with_garbage(&recording.operations[*index], GARBAGE_SECTOR_BYTES)
                };
                uncertain.iter().map(count).sum::<u64>() * others
            }
            ImageKind::Random => at_least(2, RANDOM_PER_POINT),
        });
        PointCounts { uncertain, by_kind }
    }

    /// With other operations pending, a tear is tried with them kept and with them lost.
    fn others(uncertain: &[usize]) -> u64 {
        if uncertain.len() >= 2 { 2 } else { 1 }
    }

    /// The faults of the image with number `nth` among this point's images of `kind`.
    fn faults(&self, kind: ImageKind, nth: u64, seed: u64, recording: &Recording) -> Faults {
        match kind {
            ImageKind::Prefix => Faults::AllKept,
            ImageKind::LostAll => Faults::AllLost,
            ImageKind::MissingOne => Faults::Missing(vec![self.uncertain[nth as usize]]),
            ImageKind::OnlyOne => Faults::Only(vec![self.uncertain[nth as usize]]),
            ImageKind::Pair => {
                let (first, second) = pair(nth, self.uncertain.len() as u64);
                Faults::Missing(vec![self.uncertain[first], self.uncertain[second]])
            }
            ImageKind::Torn512 => self.torn(512, nth, recording),
            ImageKind::Torn4096 => self.torn(4096, nth, recording),
            ImageKind::Garbage => self.garbage(nth, seed, recording),
            ImageKind::Random => Faults::Random { seed },
        }
    }

    fn torn(&self, sector_bytes: u64, nth: u64, recording: &Recording) -> Faults {
        let count = |operation: &Operation| Tear::count(operation, sector_bytes);
        let tear = |operation: &Operation, nth| Tear::nth(operation, sector_bytes, nth);
        self.tear(nth, recording, count, tear)
    }

    fn garbage(&self, nth: u64, seed: u64, recording: &Recording) -> Faults {
        let bytes = GARBAGE_SECTOR_BYTES;
        let count = |operation: &Operation| Tear::count_with_garbage(operation, bytes);
        let tear = |operation: &Operation, nth| Tear::nth_with_garbage(operation, bytes, nth, seed);
        self.tear(nth, recording, count, tear)
    }

    fn tear(
        &self,
        nth: u64,
        recording: &Recording,
        count: impl Fn(&Operation) -> u64,
        tear: impl Fn(&Operation, u64) -> Tear,
    ) -> Faults {
        let others = PointCounts::others(&self.uncertain);
        let mut left = nth / others;
        for index in &self.uncertain {
            let operation = &recording.operations[*index];
            let count = count(operation);
            if left < count {
                return Faults::Torn {
                    operation: *index,
                    tear: tear(operation, left),
                    others_kept: nth.is_multiple_of(others),
                };
            }
            left -= count;
        }
        unreachable!("the number of a tear is below their count")
    }
}

/// The pair with number `nth` of (0,1), (0,2), …, (0,len-1), (1,2), …
fn pair(mut nth: u64, len: u64) -> (usize, usize) {
    let mut first = 0;
    while nth >= len - 1 - first {
        nth -= len - 1 - first;
        first += 1;
    }
    (first as usize, (first + 1 + nth) as usize)
}

/// Divides `count` among the kinds as evenly as their sizes allow; but every prefix, when that takes at most
/// three quarters.
fn shares(existing: &[u64; KINDS], count: u64) -> [u64; KINDS] {
    let mut by_size: [usize; KINDS] = std::array::from_fn(|kind| kind);
    by_size.sort_by_key(|kind| existing[*kind]);
    let prefixes = existing[ImageKind::Prefix as usize];
    let takes_all = prefixes <= count - count / 4;
    if takes_all {
        by_size.sort_by_key(|kind| *kind != ImageKind::Prefix as usize);
    }
    let mut shares = [0; KINDS];
    let mut left = count;
    for (done, kind) in by_size.into_iter().enumerate() {
        let is_first = done == 0 && takes_all;
        let most = if is_first {
            left
        } else {
            left / (KINDS - done) as u64
        };
        shares[kind] = existing[kind].min(most);
        left -= shares[kind];
    }
    shares
}

/// Draws `count` different numbers below `total`, one from each of `count` equal stretches.
fn draw(random: &mut fastrand::Rng, total: u64, count: u64) -> Vec<u64> {
    let edge = |stretch: u64| {
        let edge = u128::from(stretch) * u128::from(total) / u128::from(count);
        u64::try_from(edge).unwrap_or(total)
    };
    (0..count)
        .map(|stretch| random.u64(edge(stretch)..edge(stretch + 1)))
        .collect()
}

/// The seed of one image, from the common seed and the image's number (splitmix64's finish).
fn mix(seed: u64, number: u64) -> u64 {
    let mut mixed = seed ^ number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_numbered_without_gap_or_repetition() {
        let pairs: Vec<_> = (0..10).map(|nth| pair(nth, 5)).collect();
        let expected: Vec<_> = (0..5)
            .flat_map(|a| (a + 1..5).map(move |b| (a, b)))
            .collect();
        assert_eq!(pairs, expected);
    }

    #[test]
    fn prefixes_come_first_and_small_kinds_leave_their_share_to_large_ones() {
        assert_eq!(
            shares(&[1, 0, 1000, 3, 1000, 1000, 1000, 0, 0], 44),
            [1, 0, 10, 3, 10, 10, 10, 0, 0]
        );
        // All prefixes, when they are at most three quarters, and otherwise an even share.
        assert_eq!(
            shares(&[60, 0, 1000, 1000, 0, 0, 0, 0, 0], 80),
            [60, 0, 10, 10, 0, 0, 0, 0, 0]
        );
        assert_eq!(
            shares(&[61, 0, 1000, 1000, 0, 0, 0, 0, 0], 80),
            [26, 0, 27, 27, 0, 0, 0, 0, 0]
        );
        assert_eq!(shares(&[5; KINDS], 1000), [5; KINDS]);
        assert_eq!(shares(&[5; KINDS], 3).iter().sum::<u64>(), 3);
    }

    #[test]
    fn a_named_image_is_the_one_of_the_sample() {
        use crate::SimDisk;
        use bowline_storage::vfs::{OpenMode, Vfs};
        let disk = SimDisk::new();
        let file = disk
            .open(std::path::Path::new("f"), OpenMode::CreateNew)
            .unwrap();
        for round in 0..6 {
            file.write_at(&[round; 1600], 1600 * u64::from(round))
                .unwrap();
        }
        let recording = disk.recording();
        for image in Images::sample(&recording, 5, 60) {
            let id: ImageId = image.id().unwrap().to_string().parse().unwrap();
            let again = Images::one(&recording, 5, id).unwrap();
            assert_eq!(again.to_string(), image.to_string());
        }
        let none = ImageId {
            kind: ImageKind::Pair,
            number: 1 << 40,
        };
        assert!(Images::one(&recording, 5, none).is_none());
        assert!("pair".parse::<ImageId>().is_err() && "par:1".parse::<ImageId>().is_err());
    }

    #[test]
    fn images_at_points_are_those_of_the_whole_at_these_points() {
        use crate::SimDisk;
        use bowline_storage::vfs::{OpenMode, Vfs};
        let disk = SimDisk::new();
        let file = disk
            .open(std::path::Path::new("f"), OpenMode::CreateNew)
            .unwrap();
        for round in 0..6 {
            file.write_at(&[round; 600], 600 * u64::from(round))
                .unwrap();
        }
        let recording = disk.recording();
        let points = BTreeSet::from([2, 5]);
        let shown = |image: CrashImage| image.to_string();
        let all = Images::all(&recording, 1).filter(|image| points.contains(&image.point()));
        let all: Vec<_> = all.map(shown).collect();
        let at = |count| Images::sample_at(&recording, &points, 1, count).map(shown);
        assert_eq!(at(u64::MAX / 2).collect::<Vec<_>>(), all);
        let few: Vec<_> = at(20).collect();
        assert_eq!(few.len(), 20);
        assert!(few.iter().all(|image| all.contains(image)), "{few:#?}");
    }

    #[test]
    fn a_kill_goes_on_with_what_was_not_synced() {
        use crate::SimDisk;
        use bowline_storage::vfs::{OpenMode, Vfs};
        use std::path::Path;
        let disk = SimDisk::new();
        let path = Path::new("f");
        let file = disk.open(path, OpenMode::CreateNew).unwrap();
        disk.sync_dir(Path::new("")).unwrap();
        file.write_at(b"one", 0).unwrap();
        disk.mark(7);
        file.write_at(b"two", 3).unwrap();
        let killed = CrashImage::at(&disk.recording(), 3, Faults::AllLost);
        let next = killed.kill();
        assert_eq!(next.read(path).unwrap(), b"one");
        let file = next.open(path, OpenMode::ReadWrite).unwrap();
        file.write_at(b"TWO", 3).unwrap();
        let recording = next.recording();
        let mut found = BTreeSet::new();
        for image in Images::sample_after_kill(&recording, &killed, 1, u64::MAX) {
            assert_eq!(image.marks(), [7], "{image}");
            found.insert(image.build().read(path).unwrap());
        }
        for wanted in [b"".as_slice(), b"one", b"oneTWO"] {
            assert!(found.contains(wanted), "{found:?}");
        }
    }

    #[test]
    fn images_from_a_point_are_those_of_the_later_points() {
        use crate::SimDisk;
        use bowline_storage::vfs::{OpenMode, Vfs};
        let disk = SimDisk::new();
        let file = disk
            .open(std::path::Path::new("f"), OpenMode::CreateNew)
            .unwrap();
        for round in 0..6 {
            file.write_at(&[round; 600], 600 * u64::from(round))
                .unwrap();
        }
        let recording = disk.recording();
        let all = Images::all(&recording, 1).filter(|image| image.point() >= 4);
        let from = Images::sample_from(&recording, 4, 1, u64::MAX);
        // Image numbers restart with the new recording, and seeds follow from them.
        let is_seeded = |image: &CrashImage| {
            let kind = image.id().map(|id| id.kind);
            matches!(kind, Some(ImageKind::Random | ImageKind::Garbage))
        };
        let shown = |image: CrashImage| (image.point(), image.faults().clone());
        assert_eq!(
            from.filter(|image| !is_seeded(image))
                .map(shown)
                .collect::<Vec<_>>(),
            all.filter(|image| !is_seeded(image))
                .map(shown)
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn drawn_numbers_are_different_and_spread() {
        let mut random = fastrand::Rng::with_seed(3);
        assert_eq!(draw(&mut random, 5, 5), [0, 1, 2, 3, 4]);
        let drawn = draw(&mut random, 1000, 10);
        for (stretch, number) in drawn.iter().enumerate() {
            assert_eq!((number / 100) as usize, stretch);
        }
        assert!(draw(&mut random, 0, 0).is_empty());
    }
}
