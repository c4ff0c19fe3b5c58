//! Changes of the membership: members are added, promoted and removed, and changes that could not be undone or were not
//! completed are refused or ended.

use bowline_replica::{Actor, QuotaChange, QuotaLimits};

use crate::raft::MembershipChange;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_database_grows_to_three_members_without_a_stop() {
    let disk = SimDisk::new();
    let db = Db::builder()
        .vfs(Arc::new(disk.clone()))
        .history(bowline::History::All)
        .open("db")
        .unwrap();
    for number in 0..100 {
        db.put(format!("old{number}"), "embedded").unwrap();
    }
    let (revision, database_id) = (db.revision(), db.id());
    db.close().unwrap();
    drop(db);
    let first_config = NodeConfig {
        listen_peer_urls: free_urls(1),
        ..config("first", &disk)
    };
    let first = start(&first_config).await;
    let client = first.client();
    assert_eq!(client.db().id(), database_id);
    assert_eq!(client.db().revision(), revision);
    client.execute(put("new", "served")).await.unwrap();
    // History continues, too.
    assert_eq!(client.db().history("old7").unwrap().len(), 1);
    let first_url = client.members()[0].peer_urls[0].clone();
    let mut others = Vec::new();
    for name in ["second", "third"] {
        let url = free_urls(1).remove(0);
        let added = client.member_add(vec![url.clone()], false).await.unwrap();
        // It was appended, and nobody could decode it.
        let long = format!("http://{}:1", "a".repeat(5000));
        for urls in [
            vec![long],
            (0..65).map(|n| format!("http://h:{n}")).collect(),
        ] {
            let refused = client.member_add(urls.clone(), false).await;
            assert!(matches!(refused, Err(Error::MemberTooLarge)), "{refused:?}");
            let refused = client.member_update(added.id, urls).await;
            assert!(matches!(refused, Err(Error::MemberTooLarge)), "{refused:?}");
        }
        let again = client.member_add(vec![url.clone()], false).await;
        assert!(matches!(again, Err(Error::PeerUrlExists)), "{again:?}");
        let config = NodeConfig {
            listen_peer_urls: vec![url.clone()],
            is_existing: true,
            initial_cluster: vec![
                ("first".to_owned(), first_url.clone()),
                (name.to_owned(), url),
            ],
            ..config(name, &SimDisk::new())
        };
        let node = start(&config).await;
        assert_eq!(node.client().status().member_id, added.id);
        eventually("it is promoted", || {
            let members = client.members();
            members
                .iter()
                .any(|member| member.id == added.id && !member.is_learner)
        })
        .await;
        // Writes continue all the time.
        client.execute(put(name, "joined")).await.unwrap();
        others.push(node);
    }
    for node in &others {
        let other = node.client();
        let read = other
            .range(&key("old42"), ReadLevel::Linearizable)
            .await
            .unwrap();
        assert_eq!(value_of(&read), Some(b"embedded".to_vec()));
        assert_eq!(other.db().id(), database_id);
    }
    // A majority without the first.
    drop(client);
    first.shutdown().await.unwrap();
    surely(&others[0].client(), &put("without", "the first")).await;
    let first = start(&first_config).await;
    eventually("the first comes back", || {
        first.client().db().get("without").unwrap().is_some()
    })
    .await;
    for node in others.into_iter().chain([first]) {
        node.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_removed_and_what_cannot_be_is_refused() {
    let three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    let client = three.client(leader);
    let gone = three.client((leader + 1) % 3).status().member_id;
    let unknown = client.member_remove(12345).await;
    assert!(
        matches!(unknown, Err(Error::MemberNotFound { id: 12345 })),
        "{unknown:?}"
    );
    let voter = client.member_promote(gone).await;
    assert!(matches!(voter, Err(Error::NotLearner { .. })), "{voter:?}");
    let elsewhere = three.client((leader + 1) % 3).move_leader(gone).await;
    assert!(matches!(elsewhere, Err(Error::NotLeader)), "{elsewhere:?}");
    let nobody = client.move_leader(12345).await;
    assert!(
        matches!(nobody, Err(Error::BadTransferee { id: 12345 })),
        "{nobody:?}"
    );
    client.member_remove(gone).await.unwrap();
    assert_eq!(client.members().len(), 2);
    client.execute(put("k", "two are enough")).await.unwrap();
    // A learner that was never started does not count.
    let added = client.member_add(free_urls(1), true).await.unwrap();
    assert!(added.is_learner);
    let not_ready = client.member_promote(added.id).await;
    assert!(
        matches!(not_ready, Err(Error::LearnerNotReady)),
        "{not_ready:?}"
    );
    client.execute(put("k", "still")).await.unwrap();
    three.shutdown().await;
}

/// From when a member was added until it had started and caught up, every command beyond the first version was refused: with
/// authentication each write and each login, also of who wanted to remove it again.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_was_added_and_not_started_refuses_no_command() {
    let first = start(&NodeConfig {
        listen_peer_urls: free_urls(1),
        ..config("first", &SimDisk::new())
    })
    .await;
    let client = first.client();
    surely(&client, &put("k", "1")).await;
    let first_url = client.members()[0].peer_urls[0].clone();
    let url = free_urls(1).remove(0);
    let added = client.member_add(vec![url.clone()], false).await.unwrap();
    let ann = Actor::User {
        name: "ann".into(),
        since: 1,
    };
    let of_ann = Command::By {
        actor: ann.clone(),
        at_ms: None,
        command: Box::new(put("k", "2")),
    };
    let quota = QuotaChange::Set {
        prefix: b"jobs/".to_vec(),
        limits: QuotaLimits {
            keys: Some(10),
            bytes: None,
        },
    };
    for command in [of_ann, Command::Quota(quota)] {
        let applied = client.execute(command).await.unwrap();
        assert!(applied.reply.result.is_ok(), "{:?}", applied.reply);
    }
    assert!(client.author_time(&ann).is_some());
    // As a voter it counts, so it has said before which commands it knows.
    let config = NodeConfig {
        listen_peer_urls: vec![url.clone()],
        is_existing: true,
        initial_cluster: vec![("first".to_owned(), first_url), ("second".to_owned(), url)],
        ..config("second", &SimDisk::new())
    };
    let second = start(&config).await;
    eventually("it is promoted", || {
        let membership = client.core().membership();
        let member = membership.get_node(&added.id);
        let version = member.map_or(0, |member| member.command_version);
        let is_voter = membership.voter_ids().any(|id| id == added.id);
        assert!(
            !is_voter || version > 0,
            "a voter of which nothing is known"
        );
        is_voter
    })
    .await;
    drop(client);
    for node in [second, first] {
        node.shutdown().await.unwrap();
    }
}

/// Future voters counted as learners, of which there could be eight. etcd allows one learner, and a future
/// voter does not count.
#[tokio::test(flavor = "multi_thread")]
async fn learners_and_members_that_shall_vote_are_counted_apart() {
    let three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    let client = three.client(leader);
    let learner = client.member_add(free_urls(1), true).await.unwrap();
    let second = client.member_add(free_urls(1), true).await;
    assert!(matches!(second, Err(Error::TooManyLearners)), "{second:?}");
    let voter = client.member_add(free_urls(1), false).await.unwrap();
    let second = client.member_add(free_urls(1), true).await;
    assert!(matches!(second, Err(Error::TooManyLearners)), "{second:?}");
    client.member_remove(learner.id).await.unwrap();
    // A future voter uses up no learner's slot.
    let learner = client.member_add(free_urls(1), true).await.unwrap();
    assert_eq!((learner.is_learner, voter.is_learner), (true, true));
    three.shutdown().await;
}

/// Removing a live member while another is down leaves two of which one is down: nothing can be committed any
/// more, not even the reverse change.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_leaves_no_majority_is_refused() {
    let mut three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    let (down, alive) = ((leader + 1) % 3, (leader + 2) % 3);
    let client = three.client(leader);
    let down_id = three.client(down).status().member_id;
    let alive_id = three.client(alive).status().member_id;
    three.stop(down).await;
    // Its last answers to a leader count for so long, and one may be under way: a member that has just been elected
    // has had none until then.
    tokio::time::sleep(2 * client.core().options.election_timeout).await;
    // A new leader has not heard from it either.
    eventually("the leader misses it", || {
        let members = [leader, alive].map(|number| three.client(number));
        members.iter().any(|member| {
            let status = member.status();
            status.leader == Some(status.member_id) && !member.core().is_active(down_id)
        })
    })
    .await;
    let refused = client.member_remove(alive_id).await;
    assert!(matches!(refused, Err(Error::Unhealthy)), "{refused:?}");
    // Leadership may change between the other two all the time.
    let refused = loop {
        let leader = three.client(three.leader().await);
        match leader.move_leader(down_id).await {
            Err(Error::NotLeader) => {}
            answer => break answer,
        }
    };
    assert!(
        matches!(refused, Err(Error::BadTransferee { .. })),
        "{refused:?}"
    );
    surely(&client, &put("k", "two of three")).await;
    client.member_remove(down_id).await.unwrap();
    client.member_remove(alive_id).await.unwrap();
    let own = client.status().member_id;
    let last = client.member_remove(own).await;
    assert!(matches!(last, Err(Error::NotEnoughStarted)), "{last:?}");
    surely(&client, &put("k", "one is enough")).await;
    drop(client);
    three.shutdown().await;
}

