//! A page: a small sorted array of entries, searched without being decoded.
//!
//! ```text
//! +---------+---------------+-----------------+------------+-----------------------+
//! | entries | restarts      | slots           | slot bytes | restart count         |
//! | …       | u32 each      | interval u8,    | u32        | u31, and a bit: there |
//! |         |               | tag u8, of each |            | are slots             |
//! +---------+---------------+-----------------+------------+-----------------------+
//!
//! entry: shared, unshared, value length (varints), kind (u8), revision (varint),
//!        the key's last `unshared` bytes, value
//! ```
//!
//! `shared` is exactly how many bytes an entry's key has in common with the key before it. At a
//! *restart* (every so many entries or bytes) it is 0: the key is whole, and its offset is listed. The
//! entries from one restart to the next are an *interval*.
//!
//! A point read finds its interval in the hash index, if the page has one: a table of *slots* with
//! open addressing. A key's slot is the one that its hash says or one of those behind it, before
//! the first empty one, and holds the number of the interval in which the key begins and eight
//! more bits of the hash, the *tag*. So it takes one interval to find a key, with few exceptions,
//! and none for nearly all keys that are not there. Without the index the restarts are searched by
//! bisection, where each step waits for memory. Then the interval is walked, comparing only the
//! bytes that may still differ (see [`Page::find`]).
//!
//! Tables of format 1 had another hash index where the slots are, without the bit. It is passed
//! over, and their pages are searched by bisection.
//!
//! The page's checksum has been verified before a `Page` exists. What is read here is checked all
//! the same, so that no bytes whatever make it panic.

use std::ops::Range;

use bytes::Bytes;

use crate::cache::{Piece, Shelved};
use crate::codec::Reader;
use crate::frame::Reason;
use crate::prefetch::{Hint, prefetch};
use crate::types::{EntryKind, Revision};
use crate::value::Value;

/// What stands in a slot without a key, instead of an interval.
pub(super) const SLOT_EMPTY: u8 = 255;
/// More intervals than this do not fit into slots: the page has no hash index.
pub(super) const SLOT_INTERVALS_MAX: usize = 253;
/// The bit of the restart count that says that there are slots.
pub(super) const HAS_SLOTS: u32 = 1 << 31;

/// The slot where the search for a key begins.
#[inline]
pub(super) fn slot_of(hash: u64, slots: usize) -> usize {
    (((hash & 0xffff_ffff) * slots as u64) >> 32) as usize
}

/// Eight bits of the hash that do not say which slot.
#[inline]
pub(super) fn tag_of(hash: u64) -> u8 {
    (hash >> 32) as u8
}

/// How much of restarts and slots, and of an interval, is asked for before it is read: what a
/// page of entries of a hundred bytes has, and a few cache lines more.
const SEARCH_START_MAX: usize = 384;
const INTERVAL_PREFETCH_MAX: usize = 512;
/// How far ahead of itself a walk asks for memory.
const WALK_AHEAD_BYTES: usize = 512;
const NO_SUCH_RESTART: Reason = "a slot names a restart that does not exist";

/// The raw bytes of one page. Cheap to clone: the bytes are shared.
#[derive(Clone, Debug)]
pub(super) struct Page {
    bytes: Bytes,
    entries_bytes: usize,
    restarts: usize,
    slots: usize,
}

/// Where the parts of an entry are in its page.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageEntry {
    /// How many bytes of the previous key this key begins with.
    pub(super) shared: usize,
    /// Where the rest of the key begins.
    pub(super) suffix_start: usize,
    /// Where the rest of the key ends and the value begins.
    pub(super) value_start: usize,
    /// Where the value ends and the next entry begins.
    pub(super) end: usize,
    pub(super) revision: Revision,
    pub(super) kind: EntryKind,
    /// Whether the value is a pointer into a blob file, and its head.
    pub(super) is_pointer: bool,
}

/// The byte of an entry whose value is a pointer into a blob file; other kinds are those of
/// [`EntryKind`].
pub(super) const POINTER: u8 = 3;

