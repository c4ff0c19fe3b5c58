//! [`WatchSession`]: a client's watches, without the stream that carries its requests and messages.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use bowline::Revision;
use bowline_proto::etcdserverpb as pb;
use pb::watch_create_request::FilterType;
use pb::watch_request::RequestUnion;
use tonic::{Code, Status};

use super::Watches;
use super::index::Span;
use super::message::{Delivery, WatchMessage, response};
use super::rights::WatchRights;
use super::shard::Shard;
use super::state::{Key, StreamState, Wants};
use super::stream_queue::{StreamQueue, Taken};
use crate::audit::WatchAudit;
use crate::memory::{Charge, Memory, current_account};
use crate::reply_header::ReplyHeader;
use crate::status::Fault;

/// The id in messages without a watch.
const NO_WATCH: i64 = -1;

/// So many requests wait until it is known who the caller is.
const WAITING_MAX: usize = 16;

/// The approximate memory of a watch besides its keys.
const WATCH_BYTES: usize = 1 << 10;

/// What waits until it is known who the caller is.
enum Waiting {
    Request(pb::WatchRequest),
    /// The creation of a watch for which there was no memory. Answers come in the order of the creations: it is refused when
    /// its turn comes.
    Refused,
}

/// One client's watches.
pub(crate) struct WatchSession {
    reply_header: Arc<ReplyHeader>,
    shard: Arc<Shard>,
    queue: Arc<StreamQueue>,
    state: Arc<StreamState>,
    /// By id, with the charged bytes. As in etcd, a watch that ended by itself keeps its id until the client
    /// cancels it.
    watches: HashMap<i64, (Key, usize)>,
    next_id: i64,
    /// The memory of the watches.
    charge: Charge,
    rights: WatchRights,
    /// Requests that came before the caller was known, or while this member caught up.
    waiting: Vec<Waiting>,
    /// One before these that is refused if the caller may not have it once this member has caught up.
    refused: Option<pb::WatchCreateRequest>,
    /// What these requests are charged for.
    waiting_bytes: usize,
    /// The lines of the watches in the audit log.
    audit: Option<WatchAudit>,
}

impl WatchSession {
    /// Opens one without a watch, in the account of the current connection.
    pub(crate) fn new(
        watches: &Watches,
        memory: &Arc<Memory>,
        reply_header: Arc<ReplyHeader>,
        needs_leader: bool,
        rights: WatchRights,
        audit: Option<WatchAudit>,
    ) -> WatchSession {
        let (shard, queue) = watches.open(needs_leader, Some(rights.granted().clone()));
        let state = shard.open(queue.clone());
        let charge = Charge::none(current_account(memory));
        WatchSession {
            charge,
            reply_header,
            shard,
            queue,
            state,
            watches: HashMap::new(),
            next_id: 0,
            rights,
            waiting: Vec::new(),
            refused: None,
            waiting_bytes: 0,
            audit,
        }
    }

    /// Does what a request asks for. The reply comes through [`WatchSession::poll`].
    pub(crate) fn handle(&mut self, request: pb::WatchRequest) {
        if self.rights.is_sought() {
            self.wait(request);
            return;
        }
        match request.request_union {
            Some(RequestUnion::CreateRequest(create)) => {
                let permitted = self.permitted(&create);
                // This member may not have applied yet what permits it.
                if permitted.is_err() && self.rights.catch_up() {
                    self.refused = self.hold(&create).then_some(create);
                } else {
                    self.create(&create, permitted);
                }
            }
            Some(RequestUnion::CancelRequest(cancel)) => {
                let id = cancel.watch_id;
                if let Some((key, bytes)) = self.watches.remove(&id) {
                    self.rights.cancelled(id);
                    if let Some(audit) = &mut self.audit {
                        audit.ended(id, "");
                    }
                    self.shard.cancel(&self.state, id, key);
                    // A release is never refused.
                    let _ = self.charge.set(self.charge.bytes() - bytes);
                }
            }
            Some(RequestUnion::ProgressRequest(_)) => self.shard.ask_progress(&self.state),
            None => {}
        }
    }

