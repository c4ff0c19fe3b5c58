//! `/metrics`: the format, and that what is counted is what happened.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bowline_proto::etcdserverpb as pb;
use tokio_stream::StreamExt;
use tonic::Code;

use crate::gateway::post;
use crate::leaderless::three;
use crate::plain_http::{get, get_at, value};
use crate::support::{Running, put, range, start, start_with};

/// Longer than anything takes.
const IN_TIME: Duration = Duration::from_secs(20);

/// Name, labels and value of each row.
type Rows = BTreeMap<(String, BTreeMap<String, String>), f64>;

/// The labels between braces.
fn labels(text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").expect(text);
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        assert!(!name.is_empty() && name.chars().all(is_name), "{text}");
        let (mut value, mut end) = (String::new(), None);
        let mut chars = after.char_indices();
        while let Some((at, found)) = chars.next() {
            match found {
                '"' => {
                    end = Some(at + 1);
                    break;
                }
                '\\' => match chars.next().expect(text).1 {
                    'n' => value.push('\n'),
                    escaped @ ('\\' | '"') => value.push(escaped),
                    other => panic!("{other}: {text}"),
                },
                '\n' => panic!("{text}"),
                other => value.push(other),
            }
        }
        assert!(labels.insert(name.to_owned(), value).is_none(), "{text}");
        rest = &after[end.expect(text)..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    labels
}

/// Reads an exposition, and checks its form: each metric has one HELP and one TYPE, its rows follow them, and no row is
/// there twice.
fn parsed(text: &str) -> (Rows, BTreeMap<String, String>) {
    let (mut rows, mut kinds) = (Rows::new(), BTreeMap::new());
    let mut helped = BTreeSet::new();
    let mut current = String::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect(line);
            assert!(!help.is_empty() && helped.insert(name.to_owned()), "{line}");
            continue;
        }
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect(line);
            assert!(helped.contains(name), "{line}");
            let before = kinds.insert(name.to_owned(), kind.to_owned());
            assert!(before.is_none(), "{line}");
            name.clone_into(&mut current);
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect(line);
        let (name, labelled) = series.split_once('{').unwrap_or((series, "}"));
        let of_metric = match kinds[&current].as_str() {
            "histogram" => ["_bucket", "_sum", "_count"]
                .iter()
                .any(|end| name.strip_suffix(end) == Some(&current)),
            "counter" | "gauge" => name == current,
            other => panic!("{other}"),
        };
        assert!(of_metric, "{line} is below {current}");
        let labels = labels(labelled.strip_suffix('}').expect(line));
        let value = value.parse().expect(line);
        let before = rows.insert((name.to_owned(), labels), value);
        assert!(before.is_none(), "{line}");
    }
    (rows, kinds)
}

/// The buckets of each histogram increase, and the last has all.
fn check_histograms(rows: &Rows, kinds: &BTreeMap<String, String>) -> usize {
    // By name and labels: the bounds of buckets, with their counts.
    type Histograms = BTreeMap<(String, BTreeMap<String, String>), Vec<(f64, f64)>>;
    let mut all = Histograms::new();
    for ((name, labels), count) in rows {
        let Some(name) = name.strip_suffix("_bucket") else {
            continue;
        };
        assert_eq!(kinds[name], "histogram");
        let mut labels = labels.clone();
        let bound = labels.remove("le").expect("a bound");
        let bound = bound.parse().unwrap_or(f64::INFINITY);
        let of = all.entry((name.to_owned(), labels)).or_default();
        of.push((bound, *count));
    }
    for ((name, labels), mut buckets) in all.clone() {
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        assert!(buckets.is_sorted_by(|one, other| one.1 <= other.1));
        let (last, count) = buckets[buckets.len() - 1];
        assert!(last.is_infinite());
        let of_all = rows[&(format!("{name}_count"), labels.clone())];
        assert!((of_all - count).abs() < 0.5, "{name} {labels:?}");
        assert!(rows.contains_key(&(format!("{name}_sum"), labels)));
    }
    all.len()
}

