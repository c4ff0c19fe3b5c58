//! The JSON gateway over sockets: what a real client of HTTP/1.1 and of HTTP/2 gets.
//!
//! What the calls do is tried by the client in Python, in the test binary `clients`; here is what needs bytes
//! that no library sends, and what shows on the side of the server.

use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tonic::body::Body;
use tonic::codegen::Service;

use crate::plain_http::get;
use crate::support::{Running, put, start};

/// Sends a request of HTTP/1.1 with this body.
pub(crate) async fn sent(running: &Running, path: &str, body: &str) -> TcpStream {
    sent_with(running, path, "", body).await
}

/// [`sent`] with further lines of the head.
async fn sent_with(running: &Running, path: &str, lines: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(running.address()).await.unwrap();
    let len = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{lines}content-length: {len}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// The status, and the body as it is.
pub(crate) async fn post(running: &Running, path: &str, body: &str) -> (u16, String) {
    post_as(running, path, None, body).await
}

/// [`post`] with a token.
pub(crate) async fn post_as(
    running: &Running,
    path: &str,
    token: Option<&str>,
    body: &str,
) -> (u16, String) {
    let line = token.map(|token| format!("authorization: {token}\r\n"));
    post_with(running, path, &line.unwrap_or_default(), body).await
}

/// [`post`] with further lines of the head.
pub(crate) async fn post_with(
    running: &Running,
    path: &str,
    lines: &str,
    body: &str,
) -> (u16, String) {
    let mut stream = sent_with(running, path, lines, body).await;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

async fn refused(running: &Running, path: &str, body: &str) -> (u16, i64, String) {
    let (status, text) = post(running, path, body).await;
    let reply: Value = serde_json::from_str(&text).unwrap();
    let (code, text) = (reply["code"].as_i64(), reply["message"].as_str());
    (status, code.unwrap(), text.unwrap().to_owned())
}

/// How many watches there are.
async fn watches(running: &Running) -> String {
    let (_, metrics) = get(running, "/metrics").await;
    let mut rows = metrics.lines();
    let row = rows.find(|row| row.starts_with("bowline_watches "));
    row.unwrap().to_owned()
}

/// A stream of lines, after its head.
pub(crate) struct Lines(BufReader<TcpStream>);

impl Lines {
    pub(crate) async fn begin(stream: TcpStream) -> Lines {
        let mut lines = Lines(BufReader::new(stream));
        assert_eq!(lines.next().await, "HTTP/1.1 200 OK");
        while !lines.next().await.is_empty() {}
        lines
    }

    async fn next(&mut self) -> String {
        let mut line = String::new();
        let read = self.0.read_line(&mut line);
        tokio::time::timeout(Duration::from_secs(10), read)
            .await
            .unwrap()
            .unwrap();
        line.trim_end().to_owned()
    }

    /// The next line that is a message and not the length of a chunk.
    pub(crate) async fn message(&mut self) -> Value {
        loop {
            let line = self.next().await;
            if line.starts_with('{') {
                return serde_json::from_str(&line).unwrap();
            }
        }
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_with_its_place() {
    let running = start(&[]).await;
    for (path, body, place) in [
        ("/v3/kv/put", "{\n  \"key\":", "line 2 column"),
        ("/v3/kv/put", r#"{"key":"a2V5"} {"key":"b"}"#, "trailing"),
        ("/v3/kv/put", r#"{"key":"a2V5","lease":"x"}"#, "`lease`"),
        (
            "/v3/kv/txn",
            r#"{"success":[{"request_put":{"key":1}}]}"#,
            "`success[0].request_put.key`",
        ),
    ] {
        let (status, code, text) = refused(&running, path, body).await;
        assert_eq!((status, code), (400, 3), "{body}");
        assert!(text.contains(place), "{text}");
    }
    let deep = format!(r#"{{"x":{}"#, "[".repeat(1000));
    assert_eq!(refused(&running, "/v3/kv/put", &deep).await.0, 400);
    let (status, text) = post(&running, "/v3/lease/keepalive", r#"{"ID":[]}"#).await;
    assert_eq!(status, 400);
    assert!(
        text.contains("message 1: ") && text.contains("`ID`"),
        "{text}"
    );
    let range = r#"{"key":"a2V5"}"#;
    let (_, text) = post(&running, "/v3/kv/range", range).await;
    assert!(!text.contains("kvs"), "{text}");
}

#[tokio::test]
async fn sizes_are_limited_as_for_grpc() {
    let running = start(&[("max-request-bytes", "1000")]).await;
    let value =
        |bytes: usize| format!(r#"{{"key":"a2V5","value":"{}"}}"#, "AAAA".repeat(bytes / 3));
    assert_eq!(post(&running, "/v3/kv/put", &value(900)).await.0, 200);
    let (status, code, text) = refused(&running, "/v3/kv/put", &value(2000)).await;
    assert_eq!((status, code), (400, 3));
    assert_eq!(text, "etcdserver: request is too large");
    // What is too large to be a message at all is not read to its end.
    let (status, code, text) = refused(&running, "/v3/kv/put", &value(1 << 21)).await;
    assert_eq!((status, code), (413, 8));
    assert!(text.contains("bytes"), "{text}");
}

/// A watch goes on after its body has ended, tells what happens, and ends with its client.
#[tokio::test]
async fn a_watch_lives_as_long_as_its_client() {
    let running = start(&[]).await;
    let create = r#"{"create_request":{"key":"aw==","range_end":"bA=="}}"#;
    let body = format!("{create}\n{create}");
    let mut lines = Lines::begin(sent(&running, "/v3/watch", &body).await).await;
    for _ in 0..2 {
        assert_eq!(lines.message().await["result"]["created"], json!(true));
    }
    assert_eq!(watches(&running).await, "bowline_watches 2");
    let mut kv = running.kv().await;
    for value in ["1", "2"] {
        kv.put(put("key", value)).await.unwrap();
        for _ in 0..2 {
            let message = lines.message().await;
            let found = &message["result"]["events"][0]["kv"]["version"];
            assert_eq!(*found, json!(value));
        }
    }
    drop(lines);
    let gone = async {
        while watches(&running).await != "bowline_watches 0" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let gone = tokio::time::timeout(Duration::from_secs(10), gone).await;
    assert!(gone.is_ok(), "the watches of a client that has gone stay");
}

/// A server that stops ends its streams with a line that says so, not in the middle of nothing.
#[tokio::test]
async fn a_stream_ends_with_its_reason() {
    let running = start(&[]).await;
    let body = r#"{"create_request":{"key":"aw=="}} {"create_request":7}"#;
    let mut lines = Lines::begin(sent(&running, "/v3/watch", body).await).await;
    let mut message = lines.message().await;
    if message["error"].is_null() {
        message = lines.message().await;
    }
    let error = &message["error"];
    assert_eq!(error["code"], json!(3));
    let text = error["message"].as_str().unwrap();
    assert!(text.starts_with("message 2: "), "{text}");
    // The last chunk, of no length.
    assert_eq!(lines.next().await, "");
    assert_eq!(lines.next().await, "0");
}

/// A stream that its service refused had the body of a refused call with one reply, and no line with an `error`.
#[tokio::test]
async fn a_stream_that_is_refused_has_its_error_as_a_line() {
    let running = start(&[]).await;
    let root = r#"{"name":"root","password":"S3CRET"}"#;
    for (path, body) in [
        ("/v3/auth/user/add", root),
        ("/v3/auth/user/grant", r#"{"user":"root","role":"root"}"#),
        ("/v3/auth/enable", "{}"),
    ] {
        let (status, text) = post(&running, path, body).await;
        assert_eq!(status, 200, "{text}");
    }
    let error = r#"{"code":3,"message":"etcdserver: user name is empty"}"#;
    let line = format!("{{\"error\":{error}}}\n");
    let refused = post(&running, "/v3/maintenance/snapshot", "{}").await;
    assert_eq!(refused, (400, line));
    // What is no stream has none.
    let refused = post(&running, "/v3/kv/range", r#"{"key":"a2V5"}"#).await;
    assert_eq!(refused, (400, error.to_owned()));
}

/// The time that a client gives was no concern of the gateway: a stream went on, and its client waited.
#[tokio::test]
async fn a_stream_ends_at_its_deadline() {
    let running = start(&[]).await;
    let body = r#"{"create_request":{"key":"aw=="}}"#;
    let stream = sent_with(&running, "/v3/watch", "Grpc-Timeout: 1S\r\n", body).await;
    let mut lines = Lines::begin(stream).await;
    assert_eq!(lines.message().await["result"]["created"], json!(true));
    let last = lines.message().await;
    let expected = json!({"code": 4, "message": "context deadline exceeded"});
    assert_eq!(last["error"], expected);
}

/// Calls are counted with those of gRPC, and metadata goes both ways.
#[tokio::test]
async fn calls_are_those_of_grpc() {
    let running = start(&[]).await;
    let mut stream = TcpStream::connect(running.address()).await.unwrap();
    let request = "POST /v3/kv/range HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                   Grpc-Metadata-bowline-read: eventual\r\ncontent-length: 14\r\n\r\n{\"key\":\"a2V5\"}";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    assert!(
        reply.contains("grpc-metadata-bowline-read: eventual\r\n"),
        "{reply}"
    );
    let (_, metrics) = get(&running, "/metrics").await;
    let row =
        "bowline_requests_total{service=\"etcdserverpb.KV\",method=\"Range\",code=\"Ok\"} 1\n";
    assert!(metrics.contains(row), "{metrics}");
    // As etcd 3.7.3 answers, which the random comparison's module `http` asks, too.
    assert_eq!(
        get(&running, "/v3/kv/range").await,
        (
            "HTTP/1.1 501 Not Implemented".to_owned(),
            r#"{"code":12,"message":"Method Not Allowed"}"#.to_owned()
        )
    );
    let not_found = (404, r#"{"code":5,"message":"Not Found"}"#.to_owned());
    assert_eq!(post(&running, "/v3/nothing", "{}").await, not_found);
    // Which etcd 3.4 does not have, so no client that is tried on it asks for them.
    let (status, text) = post(&running, "/v3/maintenance/hashkv", "{}").await;
    assert_eq!(status, 200, "{text}");
    let downgrade = refused(&running, "/v3/maintenance/downgrade", "{}").await;
    assert_eq!((downgrade.0, downgrade.1), (400, 3), "{downgrade:?}");
    // And what cannot be done now.
    let enabled = refused(&running, "/v3/auth/enable", "{}").await;
    assert_eq!((enabled.0, enabled.1), (400, 9), "{enabled:?}");
}

#[tokio::test]
async fn http_2_is_served_on_the_same_port() {
    let running = start(&[]).await;
    let mut channel = running.channel().await;
    for (path, status, wanted) in [
        ("/v3/kv/put", StatusCode::OK, "\"revision\""),
        (
            "/v3/lease/revoke",
            StatusCode::NOT_FOUND,
            "requested lease not found",
        ),
    ] {
        let body = Full::from(r#"{"key":"a2V5","ID":7}"#);
        let request = Request::post(path).body(Body::new(body)).unwrap();
        std::future::poll_fn(|task| channel.poll_ready(task))
            .await
            .unwrap();
        let response = channel.call(request).await.unwrap();
        assert_eq!(response.status(), status);
        let text = response.into_body().collect().await.unwrap().to_bytes();
        let text = std::str::from_utf8(&text).unwrap();
        assert!(text.contains(wanted), "{text}");
    }
}
