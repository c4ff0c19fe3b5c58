//! The second step of recovery: a plan of all changes, as a value. It decides everything and changes
//! nothing.

use std::fmt;
use std::path::Path;

use super::frame::NUMBER_LIMIT;
use super::scan::{End, Scan, ScannedSegment};
use super::segment::{Link, segment_name, segment_path};
use super::sparse_index::SparseIndex;
use crate::error::{Error, Result};
use crate::types::Index;

/// A stretch of the last segment that no later frame proves synced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Harden {
    pub(super) id: u64,
    pub(super) from_offset: u64,
    pub(super) to_offset: u64,
}

/// The changes of recovery, in this order.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Spares, removed first.
    pub(super) remove: Vec<String>,
    /// Written again, unchanged, and synced.
    pub(super) harden: Option<Harden>,
    /// Where writing starts: id and first index of the new segment, and the segment that it continues.
    pub(super) new_id: u64,
    pub(super) new_first_index: Index,
    pub(super) previous: Option<Link>,
    /// Whether the previous segment exists and is marked as continued (it may be released).
    pub(super) mark_continued: bool,
    /// The last segment of the log: it may be marked.
    pub(super) last: Option<(u64, u64)>,
    /// Empty segments outside the chain, such as those never begun. Removed last, because the mark of the
    /// last segment may say that they exist.
    pub(super) unbegun: Vec<u64>,
    /// The empty last segment that the new one replaces, removed last.
    pub(super) replaced: Option<u64>,
    /// The segments that stay, oldest first.
    pub(super) kept: Vec<ScannedSegment>,
    pub(super) sparse_index: SparseIndex,
    /// The place of a torn group that is ignored, for a log message.
    pub(super) torn: Option<(u64, u64)>,
}

/// Makes the plan for a scanned log. `after` is the last index that the caller has elsewhere.
pub(super) fn plan(scan: Scan, dir: &Path, after: Index, must_exist: bool) -> Result<Plan> {
    let wanted = after
        .checked_add(1)
        .ok_or_else(|| Error::Internal("the log cannot start after the last index".to_owned()))?;
    let remove = scan.spares;
    let unbegun = scan.stale;
    let new_id = scan.highest_id + 1;
    let mut kept = scan.segments;
    let Some(last) = kept.last() else {
        if must_exist {
            return Err(Error::MissingFile {
                path: dir.to_owned(),
                reason: "the database was written with a log, and no segment of it is here"
                    .to_owned(),
            });
        }
        return Ok(Plan {
            remove,
            harden: None,
            new_id,
            new_first_index: wanted,
            previous: None,
            mark_continued: false,
            last: None,
            unbegun,
            replaced: None,
            kept,
            sparse_index: scan.sparse_index,
            torn: None,
        });
    };
    check_connection(&scan.sparse_index, scan.next_index, last, dir, after)?;
    let torn =
        matches!(last.end, End::Tail { torn: true }).then_some((last.header.id, last.end_offset));
    // Write nothing that the next recovery would refuse to read.
    if new_id >= NUMBER_LIMIT || scan.next_index >= NUMBER_LIMIT {
        let path = segment_path(dir, scan.highest_id);
        return Err(Error::corrupt(
            &path,
            16,
            "no segment can follow its numbers",
        ));
    }
    let place = Some((last.header.id, last.header.salt));
    let (replaced, harden, previous);
    if last.has_content {
        replaced = None;
        harden = (last.synced_offset < last.end_offset).then_some(Harden {
            id: last.header.id,
            from_offset: last.synced_offset,
            to_offset: last.end_offset,
        });
        previous = Some(Link {
            id: last.header.id,
            salt: last.header.salt,
            end_offset: last.end_offset,
        });
    } else {
        // The segment that it continues was synced before it was begun.
        replaced = Some(last.header.id);
        harden = None;
        previous = last.header.previous;
        kept.pop();
    }
    let mark_continued = previous.is_some() && !kept.is_empty();
    Ok(Plan {
        remove,
        harden,
        new_id,
        new_first_index: scan.next_index,
        previous,
        mark_continued,
        last: place,
        unbegun,
        replaced,
        kept,
        sparse_index: scan.sparse_index,
        torn,
    })
}

/// The log must hold, or be about to write, the entry after `after`.
fn check_connection(
    sparse_index: &SparseIndex,
    next_index: Index,
    last: &ScannedSegment,
    dir: &Path,
    after: Index,
) -> Result<()> {
    let first_index = sparse_index.first_index().unwrap_or(next_index);
    if next_index <= after {
        let reason = format!(
            "the log ends here at index {}, but index {after} was synced to it",
            next_index - 1
        );
        return Err(Error::corrupt(
            &segment_path(dir, last.header.id),
            last.end_offset,
            reason,
        ));
    }
    if first_index > after + 1 {
        return Err(Error::MissingFile {
            path: dir.to_owned(),
            reason: format!(
                "the log begins at index {first_index}, but it is needed from index {} on",
                after + 1
            ),
        });
    }
    Ok(())
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.remove {
            writeln!(f, "remove {name}")?;
        }
        if let Some((id, offset)) = self.torn {
            writeln!(f, "ignore {} from {offset} on: torn", segment_name(id))?;
        }
        if let Some(Harden {
            id,
            from_offset,
            to_offset,
        }) = &self.harden
        {
            writeln!(
                f,
                "rewrite and sync {} {from_offset}..{to_offset}",
                segment_name(*id)
            )?;
        }
        let name = segment_name(self.new_id);
        write!(f, "create {name} from index {}", self.new_first_index)?;
        match &self.previous {
            Some(Link { id, end_offset, .. }) => {
                writeln!(f, " behind {} ending at {end_offset}", segment_name(*id))?;
                if self.mark_continued {
                    writeln!(f, "mark {} as continued", segment_name(*id))?;
                }
            }
            None => writeln!(f)?,
        }
        for id in self.unbegun.iter().chain(&self.replaced) {
            writeln!(f, "remove {}: empty", segment_name(*id))?;
        }
        Ok(())
    }
}
