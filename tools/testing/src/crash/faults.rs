//! The effects of a crash on pending operations.

use std::fmt;

use crate::disk::{Operation, Payload, Tree};

/// The effect of a crash on the pending operations. Operations are named by their index in the recording;
/// safe ones are not affected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Faults {
    /// Nothing is lost, as when a process is killed.
    AllKept,
    /// Everything pending is lost.
    AllLost,
    /// These are lost, the rest is kept.
    Missing(Vec<usize>),
    /// These are kept, the rest is lost.
    Only(Vec<usize>),
    /// One write is torn.
    Torn {
        /// The write.
        operation: usize,
        /// How it is torn.
        tear: Tear,
        /// Whether the other pending operations are kept, or lost.
        others_kept: bool,
    },
    /// One write was under way: what is on the disk in all of its sectors is garbage by this seed, also what was
    /// synced before and shares the first or the last of them.
    Neighbours {
        /// The write.
        operation: usize,
        /// Size of a sector.
        sector_bytes: u64,
        /// Whether the other pending operations are kept, or lost.
        others_kept: bool,
        /// The seed.
        seed: u64,
    },
    /// Each pending operation is kept, lost or (if it is a write) torn, by this seed.
    Random {
        /// The seed.
        seed: u64,
    },
}

impl Faults {
    /// The operations that the faults name.
    pub(super) fn named(&self) -> &[usize] {
        match self {
            Faults::AllKept | Faults::AllLost | Faults::Random { .. } => &[],
            Faults::Missing(operations) | Faults::Only(operations) => operations,
            Faults::Torn { operation, .. } | Faults::Neighbours { operation, .. } => {
                std::slice::from_ref(operation)
            }
        }
    }

    pub(super) fn fates(&self) -> Fates<'_> {
        let seed = if let Faults::Random { seed } = self {
            *seed
        } else {
            0
        };
        let mut random = fastrand::Rng::with_seed(seed);
        let lost_of_4 = random.u8(1..4);
        Fates {
            faults: self,
            random,
            lost_of_4,
        }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Faults::AllKept => write!(f, "nothing lost"),
            Faults::AllLost => write!(f, "everything unsynced lost"),
            Faults::Missing(operations) => write!(f, "missing {operations:?}"),
            Faults::Only(operations) => write!(f, "of the unsynced only {operations:?} kept"),
            Faults::Torn {
                operation,
                tear,
                others_kept,
            } => {
                let others = if *others_kept { "kept" } else { "lost" };
                write!(f, "torn #{operation} ({tear}), other unsynced {others}")
            }
            Faults::Neighbours {
                operation,
                sector_bytes,
                others_kept,
                ..
            } => {
                let others = if *others_kept { "kept" } else { "lost" };
                write!(
                    f,
                    "garbage in the sectors of {sector_bytes} bytes of #{operation}, other unsynced {others}"
                )
            }
            Faults::Random { seed } => write!(f, "random, seed {seed}"),
        }
    }
}

/// The fate of one pending operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    Kept,
    Lost,
    Torn(Tear),
    /// The whole sectors of that size, by a seed.
    Garbage(u64, u64),
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fate::Kept => f.write_str("is kept"),
            Fate::Lost => f.write_str("is lost"),
            Fate::Torn(tear) => write!(f, "is torn ({tear})"),
            Fate::Garbage(sector_bytes, _) => {
                write!(f, "leaves garbage in its sectors of {sector_bytes} bytes")
            }
        }
    }
}

/// Decides fates; must be asked for the pending operations in order.
#[derive(Debug)]
pub(super) struct Fates<'a> {
    faults: &'a Faults,
    random: fastrand::Rng,
    lost_of_4: u8,
}

impl Fates<'_> {
    pub(super) fn decide(&mut self, index: usize, operation: &Operation) -> Fate {
        let kept = match self.faults {
            Faults::AllKept => true,
            Faults::AllLost => false,
            Faults::Missing(missing) => !missing.contains(&index),
            Faults::Only(only) => only.contains(&index),
            Faults::Torn {
                operation: torn,
                tear,
                others_kept,
            } => {
                if *torn == index {
                    return Fate::Torn(*tear);
                }
                *others_kept
            }
            Faults::Neighbours {
                operation: torn,
                sector_bytes,
                others_kept,
                seed,
            } => {
                if *torn == index {
                    return Fate::Garbage(*sector_bytes, *seed);
                }
                *others_kept
            }
            Faults::Random { .. } => return self.decide_at_random(operation),
        };
        if kept { Fate::Kept } else { Fate::Lost }
    }

    fn decide_at_random(&mut self, operation: &Operation) -> Fate {
        let random = &mut self.random;
        if matches!(operation, Operation::Write { .. }) && random.u8(0..4) == 0 {
            let sector_bytes = if random.bool() { 512 } else { 4096 };
            let pattern = TearPattern::Random(random.u64(..));
            let garbage = random.bool().then(|| random.u64(..));
            return Fate::Torn(Tear {
                sector_bytes,
                pattern,
                whole_length: garbage.is_some() || random.bool(),
                garbage,
            });
        }
        if random.u8(0..4) < self.lost_of_4 {
            Fate::Lost
        } else {
            Fate::Kept
        }
    }
}

