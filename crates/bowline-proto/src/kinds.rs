//! The kinds of a block to and from its message.
//!
//! One kind is in a field of its own, which programs of the first version know; no kind and several are in another field,
//! and a write of them is one that those programs refuse.

use bowline_types::BlockKinds;

/// The two fields of a message.
///
/// ```
/// use bowline_proto::kinds::{of_wire, to_wire};
///
/// let (kind, kinds) = to_wire(["person", "author"].into());
/// assert!(kind.is_empty());
/// assert_eq!(of_wire(kind, kinds), Ok(["author", "person"].into()));
/// assert_eq!(to_wire("person".into()), ("person".to_owned(), Vec::new()));
/// ```
pub type Wire = (String, Vec<String>);

/// As a message carries them.
#[must_use]
pub fn to_wire(kinds: BlockKinds) -> Wire {
    let mut kinds: Vec<String> = kinds.into_iter().collect();
    match kinds.len() {
        1 => (kinds.remove(0), Vec::new()),
        _ => (String::new(), kinds),
    }
}

/// From a message.
///
/// # Errors
/// What is wrong with it.
pub fn of_wire(kind: String, kinds: Vec<String>) -> Result<BlockKinds, &'static str> {
    if kinds.len() > BlockKinds::MAX {
        return Err("a block has at most 64 kinds: make the others attributes");
    }
    match (kind.is_empty(), kinds.is_empty()) {
        (true, _) => Ok(kinds.into()),
        (false, true) => Ok(kind.into()),
        (false, false) => Err("a block has a kind beside its kinds: give all of them as kinds"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_kind_one_and_several_come_back() {
        for kinds in [&[][..], &["a"], &["b", "a"], &["c", "a", "b"]] {
            let kinds: BlockKinds = kinds.iter().copied().collect();
            let (kind, several) = to_wire(kinds.clone());
            assert_eq!(!kind.is_empty(), kinds.len() == 1, "first versions know it");
            assert_eq!(of_wire(kind, several), Ok(kinds));
        }
        let both = of_wire("a".to_owned(), vec!["b".to_owned()]);
        assert!(both.unwrap_err().contains("beside its kinds"));
        let many = |count: usize| (0..count).map(|kind| kind.to_string()).collect();
        assert!(of_wire(String::new(), many(BlockKinds::MAX)).is_ok());
        let too_many = of_wire(String::new(), many(BlockKinds::MAX + 1));
        assert!(too_many.unwrap_err().contains("at most 64 kinds"));
    }
}
