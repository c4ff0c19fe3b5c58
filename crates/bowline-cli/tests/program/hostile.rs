//! Clients that want to exhaust a server: what they can make it hold, and for how long.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bowline_proto::etcdserverpb as pb;
use bowline_proto::v1;
use prost::Message;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::Place;
use crate::attacks::{
    HALF_A_FRAME, HALF_A_FRAME_HEAD, HALF_A_HEAD, HASH, HASH_KV, TXN, from_address, message_head,
};
use crate::crowd::{MIB, PUT, RANGE, connections_max, memory, put, watch};
use crate::raw_http2::{CONTINUATION, DATA, END_STREAM, Raw, frame};
use crate::serve::with_server_of;

/// How long the server may take for what it does after a second, on a machine that does much else.
const SOON: Duration = Duration::from_secs(40);

/// A large value, with which a request stays below the window of a call, which nobody counts here.
const LARGE_BYTES: usize = 900_000;

/// Puts what is larger than a frame.
fn put_large(raw: &mut Raw, key: &str, value: &[u8]) {
    let request = pb::PutRequest {
        key: key.to_owned().into(),
        value: value.to_vec().into(),
        ..pb::PutRequest::default()
    };
    let reply: pb::PutResponse = write(raw, PUT, &request);
    assert!(reply.header.is_some());
}

/// Sends a request that is larger than a frame, and waits for its answer.
fn write<M: Message + Default>(raw: &mut Raw, path: &str, request: &impl Message) -> M {
    raw.settle().expect("the settings are known");
    let call = raw.begin(path);
    let bytes = request.encode_to_vec();
    raw.send_part(call, &message_head(bytes.len() as u32))
        .unwrap();
    raw.send_part(call, &bytes).unwrap();
    let end = frame(DATA, END_STREAM, call, b"");
    raw.stream.write_all(&end).unwrap();
    raw.receive(call).expect("an answer")
}

/// One connection began 2,000 messages of 1.5 MB, ended none, and made the server hold 2.1 GB: there was a
/// bound on a message, and none on how many have begun.
#[test]
fn what_a_connection_begins_and_does_not_end_stays_within_the_budget() {
    const CALLS: usize = 400;
    const MESSAGE_BYTES: u32 = 1_500_000;
    const PART_BYTES: usize = 900_000;
    /// The two budgets of the flags below, and what a connection and the allocator take besides.
    const MEMORY_MAX: u64 = (64 + 40) * MIB;
    let place = Place::new();
    let settings = "--max-client-memory 67108864 --max-connection-memory 33554432";
    with_server_of(&place, "half", settings, |at, pid| {
        let mut good = Raw::open(at);
        put(&mut good, "k", b"v");
        let empty = memory(pid, "RssAnon");
        let part = vec![b'v'; PART_BYTES];
        let mut greedy = Raw::open(at);
        greedy.settle().unwrap();
        for _ in 0..CALLS {
            let call = greedy.begin(PUT);
            greedy
                .send_part(call, &message_head(MESSAGE_BYTES))
                .unwrap();
            greedy.send_part(call, &part).unwrap();
        }
        greedy.settle().unwrap();
        let used = memory(pid, "RssAnon").saturating_sub(empty);
        println!("{} MiB for {CALLS} messages that do not end", used / MIB);
        assert!(used < MEMORY_MAX, "{} MiB", used / MIB);
        // Those beyond the budget were refused, the others are waited for.
        let kept = 33_554_432 / PART_BYTES;
        while greedy.ended < CALLS - kept - 5 {
            greedy.read_frame(0).unwrap();
        }
        // Another connection has room for a large request meanwhile.
        put_large(&mut good, "k", &vec![b'w'; LARGE_BYTES]);
    });
}

