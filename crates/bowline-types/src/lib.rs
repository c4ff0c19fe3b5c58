//! The vocabulary that the library, the cluster and the client share: ids, blocks, edges, and the results of
//! graph queries.
//!
//! These types have no behaviour that needs a database. Users meet them as `bowline::Block` in one process and as
//! `bowline_client::graph::Block` over the network: it is the same type, so a program can use either without a
//! conversion.
//!
//! ```text
//!   block_id     ids of blocks
//!   lease_id     ids of leases
//!   member_id    ids of members of a cluster
//!   revision     numbers of committed transactions
//!   block_kinds  the kinds of a block
//!   attribute    values of attributes
//!   calendar     types of time
//!   graph        blocks, edges, directions, writes of the graph
//!   id_map       hash maps and sets by block
//!   answer       neighbors, traversals, paths, figures
//!   expected     what a compare-and-swap expects
//!   isolation    what a transaction rests on
//!   touched      what a conflict names
//!   key          keys as errors show them
//!   quota        what the keys below a prefix may take
//!   index        an index of blocks
//!   read_level   how new a read must be
//!   update       changes that depend on the value there is
//! ```

mod answer;
mod attribute;
mod block_id;
mod block_kinds;
mod calendar;
mod expected;
mod graph;
mod id_map;
mod index;
mod isolation;
mod key;
mod lease_id;
mod member_id;
mod quota;
mod read_level;
mod revision;
mod touched;
mod update;

pub use answer::{GraphStats, Neighbor, Path, Stop, Traversal, Visit};
pub use attribute::{AttributeValue, Attributes};
pub use block_id::{BlockId, ParseBlockIdError};
pub use block_kinds::BlockKinds;
pub use calendar::{
    Duration, OffsetTime, ParseTimeError, ZonedInstant, nanos_of, parse_date, parse_datetime,
    show_date, show_datetime, show_offset, show_time, time_of,
};
pub use expected::Expected;
pub use graph::{Block, Direction, Edge, EdgeKey, GraphWrite};
pub use id_map::{IdHasher, IdHashing, IdMap, IdSet};
pub use index::Index;
pub use isolation::Isolation;
pub use key::show_key;
pub use lease_id::{LeaseId, ParseLeaseIdError};
pub use member_id::{MemberId, ParseMemberIdError};
pub use quota::{Quota, QuotaLimits, QuotaUse};
pub use read_level::ReadLevel;
pub use revision::Revision;
pub use touched::Touched;
pub use update::{NewValue, Update, UpdateError};
