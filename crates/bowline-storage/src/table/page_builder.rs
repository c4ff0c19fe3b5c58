//! Puts entries into the bytes of a page; [`super::page`] shows the layout.

use super::filter::key_hash;
use super::page::{HAS_SLOTS, SLOT_EMPTY, SLOT_INTERVALS_MAX, common_prefix, slot_of, tag_of};
use crate::codec::{put_varint, varint_len};
#[cfg(any(test, fuzzing))]
use crate::types::EntryKind;
use crate::types::Revision;

/// An interval also ends when it has this many bytes. A search walks half an interval, and with
/// larger entries each step of the walk waits for another cache line.
const INTERVAL_BYTES: usize = 256;

/// Collects the entries of one page after the other, in one buffer.
#[derive(Debug)]
pub(super) struct PageBuilder {
    restart_interval: usize,
    bytes: Vec<u8>,
    /// Offsets of the entries whose keys are whole.
    restarts: Vec<u32>,
    /// Entries since the last restart.
    since_restart: usize,
    /// The hash of every distinct key and the interval it begins in.
    keys: Vec<(u64, usize)>,
    last_key: Vec<u8>,
}

impl PageBuilder {
    pub(super) fn new(restart_interval: usize) -> PageBuilder {
        PageBuilder {
            restart_interval: restart_interval.max(1),
            bytes: Vec::new(),
            restarts: Vec::new(),
            since_restart: 0,
            keys: Vec::new(),
            last_key: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.restarts.is_empty()
    }

    /// The key of the entry added last to this page.
    pub(super) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// How long the page would be if it ended here.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + 4 * self.restarts.len() + 2 * slot_count(self.keys.len()) + 8
    }

    /// At most how much longer an entry makes the page.
    pub(super) fn growth(key: &[u8], revision: Revision, value: &[u8]) -> usize {
        // One restart, up to two slots, and the entry as if nothing of the key were shared.
        let lengths = varint_len(key.len() as u64) + varint_len(value.len() as u64);
        4 + 4 + 1 + lengths + 1 + varint_len(revision) + key.len() + value.len()
    }

    /// Adds an entry, which the caller has checked to be larger than the one before.
    #[cfg(any(test, fuzzing))]
    pub(super) fn add(&mut self, key: &[u8], revision: Revision, kind: EntryKind, value: &[u8]) {
        self.add_stored(key, revision, kind as u8, value);
    }

    /// The same with the byte for the kind of the entry.
    pub(super) fn add_stored(&mut self, key: &[u8], revision: Revision, kind: u8, value: &[u8]) {
        let new_key = self.is_empty() || self.last_key != key;
        let interval_bytes = self.bytes.len() - self.restarts.last().map_or(0, |at| *at as usize);
        let full = self.since_restart == self.restart_interval || interval_bytes >= INTERVAL_BYTES;
        let shared = if self.is_empty() || full {
            // The writer keeps pages far below 4 GiB.
            self.restarts.push(self.bytes.len() as u32);
            self.since_restart = 0;
            0
        } else {
            common_prefix(&self.last_key, key)
        };
        if new_key {
            self.keys.push((key_hash(key), self.restarts.len() - 1));
        }
        put_varint(&mut self.bytes, shared as u64);
        put_varint(&mut self.bytes, (key.len() - shared) as u64);
        put_varint(&mut self.bytes, value.len() as u64);
        self.bytes.push(kind);
        put_varint(&mut self.bytes, revision);
        self.bytes.extend_from_slice(&key[shared..]);
        self.bytes.extend_from_slice(value);
        self.since_restart += 1;
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
    }

    /// Completes the page and returns its bytes, which [`PageBuilder::clear`] discards.
    pub(super) fn finish(&mut self) -> &[u8] {
        for restart in &self.restarts {
            self.bytes.extend_from_slice(&restart.to_le_bytes());
        }
        let slot_bytes = self.append_slots();
        let has_slots = if slot_bytes > 0 { HAS_SLOTS } else { 0 };
        let restarts = self.restarts.len() as u32 | has_slots;
        self.bytes.extend_from_slice(&slot_bytes.to_le_bytes());
        self.bytes.extend_from_slice(&restarts.to_le_bytes());
        &self.bytes
    }

    /// Appends the hash index, if the page can have one; returns how many bytes it has.
    fn append_slots(&mut self) -> u32 {
        if self.restarts.len() > SLOT_INTERVALS_MAX {
            return 0;
        }
        let count = slot_count(self.keys.len());
        let start = self.bytes.len();
        self.bytes.resize(start + 2 * count, SLOT_EMPTY);
        let slots = self.bytes[start..].as_chunks_mut::<2>().0;
        for &(hash, interval) in &self.keys {
            // At most 252.
            let slot = [interval as u8, tag_of(hash)];
            let mut at = slot_of(hash, count);
            // There are more slots than keys, so one is empty.
            while slots[at][0] != SLOT_EMPTY && slots[at] != slot {
                at = (at + 1) % count;
            }
            slots[at] = slot;
        }
        2 * count as u32
    }

    /// Starts the next page.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.restarts.clear();
        self.keys.clear();
        self.last_key.clear();
        self.since_restart = 0;
    }
}

