//! Many clients of one server, some of which behave badly: it stays small, and the others are served.
//!
//! The bounds on memory are generous: a few times what was measured where they were written.

use std::io::Write;
use std::time::Duration;

use bowline_proto::etcdserverpb as pb;
use pb::watch_request::RequestUnion;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Place;
use crate::raw_http2::{END_HEADERS, HEADERS, PREFACE, RESET, Raw, frame, head};
use crate::serve::with_server_of;

pub(crate) const PUT: &str = "/etcdserverpb.KV/Put";
pub(crate) const RANGE: &str = "/etcdserverpb.KV/Range";
const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const WATCH: &str = "/etcdserverpb.Watch/Watch";
pub(crate) const MIB: u64 = 1 << 20;

/// As many open files as this process may have; gives how many connections that lets it make.
pub(crate) fn connections_max(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // When it is refused, what there was is what there is.
    let _ = setrlimit(Resource::Nofile, raised);
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // The rest is for the tests beside this one.
    let most = usize::try_from(most / 2).unwrap_or(usize::MAX);
    if most < wanted {
        println!("only {most} of {wanted} connections: there may be no more open files");
    }
    wanted.min(most)
}

/// What of a process is in memory, in bytes: all (`VmRSS`), or its own without files (`RssAnon`).
pub(crate) fn memory(pid: u32, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let mut lines = status.lines().filter_map(|line| line.split_once(':'));
    let line = lines.find_map(|(name, size)| (name == what).then_some(size));
    let kib = line.and_then(|line| line.split_whitespace().next());
    kib.and_then(|kib| kib.parse::<u64>().ok()).expect("a size") * 1024
}

pub(crate) fn put(raw: &mut Raw, key: &str, value: &[u8]) -> i64 {
    try_put(raw, key, value).expect("an answer")
}

/// The same; `None` when the server refuses.
pub(crate) fn try_put(raw: &mut Raw, key: &str, value: &[u8]) -> Option<i64> {
    let request = pb::PutRequest {
        key: key.to_owned().into(),
        value: value.to_vec().into(),
        ..pb::PutRequest::default()
    };
    let reply: pb::PutResponse = raw.try_call(PUT, &request)?;
    Some(reply.header.expect("a header").revision)
}

fn get(raw: &mut Raw, key: &str) -> Option<Vec<u8>> {
    let request = pb::RangeRequest {
        key: key.to_owned().into(),
        ..pb::RangeRequest::default()
    };
    let reply: pb::RangeResponse = raw.call(RANGE, &request);
    reply.kvs.first().map(|kv| kv.value.to_vec())
}

/// Begins so many watches of all keys with a prefix on a stream.
pub(crate) fn watch(raw: &mut Raw, prefix: &str, count: usize) -> u32 {
    watch_from(raw, prefix, count, 0)
}

/// The same, from a revision on.
fn watch_from(raw: &mut Raw, prefix: &str, count: usize, start_revision: i64) -> u32 {
    let call = raw.begin(WATCH);
    let mut range_end = prefix.as_bytes().to_vec();
    *range_end.last_mut().expect("a prefix") += 1;
    let create = pb::WatchCreateRequest {
        key: prefix.to_owned().into(),
        range_end: range_end.into(),
        start_revision,
        ..pb::WatchCreateRequest::default()
    };
    let create = pb::WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(create)),
    };
    for _ in 0..count {
        raw.send(call, &create, false);
    }
    call
}

/// Half are good clients. Of the others half are silent, and half take nothing of what they watch, though
/// their windows have room for all of it: of these, each tenth asks for the past, too.
#[test]
fn two_thousand_connections_of_which_half_do_not_read_stay_within_their_memory() {
    /// Of it 128 are the bound over all queues. Measured: 320 MiB.
    const MEMORY_MAX: u64 = 500 * MIB;
    let place = Place::new();
    let count = connections_max(2000);
    with_server_of(&place, "crowd", "--unread-reply-timeout 10m", |at, pid| {
        let value = vec![b'v'; 16 << 10];
        let mut writer = Raw::open(at);
        for number in 0..512 {
            put(&mut writer, &format!("k/{number}"), &value);
        }
        let empty = memory(pid, "VmRSS");
        let mut others = Vec::new();
        for number in 0..count / 2 {
            let mut raw = Raw::open_wide(at);
            match number % 20 {
                0 => _ = watch_from(&mut raw, "k/", 1, 2),
                2 | 4 | 6 | 8 | 10 | 12 | 14 | 16 | 18 => _ = watch(&mut raw, "k/", 1),
                _ => {}
            }
            others.push(raw);
        }
        let mut good: Vec<Raw> = (0..count / 2).map(|_| Raw::open(at)).collect();
        for (number, raw) in good.iter_mut().enumerate() {
            let key = format!("k/{number}");
            put(raw, &key, &value);
            assert_eq!(get(raw, &key).as_deref(), Some(&value[..]));
        }
        let full = memory(pid, "VmRSS");
        println!(
            "{count} connections, a quarter of them watches that nobody reads: {} MiB, {} when empty",
            full / MIB,
            empty / MIB
        );
        assert!(full - empty < MEMORY_MAX, "{} MiB", (full - empty) / MIB);
        drop(others);
    });
}

