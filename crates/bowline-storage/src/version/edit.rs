//! One atomic change of the state, and the state itself, as the manifest records them.
//!
//! An edit is a list of tagged fields; applying it is all or nothing because it is one checksummed
//! record. A snapshot of the state is the edit that leads to it from the empty state.
//!
//! The state also names the merges that are under way ([`MergeUnderWay`]): what of them is finished,
//! and can be taken up again after a crash. Their tables are no tables of the state yet. A tree has
//! one such merge at most. It ends when one of its inputs goes, which the edit that completes it does
//! to all of them, or when another begins in its tree.
//!
//! With each table stands how many bytes of which blob files its pointers refer to. What of a blob
//! file no table refers to is garbage; a blob file that no table refers to leaves the state with
//! the last table that did, without a field that says so. What the tables of a finished range refer to
//! does not count: a blob file is either one that the range has made, which is none of the state yet,
//! or one that an input refers to, and inputs stay as long as the merge is under way. So what a
//! finished range needs is there as long as the range is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::blob::BlobMeta;
use crate::codec::{Reader, put_bytes, put_varint};
use crate::table::TableMeta;
use crate::{Index, Revision, TreeId};

const TAG_ADD_TABLE: u64 = 1;
const TAG_REMOVE_TABLE: u64 = 2;
const TAG_FLUSHED: u64 = 3;
const TAG_NEXT_FILE_ID: u64 = 4;
const TAG_NEXT_RUN_ID: u64 = 5;
const TAG_HISTORY_FLOOR: u64 = 6;
const TAG_LOG_STARTED: u64 = 7;
const TAG_LOG_VOID: u64 = 8;
const TAG_ADD_BLOB: u64 = 9;
const TAG_REFERENCES: u64 = 10;
const TAG_MERGE_BEGUN: u64 = 16;
const TAG_RANGE_MERGED: u64 = 17;

/// A table and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacedTable {
    /// The level, 0 = newest.
    pub level: u8,
    /// The run within the level.
    pub run: u64,
    /// What the table holds.
    pub meta: TableMeta,
}

/// How many bytes of a blob file's records a table refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobReference {
    /// The blob file.
    pub file_id: u64,
    /// Bytes of the records referred to.
    pub bytes: u64,
}

/// What a table refers to, by ascending blob file; empty for most.
pub type BlobReferences = Arc<[BlobReference]>;

/// The files of a run, or of a range of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WrittenRun {
    /// The tables, in order.
    pub tables: Vec<TableMeta>,
    /// Those of them that refer to blob files, and to what.
    pub references: Vec<(u64, BlobReferences)>,
    /// The blob files that were made for them.
    pub blobs: Vec<BlobMeta>,
}

impl WrittenRun {
    /// What one of the tables refers to, if anything.
    #[must_use]
    pub fn references_of(&self, table: u64) -> Option<&BlobReferences> {
        let mut all = self.references.iter();
        all.find(|(id, _)| *id == table).map(|(_, all)| all)
    }

    /// The ids of all files.
    pub fn file_ids(&self) -> impl Iterator<Item = u64> {
        let tables = self.tables.iter().map(|meta| meta.file_id);
        tables.chain(self.blobs.iter().map(|meta| meta.file_id))
    }
}

/// A merge that was begun: what it merges, and how it is cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeBegun {
    /// The tree.
    pub tree: TreeId,
    /// The id of the run that it makes.
    pub run: u64,
    /// Where that run goes.
    pub level: u8,
    /// Whether nothing older than the inputs exists in the tree.
    pub bottom: bool,
    /// The tables that are read, by file id.
    pub inputs: Vec<u64>,
    /// The tables that move into the run, unread.
    pub kept: Vec<u64>,
    /// Where each range but the first begins; ascending.
    pub cuts: Vec<Vec<u8>>,
}

/// A range of a merge that is finished.
#[derive(Debug, Clone, PartialEq)]
pub struct RangeMerged {
    /// The tree of the merge.
    pub tree: TreeId,
    /// The id of its run.
    pub run: u64,
    /// Which range, from 0.
    pub range: u64,
    /// What it was merged into. No tables, when nothing of it had to be kept.
    pub files: WrittenRun,
}

/// A merge and its finished ranges.
#[derive(Debug, Clone, PartialEq)]
pub struct MergeUnderWay {
    /// What was begun.
    pub begun: MergeBegun,
    /// What each finished range was merged into.
    pub done: BTreeMap<u64, WrittenRun>,
}

