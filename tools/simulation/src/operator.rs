//! Who operates the cluster: builds a member anew whose disk is lost, replaces one machine by another, and adds and removes
//! members, also learners that stay such for a while.
//!
//! One job at a time. Its steps are the calls that an administrator makes, each through any member that answers,
//! again and again until it succeeds: a call whose outcome is unknown is made once more, and an answer that it was
//! done before is as good. A machine that is to take a place starts with an empty disk.

use std::sync::Arc;
use std::time::Duration;

use bowline_cluster::{Error, LocalClient};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use crate::cluster::Cluster;
use crate::member::Role;
use crate::trace::name;
use crate::wire::Wire;

/// The next step of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The member that is gone, or has to go, is removed.
    Remove,
    /// Its process has to stop by itself.
    Leave,
    /// The machine's place is added.
    Add,
    /// The machine is started.
    Start,
    /// The learner becomes a voter.
    Promote,
    /// The machine has its place and is a voter.
    Wait,
    /// The machine has its place as a learner.
    Stand,
}

/// A machine with its member.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) machine: usize,
    pub(crate) id: u64,
}

/// What is done about one machine, or about one in the place of another.
struct Job {
    /// The steps that are left, the next one last.
    stages: Vec<Stage>,
    /// The place that is given up.
    leaves: Option<Place>,
    /// The machine that takes a place, or another one.
    takes: Option<usize>,
    /// The member that was added, if the call was answered.
    added: Option<u64>,
    /// Whether it is added as a learner, and promoted by a call.
    is_learner: bool,
}

/// What a member has answered: the id of an added member, or nothing to say.
type Answer = Result<Option<u64>, Error>;

/// One who operates.
pub(crate) struct Operator {
    random: fastrand::Rng,
    job: Option<Job>,
    /// Where the answer to a call appears. Whoever makes the call holds it, too.
    asked: Option<Arc<Mutex<Option<Answer>>>>,
    /// Nothing is done until then.
    pause_until: Duration,
    /// The jobs that are done.
    pub(crate) done: u64,
}

impl Operator {
    pub(crate) fn new(seed: u64) -> Operator {
        Operator {
            random: fastrand::Rng::with_seed(seed),
            job: None,
            asked: None,
            pause_until: Duration::ZERO,
            done: 0,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.job.is_none()
    }

    /// What is left to do, for a message.
    pub(crate) fn left(&self) -> String {
        match &self.job {
            None => "nothing".to_owned(),
            Some(job) => format!("{:?}, the next one last", job.stages),
        }
    }

    /// A machine's disk is lost. It is removed in a while and takes a new place.
    pub(crate) fn rebuild(&mut self, place: Place, is_learner: bool, now: Duration) {
        let stages = match is_learner {
            true => vec![Stage::Stand, Stage::Start, Stage::Add, Stage::Remove],
            false => vec![Stage::Wait, Stage::Start, Stage::Add, Stage::Remove],
        };
        self.begin(stages, Some(place), Some(place.machine), now);
    }

    /// A spare machine takes a place, and then another one gives up its own.
    pub(crate) fn replace(&mut self, place: Place, spare: usize, now: Duration) {
        let stages = vec![
            Stage::Leave,
            Stage::Remove,
            Stage::Wait,
            Stage::Start,
            Stage::Add,
        ];
        self.begin(stages, Some(place), Some(spare), now);
    }

    /// A spare machine takes a place beside the others, as a voter or as a learner that stays one.
    pub(crate) fn add(&mut self, spare: usize, stands: bool, now: Duration) {
        let last = if stands { Stage::Stand } else { Stage::Wait };
        self.begin(vec![last, Stage::Start, Stage::Add], None, Some(spare), now);
    }

    /// A learner that has stayed one becomes a voter.
    pub(crate) fn promote(&mut self, learner: Place, now: Duration) {
        self.job = Some(Job {
            stages: vec![Stage::Wait, Stage::Promote],
            leaves: None,
            takes: Some(learner.machine),
            added: Some(learner.id),
            is_learner: true,
        });
        self.pause(now);
    }

    /// A member gives up its place.
    pub(crate) fn remove(&mut self, place: Place, now: Duration) {
        self.begin(vec![Stage::Leave, Stage::Remove], Some(place), None, now);
    }

    fn begin(
        &mut self,
        mut stages: Vec<Stage>,
        leaves: Option<Place>,
        takes: Option<usize>,
        now: Duration,
    ) {
        let mut is_learner = stages.contains(&Stage::Stand);
        // Some are added as learners and promoted at once.
        if let Some(wait) = stages.iter().position(|stage| *stage == Stage::Wait)
            && self.random.u8(0..3) == 0
        {
            stages.insert(wait + 1, Stage::Promote);
            is_learner = true;
        }
        self.job = Some(Job {
            stages,
            leaves,
            takes,
            added: None,
            is_learner,
        });
        self.pause(now);
    }

    fn pause(&mut self, now: Duration) {
        self.pause_until = now + Duration::from_millis(self.random.u64(0..3_000));
        self.asked = None;
    }

    /// Does what can be done now.
    pub(crate) fn step(&mut self, cluster: &mut Cluster) {
        let now = cluster.now;
        let Some(job) = &mut self.job else {
            return;
        };
        if now < self.pause_until {
            return;
        }
        let stage = *job.stages.last().expect("a job that is done is gone");
        if let Some(asked) = &self.asked {
            let answer = asked.lock().take();
            match answer {
                // Whoever was asked is gone.
                None if Arc::strong_count(asked) == 1 => self.asked = None,
                None => {}
                Some(answer) => {
                    self.asked = None;
                    cluster
                        .trace
                        .note("operator", format_args!("{stage:?}: {answer:?}"));
                    if let Ok(Some(id)) = answer {
                        job.added = Some(id);
                    }
                    match is_done(stage, &answer) {
                        true => job.reach(cluster),
                        false => {
                            let pause = Duration::from_millis(self.random.u64(100..1_000));
                            self.pause_until = now + pause;
                        }
                    }
                }
            }
        } else {
            match stage {
                Stage::Remove | Stage::Add | Stage::Promote => {
                    if let Some(place) = job.leaves
                        && stage == Stage::Remove
                        && job.stages.contains(&Stage::Leave)
                    {
                        // Also if no answer comes.
                        cluster.members[place.machine].role = Role::Leaving;
                    }
                    self.asked = job.ask(stage, cluster, &mut self.random);
                }
                _ => job.go_on(stage, cluster),
            }
        }
        if job.stages.is_empty() {
            job.note_end(cluster);
            self.job = None;
            self.done += 1;
        }
    }
}

/// Whether the call has the effect that was wanted, by this call or by an earlier one.
fn is_done(stage: Stage, answer: &Answer) -> bool {
    match answer {
        Ok(_) => true,
        Err(Error::MemberNotFound { .. }) => stage == Stage::Remove,
        Err(Error::PeerUrlExists) => stage == Stage::Add,
        Err(Error::NotLearner { .. }) => stage == Stage::Promote,
        Err(_) => false,
    }
}

impl Job {
    /// Does a step that is no call, if it can be done.
    fn go_on(&mut self, stage: Stage, cluster: &mut Cluster) {
        let as_learner = stage == Stage::Stand;
        match (stage, self.leaves, self.takes) {
            (Stage::Start, _, Some(takes)) => {
                let machines = cluster.members.len();
                cluster.members[takes].join(machines);
                cluster.start(takes);
            }
            (Stage::Wait | Stage::Stand, _, Some(takes))
                if cluster.has_place(takes, as_learner) =>
            {
                cluster.members[takes].role = match as_learner {
                    true => Role::Learner,
                    false => Role::Member,
                };
            }
            (Stage::Leave, Some(place), _) if cluster.members[place.machine].has_stopped() => {
                cluster.retire(place.machine);
            }
            _ => return,
        }
        self.stages.pop();
    }

