//! Reads of a member's state, each checked in the state that it reads.

use bowline_core::error::{Error, Result};
use bowline_types::Revision;

use super::Replica;
use crate::command::{RangeOp, RangeReply, Refusal, Txn, TxnReply};
use crate::overlay::Overlay;
use crate::range::{self, refusal};
use crate::work::Work;

/// The newest revision for which a result holds, and the result.
pub type ReadAt<T> = (Revision, Result<T, Refusal>);

impl Replica {
    /// Takes something of this member's state, such as a snapshot, that belongs to what `take` has found of users: it is
    /// called again if they have changed meanwhile. `None` while another member's state is being installed.
    pub fn in_one_state<T>(&self, take: impl FnMut() -> T) -> Option<T> {
        self.sequence.in_one_state(take)
    }

    /// The revision of the users that belong to what is visible. `None` while another member's state is being installed.
    #[must_use]
    pub fn users_revision(&self) -> Option<u64> {
        self.in_one_state(|| self.users.load().revision())
    }

    /// Reads a range at a revision (0 is the newest), as [`Command::Txn`](crate::Command::Txn) would, if `check` allows it
    /// in the state that is read. A watch from behind the returned revision misses nothing. `None` while another member's
    /// state is being installed.
    ///
    /// # Errors
    /// Those of `check`. A refusal for a revision that cannot be read.
    pub fn range<E: From<Error>>(
        &self,
        op: &RangeOp,
        check: impl Fn() -> Result<(), E>,
    ) -> Result<Option<ReadAt<RangeReply>>, E> {
        self.core().check_open()?;
        let engine = &self.core().engine;
        let overlay = Overlay::default();
        if op.revision == 0 {
            if op.range_end.is_empty() {
                let read = self.in_one_state(|| -> Result<_, E> {
                    check()?;
                    let (at, reply) = self.read_key(op)?;
                    Ok((at, Ok(reply)))
                });
                return read.transpose();
            }
            let pinned = self.in_one_state(|| check().map(|()| engine.pin_newest()));
            let Some(pin) = pinned.transpose()? else {
                return Ok(None);
            };
            let at = Revision::new(pin.revision());
            let reply = range::read(engine, &overlay, op, at)?;
            return Ok(Some((at, Ok(reply))));
        }
        let pinned = self.in_one_state(|| -> Result<_, E> {
            check()?;
            let newest = Revision::new(engine.visible());
            Ok((newest, engine.pin_at(op.revision.get())))
        });
        let Some((newest, pinned)) = pinned.transpose()? else {
            return Ok(None);
        };
        match pinned {
            Ok(pin) => {
                let reply = range::read(engine, &overlay, op, Revision::new(pin.revision()))?;
                Ok(Some((newest, Ok(reply))))
            }
            Err(error) => Ok(Some((newest, Err(refusal(op.revision, error))))),
        }
    }

    /// Reads one key at the newest revision: without a pin, as a single read is consistent by itself.
    fn read_key(&self, op: &RangeOp) -> Result<(Revision, RangeReply)> {
        let engine = &self.core().engine;
        let overlay = Overlay::default();
        loop {
            let at = Revision::new(engine.visible());
            match range::read(engine, &overlay, op, at) {
                Err(Error::Storage(bowline_storage::Error::Replaced { .. })) => {
                    std::thread::yield_now();
                }
                // Versions that were superseded since may have been merged away: then it is read again.
                result if at == engine.visible() || at >= engine.history_floor() => {
                    return result.map(|reply| (at, reply));
                }
                _ => {}
            }
        }
    }

    /// Evaluates a read-only transaction at the newest revision, if `check` allows it in the state that is read. `None`
    /// while another member's state is being installed.
    ///
    /// # Errors
    /// Those of `check`. A refusal as of [`Command::Txn`](crate::Command::Txn). `NotSupported` for one that writes.
    pub fn read_txn<E: From<Error>>(
        &self,
        txn: &Txn,
        check: impl Fn() -> Result<(), E>,
    ) -> Result<Option<ReadAt<TxnReply>>, E> {
        if !txn.is_read_only() {
            let refused = Error::NotSupported {
                what: "a transaction that writes, as a read",
                why: "propose it as a command",
            };
            return Err(refused.into());
        }
        self.core().check_open()?;
        let engine = &self.core().engine;
        let pinned = self.in_one_state(|| check().map(|()| engine.pin_newest()));
        let Some(pin) = pinned.transpose()? else {
            return Ok(None);
        };
        let at = Revision::new(pin.revision());
        let compacted = self.shown.lock().compacted;
        let work = Work::of_txn();
        let purpose = (range::Purpose::Reply, &work);
        let read = range::read_txn(engine, txn, at, compacted, purpose)?;
        Ok(Some((at, read)))
    }
}
