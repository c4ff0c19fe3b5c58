//! What happens to the members, drawn from a seed.

use std::fmt;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::member::End;
use crate::remote;
use crate::trace::name;
use crate::wire::{Path, Wire};

/// In place of a member: the one that leads when the fault begins.
const LEADER: usize = usize::MAX;

/// So long after a member has started from an older copy of its disk, nothing begins: its leader must find out.
const QUIET: Duration = Duration::from_secs(4);
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
    /// A flush of a member fails, after so many sound ones; the machine is started anew when this ends.
    BadFlush(usize, u64),
    /// A member is asked to hand the lead to another.
    MoveLead(usize, usize),
    /// The machine is suspended: its monotonic time stands still.
    Suspended(usize),
    /// The wall clock of a member jumps by so many milliseconds.
    WallClock(usize, i64),
    /// The disk of a member is lost. The machine starts again with an empty one, and the member is built anew.
    Lost(usize),
    /// The spare machine takes the place of a member.
    Replaced(usize),
    /// A bit of a table of a member flips.
    Rot(usize, u64),
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
            | Kind::BadFlush(member, _)
            | Kind::Suspended(member)
            | Kind::WallClock(member, _)
            | Kind::Lost(member)
            | Kind::Replaced(member)
            | Kind::Rot(member, _)
            | Kind::SlowDisk(member, _)
            | Kind::Older(member)
            | Kind::OfUser { member, .. }
            | Kind::Drift(member, _) => (member, None),
            Kind::Deaf(from, to)
            | Kind::Swallowed(from, to)
            | Kind::Reset(from, to)
            | Kind::MoveLead(from, to) => (from, Some(to)),
            Kind::AllDown { .. } | Kind::UsersPaused | Kind::AnswersLost(_) => return self,
        };
        if *first == LEADER {
            *first = cluster.leader();
        }
        *first = used(*first);
        if let Some(second) = second {
            if *second == LEADER {
                *second = cluster.leader();
            }
            *second = used(*second);
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

/// The faults of a run that lasts `span`, on so many machines. The last third of it has none that begins.
pub(crate) fn plan(seed: u64, machines: usize, span: Duration, fills_disks: bool) -> Vec<Fault> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut faults = Vec::new();
    // Some runs are rough, others give the members time.
    let pause_max = [400, 1500, 4000][random.usize(0..3)];
    let mut from = Duration::from_millis(random.u64(0..2500));
    while from < span * 2 / 3 {
        let member = match random.bool() {
            true => LEADER,
            false => random.usize(0..machines),
        };
        let other = random.usize(0..machines);
        let seed = random.u64(..);
        let kind = match random.u8(0..if fills_disks { 33 } else { 31 }) {
            0..=1 => Kind::Down(member, End::Killed),
            2..=3 => Kind::Down(member, End::PowerLoss { seed }),
            4 => Kind::AllDown { seed },
            5..=7 => Kind::Paused(member),
            8..=9 => Kind::Deaf(member, other),
            10 => Kind::Isolated(member),
            11 => Kind::Slow(member, random.u64(5..200)),
            12 => Kind::Reset(member, other),
            13..=14 => Kind::AllPausedBut(random.usize(0..machines)),
            15 => Kind::Drift(member, random.i64(-50_000..50_000)),
            16 => Kind::BadFlush(member, random.u64(0..8)),
            17 => Kind::Suspended(member),
            18 => Kind::WallClock(member, random.i64(-100_000_000..100_000_000)),
            19 => Kind::Lost(member),
            20..=21 => Kind::Replaced(member),
            22..=23 => Kind::Rot(member, seed),
            24..=25 => Kind::SlowDisk(member, 1 << random.u32(0..12)),
            26 => Kind::Older(member),
            27..=28 => match random.bool() {
                true => Kind::Swallowed(member, other),
                false => Kind::Swallowed(other, member),
            },
            31..=32 => Kind::Full(member, 1 << random.u32(0..18)),
            _ => Kind::MoveLead(member, other),
        };
        let longest = [50, 600, 3000, 9000][random.usize(0..4)];
        let to = from + Duration::from_millis(random.u64(1..longest));
        faults.push(Fault { kind, from, to });
        if random.u8(0..6) == 0 {
            // Nothing else begins: the others have time to go on without it.
            let scene = match random.bool() {
                true => overtaken(&mut random, machines, from),
                false => vec![left_behind(&mut random, from)],
            };
            from = scene.iter().map(|fault| fault.to).max().unwrap_or(from);
            faults.extend(scene);
        }
        from += Duration::from_millis(random.u64(1..pause_max));
    }
    faults
}

/// What happens to users over the network, beside the faults of the members they reach.
pub(crate) fn plan_of_users(seed: u64, machines: usize, span: Duration) -> Vec<Fault> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut faults = Vec::new();
    let mut from = Duration::from_millis(random.u64(0..3_000));
    while from < span * 2 / 3 {
        let member = match random.bool() {
            true => LEADER,
            false => random.usize(0..machines),
        };
        let user = random.usize(0..remote::MACHINES);
        let of_user = |what| Kind::OfUser { user, member, what };
        let kind = match random.u8(0..10) {
            0..=1 => of_user(OfUser::Cut),
            2 => of_user(OfUser::Deaf),
            3 => of_user(OfUser::Swallowed),
            4 => of_user(OfUser::Slow(random.u64(5..400))),
            5..=6 => of_user(OfUser::Reset),
            7..=8 => Kind::AnswersLost(user),
            _ => Kind::UsersPaused,
        };
        let longest = match kind {
            // The checker of histories has to try every write of unknown outcome.
            Kind::AnswersLost(_) => 500,
            _ => [50, 600, 3_000][random.usize(0..3)],
        };
        let to = from + Duration::from_millis(random.u64(1..longest));
        faults.push(Fault { kind, from, to });
        from += Duration::from_millis(random.u64(1..3_000));
    }
    faults
}

