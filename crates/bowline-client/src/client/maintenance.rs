//! The client's calls to one member: its state, its alarms and its maintenance.

use super::Client;
use crate::{Alarm, HashKv, Header, Result, Snapshot, Status, maintenance};

impl Client {
    /// Trims the history below a revision. With `physical`, returns once the space is free.
    pub async fn compact(&self, revision: u64, physical: bool) -> Result<Header> {
        maintenance::compact(&self.caller, revision, physical).await
    }

    /// Reads the state of the member.
    pub async fn status(&self) -> Result<Status> {
        maintenance::status(&self.caller).await
    }

    /// Lists the alarms of all members.
    pub async fn alarms(&self) -> Result<Vec<Alarm>> {
        maintenance::alarms(&self.caller).await
    }

    /// Disarms all alarms; returns them.
    pub async fn disarm(&self) -> Result<Vec<Alarm>> {
        maintenance::disarm(&self.caller).await
    }

    /// Disarms one alarm; returns it if it was raised.
    pub async fn disarm_one(&self, alarm: Alarm) -> Result<Vec<Alarm>> {
        maintenance::disarm_one(&self.caller, alarm).await
    }

    /// Returns the space of deleted entries to the file system. A member of etcd serves no requests
    /// meanwhile.
    pub async fn defragment(&self) -> Result<Header> {
        maintenance::defragment(&self.caller).await
    }

    /// Hashes all keys of the member as of a revision; as of the newest for 0.
    pub async fn hash_kv(&self, revision: u64) -> Result<HashKv> {
        maintenance::hash_kv(&self.caller, revision).await
    }

    /// Transfers leadership to another member. Endpoints that are not the leader are skipped.
    pub async fn move_leader(&self, target: u64) -> Result<Header> {
        maintenance::move_leader(&self.caller, target).await
    }

    /// Streams the database of the queried member.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        maintenance::snapshot(&self.caller).await
    }
}
