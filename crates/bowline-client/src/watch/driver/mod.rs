//! The driver: the task that owns a stream of watches.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_proto::etcdserverpb::watch_client::WatchClient;
use bowline_proto::etcdserverpb::watch_request::RequestUnion;
use bowline_proto::etcdserverpb::{
    WatchCancelRequest, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
};
use bowline_types::Revision;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Sleep, sleep, timeout};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

use super::Batch;
use super::subscription::{Place, Step, Subscription};
use crate::caller::{Caller, PAUSE_MAX, PAUSE_MIN};
use crate::endpoints::Endpoint;
use crate::login::Shown;
use crate::{Error, Result};

/// The way to a driver. The task ends when the last one is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Hub {
    commands: mpsc::UnboundedSender<Command>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    next_id: AtomicU64,
    /// The error that ended the last stream.
    last_error: Mutex<Option<Error>>,
}

/// Commands of watchers to the driver.
#[derive(Debug)]
pub(super) enum Command {
    Add {
        id: u64,
        request: WatchCreateRequest,
        sender: mpsc::Sender<Result<Batch>>,
        begun: oneshot::Sender<Result<Revision>>,
        is_held_back: Arc<AtomicBool>,
    },
    Resume {
        id: u64,
    },
    Progress {
        id: u64,
    },
    Remove {
        id: u64,
    },
}

impl Hub {
    pub(crate) fn spawn(caller: Arc<Caller>) -> Hub {
        let (commands, receiver) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::default());
        let driver = Driver::new(caller, Arc::clone(&shared));
        tokio::spawn(driver.run(receiver));
        Hub { commands, shared }
    }

    pub(super) fn next_id(&self) -> u64 {
        self.shared.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn send(&self, command: Command) -> Result<()> {
        self.commands.send(command).map_err(|_| Error::Stopped)
    }

    pub(super) fn last_error(&self) -> Option<Error> {
        self.shared.last_error()
    }
}

impl Shared {
    fn last_error(&self) -> Option<Error> {
        let error = self
            .last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        error.clone()
    }

    fn set_last_error(&self, to: Option<Error>) {
        *self
            .last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = to;
    }
}

/// The driver's state of a watch.
struct Watch {
    subscription: Subscription,
    sender: mpsc::Sender<Result<Batch>>,
    /// Taken when a server confirms the watch for the first time.
    begun: Option<oneshot::Sender<Result<Revision>>>,
    is_held_back: Arc<AtomicBool>,
    /// Its number on the stream; `None` while there is no stream or it is held back.
    watch_id: Option<i64>,
    /// Whether the server has answered its newest creation.
    is_confirmed: bool,
}

impl Watch {
    /// Whether what the server says of the whole stream holds for this watch, too.
    fn is_on_stream(&self) -> bool {
        self.watch_id.is_some() && self.is_confirmed
    }
}

struct Driver {
    caller: Arc<Caller>,
    shared: Arc<Shared>,
    watches: HashMap<u64, Watch>,
    /// From numbers on the stream to watches.
    on_wire: HashMap<i64, u64>,
    /// Numbers whose creation the server has not answered yet, oldest first: a refusal may come
    /// without one.
    unconfirmed: VecDeque<i64>,
    /// The way to the server, while there is a stream.
    requests: Option<mpsc::UnboundedSender<WatchRequest>>,
    next_watch_id: i64,
    pause: Duration,
    /// Whether a server has confirmed a watch on this stream.
    is_accepted: bool,
    /// What a server has refused, until there is a stream with another token.
    refused: Option<Shown>,
    /// Whether the client has logged in anew since a server has confirmed a watch: a second refusal is final.
    is_login_new: bool,
}

/// The stream, or the state without one.
enum Link {
    Closed,
    Opening(usize, Pin<Box<dyn Future<Output = Result<Opened>> + Send>>),
    Open(usize, Opened),
    Pausing(Pin<Box<Sleep>>),
}

/// An open stream.
struct Opened {
    endpoint: Arc<Endpoint>,
    shown: Shown,
    messages: Box<Streaming<WatchResponse>>,
}

