//! Conversion between wire messages and the node's commands.
//!
//! Requests are checked here, so that every command in the log is one that etcd would accept: what can be
//! refused without reading data is refused here. etcd's types allow negative numbers and ours do not; they
//! are mapped to what they mean in etcd.

pub(crate) mod cypher;
mod duplicates;
pub(crate) mod graph;
mod reply;
mod request;
pub(crate) mod store;

pub(crate) use duplicates::check_duplicates;
pub(crate) use reply::{delete_reply, key_value, put_reply, range_reply, txn_reply};
pub(crate) use request::{delete_op, put_op, range_op, txn};

#[cfg(test)]
mod tests;
