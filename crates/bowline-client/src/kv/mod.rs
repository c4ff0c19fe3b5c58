//! Keys and values: reading, writing, deleting, transactions.

mod delete;
mod get;
mod put;
mod txn;

pub use delete::{Delete, DeleteReply};
pub use get::{Get, RangeReply, SortBy};
pub use put::{Put, PutReply};
pub use txn::{Compare, Comparison, Operation, OperationReply, Txn, TxnReply};
