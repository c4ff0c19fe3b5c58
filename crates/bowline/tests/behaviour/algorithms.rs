//! Graph algorithms of the library: kinds by name, old revisions, errors that name what is wrong, and cancellation.

use std::thread;
use std::time::{Duration, Instant};

use bowline::{
    Block, BlockId, BlockValues, Cancel, Db, Direction, Edge, Error, Graph, History, Result,
};

use crate::support::{assert_error, in_every_stage, manual};

const NO_KINDS: [&str; 0] = [];

/// Blocks with the ids 1 to `count`, and edges with weights: (source, kind, target, km).
fn write(db: &Db, count: u128, edges: &[(u128, &str, u128, &str)]) -> Result<()> {
    db.transact(|tx| {
        (1..=count).try_for_each(|id| tx.put_block(&Block::new(BlockId(id), "node")))?;
        for (source, kind, target, km) in edges {
            let edge = Edge::new(BlockId(*source), *kind, BlockId(*target));
            tx.put_edge(&edge.attribute("km", *km))?;
        }
        Ok(())
    })
}

fn list<T: Copy>(values: &BlockValues<T>) -> Vec<(u128, T)> {
    values.iter().map(|(id, value)| (id.0, value)).collect()
}

fn paths(graph: &Graph, from: u128, to: u128) -> Result<Vec<Vec<u128>>> {
    let found = graph.simple_paths(BlockId(from), BlockId(to)).find()?;
    let ids = |path: bowline::Path| path.blocks.iter().map(|id| id.0).collect();
    found.map(|path| Ok(ids(path?))).collect()
}

/// A triangle 1 2 3 of roads, a rail from 3 to 4, and 5 alone.
const EDGES: [(u128, &str, u128, &str); 4] = [
    (1, "road", 2, "2"),
    (2, "road", 3, "2.5"),
    (1, "road", 3, "9"),
    (3, "rail", 4, "1"),
];

