//! The page index: which page may hold an entry. One record per page, in memory while the table is open.
//!
//! ```text
//! section:  page count, then per page: last key (length, bytes), last revision,
//!           stored length, raw length                                        (all varints)
//! memory:   keys     | last keys of all pages, one after the other |
//!           pages    | where the key ends, last revision, offset, raw length |
//!           prefixes | of each last key the eight bytes behind what all of them begin with |
//! ```
//!
//! A search bisects the prefixes, which are numbers that lie side by side: a few cache lines, and
//! no jump that the processor has to guess. Keys themselves are compared only among the pages
//! whose prefix is that of the wanted key, seldom more than one.
//!
//! Invariant: prefixes stand in the order of the last keys. A smaller prefix is a smaller key; of
//! equal ones nothing is known. (A key that ends within its prefix is filled up with zeros, and
//! so is equal to one that has zeros there.)
//!
//! The pages stand one after the other from the start of the file, so their offsets are sums and
//! need not be stored. The last key comes with its revision: however many pages the versions of
//! one key fill, a search lands on the one page that holds the wanted version, if any does.

use crate::codec::{Reader, prefix_of, put_bytes, put_varint};
use crate::types::Revision;

use super::page::common_prefix;
use crate::frame::{self, Reason};

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageLocation {
    pub(super) offset: u64,
    /// Bytes on disk, frame included.
    pub(super) stored_bytes: usize,
    /// Bytes of the page itself.
    pub(super) raw_bytes: usize,
}

#[derive(Debug)]
struct PageRecord {
    key_end: u32,
    raw_bytes: u32,
    last_revision: Revision,
    /// Where the page ends, frame included; the next one begins here.
    end: u64,
}

/// The last entry, place and length of every page.
#[derive(Debug)]
pub(super) struct Index {
    keys: Box<[u8]>,
    pages: Box<[PageRecord]>,
    prefixes: Box<[u64]>,
    /// How many bytes all last keys have in common at their start.
    shared: usize,
}

impl Index {
    /// Reads the section; the pages it describes must fill exactly `pages_bytes`.
    pub(super) fn decode(section: &[u8], pages_bytes: u64) -> Result<Index, Reason> {
        let mut reader = Reader::new(section);
        let count = reader.varint_usize().ok_or("the index ends early")?;
        // A record has at least four bytes: a false count cannot make this allocate much.
        if count > reader.remaining() / 4 {
            return Err("the index has fewer pages than it states");
        }
        let mut keys = Vec::with_capacity(section.len());
        let mut pages = Vec::with_capacity(count);
        let mut end = 0u64;
        for _ in 0..count {
            let record = || {
                let key = reader.bytes()?;
                let last_revision = reader.varint()?;
                let stored_bytes = reader.varint_u32()?;
                Some((key, last_revision, stored_bytes, reader.varint_u32()?))
            };
            let (key, last_revision, stored_bytes, raw_bytes) =
                { record }().ok_or("the index ends early")?;
            if !frame::justifies(stored_bytes.into(), raw_bytes.into()) {
                return Err("a page in the index has an impossible length");
            }
            keys.extend_from_slice(key);
            end = end.saturating_add(stored_bytes.into());
            let key_end = u32::try_from(keys.len()).map_err(|_| "the index is too large")?;
            pages.push(PageRecord {
                key_end,
                raw_bytes,
                last_revision,
                end,
            });
        }
        if !reader.is_empty() {
            return Err("the index has bytes after its last page");
        }
        if end != pages_bytes {
            return Err("the pages in the index do not fill their part of the file");
        }
        keys.shrink_to_fit();
        let mut index = Index {
            keys: keys.into_boxed_slice(),
            pages: pages.into_boxed_slice(),
            prefixes: Box::default(),
            shared: 0,
        };
        let last_keys = (0..index.len()).map(|page| index.last_key(page));
        // Of all of them, not only of the first and the last one: their order is not checked yet.
        let first = last_keys.clone().next().unwrap_or_default();
        let common = last_keys.clone().map(|key| common_prefix(first, key));
        let shared = common.min().unwrap_or_default();
        index.prefixes = last_keys.map(|key| prefix_of(&key[shared..])).collect();
        index.shared = shared;
        Ok(index)
    }

    /// How many pages there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// The last key of a page.
    #[inline]
    pub(super) fn last_key(&self, page: usize) -> &[u8] {
        let start = if page == 0 {
            0
        } else {
            self.pages[page - 1].key_end as usize
        };
        &self.keys[start..self.pages[page].key_end as usize]
    }

