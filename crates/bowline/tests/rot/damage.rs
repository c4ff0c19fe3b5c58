//! What decay does to files at rest: which part of which file is hit, and how.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use bowline_testing::SimDisk;

use crate::layout::{blob_records, log_frames, page_frames, table_parts};
use crate::victim::{Files, Victim};

/// What is hit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    Identity,
    Manifest,
    LogHeader,
    LogFrames,
    /// Behind the last frame of a segment, and in spares.
    LogUnused,
    TablePages,
    TableFilter,
    TableIndex,
    TableProperties,
    TableFooter,
    BlobHeader,
    BlobRecords,
    BlobFooter,
}

pub const PARTS: [Part; 13] = [
    Part::Identity,
    Part::Manifest,
    Part::LogHeader,
    Part::LogFrames,
    Part::LogUnused,
    Part::TablePages,
    Part::TableFilter,
    Part::TableIndex,
    Part::TableProperties,
    Part::TableFooter,
    Part::BlobHeader,
    Part::BlobRecords,
    Part::BlobFooter,
];

/// What happens to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Decay {
    Flip,
    Zero512,
    Zero4096,
    /// Two sectors of the file change places.
    SwapSectors,
    /// Two pages of a table, or two groups of the log, of one length change places.
    SwapUnits,
    /// Sectors of two files of one kind change places.
    SwapAcross,
    /// Two files of one kind have each other's name.
    SwapFiles,
    /// Another sector of the file was written here.
    Misdirected,
    /// A sector of the same file of another database was written here.
    ForeignSector,
    /// A page of a table, or a group of the log, of another database was written here whole.
    ForeignUnit,
    /// A sector's last write was lost.
    StaleSector,
    Cut,
    ExtendZeros,
    ExtendGarbage,
    /// All writes since an earlier moment were lost.
    StaleFile,
    Lost,
    /// Another file of the kind is there instead.
    OtherFile,
    /// The file of another database is there instead.
    ForeignFile,
}

pub const DECAYS: [Decay; 18] = [
    Decay::Flip,
    Decay::Zero512,
    Decay::Zero4096,
    Decay::SwapSectors,
    Decay::SwapUnits,
    Decay::SwapAcross,
    Decay::SwapFiles,
    Decay::Misdirected,
    Decay::ForeignSector,
    Decay::ForeignUnit,
    Decay::StaleSector,
    Decay::Cut,
    Decay::ExtendZeros,
    Decay::ExtendGarbage,
    Decay::StaleFile,
    Decay::Lost,
    Decay::OtherFile,
    Decay::ForeignFile,
];

/// One damage: files with other bytes, or none.
#[derive(Clone, Debug)]
pub struct Damage {
    pub part: Part,
    pub decay: Decay,
    pub changes: Vec<(String, Option<Vec<u8>>)>,
    what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {:?}: {}", self.decay, self.part, self.what)
    }
}

pub fn is_table(path: &str) -> bool {
    path.ends_with(".table")
}

pub fn is_blob(path: &str) -> bool {
    path.ends_with(".blob")
}

pub fn is_log(path: &str) -> bool {
    path.ends_with(".log") || path.ends_with(".tmp")
}

/// The ranges of a file that belong to a part.
fn ranges(part: Part, path: &str, bytes: &[u8]) -> Vec<Range<usize>> {
    let table = |at: usize| table_parts(bytes)[at].clone();
    let one = |range| std::iter::once(range).collect();
    let found: Vec<Range<usize>> = match part {
        Part::Identity if path.ends_with("/BOWLINE") => one(0..bytes.len()),
        Part::Manifest if path.contains("/manifest-") => one(0..bytes.len()),
        Part::LogHeader if path.ends_with(".log") => one(0..4096),
        Part::LogFrames if path.ends_with(".log") => log_frames(path, bytes)
            .iter()
            .map(|f| f.at.clone())
            .collect(),
        Part::LogUnused if path.ends_with(".log") => {
            let end = log_frames(path, bytes).last().map_or(4096, |f| f.at.end);
            one(end..bytes.len())
        }
        Part::LogUnused if path.ends_with(".tmp") => one(0..bytes.len()),
        Part::TablePages if is_table(path) => one(table(0)),
        Part::TableFilter if is_table(path) => one(table(1)),
        Part::TableIndex if is_table(path) => one(table(2)),
        Part::TableProperties if is_table(path) => one(table(3)),
        Part::TableFooter if is_table(path) => one(table(4)),
        Part::BlobHeader if is_blob(path) => one(0..40),
        Part::BlobRecords if is_blob(path) => one(40..bytes.len() - 40),
        Part::BlobFooter if is_blob(path) => one(bytes.len() - 40..bytes.len()),
        _ => vec![],
    };
    found
        .into_iter()
        .filter(|range| !range.is_empty())
        .collect()
}

