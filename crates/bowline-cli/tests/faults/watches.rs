//! Watchers of every key, for as long as something is done to the members.
//!
//! Each plays what it is told on a state of its own: every revision, in order, once, with all of its
//! events; each event fits the key as it was, and tells what that was. At the end its state is what
//! every member holds.
//!
//! Half of them are the client's watchers, which resume by themselves and know all members. The others
//! are bare streams to one member each, opened anew behind the last revision when they break, and now
//! and then for no reason. All of them ask again and again how far they are: an answer is never ahead
//! of the events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bowline_client::{Client, Entry, Event, EventKind, KeyRange, Watcher};
use bowline_proto::etcdserverpb as pb;
use futures_util::stream;
use pb::watch_client::WatchClient;
use pb::watch_request::RequestUnion;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::cluster::{Cluster, MEMBERS};

/// How long a watcher may take to be told everything once everything is healed.
const TOLD_WITHIN: Duration = Duration::from_secs(30);
/// How often a watcher asks how far it is.
const ASKING: Duration = Duration::from_millis(40);

/// The state that a watcher was told.
struct Told {
    name: String,
    /// All of it has come.
    revision: u64,
    keys: BTreeMap<Vec<u8>, Entry>,
    events: u64,
    progress: u64,
    opened: u64,
}

impl Told {
    fn new(name: String, revision: u64) -> Told {
        Told {
            name,
            revision,
            keys: BTreeMap::new(),
            events: 0,
            progress: 0,
            opened: 0,
        }
    }

    /// The events of one message.
    fn take(&mut self, events: Vec<Event>) {
        let mut of_revision: Vec<Vec<u8>> = Vec::new();
        let mut at = 0;
        for event in events {
            let (name, revision) = (&self.name, event.revision());
            if revision != at {
                // Every revision changes a key, and a message has all of a revision.
                let next = self.revision + 1;
                assert_eq!(
                    revision, next,
                    "{name} is told another revision than the next"
                );
                (at, self.revision) = (revision, revision);
                of_revision.clear();
            }
            let key = event.entry.key.to_vec();
            let shown = String::from_utf8_lossy(&key).into_owned();
            assert!(!of_revision.contains(&key), "{name}: {shown} twice at {at}");
            let before = self.keys.get(&key);
            assert_eq!(
                event.previous.as_ref(),
                before,
                "{name}: what was before {shown} at {revision}"
            );
            match event.kind {
                EventKind::Put => {
                    let version = before.map_or(0, |entry| entry.version) + 1;
                    let created = before.map_or(revision, |entry| entry.create_revision);
                    let is = (event.entry.version, event.entry.create_revision);
                    assert_eq!(is, (version, created), "{name}: {shown} at {revision}");
                    self.keys.insert(key.clone(), event.entry);
                }
                EventKind::Delete => {
                    assert!(
                        before.is_some(),
                        "{name}: {shown} goes at {revision}, and was not there"
                    );
                    self.keys.remove(&key);
                }
            }
            of_revision.push(key);
            self.events += 1;
        }
    }

    /// It is told that everything up to a revision has come.
    fn progress(&mut self, revision: u64) {
        let (name, told) = (&self.name, self.revision);
        assert!(
            revision <= told,
            "{name} is told that it is at {revision}, and has seen {told}"
        );
        self.progress += 1;
    }
}

/// Those who watch.
pub(crate) struct Watchers {
    /// The revision that is the last, once it is known; 0 before.
    last: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<Told>>,
}

impl Watchers {
    /// From now on, while nobody writes.
    pub(crate) async fn start(cluster: &Cluster, random: &mut fastrand::Rng) -> Watchers {
        let everything = cluster
            .only(0)
            .range(KeyRange::all())
            .await
            .expect("healthy");
        assert!(everything.entries.is_empty(), "they begin with nothing");
        let from = everything.header.revision;
        let last = Arc::new(AtomicU64::new(0));
        let mut tasks = Vec::new();
        for at in 0..MEMBERS {
            let told = Told::new(format!("the client's watcher {at}"), from);
            let client = cluster.client(at, MEMBERS, Duration::from_secs(2));
            tasks.push(tokio::spawn(resuming(client, told, last.clone())));
            let told = Told::new(format!("the stream to m{at}"), from);
            let client = cluster.client(at, 1, Duration::from_secs(1));
            let random = random.fork();
            tasks.push(tokio::spawn(bare(client, told, last.clone(), random)));
        }
        Watchers { last, tasks }
    }

