//! Lease holders that run through all rounds of faults.
//!
//! A holder knows from a reply for how long its lease is certain to live, counted from before its request; until then its
//! key must exist. It is checked at each member, in that member's own state: a key that existed and is gone shows that its
//! lease has ended, however old that state is. Renewals go through every member in turn, each by a client with that
//! endpoint alone: a reply of any member that the lease does not exist, before its time, is a failure.
//!
//! Some leases are kept alive by the client's own task through all rounds; their times to live are longer than any fault,
//! so they are never lost.
//!
//! Leases that nobody renews end, all of them, soon after the faults are healed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bowline_client::{Client, Error, KeyRange, ReadLevel};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::cluster::{Cluster, MEMBERS};
use crate::load::TIMEOUT;

const HOLDERS: usize = 6;
/// Of those leases that live through all rounds; longer than any fault lasts.
const LONG_TTL: Duration = Duration::from_secs(30);
/// Long enough for a record of what is left to be wrong by more than an election takes.
const TTL: Duration = Duration::from_secs(4);
/// How long after the end of all faults leases may live that nobody keeps alive: their time to live,
/// once more if a leader has just changed, the time that an election takes, and a margin for a small
/// machine.
const ENDED_WITHIN: Duration = Duration::from_secs(12);

/// A lease that holds a key.
struct Held {
    key: String,
    /// Of the key.
    revision: u64,
    /// What was promised.
    until: Mutex<Instant>,
    is_gone: AtomicBool,
}

impl Held {
    fn until(&self) -> Instant {
        *self.until.lock().expect("no panic inside")
    }

    fn promise(&self, until: Instant) {
        let mut known = self.until.lock().expect("no panic inside");
        *known = until.max(*known);
    }

