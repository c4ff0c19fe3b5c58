//! One watcher: a cursor over revisions.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use bowline_storage::engine::{PinError, Want, WatchPin};
use bowline_storage::sync::Instant;
use bowline_storage::{EntryKind, Revision, Value};

use crate::handle::Handle;
use bowline_core::error::{Error, Result};
use bowline_core::kv::{Range, order, record};
use bowline_core::trees;
use bowline_core::watch::{Change, ChangeKind, Changes};

/// How much history a watcher reads at once, in bytes.
const CHUNK_MAX_BYTES: u64 = 4 << 20;

/// A watch to be started. Made by [`DbReader::watch`](crate::DbReader::watch).
#[derive(Debug)]
#[must_use = "a watch begins with `start`"]
pub struct WatchBuilder {
    handle: Handle,
    range: Range,
    from: Option<Revision>,
    with_previous: bool,
}

impl WatchBuilder {
    pub(crate) fn new(handle: Handle, range: Range) -> WatchBuilder {
        WatchBuilder {
            handle,
            range,
            from: None,
            with_previous: false,
        }
    }

    /// The first revision to report; in the past or in the future. Default: the next one.
    pub fn from(mut self, revision: Revision) -> WatchBuilder {
        self.from = Some(revision);
        self
    }

    /// Whether each change carries the entry before it.
    pub fn with_previous(mut self) -> WatchBuilder {
        self.with_previous = true;
        self
    }

    /// Starts the watch. Every change committed after this call (or from the given revision on)
    /// will be reported.
    ///
    /// # Errors
    /// `Compacted` when the start is below the oldest readable revision; it names that revision.
    pub fn start(self) -> Result<Watcher> {
        let WatchBuilder {
            handle,
            range,
            from,
            with_previous,
        } = self;
        let range = range.validate()?;
        handle.check_open()?;
        // First registered, then positioned: nothing committed from here on can be missed.
        handle.hub.add_watcher();
        loop {
            let next = from.unwrap_or_else(|| handle.engine.visible() + 1);
            match handle.engine.pin_watch(next) {
                Ok(pin) => {
                    let ready = VecDeque::new();
                    let oldest = handle.engine.history_floor();
                    return Ok(Watcher {
                        handle,
                        range,
                        next,
                        oldest,
                        with_previous,
                        pin,
                        ready,
                    });
                }
                // Commits and a flush came between the two lines above: "now" is later already.
                Err(PinError::Compacted { .. }) if from.is_none() => {}
                Err(error) => {
                    handle.hub.remove_watcher();
                    return Err(pin_error(next, error));
                }
            }
        }
    }
}

pub(crate) fn pin_error(requested: Revision, error: PinError) -> Error {
    match error {
        PinError::Future { oldest, current } => Error::FutureRevision {
            requested,
            current,
            oldest,
        },
        PinError::Compacted { oldest, current } => Error::Compacted {
            requested,
            oldest,
            current,
        },
    }
}

/// The changes of a range, in order of revision.
///
/// ```
/// # use std::time::Duration;
/// # let db = bowline::Db::in_memory()?;
/// let mut watch = db.watch(bowline::Range::prefix("svc/")).start()?;
/// let revision = db.put(b"svc/api", b"10.0.0.7")?;
/// let seen = watch.recv_timeout(Duration::from_secs(5))?.expect("a change");
/// assert_eq!((seen.revision, &seen.changes[0].entry.value[..]), (revision, &b"10.0.0.7"[..]));
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug)]
pub struct Watcher {
    handle: Handle,
    range: Range,
    next: Revision,
    /// Where history began when the watch did: what was made over in this revision is no part of it.
    oldest: Revision,
    with_previous: bool,
    pin: WatchPin,
    /// Read from history, not yet delivered; all below `next`.
    ready: VecDeque<Changes>,
}

impl Watcher {
    /// The next changes; waits for them. A thread that waits is woken by [`DbReader::close`](crate::DbReader::close).
    ///
    /// # Errors
    /// As of [`Watcher::recv_timeout`].
    pub fn recv(&mut self) -> Result<Changes> {
        loop {
            if let Some(changes) = self.recv_timeout(Duration::MAX)? {
                return Ok(changes);
            }
        }
    }

