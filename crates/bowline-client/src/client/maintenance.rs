//! The calls that concern one member: [`crate::maintenance`] carries them out.

use super::Client;
use crate::error::Result;
use crate::maintenance::{self, Alarm, HashKv, Snapshot, Status};
use crate::types::Header;

impl Client {
    /// Gives up the history below a revision. With `physical`, returns once the space is free.
    pub async fn compact(&self, revision: u64, physical: bool) -> Result<Header> {
        maintenance::compact(&self.caller, revision, physical).await
    }

    /// Says how the member is.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let status = client.status().await?;
    /// println!("{} bytes, leader {:x}", status.db_size_bytes, status.leader);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn status(&self) -> Result<Status> {
        maintenance::status(&self.caller).await
    }

    /// Lists what is wrong with members.
    pub async fn alarms(&self) -> Result<Vec<Alarm>> {
        maintenance::alarms(&self.caller).await
    }

    /// Takes back all alarms. Gives those that were taken back.
    pub async fn disarm(&self) -> Result<Vec<Alarm>> {
        maintenance::disarm(&self.caller).await
    }

    /// Takes back one alarm.
    pub async fn disarm_one(&self, alarm: Alarm) -> Result<Vec<Alarm>> {
        maintenance::disarm_one(&self.caller, alarm).await
    }

    /// Gives the space of deleted entries back to the disk. etcd's member serves nothing meanwhile.
    pub async fn defragment(&self) -> Result<Header> {
        maintenance::defragment(&self.caller).await
    }

    /// Hashes all keys of the member as of a revision; as of the newest for 0.
    pub async fn hash_kv(&self, revision: u64) -> Result<HashKv> {
        maintenance::hash_kv(&self.caller, revision).await
    }

    /// Hands leadership to another member. Endpoints that are not the leader are passed over.
    pub async fn move_leader(&self, target: u64) -> Result<Header> {
        maintenance::move_leader(&self.caller, target).await
    }

    /// Streams the database of the member that is asked.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        maintenance::snapshot(&self.caller).await
    }
}