#[test]
fn what_is_begun_and_not_ended_and_floods_of_resets_are_dropped() {
    let place = Place::new();
    const RESETS_MAX: usize = 300;
    let settings = format!("--partial-request-timeout 700ms --max-resets {RESETS_MAX}");
    with_server_of(&place, "dropped", &settings, |at, _| {
        let mut good = Raw::open(at);
        put(&mut good, "k", b"v");
        let mut silent = Raw::connect(at);
        let mut half_preface = Raw::connect(at);
        half_preface.stream.write_all(&PREFACE[..10]).unwrap();
        let mut half_head = Raw::open(at);
        let begun = frame(HEADERS, 0, 1, &head(PUT)[..4]);
        half_head.stream.write_all(&begun).unwrap();
        let mut half_frame = Raw::open(at);
        let begun = frame(HEADERS, END_HEADERS, 1, &head(PUT));
        half_frame.stream.write_all(&begun[..20]).unwrap();
        for (what, raw) in [
            ("nothing", &mut silent),
            ("half a preface", &mut half_preface),
            ("half a head", &mut half_head),
            ("half a frame", &mut half_frame),
        ] {
            assert!(raw.is_hung_up(), "{what} is waited for");
        }
        let ask_for = |path, call| frame(HEADERS, END_HEADERS, call, &head(path));
        let ask = |call| ask_for(PUT, call);
        let back = |call| frame(RESET, 0, call, &8u32.to_be_bytes());
        let grant = pb::LeaseGrantRequest { id: 0, ttl: 60 };
        // A client may give up many calls at once, and the server sees some of these resets before it has
        // accepted their calls. The HTTP/2 library allowed 20 of those and then closed the connection, with
        // every other call of that client. A put does not reach the library any more, a call about a lease does.
        for path in [PUT, GRANT] {
            let mut impatient = Raw::open(at);
            let lease: pb::LeaseGrantResponse = impatient.call(GRANT, &grant);
            let kept_alive = impatient.begin("/etcdserverpb.Lease/LeaseKeepAlive");
            let is_kept_alive = |impatient: &mut Raw| {
                let request = pb::LeaseKeepAliveRequest { id: lease.id };
                impatient.send(kept_alive, &request, false);
                let reply = impatient.receive::<pb::LeaseKeepAliveResponse>(kept_alive);
                reply.is_some_and(|it| it.ttl == grant.ttl)
            };
            assert!(is_kept_alive(&mut impatient));
            let calls = (kept_alive + 2..).step_by(2).take(RESETS_MAX - 10);
            let all: Vec<u8> = calls
                .flat_map(|call| [ask_for(path, call), back(call)].concat())
                .collect();
            impatient.stream.write_all(&all).unwrap();
            impatient.settle().expect("it may give up its calls");
            assert!(is_kept_alive(&mut impatient), "its other calls go on");
        }
        // Taken back before they are begun.
        let mut flood = Raw::open(at);
        let calls = (1..4001).step_by(2);
        let all: Vec<u8> = calls
            .flat_map(|call| [ask(call), back(call)].concat())
            .collect();
        // The server may hang up before all of it is sent.
        let _ = flood.stream.write_all(&all);
        assert!(flood.is_hung_up(), "a flood of resets is suffered");
        // And once they are.
        let mut flood = Raw::open(at);
        let mut count = 0;
        for call in (1..4001).step_by(2) {
            let begun = flood.stream.write_all(&ask(call));
            let taken_back = begun
                .and_then(|()| flood.settle())
                .and_then(|()| flood.stream.write_all(&back(call)));
            if taken_back.is_err() {
                break;
            }
            count += 1;
        }
        let is_limit = (RESETS_MAX..RESETS_MAX + 3).contains(&count);
        assert!(is_limit, "hung up after {count} resets");
        // It was silent for longer than any of them, between two calls.
        assert_eq!(get(&mut good, "k").as_deref(), Some(&b"v"[..]));
        put(&mut good, "k", b"w");
    });
}