/// What a member does again and again waited for the turn of a change that a leader which is cut off never ends; so it did
/// not ask either whether it had been removed.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_now_and_then_waits_for_no_change() {
    let three = Three::start(|_| {}).await;
    let leader = three.client(three.leader().await);
    let core = leader.core().clone();
    let turn = core.changing.clone().lock_owned().await;
    let both = async {
        core.promote_those_who_wait().await;
        core.leave_joint_membership().await;
    };
    tokio::time::timeout(PATIENCE, both)
        .await
        .expect("they come again later");
    drop((leader, core));
    drop(turn);
    three.shutdown().await;
}

/// A removed member answered eventual reads for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_was_removed_stops() {
    let three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    let gone = three.client((leader + 1) % 3);
    let id = gone.status().member_id;
    three.client(leader).member_remove(id).await.unwrap();
    let reason = tokio::time::timeout(PATIENCE, gone.stopped()).await;
    let reason = reason.expect("it stops");
    assert!(reason.contains("removed"), "{reason}");
    let read = gone.range(&key("k"), ReadLevel::Eventual).await;
    assert!(matches!(read, Err(Error::Stopped { .. })), "{read:?}");
    // The remaining members continue.
    surely(&three.client(leader), &put("k", "v")).await;
    drop(gone);
    three.shutdown().await;
}

