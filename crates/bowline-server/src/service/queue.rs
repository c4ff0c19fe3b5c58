//! The queue of keys under one name, on which locks and elections are built.
//!
//! A waiter puts the key `NAME/LEASE`, with the lease's id in hexadecimal, under its lease. The queue is
//! ordered by the keys' create revisions. The first holds the lock, or leads, until its key is deleted, by
//! the holder or with its lease. The keys are plain keys, the same that etcd and its client libraries create,
//! so waiters of this service and of such libraries share one queue.
//!
//! Invariants:
//!
//! - A call returns that its key is first only after one linearizable read that showed its own key, with the
//!   create revision of its entry, and none under the name with a smaller one. Keys are added at the end
//!   only, so no other key gets before it while its own lives.
//! - A call that ends without being first deletes its key ([`Place`]), whether it is refused, or its client
//!   leaves while it waits or even before the put is confirmed. It retries until the key is gone: a key that
//!   lived as long as its lease would keep the lock from all others.
//! - A call deletes a key only if it was the last to put it, and did not find it first already: another call
//!   may have returned that the key holds the lock. So every call puts the key, even if it exists, and
//!   deletes exactly that put; and a call that finds the key first after another has put it puts it once more,
//!   with the value that it then has.
//! - A put whose outcome is unknown is repeated until it is known, whether its caller still waits or not: it
//!   may have left a key that nobody would delete. A key that a repetition finds first, and that was there, is
//!   left alone all the same: it may be that of another call. Where the caller has lost the right to repeat it,
//!   the key is deleted instead, by the same rule, and then the caller is told.
//! - A call waits only for its own key and the key just before: when a lock is released, one caller wakes,
//!   not all. It holds no thread meanwhile.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bowline::{Entry, Revision, Value};
use bowline_cluster::ReadLevel;
use bowline_proto::etcdserverpb::ResponseHeader;
use bowline_replica::{
    Caller, Compare, DeleteRangeOp, Op, OpReply, PutOp, RangeOp, RangeReply, Relation, SortOrder,
    SortTarget, Target, Txn, TxnReply,
};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tonic::{Code, Status};

use super::kv::{foreign_reply, write};
use crate::context::{Context, stopped};
use crate::status::{Fault, leaves_doubt, status};
use crate::watch::{Kinds, OwnWatch};

/// The pause before a write is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The prefix of a name's keys.
pub(super) fn prefix(name: &[u8]) -> Vec<u8> {
    [name, b"/"].concat()
}

/// The end of the prefix.
pub(super) fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        // The last byte is a slash.
        *last += 1;
    }
    end
}

/// A refusal in etcd's words: its lock server calls etcd as a client does, and forwards the text without the
/// code. What may be retried keeps its code.
pub(super) fn without_code(refusal: Status) -> Status {
    match refusal.code() {
        Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded => refusal,
        _ => Status::unknown(refusal.message()),
    }
}

/// A lease's id as in the keys.
fn hexadecimal(lease: i64) -> String {
    let sign = if lease < 0 { "-" } else { "" };
    format!("{sign}{:x}", lease.unsigned_abs())
}

/// A read of a queue's first key.
pub(super) fn first_of(prefix: &[u8]) -> RangeOp {
    RangeOp {
        key: prefix.to_vec(),
        range_end: prefix_end(prefix),
        limit: 1,
        sort_target: SortTarget::Create,
        sort_order: SortOrder::Ascend,
        ..RangeOp::default()
    }
}

/// The condition that a key still has this create revision.
pub(super) fn is_of(key: &[u8], create_revision: Revision) -> Compare {
    Compare {
        key: key.to_vec(),
        range_end: Vec::new(),
        relation: Relation::Equal,
        target: Target::Create(create_revision),
    }
}

/// The condition that a key was last put at this revision.
fn is_put_of(key: &[u8], mod_revision: Revision) -> Compare {
    Compare {
        target: Target::Mod(mod_revision),
        ..is_of(key, Revision::ZERO)
    }
}

fn read_of(key: &[u8]) -> Op {
    Op::Range(RangeOp {
        key: key.to_vec(),
        ..RangeOp::default()
    })
}

/// A put if the key still has this create revision.
pub(super) fn put_if(key: &[u8], create_revision: Revision, value: Value, lease: i64) -> Txn {
    Txn {
        compares: vec![is_of(key, create_revision)],
        success: vec![Op::Put(PutOp {
            key: key.to_vec(),
            value,
            lease,
            ..PutOp::default()
        })],
        failure: Vec::new(),
    }
}

