//! Settings with which a node does not start.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_cannot_be_are_refused() {
    let disk = SimDisk::new();
    let refused = |config: NodeConfig| async move { Node::start(config).await.unwrap_err() };
    let base = || config("one", &disk);
    let error = refused(NodeConfig {
        listen_peer_urls: vec!["127.0.0.1:1".to_owned()],
        ..base()
    })
    .await;
    assert!(
        matches!(
            error,
            Error::Config {
                setting: "listen-peer-urls",
                ..
            }
        ),
        "{error}"
    );
    let error = refused(NodeConfig {
        election_timeout: Duration::from_millis(40),
        ..base()
    })
    .await;
    assert!(
        matches!(
            error,
            Error::Config {
                setting: "election-timeout",
                ..
            }
        ),
        "{error}"
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", taken.local_addr().unwrap());
    let error = refused(NodeConfig {
        listen_peer_urls: vec![url],
        ..base()
    })
    .await;
    assert!(matches!(error, Error::Bind { .. }), "{error}");
    let error = refused(NodeConfig {
        is_existing: true,
        request_timeout: Duration::from_millis(300),
        initial_cluster: vec![
            ("one".to_owned(), "http://127.0.0.1:9".to_owned()),
            ("two".to_owned(), free_urls(1).remove(0)),
        ],
        ..base()
    })
    .await;
    assert!(matches!(error, Error::Peer { .. }), "{error}");
    // A database is not silently joined, nor served by several members at once.
    let db = Db::builder()
        .vfs(Arc::new(disk.clone()))
        .open("db")
        .unwrap();
    db.put("k", "v").unwrap();
    db.close().unwrap();
    drop(db);
    let cluster = vec![
        ("one".to_owned(), "http://127.0.0.1:9".to_owned()),
        ("two".to_owned(), "http://127.0.0.1:10".to_owned()),
    ];
    for is_existing in [false, true] {
        let error = refused(NodeConfig {
            is_existing,
            initial_cluster: cluster.clone(),
            ..base()
        })
        .await;
        assert!(matches!(error, Error::Directory { .. }), "{error}");
    }
}
