//! One stream of watches on both servers.
//!
//! What comes is kept by watch, as a flat list of events: how many go into one message is up to the
//! server. A request is followed by one that every server refuses at once (a range that is empty), and
//! its refusal is waited for: then the request has been carried out, too.
//!
//! To *settle*, Bowline is asked for progress, which it tells when every event is out; then etcd has
//! to come to the same number. An event too many of either shows now or the next time. Where a watch starts
//! later than now there is no progress: then both have to come to the same number, and to say no more for a while.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bowline_proto::etcdserverpb as pb;
use bowline_proto::mvccpb::Event;
use pb::watch_request::RequestUnion;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::call::{Metadata, shorten, with};
use crate::servers::Clients;
use crate::step::Names;

/// How long a message may take that has to come: long, as on a machine that is overloaded both servers
/// stand still for seconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long nothing comes where no progress says that all has come.
const UNTOLD: Duration = Duration::from_millis(300);
/// The id in messages that concern no watch.
const NO_WATCH: i64 = -1;
/// What a part of several events is below: the largest request, and what gRPC may take besides.
const FRAGMENT_BYTES: usize = 1 << 21;
const EMPTY_RANGE: &str = "mvcc: watcher range is empty";

/// A stream to one server.
#[derive(Debug)]
pub(crate) struct Stream {
    requests: mpsc::Sender<pb::WatchRequest>,
    replies: Streaming<pb::WatchResponse>,
    /// Answers to requests, in order.
    control: Vec<String>,
    /// What was told of each watch, in order.
    watches: BTreeMap<i64, Vec<String>>,
    /// Those that have been created and not ended.
    open: BTreeSet<i64>,
    /// By watch: the newest revision of a message that was no fragment.
    ended: BTreeMap<i64, i64>,
    /// How many requests with an empty range were refused.
    barriers: usize,
    /// The revisions of answers about progress.
    progress: Vec<i64>,
    /// What no server may do.
    problems: Vec<String>,
}

fn request(union: RequestUnion) -> pb::WatchRequest {
    pb::WatchRequest {
        request_union: Some(union),
    }
}

pub(crate) fn create(create: pb::WatchCreateRequest) -> pb::WatchRequest {
    request(RequestUnion::CreateRequest(create))
}

pub(crate) fn cancel(watch_id: i64) -> pb::WatchRequest {
    request(RequestUnion::CancelRequest(pb::WatchCancelRequest {
        watch_id,
    }))
}

pub(crate) fn ask_progress() -> pb::WatchRequest {
    request(RequestUnion::ProgressRequest(pb::WatchProgressRequest {}))
}

fn barrier() -> pb::WatchRequest {
    create(pb::WatchCreateRequest {
        key: "b".into(),
        range_end: "a".into(),
        ..pb::WatchCreateRequest::default()
    })
}

/// Whether a request is refused as the barrier is.
fn is_empty_range(request: &pb::WatchRequest) -> bool {
    match &request.request_union {
        Some(RequestUnion::CreateRequest(create)) => {
            let key: &[u8] = if create.key.is_empty() {
                &[0]
            } else {
                &create.key
            };
            let end = &create.range_end[..];
            // A start below 0 is refused first, in other words.
            create.start_revision >= 0 && !end.is_empty() && end != [0] && key >= end
        }
        _ => false,
    }
}

impl Stream {
    pub(crate) async fn open(
        clients: &mut Clients,
        metadata: Metadata,
        names: &Names,
    ) -> Result<Stream, String> {
        let (requests, receiver) = mpsc::channel(16);
        // A server may answer the call with the first message only.
        requests.send(barrier()).await.unwrap();
        let receiver = with(metadata, ReceiverStream::new(receiver));
        let replies = clients.watch.watch(receiver).await;
        let replies = replies.map_err(|status| format!("no stream: {status:?}"))?;
        let mut stream = Stream {
            requests,
            replies: replies.into_inner(),
            control: Vec::new(),
            watches: BTreeMap::new(),
            open: BTreeSet::new(),
            ended: BTreeMap::new(),
            barriers: 0,
            progress: Vec::new(),
            problems: Vec::new(),
        };
        stream
            .read_until(names, |stream| stream.barriers == 1)
            .await?;
        Ok(stream)
    }

