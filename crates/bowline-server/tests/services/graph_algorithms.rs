//! The algorithms of `bowline.v1.Graph`: the results of the library, in parts; limits, bounds and refusals; the end
//! of a search whose client has left.

use std::cmp::Reverse;
use std::time::Duration;

use bowline::{Block, BlockId, Db, Direction, Edge};
use bowline_proto::v1 as pb;
use bytes::Bytes;
use pb::graph_client::GraphClient;
use pb::graph_write::Write;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use crate::support::{Running, start};

type Edges = Vec<(u128, &'static str, u128)>;

fn id(number: u128) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn block_id(bytes: &Bytes) -> BlockId {
    BlockId::from_bytes(bytes[..].try_into().unwrap())
}

/// Blocks from 0 on and edges, on a server.
async fn served(running: &Running, blocks: u128, edges: &Edges) -> GraphClient<Channel> {
    let mut graph = GraphClient::new(running.channel().await);
    let blocks = (0..blocks).map(|number| {
        Write::PutBlock(pb::Block {
            id: id(number),
            kind: "b".to_owned(),
            ..pb::Block::default()
        })
    });
    let edges = edges.iter().map(|(source, kind, target)| {
        Write::PutEdge(pb::Edge {
            key: Some(pb::EdgeKey {
                source: id(*source),
                kind: (*kind).to_owned(),
                target: id(*target),
            }),
            ..pb::Edge::default()
        })
    });
    let writes: Vec<_> = blocks
        .chain(edges)
        .map(|write| pb::GraphWrite { write: Some(write) })
        .collect();
    for writes in writes.chunks(10_000) {
        let writes = writes.to_vec();
        graph.write(pb::WriteRequest { writes }).await.unwrap();
    }
    graph
}

/// The same in the library.
fn local(blocks: u128, edges: &Edges) -> bowline::Graph {
    let db = Db::in_memory().unwrap();
    db.transact(|tx| {
        (0..blocks).try_for_each(|number| tx.put_block(&Block::new(BlockId(number), "b")))?;
        edges.iter().try_for_each(|(source, kind, target)| {
            tx.put_edge(&Edge::new(BlockId(*source), *kind, BlockId(*target)))
        })
    })
    .unwrap();
    db.snapshot().graph()
}

/// 2,500 blocks, more than two parts: groups of ten who know each other, a ring through all, and a few who like.
fn crowd() -> (u128, Edges) {
    const BLOCKS: u128 = 2_500;
    let mut edges = Edges::new();
    for number in 0..BLOCKS {
        edges.push((number, "next", (number + 1) % BLOCKS));
        let group = number / 10 * 10;
        edges.extend((group..number).map(|other| (number, "knows", other)));
        if number % 7 == 0 {
            edges.push((number, "likes", number * number % BLOCKS));
        }
    }
    (BLOCKS, edges)
}

async fn all<T>(stream: Result<tonic::Response<Streaming<T>>, Status>) -> Vec<T> {
    let mut stream = stream.unwrap().into_inner();
    let mut parts = Vec::new();
    while let Some(part) = stream.message().await.unwrap() {
        parts.push(part);
    }
    parts
}

/// The code and text of a refusal, which may come with the first message.
async fn refused<T: std::fmt::Debug>(
    stream: Result<tonic::Response<Streaming<T>>, Status>,
) -> (Code, String) {
    let status = match stream {
        Ok(stream) => stream.into_inner().message().await.unwrap_err(),
        Err(status) => status,
    };
    (status.code(), status.message().to_owned())
}

/// Blocks and values of all parts, and the figures of the last.
macro_rules! values {
    ($parts:expr) => {{
        let parts = $parts;
        assert!(parts[0].header.is_some(), "the first part has the header");
        let (last, before) = parts.split_last().unwrap();
        assert!(last.is_last && before.iter().all(|part| !part.is_last));
        assert!(parts.iter().all(|part| part.blocks.len() <= 1_000));
        let figures = (last.count, last.sum);
        let values: Vec<_> = parts
            .iter()
            .flat_map(|part| part.blocks.iter().map(block_id).zip(part.values.clone()))
            .collect();
        (values, figures)
    }};
}

#[tokio::test]
async fn values_are_those_of_the_library_the_largest_first() {
    let running = start(&[]).await;
    let (blocks, edges) = crowd();
    let mut graph = served(&running, blocks, &edges).await;
    let library = local(blocks, &edges);
    let kinds = || vec!["knows".to_owned(), "likes".to_owned()];

    for (direction, name) in [
        (Direction::Out, 0),
        (Direction::In, 1),
        (Direction::Both, 2),
    ] {
        let request = |limit| pb::PageRankRequest {
            kinds: kinds(),
            direction: name,
            damping: Some(0.7),
            iterations: Some(7),
            limit,
            ..pb::PageRankRequest::default()
        };
        let expected = library.page_rank().kinds(kinds()).direction(direction);
        let expected = expected.damping(0.7).iterations(7).run().unwrap();
        let sum: f64 = expected.iter().map(|(_, rank)| rank).sum();
        for limit in [None, Some(0), Some(3), Some(2_000), Some(u64::MAX)] {
            let parts = all(graph.page_rank(request(limit)).await).await;
            let count = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap());
            let (found, figures) = values!(parts);
            assert_eq!(found, expected.largest(count), "{direction:?} {limit:?}");
            assert_eq!(figures, (2_500, sum));
        }
    }
    let found = values!(all(graph.page_rank(pb::PageRankRequest::default()).await).await).0;
    let expected = library.page_rank().run().unwrap();
    assert_eq!(found, expected.largest(usize::MAX), "the defaults");

    let request = pb::TrianglesRequest {
        kinds: kinds(),
        ..pb::TrianglesRequest::default()
    };
    let (found, figures) = values!(all(graph.triangles(request).await).await);
    let expected = library.triangles().kinds(kinds()).per_block().unwrap();
    assert_eq!(found, expected.largest(usize::MAX));
    let count = library.triangles().kinds(kinds()).count().unwrap();
    assert_eq!(figures, (2_500, 3 * count));

    for undirected in [false, true] {
        let request = pb::ClusteringRequest {
            undirected,
            limit: Some(1_500),
            ..pb::ClusteringRequest::default()
        };
        let (found, figures) = values!(all(graph.clustering(request).await).await);
        let expected = library.clustering_coefficients();
        let expected = match undirected {
            true => expected.undirected().run().unwrap(),
            false => expected.run().unwrap(),
        };
        assert_eq!(found, expected.largest(1_500));
        let sum: f64 = expected.iter().map(|(_, value)| value).sum();
        assert_eq!(figures, (2_500, sum));
    }
    running.server.shutdown().await.unwrap();
}

