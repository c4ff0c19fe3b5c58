//! What a command needs: one exhaustive function, without a wildcard, so that a new command does not compile without it.
//!
//! | a call that | needs |
//! |---|---|
//! | reads a range, or compares keys | to read it |
//! | updates a key by a rule | to write it and to read it |
//! | puts a key, or deletes a range | to write it; with the previous entries also to read it |
//! | attaches a key to a lease, or revokes one | to write each key of the lease |
//! | reads blocks or edges of kinds | to read the kinds; without kinds, all of them |
//! | writes a block | to write its kinds, and those that it has had |
//! | writes an edge | to write its kind |
//! | deletes a block, whose edges go with it | to write all kinds |
//! | renews a lease | to write each key of it |
//! | changes users and roles, quotas or indexes, or compacts | the role `root` |
//!
//! All branches of a transaction count, whichever is executed: which one it is would tell something of the keys.

use bowline_types::{BlockId, GraphWrite};

use crate::command::{Command, Commit, CommitRead, CommitWrite, Op, PutOp, Txn};
use crate::index::IndexChange;
use crate::users::{Access, Allowed, Rights, UsersRefusal};

/// A right that a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need<'a> {
    /// The role `root`.
    Root,
    /// To access all keys of a range, which is given as in etcd.
    Keys {
        /// Reading or writing.
        access: Access,
        /// The key, or the first key of the range.
        key: &'a [u8],
        /// Its end.
        range_end: &'a [u8],
    },
    /// To access each key of a lease.
    KeysOfLease {
        /// Reading or writing.
        access: Access,
        /// The lease.
        id: i64,
    },
    /// To access blocks or edges of a kind; `None` is all kinds.
    Kind {
        /// Reading or writing.
        access: Access,
        /// The kind.
        kind: Option<&'a str>,
    },
    /// To write the kinds that a block has now.
    KindsOfBlock(BlockId),
}

