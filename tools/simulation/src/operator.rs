//! Who operates the cluster: builds a member anew whose disk is lost, and replaces one machine by another.
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
use crate::member::{End, Role};
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
}

/// What is done about one machine.
struct Job {
    /// The steps that are left, the next one last.
    stages: Vec<Stage>,
    /// The machine whose member is removed, and the member.
    leaves: usize,
    removed: u64,
    /// The machine that takes a place.
    takes: usize,
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
    pub(crate) fn rebuild(&mut self, machine: usize, member: u64, now: Duration) {
        let stages = vec![Stage::Wait, Stage::Start, Stage::Add, Stage::Remove];
        self.begin(stages, (machine, member), machine, now);
    }

    /// A spare machine takes a place, and then another one gives up its own.
    pub(crate) fn replace(&mut self, machine: usize, member: u64, spare: usize, now: Duration) {
        let stages = vec![
            Stage::Leave,
            Stage::Remove,
            Stage::Wait,
            Stage::Start,
            Stage::Add,
        ];
        self.begin(stages, (machine, member), spare, now);
    }

    fn begin(
        &mut self,
        mut stages: Vec<Stage>,
        (leaves, removed): (usize, u64),
        takes: usize,
        now: Duration,
    ) {
        let is_learner = self.random.u8(0..3) == 0;
        if is_learner {
            let wait = stages.iter().position(|stage| *stage == Stage::Wait);
            stages.insert(wait.expect("it has one") + 1, Stage::Promote);
        }
        self.pause_until = now + Duration::from_millis(self.random.u64(0..3_000));
        self.asked = None;
        self.job = Some(Job {
            stages,
            leaves,
            removed,
            takes,
            added: None,
            is_learner,
        });
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
                    if stage == Stage::Remove && job.stages.contains(&Stage::Leave) {
                        // Also if no answer comes.
                        cluster.members[job.leaves].role = Role::Leaving;
                    }
                    self.asked = job.ask(stage, cluster, &mut self.random);
                }
                Stage::Start => {
                    let machines = cluster.members.len();
                    cluster.members[job.takes].join(machines);
                    cluster.start(job.takes);
                    job.stages.pop();
                }
                Stage::Wait if cluster.has_place(job.takes) => {
                    cluster.members[job.takes].role = Role::Member;
                    job.stages.pop();
                }
                Stage::Leave if cluster.members[job.leaves].has_stopped() => {
                    cluster.end(job.leaves, End::Killed);
                    cluster.members[job.leaves].empty_disk();
                    cluster.forget(job.leaves);
                    cluster.members[job.leaves].role = Role::Spare;
                    job.stages.pop();
                }
                Stage::Wait | Stage::Leave => {}
            }
        }
        if job.stages.is_empty() {
            let [leaves, takes] = [job.leaves, job.takes].map(name);
            cluster
                .trace
                .note("operator", format_args!("{takes} is in place of {leaves}"));
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
    /// A call was done.
    fn reach(&mut self, cluster: &mut Cluster) {
        let stage = self.stages.pop();
        if stage == Some(Stage::Remove) && self.stages.last() != Some(&Stage::Leave) {
            cluster.end(self.leaves, End::Killed);
            cluster.members[self.leaves].empty_disk();
            cluster.forget(self.leaves);
            cluster.members[self.leaves].role = Role::Spare;
        }
    }

    /// Asks any member that is not concerned.
    fn ask(
        &self,
        stage: Stage,
        cluster: &Cluster,
        random: &mut fastrand::Rng,
    ) -> Option<Arc<Mutex<Option<Answer>>>> {
        let others: Vec<_> = { cluster.members.iter() }
            .filter(|member| ![self.leaves, self.takes].contains(&member.number))
            .filter(|member| member.role == Role::Member && member.runs())
            .filter_map(|member| Some((member, member.client()?)))
            .collect();
        let (member, client) = others.get(random.usize(0..others.len().max(1)))?;
        let url = Wire::url(self.takes);
        let call = match stage {
            Stage::Remove => remove(client.clone(), self.removed),
            Stage::Add => add(client.clone(), url, self.is_learner),
            _ => {
                // Whether it is a learner or was promoted already, by a call whose outcome is unknown. Before the one who asks
                // knows of the removal, the member that had the machine before may be there, too.
                let known = client.members();
                let mut places = known.iter().filter(|known| known.id != self.removed);
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
