//! The identity of a member: a foreign directory neither votes, nor counts, nor acknowledges.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use bowline_proto::peer as proto;
use bowline_storage::vfs::OpenMode;
use bowline_testing::crash::Images;
use tokio::net::{TcpListener, TcpStream};

use super::hostile::{grpc, sender};
use crate::node::leader_request::{LeaderRequest, LeaderResponse};
use crate::node::service::Service;
use crate::raft::network::PeerService as _;

use super::*;

fn on(disk: &SimDisk, config: &NodeConfig) -> NodeConfig {
    NodeConfig {
        vfs: Arc::new(disk.clone()),
        ..config.clone()
    }
}

/// Starts it if possible; while nobody answers, the start may succeed.
async fn try_start(config: &NodeConfig) -> Result<Node, Error> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match Node::start(config.clone()).await {
            Err(Error::Bind { .. }) if tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            started => return started,
        }
    }
}

/// Makes `b` lag, writes X to the other two, stops all, empties the disk of `lost`, and starts that one and
/// `b`.
async fn an_emptied_founder(lost_is_first: bool) {
    let mut three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    let ids: Vec<u64> = (0..3).map(|n| three.client(n).status().member_id).collect();
    surely(&three.client(leader), &put("before", "all three")).await;
    // The founder with the lowest id may found the cluster.
    let first = (0..3).min_by_key(|n| ids[*n]).unwrap();
    let lost = if lost_is_first {
        first
    } else {
        (first + 1) % 3
    };
    let (b, a) = (
        (first + 2) % 3,
        if lost_is_first {
            (first + 1) % 3
        } else {
            first
        },
    );
    // All have published their names: the cluster knows that an emptied directory has been running.
    eventually("all have said their names", || {
        let members = three.client(b).members();
        members.len() == 3 && members.iter().all(|member| !member.client_urls.is_empty())
    })
    .await;
    three.stop(b).await;
    surely(&three.client(a), &put("x", "on a and on the lost one")).await;
    three.stop(a).await;
    three.stop(lost).await;

    // It starts first, on an empty disk, and nobody can tell it that it was a member.
    let empty = on(&SimDisk::new(), &three.configs[lost]);
    let stranger = start(&empty).await;
    let stopped = stranger.client();
    let lagging = start(&three.configs[b].clone()).await;
    let elected = lagging.client();
    let is_led = || {
        let status = elected.status();
        status.leader.is_some() && elected.holds_lease()
    };
    let reason = tokio::select! {
        reason = stopped.stopped() => reason,
        () = eventually("it stops, or a leader is elected", is_led) => {
            panic!("an empty directory has helped to elect a leader without X");
        }
    };
    assert!(reason.contains("add it again"), "{reason}");
    assert!(!is_led(), "one of three");
    drop(stopped);
    stranger.shutdown().await.unwrap();
    // Not when it learns so at the start, either.
    for is_existing in [false, true] {
        let again = NodeConfig {
            is_existing,
            request_timeout: Duration::from_millis(500),
            ..on(&SimDisk::new(), &empty)
        };
        let error = Node::start(again).await.unwrap_err();
        let is_clear = error.to_string().contains("add it again");
        // A joining member needs a leader's answer.
        assert!(is_clear || is_existing, "{error}");
    }

    let config = three.configs[a].clone();
    three.nodes[a] = Some(start(&config).await);
    three.nodes[b] = Some(lagging);
    let client = three.client(a);
    surely(&client, &put("after", "a and b go on")).await;
    let read = elected
        .range(&key("x"), ReadLevel::Linearizable)
        .await
        .unwrap();
    assert_eq!(value_of(&read), Some(b"on a and on the lost one".to_vec()));
    three.assert_equal().await;
    drop((client, elected));
    three.shutdown().await;
}

/// X was committed by A and C while B lagged. All stopped; C came back first, with an empty disk. As nobody
/// answered, it took itself for a founder at its first start, founded the cluster again, and its empty log
/// gave B its vote: X, which had been acknowledged, was lost.
#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_founder_neither_founds_again_nor_votes() {
    an_emptied_founder(true).await;
    an_emptied_founder(false).await;
}

