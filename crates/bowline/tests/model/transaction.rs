//! Transactions that stay open while others commit. Whether one may commit is decided here from
//! what it read and wrote and from what changed meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Bound, RangeBounds};

use bowline::{BlockId, Error, Expected, Isolation, Range, Revision, Transaction};
use bowline_testing::model::{Change, Entry};

use crate::case::Case;
use crate::support::{BLOCKS, block_kinds, plain_entry, random_key, random_value, stage};

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A transaction, what it read, and what it wrote.
pub struct OpenTransaction {
    transaction: Transaction,
    isolation: Isolation,
    read_keys: BTreeSet<Vec<u8>>,
    read_ranges: Vec<Bounds>,
    read_blocks: BTreeSet<u128>,
    /// Keys that must be at a revision.
    expectations: Vec<(Vec<u8>, Revision)>,
    /// The value it wrote, or that it deleted the key.
    writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    blocks: BTreeMap<u128, Vec<u8>>,
    compactions_before: u64,
}

impl fmt::Debug for OpenTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OpenTransaction {
            isolation,
            read_keys,
            read_ranges,
            writes,
            ..
        } = self;
        let shown = |keys: Vec<&Vec<u8>>| {
            keys.iter()
                .map(|key| key.escape_ascii().to_string())
                .collect::<Vec<_>>()
        };
        write!(
            f,
            "{isolation:?} at {}: read {:?} {read_ranges:?}, wrote {:?}, expects {:?}, blocks {:?}",
            self.revision(),
            shown(read_keys.iter().collect()),
            shown(writes.keys().collect()),
            self.expectations,
            self.blocks.keys(),
        )
    }
}

impl OpenTransaction {
    pub fn begin(case: &mut Case) -> OpenTransaction {
        let isolation = if case.rng.bool() {
            Isolation::Serializable
        } else {
            Isolation::Snapshot
        };
        OpenTransaction {
            transaction: case.db.begin_with(isolation),
            isolation,
            read_keys: BTreeSet::new(),
            read_ranges: Vec::new(),
            read_blocks: BTreeSet::new(),
            expectations: Vec::new(),
            writes: BTreeMap::new(),
            blocks: BTreeMap::new(),
            compactions_before: compactions(case),
        }
    }

    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    pub fn revision(&self) -> Revision {
        self.transaction.snapshot_revision()
    }

