//! The order of the writes of one revision, if it is not the key order.
//!
//! The kv tree holds one version of a key per revision: the last one. For most revisions this is complete,
//! as most transactions write one key, or keys in order. A transaction that writes in another order, or a
//! key more than once, adds a record at its revision: a version of one key of the system tree. So other
//! transactions pay nothing, reads of keys do not see the record, and it is trimmed with its history.
//!
//! ```text
//! order  | steps until the end |
//! step   | tag u8 | key bytes | by tag: |
//!        |   1 the last write of a key              |
//!        |   2 those of a run of keys, in order     | last key bytes |
//!        |   3 a deletion, before the last write    |
//!        |   4 a put, before the last write         | entry bytes: see `record.rs` |
//! ```
//!
//! The sorted keys of a revision are cut into maximal runs that were written in key order. A step names the
//! two ends of a run. So a watcher of a few keys finds their places without the other keys, and a deleted
//! range takes two keys, however many it contains.
//!
//! Invariants:
//!
//! - Every write of a revision with a record is a step or within one. The last write of each key is in a
//!   run; its earlier writes come before that run.
//! - An order has exactly one encoding; the key order has none.

use std::collections::{BTreeMap, HashMap};

use bowline_storage::codec::{Reader, put_bytes};
use bowline_storage::engine::{BatchReader, Engine};
use bowline_storage::{EntryKind, Value};
use bowline_types::Revision;

use super::change::{Change, ChangeKind};
use super::record;
use crate::error::{Error, Result, show_key};
use crate::trees;

const LAST: u8 = 1;
const RUN: u8 = 2;
const DELETED: u8 = 3;
const PUT: u8 = 4;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// The last writes of the keys from the first to the last, which may be the same.
    Run { first: Vec<u8>, last: Vec<u8> },
    /// A write of a key that is written again later.
    Earlier(Box<Change>),
}

/// The record of a batch; `None` when it writes each key once and in key order.
pub fn of_batch(batch: &[u8]) -> Option<Vec<u8>> {
    let mut reader = BatchReader::new(batch)?;
    let writes = std::iter::from_fn(move || reader.next_operation().ok().flatten());
    let writes = writes.filter(|write| write.tree == trees::KV);
    // Nearly every batch ends here, without memory.
    if writes.clone().is_sorted_by(|a, b| a.key < b.key) {
        return None;
    }
    let writes: Vec<_> = writes.collect();
    let mut last_writes = BTreeMap::new();
    for (number, write) in writes.iter().enumerate() {
        last_writes.insert(write.key, number);
    }
    // For each last write of a key: the key's place among all keys.
    let places = last_writes.values().enumerate();
    let places: HashMap<usize, usize> = places.map(|(place, number)| (*number, place)).collect();
    let mut out = Vec::new();
    let mut number = 0;
    while let Some(write) = writes.get(number) {
        let Some(place) = places.get(&number) else {
            match write.kind {
                EntryKind::Delete => put_step(DELETED, write.key, None, &mut out),
                EntryKind::Put => put_step(PUT, write.key, Some(write.value), &mut out),
            }
            number += 1;
            continue;
        };
        let follows = |count: &usize| places.get(&(number + count)) == Some(&(place + count));
        let count = (1..).take_while(follows).count();
        match count {
            0 => put_step(LAST, write.key, None, &mut out),
            _ => put_step(RUN, write.key, Some(writes[number + count].key), &mut out),
        }
        number += 1 + count;
    }
    Some(out)
}

fn put_step(what: u8, key: &[u8], more: Option<&[u8]>, out: &mut Vec<u8>) {
    out.push(what);
    put_bytes(out, key);
    if let Some(more) = more {
        put_bytes(out, more);
    }
}

