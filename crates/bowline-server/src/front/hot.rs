//! What is served here: the hot calls, `Range`, `Put`, `DeleteRange` and `Txn` of `etcdserverpb.KV`, and `Watch`.

use std::sync::Arc;

use bowline_cluster::ReadLevel;
use bowline_proto::etcdserverpb as pb;
use prost::{DecodeError, Message as _};
use tonic::Status;

use crate::audit::{Audit, Details, Told, noting};
use crate::audited::Audited;
use crate::metrics::Method;
use crate::rates::UNSENT_KEY_BYTES;
use crate::service::{Answer, Counting, EncodedReply, KvService, LongReply, Terms};

/// What is served here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Served {
    Call(HotMethod),
    Watch,
}

impl Served {
    pub(super) fn of_path(path: &[u8]) -> Option<Served> {
        match path {
            b"/etcdserverpb.Watch/Watch" => Some(Served::Watch),
            path => HotMethod::of_path(path).map(Served::Call),
        }
    }

    /// The same method among all.
    pub(super) fn method(self) -> Method {
        match self {
            Served::Call(method) => method.method(),
            Served::Watch => Method::Watch,
        }
    }
}

/// A hot call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HotMethod {
    Range,
    Put,
    DeleteRange,
    Txn,
}

impl HotMethod {
    fn of_path(path: &[u8]) -> Option<HotMethod> {
        match path.strip_prefix(b"/etcdserverpb.KV/")? {
            b"Range" => Some(HotMethod::Range),
            b"Put" => Some(HotMethod::Put),
            b"DeleteRange" => Some(HotMethod::DeleteRange),
            b"Txn" => Some(HotMethod::Txn),
            _ => None,
        }
    }

    /// The same method among all.
    pub(super) fn method(self) -> Method {
        match self {
            HotMethod::Range => Method::Range,
            HotMethod::Put => Method::Put,
            HotMethod::DeleteRange => Method::DeleteRange,
            HotMethod::Txn => Method::Txn,
        }
    }
}

/// A request.
#[derive(Debug)]
pub(super) enum HotRequest {
    Range(pb::RangeRequest),
    Put(pb::PutRequest),
    DeleteRange(pb::DeleteRangeRequest),
    Txn(pb::TxnRequest),
}

impl HotRequest {
    pub(super) fn decode(method: HotMethod, message: &[u8]) -> Result<HotRequest, DecodeError> {
        Ok(match method {
            HotMethod::Range => HotRequest::Range(pb::RangeRequest::decode(message)?),
            HotMethod::Put => HotRequest::Put(pb::PutRequest::decode(message)?),
            HotMethod::DeleteRange => {
                HotRequest::DeleteRange(pb::DeleteRangeRequest::decode(message)?)
            }
            HotMethod::Txn => HotRequest::Txn(pb::TxnRequest::decode(message)?),
        })
    }
}

impl HotRequest {
    /// Its method among all.
    fn method(&self) -> Method {
        match self {
            HotRequest::Range(_) => Method::Range,
            HotRequest::Put(_) => Method::Put,
            HotRequest::DeleteRange(_) => Method::DeleteRange,
            HotRequest::Txn(_) => Method::Txn,
        }
    }

    /// Tells the audit log what it is about.
    fn tell(&self, out: &mut Details) {
        match self {
            HotRequest::Range(request) => request.tell(out),
            HotRequest::Put(request) => request.tell(out),
            HotRequest::DeleteRange(request) => request.tell(out),
            HotRequest::Txn(request) => request.tell(out),
        }
    }
}

/// The message of a reply.
#[derive(Debug)]
pub(crate) enum HotMessage {
    Range(pb::RangeResponse),
    Put(pb::PutResponse),
    DeleteRange(pb::DeleteRangeResponse),
    Txn(pb::TxnResponse),
}

impl HotMessage {
    pub(super) fn encoded_len(&self) -> usize {
        match self {
            HotMessage::Range(message) => message.encoded_len(),
            HotMessage::Put(message) => message.encoded_len(),
            HotMessage::DeleteRange(message) => message.encoded_len(),
            HotMessage::Txn(message) => message.encoded_len(),
        }
    }

