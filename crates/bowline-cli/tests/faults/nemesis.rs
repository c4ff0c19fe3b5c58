//! Random faults against the members, which may overlap.
//!
//! A [`Plan`] follows from its seed alone: bursts of overlapping faults, and a pause after each burst in which the cluster
//! may elect a leader. The combined effect of the active faults is a [`State`], and only the state is applied: a member
//! runs when no active fault stops it, so the order in which faults end does not matter.
//!
//! The target of a fault is a certain member, or the leader at its beginning; so the same seed gives the same faults, but
//! not the same timing.

use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::cluster::{ALL, Cluster, MEMBERS, SEATS};
use crate::disks::Ills;
use crate::links::{Flow, Link};
use crate::namespaces::Packets;

/// Whom a fault meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    Leader,
    Member(usize),
}

/// One thing that is done, for a while, and then mended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// SIGKILL; it is started again.
    Kill(Who),
    /// SIGKILL for all at once.
    KillAll,
    /// SIGSTOP, then SIGCONT.
    Stop(Who),
    /// SIGSTOP for two: no majority.
    StopAllBut(Who),
    /// Nothing goes from it or to it.
    Isolate(Who, Link),
    /// What one dials to the next but so many does not get there; the other way, it does.
    OneWay(Who, usize, Link),
    /// What it sends arrives nowhere, and it hears everything.
    Mute(Who),
    /// It hears nobody, and is heard.
    Deaf(Who),
    /// All that it sends and gets comes so many milliseconds later.
    Slow(Who, u64),
    /// The two that are not it do not reach each other: it alone reaches both.
    Bridge(Who),
    /// The lead is handed to a member.
    MoveLead(usize),
    /// No room is left on the small disk, which is the last member's.
    FullDisk,
    /// Its flushes fail.
    FailingDisk(Who),
    /// Its tables cannot be read.
    UnreadableTables(Who),
    /// Its disk takes a part of the bytes of a write.
    ShortWrites(Who),
    /// Its disk takes no write.
    FailingWrites(Who),
    /// The file with its vote can be neither read nor written.
    FailingVote(Who),
    /// Its flushes take so many milliseconds more.
    SlowFlushes(Who, u64),
    /// So many percent of the packets that it sends and gets are lost. This and the next two need `netem`.
    LostPackets(Who, u8),
    /// So many arrive twice.
    DoubledPackets(Who, u8),
    /// So many overtake others.
    ReorderedPackets(Who, u8),
}

/// A fault in a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    /// When it begins, from the beginning of the plan.
    pub(crate) begins: Duration,
    pub(crate) lasts: Duration,
    pub(crate) fault: Fault,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.begins, self.begins + self.lasts);
        write!(f, "{:?} from {from:.1?} to {to:.1?}", self.fault)
    }
}

/// What all faults that last make of the members and of the ways between them. The default is: all is well.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct State {
    pub(crate) dead: [bool; MEMBERS],
    pub(crate) stopped: [bool; MEMBERS],
    /// `[from][to]`: connections that the first opens.
    pub(crate) links: [[Link; SEATS]; SEATS],
    /// `[from][to]`: bytes that the first sends.
    pub(crate) flows: [[Flow; SEATS]; SEATS],
    pub(crate) is_full: bool,
    pub(crate) ills: [Ills; MEMBERS],
    /// Those that a member sends and gets.
    pub(crate) packets: [Packets; MEMBERS],
}

impl State {
    fn link(&mut self, from: usize, to: usize, link: Link) {
        let at = &mut self.links[from][to];
        *at = link.max(*at);
    }

    fn flow(&mut self, from: usize, to: usize, flow: Flow) {
        let at = &mut self.flows[from][to];
        *at = flow.max(*at);
    }