#[tokio::test]
async fn communities_are_those_of_the_library_the_largest_first() {
    let running = start(&[]).await;
    let (blocks, edges) = crowd();
    let mut graph = served(&running, blocks, &edges).await;
    let library = local(blocks, &edges);
    for (iterations, limit) in [(None, None), (Some(1), None), (Some(30), Some(2))] {
        let request = pb::CommunitiesRequest {
            iterations,
            limit,
            ..pb::CommunitiesRequest::default()
        };
        let parts = all(graph.communities(request).await).await;
        let mut found: Vec<Vec<BlockId>> = Vec::new();
        for piece in parts.iter().flat_map(|part| &part.communities) {
            assert!(piece.blocks.len() <= 1_000);
            if !piece.continues {
                found.push(Vec::new());
            }
            found
                .last_mut()
                .unwrap()
                .extend(piece.blocks.iter().map(block_id));
        }
        let communities = library.communities().iterations(iterations.unwrap_or(10));
        let mut expected = communities.run().unwrap().groups();
        expected.sort_by_key(|group| Reverse(group.len()));
        assert_eq!(parts.last().unwrap().count, expected.len() as u64);
        expected.truncate(limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap()));
        assert_eq!(found, expected, "{iterations:?} {limit:?}");
    }
    running.server.shutdown().await.unwrap();
}