/// A body that trickles in had no deadline: each of its frames was whole.
#[test]
fn a_request_that_trickles_in_is_ended_and_a_stream_may_be_silent() {
    let place = Place::new();
    let settings = "--partial-request-timeout 1s";
    with_server_of(&place, "trickle", settings, |at, _| {
        let mut good = Raw::open(at);
        let first = put(&mut good, "k", b"v");
        // A stream that says nothing for longer than that.
        let mut silent = Raw::open(at);
        let watching = watch(&mut silent, "k", 1);
        let created: pb::WatchResponse = silent.receive(watching).expect("it goes on");
        assert!(created.created);
        let begun = Instant::now();
        for is_watch in [false, true] {
            let mut slow = Raw::open(at);
            let call = match is_watch {
                true => watch(&mut slow, "other", 1),
                false => slow.begin(PUT),
            };
            slow.send_part(call, &message_head(1000)).unwrap();
            slow.settle().unwrap();
            let ended = slow.ended;
            while slow.ended == ended {
                assert!(
                    begun.elapsed() < SOON,
                    "it is waited for, watch: {is_watch}"
                );
                slow.stream.write_all(&frame(DATA, 0, call, b"v")).unwrap();
                std::thread::sleep(Duration::from_millis(50));
                slow.settle().unwrap();
            }
        }
        // The same in HTTP/1.
        let mut slow = TcpStream::connect(at).unwrap();
        let head = "POST /v3/kv/put HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                    Content-Length: 100000\r\n\r\n";
        slow.write_all(head.as_bytes()).unwrap();
        slow.set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let mut byte = [0];
        while slow.read(&mut byte).is_err() {
            assert!(begun.elapsed() < SOON * 2, "HTTP/1 is waited for");
            // It may be closed by now.
            let _ = slow.write_all(b" ");
        }
        put(&mut good, "k", b"w");
        let event: pb::WatchResponse = silent.receive(watching).expect("it goes on");
        let revision = event.events[0].kv.as_ref().map(|kv| kv.mod_revision);
        assert_eq!(revision, Some(first + 1));
    });
}

/// A call whose reply is not read was kept as long as its client liked, and with it the reply.
#[test]
fn a_call_whose_reply_is_not_read_is_ended() {
    let place = Place::new();
    with_server_of(&place, "unread", "--unread-reply-timeout 1s", |at, _| {
        let mut good = Raw::open(at);
        put(&mut good, "k", &[b'v'; 60_000]);
        let request = pb::RangeRequest {
            key: "k".into(),
            ..pb::RangeRequest::default()
        };
        for is_watch in [false, true] {
            let mut shut = Raw::open_shut(at);
            let call = match is_watch {
                true => watch(&mut shut, "k", 1),
                false => {
                    let call = shut.begin(RANGE);
                    shut.send(call, &request, true);
                    call
                }
            };
            let begun = Instant::now();
            let ended = loop {
                if let Err(error) = shut.read_frame(call) {
                    break error.to_string();
                }
            };
            assert_eq!(ended, "the call was reset", "watch: {is_watch}");
            assert!(begun.elapsed() < SOON);
        }
        // A client with room for everything that does not take it from its socket.
        let mut deaf = Raw::open_wide(at);
        for _ in 0..400 {
            let call = deaf.begin(RANGE);
            deaf.send(call, &request, true);
        }
        let begun = Instant::now();
        while deaf.stream.write_all(&frame(DATA, 0, 1, b"")).is_ok() {
            assert!(begun.elapsed() < SOON, "it is waited for");
            std::thread::sleep(Duration::from_millis(100));
        }
        put(&mut good, "k", b"w");
    });
}

/// Each hash read everything on a thread of its own, however many were asked for at once: `HashKV`, and long after
/// that had been mended `Hash`.
#[test]
fn hashes_take_turns() {
    const CALLS: usize = 60;
    const KEYS: usize = 6000;
    const TOGETHER: usize = 100;
    let place = Place::new();
    with_server_of(&place, "turns", "", |at, pid| {
        // So much that a hash takes longer than it takes to ask for all of them.
        let mut writer = Raw::open(at);
        for number in 0..KEYS / TOGETHER {
            let put = |key| pb::RequestOp {
                request: Some(pb::request_op::Request::RequestPut(pb::PutRequest {
                    key: format!("k/{number}/{key}").into(),
                    value: vec![b'v'; 8 << 10].into(),
                    ..pb::PutRequest::default()
                })),
            };
            let puts = pb::TxnRequest {
                success: (0..TOGETHER).map(put).collect(),
                ..pb::TxnRequest::default()
            };
            let reply: pb::TxnResponse = write(&mut writer, TXN, &puts);
            assert!(reply.succeeded);
        }
        let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        let idle = threads();
        for method in [HASH, HASH_KV] {
            let mut asking = Raw::open(at);
            for _ in 0..CALLS {
                let call = asking.begin(method);
                // The two requests look the same: neither names a revision.
                asking.send(call, &pb::HashKvRequest::default(), true);
            }
            let mut most = idle;
            while asking.ended < CALLS {
                asking.read_frame(0).unwrap();
                most = most.max(threads());
            }
            println!("{idle} threads, {most} while {method} was asked for {CALLS} times");
            assert!(
                most < idle + CALLS / 6,
                "{method}: {most} threads, {idle} before"
            );
        }
    });
}

