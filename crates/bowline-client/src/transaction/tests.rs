//! Tests of transactions against servers that are not there or do not answer.

use super::*;
use crate::Client;
use crate::graph::{Block, BlockId, Edge};

fn unreachable() -> Client {
    // Nobody listens on it: nothing can be sent.
    let builder = Client::builder().endpoints(["127.0.0.1:1"]);
    builder.connect_lazy().unwrap()
}

#[tokio::test]
async fn what_it_has_written_is_read_without_a_server() {
    let mut tx = unreachable().begin();
    let (a, b) = (BlockId(1), BlockId(2));
    tx.put("k", "v").unwrap();
    tx.put_block(Block::new(a, "node"));
    tx.put_edge(Edge::new(a, "tie", b));
    assert_eq!(tx.get("k").await.unwrap().unwrap(), "v");
    assert_eq!(tx.block(a).await.unwrap().unwrap().kinds, "node");
    assert!(tx.edge(a, "tie", b).await.unwrap().is_some());
    assert!(tx.delete("k").await.unwrap());
    assert!(!tx.delete("k").await.unwrap());
    assert!(tx.delete_block(a).await.unwrap());
    assert!(
        tx.edge(a, "tie", b).await.unwrap().is_none(),
        "it went with its block"
    );
    assert!(matches!(tx.put("", "v"), Err(Error::EmptyKey)));
    assert_eq!(tx.read_revision(), None);
}

#[tokio::test]
async fn a_transaction_without_writes_is_not_sent() {
    let tx = unreachable().begin();
    let done = tx.commit().await.unwrap();
    assert_eq!((done.revision, done.changed), (None, false));
}

/// Sent again, it could be done twice: the second would conflict with nothing, as the first has read
/// before.
#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_not_sent_again() {
    let (address, taken) = crate::silent::silent_server(b"KEYOFTX").await;
    let builder = Client::builder().endpoints([address.clone(), address]);
    let client = builder.connect_lazy().unwrap();
    let mut runs = 0;
    let done = client
        .transact(async |tx| {
            runs += 1;
            tx.put("KEYOFTX", "v")
        })
        .await;
    assert!(
        matches!(done, Err(Error::UnknownOutcome { .. })),
        "{done:?}"
    );
    let taken = taken.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!((runs, taken), (1, 1));
}

#[tokio::test]
async fn an_error_of_the_body_is_given_back_at_once() {
    let mut runs = 0;
    let done: Result<()> = unreachable()
        .transact(async |_| {
            runs += 1;
            Err(Error::KeyNotFound)
        })
        .await;
    assert!(matches!(done, Err(Error::KeyNotFound)));
    assert_eq!(runs, 1);
}

/// A client that takes a conflict for a commit has lost an update.
#[test]
fn a_conflict_is_an_error_and_not_a_commit() {
    let of = |outcome| {
        let header = Some(pb::Header {
            revision: 9,
            ..pb::Header::default()
        });
        committed(pb::CommitReply { header, outcome }, Some(Revision::new(5)))
    };
    let conflict = pb::Conflict {
        what: Some(What::Key("k".into())),
        revision: 8,
    };
    assert!(matches!(
        of(Some(Outcome::Conflict(conflict))),
        Err(Error::Conflict {
            revision,
            snapshot,
            ..
        }) if revision == 8 && snapshot == 5
    ));
    let mismatch = pb::Mismatch {
        key: "k".into(),
        expected: 3,
        actual: 4,
    };
    assert!(matches!(
        of(Some(Outcome::Mismatch(mismatch))),
        Err(Error::CompareFailed {
            expected,
            actual,
            ..
        }) if expected == Expected::Revision(Revision::new(3)) && actual == Some(Revision::new(4))
    ));
    assert!(matches!(of(None), Err(Error::UnknownOutcome { .. })));
}
