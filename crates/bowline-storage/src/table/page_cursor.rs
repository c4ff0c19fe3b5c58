//! A position in one page that moves both ways.
//!
//! Going forward, the key is kept in one buffer, of which each entry replaces the end. Going
//! back, the entries of one interval are located once, into a small reused list; the key of the
//! entry before is then put together from the suffixes that still matter:
//!
//! ```text
//! entry   shared  suffix     key of entry 2: its own suffix "xy"
//!  0        0     "abcdef"                   bytes 1..3 from entry 1: "bb" … and so on down,
//!  1        1     "bbz"                      until entry 0 (a restart, whose key is whole)
//!  2        3     "xy"                       = "abb" + "xy"
//! ```

use std::cmp::Ordering;

use super::page::{Page, PageEntry, common_prefix};
use crate::frame::Reason;
use crate::types::Revision;

/// A position in one page.
#[derive(Debug)]
pub(super) struct PageCursor {
    page: Page,
    /// Where the entry begins.
    offset: usize,
    entry: PageEntry,
    key: Vec<u8>,
    /// Whether the entry has the key of the entry the cursor came from, in the last step forward.
    same_key: bool,
    /// The interval of the entry, and where that ends.
    interval: usize,
    interval_end: usize,
    /// The entries of the interval `located`, for going back.
    entries: Vec<(usize, PageEntry)>,
    located: Option<usize>,
}

impl PageCursor {
    /// A cursor that is nowhere, until [`PageCursor::enter`] and a seek.
    pub(super) fn new() -> PageCursor {
        PageCursor {
            page: Page::EMPTY,
            offset: 0,
            entry: PageEntry::NOWHERE,
            key: Vec::new(),
            same_key: false,
            interval: 0,
            interval_end: 0,
            entries: Vec::new(),
            located: None,
        }
    }

    /// Turns to another page. The next call must be a seek; until then the key is still that of
    /// the entry before.
    pub(super) fn enter(&mut self, page: Page) {
        self.page = page;
        self.located = None;
    }

    #[inline]
    pub(super) fn page(&self) -> &Page {
        &self.page
    }

    #[inline]
    pub(super) fn entry(&self) -> &PageEntry {
        &self.entry
    }

    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Where the entry is in the page: grows with every step forward.
    #[inline]
    pub(super) fn place(&self) -> (usize, usize) {
        (self.interval, self.offset)
    }

    /// Whether the last step forward (into this page, too) stayed on the same key.
    #[inline]
    pub(super) fn same_key(&self) -> bool {
        self.same_key
    }

    /// Whether the entry before may have the same key. `false` is certain.
    #[inline]
    pub(super) fn may_continue_key(&self) -> bool {
        self.entry.suffix_start == self.entry.value_start || self.entry.shared == 0
    }

    /// Goes to the first entry.
    pub(super) fn seek_first(&mut self) -> Result<(), Reason> {
        self.seek_interval(0)
    }

    /// Goes to the last entry.
    pub(super) fn seek_last(&mut self) -> Result<(), Reason> {
        self.seek_last_of(self.page.restarts() - 1)
    }

    /// Goes to the first entry that is not before (`key`, `at`); `false` when all are.
    ///
    /// Few keys are compared: `matched` is how many bytes the entry just passed has in common with
    /// `key`, and mostly decides. See [`Page::scan`].
    pub(super) fn seek(&mut self, key: &[u8], at: Revision) -> Result<bool, Reason> {
        self.seek_interval(self.page.interval_of(key, at, 0)?)?;
        let mut matched = 0;
        loop {
            let shared = self.entry.shared;
            let ordering = match shared.cmp(&matched) {
                Ordering::Greater => Ordering::Less,
                Ordering::Less => Ordering::Greater,
                Ordering::Equal => {
                    matched += common_prefix(&self.key[shared..], &key[shared..]);
                    self.key[matched..].cmp(&key[matched..])
                }
            };
            let before = match ordering {
                Ordering::Less => true,
                Ordering::Equal => self.entry.revision > at,
                Ordering::Greater => false,
            };
            if !before {
                return Ok(true);
            }
            let interval = self.interval;
            if !self.next()? {
                return Ok(false);
            }
            if self.interval != interval {
                // The key at a restart is whole.
                matched = 0;
            }
        }
    }