    /// The number of keys that are only counted.
    fn unsent_keys(&self) -> u64 {
        match self {
            HotMessage::Range(message) => message.unsent_keys(),
            HotMessage::Put(message) => message.unsent_keys(),
            HotMessage::DeleteRange(message) => message.unsent_keys(),
            HotMessage::Txn(message) => message.unsent_keys(),
        }
    }

    /// Appends the message.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        // The buffer grows, so this cannot fail.
        let _ = match self {
            HotMessage::Range(message) => message.encode(out),
            HotMessage::Put(message) => message.encode(out),
            HotMessage::DeleteRange(message) => message.encode(out),
            HotMessage::Txn(message) => message.encode(out),
        };
    }
}

/// A reply.
pub(crate) struct HotReply {
    pub(super) message: HotMessage,
    /// The message, if it is large and was encoded elsewhere.
    pub(super) encoded: Option<EncodedReply>,
    /// The message in parts, if it is too long to be in memory.
    pub(super) long: Option<LongReply>,
    pub(super) applied: u64,
    /// The level of the read, if it was one.
    pub(super) level: Option<ReadLevel>,
}

impl HotReply {
    /// What a principal is charged for: the bytes of the reply, and the keys that its ranges only count.
    pub(super) fn scanned_bytes(&self, message_bytes: usize) -> u64 {
        let (sent, unsent_keys) = match (&self.long, &self.encoded) {
            (Some(long), _) => (long.bytes(), long.unsent_keys),
            (None, Some(encoded)) => {
                let sent = encoded.bytes().len() as u64;
                (sent, self.message.unsent_keys())
            }
            (None, None) => (message_bytes as u64, self.message.unsent_keys()),
        };
        sent.saturating_add(unsent_keys.saturating_mul(UNSENT_KEY_BYTES))
    }

    fn of<T>(answer: Answer<T>, message: impl FnOnce(T) -> HotMessage) -> HotReply {
        HotReply {
            message: message(answer.message),
            encoded: answer.encoded,
            long: answer.long,
            applied: answer.applied,
            level: answer.level,
        }
    }
}

/// Makes a call, with its line in the audit log, if there is one.
pub(super) async fn call(
    service: KvService,
    terms: Terms,
    request: HotRequest,
) -> Result<HotReply, Status> {
    let Some(audit) = service.context().audits(request.method()).cloned() else {
        return make(service, terms, request).await;
    };
    Box::pin(audited(audit, service, terms, request)).await
}

async fn audited(
    audit: Arc<Audit>,
    service: KvService,
    terms: Terms,
    request: HotRequest,
) -> Result<HotReply, Status> {
    let details = Details::of(|out| request.tell(out));
    let details = Arc::new(details.into());
    let (context, credentials) = (service.context(), &terms.credentials);
    let call = Audited::begin(context, &audit, request.method(), credentials, details);
    let mut call = call.admit().await?;
    let (made, revision) = noting(make(service, terms, request)).await;
    call.revision = revision;
    call.end(made.as_ref().err());
    made
}

/// Makes a call. Every call has room for the largest future, and is moved into its slot: those of the rarer calls are
/// boxed, so that reads and puts are small.
async fn make(service: KvService, terms: Terms, request: HotRequest) -> Result<HotReply, Status> {
    Ok(match request {
        HotRequest::Range(request) => {
            HotReply::of(service.read(terms, request).await?, HotMessage::Range)
        }
        HotRequest::Put(request) => {
            HotReply::of(service.put_one(terms, request).await?, HotMessage::Put)
        }
        HotRequest::DeleteRange(request) => {
            let deleted = Box::pin(service.delete(terms, request)).await?;
            HotReply::of(deleted, HotMessage::DeleteRange)
        }
        HotRequest::Txn(request) => {
            let done = Box::pin(service.transact(terms, request)).await?;
            HotReply::of(done, HotMessage::Txn)
        }
    })
}
