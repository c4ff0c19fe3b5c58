//! `grpc.reflection.v1` and `v1alpha`: descriptions of the served services, for tools. The services between
//! members are not included.
//!
//! The library's stream lasts as long as the client likes. So requests and replies pass through here: when
//! the server stops, the pending reply ends with a status, and the stream of requests ends with it, so that
//! the connection need not wait for the call.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body as HttpBody, Frame};
use tokio::sync::oneshot;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service};
use tonic_reflection::pb;
use tonic_reflection::server::Builder;

use crate::context::{Context, stopped};
use crate::status::Fault;

type Call = BoxFuture<Response<Body>, Infallible>;

/// Both versions of the service. Its clones share them.
#[derive(Clone)]
pub(crate) struct Reflection {
    context: Arc<Context>,
    v1: Arc<dyn Fn(Request<Body>) -> Call + Send + Sync>,
    v1alpha: Arc<dyn Fn(Request<Body>) -> Call + Send + Sync>,
}

impl Reflection {
    pub(crate) fn new(context: Arc<Context>) -> Reflection {
        const WHY: &str = "the descriptors were made by the compiler of this program";
        let v1 = builder().build_v1().expect(WHY);
        let v1alpha = builder().build_v1alpha().expect(WHY);
        Reflection {
            context,
            v1: Arc::new(move |request| v1.clone().call(request)),
            v1alpha: Arc::new(move |request| v1alpha.clone().call(request)),
        }
    }

    pub(crate) fn call_v1(&self, request: Request<Body>) -> Call {
        self.until_stopped(&*self.v1, request)
    }

    pub(crate) fn call_v1alpha(&self, request: Request<Body>) -> Call {
        self.until_stopped(&*self.v1alpha, request)
    }

    fn until_stopped(
        &self,
        serve: &(dyn Fn(Request<Body>) -> Call + Send + Sync),
        request: Request<Body>,
    ) -> Call {
        let (answering, answered) = oneshot::channel();
        let questions = |inner| {
            Body::new(Questions {
                inner,
                answered: Some(answered),
            })
        };
        let call = serve(request.map(questions));
        let mut stopping = self.context.stopping();
        let answers = move |inner| {
            Body::new(Answers {
                inner,
                stopped: Box::pin(async move { stopped(&mut stopping).await }),
                answering: Some(answering),
            })
        };
        Box::pin(async move { Ok(call.await?.map(answers)) })
    }
}

/// A client's requests, until the replies have ended.
struct Questions {
    inner: Body,
    /// Ends with the replies; `None` after that.
    answered: Option<oneshot::Receiver<()>>,
}

impl HttpBody for Questions {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(answered) = &mut self.answered else {
            return Poll::Ready(None);
        };
        if Pin::new(answered).poll(task).is_ready() {
            self.answered = None;
            return Poll::Ready(None);
        }
        Pin::new(&mut self.inner).poll_frame(task)
    }
}

/// The replies, until the server stops.
struct Answers {
    inner: Body,
    stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Dropped when the replies have ended.
    answering: Option<oneshot::Sender<()>>,
}

impl HttpBody for Answers {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.answering.is_none() {
            return Poll::Ready(None);
        }
        // Replies that are ready are sent first.
        if let Poll::Ready(next) = Pin::new(&mut self.inner).poll_frame(task) {
            return Poll::Ready(next);
        }
        if self.stopped.as_mut().poll(task).is_pending() {
            return Poll::Pending;
        }
        self.answering = None;
        let mut end = HeaderMap::new();
        let ended = Status::from(Fault::Stopped).add_header(&mut end);
        Poll::Ready(Some(ended.map(|()| Frame::trailers(end))))
    }
}

fn builder() -> Builder<'static> {
    Builder::configure()
        .register_encoded_file_descriptor_set(bowline_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(pb::v1::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(pb::v1alpha::FILE_DESCRIPTOR_SET)
        // Each version would include only itself.
        .include_reflection_service(false)
}

impl fmt::Debug for Reflection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflection").finish_non_exhaustive()
    }
}