#[test]
fn algorithms_see_their_revision_and_their_kinds_in_every_stage_of_the_data() {
    in_every_stage(
        manual().history(History::All),
        |db| {
            write(db, 5, &EDGES)?;
            Ok(db.revision())
        },
        |db, revision, stage| {
            let before = db.snapshot_at(*revision)?;
            // What comes after the snapshot changes each of the answers.
            db.transact(|tx| {
                tx.put_edge(&Edge::new(BlockId(4), "road", BlockId(5)).attribute("km", "far"))?;
                tx.delete_block(BlockId(2)).map(|_| ())
            })?;
            let graph = before.graph();
            let kinds = ["road"];
            assert_eq!(graph.triangles().count()?, 1, "{stage:?}");
            let counts = graph.triangles().kinds(kinds).per_block()?;
            assert_eq!(list(&counts), [(1, 1), (2, 1), (3, 1), (4, 0), (5, 0)]);
            let coefficients = graph.clustering_coefficients().kinds(kinds);
            let found = coefficients.clone().run()?;
            assert_eq!(
                list(&found),
                [(1, 0.5), (2, 0.5), (3, 0.5), (4, 0.0), (5, 0.0)]
            );
            assert_eq!(coefficients.undirected().run()?.get(BlockId(2)), Some(1.0));

            let from_1 = graph.distances_from(BlockId(1));
            assert_eq!(
                list(&from_1.clone().run()?),
                [(1, 0), (2, 1), (3, 1), (4, 2)]
            );
            assert_eq!(from_1.kinds(kinds).run()?.get(BlockId(4)), None);
            let from_1 = graph.weighted_distances_from(BlockId(1), "km");
            let found = from_1.run()?;
            assert_eq!(list(&found), [(1, 0.0), (2, 2.0), (3, 4.5), (4, 5.5)]);
            let to_4 = graph.weighted_distances_from(BlockId(4), "km");
            let found = to_4.direction(Direction::In).run()?;
            assert_eq!(list(&found), [(1, 5.5), (2, 3.5), (3, 1.0), (4, 0.0)]);

            let near = graph.k_hop(BlockId(4), 2).direction(Direction::In).run()?;
            assert_eq!(list(&near), [(1, 2), (2, 2), (3, 1)]);
            assert_eq!(paths(&graph, 1, 4)?, [[1, 2, 3, 4].as_slice(), &[1, 3, 4]]);
            let search = graph.simple_paths(BlockId(4), BlockId(1));
            let search = search.direction(Direction::Both).max_depth(2);
            let path = search.find()?.next().expect("a path")?;
            assert_eq!(
                path.kinds.iter().map(|kind| &**kind).collect::<Vec<_>>(),
                ["rail", "road"]
            );

            let labels = graph.weak_component_labels(NO_KINDS)?;
            let labels: Vec<_> = labels.iter().map(|(_, label)| label.0).collect();
            assert_eq!(labels, [1, 1, 1, 1, 5]);
            let communities = graph.communities().kinds(kinds).run()?;
            assert_eq!(communities.get(BlockId(4)), Some(BlockId(4)));
            assert_eq!(communities.groups().len(), 3);
            let ranks = graph.page_rank().run()?;
            assert!((ranks.iter().map(|(_, rank)| rank).sum::<f64>() - 1.0).abs() < 1e-12);
            assert_eq!(ranks.largest(1)[0].0, BlockId(4));

            let estimated = graph.shortest_path(BlockId(1), BlockId(4)).weight("km");
            let path = estimated.find_with_estimate(|_| 0.5)?.expect("a path");
            assert_eq!((path.cost, path.blocks.len()), (5.5, 4));

            // As of now, 2 and its edges are gone.
            let now = db.snapshot().graph();
            assert_eq!(now.triangles().count()?, 0);
            assert_eq!(paths(&now, 1, 4)?, [[1, 3, 4]]);
            let refused = now.weighted_distances_from(BlockId(1), "km").run();
            assert_error!(
                refused,
                Error::InvalidWeight { from: BlockId(4), to: BlockId(5), value: Some(value), .. } if value == "far"
            );
            Ok(())
        },
    );
}

#[test]
fn what_an_algorithm_cannot_use_is_refused_by_name() {
    let db = Db::in_memory().unwrap();
    write(&db, 3, &EDGES[..3]).unwrap();
    let graph = db.snapshot().graph();
    let missing = BlockId(9);
    assert_error!(graph.distances_from(missing).run(), Error::MissingBlock { id } if id == missing);
    assert_error!(graph.k_hop(missing, 1).run(), Error::MissingBlock { .. });
    assert_error!(paths(&graph, 1, 9), Error::MissingBlock { .. });
    assert_error!(
        graph.weighted_distances_from(missing, "km").run(),
        Error::MissingBlock { .. }
    );
    assert_error!(
        graph.page_rank().kinds(["sea"]).run(),
        Error::UnknownKind { .. }
    );
    for damping in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        let refused = graph.page_rank().damping(damping).run();
        assert_error!(refused, Error::NotSupported { what, .. } if what.contains("damping"));
    }
    for weight in [-1.0, f64::NAN, f64::INFINITY] {
        let search = graph.weighted_distances_from(BlockId(1), "miles");
        let refused = search.default_weight(weight).run();
        assert_error!(refused, Error::NotSupported { what, .. } if what.contains("default weight"));
    }
    assert_error!(
        graph.weighted_distances_from(BlockId(1), "miles").run(),
        Error::InvalidWeight { attribute, value: None, .. } if attribute == "miles"
    );
    let search = graph.shortest_path(BlockId(1), BlockId(3));
    assert_error!(
        search.clone().find_with_estimate(|_| 0.0),
        Error::NotSupported { what, .. } if what.contains("estimate")
    );
    assert_error!(
        search.weight("km").find_with_estimate(|_| f64::NAN),
        Error::NotSupported { what, .. } if what.contains("not a number")
    );
}