/// A learner that came back with an empty disk was promoted because of the leader's knowledge of the old disk
/// (with debug assertions, the leader stopped instead).
#[tokio::test(flavor = "multi_thread")]
async fn a_learner_that_comes_back_empty_is_not_promoted() {
    let first = start(&NodeConfig {
        listen_peer_urls: free_urls(1),
        ..config("first", &SimDisk::new())
    })
    .await;
    let client = first.client();
    surely(&client, &put("k", "v")).await;
    let own_url = client.members()[0].peer_urls[0].clone();
    let url = free_urls(1).remove(0);
    let added = client.member_add(vec![url.clone()], true).await.unwrap();
    let disk = SimDisk::new();
    let joining = NodeConfig {
        listen_peer_urls: vec![url.clone()],
        is_existing: true,
        initial_cluster: vec![("first".to_owned(), own_url), ("second".to_owned(), url)],
        ..config("second", &disk)
    };
    let second = start(&joining).await;
    eventually("it has caught up", || {
        second.client().db().get("k").unwrap().is_some()
    })
    .await;
    second.shutdown().await.unwrap();
    let error = try_start(&on(&SimDisk::new(), &joining)).await.unwrap_err();
    assert!(matches!(error, Error::Directory { .. }), "{error}");
    assert!(error.to_string().contains("add it again"), "{error}");
    eventually("it counts as gone", || !client.core().is_active(added.id)).await;
    let refused = client.member_promote(added.id).await;
    assert!(
        matches!(refused, Err(Error::LearnerNotReady)),
        "{refused:?}"
    );
    // Its own directory is accepted.
    let second = start(&joining).await;
    let promoting = async {
        while let Err(error) = client.member_promote(added.id).await {
            // Until it has answered, and again when it could not for a while.
            assert!(matches!(error, Error::LearnerNotReady), "{error:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let promoted = tokio::time::timeout(PATIENCE, promoting).await;
    promoted.expect("it answers");
    surely(&client, &put("k", "two voters")).await;
    drop(client);
    second.shutdown().await.unwrap();
    first.shutdown().await.unwrap();
}

/// A way to an address that lets one connection through, and more from when it `is_open`.
async fn gate(target: SocketAddr) -> (String, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let is_open = Arc::new(AtomicBool::new(false));
    let opens = is_open.clone();
    tokio::spawn(async move {
        let mut passed = 0;
        while let Ok((mut from, _)) = listener.accept().await {
            if passed > 0 && !opens.load(Ordering::SeqCst) {
                continue;
            }
            passed += 1;
            tokio::spawn(async move {
                let mut to = TcpStream::connect(target).await?;
                tokio::io::copy_bidirectional(&mut from, &mut to).await
            });
        }
    });
    (url, is_open)
}

/// A leader bound the directory of a newcomer to its place, sent the newcomer what followed, and lost the end of its log. The
/// newcomer, which was not blank any more, asked nobody for its place again, and the next leader, whose membership did not
/// name it, was refused by it for ever. Found by the simulation.
#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_asks_for_its_place_until_the_cluster_has_agreed() {
    let first = start(&NodeConfig {
        listen_peer_urls: free_urls(1),
        ..config("first", &SimDisk::new())
    })
    .await;
    let client = first.client();
    surely(&client, &put("k", "v")).await;
    let url = free_urls(1).remove(0);
    client.member_add(vec![url.clone()], true).await.unwrap();
    // The newcomer finds out who it is, and nothing else.
    let (way, is_open) = gate(first.peer_addresses()[0]).await;
    let second = start(&NodeConfig {
        listen_peer_urls: vec![url.clone()],
        is_existing: true,
        initial_cluster: vec![("first".to_owned(), way), ("second".to_owned(), url)],
        ..config("second", &SimDisk::new())
    })
    .await;
    let newcomer = second.client();
    assert!(newcomer.core().is_blank());
    let vote = client.core().raft.view().vote();
    let request = proto::AppendRequest {
        sender: Some(sender(&client, &newcomer)),
        sequence: 1,
        vote: Some(proto::Ballot {
            term: vote.leader_id.term,
            node: vote.leader_id.node_id,
            committed: true,
        }),
        ..proto::AppendRequest::default()
    };
    let stream = futures_util::stream::iter([request]);
    let mut replies = grpc(&second)
        .await
        .append(stream)
        .await
        .unwrap()
        .into_inner();
    while let Some(reply) = replies.message().await.unwrap() {
        assert!(reply.result.is_some(), "{reply:?}");
    }
    assert!(!newcomer.core().is_blank(), "it has heard of a leader");
    is_open.store(true, Ordering::SeqCst);
    eventually("it has caught up", || {
        newcomer.db().get("k").unwrap().is_some()
    })
    .await;
    drop((client, newcomer));
    second.shutdown().await.unwrap();
    first.shutdown().await.unwrap();
}

/// A member was removed and another one added with the same peer URL, as an operator replaces a machine. The
/// removed process still ran, received what was sent to that URL, and acknowledged and voted under the new
/// one's id: with its disk lost, an acknowledged put was lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_removed_member_does_not_act_for_the_one_in_its_place() {
    let mut three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    let gone = (leader + 1) % 3;
    let old = three.client(gone);
    let id = old.status().member_id;
    let url = three.configs[gone].listen_peer_urls[0].clone();
    let client = three.client(leader);
    surely(&client, &put("k", "three")).await;
    client.member_remove(id).await.unwrap();
    let added = client.member_add(vec![url.clone()], false).await.unwrap();
    surely(&client, &put("k", "two")).await;
    let reason = tokio::time::timeout(PATIENCE, old.stopped()).await;
    let reason = reason.expect("it stops");
    assert!(reason.contains("removed"), "{reason}");
    let members = client.members();
    let new = members.iter().find(|member| member.id == added.id).unwrap();
    assert!(new.is_learner, "nobody has taken the place yet");
    assert!(
        old.db()
            .get("k")
            .unwrap()
            .is_none_or(|value| &*value != b"two")
    );
    drop(old);
    three.stop(gone).await;
    // The intended machine.
    let joining = NodeConfig {
        is_existing: true,
        ..on(&SimDisk::new(), &three.configs[gone])
    };
    three.nodes[gone] = Some(start(&joining).await);
    eventually("it votes", || {
        let members = client.members();
        members.iter().filter(|member| !member.is_learner).count() == 3
    })
    .await;
    three.assert_equal().await;
    drop(client);
    three.shutdown().await;
}

/// A joining node asked one member, and believed it. That one was cut off and had an old membership: the node
/// took the id of a member that had been removed since.
#[tokio::test(flavor = "multi_thread")]
async fn who_joins_does_not_believe_an_old_membership() {
    let mut three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    let lagging = (leader + 1) % 3;
    let client = three.client(leader);
    let url = free_urls(1).remove(0);
    let removed = client.member_add(vec![url.clone()], true).await.unwrap();
    eventually("all know it", || {
        let mut all = (0..3).map(|number| three.client(number).members().len());
        all.all(|count| count == 4)
    })
    .await;
    three.stop(lagging).await;
    client.member_remove(removed.id).await.unwrap();
    let added = client.member_add(vec![url.clone()], true).await.unwrap();
    drop(client);
    let others = (0..3).filter(|number| *number != lagging);
    let others: Vec<usize> = others.collect();
    for number in &others {
        three.stop(*number).await;
    }
    let config = three.configs[lagging].clone();
    three.nodes[lagging] = Some(start(&config).await);
    let disk = SimDisk::new();
    let of = |number: usize| three.configs[number].listen_peer_urls[0].clone();
    let joining = NodeConfig {
        listen_peer_urls: vec![url.clone()],
        is_existing: true,
        initial_cluster: vec![
            ("lagging".to_owned(), of(lagging)),
            ("other".to_owned(), of(others[0])),
            ("new".to_owned(), url),
        ],
        request_timeout: Duration::from_millis(500),
        ..super::config("new", &disk)
    };
    let error = try_start(&joining).await.unwrap_err();
    assert!(matches!(error, Error::Peer { .. }), "{error}");
    for number in others {
        let config = three.configs[number].clone();
        three.nodes[number] = Some(start(&config).await);
    }
    three.leader().await;
    // The first attempt leaves nothing in the directory.
    let patient = NodeConfig {
        request_timeout: PATIENCE,
        ..joining
    };
    let new = start(&patient).await;
    assert_eq!(new.client().status().member_id, added.id);
    new.shutdown().await.unwrap();
    three.shutdown().await;
}

/// A member id is claimed once, and repeating the claim changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_is_taken_once() {
    let node = start(&config("one", &SimDisk::new())).await;
    let client = node.client();
    eventually("it leads", || client.holds_lease()).await;
    let added = client.member_add(free_urls(1), true).await.unwrap();
    let claim = |id, incarnation| {
        client
            .core()
            .answer(LeaderRequest::MemberClaim { id, incarnation })
    };
    let incarnation_of = |id| {
        client
            .core()
            .membership()
            .get_node(&id)
            .unwrap()
            .incarnation
    };
    for _ in 0..2 {
        let answer = claim(added.id, 7).await;
        assert!(matches!(answer, LeaderResponse::Done), "{answer:?}");
        assert_eq!(incarnation_of(added.id), 7);
    }
    let own = client.status().member_id;
    for (id, incarnation) in [(added.id, 8), (added.id, 0), (own, 8)] {
        let answer = claim(id, incarnation).await;
        let is_refused = matches!(answer, LeaderResponse::Refused(Error::PlaceTaken { .. }));
        assert!(is_refused, "{answer:?}");
    }
    assert_eq!(incarnation_of(added.id), 7);
    assert_eq!(incarnation_of(own), client.core().incarnation);
    let nobody = claim(12345, 7).await;
    let is_refused = matches!(
        nobody,
        LeaderResponse::Refused(Error::MemberNotFound { .. })
    );
    assert!(is_refused, "{nobody:?}");
    drop(client);
    node.shutdown().await.unwrap();
}

