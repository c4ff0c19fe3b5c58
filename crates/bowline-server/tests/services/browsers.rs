//! What a page in a browser can do to a server that the browser's machine reaches: nothing.
//!
//! A page could write. It sent a form, or `fetch` with the type `text/plain`, to `http://127.0.0.1:2379/v3/kv/put`;
//! neither needs the server's permission, and the gateway took every body for JSON (seen: such a put was
//! carried out). And a page could read: it gave its own name the address of the server (DNS rebinding), and then every answer
//! was of its own origin. See `http/guard.rs` for the rule.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::plain_http::get;
use crate::support::{Running, range, start};

const PUT: &str = r#"{"key":"aw==","value":"dg=="}"#;

/// The status and the body of an answer to a request of HTTP/1.1 with these headers, to an address.
async fn ask(address: &str, line: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut request = format!("{line} HTTP/1.1\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await.unwrap();
    let reply = String::from_utf8_lossy(&reply);
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

async fn revision(running: &Running) -> i64 {
    let found = running.kv().await.range(range("k")).await.unwrap();
    found.into_inner().header.unwrap().revision
}

#[tokio::test]
async fn a_page_cannot_write() {
    let running = start(&[]).await;
    let (address, before) = (running.address(), revision(&running).await);
    let own = ("host", address.as_str());
    let firefox = (
        "user-agent",
        "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/130.0",
    );
    let form = ("content-type", "application/x-www-form-urlencoded");
    let json = ("content-type", "application/json");
    for (headers, status) in [
        // The three types that a page may send unasked.
        (vec![own, ("content-type", "text/plain")], 415),
        (
            vec![own, ("content-type", "text/plain;charset=UTF-8"), firefox],
            415,
        ),
        (
            vec![own, ("content-type", "multipart/form-data; boundary=x")],
            415,
        ),
        (vec![own, form, firefox], 415),
        (vec![own, form, ("referer", "http://evil.example/")], 415),
        (vec![own, form, ("sec-fetch-mode", "no-cors")], 415),
        // A blob without a type has no type here, either.
        (vec![own, firefox], 415),
        // What is from another origin, whatever the type: once, a browser sent JSON without asking.
        (vec![own, form, ("origin", "http://evil.example")], 403),
        (vec![own, json, ("origin", "http://evil.example")], 403),
        (vec![own, json, ("origin", "null")], 403),
        (vec![own, json, ("origin", "http://127.0.0.1:8080")], 403),
        (vec![own, json, ("sec-fetch-site", "cross-site")], 403),
        // A name that was given the server's address.
        (
            vec![
                ("host", "evil.example:2379"),
                json,
                ("origin", "http://evil.example:2379"),
            ],
            421,
        ),
    ] {
        let (found, text) = ask(&address, "POST /v3/kv/put", &headers, PUT.as_bytes()).await;
        assert_eq!(found, status, "{headers:?}: {text}");
        assert!(!text.is_empty());
    }
    // What asks for permission gets none.
    let asking = [
        own,
        ("origin", "http://evil.example"),
        ("access-control-request-method", "POST"),
    ];
    let (status, text) = ask(&address, "OPTIONS /v3/kv/put", &asking, b"").await;
    assert!(status >= 400, "{status} {text}");
    assert_eq!(revision(&running).await, before);
}

#[tokio::test]
async fn those_who_are_no_browser_write() {
    let running = start(&[("host-whitelist", "etcd.example")]).await;
    let address = running.address();
    let own = ("host", address.as_str());
    let form = ("content-type", "application/x-www-form-urlencoded");
    let json = ("content-type", "application/json; charset=utf-8");
    let origin = format!("http://{address}");
    for headers in [
        // curl -d, as etcd's documentation has it.
        vec![own, ("user-agent", "curl/8.5.0"), ("accept", "*/*"), form],
        vec![own, json],
        vec![own],
        vec![("host", "localhost"), json],
        vec![("host", "[::1]:2379"), json],
        vec![("host", "etcd.example:2379"), json],
        // A page of the server itself.
        vec![
            own,
            json,
            ("origin", &origin),
            ("sec-fetch-site", "same-origin"),
        ],
    ] {
        let (status, text) = ask(&address, "POST /v3/kv/put", &headers, PUT.as_bytes()).await;
        assert_eq!(status, 200, "{headers:?}: {text}");
    }
}

#[tokio::test]
async fn a_page_cannot_read() {
    let running = start(&[]).await;
    let address = running.address();
    for path in [
        "/metrics", "/health", "/livez", "/readyz", "/version", "/nothing",
    ] {
        let line = format!("GET {path}");
        let rebound = [("host", "evil.example:2379")];
        let (status, text) = ask(&address, &line, &rebound, b"").await;
        assert_eq!(status, 421, "{path}");
        assert!(text.contains("--host-whitelist"), "{text}");
        let foreign = [
            ("host", address.as_str()),
            ("origin", "http://evil.example"),
        ];
        assert_eq!(ask(&address, &line, &foreign, b"").await.0, 403, "{path}");
        let included = [("host", address.as_str()), ("sec-fetch-site", "cross-site")];
        assert_eq!(ask(&address, &line, &included, b"").await.0, 403, "{path}");
    }
    let typed = [("host", address.as_str()), ("sec-fetch-site", "none")];
    assert_eq!(ask(&address, "GET /health", &typed, b"").await.0, 200);
}

/// A page that has the server's address sends any bytes with any type: those of gRPC would be taken, too.
#[tokio::test]
async fn a_page_cannot_speak_grpc() {
    let running = start(&[]).await;
    let (address, before) = (running.address(), revision(&running).await);
    let put = b"\0\0\0\0\x06\x0a\x01k\x12\x01v";
    for kind in ["application/grpc", "text/plain"] {
        for host in [address.as_str(), "evil.example"] {
            let headers = [("host", host), ("content-type", kind), ("te", "trailers")];
            let line = "POST /etcdserverpb.KV/Put";
            let (status, text) = ask(&address, line, &headers, put).await;
            assert!(status >= 400, "{status}: {text}");
        }
    }
    assert_eq!(revision(&running).await, before);
}

/// A scraper that is let in there can do nothing else.
#[tokio::test]
async fn metrics_and_health_have_a_port_of_their_own() {
    let flags = [("listen-metrics-urls", "http://127.0.0.1:0")];
    let running = start(&flags).await;
    let address = running.server.metrics_addresses()[0].to_string();
    let host = [("host", address.as_str())];
    let (status, metrics) = ask(&address, "GET /metrics", &host, b"").await;
    assert_eq!(status, 200);
    assert!(metrics.contains("\nbowline_"), "{metrics}");
    for path in ["/health", "/livez", "/readyz"] {
        assert_eq!(
            ask(&address, &format!("GET {path}"), &host, b"").await.0,
            200
        );
    }
    for path in ["/version", "/v3/kv/put", "/etcdserverpb.KV/Put"] {
        let line = format!("POST {path}");
        assert_eq!(
            ask(&address, &line, &host, PUT.as_bytes()).await.0,
            404,
            "{path}"
        );
    }
    let foreign = [("host", "evil.example")];
    assert_eq!(ask(&address, "GET /metrics", &foreign, b"").await.0, 421);
    let url = format!("http://{address}");
    let channel = tonic::transport::Channel::from_shared(url).unwrap();
    let mut kv = bowline_proto::etcdserverpb::kv_client::KvClient::new(channel.connect_lazy());
    kv.range(range("k")).await.unwrap_err();
    // They are served to clients, too, as etcd does.
    assert_eq!(get(&running, "/metrics").await.0, "HTTP/1.1 200 OK");
    running.server.shutdown().await.unwrap();
}
