//! [`Caller`]: sends every request of a client, and holds the one retry rule.
//!
//! | the request | is sent again, to the next endpoint, after |
//! |---|---|
//! | changes nothing ([`Repeat::Always`]) | every failure of the endpoint |
//! | changes something ([`Repeat::Never`]) | a connection that could not be made: nothing was sent |
//! | either | the refusal of a member that cannot serve it |
//! | either, to any endpoint | the refusal of its token, once, after a login anew |
//!
//! [`crate::error`] explains what each failure means for a request.
//!
//! A server refuses a token before it does anything of the request, so this repeats nothing. The login is a request of its
//! own, of [`Repeat::Always`]: a token that nobody uses ends by itself. Streams that other modules open show the token of
//! [`Caller::shown`], and log in anew as requests do when they are refused.
//!
//! Invariant: a request of [`Repeat::Never`] is put on a connection at most once, or refused before.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bowline_proto::etcdserverpb::AuthenticateRequest;
use bowline_proto::etcdserverpb::auth_client::AuthClient;
use prost::Message;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::endpoints::Endpoints;
use crate::login::{Login, Shown, Turn, as_metadata};
use crate::settings::Settings;
use crate::{Error, Result};

/// The future of a request.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::{BoxFuture, RangeReply};
/// use std::future::IntoFuture;
///
/// // Requests that are sent later, such as all at once.
/// let later: Vec<BoxFuture<RangeReply>> =
///     ["a", "b"].into_iter().map(|key| client.get(key).into_future()).collect();
/// for read in later {
///     println!("{:?}", read.await?.value());
/// }
/// # Ok(())
/// # }
/// ```
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// The metadata that makes a member without a leader refuse a request.
const HAS_LEADER: &str = "hasleader";
/// The metadata with the authentication token.
const TOKEN: &str = "token";

/// Whether a request may reach a server twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It changes nothing, or twice is the same as once.
    Always,
    /// It changes something.
    Never,
}

impl Repeat {
    /// An error, as the end of such a request that was sent.
    pub(crate) fn ended(self, error: Error) -> Error {
        match self {
            Repeat::Always => error,
            Repeat::Never => error.of_change(),
        }
    }
}

/// Sends the requests of a client.
#[derive(Debug)]
pub(crate) struct Caller {
    endpoints: Endpoints,
    settings: Settings,
    login: Login,
}

impl Caller {
    pub(crate) fn new(settings: Settings) -> Result<Caller> {
        let endpoints = Endpoints::new(&settings)?;
        Ok(Caller {
            endpoints,
            login: Login::new(&settings)?,
            settings,
        })
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// A request with the metadata of this client.
    pub(crate) fn request<M>(&self, message: M, require_leader: bool, shown: &Shown) -> Request<M> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        if let Some(token) = &shown.token {
            metadata.insert(TOKEN, token.clone());
        }
        if require_leader || self.settings.require_leader {
            metadata.insert(HAS_LEADER, AsciiMetadataValue::from_static("true"));
        }
        request
    }

    /// What a request shows of this client. Logs in first, if it has a user and this is its first request.
    pub(crate) async fn shown(&self) -> Result<Shown> {
        let deadline = Instant::now() + self.settings.request_timeout;
        self.shown_until(deadline).await
    }

    async fn shown_until(&self, deadline: Instant) -> Result<Shown> {
        match self.login.shown() {
            Some(shown) => Ok(shown),
            None => Box::pin(self.log_in(None, deadline)).await,
        }
    }

    /// What requests show of this client now; `None` before its first login.
    pub(crate) fn shown_now(&self) -> Option<Shown> {
        self.login.shown()
    }

    /// Whether a login may help after this error.
    pub(crate) fn may_log_in(&self, error: &Error) -> bool {
        self.login.may_help(error)
    }

    /// Logs in anew after a server has refused what it was shown.
    pub(crate) async fn shown_after(&self, refused: &Shown) -> Result<Shown> {
        let deadline = Instant::now() + self.settings.request_timeout;
        self.log_in(Some(refused), deadline).await
    }

