//! Conversions between the messages of the wire and the node's commands.
//!
//! Requests are checked on the way in, so that a command that reaches the log is one that etcd
//! would have taken: what can be refused without looking at the data is refused here. Numbers below
//! 0, which etcd's types allow and ours do not, become what they would have meant.

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