#[tokio::test]
async fn neighborhoods_are_those_of_the_library_up_to_the_servers_bound() {
    let running = start(&[("max-traversal-blocks", "1500")]).await;
    let (blocks, edges) = crowd();
    let mut graph = served(&running, blocks, &edges).await;
    let library = local(blocks, &edges);
    let request = |hops, direction, kinds: &[&str]| pb::KHopRequest {
        id: id(20),
        hops,
        direction,
        kinds: kinds.iter().map(ToString::to_string).collect(),
        ..pb::KHopRequest::default()
    };
    for (hops, direction, name, kinds) in [
        (0, Direction::Out, 0, &[][..]),
        (1, Direction::Both, 2, &[]),
        (3, Direction::In, 1, &["knows", "likes"]),
        // Just as many as the bound.
        (1_500, Direction::Out, 0, &["next"]),
    ] {
        let parts = all(graph.k_hop(request(hops, name, kinds)).await).await;
        assert!(parts[0].header.is_some() && parts.last().unwrap().is_last);
        let found: Vec<_> = parts
            .iter()
            .flat_map(|part| part.blocks.iter().map(block_id).zip(part.hops.clone()))
            .collect();
        let expected = library.k_hop(BlockId(20), hops).direction(direction);
        let mut expected: Vec<_> = expected
            .kinds(kinds.iter().copied())
            .run()
            .unwrap()
            .iter()
            .collect();
        expected.sort_by_key(|(_, hops)| *hops);
        assert_eq!(found, expected, "{hops} {direction:?} {kinds:?}");
    }
    let (code, text) = refused(graph.k_hop(request(1_501, 0, &["next"])).await).await;
    assert_eq!(code, Code::FailedPrecondition);
    assert!(text.contains("more than the 1500 blocks"), "{text}");
    assert!(text.contains("--max-traversal-blocks"), "{text}");
    running.server.shutdown().await.unwrap();
}

/// Paths, joined of their pieces, and the last part.
async fn paths(
    graph: &mut GraphClient<Channel>,
    request: pb::SimplePathsRequest,
) -> (Vec<(Vec<BlockId>, Vec<String>)>, pb::SimplePathsReply) {
    let mut parts = all(graph.simple_paths(request).await).await;
    assert!(parts[0].header.is_some());
    let mut found: Vec<(Vec<BlockId>, Vec<String>)> = Vec::new();
    for piece in parts.iter().flat_map(|part| &part.paths) {
        assert!(piece.blocks.len() <= 1_000 && piece.kinds.len() <= 1_000);
        if !piece.continues {
            found.push(<_>::default());
        }
        let path = found.last_mut().unwrap();
        path.0.extend(piece.blocks.iter().map(block_id));
        path.1.extend(piece.kinds.iter().cloned());
    }
    let last = parts.pop().unwrap();
    assert!(last.is_last && parts.iter().all(|part| !part.is_last));
    (found, last)
}