/// What came of a link.
enum LinkEvent {
    Opened(Result<Opened>),
    Message(Result<WatchResponse>),
    Paused,
}

impl Link {
    /// Can be dropped and called again at any time.
    async fn next(&mut self) -> LinkEvent {
        match self {
            Link::Closed => pending().await,
            Link::Opening(_, opening) => LinkEvent::Opened(opening.await),
            Link::Pausing(sleep) => {
                sleep.await;
                LinkEvent::Paused
            }
            Link::Open(_, open) => LinkEvent::Message(match open.messages.message().await {
                Ok(Some(message)) => Ok(message),
                Ok(None) => Err(Error::Disconnected {
                    message: "the stream ended".to_owned(),
                }),
                Err(status) => Err(Error::from_status(&status, open.endpoint.address())),
            }),
        }
    }

    fn turn(&self) -> Option<usize> {
        match self {
            Link::Opening(turn, _) | Link::Open(turn, ..) => Some(*turn),
            Link::Closed | Link::Pausing(_) => None,
        }
    }
}

impl Driver {
    fn new(caller: Arc<Caller>, shared: Arc<Shared>) -> Driver {
        Driver {
            caller,
            shared,
            watches: HashMap::new(),
            on_wire: HashMap::new(),
            unconfirmed: VecDeque::new(),
            requests: None,
            next_watch_id: 1,
            pause: PAUSE_MIN,
            is_accepted: false,
            refused: None,
            is_login_new: false,
        }
    }

