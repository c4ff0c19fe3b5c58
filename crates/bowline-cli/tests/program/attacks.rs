//! Attacks on a server, one connection or a few at a time: on the port for clients, and on that for members.

use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

use bowline_proto::etcdserverpb as pb;
use bowline_proto::{peer, v1};
use prost::Message;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::crowd::{PUT, RANGE, watch};
use crate::raw_http2::{DATA, END_HEADERS, END_STREAM, HEADERS, RESET, Raw, frame, head};

/// A way to attack a server.
#[derive(Clone, Copy)]
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// Attacks at an address. It ends by itself, or when the server hangs up.
    run: fn(&str) -> std::io::Result<()>,
}

impl Attack {
    const fn new(name: &'static str, run: fn(&str) -> std::io::Result<()>) -> Attack {
        Attack { name, run }
    }

    /// Attacks once. Tells whether the attack reached the server: it came to its end, or the server hung up.
    pub(crate) fn once(self, at: &str) -> bool {
        use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        match (self.run)(at) {
            Ok(()) => true,
            Err(error) => matches!(
                error.kind(),
                BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
            ),
        }
    }
}

pub(crate) const ON_THE_CLIENT_PORT: [Attack; 11] = [
    Attack::new("halves", halves),
    Attack::new("trickles", trickles),
    Attack::new("deaf ranges", deaf_ranges),
    Attack::new("deaf transactions", deaf_transactions),
    Attack::new("deaf queries", deaf_queries),
    Attack::new("deaf watches", deaf_watches),
    Attack::new("resets", resets),
    Attack::new("heads", heads),
    Attack::new("hashes", hashes),
    Attack::new("heavy transactions", heavy_transactions),
    Attack::new("foreign pages", foreign_pages),
];

pub(crate) const ON_THE_PEER_PORT: [Attack; 6] = [
    Attack::new("silence", silence),
    Attack::new("half messages", half_messages),
    Attack::new("strays", strays),
    Attack::new("impostors", impostors),
    Attack::new("garbage", garbage),
    Attack::new("heads of peers", peer_heads),
];

pub(crate) const HASH: &str = "/etcdserverpb.Maintenance/Hash";
pub(crate) const HASH_KV: &str = "/etcdserverpb.Maintenance/HashKV";
const DEFRAGMENT: &str = "/etcdserverpb.Maintenance/Defragment";
const COMPACT: &str = "/etcdserverpb.KV/Compact";
pub(crate) const TXN: &str = "/etcdserverpb.KV/Txn";
const MEMBERS: &str = "/bowline.peer.v1.Peer/Members";
const APPEND: &str = "/bowline.peer.v1.Peer/Append";
const SNAPSHOT: &str = "/bowline.peer.v1.Peer/Snapshot";

/// The head of a message of so many bytes.
pub(crate) fn message_head(bytes: u32) -> Vec<u8> {
    [&[0][..], &bytes.to_be_bytes()].concat()
}

/// Messages that do not end.
fn halves(at: &str) -> std::io::Result<()> {
    let mut raw = Raw::open(at);
    raw.settle()?;
    for _ in 0..200 {
        let call = raw.begin_on(PUT)?;
        raw.send_part(call, &message_head(1_500_000))?;
        raw.send_part(call, &[b'v'; 500_000])?;
    }
    Ok(())
}

