//! The graph view beside commits: begun, built, handed changes, drained, folded and forgotten in any order.

use bowline::{Block, BlockId, Db, Direction, Edge, Snapshot};
use bowline_storage::sync::thread;

use crate::database;
use crate::explore::explore;

const NO_KINDS: [&str; 0] = [];

fn put_edge(db: &Db, source: u128, target: u128) {
    db.transact(|tx| tx.put_edge(&Edge::new(BlockId(source), "to", BlockId(target))))
        .expect("a commit");
}

/// The targets of a block: by its neighbors, for which the view may answer, and by a scan of the edges.
fn targets(snapshot: &Snapshot, source: u128) -> (Vec<BlockId>, Vec<BlockId>) {
    let graph = snapshot.graph();
    let near = graph.neighbors(BlockId(source), Direction::Out, NO_KINDS);
    let near = near.expect("reads").into_iter().map(|it| it.id).collect();
    let mut scanned = Vec::new();
    let of_source = |edge: Edge| {
        if edge.source == BlockId(source) {
            scanned.push(edge.target);
        }
        Ok(())
    };
    graph.for_each_edge(of_source).expect("reads");
    (near, scanned)
}

/// A writer of edges, a builder and a reader: each snapshot has the edges of its trees, and the writer's own
/// next snapshot has its edge. The writer overruns the few changes that may wait under the scheduler.
#[test]
fn a_view_that_is_built_beside_commits_answers_as_the_trees() {
    explore(
        "a_view_that_is_built_beside_commits_answers_as_the_trees",
        1_500,
        || {
            let db = database();
            db.transact(|tx| (0..8).try_for_each(|id| tx.put_block(&Block::new(BlockId(id), "n"))))
                .expect("a commit");
            put_edge(&db, 0, 7);
            let writer = {
                let db = db.clone();
                thread::spawn(move || {
                    for target in 1..4 {
                        put_edge(&db, 0, target);
                        let (near, scanned) = targets(&db.snapshot(), 0);
                        assert!(near.contains(&BlockId(target)), "its own edge");
                        assert_eq!(near, scanned);
                    }
                })
            };
            let builder = {
                let db = db.clone();
                thread::spawn(move || {
                    // Not when it was forgotten meanwhile: then the trees answer.
                    db.build_graph_view().expect("builds");
                })
            };
            for _ in 0..2 {
                let (near, scanned) = targets(&db.snapshot(), 0);
                assert_eq!(near, scanned);
            }
            writer.join().expect("no panic");
            builder.join().expect("no panic");
            let (near, scanned) = targets(&db.snapshot(), 0);
            assert_eq!(near, scanned);
            assert_eq!(near.len(), 4);
        },
    );
}
