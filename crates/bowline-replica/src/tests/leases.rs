//! Leases: only the leader that granted a lease ends it or records its remaining time, and the keys of a lease end
//! with it.

use super::*;

#[test]
fn leases_end_with_their_keys_at_one_revision() {
    let mut member = Member::open(&SimDisk::new(), 1);
    let ttl = Duration::from_secs(10);
    let expire = |term, granted| Command::LeaseExpire {
        id: 5,
        term,
        granted,
    };
    let leased = |key: &str| {
        Op::Put(PutOp {
            lease: 5,
            ..put(key, "v")
        })
    };
    let replies = member.run(&[
        Command::LeaseGrant { id: 5, ttl },
        Command::LeaseGrant { id: 5, ttl },
        txn_of(vec![leased("a"), leased("b")]),
        // Not by a leader of another term.
        expire(2, None),
        // Nor one that another entry granted.
        expire(1, Some(2)),
    ]);
    let results: Vec<_> = replies.iter().map(|reply| &reply.result).collect();
    assert_eq!(results[0], &Ok(Outcome::Done));
    assert_eq!(results[1], &Err(Refusal::LeaseExists { id: 5 }));
    assert_eq!(results[3], &Err(Refusal::LeaseNotFound { id: 5 }));
    assert_eq!(
        replies.iter().map(|r| r.revision).collect::<Vec<_>>(),
        [1, 1, 2, 2, 2]
    );
    assert_eq!(results[4], &Err(Refusal::LeaseNotFound { id: 5 }));
    let mut watch = member
        .replica
        .db()
        .watch(..)
        .from(Revision::new(2))
        .start()
        .unwrap();
    let replies = member.run(&[expire(1, Some(1))]);
    assert_eq!(replies[0].result, Ok(Outcome::LeaseEnded { deleted: 2 }));
    assert_eq!(replies[0].revision, 3);
    let seen = |watch: &mut Watcher| {
        watch
            .try_recv()
            .unwrap()
            .map(|c| (c.revision.get(), c.changes.len()))
    };
    assert_eq!(seen(&mut watch), Some((2, 2)));
    assert_eq!(seen(&mut watch), Some((3, 2)));
    assert_eq!(seen(&mut watch), None);
    assert!(member.replica.db().leases().is_empty());
    assert!(member.replica.db().check().unwrap().is_clean());
}

/// The remaining time of a lease that the next leader would assume.
fn left(member: &Member, id: LeaseId) -> Option<Duration> {
    member.replica.extend_leases(Duration::ZERO).unwrap();
    let lease = member.replica.db().lease(id)?;
    // The machine's clock takes a little of it.
    Some(Duration::from_secs(
        lease.remaining.as_secs_f64().ceil() as u64
    ))
}

#[test]
fn what_a_lease_has_left_is_told_of_that_lease_by_that_leader_and_taken_back() {
    let second = Duration::from_secs(1);
    let mut member = Member::open(&SimDisk::new(), 1);
    let tell = |term, granted, left: Option<u32>| Command::LeaseRemaining {
        term,
        leases: vec![LeaseLeft {
            id: lease_id(5),
            granted,
            left: left.map(|left| second * left),
        }],
    };
    let grant = Command::LeaseGrant {
        id: 5,
        ttl: second * 600,
    };
    // An absent lease gets no record.
    member.run(&[tell(1, 0, Some(1)), tell(1, 1, Some(1))]);
    member.run(std::slice::from_ref(&grant));
    assert_eq!(left(&member, lease_id(5)), Some(second * 600));
    for (command, expected) in [
        (tell(2, 2, Some(400)), 600),
        (tell(1, 1, Some(400)), 600),
        (tell(1, 2, Some(400)), 400),
        (tell(1, 2, Some(300)), 300),
        (tell(2, 2, None), 300),
        (tell(1, 2, None), 600),
        (tell(1, 2, None), 600),
        (tell(1, 2, Some(200)), 200),
    ] {
        member.run(std::slice::from_ref(&command));
        assert_eq!(
            left(&member, lease_id(5)),
            Some(second * expected),
            "{command:?}"
        );
    }
    // After a power loss, and on a member that receives the tables.
    let mut member = Member::open(&member.disk.after_power_loss(), 1);
    assert_eq!(left(&member, lease_id(5)), Some(second * 200));
    let mut other = Member::open(&SimDisk::new(), 2);
    take_over(&member, &mut other);
    assert_eq!(left(&other, lease_id(5)), Some(second * 200));
    // A new grant of the same id starts anew, and records under way are of the old lease.
    member.run(&[Command::LeaseRevoke { id: 5 }]);
    assert_eq!(left(&member, lease_id(5)), None);
    member.run(&[grant]);
    member.run(&[tell(1, 2, Some(100))]);
    assert_eq!(left(&member, lease_id(5)), Some(second * 600));
    assert!(member.replica.db().check().unwrap().is_clean());
}

