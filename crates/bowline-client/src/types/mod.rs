//! The vocabulary of the client: values that every other module may use, and that know none of them.

mod block_id;
mod edge_key;
mod key_range;
mod read_level;
mod reply;
mod touched;

pub use block_id::{BlockId, ParseBlockIdError};
pub use edge_key::EdgeKey;
pub use key_range::KeyRange;
pub use read_level::ReadLevel;
pub use reply::{Entry, Header};
pub use touched::Touched;

pub(crate) use reply::{READ_LEVEL, signed, unsigned};
