//! What is served to HTTP: the JSON gateway's refusals, health and versions. Compared with etcd 3.7 and
//! later: an older gateway has other forms.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::servers::{Clients, Pair, etcd_programs};

/// What of an answer is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compared {
    /// All but what a server chooses.
    All,
    /// All but the text of an error, where each library has its own words.
    Code,
}

use Compared::{All, Code};

/// Method, path, body.
const REQUESTS: &[(Compared, &str, &str, &str)] = &[
    (
        All,
        "POST",
        "/v3/kv/put",
        r#"{"key":"Zm9v","value":"YmFy"}"#,
    ),
    (All, "POST", "/v3/kv/range", r#"{"key":"Zm9v"}"#),
    // Names that an enum does not have.
    (
        All,
        "POST",
        "/v3/kv/range",
        r#"{"key":"Zm9v","sort_order":"SIDEWAYS"}"#,
    ),
    (
        All,
        "POST",
        "/v3/kv/range",
        r#"{"key":"Zm9v","sort_target":"NOPE","sort_order":"DESCEND"}"#,
    ),
    (
        All,
        "POST",
        "/v3/kv/txn",
        r#"{"compare":[{"target":"NOPE","key":"Zm9v"}]}"#,
    ),
    (
        All,
        "POST",
        "/v3/kv/txn",
        r#"{"compare":[{"target":"VALUE","result":"NOPE","key":"Zm9v","value":"YmFy"}]}"#,
    ),
    (
        All,
        "POST",
        "/v3/maintenance/alarm",
        r#"{"action":"ACTIVATE","memberID":"7","alarm":"NOPE"}"#,
    ),
    (
        All,
        "POST",
        "/v3/maintenance/downgrade",
        r#"{"action":"WHAT"}"#,
    ),
    (
        All,
        "POST",
        "/v3/kv/range",
        r#"{"key":"Zm9v","nothing":[{"a":1}]}"#,
    ),
    // Numbers that an enum does not have.
    (
        All,
        "POST",
        "/v3/kv/range",
        r#"{"key":"Zm9v","sort_order":99}"#,
    ),
    // What does not parse.
    (
        Code,
        "POST",
        "/v3/kv/range",
        r#"{"key":"Zm9v","sort_order":1.5}"#,
    ),
    (
        Code,
        "POST",
        "/v3/kv/range",
        r#"{"key":"Zm9v","sort_order":true}"#,
    ),
    (
        Code,
        "POST",
        "/v3/kv/range",
        r#"{"key":"Zm9v","limit":"x"}"#,
    ),
    (Code, "POST", "/v3/kv/range", r#"{"key":"#),
    (Code, "POST", "/v3/kv/range", "x"),
    (Code, "POST", "/v3/kv/range", "[]"),
    (Code, "POST", "/v3/kv/range", "null"),
    (Code, "POST", "/v3/kv/range", r#"{"key":"!!"}"#),
    (
        Code,
        "POST",
        "/v3/kv/txn",
        r#"{"success":[{"request_put":{"key":1}}]}"#,
    ),
    (
        Code,
        "POST",
        "/v3/kv/txn",
        r#"{"success":[{"request_put":{},"request_range":{}}]}"#,
    ),
    (Code, "POST", "/v3/election/observe", "{"),
    (Code, "POST", "/v3/lease/grant", r#"{"TTL":[]}"#),
    // Refusals of each service.
    (All, "POST", "/v3/kv/range", ""),
    (
        All,
        "POST",
        "/v3/kv/range",
        r#"{"key":"Zm9v","revision":"99"}"#,
    ),
    (All, "POST", "/v3/kv/compaction", r#"{"revision":"99"}"#),
    (All, "POST", "/v3/kv/put", r#"{"key":"Zm9v","lease":"7"}"#),
    (All, "POST", "/v3/lease/revoke", r#"{"ID":7}"#),
    (All, "POST", "/v3/kv/lease/revoke", r#"{"ID":7}"#),
    (All, "POST", "/v3/lease/grant", r#"{"TTL":"9000000001"}"#),
    (All, "POST", "/v3/lease/timetolive", r#"{"ID":7}"#),
    (All, "POST", "/v3/lease/keepalive", r#"{"ID":7}"#),
    (All, "POST", "/v3/lock/lock", r#"{"name":"bg==","lease":7}"#),
    (All, "POST", "/v3/lock/unlock", r#"{"key":"bg=="}"#),
    (All, "POST", "/v3/election/leader", r#"{"name":"bg=="}"#),
    (
        All,
        "POST",
        "/v3/election/campaign",
        r#"{"name":"bg==","lease":7}"#,
    ),
    (All, "POST", "/v3/election/proclaim", "{}"),
    (All, "POST", "/v3/election/resign", "{}"),
    (
        All,
        "POST",
        "/v3/cluster/member/add",
        r#"{"peerURLs":["x"]}"#,
    ),
    (All, "POST", "/v3/cluster/member/remove", r#"{"ID":7}"#),
    (All, "POST", "/v3/cluster/member/promote", r#"{"ID":7}"#),
    (All, "POST", "/v3/auth/status", "{}"),
    (All, "POST", "/v3/auth/user/get", r#"{"name":"x"}"#),
    (
        All,
        "POST",
        "/v3/auth/authenticate",
        r#"{"name":"x","password":"x"}"#,
    ),
    (
        All,
        "POST",
        "/v3/maintenance/transfer-leadership",
        r#"{"targetID":"7"}"#,
    ),
    (All, "POST", "/v3/maintenance/downgrade", "{}"),
    // Paths and methods.
    (All, "POST", "/v3/nothing", "{}"),
    (All, "GET", "/v3/nothing", ""),
    (All, "POST", "/v3/kv/range/", "{}"),
    (All, "POST", "/v3/kv/rangestream", "{}"),
    (All, "GET", "/v3/kv/range", ""),
    (All, "PUT", "/v3/kv/range", "{}"),
    (All, "GET", "/", ""),
    (All, "GET", "/nothing", ""),
    (All, "GET", "/health", ""),
    (All, "GET", "/health?serializable=true", ""),
    (All, "POST", "/health", ""),
    (All, "GET", "/livez", ""),
    (All, "GET", "/livez?verbose", ""),
    (All, "GET", "/livez?verbose&exclude=serializable_read", ""),
    (All, "GET", "/livez/serializable_read", ""),
    (All, "GET", "/livez/serializable_read?verbose", ""),
    (All, "GET", "/livez/linearizable_read", ""),
    (All, "POST", "/livez", ""),
    (All, "GET", "/readyz", ""),
    (All, "GET", "/readyz?verbose", ""),
    (
        All,
        "GET",
        "/readyz?verbose&exclude=non_learner&exclude=nothing",
        "",
    ),
    (All, "GET", "/readyz/data_corruption", ""),
    (All, "GET", "/readyz/serializable_read", ""),
    (All, "GET", "/readyz/linearizable_read", ""),
    (All, "GET", "/readyz/non_learner?verbose", ""),
    (All, "GET", "/readyz/nothing", ""),
    (All, "POST", "/readyz/non_learner", ""),
    (All, "GET", "/version", ""),
    (All, "POST", "/version", ""),
    // While the data of members differ.
    (
        All,
        "POST",
        "/v3/maintenance/alarm",
        r#"{"action":"ACTIVATE","memberID":"7","alarm":"CORRUPT"}"#,
    ),
    (All, "GET", "/health", ""),
    (All, "GET", "/health?exclude=CORRUPT", ""),
    (All, "GET", "/livez", ""),
    (All, "GET", "/readyz", ""),
    (All, "GET", "/readyz?exclude=data_corruption", ""),
    (All, "GET", "/readyz/data_corruption", ""),
    (All, "GET", "/readyz/linearizable_read", ""),
    (All, "POST", "/v3/kv/put", r#"{"key":"Zm9v"}"#),
];

/// What has authentication enabled.
const USERS: &[(Compared, &str, &str, &str)] = &[
    (
        All,
        "POST",
        "/v3/auth/user/add",
        r#"{"name":"root","password":"S3CRET"}"#,
    ),
    (
        All,
        "POST",
        "/v3/auth/user/grant",
        r#"{"user":"root","role":"root"}"#,
    ),
    (All, "POST", "/v3/auth/enable", "{}"),
    // A stream, and none: without a token.
    (All, "POST", "/v3/maintenance/snapshot", "{}"),
    (All, "POST", "/v3/kv/range", r#"{"key":"Zm9v"}"#),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_is_answered_as_by_etcd() {
    compare(REQUESTS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_without_a_token_is_refused_as_by_etcd() {
    compare(USERS).await;
}

/// Asks both servers, which are new.
async fn compare(requests: &[(Compared, &str, &str, &str)]) {
    for program in etcd_programs() {
        let pair = Pair::start(&program).await;
        if pair.etcd.version < (3, 7) {
            pair.stop().await;
            continue;
        }
        let mut wrong = Vec::new();
        for &(compared, method, path, body) in requests {
            let (etcd, bowline) = tokio::join!(
                ask(&pair.etcd.clients, compared, method, path, body),
                ask(&pair.bowline.clients, compared, method, path, body),
            );
            if etcd != bowline {
                wrong.push(format!(
                    "{method} {path} {body}\n      etcd: {etcd:?}\n   bowline: {bowline:?}"
                ));
            }
        }
        pair.stop().await;
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// The status, whether the text is JSON by its type, and the text.
async fn ask(
    clients: &Clients,
    compared: Compared,
    method: &str,
    path: &str,
    body: &str,
) -> (String, Option<String>, String) {
    let mut stream = TcpStream::connect(&clients.address).await.unwrap();
    let (address, len) = (&clients.address, body.len());
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {len}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    let (head, text) = reply.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().to_owned();
    let allowed = lines.find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("allow").then(|| value.to_owned())
    });
    (status, allowed, tidy(compared, text))
}

/// The text without what a server chooses for itself.
fn tidy(compared: Compared, text: &str) -> String {
    // A stream comes in a chunk, after its length.
    let json = text.lines().find(|line| line.starts_with('{'));
    let Some(Ok(mut value)) = json.map(serde_json::from_str::<Value>) else {
        let mut lines: Vec<&str> = text.lines().collect();
        // etcd names its checks in no order.
        lines.sort_unstable();
        return lines.join("\n");
    };
    if compared == Code
        && let Some(message) = value.get_mut("message")
    {
        *message = json!(!message.as_str().unwrap_or_default().is_empty());
    }
    let body = match value.get_mut("result") {
        Some(result) => result,
        None => &mut value,
    };
    if let Some(Value::Object(header)) = body.get_mut("header") {
        for id in ["cluster_id", "member_id", "raft_term"] {
            header.insert(id.to_owned(), json!("chosen"));
        }
    }
    if let Value::Object(versions) = &mut value {
        versions.remove("bowline");
    }
    value.to_string()
}
