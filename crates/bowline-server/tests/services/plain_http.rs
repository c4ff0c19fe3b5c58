//! What is served to HTTP besides gRPC, to HTTP/1.1 on the same port.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Running, put, start};

/// Status line and body.
pub(crate) async fn get(running: &Running, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(running.address()).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[tokio::test]
async fn health_version_and_metrics_are_served() {
    let running = start(&[]).await;
    running.kv().await.put(put("k", "v")).await.unwrap();
    let ok = "HTTP/1.1 200 OK".to_owned();
    let health = r#"{"health":"true","reason":""}"#.to_owned();
    assert_eq!(get(&running, "/health").await, (ok.clone(), health));
    for path in ["/livez", "/readyz"] {
        assert_eq!(get(&running, path).await, (ok.clone(), "ok\n".to_owned()));
    }
    let (_, version) = get(&running, "/version").await;
    assert!(version.contains(r#""etcdserver":"3.6.0""#), "{version}");
    let (_, metrics) = get(&running, "/metrics").await;
    let row = "bowline_requests_total{service=\"etcdserverpb.KV\",method=\"Put\",code=\"Ok\"} 1\n";
    assert!(metrics.contains(row), "{metrics}");
    assert!(
        metrics
            .lines()
            .all(|line| line.starts_with('#') || line.starts_with("bowline_"))
    );
    assert_eq!(get(&running, "/nothing").await.0, "HTTP/1.1 404 Not Found");
}

#[tokio::test]
async fn connections_over_the_limit_are_closed() {
    let running = start(&[("max-connections", "1")]).await;
    let first = TcpStream::connect(running.address()).await.unwrap();
    // Taken for sure once another is refused.
    let mut second = TcpStream::connect(running.address()).await.unwrap();
    let mut reply = [0];
    let end = second.read(&mut reply).await;
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    drop(first);
}
