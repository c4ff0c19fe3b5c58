//! What comes back of a lease's calls, in seconds and in milliseconds alike.

use std::time::Duration;

use bytes::Bytes;

use crate::Header;

/// What came of granting a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrantReply {
    /// What comes with every answer.
    pub header: Header,
    /// The lease.
    pub id: i64,
    /// How long it lives; may be more than was asked for.
    pub ttl: Duration,
}

/// How long a lease has left.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimeToLive {
    /// What comes with every answer.
    pub header: Header,
    /// The lease.
    pub id: i64,
    /// What it was granted.
    pub granted: Duration,
    /// What is left of it.
    pub remaining: Duration,
    /// Its keys, if they were asked for.
    pub keys: Vec<Bytes>,
}
