//! The calls that read and change the membership: [`crate::cluster`] carries them out.

use super::Client;
use crate::cluster::{self, AddReply, Members};
use crate::error::Result;
use crate::types::ReadLevel;

impl Client {
    /// Lists the members.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::ReadLevel;
    ///
    /// for member in client.members(ReadLevel::Linearizable).await?.members {
    ///     println!("{:x} {} {:?}", member.id, member.name, member.client_urls);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`ReadLevel::Eventual`] lists those that the member asked knows of.
    pub async fn members(&self, level: ReadLevel) -> Result<Members> {
        cluster::members(&self.caller, level).await
    }

    /// Adds a member that votes. It counts for majorities at once, before it has caught up: in most
    /// cases [`add_learner`](Client::add_learner) and [`promote_member`](Client::promote_member) are
    /// the better way.
    pub async fn add_member<U: Into<String>>(
        &self,
        peer_urls: impl IntoIterator<Item = U>,
    ) -> Result<AddReply> {
        cluster::add_member(&self.caller, texts(peer_urls), false).await
    }

    /// Adds a member that learns and does not vote.
    pub async fn add_learner<U: Into<String>>(
        &self,
        peer_urls: impl IntoIterator<Item = U>,
    ) -> Result<AddReply> {
        cluster::add_member(&self.caller, texts(peer_urls), true).await
    }

    /// Removes a member.
    pub async fn remove_member(&self, id: u64) -> Result<Members> {
        cluster::remove_member(&self.caller, id).await
    }

    /// Changes where other members reach a member.
    pub async fn update_member<U: Into<String>>(
        &self,
        id: u64,
        peer_urls: impl IntoIterator<Item = U>,
    ) -> Result<Members> {
        cluster::update_member(&self.caller, id, texts(peer_urls)).await
    }

    /// Lets a learner that has caught up vote.
    pub async fn promote_member(&self, id: u64) -> Result<Members> {
        cluster::promote_member(&self.caller, id).await
    }
}

fn texts<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> Vec<String> {
    urls.into_iter().map(Into::into).collect()
}
