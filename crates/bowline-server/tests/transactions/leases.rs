//! Leases in milliseconds.

use std::time::{Duration, Instant};

use bowline_client::Error;
use bowline_testing::lease_id;

use crate::Cluster;

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_of_milliseconds_is_granted_kept_alive_told_and_ends() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client_of(0);
    let ttl = Duration::from_millis(300);
    let lease = client.grant_lease_ms(ttl).await.unwrap();
    assert_eq!(lease.ttl, ttl, "etcd's least time does not apply");
    let mut tx = client.begin();
    tx.put_with_lease("k", "v", lease.id).unwrap();
    tx.commit().await.unwrap();
    // For longer than it lives by itself.
    let alive = client.keep_alive_ms(lease.id).await.unwrap();
    assert_eq!(alive.ttl(), ttl);
    tokio::time::sleep(ttl * 3).await;
    assert!(alive.is_alive());
    let told = client.time_to_live_ms(lease.id, true).await.unwrap();
    assert_eq!(told.granted, ttl);
    assert!(
        told.remaining <= ttl && told.remaining > Duration::ZERO,
        "{told:?}"
    );
    assert_eq!(told.keys, ["k"]);
    // The same lease, in whole seconds.
    let seconds = client.time_to_live(lease.id, false).await.unwrap();
    assert_eq!(seconds.granted, Duration::from_secs(1));
    drop(alive);
    let since = Instant::now();
    while client.get("k").await.unwrap().entry().is_some() {
        assert!(since.elapsed() < Duration::from_secs(10), "it does not end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(
        since.elapsed() < Duration::from_millis(1_000),
        "it ended as etcd's would"
    );
    for error in [
        client.keep_alive_ms_once(lease.id).await.unwrap_err(),
        client.keep_alive_ms(lease.id).await.unwrap_err(),
        client.time_to_live_ms(lease.id, false).await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::LeaseNotFound), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bounds_of_leases_are_refused_with_what_to_do() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client_of(0);
    for ttl in [Duration::ZERO, Duration::from_secs(9_000_000_001)] {
        match client.grant_lease_ms(ttl).await {
            Err(Error::Refused { message }) => assert!(message.contains("give 1 to"), "{message}"),
            other => panic!("{other:?}"),
        }
    }
    let ttl = Duration::from_secs(60);
    client
        .grant_lease_ms_with_id(lease_id(7), ttl)
        .await
        .unwrap();
    let again = client.grant_lease_ms_with_id(lease_id(7), ttl).await;
    assert!(matches!(again, Err(Error::LeaseExists)), "{again:?}");
    client.revoke_lease(lease_id(7)).await.unwrap();
    let gone = client.time_to_live_ms(lease_id(7), false).await;
    assert!(matches!(gone, Err(Error::LeaseNotFound)), "{gone:?}");
}