    /// A call was done.
    fn reach(&mut self, cluster: &mut Cluster) {
        let stage = self.stages.pop();
        if let Some(place) = self.leaves
            && stage == Some(Stage::Remove)
            && self.stages.last() != Some(&Stage::Leave)
        {
            cluster.retire(place.machine);
        }
    }

    /// Tells what was done, with the size of the cluster.
    fn note_end(&self, cluster: &mut Cluster) {
        let (voters, learners) = (cluster.voters(), cluster.learners().count());
        let leaves = self.leaves.map(|place| name(place.machine));
        let what = match (self.takes.map(name), leaves) {
            (Some(takes), Some(leaves)) => format!("{takes} is in place of {leaves}"),
            (Some(takes), None) => format!("{takes} has a place, or another one than before"),
            (None, leaves) => format!("{} has none any more", leaves.unwrap_or_default()),
        };
        cluster.trace.note("operator", what);
        let size = format!("the cluster has {voters} voters and {learners} learners");
        *cluster.met.entry(size).or_default() += 1;
    }

    /// Asks any member that is not concerned.
    fn ask(
        &self,
        stage: Stage,
        cluster: &Cluster,
        random: &mut fastrand::Rng,
    ) -> Option<Arc<Mutex<Option<Answer>>>> {
        let leaves = self.leaves.map(|place| place.machine);
        let others: Vec<_> = { cluster.members.iter() }
            .filter(|member| ![leaves, self.takes].contains(&Some(member.number)))
            .filter(|member| matches!(member.role, Role::Member | Role::Learner) && member.runs())
            .filter_map(|member| Some((member, member.client()?)))
            .collect();
        let (member, client) = others.get(random.usize(0..others.len().max(1)))?;
        let url = Wire::url(self.takes.unwrap_or_default());
        let removed = self.leaves.map(|place| place.id);
        let call = match stage {
            Stage::Remove => remove(client.clone(), removed?),
            Stage::Add => add(client.clone(), url, self.is_learner),
            _ => {
                // Whether it is a learner or was promoted already, by a call whose outcome is unknown. Before the one who asks
                // knows of the removal, the member that had the machine before may be there, too.
                let known = client.members();
                let mut places = known.iter().filter(|known| Some(known.id) != removed);
                let mut place = || places.find(|known| known.peer_urls.contains(&url));
                let id = self.added.or_else(|| place().map(|known| known.id))?;
                promote(client.clone(), id)
            }
        };
        let answer = Arc::new(Mutex::new(None));
        let written = answer.clone();
        member.spawn(async move {
            let answer = call.await;
            *written.lock() = Some(answer);
        });
        Some(answer)
    }
}

fn remove(client: LocalClient, id: u64) -> BoxFuture<'static, Answer> {
    Box::pin(async move { client.member_remove(id).await.map(|()| None) })
}

fn add(client: LocalClient, url: String, is_learner: bool) -> BoxFuture<'static, Answer> {
    Box::pin(async move {
        let added = client.member_add(vec![url], is_learner).await;
        added.map(|member| Some(member.id))
    })
}

fn promote(client: LocalClient, id: u64) -> BoxFuture<'static, Answer> {
    Box::pin(async move { client.member_promote(id).await.map(|()| None) })
}
