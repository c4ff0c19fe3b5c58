//! Bulk load of a graph: blocks and edges in any order are sorted and written straight into tables, as one revision.
//!
//! | file | contents |
//! |---|---|
//! | `records` | the records of one tree, sorted outside of memory where they are many |
//! | `ends` | the check that the blocks of sorted edges exist |
//!
//! # Algorithm
//!
//! An edge is two records: one by its source, one by its target. The records of each tree are sorted apart
//! ([`Records`]). [`GraphIngest::commit`] writes the blocks in order; then, on two threads, the edges by source and
//! those by target. Blocks that are written only if they are absent
//! ([`GraphIngest::block_if_absent`]) are sorted apart, and merged with the others when those are written. Each of the two
//! passes over the edges reads the blocks at one end in ascending order, in parallel with the loaded blocks: so both ends
//! are checked without a random read for each edge.
//!
//! As for keys ([`crate::ingest`]), the tables are written at the revision after the newest one, and once more, while
//! other writers wait, if another commit came first.
//!
//! # Invariants
//!
//! - The result is that of one transaction which puts all blocks, then those that are absent, and then all edges, in the
//!   order in which they were given: of a block or an edge that is given twice, the last one counts.
//! - All of it commits at one revision, or nothing does. An edge whose block is missing ends the load.
//! - Whether a block exists is decided at that revision.
//! - Memory is bounded by five memtables. While a graph view follows the commits, up to a million
//!   changes are kept for it; with more of them the view is built anew.

mod ends;
mod records;

use std::cmp::Ordering;

use bowline_core::error::{Error, Result};
use bowline_core::graph::csr::{EdgeChange, GraphChanges};
use bowline_core::graph::{KindId, split_edge_key};
use bowline_core::lease::LeaseId;
use bowline_core::state::{Core, check_value};
use bowline_core::trees;
use bowline_core::write::target::Target;
use bowline_core::write::validate::Guard;
use bowline_core::write::{self};
use bowline_storage::engine::StagedTables;
use bowline_storage::{EntryKind, TreeId, workers};
use bowline_types::{Block, Edge, Revision};

use crate::db::Db;
use crate::handle::Handle;
use ends::{Ends, exists};
use records::Records;

/// Changes that are handed to the graph view.
const CHANGES_MAX: usize = 1 << 20;

/// A bulk load of blocks and edges; see [`Db::ingest_graph`]. Nothing is visible before [`GraphIngest::commit`].
/// Dropping it discards everything.
///
/// ```
/// # use bowline::{Block, BlockId, Direction, Edge};
/// # let db = bowline::Db::in_memory()?;
/// let mut ingest = db.ingest_graph()?;
/// for number in 0..1_000 {
///     ingest.block(&Block::new(BlockId(number), "host"))?;
///     ingest.edge(&Edge::new(BlockId(number), "link", BlockId((number + 1) % 1_000)))?;
/// }
/// assert_eq!((ingest.blocks(), ingest.edges()), (1_000, 1_000));
/// ingest.commit()?;
/// let next = db.snapshot().graph().neighbors(BlockId(7), Direction::Out, ["link"])?;
/// assert_eq!(next[0].id, BlockId(8));
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing is loaded before `commit`"]
pub struct GraphIngest {
    handle: Handle,
    records: Sorted,
    /// The kind that was named last.
    kind: Option<(String, KindId)>,
    blocks: u64,
    edges: u64,
    /// The error that ended the load.
    failure: Option<Error>,
}

