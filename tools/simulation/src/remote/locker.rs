//! One who takes a lock over the network, and writes what only its holder may write, also when it holds it no longer.
//!
//! The lock is the server's (`v3lockpb.Lock`), under a lease that the client's library grants and renews. Each write has
//! the condition that the lock's key is still there with the create revision that it had: the fencing token.
//!
//! A lease is timed in seconds or in milliseconds: the client renews the one by a stream, and the other by calls.

use std::time::Duration;

use bowline::Revision;
use bowline_client::{Compare, Error, KeepAlive, LeaseId, Operation, ReadLevel};
use bowline_proto::v3lockpb::lock_client::LockClient;
use bowline_proto::v3lockpb::{LockRequest, UnlockRequest};

use super::fence::{self, Fence, GUARDED};
use super::program::Program;
use crate::holders::LEFT_PERCENT;

const LOCK: &str = "lock";
/// A new leader adds an election timeout to what is left of a lease.
const ADDED_MAX: Duration = Duration::from_secs(1);
/// So long it waits for the lock.
const WAIT_MAX: Duration = Duration::from_secs(4);

pub(super) struct Locker {
    pub(super) program: Program,
    pub(super) fence: Fence,
    pub(super) random: fastrand::Rng,
}

/// A lock that it was told to have.
struct Held {
    key: Vec<u8>,
    token: Revision,
    lease: LeaseId,
    ttl: Duration,
    /// Whether the lease is timed in milliseconds.
    is_exact: bool,
    /// Until then it certainly has it.
    promised: Duration,
}

impl Locker {
    /// Takes the lock again and again.
    pub(super) async fn run(mut self) {
        loop {
            self.sleep(50..1_500).await;
            if self.program.history.is_over() {
                return;
            }
            if let Some(held) = self.take().await {
                self.hold(held).await;
            }
        }
    }

    async fn sleep(&mut self, millis: std::ops::Range<u64>) {
        let millis = self.random.u64(millis);
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }

    fn now(&self) -> Duration {
        self.program.history.lease_now()
    }

    /// What an answer gave; an error is judged.
    fn judged<T>(&self, what: &str, answer: Result<T, Error>) -> Option<T> {
        let answer = answer.inspect_err(|error| {
            self.program.note(format_args!("{what} fails: {error}"));
            self.program.judge(error);
        });
        answer.ok()
    }

    /// Asks for a lease, and then for the lock.
    async fn take(&mut self) -> Option<Held> {
        let client = self.program.client.clone();
        let ttl = Duration::from_millis(self.random.u64(600..4_000));
        let is_exact = self.random.bool();
        let asked = self.now();
        let granted = match is_exact {
            true => client.grant_lease_ms(ttl).await,
            false => client.grant_lease(ttl).await,
        };
        let granted = self.judged("a grant", granted)?;
        let (lease, ttl) = (granted.id, granted.ttl);
        let promised = asked + ttl * LEFT_PERCENT / 100;
        let asked = self.now();
        let mut locks = LockClient::new(client.channel());
        let locking = locks.lock(LockRequest {
            name: LOCK.into(),
            lease: lease.get(),
        });
        let key = match tokio::time::timeout(WAIT_MAX, locking).await {
            Ok(Ok(reply)) => reply.into_inner().key.to_vec(),
            refused => {
                let reason = refused.map(|answer| answer.map(drop));
                self.program.note(format_args!("has no lock: {reason:?}"));
                // If it gets it all the same, it does not keep it.
                let _ = client.revoke_lease(lease).await;
                return None;
            }
        };
        let read = client.get(key.clone()).level(ReadLevel::Linearizable).await;
        let read = self.judged("a read of its lock", read)?;
        let Some(entry) = read.entry() else {
            self.program
                .note(format_args!("has lost the lock at once, {lease}"));
            return None;
        };
        let token = entry.create_revision;
        let now = self.now();
        self.program.note(format_args!(
            "has the lock with token {token} and lease {lease} until {promised:?}"
        ));
        let taken = self
            .fence
            .is_taken(&self.program.name, token, asked, now, promised);
        if let Err(reason) = taken {
            self.program.history.fail(reason);
        }
        self.program.history.is_locked();
        Some(Held {
            key,
            token,
            lease,
            ttl,
            is_exact,
            promised,
        })
    }

    /// Writes for a while, and gives the lock back or forgets it.
    async fn hold(&mut self, mut held: Held) {
        let millis = held.ttl.as_millis() as u64;
        let kept = match self.random.u8(0..3) {
            0 => self.keep(&held).await,
            _ => None,
        };
        for _ in 0..self.random.u8(1..6) {
            match self.random.u8(0..10) {
                0..=1 => self.renew(&mut held).await,
                8..=9 => self.look(&held).await,
                // It may be too late afterwards.
                2 => self.sleep(millis / 2..millis * 2).await,
                _ => self.sleep(0..millis / 4).await,
            }
            if let Some(kept) = &kept {
                self.believe(&mut held, kept);
            }
            if !self.write(&held).await {
                return;
            }
        }
        match self.random.u8(0..3) {
            0 => self.unlock(&held).await,
            1 => self.revoke(&held).await,
            _ => {}
        }
    }

