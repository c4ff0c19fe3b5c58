//! What no honest member does on the peer port: stray and forged messages here, silent ones and others on [`connections`],
//! random ones in [`garbage`].

mod connections;
mod garbage;

use bowline_proto::peer as proto;
use bowline_proto::peer::peer_client::PeerClient as GrpcClient;
use bowline_replica::{Actor, COMMAND_VERSION, QuotaChange, TXN_DEPTH_MAX, encode_commands};
use bytes::Bytes;
use tonic::Code;
use tonic::transport::Channel;

use super::*;
use crate::peer::{MemberIdentity, PeerClient, PeerOptions, Peers};
use crate::record;
use crate::types::{Entry, LogId, Payload, Proposal};

/// A client of `target` that claims to be the member `from`.
fn as_member(from: &LocalClient, target: &LocalClient) -> PeerClient {
    let core = from.core();
    let identity = MemberIdentity {
        cluster_id: core.cluster_id,
        member_id: core.member_id,
        incarnation: incarnation(from),
    };
    let peers = Peers::of(identity, PeerOptions::default());
    let membership = core.membership();
    let target = target.core().member_id;
    peers.client(target, membership.get_node(&target).unwrap())
}

pub(super) async fn grpc(node: &Node) -> GrpcClient<Channel> {
    let url = format!("http://{}", node.peer_addresses()[0]);
    GrpcClient::connect(url).await.unwrap()
}

fn incarnation(client: &LocalClient) -> u64 {
    client.core().log.member().state().incarnation
}

pub(super) fn sender(from: &LocalClient, target: &LocalClient) -> proto::Sender {
    proto::Sender {
        cluster_id: from.core().cluster_id,
        member_id: from.core().member_id,
        incarnation: incarnation(from),
        target_id: target.core().member_id,
        target_incarnation: incarnation(target),
    }
}

/// Three members at rest: each has published its name, and all have applied the same.
async fn settled() -> Three {
    let three = Three::start(|config| {
        config.heartbeat_interval = Duration::from_millis(100);
        config.election_timeout = Duration::from_secs(1);
    })
    .await;
    surely(&three.client(three.leader().await), &put("a", "1")).await;
    eventually("each has said its name", || {
        let membership = three.client(0).core().membership();
        membership
            .nodes()
            .all(|(_, member)| member.command_version > 0)
    })
    .await;
    three.assert_equal().await;
    three
}

fn last_index(client: &LocalClient) -> Option<u64> {
    client.core().last_index()
}

/// A proposal that the member `from` could have made.
pub(super) fn proposal(from: u64, commands: &[Command]) -> Vec<u8> {
    let mut bytes = [from.to_be_bytes(), [7; 8], [7; 8]].concat();
    encode_commands(commands.iter(), &mut bytes);
    bytes
}