/// One connection sent 300 transactions of nine ranges each, and made the server hold 3 GB: a reply was charged only once
/// it was a message, and those of a whole entry waited for that at once.
#[test]
fn replies_of_transactions_that_nobody_reads_stay_within_the_budget() {
    const KEYS: usize = 200;
    const VALUE_BYTES: usize = 32 << 10;
    const CALLS: usize = 120;
    const MEMORY_MAX: u64 = (64 + 90) * MIB;
    let place = Place::new();
    let settings = "--max-client-memory 67108864 --max-connection-memory 33554432 \
                    --unread-reply-timeout 10m";
    with_server_of(&place, "replies", settings, |at, pid| {
        let mut good = Raw::open(at);
        for number in 0..KEYS {
            put(&mut good, &format!("k/{number:04}"), &[b'v'; VALUE_BYTES]);
        }
        let of = |request| pb::RequestOp {
            request: Some(request),
        };
        let range = |range_end: &str| {
            of(pb::request_op::Request::RequestRange(pb::RangeRequest {
                key: "k/".into(),
                range_end: range_end.to_owned().into(),
                ..pb::RangeRequest::default()
            }))
        };
        let own = of(pb::request_op::Request::RequestPut(pb::PutRequest {
            key: "own".into(),
            ..pb::PutRequest::default()
        }));
        let txn = |success: Vec<pb::RequestOp>| pb::TxnRequest {
            success,
            ..pb::TxnRequest::default()
        };
        // One of them fits, and is answered.
        let reply: pb::TxnResponse = write(&mut good, TXN, &txn(vec![range("k0"), own.clone()]));
        assert_eq!(reply.responses.len(), 2);
        let before = memory(pid, "RssAnon");
        for what in ["that write", "that read"] {
            let mut ops = vec![range("k0"); 9];
            if what == "that write" {
                ops.push(own.clone());
            }
            for few in [vec![range("k0"), own.clone()], ops] {
                let mut deaf = Raw::open(at);
                for _ in 0..CALLS {
                    let call = deaf.begin(TXN);
                    deaf.send(call, &txn(few.clone()), true);
                }
                let mut highest = 0;
                let until = Instant::now() + Duration::from_secs(2);
                while Instant::now() < until {
                    highest = highest.max(memory(pid, "RssAnon"));
                    std::thread::sleep(Duration::from_millis(5));
                }
                println!(
                    "{} MiB for transactions {what}, {} before",
                    highest / MIB,
                    before / MIB
                );
                assert!(
                    highest < before + MEMORY_MAX,
                    "{} MiB for transactions {what}, {} MiB before",
                    highest / MIB,
                    before / MIB
                );
                // Others are served meanwhile.
                put(&mut good, "meanwhile", b"");
            }
        }
    });
}

