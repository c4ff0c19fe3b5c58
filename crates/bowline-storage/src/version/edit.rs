//! One atomic change of the state, and the state itself, as the manifest records them.
//!
//! An edit is a list of tagged fields; applying it is all or nothing because it is one checksummed
//! record. A snapshot of the state is the edit that leads to it from the empty state.
//!
//! Each table is recorded with the number of bytes of each blob file that its pointers refer to. The bytes
//! of a blob file that no table refers to are garbage. A blob file leaves the state together with the
//! last table that refers to it, without a field of its own.
//!
//! Earlier format versions recorded the finished ranges of an interrupted merge (tags 16 and 17). These
//! fields are checked and ignored: the inputs of such a merge have all data, and an opening removes its
//! outputs like all files that the manifest does not name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::blob::BlobMeta;
use crate::codec::{Reader, put_varint};
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
const TAG_HELD: u64 = 11;
const TAG_MERGE_BEGUN: u64 = 16;
const TAG_RANGE_MERGED: u64 = 17;

/// A table and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacedTable {
    /// The level, 0 = newest.
    pub level: u8,
    /// The run within the level.
    pub run: u64,
    /// The properties of the table.
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

/// The references of a table to blob files, by ascending file id; empty for most tables.
pub type BlobReferences = Arc<[BlobReference]>;

/// The files of a run, or of a range of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct WrittenRun {
    /// The tables, in order.
    pub tables: Vec<TableMeta>,
    /// The references to blob files, for the tables that have any.
    pub references: Vec<(u64, BlobReferences)>,
    /// The blob files written for them.
    pub blobs: Vec<BlobMeta>,
}

/// A change of the state.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Edit {
    /// The added tables.
    pub added: Vec<PlacedTable>,
    /// Ids of removed tables. Removals are applied before additions, so a table may move.
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
    /// The log directory is void: the log starts anew behind `flushed`. Applied before `log_started`.
    pub log_void: bool,
    /// The added blob files. They are removed together with the last table that refers to them.
    pub blobs: Vec<BlobMeta>,
    /// The references of added tables to blob files, by table id. A table that only moves keeps its
    /// references.
    pub references: Vec<(u64, BlobReferences)>,
    /// Trees with the revision that is held in each from now on; 0 for none.
    pub held: Vec<(TreeId, Revision)>,
}

/// The state that the manifest records.
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
    /// The references of tables to blob files, by the id of the table; none is empty.
    pub references: BTreeMap<u64, BlobReferences>,
    /// Revisions whose versions stay, by tree.
    pub held: BTreeMap<TreeId, Revision>,
}

/// Skips the record of a begun merge: its inputs and its cuts.
fn skip_merge_begun(reader: &mut Reader<'_>) -> Option<()> {
    let _tree = u8::try_from(reader.varint()?).ok()?;
    let _run = reader.varint()?;
    level(reader)?;
    let is_bottom = reader.varint()?;
    // A damaged count does no harm: the loop ends with the bytes.
    for _inputs_then_kept in 0..2 {
        for _ in 0..reader.varint()? {
            reader.varint()?;
        }
    }
    for _ in 0..reader.varint()? {
        reader.bytes()?;
    }
    (is_bottom <= 1).then_some(())
}

