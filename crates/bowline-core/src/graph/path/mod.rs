//! Shortest paths between two blocks: by the number of edges ([`unweighted`]) or by the sum of an
//! attribute of the edges ([`weighted`]).

pub mod unweighted;
pub mod weighted;

use super::kind_id::KindId;
use bowline_types::Direction;

/// A path whose kinds are numbers.
pub type Path = bowline_types::Path<KindId>;

/// An edge of a path: two blocks may have one of a kind each way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathEdge {
    /// Its kind.
    pub kind: KindId,
    /// [`Direction::In`] when it leads to the block before, else [`Direction::Out`].
    pub direction: Direction,
}

/// A path that says which way each of its edges leads.
pub type DirectedPath = bowline_types::Path<PathEdge>;