/// One stray message on the peer port was committed undecoded, and then every member failed to apply it, at
/// once and at every start from then on.
#[tokio::test(flavor = "multi_thread")]
async fn a_stray_proposal_is_refused_and_stops_nobody() {
    let mut three = settled().await;
    let leader = three.leader().await;
    let (client, other) = (three.client(leader), three.client((leader + 1) % 3));
    let from = other.core().member_id;
    let stray = as_member(&other, &client);
    let head = proposal(from, &[])[..24].to_vec();
    let behind_head = |bytes: &[u8]| [&head[..], bytes].concat();
    let mut too_deep = Txn::default();
    for _ in 0..TXN_DEPTH_MAX + 1 {
        too_deep = Txn::of(Op::Txn(too_deep));
    }
    let (term, before) = (client.core().leadership().term, last_index(&client));
    for bytes in [
        Vec::new(),
        b"x".to_vec(),
        head.clone(),
        behind_head(b"anything"),
        // No version, an unknown version, more commands than there are bytes.
        behind_head(&[0, 0]),
        behind_head(&[COMMAND_VERSION + 1, 0]),
        behind_head(&[1, 0xff, 0xff, 0xff, 0x7f]),
        behind_head(&[1, 1, 1, 200]),
        proposal(from, &[Command::Txn(too_deep)]),
        // The wrong proposer.
        proposal(from ^ 1, &[put("b", "1")]),
    ] {
        let refused = stray.propose(term, Bytes::from(bytes.clone())).await;
        let refused = refused.expect_err("refused");
        assert_eq!(
            refused.code(),
            Code::InvalidArgument,
            "{bytes:?}: {refused}"
        );
    }
    // A correct one is accepted, unless the leader has changed meanwhile.
    let good = Bytes::from(proposal(from, &[put("c", "1")]));
    let taken = stray.propose(term, good).await;
    if client.core().leadership().term == term {
        taken.expect("taken");
        let expected = before.map(|index| index + 1);
        assert_eq!(
            last_index(&client),
            expected,
            "none of the others is in the log"
        );
    }
    drop((client, other, stray));
    for number in 0..3 {
        assert_eq!(three.client(number).core().stop_reason(), None);
        three.stop(number).await;
    }
    for number in 0..3 {
        let config = three.configs[number].clone();
        three.nodes[number] = Some(start(&config).await);
    }
    let client = three.client(three.leader().await);
    surely(&client, &put("d", "1")).await;
    drop(client);
    three.assert_equal().await;
    three.shutdown().await;
}

/// One forged vote with the highest term was written down, and no leader was ever elected again.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_vote_is_refused_and_not_written_down() {
    let mut three = settled().await;
    let leader = three.leader().await;
    let (client, target) = (three.client(leader), (leader + 1) % 3);
    let (target, other) = (three.client(target), three.client((leader + 2) % 3));
    let term = client.core().leadership().term;
    let from = other.core().member_id;
    let mut grpc = grpc(three.nodes[(leader + 1) % 3].as_ref().unwrap()).await;
    let last = Some(proto::LogId {
        term: u64::MAX,
        node: from,
        index: u64::MAX,
    });
    let vote = |term, node, last| proto::VoteRequest {
        sender: Some(sender(&other, &target)),
        vote: Some(proto::Ballot {
            term,
            node,
            committed: false,
        }),
        last,
        // Claims that the leader requested it, so that no lease protects from it.
        leadership_transfer: true,
        remembered: None,
    };
    let stranger = proto::VoteRequest {
        sender: Some(proto::Sender {
            member_id: 4711,
            ..sender(&other, &target)
        }),
        ..vote(term + 1, 4711, None)
    };
    for (request, code) in [
        (vote(u64::MAX, from, None), Code::InvalidArgument),
        (vote((1 << 62) + 1, from, None), Code::InvalidArgument),
        (vote(term + (1 << 33), from, None), Code::InvalidArgument),
        (vote(term + 1, from, last), Code::InvalidArgument),
        // In another member's name.
        (vote(term + 1, from ^ 1, None), Code::InvalidArgument),
        (stranger, Code::PermissionDenied),
    ] {
        let refused = grpc.vote(request).await.expect_err("refused");
        assert_eq!(refused.code(), code, "{refused}");
        let refused = grpc.pre_vote(request).await.expect_err("refused");
        assert_eq!(refused.code(), code, "{refused}");
    }
    let ballot = proto::Ballot {
        term: u64::MAX,
        node: from,
        committed: true,
    };
    let append = proto::AppendRequest {
        sender: Some(sender(&other, &target)),
        sequence: 1,
        vote: Some(ballot),
        ..proto::AppendRequest::default()
    };
    let replies = grpc.append(futures_util::stream::iter([append])).await;
    let refused = replies.expect("begun").into_inner().message().await;
    assert_eq!(refused.expect_err("refused").code(), Code::InvalidArgument);
    let transfer = proto::TransferLeaderRequest {
        sender: Some(sender(&other, &target)),
        vote: Some(ballot),
        to: target.core().member_id,
        last: None,
    };
    let refused = grpc.transfer_leader(transfer).await.expect_err("refused");
    assert_eq!(refused.code(), Code::InvalidArgument);
    let now = target.core().leadership().term;
    assert!(now < term + 1000, "from term {term} to {now}");
    drop((client, target, other));
    for number in 0..3 {
        three.stop(number).await;
        let config = three.configs[number].clone();
        three.nodes[number] = Some(start(&config).await);
    }
    let client = three.client(three.leader().await);
    surely(&client, &put("b", "1")).await;
    drop(client);
    three.shutdown().await;
}