/// An older copy of a member's directory was put back, which lacked acknowledged entries. The leader stopped
/// (with debug assertions), or assumed that the member had them.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_directory_is_found_out_and_gets_back_what_it_lost() {
    let mut three = Three::start(|config| config.election_timeout = Duration::from_secs(2)).await;
    let leader = three.leader().await;
    let member = (leader + 1) % 3;
    let client = three.client(leader);
    surely(&client, &put("k", "before the copy")).await;
    eventually("it is there", || {
        three.client(member).db().get("k").unwrap().is_some()
    })
    .await;
    three.stop(member).await;
    let older = three.disks[member].after_power_loss();
    let settings = three.configs[member].clone();
    three.nodes[member] = Some(start(&settings).await);
    for number in 0..20 {
        surely(&client, &put("x", &number.to_string())).await;
    }
    three.assert_equal().await;
    three.stop(member).await;
    three.nodes[member] = Some(start(&on(&older, &settings)).await);
    let put_back = three.client(member);
    let losses = || put_back.core().counts.losses_found.load(Ordering::Relaxed);
    eventually("it is told", || losses() == 1).await;
    eventually("it has everything again", || !put_back.core().owes()).await;
    three.assert_equal().await;
    assert_eq!(losses(), 1, "of one loss it is told once");
    assert_eq!(client.status().failure, None);
    drop((client, put_back));
    three.shutdown().await;
}

