//! The store a command works on: a directory, or the cluster that `--endpoints` names.
//!
//! A file imports only those below it:
//!
//! | file | what it is |
//! |---|---|
//! | `graph` | a graph to read and write, in either |
//! | `cluster_import` | the items of an import, into a cluster |
//! | `cluster_graph` | the graph of a cluster |
//! | `sink` | where the items of an import go; a directory's part of it |
//! | `resolve` | blocks by id or name |
//! | `graph_reader` | what graph commands ask; a directory's part of it |
//! | `connection` | a client of the cluster |

pub(crate) mod cluster_graph;
mod cluster_import;
pub(crate) mod connection;
pub(crate) mod graph;
pub(crate) mod graph_reader;
pub(crate) mod resolve;
pub(crate) mod sink;
