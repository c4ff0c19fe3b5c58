//! Shortest paths between two blocks: by the number of edges ([`unweighted`]) or by the sum of an
//! attribute of the edges ([`weighted`]).

pub mod unweighted;
pub mod weighted;

use super::id::BlockId;
use super::types::KindId;

/// A way from one block to another.
#[derive(Clone, PartialEq, Debug)]
pub struct Path {
    /// The blocks on the way, both ends included. One block when it leads nowhere else.
    pub blocks: Vec<BlockId>,
    /// The kinds of the edges between them: `kinds[i]` ties `blocks[i]` to `blocks[i + 1]`.
    pub kinds: Vec<KindId>,
    /// The sum of the weights, or the number of edges when they have none.
    pub cost: f64,
}

impl Path {
    /// The path from a block to itself.
    fn trivial(id: BlockId) -> Path {
        Path {
            blocks: vec![id],
            kinds: Vec::new(),
            cost: 0.0,
        }
    }
}
