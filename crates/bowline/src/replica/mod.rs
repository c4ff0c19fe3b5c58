//! What a cluster applies to the database of each of its members.

mod command;

pub use command::*;