/// A change of the state.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Edit {
    /// Tables that come.
    pub added: Vec<PlacedTable>,
    /// Ids of tables that go. Removal is applied before addition, so a table may change its place.
    pub removed: Vec<u64>,
    /// The log is contained in the tables up to this index and revision.
    pub flushed: Option<(Index, Revision)>,
    /// The next file id to use.
    pub next_file_id: Option<u64>,
    /// The next run id to use.
    pub next_run_id: Option<u64>,
    /// The new history floor.
    pub history_floor: Option<Revision>,
    /// The log directory has its first segment.
    pub log_started: bool,
    /// What is in the log directory is void: the log starts anew behind `flushed`. Applied before
    /// `log_started`.
    pub log_void: bool,
    /// Blob files that come. They go by themselves, with the last table that refers to them.
    pub blobs: Vec<BlobMeta>,
    /// What tables refer to: those that come, by id. One that only changes its place keeps what it
    /// had.
    pub references: Vec<(u64, BlobReferences)>,
    /// Merges that begin. Applied after tables went and came.
    pub merges_begun: Vec<MergeBegun>,
    /// Ranges of merges that are finished. Applied last.
    pub ranges_merged: Vec<RangeMerged>,
}

/// Everything the manifest knows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// Live tables by file id.
    pub tables: BTreeMap<u64, PlacedTable>,
    /// The last log index contained in the tables.
    pub flushed_index: Index,
    /// The last revision contained in the tables.
    pub flushed_revision: Revision,
    /// The next file id to use.
    pub next_file_id: u64,
    /// The next run id to use.
    pub next_run_id: u64,
    /// Versions superseded at or below this revision may be gone.
    pub history_floor: Revision,
    /// Whether a log must exist.
    pub log_started: bool,
    /// Live blob files by file id.
    pub blobs: BTreeMap<u64, BlobMeta>,
    /// What tables refer to, by the table's file id; none of them empty.
    pub references: BTreeMap<u64, BlobReferences>,
    /// The merge under way of each tree that has one.
    pub merges: BTreeMap<TreeId, MergeUnderWay>,
}

impl MergeBegun {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.tree.0));
        put_varint(out, self.run);
        put_varint(out, u64::from(self.level));
        put_varint(out, u64::from(self.bottom));
        for ids in [&self.inputs, &self.kept] {
            put_varint(out, ids.len() as u64);
            for id in ids {
                put_varint(out, *id);
            }
        }
        put_varint(out, self.cuts.len() as u64);
        for cut in &self.cuts {
            put_bytes(out, cut);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Option<MergeBegun> {
        let mut merge = MergeBegun {
            tree: TreeId(u8::try_from(reader.varint()?).ok()?),
            run: reader.varint()?,
            level: level(reader)?,
            bottom: match reader.varint()? {
                0 => false,
                1 => true,
                _ => return None,
            },
            inputs: Vec::new(),
            kept: Vec::new(),
            cuts: Vec::new(),
        };
        // The counts are not believed: whatever they say, the bytes end.
        for ids in [&mut merge.inputs, &mut merge.kept] {
            for _ in 0..reader.varint()? {
                ids.push(reader.varint()?);
            }
        }
        for _ in 0..reader.varint()? {
            merge.cuts.push(reader.bytes()?.to_vec());
        }
        Some(merge)
    }
}

impl RangeMerged {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.tree.0));
        put_varint(out, self.run);
        put_varint(out, self.range);
        let WrittenRun {
            tables,
            references,
            blobs,
        } = &self.files;
        put_varint(out, tables.len() as u64);
        for table in tables {
            table.encode(out);
        }
        put_varint(out, blobs.len() as u64);
        for blob in blobs {
            blob.encode(out);
        }
        put_varint(out, references.len() as u64);
        for (table, references) in references {
            put_varint(out, *table);
            encode_references(references, out);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Option<RangeMerged> {
        let mut merged = RangeMerged {
            tree: TreeId(u8::try_from(reader.varint()?).ok()?),
            run: reader.varint()?,
            range: reader.varint()?,
            files: WrittenRun::default(),
        };
        let files = &mut merged.files;
        for _ in 0..reader.varint()? {
            files.tables.push(TableMeta::decode(reader)?);
        }
        for _ in 0..reader.varint()? {
            files.blobs.push(BlobMeta::decode(reader)?);
        }
        for _ in 0..reader.varint()? {
            let table = reader.varint()?;
            files.references.push((table, decode_references(reader)?));
        }
        Some(merged)
    }
}

fn level(reader: &mut Reader<'_>) -> Option<u8> {
    let level = u8::try_from(reader.varint()?).ok()?;
    (usize::from(level) < super::LEVELS_MAX).then_some(level)
}

