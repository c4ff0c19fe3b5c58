//! [`BlockKinds`]: the kinds of a block.

use std::fmt;
use std::ops::Deref;

use smallvec::SmallVec;

/// The names of the kinds of a block: none, one, or several; ascending, each once. One takes no allocation beside its
/// text.
///
/// ```
/// use bowline_types::{Block, BlockId, BlockKinds};
///
/// // Most blocks have one kind.
/// let ada = Block::new(BlockId(1), "person");
/// assert_eq!(ada.kinds, "person");
/// // Others have several, in no order, or none.
/// let alan = Block::new(BlockId(2), ["person", "author"]);
/// assert_eq!(alan.kinds, ["author", "person"]);
/// assert!(alan.kinds.contains("author"));
/// assert!(Block::new(BlockId(3), BlockKinds::none()).kinds.is_empty());
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BlockKinds(SmallVec<[String; 1]>);

impl BlockKinds {
    /// The most kinds that a block of a database may have.
    pub const MAX: usize = 64;

    /// No kind.
    ///
    /// ```
    /// # use bowline_types::BlockKinds;
    /// assert_eq!(BlockKinds::none().len(), 0);
    /// ```
    #[must_use]
    pub fn none() -> BlockKinds {
        BlockKinds::default()
    }

    /// Adds a kind. Returns whether it is new.
    ///
    /// ```
    /// # use bowline_types::BlockKinds;
    /// let mut kinds = BlockKinds::from("person");
    /// assert!(kinds.insert("author") && !kinds.insert("person"));
    /// assert_eq!(kinds, ["author", "person"]);
    /// ```
    pub fn insert(&mut self, kind: impl Into<String>) -> bool {
        let kind = kind.into();
        match self.0.binary_search(&kind) {
            Ok(_) => false,
            Err(at) => {
                self.0.insert(at, kind);
                true
            }
        }
    }

    /// Takes a kind away. Returns whether it was there.
    ///
    /// ```
    /// # use bowline_types::BlockKinds;
    /// let mut kinds = BlockKinds::from("person");
    /// assert!(kinds.remove("person") && !kinds.remove("person"));
    /// assert!(kinds.is_empty());
    /// ```
    pub fn remove(&mut self, kind: &str) -> bool {
        let place = self.place(kind);
        place.map(|at| self.0.remove(at)).is_some()
    }

    /// Whether a kind is among them.
    ///
    /// ```
    /// # use bowline_types::BlockKinds;
    /// let kinds = BlockKinds::from(["person", "author"]);
    /// assert!(kinds.contains("person") && !kinds.contains("book"));
    /// ```
    #[must_use]
    pub fn contains(&self, kind: &str) -> bool {
        self.place(kind).is_some()
    }

    /// The kind, if there is exactly one.
    ///
    /// ```
    /// # use bowline_types::BlockKinds;
    /// assert_eq!(BlockKinds::from("person").only(), Some("person"));
    /// assert_eq!(BlockKinds::from(["person", "author"]).only(), None);
    /// ```
    #[must_use]
    pub fn only(&self) -> Option<&str> {
        match &self.0[..] {
            [kind] => Some(kind),
            _ => None,
        }
    }

    fn place(&self, kind: &str) -> Option<usize> {
        self.0.binary_search_by(|held| held.as_str().cmp(kind)).ok()
    }
}

impl Deref for BlockKinds {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.0
    }
}

/// One kind is its name; several are joined by commas.
impl fmt::Display for BlockKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, kind) in self.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { ", " })?;
            f.write_str(kind)?;
        }
        Ok(())
    }
}

impl fmt::Debug for BlockKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl From<&str> for BlockKinds {
    fn from(kind: &str) -> BlockKinds {
        kind.to_owned().into()
    }
}

impl From<&String> for BlockKinds {
    fn from(kind: &String) -> BlockKinds {
        kind.clone().into()
    }
}

impl From<String> for BlockKinds {
    fn from(kind: String) -> BlockKinds {
        BlockKinds(SmallVec::from_buf([kind]))
    }
}

impl<K: Into<String>, const N: usize> From<[K; N]> for BlockKinds {
    fn from(kinds: [K; N]) -> BlockKinds {
        kinds.into_iter().collect()
    }
}

impl From<Vec<String>> for BlockKinds {
    fn from(kinds: Vec<String>) -> BlockKinds {
        kinds.into_iter().collect()
    }
}

impl<K: Into<String>> FromIterator<K> for BlockKinds {
    fn from_iter<I: IntoIterator<Item = K>>(kinds: I) -> BlockKinds {
        let mut all: SmallVec<[String; 1]> = kinds.into_iter().map(Into::into).collect();
        all.sort_unstable();
        all.dedup();
        BlockKinds(all)
    }
}

impl IntoIterator for BlockKinds {
    type Item = String;
    type IntoIter = smallvec::IntoIter<[String; 1]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a BlockKinds {
    type Item = &'a String;
    type IntoIter = std::slice::Iter<'a, String>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// Whether it is the only one.
impl PartialEq<str> for BlockKinds {
    fn eq(&self, kind: &str) -> bool {
        self.only() == Some(kind)
    }
}

/// Whether it is the only one.
impl PartialEq<&str> for BlockKinds {
    fn eq(&self, kind: &&str) -> bool {
        self.only() == Some(kind)
    }
}

/// Whether they are these, which are given in their order.
impl<const N: usize> PartialEq<[&str; N]> for BlockKinds {
    fn eq(&self, kinds: &[&str; N]) -> bool {
        self.iter().eq(kinds.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_a_set_in_order_however_they_are_made() {
        let wanted = ["a", "b", "c"];
        let mut grown = BlockKinds::none();
        for (kind, is_new) in [("c", true), ("a", true), ("c", false), ("b", true)] {
            assert_eq!(grown.insert(kind), is_new);
        }
        let of_vec = BlockKinds::from(["c", "b", "a", "b"].map(str::to_owned).to_vec());
        for kinds in [grown, of_vec, BlockKinds::from(["b", "a", "c", "a"])] {
            assert_eq!(kinds, wanted);
            assert_eq!(kinds, wanted.into_iter().rev().collect::<BlockKinds>());
            assert_eq!(kinds.to_string(), "a, b, c");
            assert_eq!(format!("{kinds:?}"), r#"{"a", "b", "c"}"#);
            assert!(kinds != "a" && kinds.only().is_none());
            let mut fewer = kinds.clone();
            assert!(fewer.remove("b") && !fewer.remove("b") && !fewer.contains("b"));
            assert_eq!(fewer, ["a", "c"]);
            assert_eq!(kinds.into_iter().collect::<Vec<_>>(), wanted);
        }
    }

    #[test]
    fn one_and_none_are_told_apart() {
        let one = BlockKinds::from("a");
        assert!(one == *"a" && one == "a" && one != "b" && one == ["a"]);
        assert_eq!((one.to_string().as_str(), one.only()), ("a", Some("a")));
        let none = BlockKinds::none();
        assert!(none.is_empty() && none.only().is_none() && none != "a");
        assert_eq!(none.to_string(), "");
    }
}
