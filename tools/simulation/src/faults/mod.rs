//! What happens to the members, drawn from a seed.

mod plans;

use std::fmt;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::member::{End, Role, RotOf};
use crate::trace::name;
use crate::wire::{Path, Wire};
pub(crate) use plans::{plan, plan_of_leaps, plan_of_members, plan_of_rot, plan_of_users};

/// In place of a member: the one that leads when the fault begins.
const LEADER: usize = usize::MAX;
/// In place of a member: a learner that stays one.
const LEARNER: usize = usize::MAX - 1;

/// So long after a member has started from an older copy of its disk, nothing begins: its leader must find out.
const QUIET: Duration = Duration::from_secs(4);
/// No voter gives up its place if there are no more: with fewer nothing more could be lost.
const VOTERS_MIN: usize = 3;
/// So many learners may stay such at a time; one more is one that becomes a voter.
pub(crate) const LEARNERS_MAX: usize = 2;
/// So long nothing has been wrong before a follower's clock leaps: all have heard the leader lately.
const REST: Duration = Duration::from_secs(2);
/// So long it may take until the rest is well enough for that.
const PUT_BACK_WITHIN: Duration = Duration::from_secs(15);

/// What is wrong for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// The process is down.
    Down(usize, End),
    /// Every machine loses its power; each comes back when this ends.
    AllDown { seed: u64 },
    /// The process is stopped and continued.
    Paused(usize),
    /// All others are.
    AllPausedBut(usize),
    /// Nothing comes from the first to the second.
    Deaf(usize, usize),
    /// What the first sends to the second is lost, and with it all that would follow on the same connection: of requests
    /// the answers are, too. In the end these connections are reset.
    Swallowed(usize, usize),
    /// Nothing comes to or from a member.
    Isolated(usize),
    /// What comes to and from a member takes so many milliseconds.
    Slow(usize, u64),
    /// The connections between two members are reset.
    Reset(usize, usize),
    /// The clock of a member runs at another speed.
    Drift(usize, i64),
    /// The files of a member may grow by so many bytes more.
    Full(usize, u64),
    /// A flush of a member fails, after so many sound ones; the machine loses its power and is started anew when this ends,
    /// with what was not flushed kept or lost by the seed.
    BadFlush(usize, u64, u64),
    /// A member is asked to hand the lead to another.
    MoveLead(usize, usize),
    /// The machine is suspended: its monotonic time stands still.
    Suspended(usize),
    /// The wall clock of a member jumps by so many milliseconds.
    WallClock(usize, i64),
    /// The monotonic clock of the leader leaps forward by so many milliseconds.
    Leap(usize, u64),
    /// That of a follower, when this ends and nothing else has been wrong for a while: lease reads assume that the clocks of
    /// those who vote run at about one speed, and one that leaps is one vote too few for another leader.
    LeapOfFollower(usize, u64),
    /// The disk of a member is lost. The machine starts again with an empty one, and the member is built anew.
    Lost(usize),
    /// A spare machine takes the place of a member.
    Replaced(usize),
    /// A spare machine takes a place beside the others: as a voter, or as a learner that stays one.
    Added { stands: bool },
    /// A learner that has stayed one becomes a voter.
    Promoted(usize),
    /// A member gives up its place, and nobody takes it.
    Removed(usize),
    /// A member and all learners that stay such are cut off from the others: the most that may follow a leader with the votes
    /// of a few.
    LeftWithLearners(usize),
    /// A bit of a table of a member flips.
    Rot(usize, u64),
    /// A bit of a file of a member flips, also while another one is damaged. When this ends, the process is started anew: what
    /// is in memory meanwhile has to be read again.
    RotOf(usize, RotOf, u64),
    /// The disk of a member begins with nothing before so many milliseconds have passed.
    SlowDisk(usize, u64),
    /// When this ends, the disk of a member is as it was when this began.
    Older(usize),
    /// Something is wrong between a machine of users and a member.
    OfUser {
        user: usize,
        member: usize,
        what: OfUser,
    },
    /// Each connection of a machine of users is reset soon after a request has arrived, whichever member it has reached: the
    /// answers are lost.
    AnswersLost(usize),
    /// All programs of users are stopped and continued: who holds a lock may lose it meanwhile.
    UsersPaused,
}

/// What is wrong with the path between a user and a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OfUser {
    /// Nothing comes through.
    Cut,
    /// No answers come, or late.
    Deaf,
    /// What the member sends is lost.
    Swallowed,
    /// What goes to and fro takes so many milliseconds.
    Slow(u64),
    /// The connections are reset.
    Reset,
}