impl Db {
    /// Begins a bulk load of a graph: blocks and edges in any order are sorted, written straight into tables, without
    /// log and memtable, and become visible at one revision. Other reads and writes go on until
    /// [`GraphIngest::commit`].
    ///
    /// It is for graphs of a hundred thousand edges and more. It needs the memory of five memtables
    /// ([`DbBuilder::memtable_bytes`](crate::DbBuilder::memtable_bytes)), and until it is committed twice the size of the
    /// graph on the disk.
    ///
    /// ```
    /// # use bowline::{Block, BlockId, Edge};
    /// # let db = bowline::Db::in_memory()?;
    /// let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
    /// let mut ingest = db.ingest_graph()?;
    /// // The ends of an edge may come after it, and may be in the database already.
    /// ingest.edge(&Edge::new(app, "depends_on", lib))?;
    /// ingest.block(&Block::new(app, "package"))?;
    /// ingest.block(&Block::new(lib, "package"))?;
    /// let committed = ingest.commit()?;
    /// assert_eq!(db.revision(), committed.revision);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Closed`.
    pub fn ingest_graph(&self) -> Result<GraphIngest> {
        let handle = self.handle();
        handle.check_open()?;
        Ok(GraphIngest {
            handle: handle.clone(),
            records: Sorted {
                blocks: Records::of(trees::BLOCK),
                absent: Records::of(trees::BLOCK),
                out: Records::of(trees::EDGE_OUT),
                incoming: Records::of(trees::EDGE_IN),
            },
            kind: None,
            blocks: 0,
            edges: 0,
            failure: None,
        })
    }
}

