//! Indexes of blocks by their attributes: definitions, and keys in the order of values.
//!
//! | file | contents |
//! |---|---|
//! | `definition` | [`Definition`]: what an index is of, and how far it is built; its record |
//! | `key` | values as bytes whose order is theirs; the key of an entry |
//! | `ranges` | [`Asked`]: what is looked for, as ranges of keys |
//! | `registry` | [`Indexes`]: the definitions of an open database |
//!
//! An index has one entry for each block of its kind that has all of its attributes, in the tree [`crate::trees::INDEX`]:
//!
//! ```text
//! | 0 u32 | 0 u32 |                         the number of the next index
//! | 0 u32 | index u32 |                     the definition
//! | index u32 | value ... | block 16 |      an entry, without a value of its own
//! ```
//!
//! Definitions are in the tree of what they define. So creating, completing and dropping an index each take a revision, and a
//! transaction that has read by an index conflicts with its end. Who writes entries: [`crate::write::index`].

mod definition;
mod key;
mod ranges;
mod registry;

pub use definition::{Definition, State};
pub use key::{VALUE_MAX_BYTES, block_of_entry};
pub use ranges::{Asked, KeyRange, Last};
pub use registry::{IndexSet, Indexes, Leaving};
