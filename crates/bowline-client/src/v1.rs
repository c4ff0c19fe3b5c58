//! Shared code for the services of `bowline.v1`: read levels, headers, refusals, streamed replies.
//!
//! Invariants: a streamed reply without its last part is an error, never a short reply; so is an unknown
//! value of an enumeration.

use std::future::Future;

use bowline_proto::v1 as pb;
use bowline_types::Revision;
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::caller::{Caller, Repeat};
use crate::{Error, Header, MemberId, ReadLevel, Result};

pub(crate) fn wire_level(level: ReadLevel) -> pb::ReadLevel {
    match level {
        ReadLevel::Linearizable => pb::ReadLevel::Linearizable,
        ReadLevel::Lease => pb::ReadLevel::Lease,
        ReadLevel::Eventual => pb::ReadLevel::Eventual,
    }
}

/// What a header says, and the revision that was read.
pub(crate) fn header(header: Option<pb::Header>) -> Result<(Header, Revision)> {
    let header = header.ok_or_else(|| senseless("it has no header"))?;
    let level = match pb::ReadLevel::try_from(header.read_level) {
        Ok(pb::ReadLevel::Linearizable) => ReadLevel::Linearizable,
        Ok(pb::ReadLevel::Lease) => ReadLevel::Lease,
        Ok(pb::ReadLevel::Eventual) => ReadLevel::Eventual,
        Err(_) => return Err(senseless("its read level is not known")),
    };
    let known = Header {
        cluster_id: header.cluster_id,
        member_id: MemberId::new(header.member_id),
        revision: Revision::new(header.revision),
        raft_term: header.raft_term,
        // A write was read at no revision.
        read_level: (header.read_revision != 0).then_some(level),
        applied_index: Some(header.applied_index),
    };
    Ok((known, Revision::new(header.read_revision)))
}

pub(crate) fn senseless(what: &str) -> Error {
    Error::InvalidReply {
        message: what.to_owned(),
    }
}

/// Gives a request the two settings that every read has.
macro_rules! read_settings {
    ($name:ident) => {
        impl $name {
            /// Replaces both.
            #[allow(dead_code, reason = "not every read is one of a transaction")]
            pub(crate) fn read_at(mut self, read: bowline_proto::v1::Read) -> $name {
                self.request.read = Some(read);
                self
            }

            /// The required freshness. Default: [`ReadLevel::Linearizable`].
            ///
            /// ```no_run
            /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
            /// use bowline_client::ReadLevel;
            ///
            /// let history = client.history("config").level(ReadLevel::Eventual).await?;
            /// println!("{} changes", history.versions.len());
            /// # Ok(())
            /// # }
            /// ```
            pub fn level(mut self, level: ReadLevel) -> $name {
                self.request
                    .read
                    .get_or_insert_default()
                    .set_level(crate::v1::wire_level(level));
                self
            }

            /// Reads at this revision. Default: the newest.
            ///
            /// ```no_run
            /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
            /// use bowline_client::Revision;
            ///
            /// let stats = client.graph().stats().revision(Revision::new(100)).await?;
            /// println!("{} edges then", stats.stats.edges);
            /// # Ok(())
            /// # }
            /// ```
            pub fn revision(mut self, revision: crate::Revision) -> $name {
                self.request.read.get_or_insert_default().revision = revision.get();
                self
            }
        }
    };
}

/// Lets a request be awaited.
macro_rules! awaits {
    ($name:ident, $reply:ty) => {
        impl std::future::IntoFuture for $name {
            type Output = Result<$reply>;
            type IntoFuture = crate::BoxFuture<$reply>;

            fn into_future(self) -> crate::BoxFuture<$reply> {
                Box::pin(self.send())
            }
        }
    };
}

pub(crate) use {awaits, read_settings};

/// The service's refusals have no texts to tell them apart by; their codes do.
pub(crate) fn typed(error: Error) -> Error {
    match error {
        Error::Other {
            code: Code::NotFound,
            message,
        } => Error::NotFound { message },
        Error::Other {
            code: Code::InvalidArgument | Code::FailedPrecondition,
            message,
        } => Error::Refused { message },
        Error::Other {
            code: Code::Aborted,
            message,
        } => Error::Contended { message },
        other => other,
    }
}

/// Sends a read.
pub(crate) async fn ask<M, R, F>(
    caller: &Caller,
    request: M,
    send: impl Fn(Channel, Request<M>) -> F,
) -> Result<R>
where
    M: Message + Clone,
    F: Future<Output = Result<Response<R>, Status>>,
{
    let called = caller.call(Repeat::Always, None, request, send).await;
    let (reply, _) = called.map_err(typed)?;
    Ok(reply)
}

/// Sends a read that is answered in parts, and collects them. `is_last` tells which part is the last.
pub(crate) async fn collect<M, R, F>(
    caller: &Caller,
    request: M,
    is_last: fn(&R) -> bool,
    send: impl Fn(Channel, Request<M>) -> F,
) -> Result<Vec<R>>
where
    M: Message + Clone,
    F: Future<Output = Result<Response<Streaming<R>>, Status>>,
{
    let sent = |channel, request| {
        let answer = send(channel, request);
        async move {
            let mut stream = answer.await?.into_inner();
            let mut parts = Vec::new();
            while let Some(part) = stream.message().await? {
                parts.push(part);
            }
            Ok(Response::new(parts))
        }
    };
    let called: Result<(Vec<R>, MetadataMap)> =
        caller.call(Repeat::Always, None, request, sent).await;
    let (parts, _) = called.map_err(typed)?;
    whole(parts, is_last)
}

/// The parts, if the last of them is the last there is.
fn whole<R>(parts: Vec<R>, is_last: fn(&R) -> bool) -> Result<Vec<R>> {
    if parts.last().is_some_and(is_last) {
        Ok(parts)
    } else {
        Err(cut_off())
    }
}

pub(crate) fn cut_off() -> Error {
    Error::Disconnected {
        message: "the answer ended before all of it had come".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_in_parts_that_ends_without_its_end_is_an_error() {
        let is_last = |part: &bool| *part;
        assert_eq!(whole(vec![false, true], is_last).unwrap(), [false, true]);
        for parts in [vec![], vec![false], vec![true, false]] {
            let cut = whole(parts, is_last).unwrap_err();
            assert!(matches!(cut, Error::Disconnected { .. }));
        }
    }

    #[test]
    fn a_refusal_has_a_type_and_the_words_of_the_server() {
        let of = |code| {
            let message = "do this".to_owned();
            typed(Error::Other { code, message })
        };
        assert!(matches!(of(Code::NotFound), Error::NotFound { .. }));
        for code in [Code::InvalidArgument, Code::FailedPrecondition] {
            assert!(matches!(of(code), Error::Refused { .. }));
            assert_eq!(of(code).to_string(), "do this");
        }
        assert!(matches!(of(Code::Internal), Error::Other { .. }));
    }
}
