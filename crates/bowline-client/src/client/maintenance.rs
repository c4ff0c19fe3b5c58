//! The client's calls to one member: its state, its alarms and its maintenance.

use super::Client;
use crate::{Alarm, HashKv, Header, Result, Snapshot, Status, maintenance};
use bowline_types::Revision;

impl Client {
    /// Trims the history below a revision. With `physical`, returns once the space is free.
    ///
    /// # Errors
    /// `Compacted` when it was trimmed that far already, `FutureRevision`; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn compact(&self, revision: Revision, physical: bool) -> Result<Header> {
        maintenance::compact(&self.caller, revision, physical).await
    }

    /// Reads the state of the member.
    ///
    /// # Errors
    /// Those of [any read](crate::Error#errors-of-any-read).
    pub async fn status(&self) -> Result<Status> {
        maintenance::status(&self.caller).await
    }

    /// Lists the alarms of all members.
    ///
    /// # Errors
    /// Those of [any read](crate::Error#errors-of-any-read).
    pub async fn alarms(&self) -> Result<Vec<Alarm>> {
        maintenance::alarms(&self.caller).await
    }

    /// Disarms all alarms; returns them.
    ///
    /// # Errors
    /// Those of [any change](crate::Error#errors-of-any-change).
    pub async fn disarm(&self) -> Result<Vec<Alarm>> {
        maintenance::disarm(&self.caller).await
    }

    /// Disarms one alarm; returns it if it was raised.
    ///
    /// # Errors
    /// Those of [any change](crate::Error#errors-of-any-change).
    pub async fn disarm_one(&self, alarm: Alarm) -> Result<Vec<Alarm>> {
        maintenance::disarm_one(&self.caller, alarm).await
    }

    /// Returns the space of deleted entries to the file system. A member of etcd serves no requests
    /// meanwhile.
    ///
    /// # Errors
    /// Those of [any change](crate::Error#errors-of-any-change); after an unknown outcome it may be called
    /// again.
    pub async fn defragment(&self) -> Result<Header> {
        maintenance::defragment(&self.caller).await
    }

    /// Hashes all keys of the member as of a revision; as of the newest for 0.
    ///
    /// # Errors
    /// `Compacted`, `FutureRevision`; those of [any read](crate::Error#errors-of-any-read).
    pub async fn hash_kv(&self, revision: Revision) -> Result<HashKv> {
        maintenance::hash_kv(&self.caller, revision).await
    }

    /// Transfers leadership to another member. Endpoints that are not the leader are skipped.
    ///
    /// # Errors
    /// `BadTransferee` when `target` is no voter; `NotLeader` when no endpoint is the leader; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn move_leader(&self, target: u64) -> Result<Header> {
        maintenance::move_leader(&self.caller, target).await
    }

    /// Streams the database of the queried member.
    ///
    /// # Errors
    /// Those of [any read](crate::Error#errors-of-any-read). The stream gives the errors of its parts.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        maintenance::snapshot(&self.caller).await
    }
}