impl Edit {
    /// Appends the edit's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for id in &self.removed {
            put_varint(out, TAG_REMOVE_TABLE);
            put_varint(out, *id);
        }
        for placed in &self.added {
            put_varint(out, TAG_ADD_TABLE);
            put_varint(out, u64::from(placed.level));
            put_varint(out, placed.run);
            placed.meta.encode(out);
        }
        for blob in &self.blobs {
            put_varint(out, TAG_ADD_BLOB);
            blob.encode(out);
        }
        for (table, references) in &self.references {
            put_varint(out, TAG_REFERENCES);
            put_varint(out, *table);
            encode_references(references, out);
        }
        if let Some((index, revision)) = self.flushed {
            put_varint(out, TAG_FLUSHED);
            put_varint(out, index);
            put_varint(out, revision);
        }
        for (tag, value) in [
            (TAG_NEXT_FILE_ID, self.next_file_id),
            (TAG_NEXT_RUN_ID, self.next_run_id),
            (TAG_HISTORY_FLOOR, self.history_floor),
            (TAG_LOG_VOID, self.log_void.then_some(1)),
            (TAG_LOG_STARTED, self.log_started.then_some(1)),
        ] {
            if let Some(value) = value {
                put_varint(out, tag);
                put_varint(out, value);
            }
        }
        for merge in &self.merges_begun {
            put_varint(out, TAG_MERGE_BEGUN);
            merge.encode(out);
        }
        for merged in &self.ranges_merged {
            put_varint(out, TAG_RANGE_MERGED);
            merged.encode(out);
        }
    }

    /// Reads an edit back; `None` when the bytes are not one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Edit> {
        let mut reader = Reader::new(bytes);
        let mut edit = Edit::default();
        while !reader.is_empty() {
            match reader.varint()? {
                TAG_ADD_TABLE => {
                    let level = level(&mut reader)?;
                    let run = reader.varint()?;
                    let meta = TableMeta::decode(&mut reader)?;
                    edit.added.push(PlacedTable { level, run, meta });
                }
                TAG_REMOVE_TABLE => edit.removed.push(reader.varint()?),
                TAG_FLUSHED => edit.flushed = Some((reader.varint()?, reader.varint()?)),
                TAG_NEXT_FILE_ID => edit.next_file_id = Some(reader.varint()?),
                TAG_NEXT_RUN_ID => edit.next_run_id = Some(reader.varint()?),
                TAG_HISTORY_FLOOR => edit.history_floor = Some(reader.varint()?),
                TAG_LOG_STARTED => edit.log_started = reader.varint()? == 1,
                TAG_LOG_VOID => edit.log_void = reader.varint()? == 1,
                TAG_ADD_BLOB => edit.blobs.push(BlobMeta::decode(&mut reader)?),
                TAG_REFERENCES => {
                    let table = reader.varint()?;
                    edit.references
                        .push((table, decode_references(&mut reader)?));
                }
                TAG_MERGE_BEGUN => {
                    let merge = MergeBegun::decode(&mut reader)?;
                    edit.merges_begun.push(merge);
                }
                TAG_RANGE_MERGED => {
                    let merged = RangeMerged::decode(&mut reader)?;
                    edit.ranges_merged.push(merged);
                }
                _ => return None,
            }
        }
        Some(edit)
    }
}

fn encode_references(references: &BlobReferences, out: &mut Vec<u8>) {
    put_varint(out, references.len() as u64);
    for reference in references.iter() {
        put_varint(out, reference.file_id);
        put_varint(out, reference.bytes);
    }
}

fn decode_references(reader: &mut Reader<'_>) -> Option<BlobReferences> {
    let mut references: Vec<BlobReference> = Vec::new();
    for _ in 0..reader.varint()? {
        let (file_id, bytes) = (reader.varint()?, reader.varint()?);
        let ascends = references.last().is_none_or(|last| last.file_id < file_id);
        if !ascends || bytes == 0 {
            return None;
        }
        references.push(BlobReference { file_id, bytes });
    }
    (!references.is_empty()).then(|| references.into())
}