/// An older copy of a member's directory was put back while no leader lived that knew what it had acknowledged. It voted for
/// a member that lagged as much, and what it had acknowledged together with the last leader was gone. Written down as not
/// covered until members remembered each other's acknowledgements.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_directory_does_not_vote_where_only_a_follower_remembers() {
    let mut three =
        Three::start(|config| config.memory_interval = Duration::from_millis(100)).await;
    let leader = three.leader().await;
    let (older, lagging) = ((leader + 1) % 3, (leader + 2) % 3);
    let client = three.client(leader);
    surely(&client, &put("k", "before the copy")).await;
    three.assert_equal().await;
    three.stop(older).await;
    let copy = three.disks[older].after_power_loss();
    let settings = three.configs[older].clone();
    three.nodes[older] = Some(start(&settings).await);
    surely(&client, &put("k", "remembered")).await;
    let remembers = three.client(lagging).core().clone();
    let id = three.client(older).core().member_id;
    let acknowledged = || remembers.log.member().read_remembered(id);
    let last = client.core().log.last_log_id();
    eventually("a follower remembers it", || acknowledged() >= last).await;
    drop(remembers);
    // The last write is acknowledged by the leader and the member whose directory is replaced.
    three.stop(lagging).await;
    surely(&client, &put("k", "acknowledged by two")).await;
    drop(client);
    three.stop(older).await;
    three.stop(leader).await;
    three.nodes[lagging] = Some(start(&three.configs[lagging].clone()).await);
    three.nodes[older] = Some(start(&on(&copy, &settings)).await);
    let back = three.client(older);
    let withheld = || back.core().counts.votes_withheld.load(Ordering::Relaxed);
    // What they promised to the last leader is over: each vote that is withheld from now on would elect one of them.
    let both = [older, lagging].map(|member| three.client(member));
    let hears_none = |client: &LocalClient| client.status().leader.is_none();
    eventually("they hear no leader", || both.iter().all(hears_none)).await;
    let before = withheld();
    eventually("it finds out, each time", || withheld() >= before + 5).await;
    assert!(both.iter().all(hears_none), "one of them was elected");
    drop(both);
    three.nodes[leader] = Some(start(&three.configs[leader].clone()).await);
    let client = three.client(lagging);
    let read = || async {
        let op = RangeOp {
            key: b"k".to_vec(),
            ..RangeOp::default()
        };
        let read = client.range(&op, ReadLevel::Linearizable).await.ok()?;
        Some(read.value.entries[0].value.clone())
    };
    let mut found = read().await;
    while found.is_none() {
        tokio::time::sleep(Duration::from_millis(50)).await;
        found = read().await;
    }
    assert_eq!(&found.unwrap()[..], b"acknowledged by two");
    eventually("it has everything again", || {
        back.db().get("k").unwrap().as_deref() == Some(&b"acknowledged by two"[..])
    })
    .await;
    drop((client, back));
    three.assert_equal().await;
    three.shutdown().await;
}