    /// Has the library renew the lease from now on.
    async fn keep(&self, held: &Held) -> Option<KeepAlive> {
        let client = &self.program.client;
        let kept = match held.is_exact {
            true => client.keep_alive_ms(held.lease).await,
            false => client.keep_alive(held.lease).await,
        };
        self.judged_of_lease("a keep-alive", held, kept)
    }

    /// Takes the library at its word: the lease lives for as long as it says, by a clock that may be slower than the
    /// leader's.
    fn believe(&self, held: &mut Held, kept: &KeepAlive) {
        let slower = held.ttl * (100 - LEFT_PERCENT) / 100;
        // It cannot know that the leader's clock has leapt forward since the last renewal.
        let slower = slower + self.program.history.leapt_within(held.ttl);
        let left = kept.remaining().saturating_sub(slower);
        held.promised = held.promised.max(self.now() + left);
        self.fence.promise(held.token, held.promised);
    }

    async fn renew(&self, held: &mut Held) {
        let asked = self.now();
        let client = &self.program.client;
        let renewed = match held.is_exact {
            true => client.keep_alive_ms_once(held.lease).await,
            false => client.keep_alive_once(held.lease).await,
        };
        if let Some(ttl) = self.judged_of_lease("a renewal", held, renewed) {
            held.promised = asked + ttl * LEFT_PERCENT / 100;
            self.fence.promise(held.token, held.promised);
        }
    }

    /// Asks for the time that is left, and for the keys of the lease.
    async fn look(&self, held: &Held) {
        let client = &self.program.client;
        let told = match held.is_exact {
            true => client.time_to_live_ms(held.lease, true).await,
            false => client.time_to_live(held.lease, true).await,
        };
        let Some(told) = self.judged_of_lease("a question for the time", held, told) else {
            return;
        };
        self.program.history.has_looked();
        let has_key = told.keys.iter().any(|key| *key == held.key);
        let is_too_long = told.remaining > held.ttl + ADDED_MAX;
        if is_too_long || !has_key && self.now() < held.promised {
            let (name, lease) = (&self.program.name, held.lease);
            let reason = format!("{name}: lease {lease} of {:?}: {told:?}", held.ttl);
            self.program.history.fail(reason);
        }
    }

    /// What an answer about the lease gave; an error is judged, and says not that the lease is over while it lives.
    fn judged_of_lease<T>(&self, what: &str, held: &Held, answer: Result<T, Error>) -> Option<T> {
        if let Err(Error::LeaseNotFound) = &answer
            && self.now() < held.promised
        {
            let (name, lease, until) = (&self.program.name, held.lease, held.promised);
            let reason = format!(
                "{name}: {what} says that lease {lease} is over, which was promised until {until:?}"
            );
            self.program.history.fail(reason);
        }
        self.judged(what, answer)
    }

    /// Writes under the lock's condition. Gives whether it may still hold the lock.
    async fn write(&self, held: &Held) -> bool {
        let token = held.token;
        let value = fence::value(token, self.program.history.moment());
        self.program
            .note(format_args!("writes {value} under its lock"));
        let txn = { self.program.client.txn() }
            .when([Compare::create_revision(held.key.clone()).equals(Some(token))])
            .then([Operation::put(GUARDED, value.clone())]);
        let Some(reply) = self.judged("a write under its lock", txn.await) else {
            return true;
        };
        if reply.succeeded {
            let revision = reply.header.revision;
            self.program
                .note(format_args!("has written {value} at {revision}"));
            self.program.history.is_guarded(Some(revision));
        } else {
            self.program.note(format_args!("{value} is refused"));
            self.program.history.is_guarded(None);
            if self.now() < held.promised {
                let name = &self.program.name;
                let until = held.promised;
                let reason = format!(
                    "{name}: a write with token {token} was refused, and its lock was promised until {until:?}"
                );
                self.program.history.fail(reason);
            }
        }
        reply.succeeded
    }

    async fn unlock(&self, held: &Held) {
        self.is_given_up(held);
        let mut locks = LockClient::new(self.program.client.channel());
        let key = held.key.clone().into();
        let unlocked = locks.unlock(UnlockRequest { key });
        let unlocked = tokio::time::timeout(WAIT_MAX, unlocked).await;
        let unlocked = unlocked.map(|answer| answer.map(drop));
        self.program
            .note(format_args!("has unlocked: {unlocked:?}"));
    }

    async fn revoke(&self, held: &Held) {
        self.is_given_up(held);
        let revoked = self.program.client.revoke_lease(held.lease).await;
        self.judged("a revocation", revoked);
    }

    /// It begins to give the lock back.
    fn is_given_up(&self, held: &Held) {
        let until = held.promised.min(self.now());
        self.fence.promise(held.token, until);
    }
}