    async fn log_in(&self, refused: Option<&Shown>, deadline: Instant) -> Result<Shown> {
        let turn = match timeout_at(deadline, self.login.turn(refused)).await {
            Ok(turn) => turn?,
            Err(_) => return Err(Error::TimedOut),
        };
        let turn = match turn {
            Turn::Done(shown) => return Ok(shown),
            Turn::Mine(turn) => turn,
        };
        let message = AuthenticateRequest {
            name: turn.user.name.clone(),
            password: turn.user.password.0.clone(),
        };
        let send = |channel, message| async move {
            AuthClient::new(channel)
                .authenticate(Request::new(message))
                .await
        };
        let replied = self.attempt(Repeat::Always, deadline, &message, send).await;
        let outcome = match replied {
            Ok((reply, _)) => match as_metadata(&reply.token) {
                Some(token) if !reply.token.is_empty() => Ok(Some(token)),
                _ => Err(Error::InvalidReply {
                    message: "the login gave a token that cannot be sent".to_owned(),
                }),
            },
            // There is nobody to log in as. Once there is, a request is refused for want of a user.
            Err(Error::AuthNotEnabled) => Ok(None),
            Err(error) => Err(error),
        };
        turn.end(outcome)
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
        let timeout = self.settings.request_timeout;
        self.call_within(timeout, repeat, metadata, message, send)
            .await
    }