impl State {
    /// Applies an edit. What does not fit the state (removing a table it does not have, adding
    /// one twice, going back) is refused with the reason, and the state is unchanged.
    pub fn apply(&mut self, edit: &Edit) -> Result<(), String> {
        let mut next = self.clone();
        let removed: BTreeSet<u64> = edit.removed.iter().copied().collect();
        let added: BTreeSet<u64> = edit.added.iter().map(|p| p.meta.file_id).collect();
        let mut moving = BTreeMap::new();
        for id in &edit.removed {
            if next.tables.remove(id).is_none() {
                return Err(format!("removes table {id}, which the state does not have"));
            }
            if let Some(references) = next.references.remove(id) {
                moving.insert(*id, references);
            }
        }
        for placed in &edit.added {
            if let Some(references) = moving.remove(&placed.meta.file_id) {
                next.references.insert(placed.meta.file_id, references);
            }
            if next
                .tables
                .insert(placed.meta.file_id, placed.clone())
                .is_some()
            {
                return Err(format!("adds table {} twice", placed.meta.file_id));
            }
        }
        if let Some((index, revision)) = edit.flushed {
            if index < next.flushed_index || revision < next.flushed_revision {
                return Err(format!(
                    "flushed index {index}, revision {revision} go back from {}, {}",
                    next.flushed_index, next.flushed_revision
                ));
            }
            (next.flushed_index, next.flushed_revision) = (index, revision);
        }
        next.next_file_id = edit.next_file_id.unwrap_or(0).max(next.next_file_id);
        next.next_run_id = edit.next_run_id.unwrap_or(0).max(next.next_run_id);
        next.history_floor = edit.history_floor.unwrap_or(0).max(next.history_floor);
        next.log_started &= !edit.log_void;
        next.log_started |= edit.log_started;
        for blob in &edit.blobs {
            let is_taken = next.tables.contains_key(&blob.file_id);
            if is_taken || next.blobs.insert(blob.file_id, blob.clone()).is_some() {
                return Err(format!("adds blob file {} twice", blob.file_id));
            }
        }
        for (table, references) in &edit.references {
            // One that stays refers to what it did: its bytes do not change.
            if !added.contains(table) {
                return Err(format!(
                    "says what table {table} refers to, which does not come with it"
                ));
            }
            next.references.insert(*table, references.clone());
        }
        if !edit.added.is_empty() {
            next.check_runs()?;
        }
        next.settle_blobs()?;
        next.merges.retain(|_, merge| {
            let MergeBegun { inputs, kept, .. } = &merge.begun;
            !inputs.iter().chain(kept).any(|id| removed.contains(id))
        });
        let comes = |id: &u64| added.contains(id) || edit.blobs.iter().any(|b| b.file_id == *id);
        if let Some(id) = next.merged_file_ids().find(comes) {
            return Err(format!(
                "adds file {id}, which a merge under way has finished, without its end"
            ));
        }
        for merge in &edit.merges_begun {
            next.begin_merge(merge)?;
        }
        for merged in &edit.ranges_merged {
            next.finish_range(merged)?;
        }
        *self = next;
        Ok(())
    }

    fn begin_merge(&mut self, begun: &MergeBegun) -> Result<(), String> {
        let run = begun.run;
        let mut ids = BTreeSet::new();
        for id in begun.inputs.iter().chain(&begun.kept) {
            let is_there = self
                .tables
                .get(id)
                .is_some_and(|placed| placed.meta.tree == begun.tree);
            if !is_there || !ids.insert(*id) {
                return Err(format!(
                    "begins merge {run} of table {id}, which its tree does not have, or twice"
                ));
            }
        }
        if begun.inputs.is_empty() || !begun.cuts.is_sorted_by(|a, b| a < b) {
            return Err(format!("begins merge {run} of nothing, or out of order"));
        }
        let merge = MergeUnderWay {
            begun: begun.clone(),
            done: BTreeMap::new(),
        };
        // The tree's merge before, if any, was given up.
        self.merges.insert(begun.tree, merge);
        Ok(())
    }

    fn finish_range(&mut self, merged: &RangeMerged) -> Result<(), String> {
        let (run, range) = (merged.run, merged.range);
        let named: BTreeSet<u64> = self.merged_file_ids().collect();
        let merge = self.merges.get(&merged.tree);
        let merge = merge.filter(|merge| merge.begun.run == run);
        let Some(merge) = merge else {
            return Err(format!(
                "finishes a range of merge {run}, which was not begun"
            ));
        };
        let cuts = &merge.begun.cuts;
        let number = usize::try_from(range).unwrap_or(usize::MAX);
        if number > cuts.len() || merge.done.contains_key(&range) {
            return Err(format!(
                "finishes range {range} of merge {run}, which does not have it, or twice"
            ));
        }
        let lower = number
            .checked_sub(1)
            .map_or(&[][..], |before| &cuts[before]);
        let WrittenRun { tables, blobs, .. } = &merged.files;
        let mut ids = BTreeSet::new();
        let mut is_new = |id: u64| {
            let is_taken = self.tables.contains_key(&id) || self.blobs.contains_key(&id);
            !is_taken && !named.contains(&id) && ids.insert(id)
        };
        for (at, table) in tables.iter().enumerate() {
            let follows = match at.checked_sub(1) {
                Some(before) => tables[before].max_key < table.min_key,
                None => lower <= &table.min_key[..],
            };
            let is_inside = cuts
                .get(number)
                .is_none_or(|cut| table.max_key[..] < cut[..]);
            if !follows || !is_inside || !is_new(table.file_id) || table.tree != merged.tree {
                let id = table.file_id;
                return Err(format!(
                    "puts table {id} into range {range} of merge {run}, where it does not belong"
                ));
            }
        }
        for blob in blobs {
            if !is_new(blob.file_id) || blob.tree != merged.tree {
                let id = blob.file_id;
                return Err(format!(
                    "puts blob file {id} into range {range} of merge {run}, where it does not belong"
                ));
            }
        }
        self.check_range_references(&merge.begun, merged)?;
        if let Some(merge) = self.merges.get_mut(&merged.tree) {
            merge.done.insert(range, merged.files.clone());
        }
        Ok(())
    }