/// A deletion if the key still has this create revision.
pub(super) fn delete_if(key: &[u8], create_revision: Revision) -> Txn {
    delete_under(is_of(key, create_revision), key)
}

fn delete_under(condition: Compare, key: &[u8]) -> Txn {
    Txn {
        compares: vec![condition],
        success: vec![Op::DeleteRange(DeleteRangeOp {
            key: key.to_vec(),
            ..DeleteRangeOp::default()
        })],
        failure: Vec::new(),
    }
}

/// The requested lease, or a new one for 0. Only the client keeps the new one alive.
pub(super) async fn lease_of(
    context: &Context,
    caller: &Caller,
    asked: i64,
) -> Result<i64, Status> {
    const TTL: Duration = Duration::from_secs(60);
    if asked != 0 {
        return Ok(asked);
    }
    let ttl = TTL.max(context.settings.lease_ttl_min());
    let client = context.client.by(caller);
    let (id, _) = client.lease_grant(0, ttl).await.map_err(status)?;
    Ok(id)
}

/// A key in a queue. Dropping it deletes the key.
pub(super) struct Place {
    context: Arc<Context>,
    caller: Caller,
    prefix: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) create_revision: Revision,
    pub(super) lease: i64,
    /// The revision of this call's put.
    mod_revision: Revision,
    is_kept: bool,
    runtime: Handle,
}

/// The result of entering a queue.
pub(super) struct Entered {
    pub(super) place: Place,
    /// The header of the transaction that entered.
    pub(super) header: Option<ResponseHeader>,
    is_first: bool,
}

/// Puts a key at the end of a queue. A key that exists under the same lease keeps its place, and gets the
/// value.
pub(super) async fn enter(
    context: &Arc<Context>,
    caller: Caller,
    name: &[u8],
    lease: i64,
    value: Value,
) -> Result<Entered, Status> {
    let (context, prefix) = (context.clone(), prefix(name));
    let (told, outcome) = oneshot::channel();
    // In a task that outlives the caller: if the caller goes away, the place is dropped, and so the key is
    // deleted.
    tokio::spawn(async move {
        let lease = match lease_of(&context, &caller, lease).await {
            Ok(lease) => lease,
            Err(status) => {
                // An error means that the caller has gone.
                let _ = told.send(Err(status));
                return;
            }
        };
        let attempt = || enter_once(&context, &caller, &prefix, lease, &value);
        let take_out = || take_out(&context, &prefix, lease);
        until_known(context.stopping(), RETRY_PAUSE, told, attempt, take_out).await;
    });
    let outcome = outcome.await;
    outcome.map_err(|_| Fault::Internal("the call was dropped".to_owned()))?
}

/// Repeats an attempt to enter a queue until its outcome is known, or the server stops. The caller gets the
/// outcome. It is told nothing before: its next call under the same lease would be one of the same key, which a
/// repetition for nobody puts and then deletes. `take_out` deletes what an attempt may have left.
async fn until_known<T, F, D>(
    mut stopping: watch::Receiver<bool>,
    pause: Duration,
    told: oneshot::Sender<Result<T, Status>>,
    attempt: impl Fn() -> F,
    take_out: impl Fn() -> D,
) where
    F: Future<Output = Result<T, Status>>,
    D: Future<Output = Result<(), Status>>,
{
    let mut outcome = attempt().await;
    let mut is_repeated = false;
    loop {
        if is_repeated && outcome.as_ref().is_err_and(is_without_rights) {
            until_done(stopping, pause, take_out).await;
            let _ = told.send(outcome);
            return;
        }
        let is_known = match &outcome {
            Ok(_) => true,
            Err(status) if is_repeated => is_without_lease(status),
            Err(status) => !leaves_doubt(status),
        };
        if is_known {
            // A caller that has gone drops the outcome.
            let _ = told.send(outcome);
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stopped(&mut stopping) => {
                let _ = told.send(Err(Fault::Stopped.into()));
                return;
            }
        }
        outcome = attempt().await;
        is_repeated = true;
    }
}

/// Whether the lease of a key has ended, and so the key is gone.
fn is_without_lease(status: &Status) -> bool {
    status.code() == Fault::LeaseNotFound.parts().0
}