    async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        let mut link = Link::Closed;
        loop {
            if self.watches.is_empty() {
                link = Link::Closed;
                self.reset();
            } else if matches!(link, Link::Closed) {
                link = self.open();
            }
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(command) => self.command(command),
                    None => return,
                },
                event = link.next() => self.link_event(event, &mut link),
            }
        }
    }

    /// Begins to open a stream at the endpoint in use, with every watch in it: a server may answer nothing
    /// before it has a request.
    fn open(&mut self) -> Link {
        let (requests, receiver) = mpsc::unbounded_channel();
        self.requests = Some(requests);
        let ids: Vec<u64> = self.watches.keys().copied().collect();
        for id in ids {
            self.create(id);
        }
        self.is_accepted = false;
        let (turn, endpoint) = self.caller.endpoints().current();
        let caller = Arc::clone(&self.caller);
        let refused = self.refused.clone();
        Link::Opening(
            turn,
            Box::pin(async move {
                let shown = match &refused {
                    Some(refused) => caller.shown_after(refused).await?,
                    None => caller.shown().await?,
                };
                let request = caller.request(UnboundedReceiverStream::new(receiver), true, &shown);
                let mut client =
                    WatchClient::new(endpoint.channel()).max_decoding_message_size(usize::MAX);
                let request_timeout = caller.settings().request_timeout;
                match timeout(request_timeout, client.watch(request)).await {
                    Ok(Ok(response)) => Ok(Opened {
                        endpoint,
                        shown,
                        messages: Box::new(response.into_inner()),
                    }),
                    Ok(Err(status)) => Err(Error::from_status(&status, endpoint.address())),
                    Err(_) => Err(Error::TimedOut),
                }
            }),
        )
    }

    fn link_event(&mut self, event: LinkEvent, link: &mut Link) {
        let failed = match event {
            LinkEvent::Paused => {
                *link = Link::Closed;
                return;
            }
            LinkEvent::Opened(Ok(open)) => {
                self.is_login_new |= self.refused.take().is_some();
                *link = Link::Open(link.turn().unwrap_or_default(), open);
                return;
            }
            LinkEvent::Message(Ok(message)) => {
                self.pause = PAUSE_MIN;
                self.shared.set_last_error(None);
                match self.message(message) {
                    None => return,
                    Some(error) => error,
                }
            }
            LinkEvent::Opened(Err(error)) | LinkEvent::Message(Err(error)) => error,
        };
        tracing::debug!(error = %failed, "a stream of watches broke");
        let is_final = self.is_final(&failed);
        if !is_final && self.caller.may_log_in(&failed) {
            self.refused = match link {
                Link::Open(_, open) => Some(open.shown.clone()),
                _ => self.caller.shown_now(),
            };
            self.reset();
            *link = Link::Closed;
            return;
        }
        // What a user may watch, every endpoint knows.
        let is_of_endpoint = !matches!(failed, Error::PermissionDenied);
        if let Some(turn) = link.turn().filter(|_| is_of_endpoint) {
            self.caller.endpoints().leave(turn);
        }
        self.reset();
        if is_final {
            let ids: Vec<u64> = self.watches.keys().copied().collect();
            for id in ids {
                self.end(id, failed.clone());
            }
        }
        self.shared.set_last_error(Some(failed));
        *link = Link::Pausing(Box::pin(sleep(self.pause)));
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    /// Whether every endpoint would refuse these watches, also after a login anew.
    ///
    /// A server ends a stream on which one watch is not allowed any more. The others are created again, and that one is
    /// refused by itself.
    fn is_final(&self, error: &Error) -> bool {
        match error {
            Error::PermissionDenied => !self.is_accepted,
            Error::InvalidToken | Error::UserRequired => {
                self.is_login_new || !self.caller.may_log_in(error)
            }
            Error::AuthenticationFailed { .. } | Error::Unimplemented { .. } => true,
            _ => false,
        }
    }

    /// Forgets the stream.
    fn reset(&mut self) {
        self.requests = None;
        self.on_wire.clear();
        self.unconfirmed.clear();
        for watch in self.watches.values_mut() {
            watch.watch_id = None;
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Add {
                id,
                request,
                sender,
                begun,
                is_held_back,
            } => {
                let watch = Watch {
                    subscription: Subscription::new(request),
                    sender,
                    begun: Some(begun),
                    is_held_back,
                    watch_id: None,
                    is_confirmed: false,
                };
                self.watches.insert(id, watch);
                self.create(id);
            }
            Command::Resume { id } => self.create(id),
            Command::Progress { id } => {
                if let Some(watch) = self.watches.get_mut(&id) {
                    watch.subscription.wants_progress = true;
                    // Otherwise it is sent when the server confirms the watch: an answer that comes
                    // before does not hold for it.
                    if watch.is_on_stream() {
                        self.request_progress();
                    }
                }
            }
            Command::Remove { id } => {
                self.cancel(id);
                self.watches.remove(&id);
            }
        }
    }

    /// Creates a watch on the stream, if there is one and the watch is not on it.
    fn create(&mut self, id: u64) {
        let Some(watch) = self.watches.get_mut(&id) else {
            return;
        };
        if self.requests.is_none() || watch.watch_id.is_some() {
            return;
        }
        let watch_id = self.next_watch_id;
        self.next_watch_id += 1;
        watch.watch_id = Some(watch_id);
        watch.is_confirmed = false;
        watch.is_held_back.store(false, Ordering::SeqCst);
        let request = watch.subscription.create(watch_id);
        self.on_wire.insert(watch_id, id);
        self.unconfirmed.push_back(watch_id);
        self.request(RequestUnion::CreateRequest(request));
    }

    /// Cancels a watch on the stream. Later messages for it are dropped.
    fn cancel(&mut self, id: u64) {
        let watch_id = self
            .watches
            .get_mut(&id)
            .and_then(|watch| watch.watch_id.take());
        if let Some(watch_id) = watch_id {
            self.on_wire.remove(&watch_id);
            self.request(RequestUnion::CancelRequest(WatchCancelRequest { watch_id }));
        }
    }

    fn request_progress(&self) {
        self.request(RequestUnion::ProgressRequest(WatchProgressRequest {}));
    }

    fn request(&self, request: RequestUnion) {
        if let Some(requests) = &self.requests {
            // If the stream broke, its end is about to be seen, and everything is created again.
            let _ = requests.send(WatchRequest {
                request_union: Some(request),
            });
        }
    }

    /// Handles a message. Returns an error if this endpoint must be left.
    fn message(&mut self, message: WatchResponse) -> Option<Error> {
        let mut watch_id = message.watch_id;
        if message.created {
            match self.unconfirmed.iter().position(|id| *id == watch_id) {
                Some(at) => drop(self.unconfirmed.remove(at)),
                // A server that does not take numbers answers in the order of requests.
                None => {
                    let asked = self.unconfirmed.pop_front()?;
                    if message.canceled {
                        watch_id = asked;
                    } else if let Some(id) = self.on_wire.remove(&asked) {
                        self.on_wire.insert(watch_id, id);
                        if let Some(watch) = self.watches.get_mut(&id) {
                            watch.watch_id = Some(watch_id);
                        }
                    } else {
                        // Removed meanwhile, under the number it never had.
                        let cancel = WatchCancelRequest { watch_id };
                        self.request(RequestUnion::CancelRequest(cancel));
                    }
                }
            }
        } else if watch_id == -1 && !message.canceled {
            let revision = message.header.map_or(0, |header| header.revision);
            let ids: Vec<u64> = self.on_wire.values().copied().collect();
            for id in ids {
                let Some(watch) = self.watches.get_mut(&id) else {
                    continue;
                };
                // The server said this without a watch that it did not know yet, and whose events
                // are still to come.
                if watch.is_on_stream() {
                    let step = watch.subscription.stream_progress(revision);
                    self.step(id, step);
                }
            }
            return None;
        }
        let id = *self.on_wire.get(&watch_id)?;
        let watch = self.watches.get_mut(&id)?;
        if message.canceled {
            // It is off the stream already.
            watch.watch_id = None;
            self.on_wire.remove(&watch_id);
        }
        let step = watch.subscription.receive(message);
        self.step(id, step)
    }

    /// Executes a step. Returns an error if this endpoint must be left.
    fn step(&mut self, id: u64, step: Step) -> Option<Error> {
        let watch = self.watches.get_mut(&id)?;
        match step {
            Step::Nothing => {}
            Step::Begun => {
                self.is_accepted = true;
                self.is_login_new = false;
                watch.is_confirmed = true;
                if let Some(begun) = watch.begun.take() {
                    // A watcher that stopped waiting removes itself.
                    let _ = begun.send(Ok(watch.subscription.next_revision()));
                }
                // The answer to an earlier request was lost with its stream, or came while the watch
                // was not on this one.
                if watch.subscription.wants_progress {
                    self.request_progress();
                }
            }
            Step::Deliver { batch, before } => self.deliver(id, batch, before),
            Step::Leave(error) => return Some(error),
            // The whole stream has shown the same token.
            Step::End(error) if self.caller.may_log_in(&error) && !self.is_final(&error) => {
                return Some(error);
            }
            Step::End(error) => self.end(id, error),
        }
        None
    }

    fn deliver(&mut self, id: u64, batch: Batch, before: Place) {
        let Some(watch) = self.watches.get_mut(&id) else {
            return;
        };
        // One place is kept for an error.
        if watch.sender.capacity() > 1 {
            match watch.sender.try_send(Ok(batch)) {
                Ok(()) => return,
                Err(TrySendError::Closed(_)) => {
                    self.cancel(id);
                    self.watches.remove(&id);
                    return;
                }
                Err(TrySendError::Full(_)) => {}
            }
        }
        // It comes again once the queue is empty.
        watch.subscription.rewind(before);
        self.cancel(id);
        if let Some(watch) = self.watches.get(&id) {
            watch.is_held_back.store(true, Ordering::SeqCst);
            // The watcher may have emptied its queue before it could see the mark.
            if watch.sender.capacity() == watch.sender.max_capacity() {
                self.create(id);
            }
        }
    }

    /// Ends a watch with an error.
    fn end(&mut self, id: u64, error: Error) {
        self.cancel(id);
        let Some(watch) = self.watches.remove(&id) else {
            return;
        };
        match watch.begun {
            Some(begun) => drop(begun.send(Err(error))),
            None => drop(watch.sender.try_send(Err(error))),
        }
    }
}

#[cfg(test)]
mod tests;
