//! Keys, values and transactions.

use bowline_client::{Compare, Error, KeyRange, Operation, OperationReply, ReadLevel, SortBy};
use bowline_testing::lease_id;

use crate::with_cluster;

#[test]
fn what_is_put_is_read_at_every_level_and_revision() {
    with_cluster(1, |cluster| async move {
        let client = cluster.client().await;
        let first = client.put("k", "one").await.unwrap().header.revision;
        let put = client.put("k", "two").previous().await.unwrap();
        assert_eq!(put.header.revision, first + 1);
        assert_eq!(put.previous.unwrap().value, "one");
        for level in [
            ReadLevel::Linearizable,
            ReadLevel::Lease,
            ReadLevel::Eventual,
        ] {
            let read = client.get("k").level(level).await.unwrap();
            assert_eq!(read.value(), Some(&b"two"[..]), "{level}");
            let entry = read.entry().unwrap();
            assert_eq!((entry.version, entry.create_revision), (2, first));
            assert_eq!(entry.mod_revision, first + 1);
        }
        let old = client.get("k").revision(first).await.unwrap();
        assert_eq!(old.value(), Some(&b"one"[..]));
        assert_eq!(client.get("absent").await.unwrap().entry(), None);

        let deleted = client.delete("k").previous().await.unwrap();
        assert_eq!(
            (deleted.deleted, &deleted.previous[0].value[..]),
            (1, &b"two"[..])
        );
        assert_eq!(client.delete("k").await.unwrap().deleted, 0);
    });
}

#[test]
fn ranges_have_limits_orders_and_counts() {
    with_cluster(1, |cluster| async move {
        let client = cluster.client().await;
        for (key, value) in [("a", "4"), ("b/1", "3"), ("b/2", "2"), ("c", "1")] {
            client.put(key, value).await.unwrap();
        }
        let keys = |reply: &bowline_client::RangeReply| -> Vec<String> {
            let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
            reply.entries.iter().map(|entry| text(&entry.key)).collect()
        };
        let prefix = client.get("b/").prefix().await.unwrap();
        assert_eq!(keys(&prefix), ["b/1", "b/2"]);
        let all = client
            .range(KeyRange::all())
            .descending(SortBy::Key)
            .limit(3)
            .await
            .unwrap();
        assert_eq!(
            (keys(&all), all.more, all.count),
            (vec!["c".into(), "b/2".into(), "b/1".into()], true, 4)
        );
        let by_value = client
            .range("a".."c")
            .ascending(SortBy::Value)
            .await
            .unwrap();
        assert_eq!(keys(&by_value), ["b/2", "b/1", "a"]);
        let bare = client.range("b"..).keys_only().await.unwrap();
        assert!(bare.entries.iter().all(|entry| entry.value.is_empty()));
        assert_eq!(keys(&bare), ["b/1", "b/2", "c"]);
        let count = client.range(KeyRange::all()).count_only().await.unwrap();
        assert_eq!((count.entries.len(), count.count), (0, 4));
        let newest = prefix.entries[1].mod_revision;
        let modified = client
            .range(KeyRange::all())
            .modified(newest..=newest)
            .await
            .unwrap();
        assert_eq!(keys(&modified), ["b/2"]);
        assert_eq!(client.range("a".."").await.unwrap().count, 0);
        assert_eq!(client.delete("b/").prefix().await.unwrap().deleted, 2);
    });
}

