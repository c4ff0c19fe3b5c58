//! The databases that the rows read, and what is measured once while they are made.
//!
//! 1. The graph is loaded in bulk (G4), and compacted; its files are copied. Parts of it are loaded into databases of
//!    their own: by names, and by transactions.
//! 2. Of the first database the view is built while nothing else runs: the time it takes, and its memory (G5).
//! 3. The copy is asked at once: the trees answer until the view was built in the background. Then one edge in a
//!    hundred is changed (G3), a checkpoint is made, and the view of the checkpoint catches up (G7).

use std::cell::RefCell;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use bowline::{BlockId, Db, Direction, Durability, Graph, Stop, Traversed};

use super::bare::{Arrays, Search, Walked};
use super::edges::{EDGE_FACTOR, Edge, Edges};
use crate::fallible::Fallible;
use crate::machine;
use crate::measure::check;
use crate::store::BATCHED_EVERY;
use crate::timing::time;

/// The kind of all edges.
const KIND: &str = "link";
/// Blocks or edges in a transaction.
pub const BATCH_EDGES: usize = 1_000;
/// From how many vertices each search begins.
const STARTS: usize = 8;
/// Blocks of the hot 1-hop, and their edges.
const HOT: usize = 1_000;
const HOT_DEGREE: usize = 10;

/// How much memory the view takes, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// By the view's own count.
    pub own: u64,
    /// By how much the kernel's count of the process grew.
    pub kernel: u64,
    /// How much of that the cache of pages took.
    pub cache: u64,
}

/// Queries of a database that was just opened, until its view is there.
pub struct Meanwhile {
    /// The first query: a 1-hop.
    pub hop: Duration,
    /// The second: a search of the whole graph, during which the build begins.
    pub search: Duration,
    /// From the first query until the view was there.
    pub ready: Duration,
}

/// How long it took to load a part of the graph.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub edges: usize,
    pub time: Duration,
}

impl Load {
    pub fn per_second(&self) -> f64 {
        self.edges as f64 / self.time.as_secs_f64()
    }
}

/// All loads.
#[derive(Debug, Clone, Copy)]
pub struct Loads {
    pub bulk: Load,
    pub names: Load,
    pub transactions: Load,
}

/// A graph in a database, the same graph in bare arrays, and what a search from each start must find.
pub struct Place {
    pub db: Db,
    pub arrays: Arrays,
    pub expected: Vec<Walked>,
}

pub struct Stage {
    pub scale: u32,
    pub ids: Vec<BlockId>,
    pub edges: usize,
    /// The vertices of largest degree.
    pub starts: Vec<u32>,
    /// Vertices of degree ten.
    pub hot: Vec<u32>,
    /// As loaded.
    pub plain: Place,
    /// Its edges from their targets.
    pub arriving: Arrays,
    /// With one edge in a hundred changed since the view was built.
    pub changed: Place,
    /// The memory of the searches over bare arrays.
    pub search: RefCell<Search>,
    pub load: Loads,
    /// From the opening of a checkpoint, in which edges have changed since the view was saved, until it is ready.
    pub reopened: Duration,
    pub build: Duration,
    pub memory: Memory,
    /// Blocks of the view.
    pub blocks: u64,
    pub meanwhile: Meanwhile,
}

