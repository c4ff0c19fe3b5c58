//! [`Snapshot`]: a pinned revision and the reads at it.

use bowline_storage::Value;
use bowline_storage::engine::SnapshotPin;
use bowline_types::Revision;

use crate::handle::Handle;
use bowline_core::error::Result;
use bowline_core::kv::{Entry, Range, RangeIter, record};
use bowline_core::trees;

/// The database at one revision. Later commits do not affect it.
///
/// A snapshot is cheap to make and to clone. While it exists, the versions that it reads are kept on disk.
///
/// ```
/// # let db = bowline::Db::in_memory()?;
/// db.put(b"k", b"old")?;
/// let before = db.snapshot();
/// db.put(b"k", b"new")?;
/// assert_eq!(before.get(b"k")?.as_deref(), Some(&b"old"[..]));
/// assert_eq!(before.entry(b"k")?.expect("an entry").mod_revision, before.revision());
/// assert_eq!(before.range("a".."z")?.count(), 1);
/// assert_eq!(before.graph().revision(), before.revision());
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Snapshot {
    handle: Handle,
    pin: SnapshotPin,
}

impl Snapshot {
    pub(crate) fn new(handle: Handle, pin: SnapshotPin) -> Snapshot {
        Snapshot { handle, pin }
    }

    /// A snapshot of the newest revision.
    pub(crate) fn newest(handle: &Handle) -> Snapshot {
        Snapshot::new(handle.clone(), handle.engine.pin_newest())
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Its pin.
    pub(crate) fn pin(&self) -> SnapshotPin {
        self.pin.clone()
    }

    /// The revision of the snapshot.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let revision = db.put("k", "v")?;
    /// let snapshot = db.snapshot();
    /// db.put("k", "w")?;
    /// assert_eq!(snapshot.revision(), revision);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn revision(&self) -> Revision {
        Revision::new(self.pin.revision())
    }

    /// The value of a key.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// db.put("k", "v")?;
    /// let snapshot = db.snapshot();
    /// db.delete("k")?;
    /// assert_eq!(snapshot.get("k")?.as_deref(), Some(&b"v"[..]));
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidRecord`, `Storage` when the key cannot be read.
    #[inline(always)]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        let engine = &self.handle.engine;
        // Inlined always, and one local that is returned once, so that the value is written where the caller asked
        // for it: each copy of it costs 4 to 5 ns of 70 (docs/benchmarks.md, S3).
        let mut value = Ok(None);
        let read = engine.read_at(trees::KV, key, self.revision().get(), |found| {
            record::value_into(key, found, &mut value);
        });
        if let Err(error) = read {
            value = Err(error.into());
        }
        value
    }

    /// The value of a key with its metadata.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// db.put("k", "v")?;
    /// let entry = db.snapshot().entry("k")?.expect("an entry");
    /// assert_eq!((&entry.value[..], entry.version), (&b"v"[..], 1));
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Snapshot::get`].
    pub fn entry(&self, key: impl AsRef<[u8]>) -> Result<Option<Entry>> {
        let key = key.as_ref();
        let engine = &self.handle.engine;
        engine.read_at(trees::KV, key, self.revision().get(), |found| {
            record::entry_of(key, found)
        })?
    }

    /// The entries of a range, in key order. The iterator is double-ended.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// for key in ["a", "b", "c"] {
    ///     db.put(key, "")?;
    /// }
    /// let snapshot = db.snapshot();
    /// let last = snapshot.range("a".."c")?.next_back().expect("an entry")?;
    /// assert_eq!(&last.key[..], b"b");
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidRange` when the range ends before it starts. Each entry may be a read error.
    pub fn range(&self, range: impl Into<Range>) -> Result<RangeIter> {
        let range = range.into().validate()?;
        let engine = &self.handle.engine;
        Ok(RangeIter::new(
            engine,
            &range,
            self.revision(),
            Some(self.pin.clone()),
        ))
    }
}