/// Decodes a record.
pub fn decode(bytes: &[u8], revision: Revision) -> Option<Order> {
    let mut reader = Reader::new(bytes);
    let mut steps = Vec::new();
    while !reader.is_empty() {
        let what = reader.u8()?;
        let key = reader.bytes()?;
        steps.push(match what {
            LAST => Step::Run {
                first: key.to_vec(),
                last: key.to_vec(),
            },
            RUN => Step::Run {
                first: key.to_vec(),
                last: reader.bytes().filter(|last| key < *last)?.to_vec(),
            },
            DELETED => {
                let change = Change::deletion(Value::copy_from(key), revision);
                Step::Earlier(Box::new(change))
            }
            PUT => {
                let entry = record::entry_of_record(key, revision, reader.bytes()?).ok()?;
                Step::Earlier(Box::new(Change::new(ChangeKind::Put, entry)))
            }
            _ => return None,
        });
    }
    let order = Order { steps };
    order.is_one().then_some(order)
}

impl Order {
    /// Whether [`of_batch`] would give this record for its writes.
    fn is_one(&self) -> bool {
        // The runs by their keys, each with its step.
        let mut runs: Vec<(&[u8], &[u8], usize)> = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            if let Step::Run { first, last } = step {
                runs.push((&first[..], &last[..], number));
            }
        }
        runs.sort_unstable();
        let is_apart = runs.is_sorted_by(|a, b| a.1 < b.0);
        // Adjacent runs that follow each other would be one run.
        let is_cut = runs.windows(2).all(|two| two[0].2 + 1 != two[1].2);
        let is_early = |(number, step): (usize, &Step)| match step {
            Step::Run { .. } => true,
            Step::Earlier(change) => {
                let key = &change.entry.key[..];
                let behind = runs.partition_point(|(first, ..)| *first <= key);
                let run = behind.checked_sub(1).map(|place| runs[place]);
                run.is_some_and(|(_, last, step)| key <= last && number < step)
            }
        };
        self.steps.len() > 1 && is_apart && is_cut && self.steps.iter().enumerate().all(is_early)
    }

    /// Puts the revision's changes, sorted by key, into the order of the writes, and adds the overwritten
    /// writes of `wanted` keys. `None` when a change has no place.
    pub fn arrange(
        &self,
        changes: &[Change],
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Option<Vec<Change>> {
        let mut out = Vec::with_capacity(changes.len());
        let mut taken = 0;
        for step in &self.steps {
            match step {
                Step::Run { first, last } => {
                    let from = changes.partition_point(|change| change.entry.key[..] < first[..]);
                    let end = changes.partition_point(|change| change.entry.key[..] <= last[..]);
                    taken += end - from;
                    out.extend_from_slice(&changes[from..end]);
                }
                Step::Earlier(change) if wanted(&change.entry.key) => {
                    out.push(Change::clone(change));
                }
                Step::Earlier(_) => {}
            }
        }
        (taken == changes.len()).then_some(out)
    }

    /// The overwritten writes of a key, in order.
    pub fn earlier<'a>(&'a self, key: &'a [u8]) -> impl Iterator<Item = &'a Change> {
        self.steps.iter().filter_map(move |step| match step {
            Step::Earlier(change) if change.entry.key == *key => Some(&**change),
            _ => None,
        })
    }

    #[cfg(any(test, fuzzing))]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for step in &self.steps {
            match step {
                Step::Run { first, last } if first == last => {
                    put_step(LAST, first, None, &mut out);
                }
                Step::Run { first, last } => put_step(RUN, first, Some(last), &mut out),
                Step::Earlier(change) if change.kind == ChangeKind::Delete => {
                    put_step(DELETED, &change.entry.key, None, &mut out);
                }
                Step::Earlier(change) => {
                    let entry = &change.entry;
                    let mut bytes = Vec::new();
                    let meta = record::Meta {
                        create_revision: entry.create_revision,
                        mod_revision: entry.mod_revision,
                        version: entry.version,
                        lease: entry.lease,
                    };
                    record::encode_head(&meta, &mut bytes);
                    bytes.extend_from_slice(&entry.value);
                    put_step(PUT, &entry.key, Some(&bytes), &mut out);
                }
            }
        }
        out
    }
}