    /// Everything is healed, and nobody writes any more.
    pub(crate) async fn judge(self, cluster: &Cluster, last: u64) {
        self.last.store(last, Ordering::Relaxed);
        let mut all = Vec::new();
        for member in 0..MEMBERS {
            let reply = cluster.only(member).range(KeyRange::all()).revision(last);
            let entries = reply.await.expect("healed").entries;
            let entries = entries.into_iter().map(|entry| (entry.key.to_vec(), entry));
            all.push(entries.collect::<BTreeMap<_, _>>());
        }
        for task in self.tasks {
            let told = timeout(TOLD_WITHIN, task).await;
            let told = told.unwrap_or_else(|_| panic!("a watcher has not come to {last}"));
            let told = told.expect("a watcher does not panic");
            assert_eq!(told.revision, last, "{}", told.name);
            for (member, keys) in all.iter().enumerate() {
                assert!(
                    told.keys == *keys,
                    "{} was told something else than m{member} holds at {last}",
                    told.name
                );
            }
            println!(
                "{}: {} events up to {last}, {} words of progress, opened {} times",
                told.name, told.events, told.progress, told.opened
            );
            assert!(told.progress > 0, "{} never knew how far it was", told.name);
        }
    }
}

fn is_done(told: &Told, last: &AtomicU64) -> bool {
    let last = last.load(Ordering::Relaxed);
    assert!(
        last == 0 || told.revision <= last,
        "{}: of the future",
        told.name
    );
    last != 0 && told.revision == last && told.progress > 0
}

async fn open(client: &Client, told: &Told) -> Watcher {
    let deadline = Instant::now() + TOLD_WITHIN;
    loop {
        let watch = client.watch(KeyRange::all()).from(told.revision + 1);
        match watch.previous().progress_notify().await {
            Ok(watcher) => return watcher,
            Err(error) => assert!(Instant::now() < deadline, "{}: {error}", told.name),
        }
        sleep(ASKING).await;
    }
}

/// The client's own watcher: it goes on by itself, whatever happens.
async fn resuming(client: Client, mut told: Told, last: Arc<AtomicU64>) -> Told {
    let mut watcher = open(&client, &told).await;
    told.opened += 1;
    while !is_done(&told, &last) {
        let Ok(next) = timeout(ASKING, watcher.next()).await else {
            watcher.request_progress().expect("it has not ended");
            continue;
        };
        let batch = match next {
            Ok(Some(batch)) => batch,
            ended => panic!("{} ended at {}: {ended:?}", told.name, told.revision),
        };
        match batch.is_progress() {
            true => told.progress(batch.revision),
            false => told.take(batch.events),
        }
        assert!(
            watcher.next_revision() <= told.revision + 1,
            "{}",
            told.name
        );
    }
    told
}

/// A stream to one member, and another one when it ends.
async fn bare(
    client: Client,
    mut told: Told,
    last: Arc<AtomicU64>,
    mut random: fastrand::Rng,
) -> Told {
    /// How long a stream may be silent before it counts as broken: its member may be asleep.
    const SILENCE: Duration = Duration::from_secs(2);
    while !is_done(&told, &last) {
        let (requests, receiver) = mpsc::channel(16);
        let ask = |request| {
            let request_union = Some(request);
            // When it is full, enough questions are on their way.
            let _ = requests.try_send(pb::WatchRequest { request_union });
        };
        ask(RequestUnion::CreateRequest(pb::WatchCreateRequest {
            key: vec![0].into(),
            range_end: vec![0].into(),
            start_revision: i64::try_from(told.revision + 1).expect("few revisions"),
            prev_kv: true,
            progress_notify: true,
            ..pb::WatchCreateRequest::default()
        }));
        let receiver = stream::unfold(receiver, |mut receiver: mpsc::Receiver<_>| async {
            receiver.recv().await.map(|request| (request, receiver))
        });
        let mut watches = WatchClient::new(client.channel()).max_decoding_message_size(usize::MAX);
        let opening = timeout(SILENCE, watches.watch(Box::pin(receiver))).await;
        let Ok(Ok(replies)) = opening else {
            sleep(ASKING).await;
            continue;
        };
        let mut replies = replies.into_inner();
        told.opened += 1;
        let mut heard = Instant::now();
        while !is_done(&told, &last) && heard.elapsed() < SILENCE && random.u8(..) > 0 {
            let Ok(next) = timeout(ASKING, replies.message()).await else {
                ask(RequestUnion::ProgressRequest(pb::WatchProgressRequest {}));
                continue;
            };
            let Ok(Some(reply)) = next else {
                break;
            };
            heard = Instant::now();
            assert!(!reply.canceled, "{} was canceled: {reply:?}", told.name);
            if reply.created {
                continue;
            }
            if reply.events.is_empty() {
                let revision = reply.header.map_or(0, |header| header.revision);
                told.progress(u64::try_from(revision).expect("a revision"));
            } else {
                told.take(reply.events.into_iter().map(Event::from).collect());
            }
        }
    }
    told
}
