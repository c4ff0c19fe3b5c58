//! [`RangeIter`]: iteration over a range of one snapshot, with and without copies.

use std::ops::{Bound, ControlFlow};

use bowline_storage::Value;
use bowline_storage::engine::{Engine, Scan, ScanDirection, SnapshotPin};
use bowline_types::Revision;

use super::range::Range;
use super::record::{self, Entry, Head, decode};
use crate::error::Result;
use crate::lease::LeaseId;
use crate::trees;

/// The entries of a range at one revision, in key order. Double-ended.
///
/// The iterator is `Send` and keeps the memtables and tables that it reads, but not the database open. It
/// ends after the first error.
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
    /// Created by the first read from the back.
    back: Option<Scan>,
    done: bool,
    _pin: Option<SnapshotPin>,
}

impl RangeIter {
    /// For `bowline`, which knows the engine.
    #[doc(hidden)]
    pub fn new(
        engine: &Engine,
        range: &Range,
        at: Revision,
        pin: Option<SnapshotPin>,
    ) -> RangeIter {
        let (lower, upper) = (range.lower.clone(), range.upper.clone());
        let scan = engine.scan(trees::KV, lower, upper, at.get(), ScanDirection::Forward);
        RangeIter {
            front: scan,
            back: None,
            done: false,
            _pin: pin,
        }
    }
}

/// The keys attached to a lease, in their order. Returned by `lease_keys`; it ends after the first error.
///
/// ```
/// # let db = bowline::Db::in_memory()?;
/// let lease = db.grant_lease(std::time::Duration::from_secs(10))?;
/// db.put_with_lease("svc/b", "", lease)?;
/// db.put_with_lease("svc/a", "", lease)?;
/// let keys: Vec<_> = db.lease_keys(lease)?.collect::<Result<_, _>>()?;
/// assert_eq!(keys, [b"svc/a", b"svc/b"]);
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug)]
pub struct LeaseKeys {
    scan: Scan,
    prefix_bytes: usize,
    done: bool,
    _pin: SnapshotPin,
}

impl LeaseKeys {
    /// For `bowline`, which knows the engine.
    #[doc(hidden)]
    pub fn new(engine: &Engine, lease: LeaseId) -> LeaseKeys {
        let pin = engine.pin_newest();
        let prefix = trees::attachment_prefix(lease);
        let upper = trees::prefix_end(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
        let lower = Bound::Included(prefix.to_vec());
        let (tree, at) = (trees::SYSTEM, pin.revision());
        LeaseKeys {
            scan: engine.scan(tree, lower, upper, at, ScanDirection::Forward),
            prefix_bytes: prefix.len(),
            done: false,
            _pin: pin,
        }
    }
}

impl Iterator for LeaseKeys {
    type Item = Result<Value>;