#[tokio::test]
async fn simple_paths_are_those_of_the_library_and_a_long_one_comes_in_pieces() {
    let running = start(&[("max-traversal-blocks", "2400")]).await;
    let (blocks, edges) = crowd();
    let mut graph = served(&running, blocks, &edges).await;
    let library = local(blocks, &edges);
    let request = |from, to, kinds: &[&str], max_depth, limit| pb::SimplePathsRequest {
        from: id(from),
        to: id(to),
        kinds: kinds.iter().map(ToString::to_string).collect(),
        max_depth,
        limit,
        ..pb::SimplePathsRequest::default()
    };
    for (from, to, kinds, max_depth, limit, more) in [
        (9, 0, &["knows"][..], None, None, false),
        (9, 0, &["knows"], Some(3), Some(20), true),
        (9, 0, &["knows"], Some(2), Some(9), false),
        (9, 0, &["knows"], Some(2), Some(0), true),
        (7, 7, &[], None, None, false),
        (0, 9, &["knows"], None, None, false),
        (5, 4, &["next"], None, Some(1), false),
    ] {
        let asked = request(from, to, kinds, max_depth, limit);
        let (found, last) = paths(&mut graph, asked).await;
        let search = library
            .simple_paths(BlockId(from), BlockId(to))
            .kinds(kinds.iter().copied());
        let search = match max_depth {
            Some(depth) => search.max_depth(depth),
            None => search,
        };
        let count = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap());
        let expected: Vec<_> = search
            .find()
            .unwrap()
            .take(count)
            .map(Result::unwrap)
            .collect();
        let expected: Vec<_> = expected
            .into_iter()
            .map(|path| {
                let kinds = path
                    .kinds
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>();
                (path.blocks, kinds)
            })
            .collect();
        assert_eq!(found, expected, "{from} {to} {kinds:?}");
        assert_eq!(
            (last.more, last.is_of_server),
            (more, false),
            "{from} {to} {kinds:?}"
        );
        if kinds == ["next"] {
            assert_eq!(found[0].0.len(), 2_500, "three pieces");
        }
    }
    // As many as the server gives.
    let both = pb::SimplePathsRequest {
        direction: 2,
        ..request(9, 0, &["knows"], None, Some(9_999))
    };
    let (found, last) = paths(&mut graph, both).await;
    assert_eq!(
        (found.len(), last.more, last.is_of_server),
        (2_400, true, true)
    );
    running.server.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_no_algorithm_can_do_is_refused_with_a_code_and_what_to_do() {
    let running = start(&[]).await;
    let mut graph = served(&running, 3, &vec![(0, "next", 1)]).await;
    let mut no = Vec::new();
    for damping in [-0.1, 1.5, f64::NAN] {
        let request = pb::PageRankRequest {
            damping: Some(damping),
            ..pb::PageRankRequest::default()
        };
        no.push(refused(graph.page_rank(request).await).await);
    }
    let request = pb::PageRankRequest {
        iterations: Some(10_001),
        ..pb::PageRankRequest::default()
    };
    no.push(refused(graph.page_rank(request).await).await);
    let request = pb::CommunitiesRequest {
        iterations: Some(u32::MAX),
        ..pb::CommunitiesRequest::default()
    };
    no.push(refused(graph.communities(request).await).await);
    let request = pb::PageRankRequest {
        direction: 3,
        ..pb::PageRankRequest::default()
    };
    no.push(refused(graph.page_rank(request).await).await);
    no.push(refused(graph.k_hop(pb::KHopRequest::default()).await).await);
    let request = pb::SimplePathsRequest {
        from: id(0),
        ..pb::SimplePathsRequest::default()
    };
    no.push(refused(graph.simple_paths(request).await).await);
    for (code, text) in &no {
        assert_eq!(*code, Code::InvalidArgument, "{text}");
        assert!(!text.is_empty());
    }

    let kinds = vec!["nxt".to_owned()];
    let mut missing = Vec::new();
    let request = pb::TrianglesRequest {
        kinds: kinds.clone(),
        ..pb::TrianglesRequest::default()
    };
    missing.push(refused(graph.triangles(request).await).await);
    let request = pb::ClusteringRequest {
        kinds,
        ..pb::ClusteringRequest::default()
    };
    missing.push(refused(graph.clustering(request).await).await);
    let request = pb::KHopRequest {
        id: id(9),
        hops: 1,
        ..pb::KHopRequest::default()
    };
    missing.push(refused(graph.k_hop(request).await).await);
    let request = pb::SimplePathsRequest {
        from: id(0),
        to: id(9),
        ..pb::SimplePathsRequest::default()
    };
    missing.push(refused(graph.simple_paths(request).await).await);
    for (code, text) in &missing {
        assert_eq!(*code, Code::NotFound, "{text}");
    }
    let request = pb::CommunitiesRequest {
        read: Some(pb::Read {
            level: 0,
            revision: 99,
        }),
        ..pb::CommunitiesRequest::default()
    };
    let (code, _) = refused(graph.communities(request).await).await;
    assert_eq!(code, Code::OutOfRange);

    // An old revision, and an empty graph.
    let old = Some(pb::Read {
        level: 2,
        revision: 1,
    });
    let request = pb::TrianglesRequest {
        read: old,
        ..pb::TrianglesRequest::default()
    };
    let (found, figures) = values!(all(graph.triangles(request).await).await);
    assert!(found.is_empty() && figures == (0, 0));
    let request = pb::CommunitiesRequest {
        read: old,
        ..pb::CommunitiesRequest::default()
    };
    let parts = all(graph.communities(request).await).await;
    assert!(parts.len() == 1 && parts[0].is_last && parts[0].header.is_some());
    running.server.shutdown().await.unwrap();
}

