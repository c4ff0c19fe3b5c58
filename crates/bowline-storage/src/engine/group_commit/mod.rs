//! Group commit: many batches, one write and one flush of the log.
//!
//! | file | contents |
//! |---|---|
//! | `group` | a commit group: takes batches, writes them, publishes them |
//! | `batch` | the encoding of one transaction's writes |
//! | `commit_state` | the state of the single writer, under the commit lock |
//! | `back_pressure` | how writers are slowed and stopped while flush or compaction is behind |

mod back_pressure;
mod batch;
mod commit_state;
mod group;

pub use batch::{BatchReader, BatchWriter, Operation};
pub(super) use commit_state::CommitState;
pub use group::CommitGroup;
