//! Entry points of fuzzers, for foreign input that a server parses. Only in tests and with `--cfg fuzzing`.

use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use bowline_proto::{etcdserverpb as pb, v1};
use bowline_replica::{Command, Op, Txn, decode_commands, encode_commands};
use bytes::Bytes;
use prost::Message;

use crate::config::{Config, Layers, SETTINGS};
use crate::context::Context;
use crate::convert;
use crate::front::fuzzing as front;
pub use crate::front::fuzzing::Other;
use crate::gateway::fuzzed;
use crate::jwt;
use crate::server::Server;
use crate::snapshot_file::SnapshotFile;

/// etcd's limit.
const OPERATIONS_MAX: usize = 128;

/// A byte that selects the format, then a snapshot's head, a configuration, a request or a token.
pub fn server_input(data: &[u8]) {
    let Some((&which, data)) = data.split_first() else {
        return;
    };
    let op = match which {
        0 => return snapshot_head(data),
        1 => return configuration(data),
        2 => return flags(data),
        3 => decoded(data).and_then(|request| convert::range_op(request).ok().map(Op::Range)),
        4 => decoded(data).and_then(|request| convert::put_op(request).ok().map(Op::Put)),
        5 => {
            let op = decoded(data).and_then(|request| convert::delete_op(request).ok());
            op.map(Op::DeleteRange)
        }
        6 => {
            let txn = decoded(data);
            txn.and_then(|request| convert::txn(request, OPERATIONS_MAX).ok())
                .map(Op::Txn)
        }
        7 => {
            let writes = decoded(data).and_then(|request| convert::graph::writes(request).ok());
            return writes.into_iter().for_each(|w| agreed(Command::Graph(w)));
        }
        8 => {
            let commit = decoded(data).and_then(|request| convert::store::commit(request).ok());
            return commit.into_iter().for_each(|c| agreed(Command::Commit(c)));
        }
        9 => return jwt::parse_any(data),
        _ => return,
    };
    if let Some(op) = op {
        proposed(op);
    }
}

fn decoded<T: Message + Default>(data: &[u8]) -> Option<T> {
    // As in a server: keys and values share the buffer.
    T::decode(Bytes::copy_from_slice(data)).ok()
}

fn proposed(op: Op) {
    let txn = match op {
        Op::Txn(txn) => txn,
        op => Txn {
            success: vec![op],
            ..Txn::default()
        },
    };
    agreed(Command::Txn(txn));
}

/// An accepted command is encoded in the log and decoded unchanged.
fn agreed(command: Command) {
    let mut bytes = Vec::new();
    encode_commands(std::slice::from_ref(&command).iter(), &mut bytes);
    assert_eq!(decode_commands(&bytes.into()), Ok(vec![command]));
}

fn snapshot_head(data: &[u8]) {
    match SnapshotFile::decode_head(data) {
        Ok((head, len)) => {
            assert!(len <= data.len());
            assert_eq!(head.encode_head().as_deref(), Ok(&data[..len]));
        }
        Err(bad) => assert!(bad.offset <= data.len(), "{bad}"),
    }
}

fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let path = Path::new("bowline.toml");
    let mut layers = Layers::default();
    if let Err(error) = layers.add_text(path, text) {
        assert!(error.to_string().contains("bowline.toml"), "{error}");
        return;
    }
    in_effect(&layers);
}

/// Lines of `key=value`, as flags.
fn flags(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut layers = Layers::default();
    for line in text.lines() {
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        let known = SETTINGS.iter().any(|setting| setting.key == key);
        assert_eq!(layers.add_flag(key, value.to_owned()).is_ok(), known);
    }
    in_effect(&layers);
}