    /// The tables of a finished range refer to blob files that it has made, to each of them, and to
    /// such that its inputs refer to.
    fn check_range_references(
        &self,
        begun: &MergeBegun,
        merged: &RangeMerged,
    ) -> Result<(), String> {
        let WrittenRun {
            tables,
            references,
            blobs,
        } = &merged.files;
        let misplaced = |what: &str, id: u64| {
            let (run, range) = (merged.run, merged.range);
            Err(format!("{what} {id} in range {range} of merge {run}"))
        };
        let mut tables: BTreeSet<u64> = tables.iter().map(|table| table.file_id).collect();
        let of_inputs = begun.inputs.iter().filter_map(|id| self.references.get(id));
        let of_inputs = of_inputs.flat_map(|all| all.iter().map(|to| to.file_id));
        let of_inputs: BTreeSet<u64> = of_inputs.collect();
        let mut own: BTreeMap<u64, u64> = blobs.iter().map(|blob| (blob.file_id, 0)).collect();
        for (table, references) in references {
            // Each of them once.
            if !tables.remove(table) {
                return misplaced("says what is referred to by table", *table);
            }
            for BlobReference { file_id, bytes } in references.iter() {
                match own.get_mut(file_id) {
                    Some(referred) => *referred = referred.saturating_add(*bytes),
                    None if of_inputs.contains(file_id) => {}
                    None => return misplaced("refers to a foreign blob file", *file_id),
                }
            }
        }
        for blob in blobs {
            let referred = own.get(&blob.file_id).copied().unwrap_or(0);
            if referred == 0 || referred > blob.record_bytes() {
                return misplaced(
                    "refers to nothing, or to too much, of blob file",
                    blob.file_id,
                );
            }
        }
        Ok(())
    }

    /// What merges under way have finished. It is not part of the state yet.
    pub fn finished_ranges(&self) -> impl Iterator<Item = &WrittenRun> {
        self.merges.values().flat_map(|merge| merge.done.values())
    }

    /// The ids of all files of finished ranges.
    pub fn merged_file_ids(&self) -> impl Iterator<Item = u64> {
        self.finished_ranges().flat_map(WrittenRun::file_ids)
    }

    /// How many bytes of each blob file's records are referred to.
    #[must_use]
    pub fn referred_bytes(&self) -> BTreeMap<u64, u64> {
        let mut referred = BTreeMap::new();
        for reference in self.references.values().flat_map(|all| all.iter()) {
            let bytes: &mut u64 = referred.entry(reference.file_id).or_default();
            *bytes = bytes.saturating_add(reference.bytes);
        }
        referred
    }

    /// Every reference leads from a table to a blob file of its tree, and all of them together to no
    /// more than the file holds. Blob files that no table refers to go.
    fn settle_blobs(&mut self) -> Result<(), String> {
        for (table, references) in &self.references {
            let Some(placed) = self.tables.get(table) else {
                return Err(format!(
                    "says what table {table} refers to, which is not there"
                ));
            };
            for BlobReference { file_id, .. } in references.iter() {
                let blob = self.blobs.get(file_id);
                if blob.is_none_or(|blob| blob.tree != placed.meta.tree) {
                    return Err(format!(
                        "table {table} refers to blob file {file_id}, which its tree does not have"
                    ));
                }
            }
        }
        let referred = self.referred_bytes();
        self.blobs.retain(|id, _| referred.contains_key(id));
        for (id, blob) in &self.blobs {
            if self.tables.contains_key(id) {
                return Err(format!("has a table and a blob file {id}"));
            }
            let (bytes, all) = (referred.get(id).copied(), blob.record_bytes());
            if bytes.is_some_and(|bytes| bytes > all) {
                return Err(format!(
                    "tables refer to {bytes:?} bytes of blob file {id}, which has {all}"
                ));
            }
        }
        Ok(())
    }