    /// One more fault, which meets the member `at`.
    pub(crate) fn add(&mut self, fault: Fault, at: usize) {
        let others = (0..SEATS).filter(move |&other| other != at);
        match fault {
            Fault::Kill(_) => self.dead[at] = true,
            Fault::KillAll => self.dead = [true; MEMBERS],
            Fault::Stop(_) => self.stopped[at] = true,
            Fault::StopAllBut(_) => {
                let others = others.filter(|&other| other < MEMBERS);
                others.for_each(|other| self.stopped[other] = true);
            }
            Fault::Isolate(_, link) => others.for_each(|other| {
                self.link(at, other, link);
                self.link(other, at, link);
            }),
            Fault::OneWay(_, next, link) => self.link(at, (at + next) % MEMBERS, link),
            Fault::Mute(_) => others.for_each(|other| self.flow(at, other, Flow::Held)),
            Fault::Deaf(_) => others.for_each(|other| self.flow(other, at, Flow::Held)),
            Fault::Slow(_, delay_ms) => others.for_each(|other| {
                self.flow(at, other, Flow::Slow(delay_ms));
                self.flow(other, at, Flow::Slow(delay_ms));
            }),
            Fault::Bridge(_) => {
                let (one, other) = ((at + 1) % MEMBERS, (at + 2) % MEMBERS);
                self.link(one, other, Link::Cut);
                self.link(other, one, Link::Cut);
            }
            Fault::FullDisk => self.is_full = true,
            Fault::FailingDisk(_) => self.ills[at].flushes_fail = true,
            Fault::UnreadableTables(_) => self.ills[at].tables_unreadable = true,
            Fault::ShortWrites(_) => self.ills[at].writes_short = true,
            Fault::FailingWrites(_) => self.ills[at].writes_fail = true,
            Fault::FailingVote(_) => self.ills[at].vote_fails = true,
            Fault::LostPackets(_, percent) => {
                let most = &mut self.packets[at].lost;
                *most = percent.max(*most);
            }
            Fault::DoubledPackets(_, percent) => {
                let most = &mut self.packets[at].doubled;
                *most = percent.max(*most);
            }
            Fault::ReorderedPackets(_, percent) => {
                let most = &mut self.packets[at].reordered;
                *most = percent.max(*most);
            }
            Fault::SlowFlushes(_, delay_ms) => {
                let longest = &mut self.ills[at].flush_delay_ms;
                *longest = delay_ms.max(*longest);
            }
            Fault::MoveLead(_) => {}
        }
    }
}

impl Fault {
    pub(crate) fn who(self) -> Option<Who> {
        match self {
            Fault::KillAll | Fault::MoveLead(_) | Fault::FullDisk => None,
            Fault::Kill(who)
            | Fault::Stop(who)
            | Fault::StopAllBut(who)
            | Fault::Isolate(who, _)
            | Fault::OneWay(who, ..)
            | Fault::Mute(who)
            | Fault::Deaf(who)
            | Fault::Slow(who, _)
            | Fault::Bridge(who)
            | Fault::FailingDisk(who)
            | Fault::UnreadableTables(who)
            | Fault::ShortWrites(who)
            | Fault::FailingWrites(who)
            | Fault::FailingVote(who)
            | Fault::SlowFlushes(who, _)
            | Fault::LostPackets(who, _)
            | Fault::DoubledPackets(who, _)
            | Fault::ReorderedPackets(who, _) => Some(who),
        }
    }

