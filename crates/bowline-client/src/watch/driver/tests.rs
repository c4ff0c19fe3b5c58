//! Tests of the driver: alone, between a watcher's queue and what it writes to a server, and against a
//! server that breaks off a stream.

use bowline_proto::etcdserverpb::ResponseHeader;
use bowline_proto::etcdserverpb::watch_server::{Watch as WatchService, WatchServer};
use bowline_proto::mvccpb;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::*;
use crate::Client;
use crate::settings::Settings;

/// The only watch of a [`Bench`].
const WATCH: u64 = 7;

/// A driver with one watch, and both its ends: the watcher's queue, and the requests to the server.
struct Bench {
    driver: Driver,
    queue: mpsc::Receiver<Result<Batch>>,
    requests: mpsc::UnboundedReceiver<WatchRequest>,
}

impl Bench {
    /// With a confirmed watch from this revision, whose queue takes two batches and an error.
    fn watching_from(start_revision: i64) -> Bench {
        let settings = Settings {
            // Nobody listens on it, and nothing is sent: the test is the other end of the stream.
            endpoints: vec!["127.0.0.1:1".to_owned()],
            ..Settings::default()
        };
        let caller = Arc::new(Caller::new(settings).unwrap());
        let mut driver = Driver::new(caller, Arc::default());
        let (sender, requests) = mpsc::unbounded_channel();
        driver.requests = Some(sender);
        let (sender, queue) = mpsc::channel(3);
        let (begun, _) = oneshot::channel();
        driver.command(Command::Add {
            id: WATCH,
            request: WatchCreateRequest {
                start_revision,
                ..WatchCreateRequest::default()
            },
            sender,
            begun,
            is_held_back: Arc::default(),
        });
        let mut bench = Bench {
            driver,
            queue,
            requests,
        };
        assert_eq!(bench.sent(), [format!("create 1 from {start_revision}")]);
        bench.created(1);
        bench
    }

    /// What the driver has sent since the last time, in words.
    fn sent(&mut self) -> Vec<String> {
        let mut sent = Vec::new();
        while let Ok(request) = self.requests.try_recv() {
            sent.push(match request.request_union.unwrap() {
                RequestUnion::CreateRequest(create) => {
                    format!("create {} from {}", create.watch_id, create.start_revision)
                }
                RequestUnion::CancelRequest(cancel) => format!("cancel {}", cancel.watch_id),
                RequestUnion::ProgressRequest(_) => "progress".to_owned(),
            });
        }
        sent
    }

    /// What has been delivered since the last time: of each batch the revision, and how many events.
    fn delivered(&mut self) -> Vec<(u64, usize)> {
        let mut delivered = Vec::new();
        while let Ok(batch) = self.queue.try_recv() {
            let batch = batch.unwrap();
            delivered.push((batch.revision.get(), batch.events.len()));
        }
        delivered
    }

    fn message(&mut self, message: WatchResponse) {
        assert!(self.driver.message(message).is_none());
    }

    fn created(&mut self, watch_id: i64) {
        self.message(created(watch_id, 9_000));
    }

    fn event(&mut self, watch_id: i64, mod_revision: i64) {
        let kv = mvccpb::KeyValue {
            mod_revision,
            ..mvccpb::KeyValue::default()
        };
        self.message(WatchResponse {
            watch_id,
            events: vec![mvccpb::Event {
                kv: Some(kv),
                ..mvccpb::Event::default()
            }],
            ..progress(mod_revision)
        });
    }

    fn ask_progress(&mut self) {
        self.driver.command(Command::Progress { id: WATCH });
    }

    fn resume(&mut self) {
        self.driver.command(Command::Resume { id: WATCH });
    }
}

fn created(watch_id: i64, revision: i64) -> WatchResponse {
    WatchResponse {
        watch_id,
        created: true,
        ..progress(revision)
    }
}

/// The progress of a whole stream.
fn progress(revision: i64) -> WatchResponse {
    WatchResponse {
        header: Some(ResponseHeader {
            revision,
            ..ResponseHeader::default()
        }),
        watch_id: -1,
        ..WatchResponse::default()
    }
}

