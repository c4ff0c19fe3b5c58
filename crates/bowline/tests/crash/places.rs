//! Names the places of the product at which a crash is tried, without a word in the product.
//!
//! A place is what the product was about (the *phase*), which call it made, and on which kind of
//! file: `rotation: rename spare to segment`. The phase is that of the action that the workload
//! was at, made more exact by what was done: with `Background::Manual` a commit also rotates the
//! log, flushes, merges and releases segments, and each of those is told by its calls:
//!
//! - rotation: from a spare's creation to the first sync of the segment it became;
//! - release: a segment removed or renamed to a spare, and the sync of the log's directory;
//! - flush, merge, edit: the tables written up to a sync of the manifest, and the removals after
//!   it; it was a merge when tables are removed, else a flush when tables were written;
//! - manifest replacement: from the creation of a manifest to the removal of the old one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use bowline_testing::disk::{Inode, Operation, Payload};

/// For each workload of the ordinary run its places, by phase. One that goes missing means that
/// the workload does not come there any more, or that the sample left it out.
const EXPECTED: &str = include_str!("expected.txt");

/// Where a crash can be tried.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    pub phase: &'static str,
    pub call: &'static str,
    pub file: &'static str,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.phase, self.call, self.file)
    }
}

/// How often each place was passed, and how many images crash right behind it.
#[derive(Clone, Default, Debug)]
pub struct Places(pub BTreeMap<Place, (u64, u64)>);

impl Places {
    pub fn passed(&mut self, place: Place) {
        self.0.entry(place).or_default().0 += 1;
    }

    /// Notes a crash; gives their number at that place.
    pub fn crashed(&mut self, place: Place) -> u64 {
        let (_, crashed) = self.0.entry(place).or_default();
        *crashed += 1;
        *crashed
    }

    pub fn add(&mut self, other: &Places) {
        for (place, (passed, crashed)) in &other.0 {
            let sum = self.0.entry(*place).or_default();
            sum.0 += passed;
            sum.1 += crashed;
        }
    }

    /// Places that were passed and at which no crash was tried.
    pub fn missed(&self) -> Vec<String> {
        let missed = self.0.iter().filter(|(_, (_, crashed))| *crashed == 0);
        missed.map(|(place, _)| place.to_string()).collect()
    }

    /// Whether `expected.txt` lists places for this workload.
    pub fn are_listed(workload: &str) -> bool {
        let header = format!("[{workload}]");
        EXPECTED.lines().any(|line| line == header)
    }

    /// Which of the places that `expected.txt` lists for a workload no crash was tried at, passed
    /// or not.
    pub fn missing(&self, workload: &str) -> Vec<String> {
        let crashed: HashSet<String> = self
            .0
            .iter()
            .filter(|(_, (_, crashed))| *crashed > 0)
            .map(|(place, _)| place.to_string())
            .collect();
        let header = format!("[{workload}]");
        let section = EXPECTED.lines().skip_while(|line| *line != header).skip(1);
        let mut missing = Vec::new();
        for line in section.take_while(|line| !line.starts_with('[')) {
            if let Some((phase, done)) = line.split_once(": ") {
                let places = done.split(", ").map(|done| format!("{phase}: {done}"));
                missing.extend(places.filter(|place| !crashed.contains(place)));
            }
        }
        missing
    }
}