/// Five slots for every four keys, and one that is always empty.
fn slot_count(keys: usize) -> usize {
    keys + keys / 4 + 1
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::page::Page;
    use super::*;

    fn page(builder: &mut PageBuilder) -> Page {
        let len = builder.len();
        let bytes = Bytes::copy_from_slice(builder.finish());
        assert!(bytes.len() <= len);
        builder.clear();
        Page::parse(bytes).unwrap()
    }

    fn revision_found(page: &Page, key: &[u8], at: Revision) -> Option<Revision> {
        page.find(key, key_hash(key), at)
            .unwrap()
            .map(|entry| entry.revision)
    }

    #[test]
    fn a_page_finds_what_was_added_and_nothing_else() {
        for interval in [1, 2, 16, 1000] {
            let mut builder = PageBuilder::new(interval);
            // The second round proves that nothing of the first page is left.
            for round in ["a", "bb"] {
                let keys: Vec<_> = (0..600)
                    .step_by(2)
                    .map(|i| format!("{round}{i:03}"))
                    .collect();
                for key in &keys {
                    for revision in [30, 20, 10] {
                        builder.add(key.as_bytes(), revision, EntryKind::Put, key.as_bytes());
                    }
                }
                let page = page(&mut builder);
                assert_eq!(page.has_slots(), interval > 2);
                for key in &keys {
                    let key = key.as_bytes();
                    let entry = page.find(key, key_hash(key), 25).unwrap().unwrap();
                    assert_eq!((entry.revision, page.value(&entry)), (20, key));
                    for (at, found) in [(9, None), (10, Some(10)), (99, Some(30))] {
                        assert_eq!(revision_found(&page, key, at), found);
                    }
                }
                for i in (1..600).step_by(2) {
                    assert_eq!(
                        revision_found(&page, format!("{round}{i:03}").as_bytes(), 99),
                        None
                    );
                }
                for absent in ["", "a", "b", "bb", "c", "a0000", "bb5980"] {
                    assert_eq!(revision_found(&page, absent.as_bytes(), 99), None);
                }
            }
        }
    }

    #[test]
    fn a_long_chain_of_versions_is_searched_by_leaps() {
        let mut builder = PageBuilder::new(4);
        builder.add(b"hos", 5, EntryKind::Put, b"");
        for revision in (1..=900).rev() {
            builder.add(b"hot", revision * 2, EntryKind::Put, b"");
        }
        builder.add(b"hott", 5, EntryKind::Put, b"");
        let page = page(&mut builder);
        assert!(page.has_slots());
        assert_eq!(revision_found(&page, b"hot", 1), None);
        for at in 2..1810 {
            assert_eq!(
                revision_found(&page, b"hot", at),
                Some(at.min(1800) / 2 * 2)
            );
        }
        assert_eq!(revision_found(&page, b"hott", 9), Some(5));
        assert_eq!(revision_found(&page, b"hos", 9), Some(5));
    }

    /// How many intervals a search looks at is what a point read costs.
    #[test]
    fn a_search_looks_at_one_interval_and_for_what_is_absent_at_none() {
        let mut builder = PageBuilder::new(16);
        let key =
            |number: u32| [&number.wrapping_mul(0x9e37_79b9).to_be_bytes()[..], b"key"].concat();
        let mut keys: Vec<_> = (0..65).map(key).collect();
        keys.sort();
        for key in &keys {
            builder.add(key, 1, EntryKind::Put, &[7; 100]);
        }
        let page = page(&mut builder);
        let looks = |key: &[u8]| page.slots_with_the_tag_of(key_hash(key)).count();
        assert_eq!(page.restarts(), 22);
        let present: usize = keys.iter().map(|key| looks(key)).sum();
        let absent: usize = (65..1065).map(|number| looks(&key(number))).sum();
        // One slot in 256 of those that are looked at has the tag of another key.
        assert!((65..75).contains(&present), "{present} for 65 keys");
        assert!(absent < 100, "{absent} for 1,000 absent keys");
    }

    #[test]
    fn a_page_of_format_1_is_searched_without_its_hash_index() {
        let mut builder = PageBuilder::new(4);
        let keys: Vec<_> = (0..50).map(|i| format!("key{i:03}")).collect();
        for key in &keys {
            builder.add(key.as_bytes(), 7, EntryKind::Put, b"value");
        }
        let mut bytes = builder.finish().to_vec();
        let restarts = bytes.len() - 1;
        bytes[restarts] &= 0x7f;
        let slots = bytes.len() - 8 - 2 * slot_count(50);
        // Buckets that lead astray, were they looked at.
        bytes[slots..slots + 2 * slot_count(50)].fill(0);
        let page = Page::parse(Bytes::from(bytes)).unwrap();
        assert!(!page.has_slots());
        for key in &keys {
            assert_eq!(revision_found(&page, key.as_bytes(), 9), Some(7));
            assert_eq!(revision_found(&page, format!("{key}x").as_bytes(), 9), None);
        }
    }

    #[test]
    fn no_bytes_make_a_page_panic() {
        let mut builder = PageBuilder::new(2);
        for i in 0..12u8 {
            builder.add(
                &[b'k', i / 3, i],
                u64::from(i) + 300,
                EntryKind::Put,
                &[i; 3],
            );
        }
        let good = builder.finish().to_vec();
        for at in 0..good.len() {
            for byte in [0, 1, 2, 0x7f, 0x80, 0xff, good[at] ^ 1, good[at] ^ 0x10] {
                let mut bad = good.clone();
                bad[at] = byte;
                let Ok(page) = Page::parse(Bytes::from(bad)) else {
                    continue;
                };
                for i in 0..12u8 {
                    let key = [b'k', i / 3, i];
                    // Any answer or error will do: the checksum has to notice, not the search.
                    let _ = page.find(&key, key_hash(&key), 400);
                    let _ = page.interval_of(&key, 400, 0);
                }
            }
        }
    }

    #[test]
    fn common_prefixes_are_measured_to_the_byte() {
        let a: Vec<u8> = (0..40).collect();
        for len in 0..40 {
            for difference in 0..len {
                let mut b = a[..len].to_vec();
                b[difference] ^= 0x80;
                assert_eq!(common_prefix(&a, &b), difference);
            }
            assert_eq!(common_prefix(&a, &a[..len]), len);
        }
    }
}
