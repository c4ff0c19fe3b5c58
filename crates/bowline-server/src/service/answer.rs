//! [`Terms`] and [`Answer`]: a call of `KV` without its transport.
//!
//! The same functions answer a call of tonic, whose metadata is a map of headers in both directions, and a call of
//! the front, which knows the few headers that matter.

use bowline_cluster::{ReadLevel, ReadPoint};
use tonic::metadata::MetadataMap;
use tonic::{Response, Status};

use super::{Counting, EncodedReply, LongReply, UnsentKeys};
use crate::context::{read_level, respond_applied, respond_at_level};
use crate::credentials::Credentials;

/// What a client asks for beside the message.
#[derive(Debug, Clone, Default)]
pub(crate) struct Terms {
    /// Whether the call is to be refused, rather than to wait, while there is no leader.
    pub(crate) needs_leader: bool,
    /// The level of reads, if the metadata names one.
    pub(crate) level: Option<ReadLevel>,
    /// Who makes the call.
    pub(crate) credentials: Credentials,
}

impl Terms {
    /// The level of a read.
    pub(super) fn level(&self, is_serializable: bool) -> ReadLevel {
        match self.level {
            _ if is_serializable => ReadLevel::Eventual,
            Some(level) => level,
            None => ReadLevel::Linearizable,
        }
    }

    /// The terms of a call, whose reads may all be serializable by their messages.
    pub(super) fn of(metadata: &MetadataMap, is_serializable: bool) -> Result<Terms, Status> {
        Ok(Terms {
            needs_leader: super::needs_leader(metadata),
            level: Some(read_level(metadata, is_serializable)?),
            credentials: Credentials::of(metadata),
        })
    }

    /// The terms of a call that does not read.
    pub(super) fn of_change(metadata: &MetadataMap) -> Terms {
        Terms {
            needs_leader: super::needs_leader(metadata),
            level: None,
            credentials: Credentials::of(metadata),
        }
    }
}

/// The reply of a call.
pub(crate) struct Answer<T> {
    pub(crate) message: T,
    /// The message, if it is large and was encoded on another thread.
    pub(crate) encoded: Option<EncodedReply>,
    /// The message in parts, if it is too long to be in memory.
    pub(crate) long: Option<LongReply>,
    /// The applied index that the reply reflects.
    pub(crate) applied: u64,
    /// The level at which it was read; `None` for a change.
    pub(crate) level: Option<ReadLevel>,
}

impl<T> Answer<T> {
    /// The reply of a change.
    pub(super) fn of_change(message: T, applied: u64) -> Answer<T> {
        Answer {
            message,
            encoded: None,
            long: None,
            applied,
            level: None,
        }
    }

    /// The reply of a read.
    pub(super) fn of_read(message: T, point: &ReadPoint) -> Answer<T> {
        Answer {
            message,
            encoded: None,
            long: None,
            applied: point.applied_index,
            level: Some(point.level),
        }
    }

    /// The reply for tonic.
    pub(super) fn into_response(self) -> Response<T>
    where
        T: Counting,
    {
        let unsent_keys = match &self.long {
            Some(long) => long.unsent_keys,
            None => self.message.unsent_keys(),
        };
        let mut response = respond_applied(self.message, self.applied);
        if let Some(level) = self.level {
            respond_at_level(&mut response, level);
        }
        if let Some(long) = self.long {
            long.leave_in(&mut response);
        }
        if let Some(encoded) = self.encoded {
            encoded.leave_in(&mut response);
        }
        // Most replies have none, and then no extensions.
        if unsent_keys > 0 {
            UnsentKeys::of(unsent_keys).leave_in(&mut response);
        }
        response
    }
}
