//! [`KeyRange`]: the keys of a request, in the form of the wire: a first key and an end.

use std::ops::{Range, RangeFrom};

use bytes::Bytes;

/// The keys of a request.
///
/// ```
/// use bowline_client::KeyRange;
///
/// assert_eq!(KeyRange::prefix("a/").end(), "a0");
/// assert_eq!(KeyRange::from("a".."c").end(), "c");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyRange {
    key: Bytes,
    /// Empty: this key only. One zero byte: every key from `key` on.
    end: Bytes,
}

/// Stands for "no end" on the wire, and, as a key, for the first of all.
const ZERO: Bytes = Bytes::from_static(b"\0");

impl KeyRange {
    /// One key.
    ///
    /// ```
    /// # use bowline_client::KeyRange;
    /// assert!(KeyRange::key("greeting").end().is_empty());
    /// ```
    #[must_use]
    pub fn key(key: impl Into<Bytes>) -> KeyRange {
        KeyRange {
            key: key.into(),
            end: Bytes::new(),
        }
    }

    /// Every key that starts with `prefix`; every key if it is empty.
    ///
    /// ```
    /// # use bowline_client::KeyRange;
    /// assert_eq!(KeyRange::prefix("a/"), KeyRange::between("a/", "a0"));
    /// ```
    #[must_use]
    pub fn prefix(prefix: impl Into<Bytes>) -> KeyRange {
        let key = prefix.into();
        if key.is_empty() {
            return KeyRange::all();
        }
        let end = match key.iter().rposition(|byte| *byte != u8::MAX) {
            Some(last) => {
                let mut end = key[..=last].to_vec();
                end[last] += 1;
                end.into()
            }
            // No key follows a prefix of 0xff bytes.
            None => ZERO,
        };
        KeyRange { key, end }
    }

    /// Every key from `start` up to, not including, `end`.
    ///
    /// ```
    /// # use bowline_client::KeyRange;
    /// assert_eq!(KeyRange::between("a", "c"), KeyRange::from("a".."c"));
    /// ```
    #[must_use]
    pub fn between(start: impl Into<Bytes>, end: impl Into<Bytes>) -> KeyRange {
        let (key, end) = (start.into(), end.into());
        if end.is_empty() || end == ZERO {
            // No key comes before these ends, and on the wire they would mean something else. A range
            // that ends before it starts is empty everywhere.
            return KeyRange {
                key: Bytes::from_static(b"\x01"),
                end: Bytes::from_static(b"\0\0"),
            };
        }
        KeyRange {
            // The wire knows no empty first key.
            key: if key.is_empty() { ZERO } else { key },
            end,
        }
    }

    /// Every key from `start` on.
    ///
    /// ```
    /// # use bowline_client::KeyRange;
    /// assert_eq!(KeyRange::starting_at("m").start(), "m");
    /// ```
    #[must_use]
    pub fn starting_at(start: impl Into<Bytes>) -> KeyRange {
        let key = start.into();
        KeyRange {
            key: if key.is_empty() { ZERO } else { key },
            end: ZERO,
        }
    }

    /// Every key.
    ///
    /// ```
    /// # use bowline_client::KeyRange;
    /// assert_eq!(KeyRange::all(), KeyRange::prefix(""));
    /// ```
    #[must_use]
    pub fn all() -> KeyRange {
        KeyRange {
            key: ZERO,
            end: ZERO,
        }
    }

    /// As the wire has it: the first key.
    ///
    /// ```
    /// # use bowline_client::KeyRange;
    /// assert_eq!(KeyRange::prefix("a/").start(), "a/");
    /// assert_eq!(KeyRange::all().start(), "\0");
    /// ```
    #[must_use]
    pub fn start(&self) -> &Bytes {
        &self.key
    }

    /// As the wire has it: empty for one key, a zero byte for no end, else the key to stop before.
    ///
    /// ```
    /// use bowline_client::KeyRange;
    ///
    /// assert_eq!(KeyRange::prefix("a/").end(), "a0");
    /// assert_eq!(KeyRange::key("a").end(), "");
    /// assert_eq!(KeyRange::all().end(), "\0");
    /// ```
    #[must_use]
    pub fn end(&self) -> &Bytes {
        &self.end
    }

    /// Makes a range from a first key and an end in wire form, such as the rest of a range read in parts.
    ///
    /// ```
    /// # use bowline_client::KeyRange;
    /// // The rest of a range after its first page, which ended with "a/7".
    /// let all = KeyRange::prefix("a/");
    /// let rest = KeyRange::from_wire("a/7\0", all.end().clone());
    /// assert_eq!((&rest.start()[..], &rest.end()[..]), (&b"a/7\0"[..], &b"a0"[..]));
    /// ```
    #[must_use]
    pub fn from_wire(start: impl Into<Bytes>, end: impl Into<Bytes>) -> KeyRange {
        KeyRange {
            key: start.into(),
            end: end.into(),
        }
    }

    /// Whether a key is one of them.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        match &self.end[..] {
            [] => key == self.key,
            [0] => *key >= self.key[..],
            end => *key >= self.key[..] && key < end,
        }
    }

    pub(crate) fn into_parts(self) -> (Bytes, Bytes) {
        (self.key, self.end)
    }
}

impl<K: Into<Bytes>> From<Range<K>> for KeyRange {
    fn from(range: Range<K>) -> KeyRange {
        KeyRange::between(range.start, range.end)
    }
}

impl<K: Into<Bytes>> From<RangeFrom<K>> for KeyRange {
    fn from(range: RangeFrom<K>) -> KeyRange {
        KeyRange::starting_at(range.start)
    }
}

impl From<&'static str> for KeyRange {
    fn from(key: &'static str) -> KeyRange {
        KeyRange::key(key)
    }
}

impl From<String> for KeyRange {
    fn from(key: String) -> KeyRange {
        KeyRange::key(key)
    }
}

impl From<Vec<u8>> for KeyRange {
    fn from(key: Vec<u8>) -> KeyRange {
        KeyRange::key(key)
    }
}

impl From<Bytes> for KeyRange {
    fn from(key: Bytes) -> KeyRange {
        KeyRange::key(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_one() {
        for (prefix, end) in [
            (&b"a"[..], &b"b"[..]),
            (b"a\xff", b"b"),
            (b"a\xff\xff", b"b"),
            (b"\xff", b"\0"),
            (b"", b"\0"),
        ] {
            assert_eq!(KeyRange::prefix(prefix.to_vec()).end(), end, "{prefix:?}");
        }
    }

    #[test]
    fn the_first_of_all_keys_can_be_the_start() {
        assert_eq!(KeyRange::from(""..), KeyRange::all());
        assert_eq!(KeyRange::from("".."b").start(), &b"\0"[..]);
        for end in ["", "\0"] {
            let empty = KeyRange::from("a"..end);
            assert!(
                empty.end() < empty.start(),
                "{empty:?} must not mean every key"
            );
        }
    }
}
