//! Leases: grants, renewals and revocations; a lease that is not renewed in time ends, and its keys are deleted.
//!
//! ```text
//!   keep_alive    a task that renews one ──▶ moment    times that go on while the machine is suspended
//!      │
//!      ├──▶ seconds    etcd's calls
//!      └──▶ exact      the calls of `bowline.v1`, in milliseconds
//!             └──▶ reply
//! ```

pub(crate) mod exact;
mod keep_alive;
mod moment;
mod reply;
pub(crate) mod seconds;

pub use keep_alive::KeepAlive;
pub use reply::{GrantReply, RevokeReply, TimeToLive};
