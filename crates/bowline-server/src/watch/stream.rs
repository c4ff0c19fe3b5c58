//! [`WatchStream`]: a client's watches over the libraries' streams.
//!
//! Requests are read when the connection polls for the next message. So a stream needs no task, and the
//! server reads no requests of a client that does not read replies.

use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, ready};

use bowline_proto::etcdserverpb as pb;
use futures_core::Stream;
use tonic::{Status, Streaming};

use super::message::{Delivery, WatchMessage};
use super::session::WatchSession;
use crate::status::in_words_of_etcd;

/// One client's stream.
pub(crate) struct WatchStream {
    requests: Option<Streaming<pb::WatchRequest>>,
    session: WatchSession,
    /// What is being sent, and to how many of its watches it was.
    sending: Option<(Delivery, usize)>,
}

impl WatchStream {
    pub(crate) fn new(session: WatchSession, requests: Streaming<pb::WatchRequest>) -> WatchStream {
        WatchStream {
            requests: Some(requests),
            session,
            sending: None,
        }
    }

    fn take_requests(&mut self, task: &mut TaskContext<'_>) -> Option<Status> {
        while let Some(requests) = &mut self.requests {
            if self.session.is_full() {
                break;
            }
            match Pin::new(requests).poll_next(task) {
                Poll::Ready(Some(Ok(request))) => self.session.handle(request),
                Poll::Ready(Some(Err(status))) => return Some(in_words_of_etcd(status)),
                // The client sends no more requests, and receives events until either side ends the stream.
                Poll::Ready(None) => self.requests = None,
                Poll::Pending => break,
            }
        }
        None
    }
}

impl Stream for WatchStream {
    type Item = Result<WatchMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        if let Some(status) = self.take_requests(task) {
            return Poll::Ready(Some(Err(status)));
        }
        loop {
            if let Some((delivery, sent)) = &mut self.sending {
                if *sent < delivery.count() {
                    *sent += 1;
                    return Poll::Ready(Some(Ok(delivery.message_at(*sent - 1))));
                }
                self.sending = None;
            }
            match ready!(self.session.poll(task)) {
                Ok(Some(delivery)) => self.sending = Some((delivery, 0)),
                Ok(None) => return Poll::Ready(None),
                Err(status) => return Poll::Ready(Some(Err(status))),
            }
        }
    }
}
