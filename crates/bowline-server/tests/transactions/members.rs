//! Three members: a commit through any of them, and the graph.

use bowline::Revision;
use bowline_client::graph::{Block, BlockId, Direction, Edge};
use bowline_client::{Client, Error, KeyRange, ReadLevel, TransactionOptions};

use crate::{Cluster, number};

/// Waits until a member has a revision.
async fn reaches(client: &Client, revision: u64) {
    let deadline = std::time::Instant::now() + crate::PATIENCE;
    loop {
        let got = client.get("any").level(ReadLevel::Eventual).await.unwrap();
        if got.header.revision >= revision {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "it does not follow");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_count_is_lost_whichever_member_is_asked() {
    let cluster = Cluster::start(3).await;
    let mut writers = tokio::task::JoinSet::new();
    let levels = [
        ReadLevel::Linearizable,
        ReadLevel::Lease,
        ReadLevel::Eventual,
    ];
    for (member, level) in (0..3).zip(levels) {
        for _ in 0..2 {
            let client = cluster.client_of(member);
            writers.spawn(async move {
                for _ in 0..8 {
                    let options = TransactionOptions::default().level(level);
                    client
                        .transact_with(options, async |tx| {
                            let count = number(tx.get("count").await?);
                            let log = tx.range(KeyRange::prefix("log/")).await?;
                            assert_eq!(log.len() as u64, count, "not of one revision");
                            tx.put("count", (count + 1).to_string())?;
                            tx.put(format!("log/{count:03}"), "by me")
                        })
                        .await
                        .unwrap();
                }
            });
        }
    }
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
    for member in 0..3 {
        let client = cluster.client_of(member);
        let count = client.get("count").await.unwrap();
        assert_eq!(count.value().unwrap(), b"48");
        // No commit was done twice, none was lost.
        assert_eq!(count.entry().unwrap().version, 48);
        let log = client.range(KeyRange::prefix("log/")).await.unwrap();
        assert!(log.count == 48 && log.entries.iter().all(|entry| entry.version == 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_a_block_and_an_edge_have_one_revision_on_every_member() {
    let cluster = Cluster::start(3).await;
    let writer = cluster.client_of(cluster.follower().await);
    let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
    let mut watches = Vec::new();
    for member in 0..3 {
        let client = cluster.client_of(member);
        watches.push(
            client
                .watch(KeyRange::prefix("pkg/"))
                .from(Revision::new(2))
                .await
                .unwrap(),
        );
    }
    let mut tx = writer.begin();
    assert!(tx.get("pkg/app").await.unwrap().is_none());
    tx.put("pkg/app", "1").unwrap();
    tx.put("pkg/lib", "1").unwrap();
    tx.put_block(Block::new(app, "package"));
    tx.put_block(Block::new(lib, "package"));
    tx.put_edge(Edge::new(app, "uses", lib));
    let before = tx.read_revision().unwrap();
    let revision = tx.commit().await.unwrap().revision.unwrap();
    assert_eq!(revision, before + 1);
    for (member, mut watch) in watches.into_iter().enumerate() {
        let batch = watch.next().await.unwrap().unwrap();
        assert_eq!((batch.revision, batch.events.len()), (revision, 2));
        let client = cluster.client_of(member);
        let graph = client.graph();
        for (revision, is_there) in [(before, false), (revision, true)] {
            let key = client.get("pkg/app").revision(revision).await.unwrap();
            assert_eq!(key.entry().is_some(), is_there);
            let blocks = graph.blocks([app, lib]).revision(revision).await.unwrap();
            assert_eq!(blocks.blocks.len(), if is_there { 2 } else { 0 });
            let key = Edge::new(app, "uses", lib).key();
            let edges = graph.edges([key]).revision(revision).await.unwrap();
            assert_eq!(edges.edges.len(), usize::from(is_there));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_reads_at_one_member_and_commits_through_another() {
    let cluster = Cluster::start(3).await;
    let mut clients = Vec::new();
    for member in 0..3 {
        clients.push(cluster.client_of(member));
    }
    clients[0].put("k", "1").await.unwrap();
    // Who has read elsewhere has read the same: a conflict is one wherever it is committed.
    let mut stale: Vec<_> = clients.iter().map(Client::begin).collect();
    for tx in &mut stale {
        assert_eq!(tx.get("k").await.unwrap().unwrap(), "1");
    }
    let mut outcomes = Vec::new();
    for mut tx in stale {
        tx.put("k", "2").unwrap();
        outcomes.push(tx.commit().await);
    }
    assert!(
        outcomes[0].is_ok(),
        "the first to commit wins: {outcomes:?}"
    );
    for lost in &outcomes[1..] {
        assert!(matches!(lost, Err(Error::Conflict { .. })), "{lost:?}");
    }
    assert_eq!(
        clients[1].get("k").await.unwrap().entry().unwrap().version,
        2
    );
}

/// The service was tested on one member only: here it is written through a follower, and read at each
/// level from each.
#[tokio::test(flavor = "multi_thread")]
async fn the_graph_is_written_through_a_follower_and_read_at_each_level() {
    let cluster = Cluster::start(3).await;
    let follower = cluster.follower().await;
    let writer = cluster.client_of(follower).graph();
    let ids: Vec<_> = (1..=4).map(BlockId).collect();
    for id in &ids {
        writer.put_block(Block::new(*id, "node")).await.unwrap();
    }
    let mut last = Revision::ZERO;
    for pair in ids.windows(2) {
        let done = writer.put_edge(Edge::new(pair[0], "next", pair[1])).await;
        last = done.unwrap().header.revision;
    }
    let levels = [
        ReadLevel::Linearizable,
        ReadLevel::Lease,
        ReadLevel::Eventual,
    ];
    for member in 0..3 {
        let client = cluster.client_of(member);
        for level in levels {
            if level == ReadLevel::Eventual {
                // It promises no more than what the member has applied.
                reaches(&client, last.get()).await;
            }
            let graph = client.graph();
            let walk = graph.traverse(ids[0]).level(level).await.unwrap();
            assert_eq!(walk.visits.len(), 4, "member {member}, {level}");
            assert_eq!(walk.header.read_level, Some(level));
            assert!(walk.header.revision >= last);
            let near = graph.neighbors(ids[1]).direction(Direction::Both);
            assert_eq!(near.level(level).await.unwrap().neighbors.len(), 2);
        }
    }
    writer.delete_block(ids[1]).await.unwrap();
    for member in 0..3 {
        let graph = cluster.client_of(member).graph();
        let walk = graph.traverse(ids[0]).await.unwrap();
        assert_eq!(
            walk.visits.len(),
            1,
            "acknowledged, so seen by member {member}"
        );
        let then = graph
            .traverse(ids[0])
            .revision(Revision::new(last.get()))
            .await
            .unwrap();
        assert_eq!(then.visits.len(), 4);
    }
    indexes_are_of_all_members(&cluster, follower).await;
}

/// An index that was created through a follower is there on each member, and each refuses what it does not allow.
async fn indexes_are_of_all_members(cluster: &Cluster, follower: usize) {
    let client = cluster.client_of(follower);
    let index = loop {
        match client.create_unique_index("node", ["name"]).await {
            Err(error) if error.to_string().contains("needs version") => {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            created => break created.unwrap(),
        }
    };
    let ada = |id| Block::new(BlockId(id), "node").attribute("name", "Ada");
    client.graph().put_block(ada(11)).await.unwrap();
    for member in 0..3 {
        let client = cluster.client_of(member);
        assert_eq!(
            client.indexes().await.unwrap(),
            std::slice::from_ref(&index)
        );
        let put = client.graph().put_block(ada(12)).await;
        assert!(
            matches!(
                put,
                Err(Error::NotUnique {
                    block: BlockId(12),
                    other: BlockId(11),
                    ..
                })
            ),
            "{member}: {put:?}"
        );
    }
    client.drop_index("node", ["name"]).await.unwrap();
    for member in 0..3 {
        let client = cluster.client_of(member);
        assert_eq!(client.indexes().await.unwrap(), []);
    }
    client.graph().put_block(ada(12)).await.unwrap();
}