/// It must not stop before it has answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_removes_itself_answers_and_stops() {
    let three = Three::start(|_| {}).await;
    let client = three.client(three.leader().await);
    surely(&client, &put("k", "three")).await;
    let id = client.status().member_id;
    client.member_remove(id).await.unwrap();
    let reason = tokio::time::timeout(PATIENCE, client.stopped()).await;
    let reason = reason.expect("it stops");
    assert_eq!(reason, "this member was removed from the cluster");
    let others = (0..3).filter(|number| three.client(*number).status().member_id != id);
    for number in others {
        surely(&three.client(number), &put("k", "two")).await;
    }
    drop(client);
    three.shutdown().await;
}

/// A two-step change whose leader did not reach the second step: the next leader completes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_was_left_half_way_is_ended() {
    let three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    let client = three.client(leader);
    let core = client.core();
    let id = three.client((leader + 1) % 3).status().member_id;
    // As a caller leaves it that goes away after the first step. While the members still publish their names,
    // another change is under way, and this one is refused.
    let deadline = tokio::time::Instant::now() + PATIENCE;
    'attempts: loop {
        let raft = core.raft.clone();
        let changing = tokio::spawn(async move {
            let ids = [id].into_iter().collect();
            raft.change_membership(MembershipChange::RemoveVoters(ids))
                .await
        });
        while !changing.is_finished() {
            if core.membership().get_joint_config().len() == 2 {
                changing.abort();
                break 'attempts;
            }
            tokio::task::yield_now().await;
        }
        if changing.await.unwrap().is_ok() {
            // It was too quick: there is nothing to complete.
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "no first step");
    }
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let membership = core.membership();
        let is_gone = membership.voter_ids().all(|voter| voter != id);
        if membership.get_joint_config().len() == 1 && is_gone {
            break;
        }
        let known = (core.leadership(), core.is_membership_joint());
        let late = tokio::time::Instant::now() >= deadline;
        assert!(!late, "{membership:?}, {known:?}, without {id}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    client.execute(put("k", "two")).await.unwrap();
    drop(client);
    three.shutdown().await;
}

/// A command that a member would not decode must not enter the log: all members would stop at it.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_nested_too_deep_is_refused() {
    let disk = SimDisk::new();
    let node = start(&config("one", &disk)).await;
    let client = node.client();
    eventually("it leads", || client.holds_lease()).await;
    let nested = |depth: usize| {
        let Command::Txn(mut txn) = put("deep", "value") else {
            unreachable!("a put is a transaction");
        };
        for _ in 0..depth {
            txn = Txn::of(Op::Txn(txn));
        }
        Command::Txn(txn)
    };
    let limit = bowline_replica::TXN_DEPTH_MAX;
    let refused = client.execute(nested(limit + 1)).await;
    assert!(
        matches!(refused, Err(Error::RequestTooDeep { .. })),
        "{refused:?}"
    );
    client.execute(nested(limit)).await.unwrap();
    assert!(client.db().get("deep").unwrap().is_some());
    drop(client);
    node.shutdown().await.unwrap();
}

