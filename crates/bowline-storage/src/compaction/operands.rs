//! Operands: values that are written without reading the previous version of their key.
//!
//! A value may depend on the version below it ("one put more than that one"). Reading that version from
//! tables would be the most expensive part of a write. So the writer writes an *operand* instead: a value
//! that is complete only together with the version below it (like RocksDB's merge operator). A reader that
//! needs the complete value also reads the version below. A merge, which has both versions, applies the
//! operand:
//!
//! ```text
//!  revision   9            7            4                  dropped: 7 and 4
//!          operand      operand       value
//!             '--- apply ---'            |
//!               operand'                 |
//!                   '----- apply --------'
//!                       value at 9
//! ```
//!
//! Invariants:
//!
//! - An operand refers to the newest version of its key below its own revision, in the sources of the
//!   read. So a version between the two is applied to the operand before it is dropped.
//! - That does not change the completed value: applying is associative.
//! - Where the key has no older version below, an operand is applied to "absent". A tombstone and a
//!   missing entry mean the same to it.

use std::fmt::Debug;

use super::merge::VersionSink;
use crate::error::{Error, Result};
use crate::{EntryKind, Revision};

/// How operands are applied to the version below them. Its inputs may be damaged bytes.
pub trait MergeOperator: Debug + Send + Sync {
    /// Whether a stored value is an operand. Also asked of the first
    /// [`HEAD_BYTES`](crate::blob::HEAD_BYTES) of large values.
    fn is_operand(&self, value: &[u8]) -> bool;

    /// Applies `operand` (its revision and value) to the version `below` it and writes the result to `out`,
    /// which is empty. `below` has the revision and the stored value (of a large one at most the first
    /// [`HEAD_BYTES`](crate::blob::HEAD_BYTES)), or is `None` if the key was absent. The result is an
    /// operand if and only if the value below is one. Returns `None` when either does not decode.
    fn apply(
        &self,
        operand: (Revision, &[u8]),
        below: Option<(Revision, &[u8])>,
        out: &mut Vec<u8>,
    ) -> Option<()>;
}

/// The operand of a merge that waits for the version below it, if there is one.
#[derive(Debug)]
pub(super) struct Pending<'a> {
    operator: Option<&'a dyn MergeOperator>,
    /// Its revision.
    revision: Option<Revision>,
    value: Vec<u8>,
    applied: Vec<u8>,
}

impl<'a> Pending<'a> {
    pub(super) fn new(operator: Option<&'a dyn MergeOperator>) -> Pending<'a> {
        Pending {
            operator,
            revision: None,
            value: Vec::new(),
            applied: Vec::new(),
        }
    }

    /// Takes a kept version if it is an operand.
    pub(super) fn takes(&mut self, revision: Revision, kind: EntryKind, value: &[u8]) -> bool {
        let is_operand = kind == EntryKind::Put
            && self
                .operator
                .is_some_and(|operator| operator.is_operand(value));
        if is_operand {
            self.revision = Some(revision);
            self.value.clear();
            self.value.extend_from_slice(value);
        }
        is_operand
    }

    /// The next older version of the key has come: the waiting operand is written, unless it waits on
    /// because that one `is_dropped` and was an operand itself.
    pub(super) fn meets(
        &mut self,
        key: &[u8],
        (revision, kind, value): (Revision, EntryKind, &[u8]),
        is_dropped: bool,
        sink: &mut VersionSink<'_, '_>,
    ) -> Result<()> {
        let (Some(_), Some(operator)) = (self.revision, self.operator) else {
            return Ok(());
        };
        let is_put = kind == EntryKind::Put;
        let is_operand = is_put && operator.is_operand(value);
        if is_dropped || !is_operand {
            self.apply(key, is_put.then_some((revision, value)))?;
        }
        if is_dropped && is_operand {
            return Ok(());
        }
        self.write(key, sink)
    }

    /// The key has no older version among the sources: the waiting operand is written, completed if there is
    /// none below them either.
    pub(super) fn end_key(
        &mut self,
        key: &[u8],
        bottom: bool,
        sink: &mut VersionSink<'_, '_>,
    ) -> Result<()> {
        if self.revision.is_none() {
            return Ok(());
        }
        if bottom {
            self.apply(key, None)?;
        }
        self.write(key, sink)
    }

    fn apply(&mut self, key: &[u8], below: Option<(Revision, &[u8])>) -> Result<()> {
        let (Some(revision), Some(operator)) = (self.revision, self.operator) else {
            return Ok(());
        };
        self.applied.clear();
        let applied = operator.apply((revision, &self.value), below, &mut self.applied);
        if applied.is_none() {
            let below = below.map(|(revision, _)| revision);
            let key = key.escape_ascii();
            return Err(Error::Internal(format!(
                "the value of {key} at revision {revision} cannot be completed with revision {below:?}"
            )));
        }
        std::mem::swap(&mut self.value, &mut self.applied);
        Ok(())
    }

    fn write(&mut self, key: &[u8], sink: &mut VersionSink<'_, '_>) -> Result<()> {
        match self.revision.take() {
            Some(revision) => sink.add((key, revision, EntryKind::Put, &self.value), None),
            None => Ok(()),
        }
    }
}