#[test]
fn every_algorithm_ends_when_it_is_canceled() {
    let db = Db::in_memory().unwrap();
    write(&db, 3, &EDGES[..3]).unwrap();
    let cancel = Cancel::new();
    let graph = db.snapshot().graph().cancelable(&cancel);
    let (one, three) = (BlockId(1), BlockId(3));
    graph.page_rank().run().expect("it is not canceled yet");
    let mut begun = graph.simple_paths(one, three).find().unwrap();
    cancel.cancel();
    assert_error!(graph.page_rank().run(), Error::Canceled);
    assert_error!(graph.communities().run(), Error::Canceled);
    assert_error!(graph.clustering_coefficients().run(), Error::Canceled);
    assert_error!(graph.triangles().count(), Error::Canceled);
    assert_error!(graph.distances_from(one).run(), Error::Canceled);
    assert_error!(
        graph.weighted_distances_from(one, "km").run(),
        Error::Canceled
    );
    assert_error!(graph.k_hop(one, 2).run(), Error::Canceled);
    assert_error!(graph.simple_paths(one, three).find(), Error::Canceled);
    assert_error!(begun.next().expect("an error"), Error::Canceled);
    assert!(begun.next().is_none(), "after an error there are no more");
    let search = graph.shortest_path(one, three).weight("km");
    assert_error!(search.find_with_estimate(|_| 0.0), Error::Canceled);
    assert_error!(graph.stats(NO_KINDS), Error::Canceled);
    assert_error!(graph.traverse(one).run(), Error::Canceled);
    assert_error!(graph.shortest_path(one, three).find(), Error::Canceled);
    let reached = graph.is_reachable(one, three, Direction::Out, NO_KINDS);
    assert_error!(reached, Error::Canceled);
    assert_error!(graph.weak_component_labels(NO_KINDS), Error::Canceled);
    // Reads of single blocks go on, and so does the same snapshot without the flag.
    assert!(graph.has_block(one).unwrap());
    db.snapshot().graph().page_rank().run().expect("runs");
}

/// Where the trees answer, the flag was looked at before the row of a block and not within it: a walk that came to a block with
/// millions of edges read all of them for a client that had left.
#[test]
fn a_search_is_canceled_within_the_row_of_a_block() {
    const LEAVES: u128 = 5_000;
    let db = Db::in_memory().unwrap();
    let edges: Vec<_> = (2..LEAVES + 2).map(|leaf| (1, "road", leaf, "1")).collect();
    write(&db, LEAVES + 1, &edges).unwrap();
    for kinds in [vec![], vec!["road"]] {
        let cancel = Cancel::new();
        let graph = db.snapshot().graph().cancelable(&cancel);
        let mut visited = 0;
        let ended = graph.visit_neighbors(BlockId(1), Direction::Both, kinds, |_| {
            visited += 1;
            if visited == 100 {
                cancel.cancel();
            }
        });
        assert_error!(ended, Error::Canceled);
        assert!(visited < 1_000, "{visited}");
    }
}

#[test]
fn a_search_that_would_take_for_ever_is_ended_from_another_thread() {
    // From 1 to 2, the number of simple paths among 40 blocks of which each two are tied is beyond any count.
    let db = Db::in_memory().unwrap();
    let edges: Vec<_> = (1..=40u128)
        .flat_map(|a| (1..=40u128).map(move |b| (a, "road", b, "1")))
        .filter(|edge| edge.0 != edge.2)
        .collect();
    write(&db, 40, &edges).unwrap();
    let cancel = Cancel::new();
    let graph = db.snapshot().graph().cancelable(&cancel);
    let started = Instant::now();
    let ended = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(50));
            cancel.cancel();
        });
        let mut paths = graph.simple_paths(BlockId(1), BlockId(2)).find().unwrap();
        paths.find_map(std::result::Result::err)
    });
    assert!(matches!(ended, Some(Error::Canceled)), "{ended:?}");
    assert!(started.elapsed() < Duration::from_secs(20));
}