/// Whether the caller may not do it: it has lost the right to, its token has ended, or there are users only now.
fn is_without_rights(status: &Status) -> bool {
    let refusals = [
        Fault::PermissionDenied,
        Fault::InvalidToken,
        Fault::UserNameEmpty,
    ];
    let mut codes = refusals.iter().map(|fault| fault.parts().0);
    codes.any(|code| status.code() == code)
}

/// The key of a lease in a queue.
fn key_in(prefix: &[u8], lease: i64) -> Vec<u8> {
    [prefix, hexadecimal(lease).as_bytes()].concat()
}

/// Deletes the key that a put of unknown outcome may have left, unless it is first. The process does it, and changes nothing
/// else of the key: its caller may not. The put before the deletion tells another call under the same lease, which finds the
/// key first meanwhile, to make it its own.
async fn take_out(context: &Context, prefix: &[u8], lease: i64) -> Result<(), Status> {
    let key = key_in(prefix, lease);
    let exists = Compare {
        relation: Relation::NotEqual,
        ..is_of(&key, Revision::ZERO)
    };
    let put = PutOp {
        key: key.clone(),
        ignore_value: true,
        ignore_lease: true,
        ..PutOp::default()
    };
    let txn = Txn {
        compares: vec![exists],
        success: vec![Op::Put(put), Op::Range(first_of(prefix))],
        ..Txn::default()
    };
    let (reply, applied) = write(context, &Caller::Process, txn).await?;
    if !reply.succeeded {
        return Ok(());
    }
    let (_, first) = two_of(reply)?;
    let first = entry_of(first)?.ok_or_else(foreign_reply)?;
    if first.key[..] != key[..] {
        remove(context, &key, applied.reply.revision).await;
    }
    Ok(())
}

/// Puts a key at the end of a queue, once.
async fn enter_once(
    context: &Arc<Context>,
    caller: &Caller,
    prefix: &[u8],
    lease: i64,
    value: &Value,
) -> Result<Entered, Status> {
    let key = key_in(prefix, lease);
    let put = PutOp {
        key: key.clone(),
        value: value.clone(),
        lease,
        prev_kv: true,
        ..PutOp::default()
    };
    let txn = Txn {
        success: vec![Op::Put(put), Op::Range(first_of(prefix))],
        ..Txn::default()
    };
    let (reply, applied) = write(context, caller, txn).await?;
    let (before, first) = two_of(reply)?;
    let OpReply::Put(before) = before else {
        return Err(foreign_reply());
    };
    let mod_revision = applied.reply.revision;
    let is_new = before.is_none();
    let create_revision = before.map_or(mod_revision, |before| before.create_revision);
    let first = entry_of(first)?.ok_or_else(foreign_reply)?;
    let is_first = first.create_revision == create_revision;
    Ok(Entered {
        header: context.header_of(&applied),
        is_first,
        place: Place {
            context: context.clone(),
            caller: caller.clone(),
            prefix: prefix.to_vec(),
            key,
            create_revision,
            lease,
            mod_revision,
            is_kept: is_first && !is_new,
            runtime: Handle::current(),
        },
    })
}

fn two_of(reply: TxnReply) -> Result<(OpReply, OpReply), Status> {
    let replies: Result<[OpReply; 2], _> = reply.replies.try_into();
    replies.map(Into::into).map_err(|_| foreign_reply())
}

fn entry_of(reply: OpReply) -> Result<Option<Entry>, Status> {
    match reply {
        OpReply::Range(RangeReply { mut entries, .. }) => Ok(entries.pop()),
        _ => Err(foreign_reply()),
    }
}

impl Entered {
    /// Waits until the key is first. `lost` is the error if the key is deleted before, with its lease.
    pub(super) async fn turn(
        mut self,
        lost: Fault,
    ) -> Result<(Place, Option<ResponseHeader>), Status> {
        if self.is_first {
            return Ok((self.place, self.header));
        }
        let first = match self.place.wait().await {
            Ok(Some((header, own))) => self.place.hold(header, own).await,
            Ok(None) => Ok(None),
            Err(status) => Err(status),
        };
        match first {
            Ok(Some(header)) => Ok((self.place, header)),
            Ok(None) => {
                self.place.keep();
                Err(lost.into())
            }
            Err(status) => {
                self.place.take_back().await;
                Err(status)
            }
        }
    }
}