/// From 0 there is one path to 20, and then, by a later kind, billions of ways through a clique that lead nowhere.
async fn endless(running: &Running) -> GraphClient<Channel> {
    let mut edges = vec![(0, "a", 20)];
    for from in 0..20 {
        edges.extend((0..20).filter(|to| *to != from).map(|to| (from, "z", to)));
    }
    served(running, 21, &edges).await
}

fn endless_search() -> pb::SimplePathsRequest {
    pb::SimplePathsRequest {
        from: id(0),
        to: id(20),
        ..pb::SimplePathsRequest::default()
    }
}

/// Four searches whose clients stayed kept all turns: no query had one again.
#[tokio::test]
async fn a_search_ends_when_its_time_is_over() {
    let running = start(&[("max-query-time", "300ms")]).await;
    let mut graph = endless(&running).await;
    let mut searches = Vec::new();
    // As many as there may be at a time.
    for _ in 0..4 {
        let search = graph.simple_paths(endless_search()).await;
        searches.push(search.unwrap().into_inner());
    }
    for search in &mut searches {
        let first = search.message().await.unwrap().unwrap();
        assert_eq!((first.paths.len(), first.is_last), (1, false));
        let ended = tokio::time::timeout(Duration::from_secs(60), search.message()).await;
        let ended = ended.expect("an end of its time").unwrap_err();
        assert_eq!(ended.code(), Code::FailedPrecondition);
        assert!(ended.message().contains("--max-query-time"), "{ended}");
    }
    let next = graph.simple_paths(endless_search()).await;
    let first = next.unwrap().into_inner().message().await.unwrap();
    assert_eq!(first.unwrap().paths.len(), 1);
    running.server.shutdown().await.unwrap();
}

/// A search for simple paths may go on for long. One whose client leaves ends, and gives its turn back.
#[tokio::test]
async fn a_search_ends_when_its_client_leaves() {
    let running = start(&[]).await;
    let mut graph = endless(&running).await;
    let request = endless_search();
    let mut searches = Vec::new();
    // As many as there may be at a time.
    for _ in 0..4 {
        let mut stream = graph
            .simple_paths(request.clone())
            .await
            .unwrap()
            .into_inner();
        let first = stream.message().await.unwrap().unwrap();
        assert_eq!(
            (first.paths.len(), first.is_last),
            (1, false),
            "it comes at once"
        );
        searches.push(stream);
    }
    let (code, text) = refused(graph.simple_paths(request.clone()).await).await;
    assert_eq!(code, Code::ResourceExhausted, "{text}");
    drop(searches);
    let mut next = graph.simple_paths(request).await.unwrap().into_inner();
    assert_eq!(next.message().await.unwrap().unwrap().paths.len(), 1);
    drop(next);
    running.server.shutdown().await.unwrap();
}
