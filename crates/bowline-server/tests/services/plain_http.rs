//! What is served to HTTP besides gRPC, to HTTP/1.1 on the same port.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Running, put, start};

/// Status line and body.
pub(crate) async fn get(running: &Running, path: &str) -> (String, String) {
    get_at(&running.address(), path).await
}

/// The same of the server at an address.
pub(crate) async fn get_at(address: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
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
    assert!(version.contains(r#""etcdserver":"3.7.3""#), "{version}");
    let (_, metrics) = get(&running, "/metrics").await;
    let row = "bowline_requests_total{service=\"etcdserverpb.KV\",method=\"Put\",code=\"Ok\"} 1\n";
    assert!(metrics.contains(row), "{metrics}");
    for line in metrics.lines() {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let names = ["# ", "bowline_", "etcd_", "grpc_", "process_"];
        assert!(names.iter().any(|begin| name.starts_with(begin)), "{line}");
        assert!(
            line.starts_with('#') || value.parse::<f64>().is_ok(),
            "{line}"
        );
    }
    // Names of etcd, by which dashboards and alerts find them.
    let row = "grpc_server_handled_total{grpc_code=\"OK\",grpc_method=\"Put\",\
               grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"} 1\n";
    assert!(metrics.contains(row), "{metrics}");
    for (name, wanted) in [
        ("etcd_server_has_leader", 1.0),
        ("etcd_server_is_leader", 1.0),
        ("etcd_server_is_learner", 0.0),
        ("etcd_server_version{server_version=\"3.7.3\"}", 1.0),
        ("etcd_cluster_version{cluster_version=\"3.7\"}", 1.0),
        ("etcd_server_health_success", 1.0),
        ("etcd_server_quota_backend_bytes", 2_147_483_648.0),
        ("etcd_debugging_mvcc_current_revision", 2.0),
        (
            "etcd_server_healthchecks_total{name=\"non_learner\",status=\"success\",type=\"readyz\"}",
            1.0,
        ),
    ] {
        let found = value(&metrics, name);
        assert!((found - wanted).abs() < 0.5, "{name}: {found}");
    }
    for name in [
        "etcd_server_proposals_committed_total",
        "etcd_server_proposals_applied_total",
        "etcd_mvcc_db_total_size_in_bytes",
        "etcd_disk_wal_fsync_duration_seconds_count",
    ] {
        assert!(value(&metrics, name) > 0.0, "{name}");
    }
    // The check of an audit log that there is not: it said "ok".
    for path in ["/nothing", "/readyz/audit_log"] {
        assert_eq!(
            get(&running, path).await.0,
            "HTTP/1.1 404 Not Found",
            "{path}"
        );
    }
}

/// The value of a row.
pub(crate) fn value(metrics: &str, name: &str) -> f64 {
    let row = metrics.lines().find_map(|line| {
        let (key, value) = line.rsplit_once(' ')?;
        (key == name).then_some(value)
    });
    row.unwrap_or_else(|| panic!("{name}: {metrics}"))
        .parse()
        .unwrap()
}

/// What is counted per proposal and per flush counts on, and buckets add up.
#[tokio::test]
async fn times_of_proposals_and_flushes_are_counted() {
    const PUTS: u32 = 20;
    let running = start(&[]).await;
    let before = get(&running, "/metrics").await.1;
    let mut kv = running.kv().await;
    for number in 0..PUTS {
        kv.put(put(&format!("k{number}"), "v")).await.unwrap();
    }
    // One that is applied may be counted a moment after its answer.
    let deadline = Instant::now() + Duration::from_secs(5);
    let after = loop {
        let after = get(&running, "/metrics").await.1;
        let rose = |name: &str| value(&after, name) - value(&before, name);
        if rose("bowline_proposal_duration_seconds_count") >= f64::from(PUTS) {
            break after;
        }
        assert!(Instant::now() < deadline, "{after}");
    };
    let rose = |name: &str| value(&after, name) - value(&before, name);
    assert!(rose("bowline_proposals_committed_total") >= f64::from(PUTS));
    assert!(rose("bowline_log_flush_duration_seconds_count") >= f64::from(PUTS));
    assert!(rose("bowline_storage_log_syncs_total") >= f64::from(PUTS));
    for name in [
        "bowline_proposal_duration_seconds",
        "bowline_log_flush_duration_seconds",
    ] {
        assert!(rose(&format!("{name}_sum")) > 0.0, "{after}");
        let all = value(&after, &format!("{name}_bucket{{le=\"+Inf\"}}"));
        assert!((all - value(&after, &format!("{name}_count"))).abs() < 0.5);
        assert!(value(&after, &format!("{name}_bucket{{le=\"10\"}}")) <= all);
    }
    for name in [
        "bowline_apply_lag_entries",
        "bowline_storage_flushes_total",
        "bowline_table_bytes",
    ] {
        value(&after, name);
    }
    assert!(value(&after, "bowline_memtable_bytes") > 0.0);
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

/// Reads until the server closes the connection; a reset is an end, too.
async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut reply = Vec::new();
    let mut part = [0; 4 << 10];
    while let Ok(count @ 1..) = stream.read(&mut part).await {
        reply.extend_from_slice(&part[..count]);
    }
    String::from_utf8(reply).unwrap()
}

/// The limit of request heads in HTTP/1 is the size of the library's buffer, which has a default of its own.
#[tokio::test]
async fn a_request_head_beyond_the_limit_is_answered_431() {
    let running = start(&[]).await;
    for (bytes, status) in [
        (60_000, "HTTP/1.1 200 OK"),
        (70_000, "HTTP/1.1 431 Request Header Fields Too Large"),
    ] {
        let padding = "x".repeat(bytes);
        let head = format!(
            "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\npadding: {padding}\r\n\r\n"
        );
        let mut stream = TcpStream::connect(running.address()).await.unwrap();
        // The server may close the connection before it has read everything.
        let _ = stream.write_all(head.as_bytes()).await;
        let reply = read_to_end(&mut stream).await;
        assert_eq!(reply.lines().next(), Some(status), "{bytes} bytes");
    }
    assert_eq!(get(&running, "/health").await.0, "HTTP/1.1 200 OK");
}

/// The library's own deadline is 30 seconds.
#[tokio::test]
async fn a_request_head_that_stops_half_way_is_closed_at_the_deadline() {
    const TIMEOUT: Duration = Duration::from_millis(400);
    const IN_TIME: Duration = Duration::from_secs(10);
    let running = start(&[("partial-request-timeout", "400ms")]).await;
    // The first begins like the preface of HTTP/2.
    for begun in [
        "P",
        "G",
        "POST /v3/kv/put HTTP/1.1\r\nhost: loc",
        "GET /health HTTP/1.1\r\nhost: localhost\r\n",
    ] {
        let mut stream = TcpStream::connect(running.address()).await.unwrap();
        let since = Instant::now();
        stream.write_all(begun.as_bytes()).await.unwrap();
        let reply = tokio::time::timeout(IN_TIME, read_to_end(&mut stream)).await;
        let reply = reply.unwrap_or_else(|_| panic!("{begun:?} is waited for"));
        assert_eq!(reply, "", "{begun:?}");
        let took = since.elapsed();
        assert!(took >= TIMEOUT, "{begun:?} is closed after {took:?}");
    }
    // More bytes do not move the deadline.
    let mut stream = TcpStream::connect(running.address()).await.unwrap();
    let (mut reading, mut writing) = stream.split();
    let dripping = async {
        let _ = writing.write_all(b"GET /health HTTP/1.1\r\nx: ").await;
        while writing.write_all(b"x").await.is_ok() {
            tokio::time::sleep(TIMEOUT / 20).await;
        }
    };
    let ended = async {
        let mut byte = [0];
        let end = reading.read(&mut byte).await;
        assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    };
    let both = async {
        tokio::select! {
            () = dripping => {}
            () = ended => {}
        }
    };
    let closed = tokio::time::timeout(IN_TIME, both).await;
    closed.expect("it is closed, however slowly more of it arrives");
    assert_eq!(get(&running, "/health").await.0, "HTTP/1.1 200 OK");
}
