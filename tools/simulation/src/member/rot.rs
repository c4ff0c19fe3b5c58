//! Decay of what is on a member's disk: bits that flip in files of every kind.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bowline::vfs::{OpenMode, Vfs};

use super::{Member, name};

/// In which file a bit flips.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RotOf {
    /// A table.
    Table,
    /// The log, well before its end: what follows proves that it was whole.
    Log,
    /// The manifest.
    Manifest,
    /// The file `BOWLINE`.
    Identity,
    /// The file `MEMBER`.
    Vote,
}

impl RotOf {
    pub(crate) const ALL: [RotOf; 5] = [
        RotOf::Table,
        RotOf::Log,
        RotOf::Manifest,
        RotOf::Identity,
        RotOf::Vote,
    ];
}

impl fmt::Display for RotOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RotOf::Table => "a table",
            RotOf::Log => "the log",
            RotOf::Manifest => "the manifest",
            RotOf::Identity => "BOWLINE",
            RotOf::Vote => "MEMBER",
        })
    }
}

/// A part of a file that has rotted, and its contents since: of what is only ever appended to, the byte; of what is written
/// anew, all that is written at once.
pub(super) struct Damage {
    of: RotOf,
    path: PathBuf,
    from: usize,
    contents: Vec<u8>,
    /// For how long a process has run well beside it.
    overlooked: Duration,
}

/// A process that runs well for so long has read all of its files, twice.
const OVERLOOKED_MAX: Duration = Duration::from_secs(10);

impl Damage {
    fn new(of: RotOf, path: PathBuf, at: usize, bytes: &[u8]) -> Damage {
        /// Of `MEMBER`.
        const SLOT: usize = 4096;
        let written = match of {
            RotOf::Identity => 0..bytes.len(),
            RotOf::Vote => at / SLOT * SLOT..at / SLOT * SLOT + SLOT,
            RotOf::Table | RotOf::Log | RotOf::Manifest => at..at + 1,
        };
        Damage {
            of,
            path,
            from: written.start,
            contents: bytes[written].to_vec(),
            overlooked: Duration::ZERO,
        }
    }

    /// Whether it is still on the disk.
    fn is_there(&self, disk: &impl Vfs) -> bool {
        let now = contents(disk, &self.path);
        now.is_some_and(|now| now[self.from.min(now.len())..].starts_with(&self.contents))
    }
}

/// Where a bit flips in a file with these contents.
type Place = fn(&[u8], &mut fastrand::Rng) -> usize;

fn in_first_half(bytes: &[u8], random: &mut fastrand::Rng) -> usize {
    // The last pages of a table say where all others are: without them nothing opens.
    random.usize(0..(bytes.len() / 2).max(1))
}

fn in_used(bytes: &[u8], random: &mut fastrand::Rng) -> usize {
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
    random.usize(0..=end)
}

/// In a byte that is not zero: zeros may be padding, which nobody reads.
fn in_written(bytes: &[u8], random: &mut fastrand::Rng) -> usize {
    let written: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    random.choice(written).unwrap_or(0)
}

fn in_first_half_of_written(bytes: &[u8], random: &mut fastrand::Rng) -> usize {
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
    in_written(&bytes[..=end / 2], random)
}

impl Member {
    /// A bit of a table flips, in the part that is not needed to open it.
    pub(crate) fn rot(&mut self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        self.is_rotten |= self.invert_a_bit_in(Path::new("db/tables"), &mut random, in_first_half);
    }

    /// A bit of the log changes while no process runs.
    pub(crate) fn rot_log(&mut self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        // In the last group, which nothing vouches for, it looks torn: then it has lost that as an older copy has.
        self.is_older = self.invert_a_bit_in(Path::new("db/log"), &mut random, in_used);
    }

    /// A bit of such a file flips, whether a process runs or not.
    pub(crate) fn rot_of(&mut self, of: RotOf, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let (dir, prefix, suffix) = match of {
            RotOf::Table => ("db/tables", "", ".table"),
            RotOf::Log => ("db/log", "", ".log"),
            RotOf::Manifest => ("db", "manifest-", ""),
            RotOf::Identity => ("db", "BOWLINE", "BOWLINE"),
            RotOf::Vote => ("db", "MEMBER", "MEMBER"),
        };
        let names = self.disk.read_dir(Path::new(dir)).unwrap_or_default();
        let is_such = |name: &String| name.starts_with(prefix) && name.ends_with(suffix);
        let mut names: Vec<_> = names.into_iter().filter(is_such).collect();
        names.sort();
        let (name, place): (_, Place) = match of {
            RotOf::Table => (random.choice(names), in_first_half_of_written),
            RotOf::Log => (names.into_iter().next(), in_first_half_of_written),
            RotOf::Manifest | RotOf::Identity | RotOf::Vote => (names.pop(), in_written),
        };
        let path = name.map(|name| Path::new(dir).join(name));
        let damaged = path.and_then(|path| {
            let (at, bytes) = self.invert_a_bit(&path, &mut random, place)?;
            Some(Damage::new(of, path, at, &bytes))
        });
        self.damages.extend(damaged);
    }

