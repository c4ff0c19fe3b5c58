//! A transactional key-value and graph database in one process.
//!
//! ```
//! use bowline::{Block, BlockId, Db, Direction, Edge, Expected};
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("data");
//! let db = Db::open(&path)?;
//!
//! // Keys and values; each commit has a revision.
//! let revision = db.put(b"svc/api", b"10.0.0.7")?;
//! db.compare_and_swap(b"svc/api", Expected::Revision(revision), b"10.0.0.8")?;
//!
//! // Keys, blocks and edges in one transaction, at one revision.
//! let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
//! db.transact(|tx| {
//!     tx.put_block(&Block::new(app, "package").attribute("name", "app"))?;
//!     tx.put_block(&Block::new(lib, "package").attribute("name", "lib"))?;
//!     tx.put_edge(&Edge::new(app, "depends_on", lib))?;
//!     tx.put(b"packages", b"2")
//! })?;
//!
//! // Who depends on lib, within three steps?
//! let graph = db.snapshot().graph();
//! let users = graph.traverse(lib).direction(Direction::In).max_depth(3).run()?;
//! assert_eq!(users.ids().last(), Some(app));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Promises
//!
//! - A commit that was acknowledged survives a crash and a power loss ([`Durability::Sync`], the
//!   default). After a crash the state is a prefix of the commit order.
//! - A transaction is atomic over keys, blocks and edges and has one [`Revision`]; revisions never
//!   go back and never repeat.
//! - The default isolation is serializable ([`Isolation`]).
//! - A watch delivers every change in order, or fails with the oldest readable revision ([`Watcher`]).
//! - Every byte on disk is checksummed: damage is an error, never a wrong answer.

/// The examples of the README, compiled and run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The examples of the guide for programs that embed the library.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/embedding.md")]
struct EmbeddingGuide;

mod builder;
mod check;
mod commit_queue;
mod db;
mod draft;
mod expiry;
mod graph_ingest;
mod graph_view;
mod handle;
mod index_build;
mod indexes;
mod ingest;
mod many;
mod noted;
mod query;
mod read_only;
mod reader;
mod snapshot;
#[cfg(test)]
mod tests;
mod ticket;
mod transaction;
mod tree_hashes;
mod turns;
mod update;
mod watcher;

pub use bowline_core::error::{Error, Result};
pub use bowline_core::graph::cancel::Cancel;
pub use bowline_core::graph::csr::GraphViewStats;
pub use bowline_core::graph::{AttributeRef, AttributesRef, BlockRef, EdgeRef, Precedence};
pub use bowline_core::kv::author::Author;
pub use bowline_core::kv::{Entry, EntryRef, LeaseKeys, Range, RangeIter, Version};
pub use bowline_core::lease::{Lease, LeaseId};
pub use bowline_core::options::{
    Background, BlobOptions, CompactionOptions, Compression, Durability, History, Isolation,
    Limits, Strategy,
};
pub use bowline_core::text;
pub use bowline_core::watch::{Change, ChangeKind, Changes};
pub use bowline_storage::counters::CountersSnapshot;
pub use bowline_storage::engine::{CheckReport, EngineStats, FileReport, LevelStats};
pub use bowline_storage::histogram::HistogramSnapshot;
pub use bowline_storage::{Clock, Error as StorageError, SystemClock, Value, vfs};
pub use bowline_types::{
    AttributeValue, Attributes, Block, BlockId, BlockKinds, Direction, Edge, EdgeKey, Expected,
    GraphStats, Index, Neighbor, ParseBlockIdError, Path, Revision, Stop, Traversal, Update,
    UpdateError, Visit,
};
pub use builder::DbBuilder;
pub use check::{Check, check_files};
pub use commit_queue::Committed;
pub use db::Db;
pub use graph_ingest::{GraphIngest, GraphLoaded};
pub use graph_view::{
    BlockLabels, BlockValues, Blocks, ClusteringCoefficients, Communities, Distances, Filter,
    Graph, KHop, NeighborRef, PageRank, PathIter, ShortestPath, SimplePaths, Traverse, Traversed,
    Triangles, VisitRef, WeightedDistances,
};
pub use ingest::Ingest;
pub use read_only::check_member;
pub use reader::{DbReader, Stats};
pub use snapshot::Snapshot;
pub use ticket::Ticket;
pub use transaction::{Transaction, TransactionRange};

/// Queries in Cypher: see [`Db::query`], and docs/cypher.md for the language.
pub mod cypher {
    pub use crate::query::{Algorithms, DraftRead, Drafted, ModelError};
    pub use bowline_query::{
        Answer, Class, Detail, Duration, Effects, Error, Graph, Limits, Name, Nested, Node,
        NodeRecord, OffsetTime, Parameters, Path, Phase, Place, PlanFigures, Prepared, Problem,
        Properties, Query, Relationship, RelationshipId, Result, Span, StoreError, Summary, Type,
        Value,
    };
}
pub use tree_hashes::TreeHashes;
pub use update::Updated;
pub use watcher::{WatchBuilder, Watcher};
