//! The client's calls for the members of a cluster.

use super::Client;
use crate::{AddReply, MemberId, Members, ReadLevel, Result, cluster};

fn texts<U: Into<String>>(all: impl IntoIterator<Item = U>) -> Vec<String> {
    all.into_iter().map(Into::into).collect()
}

impl Client {
    /// Lists the members. [`ReadLevel::Eventual`] lists the members known to the queried member.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::ReadLevel;
    /// for member in client.members(ReadLevel::Linearizable).await?.members {
    ///     println!("{} {} {:?}", member.id, member.name, member.client_urls);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [any read](crate::Error#errors-of-any-read).
    pub async fn members(&self, level: ReadLevel) -> Result<Members> {
        cluster::list(&self.caller, level).await
    }

    /// Adds a member that votes. It counts for majorities at once, before it has caught up: in most
    /// cases [`add_learner`](Client::add_learner) and [`promote_member`](Client::promote_member) are
    /// the better way.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let added = client.add_member(["http://10.0.0.4:2380"]).await?;
    /// println!("start the new member now: {}", added.member.id);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `PeerAddressExists`, `InvalidMemberAddress`; `Unhealthy` when the members that run are too few; those of
    /// [any change](crate::Error#errors-of-any-change).
    pub async fn add_member<U: Into<String>>(
        &self,
        peer_urls: impl IntoIterator<Item = U>,
    ) -> Result<AddReply> {
        cluster::add(&self.caller, texts(peer_urls), false).await
    }

    /// Adds a learner: a member without a vote.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let added = client.add_learner(["http://10.0.0.4:2380"]).await?;
    /// // Once it has caught up:
    /// client.promote_member(added.member.id).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `TooManyLearners`, and the errors of [`Client::add_member`].
    pub async fn add_learner<U: Into<String>>(
        &self,
        peer_urls: impl IntoIterator<Item = U>,
    ) -> Result<AddReply> {
        cluster::add(&self.caller, texts(peer_urls), true).await
    }

    /// Removes a member.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # let id = bowline_client::MemberId::new(7);
    /// let left = client.remove_member(id).await?;
    /// println!("{} members are left", left.members.len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `MemberNotFound`; `Unhealthy` when too few members would be left; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn remove_member(&self, id: MemberId) -> Result<Members> {
        cluster::remove(&self.caller, id).await
    }

    /// Changes the peer addresses of a member.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # let id = bowline_client::MemberId::new(7);
    /// client.update_member(id, ["http://10.0.0.9:2380"]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `MemberNotFound`, `PeerAddressExists`, `InvalidMemberAddress`; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn update_member<U: Into<String>>(
        &self,
        id: MemberId,
        peer_urls: impl IntoIterator<Item = U>,
    ) -> Result<Members> {
        cluster::update(&self.caller, id, texts(peer_urls)).await
    }

    /// Makes a learner that has caught up a voter.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # let id = bowline_client::MemberId::new(7);
    /// use bowline_client::Error;
    ///
    /// match client.promote_member(id).await {
    ///     Err(Error::LearnerNotReady) => println!("try again later"),
    ///     promoted => drop(promoted?),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `MemberNotFound`, `NotLearner`; `LearnerNotReady` until it has caught up: try again; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn promote_member(&self, id: MemberId) -> Result<Members> {
        cluster::promote(&self.caller, id).await
    }

    /// Has the data of a member replaced by that of the leader, while its log, its vote and its id stay, and clears
    /// the alarm that its data differs. Returns when the member has begun; until it is done, it refuses calls with
    /// `Unavailable`.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::AlarmKind;
    ///
    /// for alarm in client.alarms().await? {
    ///     if alarm.kind == AlarmKind::Corrupt {
    ///         client.repair_member(alarm.member_id).await?;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `MemberNotFound`; `Rejected` where no other member votes; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn repair_member(&self, id: MemberId) -> Result<()> {
        cluster::repair(&self.caller, id).await
    }
}