/// Inverts a bit in the middle of what the log of a member has in its newest segment.
fn spoil_log(disk: &SimDisk) {
    let dir = Path::new("db/log");
    let mut names = disk.read_dir(dir).unwrap();
    names.retain(|name| name.ends_with(".log"));
    names.sort();
    let path = dir.join(names.last().unwrap());
    let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    // Behind the header.
    let at = 4096 + (end - 4096) / 2;
    file.write_at(&[bytes[at] ^ 1], at as u64).unwrap();
    file.sync_data().unwrap();
}

/// Damage in the middle of its log kept a member from starting until somebody removed it and added it again.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_with_a_damaged_log_gets_it_back_and_votes_only_then() {
    let mut three = Three::start(|config| config.election_timeout = Duration::from_secs(2)).await;
    let leader = three.leader().await;
    let member = (leader + 1) % 3;
    let client = three.client(leader);
    for number in 0..50 {
        surely(&client, &put(&format!("k{number}"), &"v".repeat(500))).await;
    }
    three.assert_equal().await;
    let term = client.status().term;
    three.stop(member).await;
    spoil_log(&three.disks[member]);
    let settings = three.configs[member].clone();
    three.nodes[member] = Some(start(&settings).await);
    let back = three.client(member);
    let owed = back.core().log.member().read_owed();
    assert!(owed.is_some(), "it may vote");
    assert!(!Service(back.core().clone()).may_vote());
    eventually("it has everything again", || !back.core().owes()).await;
    surely(&client, &put("k", "with the same leader")).await;
    assert_eq!(client.status().term, term, "no election was needed");
    three.assert_equal().await;
    let names = three.disks[member].read_dir(Path::new("db/log")).unwrap();
    let kept = names.iter().filter(|name| name.ends_with(".damaged"));
    assert!(kept.count() > 0, "the damaged files are gone: {names:?}");
    // Another leader's entries prove as much. No file of the log is left this time.
    three.stop(member).await;
    let log = Path::new("db/log");
    for name in three.disks[member].read_dir(log).unwrap() {
        three.disks[member].remove_file(&log.join(name)).unwrap();
    }
    three.nodes[member] = Some(start(&settings).await);
    let back = three.client(member);
    assert!(back.core().owes());
    let third = three.client((leader + 2) % 3).status().member_id;
    three.move_leader(third).await;
    eventually("it has everything again", || !back.core().owes()).await;
    three.assert_equal().await;
    drop((client, back));
    three.shutdown().await;
}

/// The power may fail at any moment while a member sets its damaged log aside, and however little of that has reached the
/// disk: the next start is one of a member that owes what it has lost, and the damaged files are kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_power_loss_while_a_damaged_log_is_set_aside_makes_no_voter() {
    const IMAGES: u64 = 60;
    let small = |config: &mut NodeConfig| {
        config.database = config.database.clone().log_segment_bytes(64 << 10);
    };
    let mut three = Three::start(small).await;
    let leader = three.leader().await;
    let member = (leader + 1) % 3;
    let client = three.client(leader);
    for number in 0..60 {
        surely(&client, &put(&format!("k{number}"), &"v".repeat(4000))).await;
    }
    three.assert_equal().await;
    drop(client);
    for number in 0..3 {
        three.stop(number).await;
    }
    let (disk, settings) = (three.disks[member].clone(), three.configs[member].clone());
    spoil_log(&disk);
    let first = disk.point();
    let node = start(&on(&disk, &settings)).await;
    assert!(node.client().core().owes());
    node.shutdown().await.unwrap();

    let (mut kept, mut shorter) = (0, 0);
    for image in Images::sample_from(&disk.recording(), first, 21, IMAGES) {
        let crashed = image.build();
        let names = |suffix: &str| {
            let names = crashed.read_dir(Path::new("db/log")).unwrap();
            names
                .into_iter()
                .filter(|name| name.ends_with(suffix))
                .count()
        };
        shorter += u64::from(names(".damaged") > 0 && names(".log") > 0);
        let node = start(&on(&crashed, &settings)).await;
        let core = node.client().core().clone();
        assert!(core.log.member().read_owed().is_some(), "{image}");
        assert!(!Service(core).may_vote(), "{image}");
        assert!(names(".damaged") > 0, "{image}");
        kept += 1;
        node.shutdown().await.unwrap();
    }
    assert!(
        kept > 20 && shorter > 0,
        "{kept} images, {shorter} with a part of the log"
    );
}

