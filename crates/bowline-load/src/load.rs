//! A closed loop of clients: each sends a request, waits for its reply, and sends the next.
//!
//! Each thread has a runtime of its own, some of the connections, and its own counts; nothing is
//! shared while the load runs but two counters. A connection is one task: it writes the requests
//! of its clients, reads the replies that have arrived, and reads the clock once for all of them.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Barrier;

use super::machine;
use super::report::{Counts, Report};
use super::wire::{End, Link, Sink, Way};
use super::workload::{Expected, Keys, Workload};
use crate::args::Load;
use crate::error::{Error, Result};
use crate::progress::{Progress, Show};

/// Where the load goes, and how much of it there is.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    /// `host:port` of each server.
    pub(crate) addresses: Vec<String>,
    pub(crate) way: Way,
    pub(crate) load: Load,
}

impl Plan {
    fn clients(&self) -> usize {
        self.load.clients.max(1)
    }
}

/// How long a connection may be silent while requests are under way on it.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// What the threads share.
struct Shared {
    plan: Plan,
    workload: Workload,
    issued: AtomicU64,
    done: AtomicU64,
    /// Set by the first thread that cannot go on.
    is_over: AtomicBool,
    /// Everybody is connected.
    ready: Barrier,
}

/// Runs the load and waits for its end.
pub(crate) fn run(plan: &Plan, workload: &Workload, show: Show<'_>) -> Result<Report> {
    run_noting(plan, workload, show, &mut || {})
}

/// [`run`], with a call at the moment when all are connected and begin.
pub(crate) fn run_noting(
    plan: &Plan,
    workload: &Workload,
    show: Show<'_>,
    begun: &mut dyn FnMut(),
) -> Result<Report> {
    // A connection without a client would be idle.
    let connections = plan.load.conns.clamp(1, plan.clients());
    let threads = plan.load.threads.clamp(1, connections);
    let shared = Arc::new(Shared {
        plan: plan.clone(),
        workload: workload.clone(),
        issued: AtomicU64::new(0),
        done: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        ready: Barrier::new(connections + 1),
    });
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            let shared = Arc::clone(&shared);
            let mine: Vec<usize> = (thread..connections).step_by(threads).collect();
            std::thread::spawn(move || work(&shared, &mine, connections))
        })
        .collect();
    let progress = show(plan.name, plan.load.total());
    let cpu_before = watch_over(&shared, &*progress, &workers, begun);
    let mut counts = Counts::new();
    let mut failure = None;
    for worker in workers {
        match worker.join() {
            Ok(Ok(mine)) => counts.add(mine),
            Ok(Err(error)) => failure = Some(Error::Unreachable(error.to_string())),
            Err(_) => {
                let text = "a thread of the load panicked".to_owned();
                failure = Some(Error::Internal(text));
            }
        }
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    let cpu = machine::cpu_of_self().saturating_sub(cpu_before);
    let clients = plan.clients();
    Ok(counts.report(plan.name, connections, clients, workload.operations, cpu))
}

/// Lets everybody begin at once, and shows how far they are. Gives the CPU time of this program when they
/// began.
fn watch_over<T>(
    shared: &Arc<Shared>,
    progress: &dyn Progress,
    workers: &[std::thread::JoinHandle<T>],
    begun: &mut dyn FnMut(),
) -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    if let Ok(runtime) = runtime {
        // A thread that cannot connect says so to the rest through `is_over`.
        runtime.block_on(async {
            let wait = shared.ready.wait();
            tokio::pin!(wait);
            loop {
                let grace = tokio::time::sleep(Duration::from_millis(20));
                tokio::select! {
                    _ = &mut wait => return,
                    () = grace => if shared.is_over.load(Ordering::Relaxed) { return },
                }
            }
        });
    }
    begun();
    let cpu = machine::cpu_of_self();
    let mut shown = 0;
    while !workers.iter().all(std::thread::JoinHandle::is_finished) {
        std::thread::sleep(Duration::from_millis(50));
        let done = shared.done.load(Ordering::Relaxed);
        progress.add(done - shown);
        shown = done;
    }
    cpu
}

