//! What one pass over the log at its opening collects: leaders and the commit index.

use std::path::PathBuf;

use bowline_storage::Index;
use bowline_storage::{Error, Result};

use crate::record;

/// Pass [`Replay::visit`] to [`Log::open`](bowline_storage::log::Log::open), then this to
/// [`LogStore::open`](super::LogStore::open).
#[derive(Debug)]
pub struct Replay {
    dir: PathBuf,
    /// The last batch of the embedded time above the tables, if any.
    pub(super) batches_upto: Index,
    /// Whether there was a Raft record.
    has_records: bool,
    /// The highest commit index in a record.
    pub(super) committed: Option<u64>,
}

impl Replay {
    /// For the log in `dir`, which error texts name.
    #[must_use]
    pub fn new(dir: PathBuf) -> Replay {
        Replay {
            dir,
            batches_upto: 0,
            has_records: false,
            committed: None,
        }
    }

    /// The last batch of the embedded time; 0 is none.
    #[must_use]
    pub(crate) fn batches_upto(&self) -> Index {
        self.batches_upto
    }

    /// Visits the entry at the engine index `index`.
    pub fn visit(&mut self, index: Index, bytes: &[u8]) -> Result<()> {
        let damaged = |reason: String| Error::corrupt(&self.dir, 0, reason);
        if record::is_record(bytes) {
            let (head, _) = record::decode_head(bytes)
                .map_err(|error| damaged(format!("log entry {index}: {error}")))?;
            self.has_records = true;
            self.committed = self.committed.max(head.committed);
        } else if self.has_records {
            let reason = format!("log entry {index} is no Raft record, but one before it is");
            return Err(damaged(reason));
        } else {
            self.batches_upto = index;
        }
        Ok(())
    }
}
