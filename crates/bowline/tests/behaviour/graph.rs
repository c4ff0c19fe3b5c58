//! Blocks and edges: both directions change together, no edge without its blocks, kinds by name.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;

use bowline::{
    Block, BlockId, Db, Direction, Edge, Error, History, Isolation, Result, Revision, Stop,
};

use crate::support::{Disk, assert_error, in_every_stage, manual};

const NO_KINDS: [&str; 0] = [];

fn id(name: &str) -> BlockId {
    BlockId::from_name(name)
}

/// Blocks of kind `node`, and edges `kind: source -> target`.
fn write(db: &Db, blocks: &[&str], edges: &[(&str, &str, &str)]) -> Result<()> {
    db.transact(|tx| {
        for name in blocks {
            tx.put_block(&Block::new(id(name), "node").attribute("name", *name))?;
        }
        for (source, kind, target) in edges {
            tx.put_edge(&Edge::new(id(source), *kind, id(target)))?;
        }
        Ok(())
    })
}

fn neighbors(db: &Db, name: &str, direction: Direction) -> Result<BTreeSet<(BlockId, String)>> {
    let found = db
        .snapshot()
        .graph()
        .neighbors(id(name), direction, NO_KINDS)?;
    Ok(found
        .into_iter()
        .map(|n| (n.id, n.kind.to_string()))
        .collect())
}

fn set(names: &[(&str, &str)]) -> BTreeSet<(BlockId, String)> {
    names
        .iter()
        .map(|(name, kind)| (id(name), (*kind).to_owned()))
        .collect()
}

#[test]
fn blocks_and_edges_are_put_read_and_replaced() {
    let first = Block::new(id("a"), "service")
        .content("old")
        .attribute("tier", "1");
    let second = Block::new(id("a"), "job")
        .content(vec![0xff; 3000])
        .attribute("größe", "ü");
    let edge = Edge::new(id("a"), "calls", id("a")).attribute("weight", "2.5");
    in_every_stage(
        manual().history(History::All),
        |db| {
            db.transact(|tx| tx.put_block(&first))?; // 2
            db.transact(|tx| {
                tx.put_edge(&Edge::new(id("a"), "calls", id("a")))?;
                assert_eq!(
                    tx.edge(id("a"), "calls", id("a"))?
                        .expect("own")
                        .attributes
                        .len(),
                    0
                );
                Ok(())
            })?; // 3
            db.flush()?;
            db.transact(|tx| {
                assert_eq!(tx.block(id("a"))?.as_ref(), Some(&first));
                tx.put_block(&second)?;
                assert_eq!(tx.block(id("a"))?.as_ref(), Some(&second));
                tx.put_edge(&edge)
            }) // 4
        },
        |db, (), stage| {
            let graph = db.snapshot().graph();
            assert_eq!(graph.revision(), 4);
            assert_eq!(graph.block(id("a"))?.as_ref(), Some(&second), "{stage:?}");
            assert_eq!(
                graph.edge(id("a"), "calls", id("a"))?.as_ref(),
                Some(&edge),
                "{stage:?}"
            );
            assert_eq!(graph.block(id("b"))?, None);
            assert_eq!(graph.edge(id("a"), "calls", id("b"))?, None);
            assert_eq!(graph.edge(id("a"), "never used", id("a"))?, None);
            let old = db.snapshot_at(Revision::new(2))?.graph();
            assert_eq!(old.block(id("a"))?.as_ref(), Some(&first), "{stage:?}");
            assert_eq!(old.edge(id("a"), "calls", id("a"))?, None, "{stage:?}");
            let old = db.snapshot_at(Revision::new(3))?.graph();
            assert!(
                old.edge(id("a"), "calls", id("a"))?
                    .expect("it is there")
                    .attributes
                    .is_empty()
            );
            let (mut blocks, mut edges) = (Vec::new(), Vec::new());
            graph.for_each_block(|block| {
                blocks.push(block);
                Ok(())
            })?;
            graph.for_each_edge(|edge| {
                edges.push(edge);
                Ok(())
            })?;
            assert_eq!(
                (blocks, edges),
                (vec![second.clone()], vec![edge.clone()]),
                "{stage:?}"
            );
            Ok(())
        },
    );
}