#[test]
fn ten_thousand_watches_have_a_price_and_do_not_add_up() {
    const STREAMS: usize = 100;
    const WATCHES: usize = 100;
    /// Measured: 1 to 2 KiB, with their share of stream and connection.
    const BYTES_PER_WATCH_MAX: u64 = 8 << 10;
    let place = Place::new();
    with_server_of(&place, "watches", "", |at, pid| {
        let mut writer = Raw::open(at);
        put(&mut writer, "other", b"v");
        let empty = memory(pid, "VmRSS");
        let mut first = 0;
        for round in 0..3 {
            let mut streams: Vec<(Raw, u32)> = (0..STREAMS)
                .map(|_| {
                    let mut raw = Raw::open(at);
                    let call = watch(&mut raw, "w/", WATCHES);
                    (raw, call)
                })
                .collect();
            for (raw, call) in &mut streams {
                for _ in 0..WATCHES {
                    let told: pb::WatchResponse = raw.receive(*call).expect("it goes on");
                    assert!(told.created);
                }
            }
            let used = memory(pid, "VmRSS").saturating_sub(empty);
            let each = used / (STREAMS * WATCHES) as u64;
            println!(
                "round {round}: {} MiB, {each} bytes for each watch",
                used / MIB
            );
            assert!(each < BYTES_PER_WATCH_MAX, "{each} bytes for each watch");
            // Each is told of each write, once.
            let revisions = [0, 1].map(|number| put(&mut writer, &format!("w/{number}"), b"v"));
            for (raw, call) in &mut streams {
                let mut events = 0;
                while events < 2 * WATCHES {
                    let told: pb::WatchResponse = raw.receive(*call).expect("it goes on");
                    for event in told.events {
                        let revision = event.kv.expect("a key").mod_revision;
                        assert!(revisions.contains(&revision));
                        events += 1;
                    }
                }
                assert_eq!(events, 2 * WATCHES);
            }
            match round {
                0 => first = memory(pid, "VmRSS"),
                _ => assert!(
                    memory(pid, "VmRSS") < first + first / 4 + 16 * MIB,
                    "{} MiB after {} MiB: watches that are gone are kept",
                    memory(pid, "VmRSS") / MIB,
                    first / MIB
                ),
            }
        }
    });
}

#[test]
fn a_watch_that_nobody_reads_holds_up_no_writer_and_is_told_everything_in_the_end() {
    const WRITES: usize = 800;
    /// The queue of a client is 4 MiB; the values are 25.
    const MEMORY_MAX: u64 = 160 * MIB;
    let place = Place::new();
    with_server_of(&place, "slow", "--unread-reply-timeout 10m", |at, pid| {
        let mut writer = Raw::open(at);
        let mut slow = Raw::open(at);
        let call = watch(&mut slow, "k", 1);
        let created: pb::WatchResponse = slow.receive(call).expect("it goes on");
        assert!(created.created);
        let empty = memory(pid, "VmRSS");
        let value = vec![b'v'; 32 << 10];
        let revisions: Vec<i64> = (0..WRITES).map(|_| put(&mut writer, "k", &value)).collect();
        // Half of it may be the memtable.
        let used = memory(pid, "VmRSS").saturating_sub(empty);
        println!("{} MiB after {WRITES} writes that nobody reads", used / MIB);
        assert!(used < MEMORY_MAX, "{} MiB", used / MIB);
        let mut told = Vec::new();
        while told.len() < WRITES {
            let message: pb::WatchResponse = slow.receive(call).expect("it goes on");
            assert!(!message.canceled, "{message:?}");
            let events = message.events.into_iter();
            told.extend(events.map(|event| event.kv.expect("a key").mod_revision));
        }
        assert_eq!(told, revisions);
    });
}

/// A crowd that asks for the past and does not read it: what the server keeps for all of them is bounded, and
/// who reads in the end is told everything.
#[test]
fn a_crowd_that_does_not_read_the_past_has_a_bound_over_all_and_is_told_everything_in_the_end() {
    const CLIENTS: usize = 200;
    const WRITES: usize = 200;
    /// Each alone would have 4 MiB in its queue, and as much read for it. The bound over all queues is 128;
    /// measured: 206 to 255 MiB, and 697 to 927 while a watch whose connection had room again kept what had
    /// been read for it until its turn.
    const MEMORY_MAX: u64 = 450 * MIB;
    let place = Place::new();
    with_server_of(&place, "past", "--unread-reply-timeout 10m", |at, pid| {
        let mut writer = Raw::open(at);
        let value = vec![b'v'; 60 << 10];
        let mut write = |key: &str| put(&mut writer, key, &value);
        let mut revisions: Vec<i64> = (0..WRITES).map(|_| write("k")).collect();
        let empty = memory(pid, "VmRSS");
        let begin = |_| {
            let mut raw = Raw::open_wide(at);
            let call = watch_from(&mut raw, "k", 1, revisions[0]);
            (raw, call)
        };
        let mut crowd: Vec<(Raw, u32)> = (0..CLIENTS).map(begin).collect();
        // It is theirs to read, as far as there is room.
        let (mut used, mut is_steady) = (0, false);
        while !is_steady {
            std::thread::sleep(Duration::from_millis(500));
            let now = memory(pid, "VmRSS").saturating_sub(empty);
            is_steady = now <= used + MIB;
            used = used.max(now);
        }
        println!("{} MiB for {CLIENTS} clients that do not read", used / MIB);
        assert!(used < MEMORY_MAX, "{} MiB", used / MIB);
        revisions.push(write("k"));
        for (raw, call) in crowd.iter_mut().step_by(9) {
            let mut told = Vec::new();
            while told.len() < revisions.len() {
                let message: pb::WatchResponse = raw.receive(*call).expect("it goes on");
                assert!(!message.canceled, "{message:?}");
                let events = message.events.into_iter();
                told.extend(events.map(|event| event.kv.expect("a key").mod_revision));
            }
            assert_eq!(told, revisions);
        }
    });
}