/// Nobody cleared the alarm of a member that was removed while its disk was full: writes were refused for
/// ever.
#[tokio::test(flavor = "multi_thread")]
async fn the_alarm_for_space_goes_with_its_member() {
    let three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    let gone = (leader + 1) % 3;
    let id = three.client(gone).status().member_id;
    let client = three.client(leader);
    client.member_remove(id).await.unwrap();
    // As if it had raised the alarm just before its removal.
    surely(&client, &put("k", "before")).await;
    let raise = Command::Alarm {
        member: id,
        kind: bowline_replica::AlarmKind::NoSpace,
        is_raised: true,
    };
    surely(&client, &raise).await;
    eventually("the alarm is cleared", || client.alarms().is_empty()).await;
    surely(&client, &put("k", "after")).await;
    drop(client);
    three.shutdown().await;
}

/// When all were restarted, the others forgot a removed member, and its alarm stayed for ever.
#[tokio::test(flavor = "multi_thread")]
async fn the_alarm_for_space_of_a_removed_member_goes_after_a_restart_of_all() {
    const NOBODY: u64 = 4711;
    let mut three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    let gone = (leader + 1) % 3;
    let id = three.client(gone).status().member_id;
    three.client(leader).member_remove(id).await.unwrap();
    for number in 0..3 {
        // The removed one may have stopped by itself.
        let node = three.nodes[number].take().unwrap();
        let stopped = node.shutdown().await;
        assert!(stopped.is_ok() || number == gone, "{stopped:?}");
    }
    for number in (0..3).filter(|number| *number != gone) {
        three.nodes[number] = Some(start(&three.configs[number]).await);
    }
    let client = three.client(leader);
    let raise = |member| Command::Alarm {
        member,
        kind: bowline_replica::AlarmKind::NoSpace,
        is_raised: true,
    };
    surely(&client, &raise(NOBODY)).await;
    surely(&client, &raise(id)).await;
    // As in etcd, a client may raise one for member 0.
    let nobodys = [(NOBODY, bowline_replica::AlarmKind::NoSpace)];
    eventually("the member's is cleared", || client.alarms() == nobodys).await;
    drop(client);
    three.shutdown().await;
}

/// Bug 244: a leader that was cut off, and did not know that it had been deposed, answered that a member did not exist
/// that had been added meanwhile. What the membership is, only a leader may say that a majority confirms. Found by the
/// simulation.
#[tokio::test]
async fn a_leader_without_a_majority_does_not_say_who_is_no_member() {
    let mut three = Three::start(|config| config.request_timeout = Duration::from_secs(1)).await;
    let leader = three.leader().await;
    let client = three.client(leader);
    let unknown = client.member_remove(7).await;
    assert!(
        matches!(unknown, Err(Error::MemberNotFound { id: 7 })),
        "{unknown:?}"
    );
    for other in (0..3).filter(|other| *other != leader) {
        three.stop(other).await;
    }
    for asked in [
        client.member_remove(7).await,
        client.member_promote(7).await,
        client
            .member_update(7, vec!["http://127.0.0.1:1".to_owned()])
            .await,
    ] {
        let is_unsure = matches!(
            asked,
            Err(Error::NoLeader | Error::Timeout | Error::LeaderChanged)
        );
        assert!(is_unsure, "{asked:?}");
    }
    drop(client);
    three.shutdown().await;
}

/// Bug 248: a member that lagged gave no vote to one that it did not know, and asked those that it knew, who were gone.
/// The two were the only majority that was left, and elected nobody for ever. Found by the simulation.
#[tokio::test]
async fn a_newcomer_and_a_member_that_lags_elect_one_when_nobody_else_is_left() {
    let mut three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    let (lagging, third) = ((leader + 1) % 3, (leader + 2) % 3);
    surely(&three.client(leader), &put("k", "v")).await;
    three.assert_equal().await;
    three.stop(lagging).await;
    let client = three.client(leader);
    let url = free_urls(1).remove(0);
    let added = client.member_add(vec![url.clone()], false).await.unwrap();
    let mut initial_cluster = three.configs[leader].initial_cluster.clone();
    initial_cluster.push(("d".to_owned(), url.clone()));
    let joining = NodeConfig {
        listen_peer_urls: vec![url],
        is_existing: true,
        initial_cluster,
        ..config("d", &SimDisk::new())
    };
    let newcomer = start(&joining).await;
    eventually("it is promoted", || {
        let members = newcomer.client().members();
        members
            .iter()
            .any(|member| member.id == added.id && !member.is_learner)
    })
    .await;
    let removed = three.client(third).status().member_id;
    client.member_remove(removed).await.unwrap();
    surely(&client, &put("then", "v")).await;
    eventually("the newcomer has all of it", || {
        newcomer.client().status().applied_index == client.status().applied_index
    })
    .await;
    drop(client);
    three.stop(third).await;
    three.stop(leader).await;
    let config = three.configs[lagging].clone();
    three.nodes[lagging] = Some(start(&config).await);
    surely(&newcomer.client(), &put("without the others", "v")).await;
    newcomer.shutdown().await.unwrap();
    three.shutdown().await;
}