#[test]
fn an_edge_needs_both_of_its_blocks() -> Result<()> {
    let db = Disk::new().open(manual());
    write(&db, &["a"], &[])?;
    let before = db.revision();
    for (source, target, missing) in [("a", "x", "x"), ("x", "a", "x"), ("x", "x", "x")] {
        let refused = db.transact(|tx| tx.put_edge(&Edge::new(id(source), "to", id(target))));
        assert_error!(refused, Error::MissingBlock { id: named } if named == id(missing));
    }
    let mut tx = db.begin();
    tx.delete_block(id("a"))?;
    let refused = tx.put_edge(&Edge::new(id("a"), "to", id("a")));
    assert_error!(refused, Error::MissingBlock { .. });
    drop(tx);
    // The order inside a transaction counts.
    let mut tx = db.begin();
    assert_error!(
        tx.put_edge(&Edge::new(id("a"), "to", id("new"))),
        Error::MissingBlock { .. }
    );
    tx.put_block(&Block::new(id("new"), "node"))?;
    tx.put_edge(&Edge::new(id("a"), "to", id("new")))?;
    tx.commit()?;
    assert_eq!(db.revision(), before + 1);
    assert_eq!(neighbors(&db, "new", Direction::In)?, set(&[("a", "to")]));
    Ok(())
}

