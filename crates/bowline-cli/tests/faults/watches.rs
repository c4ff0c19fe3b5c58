//! Watchers of every key that run through all rounds of faults.
//!
//! The events of each are checked by [`Observed`]. At the end its state must be that of the members, every acknowledged
//! change must have been delivered, and all watchers must have received the same.
//!
//! Some are the client's watchers, which resume by themselves and know all members. Others are plain streams to one member
//! each, opened again from the next revision when they break, and at times without a reason: so they also start in the
//! future of a member that lags. Others use etcd's client for Go ([`go`](crate::go)). All of them request progress
//! repeatedly.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bowline::Revision;
use bowline_client::{Client, Entry, Event, KeyRange, Watcher};
use bowline_proto::etcdserverpb as pb;
use futures_util::stream;
use pb::watch_client::WatchClient;
use pb::watch_request::RequestUnion;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::cluster::{Cluster, MEMBERS};
use crate::observed::{History, Observed};

/// How long a watcher may take to be told everything once everything is healed.
const TOLD_WITHIN: Duration = Duration::from_secs(30);
/// How often a watcher asks how far it is.
pub(crate) const ASKING: Duration = Duration::from_millis(40);

/// Those who watch.
pub(crate) struct Watchers {
    /// The revision that is the last, once it is known; 0 before.
    last: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<Observed>>,
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
            let told = Observed::new(format!("the client's watcher {at}"), from.get());
            let client = cluster.client(at, MEMBERS, Duration::from_secs(2));
            tasks.push(tokio::spawn(resuming(client, told, last.clone())));
            let told = Observed::new(format!("the stream to m{at}"), from.get());
            let client = cluster.client(at, 1, Duration::from_secs(1));
            let random = random.fork();
            tasks.push(tokio::spawn(bare(client, told, last.clone(), random)));
        }
        if let Some(program) = crate::go::program().await {
            for at in 0..MEMBERS {
                let told = Observed::new(format!("the client for Go {at}"), from.get());
                let endpoints = (0..MEMBERS).map(|more| cluster.endpoint((at + more) % MEMBERS));
                let following =
                    crate::go::follow(program.clone(), endpoints.collect(), told, last.clone());
                tasks.push(tokio::spawn(following));
            }
        }
        Watchers { last, tasks }
    }

    /// Everything is healed, and nobody writes any more. Gives what those were told that were told no lie, and what
    /// is wrong.
    pub(crate) async fn judge(
        self,
        cluster: &Cluster,
        last: u64,
        acknowledged: &BTreeSet<u64>,
    ) -> (Option<History>, Vec<String>) {
        self.last.store(last, Ordering::Relaxed);
        let mut all = Vec::new();
        for member in 0..MEMBERS {
            let reply = cluster
                .only(member)
                .range(KeyRange::all())
                .revision(Revision::new(last));
            let entries = reply.await.expect("healed").entries;
            let entries = entries.into_iter().map(|entry| (entry.key.to_vec(), entry));
            all.push(entries.collect::<BTreeMap<_, _>>());
        }
        let mut wrong = Vec::new();
        let mut whole: Vec<Observed> = Vec::new();
        for task in self.tasks {
            match timeout(TOLD_WITHIN, task).await {
                Err(_) => wrong.push(format!("a watcher has not come to {last}")),
                Ok(Err(_)) => {
                    wrong.push("a watcher was told a lie, which is said above".to_owned());
                }
                Ok(Ok(told)) => {
                    println!(
                        "{}: {} events up to {last}, {} words of progress, opened {} times",
                        told.name, told.events, told.progress, told.opened
                    );
                    wrong.extend(agrees(&told, &all, acknowledged));
                    whole.push(told);
                }
            }
        }
        if let [first, others @ ..] = &whole[..] {
            let differs = others.iter().filter(|other| other.history != first.history);
            wrong.extend(differs.map(|other| {
                let (one, other) = (&first.name, &other.name);
                format!("{one} and {other} were told different things")
            }));
        }
        (whole.into_iter().next().map(|told| told.history), wrong)
    }
}