    /// The next changes; waits for them up to `timeout`. `None` when nothing came in that time.
    ///
    /// # Errors
    /// `Compacted` when the watcher fell so far behind that history was given up; it names the
    /// oldest readable revision. `Closed` when the database was closed.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<Changes>> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if let Some(found) = self.try_recv()? {
                return Ok(Some(found));
            }
            let left = match deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
                None => Duration::MAX,
            };
            if left.is_zero() {
                return Ok(None);
            }
            let next = self.next;
            let core = &self.handle;
            core.hub.wait(left, || core.engine.visible() >= next);
        }
    }

    /// The next changes if they are there already.
    ///
    /// # Errors
    /// As [`Watcher::recv_timeout`].
    pub fn try_recv(&mut self) -> Result<Option<Changes>> {
        loop {
            if let Some(mut changes) = self.ready.pop_front() {
                if let Err(error) = self.add_previous(&mut changes) {
                    // Nobody was given them yet.
                    self.ready.push_front(changes);
                    return Err(error);
                }
                self.advance_pin();
                return Ok(Some(changes));
            }
            self.handle.check_open()?;
            let visible = self.handle.engine.visible();
            if self.next > visible {
                return Ok(None);
            }
            match self.handle.hub.get(self.next) {
                Some(all) => {
                    self.next += 1;
                    let inside = |change: &&Change| self.range.contains(&change.entry.key);
                    let mut changes: Vec<_> = all.changes.iter().filter(inside).cloned().collect();
                    if all.revision <= self.oldest {
                        keep_last(&mut changes);
                    }
                    if changes.is_empty() {
                        self.advance_pin();
                    } else {
                        self.ready.push_back(Changes {
                            revision: all.revision,
                            changes,
                        });
                    }
                }
                None => self.read_history(visible)?,
            }
        }
    }

    /// The next revision this watcher will report: the one to resume from.
    #[must_use]
    pub fn next_revision(&self) -> Revision {
        self.ready
            .front()
            .map_or(self.next, |changes| changes.revision)
    }

    /// History is held for what is not delivered yet.
    fn advance_pin(&self) {
        self.pin.advance(self.next_revision());
    }

    /// Reads a chunk of history into `ready`: all changes from `next` up to some revision that is
    /// at most `visible` and as near as the chunk's size makes it.
    fn read_history(&mut self, visible: Revision) -> Result<()> {
        let engine = &self.handle.engine;
        let sources = engine.super_version();
        let from = self.next;
        let mut upto = visible;
        let mut found: BTreeMap<Revision, Vec<Change>> = BTreeMap::new();
        let mut bytes = 0;
        let mut failure = None;
        let (lower, upper) = self.range.bounds();
        let mut visit = |key: &[u8], revision: Revision, kind: EntryKind, record: &[u8]| {
            if revision > upto {
                return true;
            }
            let change = match kind {
                EntryKind::Delete => Change::deletion(Value::copy_from(key), revision),
                EntryKind::Put => match record::entry_of_version(key, revision, record, &sources) {
                    Ok(entry) => Change::new(ChangeKind::Put, entry),
                    Err(error) => {
                        failure = Some(error);
                        return false;
                    }
                },
            };
            bytes += change.size_bytes();
            found.entry(revision).or_default().push(change);
            while bytes > CHUNK_MAX_BYTES && found.len() > 1 {
                // The newest revision waits for the next chunk.
                if let Some((last, dropped)) = found.pop_last() {
                    bytes -= dropped.iter().map(Change::size_bytes).sum::<u64>();
                    upto = last - 1;
                }
            }
            true
        };
        let span = (from, visible);
        sources.for_each_version(trees::KV, lower, upper, span, Want::Whole, &mut visit)?;
        if let Some(error) = failure {
            return Err(error);
        }
        for changes in found.values_mut() {
            changes.sort_by(|a, b| a.entry.key.cmp(&b.entry.key));
        }
        let revisions: Vec<Revision> = found.keys().copied().collect();
        order::for_each(engine, &revisions, |revision, order| {
            if let Some(changes) = found.get_mut(&revision) {
                let wanted = |key: &[u8]| self.range.contains(key);
                let arranged = order.arrange(changes, wanted);
                *changes = arranged.ok_or_else(|| order::invalid(&trees::order_key()))?;
                if revision <= self.oldest {
                    keep_last(changes);
                }
            }
            Ok(())
        })?;
        // Asked after reading: whatever the read missed was given up before this.
        let oldest = engine.history_floor();
        if from < oldest {
            return Err(Error::Compacted {
                requested: from,
                oldest,
                current: visible,
            });
        }
        let found = found.into_iter();
        let found = found.map(|(revision, changes)| Changes { revision, changes });
        self.ready.extend(found);
        self.next = upto + 1;
        self.advance_pin();
        Ok(())
    }

    fn add_previous(&self, changes: &mut Changes) -> Result<()> {
        if !self.with_previous {
            return Ok(());
        }
        let engine = &self.handle.engine;
        let Some(before) = changes.revision.checked_sub(1) else {
            return Ok(());
        };
        for change in changes.changes.iter_mut().filter(|c| !c.creates_key()) {
            let key = change.entry.key.clone();
            let entry = engine.read_at(trees::KV, &key, before, |found| {
                record::entry_of(&key, found)
            });
            let entry = match entry {
                // A member that was far behind was given the tables of another, whose history begins later.
                Err(bowline_storage::Error::Replaced { oldest, .. }) => {
                    return Err(Error::Compacted {
                        requested: changes.revision,
                        oldest,
                        current: self.handle.engine.visible(),
                    });
                }
                entry => entry??,
            };
            // Below the floor the version before may be gone; then an older one must not be
            // taken for it.
            if before >= engine.history_floor() {
                change.previous = entry;
            }
        }
        Ok(())
    }
}

/// Leaves of the changes of a revision, which are in order, the last one of each key.
fn keep_last(changes: &mut Vec<Change>) {
    let mut later = HashSet::new();
    let is_last = changes
        .iter()
        .rev()
        .map(|change| later.insert(change.entry.key.clone()));
    let mut is_last: Vec<bool> = is_last.collect();
    changes.retain(|_| is_last.pop() == Some(true));
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.handle.hub.remove_watcher();
    }
}