/// How one write is torn. Sectors lie at multiples of their size in the file; each is old or new.
///
/// A write over `s` sectors has these tears: its first 1 to s-1 sectors kept (and, when the write grows the
/// file, the same with the new length); its last 1 to s-1 kept; all but one in the middle; every other one;
/// and, when it grows the file, none with the new length. Of cuts within trailing zeros only the first is
/// tried, since they hardly differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tear {
    /// Size of a sector: 512 or 4096.
    pub sector_bytes: u64,
    /// Which sectors are new.
    pub pattern: TearPattern,
    /// Whether the file has the length of the whole write (missing sectors read as zeros), or ends after the
    /// last new sector.
    pub whole_length: bool,
    /// The seed of what stands where a sector is not new: neither its old bytes nor the new ones. Only the write's
    /// own bytes are affected, and not where they are written again as they were: that is a case of
    /// [`Faults::Neighbours`].
    pub garbage: Option<u64>,
}

/// The new sectors of a torn write, counted from 0 within the write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TearPattern {
    /// None.
    None,
    /// That many first ones.
    First(u64),
    /// That many last ones.
    Last(u64),
    /// All but this one.
    AllBut(u64),
    /// Numbers 0, 2, 4, …
    Even,
    /// Numbers 1, 3, 5, …
    Odd,
    /// Each with an even chance, by this seed.
    Random(u64),
}

impl Tear {
    /// The number of different tears of an operation; 0 unless it is a write.
    pub(super) fn count(operation: &Operation, sector_bytes: u64) -> u64 {
        let Operation::Write {
            offset,
            data,
            grows,
            ..
        } = operation
        else {
            return 0;
        };
        let cuts = Cuts::of(*offset, data, sector_bytes);
        let grows = u64::from(*grows);
        let halves = if cuts.sectors >= 4 { 2 } else { 0 };
        cuts.ends * (2 + grows) + cuts.middle + halves + grows
    }

    /// The tear with number `nth`, which is below [`Tear::count`].
    pub(super) fn nth(operation: &Operation, sector_bytes: u64, mut nth: u64) -> Tear {
        let (cuts, grows) = match operation {
            Operation::Write {
                offset,
                data,
                grows,
                ..
            } => (Cuts::of(*offset, data, sector_bytes), *grows),
            _ => (Cuts::default(), false),
        };
        let tear = |pattern, whole_length| Tear {
            sector_bytes,
            pattern,
            whole_length,
            garbage: None,
        };
        for (whole_length, offered) in [(false, true), (true, grows)] {
            if offered {
                if nth < cuts.ends {
                    return tear(TearPattern::First(nth + 1), whole_length);
                }
                nth -= cuts.ends;
            }
        }
        if nth < cuts.ends {
            return tear(TearPattern::Last(cuts.sectors - 1 - nth), true);
        }
        nth -= cuts.ends;
        if nth < cuts.middle {
            return tear(TearPattern::AllBut(nth + 1), true);
        }
        nth -= cuts.middle;
        match (cuts.sectors >= 4, nth) {
            (true, 0) => tear(TearPattern::Even, true),
            (true, 1) => tear(TearPattern::Odd, true),
            _ => tear(TearPattern::None, true),
        }
    }

    /// The number of different tears that leave garbage; 0 unless it is a write.
    pub(super) fn count_with_garbage(operation: &Operation, sector_bytes: u64) -> u64 {
        match operation {
            Operation::Write { .. } => 1 + Tear::count(operation, sector_bytes),
            _ => 0,
        }
    }

    /// The tear that leaves garbage with number `nth`, which is below [`Tear::count_with_garbage`]. The first has
    /// nothing but garbage.
    pub(super) fn nth_with_garbage(
        operation: &Operation,
        sector_bytes: u64,
        nth: u64,
        seed: u64,
    ) -> Tear {
        let pattern = match nth.checked_sub(1) {
            None => TearPattern::None,
            Some(nth) => Tear::nth(operation, sector_bytes, nth).pattern,
        };
        Tear {
            sector_bytes,
            pattern,
            whole_length: true,
            garbage: Some(seed),
        }
    }

