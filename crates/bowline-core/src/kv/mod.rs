//! Keys and values: their records, changes, ranges and iterators.

pub mod author;
mod change;
pub mod iterator;
pub mod order;
pub mod range;
pub mod record;

pub use change::{Change, ChangeKind};
pub use iterator::{EntryRef, LeaseKeys, RangeIter};
pub use range::Range;
pub use record::Metadata;
pub use record::{Entry, Version};