impl Place {
    /// Returns when this key is first, with the header of the read that showed it, and the entry. `None` when the key is
    /// gone.
    async fn wait(&self) -> Result<Option<(Option<ResponseHeader>, Entry)>, Status> {
        let mut stopping = self.context.stopping();
        let last_before = RangeOp {
            // A bound of 0 would mean no bound, but nothing is created before revision 2.
            max_create_revision: self.create_revision - 1,
            sort_order: SortOrder::Descend,
            keys_only: true,
            ..first_of(&self.prefix)
        };
        let both = Txn {
            success: vec![Op::Range(last_before), read_of(&self.key)],
            ..Txn::default()
        };
        loop {
            let client = self.context.client.by(&self.caller);
            let read = client.read_txn(&both, ReadLevel::Linearizable).await;
            let read = read.map_err(status)?;
            let (before, own) = two_of(read.value)?;
            let is_own = |own: &Entry| own.create_revision == self.create_revision;
            let Some(own) = entry_of(own)?.filter(is_own) else {
                return Ok(None);
            };
            let Some(before) = entry_of(before)? else {
                return Ok(Some((self.context.header_of_read(&read.point), own)));
            };
            let keys: [(&[u8], &[u8]); 2] = [(&before.key, b""), (&self.key, b"")];
            let from = read.point.revision + 1;
            let mut watch = OwnWatch::start(&self.context.watches, &keys, from, Kinds::Deletions);
            tokio::select! {
                // Whatever the event: the next read shows the state.
                gone = watch.next() => drop(gone?),
                () = stopped(&mut stopping) => return Err(Fault::Stopped.into()),
            }
        }
    }

    /// Makes the key, which is first, this call's. Another call under the same lease may have put it since: if that one is
    /// given up before it finds the key first, too, it would delete it. The key keeps the value that it has by then, which
    /// its owner may have changed after it was read. `None` when the key is gone.
    async fn hold(
        &mut self,
        header: Option<ResponseHeader>,
        own: Entry,
    ) -> Result<Option<Option<ResponseHeader>>, Status> {
        if own.mod_revision == self.mod_revision {
            return Ok(Some(header));
        }
        let mut own = own;
        loop {
            let mut txn = put_if(&self.key, self.create_revision, own.value, self.lease);
            txn.compares.push(is_put_of(&self.key, own.mod_revision));
            txn.failure.push(read_of(&self.key));
            let (mut reply, applied) = write(&self.context, &self.caller, txn).await?;
            if reply.succeeded {
                self.mod_revision = applied.reply.revision;
                return Ok(Some(self.context.header_of(&applied)));
            }
            // It was put again after it was read, or it is gone.
            let newer = reply.replies.pop().ok_or_else(foreign_reply)?;
            let is_own = |own: &Entry| own.create_revision == self.create_revision;
            match entry_of(newer)?.filter(is_own) {
                Some(newer) => own = newer,
                None => return Ok(None),
            }
        }
    }

    /// Keeps the key when this is dropped.
    pub(super) fn keep(mut self) {
        self.is_kept = true;
    }

    /// Deletes the key, and waits for that for a short time.
    pub(super) async fn take_back(mut self) {
        const REMOVE_TIMEOUT: Duration = Duration::from_secs(1);
        if let Some(removing) = self.remove() {
            // The reply is the same whether it is deleted by then or not.
            let _ = tokio::time::timeout(REMOVE_TIMEOUT, removing).await;
        }
    }

    /// Starts a task that deletes the key and outlives the call.
    fn remove(&mut self) -> Option<JoinHandle<()>> {
        if std::mem::replace(&mut self.is_kept, true) {
            return None;
        }
        let (context, mod_revision) = (self.context.clone(), self.mod_revision);
        let key = std::mem::take(&mut self.key);
        let removing = async move { remove(&context, &key, mod_revision).await };
        Some(self.runtime.spawn(removing))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.remove());
    }
}

/// Deletes a key unless it was put again since.
async fn remove(context: &Context, key: &[u8], mod_revision: Revision) {
    let condition = is_put_of(key, mod_revision);
    // The caller may have lost its rights meanwhile: the key that it put goes all the same.
    let attempt = || {
        write(
            context,
            &Caller::Process,
            delete_under(condition.clone(), key),
        )
    };
    until_done(context.stopping(), RETRY_PAUSE, attempt).await;
}

