//! Holders of leases: they grant one, hang a key on it, renew it for a while, and let it end.
//!
//! A key of a lease is there for the whole time that its holder was promised, and is gone some time after.

use std::time::Duration;

use bowline::Value;
use bowline_cluster::LocalClient;
use bowline_replica::{Command, Op, PutOp, Refusal, Txn};

use crate::clients::History;
use crate::trace::Trace;

/// What the keys of leases begin with.
pub(crate) const PREFIX: &[u8] = b"l/";
/// What is left of a time by the clock that runs fastest, in hundredths.
const LEFT_PERCENT: u32 = 94;

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
            self.hold().await;
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
        let asked = self.trace.now();
        let Ok((id, _)) = self.client.lease_grant(0, ttl).await else {
            return;
        };
        let key = [PREFIX, format!("{id:x}").as_bytes()].concat();
        let name = key.escape_ascii().to_string();
        let promised = Self::promised(asked, ttl);
        self.trace.note(
            &self.name,
            format_args!("has {name} for {millis} ms from {asked:?} on"),
        );
        let put = Txn::of(Op::Put(PutOp {
            key: key.clone(),
            value: Value::from(self.name.as_str()),
            lease: id,
            ..PutOp::default()
        }));
        match self.client.execute(Command::Txn(put)).await {
            Ok(applied) => match applied.reply.result {
                Ok(_) => self.history.is_promised(&key, promised),
                Err(Refusal::LeaseNotFound { .. }) => {
                    self.is_gone(&name, promised);
                    return;
                }
                Err(_) => return,
            },
            Err(_) => return,
        }
        for _ in 0..self.random.u8(0..5) {
            self.sleep(0..millis * 7 / 10).await;
            let asked = self.trace.now();
            match self.client.lease_keep_alive(id).await {
                Ok(Some(_)) => {
                    let promised = Self::promised(asked, ttl);
                    self.history.is_promised(&key, promised);
                    self.trace.note(
                        &self.name,
                        format_args!("has renewed {name} from {asked:?} on"),
                    );
                }
                Ok(None) => {
                    let promised = self.history.promised(&key);
                    self.is_gone(&name, promised);
                    return;
                }
                Err(_) => {}
            }
        }
    }

    /// The lease is said to be gone, which must not be before the promised time.
    fn is_gone(&self, key: &str, promised: Duration) {
        let now = self.trace.now();
        self.trace
            .note(&self.name, format_args!("is told that {key} has ended"));
        if now < promised {
            let reason = format!(
                "{key} was told to have ended at {now:?}, and was promised until {promised:?}"
            );
            self.history.fail(reason);
        }
    }
}
