//! The vocabulary: block ids, blocks, edges, and what a conflict names. It imports nothing else of this crate.

mod block_id;
mod graph;
mod touched;

pub use block_id::{BlockId, ParseBlockIdError};
pub use graph::{Attributes, Block, Direction, Edge, EdgeKey, Neighbor, Path, Stop, Visit};
pub use touched::Touched;

pub(crate) use block_id::id_bytes;
