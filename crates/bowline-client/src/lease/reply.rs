//! The results of lease calls.

use std::time::Duration;

use bytes::Bytes;

use crate::Header;

/// The result of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrantReply {
    /// The reply header.
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
    /// The reply header.
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
