//! G8: the same questions where no view answers: the trees are read, from memory that was written just before, and from
//! tables in the cache.

use std::cell::OnceCell;
use std::path::Path;
use std::rc::Rc;

use fastrand::Rng;

use bowline::{BlockId, Db, Direction, Durability};

use crate::data::key;
use crate::fallible::Fallible;
use crate::measure::{Row, Sample, Turn, check};
use crate::result::{Bound, Unit};
use crate::store::{BATCHED_EVERY, BOWLINE};
use crate::timing::{BATCH, run_for};

/// A tree of blocks: each but those of the last level has so many children.
const FAN_OUT: u64 = 10;
/// Blocks of the levels 0 to 3, and those that have children.
const BLOCKS: u64 = 1_111;
const INNER: u64 = 111;

/// A database without a view, once it is asked.
struct Tree {
    db: OnceCell<Db>,
    path: std::path::PathBuf,
    is_compacted: bool,
}

impl Tree {
    fn new(directory: &Path, name: &str, is_compacted: bool) -> Rc<Tree> {
        Rc::new(Tree {
            db: OnceCell::new(),
            path: directory.join(name),
            is_compacted,
        })
    }

    fn db(&self) -> Fallible<&Db> {
        if self.db.get().is_none() {
            let durability = Durability::Batched {
                every: BATCHED_EVERY,
            };
            let builder = Db::builder().graph_view_bytes(0).durability(durability);
            let db = builder.open(&self.path)?;
            db.transact(|tx| {
                (0..BLOCKS).try_for_each(|n| tx.put_block(&bowline::Block::new(id(n), "block")))?;
                (1..BLOCKS).try_for_each(|child| {
                    let parent = id((child - 1) / FAN_OUT);
                    tx.put_edge(&bowline::Edge::new(parent, "link", id(child)))
                })
            })?;
            if self.is_compacted {
                db.compact()?;
            }
            let _ = self.db.set(db);
        }
        self.db.get().ok_or_else(|| "no database".into())
    }
}

fn id(number: u64) -> BlockId {
    BlockId::from_bytes(key(number))
}

pub fn rows<'a>(directory: &Path) -> Vec<Row<'a>> {
    const HOP_NS: f64 = 350.0;
    const BFS_NS: f64 = 130e3;
    let written = Tree::new(directory, "no-view-memory", false);
    let compacted = Tree::new(directory, "no-view-tables", true);
    let row = |name, tree: &Rc<Tree>, run: fn(&Tree, Turn) -> Fallible<Sample>, bound| {
        let tree = tree.clone();
        let run = move |turn| run(&tree, turn);
        let row = Row::new(name, Unit::Nanoseconds, vec![BOWLINE.name], run);
        row.bound(Bound::AtMost(bound))
    };
    vec![
        row("G8 no view: 1-hop of ten, memory", &written, hop, HOP_NS)
            .remark(format!("{INNER} blocks of degree {FAN_OUT}, each id read")),
        row("G8 no view: 1-hop of ten, tables", &compacted, hop, HOP_NS),
        row("G8 no view: BFS, memory", &written, walk, BFS_NS)
            .remark(format!("{BLOCKS} blocks, depth 3")),
        row("G8 no view: BFS, tables", &compacted, walk, BFS_NS),
    ]
}

fn hop(tree: &Tree, turn: Turn) -> Fallible<Sample> {
    let graph = tree.db()?.snapshot().graph();
    let mut rng = Rng::with_seed(turn.seed);
    let timed = run_for(turn.sample, BATCH, || {
        let (count, folded) = super::stage::hop(&graph, id(rng.u64(..INNER)))?;
        std::hint::black_box(folded);
        check(count as u64 == FAN_OUT, "a block has other edges")
    })?;
    Ok(Sample::time(timed))
}

fn walk(tree: &Tree, turn: Turn) -> Fallible<Sample> {
    let graph = tree.db()?.snapshot().graph();
    let timed = run_for(turn.sample, 1, || {
        let walk = graph.traverse(id(0)).direction(Direction::Out).max_depth(3);
        check(
            walk.run()?.len() as u64 == BLOCKS,
            "not all that is to be visited",
        )
    })?;
    Ok(Sample::time(timed))
}