    /// The revision of the last entry of a page.
    #[inline]
    pub(super) fn last_revision(&self, page: usize) -> Revision {
        self.pages[page].last_revision
    }

    /// Where a page is.
    #[inline]
    pub(super) fn location(&self, page: usize) -> PageLocation {
        let offset = if page == 0 {
            0
        } else {
            self.pages[page - 1].end
        };
        let record = &self.pages[page];
        PageLocation {
            offset,
            // Each was read as a u32.
            stored_bytes: (record.end - offset) as usize,
            raw_bytes: record.raw_bytes as usize,
        }
    }

    /// The first page whose last entry is not before (`key`, `at`): the only one that can hold
    /// the newest entry of `key` with a revision of at most `at`, and where a scan from there
    /// begins. `None` when every entry is before.
    #[inline]
    pub(super) fn find(&self, key: &[u8], at: Revision) -> Option<usize> {
        let common = self.keys.get(..self.shared).unwrap_or_default();
        let head = key.get(..self.shared).unwrap_or(key);
        match head.cmp(common) {
            std::cmp::Ordering::Less => return (!self.pages.is_empty()).then_some(0),
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Greater => return None,
        }
        let prefix = prefix_of(&key[self.shared..]);
        let mut page = self.prefixes.partition_point(|it| *it < prefix);
        if self.prefixes.get(page) == Some(&prefix) {
            page = self.find_among_equals(page, prefix, key, at);
        }
        (page < self.pages.len()).then_some(page)
    }

    /// The first page from `first` on whose last entry is not before (`key`, `at`). The key has
    /// the prefix of that page, and no page before it has.
    fn find_among_equals(&self, first: usize, prefix: u64, key: &[u8], at: Revision) -> usize {
        let (mut low, mut high) = (first, self.pages.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let before = self.prefixes[middle] == prefix
                && match self.last_key(middle).cmp(key) {
                    std::cmp::Ordering::Less => true,
                    std::cmp::Ordering::Equal => self.pages[middle].last_revision > at,
                    std::cmp::Ordering::Greater => false,
                };
            if before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Calls `visit` about every `step_bytes` of the pages, and at their end, with the last key so
    /// far and how many bytes lie between it and the one before.
    pub(super) fn sample(&self, step_bytes: u64, visit: &mut dyn FnMut(&[u8], u64)) {
        let mut begin = 0;
        for (number, page) in self.pages.iter().enumerate() {
            let bytes = page.end - begin;
            if bytes >= step_bytes || (number + 1 == self.pages.len() && bytes > 0) {
                visit(self.last_key(number), bytes);
                begin = page.end;
            }
        }
    }

    /// Bytes held in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.keys.len() + size_of_val(&*self.pages) + size_of_val(&*self.prefixes)
    }
}

/// Writes the section while pages are written.
#[derive(Debug, Default)]
pub(super) struct IndexBuilder {
    records: Vec<u8>,
    pages: u64,
}

impl IndexBuilder {
    /// Adds the next page.
    pub(super) fn add(
        &mut self,
        last_key: &[u8],
        last_revision: Revision,
        stored_bytes: usize,
        raw_bytes: usize,
    ) {
        put_bytes(&mut self.records, last_key);
        put_varint(&mut self.records, last_revision);
        put_varint(&mut self.records, stored_bytes as u64);
        put_varint(&mut self.records, raw_bytes as u64);
        self.pages += 1;
    }

