//! Random messages on the peer port, through to where they are applied.

use std::net::SocketAddr;

use bowline::Revision;
use bowline_proto::peer as proto;
use bowline_testing::Seed;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::Channel;

use super::super::*;
use super::{proposal, sender};
use crate::peer::frames::PREFACE;

/// Random changes of messages that members send, and random bytes, on the peer port of a running member,
/// through to where they are applied: it serves, now and after a restart. Messages that carry a leader's vote
/// have stale ones: a sender with a newer vote is the leader.
#[tokio::test(flavor = "multi_thread")]
async fn garbage_neither_stops_a_member_nor_survives_a_restart() {
    let test = "-p bowline-cluster garbage_neither_stops_a_member_nor_survives_a_restart";
    for seed in Seed::fixed_and_fresh(0x9A5B, test) {
        let _guard = seed.print_on_failure(test);
        send_garbage(seed.rng()).await;
    }
}

async fn send_garbage(mut random: fastrand::Rng) {
    const MESSAGES: usize = 1_500;
    let disk = SimDisk::new();
    let config = config("one", &disk);
    let mut node = start(&config).await;
    let mut framed = 0;
    for round in 0..3 {
        let client = node.client();
        eventually("it leads", || client.core().is_leading()).await;
        surely(&client, &put("good", &round.to_string())).await;
        let own = sender(&client, &client);
        let term = client.core().leadership().term;
        let samples = samples(&client, own);
        let address = node.peer_addresses()[0];
        let channel = Channel::from_shared(format!("http://{address}")).unwrap();
        let channel = channel.connect().await.unwrap();
        let mut taken = 0;
        for number in 0..MESSAGES / 3 {
            let (method, mut bytes) = samples[random.usize(..samples.len())].clone();
            for _ in 0..random.usize(..4) {
                mutate(&mut bytes, &mut random);
            }
            if !is_stale(method, &bytes, term) {
                continue;
            }
            let answered = async {
                if method == "Append" && random.bool() {
                    let is_taken = send_frame(address, &bytes, &mut random).await;
                    framed += usize::from(is_taken);
                    return is_taken;
                }
                raw::send(channel.clone(), method, bytes.into())
                    .await
                    .is_ok()
            };
            let answered = tokio::time::timeout(PATIENCE, answered).await;
            let answered = answered.unwrap_or_else(|_| panic!("message {number} has no answer"));
            taken += usize::from(answered);
            if number % 100 == 0 {
                // Not gRPC.
                let mut stream = TcpStream::connect(address).await.unwrap();
                let noise: Vec<u8> = (0..random.usize(1..200)).map(|_| random.u8(..)).collect();
                let _ = stream.write_all(&noise).await;
            }
        }
        assert!(taken > 0, "nothing got through to where it counts");
        assert_eq!(client.core().stop_reason(), None);
        surely(&client, &put("still", &round.to_string())).await;
        drop(client);
        node.shutdown().await.unwrap();
        node = start(&config).await;
    }
    assert!(framed > 0, "no frame got through to where it counts");
    let client = node.client();
    eventually("it leads", || client.core().is_leading()).await;
    surely(&client, &put("at last", "1")).await;
    drop(client);
    node.shutdown().await.unwrap();
}

