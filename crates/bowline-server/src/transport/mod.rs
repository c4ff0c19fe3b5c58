//! Connections: HTTP/1.1 and HTTP/2 on one port, and the dispatch of their requests.
//!
//! There are no middleware layers between connection and services: a layer of the usual kind would box each
//! call, and copy what it needs of it.

mod audited;
mod bodies;
mod charged;
mod deadline;
mod dispatch;
mod executor;
mod listener;
mod read_deadline;
mod rights;
#[cfg(test)]
mod rights_tests;
mod tallied;

pub(crate) use dispatch::Dispatch;
pub(crate) use listener::{ConnectionOptions, Listener};
