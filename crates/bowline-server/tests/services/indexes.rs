//! Indexes of blocks over the network: who may have them and see them, what reads by them, and what they refuse.

use std::time::Duration;

use bowline::Db;
use bowline_client::graph::{Attributes, Block, BlockId};
use bowline_client::{Client, Error, Index};
use bowline_proto::v1 as pb;
use pb::graph_client::GraphClient;
use pb::indexes_client::IndexesClient;
use pb::roles_client::RolesClient;
use tonic::{Code, Response, Status};

use crate::support::{Running, start};
use crate::users::{denied, enable, refusal};

fn client(running: &Running) -> Client {
    let client = Client::builder().endpoints([running.address()]);
    client.connect_lazy().unwrap()
}

/// Repeats a creation. A member that has just started announces the commands that it knows in a moment.
async fn once_known<T>(create: impl AsyncFn() -> Result<T, Error>) -> T {
    loop {
        match create().await {
            Ok(created) => return created,
            Err(error) if error.to_string().contains("needs version") => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn person(id: u128, name: &str) -> Block {
    Block::new(BlockId(id), "person").attribute("name", name)
}

async fn plan(client: &Client) -> String {
    let text = "MATCH (p:person) WHERE p.name = 'Ada' RETURN p.name";
    let explained = client.query(text, &Attributes::new()).explain().await;
    explained.unwrap().plan.unwrap()
}

/// The same blocks, and the same indexes, of the library: its errors.
fn of_library(change: impl FnOnce(&Db) -> bowline::Result<()>) -> String {
    let db = Db::in_memory().unwrap();
    for (id, name) in [(1, "Ada"), (2, "Ada"), (3, "Alan")] {
        let put = db.transact(|tx| tx.put_block(&person(id, name)));
        put.unwrap();
    }
    change(&db).unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_is_created_listed_read_by_and_dropped() {
    let running = start(&[]).await;
    let client = client(&running);
    for (id, name) in [(1, "Ada"), (2, "Ada"), (3, "Alan")] {
        client.graph().put_block(person(id, name)).await.unwrap();
    }
    assert!(client.indexes().await.unwrap().is_empty());
    let index = once_known(async || client.create_index("person", ["name"]).await).await;
    let since = index.ready_since.expect("it is complete");
    let expected = |kind: &str, attributes: &[&str], is_unique, since| Index {
        kind: kind.to_owned(),
        attributes: attributes.iter().map(|&name| name.to_owned()).collect(),
        is_unique,
        ready_since: since,
    };
    assert_eq!(index, expected("person", &["name"], false, Some(since)));
    assert!(plan(&client).await.contains("Seek"));
    let text = "MATCH (p:person) WHERE p.name = 'Ada' RETURN count(*)";
    let found = client.query(text, &Attributes::new()).await.unwrap();
    assert_eq!(found.rows[0][0].as_int(), Some(2));
    // Again: it is there.
    assert_eq!(
        client.create_index("person", ["name"]).await.unwrap(),
        index
    );
    let second = client.create_unique_index("host", ["rack", "slot"]).await;
    let second = second.unwrap();
    assert!(second.is_unique && second.ready_since > index.ready_since);
    assert_eq!(client.indexes().await.unwrap(), [index, second]);

    let exists = client.create_unique_index("person", ["name"]).await;
    let in_library = of_library(|db| {
        db.create_index("person", ["name"])?;
        db.create_unique_index("person", ["name"]).map(drop)
    });
    assert!(
        matches!(&exists, Err(Error::IndexExists { message }) if *message == in_library),
        "{exists:?}"
    );
    let invalid = client.create_index("person", ["name", "name"]).await;
    let in_library = of_library(|db| db.create_index("person", ["name", "name"]).map(drop));
    assert!(
        matches!(&invalid, Err(Error::Refused { message }) if *message == in_library),
        "{invalid:?}"
    );
    let invalid = client.create_index("", ["name"]).await;
    assert!(matches!(invalid, Err(Error::Refused { .. })), "{invalid:?}");

    client.drop_index("person", ["name"]).await.unwrap();
    assert!(!plan(&client).await.contains("Seek"));
    assert_eq!(client.indexes().await.unwrap().len(), 1);
    let dropped = client.drop_index("person", ["name"]).await;
    let in_library = of_library(|db| db.drop_index("person", ["name"]));
    assert!(
        matches!(&dropped, Err(Error::NotFound { message }) if *message == in_library),
        "{dropped:?}"
    );
    let dropped = client.drop_index("host", ["slot", "rack"]).await;
    assert!(
        matches!(dropped, Err(Error::NotFound { .. })),
        "{dropped:?}"
    );
}

/// A put, a commit and a query that would give a block the values of another one, each with both blocks in its error.
#[tokio::test(flavor = "multi_thread")]
async fn a_unique_index_refuses_equal_values_whichever_way_they_come() {
    let running = start(&[]).await;
    let client = client(&running);
    client.graph().put_block(person(1, "Ada")).await.unwrap();
    once_known(async || client.create_unique_index("person", ["name"]).await).await;
    let before = client.status().await.unwrap().header.revision;
    let in_library = of_library(|db| {
        db.transact(|tx| tx.delete_block(BlockId(2)).map(drop))?;
        db.create_unique_index("person", ["name"])?;
        db.transact(|tx| tx.put_block(&person(2, "Ada")))
    });
    let is_refused = |refused: Error, written: Option<BlockId>| {
        let Error::NotUnique {
            kind,
            attributes,
            block,
            other: BlockId(1),
        } = &refused
        else {
            panic!("{refused:?}")
        };
        assert_eq!((&**kind, &**attributes), ("person", "name"));
        if let Some(written) = written {
            assert_eq!(*block, written);
            assert_eq!(refused.to_string(), in_library);
        }
    };
    let put = client.graph().put_block(person(2, "Ada")).await;
    is_refused(put.unwrap_err(), Some(BlockId(2)));
    let mut tx = client.begin();
    tx.put("beside", "it").unwrap();
    tx.put_block(person(2, "Ada"));
    is_refused(tx.commit().await.unwrap_err(), Some(BlockId(2)));
    let text = "CREATE (:person {name: 'Ada'})";
    let query = client.query(text, &Attributes::new()).await;
    is_refused(query.unwrap_err(), None);
    // Nothing was written, not even beside it.
    assert_eq!(client.status().await.unwrap().header.revision, before);
    assert!(client.get("beside").await.unwrap().value().is_none());

    // By its code, for those who know no details.
    let mut graph = GraphClient::new(client.channel());
    let block = pb::Block {
        id: BlockId(2).to_bytes().to_vec().into(),
        kind: "person".to_owned(),
        attributes: [("name".to_owned(), "Ada".to_owned())].into(),
        ..pb::Block::default()
    };
    let write = pb::GraphWrite {
        write: Some(pb::graph_write::Write::PutBlock(block)),
    };
    let writes = vec![write];
    let refused = refusal(graph.write(pb::WriteRequest { writes }).await);
    assert_eq!(refused, (Code::FailedPrecondition, in_library.clone()));

    // Without the index both may be there, and then no such index can be created.
    client.drop_index("person", ["name"]).await.unwrap();
    client.graph().put_block(person(2, "Ada")).await.unwrap();
    let created = client.create_unique_index("person", ["name"]).await;
    let in_library = of_library(|db| db.create_unique_index("person", ["name"]).map(drop));
    assert!(
        matches!(&created, Err(Error::Refused { message }) if *message == in_library),
        "{created:?}"
    );
    assert!(client.indexes().await.unwrap().is_empty());
    client.create_index("person", ["name"]).await.unwrap();
}

/// Only root creates and drops; a list has the indexes of kinds that the caller may read.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_has_only_the_indexes_of_kinds_that_one_may_read() {
    let running = start(&[]).await;
    let open = client(&running);
    once_known(async || open.create_index("person", ["name"]).await).await;
    open.create_index("secret", ["name"]).await.unwrap();
    let channel = running.channel().await;
    let (_, root, ann) = enable(&channel).await;
    let mut indexes = IndexesClient::new(channel.clone());
    let kinds = |listed: Result<Response<pb::IndexListReply>, Status>| {
        let indexes = listed.unwrap().into_inner().indexes;
        let kinds = indexes.into_iter().map(|index| index.kind);
        kinds.collect::<Vec<_>>()
    };
    let request = pb::IndexListRequest {};
    let listed = indexes.list(root.of(request)).await;
    assert_eq!(kinds(listed), ["person", "secret"]);
    let listed = indexes.list(ann.of(request)).await;
    assert_eq!(kinds(listed), [""; 0]);
    let permission = pb::KindPermission {
        access: pb::Access::Read.into(),
        prefix: "pers".to_owned(),
    };
    let grant = pb::GrantKindsRequest {
        role: "a".to_owned(),
        permission: Some(permission),
    };
    let mut roles = RolesClient::new(channel);
    roles.grant_kinds(root.of(grant)).await.unwrap();
    let listed = indexes.list(ann.of(request)).await;
    assert_eq!(kinds(listed), ["person"]);
    let create = pb::IndexCreateRequest {
        kind: "person".to_owned(),
        attributes: vec!["age".to_owned()],
        unique: false,
    };
    let created = indexes.create(ann.of(create)).await;
    assert_eq!(refusal(created), denied());
    let dropped = pb::IndexDropRequest {
        kind: "person".to_owned(),
        attributes: vec!["name".to_owned()],
    };
    let of_ann = indexes.drop(ann.of(dropped.clone())).await;
    assert_eq!(refusal(of_ann), denied());
    indexes.drop(root.of(dropped)).await.unwrap();
    let listed = indexes.list(ann.of(request)).await;
    assert_eq!(kinds(listed), [""; 0]);
}
