//! Holders of leases: they grant one, hang a key on it, renew it and ask for it for a while, and let it end or revoke it.
//! In between they look at the leases of all holders, through their own member.
//!
//! - A key of a lease is there for the whole time that its holder was promised, and is gone some time after. For that
//!   time no answer says that there is no such lease, and the list of leases has it.
//! - A lease that was revoked, or of which a member has said that it is gone, is seen nowhere again, nor is its key: by
//!   no renewal, no question for its time, no list and no linearizable read.
//!
//! What is promised ends when a revocation begins, as one without an answer may have been executed.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use bowline::Value;
use bowline_cluster::{Error, LocalClient, ReadLevel};
use bowline_replica::{Command, Op, PutOp, RangeOp, Refusal, Txn};

use crate::history::History;
use crate::trace::Trace;

/// What the keys of leases begin with.
pub(crate) const PREFIX: &[u8] = b"l/";
/// What is left of a time by the clock that runs fastest, in hundredths.
pub(crate) const LEFT_PERCENT: u32 = 94;

/// A holder, for as long as the process of its member lives.
pub(crate) struct Holder {
    pub(crate) name: String,
    pub(crate) client: LocalClient,
    pub(crate) history: History,
    pub(crate) trace: Trace,
    pub(crate) random: fastrand::Rng,
}

impl Holder {
    /// Holds one lease after the other.
    pub(crate) async fn run(mut self) {
        loop {
            self.sleep(200..3_000).await;
            if self.history.is_over() {
                return;
            }
            if self.random.bool() {
                self.hold().await;
            } else {
                self.look_at_ended().await;
                self.list().await;
            }
        }
    }

    async fn sleep(&mut self, millis: std::ops::Range<u64>) {
        let millis = self.random.u64(millis);
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }

    /// Until when the lease certainly lives that was granted or renewed by a call from `asked` on.
    fn promised(asked: Duration, ttl: Duration) -> Duration {
        asked + ttl * LEFT_PERCENT / 100
    }

    async fn hold(&mut self) {
        let millis = self.random.u64(400..3_000);
        let ttl = Duration::from_millis(millis);
        let asked = self.history.lease_now();
        let Ok((id, _)) = self.client.lease_grant(0, ttl).await else {
            return;
        };
        let lease = Lease {
            id,
            key: [PREFIX, format!("{id:x}").as_bytes()].concat(),
            ttl,
        };
        self.trace.note(
            &self.name,
            format_args!("has {lease} for {millis} ms from {asked:?} on"),
        );
        if !self.put(&lease, Self::promised(asked, ttl)).await {
            return;
        }
        for _ in 0..self.random.u8(0..5) {
            self.sleep(0..millis * 7 / 10).await;
            let goes_on = match self.random.u8(0..3) {
                0 => self.ask(&lease).await,
                _ => self.renew(&lease).await,
            };
            if !goes_on {
                return;
            }
        }
        if self.random.u8(0..3) == 0 {
            self.revoke(&lease).await;
        }
    }

    /// Hangs its key on a lease. Gives whether it is there.
    async fn put(&self, lease: &Lease, promised: Duration) -> bool {
        let put = Txn::of(Op::Put(PutOp {
            key: lease.key.clone(),
            value: Value::from(self.name.as_str()),
            lease: lease.id,
            ..PutOp::default()
        }));
        match self.client.execute(Command::Txn(put)).await {
            Ok(applied) => match applied.reply.result {
                Ok(_) => {
                    self.history.is_promised(&lease.key, promised);
                    true
                }
                Err(Refusal::LeaseNotFound { .. }) => {
                    self.is_gone(lease, promised);
                    false
                }
                Err(_) => false,
            },
            Err(_) => false,
        }
    }

    /// Gives whether the lease goes on, as far as is known.
    async fn renew(&self, lease: &Lease) -> bool {
        let asked = self.history.lease_now();
        match self.client.lease_keep_alive(lease.id).await {
            Ok(Some(_)) => {
                let promised = Self::promised(asked, lease.ttl);
                self.history.is_promised(&lease.key, promised);
                self.trace.note(
                    &self.name,
                    format_args!("has renewed {lease} from {asked:?} on"),
                );
            }
            Ok(None) => {
                self.is_gone(lease, self.history.promised(&lease.key));
                return false;
            }
            Err(_) => {}
        }
        true
    }

    /// Asks for the time of a lease. Gives whether it goes on, as far as is known.
    async fn ask(&mut self, lease: &Lease) -> bool {
        let with_keys = self.random.bool();
        match self.client.lease_time_to_live(lease.id, with_keys).await {
            Ok(Some(status)) => {
                self.history.has_looked();
                let (left, keys) = (status.remaining, status.keys);
                self.trace.note(
                    &self.name,
                    format_args!("is told that {lease} has {left:?}"),
                );
                let is_promised = self.history.lease_now() < self.history.promised(&lease.key);
                if with_keys && is_promised && !keys.iter().any(|key| key[..] == lease.key[..]) {
                    self.fail(format_args!("{lease} was told to be without its key"));
                }
                true
            }
            Ok(None) => {
                self.is_gone(lease, self.history.promised(&lease.key));
                false
            }
            Err(_) => true,
        }
    }

