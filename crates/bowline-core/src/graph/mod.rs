//! The graph: blocks, the edges between them, and questions about how they hang together.
//!
//! ```text
//!    lent                  blocks and edges where they lie
//!    record, keys          how it lies in the trees `block`, `edge_out`, `edge_in`
//!        |
//!    source                what an algorithm may ask of one snapshot
//!        |          \
//!        |         view    the same as dense numbers, for questions about the whole graph
//!        |            \
//!    traverse        order
//!    reach           components
//!    path            stats
//! ```
//!
//! Two sorts of question. Those that start at a block (`traverse`, `reach`, `path`) read the trees
//! as they go and cost what they touch. Those about the whole graph (`order`, `components`,
//! `stats`) read everything once into a `view` and work on that.
//!
//! Invariants: no algorithm recurses, so the depth of a graph is bounded by memory, not by the
//! stack. Every answer is a function of the snapshot alone: hash maps are never iterated, and each
//! algorithm says which answer it gives when there are several.

pub mod components;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod id_map;
mod keys;
mod kind_id;
mod lent;
#[cfg(test)]
mod memory;
pub mod order;
pub mod path;
pub mod reach;
mod record;
mod source;
pub mod stats;
pub mod traverse;
pub mod view;

pub use bowline_types::{Attributes, Block, BlockId, Direction, Edge};
pub use keys::{
    block_key, edge_in_key, edge_kind_prefix, edge_out_key, edge_prefix, split_edge_key,
};
pub use kind_id::KindId;
pub use lent::{AttributesRef, BlockRef, EdgeRef};
pub use order::Precedence;
pub use record::{block_kind, decode_block, decode_edge};
pub(crate) use record::{encode_block, encode_edge};
pub use source::{GraphSource, KindFilter, NeighborRef};
