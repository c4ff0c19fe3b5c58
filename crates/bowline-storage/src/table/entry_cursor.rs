//! A position among all entries of a table, moving both ways from page to page. The public
//! cursors stand on it.
//!
//! Invariant: whatever the bytes, a move forward never ends before the place where it began, and
//! a move back never behind it. Steps keep to that by themselves. A search goes by keys, and keys
//! that are out of order could lead it round in a circle: where it lands is compared with where
//! it began, and a search that went the wrong way is an error.

use std::sync::Arc;

use super::page::{Page, PageEntry};
use super::page_cursor::PageCursor;
use super::read_ahead::ReadAhead;
use super::reader::Table;
use crate::blob::BlobPointer;
use crate::error::Result;
use crate::types::Revision;

/// How many steps are tried before a search: versions of a key are mostly few and near.
const STEPS_BEFORE_SEEK: usize = 8;

/// A position among all entries of a table. After an error it is nowhere.
#[derive(Debug)]
pub(super) struct EntryCursor {
    table: Arc<Table>,
    /// Pages past the cache, for a cursor that does not use it.
    read_ahead: Option<ReadAhead>,
    /// The page the cursor in it is for, if any was loaded.
    page_number: Option<usize>,
    cursor: PageCursor,
    valid: bool,
    /// A key to compare with or search for while the cursor moves.
    scratch: Vec<u8>,
}

impl EntryCursor {
    pub(super) fn new(table: Arc<Table>, use_cache: bool) -> EntryCursor {
        EntryCursor {
            table,
            read_ahead: (!use_cache).then(ReadAhead::default),
            page_number: None,
            cursor: PageCursor::new(),
            valid: false,
            scratch: Vec::new(),
        }
    }

    /// Whether there is an entry here.
    #[inline]
    pub(super) fn valid(&self) -> bool {
        self.valid
    }

    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    #[inline]
    pub(super) fn entry(&self) -> &PageEntry {
        self.cursor.entry()
    }

    #[inline]
    pub(super) fn page(&self) -> &Page {
        self.cursor.page()
    }

    /// The value; of one that lies in a blob file, its head.
    #[inline]
    pub(super) fn value(&self) -> &[u8] {
        let value = self.page().value(self.entry());
        if self.entry().is_pointer {
            // That it is malformed is said by `pointer`.
            return BlobPointer::decode(value).map_or(&[], |(_, head)| head);
        }
        value
    }

    /// Where the value is, when it lies in a blob file.
    #[inline]
    pub(super) fn pointer(&self) -> Result<Option<BlobPointer>> {
        if !self.entry().is_pointer {
            return Ok(None);
        }
        match BlobPointer::decode(self.page().value(self.entry())) {
            Some((pointer, _)) => Ok(Some(pointer)),
            None => {
                let page = self.page_number.unwrap_or(0);
                Err(self.table.damaged(page, "a pointer is malformed"))
            }
        }
    }

    /// Goes to the first entry.
    pub(super) fn seek_first(&mut self) -> Result<()> {
        self.valid = false;
        if self.table.index().len() == 0 {
            return Ok(());
        }
        self.load(0)?;
        self.in_page(PageCursor::seek_first)?;
        self.valid = true;
        Ok(())
    }

    /// Goes to the last entry.
    pub(super) fn seek_last(&mut self) -> Result<()> {
        self.valid = false;
        let Some(last) = self.table.index().len().checked_sub(1) else {
            return Ok(());
        };
        self.load(last)?;
        self.in_page(PageCursor::seek_last)?;
        self.valid = true;
        Ok(())
    }

    /// Goes to the first entry that is not before (`key`, `at`).
    pub(super) fn seek(&mut self, key: &[u8], at: Revision) -> Result<()> {
        self.valid = false;
        let Some(page) = self.table.index().find(key, at) else {
            return Ok(());
        };
        self.load(page)?;
        if !self.in_page(|cursor| cursor.seek(key, at))? {
            return Err(self
                .table
                .damaged(page, "the page ends before the key the index has"));
        }
        self.valid = true;
        Ok(())
    }

    /// Goes to the next entry.
    #[inline]
    pub(super) fn next(&mut self) -> Result<()> {
        let Some(page) = self.page_number.filter(|_| self.valid) else {
            return Ok(());
        };
        self.valid = false;
        if !self.in_page(PageCursor::next)? {
            if page + 1 == self.table.index().len() {
                return Ok(());
            }
            self.load(page + 1)?;
            self.in_page(PageCursor::seek_first)?;
        }
        self.valid = true;
        Ok(())
    }

    /// Goes to the entry before.
    pub(super) fn prev(&mut self) -> Result<()> {
        let Some(page) = self.page_number.filter(|_| self.valid) else {
            return Ok(());
        };
        self.valid = false;
        if !self.in_page(PageCursor::prev)? {
            let Some(before) = page.checked_sub(1) else {
                return Ok(());
            };
            self.load(before)?;
            self.in_page(PageCursor::seek_last)?;
        }
        self.valid = true;
        Ok(())
    }

    /// Goes forward to the first entry of another key.
    #[inline]
    pub(super) fn next_key(&mut self) -> Result<()> {
        self.next()?;
        if !self.valid || !self.cursor.same_key() {
            return Ok(());
        }
        self.past_versions()
    }