impl OfUser {
    fn name(self) -> &'static str {
        match self {
            OfUser::Cut => " (cut)",
            OfUser::Deaf => " (deaf)",
            OfUser::Swallowed => " (swallowed)",
            OfUser::Slow(_) => " (slow)",
            OfUser::Reset => " (reset)",
        }
    }
}

impl Kind {
    /// Whether it takes a member's disk for good, or a member out of the cluster.
    fn is_loss(&self) -> bool {
        matches!(
            self,
            Kind::Lost(_) | Kind::Replaced(_) | Kind::Rot(..) | Kind::Older(_)
        )
    }

    /// Whether it has its effect when it ends, and nothing else is wrong.
    fn waits_for_rest(&self) -> bool {
        matches!(self, Kind::Older(_) | Kind::LeapOfFollower(..))
    }

    /// Whether it can begin now.
    fn is_possible(&self, cluster: &Cluster) -> bool {
        let role = |member: usize| cluster.members[member].role;
        match *self {
            Kind::Added { stands } => {
                let is_allowed = !stands || cluster.learners().count() < LEARNERS_MAX;
                cluster.may_change() && cluster.spare().is_some() && is_allowed
            }
            Kind::Promoted(member) => cluster.may_change() && role(member) == Role::Learner,
            Kind::Removed(member) => {
                let is_learner = role(member) == Role::Learner;
                cluster.may_remove() && (is_learner || cluster.voters() > VOTERS_MIN)
            }
            Kind::RotOf(member, ..) => cluster.may_rot(member),
            Kind::Leap(member, _) => cluster.leads(member),
            Kind::LeftWithLearners(member) => {
                role(member) != Role::Learner && cluster.learners().next().is_some()
            }
            // What is lost twice is lost for good.
            _ => !self.is_loss() || cluster.may_lose(),
        }
    }

    /// With the leader in its place, never a spare machine, and never a member twice.
    fn resolved(mut self, cluster: &Cluster) -> Kind {
        let members = cluster.members.len();
        let used = |mut member: usize| {
            while !cluster.members[member].is_used() {
                member = (member + 1) % members;
            }
            member
        };
        let (first, second) = match &mut self {
            Kind::Down(member, _)
            | Kind::Paused(member)
            | Kind::AllPausedBut(member)
            | Kind::Isolated(member)
            | Kind::Slow(member, _)
            | Kind::Full(member, _)
            | Kind::BadFlush(member, ..)
            | Kind::Suspended(member)
            | Kind::WallClock(member, _)
            | Kind::Lost(member)
            | Kind::Replaced(member)
            | Kind::Promoted(member)
            | Kind::Removed(member)
            | Kind::LeftWithLearners(member)
            | Kind::Rot(member, _)
            | Kind::RotOf(member, ..)
            | Kind::Leap(member, _)
            | Kind::LeapOfFollower(member, _)
            | Kind::SlowDisk(member, _)
            | Kind::Older(member)
            | Kind::OfUser { member, .. }
            | Kind::Drift(member, _) => (member, None),
            Kind::Deaf(from, to)
            | Kind::Swallowed(from, to)
            | Kind::Reset(from, to)
            | Kind::MoveLead(from, to) => (from, Some(to)),
            Kind::AllDown { .. }
            | Kind::Added { .. }
            | Kind::UsersPaused
            | Kind::AnswersLost(_) => return self,
        };
        let named = |member: usize| match member {
            LEADER => cluster.leader(),
            LEARNER => cluster.learners().next().unwrap_or(0),
            member => member,
        };
        *first = used(named(*first));
        if let Some(second) = second {
            *second = used(named(*second));
            if second == first {
                *second = used((*first + 1) % members);
            }
        }
        self
    }
}

/// A fault with its times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    kind: Kind,
    from: Duration,
    to: Duration,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.from.as_millis(), self.to.as_millis());
        write!(f, "{from} to {to} ms: {:?}", self.kind)
    }
}

/// The faults of a run, while it runs.
pub(crate) struct Injector {
    waiting: Vec<Fault>,
    active: Vec<Fault>,
    /// What would begin before then is left out.
    quiet_until: Duration,
    /// When something was wrong last.
    rested_since: Duration,
}

