//! `grpc.reflection.v1` and `v1alpha`: what is served, for tools that ask. What members say to each
//! other is not among it.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use http::{Request, Response};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service};
use tonic_reflection::pb;
use tonic_reflection::server::Builder;

type Call = BoxFuture<Response<Body>, Infallible>;

/// Both versions. Its clones share them.
#[derive(Clone)]
pub(crate) struct Reflection {
    v1: Arc<dyn Fn(Request<Body>) -> Call + Send + Sync>,
    v1alpha: Arc<dyn Fn(Request<Body>) -> Call + Send + Sync>,
}

impl Reflection {
    pub(crate) fn new() -> Reflection {
        const WHY: &str = "the descriptors were made by the compiler of this program";
        let v1 = builder().build_v1().expect(WHY);
        let v1alpha = builder().build_v1alpha().expect(WHY);
        Reflection {
            v1: Arc::new(move |request| v1.clone().call(request)),
            v1alpha: Arc::new(move |request| v1alpha.clone().call(request)),
        }
    }

    pub(crate) fn call_v1(&self, request: Request<Body>) -> Call {
        (self.v1)(request)
    }

    pub(crate) fn call_v1alpha(&self, request: Request<Body>) -> Call {
        (self.v1alpha)(request)
    }
}

fn builder() -> Builder<'static> {
    Builder::configure()
        .register_encoded_file_descriptor_set(bowline_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(pb::v1::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(pb::v1alpha::FILE_DESCRIPTOR_SET)
        // Each would bring its own version only.
        .include_reflection_service(false)
}

impl fmt::Debug for Reflection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflection").finish_non_exhaustive()
    }
}
