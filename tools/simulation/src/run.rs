//! One seed from beginning to end.
//!
//! The cluster is founded, faults come and go while clients work, and in the end everything is mended. Then
//! the cluster must make progress within a bounded time, and these must hold:
//!
//! - what clients saw is linearizable (puts, deletions, conditional and exchanging transactions, reads with and
//!   without a lease), and what they were told was not executed was not;
//! - an eventual read gives the state of the revision that it tells, and a member never shows its clients an older one;
//! - every acknowledged write is in the past of all members, and is read in the end;
//! - members that have applied an entry of an index have applied the same one: its leader is the same, by term and id;
//! - an edge is there from both of its ends;
//! - the key of a lease is there for as long as its holder was promised, and gone in the end; until then every answer and
//!   list has the lease, and none has it after it was revoked;
//! - every watch is told every change once and in order, wherever it goes on, and all members have the same past, with all that
//!   anybody was told;
//! - nobody has a lock while another holds it, and nothing that an older holder writes lands after what a newer one has
//!   written (`remote`);
//! - a reply over the network is as fresh as it was asked for, and an error is one that its reader knows;
//! - a member never follows an earlier leader again, by term and id;
//! - members that have applied the same entries have the same trees, and in the end all have applied the same;
//! - with the leader hurt for long, in whatever way, the others answer soon (`hurt`);
//! - what rots is repaired or written anew, whatever file it is, and a member starts as the one it was;
//! - no member stops by itself, and no task panics.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Once;
use std::time::Duration;

use bowline_testing::linear;

use crate::cluster::Cluster;
use crate::entropy;
use crate::faults::{Injector, plan, plan_of_leaps, plan_of_members, plan_of_rot, plan_of_users};
pub use crate::history::Counts;
use crate::hurt;
use crate::options::Options;
use crate::story::Story;

/// After the last fault has ended, something is answered within this time; and so long after the clients have
/// stopped, every member has applied the same.
const PROGRESS_WITHIN: Duration = Duration::from_secs(10);
/// In the end everything is read within this time, before a member is hurt.
const READ_WITHIN: Duration = Duration::from_secs(1);
/// How often the members' contents are compared.
const COMPARE_EVERY: Duration = Duration::from_secs(1);

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// What is wrong, if something is.
    pub failure: Option<String>,
    /// The faults, in the order of their numbers.
    pub faults: Vec<String>,
    /// What happened.
    pub trace: String,
    /// A hash of that.
    pub hash: u64,
    /// How much was done.
    pub counts: Counts,
    /// What faults have met, and how often.
    pub met: BTreeMap<String, u64>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: {:?}, hash {:016x}",
            self.seed, self.counts, self.hash
        )?;
        for (number, fault) in self.faults.iter().enumerate() {
            writeln!(f, "  fault {number}: {fault}")?;
        }
        for (what, count) in &self.met {
            writeln!(f, "  met: {what}: {count}")?;
        }
        match &self.failure {
            Some(failure) => write!(f, "FAILED: {failure}"),
            None => write!(f, "nothing is wrong"),
        }
    }
}

thread_local! {
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// Counts panics: tokio catches those of tasks.
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.set(PANICS.get() + 1);
            before(panic);
        }));
    });
    PANICS.set(0);
}