/// Calls of every kind, of which each is done.
async fn calls(running: &Running) {
    let mut kv = running.kv().await;
    for number in 0..7 {
        kv.put(put(&format!("k{number}"), "v")).await.unwrap();
    }
    for _ in 0..3 {
        kv.range(range("k1")).await.unwrap();
    }
    let future = pb::RangeRequest {
        revision: 1_000_000,
        ..range("k1")
    };
    let refused = kv.range(future).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange);
    for _ in 0..2 {
        let body = r#"{"key":"Zw==","value":"dg=="}"#;
        post(running, "/v3/kv/put", body).await;
    }
    let mut lease = running.lease().await;
    let granted = lease
        .lease_grant(pb::LeaseGrantRequest { ttl: 60, id: 0 })
        .await;
    let id = granted.unwrap().into_inner().id;
    let kept = tokio_stream::iter([pb::LeaseKeepAliveRequest { id }; 2]);
    let replies = lease.lease_keep_alive(kept).await.unwrap().into_inner();
    assert_eq!(replies.collect::<Vec<_>>().await.len(), 2);
}

/// A watch of `g`, which has its first reply.
async fn watching(
    running: &Running,
) -> (
    tokio::sync::mpsc::Sender<pb::WatchRequest>,
    tonic::Streaming<pb::WatchResponse>,
) {
    let create = pb::WatchCreateRequest {
        key: "g".into(),
        ..pb::WatchCreateRequest::default()
    };
    let create = pb::watch_request::RequestUnion::CreateRequest(create);
    let (requests, asked) = tokio::sync::mpsc::channel(4);
    requests
        .send(pb::WatchRequest {
            request_union: Some(create),
        })
        .await
        .unwrap();
    let asked = tokio_stream::wrappers::ReceiverStream::new(asked);
    let mut watch = running.watch().await;
    let mut replies = watch.watch(asked).await.unwrap().into_inner();
    assert!(replies.next().await.unwrap().unwrap().created);
    (requests, replies)
}

/// By how much a row rose.
fn rose(before: &str, after: &str, name: &str) -> f64 {
    let of = |text: &str| {
        let row = text.lines().find_map(|line| {
            let (key, value) = line.rsplit_once(' ')?;
            (key == name).then(|| value.parse::<f64>().unwrap())
        });
        // A method that was not called has no row for its failures.
        row.unwrap_or(0.0)
    };
    assert!(after.lines().any(|line| line.starts_with(name)), "{name}");
    of(after) - of(before)
}

#[tokio::test]
async fn what_is_exported_can_be_read_by_prometheus() {
    let running = start(&[]).await;
    calls(&running).await;
    let open = watching(&running).await;
    let (_, text) = get(&running, "/metrics").await;
    let (rows, kinds) = parsed(&text);
    // Three of the log, the manifest and proposals of ours, two of the disk of etcd's, and those of the methods.
    assert!(check_histograms(&rows, &kinds) > 10);
    assert!(rows.len() > 300 && kinds.len() > 100, "{}", rows.len());
    drop(open);
}

