//! The state that the handles, the readers and the writing thread share.

use std::sync::Arc;

use bowline_storage::log::{Log, LogSync};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::options::LogStoreOptions;
use super::queue::Queue;
use super::view::View;
use crate::histogram::Histogram;
use crate::member_file::MemberFile;

/// What the handles, the readers and the thread share.
pub(super) struct Shared {
    /// The thread writes; readers read entries that are no longer in the view.
    pub(super) log: Mutex<Option<Log>>,
    pub(super) view: Mutex<View>,
    pub(super) queue: Queue,
    pub(super) sync: LogSync,
    /// Whether it is short of space, as the thread saw it last.
    pub(super) is_short: watch::Sender<bool>,
    pub(super) member: Arc<MemberFile>,
    pub(super) options: LogStoreOptions,
    pub(super) flush_times: Histogram,
}
