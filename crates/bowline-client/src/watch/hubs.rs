//! The streams of a client's watches: a shared one, and one for each watch with a separate stream.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::driver::Hub;
use crate::caller::Caller;

/// Gives a watch the way to a driver. Clones share the stream that is shared.
#[derive(Debug, Clone)]
pub(crate) struct Hubs {
    caller: Arc<Caller>,
    /// The stream that watches share, made with the first.
    shared: Arc<OnceLock<Hub>>,
}

impl Hubs {
    pub(crate) fn new(caller: Arc<Caller>) -> Hubs {
        Hubs {
            caller,
            shared: Arc::new(OnceLock::new()),
        }
    }

    /// The stream that watches share.
    pub(super) fn shared(&self) -> Hub {
        let spawn = || Hub::spawn(Arc::clone(&self.caller));
        self.shared.get_or_init(spawn).clone()
    }

    /// A stream of its own for one watch.
    pub(super) fn own(&self) -> Hub {
        Hub::spawn(Arc::clone(&self.caller))
    }

    /// How long the creation of a watch may take.
    pub(super) fn request_timeout(&self) -> Duration {
        self.caller.settings().request_timeout
    }
}