/// What a candidate claims to remember of a member's acknowledgements was written down as owed, whoever claimed it: three
/// forged messages, and no leader was ever elected again. Now it decides that one vote, and no other. Found by review before
/// it was released.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_memory_takes_nobodys_vote_for_good() {
    let mut three = settled().await;
    let leader = three.leader().await;
    let term = three.client(leader).core().leadership().term;
    for number in 0..3 {
        let (target, other) = (three.client(number), three.client((number + 1) % 3));
        let from = other.core().member_id;
        let forged = |term: u64| proto::VoteRequest {
            sender: Some(sender(&other, &target)),
            vote: Some(proto::Ballot {
                term,
                node: from,
                committed: false,
            }),
            last: None,
            leadership_transfer: true,
            remembered: Some(proto::LogId {
                term,
                node: from,
                index: 1 << 50,
            }),
        };
        let mut grpc = grpc(three.nodes[number].as_ref().unwrap()).await;
        let refused = grpc.vote(forged(term + 1)).await.expect_err("refused");
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
        let refused = grpc.pre_vote(forged(term + (1 << 31))).await;
        assert_eq!(refused.expect_err("refused").code(), Code::Unavailable);
    }
    for number in 0..3 {
        three.stop(number).await;
        let config = three.configs[number].clone();
        three.nodes[number] = Some(start(&config).await);
    }
    let client = three.client(three.leader().await);
    surely(&client, &put("b", "1")).await;
    drop(client);
    three.shutdown().await;
}

/// A member found out only when it applied an entry that a newer program had made it, and had acknowledged it
/// by then. Now it is detected before, and stops the member; invalid bytes do not.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_cannot_be_applied_is_not_acknowledged() {
    let mut three = settled().await;
    let leader = three.leader().await;
    let number = (leader + 1) % 3;
    let (client, target) = (three.client(leader), three.client(number));
    let mut grpc = grpc(three.nodes[number].as_ref().unwrap()).await;
    let before = last_index(&target);
    let previous: LogId = target.core().raft.view().last_applied().unwrap();
    let vote = target.core().raft.view().vote();
    let from = client.core().member_id;
    assert_eq!(vote.leader_id.node_id, from, "it follows the leader");
    let append = |commands: &[u8]| {
        let entry = Entry {
            log_id: LogId::new(vote.leader_id, previous.index + 1),
            payload: Payload::Normal(Proposal([&[0; 24][..], commands].concat().into())),
        };
        let mut head = Vec::new();
        record::encode_head(&entry, None, &mut head);
        proto::AppendRequest {
            sender: Some(sender(&client, &target)),
            sequence: 1,
            vote: Some(proto::Ballot {
                term: vote.leader_id.term,
                node: from,
                committed: true,
            }),
            previous: Some(proto::LogId {
                term: previous.leader_id.term,
                node: previous.leader_id.node_id,
                index: previous.index,
            }),
            committed: None,
            acknowledged: None,
            acknowledgements: Vec::new(),
            entries: vec![proto::Entry {
                head: head.into(),
                payload: record::payload(&entry),
            }],
        }
    };
    for (commands, code) in [
        (&b"\x01garbage"[..], Code::InvalidArgument),
        (&[COMMAND_VERSION + 1, 0], Code::Unimplemented),
    ] {
        assert_eq!(target.core().stop_reason(), None);
        let stream = futures_util::stream::iter([append(commands)]);
        let mut replies = grpc.append(stream).await.expect("begun").into_inner();
        let refused = replies.message().await.expect_err("not acknowledged");
        assert_eq!(refused.code(), code, "{refused}");
        assert_eq!(last_index(&target), before, "it is not in the log");
    }
    let reason = target.core().stop_reason().expect("it has stopped");
    assert!(reason.contains("run a newer program"), "{reason}");
    drop((client, target));
    // Nothing of it remains at the next start.
    three.stop(number).await;
    let config = three.configs[number].clone();
    three.nodes[number] = Some(start(&config).await);
    surely(&three.client(three.leader().await), &put("b", "1")).await;
    three.assert_equal().await;
    three.shutdown().await;
}

