//! The state of an opened log: the first index of Raft's part, its last entry, and the known commit index.
//! Reads only.
//!
//! The entry before the first readable one counts as purged, and Raft needs its id. If it is the applied
//! entry, the tables' owner knows the id; a batch of the embedded time was never committed by a cluster and
//! gets term 0; otherwise it is lost, and the first readable entry is reported as purged in its place.

use std::sync::Arc;

use bowline_storage::Index;
use bowline_storage::log::Log;

use super::view::View;
use super::{LogStore, LogStoreOptions, Replay};
use crate::error::LogStoreError;
use crate::member_file::MemberFile;
use crate::record;
use crate::types::{LogId, log_id};

impl LogStore {
    /// Takes over the log that was opened with [`Replay::visit`]. The tables hold everything up to the engine
    /// index `flushed`, whose Raft id is `applied`: `None` for a new member, and for a database that was
    /// embedded until now.
    ///
    /// The caller must have applied embedded batches above `flushed`.
    pub fn open(
        log: Log,
        replay: &Replay,
        flushed: Index,
        applied: Option<LogId>,
        member: Arc<MemberFile>,
        options: LogStoreOptions,
    ) -> Result<LogStore, LogStoreError> {
        let next = log.next_index();
        let first = first_record(&log)?;
        let (mut purged, mut last) = (None, None);
        if first < next {
            last = id_at(&log, next - 1)?;
            purged = purged_before(&log, first, flushed, applied)?;
        } else if next > 1 {
            // Nothing is readable: the earlier entries are in the tables, or a batch.
            let engine_last = next - 1;
            let id = match applied {
                Some(applied) if applied.index + 1 == engine_last => applied,
                Some(applied) if applied.index + 1 > engine_last => {
                    return Err(LogStoreError::Contradiction(format!(
                        "it ends before index {next}, but {applied} was applied"
                    )));
                }
                _ => log_id(0, 0, engine_last - 1),
            };
            (purged, last) = (Some(id), Some(id));
        }
        if let Some(applied) = applied
            && (first..next).contains(&(applied.index + 1))
            && let Some(found) = id_at(&log, applied.index + 1)?
            && found != applied
        {
            return Err(LogStoreError::Contradiction(format!(
                "it holds {found} where {applied} was applied"
            )));
        }
        let mut committed = applied;
        if let Some(index) = replay.committed
            && (first..next).contains(&(index + 1))
        {
            committed = committed.max(id_at(&log, index + 1)?);
        }
        tracing::debug!(?purged, ?last, ?committed, "opened the Raft log");
        let view = View::new(purged, last, committed, options.cache_bytes);
        LogStore::start(log, view, flushed.max(replay.batches_upto), member, options)
    }
}

/// The lowest engine index with a Raft record; the next index if there is none. Batches precede records, so a
/// binary search finds it.
fn first_record(log: &Log) -> Result<Index, LogStoreError> {
    let (mut low, mut high) = (log.first_index(), log.next_index());
    while low < high {
        let middle = low + (high - low) / 2;
        match id_at(log, middle)? {
            Some(_) => high = middle,
            None => low = middle + 1,
        }
    }
    Ok(low)
}

/// The id to report as purged, before the record at the engine index `first`.
fn purged_before(
    log: &Log,
    first: Index,
    flushed: Index,
    applied: Option<LogId>,
) -> Result<Option<LogId>, LogStoreError> {
    if first == 1 {
        return Ok(None);
    }
    if let Some(applied) = applied
        && applied.index + 2 == first
    {
        return Ok(Some(applied));
    }
    if first <= flushed {
        return id_at(log, first);
    }
    if applied.is_none() {
        return Ok(Some(log_id(0, 0, first - 2)));
    }
    Err(LogStoreError::Contradiction(format!(
        "its first entry is {}, the tables hold {flushed} and {applied:?} was applied",
        first - 1
    )))
}

/// The Raft id of the entry at `engine_index`; `None` for a batch.
fn id_at(log: &Log, engine_index: Index) -> Result<Option<LogId>, LogStoreError> {
    let entries = log.read(engine_index, 0)?;
    let bytes = entries.first().map(|(_, bytes)| &bytes[..]);
    let Some(bytes) = bytes.filter(|bytes| record::is_record(bytes)) else {
        return Ok(None);
    };
    let index = engine_index - 1;
    let (head, _) =
        record::decode_head(bytes).map_err(|source| LogStoreError::Record { index, source })?;
    Ok(Some(LogId::new(head.leader, index)))
}
