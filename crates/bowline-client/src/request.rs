//! What the types of requests have in common: `await` sends them, and reads have a level and a revision.

use std::future::Future;
use std::pin::Pin;

use crate::error::Result;

/// The future of a request.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

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

            /// How fresh it has to be. Default: [`ReadLevel::Linearizable`](crate::ReadLevel::Linearizable).
            pub fn level(mut self, level: $crate::types::ReadLevel) -> $name {
                self.request
                    .read
                    .get_or_insert_default()
                    .set_level($crate::v1::wire_level(level));
                self
            }

            /// As it was at this revision.
            pub fn revision(mut self, revision: u64) -> $name {
                self.request.read.get_or_insert_default().revision = revision;
                self
            }
        }
    };
}

/// Lets a request be awaited.
macro_rules! awaits {
    ($name:ident, $reply:ty) => {
        impl std::future::IntoFuture for $name {
            type Output = $crate::error::Result<$reply>;
            type IntoFuture = $crate::request::BoxFuture<$reply>;

            fn into_future(self) -> $crate::request::BoxFuture<$reply> {
                Box::pin(self.send())
            }
        }
    };
}

pub(crate) use {awaits, read_settings};