    /// Goes to the next entry; `false`, and no move, when there is none.
    #[inline]
    pub(super) fn next(&mut self) -> Result<bool, Reason> {
        if self.entry.end < self.interval_end {
            self.decode(self.entry.end)?;
        } else if self.interval + 1 < self.page.restarts() {
            self.seek_interval(self.interval + 1)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Goes to the entry before; `false`, and no move, when there is none.
    pub(super) fn prev(&mut self) -> Result<bool, Reason> {
        if self.offset == self.page.interval_start(self.interval)? {
            if self.interval == 0 {
                return Ok(false);
            }
            self.seek_last_of(self.interval - 1)?;
            return Ok(true);
        }
        self.locate(self.interval)?;
        let position = self
            .entries
            .partition_point(|(offset, _)| *offset < self.offset);
        let number = position
            .checked_sub(1)
            .ok_or("an interval begins after its entries")?;
        // What the entry shares with the one before it is the part of the key that stays.
        self.stand_on(number, self.entry.shared)?;
        Ok(true)
    }

    fn seek_interval(&mut self, interval: usize) -> Result<(), Reason> {
        self.interval_end = self.page.interval_end(interval)?;
        self.interval = interval;
        self.decode(self.page.interval_start(interval)?)?;
        if self.entry.shared == 0 {
            Ok(())
        } else {
            Err("the key at a restart is not whole")
        }
    }

    fn seek_last_of(&mut self, interval: usize) -> Result<(), Reason> {
        self.locate(interval)?;
        self.interval = interval;
        self.interval_end = self.page.interval_end(interval)?;
        self.stand_on(self.entries.len() - 1, 0)
    }

    /// Moves to the entry at `offset`, of which the key buffer holds the key before.
    #[inline]
    fn decode(&mut self, offset: usize) -> Result<(), Reason> {
        let entry = self.page.entry_at(offset)?;
        let suffix = self.page.suffix(&entry);
        let rest = self
            .key
            .get(entry.shared..)
            .ok_or("an entry shares more than there is")?;
        // Not at a restart, a key has exactly so much in common with the one before as it shares.
        self.same_key = match entry.shared {
            0 => rest == suffix,
            _ => rest.is_empty() && suffix.is_empty(),
        };
        self.key.truncate(entry.shared);
        self.key.extend_from_slice(suffix);
        self.page.prefetch_behind(&entry);
        self.entry = entry;
        self.offset = offset;
        Ok(())
    }

    /// Lists the entries of an interval, at least one.
    fn locate(&mut self, interval: usize) -> Result<(), Reason> {
        if self.located == Some(interval) {
            return Ok(());
        }
        self.located = None;
        self.entries.clear();
        let mut offset = self.page.interval_start(interval)?;
        let end = self.page.interval_end(interval)?;
        let mut key_len = 0;
        while offset < end {
            let entry = self.page.entry_at(offset)?;
            if entry.shared > key_len {
                return Err("an entry shares more than there is");
            }
            key_len = entry.key_len();
            self.entries.push((offset, entry));
            offset = entry.end;
        }
        if self.entries.is_empty() {
            return Err("an interval has no entries");
        }
        self.located = Some(interval);
        Ok(())
    }

    /// Moves to a located entry. The first `kept` bytes of the key buffer are those of its key.
    fn stand_on(&mut self, number: usize, kept: usize) -> Result<(), Reason> {
        let (offset, entry) = self.entries[number];
        // `locate` has made sure that no key is longer than the suffixes it is made of.
        let mut missing = entry.key_len();
        self.key.resize(missing, 0);
        for (_, entry) in self.entries[..=number].iter().rev() {
            if missing <= kept {
                break;
            }
            let from = entry.shared.max(kept);
            if from < missing {
                let suffix = self.page.suffix(entry);
                let part = suffix.get(from - entry.shared..missing - entry.shared);
                let part = part.ok_or("an entry shares more than there is")?;
                self.key[from..missing].copy_from_slice(part);
                missing = from;
            }
        }
        self.entry = entry;
        self.offset = offset;
        self.same_key = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::page_builder::PageBuilder;
    use super::*;
    use crate::types::EntryKind;

    type Seen = Vec<(Vec<u8>, Revision)>;

    fn forward(cursor: &mut PageCursor) -> Result<Seen, Reason> {
        let mut seen = Vec::new();
        cursor.seek_first()?;
        loop {
            seen.push((cursor.key().to_vec(), cursor.entry().revision));
            if !cursor.next()? {
                return Ok(seen);
            }
        }
    }

    fn backward(cursor: &mut PageCursor) -> Result<Seen, Reason> {
        let mut seen = Vec::new();
        cursor.seek_last()?;
        loop {
            seen.push((cursor.key().to_vec(), cursor.entry().revision));
            if !cursor.prev()? {
                seen.reverse();
                return Ok(seen);
            }
        }
    }

    fn page() -> (Vec<u8>, Seen) {
        let mut builder = PageBuilder::new(5);
        let mut written = Vec::new();
        for key in [
            "",
            "a",
            "ab",
            "abcdef",
            "abbz",
            "abbxy",
            "b",
            "ba",
            "c/long/name",
            "c/long/nest",
        ] {
            written.extend([(key.into(), 300), (key.into(), 7)]);
        }
        written.sort_by(|a: &(Vec<u8>, Revision), b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        for (key, revision) in &written {
            builder.add(key, *revision, EntryKind::Put, b"value");
        }
        (builder.finish().to_vec(), written)
    }

    #[test]
    fn both_directions_show_every_entry() {
        let (bytes, written) = page();
        let mut cursor = PageCursor::new();
        cursor.enter(Page::parse(Bytes::from(bytes)).unwrap());
        assert_eq!(forward(&mut cursor).unwrap(), written);
        assert_eq!(backward(&mut cursor).unwrap(), written);
        // Turning round anywhere: back over each entry after having come forward, and again.
        for (number, (key, revision)) in written.iter().enumerate() {
            assert!(cursor.seek(key, *revision).unwrap());
            assert_eq!(cursor.prev().unwrap(), number > 0);
            assert_eq!(cursor.next().unwrap(), number > 0 || written.len() > 1);
            let expected = &written[number.max(1)];
            assert_eq!(
                (cursor.key(), cursor.entry().revision),
                (&*expected.0, expected.1)
            );
        }
        assert!(!cursor.seek(b"d", 1).unwrap());
    }

    #[test]
    fn no_bytes_make_a_cursor_panic_or_run_for_ever() {
        let (good, _) = page();
        for at in 0..good.len() {
            for byte in [0, 1, 2, 5, 0x7f, 0x80, 0xff, good[at] ^ 1, good[at] ^ 0x10] {
                let mut bad = good.clone();
                bad[at] = byte;
                let Ok(page) = Page::parse(Bytes::from(bad)) else {
                    continue;
                };
                let mut cursor = PageCursor::new();
                cursor.enter(page);
                // Entries or an error: the checksum has to notice, not the cursor.
                let _ = forward(&mut cursor);
                let _ = backward(&mut cursor);
                let _ = cursor.seek(b"abby", 100).and_then(|_| cursor.prev());
            }
        }
    }
}