/// Bodies that come byte for byte, in HTTP/1.
fn trickles(at: &str) -> std::io::Result<()> {
    let mut all = Vec::new();
    for _ in 0..50 {
        let mut slow = TcpStream::connect(at)?;
        slow.write_all(b"POST /v3/kv/put HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")?;
        slow.write_all(&[b' '; 100_000])?;
        all.push(slow);
    }
    for _ in 0..20 {
        for slow in &mut all {
            slow.write_all(b" ")?;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Everything, by those who do not read it.
fn deaf_ranges(at: &str) -> std::io::Result<()> {
    let everything = pb::RangeRequest {
        key: "k/".into(),
        range_end: "k0".into(),
        ..pb::RangeRequest::default()
    };
    let mut all = Vec::new();
    for _ in 0..10 {
        let mut raw = Raw::open_shut(at);
        for _ in 0..20 {
            let call = raw.begin(RANGE);
            raw.send(call, &everything, true);
        }
        all.push(raw);
    }
    std::thread::sleep(Duration::from_millis(500));
    Ok(())
}

/// Transactions that read everything, by those who do not read it.
fn deaf_transactions(at: &str) -> std::io::Result<()> {
    let everything = pb::RangeRequest {
        key: "k/".into(),
        range_end: "k0".into(),
        ..pb::RangeRequest::default()
    };
    let own = pb::PutRequest {
        key: "own".into(),
        ..pb::PutRequest::default()
    };
    let of = |request| pb::RequestOp {
        request: Some(request),
    };
    let txn = pb::TxnRequest {
        success: vec![
            of(pb::request_op::Request::RequestRange(everything)),
            of(pb::request_op::Request::RequestPut(own)),
        ],
        ..pb::TxnRequest::default()
    };
    let message = txn.encode_to_vec();
    let mut all = Vec::new();
    for _ in 0..5 {
        let mut raw = Raw::open_shut(at);
        for _ in 0..20 {
            whole(&mut raw, TXN, &message)?;
        }
        all.push(raw);
    }
    std::thread::sleep(Duration::from_millis(500));
    Ok(())
}

/// Queries for everything, by those who do not read it.
fn deaf_queries(at: &str) -> std::io::Result<()> {
    let range = v1::KeyRange {
        key: vec![0].into(),
        range_end: vec![0].into(),
    };
    let range = v1::RangeRequest {
        range: Some(range),
        ..v1::RangeRequest::default()
    };
    let keys = (0..200).map(|number| format!("k/{number}").into());
    let keys = v1::GetRequest {
        keys: keys.collect(),
        ..v1::GetRequest::default()
    };
    let mut all = Vec::new();
    for _ in 0..5 {
        let mut raw = Raw::open_shut(at);
        for _ in 0..10 {
            whole(&mut raw, "/bowline.v1.Store/Range", &range.encode_to_vec())?;
            whole(&mut raw, "/bowline.v1.Store/Get", &keys.encode_to_vec())?;
        }
        all.push(raw);
    }
    std::thread::sleep(Duration::from_millis(500));
    Ok(())
}

/// Watches that nobody reads.
fn deaf_watches(at: &str) -> std::io::Result<()> {
    let mut all = Vec::new();
    for _ in 0..20 {
        let mut raw = Raw::open_shut(at);
        watch(&mut raw, "good", 50);
        all.push(raw);
    }
    std::thread::sleep(Duration::from_millis(500));
    Ok(())
}

/// Calls that are taken back.
fn resets(at: &str) -> std::io::Result<()> {
    let mut raw = Raw::open(at);
    for _ in 0..2000 {
        let call = raw.begin_on(PUT)?;
        raw.stream
            .write_all(&frame(RESET, 0, call, &8_u32.to_be_bytes()))?;
    }
    Ok(())
}

/// Heads that do not end.
fn heads(at: &str) -> std::io::Result<()> {
    let mut all = Vec::new();
    for _ in 0..50 {
        let mut raw = Raw::open(at);
        raw.stream.write_all(&frame(HEADERS, 0, 1, &[0x83]))?;
        all.push(raw);
    }
    std::thread::sleep(Duration::from_millis(500));
    Ok(())
}

/// What reads or writes everything, many at a time: hashes, defragmentation, physical compaction.
fn hashes(at: &str) -> std::io::Result<()> {
    let mut raw = Raw::open(at);
    let good = pb::RangeRequest {
        key: "good".into(),
        ..pb::RangeRequest::default()
    };
    let newest: pb::RangeResponse = raw.call(RANGE, &good);
    let compaction = pb::CompactionRequest {
        revision: newest.header.expect("a header").revision,
        physical: true,
    };
    let calls = [
        (HASH, pb::HashRequest::default().encode_to_vec()),
        (HASH_KV, pb::HashKvRequest::default().encode_to_vec()),
        (DEFRAGMENT, pb::DefragmentRequest::default().encode_to_vec()),
        (COMPACT, compaction.encode_to_vec()),
    ];
    for (path, message) in calls.iter().cycle().take(40) {
        whole(&mut raw, path, message)?;
    }
    raw.settle()?;
    std::thread::sleep(Duration::from_millis(500));
    Ok(())
}

/// Transactions that look at nearly as much as one may, of which nothing is changed.
fn heavy_transactions(at: &str) -> std::io::Result<()> {
    // Each condition reads all keys that the good client has put at first, with their values.
    const CONDITIONS: usize = 1;
    let condition = pb::Compare {
        target: pb::compare::CompareTarget::Value.into(),
        key: "k/".into(),
        range_end: "k0".into(),
        target_union: Some(pb::compare::TargetUnion::Value(vec![b'v'; 32 << 10].into())),
        ..pb::Compare::default()
    };
    let put = pb::PutRequest {
        key: "never".into(),
        ..pb::PutRequest::default()
    };
    let txn = pb::TxnRequest {
        compare: vec![condition; CONDITIONS],
        failure: vec![pb::RequestOp {
            request: Some(pb::request_op::Request::RequestPut(put)),
        }],
        ..pb::TxnRequest::default()
    };
    let message = txn.encode_to_vec();
    let mut raw = Raw::open(at);
    for _ in 0..4 {
        whole(&mut raw, TXN, &message)?;
    }
    while raw.ended < 4 {
        raw.read_frame(0)?;
    }
    Ok(())
}

/// What a page in a browser can send: to this server under another name, or from another place. None of it is taken.
fn foreign_pages(at: &str) -> std::io::Result<()> {
    let body = r#"{"key": "Z29vZA==", "value": "ZXZpbA=="}"#;
    let heads = [
        "Host: evil.example\r\nContent-Type: application/json".to_owned(),
        format!("Host: {at}\r\nOrigin: http://evil.example\r\nContent-Type: application/json"),
        format!("Host: {at}\r\nContent-Type: text/plain"),
    ];
    for head in heads.iter().cycle().take(60) {
        let mut page = TcpStream::connect(at)?;
        page.set_read_timeout(Some(Duration::from_secs(30)))?;
        let length = body.len();
        let request =
            format!("POST /v3/kv/put HTTP/1.1\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}");
        page.write_all(request.as_bytes())?;
        let mut status = [0; 12];
        page.read_exact(&mut status)?;
        let status = String::from_utf8_lossy(&status);
        assert!(status.starts_with("HTTP/1.1 4"), "{status}: {head}");
    }
    Ok(())
}

/// A connection from an address at which no member is: members are counted by their addresses.
fn from_elsewhere(at: &str) -> std::io::Result<TcpStream> {
    from_address(2, at)
}

/// A connection from 127.0.0.`last`.
pub(crate) fn from_address(last: u8, at: &str) -> std::io::Result<TcpStream> {
    let at: SocketAddrV4 = at.parse().map_err(std::io::Error::other)?;
    let made = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&made, &SocketAddrV4::new([127, 0, 0, last].into(), 0))?;
    connect(&made, &at)?;
    Ok(made.into())
}

/// Connections on which nothing is said.
fn silence(at: &str) -> std::io::Result<()> {
    let mut all = Vec::new();
    for _ in 0..100 {
        all.push(from_elsewhere(at)?);
    }
    std::thread::sleep(Duration::from_millis(500));
    Ok(())
}

/// Heads that do not end, in all ways in which one may be begun.
fn peer_heads(at: &str) -> std::io::Result<()> {
    let mut all = Vec::new();
    for way in [HALF_A_FRAME_HEAD, HALF_A_FRAME, HALF_A_HEAD]
        .iter()
        .cycle()
        .take(45)
    {
        // The others of the crowd take all connections that one address may have.
        let mut raw = Raw::open_on(from_address(3, at)?)?;
        raw.stream.write_all(&way())?;
        all.push(raw);
    }
    std::thread::sleep(Duration::from_millis(500));
    Ok(())
}

/// What begins a head and does not end it.
type Beginning = fn() -> Vec<u8>;

pub(crate) const HALF_A_FRAME_HEAD: Beginning =
    || frame(HEADERS, END_HEADERS, 1, &head(MEMBERS))[..7].to_vec();
pub(crate) const HALF_A_FRAME: Beginning =
    || frame(HEADERS, END_HEADERS, 1, &head(MEMBERS))[..20].to_vec();
pub(crate) const HALF_A_HEAD: Beginning = || frame(HEADERS, 0, 1, &head(MEMBERS)[..4]);

/// Messages as large as may be that do not end.
fn half_messages(at: &str) -> std::io::Result<()> {
    let mut all = Vec::new();
    for path in [APPEND, SNAPSHOT] {
        let mut raw = Raw::open_on(from_elsewhere(at)?)?;
        raw.settle()?;
        for _ in 0..20 {
            let call = raw.begin_on(path)?;
            raw.send_part(call, &message_head(8 << 20))?;
            raw.send_part(call, &[7; 500_000])?;
        }
        all.push(raw);
    }
    std::thread::sleep(Duration::from_millis(500));
    Ok(())
}

/// Whole messages that are for nobody here: proposals and votes of terms that never were.
fn strays(at: &str) -> std::io::Result<()> {
    let mut raw = Raw::open_on(from_elsewhere(at)?)?;
    let sender = peer::Sender {
        cluster_id: fastrand::u64(..),
        member_id: fastrand::u64(..),
        ..peer::Sender::default()
    };
    let ballot = peer::Ballot {
        term: u64::MAX,
        node: sender.member_id,
        committed: true,
    };
    let vote = peer::VoteRequest {
        sender: Some(sender),
        vote: Some(ballot),
        ..peer::VoteRequest::default()
    };
    let proposal = peer::ProposeRequest {
        sender: Some(sender),
        ..peer::ProposeRequest::default()
    };
    for _ in 0..100 {
        for (name, bytes) in [
            ("Vote", vote.encode_to_vec()),
            ("PreVote", vote.encode_to_vec()),
            ("Propose", proposal.encode_to_vec()),
        ] {
            of_peers(&mut raw, name, &bytes)?;
        }
        raw.settle()?;
    }
    Ok(())
}

/// Proposals in a member's name, for the member that gets them: all the ids are right, and anybody may ask for those.
/// What is proposed is no command.
fn impostors(at: &str) -> std::io::Result<()> {
    let mut raw = Raw::open_on(from_elsewhere(at)?)?;
    let stranger = peer::MembersRequest {
        sender: Some(peer::Sender::default()),
        is_linearizable: false,
    };
    let found: peer::MembersReply = raw.call(MEMBERS, &stranger);
    let other = found.members.iter().find(|one| one.id != found.member_id);
    let other = other.expect("another member");
    let sender = peer::Sender {
        cluster_id: found.cluster_id,
        member_id: other.id,
        incarnation: other.incarnation,
        target_id: found.member_id,
        target_incarnation: found.incarnation,
    };
    for _ in 0..20 {
        for bytes in [0, 3, 30, 3000] {
            let proposal: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..))
                .take(bytes)
                .collect();
            let request = peer::ProposeRequest {
                sender: Some(sender),
                proposal: proposal.into(),
                term: fastrand::u64(1..5),
            };
            of_peers(&mut raw, "Propose", &request.encode_to_vec())?;
        }
        raw.settle()?;
    }
    Ok(())
}

