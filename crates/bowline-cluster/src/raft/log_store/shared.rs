//! The state shared by the handles, the readers and the writing thread.

use std::sync::Arc;

use bowline_storage::histogram::Histogram;
use bowline_storage::log::{Log, LogSync};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::options::LogStoreOptions;
use super::queue::Queue;
use super::view::View;
use crate::member_file::MemberFile;

/// The shared state.
pub(super) struct Shared {
    /// The thread writes; readers read entries that are no longer in the view.
    pub(super) log: Mutex<Option<Log>>,
    pub(super) view: Mutex<View>,
    pub(super) queue: Queue,
    pub(super) sync: LogSync,
    /// Whether the log is short of space, as last seen by the thread.
    pub(super) is_short: watch::Sender<bool>,
    pub(super) member: Arc<MemberFile>,
    pub(super) options: LogStoreOptions,
    pub(super) flush_times: Histogram,
}
