//! Watches, which reconnect and resume after a lost connection.
//!
//! ```text
//!   Watcher ◀── queue ── driver (one task) ◀── stream ── an endpoint
//!      │                   ▲     │                          │
//!      └── drained, drop ──┘     └── breaks: the next one ──┘
//! ```
//!
//! All watches of a client share one stream, except those with a separate stream. A task, the *driver*, owns
//! the stream and the state of each watch, its *subscription* with the next undelivered revision. When the
//! stream breaks, the driver opens one at the next endpoint and creates every watch again from that revision.
//!
//! A slow watcher does not delay others: when its queue is full, the driver cancels its watch at the server,
//! and creates it again from the next revision when the queue is empty. So the memory of a watch is bounded
//! by its queue and the largest message.
//!
//! # Invariants
//!
//! - A change is put into the queue once, in the order of revisions.
//! - The next revision of a subscription is one above the last that is in its queue, or that the server
//!   said has nothing for it.
//! - Each creation has a number of its own on the wire, so that what a server still sends for an earlier
//!   one is told apart and dropped.
//! - What a server says of the progress of the whole stream counts for the watches that it has confirmed
//!   there, and for no other. A request for progress is sent again at each confirmation of its watch, until it is
//!   answered.

mod driver;
mod event;
mod hubs;
mod options;
mod subscription;
mod watcher;

pub use event::{Batch, Event, EventKind};
pub use options::Watch;
pub use watcher::Watcher;

pub(crate) use hubs::Hubs;