impl PageEntry {
    /// An entry that is nowhere, for cursors that were not positioned yet.
    pub(super) const NOWHERE: PageEntry = PageEntry {
        shared: 0,
        suffix_start: 0,
        value_start: 0,
        end: 0,
        revision: 0,
        kind: EntryKind::Delete,
        is_pointer: false,
    };

    /// The length of the key.
    #[inline]
    pub(super) fn key_len(&self) -> usize {
        self.shared + (self.value_start - self.suffix_start)
    }
}

static NOTHING: Page = Page::EMPTY;

/// Where the parts of a page lie in memory that a read needs first.
#[derive(Debug, Default)]
pub(super) struct PageHints {
    /// The page itself.
    head: Hint,
    search_start: Hint,
    first_entries: Hint,
}

impl PageHints {
    /// Asks for the memory in which a search in the page begins.
    #[inline]
    pub(super) fn prefetch_search(&self) {
        self.head.prefetch();
        self.search_start.prefetch();
    }

    /// Asks for the memory in which a walk through the page begins.
    #[inline]
    pub(super) fn prefetch_walk(&self) {
        self.head.prefetch();
        self.first_entries.prefetch();
    }
}

impl Piece for Page {
    type Hints = PageHints;

    fn nothing() -> &'static Page {
        &NOTHING
    }

    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn hint(shelved: &Shelved<Page>, hints: &PageHints) {
        hints.head.set(std::slice::from_ref(shelved));
        hints.search_start.set(shelved.search_start());
        hints.first_entries.set(shelved.first_entries());
    }
}

const _: () = assert!(size_of::<Shelved<Page>>() == 64);

impl Page {
    /// No page, in which nothing is found.
    pub(super) const EMPTY: Page = Page {
        bytes: Bytes::new(),
        entries_bytes: 0,
        restarts: 0,
        slots: 0,
    };

    /// Takes the bytes of a page, checking that its parts fit into it.
    pub(super) fn parse(bytes: Bytes) -> Result<Page, Reason> {
        let parts = || {
            let (rest, restarts) = bytes.split_last_chunk::<4>()?;
            let (rest, index_bytes) = rest.split_last_chunk::<4>()?;
            let restarts = u32::from_le_bytes(*restarts);
            let index_bytes = u32::from_le_bytes(*index_bytes) as usize;
            let slots = match restarts & HAS_SLOTS {
                0 => 0,
                _ => index_bytes / 2,
            };
            let restarts = (restarts & !HAS_SLOTS) as usize;
            let tail_bytes = restarts.checked_mul(4)?.checked_add(index_bytes)?;
            Some((rest.len().checked_sub(tail_bytes)?, restarts, slots))
        };
        let (entries_bytes, restarts, slots) = parts().ok_or("the page's parts do not fit")?;
        if restarts == 0 || entries_bytes == 0 {
            return Err("the page has no entries");
        }
        Ok(Page {
            bytes,
            entries_bytes,
            restarts,
            slots,
        })
    }

    /// The raw bytes.
    #[inline]
    pub(super) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// How many intervals there are.
    #[inline]
    pub(super) fn restarts(&self) -> usize {
        self.restarts
    }

    /// Whether the page has a hash index.
    #[cfg(test)]
    pub(super) fn has_slots(&self) -> bool {
        self.slots > 0
    }

    /// The slots of the hash index: interval, tag.
    #[inline]
    fn slots(&self) -> &[[u8; 2]] {
        let start = self.entries_bytes + 4 * self.restarts;
        let bytes = self.bytes.get(start..start + 2 * self.slots);
        bytes.unwrap_or_default().as_chunks().0
    }

    /// Checks that each slot says something, also those of which no key of the page is: the search
    /// for a key that is not in the page can come to any.
    pub(super) fn check_slots(&self) -> Result<(), Reason> {
        let is_sound = |[interval, _]: &[u8; 2]| {
            *interval == SLOT_EMPTY || usize::from(*interval) < self.restarts
        };
        if self.slots().iter().all(is_sound) {
            Ok(())
        } else {
            Err(NO_SUCH_RESTART)
        }
    }

