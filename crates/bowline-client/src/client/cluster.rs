//! The client's calls for the members of a cluster.

use super::Client;
use crate::{AddReply, Members, ReadLevel, Result, cluster};

fn texts<U: Into<String>>(all: impl IntoIterator<Item = U>) -> Vec<String> {
    all.into_iter().map(Into::into).collect()
}

impl Client {
    /// Lists the members. [`ReadLevel::Eventual`] lists the members known to the queried member.
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
    /// # Errors
    /// `MemberNotFound`; `Unhealthy` when too few members would be left; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn remove_member(&self, id: u64) -> Result<Members> {
        cluster::remove(&self.caller, id).await
    }

    /// Changes the peer addresses of a member.
    ///
    /// # Errors
    /// `MemberNotFound`, `PeerAddressExists`, `InvalidMemberAddress`; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn update_member<U: Into<String>>(
        &self,
        id: u64,
        peer_urls: impl IntoIterator<Item = U>,
    ) -> Result<Members> {
        cluster::update(&self.caller, id, texts(peer_urls)).await
    }

    /// Makes a learner that has caught up a voter.
    ///
    /// # Errors
    /// `MemberNotFound`, `NotLearner`; `LearnerNotReady` until it has caught up: try again; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn promote_member(&self, id: u64) -> Result<Members> {
        cluster::promote(&self.caller, id).await
    }
}