    /// One read or write; tells which.
    pub fn act(&mut self, case: &mut Case) -> String {
        let own: Vec<&Vec<u8>> = self.writes.keys().collect();
        let own = case.rng.choice(own).cloned();
        let key = match own {
            Some(own) if case.rng.u8(0..3) == 0 => own,
            _ => random_key(&mut case.rng),
        };
        let shown = key.escape_ascii().to_string();
        match case.rng.u8(0..14) {
            0..3 => {
                let expected = self.sees(case, &key);
                if self.writes.contains_key(&key) {
                    case.did("transaction sees its own writes");
                }
                if !self.writes.contains_key(&key) {
                    self.read_keys.insert(key.clone());
                }
                let found = self.transaction.get(&key).expect("get");
                assert_eq!(found.as_deref(), expected.as_deref());
                format!("get {shown}")
            }
            3..6 => {
                let value = random_value(&mut case.rng, 60);
                self.transaction.put(&key, &value).expect("put");
                self.writes.insert(key, Some(value));
                format!("put {shown}")
            }
            6 => {
                let was_there = self.sees(case, &key).is_some();
                if !self.writes.contains_key(&key) {
                    self.read_keys.insert(key.clone());
                }
                assert_eq!(self.transaction.delete(&key).expect("delete"), was_there);
                self.writes.insert(key, None);
                format!("delete {shown}")
            }
            7 | 8 => {
                let bounds = case.bounds();
                self.range(case, &bounds);
                format!("range {bounds:?}")
            }
            9 => {
                let held = case.model.get(&key, case.model.revision());
                let actual = held.map_or(Revision::ZERO, |entry| entry.mod_revision);
                self.transaction
                    .expect(&key, Expected::Revision(actual))
                    .expect("expect");
                self.expectations.push((key, actual));
                format!("expect {shown} at {actual}")
            }
            10 => {
                let (id, content) = (case.rng.u128(1..=BLOCKS), random_value(&mut case.rng, 60));
                let change = Change::put_block(id, block_kinds(&content), &content);
                stage(&mut self.transaction, &change).expect("block");
                self.blocks.insert(id, content);
                format!("put block {id}")
            }
            11 => {
                let start = case.rng.u32(0..40);
                let key = |number| format!("k{number:02}").into_bytes();
                let (start, end) = (key(start), key(start + case.rng.u32(0..6)));
                let bounds = (Bound::Included(start), Bound::Excluded(end));
                let shown = format!("delete range {bounds:?}");
                self.delete_range(case, bounds);
                shown
            }
            12 => {
                let held = case.model.get(&key, case.model.revision());
                let actual = held.map_or(Revision::ZERO, |entry| entry.mod_revision);
                let value = random_value(&mut case.rng, 60);
                let swap =
                    self.transaction
                        .compare_and_swap(&key, Expected::Revision(actual), &value);
                swap.expect("it is decided at commit");
                self.expectations.push((key.clone(), actual));
                self.writes.insert(key, Some(value));
                format!("swap {shown} if at {actual}")
            }
            _ => {
                let id = case.rng.u128(1..=BLOCKS);
                let stored = || {
                    case.model
                        .block(id, self.revision())
                        .map(|block| block.content.clone())
                };
                let expected = self.blocks.get(&id).cloned().or_else(stored);
                let found = self.transaction.block(BlockId(id)).expect("block");
                assert_eq!(found.map(|block| block.content.to_vec()), expected);
                if !self.blocks.contains_key(&id) {
                    self.read_blocks.insert(id);
                }
                format!("read block {id}")
            }
        }
    }

    /// The value it must see: its own, or that of its snapshot.
    fn sees(&self, case: &Case, key: &[u8]) -> Option<Vec<u8>> {
        let stored = || {
            case.model
                .get(key, self.revision())
                .map(|entry| entry.value.clone())
        };
        self.writes.get(key).cloned().unwrap_or_else(stored)
    }

    fn delete_range(&mut self, case: &Case, bounds: Bounds) {
        let stored = case.model.range(bounds.clone(), self.revision());
        let mut present: BTreeSet<Vec<u8>> = stored.map(|(key, _)| key.clone()).collect();
        for (key, value) in self.writes.iter().filter(|(key, _)| bounds.contains(*key)) {
            match value {
                Some(_) => present.insert(key.clone()),
                None => present.remove(key),
            };
        }
        let range = Range::from(bounds.clone());
        let count = self.transaction.delete_range(range).expect("delete range");
        assert_eq!(count, present.len() as u64);
        if count > 0 {
            case.did("transaction deletes a range");
        }
        self.read_ranges.push(bounds);
        self.writes
            .extend(present.into_iter().map(|key| (key, None)));
    }

    fn range(&mut self, case: &mut Case, bounds: &Bounds) {
        let at = self.revision();
        let stored = case.model.range(bounds.clone(), at);
        let mut expected: BTreeMap<Vec<u8>, (Vec<u8>, Option<Entry>)> = stored
            .map(|(key, entry)| (key.clone(), (entry.value.clone(), Some(entry.clone()))))
            .collect();
        for (key, value) in self.writes.iter().filter(|(key, _)| bounds.contains(*key)) {
            match value {
                Some(value) => expected.insert(key.clone(), (value.clone(), None)),
                None => expected.remove(key),
            };
        }
        self.read_ranges.push(bounds.clone());
        let mut found = self
            .transaction
            .range(Range::from(bounds.clone()))
            .expect("range");
        while !expected.is_empty() {
            let backward = case.rng.bool();
            let next = if backward {
                found.next_back()
            } else {
                found.next()
            };
            let entry = next.expect("there is more").expect("entry");
            let wanted = if backward {
                expected.pop_last()
            } else {
                expected.pop_first()
            };
            let (key, (value, stored)) = wanted.expect("it is not empty");
            assert_eq!((&entry.key[..], &entry.value[..]), (&key[..], &value[..]));
            if let Some(stored) = stored {
                assert_eq!(plain_entry(&entry), stored);
            }
        }
        assert!(found.next().is_none() && found.next_back().is_none());
    }

