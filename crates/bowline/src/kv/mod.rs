//! Keys and values: their records, ranges and iterators.

pub(crate) mod iterator;
pub(crate) mod order;
pub(crate) mod range;
pub(crate) mod record;

pub use iterator::{EntryRef, RangeIter};
pub use range::Range;
pub(crate) use record::Metadata;
pub use record::{Entry, Version};