/// Retries until success, which takes a while without a leader, or until the server stops: then the key is
/// deleted with its lease.
async fn until_done<T, F>(
    mut stopping: watch::Receiver<bool>,
    pause: Duration,
    attempt: impl Fn() -> F,
) where
    F: Future<Output = Result<T, Status>>,
{
    while let Err(error) = attempt().await {
        tracing::debug!(%error, "a place in a queue could not be taken back");
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stopped(&mut stopping) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::test_server::TestServer;

    /// A single attempt without a leader left the key until its lease ended: no other caller got the lock.
    #[tokio::test]
    async fn a_key_is_taken_back_however_often_that_fails_unless_the_server_stops() {
        let (stopping, is_stopping) = watch::channel(false);
        let attempts = AtomicUsize::new(0);
        let failing = |count: usize| {
            let done = attempts.fetch_add(1, Ordering::Relaxed) >= count;
            std::future::ready(done.then_some(()).ok_or(Status::unavailable("no leader")))
        };
        let pause = Duration::from_millis(1);
        until_done(is_stopping.clone(), pause, || failing(3)).await;
        assert_eq!(attempts.swap(0, Ordering::Relaxed), 4);
        stopping.send_replace(true);
        let pause = Duration::from_secs(3600);
        until_done(is_stopping, pause, || failing(usize::MAX)).await;
        assert_eq!(attempts.load(Ordering::Relaxed), 1, "once all the same");
    }

    /// What comes of an attempt that returns these, one after the other: what the caller gets, how many
    /// attempts there were, and how many to delete what they left, of which the first fails. The place of an attempt
    /// is a number.
    async fn entered(
        outcomes: Vec<Result<Arc<()>, Fault>>,
    ) -> (Result<Arc<()>, Status>, usize, usize) {
        let (_stopping, is_stopping) = watch::channel(false);
        let attempts = AtomicUsize::new(0);
        let (told, outcome) = oneshot::channel();
        let attempt = || {
            let number = attempts.fetch_add(1, Ordering::Relaxed);
            std::future::ready(outcomes[number].clone().map_err(Status::from))
        };
        let deletions = AtomicUsize::new(0);
        let take_out = || {
            std::future::ready(match deletions.fetch_add(1, Ordering::Relaxed) {
                0 => Err(Status::unavailable("no leader")),
                _ => Ok(()),
            })
        };
        let pause = Duration::from_millis(1);
        until_known(is_stopping, pause, told, attempt, take_out).await;
        let got = outcome.await.unwrap();
        (got, attempts.into_inner(), deletions.into_inner())
    }

    /// A put that a change of the leader interrupted left its key in the queue as long as the lease lived, and
    /// with it the lock was kept from all others: its caller had an error, and nobody else knew of the key.
    /// Found by review.
    #[tokio::test]
    async fn a_put_whose_outcome_is_unknown_is_repeated_until_it_is_known() {
        let place = Arc::new(());
        let unknown = || Err(Fault::LeaderChanged);
        let (got, attempts, deletions) = entered(vec![unknown(), Ok(place.clone())]).await;
        assert_eq!((got.is_ok(), attempts, deletions), (true, 2, 0));
        drop(got);
        // However long there is no leader.
        let later = vec![
            unknown(),
            Err(Fault::NoLeader),
            unknown(),
            Ok(place.clone()),
        ];
        let (got, attempts, _) = entered(later).await;
        assert_eq!((got.is_ok(), attempts), (true, 4));
        // The keys of a lease that has ended are gone.
        let ended = vec![unknown(), unknown(), Err(Fault::LeaseNotFound)];
        assert_eq!(entered(ended).await.1, 3);
        // A refusal is known.
        let (got, attempts, _) = entered(vec![Err(Fault::NoLeader)]).await;
        assert_eq!((got.is_err(), attempts), (true, 1));
    }

    /// Who lost the right to a queue, or whose token ended, after a put of unknown outcome was told nothing: the put was
    /// repeated twice a second, and refused, for ever.
    #[tokio::test]
    async fn who_loses_the_rights_after_an_unknown_outcome_is_told_so() {
        for refusal in [
            Fault::PermissionDenied,
            Fault::InvalidToken,
            Fault::UserNameEmpty,
        ] {
            let outcomes = vec![Err(Fault::LeaderChanged), Err(refusal.clone())];
            let (got, attempts, deletions) = entered(outcomes).await;
            let (code, text) = refusal.parts();
            let told = got.unwrap_err();
            assert_eq!((told.code(), told.message()), (code, &*text));
            assert_eq!((attempts, deletions), (2, 2), "{refusal:?}");
        }
        // An attempt that is refused at first has left nothing.
        let refused = vec![Err(Fault::PermissionDenied)];
        let (got, attempts, deletions) = entered(refused).await;
        assert_eq!((got.is_err(), attempts, deletions), (true, 1, 0));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_a_put_of_unknown_outcome_has_left_is_deleted_unless_it_is_first() {
        let server = TestServer::start().await;
        let context = server.context();
        let prefix = prefix(b"chair");
        let mut left = Vec::new();
        for _ in 0..2 {
            let lease = lease_of(context, &Caller::Nobody, 0).await.unwrap();
            let value = Value::from("told");
            let entered = enter(context, Caller::Nobody, b"chair", lease, value).await;
            let place = entered.unwrap().place;
            left.push((place.key.clone(), lease));
            place.keep();
        }
        let without_key = lease_of(context, &Caller::Nobody, 0).await.unwrap();
        for lease in [left[0].1, left[1].1, without_key] {
            take_out(context, &prefix, lease).await.unwrap();
        }
        let op = RangeOp {
            limit: 0,
            ..first_of(&prefix)
        };
        let read = context.client.range(&op, ReadLevel::Linearizable).await;
        let entries = read.unwrap().value.entries;
        assert_eq!(entries.len(), 1, "{entries:?}");
        assert_eq!(entries[0].key[..], left[0].0[..]);
        assert_eq!(&entries[0].value[..], b"told");
    }

    /// A call that found its key first wrote the value back that it had read before. Where the owner of the
    /// lease had proclaimed another meanwhile, that was lost. Found by review.
    #[tokio::test(flavor = "multi_thread")]
    async fn who_holds_a_key_keeps_the_value_that_was_proclaimed_meanwhile() {
        let server = TestServer::start().await;
        let context = server.context();
        let lease = lease_of(context, &Caller::Nobody, 0).await.unwrap();
        let enter = |value: &'static str| {
            enter(context, Caller::Nobody, b"chair", lease, Value::from(value))
        };
        let mut first = enter("first").await.unwrap().place;
        let second = enter("second").await.unwrap().place;
        second.keep();
        let read = async |key: &[u8]| {
            let op = RangeOp {
                key: key.to_vec(),
                ..RangeOp::default()
            };
            let read = context.client.range(&op, ReadLevel::Linearizable).await;
            read.unwrap().value.entries.pop().unwrap()
        };
        let stale = read(&first.key).await;
        let told = Value::from("proclaimed");
        let proclaimed = put_if(&first.key, first.create_revision, told, lease);
        assert!(
            write(context, &Caller::Nobody, proclaimed)
                .await
                .unwrap()
                .0
                .succeeded
        );
        assert!(first.hold(None, stale).await.unwrap().is_some());
        let now = read(&first.key).await;
        assert_eq!(&now.value[..], b"proclaimed");
        assert_eq!(now.mod_revision, first.mod_revision, "it is this call's");
        // The key of another owner is not taken.
        let key = first.key.clone();
        let deleted = delete_if(&key, first.create_revision);
        assert!(
            write(context, &Caller::Nobody, deleted)
                .await
                .unwrap()
                .0
                .succeeded
        );
        let again = put_if(&key, Revision::ZERO, Value::from("other"), lease);
        assert!(
            write(context, &Caller::Nobody, again)
                .await
                .unwrap()
                .0
                .succeeded
        );
        assert!(
            first.hold(None, now).await.unwrap().is_some(),
            "as it was read"
        );
        first.mod_revision = Revision::ZERO;
        let before = read(&key).await;
        let old = Entry {
            mod_revision: before.mod_revision - 1,
            ..before
        };
        assert!(first.hold(None, old).await.unwrap().is_none());
        first.keep();
    }

    #[test]
    fn keys_are_made_as_etcd_makes_them() {
        assert_eq!(prefix(b"jobs"), b"jobs/");
        assert_eq!(prefix(b""), b"/");
        assert_eq!(prefix_end(b"jobs/"), b"jobs0");
        assert_eq!(hexadecimal(0x0694_D7A5_B3C0), "694d7a5b3c0");
        assert_eq!(hexadecimal(-1), "-1");
        assert_eq!(hexadecimal(i64::MIN), "-8000000000000000");
    }
}