/// One thread: its connections, on a runtime of its own.
fn work(shared: &Arc<Shared>, mine: &[usize], connections: usize) -> io::Result<Counts> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Readiness is looked for after every few tasks: a task is one connection's whole turn.
        .event_interval(16)
        .build()?;
    let counts = Rc::new(RefCell::new(Counts::new()));
    let local = tokio::task::LocalSet::new();
    let done = runtime.block_on(local.run_until(async {
        let tasks: Vec<_> = mine
            .iter()
            .map(|index| {
                let (shared, counts, index) = (Arc::clone(shared), Rc::clone(&counts), *index);
                tokio::task::spawn_local(async move {
                    let done = drive(&shared, &counts, index, connections).await;
                    if done.is_err() {
                        shared.is_over.store(true, Ordering::Relaxed);
                    }
                    done
                })
            })
            .collect();
        let mut outcome = Ok(());
        for task in tasks {
            let done = task.await.map_err(io::Error::other).flatten();
            outcome = outcome.and(done);
        }
        outcome
    }));
    done?;
    drop(local);
    let counts = Rc::into_inner(counts).ok_or_else(|| io::Error::other("a task is left"))?;
    Ok(counts.into_inner())
}

/// The clients of one connection.
struct Clients<'a> {
    shared: &'a Shared,
    counts: &'a RefCell<Counts>,
    /// When the request of each was sent, or was due.
    started: Vec<Instant>,
    /// What the answer to the request of each is still to have in it.
    expected: Vec<Expected>,
    /// Clients without a request under way, with the time when their next is due.
    idle: BinaryHeap<Reverse<(Instant, u32)>>,
    now: Instant,
    /// How often each sends, if it is to send at a rate.
    interval: Option<Duration>,
}

impl Sink for Clients<'_> {
    fn arrived(&mut self) {
        self.now = Instant::now();
    }

    fn data(&mut self, tag: u32, bytes: &[u8]) {
        let expected = &mut self.expected[usize::try_from(tag).unwrap_or(0)];
        let is_there = match expected {
            Expected::Nothing => return,
            Expected::Rows => has_rows(bytes),
            Expected::Time => has_time(bytes),
        };
        if is_there {
            *expected = Expected::Nothing;
        }
    }

    fn end(&mut self, tag: u32, end: End) {
        let client = usize::try_from(tag).unwrap_or(0);
        let mut counts = self.counts.borrow_mut();
        let started = self.started[client];
        match end {
            End::Status(0) => {
                let is_empty = self.expected[client] != Expected::Nothing;
                counts.success(self.now.saturating_duration_since(started), is_empty);
            }
            End::Status(code) => {
                let code = bowline_client::Code::from(i32::from(code));
                counts.error(bowline_client::code_name(code).to_owned());
            }
            End::Reset(code) => counts.error(format!("HTTP2_RESET_{code}")),
            End::NoStatus => counts.error("NO_STATUS".to_owned()),
        }
        counts.answered(self.now);
        self.shared.done.fetch_add(1, Ordering::Relaxed);
        let due = self
            .interval
            .map_or(self.now, |interval| started + interval);
        self.idle.push(Reverse((due, tag)));
    }
}

/// Whether rows are in the beginning of an answer: field 2, which follows the header.
fn has_rows(bytes: &[u8]) -> bool {
    matches!(after_header(bytes), Some([0x12, ..]))
}

/// Whether the answer to a renewal tells of time that is left: field 3, which follows the id, field 2.
fn has_time(bytes: &[u8]) -> bool {
    let Some([0x10, rest @ ..]) = after_header(bytes) else {
        return false;
    };
    let id_bytes = rest.iter().position(|byte| *byte < 0x80);
    let after = id_bytes.and_then(|last| rest.get(last + 1..));
    matches!(after, Some([0x18, left, ..]) if *left > 0)
}

/// What follows the header, field 1, in the beginning of an answer.
fn after_header(bytes: &[u8]) -> Option<&[u8]> {
    match bytes {
        // The prefix of gRPC, then the header with its length, which is short.
        [_, _, _, _, _, 0x0a, length, rest @ ..] => rest.get(usize::from(*length)..),
        _ => None,
    }
}