impl Stage {
    /// Makes all that the rows read, in a directory.
    pub fn new(scale: u32, directory: &Path) -> Fallible<Stage> {
        let tell = |what: &str| eprintln!("scale {scale}: {what}");
        tell("generating the graph");
        let edges = Edges::generate(scale);
        let path = directory.join("graph");
        let load = {
            let db = open(&path)?;
            tell(&format!("loading {} edges", edges.edges.len()));
            let load = load(&db, &edges)?;
            tell(&format!("loaded in {load:.1?}; compacting and copying"));
            db.compact()?;
            db.close()?;
            load
        };
        let load = Loads {
            bulk: Load {
                edges: edges.edges.len(),
                time: load,
            },
            names: load_by_names(&directory.join("names"), &edges)?,
            transactions: load_by_transactions(&directory.join("transactions"), &edges)?,
        };
        let copied = directory.join("changed");
        machine::copy(&path, &copied)?;

        tell("building the view");
        let db = open(&path)?;
        let (build, memory) = build(&db)?;
        let view = db.stats().graph_view;
        check(
            view.edges == edges.edges.len() as u64,
            "the view has not all edges",
        )?;
        let vertices = edges.ids.len();
        let mut search = Search::new(vertices);
        let arrays = Arrays::of(vertices, &edges.edges);
        let starts = by_distance(&arrays, usize::MAX, STARTS);
        let hot = by_distance(&arrays, HOT_DEGREE, HOT);
        let arriving = Arrays::of(vertices, &edges.reversed());
        let plain = Place::new(db, arrays, &starts, &mut search);

        tell("asking another until its view is there");
        let db = open(&copied)?;
        let hot_id = edges.ids[hot[0] as usize];
        let meanwhile = ask_until_built(&db, hot_id, edges.ids[starts[0] as usize])?;
        wait_for_file(&copied.join("graph-view"))?;
        let changes = edges.changes();
        let put: Vec<_> = changes.put.iter().map(|&edge| (edge, true)).collect();
        let deleted: Vec<_> = changes.deleted.iter().map(|&edge| (edge, false)).collect();
        write_edges(&db, &edges.ids, &[deleted, put].concat())?;
        let arrays = Arrays::of(vertices, &edges.changed(&changes));
        tell("opening a checkpoint of it");
        let checkpoint = directory.join("checkpoint");
        db.checkpoint(&checkpoint)?;
        let reopened = {
            let copy = open(&checkpoint)?;
            let ready = ask_until_ready(&copy, hot_id, Instant::now())?;
            let view = copy.stats().graph_view;
            let caught_up = view.builds == 0 && view.changes == changes.count() as u64;
            check(caught_up, "the saved view was not used")?;
            ready
        };
        let changed = Place::new(db, arrays, &starts, &mut search);

        let stage = Stage {
            scale,
            edges: edges.edges.len(),
            search: RefCell::new(search),
            ids: edges.ids,
            starts,
            hot,
            plain,
            arriving,
            changed,
            load,
            reopened,
            build,
            memory,
            blocks: view.blocks,
            meanwhile,
        };
        stage.see_changes(changes.count())?;
        Ok(stage)
    }

    /// Checks that the view has the changes as changes: a fold would have made them part of its base.
    fn see_changes(&self, changes: usize) -> Fallible<()> {
        // A reader that is ahead of the view applies what is pending.
        walk(&self.changed.db.snapshot().graph(), self.id(self.starts[0]))?;
        let view = self.changed.db.stats().graph_view;
        let is_right = view.is_ready && view.folds == 0 && view.changes == changes as u64;
        check(is_right, "the view has not the changes since it was built")
    }

    pub fn id(&self, vertex: u32) -> BlockId {
        self.ids[vertex as usize]
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "Kronecker graph (A = 0.57, B = C = 0.19) of scale {}: {} blocks, {EDGE_FACTOR} edges a \
             block generated, {} left without duplicates and loops",
            self.scale,
            self.ids.len(),
            self.edges
        )
    }
}

impl Place {
    fn new(db: Db, arrays: Arrays, starts: &[u32], search: &mut Search) -> Place {
        let expected = starts.iter().map(|&start| search.run(&arrays, start));
        Place {
            expected: expected.collect(),
            db,
            arrays,
        }
    }
}

/// A search of all that can be reached from a block.
pub fn walk(graph: &Graph, start: BlockId) -> Fallible<Traversed> {
    let found = graph.traverse(start).breadth_first().run()?;
    check(found.stop() == Stop::Exhausted, "a search was cut short")?;
    Ok(found)
}

/// The number of edges from a block, and all far ids folded into one number, so that each is read.
pub fn hop(graph: &Graph, id: BlockId) -> Fallible<(usize, u128)> {
    let (mut count, mut folded) = (0, 0);
    let no_kinds: [&str; 0] = [];
    graph.visit_neighbors(id, Direction::Out, no_kinds, |neighbor| {
        count += 1;
        folded ^= number(neighbor.id);
    })?;
    Ok((count, folded))
}

/// An id as a number.
#[inline]
pub fn number(id: BlockId) -> u128 {
    id.0
}

fn open(path: &Path) -> Fallible<Db> {
    /// The view of scale 20 takes a quarter of it.
    const VIEW_BYTES: u64 = 1 << 30;
    let builder = Db::builder().graph_view_bytes(VIEW_BYTES);
    let durability = Durability::Batched {
        every: BATCHED_EVERY,
    };
    Ok(builder.durability(durability).open(path)?)
}

/// Loads all blocks, and all edges in random order.
fn load(db: &Db, edges: &Edges) -> Fallible<Duration> {
    let shuffled = edges.shuffled();
    let (elapsed, ()) = time(|| {
        let mut ingest = db.ingest_graph()?;
        for &id in &edges.ids {
            ingest.block(&bowline::Block::new(id, "vertex"))?;
        }
        for &(source, target) in &shuffled {
            let (source, target) = (edges.ids[source as usize], edges.ids[target as usize]);
            ingest.edge(&bowline::Edge::new(source, KIND, target))?;
        }
        ingest.commit()?;
        Ok(())
    })?;
    Ok(elapsed)
}