impl Injector {
    pub(crate) fn new(mut faults: Vec<Fault>) -> Injector {
        // The next one last.
        faults.sort_by_key(|fault| std::cmp::Reverse(fault.from));
        Injector {
            waiting: faults,
            active: Vec::new(),
            quiet_until: Duration::ZERO,
            rested_since: Duration::ZERO,
        }
    }

    /// Begins and ends what is due.
    pub(crate) fn step(&mut self, cluster: &mut Cluster) {
        let now = cluster.now;
        let mut has_changed = false;
        if { self.active.iter() }.any(|fault| !fault.kind.waits_for_rest()) {
            self.rested_since = now;
        }
        let waits = |fault: &Fault| fault.kind.waits_for_rest() && fault.to <= now;
        let is_quiet = now < self.quiet_until || self.active.iter().any(waits);
        while self.waiting.last().is_some_and(|fault| fault.from <= now) {
            let mut fault = self.waiting.pop().expect("it was just seen");
            fault.kind = fault.kind.resolved(cluster);
            if is_quiet || !fault.kind.is_possible(cluster) {
                continue;
            }
            cluster
                .trace
                .note("", format_args!("fault: {:?}", fault.kind));
            meet(&fault.kind, cluster);
            begin(&fault.kind, cluster);
            self.active.push(fault);
            has_changed = true;
        }
        let (due, active): (Vec<_>, Vec<_>) =
            { self.active.drain(..) }.partition(|fault| fault.to <= now);
        self.active = active;
        for fault in due {
            if fault.kind.waits_for_rest() && !self.end_at_rest(&fault, cluster) {
                self.active.push(fault);
                continue;
            }
            cluster
                .trace
                .note("", format_args!("ends: {:?}", fault.kind));
            has_changed = true;
            match fault.kind {
                Kind::BadFlush(member, _, seed) if cluster.members[member].disk_fails => {
                    cluster.end(member, End::PowerLoss { seed });
                }
                Kind::RotOf(member, ..) if cluster.members[member].is_damaged() => {
                    cluster.end(member, End::Killed);
                }
                _ => {}
            }
        }
        if has_changed {
            self.apply(cluster);
        }
        if now == self.quiet_until {
            for member in &mut cluster.members {
                member.is_older = false;
            }
        }
    }

    /// Has the effect of a fault that waits until all is well. Gives whether it is over, with its effect or too late for it.
    fn end_at_rest(&mut self, fault: &Fault, cluster: &mut Cluster) -> bool {
        let now = cluster.now;
        let is_rested = now >= self.quiet_until && self.active.is_empty();
        let is_possible = is_rested
            && match fault.kind {
                Kind::Older(member) => cluster.may_put_back(member),
                Kind::LeapOfFollower(member, _) => {
                    now >= self.rested_since + REST && cluster.is_led_by_another(member)
                }
                _ => false,
            };
        if !is_possible {
            return now >= fault.to + PUT_BACK_WITHIN;
        }
        match fault.kind {
            Kind::LeapOfFollower(member, millis) => {
                cluster.leap(member, Duration::from_millis(millis));
                *cluster
                    .met
                    .entry("a follower's clock leapt".to_owned())
                    .or_default() += 1;
            }
            Kind::Older(member) => cluster.put_back(member),
            _ => {}
        }
        self.quiet_until = now + QUIET;
        true
    }

    /// Ends everything.
    pub(crate) fn finish(&mut self, cluster: &mut Cluster) {
        self.waiting.clear();
        for member in 0..cluster.members.len() {
            let known = &cluster.members[member];
            if known.disk_fails || known.has_damaged_log() {
                cluster.end(member, End::Killed);
            }
        }
        self.active.clear();
        self.apply(cluster);
    }

