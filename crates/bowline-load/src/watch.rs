//! `bench watch`: many watchers of the same keys, and the number of events per second that the server delivers to them.
//!
//! A watcher is a stream that stays open, built from the same parts as the other loads. Each event is a message, or part of
//! one, in each stream; it is counted, not decoded. A separate thread sends the puts, so that counting does not add to
//! their latency.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bowline_proto::etcdserverpb::watch_request::RequestUnion;
use bowline_proto::etcdserverpb::{WatchCreateRequest, WatchRequest};
use prost::Message;

use super::load::{self, Plan};
use super::machine;
use super::report::{Figures, Report, micros_each, per_second};
use super::wire::{End, Link, Sink, Target, Way, with_prefix};
use super::workload::Workload;
use crate::args::{Load, WatchLoad};
use crate::error::{Error, Result};
use crate::progress::Show;

/// The state that the watchers share with the thread that waits for them.
#[derive(Default)]
struct Shared {
    created: AtomicU64,
    events: AtomicU64,
    bytes: AtomicU64,
    broken: AtomicU64,
    is_over: AtomicBool,
}

/// What came of puts that many watchers watch.
pub struct Watched {
    pub(crate) watchers: u64,
    /// Of the puts.
    pub(crate) puts: Report,
    pub(crate) events: u64,
    pub(crate) events_expected: u64,
    /// Until the last event.
    pub(crate) elapsed: Duration,
    pub(crate) bytes: u64,
    pub(crate) broken_streams: u64,
    pub(crate) client_cpu: Duration,
}

impl Watched {
    /// The results, each under its name.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let puts = &self.puts;
        vec![
            ("benchmark", "watch".into()),
            ("watchers", self.watchers.into()),
            ("puts", puts.succeeded().into()),
            ("puts_per_second", puts.throughput().into()),
            ("put_p50_ms", puts.percentile_ms(50.0).into()),
            ("put_p99_ms", puts.percentile_ms(99.0).into()),
            ("put_errors", puts.failed().into()),
            ("events", self.events.into()),
            ("events_expected", self.events_expected.into()),
            ("seconds", self.elapsed.as_secs_f64().into()),
            (
                "events_per_second",
                per_second(self.events, self.elapsed).into(),
            ),
            ("bytes", self.bytes.into()),
            ("broken_streams", self.broken_streams.into()),
            (
                "client_cpu_us_per_event",
                micros_each(self.client_cpu, self.events).into(),
            ),
        ]
    }

    /// A load of which no put succeeded has measured nothing.
    pub fn expect_some_success(&self) -> Result<()> {
        self.puts.expect_some_success()
    }
}

/// Opens the watches, puts, and waits until every event has come, or none comes any more.
pub(crate) fn measure(
    args: &WatchLoad,
    addresses: &[String],
    way: &Way,
    show: Show<'_>,
) -> Result<Watched> {
    let watchers = u64::try_from(args.watchers.max(1)).unwrap_or(u64::MAX);
    let shared = Arc::new(Shared::default());
    let thread = {
        let (shared, args, addresses) = (Arc::clone(&shared), args.clone(), addresses.to_vec());
        let way = way.clone();
        std::thread::spawn(move || watch(&shared, &args, &addresses, &way))
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while shared.created.load(Ordering::Relaxed) < watchers && !thread.is_finished() {
        if Instant::now() > deadline {
            shared.is_over.store(true, Ordering::Relaxed);
            let created = shared.created.load(Ordering::Relaxed);
            let text = format!("only {created} of {watchers} watchers were created in a minute");
            return Err(Error::Unreachable(text));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let started = Instant::now();
    let (cpu, before) = (
        machine::cpu_of_self(),
        shared.events.load(Ordering::Relaxed),
    );
    let load = Load {
        clients: args.clients,
        total: args.total.or(args.duration.is_none().then_some(1_000)),
        duration: args.duration,
        rate: args.rate,
        sequential_keys: true,
        val_size: args.val_size,
        ..Load::default()
    };
    let workload = Workload::puts(&load)?;
    let plan = Plan {
        name: "watch",
        addresses: addresses.to_vec(),
        way: way.clone(),
        load,
    };
    let report = load::run(&plan, &workload, show)?;
    // Every watcher receives every put.
    let expected = report.succeeded() * watchers;
    let events = || shared.events.load(Ordering::Relaxed) - before;
    let (mut last, mut last_at) = (events(), Instant::now());
    while last < expected && last_at.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(2));
        let now = events();
        if now > last {
            (last, last_at) = (now, Instant::now());
        }
    }
    let elapsed = last_at.duration_since(started);
    let cpu = machine::cpu_of_self().saturating_sub(cpu);
    shared.is_over.store(true, Ordering::Relaxed);
    match thread.join() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(Error::Unreachable(error.to_string())),
        Err(_) => {
            return Err(Error::Internal("the watchers' thread panicked".to_owned()));
        }
    }
    Ok(Watched {
        watchers,
        puts: report,
        events: last,
        events_expected: expected,
        elapsed,
        bytes: shared.bytes.load(Ordering::Relaxed),
        broken_streams: shared.broken.load(Ordering::Relaxed),
        client_cpu: cpu,
    })
}