/// Runs a seed. Uses this thread alone, whose randomness it seeds.
#[must_use]
pub fn run(seed: u64, options: &Options) -> Outcome {
    count_panics();
    entropy::set_time(Some(Duration::ZERO));
    fastrand::seed(seed);
    let span = Duration::from_secs(options.virtual_seconds);
    let machines = options.machines();
    let mut planned = plan(fastrand::u64(..), machines, span, options.fills_disks);
    if options.serves {
        planned.extend(plan_of_users(fastrand::u64(..), machines, span));
    }
    if options.rots {
        planned.extend(plan_of_rot(fastrand::u64(..), machines, span));
    }
    if options.leaps {
        planned.extend(plan_of_leaps(fastrand::u64(..), machines, span));
    }
    if options.grows {
        planned.extend(plan_of_members(fastrand::u64(..), machines, span));
    }
    let faults = planned.iter().map(ToString::to_string).collect();
    let left: Vec<_> = { planned.into_iter().enumerate() }
        .filter(|(number, _)| !options.without.contains(number))
        .map(|(_, fault)| fault)
        .collect();
    let mut injector = Injector::new(left);
    let mut cluster = Cluster::new(options, fastrand::u64(..));
    let trace = cluster.trace.clone();
    let history = cluster.history.clone();
    let story = Story {
        tells_messages: options.tells_messages,
        trace,
        history,
    };
    tracing::subscriber::with_default(story, || {
        live(&mut cluster, &mut injector, span);
    });
    // A judge may give up after a time of the machine's.
    entropy::set_time(None);
    judge(&mut cluster);
    let (trace, hash) = cluster.trace.finish();
    let (_, counts, _) = cluster.history.finish();
    Outcome {
        seed,
        failure: cluster.failure,
        faults,
        trace,
        hash,
        counts,
        met: cluster.met,
    }
}

/// From the founding until all members agree in the end, or something is wrong.
fn live(cluster: &mut Cluster, injector: &mut Injector, span: Duration) {
    (0..cluster.members.len())
        .filter(|&member| cluster.members[member].is_used())
        .collect::<Vec<_>>()
        .into_iter()
        .for_each(|member| cluster.start(member));
    let mut compared = Duration::ZERO;
    while cluster.now < span && cluster.failure.is_none() {
        injector.step(cluster);
        cluster.step();
        if cluster.now >= compared + COMPARE_EVERY {
            compared = cluster.now;
            cluster.compare();
        }
    }
    if cluster.failure.is_none() {
        injector.finish(cluster);
        settle(cluster);
    }
}

/// Everything is mended: something must be answered soon, and all members must agree once clients are quiet.
fn settle(cluster: &mut Cluster) {
    let written = cluster.history.finish().1.written;
    let until = cluster.now + PROGRESS_WITHIN;
    while cluster.now < until && cluster.failure.is_none() {
        cluster.step();
    }
    if cluster.failure.is_none() && cluster.history.finish().1.written == written {
        let reason = format!("nothing was written within {PROGRESS_WITHIN:?} after the last fault");
        cluster.fail(reason);
    }
    cluster.history.stop();
    if !agree(cluster) {
        return;
    }
    cluster.judge_damage();
    cluster.read_all();
    let until = cluster.now + READ_WITHIN;
    while cluster.now < until && cluster.failure.is_none() {
        cluster.step();
    }
    hurt::judge(cluster);
    if cluster.failure.is_none() && agree(cluster) {
        cluster.compare_pasts();
    }
}

/// Whether all members agree soon, as nobody writes any more.
fn agree(cluster: &mut Cluster) -> bool {
    let until = cluster.now + PROGRESS_WITHIN;
    while cluster.now < until && cluster.failure.is_none() {
        (0..500).for_each(|_| cluster.step());
        let is_done = cluster.leases_have_ended() && cluster.indexes_are_built();
        if cluster.compare() && is_done && cluster.operator.is_idle() {
            return true;
        }
    }
    if cluster.failure.is_none() {
        let reason = format!(
            "the members differ {PROGRESS_WITHIN:?} after the clients have stopped, or have keys of leases, or an index is not built; to be done about machines: {}",
            cluster.operator.left()
        );
        cluster.fail(reason);
    }
    false
}

fn judge(cluster: &mut Cluster) {
    let (operations, _, failures) = cluster.history.finish();
    failures
        .into_iter()
        .for_each(|failure| cluster.fail(failure));
    if PANICS.get() > 0 {
        cluster.fail("a task has panicked".to_owned());
    }
    if let Err(failure) = linear::check(&operations) {
        cluster.fail(format!("not linearizable: {failure}"));
    }
}