    /// Any fault, and those of packets if these can be hurt.
    fn random(random: &mut fastrand::Rng, has_netem: bool) -> Fault {
        // Half of them are for the leader, who has the most to lose.
        let who = match random.bool() {
            true => Who::Leader,
            false => Who::Member(random.usize(0..MEMBERS)),
        };
        let link = [Link::Held, Link::Cut][random.usize(0..2)];
        let kinds = if has_netem { 43 } else { 37 };
        match random.u8(0..kinds) {
            0..4 => Fault::Kill(who),
            4..6 => Fault::KillAll,
            6..9 => Fault::Stop(who),
            9 => Fault::StopAllBut(who),
            10..13 => Fault::Isolate(who, link),
            13..15 => Fault::OneWay(who, random.usize(1..MEMBERS), link),
            15..17 => Fault::Mute(who),
            17..19 => Fault::Deaf(who),
            19..21 => Fault::Slow(who, random.u64(5..120)),
            21 => Fault::Bridge(who),
            22..26 => Fault::MoveLead(random.usize(0..MEMBERS)),
            26..28 => Fault::FullDisk,
            28..30 => Fault::FailingDisk(who),
            30..32 => Fault::UnreadableTables(who),
            32 => Fault::ShortWrites(who),
            33 => Fault::FailingWrites(who),
            34 => Fault::FailingVote(who),
            35..37 => Fault::SlowFlushes(who, random.u64(20..200)),
            37..39 => Fault::LostPackets(who, random.u8(1..30)),
            39..41 => Fault::DoubledPackets(who, random.u8(1..50)),
            _ => Fault::ReorderedPackets(who, random.u8(1..50)),
        }
    }

    /// Of each kind that must be in every plan, one, in the plan's first two bursts. The failing disk comes when nothing
    /// else lasts, so that its member is up.
    fn of_every_plan(random: &mut fastrand::Rng, has_netem: bool) -> [Vec<Fault>; 2] {
        let mut faults = vec![
            Fault::KillAll,
            Fault::MoveLead(random.usize(0..MEMBERS)),
            Fault::Stop(Who::Leader),
            Fault::Isolate(Who::Member(random.usize(0..MEMBERS)), Link::Cut),
            Fault::Slow(Who::Member(random.usize(0..MEMBERS)), random.u64(20..120)),
            // Among kills and elections, which read and write it.
            Fault::FailingVote(Who::Member(random.usize(0..MEMBERS))),
        ];
        if has_netem {
            faults.extend([
                Fault::LostPackets(Who::Leader, random.u8(5..30)),
                Fault::DoubledPackets(Who::Leader, random.u8(5..50)),
                Fault::ReorderedPackets(Who::Leader, random.u8(5..50)),
            ]);
        }
        random.shuffle(&mut faults);
        let mut member = || Who::Member(random.usize(0..MEMBERS));
        let (failing, unreadable, short, unwritable) = (member(), member(), member(), member());
        let mut of_disks = vec![
            Fault::FullDisk,
            Fault::UnreadableTables(unreadable),
            Fault::ShortWrites(short),
            Fault::FailingWrites(unwritable),
            Fault::SlowFlushes(Who::Leader, random.u64(20..200)),
        ];
        random.shuffle(&mut of_disks);
        of_disks.insert(0, Fault::FailingDisk(failing));
        [faults, of_disks]
    }

    fn lasts(self, random: &mut fastrand::Rng) -> Duration {
        let lasts_ms = match self {
            Fault::Kill(_) | Fault::KillAll => random.u64(1..1200),
            Fault::MoveLead(_) => 1,
            Fault::FailingDisk(_) | Fault::FailingWrites(_) => random.u64(200..1000),
            _ => random.u64(300..2500),
        };
        Duration::from_millis(lasts_ms)
    }
}

/// What is done in a round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Plan(pub(crate) Vec<Step>);

impl Plan {
    /// Bursts of faults that begin within `lasts`; the first has all members killed, the lead moved, a pause, a cut and a
    /// slow way, one upon another, and the second all that may happen to disks.
    pub(crate) fn random(random: &mut fastrand::Rng, lasts: Duration, has_netem: bool) -> Plan {
        let mut steps = Vec::new();
        let mut at = Duration::from_millis(random.u64(200..600));
        let [mut burst, of_disks] = Fault::of_every_plan(random, has_netem);
        let mut of_disks = Some(of_disks);
        while at < lasts {
            let mut end = at;
            for fault in burst {
                let lasts = fault.lasts(random);
                end = end.max(at + lasts);
                steps.push(Step {
                    begins: at,
                    lasts,
                    fault,
                });
                at += Duration::from_millis(random.u64(0..700));
            }
            // Long enough, most times, for a leader to be elected and to be asked.
            at = end.max(at) + Duration::from_millis(random.u64(800..2500));
            burst = of_disks.take().unwrap_or_else(|| {
                let more = random.usize(2..6);
                (0..more)
                    .map(|_| Fault::random(random, has_netem))
                    .collect()
            });
        }
        Plan(steps)
    }