/// Sends an append as a frame, which now and then is changed, too. Whether it was answered.
async fn send_frame(address: SocketAddr, body: &[u8], random: &mut fastrand::Rng) -> bool {
    const HELLO: u8 = 1;
    const REPLY: u8 = 5;
    let frame = |kind: u8, call: u32, body: &[u8]| {
        let length = u32::try_from(body.len()).unwrap();
        let head = [&length.to_le_bytes()[..], &[kind], &call.to_le_bytes()].concat();
        [&head[..], body].concat()
    };
    let hello = proto::Hello {
        version: 1,
        body_bytes_max: 1 << 20,
    };
    // A request of a stream, or a call by itself.
    let mut sent = frame(random.u8(2..4), 1, body);
    let is_changed = random.u8(..4) == 0;
    if is_changed {
        mutate(&mut sent, random);
    }
    let mut stream = TcpStream::connect(address).await.unwrap();
    let begin = [&PREFACE[..], &frame(HELLO, 0, &hello.encode_to_vec())].concat();
    let _ = stream.write_all(&[begin, sent].concat()).await;
    if is_changed {
        // It may wait for more.
        let _ = stream.shutdown().await;
    }
    let mut read = Vec::new();
    // The kind of the frame behind the preface and the hello.
    let kind = |read: &[u8]| {
        let hello = read.get(PREFACE.len()..)?;
        let length = u32::from_le_bytes(*hello.first_chunk()?);
        hello.get(9 + length as usize + 4).copied()
    };
    loop {
        if let Some(kind) = kind(&read) {
            return kind == REPLY;
        }
        match stream.read_buf(&mut read).await {
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
    }
}

/// Whether a message comes from no present or future leader.
fn is_stale(method: &str, bytes: &[u8], term: u64) -> bool {
    let vote = match method {
        "Append" => proto::AppendRequest::decode(bytes)
            .ok()
            .and_then(|found| found.vote),
        "Vote" => proto::VoteRequest::decode(bytes)
            .ok()
            .and_then(|found| found.vote),
        "TransferLeader" => {
            let found = proto::TransferLeaderRequest::decode(bytes).ok();
            found.and_then(|found| found.vote)
        }
        "Snapshot" => {
            let found = proto::SnapshotChunk::decode(bytes)
                .ok()
                .and_then(|found| found.part);
            match found {
                Some(proto::snapshot_chunk::Part::Head(head)) => head.vote,
                _ => None,
            }
        }
        _ => None,
    };
    vote.is_none_or(|vote| vote.term < term || vote.term > term + (1 << 32))
}

fn mutate(bytes: &mut Vec<u8>, random: &mut fastrand::Rng) {
    if bytes.is_empty() {
        return;
    }
    let at = random.usize(..bytes.len());
    match random.u8(..4) {
        0 => bytes[at] = random.u8(..),
        1 => bytes[at] ^= 1 << random.u8(..8),
        2 => bytes.truncate(at),
        _ => bytes.insert(at, random.u8(..)),
    }
}

/// One message of each kind for a member, as an honest one would send it.
fn samples(client: &LocalClient, own: proto::Sender) -> Vec<(&'static str, Vec<u8>)> {
    let mut samples = Vec::new();
    let id = client.core().member_id;
    for commands in [
        vec![put("x", "1")],
        vec![Command::Compact {
            revision: Revision::new(1),
        }],
        vec![Command::LeaseGrant {
            id: 5,
            ttl: Duration::from_secs(60),
        }],
        vec![Command::LeaseRevoke { id: 5 }, put("y", "2")],
        vec![Command::Graph(Vec::new())],
    ] {
        let request = proto::ProposeRequest {
            sender: Some(own),
            term: client.core().leadership().term,
            proposal: proposal(id, &commands).into(),
        };
        samples.push(("Propose", request.encode_to_vec()));
    }
    // Of a leader of an earlier term, which is this member itself.
    let stale = proto::AppendRequest {
        sender: Some(own),
        sequence: 1,
        vote: Some(proto::Ballot {
            term: client.core().leadership().term - 1,
            node: id,
            committed: true,
        }),
        ..proto::AppendRequest::default()
    };
    samples.push(("Append", stale.encode_to_vec()));
    let mut with_sender = |method, bytes: &[u8]| {
        // A second occurrence of a field is merged into the first.
        let sender = proto::MembersRequest {
            sender: Some(own),
            ..proto::MembersRequest::default()
        };
        let sender = sender.encode_to_vec();
        samples.push((method, [bytes, &sender[..]].concat()));
    };
    let mut heads = Vec::new();
    for (which, bytes) in crate::raft::network::fuzzing::seeds() {
        match which {
            0 => with_sender("Append", &bytes),
            2 => {
                with_sender("Vote", &bytes);
                with_sender("PreVote", &bytes);
            }
            5 => with_sender("TransferLeader", &bytes),
            4 => heads.push(proto::SnapshotHead::decode(&bytes[..]).unwrap()),
            _ => {}
        }
    }
    for mut head in heads {
        head.sender = Some(own);
        let part = Some(proto::snapshot_chunk::Part::Head(head));
        samples.push(("Snapshot", proto::SnapshotChunk { part }.encode_to_vec()));
    }
    let read = proto::ReadIndexRequest {
        sender: Some(own),
        level: 1,
    };
    samples.push(("ReadIndex", read.encode_to_vec()));
    let ask = proto::AskRequest {
        sender: Some(own),
        question: Some(proto::Question {
            question: Some(proto::question::Question::LeaseKeepAlive(5)),
            caller: None,
        }),
    };
    samples.push(("Ask", ask.encode_to_vec()));
    let members = proto::MembersRequest {
        sender: Some(own),
        is_linearizable: true,
    };
    samples.push(("Members", members.encode_to_vec()));
    samples
}

/// gRPC with raw bytes as messages.
mod raw {
    use bytes::{Buf, BufMut, Bytes};
    use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
    use tonic::transport::Channel;
    use tonic::{Request, Status};

    #[derive(Default)]
    struct Raw;

    impl Codec for Raw {
        type Encode = Bytes;
        type Decode = Bytes;
        type Encoder = Raw;
        type Decoder = Raw;
        fn encoder(&mut self) -> Raw {
            Raw
        }
        fn decoder(&mut self) -> Raw {
            Raw
        }
    }

    impl Encoder for Raw {
        type Item = Bytes;
        type Error = Status;
        fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
            out.put(item);
            Ok(())
        }
    }

    impl Decoder for Raw {
        type Item = Bytes;
        type Error = Status;
        fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
            Ok(Some(from.copy_to_bytes(from.remaining())))
        }
    }

    /// Sends one message; returns the first reply.
    pub(super) async fn send(
        channel: Channel,
        method: &str,
        message: Bytes,
    ) -> Result<Bytes, Status> {
        let mut grpc = tonic::client::Grpc::new(channel);
        let ready = grpc.ready().await;
        ready.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = format!("/bowline.peer.v1.Peer/{method}")
            .parse()
            .expect("a path");
        let requests = Request::new(tokio_stream::iter([message]));
        let replies = grpc.streaming(requests, path, Raw).await?;
        let reply = replies.into_inner().message().await?;
        reply.ok_or_else(|| Status::unavailable("no reply"))
    }
}