/// The printed effective configuration has the same effect when it is used as a file.
fn in_effect(layers: &Layers) {
    let mut again = Layers::default();
    let printed = layers.to_toml();
    let path = Path::new("printed.toml");
    let read = again.add_text(path, &printed);
    assert!(read.is_ok(), "{read:?}: {printed}");
    for setting in SETTINGS {
        let key = setting.key;
        assert_eq!(layers.text(key), again.text(key), "{key}: {printed}");
    }
    if let Err(error) = Config::from_layers(layers) {
        assert!(!error.to_string().is_empty());
    }
}

/// Input of the gateway: a byte that selects request, stream of requests or reply, a byte for the method, and
/// the body.
pub fn gateway_input(data: &[u8]) {
    let [which, method, body @ ..] = data else {
        return;
    };
    let method = usize::from(*method);
    match which {
        0 => fuzzed::request(method, body),
        1 => fuzzed::values(body),
        2 => fuzzed::reply(method, body),
        _ => {}
    }
}

/// Frames of a client of the front: a byte that selects how they are handled, one for the cuts, and the frames.
///
/// # Panics
/// When the front does what it must not.
pub fn front_input(data: &[u8]) {
    front::connection(context(), data);
}

/// Header blocks of a client of the front, each behind its length in two bytes. `other` is another decoder.
///
/// # Panics
/// When the two do not agree, or a head is not what its fields say.
pub fn header_blocks(data: &[u8], other: impl FnMut(&[u8]) -> Other) {
    front::header_blocks(data, other);
}

/// The state of a server, which is stopped already: connections count in it, and their calls are answered elsewhere.
fn context() -> &'static Arc<Context> {
    static CONTEXT: OnceLock<Arc<Context>> = OnceLock::new();
    CONTEXT.get_or_init(|| {
        let name = format!("bowline-fuzz-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let context = runtime.block_on(async {
            let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
            let peer = format!("http://{}", free.expect("a port"));
            let mut layers = Layers::default();
            for (key, value) in [
                ("data-dir", directory.display().to_string()),
                ("listen-client-urls", "http://127.0.0.1:0".to_owned()),
                ("listen-peer-urls", peer.clone()),
                ("initial-advertise-peer-urls", peer),
            ] {
                layers.add_flag(key, value).expect("a setting");
            }
            let config = Config::from_layers(&layers).expect("a configuration");
            let server = Server::start(config).await.expect("a server");
            let context = server.context().clone();
            server.shutdown().await.expect("it stops");
            context
        });
        let _ = std::fs::remove_dir_all(directory);
        context
    })
}

/// A few requests as clients write them, an almost correct stream, and a reply.
#[must_use]
#[cfg_attr(fuzzing, allow(dead_code))]
pub(crate) fn gateway_input_seeds() -> Vec<Vec<u8>> {
    let requests = [
        (
            "/v3/kv/range",
            r#"{"key":"Zm9v","rangeEnd":"-_8","limit":"5","sort_order":"DESCEND","x":{"a":[1]}}"#,
        ),
        (
            "/v3/kv/txn",
            r#"{"compare":[{"key":"YQ==","target":3,"result":"NOT_EQUAL","value":""}],"success":
               [{"request_put":{"key":"YQ==","lease":-7}},{"request_txn":{"failure":[{}]}}]}"#,
        ),
        (
            "/v3/watch",
            r#"{"create_request":{"key":"AA==","filters":["NOPUT",1],"watch_id":null}}"#,
        ),
        (
            "/v3/lease/grant",
            r#"{"ID":"9223372036854775807","TTL":1e2}"#,
        ),
        (
            "/v3/cluster/member/add",
            r#"{"peerURLs":["http://a","\u00e9\ud83d\ude00"],"isLearner":true}"#,
        ),
        (
            "/v3/auth/role/grant",
            r#"{"name":"a","perm":{"permType":"READWRITE","key":"/+8="},"action":77}"#,
        ),
    ];
    let mut seeds: Vec<_> = requests
        .iter()
        .map(|(path, body)| [&[0, fuzzed::method(path)], body.as_bytes()].concat())
        .collect();
    seeds.push([&[1, 0], &b"[{\"a\":\"\\\"}\"}]{} null 7{"[..]].concat());
    let header = pb::ResponseHeader {
        cluster_id: u64::MAX,
        revision: 7,
        ..pb::ResponseHeader::default()
    };
    let reply = pb::RangeResponse {
        header: Some(header),
        kvs: vec![bowline_proto::mvccpb::KeyValue {
            key: "k".into(),
            ..Default::default()
        }],
        count: 1,
        more: true,
    };
    let message = reply.encode_to_vec();
    let head = [2, fuzzed::method("/v3/kv/range"), 0, 0, 0, 0];
    let len = [message.len() as u8];
    seeds.push([&head[..], &len, &message, b"\0\0\0\0\0"].concat());
    seeds
}