/// What a watcher was told is what all members hold, and all of it.
fn agrees(
    told: &Observed,
    members: &[BTreeMap<Vec<u8>, Entry>],
    acknowledged: &BTreeSet<u64>,
) -> Vec<String> {
    let name = &told.name;
    let differs = members
        .iter()
        .enumerate()
        .filter(|(_, keys)| told.keys != **keys);
    let mut wrong: Vec<_> = differs
        .map(|(member, _)| format!("{name} was told something else than m{member} holds"))
        .collect();
    let revisions = told.history.values().flat_map(BTreeMap::keys);
    let revisions: BTreeSet<u64> = revisions.copied().collect();
    let untold: Vec<_> = acknowledged.difference(&revisions).collect();
    if !untold.is_empty() {
        wrong.push(format!(
            "{name} was never told of {untold:?}, which were acknowledged"
        ));
    }
    if told.progress == 0 {
        wrong.push(format!("{name} never knew how far it was"));
    }
    wrong
}

pub(crate) fn is_done(told: &Observed, last: &AtomicU64) -> bool {
    let last = last.load(Ordering::Relaxed);
    let seen = told.seen();
    assert!(last == 0 || seen <= last, "{}: of the future", told.name);
    last != 0 && seen == last && told.progress > 0
}

async fn open(client: &Client, told: &Observed) -> Watcher {
    let deadline = Instant::now() + TOLD_WITHIN;
    loop {
        let watch = client
            .watch(KeyRange::all())
            .from(Revision::new(told.seen() + 1));
        match watch.previous().progress_notify().await {
            Ok(watcher) => return watcher,
            Err(error) => assert!(Instant::now() < deadline, "{}: {error}", told.name),
        }
        sleep(ASKING).await;
    }
}

/// The client's own watcher: it goes on by itself, whatever happens.
async fn resuming(client: Client, mut told: Observed, last: Arc<AtomicU64>) -> Observed {
    let mut watcher = open(&client, &told).await;
    told.opened += 1;
    while !is_done(&told, &last) {
        let Ok(next) = timeout(ASKING, watcher.next()).await else {
            if !crate::is_quiet() {
                watcher.request_progress().expect("it has not ended");
            }
            continue;
        };
        let batch = match next {
            Ok(Some(batch)) => batch,
            ended => panic!("{} ended at {}: {ended:?}", told.name, told.seen()),
        };
        match batch.is_progress() {
            true => told.progress(batch.revision.get()),
            false => told.take(batch.events),
        }
        let next = watcher.next_revision();
        assert!(next <= told.seen() + 1, "{}: {next}", told.name);
    }
    told
}

/// A stream to one member, and another one when it ends.
async fn bare(
    client: Client,
    mut told: Observed,
    last: Arc<AtomicU64>,
    mut random: fastrand::Rng,
) -> Observed {
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
            start_revision: i64::try_from(told.seen() + 1).expect("few revisions"),
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
                if crate::is_quiet() {
                    heard = Instant::now();
                } else {
                    ask(RequestUnion::ProgressRequest(pb::WatchProgressRequest {}));
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted: a key that no member holds, an acknowledged change that was never told, and silence about progress.
    #[test]
    fn a_watcher_that_was_not_told_everything_is_refused() {
        let mut told = Observed::new("w".to_owned(), 4);
        told.progress(4);
        let members = vec![BTreeMap::new(); MEMBERS];
        assert!(agrees(&told, &members, &BTreeSet::new()).is_empty());
        let untold = agrees(&told, &members, &BTreeSet::from([7]));
        assert!(untold.len() == 1 && untold[0].contains("[7]"), "{untold:?}");
        told.keys.insert(
            b"k".to_vec(),
            Entry::from(bowline_proto::mvccpb::KeyValue::default()),
        );
        assert_eq!(agrees(&told, &members, &BTreeSet::new()).len(), MEMBERS);
        let silent = Observed::new("w".to_owned(), 4);
        assert!(agrees(&silent, &members, &BTreeSet::new())[0].contains("how far"));
    }
}