    /// Whether so much waits for the client that it should make no more requests.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.is_full() || self.waiting.len() >= WAITING_MAX
    }

    /// The next message; `None` at the end.
    pub(crate) fn poll(
        &mut self,
        task: &mut TaskContext<'_>,
    ) -> Poll<Result<Option<Delivery>, Status>> {
        // What goes on may have to wait once more.
        while self.rights.is_sought() && self.rights.poll_known(task).is_ready() {
            if let Some(audit) = &mut self.audit {
                audit.identify(self.rights.user());
            }
            self.go_on();
        }
        match self.queue.poll(task) {
            Poll::Ready(Taken::Message(mut delivery, has_room)) => {
                if has_room {
                    self.shard.resume(&self.state);
                }
                let message = &delivery.message;
                if !message.events.is_empty() && !self.rights.may_be_told() {
                    return Poll::Ready(Err(Status::from(Fault::PermissionDenied)));
                }
                if message.canceled
                    && let Some(audit) = &mut self.audit
                {
                    audit.ended(message.watch_id, &message.cancel_reason);
                }
                let header = message.header.as_ref();
                let revision = header.map_or(0, |header| header.revision);
                let revision = Revision::new(revision as u64);
                let term = self.reply_header.term();
                delivery.message.header = self.reply_header.at(revision, term);
                Poll::Ready(Ok(Some(delivery)))
            }
            Poll::Ready(Taken::End(status)) => Poll::Ready(match status {
                Some(status) if status.code() != Code::Ok => {
                    Err(for_elsewhere(status, self.rights.voters()))
                }
                _ => Ok(None),
            }),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Keeps a request until the caller is known.
    fn wait(&mut self, request: pb::WatchRequest) {
        // All others are a few bytes.
        if let Some(RequestUnion::CreateRequest(create)) = &request.request_union
            && !self.hold(create)
        {
            return;
        }
        self.waiting.push(Waiting::Request(request));
    }

    /// Charges a request that waits. Where there is no memory for it, only its refusal waits.
    fn hold(&mut self, request: &pb::WatchCreateRequest) -> bool {
        let keys_bytes = request.key.len() + request.range_end.len();
        let bytes = keys_bytes + size_of_val(&request.filters[..]);
        let is_held = self.charge.set(self.charge.bytes() + bytes).is_ok();
        if is_held {
            self.waiting_bytes += bytes;
        } else {
            if let Some(audit) = &self.audit
                && audit.admit().is_ok()
            {
                audit.refused(request, &Fault::OutOfMemory.parts().1);
            }
            self.waiting.push(Waiting::Refused);
        }
        is_held
    }

    /// Does what the requests that waited ask for.
    fn go_on(&mut self) {
        let bytes = std::mem::take(&mut self.waiting_bytes);
        // A release is never refused.
        let _ = self.charge.set(self.charge.bytes() - bytes);
        let waiting = std::mem::take(&mut self.waiting);
        if let Some(create) = self.refused.take() {
            let permitted = self.permitted(&create);
            self.create(&create, permitted);
        }
        for waiting in waiting {
            match waiting {
                Waiting::Request(request) => self.handle(request),
                // One before it waits once more.
                Waiting::Refused if self.rights.is_sought() => self.waiting.push(waiting),
                Waiting::Refused => self.refuse(&Fault::OutOfMemory.parts().1),
            }
        }
    }

    /// Whether the caller may have a watch, or why not.
    fn permitted(&self, request: &pb::WatchCreateRequest) -> Result<(), Cow<'static, str>> {
        let checked = self.rights.check(key_of(request), &request.range_end);
        checked.map_err(|refused| reason_of(&refused))
    }

    fn create(
        &mut self,
        request: &pb::WatchCreateRequest,
        permitted: Result<(), Cow<'static, str>>,
    ) {
        if let Some(Err(full)) = self.audit.as_ref().map(WatchAudit::admit) {
            return self.refuse(full.message());
        }
        let created = self.created(request, permitted);
        if let Some(audit) = &mut self.audit {
            match &created {
                Ok(Some(id)) => audit.created(*id, request),
                Ok(None) => {}
                Err(reason) => audit.refused(request, reason),
            }
        }
        if let Err(reason) = created {
            self.refuse(&reason);
        }
    }

    /// Creates a watch; returns its id, if the stream goes on, or why it is refused.
    fn created(
        &mut self,
        request: &pb::WatchCreateRequest,
        permitted: Result<(), Cow<'static, str>>,
    ) -> Result<Option<i64>, Cow<'static, str>> {
        if request.start_revision < 0 {
            return Err(Fault::Compacted.parts().1);
        }
        permitted?;
        let (first, range_end) = (key_of(request), &request.range_end[..]);
        let Some(span) = Span::new(first, range_end) else {
            return Err("mvcc: watcher range is empty".into());
        };
        let Some(id) = self.choose_id(request.watch_id) else {
            return Err("mvcc: duplicate watch ID provided on the WatchStream".into());
        };
        // The index of the shard has a copy of the keys.
        let bytes = WATCH_BYTES + 2 * (first.len() + range_end.len());
        if self.charge.set(self.charge.bytes() + bytes).is_err() {
            return Err(Fault::OutOfMemory.parts().1);
        }
        // Before the watch is there: a change of users from now on looks at what it may see.
        if let Err(refused) = self.rights.grant(id, first, range_end) {
            let _ = self.charge.set(self.charge.bytes() - bytes);
            return Err(reason_of(&refused));
        }
        let filters = |wanted: FilterType| request.filters.contains(&wanted.into());
        let wants = Wants {
            previous: request.prev_kv,
            no_puts: filters(FilterType::Noput),
            no_deletions: filters(FilterType::Nodelete),
            fragments: request.fragment,
            progress: request.progress_notify,
        };
        let start = request.start_revision;
        if let Some(key) = self.shard.create(&self.state, id, span, start, wants) {
            self.watches.insert(id, (key, bytes));
            Ok(Some(id))
        } else {
            self.rights.cancelled(id);
            let _ = self.charge.set(self.charge.bytes() - bytes);
            Ok(None)
        }
    }

    /// The requested id, or a free one for 0; `None` when it is in use.
    fn choose_id(&mut self, asked: i64) -> Option<i64> {
        if asked != 0 {
            return (!self.watches.contains_key(&asked)).then_some(asked);
        }
        while self.watches.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        Some(self.next_id - 1)
    }

    fn refuse(&self, reason: &str) {
        let revision = self.shard.db.revision();
        self.queue.push(WatchMessage {
            created: true,
            canceled: true,
            cancel_reason: reason.to_owned(),
            ..response(NO_WATCH, revision, Vec::new())
        });
    }
}