    /// Sends a request, and waits until it has been carried out.
    pub(crate) async fn send(
        &mut self,
        mut request: pb::WatchRequest,
        names: &Names,
    ) -> Result<(), String> {
        if let Some(RequestUnion::CreateRequest(create)) = &mut request.request_union {
            names.resolve(&mut create.start_revision);
        }
        let wanted = self.barriers + 1 + usize::from(is_empty_range(&request));
        for request in [request, barrier()] {
            let sent = self.requests.send(request).await;
            sent.map_err(|_| "the stream has ended".to_owned())?;
        }
        self.read_until(names, |stream| stream.barriers >= wanted)
            .await
    }

    async fn read_until(
        &mut self,
        names: &Names,
        is_there: impl Fn(&Stream) -> bool,
    ) -> Result<(), String> {
        while !is_there(self) {
            match tokio::time::timeout(PATIENCE, self.replies.message()).await {
                Ok(Ok(Some(message))) => self.take(message, names),
                Ok(Ok(None)) => return Err("the stream has ended".to_owned()),
                Ok(Err(status)) => return Err(format!("the stream has ended: {status:?}")),
                Err(_) => return Err("nothing comes any more".to_owned()),
            }
        }
        Ok(())
    }

    /// Takes what comes within a moment.
    async fn read_rest(&mut self, names: &Names, moment: Duration) {
        while let Ok(Ok(Some(message))) = tokio::time::timeout(moment, self.replies.message()).await
        {
            self.take(message, names);
        }
    }

    fn take(&mut self, message: pb::WatchResponse, names: &Names) {
        let id = message.watch_id;
        let revision = message.header.as_ref().map_or(0, |header| header.revision);
        let reason = &message.cancel_reason;
        if message.created && message.canceled {
            if reason == EMPTY_RANGE {
                self.barriers += 1;
            }
            let text = format!("refused: watch {id} at {revision}: {reason}");
            self.control.push(text);
        } else if message.created {
            self.control
                .push(format!("created: watch {id} at {revision}"));
            if !self.open.insert(id) {
                self.problems.push(format!("watch {id} is created twice"));
            }
            self.tell(id, "created".to_owned());
        } else if message.canceled && message.compact_revision == 0 && reason.is_empty() {
            self.control
                .push(format!("canceled: watch {id} at {revision}"));
            self.open.remove(&id);
            self.tell(id, "canceled".to_owned());
        } else if message.canceled {
            let oldest = message.compact_revision;
            let text = format!("canceled: oldest is {oldest}, at {revision}: {reason}");
            self.tell(id, text);
        } else if id == NO_WATCH && message.events.is_empty() {
            self.progress.push(revision);
        } else if message.events.is_empty() {
            self.problems
                .push(format!("progress of watch {id}, which nobody asked for"));
        }
        if !message.events.is_empty() {
            self.take_events(message, revision, names);
        }
    }

    fn take_events(&mut self, message: pb::WatchResponse, revision: i64, names: &Names) {
        let id = message.watch_id;
        if !self.open.contains(&id) {
            self.problems
                .push(format!("events of watch {id}, which is not there"));
        }
        let of = |event: &Event| event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
        let first = message.events.first().map_or(0, of);
        let last = message.events.last().map_or(0, of);
        if self.ended.get(&id).is_some_and(|ended| *ended >= first) {
            self.problems
                .push(format!("watch {id}: revision {first} comes in parts"));
        }
        if revision < last {
            self.problems
                .push(format!("watch {id}: {last} in a message of {revision}"));
        }
        if message.fragment && message.events.len() > 1 && message.encoded_len() >= FRAGMENT_BYTES {
            let size = message.encoded_len();
            self.problems
                .push(format!("watch {id}: a fragment of {size} bytes"));
        }
        if !message.fragment {
            self.ended.insert(id, last);
        }
        for mut event in message.events {
            for kv in event.kv.iter_mut().chain(&mut event.prev_kv) {
                names.name_lease(&mut kv.lease);
                shorten(&mut kv.value);
            }
            let told = self.watches.entry(id).or_default();
            told.push(format!("{event:?}"));
        }
    }

    fn tell(&mut self, id: i64, text: String) {
        // A watch of this id may begin anew, in the past.
        self.ended.remove(&id);
        self.watches.entry(id).or_default().push(text);
    }