#[test]
fn transactions_choose_a_branch_and_share_a_revision() {
    with_cluster(1, |cluster| async move {
        let client = cluster.client().await;
        let create = || {
            client
                .txn()
                .when([Compare::create_revision("leader").equals(None)])
                .then([Operation::put("leader", "a"), Operation::put("term", "1")])
                .otherwise([Operation::get("leader")])
        };
        let won = create().await.unwrap();
        assert!(won.succeeded);
        let entries = client.range(KeyRange::all()).await.unwrap().entries;
        assert!(
            entries
                .iter()
                .all(|entry| entry.mod_revision == won.header.revision)
        );
        let lost = create().await.unwrap();
        assert!(!lost.succeeded);
        let OperationReply::Get(read) = &lost.replies[0] else {
            panic!("{lost:?}")
        };
        assert_eq!(read.value(), Some(&b"a"[..]));

        // Every key of a range, and a transaction within.
        let nested = client
            .txn()
            .when([Compare::version(KeyRange::all()).equals(1)])
            .then([Operation::txn(
                [Compare::value("term").is_above("0")],
                [
                    Operation::delete("term").previous(),
                    Operation::put("leader", "b"),
                ],
                [],
            )])
            .await
            .unwrap();
        let OperationReply::Txn(inner) = &nested.replies[0] else {
            panic!("{nested:?}")
        };
        assert!(inner.succeeded);
        assert!(matches!(&inner.replies[0], OperationReply::Delete(reply) if reply.deleted == 1));

        let twice = [Operation::put("k", "1"), Operation::put("k", "2")];
        let error = client.txn().then(twice).await.unwrap_err();
        assert!(matches!(error, Error::DuplicateKey), "{error:?}");
        let many = (0..200).map(|n| Operation::put(format!("k{n}"), ""));
        let error = client.txn().then(many).await.unwrap_err();
        assert!(matches!(error, Error::TooManyOperations), "{error:?}");
    });
}

/// `Compare::lease` gave a comparison without a method: since ids of leases are a type of their own, no program
/// could use it. Found by writing its example.
#[test]
fn the_lease_of_a_key_is_compared() {
    with_cluster(1, |cluster| async move {
        let client = cluster.client().await;
        let ttl = std::time::Duration::from_secs(60);
        client.grant_lease_with_id(lease_id(7), ttl).await.unwrap();
        client.put("free", "").await.unwrap();
        client.put("held", "").lease(lease_id(7)).await.unwrap();
        let holds = async |compare: Compare| {
            let reply = client.txn().when([compare]).await.unwrap();
            reply.succeeded
        };
        let (free, held) = (|| Compare::lease("free"), || Compare::lease("held"));
        assert!(holds(free().equals(None)).await && !holds(held().equals(None)).await);
        assert!(holds(held().equals(Some(lease_id(7)))).await);
        assert!(holds(held().differs_from(Some(lease_id(8)))).await);
        assert!(
            holds(held().is_above(None)).await && holds(free().is_below(Some(lease_id(7)))).await
        );
    });
}

#[test]
fn refusals_have_types() {
    with_cluster(1, |cluster| async move {
        let client = cluster.client().await;
        let revision = client.put("k", "v").await.unwrap().header.revision;
        client.put("k", "w").await.unwrap();
        client.trim_history(revision + 1, true).await.unwrap();

        let error = client.get("k").revision(revision).await.unwrap_err();
        assert!(matches!(error, Error::Compacted { .. }), "{error:?}");
        let error = client.get("k").revision(revision + 100).await.unwrap_err();
        assert!(matches!(error, Error::FutureRevision), "{error:?}");
        let error = client.trim_history(revision, false).await.unwrap_err();
        assert!(matches!(error, Error::Compacted { .. }), "{error:?}");
        let error = client.put("", "v").await.unwrap_err();
        assert!(matches!(error, Error::EmptyKey), "{error:?}");
        let error = client
            .put("k", "v")
            .lease(lease_id(12345))
            .await
            .unwrap_err();
        assert!(matches!(error, Error::LeaseNotFound), "{error:?}");
        let error = client.put("absent", "").ignore_value().await.unwrap_err();
        assert!(matches!(error, Error::KeyNotFound), "{error:?}");
        let error = client.put("k", "v").ignore_value().await.unwrap_err();
        assert!(matches!(error, Error::ValueProvided), "{error:?}");
        // Above what the server takes, and above what the client sends.
        for bytes in [1_800_000, 3_000_000] {
            let error = client.put("k", vec![0; bytes]).await.unwrap_err();
            assert!(
                matches!(error, Error::RequestTooLarge),
                "{bytes}: {error:?}"
            );
        }
        assert_eq!(client.get("k").await.unwrap().value(), Some(&b"w"[..]));
    });
}