    /// Where interval `restart` begins.
    #[inline]
    pub(super) fn interval_start(&self, restart: usize) -> Result<usize, Reason> {
        if restart >= self.restarts {
            return Err(NO_SUCH_RESTART);
        }
        let at = self.entries_bytes + 4 * restart;
        let offset = self
            .bytes
            .get(at..)
            .and_then(|bytes| bytes.first_chunk::<4>());
        let offset = offset.map_or(usize::MAX, |offset| u32::from_le_bytes(*offset) as usize);
        if offset < self.entries_bytes {
            Ok(offset)
        } else {
            Err("a restart is outside the page")
        }
    }

    /// Where interval `restart` ends.
    #[inline]
    pub(super) fn interval_end(&self, restart: usize) -> Result<usize, Reason> {
        if restart + 1 < self.restarts {
            self.interval_start(restart + 1)
        } else {
            Ok(self.entries_bytes)
        }
    }

    /// The entry at `offset`.
    #[inline]
    pub(super) fn entry_at(&self, offset: usize) -> Result<PageEntry, Reason> {
        let parse = || {
            let rest = self.bytes.get(offset..self.entries_bytes)?;
            // Nearly always each of the three lengths is a byte.
            let (shared, unshared, value_len, mut reader) = match rest.split_first_chunk::<3>() {
                Some(([shared, unshared, value_len], rest))
                    if (shared | unshared | value_len) < 0x80 =>
                {
                    let lengths = [shared, unshared, value_len];
                    let [shared, unshared, value_len] = lengths.map(|len| usize::from(*len));
                    (shared, unshared, value_len, Reader::new(rest))
                }
                _ => {
                    let mut reader = Reader::new(rest);
                    let shared = reader.varint_u32()? as usize;
                    (
                        shared,
                        reader.varint_usize()?,
                        reader.varint_usize()?,
                        reader,
                    )
                }
            };
            let (kind, is_pointer) = match reader.u8()? {
                POINTER => (EntryKind::Put, true),
                byte => (EntryKind::from_byte(byte)?, false),
            };
            let revision = reader.varint()?;
            let suffix_start = self.entries_bytes - reader.remaining();
            let value_start = suffix_start.checked_add(unshared)?;
            let end = value_start.checked_add(value_len)?;
            (end <= self.entries_bytes).then_some(PageEntry {
                shared,
                suffix_start,
                value_start,
                end,
                revision,
                kind,
                is_pointer,
            })
        };
        parse().ok_or("an entry is malformed")
    }

    /// The bytes of an entry's key that it does not share with the key before it.
    #[inline]
    pub(super) fn suffix(&self, entry: &PageEntry) -> &[u8] {
        self.bytes
            .get(entry.suffix_start..entry.value_start)
            .unwrap_or_default()
    }

    /// The value of an entry.
    #[inline]
    pub(super) fn value(&self, entry: &PageEntry) -> &[u8] {
        self.bytes
            .get(entry.value_start..entry.end)
            .unwrap_or_default()
    }

    /// Sets `value` to a part of the value of an entry. A large one shares the page's memory.
    ///
    /// # Panics
    /// When `range` is not inside the value.
    #[inline]
    pub(super) fn slice_into(&self, entry: &PageEntry, range: Range<usize>, value: &mut Value) {
        let part = &self.value(entry)[range.clone()];
        if part.len() <= Value::INLINE_MAX {
            value.assign(part);
        } else {
            let start = entry.value_start + range.start;
            *value = Value::slice_of(&self.bytes, start..start + part.len());
        }
    }

    /// The entries with which a walk through the page begins.
    pub(super) fn first_entries(&self) -> &[u8] {
        let len = self.entries_bytes.min(WALK_AHEAD_BYTES);
        self.bytes.get(..len).unwrap_or_default()
    }

    /// Asks for the memory that a walk comes to soon after `entry`.
    #[inline]
    pub(super) fn prefetch_behind(&self, entry: &PageEntry) {
        let from = entry.end + WALK_AHEAD_BYTES;
        let entry_bytes = entry.end - entry.suffix_start;
        let to = (from + entry_bytes.min(WALK_AHEAD_BYTES)).min(self.entries_bytes);
        if let Some(soon) = self.bytes.get(from..to) {
            prefetch(soon);
        }
    }