/// Queries of `bowline.v1` had turns and no memory budget: the parts of a stream that nobody reads, and the replies to calls
/// of which one connection sends as many as it likes.
#[test]
fn queries_that_nobody_reads_stay_within_the_budget() {
    const KEYS: usize = 300;
    const BLOCKS: u128 = 4500;
    const VALUE_BYTES: usize = 32 << 10;
    const CALLS: usize = 500;
    const MEMORY_MAX: u64 = (64 + 90) * MIB;
    let place = Place::new();
    let settings = "--max-client-memory 67108864 --max-connection-memory 33554432 \
                    --unread-reply-timeout 10m";
    with_server_of(&place, "queries", settings, |at, pid| {
        let mut good = Raw::open(at);
        for number in 0..KEYS {
            put(&mut good, &format!("k/{number:04}"), &[b'v'; VALUE_BYTES]);
            put(&mut good, "often", &[b'v'; VALUE_BYTES]);
        }
        let id = |number: u128| number.to_be_bytes().to_vec().into();
        for start in (0..BLOCKS).step_by(250) {
            let mut writes = Vec::new();
            for number in start..start + 250 {
                writes.push(v1::graph_write::Write::PutBlock(v1::Block {
                    id: id(number),
                    kind: "note".to_owned(),
                    content: vec![b'c'; 1000].into(),
                    ..v1::Block::default()
                }));
                if number > 0 {
                    writes.push(v1::graph_write::Write::PutEdge(v1::Edge {
                        key: Some(v1::EdgeKey {
                            source: id(0),
                            kind: "leads".to_owned(),
                            target: id(number),
                        }),
                        ..v1::Edge::default()
                    }));
                }
            }
            let writes = writes
                .into_iter()
                .map(|write| v1::GraphWrite { write: Some(write) });
            let request = v1::WriteRequest {
                writes: writes.collect(),
            };
            let reply: v1::WriteReply = write(&mut good, "/bowline.v1.Graph/Write", &request);
            assert!(reply.header.is_some());
        }
        let keys = (0..KEYS).map(|number| format!("k/{number:04}").into());
        let queries = [
            (
                "Store/Range",
                v1::RangeRequest {
                    range: Some(v1::KeyRange {
                        key: vec![0].into(),
                        range_end: vec![0].into(),
                    }),
                    ..v1::RangeRequest::default()
                }
                .encode_to_vec(),
            ),
            (
                "Store/Get",
                v1::GetRequest {
                    keys: keys.collect(),
                    ..v1::GetRequest::default()
                }
                .encode_to_vec(),
            ),
            (
                "Store/History",
                v1::HistoryRequest {
                    key: "often".into(),
                    ..v1::HistoryRequest::default()
                }
                .encode_to_vec(),
            ),
            ("Graph/ListBlocks", Vec::new()),
            (
                "Graph/GetBlocks",
                v1::GetBlocksRequest {
                    ids: (0..1000).map(id).collect(),
                    ..v1::GetBlocksRequest::default()
                }
                .encode_to_vec(),
            ),
            (
                "Graph/Traverse",
                v1::TraverseRequest {
                    starts: vec![id(0)],
                    ..v1::TraverseRequest::default()
                }
                .encode_to_vec(),
            ),
            (
                "Graph/Neighbors",
                v1::NeighborsRequest {
                    id: id(0),
                    ..v1::NeighborsRequest::default()
                }
                .encode_to_vec(),
            ),
        ];
        for (query, request) in queries {
            let before = memory(pid, "RssAnon");
            let mut deaf: Vec<Raw> = (0..4).map(|_| Raw::open_shut(at)).collect();
            for raw in &mut deaf {
                for _ in 0..CALLS {
                    let call = raw.begin(&format!("/bowline.v1.{query}"));
                    for part in [&message_head(request.len() as u32)[..], &request] {
                        for part in part.chunks(16_000) {
                            raw.send_part(call, part).unwrap();
                        }
                    }
                    raw.stream
                        .write_all(&frame(DATA, END_STREAM, call, b""))
                        .unwrap();
                }
            }
            let mut highest = 0;
            let until = Instant::now() + Duration::from_secs(2);
            while Instant::now() < until {
                highest = highest.max(memory(pid, "RssAnon"));
                std::thread::sleep(Duration::from_millis(5));
            }
            println!("{query}: {} MiB, {} before", highest / MIB, before / MIB);
            assert!(
                highest < before + MEMORY_MAX,
                "{query}: {} MiB, {} before",
                highest / MIB,
                before / MIB
            );
            // Others are served meanwhile.
            put(&mut good, "meanwhile", b"");
        }
    });
}

/// Many clients that ask for everything and do not read it: each had the whole reply in the server's memory.
#[test]
fn long_ranges_that_nobody_reads_stay_within_the_budget() {
    const CLIENTS: usize = 40;
    const KEYS: usize = 600;
    const VALUE_BYTES: usize = 40 << 10;
    const MEMORY_MAX: u64 = (64 + 60) * MIB;
    let place = Place::new();
    let settings = "--max-client-memory 67108864 --max-connection-memory 33554432 \
                    --unread-reply-timeout 10m";
    with_server_of(&place, "ranges", settings, |at, pid| {
        let mut good = Raw::open(at);
        for number in 0..KEYS {
            put(&mut good, &format!("k/{number:04}"), &[b'v'; VALUE_BYTES]);
        }
        let everything = pb::RangeRequest {
            key: "k/".into(),
            range_end: "k0".into(),
            ..pb::RangeRequest::default()
        };
        // What is cached of the tables is not of the clients.
        let call = good.begin(RANGE);
        good.send(call, &everything, true);
        let reply: pb::RangeResponse = good.receive(call).expect("an answer");
        assert_eq!((reply.kvs.len(), reply.count), (KEYS, KEYS as i64));
        assert!(good.receive::<pb::RangeResponse>(call).is_none());
        let empty = memory(pid, "RssAnon");
        let mut deaf = Vec::new();
        for _ in 0..CLIENTS {
            let mut raw = Raw::open_shut(at);
            let call = raw.begin(RANGE);
            raw.send(call, &everything, true);
            deaf.push(raw);
        }
        // Each has the head of its answer, or was refused, when its range was measured.
        for raw in &mut deaf {
            raw.read_until_head().unwrap();
        }
        let used = memory(pid, "RssAnon").saturating_sub(empty);
        println!(
            "{} MiB for {CLIENTS} ranges of {} MiB",
            used / MIB,
            (KEYS * VALUE_BYTES) as u64 / MIB
        );
        assert!(used < MEMORY_MAX, "{} MiB", used / MIB);
        put(&mut good, "k", b"w");
    });
}

