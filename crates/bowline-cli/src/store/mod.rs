//! The store a command works on: a directory, or the cluster that `--endpoints` names.
//!
//! A file imports only those below it:
//!
//! | file | what it is |
//! |---|---|
//! | `target` | a directory or a cluster, with a method for each verb |
//! | `remote_sink` | the items of an import, into a cluster |
//! | `sink` | the items of an import, into a directory |
//! | `resolve` | blocks by id or name, and their labels |
//! | `graph` | the graph of a view |
//! | `view` | a target at one revision, and its keys |
//! | `watch`, `history` | changes of keys: those to come, and those of the past |
//! | `remote` | a client of the cluster |

/// Sets of a request what is given. The library and the client name their settings alike.
macro_rules! set {
    ($request:expr, $($setting:ident($value:expr)),+) => {{
        let mut request = $request;
        $(if let Some(value) = $value {
            request = request.$setting(value);
        })+
        request
    }};
}

pub(crate) mod graph;
mod history;
pub(crate) mod remote;
mod remote_sink;
pub(crate) mod resolve;
pub(crate) mod sink;
pub(crate) mod target;
pub(crate) mod view;
mod watch;