    /// Restarts and slots, in which [`Page::find`] begins; nothing when they are too long to be
    /// fetched whole, as in a page of many small entries.
    pub(super) fn search_start(&self) -> &[u8] {
        let tail = self.bytes.get(self.entries_bytes..).unwrap_or_default();
        if tail.len() <= SEARCH_START_MAX {
            tail
        } else {
            &[]
        }
    }

    /// The newest entry of `key` whose revision is at most `at`, if it is in this page.
    #[inline]
    pub(super) fn find(
        &self,
        key: &[u8],
        hash: u64,
        at: Revision,
    ) -> Result<Option<PageEntry>, Reason> {
        if self.slots == 0 {
            return self.scan(self.interval_of(key, at, 0)?, key, at);
        }
        for interval in self.slots_with_the_tag_of(hash) {
            if let Some(found) = self.scan(interval, key, at)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The intervals in which a key with this hash may begin.
    #[inline]
    pub(super) fn slots_with_the_tag_of(&self, hash: u64) -> impl Iterator<Item = usize> {
        let (slots, tag) = (self.slots(), tag_of(hash));
        let (before, from) = slots.split_at(slot_of(hash, slots.len()));
        from.iter()
            .chain(before)
            .take_while(|[interval, _]| *interval != SLOT_EMPTY)
            .filter(move |[_, slot_tag]| *slot_tag == tag)
            .map(|[interval, _]| usize::from(*interval))
    }

    /// The last interval, from `first` on, that begins before (`key`, `at`) in the order of
    /// entries; `first` when none does. If the page has such an entry at all, from `first` on, it
    /// is in that interval or is the very first of the next.
    pub(super) fn interval_of(
        &self,
        key: &[u8],
        at: Revision,
        first: usize,
    ) -> Result<usize, Reason> {
        let (mut low, mut high) = (first, self.restarts);
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = self.entry_at(self.interval_start(middle)?)?;
            if entry.shared != 0 {
                return Err("the key at a restart is not whole");
            }
            let before = match self.suffix(&entry).cmp(key) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Equal => entry.revision > at,
                std::cmp::Ordering::Greater => false,
            };
            if before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low.saturating_sub(1).max(first))
    }

    /// Walks from interval `restart` to the first entry that is not before (`key`, `at`).
    ///
    /// No key is put together. It is enough to know `matched`, how many bytes the entry just
    /// passed has in common with `key`: an entry that shares more than that with the one passed
    /// differs from `key` at the same byte and is still smaller; one that shares less is larger
    /// at a byte where the one passed was equal, and so beyond `key`; only one that shares
    /// exactly that much needs its bytes compared.
    fn scan(
        &self,
        mut restart: usize,
        key: &[u8],
        at: Revision,
    ) -> Result<Option<PageEntry>, Reason> {
        loop {
            let mut offset = self.interval_start(restart)?;
            let end = self.interval_end(restart)?;
            if let Some(interval) = self
                .bytes
                .get(offset..end.min(offset + INTERVAL_PREFETCH_MAX))
            {
                prefetch(interval);
            }
            let mut matched = 0;
            while offset < end {
                let entry = self.entry_at(offset)?;
                offset = entry.end;
                if entry.shared > matched {
                    continue;
                }
                if entry.shared < matched {
                    return Ok(None);
                }
                let suffix = self.suffix(&entry);
                let rest = &key[matched..];
                let common = common_prefix(suffix, rest);
                match (suffix.get(common), rest.get(common)) {
                    (None, None) if entry.revision <= at => return Ok(Some(entry)),
                    (Some(_), None) => return Ok(None),
                    (Some(byte), Some(wanted)) if byte > wanted => return Ok(None),
                    _ => matched += common,
                }
            }
            restart += 1;
            if restart >= self.restarts {
                return Ok(None);
            }
            // The versions of the key may go on for many intervals: leap rather than walk.
            restart = self.interval_of(key, at, restart)?;
        }
    }
}

/// How many bytes `a` and `b` have in common at their start.
#[inline]
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    let mut common = 0;
    for (a, b) in words {
        let difference = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if difference != 0 {
            return common + difference.trailing_zeros() as usize / 8;
        }
        common += 8;
    }
    common
        + a[common..]
            .iter()
            .zip(&b[common..])
            .take_while(|(a, b)| a == b)
            .count()
}
