//! A page: a small sorted array of entries, searched without being decoded.
//!
//! ```text
//! +---------+---------------+------------+--------------+---------------+
//! | entries | restarts      | buckets    | bucket count | restart count |
//! | …       | u32 each      | u8 each    | u32          | u32           |
//! +---------+---------------+------------+--------------+---------------+
//!
//! entry: shared, unshared, value length (varints), kind (u8), revision (varint),
//!        the key's last `unshared` bytes, value
//! ```
//!
//! `shared` is exactly how many bytes an entry's key has in common with the key before it. At a
//! *restart* (every so many entries or bytes) it is 0: the key is whole, and its offset is listed. The
//! entries from one restart to the next are an *interval*.
//!
//! A point read finds its interval in the hash index, if the page has one: the bucket of a key
//! holds the number of the interval in which the key begins. Otherwise, or when two keys of
//! different intervals fell into one bucket, the restarts are searched by bisection. Then the
//! interval is walked, comparing only the bytes that may still differ (see [`Page::find`]).
//!
//! The page's checksum has been verified before a `Page` exists. What is read here is checked all
//! the same, so that no bytes whatever make it panic.

use bytes::Bytes;

use super::frame::Reason;
use crate::codec::Reader;
use crate::types::{EntryKind, Revision};

/// A bucket whose keys begin in different intervals.
pub(super) const BUCKET_COLLISION: u8 = 254;
/// A bucket without a key.
pub(super) const BUCKET_EMPTY: u8 = 255;
/// More restarts than this cannot be told apart in a bucket: the page has no hash index.
pub(super) const BUCKET_RESTARTS_MAX: usize = 253;
const NO_SUCH_RESTART: Reason = "a bucket names a restart that does not exist";

/// The bucket of a key.
#[inline]
pub(super) fn bucket_of(hash: u64, buckets: usize) -> usize {
    (((hash & 0xffff_ffff) * buckets as u64) >> 32) as usize
}

/// The raw bytes of one page. Cheap to clone: the bytes are shared.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    bytes: Bytes,
    entries_bytes: usize,
    restarts: usize,
    buckets: usize,
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

impl Page {
    /// Takes the bytes of a page, checking that its parts fit into it.
    pub(super) fn parse(bytes: Bytes) -> Result<Page, Reason> {
        let parts = || {
            let (rest, restarts) = bytes.split_last_chunk::<4>()?;
            let (rest, buckets) = rest.split_last_chunk::<4>()?;
            let restarts = u32::from_le_bytes(*restarts) as usize;
            let buckets = u32::from_le_bytes(*buckets) as usize;
            let index_bytes = restarts.checked_mul(4)?.checked_add(buckets)?;
            Some((rest.len().checked_sub(index_bytes)?, restarts, buckets))
        };
        let (entries_bytes, restarts, buckets) = parts().ok_or("the page's parts do not fit")?;
        if restarts == 0 || entries_bytes == 0 {
            return Err("the page has no entries");
        }
        Ok(Page {
            bytes,
            entries_bytes,
            restarts,
            buckets,
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
    pub(super) fn has_buckets(&self) -> bool {
        self.buckets > 0
    }

    /// Checks that each bucket says something, also those in which no key of the page is: a key
    /// that is not in the page can fall into any.
    pub(super) fn check_buckets(&self) -> Result<(), Reason> {
        let start = self.entries_bytes + 4 * self.restarts;
        let buckets = self
            .bytes
            .get(start..)
            .and_then(|it| it.get(..self.buckets));
        let is_sound = |bucket: &u8| {
            matches!(*bucket, BUCKET_COLLISION | BUCKET_EMPTY)
                || usize::from(*bucket) < self.restarts
        };
        if buckets.is_some_and(|buckets| buckets.iter().all(is_sound)) {
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
            let mut reader = Reader::new(self.bytes.get(offset..self.entries_bytes)?);
            let shared = reader.varint_u32()? as usize;
            let unshared = reader.varint_usize()?;
            let value_len = reader.varint_usize()?;
            let (kind, is_pointer) = match reader.u8()? {
                POINTER => (EntryKind::Put, true),
                byte => (EntryKind::from_byte(byte)?, false),
            };
            let revision = reader.varint()?;
            let suffix_start = offset + reader.position();
            reader.take(unshared)?;
            let value_start = offset + reader.position();
            reader.take(value_len)?;
            let end = offset + reader.position();
            Some(PageEntry {
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

    /// The newest entry of `key` whose revision is at most `at`, if it is in this page.
    pub(super) fn find(
        &self,
        key: &[u8],
        hash: u64,
        at: Revision,
    ) -> Result<Option<PageEntry>, Reason> {
        let bucket = match self.buckets {
            0 => BUCKET_COLLISION,
            count => self.bytes[self.entries_bytes + 4 * self.restarts + bucket_of(hash, count)],
        };
        let restart = match bucket {
            BUCKET_EMPTY => return Ok(None),
            BUCKET_COLLISION => self.interval_of(key, at, 0)?,
            restart => usize::from(restart),
        };
        self.scan(restart, key, at)
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