    /// From an entry that is not the first of its key: [`EntryCursor::next_key`]. Apart, so that a walk
    /// over keys of one version each makes no call for it.
    #[inline(never)]
    fn past_versions(&mut self) -> Result<()> {
        let mut steps = 1;
        loop {
            self.next()?;
            if !self.valid || !self.cursor.same_key() {
                return Ok(());
            }
            steps += 1;
            if steps == STEPS_BEFORE_SEEK {
                let key = self.take_key();
                let sought = self.seek_on(&key, 0);
                let same_key = self.valid && self.key() == key;
                self.scratch = key;
                sought?;
                // An entry of revision 0 would be the last of its key, and take one more step.
                if !same_key {
                    return Ok(());
                }
            }
        }
    }

    /// Goes back to the last entry of another key.
    pub(super) fn prev_key(&mut self) -> Result<()> {
        let key = self.take_key();
        let moved = self.leave_backward(&key);
        self.scratch = key;
        moved
    }

    fn leave_backward(&mut self, key: &[u8]) -> Result<()> {
        for _ in 0..STEPS_BEFORE_SEEK {
            self.prev()?;
            if !self.valid || self.key() != key {
                return Ok(());
            }
        }
        self.seek_back(key, Revision::MAX)?;
        self.prev()
    }

    /// From an entry that is too new for `at`: goes on to the first that is not, of this key or a
    /// later one.
    #[inline]
    pub(super) fn next_visible(&mut self, at: Revision) -> Result<()> {
        if !self.valid || self.entry().revision <= at {
            return Ok(());
        }
        self.past_newer(at)
    }

    #[inline(never)]
    fn past_newer(&mut self, at: Revision) -> Result<()> {
        let mut steps = 0;
        while self.valid && self.entry().revision > at {
            steps += 1;
            if steps < STEPS_BEFORE_SEEK {
                self.next()?;
            } else {
                steps = 0;
                let key = self.take_key();
                let sought = self.seek_on(&key, at);
                self.scratch = key;
                sought?;
            }
        }
        Ok(())
    }

    /// From the last entry of a key: goes back to the newest one of at most `at`, of this key or
    /// an earlier one.
    pub(super) fn prev_visible(&mut self, at: Revision) -> Result<()> {
        while self.valid && self.entry().revision > at {
            // All its other versions are newer still.
            self.prev_key()?;
        }
        if !self.valid || !self.cursor.may_continue_key() {
            return Ok(());
        }
        let key = self.take_key();
        let moved = self.newest_backward(&key, at);
        self.scratch = key;
        moved
    }

    fn newest_backward(&mut self, key: &[u8], at: Revision) -> Result<()> {
        for _ in 0..STEPS_BEFORE_SEEK {
            self.prev()?;
            if !self.valid {
                return self.seek_first();
            }
            if self.key() != key || self.entry().revision > at {
                return self.next();
            }
            if !self.cursor.may_continue_key() {
                return Ok(());
            }
        }
        self.seek_back(key, at)
    }

    /// Seeks an entry that is not before this one.
    fn seek_on(&mut self, key: &[u8], at: Revision) -> Result<()> {
        let start = self.place();
        self.seek(key, at)?;
        self.check_order(!self.valid || self.place() >= start)
    }

    /// Seeks an entry that is not behind this one.
    fn seek_back(&mut self, key: &[u8], at: Revision) -> Result<()> {
        let start = self.place();
        self.seek(key, at)?;
        self.check_order(self.valid && self.place() <= start)
    }

    /// Where the cursor is: grows with every step forward.
    fn place(&self) -> (Option<usize>, (usize, usize)) {
        (self.page_number, self.cursor.place())
    }

    fn check_order(&mut self, holds: bool) -> Result<()> {
        if holds {
            return Ok(());
        }
        self.valid = false;
        let page = self.page_number.unwrap_or(0);
        Err(self.table.damaged(page, "its entries are out of order"))
    }

    /// A copy of the key, in the scratch buffer's memory.
    fn take_key(&mut self) -> Vec<u8> {
        let mut key = std::mem::take(&mut self.scratch);
        key.clear();
        key.extend_from_slice(self.key());
        key
    }

    fn load(&mut self, number: usize) -> Result<()> {
        if self.page_number == Some(number) {
            return Ok(());
        }
        self.page_number = None;
        let table = &*self.table;
        let page = match &mut self.read_ahead {
            None => {
                table.prefetch_first_entries(number + 1);
                Page::clone(&*table.page(number)?)
            }
            Some(read_ahead) => {
                let bytes_read = &table.counters().compaction_bytes_read;
                read_ahead.page(table.file(), table.index(), number, bytes_read)?
            }
        };
        self.cursor.enter(page);
        self.page_number = Some(number);
        Ok(())
    }

    /// Moves in the page, and says of an error where it was.
    #[inline]
    fn in_page<T>(
        &mut self,
        step: impl FnOnce(&mut PageCursor) -> Result<T, crate::frame::Reason>,
    ) -> Result<T> {
        step(&mut self.cursor)
            .map_err(|reason| self.table.damaged(self.page_number.unwrap_or(0), reason))
    }
}
