//! The reads of an engine: pins of revisions, reads of one key, scans, visits of versions.
//!
//! A read takes no lock. It loads the current [`SuperVersion`] and reads it at a revision.
//!
//! Invariant: a read at the newest revision loads the super-version first and the visible revision
//! second, so everything visible at that revision is in the super-version.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::found::{Found, VersionVisit, Want};
use super::scan::{Scan, ScanDirection};
use super::super_version::SuperVersion;
use crate::engine::Engine;
use crate::engine::history::{PinError, SnapshotPin, WatchPin};
use crate::error::{Error, Result};
use crate::sync::thread;
use crate::{Revision, TreeId};

/// Which version of a key is read.
#[derive(Clone, Copy)]
enum ReadPoint {
    /// The newest visible version.
    Newest,
    /// The newest version up to a pinned revision.
    At(Revision),
    /// The newest version, visible or not, if it is above a revision.
    Above(Revision),
}

impl Engine {
    /// The newest visible revision.
    #[must_use]
    #[inline]
    pub fn visible(&self) -> Revision {
        self.core.view.visible()
    }

    /// The oldest readable revision.
    #[must_use]
    pub fn history_floor(&self) -> Revision {
        self.core.pins.floor()
    }

    /// Pins the newest revision.
    #[must_use]
    pub fn pin_newest(&self) -> SnapshotPin {
        self.core.pins.pin_newest(self.core.view.visible_revision())
    }

    /// Pins a revision of the past.
    pub fn pin_at(&self, revision: Revision) -> Result<SnapshotPin, PinError> {
        let visible = self.core.view.visible_revision();
        self.core.pins.pin_at(revision, visible)
    }

    /// Keeps history for a watch that starts at `from`.
    pub fn pin_watch(&self, from: Revision) -> Result<WatchPin, PinError> {
        let visible = self.core.view.visible_revision();
        self.core.pins.pin_watch(from, visible)
    }

    /// Keeps history for a watch that starts at the next revision, which it returns.
    #[must_use]
    pub fn pin_watch_next(&self) -> (Revision, WatchPin) {
        let visible = self.core.view.visible_revision();
        self.core.pins.pin_watch_next(visible)
    }

    /// Reads a key at a read point. All reads of one key end here.
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
            // First the super-version, then the revision: see the invariant.
            let super_version = self.core.view.load();
            let (at, above) = match point {
                ReadPoint::Newest => (self.visible(), 0),
                ReadPoint::At(at) => (at, 0),
                ReadPoint::Above(above) => (Revision::MAX, above),
            };
            let oldest = match point {
                ReadPoint::Newest | ReadPoint::At(_) => self.core.pins.replaced_floor(),
                ReadPoint::Above(_) => 0,
            };
            if at >= oldest {
                return super_version.get(tree, key, at, above, want, read);
            }
            if let ReadPoint::At(at) = point {
                return Err(Error::Replaced { at, oldest });
            }
            // An installation has replaced the tables and not yet the visible revision.
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

    /// Reads several keys at a pinned revision from one super-version: passes each key's position and version to `read`,
    /// in no order, until `read` breaks. The memory that they need is asked for together, which takes a fraction of the
    /// time of as many reads.
    pub fn read_many_at<K: AsRef<[u8]>>(
        &self,
        tree: TreeId,
        keys: &[K],
        at: Revision,
        read: impl FnMut(usize, Option<Found<'_>>) -> ControlFlow<()>,
    ) -> Result<()> {
        let super_version = self.core.view.load();
        self.check_replaced(at)?;
        super_version.get_many(tree, keys, at, Want::Whole, read)
    }

    /// Asks for the memory that reads of these keys will need first. For a caller who reads them one after the other,
    /// at once; it reads nothing itself, and changes no result.
    pub fn look_ahead<K: AsRef<[u8]>>(&self, tree: TreeId, keys: impl Iterator<Item = K>) {
        self.core.view.load().look_ahead(tree, keys);
    }

    /// Reads a key's newest version, visible or not, if it is above `since`. For the owner of the commit
    /// group in progress, or of the next one, which decides conflicts with it.
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

    /// [`Engine::read_newest`], but reads at most the first [`HEAD_BYTES`](crate::blob::HEAD_BYTES) of a
    /// large value.
    #[inline]
    pub fn peek_newest<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        self.read_key(tree, key, ReadPoint::Newest, Want::Head, read)
    }

    /// [`Engine::read_at`], but reads at most the first [`HEAD_BYTES`](crate::blob::HEAD_BYTES) of a
    /// large value.
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

    /// [`Engine::read_since`], but reads at most the first [`HEAD_BYTES`](crate::blob::HEAD_BYTES) of a
    /// large value: enough to decide conflicts.
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

    /// Reads a key at the newest revision from the memtables. `None` when they have no version and a
    /// table may have one.
    #[inline]
    pub fn peek_memtables<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Option<R> {
        // First the super-version, then the revision: see the invariant.
        let super_version = self.core.view.load();
        let at = self.visible();
        super_version.get_from_memtables(tree, key, at, read)
    }

    #[inline]
    fn check_replaced(&self, at: Revision) -> Result<()> {
        let oldest = self.core.pins.replaced_floor();
        if at < oldest {
            return Err(Error::Replaced { at, oldest });
        }
        Ok(())
    }

    /// The current super-version.
    #[must_use]
    pub fn super_version(&self) -> Arc<SuperVersion> {
        self.core.view.load_full()
    }

    /// The current super-version, to read it at a pinned revision as often as wanted.
    ///
    /// # Errors
    /// `Replaced` when the state was replaced by one that is newer.
    pub fn super_version_at(&self, at: Revision) -> Result<Arc<SuperVersion>> {
        let super_version = self.super_version();
        self.check_replaced(at)?;
        Ok(super_version)
    }

    /// Whether a key in the range has a version, visible or not, above `since`.
    pub fn changed_since(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        since: Revision,
    ) -> Result<bool> {
        self.core
            .view
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
        let super_version = self.core.view.load_full();
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
        let super_version = self.core.view.load_full();
        super_version.for_each_version(tree, lower, upper, span, Want::Whole, visit)
    }

    /// [`Engine::for_each_version`], but `visit` receives at most the first
    /// [`HEAD_BYTES`](crate::blob::HEAD_BYTES) of a large value.
    pub fn peek_versions(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        span: (Revision, Revision),
        visit: &mut VersionVisit<'_>,
    ) -> Result<()> {
        let super_version = self.core.view.load_full();
        super_version.for_each_version(tree, lower, upper, span, Want::Head, visit)
    }
}
