//! What the client does when connections and servers fail.

use std::time::{Duration, Instant};

use bowline_client::{Client, Error, ReadLevel};

use crate::proxy::Proxy;
use crate::with_cluster;
use bowline_testing::ports::free_port;

#[test]
fn a_write_whose_answer_is_lost_is_not_sent_again() {
    with_cluster(1, |cluster| async move {
        let proxy = Proxy::to(cluster.endpoint(0)).await;
        // The second endpoint would take it.
        let endpoints = [proxy.endpoint.clone(), cluster.endpoint(0)];
        let direct = cluster.client().await;
        for round in 1..=5 {
            let client = Client::connect(endpoints.clone()).await.unwrap();
            client.get("k").await.unwrap();
            proxy.cut_at_next_reply();
            let error = client.put("k", "v").await.unwrap_err();
            assert!(matches!(error, Error::UnknownOutcome { .. }), "{error:?}");
            assert!(!error.is_retryable());
            // It was done, once.
            let entry = direct.get("k").await.unwrap().entry().unwrap().clone();
            assert_eq!(entry.version, round);

            // A read whose answer is lost is asked again, at the next endpoint.
            let client = Client::connect(endpoints.clone()).await.unwrap();
            client.get("k").await.unwrap();
            proxy.cut_at_next_reply();
            assert_eq!(client.get("k").await.unwrap().value(), Some(&b"v"[..]));
            assert_eq!(client.endpoint(), cluster.endpoint(0));
        }
        assert!(proxy.connections() >= 10);
    });
}

#[test]
fn a_write_that_could_not_be_sent_goes_to_the_next_endpoint() {
    with_cluster(1, |cluster| async move {
        let nobody = format!("127.0.0.1:{}", free_port());
        let client = Client::builder()
            .endpoints([nobody.clone(), cluster.endpoint(0)])
            .connect_lazy()
            .unwrap();
        client.put("k", "v").await.unwrap();
        assert_eq!(client.get("k").await.unwrap().entry().unwrap().version, 1);

        let client = Client::builder()
            .endpoints([nobody.clone()])
            .connect_lazy()
            .unwrap();
        let error = client.put("k", "v").await.unwrap_err();
        assert!(
            matches!(&error, Error::Unreachable { endpoint, .. } if *endpoint == nobody),
            "{error:?}"
        );
        assert!(error.is_retryable());
        assert!(Client::connect([nobody]).await.is_err());
    });
}

#[test]
fn reads_and_writes_go_on_when_a_node_is_killed() {
    with_cluster(3, |mut cluster| async move {
        let client = cluster.client().await;
        for killed in 0..3 {
            let used = cluster
                .endpoints()
                .iter()
                .position(|one| *one == client.endpoint());
            let used = used.unwrap();
            client.put("before", "v").await.unwrap();
            // A linearizable read through each member: whichever answers next has applied it.
            for endpoint in cluster.endpoints() {
                let member = Client::connect([endpoint]).await.unwrap();
                assert_eq!(member.get("before").await.unwrap().count, 1);
            }
            cluster.kill(used);
            assert!(
                client
                    .get("before")
                    .level(ReadLevel::Eventual)
                    .await
                    .unwrap()
                    .count
                    == 1
            );
            let deadline = Instant::now() + Duration::from_secs(20);
            let mut tries = 0;
            while let Err(error) = client.put(format!("after-{killed}"), "v").await {
                // While there is no leader. Nothing else may be said of it.
                assert!(
                    matches!(error, Error::UnknownOutcome { .. }) || error.is_retryable(),
                    "{error:?}"
                );
                assert!(Instant::now() < deadline, "{error:?}");
                tries += 1;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            assert!(tries < 50, "{tries}");
            assert_ne!(client.endpoint(), cluster.endpoint(used));
            cluster.run(used);
            cluster.wait_until_ready(used).await;
        }
    });
}

#[test]
fn a_server_that_is_silent_is_not_waited_for_longer_than_asked() {
    with_cluster(1, |_cluster| async move {
        // Accepts connections and says nothing.
        let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let client = Client::builder()
            .endpoints([silent.local_addr().unwrap().to_string()])
            .request_timeout(Duration::from_millis(500))
            .connect_lazy()
            .unwrap();
        let started = Instant::now();
        let error = client.put("k", "v").await.unwrap_err();
        assert!(matches!(error, Error::UnknownOutcome { .. }), "{error:?}");
        let error = client.get("k").await.unwrap_err();
        assert!(matches!(error, Error::TimedOut), "{error:?}");
        let error = client.watch("k").await.unwrap_err();
        assert!(matches!(error, Error::TimedOut), "{error:?}");
        assert!(started.elapsed() < Duration::from_secs(3));
    });
}