impl GraphIngest {
    /// Adds a block, which replaces one with the same id.
    ///
    /// ```
    /// # use bowline::{Block, BlockId};
    /// # let db = bowline::Db::in_memory()?;
    /// let mut ingest = db.ingest_graph()?;
    /// ingest.block(&Block::new(BlockId(1), "host").attribute("zone", "eu"))?;
    /// ingest.commit()?;
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidKind`, `ValueTooLarge`; `Closed`; `Storage` when the disk fails or is full. After an error the load can
    /// only be dropped.
    pub fn block(&mut self, block: &Block) -> Result<()> {
        self.add(false, |target| write::graph::put_block(target, block))?;
        self.blocks += 1;
        Ok(())
    }

    /// Adds a block unless there is one with the same id at the commit: in the database, or given to
    /// [`GraphIngest::block`] before or after. For files of edges, which name blocks and do not say more of them.
    ///
    /// ```
    /// # use bowline::{Block, BlockId};
    /// # let db = bowline::Db::in_memory()?;
    /// let mut ingest = db.ingest_graph()?;
    /// ingest.block(&Block::new(BlockId(1), "host").content("known"))?;
    /// ingest.block_if_absent(&Block::new(BlockId(1), "host"))?;
    /// ingest.block_if_absent(&Block::new(BlockId(2), "host"))?;
    /// assert_eq!(ingest.commit()?.blocks, 2);
    /// let first = db.snapshot().graph().block(BlockId(1))?.expect("a block");
    /// assert_eq!(first.content, "known");
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`GraphIngest::block`].
    pub fn block_if_absent(&mut self, block: &Block) -> Result<()> {
        self.add(true, |target| write::graph::put_block(target, block))?;
        self.blocks += 1;
        Ok(())
    }

    /// Adds an edge, which replaces one with the same source, kind and target. Whether its blocks exist is checked by
    /// [`GraphIngest::commit`].
    ///
    /// ```
    /// # use bowline::{BlockId, Edge};
    /// # let db = bowline::Db::in_memory()?;
    /// let mut ingest = db.ingest_graph()?;
    /// ingest.edge(&Edge::new(BlockId(1), "link", BlockId(2)))?;
    /// assert!(matches!(ingest.commit(), Err(bowline::Error::MissingBlock { .. })));
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`GraphIngest::block`].
    pub fn edge(&mut self, edge: &Edge) -> Result<()> {
        self.add(false, |target| write::graph::put_edge(target, edge))?;
        self.edges += 1;
        Ok(())
    }

    fn add(
        &mut self,
        if_absent: bool,
        put: impl FnOnce(&mut Loading<'_>) -> Result<()>,
    ) -> Result<()> {
        if let Some(error) = &self.failure {
            return Err(error.clone());
        }
        let mut loading = Loading {
            handle: &self.handle,
            records: &mut self.records,
            kind: &mut self.kind,
            if_absent,
        };
        let result = put(&mut loading).and_then(|()| self.records.spill_if_full(&self.handle));
        if let Err(error) = &result {
            self.failure = Some(error.clone());
        }
        result
    }

    /// How many blocks were added, each as often as it was given.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// assert_eq!(db.ingest_graph()?.blocks(), 0);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// How many edges were added, each as often as it was given.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// assert_eq!(db.ingest_graph()?.edges(), 0);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn edges(&self) -> u64 {
        self.edges
    }

    /// Commits everything at one revision. Returns when it is durable, under every durability setting. Without blocks
    /// and edges nothing changes.
    ///
    /// Other writers wait while the memtables are flushed. If another commit came after the tables were begun, they also
    /// wait while the tables are written again.
    ///
    /// ```
    /// # use bowline::{Block, BlockId};
    /// # let db = bowline::Db::in_memory()?;
    /// let mut ingest = db.ingest_graph()?;
    /// ingest.block(&Block::new(BlockId(1), "host"))?;
    /// let loaded = ingest.commit()?;
    /// assert_eq!((loaded.blocks, loaded.edges, loaded.revision), (1, 0, db.revision()));
    /// assert!(db.snapshot().graph().block(BlockId(1))?.is_some());
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of an earlier call that failed; `MissingBlock` with a block that an edge leads from or to and that does
    /// not exist; `NotSupported` where there are indexes; `Closed`; `Storage` when the disk fails or is full. Nothing is committed then.
    pub fn commit(mut self) -> Result<GraphLoaded> {
        if let Some(error) = self.failure {
            return Err(error);
        }
        self.handle.check_open()?;
        let core: &Core = &self.handle;
        let records = &mut self.records;
        if records.is_empty() {
            return Ok(GraphLoaded::nothing(core));
        }
        refuse_indexes(core)?;
        records.finish(core)?;
        let revision = {
            let pin = core.engine.pin_newest();
            pin.revision() + 1
        };
        // A block that is missing now may be there at the commit, and one that is there may be gone.
        let written = match records.write(core, revision) {
            Err(Error::MissingBlock { .. }) if core.engine.visible() >= revision => None,
            written => Some(written?),
        };
        let committed = self.handle.queue.lead_alone(core, || {
            // In the order of commits: one that is created later finds what is loaded here.
            refuse_indexes(core)?;
            let ingestion = core.engine.begin_ingest()?;
            let next = ingestion.next_revision();
            let written = match written.filter(|_| revision == next) {
                Some(written) => written,
                None => records.write(core, next)?,
            };
            let (blocks, edges) = (written.blocks, written.edges);
            if blocks + edges == 0 {
                return Ok(GraphLoaded::nothing(core));
            }
            let revision = ingestion.publish(written.tables)?;
            core.hub.wake();
            let view = &core.graph_view;
            match written.changes {
                Some(mut changes) => core.publish_graph(&mut changes),
                None if view.is_collecting() => view.forget(),
                None => {}
            }
            Ok(GraphLoaded {
                revision: Revision::new(revision),
                blocks,
                edges,
            })
        });
        if committed.is_ok()
            && let Err(error) = core.engine.run_background_if_manual()
        {
            // The load is committed; the next commit group reports the failure.
            tracing::error!(%error, "flush or compaction failed");
        }
        match committed {
            Err(Error::Storage(bowline_storage::Error::Closed)) => Err(Error::Closed),
            committed => committed,
        }
    }
}

/// A load writes tables, and no entries of indexes.
fn refuse_indexes(core: &Core) -> Result<()> {
    match core.indexes.are_none() {
        true => Ok(()),
        false => Err(Error::NotSupported {
            what: "a bulk load of blocks into a database with indexes",
            why: "it does not keep them: drop them, load, and create them again, or write in transactions",
        }),
    }
}

