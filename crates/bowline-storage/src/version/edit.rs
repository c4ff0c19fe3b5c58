//! One atomic change of the state, and the state itself, as the manifest records them.
//!
//! An edit is a list of tagged fields; applying it is all or nothing because it is one checksummed
//! record. A snapshot of the state is the edit that leads to it from the empty state.

use std::collections::BTreeMap;

use crate::codec::{Reader, put_varint};
use crate::table::TableMeta;
use crate::{Index, Revision};

const TAG_ADD_TABLE: u64 = 1;
const TAG_REMOVE_TABLE: u64 = 2;
const TAG_FLUSHED: u64 = 3;
const TAG_NEXT_FILE_ID: u64 = 4;
const TAG_NEXT_RUN_ID: u64 = 5;
const TAG_HISTORY_FLOOR: u64 = 6;
const TAG_LOG_STARTED: u64 = 7;
const TAG_LOG_VOID: u64 = 8;

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
    }

    /// Reads an edit back; `None` when the bytes are not one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Edit> {
        let mut reader = Reader::new(bytes);
        let mut edit = Edit::default();
        while !reader.is_empty() {
            match reader.varint()? {
                TAG_ADD_TABLE => {
                    let level = u8::try_from(reader.varint()?).ok()?;
                    if usize::from(level) >= super::LEVELS_MAX {
                        return None;
                    }
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
        *self = next;
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TreeId;

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
