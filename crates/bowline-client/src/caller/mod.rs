//! The caller: sends a request to an endpoint, and fails over to the next. The one retry rule of the client.
//!
//! A client stays with an endpoint, so that its own eventual reads never go back in time while nothing
//! fails. What follows a failure depends on what is known of the request; see [`crate::error`].
//!
//! Invariant: a request of [`Repeat::Never`] is put on a connection at most once.

mod endpoint;
mod settings;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prost::Message;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::error::{Error, Result};

pub(crate) use endpoint::Endpoint;
pub(crate) use settings::Settings;

/// The metadata with which a request is refused by a member that knows no leader.
const HAS_LEADER: &str = "hasleader";
/// The metadata that authenticates a request.
const TOKEN: &str = "token";

/// Whether a request may reach a server twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It changes nothing, or twice is the same as once.
    Always,
    /// It changes something.
    Never,
}

/// Sends the requests of a client. Cloning it is cheap, and clones share connections.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    endpoints: Vec<Arc<Endpoint>>,
    /// Which endpoint is used, counted up with each failure; modulo their number.
    current: AtomicUsize,
    settings: Settings,
    token: Option<AsciiMetadataValue>,
}

impl Caller {
    pub(crate) fn new(settings: Settings) -> Result<Caller> {
        let endpoints = settings
            .endpoints
            .iter()
            .map(|address| Ok(Arc::new(Endpoint::new(address, &settings)?)))
            .collect::<Result<_>>()?;
        let token = settings.token.as_deref().map(|token| {
            token.parse().map_err(|_| Error::InvalidArgument {
                message: "the token has characters that cannot be sent".to_owned(),
            })
        });
        let shared = Shared {
            endpoints,
            current: AtomicUsize::new(0),
            token: token.transpose()?,
            settings,
        };
        Ok(Caller {
            shared: Arc::new(shared),
        })
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Goes to the first endpoint that can be reached.
    pub(crate) async fn probe(&self) -> Result<()> {
        let mut last = None;
        for _ in &self.shared.endpoints {
            let (turn, endpoint) = self.current();
            match endpoint.probe().await {
                Ok(()) => return Ok(()),
                Err(error) => last = Some(error),
            }
            self.leave(turn);
        }
        Err(last.unwrap_or(Error::TimedOut))
    }

    /// The endpoint in use, and the turn to give to [`leave`](Caller::leave) when it fails.
    pub(crate) fn current(&self) -> (usize, Arc<Endpoint>) {
        let turn = self.shared.current.load(Ordering::Acquire);
        (
            turn,
            Arc::clone(&self.shared.endpoints[turn % self.shared.endpoints.len()]),
        )
    }

    /// Goes on to the next endpoint, unless another request did so already.
    pub(crate) fn leave(&self, turn: usize) {
        // Losing this race means that the endpoint has been left.
        let _ = self.shared.current.compare_exchange(
            turn,
            turn.wrapping_add(1),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
    }

    /// A request with the metadata of this client.
    pub(crate) fn request<M>(&self, message: M, require_leader: bool) -> Request<M> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        if let Some(token) = &self.shared.token {
            metadata.insert(TOKEN, token.clone());
        }
        if require_leader || self.shared.settings.require_leader {
            metadata.insert(HAS_LEADER, AsciiMetadataValue::from_static("true"));
        }
        request
    }

    /// Sends a request that changes nothing, and waits for its answer.
    pub(crate) async fn read<M, R, F>(
        &self,
        message: M,
        send: impl Fn(Channel, Request<M>) -> F,
    ) -> Result<(R, MetadataMap)>
    where
        M: Message + Clone,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        self.call(Repeat::Always, None, message, send).await
    }

    /// Sends a request that changes something, at most once, and waits for its answer.
    pub(crate) async fn write<M, R, F>(
        &self,
        message: M,
        send: impl Fn(Channel, Request<M>) -> F,
    ) -> Result<(R, MetadataMap)>
    where
        M: Message + Clone,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        self.call(Repeat::Never, None, message, send).await
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn call<M, R, F>(
        &self,
        repeat: Repeat,
        metadata: Option<(&'static str, &'static str)>,
        message: M,
        send: impl Fn(Channel, Request<M>) -> F,
    ) -> Result<(R, MetadataMap)>
    where
        M: Message + Clone,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        if message.encoded_len() > self.shared.settings.request_bytes_max {
            return Err(Error::RequestTooLarge);
        }
        let deadline = Instant::now() + self.shared.settings.request_timeout;
        let mut pause = PAUSE_MIN;
        let mut tries = 0;
        loop {
            let (turn, endpoint) = self.current();
            let mut request = self.request(message.clone(), false);
            if let Some((name, value)) = metadata {
                let value = AsciiMetadataValue::from_static(value);
                request.metadata_mut().insert(name, value);
            }
            let sent = timeout_at(deadline, send(endpoint.channel(), request)).await;
            let error = match sent {
                Ok(Ok(response)) => {
                    let (metadata, message, _) = response.into_parts();
                    return Ok((message, metadata));
                }
                Ok(Err(status)) => Error::from_status(&status, endpoint.address()),
                Err(_) => Error::TimedOut,
            };
            // One that is silent is left, too: its connection may be dead without anybody knowing.
            if error.is_of_endpoint() || matches!(error, Error::TimedOut) {
                self.leave(turn);
            }
            // A member that is asked for what only others do has done nothing.
            let is_refused = matches!(error, Error::NotLeader | Error::NotForLearner);
            if is_refused {
                self.leave(turn);
            }
            let again = is_refused
                || match repeat {
                    Repeat::Always => error.is_of_endpoint(),
                    Repeat::Never => matches!(error, Error::Unreachable { .. }),
                };
            tries += 1;
            // Two rounds: a connection that broke while it was idle fails once at every endpoint.
            if !again || tries >= 2 * self.shared.endpoints.len().max(2) {
                return Err(match repeat {
                    Repeat::Always => error,
                    Repeat::Never => error.of_change(),
                });
            }
            if tries % self.shared.endpoints.len() == 0 {
                // A whole round failed. A new leader takes a moment.
                if Instant::now() + pause >= deadline {
                    return Err(error);
                }
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// How long to wait after all endpoints failed, at first and at most.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(50);
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(1);
