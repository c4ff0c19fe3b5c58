//! Leases, and keeping them alive.

use std::time::Duration;

use bowline_client::{Error, KeepAlive, KeyRange};

use crate::with_cluster;

/// Waits for so many renewals that the lease would have ended without them: each comes a third of its time after the
/// one before was sent.
async fn outlive(alive: &mut KeepAlive) {
    for _ in 0..4 {
        alive.renewed().await.expect("it is renewed");
    }
}

#[test]
fn leases_are_granted_listed_and_revoked_with_their_keys() {
    with_cluster(1, |cluster| async move {
        let client = cluster.client().await;
        let lease = client.grant_lease(Duration::from_secs(60)).await.unwrap();
        assert_eq!(lease.ttl, Duration::from_secs(60));
        client.put("a", "1").lease(lease.id).await.unwrap();
        let left = client.time_to_live(lease.id, true).await.unwrap();
        assert_eq!((left.granted, &left.keys[0][..]), (lease.ttl, &b"a"[..]));
        assert_eq!(client.leases().await.unwrap(), [lease.id]);
        let error = client
            .grant_lease_with_id(lease.id, lease.ttl)
            .await
            .unwrap_err();
        assert!(matches!(error, Error::LeaseExists), "{error:?}");
        assert_eq!(client.keep_alive_once(lease.id).await.unwrap(), lease.ttl);

        client.revoke_lease(lease.id).await.unwrap();
        assert_eq!(client.range(KeyRange::all()).await.unwrap().count, 0);
        for error in [
            client.revoke_lease(lease.id).await.unwrap_err(),
            client.time_to_live(lease.id, false).await.unwrap_err(),
            client.keep_alive_once(lease.id).await.unwrap_err(),
            client.keep_alive(lease.id).await.unwrap_err(),
        ] {
            assert!(matches!(error, Error::LeaseNotFound), "{error:?}");
        }
    });
}

#[test]
fn a_lease_lives_as_long_as_its_handle_and_tells_when_it_is_lost() {
    with_cluster(1, |cluster| async move {
        let client = cluster.client().await;
        let lease = client.grant_lease(Duration::from_secs(2)).await.unwrap();
        let mut alive = client.keep_alive(lease.id).await.unwrap();
        outlive(&mut alive).await;
        assert!(alive.is_alive());
        assert_eq!(client.leases().await.unwrap(), [lease.id]);

        // Somebody else ends it.
        client.revoke_lease(lease.id).await.unwrap();
        let error = tokio::time::timeout(Duration::from_secs(5), alive.lost())
            .await
            .unwrap();
        assert!(matches!(error, Error::LeaseNotFound), "{error:?}");
        assert!(!alive.is_alive());

        // Nobody renews it any more.
        let lease = client.grant_lease(Duration::from_secs(2)).await.unwrap();
        drop(client.keep_alive(lease.id).await.unwrap());
        let ended = async {
            while !client.leases().await.unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(15), ended).await;
        ended.expect("the lease ends by itself");
    });
}

#[test]
fn a_lease_that_no_server_renews_is_lost_in_time() {
    with_cluster(1, |mut cluster| async move {
        let client = cluster.client().await;
        let lease = client.grant_lease(Duration::from_secs(3)).await.unwrap();
        let alive = client.keep_alive(lease.id).await.unwrap();
        cluster.kill(0);
        let error = tokio::time::timeout(lease.ttl + Duration::from_secs(1), alive.lost()).await;
        let error = error.expect("it is told by the time the lease may end");
        assert!(matches!(error, Error::LeaseLost { .. }), "{error:?}");
    });
}

#[test]
fn renewals_go_on_at_another_endpoint() {
    with_cluster(3, |mut cluster| async move {
        let client = cluster.client().await;
        let lease = client.grant_lease(Duration::from_secs(4)).await.unwrap();
        let mut alive = client.keep_alive(lease.id).await.unwrap();
        cluster.kill(0);
        outlive(&mut alive).await;
        assert!(alive.is_alive());
        assert_eq!(client.leases().await.unwrap(), [lease.id]);
        alive.revoke().await.unwrap();
        assert_eq!(client.leases().await.unwrap(), []);
    });
}