/// Loads edges whose ends are names, as a file has them; their ids are computed for each.
fn load_by_names(path: &Path, edges: &Edges) -> Fallible<Load> {
    const EDGES_MAX: usize = 4_000_000;
    let mut part = edges.shuffled();
    part.truncate(EDGES_MAX);
    let names: Vec<_> = (0..edges.ids.len())
        .map(|number| format!("vertex/{number:08}"))
        .collect();
    let db = open(path)?;
    let (time, ()) = time(|| {
        let mut ingest = db.ingest_graph()?;
        for name in &names {
            let id = BlockId::from_name(name);
            ingest.block(&bowline::Block::new(id, "vertex"))?;
        }
        for &(source, target) in &part {
            let id = |vertex: u32| BlockId::from_name(&names[vertex as usize]);
            ingest.edge(&bowline::Edge::new(id(source), KIND, id(target)))?;
        }
        ingest.commit()?;
        Ok(())
    })?;
    let edges = part.len();
    Ok(Load { edges, time })
}

/// Writes all blocks, and then, timed, edges in random order.
fn load_by_transactions(path: &Path, edges: &Edges) -> Fallible<Load> {
    const EDGES_MAX: usize = 500_000;
    let db = open(path)?;
    for ids in edges.ids.chunks(BATCH_EDGES) {
        db.transact(|tx| {
            ids.iter()
                .try_for_each(|&id| tx.put_block(&bowline::Block::new(id, "vertex")))
        })?;
    }
    let mut part: Vec<_> = edges.shuffled().iter().map(|&edge| (edge, true)).collect();
    part.truncate(EDGES_MAX);
    let (time, ()) = time(|| write_edges(&db, &edges.ids, &part))?;
    let edges = part.len();
    Ok(Load { edges, time })
}

/// Waits until a file is there.
fn wait_for_file(path: &Path) -> Fallible<()> {
    const TIMEOUT: Duration = Duration::from_secs(60);
    let begun = Instant::now();
    while !path.exists() {
        check(begun.elapsed() < TIMEOUT, "the view was not saved")?;
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Puts or deletes edges, and returns when they are flushed.
fn write_edges(db: &Db, ids: &[BlockId], changes: &[(Edge, bool)]) -> Fallible<()> {
    for changes in changes.chunks(BATCH_EDGES) {
        db.transact(|tx| {
            changes.iter().try_for_each(|&((source, target), is_put)| {
                let (source, target) = (ids[source as usize], ids[target as usize]);
                if is_put {
                    return tx.put_edge(&bowline::Edge::new(source, KIND, target));
                }
                tx.delete_edge(source, KIND, target).map(|_| ())
            })
        })?;
    }
    Ok(db.sync()?)
}

/// Builds the view while nothing else runs.
fn build(db: &Db) -> Fallible<(Duration, Memory)> {
    let cache_before = db.stats().engine.cache_bytes;
    let before = machine::resident_bytes()?;
    let (elapsed, is_ready) = time(|| Ok(db.build_graph_view()?))?;
    check(is_ready, "the view was not built")?;
    let kernel = machine::resident_bytes()?.saturating_sub(before);
    let stats = db.stats();
    let memory = Memory {
        own: stats.graph_view.memory_bytes,
        kernel,
        cache: stats.engine.cache_bytes.saturating_sub(cache_before),
    };
    Ok((elapsed, memory))
}

/// Asks a database without a view until the background thread has built it: it begins to when the trees have been
/// asked for some thousand blocks.
fn ask_until_built(db: &Db, hot: BlockId, start: BlockId) -> Fallible<Meanwhile> {
    let opened = Instant::now();
    let (hop_time, _) = time(|| hop(&db.snapshot().graph(), hot))?;
    let (search, _) = time(|| walk(&db.snapshot().graph(), start))?;
    // A small graph is asked for more.
    let ready = ask_until_ready(db, hot, opened)?;
    Ok(Meanwhile {
        hop: hop_time,
        search,
        ready,
    })
}

/// Asks for a block until the view is ready: how long that is after `opened`.
fn ask_until_ready(db: &Db, hot: BlockId, opened: Instant) -> Fallible<Duration> {
    const TIMEOUT: Duration = Duration::from_secs(600);
    while !db.stats().graph_view.is_ready {
        check(opened.elapsed() < TIMEOUT, "the view was not ready in time")?;
        hop(&db.snapshot().graph(), hot)?;
    }
    Ok(opened.elapsed())
}

/// The vertices whose degrees are nearest to one, `count` at most, in an order that the graph gives.
fn by_distance(arrays: &Arrays, degree: usize, count: usize) -> Vec<u32> {
    let mut vertices: Vec<u32> = (0..arrays.vertices() as u32).collect();
    vertices.sort_by_key(|&vertex| arrays.row(vertex).len().abs_diff(degree));
    vertices.truncate(count);
    vertices
}