impl<'a> Need<'a> {
    /// To read a range.
    #[must_use]
    pub fn read(key: &'a [u8], range_end: &'a [u8]) -> Need<'a> {
        let access = Access::Read;
        Need::Keys {
            access,
            key,
            range_end,
        }
    }

    /// To write a range.
    #[must_use]
    pub fn write(key: &'a [u8], range_end: &'a [u8]) -> Need<'a> {
        let access = Access::Write;
        Need::Keys {
            access,
            key,
            range_end,
        }
    }

    /// To write each key of a lease.
    #[must_use]
    pub fn write_keys_of(id: i64) -> Need<'a> {
        let access = Access::Write;
        Need::KeysOfLease { access, id }
    }

    /// To read a kind; `None` is all.
    #[must_use]
    pub fn read_kind(kind: Option<&'a str>) -> Need<'a> {
        let access = Access::Read;
        Need::Kind { access, kind }
    }

    fn write_kind(kind: Option<&'a str>) -> Need<'a> {
        let access = Access::Write;
        Need::Kind { access, kind }
    }
}

/// What is read of the database to decide whether a need is met.
pub(crate) trait Present {
    type Error;

    /// The first key of a lease from a key on.
    fn key_of_lease(&self, id: i64, from: &[u8]) -> Result<Option<Vec<u8>>, Self::Error>;

    /// Visits the kinds of a block, if it exists, until `visit` returns `false`. `None` is visited for a block without a
    /// kind.
    fn kinds_of_block(
        &self,
        id: BlockId,
        visit: &mut dyn FnMut(Option<&str>) -> bool,
    ) -> Result<(), Self::Error>;
}

impl Rights {
    /// Whether a need is met.
    pub(crate) fn meet<P: Present>(&self, need: Need<'_>, present: &P) -> Result<bool, P::Error> {
        if self.is_root() {
            return Ok(true);
        }
        let mut is_met = true;
        match need {
            Need::Root => is_met = false,
            Need::Keys {
                access,
                key,
                range_end,
            } => is_met = self.allows_keys(access, key, range_end),
            Need::Kind { access, kind } => is_met = self.allows_kind(access, kind),
            Need::KeysOfLease { access, id } => is_met = self.meet_lease(access, id, present)?,
            Need::KindsOfBlock(id) => present.kinds_of_block(id, &mut |kind| {
                is_met = self.allows_kind(Access::Write, kind);
                is_met
            })?,
        }
        Ok(is_met)
    }

    /// Whether an access to each key of a lease is allowed. A span of keys that is allowed is passed over as a whole, so what
    /// is read depends on the number of spans, and not on that of keys.
    fn meet_lease<P: Present>(
        &self,
        access: Access,
        id: i64,
        present: &P,
    ) -> Result<bool, P::Error> {
        let mut from = Vec::new();
        while let Some(key) = present.key_of_lease(id, &from)? {
            match self.allowed_from(access, &key) {
                Allowed::No => return Ok(false),
                Allowed::Before(end) => from = end.to_vec(),
                Allowed::ToTheEnd => break,
            }
        }
        Ok(true)
    }
}

/// Visits the needs of a command until one is refused. What members do by themselves needs nothing.
///
/// # Errors
/// That of `each`.
pub fn needs<'a, E>(
    command: &'a Command,
    each: &mut dyn FnMut(Need<'a>) -> Result<(), E>,
) -> Result<(), E> {
    match command {
        Command::By { command, .. } => needs(command, each),
        Command::Txn(txn) | Command::UnboundedTxn(txn) => needs_of_txn(txn, each),
        // Any user may have leases; one without keys harms nobody.
        Command::LeaseGrant { .. } => Ok(()),
        Command::LeaseRevoke { id } => each(Need::write_keys_of(*id)),
        Command::LeaseDeleteKeys { id, expired } => match expired {
            None => each(Need::write_keys_of(*id)),
            Some(_) => Ok(()),
        },
        // It takes history away from everybody.
        Command::Compact { .. } => each(Need::Root),
        Command::Graph(writes) => writes
            .iter()
            .try_for_each(|write| needs_of_graph(write, each)),
        Command::Commit(commit) => needs_of_commit(commit, each),
        Command::Users(_) | Command::Quota(_) => each(Need::Root),
        Command::Index(IndexChange::Create { .. } | IndexChange::Drop { .. }) => each(Need::Root),
        Command::LeaseExpire { .. }
        | Command::LeaseCheckpoint { .. }
        | Command::LeaseRemaining { .. }
        | Command::Tokens(_)
        | Command::Index(IndexChange::Step { .. })
        | Command::Alarm { .. } => Ok(()),
    }
}

/// Visits the needs of a transaction, which may only read.
///
/// # Errors
/// That of `each`.
pub fn needs_of_txn<'a, E>(
    txn: &'a Txn,
    each: &mut dyn FnMut(Need<'a>) -> Result<(), E>,
) -> Result<(), E> {
    for compare in &txn.compares {
        each(Need::read(&compare.key, &compare.range_end))?;
    }
    for op in txn.success.iter().chain(&txn.failure) {
        match op {
            Op::Range(range) => each(Need::read(&range.key, &range.range_end))?,
            Op::Put(put) => needs_of_put(put, each)?,
            Op::DeleteRange(delete) => {
                each(Need::write(&delete.key, &delete.range_end))?;
                if delete.prev_kv {
                    each(Need::read(&delete.key, &delete.range_end))?;
                }
            }
            Op::Txn(inner) => needs_of_txn(inner, each)?,
        }
    }
    Ok(())
}

fn needs_of_put<'a, E>(
    put: &'a PutOp,
    each: &mut dyn FnMut(Need<'a>) -> Result<(), E>,
) -> Result<(), E> {
    each(Need::write(&put.key, &[]))?;
    if put.prev_kv {
        each(Need::read(&put.key, &[]))?;
    }
    match put.lease {
        0 => Ok(()),
        lease => each(Need::write_keys_of(lease)),
    }
}

fn needs_of_commit<'a, E>(
    commit: &'a Commit,
    each: &mut dyn FnMut(Need<'a>) -> Result<(), E>,
) -> Result<(), E> {
    for read in &commit.reads {
        each(match read {
            CommitRead::Key(key) => Need::read(key, &[]),
            CommitRead::Range { key, range_end } => Need::read(key, range_end),
            CommitRead::Edge { kind, .. } => Need::read_kind(Some(kind)),
            CommitRead::Block(_)
            | CommitRead::Blocks { .. }
            | CommitRead::Entries { .. }
            | CommitRead::EdgesOut(_)
            | CommitRead::EdgesIn(_) => Need::read_kind(None),
        })?;
    }
    for expectation in &commit.expectations {
        each(Need::read(&expectation.key, &[]))?;
    }
    for write in &commit.writes {
        match write {
            CommitWrite::Put { key, lease, .. } => {
                each(Need::write(key, &[]))?;
                if *lease != 0 {
                    each(Need::write_keys_of(*lease))?;
                }
            }
            CommitWrite::Delete { key } => each(Need::write(key, &[]))?,
            CommitWrite::DeleteRange { key, range_end } => each(Need::write(key, range_end))?,
            CommitWrite::Graph(write) => needs_of_graph(write, each)?,
            // Its reply has the value.
            CommitWrite::Update { key, .. } => {
                each(Need::write(key, &[]))?;
                each(Need::read(key, &[]))?;
            }
        }
    }
    Ok(())
}

fn needs_of_graph<'a, E>(
    write: &'a GraphWrite,
    each: &mut dyn FnMut(Need<'a>) -> Result<(), E>,
) -> Result<(), E> {
    match write {
        GraphWrite::PutBlock(block) => {
            if block.kinds.is_empty() {
                each(Need::write_kind(None))?;
            }
            for kind in &block.kinds {
                each(Need::write_kind(Some(kind)))?;
            }
            each(Need::KindsOfBlock(block.id))
        }
        GraphWrite::DeleteBlock(_) => each(Need::write_kind(None)),
        GraphWrite::PutEdge(edge) => each(Need::write_kind(Some(&edge.kind))),
        GraphWrite::DeleteEdge(edge) => each(Need::write_kind(Some(&edge.kind))),
    }
}

impl Command {
    /// Refuses it if a need of it is not met.
    pub(crate) fn check_rights<P: Present>(
        &self,
        rights: &Rights,
        present: &P,
    ) -> Result<Result<(), UsersRefusal>, P::Error> {
        let mut failed = None;
        let checked = needs(self, &mut |need| match rights.meet(need, present) {
            Ok(true) => Ok(()),
            Ok(false) => Err(UsersRefusal::PermissionDenied),
            Err(error) => {
                failed = Some(error);
                Err(UsersRefusal::PermissionDenied)
            }
        });
        failed.map_or(Ok(checked), Err)
    }
}
