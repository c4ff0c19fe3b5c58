//! The request of a watch.

use std::future::IntoFuture;

use bowline_proto::etcdserverpb::WatchCreateRequest;
use bowline_proto::etcdserverpb::watch_create_request::FilterType;

use super::streams::Streams;
use super::watcher::Watcher;
use crate::error::Result;
use crate::request::BoxFuture;
use crate::types::{KeyRange, signed};

/// A watch to begin. [`Client::watch`](crate::Client::watch) gives one; `await` begins it, and gives a [`Watcher`] once a
/// server has confirmed it.
#[derive(Debug, Clone)]
#[must_use = "nothing is watched until it is awaited"]
pub struct Watch {
    streams: Streams,
    request: WatchCreateRequest,
    own_stream: bool,
}

impl Watch {
    pub(crate) fn new(streams: Streams, range: KeyRange) -> Watch {
        let (key, range_end) = range.into_parts();
        Watch {
            streams,
            request: WatchCreateRequest {
                key,
                range_end,
                // A revision too large for a message would otherwise end the stream.
                fragment: true,
                ..WatchCreateRequest::default()
            },
            own_stream: false,
        }
    }

    /// Every key that starts with the key given.
    pub fn prefix(mut self) -> Watch {
        let range = KeyRange::prefix(std::mem::take(&mut self.request.key));
        (self.request.key, self.request.range_end) = range.into_parts();
        self
    }

    /// Starts with the changes of this revision, in the past or in the future. Without it, with those
    /// that come after the watch has begun.
    pub fn from(mut self, revision: u64) -> Watch {
        self.request.start_revision = signed(revision);
        self
    }

    /// Tells what was there before each change.
    pub fn previous(mut self) -> Watch {
        self.request.prev_kv = true;
        self
    }

    /// Leaves out writes.
    pub fn no_puts(mut self) -> Watch {
        self.request.filters.push(FilterType::Noput.into());
        self
    }

    /// Leaves out deletions.
    pub fn no_deletes(mut self) -> Watch {
        self.request.filters.push(FilterType::Nodelete.into());
        self
    }

    /// Also tells, now and then, up to which revision nothing happened: batches without events.
    pub fn progress_notify(mut self) -> Watch {
        self.request.progress_notify = true;
        self
    }

    /// Whether a server may send a large revision in several messages, which are put together here.
    /// Default: yes.
    pub fn fragment(mut self, yes: bool) -> Watch {
        self.request.fragment = yes;
        self
    }

    /// Uses a stream of its own, instead of the one that the client's watches share.
    pub fn own_stream(mut self) -> Watch {
        self.own_stream = true;
        self
    }
}

impl IntoFuture for Watch {
    type Output = Result<Watcher>;
    type IntoFuture = BoxFuture<Watcher>;

    fn into_future(self) -> BoxFuture<Watcher> {
        Box::pin(async move {
            let hub = if self.own_stream {
                self.streams.own()
            } else {
                self.streams.shared()
            };
            Watcher::start(hub, self.request, self.streams.timeout()).await
        })
    }
}