    /// It has ended, at the latest now.
    fn ended(&self, who: &str) {
        let now = Instant::now();
        let early = self.until().saturating_duration_since(now);
        let key = &self.key;
        assert!(
            early.is_zero(),
            "{who}: {key} is gone {early:?} before its time"
        );
        self.is_gone.store(true, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    held: Mutex<Vec<Arc<Held>>>,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn there(&self) -> Vec<Arc<Held>> {
        let mut held = self.held.lock().expect("no panic inside");
        held.retain(|held| !held.is_gone.load(Ordering::Relaxed));
        held.clone()
    }
}

/// Those who hold leases, and those who look.
pub(crate) struct Holders {
    shared: Arc<Shared>,
    holders: Vec<JoinHandle<(u64, u64)>>,
    lookers: Vec<JoinHandle<()>>,
    keepers: Vec<JoinHandle<()>>,
}

impl Holders {
    pub(crate) fn start(cluster: &Cluster, random: &mut fastrand::Rng) -> Holders {
        let shared = Arc::<Shared>::default();
        let holder = |at: usize| {
            let client = cluster.client(at % MEMBERS, MEMBERS, TIMEOUT);
            let each = (0..MEMBERS).map(|at| cluster.client(at, 1, TIMEOUT));
            let random = random.fork();
            tokio::spawn(hold(at, client, each.collect(), shared.clone(), random))
        };
        let holders = (0..HOLDERS).map(holder).collect();
        let looker = |at: usize| {
            let client = cluster.client(at, 1, Duration::from_millis(300));
            tokio::spawn(look(at, client, shared.clone()))
        };
        let lookers = (0..MEMBERS).map(looker).collect();
        let keeper = |at: usize| {
            let client = cluster.client(at, MEMBERS, Duration::from_secs(2));
            tokio::spawn(keep(at, client, shared.clone()))
        };
        let keepers = (0..MEMBERS).map(keeper).collect();
        Holders {
            shared,
            holders,
            lookers,
            keepers,
        }
    }

    /// Everything is healed. Nobody keeps a lease alive any more, and all of them end.
    pub(crate) async fn judge(self, cluster: &Cluster) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let (mut leases, mut renewals) = (0, 0);
        for holder in self.holders {
            let (more, more_renewals) = holder.await.expect("a holder does not panic");
            leases += more;
            renewals += more_renewals;
        }
        for keeper in self.keepers {
            keeper.await.expect("a keeper does not panic");
        }
        let began = Instant::now();
        let client = cluster.only(0);
        loop {
            let left = client
                .range(KeyRange::prefix("held/"))
                .await
                .expect("healed");
            let leases = client.leases().await.expect("healed");
            // The keys first: a lease is listed no longer than its keys are there.
            if left.entries.is_empty() && leases.is_empty() {
                break;
            }
            assert!(
                began.elapsed() < ENDED_WITHIN,
                "nobody keeps {leases:?} alive, and they have not ended: {left:?}"
            );
            sleep(Duration::from_millis(50)).await;
        }
        for looker in self.lookers {
            looker.await.expect("who looks does not panic");
        }
        println!(
            "{leases} leases were renewed {renewals} times; all ended {:.1?} after their holders had",
            began.elapsed()
        );
        assert!(renewals > 0, "no renewal was answered: nothing was tested");
    }
}

/// Holds one lease after the other. Gives how many there were, and how many renewals were answered.
async fn hold(
    at: usize,
    client: Client,
    each: Vec<Client>,
    shared: Arc<Shared>,
    mut random: fastrand::Rng,
) -> (u64, u64) {
    let (mut leases, mut renewals) = (0, 0);
    while !shared.is_over() {
        let asked = Instant::now();
        let Ok(lease) = client.grant_lease(TTL).await else {
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let until = asked + lease.ttl;
        leases += 1;
        let key = format!("held/{at}/{leases}");
        let put = client.put(key.clone(), "v").lease(lease.id).await;
        let revision = match put {
            Ok(reply) => reply.header.revision,
            Err(Error::LeaseNotFound) => {
                let early = until.saturating_duration_since(Instant::now());
                assert!(
                    early.is_zero(),
                    "{key} was refused {early:?} before its time"
                );
                continue;
            }
            // It may come yet, and then ends by itself.
            Err(_) => continue,
        };
        let held = Arc::new(Held {
            key,
            revision: revision.get(),
            until: Mutex::new(until),
            is_gone: AtomicBool::new(false),
        });
        shared
            .held
            .lock()
            .expect("no panic inside")
            .push(held.clone());
        for _ in 0..random.u32(1..9) {
            let pause_ms = random.u64(50..3600);
            sleep(Duration::from_millis(pause_ms)).await;
            if shared.is_over() {
                break;
            }
            let asked = Instant::now();
            let through = random.usize(0..each.len());
            match each[through].keep_alive_once(lease.id).await {
                Ok(ttl) => {
                    held.promise(asked + ttl);
                    renewals += 1;
                }
                Err(Error::LeaseNotFound) => {
                    held.ended(&format!("a renewal through m{through}"));
                    break;
                }
                Err(_) => {}
            }
        }
    }
    (leases, renewals)
}

/// Keeps one lease alive by the client's own task until it is over.
async fn keep(at: usize, client: Client, shared: Arc<Shared>) {
    let lease = client.grant_lease(LONG_TTL).await.expect("all is well");
    let alive = client.keep_alive(lease.id).await.expect("all is well");
    while !shared.is_over() {
        tokio::select! {
            error = alive.lost() => panic!("the lease that client {at} kept alive was lost: {error}"),
            () = sleep(Duration::from_millis(50)) => {}
        }
    }
    alive.revoke().await.expect("healed");
}

/// Looks for the keys at one member, until it is over and all of them are gone.
async fn look(at: usize, client: Client, shared: Arc<Shared>) {
    let who = format!("m{at}");
    loop {
        if crate::is_quiet() {
            sleep(Duration::from_millis(50)).await;
            continue;
        }
        let there = shared.there();
        if there.is_empty() && shared.is_over() {
            return;
        }
        for held in there {
            let get = client.get(held.key.clone()).level(ReadLevel::Eventual);
            let Ok(reply) = get.await else {
                break;
            };
            // One that is behind has not seen it come.
            if reply.entry().is_none() && reply.header.revision >= held.revision {
                held.ended(&who);
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Planted: "unknown" for a lease whose time has not passed is refused, for one whose time has passed it is not; a
    /// renewal that promised less takes nothing back.
    #[test]
    fn a_lease_that_ends_before_its_time_is_refused() {
        let now = Instant::now();
        let held = Held {
            key: "held/0/1".to_owned(),
            revision: 2,
            until: Mutex::new(now + TTL),
            is_gone: AtomicBool::new(false),
        };
        held.promise(now + TTL / 2);
        let early = catch_unwind(AssertUnwindSafe(|| held.ended("a renewal through m1")));
        let why = *early
            .expect_err("it is refused")
            .downcast::<String>()
            .expect("text");
        assert!(
            why.contains("m1: held/0/1 is gone") && why.contains("before its time"),
            "{why}"
        );
        assert!(!held.is_gone.load(Ordering::Relaxed));
        *held.until.lock().unwrap() = now;
        held.ended("a renewal through m1");
        assert!(held.is_gone.load(Ordering::Relaxed));
    }
}