    /// Sends a request of [`Repeat::Always`] whose answer takes as long as its work. A server that is silent because it is
    /// gone is found out by its connection, which is kept alive.
    pub(crate) async fn call_for_long<M, R, F>(
        &self,
        message: M,
        send: impl Fn(Channel, Request<M>) -> F,
    ) -> Result<(R, MetadataMap)>
    where
        M: Message + Clone,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        self.call_within(LONG, Repeat::Always, None, message, send)
            .await
    }

    async fn call_within<M, R, F>(
        &self,
        timeout: Duration,
        repeat: Repeat,
        metadata: Option<(&'static str, &'static str)>,
        message: M,
        send: impl Fn(Channel, Request<M>) -> F,
    ) -> Result<(R, MetadataMap)>
    where
        M: Message + Clone,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let deadline = Instant::now() + timeout;
        // A login takes no longer than any request.
        let log_in_by = || deadline.min(Instant::now() + self.settings.request_timeout);
        let mut shown = self.shown_until(log_in_by()).await?;
        let mut may_log_in = true;
        loop {
            let send = |channel, message| {
                let mut request = self.request(message, false, &shown);
                if let Some((name, value)) = metadata {
                    let value = AsciiMetadataValue::from_static(value);
                    request.metadata_mut().insert(name, value);
                }
                send(channel, request)
            };
            let replied = self.attempt(repeat, deadline, &message, send).await;
            match replied {
                // It was refused before anything of it was done.
                Err(error) if may_log_in && self.login.may_help(&error) => {
                    may_log_in = false;
                    shown = Box::pin(self.log_in(Some(&shown), log_in_by())).await?;
                }
                replied => return replied,
            }
        }
    }

    /// Sends a request until an endpoint has answered it, or no other one may be tried.
    async fn attempt<M, R, F>(
        &self,
        repeat: Repeat,
        deadline: Instant,
        message: &M,
        send: impl Fn(Channel, M) -> F,
    ) -> Result<(R, MetadataMap)>
    where
        M: Message + Clone,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        if message.encoded_len() > self.settings.request_bytes_max {
            return Err(Error::RequestTooLarge);
        }
        let mut pause = PAUSE_MIN;
        let mut tries = 0;
        loop {
            let (turn, endpoint) = self.endpoints.current();
            let sent = timeout_at(deadline, send(endpoint.channel(), message.clone())).await;
            let error = match sent {
                Ok(Ok(response)) => {
                    let (metadata, message, _) = response.into_parts();
                    return Ok((message, metadata));
                }
                Ok(Err(status)) => {
                    endpoint.explained(Error::from_status(&status, endpoint.address()))
                }
                Err(_) => Error::TimedOut,
            };
            // A silent endpoint is left, too: its connection may be dead.
            if error.is_of_endpoint() || matches!(error, Error::TimedOut) {
                self.endpoints.leave(turn);
            }
            // A member that refused to serve the request has done nothing.
            let is_refused = matches!(
                error,
                Error::NotLeader | Error::NotForLearner | Error::NotServing { .. }
            );
            if is_refused {
                self.endpoints.leave(turn);
            }
            let again = is_refused
                || match repeat {
                    Repeat::Always => error.is_of_endpoint(),
                    Repeat::Never => matches!(error, Error::Unreachable { .. }),
                };
            tries += 1;
            // Two rounds: a connection that broke while it was idle fails once at every endpoint.
            if !again || tries >= 2 * self.endpoints.count().max(2) {
                return Err(repeat.ended(error));
            }
            if tries % self.endpoints.count() == 0 {
                // A whole round failed. A new leader takes a moment.
                if Instant::now() + pause >= deadline {
                    return Err(repeat.ended(error));
                }
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// More than any work takes.
const LONG: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// How long to wait after all endpoints failed, at first and at most.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(50);
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::Client;

    /// A caller of two members, of which the first refuses each request. Gives the error of a request, and how often it was
    /// sent.
    async fn refused(repeat: Repeat, why: &Status) -> (Result<()>, usize) {
        let client = Client::builder()
            .endpoints(["127.0.0.1:1", "127.0.0.1:2"])
            .connect_lazy()
            .unwrap();
        let caller = client.caller();
        let sent = AtomicUsize::new(0);
        let send = |_, _: Request<()>| {
            sent.fetch_add(1, Ordering::Relaxed);
            let is_first = caller.endpoints().current().1.address() == "127.0.0.1:1";
            let why = why.clone();
            async move {
                match is_first {
                    true => Err(why),
                    false => Ok(Response::new(())),
                }
            }
        };
        let called = caller.call(repeat, None, (), send).await;
        (called.map(drop), sent.into_inner())
    }

    async fn asked(repeat: Repeat) -> (Result<()>, usize) {
        refused(repeat, &Status::data_loss("db/tables/7.table is damaged")).await
    }

    /// The member whose data differs refuses each read, and its clients stayed with it, while the others had what was asked
    /// for.
    #[tokio::test]
    async fn a_read_leaves_a_member_whose_data_differs() {
        let why = Status::data_loss("etcdserver: corrupt cluster");
        let (read, sent) = refused(Repeat::Always, &why).await;
        assert!(read.is_ok(), "{read:?}");
        assert_eq!(sent, 2);
        let (changed, sent) = refused(Repeat::Never, &why).await;
        assert!(matches!(changed, Err(Error::Corrupt)), "{changed:?}");
        assert_eq!(sent, 1);
    }

    /// A member with a damaged table, which waits for another one's, refused reads, and its clients stayed with it: each read
    /// of such a table failed with an error of an unknown kind, while the other members had what was asked for. Found by the
    /// users over the network of the simulation, with disks that rot.
    #[tokio::test]
    async fn a_read_leaves_a_member_whose_data_is_damaged() {
        let (read, sent) = asked(Repeat::Always).await;
        assert!(read.is_ok(), "{read:?}");
        assert_eq!(sent, 2);
    }

    /// What a member refuses while its data is repaired, or while its audit log has no room, came out as a change of unknown
    /// outcome, and no other member was asked, though nothing was done.
    #[tokio::test]
    async fn a_change_goes_on_from_a_member_that_is_being_repaired() {
        for why in [
            "bowline: the data of this member is being replaced by that of another one",
            "bowline: the audit log cannot be written, and calls are not made without it; see its file and its disk",
        ] {
            let (changed, sent) = refused(Repeat::Never, &Status::unavailable(why)).await;
            assert!(changed.is_ok(), "{changed:?}");
            assert_eq!(sent, 2);
        }
    }

    #[tokio::test]
    async fn a_change_is_not_sent_to_a_second_member_when_the_first_is_damaged() {
        let (changed, sent) = asked(Repeat::Never).await;
        assert!(
            matches!(changed, Err(Error::UnknownOutcome { .. })),
            "{changed:?}"
        );
        assert_eq!(sent, 1);
    }
}