/// Nobody can give a single member back what its log lacks.
#[tokio::test(flavor = "multi_thread")]
async fn a_single_member_with_a_damaged_log_does_not_start() {
    let disk = SimDisk::default();
    let config = config("one", &disk);
    let node = Node::start(config.clone()).await.unwrap();
    let client = node.client();
    for number in 0..50 {
        surely(&client, &put(&format!("k{number}"), &"v".repeat(500))).await;
    }
    drop(client);
    node.shutdown().await.unwrap();
    spoil_log(&disk);
    let refused = Node::start(config).await;
    assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
    let names = disk.read_dir(Path::new("db/log")).unwrap();
    assert!(
        names.iter().all(|name| !name.ends_with(".damaged")),
        "{names:?}"
    );
}

/// While a member lacks acknowledged entries it gives no vote, and accepts no transfer of leadership; a
/// restart changes nothing about that.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_lost_what_it_acknowledged_does_not_vote() {
    // The vote checked here must be the same leader's throughout.
    let mut three = Three::start(|config| config.election_timeout = Duration::from_secs(2)).await;
    let leader = three.leader().await;
    let member = (leader + 1) % 3;
    surely(&three.client(leader), &put("k", "v")).await;
    let behind = three.client(member);
    let id = behind.status().member_id;
    let core = behind.core();
    eventually("it has voted, and has an entry", || {
        core.log.member().read_vote().is_some() && core.log.last_log_id().is_some()
    })
    .await;
    let vote = core.log.member().read_vote().unwrap();
    let last = core.log.last_log_id().unwrap();
    let service = Service(core.clone());
    eventually("it votes", || service.may_vote()).await;
    service.acknowledged(&vote, last).await.unwrap();
    assert!(service.may_vote(), "it has all that");
    let mut lost = last;
    lost.index += 1_000;
    let mut earlier = vote;
    earlier.leader_id.term = 0;
    service.acknowledged(&earlier, lost).await.unwrap();
    assert!(service.may_vote(), "the word of a leader that was deposed");
    assert!(!behind.status().lacks_entries);
    service.acknowledged(&vote, lost).await.unwrap();
    assert!(!service.may_vote() && !service.may_lead());
    assert!(behind.status().lacks_entries);
    drop((service, behind));
    three.stop(member).await;
    let settings = three.configs[member].clone();
    three.nodes[member] = Some(start(&settings).await);
    let behind = three.client(member);
    let service = Service(behind.core().clone());
    assert!(!service.may_vote() && !service.may_lead());
    let core = behind.core();
    let waits = || core.started.elapsed() < core.votes_after;
    eventually("a restarted member might vote", || !waits()).await;
    core.settle_what_is_owed().await;
    assert!(!service.may_lead() && !service.may_vote());
    let client = three.client(three.leader().await);
    let refused = client.move_leader(id).await;
    // Another member may lead now; its first entry is behind all owed ones.
    assert!(refused.is_err(), "it was handed the lead");
    // An entry of a later term is behind all entries of an earlier leader.
    let leader = three.leader().await;
    let third = (0..3).find(|n| *n != member && *n != leader).unwrap();
    let target = three.client(third).status().member_id;
    three.move_leader(target).await;
    surely(&three.client(third), &put("k", "of a later term")).await;
    eventually("it votes again", || service.may_vote()).await;
    assert!(!behind.status().lacks_entries);
    three.move_leader(id).await;
    drop((service, behind, client));
    three.shutdown().await;
}
