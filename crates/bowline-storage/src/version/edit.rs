//! One atomic change of the state, and the state itself, as the manifest records them.
//!
//! An edit is a list of tagged fields; applying it is all or nothing because it is one checksummed
//! record. A snapshot of the state is the edit that leads to it from the empty state.
//!
//! The state also names the merges that are under way ([`MergeUnderWay`]): what of them is finished,
//! and can be taken up again after a crash. Their tables are no tables of the state yet. A tree has
//! one such merge at most. It ends when one of its inputs goes, which the edit that completes it does
//! to all of them, or when another begins in its tree.

use std::collections::{BTreeMap, BTreeSet};

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
    /// The tables it was merged into, in order. None, when nothing of it had to be kept.
    pub tables: Vec<TableMeta>,
}

/// A merge and its finished ranges.
#[derive(Debug, Clone, PartialEq)]
pub struct MergeUnderWay {
    /// What was begun.
    pub begun: MergeBegun,
    /// The tables of each finished range.
    pub done: BTreeMap<u64, Vec<TableMeta>>,
}

impl MergeUnderWay {
    /// The tables of all finished ranges.
    pub fn tables(&self) -> impl Iterator<Item = &TableMeta> {
        self.done.values().flatten()
    }
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
        put_varint(out, self.tables.len() as u64);
        for table in &self.tables {
            table.encode(out);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Option<RangeMerged> {
        let mut merged = RangeMerged {
            tree: TreeId(u8::try_from(reader.varint()?).ok()?),
            run: reader.varint()?,
            range: reader.varint()?,
            tables: Vec::new(),
        };
        for _ in 0..reader.varint()? {
            merged.tables.push(TableMeta::decode(reader)?);
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

impl State {
    /// Applies an edit. What does not fit the state (removing a table it does not have, adding
    /// one twice, going back) is refused with the reason, and the state is unchanged.
    pub fn apply(&mut self, edit: &Edit) -> Result<(), String> {
        let mut next = self.clone();
        let removed: BTreeSet<u64> = edit.removed.iter().copied().collect();
        for id in &edit.removed {
            if next.tables.remove(id).is_none() {
                return Err(format!("removes table {id}, which the state does not have"));
            }
        }
        for placed in &edit.added {
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
        if !edit.added.is_empty() {
            next.check_runs()?;
        }
        next.merges.retain(|_, merge| {
            let MergeBegun { inputs, kept, .. } = &merge.begun;
            !inputs.iter().chain(kept).any(|id| removed.contains(id))
        });
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
        let named: BTreeSet<u64> = self.merged_tables().map(|meta| meta.file_id).collect();
        let merge = self.merges.get_mut(&merged.tree);
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
        let mut ids = BTreeSet::new();
        for (at, table) in merged.tables.iter().enumerate() {
            let follows = match at.checked_sub(1) {
                Some(before) => merged.tables[before].max_key < table.min_key,
                None => lower <= &table.min_key[..],
            };
            let is_inside = cuts
                .get(number)
                .is_none_or(|cut| table.max_key[..] < cut[..]);
            let is_new = !self.tables.contains_key(&table.file_id)
                && !named.contains(&table.file_id)
                && ids.insert(table.file_id);
            if !follows || !is_inside || !is_new || table.tree != merged.tree {
                let id = table.file_id;
                return Err(format!(
                    "puts table {id} into range {range} of merge {run}, where it does not belong"
                ));
            }
        }
        merge.done.insert(range, merged.tables.clone());
        Ok(())
    }

    /// The tables of finished ranges of merges under way. They are not tables of the state yet.
    pub fn merged_tables(&self) -> impl Iterator<Item = &TableMeta> {
        self.merges.values().flat_map(MergeUnderWay::tables)
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
            merges_begun: self
                .merges
                .values()
                .map(|merge| merge.begun.clone())
                .collect(),
            ranges_merged: self
                .merges
                .iter()
                .flat_map(|(tree, merge)| {
                    merge.done.iter().map(|(range, tables)| RangeMerged {
                        tree: *tree,
                        run: merge.begun.run,
                        range: *range,
                        tables: tables.clone(),
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
            merges_begun: vec![merge(11)],
            ranges_merged: vec![range(11, 1, &[(20, "h", "k"), (21, "l", "m")])],
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
            tables: tables.iter().map(table).collect(),
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
        assert_eq!(state.merged_tables().count(), 2);
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
        let ids = |state: &State| state.merged_tables().map(|t| t.file_id).collect::<Vec<_>>();
        assert_eq!(ids(&state), [20, 21]);
        let edit = |ranges_merged| Edit {
            ranges_merged,
            ..Edit::default()
        };
        state.apply(&edit(vec![range(11, 0, &[])])).unwrap();
        state
            .apply(&edit(vec![range(11, 2, &[(22, "p", "q")])]))
            .unwrap();
        assert_eq!(ids(&state), [20, 21, 22]);
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
        for (bad, what) in [
            (range(12, 0, &[]), "another merge"),
            (range(11, 1, &[]), "finished already"),
            (range(11, 3, &[]), "no such range"),
            (range(11, 0, &[(22, "a", "g")]), "beyond its range"),
            (range(11, 2, &[(22, "o", "q")]), "before its range"),
            (
                range(11, 0, &[(22, "a", "c"), (23, "c", "d")]),
                "overlapping",
            ),
            (range(11, 0, &[(7, "a", "c")]), "a table of the state"),
            (range(11, 0, &[(20, "a", "c")]), "a table of another range"),
            (range(11, 0, &[(22, "a", "b"), (22, "c", "d")]), "twice"),
        ] {
            let edit = Edit {
                ranges_merged: vec![bad],
                ..Edit::default()
            };
            assert!(state.apply(&edit).is_err(), "{what}");
            assert_eq!(state, before);
        }
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
        ] {
            assert!(state.apply(&bad).is_err(), "{bad:?}");
            assert_eq!(state, before);
        }
    }
}
