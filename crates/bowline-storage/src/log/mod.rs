//! The one segmented log: write-ahead log of the embedded database, Raft log of a cluster.
//!
//! # Files
//!
//! A directory of segments, each a file of fixed size named by its id. A segment is a header page
//! and then *frames*; a frame is one group of entries, written with one `write_at`, and perhaps zeros
//! with it.
//!
//! ```text
//!  log/0000000000000007.log                        log/0000000000000008.log   (active)
//! ┌────────┬───────┬───────┬─────────┬─────┐      ┌────────┬───────┬───────┬────────────┐
//! │ header │ frame │ frame │    …          │      │ header │ Begin │ frame │ zeros, or  │
//! │ 4096 B │ 1..=3 │ 4..=9 │               │      │ 4096 B │       │ 10..  │ older life │
//! └───────▲┴───────┴───────┴───────────────┘      └───┬────┴───┬───┴───────┴────────────┘
//!         │ mark           ▲ end                      │ previous: id 7 and its salt
//!         │                └──────────────────────────│────────┘ its end, first index 10
//!         └ a later segment exists ───────────────────┘
//! ```
//!
//! Byte by byte: `docs/format.md`.
//!
//! # Algorithm
//!
//! *Writing.* [`Log::stage`] collects a group in a reused buffer, [`Log::write`] writes it as one
//! frame, [`Log::sync`] makes everything written so far durable. Space exists before it is used:
//! a segment is filled with zeros ahead of time, by a thread ([`Background::Threads`]) or at the
//! rotation ([`Background::Manual`]), or it is a released segment used again. So an append
//! overwrites allocated blocks, and its flush needs no journal of the file system. A write that enters a
//! page of the file fills the rest of the page with zeros. Otherwise the kernel would first have to read
//! that rest from the disk.
//!
//! *A life.* Each time a file becomes a segment it gets a new id and a new random salt. They seed
//! the tag and the checksums of its frames, together with the frame's own offset, so bytes of an
//! earlier life, of another file or of another place can never be taken for a frame.
//!
//! *Preparation.* The header is written and synced while the file still has a spare's name; then
//! it gets its segment name; then the directory is synced; then the segment before it is marked as
//! continued; and only then does a frame go in. Therefore a named segment with a bad header is
//! damage, and a marked segment without a later one is a lost file. All of it happens while the
//! segment before is still written to, so it cannot say where that one will end.
//!
//! *Rotation.* The active segment is synced, which it already is when every commit syncs. Nothing else
//! is written: the prepared segment begins with a `Begin` frame, which states the end of the previous
//! segment and the first index, and one write contains it and the first group. It needs no flush of its
//! own, since a flush that covers any frame of the segment covers it. Without it the segment counts as
//! not begun, and the log ends in the previous segment. The headers of both frames lie in one sector, so
//! the second without the first is damage. `Begin` is made durable before the previous segment is
//! released.
//!
//! *Vouching.* The last group of the last segment has no frame behind it, so when it rots it looks torn.
//! To detect such rot, the owner calls [`Log::vouch`] when it has nothing to write for a while. It writes
//! two small frames which say that everything before them is synced. The second is in its own sector.
//!
//! *Recovery* is scan (reads only), plan (a value), apply (changes files). A torn tail ends the
//! log only in the last segment that was begun. Each frame carries how much of its segment was known to be
//! synced when it was written: an invalid frame that a later one proves synced is damage and an
//! error, any other is a torn tail. Writing then starts in a new segment whose header states where
//! the one before ends; bytes beyond that point are never read again.
//!
//! *Restarting.* [`Log::restart_at`] voids all entries and continues in a new segment without a
//! predecessor, perhaps after a gap of indices. The older segments are removed. It is for an owner whose
//! state was replaced by a newer one from another member.
//!
//! # Invariants
//!
//! 1. An index is acknowledged as durable only after `sync_data` covered its frame, and every
//!    earlier segment was synced before the first frame of the next one was written.
//! 2. A position of a segment is written once per life, but for the mark and for zeros behind the last frame,
//!    which become frames. (Recovery writes the tail again, with the same bytes, because after an earlier
//!    failed sync the page cache may wrongly call those pages clean.)
//! 3. After a failed write or sync nothing is written or acknowledged any more; only reopening
//!    helps. Running out of space while making a segment changes nothing and can be tried again.
//! 4. Segments that hold something are removed oldest first, each removal durable before the next.
//! 5. Before the caller records "flushed up to `n`" anywhere, it has synced the log up to `n`:
//!    [`Log::open`] treats a log that ends before `after` as damaged.

mod frame;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod plan;
mod reader;
mod recovery;
mod scan;
mod segment;
mod segment_allocator;
mod space;
mod sparse_index;
mod sync;
mod verify;
mod writer;

#[cfg(test)]
mod tests;

pub use reader::Replay;
#[cfg(test)]
pub(crate) use scan::scan_for_test;
pub use sync::LogSync;
pub use verify::Report;
pub use writer::Log;

use crate::workers::Background;

/// How a log lays out its files.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Size of a full-grown segment. A group larger than this gets a segment of its own size.
    pub segment_bytes: u64,
    /// Size of the first segment after each opening; each further one is twice as large, up to
    /// `segment_bytes`. Keeps a small database small and its opening fast.
    pub first_segment_bytes: u64,
    /// Where the next segment is prepared.
    pub background: Background,
    /// How many released segments are kept to be used again.
    pub spares_max: usize,
    /// The id of the log's owner. Every segment has it, so that a file of another log is never mistaken
    /// for one of this log, even where only its header names the segment that it continues.
    pub owner: u128,
}

impl LogOptions {
    /// Bytes a group may add on top of its payloads, per entry: pass
    /// `payload bytes + entries * ENTRY_OVERHEAD_BYTES` to [`Log::reserve`].
    pub const ENTRY_OVERHEAD_BYTES: u64 = 10;
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            segment_bytes: 64 << 20,
            first_segment_bytes: 256 << 10,
            background: Background::Threads,
            spares_max: 2,
            owner: 0,
        }
    }
}
