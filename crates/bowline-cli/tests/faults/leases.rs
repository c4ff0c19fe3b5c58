//! Holders of leases, for as long as something is done to the members.
//!
//! A holder is told by an answer that its lease lives for so long; counted from before it asked, its
//! key must be there. Who looks is beside it, at each member, at what that member has: once a key was
//! there and is gone, its lease has ended, however old the answer is.
//!
//! Leases that nobody keeps alive end, all of them, soon after everything is healed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bowline_client::{Client, Error, KeyRange, ReadLevel};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::cluster::{Cluster, MEMBERS};
use crate::load::PATIENCE;

const HOLDERS: usize = 6;
/// Long enough for a record of what is left to be wrong by more than an election takes.
const TTL: Duration = Duration::from_secs(4);
/// How long after the end of all faults leases may live that nobody keeps alive: their time to live,
/// once more if a leader has just changed, the time that an election takes, and patience with a small
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
}

impl Holders {
    pub(crate) fn start(cluster: &Cluster, random: &mut fastrand::Rng) -> Holders {
        let shared = Arc::<Shared>::default();
        let holder = |at: usize| {
            let client = cluster.client(at % MEMBERS, MEMBERS, PATIENCE);
            let random = random.fork();
            tokio::spawn(hold(at, client, shared.clone(), random))
        };
        let holders = (0..HOLDERS).map(holder).collect();
        let looker = |at: usize| {
            let client = cluster.client(at, 1, Duration::from_millis(300));
            tokio::spawn(look(at, client, shared.clone()))
        };
        let lookers = (0..MEMBERS).map(looker).collect();
        Holders {
            shared,
            holders,
            lookers,
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
            revision,
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
            match client.keep_alive_once(lease.id).await {
                Ok(ttl) => {
                    held.promise(asked + ttl);
                    renewals += 1;
                }
                Err(Error::LeaseNotFound) => {
                    held.ended("a renewal");
                    break;
                }
                Err(_) => {}
            }
        }
    }
    (leases, renewals)
}

/// Looks for the keys at one member, until it is over and all of them are gone.
async fn look(at: usize, client: Client, shared: Arc<Shared>) {
    let who = format!("m{at}");
    loop {
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
