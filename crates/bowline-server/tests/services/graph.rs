//! `bowline.v1.Graph`: writes, reads at each level and revision, bounds, and what is refused.

use bowline_proto::v1 as pb;
use bytes::Bytes;
use pb::graph_client::GraphClient;
use pb::graph_write::Write;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use crate::plain_http::{get, value};
use crate::support::{Running, start};

async fn graph(running: &Running) -> GraphClient<Channel> {
    GraphClient::new(running.channel().await)
}

fn id(number: u128) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn key(source: u128, kind: &str, target: u128) -> pb::EdgeKey {
    pb::EdgeKey {
        source: id(source),
        kind: kind.to_owned(),
        target: id(target),
    }
}

fn block(number: u128) -> Write {
    Write::PutBlock(pb::Block {
        id: id(number),
        kind: "b".to_owned(),
        content: number.to_string().into(),
        attributes: [("name".to_owned(), format!("n{}", number % 10))].into(),
        ..pb::Block::default()
    })
}

fn edge(source: u128, kind: &str, target: u128) -> Write {
    Write::PutEdge(pb::Edge {
        key: Some(key(source, kind, target)),
        ..pb::Edge::default()
    })
}

fn request(writes: impl IntoIterator<Item = Write>) -> pb::WriteRequest {
    let write = |write| pb::GraphWrite { write: Some(write) };
    pb::WriteRequest {
        writes: writes.into_iter().map(write).collect(),
    }
}

async fn write(
    graph: &mut GraphClient<Channel>,
    writes: impl IntoIterator<Item = Write>,
) -> Result<pb::WriteReply, Status> {
    Ok(graph.write(request(writes)).await?.into_inner())
}

/// A path of so many blocks, from 1 on, by edges of the kind `next`.
async fn path(graph: &mut GraphClient<Channel>, blocks: u128) -> u64 {
    let edges = (1..blocks).map(|number| edge(number, "next", number + 1));
    let all = (1..=blocks).map(block).chain(edges);
    let reply = write(graph, all).await.unwrap();
    reply.header.unwrap().revision
}

fn at(revision: u64) -> Option<pb::Read> {
    Some(pb::Read { level: 0, revision })
}

fn refused<T: std::fmt::Debug>(answer: Result<T, Status>) -> (Code, String) {
    let status = answer.unwrap_err();
    (status.code(), status.message().to_owned())
}

async fn all<T>(mut stream: Streaming<T>) -> Vec<T> {
    let mut parts = Vec::new();
    while let Some(part) = stream.message().await.unwrap() {
        parts.push(part);
    }
    parts
}

async fn traverse(
    graph: &mut GraphClient<Channel>,
    request: pb::TraverseRequest,
) -> (Vec<pb::Visit>, pb::TraverseEnd) {
    let parts = all(graph.traverse(request).await.unwrap().into_inner()).await;
    assert!(parts[0].header.is_some(), "the first part has the header");
    let end = parts.last().unwrap().end.unwrap();
    (
        parts.into_iter().flat_map(|part| part.visits).collect(),
        end,
    )
}

fn from(start: u128) -> pb::TraverseRequest {
    pb::TraverseRequest {
        starts: vec![id(start)],
        ..pb::TraverseRequest::default()
    }
}