/// What [`GraphIngest::commit`] wrote.
///
/// ```
/// # use bowline::{Block, BlockId};
/// # let db = bowline::Db::in_memory()?;
/// let mut ingest = db.ingest_graph()?;
/// ingest.block(&Block::new(BlockId(1), "host"))?;
/// ingest.block(&Block::new(BlockId(1), "host").attribute("zone", "eu"))?;
/// assert_eq!(ingest.commit()?.blocks, 1, "the last one");
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphLoaded {
    /// The revision of the load; the newest one if there was nothing to write.
    pub revision: Revision,
    /// Blocks that were created or replaced, each counted once.
    pub blocks: u64,
    /// Edges that were created or replaced, each counted once.
    pub edges: u64,
}

impl GraphLoaded {
    fn nothing(core: &Core) -> GraphLoaded {
        GraphLoaded {
            revision: Revision::new(core.engine.visible()),
            blocks: 0,
            edges: 0,
        }
    }
}

/// The records of all trees.
#[derive(Debug)]
struct Sorted {
    blocks: Records,
    /// Blocks that are written if they are absent.
    absent: Records,
    out: Records,
    incoming: Records,
}

/// The tables at a revision, and the changes for the graph view: none if it cannot follow.
struct Written {
    tables: Vec<StagedTables>,
    blocks: u64,
    edges: u64,
    changes: Option<GraphChanges>,
}

impl Sorted {
    fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.absent.is_empty() && self.out.is_empty()
    }

    fn of(&mut self, tree: TreeId, if_absent: bool) -> &mut Records {
        match tree {
            trees::EDGE_OUT => &mut self.out,
            trees::EDGE_IN => &mut self.incoming,
            _ if if_absent => &mut self.absent,
            _ => &mut self.blocks,
        }
    }

    fn spill_if_full(&mut self, core: &Core) -> Result<()> {
        for blocks in [&mut self.blocks, &mut self.absent] {
            if blocks.is_full(core) {
                blocks.spill(core)?;
            }
        }
        if !self.out.is_full(core) && !self.incoming.is_full(core) {
            return Ok(());
        }
        let Sorted { out, incoming, .. } = self;
        let (out, incoming) = workers::both(
            core.engine.has_threads(),
            || out.spill(core),
            || incoming.spill(core),
        );
        out.and(incoming)
    }

    fn finish(&mut self, core: &Core) -> Result<()> {
        let Sorted {
            blocks,
            absent,
            out,
            incoming,
        } = self;
        blocks.finish(core)?;
        absent.finish(core)?;
        let (out, incoming) = workers::both(
            core.engine.has_threads(),
            || out.finish(core),
            || incoming.finish(core),
        );
        out.and(incoming)
    }

    /// Writes the tables at a revision, and checks that both blocks of each edge exist.
    fn write(&self, core: &Core, revision: u64) -> Result<Written> {
        let (blocks, block_count) = self.write_blocks(core, revision)?;
        let is_collecting = core.graph_view.is_collecting();
        let mut changes = is_collecting.then(GraphChanges::default);
        if let Some(changes) = changes.as_mut().filter(|_| block_count > 0) {
            changes.note_blocks();
        }
        let (out, incoming) = workers::both(
            core.engine.has_threads(),
            || {
                let note = |key: &[u8]| note(&mut changes, key, revision);
                write_edges(core, &self.out, &blocks, revision, note)
            },
            || write_edges(core, &self.incoming, &blocks, revision, |_| {}),
        );
        let ((out, edges), (incoming, _)) = (out?, incoming?);
        Ok(Written {
            tables: vec![blocks, out, incoming],
            blocks: block_count,
            edges,
            changes,
        })
    }

    /// Writes the blocks, and those of `absent` that are neither among them nor in the database. Returns their number.
    fn write_blocks(&self, core: &Core, revision: u64) -> Result<(StagedTables, u64)> {
        let mut tables = core.engine.stage_tables(trees::BLOCK, revision);
        let (mut loaded, mut absent) = (self.blocks.cursor()?, self.absent.cursor()?);
        let mut count = 0;
        loop {
            let (next, wanted) = (loaded.current(), absent.current());
            let order = match (next, wanted) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((next, _)), Some((wanted, _))) => next.cmp(wanted),
            };
            let record = match (order, wanted) {
                (Ordering::Greater, Some((key, _))) if exists(core, key)? => None,
                (Ordering::Greater, wanted) => wanted,
                _ => next,
            };
            if let Some((key, value)) = record {
                tables.add(key, EntryKind::Put, value, &[])?;
                count += 1;
            }
            if order != Ordering::Greater {
                loaded.advance()?;
            }
            if order != Ordering::Less {
                absent.advance()?;
            }
        }
        tables.finish()?;
        Ok((tables, count))
    }
}

