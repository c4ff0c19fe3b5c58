//! Blocking work on the current thread of the runtime.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs `work` on this thread. If it may be long, the tasks queued on the thread move to another one, on a
/// runtime with several threads.
pub(crate) fn in_place<T>(is_long: bool, work: impl FnOnce() -> T) -> T {
    let has_others = || {
        let runtime = Handle::try_current();
        runtime.is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread)
    };
    match is_long && has_others() {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}
