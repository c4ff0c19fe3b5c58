//! As much of gRPC over HTTP/2 as a load generator needs, and no more.
//!
//! A load generator shares the machine with the measured server, so its own cost lowers the result. General
//! clients spend more on a call than the servers here do. This client knows all of its requests in advance:
//!
//! - the headers of a request are the same each time, so after the first one on a connection they are a
//!   handful of bytes that refer to it;
//! - a message differs from the one before in its key only, which is written over a copy;
//! - all requests that are due are written at once, and all replies that have arrived are read at once;
//! - of a reply, the status is checked and the rest is counted.
//!
//! To the server it is a client like any other: nothing in it is special to one implementation.
//!
//! [`headers`] are the compressed headers, [`Connection`] is the protocol without input and output,
//! [`Link`] is a socket with a connection on it, in the clear or with TLS, and [`Way`] says which of them, and whose requests
//! they are.

mod connection;
mod headers;
mod link;
mod way;

pub(crate) use connection::{End, Sink};
pub(crate) use headers::Target;
pub(crate) use link::Link;
pub(crate) use way::Way;

/// A message of gRPC: its length, then its bytes.
pub(crate) fn with_prefix(body: &[u8]) -> Vec<u8> {
    let mut message = vec![0];
    message.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
    message.extend_from_slice(body);
    message
}
