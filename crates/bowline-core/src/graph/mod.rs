//! The graph: records of blocks and edges, and graph algorithms.
//!
//! ```text
//!    lent                  borrowed blocks and edges
//!    typed                 encoding of values of attributes
//!    record, keys          encoding in the trees `block`, `edge_out`, `edge_in`
//!        |
//!    source                the interface of a snapshot for algorithms
//!        |          \
//!        |         view    the whole graph with dense numbers as ids, for one question
//!        |            \
//!      walk           order
//!        |            components
//!    traverse         stats
//!    reach, path      algorithms
//!    selected
//! ```
//!
//! `csr` keeps all edges in memory, with dense numbers, beside the trees; every commit changes it. `block_cache` holds what
//! queries have read of blocks.
//!
//! Local algorithms start at a block (`traverse`, `reach`, `path`) and read only the part of the trees that
//! they visit. Global algorithms (`order`, `components`, `stats`) first read the whole graph into a `view`. The folder
//! `algorithms` has both sorts. A `cancel` ends those that may take long.
//!
//! Invariants: no algorithm recurses, so the depth of a graph is bounded by memory, not by the
//! stack. Every result is a function of the snapshot alone: hash maps are never iterated, and each
//! algorithm defines which of several results it gives.

pub mod algorithms;
mod block_cache;
pub mod cancel;
pub mod components;
pub mod csr;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod keys;
mod kind_id;
mod lent;
#[cfg(test)]
mod memory;
pub mod order;
pub mod path;
pub mod reach;
mod record;
pub mod selected;
mod source;
pub mod stats;
pub mod traverse;
pub(crate) mod typed;
pub mod view;
pub mod visits;
pub mod walk;
mod weighted_view;

pub use block_cache::{AskedNames, BlockCache, HeldBlock, HeldValue};
pub use bowline_types::{Attributes, Block, BlockId, BlockKinds, Direction, Edge};
pub use keys::{
    block_key, edge_in_key, edge_kind_prefix, edge_out_key, edge_prefix, split_edge_key,
};
pub use kind_id::{KindId, KindIds};
pub use lent::{AttributeRef, AttributesRef, BlockRef, EdgeRef};
pub use order::Precedence;
pub use record::{BlockParts, are_texts, block_kinds, decode_block, decode_edge};
pub(crate) use record::{encode_block, encode_edge};
pub use source::{GraphSource, KindFilter, NeighborRef, VisitEdgeValue};
pub use typed::{put_value, read_value};
