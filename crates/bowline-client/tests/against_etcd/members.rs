//! Members and their maintenance.

use std::io::{Read, Write};
use std::net::TcpStream;

use bowline_client::{Alarm, AlarmKind, Client, Error, MemberId, ReadLevel};
use futures_util::StreamExt;

use crate::with_cluster;
use bowline_testing::ports::free_port;

#[test]
fn members_are_added_updated_and_removed() {
    with_cluster(1, |cluster| async move {
        let client = cluster.client().await;
        let members = client.members(ReadLevel::Linearizable).await.unwrap();
        let [only] = &members.members[..] else {
            panic!("{members:?}")
        };
        assert_eq!((only.name.as_str(), only.is_learner), ("n0", false));
        assert_eq!(
            only.client_urls,
            [format!("http://{}", cluster.endpoint(0))]
        );

        let url = || format!("http://127.0.0.1:{}", free_port());
        let first = url();
        let added = client.add_learner([first.clone()]).await.unwrap();
        assert!(added.member.is_learner);
        assert_eq!(added.members.len(), 2);
        let error = client.add_learner([first]).await.unwrap_err();
        assert!(
            matches!(
                error,
                Error::PeerAddressExists | Error::MemberExists | Error::TooManyLearners
            ),
            "{error:?}"
        );
        let error = client.promote_member(added.member.id).await.unwrap_err();
        assert!(matches!(error, Error::LearnerNotReady), "{error:?}");
        let second = url();
        let updated = client
            .update_member(added.member.id, [second.clone()])
            .await
            .unwrap();
        let learner = updated
            .members
            .iter()
            .find(|one| one.id == added.member.id)
            .unwrap();
        assert_eq!(learner.peer_urls, [second]);
        let left = client.remove_member(added.member.id).await.unwrap();
        assert_eq!(left.members.len(), 1);
        let error = client
            .remove_member(MemberId::new(12345))
            .await
            .unwrap_err();
        assert!(matches!(error, Error::MemberNotFound), "{error:?}");
    });
}

#[test]
fn leadership_moves() {
    with_cluster(3, |cluster| async move {
        let client = cluster.client().await;
        let leader = client.status().await.unwrap().leader.unwrap();
        let members = client
            .members(ReadLevel::Linearizable)
            .await
            .unwrap()
            .members;
        let other = members
            .iter()
            .find(|member| member.id != leader)
            .unwrap()
            .id;
        client.move_leader(other).await.unwrap();
        assert_eq!(client.status().await.unwrap().leader, Some(other));
        // The same hash everywhere.
        client.put("k", "v").await.unwrap();
        let mut hashes = Vec::new();
        for endpoint in cluster.endpoints() {
            let client = Client::connect([endpoint]).await.unwrap();
            let revision = client.get("k").await.unwrap().header.revision;
            hashes.push(client.hash_kv(Some(revision)).await.unwrap().hash);
        }
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
    });
}

#[test]
fn a_member_tells_its_state_and_gives_its_database() {
    with_cluster(1, |cluster| async move {
        let client = cluster.client().await;
        // Nothing that a compression would make small.
        let mut state = 1u64;
        let value = (0..100_000).map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as u8
        });
        let value: Vec<u8> = value.collect();
        client.put("k", value).await.unwrap();
        let status = client.status().await.unwrap();
        assert!(
            status.db_size_bytes > 0 && !status.version.is_empty(),
            "{status:?}"
        );
        assert_eq!(status.leader, Some(status.header.member_id));
        assert_eq!(client.alarms().await.unwrap(), []);
        assert_eq!(client.disarm().await.unwrap(), []);
        client.defragment().await.unwrap();

        let mut snapshot = client.snapshot().await.unwrap();
        let mut size = 0;
        while let Some(chunk) = snapshot.next().await {
            size += chunk.unwrap().len();
        }
        assert_eq!(size % 512, 32, "a database and its SHA-256");
        assert!(size > 100_000);
    });
}

/// Raises an alarm of a member, as only a server does by itself, through the JSON gateway.
fn raise_alarm(endpoint: &str, member_id: MemberId, kind: &str) {
    let member_id = member_id.get();
    let body = format!(r#"{{"action":"ACTIVATE","memberID":"{member_id}","alarm":"{kind}"}}"#);
    let length = body.len();
    let request = format!(
        "POST /v3/maintenance/alarm HTTP/1.1\r\nHost: {endpoint}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    let mut stream = TcpStream::connect(endpoint).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
}

/// To disarm all alarms, the client named none in its request, which servers ignore: it was told that all was
/// well, and the alarms stayed. Found by review.
#[test]
fn all_alarms_are_disarmed() {
    with_cluster(1, |cluster| async move {
        let client = cluster.client().await;
        let member_id = client.status().await.unwrap().header.member_id;
        let alarm = |kind| Alarm { member_id, kind };
        let endpoint = cluster.endpoint(0);
        raise_alarm(&endpoint, member_id, "NOSPACE");
        let refused = client.put("k", "v").await.unwrap_err();
        assert!(matches!(refused, Error::NoSpace), "{refused:?}");
        raise_alarm(&endpoint, member_id, "CORRUPT");
        let raised = [alarm(AlarmKind::NoSpace), alarm(AlarmKind::Corrupt)];
        // etcd gives them in any order: it keeps them in a map.
        let sorted = |mut alarms: Vec<Alarm>| {
            alarms.sort_by_key(|alarm| alarm.kind != AlarmKind::NoSpace);
            alarms
        };
        assert_eq!(sorted(client.alarms().await.unwrap()), raised);
        assert_eq!(sorted(client.disarm().await.unwrap()), raised);
        assert_eq!(client.alarms().await.unwrap(), []);
        client.put("k", "v").await.unwrap();
    });
}