/// The front serves some calls, the library others, and the gateway calls on behalf of clients: each call is counted by
/// one of them.
#[tokio::test]
async fn each_call_is_counted_once() {
    for has_front in [true, false] {
        let running = start_with(&[], |config| config.has_front = has_front).await;
        let before = get(&running, "/metrics").await.1;
        calls(&running).await;
        let after = get(&running, "/metrics").await.1;
        let rows = [
            ("KV", "Put", "unary", 9.0, 9.0),
            ("KV", "Range", "unary", 4.0, 3.0),
            ("KV", "Txn", "unary", 0.0, 0.0),
            ("Lease", "LeaseGrant", "unary", 1.0, 1.0),
            ("Lease", "LeaseKeepAlive", "bidi_stream", 1.0, 1.0),
        ];
        for (service, method, kind, started, good) in rows {
            let labels = format!(
                "grpc_method=\"{method}\",grpc_service=\"etcdserverpb.{service}\",grpc_type=\"{kind}\""
            );
            let stream = kind != "unary";
            let messages = |of_unary: f64| if stream { 2.0 } else { of_unary };
            for (name, wanted) in [
                (format!("grpc_server_started_total{{{labels}}}"), started),
                (
                    format!("grpc_server_handled_total{{grpc_code=\"OK\",{labels}}}"),
                    good,
                ),
                (
                    format!("grpc_server_msg_received_total{{{labels}}}"),
                    messages(started),
                ),
                (
                    format!("grpc_server_msg_sent_total{{{labels}}}"),
                    messages(good),
                ),
            ] {
                let found = rose(&before, &after, &name);
                assert!((found - wanted).abs() < 0.5, "{has_front} {name}: {found}");
            }
            if started > 0.0 {
                let name = format!("grpc_server_handling_seconds_count{{{labels}}}");
                let found = rose(&before, &after, &name);
                assert!((found - started).abs() < 0.5, "{has_front} {name}: {found}");
            }
        }
        let refused = "grpc_server_handled_total{grpc_code=\"OutOfRange\",grpc_method=\"Range\",\
                       grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"}";
        assert!((rose(&before, &after, refused) - 1.0).abs() < 0.5);
        for direction in ["received", "sent"] {
            let name = format!("etcd_network_client_grpc_{direction}_bytes_total");
            // Each call has a head and a message.
            let bytes = rose(&before, &after, &name);
            assert!((100.0..20_000.0).contains(&bytes), "{name}: {bytes}");
        }
    }
}

