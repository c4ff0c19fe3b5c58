//! The plans: which faults a seed has, and when.

use std::time::Duration;

use super::{Fault, Kind, LEADER, LEARNER, OfUser};
use crate::member::{End, RotOf};
use crate::remote;

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
            16 => Kind::BadFlush(member, random.u64(0..8), seed),
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

/// How the membership grows and shrinks, and what learners that stay such meet.
pub(crate) fn plan_of_members(seed: u64, machines: usize, span: Duration) -> Vec<Fault> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut faults = Vec::new();
    let mut from = Duration::from_millis(random.u64(500..3_000));
    while from < span * 2 / 3 {
        let kind = match random.u8(0..12) {
            0..=3 => Kind::Added { stands: false },
            4..=6 => Kind::Added { stands: true },
            7 => Kind::Promoted(LEARNER),
            8 => Kind::Removed(LEARNER),
            9 => Kind::Removed(LEADER),
            10 => Kind::Removed(random.usize(0..machines)),
            _ => Kind::LeftWithLearners(LEADER),
        };
        let to = from + Duration::from_millis(random.u64(1_500..5_000));
        faults.push(Fault { kind, from, to });
        from += Duration::from_millis(random.u64(1..2_500));
    }
    faults
}

/// What rots besides tables, and while others are damaged.
pub(crate) fn plan_of_rot(seed: u64, machines: usize, span: Duration) -> Vec<Fault> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut faults = Vec::new();
    let mut from = Duration::from_millis(random.u64(500..3_000));
    while from < span * 2 / 3 {
        let member = match random.bool() {
            true => LEADER,
            false => random.usize(0..machines),
        };
        let of = random.choice(RotOf::ALL).unwrap_or(RotOf::Table);
        let kind = Kind::RotOf(member, of, random.u64(..));
        // The longest ones leave a process time to find them by itself.
        let longest = [50, 600, 3_000, 20_000][random.usize(0..4)];
        let to = from + Duration::from_millis(random.u64(1..longest));
        faults.push(Fault { kind, from, to });
        from += Duration::from_millis(random.u64(1..2_500));
    }
    faults
}

/// Monotonic clocks that leap forward, as of a machine that makes up for a suspension which never was.
pub(crate) fn plan_of_leaps(seed: u64, machines: usize, span: Duration) -> Vec<Fault> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut faults = Vec::new();
    let mut from = Duration::from_millis(random.u64(500..3_000));
    while from < span * 2 / 3 {
        let longest = [100, 1_000, 10_000, 100_000][random.usize(0..4)];
        let millis = random.u64(1..longest);
        let kind = match random.u8(0..3) {
            0 => Kind::LeapOfFollower(random.usize(0..machines), millis),
            _ => Kind::Leap(LEADER, millis),
        };
        let to = from + Duration::from_millis(random.u64(1..600));
        faults.push(Fault { kind, from, to });
        from += Duration::from_millis(random.u64(1..4_000));
    }
    faults
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Which flush fails was also the seed of what the power loss after it keeps: there were eight such faults in all.
    #[test]
    fn what_a_bad_flush_leaves_does_not_follow_from_where_it_fails() {
        let span = Duration::from_secs(60);
        let faults = (0..100).flat_map(|seed| plan(seed, 3, span, false));
        let flushes: BTreeSet<_> = faults
            .filter_map(|fault| match fault.kind {
                Kind::BadFlush(_, sound, seed) => Some((sound, seed)),
                _ => None,
            })
            .collect();
        let places: BTreeSet<_> = flushes.iter().map(|(sound, _)| *sound).collect();
        assert!(flushes.len() > 2 * places.len(), "{flushes:?}");
    }
}
