//! What the service refuses before anything is read or proposed.

use bowline_client::{Error, Update};
use bowline_proto::v1 as pb;
use bytes::Bytes;
use pb::key_update::Change;
use pb::store_client::StoreClient;
use pb::transaction_read::Read;
use pb::transaction_write::Write;
use tonic::{Code, Status};

use crate::Cluster;

fn read(read: Read) -> Vec<pb::TransactionRead> {
    vec![pb::TransactionRead { read: Some(read) }]
}

fn write(write: Write) -> Vec<pb::TransactionWrite> {
    vec![pb::TransactionWrite { write: Some(write) }]
}

fn update(key: &'static str, change: Option<Change>) -> Vec<pb::TransactionWrite> {
    let key = key.into();
    write(Write::Update(pb::KeyUpdate { key, change }))
}

fn put(key: &'static str) -> Vec<pb::TransactionWrite> {
    write(Write::Put(pb::TransactionPut {
        key: key.into(),
        ..pb::TransactionPut::default()
    }))
}

fn refused<T: std::fmt::Debug>(answer: Result<T, Status>) -> (Code, String) {
    let status = answer.unwrap_err();
    (status.code(), status.message().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_never_succeed_is_refused_with_what_to_do() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client_of(0);
    let newest = client.put("k", "v").await.unwrap().header.revision;
    let mut store = StoreClient::new(client.channel());
    let commit = |read_revision, reads, writes| pb::CommitRequest {
        read_revision,
        reads,
        writes,
        ..pb::CommitRequest::default()
    };
    let key = || Read::Key("k".into());
    let id = Bytes::from_static(b"short");
    let unknown = pb::CommitRequest {
        isolation: 9,
        ..commit(newest.get(), Vec::new(), put("k"))
    };
    let many = vec![pb::TransactionRead { read: Some(key()) }; 10_001];
    let range = pb::KeyRange::default();
    for (request, text) in [
        (
            commit(0, read(key()), put("k")),
            "reads and no read_revision",
        ),
        (commit(newest.get(), many, put("k")), "more than 10,000"),
        (
            commit(newest.get(), vec![pb::TransactionRead::default()], put("k")),
            "a read says nothing",
        ),
        (
            commit(newest.get(), read(Read::Block(id.clone())), put("k")),
            "16 bytes",
        ),
        (
            commit(newest.get(), read(Read::EdgesIn(id)), put("k")),
            "16 bytes",
        ),
        (
            commit(newest.get(), read(Read::Key(Bytes::new())), put("k")),
            "key is not provided",
        ),
        (
            commit(newest.get(), Vec::new(), put("")),
            "key is not provided",
        ),
        (
            commit(newest.get(), Vec::new(), write(Write::DeleteRange(range))),
            "key is not provided",
        ),
        (
            commit(
                newest.get(),
                Vec::new(),
                vec![pb::TransactionWrite::default()],
            ),
            "a write says nothing",
        ),
        (
            commit(0, Vec::new(), update("", Some(Change::Add(1)))),
            "key is not provided",
        ),
        (
            commit(0, Vec::new(), update("k", None)),
            "an update says nothing",
        ),
        (unknown, "isolation is not known"),
    ] {
        let (code, said) = refused(store.commit(request).await);
        assert_eq!(code, Code::InvalidArgument, "{said}");
        assert!(said.contains(text), "{said}");
    }
    let late = commit((newest + 1).get(), read(key()), put("k"));
    assert_eq!(refused(store.commit(late).await).0, Code::OutOfRange);
    assert_eq!(
        client.get("k").await.unwrap().header.revision,
        newest,
        "nothing was written"
    );
    for keys in [Vec::new(), vec![Bytes::new()]] {
        let asked = pb::GetRequest { keys, read: None };
        assert_eq!(refused(store.get(asked).await).0, Code::InvalidArgument);
    }
    let asked = pb::RangeRequest::default();
    assert_eq!(refused(store.range(asked).await).0, Code::InvalidArgument);
    let asked = pb::HistoryRequest::default();
    assert_eq!(refused(store.history(asked).await).0, Code::InvalidArgument);
    // One that only reads is true of the revision it has read at, and no entry of the log.
    let only_reads = commit(newest.get(), read(key()), Vec::new());
    let reply = store.commit(only_reads).await.unwrap().into_inner();
    assert_eq!(newest, reply.header.unwrap().revision);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_comes_in_parts_forwards_and_backwards_and_says_whether_there_is_more() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client_of(0);
    let mut tx = client.begin();
    for number in 0..2_500 {
        tx.put(format!("k{number:04}"), "v").unwrap();
    }
    tx.commit().await.unwrap();
    let mut store = StoreClient::new(client.channel());
    for (limit, reverse, found, more) in [
        (0, false, 2_500, false),
        (0, true, 2_500, false),
        (2_500, false, 2_500, false),
        (1_000, true, 1_000, true),
        (7, false, 7, true),
    ] {
        let asked = pb::RangeRequest {
            range: Some(pb::KeyRange {
                key: "k".into(),
                range_end: "l".into(),
            }),
            limit,
            reverse,
            keys_only: true,
            ..pb::RangeRequest::default()
        };
        let mut stream = store.range(asked).await.unwrap().into_inner();
        let mut parts = Vec::new();
        while let Some(part) = stream.message().await.unwrap() {
            parts.push(part);
        }
        let (last, before) = parts.split_last().unwrap();
        assert!(last.is_last && before.iter().all(|part| !part.is_last && !part.more));
        assert_eq!(last.more, more, "limit {limit}");
        assert!(
            parts[0]
                .header
                .is_some_and(|header| header.read_revision == 2)
        );
        let entries: Vec<_> = parts.into_iter().flat_map(|part| part.entries).collect();
        assert_eq!(entries.len(), found);
        let first = if reverse { "k2499" } else { "k0000" };
        assert_eq!(entries[0].key, first);
        assert!(entries.iter().all(|entry| entry.value.is_empty()));
        let is_sorted = entries.is_sorted_by(|a, b| (a.key < b.key) != reverse);
        assert!(is_sorted);
    }
    let empty = pb::RangeRequest {
        range: Some(pb::KeyRange {
            key: "l".into(),
            range_end: "k".into(),
        }),
        ..pb::RangeRequest::default()
    };
    let mut stream = store.range(empty).await.unwrap().into_inner();
    let only = stream.message().await.unwrap().unwrap();
    assert!(only.is_last && only.entries.is_empty());
}

/// An update that does not suit is refused with the rest of its commit.
#[tokio::test(flavor = "multi_thread")]
async fn an_update_of_what_is_no_number_is_refused() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client_of(0);
    let mut store = StoreClient::new(client.channel());
    client.put("k", "words").await.unwrap();
    let newest = client.put("full", i64::MAX.to_string()).await.unwrap();
    let newest = newest.header.revision;
    for (key, said) in [("k", "whole number"), ("full", "does not fit")] {
        let mut writes = put("other");
        writes.extend(update(key, Some(Change::Add(1))));
        let commit = pb::CommitRequest {
            writes,
            ..pb::CommitRequest::default()
        };
        let (code, text) = refused(store.commit(commit).await);
        assert_eq!(code, Code::FailedPrecondition, "{text}");
        assert!(text.contains(said) && text.contains(key), "{text}");
        let error = client.update(key, Update::Add(1)).await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    }
    let read = client.get("other").await.unwrap();
    assert_eq!((read.value(), read.header.revision), (None, newest));
}

/// A request of some hundred kilobytes had a reply of a gigabyte: one long value, told by each of many updates. Found in
/// review.
#[tokio::test(flavor = "multi_thread")]
async fn updates_that_would_tell_too_much_are_refused() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client_of(0);
    let mut store = StoreClient::new(client.channel());
    client.put("k", vec![b'x'; 100_000]).await.unwrap();
    let known = || update("k", Some(Change::SetIfAbsent(Bytes::new())));
    let commit = pb::CommitRequest {
        writes: (0..1_000).flat_map(|_| known()).collect(),
        ..pb::CommitRequest::default()
    };
    let (code, text) = refused(store.commit(commit).await);
    assert_eq!(code, Code::ResourceExhausted, "{text}");
    assert!(text.contains("too many keys or bytes"), "{text}");
}
