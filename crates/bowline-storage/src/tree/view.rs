//! The engine as a reader sees it: pins of revisions, reads of one key, scans, visits of versions.
//!
//! All of them take no lock: they load the current [`SuperVersion`] and read it at a revision.
//!
//! Invariant: of the newest revision the sources are loaded before the revision is, so everything
//! visible at that revision is in the sources.

use std::ops::Bound;
use std::sync::Arc;

use super::{
    Engine, Found, PinError, Scan, ScanDirection, SnapshotPin, SuperVersion, VersionVisit, Want,
    WatchPin,
};
use crate::error::{Error, Result};
use crate::sync::atomic::Ordering;
use crate::sync::thread;
use crate::{Revision, TreeId};

impl Engine {
    /// The newest published revision.
    #[must_use]
    #[inline]
    pub fn visible(&self) -> Revision {
        self.shared.visible.load(Ordering::Acquire)
    }

    /// The oldest readable revision.
    #[must_use]
    pub fn history_floor(&self) -> Revision {
        self.shared.readers.floor()
    }

    /// Pins the newest revision.
    #[must_use]
    pub fn pin_newest(&self) -> SnapshotPin {
        self.shared.readers.pin_newest(&self.shared.visible)
    }

    /// Pins a revision of the past.
    pub fn pin_at(&self, revision: Revision) -> Result<SnapshotPin, PinError> {
        self.shared.readers.pin_at(revision, &self.shared.visible)
    }

    /// Keeps history for a watch that starts at `from`.
    pub fn pin_watch(&self, from: Revision) -> Result<WatchPin, PinError> {
        self.shared.readers.pin_watch(from, &self.shared.visible)
    }

    /// Reads a key at the newest revision.
    #[inline]
    pub fn read_newest<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        self.newest(tree, key, Want::Whole, read)
    }

    #[inline]
    fn newest<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        want: Want,
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        // First the sources, then the revision: whatever is visible is then in the sources.
        loop {
            let super_version = self.shared.super_version.load();
            let at = self.visible();
            if at >= self.shared.readers.replaced_floor() {
                return super_version.get(tree, key, at, 0, want, read);
            }
            // Between the tables of another member and their revision.
            thread::yield_now();
        }
    }

    /// Reads a key at a pinned revision.
    #[inline]
    pub fn read_at<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        at: Revision,
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        let super_version = self.shared.super_version.load();
        self.check_replaced(at)?;
        super_version.get(tree, key, at, 0, Want::Whole, read)
    }

    /// Reads a key at the newest revision, but of a large value no more than its first
    /// [`HEAD_BYTES`](crate::blob::HEAD_BYTES).
    #[inline]
    pub fn peek_newest<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        self.newest(tree, key, Want::Head, read)
    }

    /// Reads a key at a pinned revision, but of a large value no more than its first
    /// [`HEAD_BYTES`](crate::blob::HEAD_BYTES).
    #[inline]
    pub fn peek_at<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        at: Revision,
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        let super_version = self.shared.super_version.load();
        self.check_replaced(at)?;
        super_version.get(tree, key, at, 0, Want::Head, read)
    }

    #[inline]
    fn check_replaced(&self, at: Revision) -> Result<()> {
        let oldest = self.shared.readers.replaced_floor();
        if at < oldest {
            return Err(Error::Replaced { at, oldest });
        }
        Ok(())
    }

    /// Reads a key's newest version, published or not, when it is above `since`. For the one who
    /// holds the round (or is about to): it decides conflicts.
    #[inline]
    pub fn read_since<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        since: Revision,
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        self.shared
            .super_version
            .load()
            .get(tree, key, Revision::MAX, since, Want::Whole, read)
    }

    /// The same, but of a large value no more than its first
    /// [`HEAD_BYTES`](crate::blob::HEAD_BYTES): enough to decide by.
    #[inline]
    pub fn peek_since<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        since: Revision,
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        self.shared
            .super_version
            .load()
            .get(tree, key, Revision::MAX, since, Want::Head, read)
    }

    /// What the memtables say of a key at the newest revision. `None` when they say nothing and a table
    /// might.
    #[inline]
    pub fn peek_memtables<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Option<R> {
        // First the sources, then the revision: whatever is visible is then in the sources.
        let super_version = self.shared.super_version.load();
        let at = self.visible();
        super_version.get_from_memtables(tree, key, at, read)
    }

    /// All that there is to read from, as it is now.
    #[must_use]
    pub fn super_version(&self) -> Arc<SuperVersion> {
        self.shared.super_version.load_full()
    }

    /// Whether a key in the range has a version, published or not, above `since`.
    pub fn changed_since(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        since: Revision,
    ) -> Result<bool> {
        self.shared
            .super_version
            .load()
            .changed_since(tree, lower, upper, since)
    }

    /// Scans a range at a pinned (or the newest) revision.
    #[must_use]
    pub fn scan(
        &self,
        tree: TreeId,
        lower: Bound<Vec<u8>>,
        upper: Bound<Vec<u8>>,
        at: Revision,
        direction: ScanDirection,
    ) -> Scan {
        let super_version = self.shared.super_version.load_full();
        let refused = self.check_replaced(at).err();
        Scan::new(super_version, tree, lower, upper, at, direction).refused(refused)
    }

    /// Visits every kept version of the range with a revision in `span`, both ends included; see
    /// [`SuperVersion::for_each_version`].
    pub fn for_each_version(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        span: (Revision, Revision),
        visit: &mut VersionVisit<'_>,
    ) -> Result<()> {
        let super_version = self.shared.super_version.load_full();
        super_version.for_each_version(tree, lower, upper, span, Want::Whole, visit)
    }

    /// The same, but of a large value `visit` gets no more than its first
    /// [`HEAD_BYTES`](crate::blob::HEAD_BYTES).
    pub fn peek_versions(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        span: (Revision, Revision),
        visit: &mut VersionVisit<'_>,
    ) -> Result<()> {
        let super_version = self.shared.super_version.load_full();
        super_version.for_each_version(tree, lower, upper, span, Want::Head, visit)
    }
}