/// A server of `place` with so few open files.
fn start_with_files(place: &Place, files: usize) -> Limited {
    let port = bowline_testing::ports::free_ports(8);
    let (at, peer_at) = (
        format!("127.0.0.1:{port}"),
        format!("127.0.0.1:{}", port + 1),
    );
    let line = format!(
        "ulimit -n {files} && exec {} serve --data-dir files --listen-client-urls http://{at} \
         --listen-peer-urls http://{peer_at} --initial-advertise-peer-urls http://{peer_at}",
        crate::program()
    );
    let mut command = place.command_of("sh");
    command.args(["-c", &line]).stderr(Stdio::piped());
    let mut process = command.spawn().expect("a shell");
    let mut lines = BufReader::new(process.stderr.take().expect("a pipe")).lines();
    assert!(lines.any(|line| line.expect("a line").contains("ready")));
    // It never waits for somebody to read its log.
    let log = Arc::new(Mutex::new(String::new()));
    let kept = log.clone();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let mut kept = kept.lock().expect("nobody panics with it");
            kept.push_str(&line);
            kept.push('\n');
        }
    });
    Limited {
        process,
        at,
        peer_at,
        log,
    }
}

/// Connections took all open files, and the member stopped when it needed one: for the next segment of its log. Those to
/// the peer port took them still when those to the client port did not any more.
#[test]
fn a_crowd_leaves_the_member_the_files_that_it_needs() {
    const FILES: usize = 256;
    const ADDRESSES: std::ops::Range<u8> = 10..16;
    const FROM_EACH: usize = 40;
    let place = Place::new();
    let mut server = start_with_files(&place, FILES);
    let mut good = Raw::open(&server.at);
    put(&mut good, "k", b"v");
    let mut clients = Vec::new();
    for _ in 0..connections_max(FILES) {
        // Those that are not taken wait in the queue of the port.
        clients.extend(TcpStream::connect(&server.at));
    }
    let (mut peers, mut most) = (Vec::new(), 0);
    // More than a segment of the log, and than what is kept in memory before it goes to a table.
    for number in 0..180 {
        if number % 30 == 0 {
            // One that says nothing is closed after a while.
            peers.clear();
            for last in ADDRESSES {
                let connected = (0..FROM_EACH).map(|_| from_address(last, &server.peer_at));
                peers.extend(connected.filter_map(Result::ok));
            }
        }
        put_large(&mut good, &format!("k/{number}"), &vec![b'v'; LARGE_BYTES]);
        most = server.open_files().max(most);
    }
    println!(
        "at most {most} open files of {FILES} beside {} connections of clients and {} of peers",
        clients.len(),
        peers.len()
    );
    assert!(most > 64, "{most} files: the crowd was not let in");
    assert!(most < FILES - 64, "{most} of {FILES} are open");
    assert!(server.process.try_wait().expect("a process").is_none());
}