    /// Does all of it, so far as the machine allows.
    pub(crate) async fn carry_out(&self, cluster: &mut Cluster) -> Done {
        let began = Instant::now();
        let mut events: Vec<(Duration, bool, usize)> = Vec::new();
        for (at, step) in self.0.iter().enumerate() {
            events.push((step.begins, true, at));
            events.push((step.begins + step.lasts, false, at));
        }
        // No fault ends when it begins, so that its end comes after its beginning.
        events.sort();
        let mut met: Vec<Option<usize>> = vec![None; self.0.len()];
        let mut done = Done {
            disks_failed: cluster.all_disks_can_fail().then_some(0),
            disks_filled: cluster.disk.path().map(|_| 0),
            slowed: (cluster.network.can(Fault::Slow(Who::Leader, 1))).then_some(0),
            ..Done::default()
        };
        for (when, begins, number) in events {
            sleep_until(began + when).await;
            let fault = self.0[number].fault;
            if begins {
                let at = match fault.who() {
                    Some(Who::Member(at)) => at,
                    Some(Who::Leader) => cluster.leader(&ALL).await.unwrap_or(0),
                    None => MEMBERS - 1,
                };
                met[number] = Some(at);
                let step = self.0[number];
                done.told.push(match cluster.network.can(fault) {
                    true => format!("{step} met m{at}"),
                    false => format!("{step} is not possible on this network"),
                });
                match fault {
                    Fault::MoveLead(to) => move_lead(cluster, to),
                    Fault::FailingDisk(_) => {
                        if let (Some(count), Some(_)) =
                            (&mut done.disks_failed, cluster.process(at))
                        {
                            *count += 1;
                        }
                    }
                    Fault::Slow(..) => {
                        if let Some(count) = &mut done.slowed {
                            *count += 1;
                        }
                    }
                    Fault::FullDisk => {
                        if let Some(count) = &mut done.disks_filled {
                            *count += 1;
                        }
                    }
                    _ => {}
                }
            } else {
                met[number] = None;
            }
            let mut state = State::default();
            for (step, at) in self.0.iter().zip(&met) {
                if let Some(at) = at {
                    state.add(step.fault, *at);
                }
            }
            cluster.apply(&state);
        }
        cluster.heal();
        done
    }
}

/// What was done of a plan.
#[derive(Clone, Default, Debug)]
pub(crate) struct Done {
    /// What was done to whom.
    pub(crate) told: Vec<String>,
    /// How often the disk of a member that was up began to fail; `None` where the disk of a member cannot.
    pub(crate) disks_failed: Option<usize>,
    /// How often the small disk was filled; `None` where there is none.
    pub(crate) disks_filled: Option<usize>,
    /// How often paths became slow; `None` where the network cannot do that.
    pub(crate) slowed: Option<usize>,
}