/// One seed per format.
#[must_use]
#[cfg_attr(fuzzing, allow(dead_code))]
pub(crate) fn server_input_seeds() -> Vec<Vec<u8>> {
    let head = SnapshotFile {
        index: 7,
        revision: 300,
        state: b"state".to_vec(),
        tables: vec![("1.table".to_owned(), 1 << 40), ("2.table".to_owned(), 0)],
    };
    let file = "name = 'a'\n# a remark\nmax-txn-ops = 7\nlisten-client-urls = ['http://h:1']\n\
                initial-cluster = \"a=http://localhost:2380,b=http://[::1]:2380\"\n\
                drain-timeout = '1m30s'\n";
    let flags = "name=007\ninitial-cluster=007=http://localhost:2380\nelection-timeout=5s\n\
                 log-format=json\nquota-backend-bytes=8_000";
    // {"alg":"RS256"} and {"username":"a","revision":1,"exp":1800000000}
    const TOKEN: &[u8] =
        b"eyJhbGciOiJSUzI1NiJ9.eyJ1c2VybmFtZSI6ImEiLCJyZXZpc2lvbiI6MSwiZXhwIjoxODAwMDAwMDAwfQ.AA";
    let key = || Bytes::from("key");
    let range = pb::RangeRequest {
        key: key(),
        range_end: Bytes::from_static(&[0]),
        limit: 300,
        sort_target: 3,
        sort_order: 2,
        ..pb::RangeRequest::default()
    };
    let put = pb::PutRequest {
        key: key(),
        value: "value".into(),
        lease: 7,
        prev_kv: true,
        ..pb::PutRequest::default()
    };
    let delete = pb::DeleteRangeRequest {
        key: key(),
        range_end: "kez".into(),
        prev_kv: true,
    };
    let compare = pb::Compare {
        key: key(),
        result: 1,
        target: 3,
        target_union: Some(pb::compare::TargetUnion::Value("value".into())),
        ..pb::Compare::default()
    };
    let op = |request| pb::RequestOp {
        request: Some(request),
    };
    let inner = pb::TxnRequest {
        success: vec![op(pb::request_op::Request::RequestRange(range.clone()))],
        ..pb::TxnRequest::default()
    };
    let txn = pb::TxnRequest {
        compare: vec![compare],
        success: vec![
            op(pb::request_op::Request::RequestPut(put.clone())),
            op(pb::request_op::Request::RequestTxn(inner)),
        ],
        failure: vec![op(pb::request_op::Request::RequestDeleteRange(
            delete.clone(),
        ))],
    };
    let edge = || v1::EdgeKey {
        source: vec![1; 16].into(),
        kind: "knows".to_owned(),
        target: vec![2; 16].into(),
    };
    let age = v1::AttributeValue {
        value: Some(v1::attribute_value::Value::Integer(41)),
    };
    let block = v1::Block {
        id: vec![1; 16].into(),
        kind: "person".to_owned(),
        content: "Ann".into(),
        attributes: [("city".to_owned(), "Oslo".to_owned())].into(),
        typed_attributes: [("age".to_owned(), age)].into(),
        ..v1::Block::default()
    };
    let several = v1::Block {
        kind: String::new(),
        kinds: vec!["author".to_owned(), "person".to_owned()],
        ..block.clone()
    };
    let attributes = [("since".to_owned(), "1999".to_owned())].into();
    let put_edge = v1::Edge {
        key: Some(edge()),
        attributes,
        ..v1::Edge::default()
    };
    let writes = [
        v1::graph_write::Write::PutBlock(block),
        v1::graph_write::Write::PutBlockOfKinds(several),
        v1::graph_write::Write::PutEdge(put_edge),
        v1::graph_write::Write::DeleteEdge(edge()),
        v1::graph_write::Write::DeleteBlock(vec![2; 16].into()),
    ];
    let writes = writes.map(|write| v1::GraphWrite { write: Some(write) });
    let key_range = || v1::KeyRange {
        key: key(),
        range_end: Bytes::from_static(&[0]),
    };
    use v1::transaction_read::Read;
    use v1::transaction_write::Write;
    let reads = [
        Read::Key(key()),
        Read::Range(key_range()),
        Read::Block(vec![1; 16].into()),
        Read::Edge(edge()),
        Read::EdgesOut(vec![1; 16].into()),
        Read::EdgesIn(vec![2; 16].into()),
    ];
    let transaction_put = v1::TransactionPut {
        key: key(),
        value: "value".into(),
        lease: 7,
    };
    let transaction_writes = [
        Write::Put(transaction_put),
        Write::Delete(key()),
        Write::DeleteRange(key_range()),
        Write::Graph(writes[1].clone()),
    ];
    let commit = v1::CommitRequest {
        read_revision: 300,
        isolation: 1,
        reads: reads
            .map(|read| v1::TransactionRead { read: Some(read) })
            .into(),
        expectations: vec![v1::Expectation {
            key: key(),
            mod_revision: 299,
        }],
        writes: transaction_writes
            .map(|write| v1::TransactionWrite { write: Some(write) })
            .into(),
    };
    let graph = v1::WriteRequest {
        writes: writes.into(),
    };
    [
        (0, head.encode_head().unwrap_or_default()),
        (1, file.as_bytes().to_vec()),
        (2, flags.as_bytes().to_vec()),
        (3, range.encode_to_vec()),
        (4, put.encode_to_vec()),
        (5, delete.encode_to_vec()),
        (6, txn.encode_to_vec()),
        (7, graph.encode_to_vec()),
        (8, commit.encode_to_vec()),
        (9, TOKEN.to_vec()),
    ]
    .into_iter()
    .map(|(which, bytes)| [&[which][..], &bytes].concat())
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_input_misleads_a_server() {
        let corpus =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/fuzz/corpus/server_input.tar");
        let test = "no_input_misleads_a_server";
        bowline_testing::replay(test, &corpus, server_input_seeds(), server_input);
    }

    #[test]
    fn no_body_misleads_the_gateway() {
        let corpus =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/fuzz/corpus/gateway_input.tar");
        let test = "no_body_misleads_the_gateway";
        bowline_testing::replay(test, &corpus, gateway_input_seeds(), gateway_input);
    }
    #[test]
    fn no_frame_misleads_the_front() {
        let corpus =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/fuzz/corpus/front_input.tar");
        let test = "no_frame_misleads_the_front";
        bowline_testing::replay(test, &corpus, front::connection_seeds(), front_input);
    }

    /// The fuzzer compares with another decoder, too.
    #[test]
    fn no_block_misleads_the_front() {
        let corpus =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/fuzz/corpus/header_blocks.tar");
        let test = "no_block_misleads_the_front";
        let target = |data: &[u8]| header_blocks(data, |_| Other::Unknown);
        bowline_testing::replay(test, &corpus, front::header_blocks_seeds(), target);
    }
}