/// The first key of a watch. As in etcd, an empty one is the least that there is.
fn key_of(request: &pb::WatchCreateRequest) -> &[u8] {
    match &request.key[..] {
        [] => &[0],
        key => key,
    }
}

/// A refusal in etcd's form: a status, as its library writes one.
fn reason_of(refused: &Status) -> Cow<'static, str> {
    let (code, text) = (refused.code(), refused.message());
    format!("rpc error: code = {code:?} desc = {text}").into()
}

/// The status of a stream that has ended because this member cannot read its files. Where there are other voters it is
/// `UNAVAILABLE`, with which clients go on at another member.
fn for_elsewhere(status: Status, voters: usize) -> Status {
    match status.code() {
        Code::DataLoss | Code::Internal if voters > 1 => Status::unavailable(status.message()),
        _ => status,
    }
}

impl Drop for WatchSession {
    fn drop(&mut self) {
        let keys = self.watches.values().map(|(key, _)| *key);
        self.shard.close(&self.state, keys);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use bowline_replica::{
        Caller, Command, Grant, Op, Permission, PutOp, Session, Txn, UsersChange,
    };
    use bytes::Bytes;
    use tokio::sync::oneshot;

    use super::*;
    use crate::memory::{Account, in_account};
    use crate::test_server::TestServer;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// The right to read `k`.
    fn permission() -> Permission {
        Permission::Keys {
            grant: Grant::Read,
            key: b"k".to_vec(),
            range_end: Vec::new(),
        }
    }

    async fn change(server: &TestServer, change: UsersChange) {
        let process = server.context().client.by(&Caller::Process);
        let begun = Instant::now();
        while let Err(error) = process.change_users(change.clone()).await {
            assert!(begun.elapsed() < PATIENCE, "{error}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn permit(server: &TestServer) {
        let (role, permission) = ("r".to_owned(), permission());
        change(server, UsersChange::GrantPermission { role, permission }).await;
    }

    /// A server with authentication, where `ann` has the role `r`, which permits nothing yet.
    async fn with_users() -> TestServer {
        let server = TestServer::start().await;
        for name in ["root", "ann"] {
            let (name, password) = (name.to_owned(), None);
            change(&server, UsersChange::AddUser { name, password }).await;
        }
        let name = "r".to_owned();
        change(&server, UsersChange::AddRole { name }).await;
        for (user, role) in [("root", "root"), ("ann", "r")] {
            let (user, role) = (user.to_owned(), role.to_owned());
            change(&server, UsersChange::GrantRole { user, role }).await;
        }
        change(&server, UsersChange::Enable).await;
        server
    }

    /// The rights of `ann`.
    fn of_ann(server: &TestServer) -> WatchRights {
        let ann = Arc::new(Session::without_token("ann", u64::MAX));
        WatchRights::of(server.context().client.clone(), Caller::User(ann))
    }

    fn open(server: &TestServer, memory: &Arc<Memory>, rights: WatchRights) -> WatchSession {
        let (watches, header) = (&server.context().watches, &server.context().reply_header);
        WatchSession::new(watches, memory, header.clone(), false, rights, None)
    }

    fn create(key: impl Into<Bytes>) -> pb::WatchRequest {
        create_as(0, key)
    }

    fn create_as(watch_id: i64, key: impl Into<Bytes>) -> pb::WatchRequest {
        let create = pb::WatchCreateRequest {
            key: key.into(),
            watch_id,
            ..pb::WatchCreateRequest::default()
        };
        pb::WatchRequest {
            request_union: Some(RequestUnion::CreateRequest(create)),
        }
    }

    /// The next message, or the end.
    async fn next(session: &mut WatchSession) -> Result<WatchMessage, Status> {
        let next = std::future::poll_fn(|task| session.poll(task));
        let next = tokio::time::timeout(PATIENCE, next).await;
        let next = next.expect("a message in time")?;
        Ok(next.expect("the stream goes on").message)
    }

    /// The right was checked before the watch was noted: the look at all notes after a revocation between the two did
    /// not find it, and the watch went on.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_right_that_is_revoked_while_a_watch_is_created_ends_it() {
        let server = with_users().await;
        permit(&server).await;
        let context = server.context().clone();
        let rights = of_ann(&server);
        let granted = rights.granted().clone();
        let mut session = open(&server, &context.memory, rights);
        // The shard is busy, as while its feed delivers events.
        let shard = session.shard.clone();
        let (release, released) = mpsc::channel::<()>();
        let (held, is_held) = mpsc::channel();
        let holding = std::thread::spawn(move || {
            let _state = shard.state.lock();
            held.send(()).unwrap();
            let _ = released.recv();
        });
        is_held.recv().unwrap();
        let creating = std::thread::spawn(move || {
            session.handle(create("k"));
            session
        });
        let begun = Instant::now();
        while granted.count() == 0 {
            assert!(
                begun.elapsed() < PATIENCE,
                "it is not noted before it is there"
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let (role, permission) = ("r".to_owned(), permission());
        change(&server, UsersChange::RevokePermission { role, permission }).await;
        context.watches.check_rights(&context.client);
        drop(release);
        holding.join().unwrap();
        let mut session = creating.join().unwrap();
        let end = loop {
            match next(&mut session).await {
                Ok(message) => assert!(message.created, "{message:?}"),
                Err(status) => break status,
            }
        };
        assert_eq!(end.code(), Code::PermissionDenied);
    }

    /// Whoever hears of a change of users ends the streams, behind what they are to be told: what was written behind the change
    /// could be among that.
    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_visible_after_a_revocation_is_not_told() {
        let server = with_users().await;
        permit(&server).await;
        let context = server.context();
        let mut session = open(&server, &context.memory, of_ann(&server));
        let process = WatchRights::of(context.client.clone(), Caller::Process);
        let mut other = open(&server, &context.memory, process);
        for session in [&mut session, &mut other] {
            session.handle(create("k"));
            assert!(next(session).await.unwrap().created);
        }
        let put = PutOp {
            key: b"k".as_slice().into(),
            ..PutOp::default()
        };
        let put = Command::Txn(Txn::of(Op::Put(put)));
        let put = context.client.by(&Caller::Process).execute(put).await;
        put.unwrap().reply.result.unwrap();
        assert_eq!(next(&mut other).await.unwrap().events.len(), 1);
        // It has been handed to the first, too.
        for session in [&session, &other] {
            drop(session.shard.state.lock());
        }
        let (role, permission) = ("r".to_owned(), permission());
        change(&server, UsersChange::RevokePermission { role, permission }).await;
        let end = next(&mut session).await.unwrap_err();
        assert_eq!(end.code(), Code::PermissionDenied);
    }

    /// A member that had not applied a grant yet refused the watch, which etcd's clients do not ask for again.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_watch_is_refused_only_once_the_member_has_caught_up() {
        let server = with_users().await;
        let mut session = open(&server, &server.context().memory, of_ann(&server));
        session.handle(create("k"));
        session.handle(create("other"));
        permit(&server).await;
        let message = next(&mut session).await.unwrap();
        assert!(message.created && !message.canceled, "{message:?}");
        let message = next(&mut session).await.unwrap();
        assert!(message.created && message.canceled, "{message:?}");
        assert!(message.cancel_reason.contains("PermissionDenied"));
        assert_eq!(session.charge.bytes(), WATCH_BYTES + 2);
    }

    /// A session of a caller that is told later, with its account, whose connection may have so many bytes.
    fn of_somebody(
        server: &TestServer,
        bytes_max: usize,
    ) -> (WatchSession, Arc<Account>, oneshot::Sender<Caller>) {
        let memory = Memory::new(1 << 20, bytes_max);
        let account = memory.account();
        let (tell, caller) = oneshot::channel::<Caller>();
        let seek = Box::pin(async move { Ok::<_, Status>(caller.await.unwrap()) });
        let rights = WatchRights::sought(server.context().client.clone(), seek);
        let opened = in_account(&mut Some(account.clone()), || open(server, &memory, rights));
        (opened.0, account, tell)
    }

    /// Requests of a client whose token this member did not know yet were charged to nobody, 32 MiB of each stream.
    #[tokio::test(flavor = "multi_thread")]
    async fn requests_that_wait_for_the_caller_are_charged() {
        const KEY_BYTES: usize = 60_000;
        let server = TestServer::start().await;
        // Two such keys are within it, with what no connection is charged for.
        let (mut session, account, tell) = of_somebody(&server, 100_000);
        for (number, used) in [KEY_BYTES, 2 * KEY_BYTES, 2 * KEY_BYTES].iter().enumerate() {
            session.handle(create(vec![b'k'; KEY_BYTES]));
            assert_eq!(account.used(), *used, "{number}");
        }
        assert!(tell.send(Caller::Nobody).is_ok());
        let message = next(&mut session).await.unwrap();
        assert!(message.created && !message.canceled, "{message:?}");
        // What waited is given back: there is one watch, and no room for the others.
        for _ in 0..2 {
            let message = next(&mut session).await.unwrap();
            assert!(message.created && message.canceled, "{message:?}");
            assert_eq!(message.cancel_reason, Fault::OutOfMemory.parts().1);
        }
        assert_eq!(account.used(), WATCH_BYTES + 2 * KEY_BYTES);
        drop(session);
        assert_eq!(account.used(), 0);
    }

    /// A creation that found no memory while it waited was refused ahead of those that waited before it. Clients take a
    /// refusal, which has no id, for that of their oldest creation: one of their watches ended, and another was told its events.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_request_that_finds_no_memory_is_refused_in_its_turn() {
        let server = TestServer::start().await;
        let (mut session, _account, tell) = of_somebody(&server, 100_000);
        session.handle(create_as(1, "a"));
        session.handle(create_as(2, vec![b'b'; 200_000]));
        session.handle(create_as(3, "c"));
        let is_silent = std::future::poll_fn(|task| Poll::Ready(session.poll(task).is_pending()));
        assert!(is_silent.await, "one before it waits");
        assert!(tell.send(Caller::Nobody).is_ok());
        for (watch_id, is_refused) in [(1, false), (NO_WATCH, true), (3, false)] {
            let message = next(&mut session).await.unwrap();
            assert!(message.created, "{message:?}");
            let told = (message.watch_id, message.canceled);
            assert_eq!(told, (watch_id, is_refused), "{message:?}");
        }
    }

    #[test]
    fn what_one_member_cannot_read_another_one_may() {
        for (code, voters, told) in [
            (Code::DataLoss, 1, Code::DataLoss),
            (Code::DataLoss, 3, Code::Unavailable),
            (Code::Internal, 1, Code::Internal),
            (Code::Internal, 2, Code::Unavailable),
            (Code::PermissionDenied, 3, Code::PermissionDenied),
        ] {
            let status = for_elsewhere(Status::new(code, "why"), voters);
            assert_eq!((status.code(), status.message()), (told, "why"));
        }
    }
}
