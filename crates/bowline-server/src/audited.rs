//! [`Audited`]: a call in the audit log, from its beginning to its end.

use std::sync::Arc;
use std::time::Duration;

use bowline_replica::Caller;
use parking_lot::Mutex;
use tonic::{Code, Status};

use crate::audit::{Audit, Details, Event, Record, Who};
use crate::context::Context;
use crate::credentials::Credentials;
use crate::memory::current_account;
use crate::metrics::{CallKind, Method};

/// What a call is about, which its body finds out while it arrives.
pub(crate) type SharedDetails = Arc<Mutex<Details>>;

impl Context {
    /// The audit log, if a call of a method may have a line in it.
    pub(crate) fn audits(&self, method: Method) -> Option<&Arc<Audit>> {
        let audit = self.audit.as_ref()?;
        audit.may_write(method).then_some(audit)
    }

    /// Who makes the call that is being polled, as far as this member knows.
    pub(crate) fn who(&self, credentials: &Credentials) -> Who {
        let account = current_account(&self.memory);
        let certificate = account.identity().and_then(|identity| {
            let mut others = identity.uris.iter().chain(&identity.dns_names);
            identity.common_name.as_ref().or_else(|| others.next())
        });
        let caller = self.known_caller(credentials);
        Who {
            has_unknown_token: caller.is_none(),
            user: caller.as_ref().and_then(user_of),
            certificate: certificate.cloned(),
            address: account.address(),
        }
    }
}

/// The name of a user.
fn user_of(caller: &Caller) -> Option<String> {
    match caller {
        Caller::User(session) => Some(session.user().to_owned()),
        Caller::Nobody | Caller::Process => None,
    }
}

/// A call under way.
///
/// It has its line when it ends, and ends as cancelled when it is dropped before. A stream has another line when its reply
/// begins.
#[derive(Debug)]
pub(crate) struct Audited {
    context: Arc<Context>,
    audit: Arc<Audit>,
    method: Method,
    credentials: Credentials,
    who: Who,
    details: SharedDetails,
    begun_ms: u64,
    begun: Duration,
    /// The revision in its reply.
    pub(crate) revision: Option<u64>,
    has_begun: bool,
    has_ended: bool,
}

impl Audited {
    /// Begins a call in the account of the connection being polled.
    pub(crate) fn begin(
        context: &Arc<Context>,
        audit: &Arc<Audit>,
        method: Method,
        credentials: &Credentials,
        details: SharedDetails,
    ) -> Audited {
        Audited {
            who: context.who(credentials),
            context: context.clone(),
            begun_ms: audit.wall_ms(),
            begun: audit.monotonic(),
            audit: audit.clone(),
            method,
            credentials: credentials.clone(),
            details,
            revision: None,
            has_begun: false,
            has_ended: false,
        }
    }

    /// Waits until the log has room. A call that is refused here has no line: there is no room for it.
    pub(crate) async fn admit(mut self) -> Result<Audited, Status> {
        let admitted = self.audit.admit().await;
        self.has_ended = admitted.is_err();
        admitted.map(|()| self)
    }

    /// As [`Audited::admit`], without waiting.
    pub(crate) fn admit_now(mut self) -> Result<Audited, Status> {
        let admitted = self.audit.admit_now();
        self.has_ended = admitted.is_err();
        admitted.map(|()| self)
    }

    /// The reply of a stream begins.
    pub(crate) fn begins(&mut self) {
        self.has_begun = true;
        self.write(Event::Begin, Code::Ok, "");
    }

    /// The call has ended.
    pub(crate) fn end(mut self, refusal: Option<&Status>) {
        let code = refusal.map_or(Code::Ok, Status::code);
        self.finish(code, refusal.map_or("", Status::message));
    }

    fn finish(&mut self, code: Code, reason: &str) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let event = match self.method.kind() {
            CallKind::Unary => Event::Call,
            CallKind::ServerStream | CallKind::BidiStream if self.has_begun => Event::End,
            CallKind::ServerStream | CallKind::BidiStream => Event::Begin,
        };
        self.write(event, code, reason);
    }

    fn write(&mut self, event: Event, code: Code, reason: &str) {
        if self.who.has_unknown_token {
            // The member may have caught up since.
            let caller = self.context.known_caller(&self.credentials);
            self.who.has_unknown_token = caller.is_none();
            self.who.user = caller.as_ref().and_then(user_of);
        }
        let took = self.audit.monotonic().saturating_sub(self.begun);
        self.audit.write(&Record {
            event,
            begun_ms: self.begun_ms,
            who: &self.who,
            method: self.method,
            details: &self.details.lock(),
            code,
            reason,
            revision: self.revision,
            took: (event != Event::Begin || code != Code::Ok).then_some(took),
        });
    }
}

impl Drop for Audited {
    fn drop(&mut self) {
        self.finish(Code::Cancelled, "");
    }
}

/// Writes that a call was refused before it had come to its service.
pub(crate) fn refused(
    context: &Arc<Context>,
    method: Method,
    credentials: &Credentials,
    status: &Status,
) {
    if let Some(audit) = context.audits(method) {
        let audited = Audited::begin(
            context,
            audit,
            method,
            credentials,
            SharedDetails::default(),
        );
        // Without room, it is counted.
        if let Ok(audited) = audited.admit_now() {
            audited.end(Some(status));
        }
    }
}
