//! Reads a whole table and checks everything that can be checked.

use super::filter::key_hash;
use super::meta::TableMeta;
use super::page::Page;
use super::page_cursor::PageCursor;
use super::read_ahead::ReadAhead;
use super::reader::{Sections, Table, TableFile};
use crate::blob::BlobPointer;
use crate::counters::Counters;
use crate::error::Result;
use crate::frame::Reason;
use crate::types::{EntryKind, Revision};

/// The content of a verified table, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableReport {
    /// Pages read.
    pub pages: u64,
    /// Distinct keys.
    pub keys: u64,
    /// Entries of all kinds.
    pub entries: u64,
    /// Entries that say a key is absent.
    pub tombstones: u64,
    /// Entries whose values lie in blob files.
    pub pointers: u64,
    /// Bytes of all keys.
    pub raw_key_bytes: u64,
    /// Bytes of all values.
    pub raw_value_bytes: u64,
    /// The length of the file.
    pub file_bytes: u64,
}

impl Table {
    /// Reads the whole file again and checks everything that can be checked: checksums, order,
    /// the index, the hash indexes, the filter, and the counts in the properties. Returns the
    /// first thing found wrong.
    pub(crate) fn verify(&self) -> Result<TableReport> {
        verify(self.file(), self.meta(), self.counters())
    }
}

/// Checks a table from its footer to its last page; returns the first thing found wrong.
fn verify(file: &TableFile, meta: &TableMeta, counters: &Counters) -> Result<TableReport> {
    let sections = file.read_sections(meta)?;
    let section_bytes = meta.file_bytes - sections.footer.pages_bytes;
    counters.read_bytes.add(section_bytes);
    let mut read_ahead = ReadAhead::default();
    let mut check = Check {
        sections: &sections,
        cursor: PageCursor::new(),
        previous: None,
        revisions: (Revision::MAX, 0),
        min_key: Vec::new(),
        content_crc: 0,
        report: TableReport {
            file_bytes: meta.file_bytes,
            ..TableReport::default()
        },
    };
    for number in 0..sections.index.len() {
        let page = read_ahead.page(file, &sections.index, number, &counters.read_bytes)?;
        check.page(number, page).map_err(|reason| {
            file.corrupt(sections.index.location(number).offset, "a page", reason)
        })?;
    }
    check.totals(meta).map_err(|reason| {
        file.corrupt(
            sections.footer.pages_bytes,
            "what follows the pages",
            reason,
        )
    })?;
    Ok(check.report)
}

struct Check<'a> {
    sections: &'a Sections,
    cursor: PageCursor,
    /// The entry before.
    previous: Option<(Vec<u8>, Revision)>,
    /// The smallest and the largest so far.
    revisions: (Revision, Revision),
    min_key: Vec<u8>,
    content_crc: u32,
    report: TableReport,
}

impl Check<'_> {
    fn page(&mut self, number: usize, page: Page) -> Result<(), Reason> {
        self.content_crc = crc32c::crc32c_append(self.content_crc, page.bytes());
        self.restarts(&page)?;
        page.check_slots()?;
        self.cursor.enter(page);
        self.cursor.seek_first()?;
        loop {
            self.entry()?;
            if !self.cursor.next()? {
                break;
            }
        }
        let index = &self.sections.index;
        if self.cursor.key() != index.last_key(number)
            || self.cursor.entry().revision != index.last_revision(number)
        {
            return Err("its last entry is not the one in the index");
        }
        self.report.pages += 1;
        Ok(())
    }

    /// Intervals follow each other without a gap, from the first entry to the last.
    fn restarts(&self, page: &Page) -> Result<(), Reason> {
        let mut offset = 0;
        for interval in 0..page.restarts() {
            if page.interval_start(interval)? != offset {
                return Err("a restart is not where an entry begins");
            }
            if page.entry_at(offset)?.shared != 0 {
                return Err("the key at a restart is not whole");
            }
            let end = page.interval_end(interval)?;
            while offset < end {
                offset = page.entry_at(offset)?.end;
            }
        }
        Ok(())
    }

    fn entry(&mut self) -> Result<(), Reason> {
        let (cursor, report) = (&self.cursor, &mut self.report);
        let (key, entry) = (cursor.key(), cursor.entry());
        let new_key = match &self.previous {
            None => {
                self.min_key = key.to_vec();
                true
            }
            Some((previous, revision)) => match previous.as_slice().cmp(key) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Equal if *revision > entry.revision => false,
                _ => return Err("its entries are out of order"),
            },
        };
        let hash = key_hash(key);
        if new_key
            && self
                .sections
                .filter
                .as_ref()
                .is_some_and(|f| !f.may_contain(hash))
        {
            return Err("a key does not pass the filter");
        }
        let found = cursor.page().find(key, hash, entry.revision)?;
        if found.is_none_or(|found| found.end != entry.end) {
            return Err("an entry is not found by a search");
        }
        if entry.is_pointer {
            if BlobPointer::decode(cursor.page().value(entry)).is_none() {
                return Err("a pointer is malformed");
            }
            report.pointers += 1;
        }
        report.keys += u64::from(new_key);
        report.entries += 1;
        report.tombstones += u64::from(entry.kind == EntryKind::Delete);
        report.raw_key_bytes += key.len() as u64;
        report.raw_value_bytes += cursor.page().value(entry).len() as u64;
        let (min, max) = self.revisions;
        self.revisions = (min.min(entry.revision), max.max(entry.revision));
        let (previous, revision) = self.previous.get_or_insert_default();
        previous.clear();
        previous.extend_from_slice(key);
        *revision = entry.revision;
        Ok(())
    }

    fn totals(&self, meta: &TableMeta) -> Result<(), Reason> {
        let (report, properties) = (&self.report, &self.sections.properties);
        let max_key = self.previous.as_ref().map_or(&[][..], |(key, _)| key);
        let revisions = if report.entries == 0 {
            (0, 0)
        } else {
            self.revisions
        };
        if (report.entries, report.tombstones, report.keys)
            != (meta.entries, meta.tombstones, properties.keys)
        {
            return Err("the number of entries, tombstones or keys is not as stated");
        }
        if report.raw_key_bytes != properties.raw_key_bytes
            || report.raw_key_bytes + report.raw_value_bytes != meta.raw_bytes
        {
            return Err("the bytes of keys and values are not as many as stated");
        }
        if revisions != (meta.min_revision, meta.max_revision) {
            return Err("the smallest or largest revision is not as stated");
        }
        if self.min_key != *meta.min_key || *max_key != *meta.max_key {
            return Err("the smallest or largest key is not as stated");
        }
        if self.content_crc != meta.content_crc {
            return Err("the checksum of all pages together is not as stated");
        }
        Ok(())
    }
}