    /// Makes the cluster as the active faults want it.
    fn apply(&self, cluster: &mut Cluster) {
        let count = cluster.members.len();
        cluster.wire.mend();
        let (mut down, mut paused) = (vec![false; count], vec![false; count]);
        let mut suspended = vec![false; count];
        let mut drift = vec![0; count];
        let mut space = vec![None; count];
        let mut disk_delay = vec![Duration::ZERO; count];
        let mut users_paused = false;
        for fault in &self.active {
            match fault.kind {
                Kind::Down(member, _) => down[member] = true,
                Kind::AllDown { .. } => down.fill(true),
                Kind::Paused(member) => paused[member] = true,
                Kind::AllPausedBut(member) => {
                    (0..count)
                        .filter(|&other| other != member)
                        .for_each(|other| paused[other] = true);
                }
                Kind::Deaf(from, to) => cluster.wire.set_path(from, to, |path| path.is_cut = true),
                Kind::Swallowed(from, to) => {
                    cluster.wire.set_path(from, to, |path| path.swallows = true);
                }
                Kind::Isolated(member) => {
                    for other in (0..count).filter(|&other| other != member) {
                        cluster
                            .wire
                            .set_path(member, other, |path| path.is_cut = true);
                        cluster
                            .wire
                            .set_path(other, member, |path| path.is_cut = true);
                    }
                }
                Kind::LeftWithLearners(member) => cut_with_learners(member, cluster),
                Kind::Slow(member, millis) => {
                    let delay = Duration::from_millis(millis);
                    for other in (0..count).filter(|&other| other != member) {
                        for (from, to) in [(member, other), (other, member)] {
                            cluster
                                .wire
                                .set_path(from, to, |path| path.delay = (delay / 2, delay));
                        }
                    }
                }
                Kind::Drift(member, ppm) => drift[member] = ppm,
                Kind::Full(member, bytes) => space[member] = Some(bytes),
                Kind::Suspended(member) => suspended[member] = true,
                Kind::SlowDisk(member, millis) => {
                    disk_delay[member] = Duration::from_millis(millis);
                }
                Kind::OfUser { user, member, what } => {
                    let user = cluster.user_host(user);
                    apply_of_user(what, user, member, &cluster.wire);
                }
                Kind::AnswersLost(user) => {
                    let user = cluster.user_host(user);
                    for member in 0..count {
                        cluster
                            .wire
                            .set_path(user, member, |path| path.breaks = true);
                    }
                }
                Kind::UsersPaused => users_paused = true,
                Kind::Reset(..)
                | Kind::MoveLead(..)
                | Kind::BadFlush(..)
                | Kind::WallClock(..)
                | Kind::Lost(_)
                | Kind::Rot(..)
                | Kind::RotOf(..)
                | Kind::Leap(..)
                | Kind::LeapOfFollower(..)
                | Kind::Older(_)
                | Kind::Added { .. }
                | Kind::Promoted(_)
                | Kind::Removed(_)
                | Kind::Replaced(_) => {}
            }
        }
        cluster.users_paused = users_paused;
        for member in 0..count {
            // What supervises a process starts it again: on a full disk it may not have come up.
            let known = &cluster.members[member];
            if space[member].is_none() && known.has_failed() {
                cluster.end(member, End::Killed);
            }
            let known = &cluster.members[member];
            if !down[member] && !known.is_up() && known.is_used() {
                cluster.start(member);
            }
            let known = &mut cluster.members[member];
            known.is_paused = paused[member] && known.is_up();
            known.is_suspended = suspended[member] && known.is_up();
            known.drift_ppm = drift[member];
            known.disk_delay = disk_delay[member];
            known.limit_space(space[member]);
        }
    }
}

/// Cuts a member and all learners off from the others.
fn cut_with_learners(member: usize, cluster: &Cluster) {
    let learners: Vec<_> = cluster.learners().collect();
    let is_inside = |machine: usize| machine == member || learners.contains(&machine);
    let machines = 0..cluster.members.len();
    for inside in machines.clone().filter(|&machine| is_inside(machine)) {
        for outside in machines.clone().filter(|&machine| !is_inside(machine)) {
            let cut = |path: &mut Path| path.is_cut = true;
            cluster.wire.set_path(inside, outside, cut);
            cluster.wire.set_path(outside, inside, cut);
        }
    }
}

/// Makes the path between a user's host and a member as a fault wants it.
fn apply_of_user(what: OfUser, user: usize, member: usize, wire: &Wire) {
    let to_user = |change: &dyn Fn(&mut Path)| wire.set_path(member, user, change);
    let to_member = |change: &dyn Fn(&mut Path)| wire.set_path(user, member, change);
    match what {
        OfUser::Cut => {
            to_user(&|path| path.is_cut = true);
            to_member(&|path| path.is_cut = true);
        }
        OfUser::Deaf => to_user(&|path| path.is_cut = true),
        OfUser::Swallowed => to_user(&|path| path.swallows = true),
        OfUser::Slow(millis) => {
            let delay = Duration::from_millis(millis);
            to_user(&|path| path.delay = (delay / 2, delay));
            to_member(&|path| path.delay = (delay / 2, delay));
        }
        OfUser::Reset => {}
    }
}

