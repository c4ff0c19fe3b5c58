//! An owned, immutable string of bytes that is cheap to clone.
//!
//! Up to [`Value::INLINE_MAX`] bytes live in the value itself, so a read of a small value neither
//! allocates nor touches a shared reference count. Longer ones share one allocation. A value that
//! is cut out of a larger buffer (a page) is shared with it only when it is at least half of it:
//! a `Value` never keeps alive more than about twice its own size.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use bytes::Bytes;

/// An owned, immutable, cheaply cloned string of bytes.
///
/// ```
/// use bowline_storage::Value;
/// let value = Value::from("small");
/// assert_eq!(&value[..], b"small");
/// assert_eq!(value.clone(), value);
///
/// // Made from borrowed bytes, in place as well, and cut.
/// let mut value = Value::copy_from(b"svc/api");
/// assert_eq!(value.slice(4..7), b"api");
/// value.assign(b"svc/web");
/// assert_eq!(value.as_slice(), b"svc/web");
/// // The larger part of a buffer is shared with it, a smaller one is copied.
/// let buffer = bytes::Bytes::from(vec![b'x'; 1_000]);
/// assert_eq!(Value::slice_of(&buffer, 0..900).len(), 900);
/// ```
#[derive(Clone)]
pub struct Value(Repr);

#[derive(Clone)]
enum Repr {
    Inline(Inline),
    Shared(Bytes),
}

/// Aligned to 8, so that the tag before it has 8 bytes and a copy of the rest begins where the bytes begin: the
/// loads of that copy then lie within the stores that wrote the bytes, and the processor forwards them. A length
/// between tag and bytes made each of them wait for those stores.
#[derive(Clone)]
#[repr(C, align(8))]
struct Inline {
    bytes: [u8; Value::INLINE_MAX],
    len: u32,
}

impl Value {
    /// The longest value kept without an allocation, in bytes.
    pub const INLINE_MAX: usize = 116;

    /// Copies `bytes`.
    #[must_use]
    #[inline]
    pub fn copy_from(bytes: &[u8]) -> Value {
        let mut value = Value::EMPTY;
        value.assign(bytes);
        value
    }

    /// No bytes.
    pub const EMPTY: Value = Value(Repr::Inline(Inline {
        bytes: [0; Value::INLINE_MAX],
        len: 0,
    }));

    /// Becomes a copy of `bytes`, in place.
    #[inline]
    pub fn assign(&mut self, bytes: &[u8]) {
        if bytes.len() > Value::INLINE_MAX {
            self.0 = Repr::Shared(Bytes::copy_from_slice(bytes));
            return;
        }
        if let Repr::Shared(_) = self.0 {
            *self = Value::EMPTY;
        }
        if let Repr::Inline(inline) = &mut self.0 {
            inline.bytes[..bytes.len()].copy_from_slice(bytes);
            inline.len = bytes.len() as u32;
        }
    }

    /// The part `range` of `buffer`: shared where it is at least half of it, else copied.
    ///
    /// # Panics
    /// When `range` is not inside `buffer`.
    #[must_use]
    pub fn slice_of(buffer: &Bytes, range: std::ops::Range<usize>) -> Value {
        let len = range.len();
        if len > Value::INLINE_MAX && len * 2 >= buffer.len() {
            Value(Repr::Shared(buffer.slice(range)))
        } else {
            Value::copy_from(&buffer[range])
        }
    }

    /// The part `range` of this value, by the same rule as [`Value::slice_of`].
    ///
    /// # Panics
    /// When `range` is not inside the value.
    #[must_use]
    pub fn slice(&self, range: std::ops::Range<usize>) -> Value {
        match &self.0 {
            Repr::Inline(_) => Value::copy_from(&self[range]),
            Repr::Shared(bytes) => Value::slice_of(bytes, range),
        }
    }

    /// The bytes.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline(Inline { bytes, len }) => &bytes[..*len as usize],
            Repr::Shared(bytes) => bytes,
        }
    }
}

impl Default for Value {
    fn default() -> Self {
        Value::copy_from(&[])
    }
}

impl Deref for Value {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Value {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Value {
        Value::copy_from(bytes)
    }
}

impl<const N: usize> From<&[u8; N]> for Value {
    fn from(bytes: &[u8; N]) -> Value {
        Value::copy_from(bytes)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::copy_from(text.as_bytes())
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Value {
        if bytes.len() <= Value::INLINE_MAX {
            Value::copy_from(&bytes)
        } else {
            Value(Repr::Shared(Bytes::from(bytes)))
        }
    }
}

impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Value {
        let len = bytes.len();
        Value::slice_of(&bytes, 0..len)
    }
}

/// Shares the bytes of a long value, copies those of a short one.
impl From<Value> for Bytes {
    fn from(value: Value) -> Bytes {
        match value.0 {
            Repr::Inline(Inline { bytes, len }) => Bytes::copy_from_slice(&bytes[..len as usize]),
            Repr::Shared(bytes) => bytes,
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Value {}

impl PartialEq<[u8]> for Value {
    fn eq(&self, other: &[u8]) -> bool {
        self.as_slice() == other
    }
}

impl PartialEq<&[u8]> for Value {
    fn eq(&self, other: &&[u8]) -> bool {
        self.as_slice() == *other
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Value {
    fn eq(&self, other: &&[u8; N]) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Value) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Value) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

/// Shows the bytes as text with escapes, as `b"…"`.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.as_slice().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_values_keep_their_bytes() {
        for len in [0, 1, Value::INLINE_MAX, Value::INLINE_MAX + 1, 5000] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            for value in [Value::copy_from(&bytes), Value::from(bytes.clone())] {
                assert_eq!(value.as_slice(), &bytes[..]);
                assert_eq!(value.clone(), value);
                assert_eq!(value.slice(len / 2..len).as_slice(), &bytes[len / 2..]);
            }
        }
    }

    #[test]
    fn a_small_part_of_a_page_does_not_keep_the_page() {
        let page = Bytes::from(vec![7; 8192]);
        let part = Value::slice_of(&page, 0..1000);
        assert!(page.is_unique(), "1,000 of 8,192 bytes must be copied");
        let most = Value::slice_of(&page, 0..5000);
        assert!(!page.is_unique(), "5,000 of 8,192 bytes are shared");
        assert_eq!((part.len(), most.len()), (1000, 5000));
    }

    #[test]
    fn a_value_is_as_large_as_stated() {
        assert_eq!(size_of::<Value>(), 128);
        assert_eq!(size_of::<Option<Value>>(), 128);
    }
}