/// Whether two files are of one kind.
fn alike(a: &str, b: &str) -> bool {
    let both_are = |is: fn(&str) -> bool| is(a) && is(b);
    both_are(is_table)
        || both_are(is_blob)
        || (is_log(a) && is_log(b))
        || (is_small(a) && is_small(b))
}

fn is_small(path: &str) -> bool {
    !is_table(path) && !is_blob(path) && !is_log(path)
}

/// The sector of `size` bytes that holds `at`.
fn sector(at: usize, size: usize, len: usize) -> Range<usize> {
    let start = at / size * size;
    start..(start + size).min(len)
}

/// The pages of a table, the records of a blob file or the groups of a segment.
fn units(path: &str, bytes: &[u8]) -> Vec<Range<usize>> {
    if is_table(path) {
        page_frames(bytes)
    } else if is_blob(path) {
        blob_records(bytes)
    } else if path.ends_with(".log") {
        log_frames(path, bytes)
            .iter()
            .map(|f| f.at.clone())
            .collect()
    } else {
        vec![]
    }
}

impl Damage {
    /// One file with other bytes.
    pub fn new(part: Part, decay: Decay, path: &str, bytes: Vec<u8>, what: String) -> Damage {
        Damage {
            part,
            decay,
            changes: vec![(path.to_owned(), Some(bytes))],
            what,
        }
    }

    /// Whether all that differs is in the pages of tables. A sector of another table may have the same bytes in the part that was meant, and
    /// others in the pages before it.
    pub fn is_in_pages_only(&self, files: &Files) -> bool {
        self.changes.iter().all(|(path, changed)| {
            let (Some(bytes), Some(changed)) = (files.get(path), changed) else {
                return false;
            };
            if !is_table(path) || bytes.len() != changed.len() {
                return false;
            }
            let pages = table_parts(bytes)[0].clone();
            bytes[..pages.start] == changed[..pages.start]
                && bytes[pages.end..] == changed[pages.end..]
        })
    }

