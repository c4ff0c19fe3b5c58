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

/// Which version of a key is read.
#[derive(Clone, Copy)]
enum ReadPoint {
    /// The newest one that is published.
    Newest,
    /// The newest one up to a pinned revision.
    At(Revision),
    /// The newest one, published or not, if it is above a revision.
    Above(Revision),
}

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

    /// Reads a key at a read point. All readers of one key are this one.
    #[inline]
    fn read_key<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        point: ReadPoint,
        want: Want,
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        loop {
            // First the sources, then the revision: whatever is visible is then in the sources.
            let super_version = self.shared.super_version.load();
            let (at, above) = match point {
                ReadPoint::Newest => (self.visible(), 0),
                ReadPoint::At(at) => (at, 0),
                ReadPoint::Above(above) => (Revision::MAX, above),
            };
            let oldest = match point {
                ReadPoint::Newest | ReadPoint::At(_) => self.shared.readers.replaced_floor(),
                ReadPoint::Above(_) => 0,
            };
            if at >= oldest {
                return super_version.get(tree, key, at, above, want, read);
            }
            if let ReadPoint::At(at) = point {
                return Err(Error::Replaced { at, oldest });
            }
            // Between the tables of another member and their revision.
            thread::yield_now();
        }
    }

    /// Reads a key at the newest revision.
    #[inline]
    pub fn read_newest<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        self.read_key(tree, key, ReadPoint::Newest, Want::Whole, read)
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
        self.read_key(tree, key, ReadPoint::At(at), Want::Whole, read)
    }

    /// Reads a key's newest version, published or not, when it is above `since`. For the holder of the
    /// round (or of the next one): it decides conflicts.
    #[inline]
    pub fn read_since<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        since: Revision,
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        self.read_key(tree, key, ReadPoint::Above(since), Want::Whole, read)
    }

    /// [`Engine::read_newest`], but of a large value no more than its first
    /// [`HEAD_BYTES`](crate::blob::HEAD_BYTES).
    #[inline]
    pub fn peek_newest<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        self.read_key(tree, key, ReadPoint::Newest, Want::Head, read)
    }

    /// [`Engine::read_at`], but of a large value no more than its first
    /// [`HEAD_BYTES`](crate::blob::HEAD_BYTES).
    #[inline]
    pub fn peek_at<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        at: Revision,
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        self.read_key(tree, key, ReadPoint::At(at), Want::Head, read)
    }

    /// [`Engine::read_since`], but of a large value no more than its first
    /// [`HEAD_BYTES`](crate::blob::HEAD_BYTES): enough to decide by.
    #[inline]
    pub fn peek_since<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        since: Revision,
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        self.read_key(tree, key, ReadPoint::Above(since), Want::Head, read)
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

    #[inline]
    fn check_replaced(&self, at: Revision) -> Result<()> {
        let oldest = self.shared.readers.replaced_floor();
        if at < oldest {
            return Err(Error::Replaced { at, oldest });
        }
        Ok(())
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