/// Writes the edges by one of their ends, whose blocks must exist. Returns their number.
fn write_edges(
    core: &Core,
    records: &Records,
    blocks: &StagedTables,
    revision: u64,
    mut note: impl FnMut(&[u8]),
) -> Result<(StagedTables, u64)> {
    let mut tables = core.engine.stage_tables(records.tree(), revision);
    let mut ends = Ends::new(core, blocks)?;
    let mut sorted = records.cursor()?;
    let mut count = 0;
    while let Some((key, value)) = sorted.current() {
        let (near, _, _) = write::graph::split(trees::EDGE_OUT, key)?;
        ends.require(near)?;
        note(key);
        tables.add(key, EntryKind::Put, value, &[])?;
        count += 1;
        sorted.advance()?;
    }
    tables.finish()?;
    Ok((tables, count))
}

/// Keeps the change of an edge for the graph view, unless there are too many.
fn note(changes: &mut Option<GraphChanges>, key: &[u8], revision: u64) {
    let Some(kept) = changes else {
        return;
    };
    if kept.edges() == CHANGES_MAX {
        *changes = None;
        return;
    }
    if let Some((source, kind, target)) = split_edge_key(key) {
        kept.push(EdgeChange {
            source,
            target,
            revision,
            kind,
            is_put: true,
        });
    }
}

/// Takes the records of a rule into the load.
struct Loading<'a> {
    handle: &'a Handle,
    records: &'a mut Sorted,
    kind: &'a mut Option<(String, KindId)>,
    if_absent: bool,
}

impl Target for Loading<'_> {
    type Error = Error;

    /// Only deletions ask.
    fn exists(&mut self, _: TreeId, _: &[u8]) -> Result<bool> {
        Err(not_a_put())
    }

    fn first_keys(&mut self, _: TreeId, _: &[u8], _: usize) -> Result<Vec<Vec<u8>>> {
        Err(not_a_put())
    }

    fn require(&mut self, guard: Guard) -> Result<()> {
        match guard {
            // The commit checks the blocks of all edges.
            Guard::Block { .. } => Ok(()),
            Guard::Revision { .. } | Guard::Lease { .. } => Err(not_a_put()),
        }
    }

    fn kind(&mut self, name: &str) -> Result<KindId> {
        if let Some((last, id)) = self.kind
            && last == name
        {
            return Ok(*id);
        }
        let id = self.handle.kind_id(name)?;
        *self.kind = Some((name.to_owned(), id));
        Ok(id)
    }

    fn put_record(&mut self, tree: TreeId, key: &[u8], value: Vec<u8>) -> Result<()> {
        check_value(value.len(), &self.handle.limits)?;
        self.records.of(tree, self.if_absent).push(key, &value)
    }

    fn delete_record(&mut self, _: TreeId, _: &[u8]) -> Result<()> {
        Err(not_a_put())
    }

    fn delete_attached(&mut self, _: &[u8], _: LeaseId) -> Result<()> {
        Err(not_a_put())
    }
}

fn not_a_put() -> Error {
    Error::NotSupported {
        what: "a write of a bulk load that is not a put",
        why: "only blocks and edges are loaded; use a transaction",
    }
}
