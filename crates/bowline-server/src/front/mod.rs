//! The front: HTTP/2 of our own for the four calls that clients make most, and for watches.
//!
//! `Range`, `Put`, `DeleteRange` and `Txn` cost the HTTP and gRPC libraries several times what they cost the
//! database: each call has maps of headers, boxed bodies, tasks, and more than one write of its own. The front serves
//! these calls from the bytes of a frame to the bytes of a reply, and a watch's messages from its queue to the output.
//! Everything else on the same connection is carried to the libraries, which see it as a client's.
//!
//! ```text
//!            ┌ turn ─────────────────────────────────────────────┐
//!  client ──▶│ read ─▶ frame ─▶ head ─▶ hot ─▶ calls ─▶ reply    │──▶ client
//!            │              │                             ▲      │
//!            │              └─▶ relay ─▶ hyper, tonic ─▶ library  │
//!            └────────────────────────────────────────────────────┘
//! ```
//!
//! A connection that does not begin with HTTP/2's preface is handed to hyper with the bytes that were read.
//!
//! | module | |
//! |---|---|
//! | [`turn`] | reading, writing and the timers of a connection |
//! | [`connection`] | what follows from each frame of the client |
//! | [`windows`] | the windows and settings of the client |
//! | [`sending`] | replies, and the windows that they wait for |
//! | [`watches`], [`watching`] | watches: their requests and messages |
//! | [`library`], [`relay`] | all other streams |
//! | [`calls`] | the futures of the calls under way, and their wakers |
//! | [`head`], [`hot`], [`reply`], [`stream`] | the parts of a call |
//! | [`frame`], [`hpack`], [`huffman`] | the encoding |
//!
//! Invariants:
//!
//! - Bytes of a client never cause a panic.
//! - What a client makes the server keep is bounded: output by [`connection::OUT_BYTES_MAX`] and what the calls under
//!   way add, messages and replies by the connection's account, heads by the limit of headers, streams by their limit.
//! - A call has the same reply here and through the libraries.

mod calls;
mod connection;
mod frame;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod head;
mod hot;
mod hpack;
mod huffman;
mod library;
mod relay;
mod reply;
mod rewind;
mod sending;
mod stream;
#[cfg(test)]
mod tests;
mod turn;
mod watches;
mod watching;
mod windows;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tonic::Status;

use connection::Connection;
use frame::PREFACE;
use hot::HotReply;
pub(crate) use relay::Open;
pub(crate) use rewind::Rewind;
pub(crate) use turn::Front;

use crate::context::Context;
use crate::memory::Account;

/// The window of a stream for what the client sends.
pub(crate) const STREAM_WINDOW: u32 = 1 << 20;
/// The window of a connection for what the client sends.
pub(crate) const CONNECTION_WINDOW: u32 = 4 << 20;
/// The window of the library's connection behind the relay.
pub(crate) const RELAY_WINDOW: u32 = CONNECTION_WINDOW + connection::SLACK_BYTES;
/// The largest frame that a client may send.
pub(crate) const FRAME_BYTES: u32 = 64 << 10;

/// The limits of connections.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) streams_max: u32,
    pub(crate) header_bytes_max: u32,
    pub(crate) partial_timeout: Duration,
    pub(crate) unread_timeout: Duration,
    /// `None` without pings.
    pub(crate) keep_alive_interval: Option<Duration>,
    pub(crate) keep_alive_timeout: Duration,
}

/// Reads the preface. `Some` is what was read of a connection that does not begin with it.
pub(crate) async fn read_preface<S: AsyncRead + Unpin>(
    stream: &mut S,
) -> io::Result<Option<Vec<u8>>> {
    let mut read = [0; PREFACE.len()];
    let mut have = 0;
    while have < PREFACE.len() {
        let count = stream.read(&mut read[have..]).await?;
        have += count;
        if count == 0 || read[..have] != PREFACE[..have] {
            return Ok(Some(read[..have].to_vec()));
        }
    }
    Ok(None)
}

/// Serves a connection whose preface was read.
pub(crate) fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    context: &Arc<Context>,
    account: &Arc<Account>,
    limits: Limits,
    open: Open,
) -> Front<S, impl Future<Output = Result<HotReply, Status>> + use<S>> {
    // What a turn reads is bounded, so the calls in it need no bound of their own: with one, those beyond it would
    // be polled again although they had an answer.
    let start =
        |service, terms, request| tokio::task::unconstrained(hot::call(service, terms, request));
    let connection = Connection::new(context.clone(), account.clone(), start, limits, open);
    Front::new(stream, connection)
}
