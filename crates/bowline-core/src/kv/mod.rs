//! Keys and values: their records, ranges and iterators.

pub mod iterator;
pub mod order;
pub mod range;
pub mod record;

pub use iterator::{EntryRef, LeaseKeys, RangeIter};
pub use range::Range;
pub use record::Metadata;
pub use record::{Entry, Version};
