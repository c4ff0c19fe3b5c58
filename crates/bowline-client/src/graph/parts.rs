//! [`Parts`]: a reply that is read part by part.
//!
//! Invariant: a stream that ends without its last part is an error.

use std::sync::Arc;

use bowline_proto::v1 as pb;
use bowline_types::Revision;
use tokio::time::timeout;
use tonic::Streaming;

use crate::caller::Caller;
use crate::v1::{cut_off, header, typed};
use crate::{Error, Result};

/// The parts of an answer, one after the other. A broken stream does not resume: it gives an error.
#[derive(Debug)]
pub(super) struct Parts<R> {
    caller: Arc<Caller>,
    stream: Streaming<R>,
    inspect: fn(&R) -> (Option<pb::Header>, bool),
    /// The first part, until it is taken.
    first: Option<R>,
    pub(super) revision: Revision,
    is_done: bool,
}

impl<R> Parts<R> {
    /// Waits for the first part, which has the header.
    pub(super) async fn begin(
        caller: Arc<Caller>,
        stream: Streaming<R>,
        inspect: fn(&R) -> (Option<pb::Header>, bool),
    ) -> Result<Parts<R>> {
        let mut parts = Parts {
            caller,
            stream,
            inspect,
            first: None,
            revision: Revision::ZERO,
            is_done: false,
        };
        let first = parts.receive().await?.ok_or_else(cut_off)?;
        (_, parts.revision) = header(inspect(&first).0)?;
        parts.first = Some(first);
        Ok(parts)
    }

    async fn receive(&mut self) -> Result<Option<R>> {
        if self.is_done {
            return Ok(None);
        }
        let request_timeout = self.caller.settings().request_timeout;
        let part = match timeout(request_timeout, self.stream.message()).await {
            Ok(Ok(Some(part))) => part,
            Ok(Ok(None)) => return Err(cut_off()),
            Ok(Err(status)) => {
                let (_, endpoint) = self.caller.endpoints().current();
                return Err(typed(Error::from_status(&status, endpoint.address())));
            }
            Err(_) => return Err(Error::TimedOut),
        };
        self.is_done = (self.inspect)(&part).1;
        Ok(Some(part))
    }

    pub(super) async fn next(&mut self) -> Result<Option<R>> {
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.receive().await,
        }
    }
}