    /// A damage of this kind to this part, where the database has such a thing.
    pub fn draw(
        victim: &Victim,
        part: Part,
        decay: Decay,
        rng: &mut fastrand::Rng,
    ) -> Option<Damage> {
        let mut places = Vec::new();
        for (path, bytes) in &victim.files {
            places.extend(
                ranges(part, path, bytes)
                    .into_iter()
                    .map(|range| (path, range)),
            );
        }
        let (path, range) = rng.choice(places)?;
        let at = rng.usize(range.clone());
        let bytes = &victim.files[path];
        let size = if rng.bool() { 512 } else { 4096 };
        let here = sector(at, size, bytes.len());
        let mut new = bytes.clone();
        let mut second: Option<(String, Vec<u8>)> = None;
        let mut is_lost = false;
        let others: Vec<&String> = victim
            .files
            .keys()
            .filter(|it| *it != path && alike(it, path))
            .collect();
        let mut what = format!("{path}, byte {at} of {}", bytes.len());
        match decay {
            Decay::Flip => {
                let bit = rng.u8(0..8);
                new[at] ^= 1 << bit;
                what += &format!(", bit {bit}");
            }
            Decay::Zero512 => new[sector(at, 512, bytes.len())].fill(0),
            Decay::Zero4096 => new[sector(at, 4096, bytes.len())].fill(0),
            Decay::SwapSectors | Decay::Misdirected => {
                let there = sector(rng.usize(0..bytes.len()), size, bytes.len());
                let len = here.len().min(there.len());
                let (here, there) = (here.start..here.start + len, there.start..there.start + len);
                if !here.contains(&at) {
                    // The other sector is the file's last and so short that this part is not hit.
                    return None;
                }
                new[here.clone()].copy_from_slice(&bytes[there.clone()]);
                if decay == Decay::SwapSectors {
                    new[there.clone()].copy_from_slice(&bytes[here.clone()]);
                }
                what += &format!(", {here:?} and {there:?}");
            }
            Decay::SwapUnits => {
                let units = units(path, bytes);
                let here = units.iter().find(|unit| unit.contains(&at))?;
                let same = |unit: &&Range<usize>| unit.len() == here.len() && *unit != here;
                let there = rng.choice(units.iter().filter(same).collect::<Vec<_>>())?;
                new[here.clone()].copy_from_slice(&bytes[there.clone()]);
                new[there.clone()].copy_from_slice(&bytes[here.clone()]);
                what += &format!(", {here:?} and {there:?}");
            }
            Decay::SwapAcross => {
                let other = rng.choice(&others)?;
                let mut there = victim.files[*other].clone();
                let end = here.end.min(there.len());
                let here = here.start.min(end)..end;
                new[here.clone()].copy_from_slice(&there[here.clone()]);
                there[here.clone()].copy_from_slice(&bytes[here.clone()]);
                what += &format!(", {here:?} with {other}");
                second = Some(((*other).clone(), there));
            }
            Decay::SwapFiles => {
                let other = rng.choice(&others)?;
                new = victim.files[*other].clone();
                second = Some(((*other).clone(), bytes.clone()));
                what += &format!(", with {other}");
            }
            Decay::ForeignSector | Decay::StaleSector => {
                let source = match decay {
                    Decay::ForeignSector => victim.twin.get(path)?,
                    _ => rng.choice(earlier(victim, path))?,
                };
                let end = here.end.min(source.len());
                let here = here.start.min(end)..end;
                new[here.clone()].copy_from_slice(&source[here.clone()]);
                what += &format!(", {here:?}");
            }
            Decay::ForeignUnit => {
                let here = units(path, bytes)
                    .into_iter()
                    .find(|unit| unit.contains(&at))?;
                let twin = victim.twin.get(path)?;
                let there = units(path, twin).into_iter().find(|unit| *unit == here)?;
                new[here.clone()].copy_from_slice(&twin[there]);
                what += &format!(", {here:?}");
            }
            Decay::Cut => new.truncate(if rng.bool() { at } else { here.start }),
            Decay::ExtendZeros | Decay::ExtendGarbage => {
                let most = if rng.bool() { 30 } else { 9000 };
                let more = rng.usize(1..most);
                let mut byte = || {
                    if decay == Decay::ExtendZeros {
                        0
                    } else {
                        rng.u8(..)
                    }
                };
                new.extend((0..more).map(|_| byte()));
                what += &format!(", {more} more");
            }
            Decay::StaleFile => {
                let kept = victim.older.get(path).filter(|kept| !kept.is_empty())?;
                let version = rng.usize(0..kept.len());
                new.clone_from(&kept[version]);
                what += &format!(", version {version} of {}", kept.len());
            }
            Decay::Lost => is_lost = true,
            Decay::OtherFile => {
                let other = rng.choice(&others)?;
                new = victim.files[*other].clone();
                what += &format!(", by {other}");
            }
            Decay::ForeignFile => new.clone_from(victim.twin.get(path)?),
        }
        let mut changes = vec![(path.clone(), (!is_lost).then_some(new))];
        changes.extend(second.map(|(path, bytes)| (path, Some(bytes))));
        changes.retain(|(path, bytes)| bytes.as_ref() != victim.files.get(path));
        (!changes.is_empty()).then_some(Damage {
            part,
            decay,
            changes,
            what,
        })
    }

    /// The disk with this damage.
    pub fn apply(&self, disk: &SimDisk) -> SimDisk {
        let mut disk = disk.clone();
        for (path, bytes) in &self.changes {
            let path = Path::new(path);
            disk = match bytes {
                Some(bytes) => disk.replaced(path, bytes),
                None => disk.damaged(path, bowline_testing::disk::Damage::Lose),
            }
            .expect("the file exists");
        }
        disk
    }

    /// The bytes of a file that are not what they were; those behind its end included.
    pub fn changed(&self, original: &Files, path: &str) -> Vec<usize> {
        let Some((_, new)) = self.changes.iter().find(|(it, _)| it == path) else {
            return vec![];
        };
        let (old, new) = (&original[path], new.as_deref().unwrap_or_default());
        let len = old.len().max(new.len());
        (0..len).filter(|at| old.get(*at) != new.get(*at)).collect()
    }
}

/// What a lost write may leave in a file: its own older versions; in a segment also those of
/// segments that were released, since their files are used again.
fn earlier<'a>(victim: &'a Victim, path: &str) -> Vec<&'a Vec<u8>> {
    let own = |it: &str| it == path;
    let recycled = |it: &str| path.ends_with(".log") && it.ends_with(".log");
    let versions = victim
        .older
        .iter()
        .filter(|(it, _)| own(it) || recycled(it));
    versions.flat_map(|(_, kept)| kept).collect()
}