/// Skips the record of a finished range of a merge: its tables, its blob files, and their references.
fn skip_range_merged(reader: &mut Reader<'_>) -> Option<()> {
    let _tree = u8::try_from(reader.varint()?).ok()?;
    let (_run, _range) = (reader.varint()?, reader.varint()?);
    for _ in 0..reader.varint()? {
        TableMeta::decode(reader)?;
    }
    for _ in 0..reader.varint()? {
        BlobMeta::decode(reader)?;
    }
    for _ in 0..reader.varint()? {
        let _table = reader.varint()?;
        decode_references(reader)?;
    }
    Some(())
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
        for (tree, revision) in &self.held {
            put_varint(out, TAG_HELD);
            put_varint(out, u64::from(tree.0));
            put_varint(out, *revision);
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
                TAG_HELD => {
                    let tree = TreeId(u8::try_from(reader.varint()?).ok()?);
                    edit.held.push((tree, reader.varint()?));
                }
                TAG_MERGE_BEGUN => skip_merge_begun(&mut reader)?,
                TAG_RANGE_MERGED => skip_range_merged(&mut reader)?,
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
    /// Applies an edit. An edit that does not fit the state (removing a table it does not have, adding
    /// one twice, going back) is refused with the reason, and the state is unchanged.
    pub fn apply(&mut self, edit: &Edit) -> Result<(), String> {
        let mut next = self.clone();
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
        for (tree, revision) in &edit.held {
            match *revision {
                0 => next.held.remove(tree),
                revision => next.held.insert(*tree, revision),
            };
        }
        next.log_started &= !edit.log_void;
        next.log_started |= edit.log_started;
        for blob in &edit.blobs {
            let is_taken = next.tables.contains_key(&blob.file_id);
            if is_taken || next.blobs.insert(blob.file_id, blob.clone()).is_some() {
                return Err(format!("adds blob file {} twice", blob.file_id));
            }
        }
        for (table, references) in &edit.references {
            // A table that stays keeps its references: its bytes do not change.
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
        *self = next;
        Ok(())
    }

    /// How many bytes of each blob file's records are referred to.
    #[must_use]
    pub(crate) fn referred_bytes(&self) -> BTreeMap<u64, u64> {
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
    pub(crate) fn as_edit(&self) -> Edit {
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
            held: (self.held.iter())
                .map(|(tree, revision)| (*tree, *revision))
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
            held: vec![(TreeId(2), 70), (TreeId(3), 80)],
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
        state
            .apply(&Edit {
                removed: vec![7],
                ..Edit::default()
            })
            .unwrap();
        let mut copy = State::default();
        copy.apply(&state.as_edit()).unwrap();
        assert_eq!(copy, state);
        assert_eq!(state.tables.keys().copied().collect::<Vec<_>>(), [8]);
    }

    #[test]
    fn a_tree_holds_one_revision_until_it_holds_another_or_none() {
        let mut state = State::default();
        state.apply(&full_edit()).unwrap();
        let edit = Edit {
            held: vec![(TreeId(2), 60), (TreeId(3), 0), (TreeId(4), 0)],
            ..Edit::default()
        };
        state.apply(&edit).unwrap();
        assert_eq!(Vec::from_iter(state.held.clone()), [(TreeId(2), 60)]);
        let mut copy = State::default();
        copy.apply(&state.as_edit()).unwrap();
        assert_eq!(copy, state);
        let too_large = [TAG_HELD as u8, 0x80, 2, 7];
        assert_eq!(Edit::decode(&too_large), None, "a tree of 256");
    }

    #[test]
    fn a_merge_under_way_is_read_and_dropped() {
        // A merge of table 7, beside which table 8 moves, cut at "g" and "p", and its middle range,
        // which wrote table 30 and blob file 34.
        let mut begun = vec![TAG_MERGE_BEGUN as u8, 2, 11, 2, 1, 1, 7, 1, 8];
        begun.extend_from_slice(b"\x02\x01g\x01p");
        let mut merged = vec![TAG_RANGE_MERGED as u8, 2, 11, 1];
        merged.push(1);
        placed(30).meta.encode(&mut merged);
        merged.push(1);
        blob(34).encode(&mut merged);
        merged.extend_from_slice(&[1, 30]);
        encode_references(&references(&[(20, 100), (34, 900)]), &mut merged);
        let mut bytes = begun.clone();
        full_edit().encode(&mut bytes);
        bytes.extend_from_slice(&merged);
        assert_eq!(Edit::decode(&bytes), Some(full_edit()));
        for field in [begun, merged] {
            assert_eq!(Edit::decode(&field), Some(Edit::default()));
            for cut in 1..field.len() {
                assert_eq!(Edit::decode(&field[..cut]), None, "{cut} of {field:?}");
            }
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
        // A table that moves keeps its references.
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
