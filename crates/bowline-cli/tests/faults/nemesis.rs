//! What is done to the members, at random.

use std::fmt;
use std::time::Duration;

use tokio::time::sleep;

use crate::cluster::{Cluster, MEMBERS};
use crate::links::Link;

/// One thing that is done, for a while, and then mended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// SIGKILL; it is started again.
    Kill(usize),
    /// SIGKILL for all at once.
    KillAll,
    /// SIGSTOP, then SIGCONT.
    Stop(usize),
    /// SIGSTOP for two: no majority.
    StopAllBut(usize),
    /// Nothing goes from it or to it.
    Isolate(usize, Link),
    /// What one dials to another does not get there; the other way, it does.
    OneWay(usize, usize, Link),
    /// One hears nobody, and is heard.
    Deaf(usize, Link),
}

/// A fault, where it may be aimed at the leader, and how long it lasts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) pause: Duration,
    pub(crate) fault: Fault,
    pub(crate) lasts: Duration,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} for {:?}", self.fault, self.lasts)
    }
}

impl Step {
    pub(crate) fn random(random: &mut fastrand::Rng, leader: Option<usize>) -> Step {
        // Half of them are for the leader, who has the most to lose.
        let any = random.usize(0..MEMBERS);
        let at = leader.filter(|_| random.bool()).unwrap_or(any);
        let other = (at + random.usize(1..MEMBERS)) % MEMBERS;
        let link = [Link::Held, Link::Cut][random.usize(0..2)];
        let fault = match random.u8(0..20) {
            0..5 => Fault::Kill(at),
            5..7 => Fault::KillAll,
            7..11 => Fault::Stop(at),
            11 => Fault::StopAllBut(at),
            12..16 => Fault::Isolate(at, link),
            16..18 => Fault::OneWay(at, other, link),
            _ => Fault::Deaf(at, link),
        };
        let lasts_ms = match fault {
            Fault::Kill(_) | Fault::KillAll => random.u64(0..600),
            Fault::Stop(_) => random.u64(300..3000),
            _ => random.u64(300..1800),
        };
        Step {
            pause: Duration::from_millis(random.u64(100..600)),
            fault,
            lasts: Duration::from_millis(lasts_ms),
        }
    }

    /// Does it, waits, and mends it.
    pub(crate) async fn carry_out(&self, cluster: &mut Cluster) {
        let others = |at: usize| (0..MEMBERS).filter(move |&other| other != at);
        match self.fault {
            Fault::Kill(at) => cluster.kill(at),
            Fault::KillAll => (0..MEMBERS).for_each(|at| cluster.kill(at)),
            Fault::Stop(at) => cluster.stop(at),
            Fault::StopAllBut(at) => others(at).for_each(|other| cluster.stop(other)),
            Fault::Isolate(at, link) => cluster.links.set_around(at, link),
            Fault::OneWay(from, to, link) => cluster.links.set(from, to, link),
            Fault::Deaf(at, link) => others(at).for_each(|from| cluster.links.set(from, at, link)),
        }
        sleep(self.lasts).await;
        cluster.heal();
    }
}
