//! The bytes of one file, in pages that copies share.
//!
//! ```text
//! pages: [ Some(Arc) | None | Some(Arc) ]      len
//!          4096 bytes  hole   4096 bytes   ....^  bytes after len are zero
//! ```
//!
//! Invariants: there are exactly `ceil(len / 4096)` pages, and the last one is zero after `len`. Cloning
//! copies pointers; writing copies a page only while it is shared.

use std::io;
use std::sync::{Arc, LazyLock};

pub(crate) const PAGE_BYTES: usize = 4096;

/// No test needs a larger file, and a wild offset must not allocate the page list for it.
const MAX_LEN: u64 = 1 << 32;

type Page = Arc<[u8; PAGE_BYTES]>;

/// Shared by all pages of written zeros: the log prepares its segments with zeros.
static ZERO_PAGE: LazyLock<Page> = LazyLock::new(|| Arc::new([0; PAGE_BYTES]));

/// The bytes of one file.
#[derive(Clone, Default, Debug)]
pub(crate) struct Contents {
    len: u64,
    pages: Vec<Option<Page>>,
}

impl Contents {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The bytes of written pages.
    pub(crate) fn allocated(&self) -> u64 {
        (self.pages.iter().flatten().count() * PAGE_BYTES) as u64
    }

    /// Whether a file may reach `end`.
    pub(crate) fn check_end(offset: u64, len: u64) -> io::Result<u64> {
        match offset.checked_add(len) {
            Some(end) if end <= MAX_LEN => Ok(end),
            _ => Err(io::ErrorKind::FileTooLarge.into()),
        }
    }

    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let available = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = buffer.len().min(available);
        let mut done = 0;
        while done < count {
            let (page, start) = locate(offset + done as u64);
            let part = (PAGE_BYTES - start).min(count - done);
            match &self.pages[page] {
                Some(bytes) => buffer[done..done + part].copy_from_slice(&bytes[start..][..part]),
                None => buffer[done..done + part].fill(0),
            }
            done += part;
        }
        count
    }

    pub(crate) fn write(&mut self, bytes: &[u8], offset: u64) {
        self.grow_to(offset + bytes.len() as u64);
        let mut done = 0;
        while done < bytes.len() {
            let (page, start) = locate(offset + done as u64);
            let part = (PAGE_BYTES - start).min(bytes.len() - done);
            self.page_mut(page)[start..start + part].copy_from_slice(&bytes[done..done + part]);
            done += part;
        }
    }

    /// Inverts one bit, if the file is that long.
    pub(crate) fn flip_bit(&mut self, offset: u64, bit: u8) {
        if offset < self.len {
            let mut byte = [0];
            self.read(&mut byte, offset);
            self.write(&[byte[0] ^ (1 << (bit % 8))], offset);
        }
    }

    pub(crate) fn write_zeros(&mut self, len: u64, offset: u64) {
        let end = offset + len;
        self.grow_to(end);
        let mut at = offset;
        while at < end {
            let (page, start) = locate(at);
            let part = ((PAGE_BYTES - start) as u64).min(end - at);
            if part == PAGE_BYTES as u64 {
                self.pages[page] = Some(ZERO_PAGE.clone());
            } else {
                self.page_mut(page)[start..start + part as usize].fill(0);
            }
            at += part;
        }
    }

    /// Extends with a hole; never truncates.
    pub(crate) fn grow_to(&mut self, len: u64) {
        if len > self.len {
            self.set_len(len);
        }
    }

    pub(crate) fn set_len(&mut self, len: u64) {
        let (last, used) = locate(len);
        self.pages.resize(last + usize::from(used > 0), None);
        if len < self.len && used > 0 && self.pages[last].is_some() {
            self.page_mut(last)[used..].fill(0);
        }
        self.len = len;
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.len).unwrap_or(usize::MAX)];
        self.read(&mut bytes, 0);
        bytes
    }

    fn page_mut(&mut self, page: usize) -> &mut [u8; PAGE_BYTES] {
        Arc::make_mut(self.pages[page].get_or_insert_with(|| ZERO_PAGE.clone()))
    }
}

/// The page of `offset`, and the offset within it. Offsets are at most `MAX_LEN`.
fn locate(offset: u64) -> (usize, usize) {
    let offset = offset as usize;
    (offset / PAGE_BYTES, offset % PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_read_and_write_like_a_vector() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut contents = Contents::default();
        let mut expected: Vec<u8> = Vec::new();
        for step in 0..2000_u32 {
            let offset = random.usize(0..20_000);
            let len = random.usize(0..9000);
            match random.u8(0..4) {
                0 => {
                    contents.set_len(offset as u64);
                    expected.resize(offset, 0);
                }
                kind => {
                    if expected.len() < offset + len {
                        expected.resize(offset + len, 0);
                    }
                    let byte = if kind == 1 { 0 } else { step as u8 | 1 };
                    expected[offset..offset + len].fill(byte);
                    if kind == 1 {
                        contents.write_zeros(len as u64, offset as u64);
                    } else {
                        contents.write(&vec![byte; len], offset as u64);
                    }
                }
            }
            assert_eq!(contents.len(), expected.len() as u64);
            assert!(contents.to_vec() == expected, "step {step}");
            assert_eq!(contents.pages.len(), expected.len().div_ceil(PAGE_BYTES));
        }
    }

    #[test]
    fn a_copy_keeps_its_bytes_and_shares_the_pages_that_stay_the_same() {
        let mut contents = Contents::default();
        contents.write(&[1; 3 * PAGE_BYTES], 0);
        let copy = contents.clone();
        contents.write(b"changed", PAGE_BYTES as u64);
        assert_eq!(copy.to_vec(), vec![1; 3 * PAGE_BYTES]);
        let shared = |page: usize| {
            let (left, right) = (&contents.pages[page], &copy.pages[page]);
            matches!((left, right), (Some(left), Some(right)) if Arc::ptr_eq(left, right))
        };
        assert!(shared(0) && !shared(1) && shared(2));
    }

    #[test]
    fn holes_take_no_space_and_written_zeros_do() {
        let mut contents = Contents::default();
        contents.set_len(10 * PAGE_BYTES as u64);
        assert_eq!(contents.allocated(), 0);
        contents.write_zeros(2 * PAGE_BYTES as u64, 0);
        assert_eq!(contents.allocated(), 2 * PAGE_BYTES as u64);
    }
}