    fn counts(&self) -> BTreeMap<i64, usize> {
        let counts = self.watches.iter();
        counts.map(|(id, told)| (*id, told.len())).collect()
    }

    fn told(&self, id: i64) -> &[String] {
        self.watches.get(&id).map_or(&[], |told| told)
    }
}

/// A stream on both servers.
#[derive(Debug)]
pub(crate) struct Both {
    pub(crate) etcd: Stream,
    pub(crate) bowline: Stream,
    /// The latest revision from which a watch was asked for.
    pub(crate) start_max: i64,
}

impl Both {
    pub(crate) async fn send(
        &mut self,
        request: &pb::WatchRequest,
        names: [&Names; 2],
    ) -> Result<(), String> {
        if let Some(RequestUnion::CreateRequest(create)) = &request.request_union {
            self.start_max = self.start_max.max(create.start_revision);
        }
        let (etcd, bowline) = tokio::join!(
            self.etcd.send(request.clone(), names[0]),
            self.bowline.send(request.clone(), names[1]),
        );
        etcd.map_err(|error| format!("etcd: {error}"))?;
        bowline.map_err(|error| format!("bowline: {error}"))
    }

    /// Waits until every event is there, and compares. With `moment`, what should not come gets as
    /// long to come nevertheless.
    pub(crate) async fn settle(
        &mut self,
        names: [&Names; 2],
        moment: Duration,
    ) -> Result<(), String> {
        // A watch that starts later has the server tell no progress of the whole stream.
        if self.start_max > names[1].revision {
            let moment = moment.max(UNTOLD);
            let begun = tokio::time::Instant::now();
            loop {
                tokio::join!(
                    self.etcd.read_rest(names[0], moment),
                    self.bowline.read_rest(names[1], moment),
                );
                if self.etcd.counts() == self.bowline.counts() || begun.elapsed() > PATIENCE {
                    return self.compare();
                }
            }
        }
        let asked = self.bowline.progress.len();
        let sent = self.bowline.requests.send(ask_progress()).await;
        sent.map_err(|_| "bowline: the stream has ended".to_owned())?;
        let told = |stream: &Stream| stream.progress.len() > asked;
        let read = self.bowline.read_until(names[1], told).await;
        read.map_err(|error| format!("bowline, asked for progress: {error}"))?;
        let revision = self.bowline.progress.last().copied().unwrap_or(0);
        if revision != names[1].revision {
            return Err(format!("progress is {revision}, not {}", names[1].revision));
        }
        let wanted = self.bowline.counts();
        let is_there = |stream: &Stream| {
            let mut wanted = wanted.iter();
            wanted.all(|(id, count)| stream.watches.get(id).map_or(0, Vec::len) >= *count)
        };
        let read = self.etcd.read_until(names[0], is_there).await;
        if !moment.is_zero() {
            tokio::join!(
                self.etcd.read_rest(names[0], moment),
                self.bowline.read_rest(names[1], moment),
            );
        }
        self.compare()?;
        read.map_err(|error| format!("etcd: {error}"))
    }

    fn compare(&self) -> Result<(), String> {
        let (etcd, bowline) = (&self.etcd, &self.bowline);
        for (who, stream) in [("etcd", etcd), ("bowline", bowline)] {
            if let Some(problem) = stream.problems.first() {
                return Err(format!("{who}: {problem}"));
            }
        }
        same("answers", &etcd.control, &bowline.control)?;
        let ids: BTreeSet<i64> = etcd
            .watches
            .keys()
            .chain(bowline.watches.keys())
            .copied()
            .collect();
        for id in ids {
            same(&format!("watch {id}"), etcd.told(id), bowline.told(id))?;
        }
        Ok(())
    }
}

fn same<T: AsRef<str>>(what: &str, etcd: &[T], bowline: &[T]) -> Result<(), String> {
    let longest = etcd.len().max(bowline.len());
    let at = |list: &[T], place: usize| list.get(place).map(|text| text.as_ref().to_owned());
    for place in 0..longest {
        let (ours, theirs) = (at(bowline, place), at(etcd, place));
        if ours != theirs {
            let none = || "nothing".to_owned();
            return Err(format!(
                "{what}, {place}:\n      etcd: {}\n   bowline: {}",
                theirs.unwrap_or_else(none),
                ours.unwrap_or_else(none)
            ));
        }
    }
    Ok(())
}