/// Two transactions race: one ties a block, the other deletes it. Whichever commits second loses,
/// under either isolation.
#[test]
fn a_block_is_not_deleted_under_a_new_edge() -> Result<()> {
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        for target_goes in [true, false] {
            for edge_first in [true, false] {
                let db = Disk::new().open(manual());
                write(&db, &["a", "b"], &[])?;
                let (mut tying, mut deleting) =
                    (db.begin_with(isolation), db.begin_with(isolation));
                tying.put_edge(&Edge::new(id("a"), "to", id("b")))?;
                let gone = if target_goes { "b" } else { "a" };
                assert!(deleting.delete_block(id(gone))?);
                if edge_first {
                    tying.commit()?;
                    assert_error!(deleting.commit(), Error::Conflict { .. });
                    assert_eq!(neighbors(&db, "a", Direction::Out)?, set(&[("b", "to")]));
                } else {
                    deleting.commit()?;
                    assert_error!(tying.commit(), Error::MissingBlock { id: named } if named == id(gone));
                    assert!(!db.snapshot().graph().has_block(id(gone))?);
                }
                let check = db.check()?;
                assert!(check.is_clean(), "{isolation:?} {check:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn ties_and_deletions_race_without_a_dangling_edge() -> Result<()> {
    const BLOCKS: u128 = 6;
    let db = Disk::new().open(Db::builder().memtable_bytes(128 << 10));
    thread::scope(|scope| {
        for thread in 0..6 {
            let db = &db;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                let isolation = [Isolation::Serializable, Isolation::Snapshot][thread as usize % 2];
                for _ in 0..250 {
                    let (a, b) = (
                        BlockId(random.u128(..BLOCKS)),
                        BlockId(random.u128(..BLOCKS)),
                    );
                    let result = db.transact_with(isolation, |tx| match random.u8(..4) {
                        0 => tx.put_block(&Block::new(a, "node")),
                        1 => tx.delete_block(a).map(drop),
                        2 => tx.delete_edge(a, "to", b).map(drop),
                        _ => tx.put_edge(&Edge::new(a, "to", b)),
                    });
                    match result {
                        Ok(()) | Err(Error::MissingBlock { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    let check = db.check()?;
    assert!(check.is_clean(), "{check:?}");
    Ok(())
}

#[test]
fn deleting_a_block_deletes_its_edges_in_both_directions() {
    in_every_stage(
        manual().history(History::All),
        |db| {
            let edges = [
                ("hub", "to", "a"),
                ("hub", "likes", "a"),
                ("b", "to", "hub"),
                ("hub", "to", "hub"),
                ("a", "to", "b"),
            ];
            write(db, &["hub", "a", "b"], &edges)
        },
        |db, (), stage| {
            let before = db.snapshot();
            assert!(db.transact(|tx| tx.delete_block(id("hub")))?, "{stage:?}");
            assert!(!db.transact(|tx| tx.delete_block(id("hub")))?, "{stage:?}");
            assert_eq!(db.revision(), before.revision() + 1);
            let graph = db.snapshot().graph();
            let mut left = Vec::new();
            graph.for_each_edge(|edge| {
                left.push((edge.source, edge.target));
                Ok(())
            })?;
            assert_eq!(left, [(id("a"), id("b"))], "{stage:?}");
            assert_eq!(neighbors(db, "a", Direction::In)?, set(&[]), "{stage:?}");
            assert_eq!(
                neighbors(db, "b", Direction::Both)?,
                set(&[("a", "to")]),
                "{stage:?}"
            );
            let missing = graph.neighbors(id("hub"), Direction::Out, NO_KINDS);
            assert_error!(missing, Error::MissingBlock { .. });
            // It comes back without them, and the past still has them.
            db.transact(|tx| tx.put_block(&Block::new(id("hub"), "node")))?;
            assert_eq!(
                neighbors(db, "hub", Direction::Both)?,
                set(&[]),
                "{stage:?}"
            );
            let old = before
                .graph()
                .neighbors(id("hub"), Direction::Both, NO_KINDS)?;
            assert_eq!(
                old.len(),
                5,
                "{stage:?}: a block tied to itself is there twice"
            );
            Ok(())
        },
    );
}

#[test]
fn own_writes_are_seen_by_deletions() -> Result<()> {
    let db = Disk::new().open(manual());
    write(&db, &["a", "b"], &[("a", "to", "b")])?;
    let mut tx = db.begin();
    tx.put_block(&Block::new(id("c"), "node"))?;
    tx.put_edge(&Edge::new(id("a"), "to", id("c")))?;
    tx.put_edge(&Edge::new(id("c"), "to", id("b")))?;
    assert!(tx.delete_edge(id("a"), "to", id("b"))?);
    assert!(!tx.delete_edge(id("a"), "to", id("b"))?);
    assert_eq!(tx.edge(id("a"), "to", id("b"))?, None);
    assert!(tx.delete_block(id("c"))?);
    assert_eq!(tx.block(id("c"))?, None);
    tx.commit()?;
    assert_eq!(neighbors(&db, "a", Direction::Both)?, set(&[]));
    assert_eq!(neighbors(&db, "b", Direction::Both)?, set(&[]));
    assert!(db.check()?.is_clean());
    Ok(())
}

/// As with keys: what is put and deleted in one transaction was never there.
#[test]
fn a_graph_transaction_that_changes_nothing_takes_no_revision() -> Result<()> {
    let db = Disk::new().open(manual());
    write(&db, &["a"], &[])?;
    let before = db.revision();
    let mut tx = db.begin();
    tx.put_block(&Block::new(id("new"), "node"))?;
    tx.put_edge(&Edge::new(id("a"), "to", id("new")))?;
    tx.delete_block(id("new"))?;
    let committed = tx.commit()?;
    assert_eq!((committed.revision, committed.changed), (before, false));
    let mut tx = db.begin();
    assert!(!tx.delete_block(id("absent"))?);
    assert!(!tx.delete_edge(id("a"), "to", id("a"))?);
    assert!(!tx.delete_edge(id("a"), "never used", id("a"))?);
    assert!(!tx.commit()?.changed);
    assert_eq!(db.revision(), before);
    Ok(())
}

#[test]
fn neighbors_follow_direction_and_kinds() {
    in_every_stage(
        manual(),
        |db| {
            let edges = [
                ("a", "x", "b"),
                ("a", "y", "b"),
                ("a", "x", "c"),
                ("c", "x", "a"),
                ("c", "z", "b"),
            ];
            write(db, &["a", "b", "c"], &edges)
        },
        |db, (), stage| {
            let graph = db.snapshot().graph();
            let find = |name, direction, kinds: &[&str]| -> Result<Vec<_>> {
                let found = graph.neighbors(id(name), direction, kinds)?;
                Ok(found
                    .into_iter()
                    .map(|n| (n.id, n.kind.to_string(), n.direction))
                    .collect())
            };
            use Direction::{Both, In, Out};
            let x = |name, direction| (id(name), "x".to_owned(), direction);
            let mut two = vec![x("b", Out), x("c", Out)];
            two.sort_by_key(|(id, ..)| *id);
            assert_eq!(find("a", Out, &["x"])?, two, "{stage:?}");
            assert_eq!(find("a", Out, &[])?.len(), 3);
            assert_eq!(find("a", In, &[])?, [x("c", In)]);
            assert_eq!(find("a", In, &["y"])?, []);
            two.push(x("c", In));
            assert_eq!(
                find("a", Both, &["x"])?,
                two,
                "those it points to come first"
            );
            assert_eq!(find("b", In, &["y", "z", "y"])?.len(), 2, "each kind once");
            let unknown = find("a", Out, &["x", "nope"]);
            assert_error!(unknown, Error::UnknownKind { name, known } if name == "nope" && known == ["node", "x", "y", "z"]);
            let missing = find("nobody", Out, &[]);
            assert_error!(missing, Error::MissingBlock { .. });
            Ok(())
        },
    );
}

#[test]
fn a_traversal_reads_one_snapshot() {
    in_every_stage(
        manual().history(History::All),
        |db| {
            write(
                db,
                &["a", "b", "c", "d"],
                &[("a", "to", "b"), ("b", "to", "c")],
            )?; // 2
            db.transact(|tx| {
                tx.delete_edge(id("b"), "to", id("c"))?;
                tx.put_edge(&Edge::new(id("b"), "to", id("d")))?;
                tx.put_edge(&Edge::new(id("d"), "later", id("a")))
            }) // 3
        },
        |db, (), stage| {
            let reached = |revision| -> Result<Vec<_>> {
                let graph = db.snapshot_at(revision)?.graph();
                let found = graph.traverse(id("a")).run()?;
                assert_eq!(found.stop(), Stop::Exhausted);
                Ok(found.visits().map(|v| (v.id, v.depth, v.parent)).collect())
            };
            let (a, b, c, d) = (id("a"), id("b"), id("c"), id("d"));
            let start = [(a, 0, None), (b, 1, Some(a))];
            assert_eq!(
                reached(Revision::new(2))?,
                [&start[..], &[(c, 2, Some(b))]].concat(),
                "{stage:?}"
            );
            assert_eq!(
                reached(Revision::new(3))?,
                [&start[..], &[(d, 2, Some(b))]].concat(),
                "{stage:?}"
            );
            let old = db.snapshot_at(Revision::new(1))?.graph().traverse(a).run();
            assert_error!(old, Error::MissingBlock { .. });
            let graph = db.snapshot().graph();
            // While a traversal's snapshot is held, deletions do not reach it.
            db.transact(|tx| tx.delete_block(b).map(drop))?;
            db.compact()?;
            let found = graph.traverse(a).max_depth(1).kinds(["to"]).run()?;
            assert_eq!(
                (found.len(), found.stop()),
                (2, Stop::MaxDepth),
                "{stage:?}"
            );
            let found = graph.traverse(a).limit(1).run()?;
            assert_eq!((found.len(), found.stop()), (1, Stop::Limit), "{stage:?}");
            let found = graph.traverse(a).max_bytes(1).run()?;
            assert_eq!(
                (found.len(), found.stop()),
                (0, Stop::MaxBytes),
                "{stage:?}"
            );
            let found = graph
                .traverse(a)
                .direction(Direction::In)
                .depth_first()
                .run()?;
            let order: Vec<_> = found.ids().collect();
            assert_eq!(order, [a, d, b], "{stage:?}");
            assert_error!(
                graph.traverse(a).kinds(["nope"]).run(),
                Error::UnknownKind { .. }
            );
            Ok(())
        },
    );
}

/// What a traversal follows: the attributes of edges, a predicate, and so many neighbors of each block.
#[test]
fn a_traversal_follows_the_edges_that_are_asked_for() {
    in_every_stage(
        manual(),
        |db| {
            write(db, &["a", "b", "c", "d"], &[])?;
            let edge = |from, kind, to, km| Edge::new(id(from), kind, id(to)).attribute("km", km);
            db.transact(|tx| {
                tx.put_edge(&edge("a", "road", "b", "3").attribute("toll", "no"))?;
                tx.put_edge(&edge("a", "rail", "c", "8").attribute("toll", "no"))?;
                tx.put_edge(&edge("b", "road", "d", "5").attribute("toll", "yes"))?;
                tx.put_edge(&edge("d", "road", "a", "1"))
            })
        },
        |db, (), stage| {
            let [a, b, c, d] = ["a", "b", "c", "d"].map(id);
            for is_viewed in [false, true] {
                if is_viewed {
                    assert!(db.build_graph_view()?);
                }
                let walk = || db.snapshot().graph().traverse(a);
                let found = |walk: bowline::Traverse| -> Result<_> {
                    let found = walk.run()?;
                    Ok((found.ids().collect::<BTreeSet<_>>(), found.stop()))
                };
                let all = |ids: &[BlockId]| ids.iter().copied().collect::<BTreeSet<_>>();
                let context = format!("{stage:?}, view: {is_viewed}");
                let free = walk().attribute("toll", "no");
                assert_eq!(
                    found(free)?,
                    (all(&[a, b, c]), Stop::Exhausted),
                    "{context}"
                );
                let both = walk().attribute("toll", "no").attribute("km", "8");
                assert_eq!(found(both)?, (all(&[a, c]), Stop::Exhausted), "{context}");
                // The edge is the same one, whichever way it is followed.
                let back = walk().direction(Direction::In).attribute("km", "1");
                assert_eq!(found(back)?, (all(&[a, d]), Stop::Exhausted), "{context}");
                let none = walk().attribute("color", "red");
                assert_eq!(found(none)?, (all(&[a]), Stop::Exhausted), "{context}");
                let one = walk().max_neighbors(1);
                assert_eq!(found(one)?.1, Stop::MaxNeighbors, "{context}");
                let two = walk().max_neighbors(2);
                assert_eq!(
                    found(two)?,
                    (all(&[a, b, c, d]), Stop::Exhausted),
                    "{context}"
                );
                let no_edge = walk().max_neighbors(0);
                assert_eq!(
                    found(no_edge)?,
                    (all(&[a]), Stop::MaxNeighbors),
                    "{context}"
                );
                // The bound counts what passes.
                let free = walk().kinds(["rail"]).max_neighbors(1);
                assert_eq!(found(free)?, (all(&[a, c]), Stop::Exhausted), "{context}");

                let mut asked = BTreeSet::new();
                let short = walk().attribute("toll", "no").run_where(|edge| {
                    asked.insert((edge.source, edge.kind.to_owned(), edge.target));
                    edge.attributes.text("km").is_some_and(|km| km < "5")
                })?;
                assert_eq!(short.ids().collect::<Vec<_>>(), [a, b], "{context}");
                let expected = [(a, "rail".to_owned(), c), (a, "road".to_owned(), b)];
                assert_eq!(asked, expected.into(), "{context}");
                let cancel = bowline::Cancel::new();
                let graph = db.snapshot().graph().cancelable(&cancel);
                let ended = graph.traverse(a).run_where(|_| {
                    cancel.cancel();
                    true
                });
                assert_error!(ended, Error::Canceled);
            }
            Ok(())
        },
    );
}

#[test]
fn large_blocks_and_many_edges_come_back() {
    const EDGES: u128 = 3_000;
    let content: Vec<u8> = (0..3 << 20)
        .map(|at: u32| (at.wrapping_mul(at) >> 7) as u8)
        .collect();
    in_every_stage(
        manual(),
        |db| {
            db.transact(|tx| {
                tx.put_block(&Block::new(BlockId(0), "hub").content(content.clone()))?;
                for leaf in 1..=EDGES {
                    let block = Block::new(BlockId(leaf), "leaf").attribute("n", leaf.to_string());
                    tx.put_block(&block)?;
                    tx.put_edge(&Edge::new(BlockId(0), "has", BlockId(leaf)))?;
                }
                Ok(())
            })
        },
        |db, (), stage| {
            let graph = db.snapshot().graph();
            let hub = graph.block(BlockId(0))?.expect("it is there");
            assert!(hub.content == content, "{stage:?}");
            let found = graph.neighbors(BlockId(0), Direction::Out, ["has"])?;
            let ids: Vec<_> = found.iter().map(|n| n.id.0).collect();
            assert_eq!(ids, (1..=EDGES).collect::<Vec<_>>(), "{stage:?}");
            assert_eq!(
                graph
                    .neighbors(BlockId(EDGES), Direction::In, NO_KINDS)?
                    .len(),
                1
            );
            assert_eq!(graph.traverse(BlockId(0)).run()?.len(), 1 + EDGES as usize);
            db.transact(|tx| tx.delete_block(BlockId(0)).map(drop))?;
            assert_eq!(db.check()?.edges, 0, "{stage:?}");
            Ok(())
        },
    );
}

#[test]
fn kinds_survive_and_are_validated() -> Result<()> {
    let disk = Disk::new();
    let longest = "k".repeat(256);
    for round in 0..3 {
        let db = disk.open(manual());
        let expected: Vec<_> = (0..round).map(|n| format!("kind{n}")).collect();
        let known = db.stats().kinds;
        assert!(
            expected.iter().all(|kind| known.contains(kind)),
            "{known:?}"
        );
        let block = BlockId(round);
        db.transact(|tx| tx.put_block(&Block::new(block, format!("kind{round}"))))?;
        for old in 0..=round {
            let found = db
                .snapshot()
                .graph()
                .block(BlockId(old))?
                .expect("it is there");
            assert_eq!(found.kinds, *format!("kind{old}"));
        }
        if round == 1 {
            db.compact()?;
        }
        for bad in [String::new(), format!("{longest}k")] {
            let refused = db.transact(|tx| tx.put_block(&Block::new(block, bad.clone())));
            assert_error!(refused, Error::InvalidKind { .. });
            let refused = db.transact(|tx| tx.put_edge(&Edge::new(block, bad.clone(), block)));
            assert_error!(refused, Error::InvalidKind { .. });
        }
    }
    let db = disk.open(manual());
    db.transact(|tx| tx.put_edge(&Edge::new(BlockId(0), longest.clone(), BlockId(1))))?;
    assert_eq!(db.stats().kinds.len(), 4);
    assert_eq!(db.revision(), 5, "kinds take no revision");
    Ok(())
}

#[test]
fn many_threads_register_the_same_new_kind_once() -> Result<()> {
    const THREADS: u128 = 12;
    let disk = Disk::new();
    let db = disk.open(Db::builder());
    for round in 0..20u128 {
        let start = Barrier::new(THREADS as usize);
        let kind = format!("kind{round:02}");
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (db, start, kind) = (&db, &start, &kind);
                scope.spawn(move || {
                    start.wait();
                    let block = Block::new(BlockId(round << 64 | thread), kind.as_str());
                    db.transact(|tx| tx.put_block(&block)).expect("a commit");
                });
            }
        });
    }
    drop(db);
    let db = disk.open(manual());
    let expected: Vec<_> = (0..20).map(|round| format!("kind{round:02}")).collect();
    assert_eq!(db.stats().kinds, expected);
    let mut count = 0;
    db.snapshot().graph().for_each_block(|block| {
        assert_eq!(block.kinds, *expected[(block.id.0 >> 64) as usize]);
        count += 1;
        Ok(())
    })?;
    assert_eq!(count, 20 * THREADS as usize);
    assert!(db.check()?.is_clean());
    Ok(())
}

#[test]
fn a_visit_that_fails_ends_the_scan_with_its_error() -> Result<()> {
    let db = Disk::new().open(manual());
    write(&db, &["a", "b", "c"], &[("a", "to", "b"), ("b", "to", "c")])?;
    let graph = db.snapshot().graph();
    let mut visited = 0;
    let result = graph.for_each_block(|_| {
        visited += 1;
        if visited == 2 {
            Err(Error::EmptyKey)
        } else {
            Ok(())
        }
    });
    assert_error!(result, Error::EmptyKey);
    assert_eq!(visited, 2);
    assert_error!(
        graph.for_each_edge(|_| Err(Error::EmptyKey)),
        Error::EmptyKey
    );
    Ok(())
}

/// From memory, from tables and from blob files; with other reads, of the same graph and while the
/// first is under way.
#[test]
fn what_is_lent_is_what_is_copied() {
    let small = Block::new(id("a"), "service")
        .content("old")
        .attribute("tier", "1")
        .attribute("größe", "");
    let large = Block::new(id("b"), "file").content(vec![0xff; 100_000]);
    let edge = Edge::new(id("a"), "reads", id("b")).attribute("weight", "2.5");
    in_every_stage(
        manual(),
        |db| {
            db.transact(|tx| {
                tx.put_block(&small)?;
                tx.put_block(&large)?;
                tx.put_edge(&edge)
            })
        },
        |db, (), stage| {
            let graph = db.snapshot().graph();
            for block in [&small, &large] {
                let lent = graph.visit_block(block.id, |lent| {
                    assert_eq!(lent.id, block.id);
                    assert!(lent.kinds.iter().eq(block.kinds.iter()));
                    assert_eq!(lent.content, block.content);
                    let inner = graph.visit_block(small.id, |lent| lent.to_block());
                    assert_eq!(inner.expect("a read").as_ref(), Some(&small));
                    lent.to_block()
                })?;
                assert_eq!(lent.as_ref(), Some(block), "{stage:?}");
                assert_eq!(lent, graph.block(block.id)?);
            }
            let tier = graph.visit_block(small.id, |lent| {
                lent.attributes.text("tier").map(str::to_owned)
            })?;
            assert_eq!(tier.flatten().as_deref(), Some("1"));
            let lent = graph.visit_edge(id("a"), "reads", id("b"), |lent| {
                let ends = (lent.source, lent.kind, lent.target);
                assert_eq!(ends, (id("a"), "reads", id("b")));
                lent.to_edge()
            })?;
            assert_eq!(lent.as_ref(), Some(&edge));
            let absent = [
                graph.visit_block(id("c"), |_| ())?,
                graph.visit_edge(id("b"), "reads", id("a"), |_| ())?,
                graph.visit_edge(id("a"), "never used", id("b"), |_| ())?,
            ];
            assert_eq!(absent, [None; 3]);
            Ok(())
        },
    );
}