    /// Revokes a lease, once or again until there is an answer.
    async fn revoke(&mut self, lease: &Lease) {
        let promised = self.history.promised(&lease.key);
        self.history
            .is_given_up(&lease.key, self.history.lease_now());
        self.trace.note(&self.name, format_args!("revokes {lease}"));
        for attempt in 0..3 {
            match self.client.lease_revoke(lease.id).await {
                Ok(_) => {
                    self.trace
                        .note(&self.name, format_args!("has revoked {lease}"));
                    self.history.has_ended(&lease.key);
                    return;
                }
                Err(Error::Refused(Refusal::LeaseNotFound { .. })) => {
                    // An attempt before this one may have been executed.
                    let promised = if attempt == 0 {
                        promised
                    } else {
                        Duration::ZERO
                    };
                    self.is_gone(lease, promised);
                    return;
                }
                Err(_) => self.sleep(10..500).await,
            }
        }
    }

    /// The lease is said to be gone, which must not be before the promised time.
    fn is_gone(&self, lease: &Lease, promised: Duration) {
        let now = self.history.lease_now();
        self.history.has_looked();
        self.history.has_ended(&lease.key);
        self.trace
            .note(&self.name, format_args!("is told that {lease} has ended"));
        if now < promised {
            self.fail(format_args!(
                "{lease} was told to have ended at {now:?}, and was promised until {promised:?}"
            ));
        }
    }

    /// Looks for a lease that has ended, of whatever holder.
    async fn look_at_ended(&mut self) {
        /// An earlier leader still has those that have just ended.
        const NEWEST: usize = 4;
        let ended = self.history.ended();
        let from = match self.random.bool() {
            true => ended.len().saturating_sub(NEWEST),
            false => 0,
        };
        let Some(key) = ended.get(self.random.usize(from..=ended.len())) else {
            return;
        };
        let lease = Lease::of_key(key);
        let (what, is_seen) = match self.random.u8(0..3) {
            0 => {
                let told = self.client.lease_time_to_live(lease.id, true).await;
                ("the time of", told.map(|status| status.is_some()))
            }
            1 => {
                let told = self.client.lease_keep_alive(lease.id).await;
                ("a renewal of", told.map(|ttl| ttl.is_some()))
            }
            _ => {
                let asked = RangeOp {
                    key: lease.key.clone(),
                    ..RangeOp::default()
                };
                let read = self.client.range(&asked, ReadLevel::Linearizable).await;
                (
                    "the key of",
                    read.map(|read| !read.value.entries.is_empty()),
                )
            }
        };
        let Ok(is_seen) = is_seen else {
            return;
        };
        self.history.has_looked();
        if is_seen {
            self.fail(format_args!(
                "{} was told {what} {lease}, which had ended before it asked",
                self.name
            ));
        }
    }

    /// Lists the leases, as the server does: those that live are there, and those that have ended are not.
    async fn list(&self) {
        let (living, ended) = (
            self.history.living(self.history.lease_now()),
            self.history.ended(),
        );
        let fresh = self.client.read_barrier(ReadLevel::Linearizable).await;
        if fresh.is_err() {
            return;
        }
        let listed = self.client.db().leases();
        let listed: BTreeSet<i64> = listed.iter().map(|lease| lease.id.get()).collect();
        self.history.has_looked();
        let now = self.history.lease_now();
        let is_listed = |lease: &Lease| listed.contains(&lease.id);
        let still = living.iter().filter(|key| self.history.promised(key) > now);
        if let Some(lease) = still
            .map(|key| Lease::of_key(key))
            .find(|it| !is_listed(it))
        {
            self.fail(format_args!("{} has no {lease} in its list", self.name));
        }
        if let Some(lease) = ended.iter().map(|key| Lease::of_key(key)).find(is_listed) {
            self.fail(format_args!(
                "{} has {lease} in its list, which had ended before it asked",
                self.name
            ));
        }
    }

    fn fail(&self, reason: fmt::Arguments<'_>) {
        self.trace.note(&self.name, reason);
        self.history.fail(reason.to_string());
    }
}

/// A lease with a key.
struct Lease {
    id: i64,
    key: Vec<u8>,
    ttl: Duration,
}

impl Lease {
    /// The lease of a key, as another holder knows it.
    fn of_key(key: &[u8]) -> Lease {
        let id = std::str::from_utf8(&key[PREFIX.len()..]).ok();
        let id = id.and_then(|id| i64::from_str_radix(id, 16).ok());
        Lease {
            id: id.expect("the key of a lease has its id"),
            key: key.to_vec(),
            ttl: Duration::ZERO,
        }
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.key.escape_ascii())
    }
}
