//! Members of a cluster, and the upkeep of each.

mod members;
mod snapshot;
mod upkeep;

pub use members::{AddReply, Member, Members};
pub use snapshot::Snapshot;
pub use upkeep::{Alarm, AlarmKind, HashKv, Status};
