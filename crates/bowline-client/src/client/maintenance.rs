//! The client's calls to one member: its state, its alarms and its maintenance.

use super::Client;
use crate::{Alarm, HashKv, Header, MemberId, Result, Snapshot, Status, maintenance};
use bowline_types::Revision;

impl Client {
    /// Trims the history below a revision. With `physical`, returns once the space is free.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// // Keeps the last 10,000 revisions, and waits until the space of the others is free.
    /// let newest = client.status().await?.header.revision;
    /// client.trim_history(newest.saturating_sub(10_000), true).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Compacted` when it was trimmed that far already, `FutureRevision`; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn trim_history(&self, revision: Revision, physical: bool) -> Result<Header> {
        maintenance::trim_history(&self.caller, revision, physical).await
    }

    /// Reads the state of the member.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let status = client.status().await?;
    /// println!("{status:?}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [any read](crate::Error#errors-of-any-read).
    pub async fn status(&self) -> Result<Status> {
        maintenance::status(&self.caller).await
    }

    /// Lists the alarms of all members.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// for alarm in client.alarms().await? {
    ///     println!("{alarm:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [any read](crate::Error#errors-of-any-read).
    pub async fn alarms(&self) -> Result<Vec<Alarm>> {
        maintenance::alarms(&self.caller).await
    }

    /// Disarms all alarms; returns them.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let cleared = client.disarm().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [any change](crate::Error#errors-of-any-change).
    pub async fn disarm(&self) -> Result<Vec<Alarm>> {
        maintenance::disarm(&self.caller).await
    }

    /// Disarms one alarm; returns it if it was raised.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// for alarm in client.alarms().await? {
    ///     client.disarm_one(alarm).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [any change](crate::Error#errors-of-any-change).
    pub async fn disarm_one(&self, alarm: Alarm) -> Result<Vec<Alarm>> {
        maintenance::disarm_one(&self.caller, alarm).await
    }

    /// Returns the space of deleted entries to the file system. A member of etcd serves no requests
    /// meanwhile.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// client.defragment().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [any change](crate::Error#errors-of-any-change); after an unknown outcome it may be called
    /// again.
    pub async fn defragment(&self) -> Result<Header> {
        maintenance::defragment(&self.caller).await
    }

    /// Hashes all keys of the member as of a revision; as of its newest for `None`.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let newest = client.hash_kv(None).await?;
    /// let same = client.hash_kv(Some(newest.header.revision)).await?;
    /// println!("{:08x} and {:08x}", newest.hash, same.hash);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Compacted`, `FutureRevision`; those of [any read](crate::Error#errors-of-any-read).
    pub async fn hash_kv(&self, revision: Option<Revision>) -> Result<HashKv> {
        maintenance::hash_kv(&self.caller, revision).await
    }

    /// Transfers leadership to another member. Endpoints that are not the leader are skipped.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let members = client.members(bowline_client::ReadLevel::Linearizable).await?;
    /// client.move_leader(members.members[0].id).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `BadTransferee` when `target` is no voter; `NotLeader` when no endpoint is the leader; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn move_leader(&self, target: MemberId) -> Result<Header> {
        maintenance::move_leader(&self.caller, target).await
    }

    /// Streams the database of the queried member.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use tokio_stream::StreamExt;
    ///
    /// let mut snapshot = client.snapshot().await?;
    /// while let Some(part) = snapshot.next().await {
    ///     println!("{} bytes", part?.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [any read](crate::Error#errors-of-any-read). The stream gives the errors of its parts.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        maintenance::snapshot(&self.caller).await
    }
}