async fn drive(
    shared: &Shared,
    counts: &RefCell<Counts>,
    index: usize,
    connections: usize,
) -> io::Result<()> {
    let plan = &shared.plan;
    let address = &plan.addresses[index % plan.addresses.len()];
    let mut link = Link::connect(address, &shared.workload.targets(), &plan.way).await?;
    tokio::select! {
        _ = shared.ready.wait() => {}
        () = until_over(shared) => return Ok(()),
    }
    let began = Instant::now();
    counts.borrow_mut().began(began);
    let count = (index..plan.clients()).step_by(connections).len();
    let all = u32::try_from(plan.clients()).unwrap_or(u32::MAX);
    let interval = plan
        .load
        .rate
        .map(|rate| Duration::from_secs(1) * all / u32::try_from(rate).unwrap_or(u32::MAX));
    let mut clients = Clients {
        shared,
        counts,
        started: vec![began; count],
        expected: vec![Expected::Nothing; count],
        idle: BinaryHeap::with_capacity(count),
        now: began,
        interval,
    };
    for (tag, global) in (index..plan.clients()).step_by(connections).enumerate() {
        // At a rate, clients begin one after the other.
        let global = u32::try_from(global).unwrap_or(0);
        let offset = interval.map_or(Duration::ZERO, |interval| interval * global / all);
        clients
            .idle
            .push(Reverse((began + offset, u32::try_from(tag).unwrap_or(0))));
    }
    let deadline = plan.load.duration.map(|duration| began + duration);
    let mut keys = Keys::new(u64::try_from(index).unwrap_or(0));
    loop {
        let is_over = deadline.is_some_and(|deadline| clients.now >= deadline)
            || shared.is_over.load(Ordering::Relaxed);
        let more = !is_over && issue(&mut link, &mut clients, &mut keys);
        if link.connection().open() == 0 && !more {
            return Ok(());
        }
        let next_due = clients
            .idle
            .peek()
            .map(|Reverse((due, _))| *due)
            .filter(|_| more);
        let came = match next_due {
            Some(due) if interval.is_some() && link.connection().has_room() => {
                let exchange = link.exchange(&mut clients);
                tokio::select! {
                    came = exchange => came,
                    () = tokio::time::sleep_until(due.into()) => Ok(()),
                }
            }
            _ => tokio::time::timeout(SILENCE_TIMEOUT, link.exchange(&mut clients))
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
        };
        clients.now = Instant::now();
        if let Err(error) = came {
            // All that is under way has failed; the load goes on without this connection.
            let mut counts = counts.borrow_mut();
            for _ in 0..link.connection().open().max(1) {
                counts.error(format!("CONNECTION_{:?}", error.kind()).to_uppercase());
            }
            counts.answered(clients.now);
            return Ok(());
        }
    }
}

/// Begins what is due. Says whether there will be more.
fn issue(link: &mut Link, clients: &mut Clients<'_>, keys: &mut Keys) -> bool {
    let shared = clients.shared;
    let connection = link.connection();
    let total = shared.plan.load.total().unwrap_or(u64::MAX);
    clients.now = Instant::now();
    while let Some(Reverse((due, tag))) = clients.idle.peek().copied() {
        if connection.is_worn_out() {
            // Its clients are idle from now on, which is not to go unnoticed.
            clients
                .counts
                .borrow_mut()
                .error("CONNECTION_CLOSED".to_owned());
            clients.idle.clear();
            return false;
        }
        if due > clients.now || !connection.has_room() {
            return true;
        }
        let number = shared.issued.fetch_add(1, Ordering::Relaxed);
        if number >= total {
            return false;
        }
        clients.idle.pop();
        let client = usize::try_from(tag).unwrap_or(0);
        clients.started[client] = if clients.interval.is_some() {
            due
        } else {
            clients.now
        };
        let (workload, target) = shared.workload.of_request(number);
        clients.expected[client] = workload.expects;
        let bytes = workload.request_bytes();
        connection.request(tag, target, bytes, true, |out| {
            workload.write(out, keys, number);
        });
    }
    true
}