/// A lease with more keys than a command may delete was refused its end for ever: it and all of its keys stayed. Now keys
/// are deleted before the end, as many at once as a command may. Found by review.
#[test]
fn a_lease_with_too_many_keys_for_a_command_ends_in_parts() {
    const KEYS: u64 = 300;
    let limit = 1000;
    // Two deletions: of a key of 4 bytes, and of its record of 13.
    let fit = limit / (7 + 16);
    for expired in [None, Some((1, 1))] {
        let end = match expired {
            None => Command::LeaseRevoke { id: 5 },
            Some((term, granted)) => Command::LeaseExpire {
                id: 5,
                term,
                granted: Some(granted),
            },
        };
        let part = |expired| Command::LeaseDeleteKeys { id: 5, expired };
        let mut members = [1, 2].map(|number| Member::open(&SimDisk::new(), number));
        let run = |members: &mut [Member; 2], command: Command| {
            let [reply, same] = members
                .each_mut()
                .map(|member| member.run(std::slice::from_ref(&command)).remove(0));
            assert_eq!(reply, same, "{command:?}");
            let replica = &members[0].replica;
            let is_large = replica.has_too_many_keys(lease_id(5), usize::MAX);
            (reply.result, is_large.unwrap() == Some(true))
        };
        let ttl = Duration::from_secs(10);
        let leased = |number: u64| {
            Op::Put(PutOp {
                lease: 5,
                ..put(&format!("k{number:03}"), "v")
            })
        };
        for command in [
            Command::LeaseGrant { id: 5, ttl },
            txn_of((0..KEYS).map(leased).collect()),
            txn_of(vec![Op::Put(put("other", "v"))]),
        ] {
            let (done, is_large) = run(&mut members, command);
            assert!(done.is_ok() && !is_large);
        }
        for member in &members {
            member.replica.limit_writes(limit);
        }
        let mut run = |command| run(&mut members, command);
        let (refused, mut is_large) = run(end.clone());
        assert!(
            matches!(refused, Err(Refusal::TooManyWrites { .. })),
            "{refused:?}"
        );
        // Not of a leader of another term, nor of another lease with this id, nor of none.
        let not_found = |id| Err(Refusal::LeaseNotFound { id });
        assert_eq!(run(part(Some((2, 1)))).0, not_found(5));
        assert_eq!(run(part(Some((1, 2)))).0, not_found(5));
        let none = Command::LeaseDeleteKeys { id: 6, expired };
        assert_eq!(run(none).0, not_found(6));
        let mut before = 0;
        while is_large {
            let deleted;
            (deleted, is_large) = run(part(expired));
            let fit = fit.min(KEYS - before);
            assert_eq!(deleted, Ok(Outcome::LeaseKeysDeleted { deleted: fit }));
            before += fit;
        }
        assert!(before >= KEYS - fit, "{before} keys");
        let deleted = KEYS - before;
        assert_eq!(run(end).0, Ok(Outcome::LeaseEnded { deleted }));
        assert_eq!(run(part(expired)).0, not_found(5));
        let [member, other] = &members;
        assert_eq!(member.dump(), other.dump());
        assert!(value(member, "other").is_some());
        assert_eq!(member.replica.db().range(..).unwrap().count(), 1);
        assert!(member.replica.db().check().unwrap().is_clean());
    }
}
