//! The check for keys that a transaction writes twice.
//!
//! etcd checks the whole transaction before it is proposed, whatever its conditions are. It checks a list of
//! operations in this order, and refuses a put of a key that something earlier in the order puts or deletes:
//!
//! ```text
//! 1. the deletions of the list itself
//! 2. each nested transaction in turn: puts of one branch, puts of the other that are not in the first,
//!    then the deletions of both
//! 3. the puts of the list itself
//! ```
//!
//! So some pairs pass and are executed in sequence: a put in one nested transaction and a deletion in a later
//! one beside it. A deletion "from this key on" counts as a range that ends before it begins, so it conflicts
//! with no put.

use std::collections::{BTreeMap, HashSet};

use bowline_replica::{DeleteRangeOp, Op, Txn};

use crate::status::Fault;

/// The writes of a list of operations.
#[derive(Default)]
struct Writes<'a> {
    puts: HashSet<&'a [u8]>,
    deletions: Ranges,
}

/// Disjoint ranges of keys: from the first key to the first key after the range.
#[derive(Default)]
struct Ranges(BTreeMap<Vec<u8>, Vec<u8>>);

/// Refuses what etcd refuses as a duplicate key.
pub(crate) fn check_duplicates(txn: &Txn) -> Result<(), Fault> {
    writes_of(&txn.success)?;
    writes_of(&txn.failure)?;
    Ok(())
}

fn writes_of(ops: &[Op]) -> Result<Writes<'_>, Fault> {
    let mut all = Writes::default();
    for op in ops {
        if let Op::DeleteRange(deletion) = op {
            all.deletions.add(deletion);
        }
    }
    for op in ops {
        let Op::Txn(txn) = op else {
            continue;
        };
        let (one, other) = (writes_of(&txn.success)?, writes_of(&txn.failure)?);
        for key in &one.puts {
            all.put(key)?;
        }
        // Only one of the branches is executed.
        for key in other.puts.difference(&one.puts) {
            all.put(key)?;
        }
        for Ranges(ranges) in [one.deletions, other.deletions] {
            for (from, end) in ranges {
                all.deletions.insert(from, end);
            }
        }
    }
    for op in ops {
        if let Op::Put(put) = op {
            all.put(&put.key)?;
        }
    }
    Ok(all)
}

impl<'a> Writes<'a> {
    fn put(&mut self, key: &'a [u8]) -> Result<(), Fault> {
        match !self.deletions.contains(key) && self.puts.insert(key) {
            true => Ok(()),
            false => Err(Fault::DuplicateKey),
        }
    }
}

impl Ranges {
    fn add(&mut self, deletion: &DeleteRangeOp) {
        let end = match &deletion.range_end[..] {
            [] => [&deletion.key[..], &[0]].concat(),
            end => end.to_vec(),
        };
        // As in etcd, "from this key on" has the end `\0`, so it is an empty range.
        self.insert(deletion.key.clone(), end);
    }

    /// Inserts a range and merges it with those it touches.
    fn insert(&mut self, mut from: Vec<u8>, mut end: Vec<u8>) {
        if from >= end {
            return;
        }
        let before = self.0.range(..=from.clone()).next_back();
        if let Some((first, behind)) = before
            && *behind >= from
        {
            from = first.clone();
        }
        while let Some((first, _)) = self.0.range(from.clone()..=end.clone()).next() {
            let first = first.clone();
            if let Some(behind) = self.0.remove(&first) {
                end = end.max(behind);
            }
        }
        self.0.insert(from, end);
    }

    fn contains(&self, key: &[u8]) -> bool {
        let before = (std::ops::Bound::Unbounded, std::ops::Bound::Included(key));
        let range = self.0.range::<[u8], _>(before).next_back();
        range.is_some_and(|(_, end)| key < &end[..])
    }
}