/// Bytes that are no message, and some that nearly are.
fn garbage(at: &str) -> std::io::Result<()> {
    const NAMES: [&str; 9] = [
        "Append",
        "Vote",
        "PreVote",
        "Snapshot",
        "TransferLeader",
        "Propose",
        "ReadIndex",
        "Members",
        "Ask",
    ];
    let mut raw = Raw::open_on(from_elsewhere(at)?)?;
    let sender = peer::VoteRequest {
        sender: Some(peer::Sender::default()),
        ..peer::VoteRequest::default()
    };
    for _ in 0..100 {
        for name in NAMES {
            let mut bytes = match fastrand::bool() {
                true => sender.encode_to_vec(),
                false => Vec::new(),
            };
            bytes.extend(std::iter::repeat_with(|| fastrand::u8(..)).take(fastrand::usize(..500)));
            of_peers(&mut raw, name, &bytes)?;
        }
        raw.settle()?;
    }
    Ok(())
}

/// Sends a message to the service of peers, and waits for nothing.
fn of_peers(raw: &mut Raw, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    whole(raw, &format!("/bowline.peer.v1.Peer/{name}"), bytes)
}

/// Sends a message, and waits for nothing.
fn whole(raw: &mut Raw, path: &str, bytes: &[u8]) -> std::io::Result<()> {
    let call = raw.begin_on(path)?;
    let length = u32::try_from(bytes.len()).expect("small");
    raw.send_part(call, &[message_head(length), bytes.to_vec()].concat())?;
    raw.stream.write_all(&frame(DATA, END_STREAM, call, b""))
}