/// Opens all watches, and counts until it is over.
fn watch(
    shared: &Arc<Shared>,
    args: &WatchLoad,
    addresses: &[String],
    way: &Way,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = tokio::task::LocalSet::new();
    let watchers = args.watchers.max(1);
    let connections = args.conns.clamp(1, watchers);
    runtime.block_on(local.run_until(async {
        let tasks: Vec<_> = (0..connections)
            .map(|index| {
                let shared = Arc::clone(shared);
                let address = addresses[index % addresses.len()].clone();
                let way = way.clone();
                let mine = (index..watchers).step_by(connections).len();
                let streams = args.streams.clamp(1, mine);
                tokio::task::spawn_local(async move {
                    let done = follow(&shared, &address, &way, mine, streams).await;
                    if done.is_err() && !shared.is_over.load(Ordering::Relaxed) {
                        shared.broken.fetch_add(1, Ordering::Relaxed);
                    }
                    done
                })
            })
            .collect();
        let mut outcome = Ok(());
        for task in tasks {
            outcome = outcome.and(task.await.map_err(io::Error::other).flatten());
        }
        outcome
    }))
}

/// One connection with its watches.
async fn follow(
    shared: &Shared,
    address: &str,
    way: &Way,
    watches: usize,
    streams: usize,
) -> io::Result<()> {
    let target = Target {
        path: "/etcdserverpb.Watch/Watch",
        metadata: None,
    };
    let mut link = Link::connect(address, &[target], way).await?;
    let create = WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(WatchCreateRequest {
            key: "\0".into(),
            range_end: "\0".into(),
            ..WatchCreateRequest::default()
        })),
    };
    let create = with_prefix(&create.encode_to_vec());
    for stream in 0..streams {
        let count = (stream..watches).step_by(streams).len();
        let tag = u32::try_from(stream).unwrap_or(u32::MAX);
        let bytes = create.len() * count;
        link.connection().request(tag, 0, bytes, false, |out| {
            out.extend(create.repeat(count));
        });
    }
    let mut counter = Counter {
        shared,
        partial: HashMap::new(),
    };
    while !shared.is_over.load(Ordering::Relaxed) && link.connection().open() > 0 {
        let turn = tokio::time::timeout(Duration::from_millis(100), link.exchange(&mut counter));
        if let Ok(came) = turn.await {
            came?;
        }
    }
    Ok(())
}

/// Counts the events of the watches.
struct Counter<'a> {
    shared: &'a Shared,
    /// The beginning of a message whose rest has not come, of each stream.
    partial: HashMap<u32, Vec<u8>>,
}

impl Sink for Counter<'_> {
    fn arrived(&mut self) {}

    fn data(&mut self, tag: u32, bytes: &[u8]) {
        let count = u64::try_from(bytes.len()).unwrap_or(0);
        self.shared.bytes.fetch_add(count, Ordering::Relaxed);
        let partial = self.partial.entry(tag).or_default();
        let mut rest = bytes;
        let joined;
        if !partial.is_empty() {
            partial.extend_from_slice(bytes);
            joined = std::mem::take(partial);
            rest = &joined;
        }
        while let Some(prefix) = rest.get(1..5) {
            let length = prefix
                .iter()
                .fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
            let Some(message) = rest.get(5..5 + length) else {
                break;
            };
            let (created, events) = look_at(message);
            self.shared.created.fetch_add(created, Ordering::Relaxed);
            self.shared.events.fetch_add(events, Ordering::Relaxed);
            rest = &rest[5 + length..];
        }
        partial.extend_from_slice(rest);
    }

    fn end(&mut self, _: u32, _: End) {
        if !self.shared.is_over.load(Ordering::Relaxed) {
            self.shared.broken.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Whether a message of a watch says that it was created, and how many events are in it.
fn look_at(mut message: &[u8]) -> (u64, u64) {
    const CREATED: u64 = 3 << 3;
    const EVENTS: u64 = 11 << 3 | 2;
    let (mut created, mut events) = (0, 0);
    while let Some(key) = varint(&mut message) {
        created += u64::from(key == CREATED);
        events += u64::from(key == EVENTS);
        let Some(number) = varint(&mut message) else {
            break;
        };
        if key & 7 == 2 {
            let length = usize::try_from(number).unwrap_or(usize::MAX);
            message = message.get(length..).unwrap_or_default();
        }
    }
    (created, events)
}

/// Takes a number off the front.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use bowline_proto::etcdserverpb::{ResponseHeader, WatchResponse};
    use bowline_proto::mvccpb::{Event, KeyValue};

    use super::*;

    #[test]
    fn messages_are_counted_however_they_are_cut() {
        let event = Event {
            kv: Some(KeyValue {
                value: vec![b'Z'; 300].into(),
                ..KeyValue::default()
            }),
            ..Event::default()
        };
        let header = Some(ResponseHeader {
            cluster_id: u64::MAX,
            revision: 5,
            ..ResponseHeader::default()
        });
        let created = WatchResponse {
            header,
            created: true,
            ..WatchResponse::default()
        };
        let told = WatchResponse {
            header,
            watch_id: 700,
            events: vec![event; 3],
            ..WatchResponse::default()
        };
        let messages = [created, told.clone(), told].map(|one| with_prefix(&one.encode_to_vec()));
        let bytes = messages.concat();
        for size in 1..bytes.len() {
            let shared = Shared::default();
            let mut counter = Counter {
                shared: &shared,
                partial: HashMap::new(),
            };
            for piece in bytes.chunks(size) {
                counter.data(1, piece);
            }
            let seen = |count: &AtomicU64| count.load(Ordering::Relaxed);
            assert_eq!(
                (seen(&shared.created), seen(&shared.events)),
                (1, 6),
                "{size}"
            );
        }
    }
}
