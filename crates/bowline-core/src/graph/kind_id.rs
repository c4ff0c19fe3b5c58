//! The number of a kind.

/// The number a kind's name is registered under; keys and records carry it instead of the name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct KindId(pub u32);