/// A server answered a request for progress between the cancellation of a watch that was held back and
/// its new creation: the watcher got progress 9000 and then the events from 500 on, and a program that
/// stored its next revision lost them.
#[tokio::test]
async fn progress_of_a_stream_is_not_that_of_a_watch_which_is_not_on_it_yet() {
    let mut bench = Bench::watching_from(498);
    bench.ask_progress();
    for revision in 498..=500 {
        bench.event(1, revision);
    }
    assert_eq!(bench.sent(), ["progress", "cancel 1"]);
    assert_eq!(bench.delivered(), [(498, 1), (499, 1)]);
    bench.resume();
    assert_eq!(bench.sent(), ["create 2 from 500"]);
    bench.message(progress(9_000));
    assert_eq!(bench.delivered(), [], "the events from 500 on are to come");
    bench.created(2);
    bench.event(2, 500);
    bench.message(progress(9_000));
    assert_eq!(bench.delivered(), [(500, 1), (9_000, 0)]);
}

/// A request for progress was sent once only: where its answer came while the watch was held back, or it
/// was made then, a watcher of an idle range waited for ever.
#[tokio::test]
async fn progress_is_asked_for_again_when_a_watch_that_was_held_back_is_confirmed() {
    let mut bench = Bench::watching_from(498);
    for revision in 498..=500 {
        bench.event(1, revision);
    }
    assert_eq!(bench.sent(), ["cancel 1"]);
    bench.ask_progress();
    bench.message(progress(9_000));
    assert_eq!(bench.delivered(), [(498, 1), (499, 1)]);
    bench.resume();
    assert_eq!(bench.sent(), ["create 2 from 500"]);
    bench.created(2);
    assert_eq!(bench.sent(), ["progress"]);
    bench.message(progress(9_001));
    assert_eq!(bench.delivered(), [(9_001, 0)]);
    bench.message(progress(9_002));
    assert_eq!(bench.delivered(), [], "it was asked for once");
}

/// The progress that a watcher had asked for counted as told when its queue had no room for it, and the
/// watcher waited for ever.
#[tokio::test]
async fn progress_that_found_no_room_is_asked_for_again() {
    let mut bench = Bench::watching_from(498);
    bench.event(1, 498);
    bench.event(1, 499);
    bench.ask_progress();
    bench.message(progress(9_000));
    assert_eq!(bench.sent(), ["progress", "cancel 1"]);
    assert_eq!(bench.delivered(), [(498, 1), (499, 1)]);
    bench.resume();
    bench.created(2);
    assert_eq!(bench.sent(), ["create 2 from 500", "progress"]);
}

/// A server that ends its first stream when it is asked for progress, and answers on the later ones.
#[derive(Default)]
struct BreaksOnce {
    is_broken: Arc<AtomicBool>,
}

#[tonic::async_trait]
impl WatchService for BreaksOnce {
    type WatchStream = UnboundedReceiverStream<std::result::Result<WatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<Streaming<WatchRequest>>,
    ) -> std::result::Result<Response<Self::WatchStream>, Status> {
        let mut requests = request.into_inner();
        let is_broken = Arc::clone(&self.is_broken);
        let (sender, replies) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(request)) = requests.next().await {
                let reply = match request.request_union {
                    Some(RequestUnion::CreateRequest(create)) => created(create.watch_id, 9),
                    Some(RequestUnion::ProgressRequest(_)) => {
                        if !is_broken.swap(true, Ordering::SeqCst) {
                            return;
                        }
                        progress(9)
                    }
                    _ => continue,
                };
                let _ = sender.send(Ok(reply));
            }
        });
        Ok(Response::new(UnboundedReceiverStream::new(replies)))
    }
}

/// The stream broke between a request for progress and its answer. The watch was created again, but
/// nobody asked again: a watcher of an idle range waited for ever.
#[tokio::test]
async fn progress_is_asked_for_again_when_the_stream_broke_before_the_answer() {
    let server = BreaksOnce::default();
    let is_broken = Arc::clone(&server.is_broken);
    let services = Server::builder().add_service(WatchServer::new(server));
    let address = crate::fake::serve(services).await;
    let builder = Client::builder().endpoints([address]);
    let client = builder.connect_lazy().unwrap();
    let mut watcher = client.watch("k").await.unwrap();
    watcher.request_progress().unwrap();
    let batch = timeout(Duration::from_secs(10), watcher.next()).await;
    assert!(is_broken.load(Ordering::SeqCst));
    let batch = batch.expect("it was not asked for again").unwrap().unwrap();
    assert!(batch.is_progress() && batch.revision == 9, "{batch:?}");
}
