//! Leases: keys that are deleted when nobody keeps them alive.
//!
//! ```text
//!   keep_alive   a task that renews a lease until it is dropped
//!       │
//!   exact        calls of `bowline.v1`, in milliseconds
//!       │
//!   calls        calls of etcd, in seconds
//! ```

mod calls;
mod exact;
mod keep_alive;

pub use calls::{GrantReply, TimeToLive};
pub use keep_alive::KeepAlive;

pub(crate) use calls::{
    grant_lease, grant_lease_with_id, keep_alive_once, leases, revoke_lease, time_to_live,
};
pub(crate) use exact::{
    grant_lease_ms, grant_lease_ms_with_id, keep_alive_ms_once, time_to_live_ms,
};