/// Asks whoever leads to hand over. It may be refused, or never answered.
fn move_lead(cluster: &Cluster, to: usize) {
    let clients: Vec<_> = (0..MEMBERS)
        .map(|at| cluster.client(at, 1, Duration::from_secs(1)))
        .collect();
    tokio::spawn(async move {
        let Ok(status) = clients[to].status().await else {
            return;
        };
        for client in &clients {
            let _ = client.move_leader(status.header.member_id).await;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One fault ends while another holds the same member down: it stays down.
    #[test]
    fn what_several_faults_do_is_done_until_the_last_of_them_ends() {
        let one = Who::Member(1);
        let mut both = State::default();
        both.add(Fault::Isolate(one, Link::Cut), 1);
        both.add(Fault::OneWay(one, 1, Link::Held), 1);
        both.add(Fault::KillAll, 2);
        let mut left = State::default();
        left.add(Fault::Isolate(one, Link::Cut), 1);
        assert_eq!(both.links, left.links, "the stronger of two counts");
        assert_eq!((both.dead, left.dead), ([true; MEMBERS], [false; MEMBERS]));
        assert_eq!(left.links[1][2], Link::Cut);
        assert_eq!(left.links[2][0], Link::Open);
        let mut flows = State::default();
        flows.add(Fault::Slow(one, 7), 1);
        flows.add(Fault::Mute(one), 1);
        flows.add(Fault::SlowFlushes(one, 30), 1);
        flows.add(Fault::SlowFlushes(one, 20), 1);
        assert_eq!(flows.ills[1].flush_delay_ms, 30);
        flows.add(Fault::LostPackets(one, 9), 1);
        flows.add(Fault::LostPackets(one, 5), 1);
        flows.add(Fault::DoubledPackets(one, 3), 1);
        flows.add(Fault::ReorderedPackets(one, 4), 1);
        let packets = Packets {
            lost: 9,
            doubled: 3,
            reordered: 4,
        };
        assert_eq!(flows.packets[1], packets);
        assert_eq!(flows.packets[0], Packets::default());
        assert_eq!(flows.flows[1][0], Flow::Held);
        assert_eq!(flows.flows[0][1], Flow::Slow(7));
    }

    #[test]
    fn a_seed_gives_one_plan_in_which_faults_overlap() {
        const LASTS: Duration = Duration::from_secs(20);
        let random =
            |seed, has_netem| Plan::random(&mut fastrand::Rng::with_seed(seed), LASTS, has_netem);
        let plan = |seed| random(seed, false);
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7), plan(8));
        for seed in 0..50 {
            let Plan(steps) = plan(seed);
            assert!(steps.iter().all(|step| !step.lasts.is_zero()));
            let has = |is_it: fn(&Fault) -> bool| steps.iter().any(|step| is_it(&step.fault));
            assert!(has(|fault| matches!(fault, Fault::KillAll)));
            assert!(has(|fault| matches!(fault, Fault::MoveLead(_))));
            assert!(has(|fault| matches!(fault, Fault::Stop(Who::Leader))));
            assert!(has(|fault| matches!(fault, Fault::Isolate(_, Link::Cut))));
            assert!(has(|fault| matches!(fault, Fault::Slow(..))));
            assert!(has(|fault| matches!(fault, Fault::FullDisk)));
            assert!(has(|fault| matches!(fault, Fault::UnreadableTables(_))));
            assert!(has(|fault| matches!(fault, Fault::ShortWrites(_))));
            assert!(has(|fault| matches!(fault, Fault::FailingWrites(_))));
            assert!(has(|fault| matches!(fault, Fault::FailingVote(_))));
            let of_packets = |Plan(steps): &Plan| {
                let is_one = |fault| {
                    matches!(
                        fault,
                        Fault::LostPackets(..)
                            | Fault::DoubledPackets(..)
                            | Fault::ReorderedPackets(..)
                    )
                };
                steps.iter().filter(|step| is_one(step.fault)).count()
            };
            assert_eq!(of_packets(&Plan(steps.clone())), 0);
            assert!(of_packets(&random(seed, true)) >= 3, "seed {seed}");
            assert!(has(|fault| matches!(fault, Fault::SlowFlushes(..))));
            let is_failing = |step: &Step| matches!(step.fault, Fault::FailingDisk(_));
            let failing = steps.iter().position(is_failing);
            let (before, rest) = steps.split_at(failing.expect("a failing disk"));
            let ended = |step: &Step| step.begins + step.lasts <= rest[0].begins;
            assert!(before.iter().all(ended), "seed {seed}: {steps:?}");
            let overlap = steps.windows(2).filter(|pair| {
                let last = pair[0].begins + pair[0].lasts;
                pair[1].begins < last && pair[1].fault != pair[0].fault
            });
            assert!(overlap.count() >= 3, "seed {seed}: {steps:?}");
        }
    }
}
