//! The streams of a client's watches: one that they share, made with the first, or one of their own.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::driver::Hub;
use crate::caller::Caller;

#[derive(Debug, Clone)]
pub(crate) struct Streams {
    caller: Caller,
    shared: Arc<OnceLock<Hub>>,
}

impl Streams {
    pub(crate) fn new(caller: Caller) -> Streams {
        Streams {
            caller,
            shared: Arc::new(OnceLock::new()),
        }
    }

    pub(super) fn shared(&self) -> Hub {
        let hub = self.shared.get_or_init(|| self.own());
        hub.clone()
    }

    pub(super) fn own(&self) -> Hub {
        Hub::spawn(self.caller.clone())
    }

    /// How long a server may take to confirm a watch.
    pub(super) fn timeout(&self) -> Duration {
        self.caller.settings().request_timeout
    }
}