/// The attack of heads that never end was made on the client port only, where what is begun has a deadline. On the peer
/// port the pings end it, which nobody can answer within a head or a frame; bytes that trickle in do not move that.
#[test]
fn heads_that_never_end_on_the_peer_port_are_dropped() {
    /// Two seconds until a ping, and three for its answer.
    const DEADLINE: Duration = Duration::from_secs(5);
    const EACH: usize = 12;
    let place = Place::new();
    let mut server = start_with_files(&place, 1024);
    let mut good = Raw::open(&server.at);
    put(&mut good, "k", b"v");
    let ways = [
        ("half a frame's head", HALF_A_FRAME_HEAD, 10),
        ("half a frame", HALF_A_FRAME, 11),
        ("half a head", HALF_A_HEAD, 12),
        ("a head that trickles in", HALF_A_HEAD, 13),
    ];
    let before = server.open_files();
    let begun = Instant::now();
    let mut all = Vec::new();
    for (what, beginning, last) in ways {
        for _ in 0..EACH {
            let stream = from_address(last, &server.peer_at).expect("it listens");
            let mut raw = Raw::open_on(stream).expect("it is taken");
            raw.settle().expect("it is served");
            raw.stream.write_all(&beginning()).expect("it is open");
            all.push((what, raw));
        }
    }
    println!(
        "{} files for {} heads",
        server.open_files() - before,
        all.len()
    );
    let trickling = all.iter().filter(|(what, _)| what.ends_with("trickles in"));
    let trickling: Vec<TcpStream> = trickling
        .map(|(_, raw)| raw.stream.try_clone().expect("a socket"))
        .collect();
    let trickle = std::thread::spawn(move || {
        while begun.elapsed() < DEADLINE + Duration::from_secs(1) {
            for mut stream in &trickling {
                // It may be closed by now.
                let _ = stream.write_all(&frame(CONTINUATION, 0, 1, b""));
            }
            std::thread::sleep(DEADLINE / 4);
        }
    });
    put(&mut good, "meanwhile", b"v");
    for (what, raw) in &mut all {
        assert!(raw.is_hung_up(), "{what} is waited for");
    }
    println!("all are dropped after {:.1?}", begun.elapsed());
    assert!(begun.elapsed() < DEADLINE + SOON);
    trickle.join().expect("it ends");
    drop(all);
    put(&mut good, "k", b"w");
    assert!(server.process.try_wait().expect("a process").is_none());
}

/// Both ports at the limit of open files, and a log and tables that need one more: the member stopped.
#[test]
fn a_server_that_may_open_no_more_files_waits_for_some() {
    const FILES: usize = 256;
    const CONNECTIONS: usize = 10;
    let place = Place::new();
    let mut server = start_with_files(&place, FILES);
    let mut good = Raw::open(&server.at);
    put(&mut good, "k", b"v");
    server.limit_files(server.first_free_file(), FILES);
    // Each finds its port, and waits there to be taken.
    let connect = |at: &str| -> Vec<TcpStream> {
        let connected = (0..CONNECTIONS).map(|_| TcpStream::connect(at));
        connected
            .collect::<Result<_, _>>()
            .expect("they are queued")
    };
    let (clients, peers) = (connect(&server.at), connect(&server.peer_at));
    server.wait_for("connections could not be taken");
    server.wait_for("a connection of a peer could not be taken");
    let writing = std::thread::spawn(move || {
        for number in 0..180 {
            put_large(&mut good, &format!("k/{number}"), &vec![b'v'; LARGE_BYTES]);
        }
    });
    server.wait_for("tries again");
    server.limit_files(FILES, FILES);
    for client in clients {
        put(&mut Raw::open_on(client).expect("it is taken"), "k", b"w");
    }
    for peer in peers {
        let mut peer = Raw::open_on(peer).expect("it is taken");
        peer.settle().expect("it is served");
    }
    writing.join().expect("every put is answered");
    assert!(server.process.try_wait().expect("a process").is_none());
}

/// A server that may open few files. It is killed when this is dropped.
struct Limited {
    process: Child,
    at: String,
    peer_at: String,
    /// What it has written to its log.
    log: Arc<Mutex<String>>,
}

impl Limited {
    fn open_files(&self) -> usize {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.process.id()));
        files.map_or(0, Iterator::count)
    }
}

impl Limited {
    /// The lowest number that no open file has: with this as limit, none can be opened.
    fn first_free_file(&self) -> usize {
        let free = |number: &usize| {
            let path = format!("/proc/{}/fd/{number}", self.process.id());
            std::fs::symlink_metadata(path).is_err()
        };
        (0..).find(free).expect("there are few")
    }

    /// From now on the process may open files below this number; it may be raised to `most` again.
    fn limit_files(&self, below: usize, most: usize) {
        let pid = i32::try_from(self.process.id()).expect("a process");
        let limit = Rlimit {
            current: Some(below as u64),
            maximum: Some(most as u64),
        };
        prlimit(Pid::from_raw(pid), Resource::Nofile, limit).expect("a limit");
    }

    /// Waits until the log says so.
    fn wait_for(&self, text: &str) {
        let begun = Instant::now();
        loop {
            let log = self.log.lock().expect("nobody panics with it");
            if log.contains(text) {
                return;
            }
            assert!(begun.elapsed() < SOON, "not in the log: {text}\n{log}");
            drop(log);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
