//! The rules of writing, shared by the library and the cluster.
//!
//! A write is decided in two places. The library decides it in a commit group, for a transaction that has
//! collected its mutations before. A member of a cluster decides it when it applies a command, on top of what
//! the same command has written before. Both call the same rules:
//!
//! ```text
//!   commit_queue (library)             replica (cluster)
//!        │      │        transaction        │      │
//!        │      │             │             │      │
//!        │      └─────────────┼─────────────┘      │
//!        ▼                    ▼                    ▼
//!     validate      graph, lease: compound       writer: metadata, lease attachments,
//!     guards,       writes over a `Target`       changes for watchers, batch
//!     changed since
//!        └──────────── lookup, previous ───────────┘
//! ```
//!
//! | rule | where |
//! |---|---|
//! | the form of a write | [`mutation`] |
//! | the state that a decision reads | [`lookup`] |
//! | the previous version, and puts without it | [`previous`] |
//! | guards, conflicts, and what each isolation relies on | [`validate`] |
//! | create revision, version, lease attachments, events | [`writer`] |
//! | the records of blocks, edges and kinds; deletion of a block's edges | [`graph`] |
//! | the entries of indexes; that no two blocks have the same unique values | [`index`] |
//! | the record of a lease; deletion of its keys | [`lease`] |
//! | the new value of a key from its newest one | [`update`] |
//!
//! Invariants:
//!
//! - Batches are encoded by [`writer`] alone, but for the record of what a member has applied; blocks and
//!   edges are encoded for them by [`graph`] alone, entries of indexes by [`index`] alone. An ingestion writes tables and no batch; it asks
//!   [`writer`] for metadata and for attachments.
//! - Every rule is generic over its caller and compiled for each, so that the library pays nothing for what
//!   only the cluster needs.

pub mod graph;
pub mod index;
pub mod lease;
pub mod lookup;
pub mod mutation;
pub mod previous;
pub mod target;
pub mod update;
pub mod validate;
pub mod writer;