/// Waits until somebody could not connect.
async fn until_over(shared: &Shared) {
    while !shared.is_over.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[cfg(test)]
mod tests {
    use bowline_proto::etcdserverpb::{LeaseKeepAliveResponse, RangeResponse, ResponseHeader};
    use bowline_proto::mvccpb::KeyValue;
    use prost::Message;

    use super::*;
    use crate::progress::hidden;

    /// A server that answers each request after a while, for one connection.
    fn slow_server(pause: Duration) -> String {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            socket.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
            let mut bytes = vec![0; 24];
            socket.read_exact(&mut bytes).unwrap();
            loop {
                let mut header = [0; 9];
                if socket.read_exact(&mut header).is_err() {
                    return;
                }
                bytes.resize(usize::from(header[1]) << 8 | usize::from(header[2]), 0);
                socket.read_exact(&mut bytes).unwrap();
                // Data with the mark of the end is the end of a request.
                if (header[3], header[4]) == (0, 1) {
                    std::thread::sleep(pause);
                    let mut answer = vec![0, 0, 15, 1, 5];
                    answer.extend_from_slice(&header[5..]);
                    answer.extend_from_slice(b"\x00\x0bgrpc-status\x010");
                    socket.write_all(&answer).unwrap();
                }
            }
        });
        address
    }

    fn run_against(address: String, clients: usize, total: u64, rate: Option<u64>) -> Report {
        let load = Load {
            clients,
            total: Some(total),
            rate,
            sequential_keys: true,
            key_space_size: 100,
            val_size: 16,
            ..Load::default()
        };
        let plan = Plan {
            name: "put",
            addresses: vec![address],
            way: Way::default(),
            load: load.clone(),
        };
        run(&plan, &Workload::puts(&load).unwrap(), &hidden).unwrap()
    }

    #[test]
    fn a_latency_is_the_time_until_the_answer_came() {
        let pause = Duration::from_millis(20);
        let report = run_against(slow_server(pause), 1, 10, None);
        assert_eq!((report.succeeded(), report.failed()), (10, 0));
        // No upper bound: on a busy machine the server may sleep long. But one client waits for one answer
        // at a time, so its latencies, kept with three digits, fit into the time of the whole.
        let shortest = report.percentile_ms(1.0);
        assert!(shortest >= 19.9, "{shortest}");
        let elapsed_ms = report.elapsed.as_secs_f64() * 1e3;
        assert!(elapsed_ms >= 200.0, "{elapsed_ms}");
        let sum_ms = report.histogram.mean() / 1e6 * 10.0;
        assert!(sum_ms <= elapsed_ms * 1.002, "{sum_ms} in {elapsed_ms}");
    }

    #[test]
    fn at_a_rate_a_stalled_server_is_charged_for_all_that_waited() {
        // It takes 20 ms for each, and is asked every 10 ms: the last waits for all before it.
        let report = run_against(slow_server(Duration::from_millis(20)), 10, 10, Some(100));
        assert_eq!(report.succeeded(), 10);
        let last = report.percentile_ms(100.0);
        assert!(last > 100.0, "{last}");
    }

    #[test]
    fn an_answer_without_a_row_is_noticed() {
        let answer = |kvs: Vec<KeyValue>| {
            let header = ResponseHeader {
                cluster_id: u64::MAX,
                member_id: u64::MAX,
                revision: 1 << 40,
                raft_term: 9,
            };
            let reply = RangeResponse {
                header: Some(header),
                count: 5,
                kvs,
                ..RangeResponse::default()
            };
            [vec![0; 5], reply.encode_to_vec()].concat()
        };
        assert!(has_rows(&answer(vec![KeyValue::default()])));
        assert!(!has_rows(&answer(vec![])));
        assert!(!has_rows(&[0; 5]));
    }

    #[test]
    fn a_renewal_of_a_lease_that_is_gone_is_noticed() {
        let answer = |ttl: i64| {
            let reply = LeaseKeepAliveResponse {
                header: Some(ResponseHeader {
                    revision: 1 << 40,
                    ..ResponseHeader::default()
                }),
                id: 1 << 21,
                ttl,
            };
            [vec![0; 5], reply.encode_to_vec()].concat()
        };
        assert!(has_time(&answer(1)));
        assert!(!has_time(&answer(0)));
        assert!(!has_time(&answer(1)[..5]));
    }
}