    /// How many pages were added.
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    /// Bytes the section has so far.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// The section.
    pub(super) fn finish(&self) -> Vec<u8> {
        let mut section = Vec::with_capacity(self.records.len() + 5);
        put_varint(&mut section, self.pages);
        section.extend_from_slice(&self.records);
        section
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section() -> Vec<u8> {
        let mut builder = IndexBuilder::default();
        builder.add(b"b", 10, 100, 200);
        builder.add(b"hot", 50, 110, 220);
        builder.add(b"hot", 20, 120, 240);
        builder.add(b"m", 1, 130, 260);
        builder.finish()
    }

    #[test]
    fn a_search_lands_on_the_page_of_the_wanted_version() {
        let index = Index::decode(&section(), 460).unwrap();
        for (key, at, page) in [
            (&b""[..], 0, Some(0)),
            (b"a", 9, Some(0)),
            (b"b", 10, Some(0)),
            (b"b", 9, Some(1)),
            (b"hot", u64::MAX, Some(1)),
            (b"hot", 50, Some(1)),
            (b"hot", 49, Some(2)),
            (b"hot", 20, Some(2)),
            (b"hot", 19, Some(3)),
            (b"m", 1, Some(3)),
            (b"m", 0, None),
            (b"n", 9, None),
        ] {
            assert_eq!(index.find(key, at), page, "{key:?} at {at}");
        }
        let location = PageLocation {
            offset: 210,
            stored_bytes: 120,
            raw_bytes: 240,
        };
        assert_eq!(index.location(2), location);
        assert_eq!(
            (index.last_key(2), index.last_revision(2)),
            (&b"hot"[..], 20)
        );
        assert_eq!(index.len(), 4);
    }

    #[test]
    fn a_search_by_prefixes_finds_what_a_search_by_keys_does() {
        for seed in crate::seeds(11..12) {
            let mut random = fastrand::Rng::with_seed(seed);
            for round in 0..300 {
                // Few letters, zeros among them, and beginnings that all, some or none have: keys
                // that are equal in their prefixes, that end within them, and that are one's start.
                let letters: &[u8] = if round % 2 == 0 { b"\0a" } else { b"\0ab\xff" };
                let start = [&b""[..], b"a", b"tenant/0000001/"][round % 3];
                let key = |random: &mut fastrand::Rng| {
                    let mut key = match random.u8(..8) {
                        0 => start[..random.usize(..=start.len())].to_vec(),
                        _ => start.to_vec(),
                    };
                    let more = random.usize(..12);
                    key.extend((0..more).map(|_| letters[random.usize(..letters.len())]));
                    key
                };
                let mut entries: Vec<_> = (0..random.usize(1..30))
                    .map(|_| (key(&mut random), random.u64(..4)))
                    .collect();
                if round % 5 > 0 {
                    entries.retain(|(key, _)| key.starts_with(start));
                }
                entries.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
                entries.dedup();
                let mut builder = IndexBuilder::default();
                for (key, revision) in &entries {
                    builder.add(key, *revision, 10, 10);
                }
                let index = Index::decode(&builder.finish(), 10 * entries.len() as u64).unwrap();
                let probes = (0..100).map(|_| (key(&mut random), random.u64(..4)));
                let probes: Vec<_> = probes.chain(entries.iter().cloned()).collect();
                for (key, at) in probes {
                    let is_before = |it: &(Vec<u8>, Revision)| (&it.0, at) < (&key, it.1);
                    let first = entries.iter().position(|it| !is_before(it));
                    assert_eq!(
                        index.find(&key, at),
                        first,
                        "{key:?} at {at} of {entries:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn samples_cover_every_byte_once() {
        let index = Index::decode(&section(), 460).unwrap();
        let samples = |step| {
            let mut samples = Vec::new();
            index.sample(step, &mut |key, bytes| samples.push((key.to_vec(), bytes)));
            samples
        };
        let keys = |keys: [&[u8]; 2], bytes: [u64; 2]| {
            let keys = keys.into_iter().map(<[u8]>::to_vec);
            keys.zip(bytes).collect::<Vec<_>>()
        };
        assert_eq!(samples(1).len(), 4);
        assert_eq!(samples(150), keys([b"hot", b"m"], [210, 250]));
        assert_eq!(samples(300), keys([b"hot", b"m"], [330, 130]));
        assert_eq!(samples(1 << 30), [(b"m".to_vec(), 460)]);
    }

    #[test]
    fn a_false_section_is_refused() {
        let section = section();
        assert!(
            Index::decode(&section, 461).is_err(),
            "pages that end elsewhere"
        );
        for len in 0..section.len() {
            assert!(Index::decode(&section[..len], 460).is_err(), "cut at {len}");
        }
        assert!(Index::decode(&[&section[..], &[0]].concat(), 460).is_err());
        let mut huge = Vec::new();
        put_varint(&mut huge, u64::MAX);
        assert!(Index::decode(&huge, 0).is_err());
        let mut impossible = IndexBuilder::default();
        impossible.add(b"k", 1, 6, 1 << 30);
        assert!(Index::decode(&impossible.finish(), 6).is_err());
    }

    #[test]
    fn an_empty_index_finds_nothing() {
        let index = Index::decode(&IndexBuilder::default().finish(), 0).unwrap();
        assert_eq!(index.find(b"", 0), None);
    }
}