    /// Applies the surviving part of a write.
    pub(super) fn apply(&self, tree: &mut Tree, operation: &Operation) {
        let Operation::Write {
            inode,
            offset,
            data,
            ..
        } = operation
        else {
            return;
        };
        let Some(contents) = tree.file_mut(*inode) else {
            return;
        };
        let end = offset + data.len();
        let first = offset / self.sector_bytes;
        let sectors = sectors_of(*offset, data.len(), self.sector_bytes);
        let mut keeps = self.pattern.keeper(sectors);
        let mut noise = fastrand::Rng::with_seed(self.garbage.unwrap_or(0));
        for sector in 0..sectors {
            let start = (*offset).max((first + sector) * self.sector_bytes);
            let stop = end.min((first + sector + 1) * self.sector_bytes);
            let new = match data {
                Payload::Zeros(_) => None,
                Payload::Bytes(bytes) => {
                    Some(&bytes[(start - offset) as usize..(stop - offset) as usize])
                }
            };
            match new {
                _ if !keeps(sector) => {
                    let mut old = vec![0; (stop - start) as usize];
                    let was = contents.read(&mut old, start);
                    let is_there = was == old.len() && new.is_some_and(|new| new == old);
                    if self.garbage.is_some() && !is_there {
                        contents.write(&garbage(&mut noise, stop - start), start);
                    }
                }
                None => contents.write_zeros(stop - start, start),
                Some(new) => contents.write(new, start),
            }
        }
        if self.whole_length {
            contents.grow_to(end);
        }
    }
}

fn garbage(noise: &mut fastrand::Rng, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|_| noise.u8(..)).collect()
}

/// Puts garbage in all sectors of a write, up to the end of the file.
pub(super) fn spoil_sectors(tree: &mut Tree, operation: &Operation, sector_bytes: u64, seed: u64) {
    let Operation::Write {
        inode,
        offset,
        data,
        ..
    } = operation
    else {
        return;
    };
    let Some(contents) = tree.file_mut(*inode) else {
        return;
    };
    let end = offset + data.len();
    contents.grow_to(end);
    let start = offset / sector_bytes * sector_bytes;
    let stop = end.next_multiple_of(sector_bytes).min(contents.len());
    let mut noise = fastrand::Rng::with_seed(seed);
    contents.write(&garbage(&mut noise, stop - start), start);
}

/// The numbers of possible cuts of a write.
#[derive(Default)]
struct Cuts {
    sectors: u64,
    /// So many first sectors, or all but so many, may be new.
    ends: u64,
    /// So many middle sectors may be the only old one.
    middle: u64,
}

impl Cuts {
    fn of(offset: u64, data: &Payload, sector_bytes: u64) -> Cuts {
        let sectors = sectors_of(offset, data.len(), sector_bytes);
        let last = match data {
            Payload::Zeros(_) => None,
            Payload::Bytes(bytes) => bytes.iter().rposition(|byte| *byte != 0),
        };
        let used = last.map_or(sectors, |last| {
            sectors_of(offset, last as u64 + 1, sector_bytes)
        });
        Cuts {
            sectors,
            ends: used.min(sectors - 1),
            middle: used.min(sectors - 1).saturating_sub(1),
        }
    }
}

impl TearPattern {
    /// Returns whether each sector, in order, is new.
    fn keeper(self, sectors: u64) -> impl FnMut(u64) -> bool {
        let seed = if let TearPattern::Random(seed) = self {
            seed
        } else {
            0
        };
        let mut random = fastrand::Rng::with_seed(seed);
        move |sector| match self {
            TearPattern::None => false,
            TearPattern::First(count) => sector < count,
            TearPattern::Last(count) => sector + count >= sectors,
            TearPattern::AllBut(missing) => sector != missing,
            TearPattern::Even => sector % 2 == 0,
            TearPattern::Odd => sector % 2 == 1,
            TearPattern::Random(_) => random.bool(),
        }
    }
}

impl fmt::Display for Tear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = if self.whole_length {
            "new length"
        } else {
            "length cut"
        };
        let filled = match self.garbage {
            Some(_) => ", the rest garbage",
            None => "",
        };
        write!(
            f,
            "{} bytes a sector, kept {:?}, {length}{filled}",
            self.sector_bytes, self.pattern
        )
    }
}

/// The number of sectors that a write of `len` bytes (at least 1) touches.
fn sectors_of(offset: u64, len: u64, sector_bytes: u64) -> u64 {
    (offset + len - 1) / sector_bytes - offset / sector_bytes + 1
}