/// Streams are counted at their end, so that a difference says how many are open.
#[tokio::test]
async fn a_stream_is_open_until_it_ends() {
    const WATCH: &str =
        "grpc_method=\"Watch\",grpc_service=\"etcdserverpb.Watch\",grpc_type=\"bidi_stream\"}";
    for has_front in [true, false] {
        let running = start_with(&[], |config| config.has_front = has_front).await;
        let (first, mut first_replies) = watching(&running).await;
        let second = watching(&running).await;
        running.kv().await.put(put("g", "v")).await.unwrap();
        let event = first_replies.next().await.unwrap().unwrap();
        assert_eq!(event.events.len(), 1);
        let metrics = get(&running, "/metrics").await.1;
        let of = |metrics: &str, name: &str| value(metrics, &format!("{name}{WATCH}"));
        let started = |metrics: &str| of(metrics, "grpc_server_started_total{");
        let received = of(&metrics, "grpc_server_msg_received_total{");
        assert!((started(&metrics) - 2.0).abs() < 0.5 && (received - 2.0).abs() < 0.5);
        let handled = |metrics: &str, code| {
            of(
                metrics,
                &format!("grpc_server_handled_total{{grpc_code=\"{code}\","),
            )
        };
        assert!(handled(&metrics, "OK") < 0.5 && handled(&metrics, "Canceled") < 0.5);
        let open = "etcd_debugging_mvcc_watch_stream_total";
        assert!((value(&metrics, open) - 2.0).abs() < 0.5);
        drop((first, first_replies, second));
        let begun = Instant::now();
        loop {
            let metrics = get(&running, "/metrics").await.1;
            if value(&metrics, open) < 0.5 {
                assert!((started(&metrics) - 2.0).abs() < 0.5);
                let ended = handled(&metrics, "OK") + handled(&metrics, "Canceled");
                assert!((ended - 2.0).abs() < 0.5);
                let sent = of(&metrics, "grpc_server_msg_sent_total{");
                assert!((3.0..=4.5).contains(&sent), "{sent}");
                break;
            }
            assert!(begun.elapsed() < IN_TIME, "{}", shown(&[metrics]));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn the_names_are_those_that_were_asked_for() {
    for (names, of_etcd, of_bowline) in [
        ("etcd", true, false),
        ("bowline", false, true),
        ("bowline, etcd", true, true),
        ("extensive", true, true),
    ] {
        let running = start(&[("metrics", names)]).await;
        let (rows, _) = parsed(&get(&running, "/metrics").await.1);
        let has = |begin: &str| rows.keys().any(|(name, _)| name.starts_with(begin));
        assert_eq!(has("etcd_"), of_etcd, "{names}");
        assert_eq!(has("grpc_"), of_etcd, "{names}");
        assert_eq!(has("bowline_"), of_bowline, "{names}");
        assert!(has("process_"), "{names}");
    }
}

/// What a failed test needs of these.
fn shown(texts: &[String]) -> String {
    let is_shown = |line: &&str| {
        line.starts_with("etcd_server_")
            || line.starts_with("etcd_network_") && !line.contains("_bucket")
    };
    let lines = texts.iter().flat_map(|text| text.lines().filter(is_shown));
    lines.map(|line| format!("{line}\n")).collect()
}

/// What the alerts of etcd's mixin look at, in a cluster that loses its majority.
#[tokio::test]
async fn a_member_without_a_leader_and_without_its_peers_says_so() {
    let place = tempfile::tempdir().unwrap();
    let mut servers = three(&place).await;
    let texts = async |servers: &[bowline_server::Server]| {
        let mut texts = Vec::new();
        for server in servers {
            let address = server.addresses()[0].to_string();
            texts.push(get_at(&address, "/metrics").await.1);
        }
        texts
    };
    let sum = |text: &str, name: &str| -> f64 {
        let rows = parsed(text).0;
        let named = rows.iter().filter(|((found, _), _)| found == name);
        named.map(|(_, value)| value).sum()
    };
    let begun = Instant::now();
    let all = loop {
        let all = texts(&servers).await;
        let total = |name| all.iter().map(|text| sum(text, name)).sum::<f64>();
        // Of the two followers, by the leader.
        let answered = total("etcd_network_peer_round_trip_time_seconds_count");
        if total("etcd_server_has_leader") > 2.5 && answered >= 4.0 {
            break all;
        }
        assert!(begun.elapsed() < IN_TIME, "{}", shown(&all));
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let leaders: f64 = all
        .iter()
        .map(|text| value(text, "etcd_server_is_leader"))
        .sum();
    assert!((leaders - 1.0).abs() < 0.5, "{}", shown(&all));
    let has_majority = |text: &&String| value(text, "etcd_server_is_leader") > 0.5;
    for text in &all {
        assert!(value(text, "etcd_server_leader_changes_seen_total") >= 1.0);
        let (rows, kinds) = parsed(text);
        check_histograms(&rows, &kinds);
        assert!(value(text, "etcd_server_proposals_committed_total") >= 1.0);
        let sent = sum(text, "etcd_network_peer_sent_bytes_total");
        let received = sum(text, "etcd_network_peer_received_bytes_total");
        assert!(sent > 100.0 && received > 100.0, "{sent} {received}");
    }
    // What the leader has sent has arrived, but for what is on its way and what is not counted at one end.
    let leader = all.iter().find(has_majority).expect("a leader");
    let followers = all
        .iter()
        .filter(|text| value(text, "etcd_server_is_leader") < 0.5);
    let sent = sum(leader, "etcd_network_peer_sent_bytes_total");
    let arrived: f64 = followers
        .map(|text| sum(text, "etcd_network_peer_received_bytes_total"))
        .sum();
    assert!(
        arrived > sent / 2.0 && sent > arrived / 4.0,
        "{sent} {arrived}"
    );

    let failed = sum(&all[0], "etcd_network_peer_sent_failures_total");
    for server in servers.drain(1..) {
        tokio::spawn(server.shutdown());
    }
    let begun = Instant::now();
    loop {
        let text = texts(&servers).await.remove(0);
        let has_leader = value(&text, "etcd_server_has_leader") > 0.5;
        if !has_leader && sum(&text, "etcd_network_peer_sent_failures_total") >= failed + 3.0 {
            break;
        }
        assert!(begun.elapsed() < IN_TIME, "{}", shown(&[text]));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