/// Two members support the next command version, the third does not: a command of that version is refused
/// before it is proposed, and the error names the third. What that one would not apply is left out of others: the time of a
/// user's command.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_a_member_does_not_know_is_not_proposed() {
    let next = COMMAND_VERSION + 1;
    let old = Command::AUTHOR_VERSION - 1;
    let ann = Actor::User {
        name: "ann".into(),
        since: 1,
    };
    let mut three = Three::start(|config| {
        config.command_version = match config.name.as_str() {
            "c" => u32::from(old),
            _ => u32::from(next),
        };
        config.heartbeat_interval = Duration::from_millis(100);
        config.election_timeout = Duration::from_secs(2);
    })
    .await;
    let lacking = three.client(2).core().member_id;
    let known = |three: &Three, number: usize| {
        let membership = three.client(number).core().membership();
        let versions = membership.nodes().map(|(_, member)| member.command_version);
        // A member that has heard from nobody yet knows nobody.
        versions.min().unwrap_or(0)
    };
    eventually("all have said what they know", || {
        (0..3).all(|number| known(&three, number) > 0)
    })
    .await;
    for number in 0..3 {
        let refused = three.client(number).core().check_version(next);
        match refused {
            Err(Error::CommandTooNew { member, known, .. }) => {
                assert_eq!((member, known), (lacking, old));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(three.client(number).author_time(&ann), None);
    }
    let leader = three.leader().await;
    let before = last_index(&three.client(leader));
    let mut bytes = proposal(three.client(leader).core().member_id, &[put("a", "1")]);
    bytes[24] = next;
    let core = three.client(leader).core().clone();
    let handed = core
        .hand_in_here(core.leadership().term, bytes.into())
        .await;
    assert!(
        matches!(
            handed,
            proposer::Handed::Nowhere(Error::CommandTooNew { .. })
        ),
        "handed in"
    );
    drop(core);
    assert_eq!(last_index(&three.client(leader)), before, "not in the log");
    // Version 1 still works; and the newer one once the last member supports it.
    surely(&three.client(leader), &put("a", "1")).await;
    three.stop(2).await;
    three.configs[2].command_version = u32::from(next);
    let config = three.configs[2].clone();
    three.nodes[2] = Some(start(&config).await);
    eventually("all know it", || {
        (0..3).all(|number| known(&three, number) == u32::from(next))
    })
    .await;
    for number in 0..3 {
        three
            .client(number)
            .core()
            .check_version(next)
            .expect("all know it");
        assert!(three.client(number).author_time(&ann).is_some());
        assert_eq!(three.client(number).author_time(&Actor::Process), None);
    }
    three.shutdown().await;
}

/// A put that waited beside a command which a member did not know went into one proposal with it, and was refused with it.
#[tokio::test]
async fn a_command_that_is_too_new_refuses_nothing_beside_it() {
    let old = Command::AUTHOR_VERSION - 1;
    let three = Three::start(|config| {
        if config.name == "c" {
            config.command_version = u32::from(old);
        }
        config.heartbeat_interval = Duration::from_millis(100);
        config.election_timeout = Duration::from_secs(2);
    })
    .await;
    let client = three.client(three.leader().await);
    eventually("all have said what they know", || {
        let membership = client.core().membership();
        membership
            .nodes()
            .all(|(_, member)| member.command_version > 0)
    })
    .await;
    let newer = Command::Quota(QuotaChange::Remove {
        prefix: b"jobs/".to_vec(),
    });
    assert!(newer.version() > old);
    // Both wait before the proposer has its turn.
    let (newer, beside) = tokio::join!(client.execute(newer), client.execute(put("a", "1")));
    assert!(
        matches!(newer, Err(Error::CommandTooNew { .. })),
        "{newer:?}"
    );
    assert!(beside.unwrap().reply.result.is_ok());
    drop(client);
    three.shutdown().await;
}

/// The head of a snapshot announces its files, and its state names them. Any difference is refused before a file of an earlier
/// transfer is removed; so are more files than any snapshot has. No test had sent one.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_whose_files_are_not_those_of_its_state_is_refused() {
    let three = settled().await;
    let leader = three.leader().await;
    let number = (leader + 1) % 3;
    let (client, target) = (three.client(leader), three.client(number));
    let mut grpc = grpc(three.nodes[number].as_ref().unwrap()).await;
    let frozen = client.freeze().unwrap();
    let vote = target.core().raft.view().vote();
    let from = client.core().member_id;
    assert_eq!(vote.leader_id.node_id, from, "it follows the leader");
    let mut membership = Vec::new();
    record::encode_membership(&client.core().membership(), &mut membership);
    let files: Vec<_> = frozen
        .tables
        .iter()
        .map(|table| proto::SnapshotFile {
            name: table.name.clone(),
            length: table.bytes,
            crc32c: 0,
        })
        .collect();
    assert!(!files.is_empty());
    let other = |number: usize| proto::SnapshotFile {
        name: format!("other{number}.table"),
        ..files[0].clone()
    };
    let head = |files: Vec<proto::SnapshotFile>, index: u64| proto::SnapshotHead {
        sender: Some(sender(&client, &target)),
        vote: Some(proto::Ballot {
            term: vote.leader_id.term,
            node: from,
            committed: true,
        }),
        last: Some(proto::LogId {
            term: vote.leader_id.term,
            node: from,
            index,
        }),
        membership: membership.clone().into(),
        state: frozen.state.clone().into(),
        files,
        ..proto::SnapshotHead::default()
    };
    // The state counts its entries from 1.
    let last = frozen.index - 1;
    let fewer = files[1..].to_vec();
    let more = [&files[..], &[other(0)]].concat();
    let mut larger = files.clone();
    larger[0].length += 1;
    let mut another = files.clone();
    another[0] = other(0);
    let far_too_many = (0..(1 << 17) + 1).map(other).collect();
    for (head, why) in [
        (head(fewer, last), "whose state names"),
        (head(more, last), "whose state names"),
        (head(Vec::new(), last), "whose state names"),
        (head(larger, last), "does not name"),
        (head(another, last), "does not name"),
        (head(files.clone(), last - 1), "whose state is of"),
        (head(far_too_many, last), "too many files"),
    ] {
        let part = Some(proto::snapshot_chunk::Part::Head(head));
        let chunks = futures_util::stream::iter([proto::SnapshotChunk { part }]);
        let refused = grpc.snapshot(chunks).await.expect_err("refused");
        assert_eq!(refused.code(), Code::InvalidArgument, "{why}: {refused}");
        assert!(refused.message().contains(why), "{why}: {refused}");
    }
    // A last entry that this log has not: of a later leader than the entry there, openraft would panic.
    let mut of_another = head(files.clone(), last);
    of_another.last.as_mut().unwrap().term -= 1;
    let part = Some(proto::snapshot_chunk::Part::Head(of_another));
    let chunks = futures_util::stream::iter([proto::SnapshotChunk { part }]);
    let refused = grpc.snapshot(chunks).await.expect_err("refused");
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    // The right files are waited for, and do not come.
    let part = Some(proto::snapshot_chunk::Part::Head(head(files, last)));
    let chunks = futures_util::stream::iter([proto::SnapshotChunk { part }]);
    let refused = grpc.snapshot(chunks).await.expect_err("it ends early");
    assert_eq!(refused.code(), Code::DataLoss, "{refused}");
    surely(&client, &put("b", "1")).await;
    drop((client, target));
    three.assert_equal().await;
    three.shutdown().await;
}
