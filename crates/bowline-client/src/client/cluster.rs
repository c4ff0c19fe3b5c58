//! The client's calls for the members of a cluster.

use super::Client;
use crate::{AddReply, Members, ReadLevel, Result, cluster};

fn texts<U: Into<String>>(all: impl IntoIterator<Item = U>) -> Vec<String> {
    all.into_iter().map(Into::into).collect()
}

impl Client {
    /// Lists the members. [`ReadLevel::Eventual`] lists the members known to the queried member.
    pub async fn members(&self, level: ReadLevel) -> Result<Members> {
        cluster::list(&self.caller, level).await
    }

    /// Adds a member that votes. It counts for majorities at once, before it has caught up: in most
    /// cases [`add_learner`](Client::add_learner) and [`promote_member`](Client::promote_member) are
    /// the better way.
    pub async fn add_member<U: Into<String>>(
        &self,
        peer_urls: impl IntoIterator<Item = U>,
    ) -> Result<AddReply> {
        cluster::add(&self.caller, texts(peer_urls), false).await
    }

    /// Adds a learner: a member without a vote.
    pub async fn add_learner<U: Into<String>>(
        &self,
        peer_urls: impl IntoIterator<Item = U>,
    ) -> Result<AddReply> {
        cluster::add(&self.caller, texts(peer_urls), true).await
    }

    /// Removes a member.
    pub async fn remove_member(&self, id: u64) -> Result<Members> {
        cluster::remove(&self.caller, id).await
    }

    /// Changes the peer addresses of a member.
    pub async fn update_member<U: Into<String>>(
        &self,
        id: u64,
        peer_urls: impl IntoIterator<Item = U>,
    ) -> Result<Members> {
        cluster::update(&self.caller, id, texts(peer_urls)).await
    }

    /// Makes a learner that has caught up a voter.
    pub async fn promote_member(&self, id: u64) -> Result<Members> {
        cluster::promote(&self.caller, id).await
    }
}