    /// Whether anything of it is damaged, or is being got back.
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_rotten || !self.damages.is_empty() || self.lacks.is_some()
    }

    /// Whether a file is damaged without which no process may start: the log is none, as it begins anew.
    pub(crate) fn may_not_start(&self) -> bool {
        self.is_rotten || self.damages.iter().any(|damage| damage.of != RotOf::Log)
    }

    /// Whether a damage of its log is still on the disk, so that the process has to start anew.
    pub(crate) fn has_damaged_log(&self) -> bool {
        self.damages.iter().any(|damage| damage.of == RotOf::Log)
    }

    /// Which file the process should have found to be damaged, and have written anew: one that it has in memory.
    pub(crate) fn overlooked(&self) -> Option<RotOf> {
        let is_in_memory =
            |of: RotOf| matches!(of, RotOf::Manifest | RotOf::Identity | RotOf::Vote);
        let mut damages = self.damages.iter();
        let overlooked =
            damages.find(|damage| is_in_memory(damage.of) && damage.overlooked > OVERLOOKED_MAX);
        overlooked.map(|damage| damage.of)
    }

    /// A new process has not read anything yet.
    pub(super) fn begin_to_look(&mut self) {
        for damage in &mut self.damages {
            damage.overlooked = Duration::ZERO;
        }
    }

    /// Looks which damaged files have been written anew or are gone, while the process runs; and whether it has got back
    /// what it lacks, if somebody has applied everything before `newest`. Returns what has been mended.
    pub(crate) fn take_mended(&mut self, newest: u64, since_last: Duration) -> Vec<RotOf> {
        let mut mended = Vec::new();
        if self.damages.is_empty() && self.lacks.is_none() {
            return mended;
        }
        let Some(status) = self.status().filter(|_| self.runs()) else {
            return mended;
        };
        let disk = self.disk.clone();
        let disk_is_well = self.disk_delay.is_zero() && !self.is_full() && !self.disk_fails;
        let is_well = disk_is_well && status.failure.is_none();
        for mut damage in std::mem::take(&mut self.damages) {
            if damage.is_there(&disk) {
                if is_well {
                    damage.overlooked += since_last;
                }
                self.damages.push(damage);
                continue;
            }
            let what = format_args!("the damage of {} is gone", damage.path.display());
            self.trace.note(name(self.number), what);
            // A manifest that is written anew does not name every table, and then the log begins anew, too: the leader
            // may tell of the loss only afterwards.
            if matches!(damage.of, RotOf::Log | RotOf::Manifest) {
                self.lacks = Some(newest);
            }
            mended.push(damage.of);
        }
        // It gives no vote before it knows that it lacks nothing, though it may have applied everything.
        let has_all = |lacks| status.applied_index + 1 >= lacks && !status.lacks_entries;
        if self.lacks.is_some_and(has_all) {
            self.lacks = None;
            self.trace.note(name(self.number), "has everything again");
        }
        mended
    }

    /// Inverts a bit of one of the files in `dir`, where `place` says. Returns whether there was one.
    fn invert_a_bit_in(&mut self, dir: &Path, random: &mut fastrand::Rng, place: Place) -> bool {
        let Ok(names) = self.disk.read_dir(dir) else {
            return false;
        };
        let Some(name) = random.choice(names) else {
            return false;
        };
        self.invert_a_bit(&dir.join(name), random, place).is_some()
    }

    /// Inverts a bit of a file. Returns in which byte, and the contents then.
    fn invert_a_bit(
        &mut self,
        path: &Path,
        random: &mut fastrand::Rng,
        place: Place,
    ) -> Option<(usize, Vec<u8>)> {
        let mut bytes = contents(&self.disk, path)?;
        let at = place(&bytes, random);
        let bit = random.u8(0..8);
        bytes[at] ^= 1 << bit;
        self.disk.flip_bit(path, at as u64, bit).ok()?;
        let what = format_args!("byte {at} of {} rots", path.display());
        self.trace.note(name(self.number), what);
        Some((at, bytes))
    }
}

/// The contents of a file that is not empty.
fn contents(disk: &impl Vfs, path: &Path) -> Option<Vec<u8>> {
    let file = disk.open(path, OpenMode::Read).ok()?;
    let mut bytes = vec![0; file.len().ok()? as usize];
    file.read_at(&mut bytes, 0).ok()?;
    (!bytes.is_empty()).then_some(bytes)
}
