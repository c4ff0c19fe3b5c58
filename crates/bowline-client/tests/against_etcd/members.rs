//! Members and their upkeep.

use bowline_client::{Client, Error, ReadLevel};
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
        let error = client.remove_member(12345).await.unwrap_err();
        assert!(matches!(error, Error::MemberNotFound), "{error:?}");
    });
}

#[test]
fn leadership_moves() {
    with_cluster(3, |cluster| async move {
        let client = cluster.client().await;
        let leader = client.status().await.unwrap().leader;
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
        assert_eq!(client.status().await.unwrap().leader, other);
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
        assert_eq!(status.leader, status.header.member_id);
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