    /// The tables of a run must not overlap: a point read asks one of them only.
    fn check_runs(&self) -> Result<(), String> {
        let mut tables: Vec<_> = self.tables.values().collect();
        let place = |placed: &PlacedTable| (placed.meta.tree, placed.level, placed.run);
        tables
            .sort_by(|a, b| (place(a), &a.meta.min_key[..]).cmp(&(place(b), &b.meta.min_key[..])));
        for pair in tables.windows(2) {
            let (a, b) = (&pair[0].meta, &pair[1].meta);
            if place(pair[0]) == place(pair[1]) && a.max_key >= b.min_key {
                return Err(format!(
                    "makes tables {} and {} of one run overlap",
                    a.file_id, b.file_id
                ));
            }
        }
        Ok(())
    }

    /// The edit that leads here from the empty state.
    #[must_use]
    pub fn as_edit(&self) -> Edit {
        Edit {
            added: self.tables.values().cloned().collect(),
            removed: Vec::new(),
            flushed: Some((self.flushed_index, self.flushed_revision)),
            next_file_id: Some(self.next_file_id),
            next_run_id: Some(self.next_run_id),
            history_floor: Some(self.history_floor),
            log_started: self.log_started,
            log_void: false,
            blobs: self.blobs.values().cloned().collect(),
            references: (self.references.iter())
                .map(|(table, references)| (*table, references.clone()))
                .collect(),
            merges_begun: self
                .merges
                .values()
                .map(|merge| merge.begun.clone())
                .collect(),
            ranges_merged: self
                .merges
                .iter()
                .flat_map(|(tree, merge)| {
                    merge.done.iter().map(|(range, files)| RangeMerged {
                        tree: *tree,
                        run: merge.begun.run,
                        range: *range,
                        files: files.clone(),
                    })
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(file_id: u64) -> PlacedTable {
        PlacedTable {
            level: 1,
            run: 9,
            meta: TableMeta {
                file_id,
                salt: 7,
                tree: TreeId(2),
                file_bytes: 4096,
                entries: 3,
                tombstones: 1,
                raw_bytes: 77,
                min_key: b"a".into(),
                max_key: b"z".into(),
                min_revision: 4,
                max_revision: 8,
                content_crc: 5,
            },
        }
    }

    fn blob(file_id: u64) -> BlobMeta {
        BlobMeta {
            file_id,
            salt: 77,
            tree: TreeId(2),
            file_bytes: 1080,
            records: 4,
            value_bytes: 900,
            content_crc: 6,
        }
    }

    fn references(all: &[(u64, u64)]) -> BlobReferences {
        let all = all.iter();
        all.map(|&(file_id, bytes)| BlobReference { file_id, bytes })
            .collect()
    }

    fn full_edit() -> Edit {
        let mut later = placed(8);
        (later.meta.min_key, later.meta.max_key) = (b"zz".into(), b"zzz".into());
        Edit {
            added: vec![placed(7), later],
            removed: vec![],
            flushed: Some((100, 90)),
            next_file_id: Some(9),
            next_run_id: Some(10),
            history_floor: Some(50),
            log_started: true,
            log_void: true,
            blobs: vec![blob(20), blob(21)],
            references: vec![
                (7, references(&[(20, 300), (21, 1)])),
                (8, references(&[(20, 700)])),
            ],
            merges_begun: vec![merge(11)],
            ranges_merged: vec![with_blob(
                range(11, 1, &[(30, "h", "k"), (31, "l", "m")]),
                34,
            )],
        }
    }

    /// A merge of table 7 into the ranges up to "g", up to "p", and the rest.
    fn merge(run: u64) -> MergeBegun {
        MergeBegun {
            tree: TreeId(2),
            run,
            level: 2,
            bottom: true,
            inputs: vec![7],
            kept: vec![8],
            cuts: vec![b"g".to_vec(), b"p".to_vec()],
        }
    }

    /// The range with a blob file of its own, which its first table refers to, beside one of table 7.
    fn with_blob(mut range: RangeMerged, id: u64) -> RangeMerged {
        let table = range.files.tables[0].file_id;
        range.files.blobs = vec![blob(id)];
        range.files.references = vec![(table, references(&[(20, 100), (id, 900)]))];
        range
    }

    fn range(run: u64, range: u64, tables: &[(u64, &str, &str)]) -> RangeMerged {
        let table = |(id, min, max): &(u64, &str, &str)| TableMeta {
            min_key: min.as_bytes().into(),
            max_key: max.as_bytes().into(),
            ..placed(*id).meta
        };
        RangeMerged {
            tree: TreeId(2),
            run,
            range,
            files: WrittenRun {
                tables: tables.iter().map(table).collect(),
                ..WrittenRun::default()
            },
        }
    }

    #[test]
    fn edits_round_trip() {
        let edit = Edit {
            removed: vec![1, 2],
            ..full_edit()
        };
        let mut bytes = Vec::new();
        edit.encode(&mut bytes);
        assert_eq!(Edit::decode(&bytes), Some(edit));
        assert_eq!(Edit::decode(&[99, 0]), None, "unknown tag");
        for cut in 1..bytes.len() {
            // A prefix is refused or is a shorter valid edit; it never panics.
            let _ = Edit::decode(&bytes[..cut]);
        }
    }

    #[test]
    fn a_snapshot_leads_to_the_same_state() {
        let mut state = State::default();
        state.apply(&full_edit()).unwrap();
        let mut copy = State::default();
        copy.apply(&state.as_edit()).unwrap();
        assert_eq!(copy, state);
        assert_eq!(state.merged_file_ids().count(), 3);
        state
            .apply(&Edit {
                removed: vec![7],
                ..Edit::default()
            })
            .unwrap();
        let mut copy = State::default();
        copy.apply(&state.as_edit()).unwrap();
        assert_eq!(copy, state);
        assert!(state.merges.is_empty(), "its input went");
        assert_eq!(state.tables.keys().copied().collect::<Vec<_>>(), [8]);
    }

    #[test]
    fn a_merge_under_way_ends_when_an_input_goes_or_another_begins() {
        let mut state = State::default();
        state.apply(&full_edit()).unwrap();
        let ids = |state: &State| state.merged_file_ids().collect::<Vec<_>>();
        assert_eq!(ids(&state), [30, 31, 34]);
        let edit = |ranges_merged| Edit {
            ranges_merged,
            ..Edit::default()
        };
        state.apply(&edit(vec![range(11, 0, &[])])).unwrap();
        state
            .apply(&edit(vec![range(11, 2, &[(32, "p", "q")])]))
            .unwrap();
        assert_eq!(ids(&state), [30, 31, 34, 32]);
        for gone in [7, 8] {
            let mut state = state.clone();
            let removed = vec![gone];
            state
                .apply(&Edit {
                    removed,
                    ..Edit::default()
                })
                .unwrap();
            assert!(state.merges.is_empty(), "table {gone} went");
        }
        let merges_begun = vec![merge(12)];
        state
            .apply(&Edit {
                merges_begun,
                ..Edit::default()
            })
            .unwrap();
        assert_eq!(state.merges[&TreeId(2)].begun.run, 12);
        assert_eq!(ids(&state), [0; 0]);
    }

    #[test]
    fn a_range_that_does_not_belong_to_its_merge_is_refused() {
        let mut state = State::default();
        state.apply(&full_edit()).unwrap();
        let before = state.clone();
        let with = |tables: &[PlacedTable], blobs: &[BlobMeta]| {
            let mut edit = Edit {
                added: tables.to_vec(),
                blobs: blobs.to_vec(),
                ..Edit::default()
            };
            for placed in &mut edit.added {
                placed.run = 99;
                let to = blobs.iter().map(|blob| (blob.file_id, 1));
                let to = references(&to.collect::<Vec<_>>());
                edit.references.push((placed.meta.file_id, to));
            }
            edit.references.retain(|(_, to)| !to.is_empty());
            edit
        };
        let one = || range(11, 0, &[(32, "a", "c")]);
        let referring = |table, to: &[(u64, u64)]| {
            let mut range = with_blob(one(), 35);
            range.files.references = vec![(table, references(to))];
            range
        };
        for (bad, what) in [
            (range(12, 0, &[]), "another merge"),
            (range(11, 1, &[]), "finished already"),
            (range(11, 3, &[]), "no such range"),
            (range(11, 0, &[(32, "a", "g")]), "beyond its range"),
            (range(11, 2, &[(32, "o", "q")]), "before its range"),
            (
                range(11, 0, &[(32, "a", "c"), (33, "c", "d")]),
                "overlapping",
            ),
            (range(11, 0, &[(7, "a", "c")]), "a table of the state"),
            (range(11, 0, &[(30, "a", "c")]), "a table of another range"),
            (range(11, 0, &[(32, "a", "b"), (32, "c", "d")]), "twice"),
            (with_blob(one(), 8), "a table's number"),
            (with_blob(one(), 21), "a blob file of the state"),
            (with_blob(one(), 34), "a blob file of another range"),
            (with_blob(one(), 32), "its own table's number"),
            (
                referring(32, &[(20, 100)]),
                "nothing refers to its blob file",
            ),
            (referring(32, &[(35, 1001)]), "more than the blob file has"),
            (referring(32, &[(22, 1), (35, 1)]), "no such blob file"),
            (referring(32, &[(34, 1), (35, 1)]), "one of another range"),
            (referring(33, &[(35, 1)]), "not its table"),
        ] {
            let edit = Edit {
                ranges_merged: vec![bad],
                ..Edit::default()
            };
            assert!(state.apply(&edit).is_err(), "{what}");
            assert_eq!(state, before);
        }
        for (bad, what) in [
            (with(&[placed(30)], &[]), "a table"),
            (with(&[placed(9)], &[blob(34)]), "a blob file"),
        ] {
            assert!(state.apply(&bad).is_err(), "{what} that a range has");
            assert_eq!(state, before);
        }
        let good = Edit {
            ranges_merged: vec![with_blob(one(), 35)],
            ..Edit::default()
        };
        state.clone().apply(&good).unwrap();
        let with = |change: fn(&mut MergeBegun)| {
            let mut begun = merge(12);
            change(&mut begun);
            begun
        };
        for bad in [
            with(|merge| merge.inputs.push(99)),
            with(|merge| merge.inputs.push(8)),
            with(|merge| merge.inputs.clear()),
            with(|merge| merge.tree = TreeId(1)),
            with(|merge| merge.cuts.push(b"p".to_vec())),
        ] {
            let edit = Edit {
                merges_begun: vec![bad.clone()],
                ..Edit::default()
            };
            assert!(state.apply(&edit).is_err(), "{bad:?}");
            assert_eq!(state, before);
        }
    }

    #[test]
    fn an_edit_that_does_not_fit_changes_nothing() {
        let mut state = State::default();
        state.apply(&full_edit()).unwrap();
        let before = state.clone();
        for bad in [
            Edit {
                removed: vec![7, 99],
                ..Edit::default()
            },
            Edit {
                added: vec![placed(8)],
                ..Edit::default()
            },
            Edit {
                added: vec![placed(9)],
                ..Edit::default()
            },
            Edit {
                flushed: Some((99, 90)),
                ..Edit::default()
            },
            Edit {
                flushed: Some((100, 89)),
                ..Edit::default()
            },
            Edit {
                blobs: vec![blob(20)],
                ..Edit::default()
            },
            Edit {
                blobs: vec![blob(7)],
                references: vec![(8, references(&[(7, 1)]))],
                ..Edit::default()
            },
            Edit {
                references: vec![(8, references(&[(22, 1)]))],
                ..Edit::default()
            },
            Edit {
                references: vec![(9, references(&[(20, 1)]))],
                ..Edit::default()
            },
            Edit {
                references: vec![(8, references(&[(20, 701)]))],
                ..Edit::default()
            },
            Edit {
                blobs: vec![BlobMeta {
                    tree: TreeId(1),
                    ..blob(22)
                }],
                references: vec![(8, references(&[(22, 1)]))],
                ..Edit::default()
            },
        ] {
            assert!(state.apply(&bad).is_err(), "{bad:?}");
            assert_eq!(state, before);
        }
    }
    #[test]
    fn a_blob_file_goes_with_the_last_table_that_refers_to_it() {
        let mut state = State::default();
        state.apply(&full_edit()).unwrap();
        let referred = |state: &State| Vec::from_iter(state.referred_bytes());
        assert_eq!(referred(&state), [(20, 1000), (21, 1)]);
        // A table that changes its place keeps what it refers to.
        let moved = PlacedTable {
            level: 2,
            ..placed(7)
        };
        let change = Edit {
            removed: vec![7],
            added: vec![moved],
            ..Edit::default()
        };
        state.apply(&change).unwrap();
        assert_eq!(referred(&state), [(20, 1000), (21, 1)]);
        let gone = |id| Edit {
            removed: vec![id],
            ..Edit::default()
        };
        state.apply(&gone(7)).unwrap();
        assert_eq!(referred(&state), [(20, 700)]);
        assert_eq!(Vec::from_iter(state.blobs.keys().copied()), [20]);
        state.apply(&gone(8)).unwrap();
        assert!(state.blobs.is_empty() && state.references.is_empty());
    }

    #[test]
    fn references_have_one_encoding() {
        let mut bytes = Vec::new();
        full_edit().encode(&mut bytes);
        assert_eq!(Edit::decode(&bytes), Some(full_edit()));
        for bad in [
            &[TAG_REFERENCES as u8, 7, 0][..],
            &[TAG_REFERENCES as u8, 7, 1, 20, 0],
            &[TAG_REFERENCES as u8, 7, 2, 20, 1, 20, 1],
            &[TAG_REFERENCES as u8, 7, 2, 21, 1, 20, 1],
            &[TAG_REFERENCES as u8, 7, 2, 20, 1],
        ] {
            assert_eq!(Edit::decode(bad), None, "{bad:?}");
        }
    }
}
