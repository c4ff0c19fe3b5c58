//! Shortest paths between two blocks: by the number of edges ([`unweighted`]) or by the sum of an
//! attribute of the edges ([`weighted`]).

pub mod unweighted;
pub mod weighted;

use super::kind_id::KindId;

/// A path whose kinds are numbers.
pub type Path = bowline_types::Path<KindId>;