#[tokio::test]
async fn a_batch_of_writes_has_one_revision_and_is_whole_or_not_at_all() {
    let running = start(&[]).await;
    let mut graph = graph(&running).await;
    let revision = path(&mut graph, 3).await;
    let reply = write(
        &mut graph,
        [
            block(4),
            Write::DeleteEdge(key(1, "next", 2)),
            Write::DeleteEdge(key(1, "next", 2)),
            Write::DeleteBlock(id(9)),
            edge(3, "next", 4),
        ],
    )
    .await
    .unwrap();
    assert_eq!(reply.changed, [true, true, false, false, true]);
    let header = reply.header.unwrap();
    assert_eq!(header.revision, revision + 1);
    assert!(header.cluster_id != 0 && header.member_id != 0 && header.raft_term != 0);
    assert!(header.applied_index > 0);

    // An edge to a block that does not exist takes the rest of its request with it.
    let (code, text) = refused(write(&mut graph, [block(5), edge(5, "next", 6)]).await);
    assert_eq!(code, Code::NotFound);
    let said = "block 00000000-0000-0000-0000-000000000006 does not exist: put it first";
    assert!(text.starts_with(said), "{text}");
    let asked = pb::GetBlocksRequest {
        ids: vec![id(5), id(4), id(77), id(1)],
        ..pb::GetBlocksRequest::default()
    };
    let reply = graph.get_blocks(asked).await.unwrap().into_inner();
    let found: Vec<_> = reply
        .blocks
        .iter()
        .map(|block| &block.content[..])
        .collect();
    assert_eq!(found, [&b"4"[..], b"1"]);
    assert_eq!(reply.answered, 4);
    assert_eq!(reply.header.unwrap().read_revision, revision + 1);

    // A block takes its edges with it.
    let reply = write(&mut graph, [Write::DeleteBlock(id(3))])
        .await
        .unwrap();
    assert_eq!(reply.changed, [true]);
    let asked = pb::GetEdgesRequest {
        keys: vec![key(2, "next", 3), key(3, "next", 4)],
        ..pb::GetEdgesRequest::default()
    };
    let reply = graph.get_edges(asked.clone()).await.unwrap().into_inner();
    assert!(reply.edges.is_empty());
    let before = pb::GetEdgesRequest {
        read: at(revision + 1),
        ..asked
    };
    let reply = graph.get_edges(before).await.unwrap().into_inner();
    assert_eq!(reply.edges.len(), 2);
    running.server.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_read_is_served_at_the_level_and_the_revision_asked_for() {
    let running = start(&[]).await;
    let mut graph = graph(&running).await;
    let old = path(&mut graph, 2).await;
    let new = path(&mut graph, 4).await;
    for (level, name) in [
        (pb::ReadLevel::Linearizable, "linearizable"),
        (pb::ReadLevel::Lease, "lease"),
        (pb::ReadLevel::Eventual, "eventual"),
    ] {
        let request = pb::TraverseRequest {
            read: Some(pb::Read {
                level: level.into(),
                revision: old,
            }),
            ..from(1)
        };
        let answer = graph.traverse(request).await.unwrap();
        assert_eq!(answer.metadata().get("bowline-read").unwrap(), name);
        let parts = all(answer.into_inner()).await;
        let header = parts[0].header.unwrap();
        assert_eq!(header.read_level(), level);
        assert_eq!((header.read_revision, header.revision), (old, new));
        assert!(header.applied_index > 0);
        let visits: Vec<_> = parts.iter().flat_map(|part| &part.visits).collect();
        assert_eq!(visits.len(), 2, "as it was");
        assert_eq!((&visits[1].parent, &*visits[1].kind), (&id(1), "next"));
    }
    let (visits, end) = traverse(&mut graph, from(1)).await;
    assert_eq!((visits.len(), end.stop()), (4, pb::Stop::Exhausted));

    let listed = |revision| pb::ListBlocksRequest {
        read: at(revision),
        ..pb::ListBlocksRequest::default()
    };
    let (code, text) = refused(graph.list_blocks(listed(new + 1)).await);
    assert_eq!(code, Code::OutOfRange);
    assert_eq!(
        text,
        "etcdserver: mvcc: required revision is a future revision"
    );
    let compact = bowline_proto::etcdserverpb::CompactionRequest {
        revision: i64::try_from(new).unwrap(),
        physical: false,
    };
    running.kv().await.compact(compact).await.unwrap();
    let (code, text) = refused(graph.list_blocks(listed(old)).await);
    assert_eq!(code, Code::OutOfRange);
    assert_eq!(
        text,
        "etcdserver: mvcc: required revision has been compacted"
    );
    running.server.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_traversal_says_which_bound_stopped_it_and_whose_it_was() {
    let running = start(&[("max-traversal-blocks", "8")]).await;
    let mut graph = graph(&running).await;
    path(&mut graph, 9).await;
    let bounded = |limit, max_depth, max_bytes| pb::TraverseRequest {
        limit,
        max_depth,
        max_bytes,
        ..from(1)
    };
    for (request, count, stop, is_of_server) in [
        (bounded(None, None, None), 8, pb::Stop::Limit, true),
        (bounded(Some(100), None, None), 8, pb::Stop::Limit, true),
        (bounded(Some(8), None, None), 8, pb::Stop::Limit, false),
        (bounded(Some(3), None, None), 3, pb::Stop::Limit, false),
        (bounded(None, Some(2), None), 3, pb::Stop::MaxDepth, false),
        (bounded(None, None, Some(20)), 1, pb::Stop::MaxBytes, false),
        (bounded(Some(0), None, None), 0, pb::Stop::Limit, false),
    ] {
        let (visits, end) = traverse(&mut graph, request).await;
        assert_eq!(
            (visits.len(), end.stop(), end.is_of_server),
            (count, stop, is_of_server)
        );
    }
    // Edges that are not followed.
    write(&mut graph, [edge(1, "again", 3)]).await.unwrap();
    let cut = pb::TraverseRequest {
        max_neighbors: Some(0),
        ..from(1)
    };
    let (visits, end) = traverse(&mut graph, cut).await;
    assert_eq!((visits.len(), end.stop()), (1, pb::Stop::MaxNeighbors));
    let colored = pb::TraverseRequest {
        attributes: vec![pb::Attribute {
            name: "color".to_owned(),
            value: "red".to_owned(),
        }],
        ..from(1)
    };
    let (visits, end) = traverse(&mut graph, colored).await;
    assert_eq!((visits.len(), end.stop()), (1, pb::Stop::Exhausted));
    // What just fits is not stopped.
    let (visits, end) = traverse(&mut graph, from(2)).await;
    assert_eq!((visits.len(), end.stop()), (8, pb::Stop::Exhausted));
    assert!(!end.is_of_server);
    running.server.shutdown().await.unwrap();
}

/// A member builds the graph view once its queries have read enough, and entries change it; without memory for it,
/// the trees answer.
#[tokio::test]
async fn queries_have_the_graph_view_built_unless_it_has_no_memory() {
    for (bytes, has_view) in [("268435456", true), ("0", false)] {
        let running = start(&[("graph-view-bytes", bytes)]).await;
        let mut graph = graph(&running).await;
        path(&mut graph, 1_000).await;
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let mut asked = 0;
        loop {
            assert_eq!(traverse(&mut graph, from(1)).await.0.len(), 1_000);
            asked += 1;
            let metrics = get(&running, "/metrics").await.1;
            let edges = value(&metrics, "bowline_graph_view_edges");
            let is_empty = value(&metrics, "bowline_graph_view_bytes") < 1.0;
            assert_eq!(is_empty, edges < 1.0);
            if has_view && edges > 998.0 || !has_view && asked == 10 {
                assert_eq!(is_empty, !has_view);
                break;
            }
            assert!(std::time::Instant::now() < deadline, "{metrics}");
        }
        write(&mut graph, [block(5_000), edge(1_000, "next", 5_000)])
            .await
            .unwrap();
        assert_eq!(traverse(&mut graph, from(1)).await.0.len(), 1_001);
        running.server.shutdown().await.unwrap();
    }
}

/// Of a block with very many neighbors no more is read than is told.
#[tokio::test]
async fn neighbors_are_told_up_to_the_servers_bound() {
    let running = start(&[("max-traversal-blocks", "8")]).await;
    let mut graph = graph(&running).await;
    let spokes = (2..=12).flat_map(|far| [block(far), edge(1, "next", far)]);
    let hub = [block(1)].into_iter().chain(spokes);
    write(&mut graph, hub).await.unwrap();
    for (limit, count, has_more) in [(0, 8, true), (100, 8, true), (8, 8, true), (3, 3, true)] {
        let asked = pb::NeighborsRequest {
            id: id(1),
            limit,
            ..pb::NeighborsRequest::default()
        };
        let parts = all(graph.neighbors(asked).await.unwrap().into_inner()).await;
        let found: usize = parts.iter().map(|part| part.neighbors.len()).sum();
        let last = parts.last().unwrap();
        assert_eq!((found, last.more), (count, has_more), "limit {limit}");
    }
    running.server.shutdown().await.unwrap();
}

/// A kind that was never used gave an empty list, where every other call says so.
#[tokio::test]
async fn a_list_of_edges_of_an_unknown_kind_is_refused() {
    let running = start(&[]).await;
    let mut graph = graph(&running).await;
    path(&mut graph, 3).await;
    let of = |kind: &str| pb::ListEdgesRequest {
        kinds: vec![kind.to_owned()],
        ..pb::ListEdgesRequest::default()
    };
    let parts = all(graph.list_edges(of("next")).await.unwrap().into_inner()).await;
    assert_eq!(parts.iter().map(|part| part.edges.len()).sum::<usize>(), 2);
    let mut stream = graph.list_edges(of("nowhere")).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap_err().code(), Code::NotFound);
    running.server.shutdown().await.unwrap();
}

#[tokio::test]
async fn answers_longer_than_a_part_come_whole_and_in_order() {
    let running = start(&[]).await;
    let mut graph = graph(&running).await;
    let count = 2_500;
    path(&mut graph, count).await;
    let numbers: Vec<_> = (1..=count).map(id).collect();

    let (visits, _) = traverse(&mut graph, from(1)).await;
    let ids: Vec<_> = visits.into_iter().map(|visit| visit.id).collect();
    assert_eq!(ids, numbers);

    let listed = pb::ListBlocksRequest::default();
    let parts = all(graph.list_blocks(listed).await.unwrap().into_inner()).await;
    assert!(parts.len() > 2 && parts[0].header.is_some());
    let lasts: Vec<_> = parts.iter().map(|part| part.is_last).collect();
    assert_eq!(lasts.iter().filter(|is_last| **is_last).count(), 1);
    assert_eq!(lasts.last(), Some(&true));
    let ids = parts.into_iter().flat_map(|part| part.blocks);
    assert_eq!(ids.map(|block| block.id).collect::<Vec<_>>(), numbers);

    let listed = pb::ListEdgesRequest::default();
    let parts = all(graph.list_edges(listed).await.unwrap().into_inner()).await;
    let edges = parts.iter().map(|part| part.edges.len()).sum::<usize>();
    assert_eq!(edges as u128, count - 1);

    let asked = pb::OrderRequest::default();
    let parts = all(graph.order(asked).await.unwrap().into_inner()).await;
    let ids: Vec<_> = parts.into_iter().flat_map(|part| part.blocks).collect();
    assert_eq!(ids, numbers);

    let asked = pb::ComponentsRequest::default();
    let parts = all(graph.components(asked).await.unwrap().into_inner()).await;
    let told: Vec<_> = parts.iter().flat_map(|part| &part.components).collect();
    let sizes: Vec<_> = told.iter().map(|c| (c.blocks.len(), c.continues)).collect();
    assert_eq!(sizes, [(1_000, false), (1_000, true), (500, true)]);

    // One attribute of ten blocks in a hundred.
    let listed = pb::ListBlocksRequest {
        attribute: Some(pb::Attribute {
            name: "name".to_owned(),
            value: "n7".to_owned(),
        }),
        without_content: true,
        ..pb::ListBlocksRequest::default()
    };
    let parts = all(graph.list_blocks(listed).await.unwrap().into_inner()).await;
    let found: Vec<_> = parts.iter().flat_map(|part| &part.blocks).collect();
    assert_eq!(found.len(), 250);
    assert!(found.iter().all(|block| block.content.is_empty()));

    // Large blocks: as many as fit into one answer, at least one.
    let large = |number| {
        Write::PutBlock(pb::Block {
            id: id(number),
            kind: "b".to_owned(),
            content: vec![7; 600_000].into(),
            ..pb::Block::default()
        })
    };
    for number in 1..=3 {
        write(&mut graph, [large(number)]).await.unwrap();
    }
    let asked = pb::GetBlocksRequest {
        ids: (1..=3).map(id).collect(),
        ..pb::GetBlocksRequest::default()
    };
    let reply = graph.get_blocks(asked).await.unwrap().into_inner();
    assert_eq!((reply.blocks.len(), reply.answered), (2, 2));
    running.server.shutdown().await.unwrap();
}

#[tokio::test]
async fn blocks_of_no_kind_and_of_several_come_back() {
    let running = start(&[]).await;
    let mut graph = graph(&running).await;
    let of = |number, kinds: &[&str]| pb::Block {
        id: id(number),
        kinds: kinds.iter().map(|&kind| kind.to_owned()).collect(),
        ..pb::Block::default()
    };
    let blocks = [of(1, &["author", "person"]), of(2, &[])];
    let one = pb::Block {
        kind: "person".to_owned(),
        ..of(3, &[])
    };
    let listed_alone = Write::PutBlockOfKinds(of(3, &["person"]));
    let writes = blocks.clone().map(Write::PutBlockOfKinds);
    let writes: Vec<Write> = writes.into_iter().chain([listed_alone]).collect();
    // Refused until the member has announced, right after its start, which commands it knows.
    while let Err(refused) = write(&mut graph, writes.clone()).await {
        assert!(refused.message().contains("up to version 1"), "{refused}");
    }
    let asked = pb::ListBlocksRequest::default();
    let parts = all(graph.list_blocks(asked).await.unwrap().into_inner()).await;
    let found: Vec<_> = parts.into_iter().flat_map(|part| part.blocks).collect();
    let [several, none] = blocks;
    assert_eq!(found, [several, none, one]);
    let stats = graph.stats(pb::StatsRequest::default()).await.unwrap();
    let counts = [("author".to_owned(), 1), ("person".to_owned(), 2)];
    assert_eq!(stats.into_inner().blocks_by_kind, counts.into());
    running.server.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_is_asked_of_the_neighborhood_is_what_is_answered() {
    let running = start(&[]).await;
    let mut graph = graph(&running).await;
    path(&mut graph, 4).await;
    let more = [
        edge(2, "likes", 4),
        edge(4, "likes", 2),
        Write::PutEdge(pb::Edge {
            key: Some(key(1, "far", 4)),
            attributes: [("km".to_owned(), "10".to_owned())].into(),
            ..pb::Edge::default()
        }),
        Write::PutEdge(pb::Edge {
            key: Some(key(1, "bad", 3)),
            attributes: [("km".to_owned(), "much".to_owned())].into(),
            ..pb::Edge::default()
        }),
    ];
    write(&mut graph, more).await.unwrap();
    let around = |direction: i32, kinds: &[&str], limit| pb::NeighborsRequest {
        id: id(2),
        direction,
        kinds: kinds.iter().map(ToString::to_string).collect(),
        limit,
        ..pb::NeighborsRequest::default()
    };
    for (request, expected, more) in [
        (around(0, &[], 0), vec![(3, 0), (4, 0)], false),
        (around(1, &[], 0), vec![(1, 1), (4, 1)], false),
        (around(2, &["likes"], 0), vec![(4, 0), (4, 1)], false),
        (around(0, &[], 1), vec![(3, 0)], true),
        (around(0, &[], 2), vec![(3, 0), (4, 0)], false),
    ] {
        let parts = all(graph.neighbors(request).await.unwrap().into_inner()).await;
        let last = parts.last().unwrap();
        assert_eq!((last.is_last, last.more), (true, more));
        let found = parts.iter().flat_map(|part| &part.neighbors);
        let found: Vec<_> = found.map(|n| (n.id.clone(), n.direction)).collect();
        let expected: Vec<_> = expected.iter().map(|(n, d)| (id(*n), *d)).collect();
        assert_eq!(found, expected);
    }
    let search = |kinds: &[&str], weight: &str, max_depth| pb::ShortestPathRequest {
        from: id(1),
        to: id(4),
        kinds: kinds.iter().map(ToString::to_string).collect(),
        weight: (!weight.is_empty()).then(|| weight.to_owned()),
        // Edges by kind `next` have no length.
        default_weight: (weight == "km").then_some(1.0),
        max_depth,
        ..pb::ShortestPathRequest::default()
    };
    let found = graph.shortest_path(search(&[], "", None)).await.unwrap();
    let found = found.into_inner().path.unwrap();
    assert_eq!((found.blocks, found.cost), (vec![id(1), id(4)], 1.0));
    let weighted = search(&["next", "far"], "km", None);
    let found = graph.shortest_path(weighted).await.unwrap().into_inner();
    assert_eq!(found.path.unwrap().cost, 3.0);
    let short = search(&["next"], "", Some(2));
    let found = graph.shortest_path(short).await.unwrap().into_inner();
    assert_eq!(found.path, None);
    let (code, text) = refused(graph.shortest_path(search(&[], "km", None)).await);
    assert_eq!(code, Code::FailedPrecondition);
    assert!(text.contains("km = \"much\""), "{text}");
    let (code, _) = refused(graph.shortest_path(search(&[], "km", Some(2))).await);
    assert_eq!(code, Code::InvalidArgument);
    // An edge that does not have the attribute, and what stands in for it.
    let (code, text) = refused(graph.shortest_path(search(&["next"], "miles", None)).await);
    assert_eq!(code, Code::FailedPrecondition);
    assert!(text.contains("has no attribute \"miles\""), "{text}");
    for (default_weight, cost) in [(Some(0.5), Some(1.5)), (Some(-1.0), None)] {
        let mut asked = search(&["next"], "miles", None);
        asked.default_weight = default_weight;
        match (graph.shortest_path(asked).await, cost) {
            (Ok(found), Some(cost)) => assert_eq!(found.into_inner().path.unwrap().cost, cost),
            (Err(refused), None) => assert_eq!(refused.code(), Code::InvalidArgument),
            (found, _) => panic!("{found:?}"),
        }
    }

    // A cycle is an answer.
    let asked = pb::OrderRequest {
        kinds: vec!["likes".to_owned()],
        ..pb::OrderRequest::default()
    };
    let parts = all(graph.order(asked).await.unwrap().into_inner()).await;
    assert!(parts[0].blocks.is_empty());
    assert_eq!(parts[0].cycle.len(), 3);
    let stats = graph.stats(pb::StatsRequest::default()).await.unwrap();
    let stats = stats.into_inner();
    assert_eq!((stats.blocks, stats.edges), (4, 7));
    assert_eq!(stats.edges_by_kind["likes"], 2);
    running.server.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_with_a_code_and_what_to_do() {
    let running = start(&[("max-request-bytes", "100000")]).await;
    let mut graph = graph(&running).await;
    path(&mut graph, 2).await;
    let mut no = Vec::new();
    for bytes in [&b""[..], b"short", &[0; 17]] {
        let bytes = Bytes::copy_from_slice(bytes);
        no.push(refused(
            write(&mut graph, [Write::DeleteBlock(bytes.clone())]).await,
        ));
        let asked = pb::NeighborsRequest {
            id: bytes.clone(),
            ..pb::NeighborsRequest::default()
        };
        no.push(refused(graph.neighbors(asked).await));
        let asked = pb::TraverseRequest {
            starts: vec![id(1), bytes],
            ..pb::TraverseRequest::default()
        };
        no.push(refused(graph.traverse(asked).await));
    }
    for (_, text) in &no {
        assert_eq!(text, "a block's id has 16 bytes: send those of its UUID");
    }
    // Kinds where an older server would drop them, and beside a kind.
    let of_kinds = |kind: &str| pb::Block {
        id: id(1),
        kind: kind.to_owned(),
        kinds: vec!["a".to_owned(), "b".to_owned()],
        ..pb::Block::default()
    };
    for (told, refusal) in [
        ("put_block_of_kinds", Write::PutBlock(of_kinds(""))),
        ("put_block_of_kinds", Write::PutTypedBlock(of_kinds(""))),
        ("beside its kinds", Write::PutBlockOfKinds(of_kinds("a"))),
    ] {
        no.push(refused(write(&mut graph, [refusal]).await));
        let (_, text) = no.last().expect("a refusal");
        assert!(text.contains(told), "{text}");
    }
    // An edge without its key, a write that says nothing, values that nobody knows.
    let keyless = Write::PutEdge(pb::Edge::default());
    no.push(refused(write(&mut graph, [keyless]).await));
    no.push(refused(write(&mut graph, []).await));
    let silent = pb::WriteRequest {
        writes: vec![pb::GraphWrite { write: None }],
    };
    no.push(refused(graph.write(silent).await));
    no.push(refused(
        graph.traverse(pb::TraverseRequest::default()).await,
    ));
    let level = Some(pb::Read {
        level: 3,
        revision: 0,
    });
    let asked = pb::StatsRequest {
        read: level,
        ..pb::StatsRequest::default()
    };
    no.push(refused(graph.stats(asked).await));
    let direction = pb::TraverseRequest {
        direction: 3,
        ..from(1)
    };
    no.push(refused(graph.traverse(direction).await));
    let order = pb::TraverseRequest {
        order: -1,
        ..from(1)
    };
    no.push(refused(graph.traverse(order).await));
    let nameless = edge(1, "", 2);
    no.push(refused(write(&mut graph, [nameless]).await));
    let large = Write::PutBlock(pb::Block {
        id: id(1),
        kind: "b".to_owned(),
        attributes: [("a".to_owned(), "x".repeat(100_000))].into(),
        ..pb::Block::default()
    });
    no.push(refused(write(&mut graph, [large]).await));
    for (code, text) in &no {
        assert_eq!(*code, Code::InvalidArgument, "{text}");
        assert!(!text.is_empty());
    }

    for start in [7, 8] {
        let (code, text) = refused(graph.traverse(from(start)).await);
        assert_eq!(code, Code::NotFound);
        assert!(text.contains("does not exist"), "{text}");
    }
    let unknown = pb::TraverseRequest {
        kinds: vec!["nxt".to_owned()],
        ..from(1)
    };
    let (code, text) = refused(graph.traverse(unknown).await);
    assert_eq!(code, Code::NotFound);
    assert_eq!(text, "kind \"nxt\" is unknown; known kinds: b, next");

    // Each was counted under its method.
    let (_, metrics) = get(&running, "/metrics").await;
    let line = "bowline_requests_total{service=\"bowline.v1.Graph\",method=\"Traverse\",\
                code=\"NotFound\"} 3";
    assert!(metrics.contains(line), "{metrics}");
    running.server.shutdown().await.unwrap();
}

/// A list of blocks of which none is wanted sends nothing, so it did not notice that its client had left: it
/// read all blocks, and kept one of the few turns of all traversals. Found by review.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_ends_when_its_client_leaves() {
    /// So many that a list takes much longer than a busy machine keeps the server from seeing that a client left.
    const BLOCKS: u128 = 300_000;
    const TOGETHER: u128 = 5_000;
    /// All turns but one.
    const LEAVING: usize = 15;
    let running = start(&[]).await;
    let mut graph = graph(&running).await;
    for first in (0..BLOCKS).step_by(TOGETHER as usize) {
        let blocks = (1..=TOGETHER).map(|number| block(first + number));
        write(&mut graph, blocks).await.unwrap();
    }
    let unwanted = pb::ListBlocksRequest {
        attribute: Some(pb::Attribute {
            name: "name".to_owned(),
            value: "of no block".to_owned(),
        }),
        ..pb::ListBlocksRequest::default()
    };
    // It begins first and stays, so it ends before the others would.
    let stays = graph.list_blocks(unwanted.clone()).await;
    let mut stays = stays.unwrap().into_inner();
    let mut leaving = Vec::new();
    for _ in 0..LEAVING {
        leaving.push(graph.list_blocks(unwanted.clone()).await.unwrap());
    }
    drop(leaving);
    // Where this task was kept from looking for so long that both have ended, the traversal had a turn. One that gets its
    // turn only when a list ends is answered after that.
    tokio::select! {
        biased;
        (visits, _) = traverse(&mut graph, from(1)) => assert_eq!(visits.len(), 1),
        ended = stays.message() => panic!("no turn was free until a list had ended: {ended:?}"),
    }
    let last = stays.message().await.unwrap().unwrap();
    assert_eq!((last.blocks.len(), last.is_last), (0, true));
}