    fn next(&mut self) -> Option<Result<Value>> {
        if self.done {
            return None;
        }
        let next = match self.scan.advance() {
            Ok(true) => Some(Ok(Value::copy_from(&self.scan.key()[self.prefix_bytes..]))),
            Ok(false) => None,
            Err(error) => Some(Err(error.into())),
        };
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

/// A borrowed entry in a page or a memtable, valid until the walk goes on.
///
/// ```
/// use bowline::{Entry, EntryRef};
/// use std::ops::ControlFlow;
/// # let db = bowline::Db::in_memory()?;
/// db.put("a", "1")?;
/// db.put("b", "a long value")?;
/// db.put("c", "3")?;
///
/// // Only the entry that is wanted is copied.
/// let found = db.range(..)?.visit(|entry: EntryRef<'_>| match entry.value.len() > 10 {
///     true => ControlFlow::Break((entry.to_entry(), entry.to_entry_without_value())),
///     false => ControlFlow::Continue(()),
/// })?;
/// let ControlFlow::Break((whole, without_value)) = found else { panic!("one is long") };
/// let (whole, without_value): (Entry, Entry) = (whole?, without_value?);
/// assert_eq!((&whole.value[..], without_value.value.len()), (&b"a long value"[..], 0));
/// assert_eq!((whole.key, whole.version), (without_value.key, without_value.version));
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct EntryRef<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value; of a large one only its beginning after [`RangeIter::without_large_values`].
    pub value: &'a [u8],
    /// The revision that wrote this value.
    pub mod_revision: Revision,
    head: Head,
    scan: &'a Scan,
}

impl<'a> EntryRef<'a> {
    /// The entry a scan stands on.
    #[inline]
    fn at(scan: &'a Scan) -> Result<EntryRef<'a>> {
        let (key, bytes, mod_revision) = (scan.key(), scan.bytes(), scan.revision());
        let Some((head, start)) = decode(bytes, Revision::new(mod_revision)) else {
            return Err(record::invalid(key));
        };
        Ok(EntryRef {
            key,
            value: &bytes[start..],
            mod_revision: Revision::new(mod_revision),
            head,
            scan,
        })
    }

    /// Copies the entry with its metadata.
    ///
    /// # Errors
    /// `Storage` when an older version that a blind record depends on cannot be read.
    pub fn to_entry(&self) -> Result<Entry> {
        let mut item = None;
        read_into(self, &mut item);
        item.unwrap_or_else(|| Err(record::invalid(self.key)))
    }

    /// The length of the value, also where only its beginning was read.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// use bowline::EntryRef;
    /// use std::ops::ControlFlow;
    /// db.put("a", "1234")?;
    /// let first = db.range(..)?.visit(|entry: EntryRef<'_>| ControlFlow::Break(entry.value_bytes()))?;
    /// assert_eq!(first.break_value().expect("an entry")?, 4);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Storage` when the record that names a large value is damaged.
    pub fn value_bytes(&self) -> Result<u64> {
        let head_bytes = self.scan.bytes().len() - self.value.len();
        Ok(self.scan.value_bytes()?.saturating_sub(head_bytes as u64))
    }

    /// Copies the key and the metadata without the value.
    ///
    /// # Errors
    /// Those of [`EntryRef::to_entry`].
    pub fn to_entry_without_value(&self) -> Result<Entry> {
        let meta = self.head.complete(self.key, self.scan.sources())?;
        Ok(meta.entry(self.key, Value::EMPTY))
    }
}

impl std::fmt::Debug for EntryRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EntryRef")
            .field("key", &self.key)
            .field("value", &self.value)
            .field("mod_revision", &self.mod_revision)
            .finish_non_exhaustive()
    }
}

impl RangeIter {
    /// Calls `visit` with the remaining entries in key order, borrowed: nothing is copied, and metadata is
    /// computed from several versions only by [`EntryRef::to_entry`]. Stops when `visit` breaks, and returns
    /// its value.
    ///
    /// For walks over many entries: returning each entry from an iterator is most of the cost of a walk in
    /// memory.
    ///
    /// ```
    /// # use std::ops::{Bound, ControlFlow};
    /// # let db = bowline::Db::in_memory()?;
    /// db.put(b"a", b"1")?;
    /// db.put(b"b", b"22")?;
    /// let mut bytes = 0;
    /// let all: ControlFlow<()> = db.range(..)?.visit(|entry| {
    ///     bytes += entry.value.len();
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert!(all.is_continue());
    /// assert_eq!(bytes, 3);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Storage`, `InvalidRecord` when an entry cannot be read. The entries before it were visited.
    pub fn visit<B>(
        mut self,
        mut visit: impl FnMut(EntryRef<'_>) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>> {
        if self.done {
            return Ok(ControlFlow::Continue(()));
        }
        while self.advance()? {
            let visited = visit(EntryRef::at(&self.front)?);
            if visited.is_break() {
                return Ok(visited);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Reads of each large value no more than its beginning: for walks that measure, or that need no values.
    ///
    /// ```
    /// use bowline::EntryRef;
    /// use std::ops::ControlFlow;
    /// # let db = bowline::Db::in_memory()?;
    /// db.put("a", vec![0; 100_000])?;
    /// let mut bytes = 0;
    /// let mut add = |entry: EntryRef<'_>| match entry.value_bytes() {
    ///     Ok(value_bytes) => {
    ///         bytes += value_bytes;
    ///         ControlFlow::Continue(())
    ///     }
    ///     Err(error) => ControlFlow::Break(error),
    /// };
    /// let walked = db.range(..)?.without_large_values().visit(&mut add)?;
    /// assert!(walked.is_continue());
    /// assert_eq!(bytes, 100_000);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn without_large_values(self) -> RangeIter {
        RangeIter {
            front: self.front.heads(),
            back: self.back.map(Scan::heads),
            ..self
        }
    }

    /// Advances from the front; `false` when the ends have met.
    #[inline]
    fn advance(&mut self) -> Result<bool> {
        if !self.front.advance()? {
            return Ok(false);
        }
        let last = self.back.as_ref().and_then(Scan::position);
        Ok(last.is_none_or(|last| self.front.key() < last))
    }
}

/// The entry, built in place: an entry is large, and each return through a call would copy it.
#[inline]
fn read_into(at: &EntryRef<'_>, item: &mut Option<Result<Entry>>) {
    let scan = at.scan;
    let meta = match at.head.complete(at.key, scan.sources()) {
        Ok(meta) => meta,
        Err(error) => {
            *item = Some(Err(error));
            return;
        }
    };
    *item = Some(Ok(meta.entry(&[], Value::EMPTY)));
    if let Some(Ok(entry)) = item {
        entry.key.assign(at.key);
        let bytes = scan.bytes().len();
        scan.slice_into(bytes - at.value.len()..bytes, &mut entry.value);
    }
}

/// The entry a scan stands on.
#[inline]
fn read(scan: &Scan) -> Option<Result<Entry>> {
    let mut item = None;
    match EntryRef::at(scan) {
        Ok(at) => read_into(&at, &mut item),
        Err(error) => item = Some(Err(error)),
    }
    item
}

// The ends have met when one is at a key that the other has returned. When one reaches the end of the
// range, the other has nothing left.

impl Iterator for RangeIter {
    type Item = Result<Entry>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        self.done = true;
        match self.advance() {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => return Some(Err(error)),
        }
        let item = read(&self.front);
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
        let item = read(back);
        self.done = !matches!(item, Some(Ok(_)));
        item
    }
}

impl std::iter::FusedIterator for RangeIter {}
