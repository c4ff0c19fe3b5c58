//! The store a command works on: a directory, or the cluster that `--endpoints` names.
//!
//! A file imports only those below it:
//!
//! | file | what it is |
//! |---|---|
//! | `target` | a directory or a cluster, with a method for each verb |
//! | `remote_sink` | the items of an import, into a cluster |
//! | `bulk` | the blocks and edges of an import, into a directory, all or nothing |
//! | `sink` | the items of an import, into a directory |
//! | `resolve` | blocks by id or name, and their labels |
//! | `algorithms` | the algorithms on the graph of a view |
//! | `graph` | the graph of a view |
//! | `view` | a target at one revision, and its keys |
//! | `watch`, `history` | changes of keys: those to come, and those of the past |

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

/// Sends a request at the level of the command line and at the revision of the view; gives the reply.
macro_rules! ask {
    ($view:expr, $request:expr) => {
        ask!($view, $request, revision)
    };
    ($view:expr, $request:expr, $($revision:tt)+) => {{
        let (view, request): (&$crate::store::view::RemoteView<'_>, _) = ($view, $request);
        let request = request.level(view.remote.level).revision(view.revision.get());
        let reply = view.remote.wait(request)?;
        view.revision.set(reply.$($revision)+);
        reply
    }};
}

pub(crate) mod algorithms;
pub(crate) mod bulk;
pub(crate) mod graph;
pub(crate) mod history;
mod remote_sink;
pub(crate) mod resolve;
pub(crate) mod sink;
pub(crate) mod target;
pub(crate) mod view;
mod watch;
