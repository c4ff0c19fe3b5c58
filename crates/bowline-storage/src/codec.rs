//! Encoding and decoding of numbers. Integers are little-endian; varints are LEB128, at most ten bytes.
//!
//! Reading never panics: every function returns `None` when the bytes end early or say something
//! impossible, and the caller names the file and offset.

/// A cursor over bytes that were read from disk or wire.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, position: 0 }
    }

    /// How many bytes have been read.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// How many bytes are left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// Whether all bytes have been read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let end = self.position.checked_add(len)?;
        let bytes = self.bytes.get(self.position..end)?;
        self.position = end;
        Some(bytes)
    }

    /// All bytes that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        let bytes = &self.bytes[self.position..];
        self.position = self.bytes.len();
        bytes
    }

    /// One byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// Four bytes, little-endian.
    pub fn u32(&mut self) -> Option<u32> {
        self.take(4)
            .and_then(|bytes| bytes.try_into().ok())
            .map(u32::from_le_bytes)
    }

    /// Eight bytes, little-endian.
    pub fn u64(&mut self) -> Option<u64> {
        self.take(8)
            .and_then(|bytes| bytes.try_into().ok())
            .map(u64::from_le_bytes)
    }

    /// A varint of at most 64 bits. An encoding longer than it needs to be is refused, so that
    /// every number has exactly one encoding.
    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        let first = *self.bytes.get(self.position)?;
        if first < 0x80 {
            self.position += 1;
            return Some(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        let mut shift = 7;
        let mut at = self.position + 1;
        loop {
            let byte = *self.bytes.get(at)?;
            at += 1;
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                if byte == 0 {
                    return None;
                }
                self.position = at;
                return Some(value);
            }
            shift += 7;
            if shift > 63 {
                return None;
            }
        }
    }

    /// A varint that must fit in `usize`.
    #[inline]
    pub fn varint_usize(&mut self) -> Option<usize> {
        self.varint().and_then(|value| usize::try_from(value).ok())
    }

    /// A varint that must fit in 32 bits.
    #[inline]
    pub fn varint_u32(&mut self) -> Option<u32> {
        self.varint().and_then(|value| u32::try_from(value).ok())
    }

    /// A varint length followed by that many bytes.
    #[inline]
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.varint_usize()?;
        self.take(len)
    }
}

/// The first eight bytes of a key as a number, with zeros after a shorter one: of two different
/// prefixes the smaller one is of the smaller key. Of equal ones the keys have to be compared.
#[must_use]
#[inline]
pub(crate) fn prefix_of(key: &[u8]) -> u64 {
    if let Some(first) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let mut first = [0; 8];
    first[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(first)
}

/// Appends a varint.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a varint length and the bytes.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// How many bytes [`put_varint`] appends for `value`.
#[must_use]
#[inline]
pub(crate) fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_at_their_boundaries() {
        for shift in 0..64 {
            for value in [(1u64 << shift) - 1, 1 << shift, (1 << shift) + 1, u64::MAX] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value), "{value}");
                let mut reader = Reader::new(&out);
                assert_eq!(reader.varint(), Some(value));
                assert!(reader.is_empty());
            }
        }
    }

    #[test]
    fn varints_refuse_truncation_overflow_and_padding() {
        assert_eq!(Reader::new(&[]).varint(), None);
        assert_eq!(Reader::new(&[0x80]).varint(), None);
        assert_eq!(Reader::new(&[0x80, 0x00]).varint(), None, "a padded zero");
        assert_eq!(Reader::new(&[0xff; 10]).varint(), None, "more than 64 bits");
        assert_eq!(Reader::new(&[0xff; 11]).varint(), None);
    }

    #[test]
    fn prefixes_are_ordered_as_their_keys_are() {
        let keys: [&[u8]; 8] = [
            b"",
            b"\0\0",
            b"a",
            b"a\0",
            b"abcdefgh",
            b"abcdefghi",
            b"abcdefgi",
            b"\xff",
        ];
        for (a, b) in keys.iter().flat_map(|a| keys.iter().map(move |b| (a, b))) {
            let (prefix, other) = (prefix_of(a), prefix_of(b));
            assert!(
                prefix == other || (prefix < other) == (a < b),
                "{a:?} {b:?}"
            );
        }
        assert_eq!(
            prefix_of(b"ab"),
            u64::from(b'a') << 56 | u64::from(b'b') << 48
        );
        assert_eq!(prefix_of(b"abcdefgh"), prefix_of(b"abcdefghi"));
    }

    #[test]
    fn a_length_beyond_the_end_is_refused() {
        let mut out = Vec::new();
        put_varint(&mut out, u64::MAX);
        out.push(1);
        assert_eq!(Reader::new(&out).bytes(), None);
        assert_eq!(Reader::new(&[2, 1]).bytes(), None);
        assert_eq!(Reader::new(&[1, 7]).bytes(), Some(&[7u8][..]));
    }
}
