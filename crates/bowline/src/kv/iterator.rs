//! The iterator over a range of one snapshot.

use bowline_storage::tree::{Engine, Scan, ScanDirection, SnapshotPin};
use bowline_storage::{Revision, Value};

use super::range::Range;
use super::record::{Entry, decode};
use crate::error::{Error, Result, show_key};
use crate::trees;

/// The entries of a range at one revision, in key order, from both ends.
///
/// Owned and `Send`: it keeps what it reads from, not the database handle. A failed read ends it
/// after the error.
///
/// ```
/// # let db = bowline::Db::in_memory()?;
/// db.put(b"a", b"1")?;
/// db.put(b"b", b"2")?;
/// let newest_first: Vec<_> = db.range(..)?.rev().map(|e| e.map(|e| e.key)).collect::<Result<_, _>>()?;
/// assert_eq!(newest_first, [&b"b"[..], b"a"]);
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug)]
pub struct RangeIter {
    front: Side,
    /// Made when the first entry is asked for from the back.
    back: Option<Side>,
    done: bool,
    _pin: Option<SnapshotPin>,
}

#[derive(Debug)]
struct Side {
    scan: Scan,
    last: Option<Value>,
}

impl RangeIter {
    pub(crate) fn new(
        engine: &Engine,
        range: &Range,
        at: Revision,
        pin: Option<SnapshotPin>,
    ) -> RangeIter {
        let (lower, upper) = (range.lower.clone(), range.upper.clone());
        let scan = engine.scan(trees::KV, lower, upper, at, ScanDirection::Forward);
        RangeIter {
            front: Side { scan, last: None },
            back: None,
            done: false,
            _pin: pin,
        }
    }

    /// Ends the iteration where the two ends meet, and after an error.
    fn settle(
        &mut self,
        result: Result<Option<Entry>>,
        is_beyond: impl Fn(&RangeIter, &Entry) -> bool,
    ) -> Option<Result<Entry>> {
        let entry = result.transpose()?;
        match entry {
            Ok(entry) if is_beyond(self, &entry) => {
                self.done = true;
                None
            }
            Ok(entry) => Some(Ok(entry)),
            Err(error) => {
                self.done = true;
                Some(Err(error))
            }
        }
    }
}

impl Side {
    fn step(&mut self) -> Result<Option<Entry>> {
        if !self.scan.advance()? {
            return Ok(None);
        }
        let (key, bytes) = (self.scan.key(), self.scan.bytes());
        let Some((meta, start)) = decode(bytes, self.scan.revision()) else {
            let key = show_key(key);
            return Err(Error::InvalidRecord {
                what: "entry",
                key,
                reason: "its head is damaged",
            });
        };
        let entry = meta.entry(key, self.scan.slice(start..bytes.len()));
        self.last = Some(entry.key.clone());
        Ok(Some(entry))
    }
}

impl Iterator for RangeIter {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let result = self.front.step();
        self.settle(result, |iter, entry| {
            let last = iter.back.as_ref().and_then(|back| back.last.as_ref());
            last.is_some_and(|last| entry.key >= *last)
        })
    }
}

impl DoubleEndedIterator for RangeIter {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let front = &self.front;
        let back = self.back.get_or_insert_with(|| Side {
            scan: front.scan.opposite(),
            last: None,
        });
        let result = back.step();
        self.settle(result, |iter, entry| {
            iter.front
                .last
                .as_ref()
                .is_some_and(|last| entry.key <= *last)
        })
    }
}

impl std::iter::FusedIterator for RangeIter {}