    /// Commits, or now and then gives up, and compares what became of it.
    pub fn finish(self, case: &mut Case) {
        if compactions(case) > self.compactions_before {
            case.did("transaction after a merge");
        }
        if case.rng.u8(0..6) == 0 {
            case.did("transaction rolled back");
            self.transaction.rollback();
            return;
        }
        let conflicts = self.conflicts(case);
        let newest = case.model.revision();
        let actual = |key: &[u8]| {
            case.model
                .get(key, newest)
                .map_or(Revision::ZERO, |e| e.mod_revision)
        };
        let failed = self
            .expectations
            .iter()
            .any(|(key, expected)| actual(key) != *expected);
        let writes_nothing = self.writes.is_empty() && self.blocks.is_empty();
        let shown = format!("{self:?}");
        let snapshot = self.revision();
        let result = self.transaction.commit();
        if writes_nothing && self.expectations.is_empty() {
            // All it read is of one moment.
            let committed = result.expect("a read-only transaction commits");
            assert_eq!((committed.revision, committed.changed), (snapshot, false));
            return;
        }
        match result {
            Err(Error::Conflict {
                revision,
                snapshot: stated,
                ..
            }) => {
                case.did("transaction in conflict");
                assert!(conflicts, "no conflict was expected of {shown}");
                assert!(stated == snapshot && revision > snapshot && revision <= newest);
            }
            Err(Error::CompareFailed { .. }) => {
                case.did("transaction with a failed comparison");
                assert!(
                    failed && !conflicts,
                    "no failed comparison was expected of {shown}"
                );
            }
            Err(error) => panic!("{error} of {shown}"),
            Ok(committed) => {
                case.did("transaction committed");
                assert!(!conflicts && !failed, "{shown} should not have committed");
                let keys = self.writes.into_iter().map(|(key, value)| match value {
                    Some(value) => Change::Put {
                        key,
                        value,
                        lease: 0,
                    },
                    None => Change::Delete { key },
                });
                let blocks = self.blocks.iter();
                let blocks = blocks
                    .map(|(id, content)| Change::put_block(*id, block_kinds(content), content));
                let changes: Vec<_> = keys.chain(blocks).collect();
                case.committed(&changes, committed.revision);
                assert_eq!(committed.changed, committed.revision > newest);
            }
        }
    }

    fn conflicts(&self, case: &Case) -> bool {
        let since = self.revision();
        let key_changed = |key: &Vec<u8>| {
            case.model
                .history(key)
                .iter()
                .any(|(revision, _)| *revision > since)
        };
        let block_changed = |id: &u128| {
            case.block_changes
                .get(id)
                .is_some_and(|at| at.iter().any(|at| *at > since))
        };
        let range_changed = |bounds: &Bounds| {
            let keys = (0..40).map(|number| format!("k{number:02}").into_bytes());
            keys.into_iter()
                .any(|key| bounds.contains(&key) && key_changed(&key))
        };
        match self.isolation {
            Isolation::Serializable => {
                self.read_keys.iter().any(key_changed)
                    || self.read_ranges.iter().any(range_changed)
                    || self.read_blocks.iter().any(block_changed)
            }
            Isolation::Snapshot => {
                self.writes.keys().any(key_changed) || self.blocks.keys().any(block_changed)
            }
        }
    }
}

fn compactions(case: &Case) -> u64 {
    case.db.stats().engine.counters.compactions
}
