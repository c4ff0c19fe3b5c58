//! A target at one revision: its keys here, its graph in [`super::graph`].
//!
//! Every reply of one view is of one revision. For a cluster that is the one asked for, or the newest when the first
//! reply was made.

use std::cell::Cell;

use bowline::{Entry, Range, Revision, Snapshot};
use bowline_client::{Error, KeyRange, SortBy};

use crate::context::at_most;
use crate::exit::Failure;
use crate::interrupt;
use crate::remote::{Remote, entry, wire_range};

/// How many entries are asked for at once.
const PAGE: u64 = 1_000;

/// A directory or a cluster at one revision.
pub(crate) enum View<'a> {
    Local(Snapshot),
    Remote(RemoteView<'a>),
}

/// A cluster at one revision.
pub(crate) struct RemoteView<'a> {
    pub(super) remote: &'a Remote,
    /// 0 until the first reply says which is the newest.
    pub(super) revision: Cell<Revision>,
}

/// In which order entries are visited, how many of them, and whether without their values.
#[derive(Default, Clone, Copy)]
pub(crate) struct Scan {
    pub(crate) reverse: bool,
    pub(crate) limit: Option<u64>,
    pub(crate) keys_only: bool,
}

/// Receives one item after the other, until it fails.
pub(crate) type Visit<'a, T> = &'a mut dyn FnMut(T) -> Result<(), Failure>;

impl View<'_> {
    /// Its revision.
    pub(crate) fn revision(&self) -> Result<Revision, Failure> {
        match self {
            View::Local(snapshot) => Ok(snapshot.revision()),
            View::Remote(view) => {
                if view.revision.get() == 0 {
                    view.get(KeyRange::key("\0"), Scan::default())?;
                }
                Ok(view.revision.get())
            }
        }
    }

    /// A key with its value.
    pub(crate) fn entry(&self, key: &[u8]) -> Result<Option<Entry>, Failure> {
        match self {
            View::Local(snapshot) => Ok(snapshot.entry(key)?),
            View::Remote(view) => {
                let mut found = view.get(KeyRange::key(key.to_vec()), Scan::default())?;
                Ok(found.entries.pop().map(entry))
            }
        }
    }

    /// Visits the entries of a range.
    pub(crate) fn for_each_entry(
        &self,
        range: &Range,
        scan: Scan,
        visit: Visit<'_, Entry>,
    ) -> Result<(), Failure> {
        match self {
            View::Local(snapshot) => {
                let mut entries = snapshot.range(range.clone())?;
                let next = || match scan.reverse {
                    true => entries.next_back(),
                    false => entries.next(),
                };
                let mut found = std::iter::from_fn(next).take(at_most(scan.limit));
                found.try_for_each(|entry| {
                    interrupt::check()?;
                    visit(entry?)
                })
            }
            View::Remote(view) => view.for_each_entry(range, scan, visit),
        }
    }
}

/// Refuses revision 0 of a cluster, as a directory does. On the wire it would be the newest.
pub(crate) fn refuse_zero(revision: Option<Revision>) -> Result<(), Failure> {
    match revision {
        Some(Revision::ZERO) => Err(Failure::from(Error::Compacted {
            compact_revision: None,
        })),
        _ => Ok(()),
    }
}

impl RemoteView<'_> {
    pub(super) fn new(
        remote: &Remote,
        revision: Option<Revision>,
    ) -> Result<RemoteView<'_>, Failure> {
        refuse_zero(revision)?;
        Ok(RemoteView {
            remote,
            revision: Cell::new(revision.unwrap_or(Revision::ZERO)),
        })
    }

    fn get(&self, range: KeyRange, scan: Scan) -> Result<bowline_client::RangeReply, Failure> {
        let get = self.remote.client.range(range).level(self.remote.level);
        let revision = Some(self.revision.get()).filter(|revision| *revision > 0);
        let mut get = set!(get, limit(scan.limit), revision(revision));
        if scan.reverse {
            get = get.descending(SortBy::Key);
        }
        if scan.keys_only {
            get = get.keys_only();
        }
        let reply = self.remote.wait(get)?;
        self.revision.set(revision.unwrap_or(reply.header.revision));
        Ok(reply)
    }

    /// Visits a range in pages. All are of the revision of the first, so that they fit together.
    fn for_each_entry(
        &self,
        range: &Range,
        scan: Scan,
        visit: Visit<'_, Entry>,
    ) -> Result<(), Failure> {
        let range = wire_range(range);
        let (mut start, mut end) = (range.start().clone(), range.end().clone());
        let mut left = scan.limit.unwrap_or(u64::MAX);
        while left > 0 {
            let limit = Some(left.min(PAGE));
            let page = KeyRange::from_wire(start.clone(), end.clone());
            let reply = self.get(page, Scan { limit, ..scan })?;
            let last = reply.entries.last().map(|last| last.key.clone());
            for found in reply.entries {
                interrupt::check()?;
                visit(entry(found))?;
                left -= 1;
            }
            match last.filter(|_| reply.more) {
                Some(last) if scan.reverse => end = last,
                // The first key behind this one.
                Some(last) => start = [&last[..], b"\0"].concat().into(),
                None => break,
            }
        }
        Ok(())
    }
}