/// Visits the order records of `revisions`, which ascend.
///
/// It searches from the newest record down, so neither many revisions without a record nor many records of
/// other revisions cost time. Records below the floor of history may be missing: the caller must check the
/// floor afterwards.
pub fn for_each(
    engine: &Engine,
    revisions: &[Revision],
    mut visit: impl FnMut(Revision, Order) -> Result<()>,
) -> Result<()> {
    let key = trees::order_key();
    let mut left = revisions;
    while let Some(newest) = left.last() {
        let found = engine.read_at(trees::SYSTEM, &key, newest.get(), |found| {
            let put = found.filter(|found| found.kind == EntryKind::Put);
            put.map(|found| {
                let order = (*newest == found.revision).then(|| decode(found.bytes(), *newest));
                (Revision::new(found.revision), order)
            })
        });
        let (found, order) = match found {
            Ok(Some(found)) => found,
            // The floor is above this revision and all remaining ones.
            Ok(None) | Err(bowline_storage::Error::Replaced { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if let Some(order) = order {
            visit(found, order.ok_or_else(|| invalid(&key))?)?;
        }
        // There is no record in between.
        let behind = left.partition_point(|other| *other <= found);
        let is_it = left.last() == Some(&found);
        left = &left[..behind - usize::from(is_it)];
    }
    Ok(())
}

/// The error for a record that does not match the kv tree.
pub fn invalid(key: &[u8]) -> Error {
    Error::InvalidRecord {
        what: "order",
        key: show_key(key),
        reason: "it is not the order of the revision's writes",
    }
}

#[cfg(test)]
mod tests {
    use bowline_storage::engine::BatchWriter;

    use super::*;

    const REVISION: Revision = Revision::new(9);

    /// A batch of writes: a put of a key, or after `-` its deletion.
    fn batch(writes: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = BatchWriter::start(&mut out, REVISION.get());
        for (number, write) in writes.iter().enumerate() {
            writer.put(trees::SYSTEM, b"other", b"", b"");
            match write.strip_prefix('-') {
                Some(key) => writer.delete(trees::KV, key.as_bytes()),
                None => {
                    let value = number.to_string();
                    writer.put(trees::KV, write.as_bytes(), &[0, 9, 1], value.as_bytes());
                }
            }
        }
        out
    }

    /// As [`batch`], from changes.
    fn named(changes: &[Change]) -> Vec<String> {
        let name = |change: &Change| {
            let key = String::from_utf8_lossy(&change.entry.key).into_owned();
            match change.kind {
                ChangeKind::Put => key,
                ChangeKind::Delete => format!("-{key}"),
            }
        };
        changes.iter().map(name).collect()
    }

    /// The versions that the kv tree holds of the writes.
    fn last_of(writes: &[&str], wanted: impl Fn(&[u8]) -> bool) -> Vec<Change> {
        let mut last = BTreeMap::new();
        for (number, write) in writes.iter().enumerate() {
            let key = write.trim_start_matches('-').as_bytes();
            let change = match write.starts_with('-') {
                true => Change::deletion(Value::copy_from(key), REVISION),
                false => {
                    let meta = record::Meta {
                        create_revision: REVISION,
                        mod_revision: REVISION,
                        version: 1,
                        lease: None,
                    };
                    let value = Value::copy_from(number.to_string().as_bytes());
                    Change::new(ChangeKind::Put, meta.entry(key, value))
                }
            };
            last.insert(key, change);
        }
        last.into_iter()
            .filter(|(key, _)| wanted(key))
            .map(|(_, change)| change)
            .collect()
    }

    #[test]
    fn the_order_of_the_keys_takes_no_record() {
        assert_eq!(of_batch(&batch(&[])), None);
        assert_eq!(of_batch(&batch(&["a"])), None);
        assert_eq!(of_batch(&batch(&["a", "-b", "c"])), None);
    }

    #[test]
    fn every_other_order_is_told_as_it_was_to_all_and_to_some() {
        for writes in [
            &["b", "a"][..],
            &["a", "-a"],
            &["-a", "a"],
            &["-a", "a", "-a"],
            &["c", "-a", "-b", "-d", "a"],
            &["z", "-a", "-b", "-c"],
            &["a", "c", "b", "d", "-c"],
            &["d", "c", "b", "a"],
            &["a", "b", "e", "f", "c", "d"],
        ] {
            let bytes = of_batch(&batch(writes)).unwrap();
            let order = decode(&bytes, REVISION).unwrap();
            assert_eq!(order.encode(), bytes, "{writes:?}");
            for wanted in ["abcdefz", "a", "bd", "cz", ""] {
                let is_wanted = |key: &[u8]| wanted.as_bytes().contains(&key[0]);
                let told = order.arrange(&last_of(writes, is_wanted), is_wanted);
                let expected = writes.iter().copied();
                let expected: Vec<&str> = expected
                    .filter(|write| wanted.contains(write.trim_start_matches('-')))
                    .collect();
                let told = told.unwrap();
                assert_eq!(named(&told), expected[..], "{writes:?} to {wanted}");
                for (place, change) in told.iter().enumerate() {
                    let number = writes.iter().position(|write| *write == expected[place]);
                    if change.kind == ChangeKind::Put {
                        let number = number.unwrap().to_string();
                        assert_eq!(change.entry.value, *number.as_bytes(), "{writes:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_range_that_is_deleted_takes_its_ends_alone() {
        let keys: Vec<String> = (0..1000).map(|n| format!("-key{n:04}")).collect();
        let mut writes = vec!["z"];
        writes.extend(keys.iter().map(String::as_str));
        assert!(of_batch(&batch(&writes)).unwrap().len() < 30);
    }

    #[test]
    fn what_no_writes_make_is_refused() {
        let one = |what: u8, key: &str, more: Option<&str>| {
            let mut out = Vec::new();
            put_step(what, key.as_bytes(), more.map(str::as_bytes), &mut out);
            out
        };
        let of = |steps: &[Vec<u8>]| decode(&steps.concat(), REVISION);
        let (a, b, c) = (one(1, "a", None), one(1, "b", None), one(1, "c", None));
        assert!(of(&[b.clone(), a.clone()]).is_some());
        assert_eq!(of(&[]), None, "nothing");
        assert_eq!(of(std::slice::from_ref(&a)), None, "the order of the keys");
        assert_eq!(of(&[a.clone(), b.clone()]), None, "two runs that are one");
        assert_eq!(of(&[c.clone(), a.clone(), b.clone()]), None, "the same");
        assert_eq!(of(&[a.clone(), a.clone()]), None, "two last writes");
        let across = [one(2, "a", Some("c")), b.clone()];
        assert_eq!(of(&across), None, "a run across another");
        let back = [b.clone(), one(2, "c", Some("c"))];
        assert_eq!(of(&back), None, "a run of one key");
        let deleted = one(3, "a", None);
        assert!(of(&[deleted.clone(), a.clone()]).is_some());
        assert_eq!(of(&[a.clone(), deleted.clone()]), None, "not earlier");
        assert_eq!(of(&[deleted, b.clone()]), None, "no last write");
        assert_eq!(of(&[one(4, "a", Some("")), a.clone()]), None, "no entry");
        assert_eq!(of(&[b, a, one(5, "d", None)]), None, "an unknown step");
        let bytes = of_batch(&batch(&["c", "-a", "-b", "-d", "a"])).unwrap();
        let whole = decode(&bytes, REVISION).unwrap();
        for cut in 0..bytes.len() {
            let part = decode(&bytes[..cut], REVISION);
            assert!(part.is_none_or(|part| part != whole && part.encode() == bytes[..cut]));
        }
    }

    #[test]
    fn a_change_without_a_place_is_noticed() {
        let order = decode(&of_batch(&batch(&["b", "a"])).unwrap(), REVISION).unwrap();
        let changes = last_of(&["a", "b", "c"], |_| true);
        assert_eq!(order.arrange(&changes, |_| true), None);
    }
}
