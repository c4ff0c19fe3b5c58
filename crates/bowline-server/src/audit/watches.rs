//! [`WatchAudit`]: the creation and the end of each watch of a stream.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_proto::etcdserverpb as pb;
use tonic::Code;

use super::record::{Event, Record, Who};
use super::{Audit, Details};
use crate::metrics::Method;

/// The lines of the watches of one stream.
///
/// A watch that is open when this is dropped ends with its stream.
#[derive(Debug)]
pub(crate) struct WatchAudit {
    audit: Arc<Audit>,
    who: Who,
    /// When each open watch was created.
    open: HashMap<i64, Duration>,
}

impl WatchAudit {
    /// Those of a client.
    pub(crate) fn new(audit: Arc<Audit>, who: Who) -> WatchAudit {
        WatchAudit {
            audit,
            who,
            open: HashMap::new(),
        }
    }

    /// The user is known now.
    pub(crate) fn identify(&mut self, user: Option<&str>) {
        self.who.has_unknown_token &= user.is_none();
        self.who.user = user.map(str::to_owned);
    }

    /// Lets a watch be created.
    pub(crate) fn admit(&self) -> Result<(), tonic::Status> {
        self.audit.admit_now()
    }

    /// A watch was created.
    pub(crate) fn created(&mut self, id: i64, request: &pb::WatchCreateRequest) {
        self.open.insert(id, self.audit.monotonic());
        self.write(Event::Watch, Some(id), Some(request), Code::Ok, "", None);
    }

    /// A watch was refused. The text is in etcd's form, which begins with the code.
    pub(crate) fn refused(&self, request: &pb::WatchCreateRequest, reason: &str) {
        let (code, reason) = code_in(reason);
        self.write(Event::Watch, None, Some(request), code, reason, None);
    }

    /// A watch has ended, by its client without a reason.
    pub(crate) fn ended(&mut self, id: i64, reason: &str) {
        if let Some(begun) = self.open.remove(&id) {
            let (code, reason) = match reason {
                "" => (Code::Ok, ""),
                reason => code_in(reason),
            };
            let took = self.audit.monotonic().saturating_sub(begun);
            self.write(Event::Unwatch, Some(id), None, code, reason, Some(took));
        }
    }

    fn write(
        &self,
        event: Event,
        id: Option<i64>,
        request: Option<&pb::WatchCreateRequest>,
        code: Code,
        reason: &str,
        took: Option<Duration>,
    ) {
        let details = Details::of(|out| {
            if let Some(id) = id {
                out.number("watch", id);
            }
            if let Some(request) = request {
                out.key("watch", &request.key, &request.range_end);
                if request.start_revision != 0 {
                    out.number("at", request.start_revision);
                }
            }
        });
        self.audit.write(&Record {
            event,
            begun_ms: self.audit.wall_ms(),
            who: &self.who,
            method: Method::Watch,
            details: &details,
            code,
            reason,
            revision: None,
            took,
        });
    }
}

impl Drop for WatchAudit {
    fn drop(&mut self) {
        let open: Vec<i64> = self.open.keys().copied().collect();
        for id in open {
            self.ended(id, "");
        }
    }
}

/// The code and the text of a reason.
fn code_in(reason: &str) -> (Code, &str) {
    let parts = reason
        .strip_prefix("rpc error: code = ")
        .and_then(|rest| rest.split_once(" desc = "));
    match parts {
        Some(("PermissionDenied", text)) => (Code::PermissionDenied, text),
        Some(("Unauthenticated", text)) => (Code::Unauthenticated, text),
        Some((_, text)) => (Code::FailedPrecondition, text),
        None => (Code::FailedPrecondition, reason),
    }
}