/// The places of some operations, one each, in order. `inodes` are the names before the first;
/// `phase` gives the phase of the operation with this number.
pub fn places(
    operations: &[Operation],
    inodes: Vec<(Inode, String)>,
    phase: impl Fn(usize) -> &'static str,
) -> Vec<Place> {
    let mut names: HashMap<Inode, String> = inodes.into_iter().collect();
    let mut recycled: HashSet<Inode> = HashSet::new();
    let mut places = Vec::with_capacity(operations.len());
    for (index, operation) in operations.iter().enumerate() {
        let inode = operation.inode();
        let file = match operation {
            Operation::Create { at, .. } | Operation::CreateDir { at, .. } => {
                let path = at.path.to_string_lossy().trim_matches('/').to_owned();
                let file = kind_of(&path);
                names.insert(inode, path);
                file
            }
            Operation::Remove { at, .. } => kind_of(at.path.to_string_lossy().trim_matches('/')),
            Operation::Rename { from, to, .. } => {
                let from = kind_of(from.path.to_string_lossy().trim_matches('/'));
                let path = to.path.to_string_lossy().trim_matches('/').to_owned();
                let to = kind_of(&path);
                names.insert(inode, path);
                match (from, to) {
                    ("spare", "segment") if recycled.contains(&inode) => {
                        "recycled spare to segment"
                    }
                    ("spare", "segment") => "spare to segment",
                    ("segment", "spare") => {
                        recycled.insert(inode);
                        "segment to spare"
                    }
                    (_, to) => to,
                }
            }
            _ => match names.get(&inode).map(|path| kind_of(path)) {
                Some("spare") if recycled.contains(&inode) => "recycled spare",
                Some("segment") if recycled.contains(&inode) => "recycled segment",
                Some(file) => file,
                // The root of the disk has no name.
                None => "parent directory",
            },
        };
        let call = match operation {
            Operation::Write { data, .. } if file == "spare" => match data {
                Payload::Zeros(_) => "write zeros to",
                Payload::Bytes(_) => "write header to",
            },
            _ => operation.name(),
        };
        let is_copy = names
            .get(&inode)
            .is_some_and(|path| path.starts_with("copy"));
        let phase = if is_copy { "checkpoint" } else { phase(index) };
        places.push(Place { phase, call, file });
    }
    places
}

fn kind_of(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name {
        "LOCK" => "LOCK",
        "CHECKPOINT-UNFINISHED" => "mark",
        "BOWLINE" => "BOWLINE",
        "BOWLINE.new" => "BOWLINE.new",
        "log" => "log directory",
        "tables" => "tables directory",
        "" => "parent directory",
        _ if name.starts_with("manifest-") => "manifest",
        _ if name.ends_with(".log") => "segment",
        _ if name.starts_with("spare-") => "spare",
        _ if name.ends_with(".table") => "table",
        _ if name.ends_with(".blob") => "blob file",
        _ if !path.contains('/') => "directory",
        _ => "other file",
    }
}

/// Makes the phases of a workload's places more exact; those of opening and closing stay.
pub fn refine(places: &mut [Place]) {
    let stays = |place: &Place| {
        matches!(
            place.phase,
            "creation" | "opening" | "opening after a kill" | "closing" | "checkpoint"
        )
    };
    let mut unit: Option<usize> = None;
    let mut rotating = false;
    let mut replacing = false;
    for at in 0..places.len() {
        let place = places[at];
        if stays(&place) {
            (unit, rotating, replacing) = (None, false, false);
            continue;
        }
        let is_log = |part: &str| place.file.contains(part);
        match (place.call, place.file) {
            ("create", "manifest") => replacing = true,
            ("remove", "segment") | (_, "segment to spare") => {
                places[at].phase = "release";
                if let Some(next) = places.get_mut(at + 1)
                    && next.file == "log directory"
                {
                    next.phase = "release";
                }
                continue;
            }
            _ => {}
        }
        if place.phase == "release" {
            continue;
        }
        if replacing {
            places[at].phase = "manifest replacement";
            replacing = (place.call, place.file) != ("remove", "manifest");
            continue;
        }
        if is_log("spare") || rotating {
            places[at].phase = "rotation";
            rotating = !(place.call == "sync" && place.file.contains("segment"));
            continue;
        }
        if matches!(
            place.file,
            "table" | "blob file" | "tables directory" | "manifest"
        ) {
            let first = *unit.get_or_insert(at);
            if (place.call, place.file) == ("sync", "manifest") {
                name_unit(places, first, at);
                unit = None;
            }
        }
    }
}

/// Names the phase of the edit whose first operation is `first` and which was synced at `synced`.
fn name_unit(places: &mut [Place], first: usize, synced: usize) {
    let of_tables =
        |place: &Place| matches!(place.file, "table" | "blob file" | "tables directory");
    let mut end = synced + 1;
    while let Some(("remove", "table" | "blob file")) =
        places.get(end).map(|place| (place.call, place.file))
    {
        end += 1;
    }
    let removed = end > synced + 1;
    let wrote = places[first..synced].iter().any(of_tables);
    let phase = match (removed, wrote, places[first].phase) {
        (true, ..) => "merge",
        (false, true, _) => "flush",
        (false, false, "history trimming") => "history trimming",
        (false, false, _) => "edit without tables",
    };
    for place in &mut places[first..end] {
        if of_tables(place) || place.file == "manifest" {
            place.phase = phase;
        }
    }
}
