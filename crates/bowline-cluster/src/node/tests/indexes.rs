//! Indexes of blocks over members: created through any of them, built on by the leader when who asked has gone, equal on all.

use super::*;

use bowline::{Block, BlockId, Filter};
use bowline_replica::{Caller, GraphWrite, IndexRefusal};

const PROCESS: Caller = Caller::Process;

fn person(id: u128, name: &str) -> GraphWrite {
    GraphWrite::PutBlock(Block::new(BlockId(id), "person").attribute("name", name))
}

fn name() -> Vec<String> {
    vec!["name".to_owned()]
}

fn named(client: &LocalClient, name: &str) -> (bool, usize) {
    let graph = client.db().snapshot().graph();
    let found = graph.blocks("person").filter("name", Filter::equals(name));
    (found.index().is_some(), found.ids().unwrap().len())
}

/// Three members that all know of one another that they know of indexes: a cluster that has just begun does not yet.
async fn three() -> Three {
    let three = Three::start(|_| {}).await;
    let version = u32::from(bowline_replica::COMMAND_VERSION);
    eventually("all versions are announced", || {
        (0..3).all(|number| {
            let members = three.client(number).core().membership();
            let know = members
                .nodes()
                .filter(|(_, member)| member.command_version == version);
            know.count() == 3
        })
    })
    .await;
    three
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_is_created_and_dropped_through_any_member() {
    let three = three().await;
    let leader = three.leader().await;
    let (follower, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let client = three.client(follower);
    let people = (0..600).map(|id| person(id, ["Ada", "Bob"][id as usize % 2]));
    surely(&client, &Command::Graph(people.collect())).await;
    let by = client.by(&PROCESS);
    let applied = by.create_index("person".to_owned(), name(), false).await;
    applied.expect("it is built");
    surely(
        &three.client(other),
        &Command::Graph(vec![person(600, "Ada")]),
    )
    .await;
    three.assert_equal().await;
    for number in 0..3 {
        let client = three.client(number);
        assert_eq!(named(&client, "Ada"), (true, 301));
        assert_eq!(client.indexes().len(), 1);
        assert!(client.db().check().unwrap().is_clean());
    }
    // A unique one that cannot be names the blocks, and is gone.
    let kind = || "person".to_owned();
    let both = || vec!["name".to_owned()];
    let refused = by.create_index(kind(), both(), true).await.unwrap_err();
    assert!(matches!(
        refused,
        Error::Refused(Refusal::Index(IndexRefusal::Exists { .. }))
    ));
    by.drop_index(kind(), name()).await.expect("it exists");
    let refused = by.create_index(kind(), both(), true).await.unwrap_err();
    let Error::Refused(Refusal::Index(IndexRefusal::BuiltNotUnique { pairs, .. })) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(pairs.len(), 10);
    let refused = by.drop_index(kind(), name()).await.unwrap_err();
    assert!(matches!(
        refused,
        Error::Refused(Refusal::Index(IndexRefusal::NotFound { .. }))
    ));
    // The leader clears both.
    eventually("all entries are deleted", || {
        (0..3).all(|number| !three.client(number).core().replica.has_indexes())
    })
    .await;
    three.assert_equal().await;
    three.shutdown().await;
}

/// Whoever registered the index has gone, and so has the leader.
#[tokio::test(flavor = "multi_thread")]
async fn the_leader_goes_on_with_an_index_that_nobody_builds() {
    let mut three = three().await;
    let leader = three.leader().await;
    let client = three.client((leader + 1) % 3);
    let people = (0..600).map(|id| person(id, "Ada"));
    surely(&client, &Command::Graph(people.collect())).await;
    let create = bowline_replica::IndexChange::Create {
        kind: "person".to_owned(),
        attributes: name(),
        is_unique: false,
    };
    surely(&client, &Command::Index(create)).await;
    three.stop(leader).await;
    let running: Vec<usize> = (0..3).filter(|number| *number != leader).collect();
    eventually("it is built", || {
        running.iter().all(|number| {
            let indexes = three.client(*number).indexes();
            indexes.iter().all(|index| index.ready_since.is_some())
        })
    })
    .await;
    for number in running {
        assert_eq!(named(&three.client(number), "Ada"), (true, 600));
    }
    // The member that was away gets it, too.
    let config = three.configs[leader].clone();
    three.nodes[leader] = Some(start(&config).await);
    three.assert_equal().await;
    assert_eq!(named(&three.client(leader), "Ada"), (true, 600));
    three.shutdown().await;
}
