//! The iterator over a range of one snapshot.

use bowline_storage::tree::{Engine, Scan, ScanDirection, SnapshotPin};
use bowline_storage::{Revision, Value};

use super::range::Range;
use super::record::{self, Entry, decode};
use crate::error::Result;
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
    front: Scan,
    /// Made when the first entry is asked for from the back.
    back: Option<Scan>,
    done: bool,
    _pin: Option<SnapshotPin>,
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
            front: scan,
            back: None,
            done: false,
            _pin: pin,
        }
    }
}

/// The entry a scan stands on, built where it is to stay: an entry is large, and to hand it up
/// through calls would copy it each time.
#[inline]
fn read_into(scan: &Scan, item: &mut Option<Result<Entry>>) {
    let bytes = scan.bytes();
    let Some((head, start)) = decode(bytes, scan.revision()) else {
        *item = Some(Err(record::invalid(scan.key())));
        return;
    };
    let meta = match head.complete(scan.key(), scan.sources()) {
        Ok(meta) => meta,
        Err(error) => {
            *item = Some(Err(error));
            return;
        }
    };
    *item = Some(Ok(meta.entry(&[], Value::EMPTY)));
    if let Some(Ok(entry)) = item {
        entry.key.assign(scan.key());
        scan.slice_into(start..bytes.len(), &mut entry.value);
    }
}

// The ends have met when one stands on a key that the other has given already. Where one comes to
// the end of the range, the other has nothing left either.

impl Iterator for RangeIter {
    type Item = Result<Entry>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        self.done = true;
        match self.front.advance() {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => return Some(Err(error.into())),
        }
        if let Some(back) = &self.back
            && back.position().is_some_and(|last| self.front.key() >= last)
        {
            return None;
        }
        let mut item = None;
        read_into(&self.front, &mut item);
        self.done = !matches!(item, Some(Ok(_)));
        item
    }
}

impl DoubleEndedIterator for RangeIter {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        self.done = true;
        let front = &self.front;
        let back = self.back.get_or_insert_with(|| front.opposite());
        match back.advance() {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => return Some(Err(error.into())),
        }
        if front.position().is_some_and(|last| back.key() <= last) {
            return None;
        }
        let mut item = None;
        read_into(back, &mut item);
        self.done = !matches!(item, Some(Ok(_)));
        item
    }
}

impl std::iter::FusedIterator for RangeIter {}