/// Counts what a fault meets: what it is, and whom.
fn meet(kind: &Kind, cluster: &mut Cluster) {
    let leader = cluster.leader();
    let text = format!("{kind:?}");
    let what = text.split(['(', ' ']).next().unwrap_or_default();
    let whom = match *kind {
        Kind::AllDown { .. } | Kind::UsersPaused | Kind::AnswersLost(_) => "all",
        Kind::Added { .. } => "a spare machine",
        Kind::AllPausedBut(member) if member == leader => "all but the leader",
        Kind::AllPausedBut(_) => "all but a follower",
        Kind::Down(member, _)
        | Kind::Paused(member)
        | Kind::Isolated(member)
        | Kind::Slow(member, _)
        | Kind::Full(member, _)
        | Kind::BadFlush(member, ..)
        | Kind::Drift(member, _)
        | Kind::Deaf(member, _)
        | Kind::Swallowed(member, _)
        | Kind::Reset(member, _)
        | Kind::Suspended(member)
        | Kind::WallClock(member, _)
        | Kind::Lost(member)
        | Kind::Replaced(member)
        | Kind::Promoted(member)
        | Kind::Removed(member)
        | Kind::LeftWithLearners(member)
        | Kind::Rot(member, _)
        | Kind::RotOf(member, ..)
        | Kind::Leap(member, _)
        | Kind::LeapOfFollower(member, _)
        | Kind::SlowDisk(member, _)
        | Kind::Older(member)
        | Kind::OfUser { member, .. }
        | Kind::MoveLead(member, _) => match &cluster.members[member] {
            known if !known.is_up() => "one that is down",
            known if known.client().is_none() => "one that starts",
            known if !known.runs() => "one that is paused",
            _ if member == leader => "the leader",
            known if known.role == Role::Learner => "a learner",
            _ => "a follower",
        },
    };
    let how = match kind {
        Kind::Down(_, End::Killed) => " (killed)".to_owned(),
        Kind::Down(_, End::PowerLoss { .. }) => " (power loss)".to_owned(),
        Kind::OfUser { what, .. } => what.name().to_owned(),
        Kind::Added { stands: true } => " (as a learner)".to_owned(),
        Kind::Added { stands: false } => " (as a voter)".to_owned(),
        Kind::RotOf(_, of, _) => format!(" ({of})"),
        _ => String::new(),
    };
    *cluster
        .met
        .entry(format!("{what}{how}, {whom}"))
        .or_default() += 1;
    for state in cluster.states() {
        let met = cluster.met.entry(format!("{what}{how} while {state}"));
        *met.or_default() += 1;
    }
}

fn begin(kind: &Kind, cluster: &mut Cluster) {
    match *kind {
        Kind::Down(member, end) => cluster.end(member, end),
        Kind::AllDown { seed } => {
            for (member, seed) in (0..cluster.members.len()).zip(seed..) {
                cluster.end(member, End::PowerLoss { seed });
            }
        }
        Kind::Reset(member, other) => cluster.wire.reset([member, other]),
        Kind::MoveLead(member, other) => cluster.move_lead(member, &name(other)),
        Kind::BadFlush(member, sound, _) => {
            cluster.members[member].fail_a_flush(sound);
        }
        Kind::WallClock(member, by_ms) => cluster.members[member].jump_wall(by_ms),
        Kind::Lost(member) => cluster.lose(member),
        Kind::Replaced(member) => cluster.replace(member),
        Kind::Added { stands } => cluster.add(stands),
        Kind::Promoted(member) => cluster.promote(member),
        Kind::Removed(member) => cluster.remove(member),
        Kind::Rot(member, seed) => cluster.members[member].rot(seed),
        Kind::Leap(member, millis) => cluster.leap(member, Duration::from_millis(millis)),
        Kind::RotOf(member, of, seed) => cluster.members[member].rot_of(of, seed),
        Kind::Older(member) => cluster.copy_disk(member),
        Kind::OfUser {
            user,
            member,
            what: OfUser::Reset,
        } => cluster.wire.reset([cluster.user_host(user), member]),
        Kind::OfUser { .. }
        | Kind::UsersPaused
        | Kind::AnswersLost(_)
        | Kind::Full(..)
        | Kind::SlowDisk(..)
        | Kind::Suspended(_)
        | Kind::Paused(_)
        | Kind::AllPausedBut(_)
        | Kind::Deaf(..)
        | Kind::Swallowed(..)
        | Kind::Isolated(_)
        | Kind::LeftWithLearners(_)
        | Kind::LeapOfFollower(..)
        | Kind::Slow(..)
        | Kind::Drift(..) => {}
    }
}