/// A member is paused for long enough that the others elect another leader, and nobody tells it when it goes on:
/// soon after it was paused nothing comes to it any more.
fn overtaken(random: &mut fastrand::Rng, machines: usize, from: Duration) -> Vec<Fault> {
    let member = random.usize(0..machines);
    let to = from + Duration::from_millis(random.u64(1200..3500));
    let paused = Fault {
        kind: Kind::Paused(member),
        from,
        to,
    };
    let isolated = Fault {
        kind: Kind::Isolated(member),
        from: from + Duration::from_millis(random.u64(0..20)),
        to: to + Duration::from_millis(random.u64(100..1000)),
    };
    vec![paused, isolated]
}

/// The leader is cut off for long enough that the others elect another one.
fn left_behind(random: &mut fastrand::Rng, from: Duration) -> Fault {
    let to = from + Duration::from_millis(random.u64(1500..5000));
    let kind = Kind::Isolated(LEADER);
    Fault { kind, from, to }
}

/// The faults of a run, while it runs.
pub(crate) struct Injector {
    waiting: Vec<Fault>,
    active: Vec<Fault>,
    /// What would begin before then is left out.
    quiet_until: Duration,
}

impl Injector {
    pub(crate) fn new(mut faults: Vec<Fault>) -> Injector {
        // The next one last.
        faults.sort_by_key(|fault| std::cmp::Reverse(fault.from));
        Injector {
            waiting: faults,
            active: Vec::new(),
            quiet_until: Duration::ZERO,
        }
    }

    /// Begins and ends what is due.
    pub(crate) fn step(&mut self, cluster: &mut Cluster) {
        let now = cluster.now;
        let mut has_changed = false;
        let waits = |fault: &Fault| matches!(fault.kind, Kind::Older(_)) && fault.to <= now;
        let is_quiet = now < self.quiet_until || self.active.iter().any(waits);
        while self.waiting.last().is_some_and(|fault| fault.from <= now) {
            let mut fault = self.waiting.pop().expect("it was just seen");
            fault.kind = fault.kind.resolved(cluster);
            // What is lost twice is lost for good.
            if is_quiet || fault.kind.is_loss() && !cluster.may_lose() {
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
            if let Kind::Older(member) = fault.kind {
                let is_rested = now >= self.quiet_until && self.active.is_empty();
                let is_possible = is_rested && cluster.may_put_back(member);
                if !is_possible && now < fault.to + PUT_BACK_WITHIN {
                    self.active.push(fault);
                    continue;
                }
                if is_possible {
                    cluster.put_back(member);
                    self.quiet_until = now + QUIET;
                }
            }
            cluster
                .trace
                .note("", format_args!("ends: {:?}", fault.kind));
            has_changed = true;
            if let Kind::BadFlush(member, sound) = fault.kind
                && cluster.members[member].disk_fails
            {
                cluster.end(member, End::PowerLoss { seed: sound });
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

    /// Ends everything.
    pub(crate) fn finish(&mut self, cluster: &mut Cluster) {
        self.waiting.clear();
        for member in 0..cluster.members.len() {
            if cluster.members[member].disk_fails {
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
                | Kind::Older(_)
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
        Kind::AllPausedBut(member) if member == leader => "all but the leader",
        Kind::AllPausedBut(_) => "all but a follower",
        Kind::Down(member, _)
        | Kind::Paused(member)
        | Kind::Isolated(member)
        | Kind::Slow(member, _)
        | Kind::Full(member, _)
        | Kind::BadFlush(member, _)
        | Kind::Drift(member, _)
        | Kind::Deaf(member, _)
        | Kind::Swallowed(member, _)
        | Kind::Reset(member, _)
        | Kind::Suspended(member)
        | Kind::WallClock(member, _)
        | Kind::Lost(member)
        | Kind::Replaced(member)
        | Kind::Rot(member, _)
        | Kind::SlowDisk(member, _)
        | Kind::Older(member)
        | Kind::OfUser { member, .. }
        | Kind::MoveLead(member, _) => match &cluster.members[member] {
            known if !known.is_up() => "one that is down",
            known if known.client().is_none() => "one that starts",
            known if !known.runs() => "one that is paused",
            _ if member == leader => "the leader",
            _ => "a follower",
        },
    };
    let how = match kind {
        Kind::Down(_, End::Killed) => " (killed)",
        Kind::Down(_, End::PowerLoss { .. }) => " (power loss)",
        Kind::OfUser { what, .. } => what.name(),
        _ => "",
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
        Kind::BadFlush(member, sound) => {
            cluster.members[member].fail_a_flush(sound);
        }
        Kind::WallClock(member, by_ms) => cluster.members[member].jump_wall(by_ms),
        Kind::Lost(member) => cluster.lose(member),
        Kind::Replaced(member) => cluster.replace(member),
        Kind::Rot(member, seed) => cluster.members[member].rot(seed),
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
        | Kind::Slow(..)
        | Kind::Drift(..) => {}
    }
}
