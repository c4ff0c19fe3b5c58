//! The machines: all members, moved together in steps of a millisecond.
//!
//! In each step what is due arrives, and then every member runs for the time of the step, in an order that is drawn
//! anew. What judges can see between two steps they look at here.

use std::collections::BTreeMap;
use std::time::Duration;

use bowline_cluster::{Leadership, LocalClient, ReadLevel};
use futures_util::FutureExt;
use tokio::sync::watch;

use crate::clients::Client;
use crate::entries::Entries;
use crate::entropy;
use crate::history::History;
use crate::holders::{Holder, PREFIX};
use crate::member::{End, Member, Role};
use crate::operator::{Operator, Place};
use crate::options::Options;
use crate::remote::fence::Fence;
use crate::remote::program::Answer;
use crate::remote::{self, Remotes};
use crate::subscribers::{POLL_EVERY, Subscribers};
use crate::trace::{Trace, name};
use crate::wire::Wire;

/// The time of a step.
pub(crate) const STEP: Duration = Duration::from_millis(1);
/// So long after a member has followed a leader, its vote for it is on its disk.
const VOTE_WITHIN: Duration = Duration::from_millis(5);
/// On each member: one that reads, and others that also write; fewer where there are users over the network.
const CLIENTS: usize = 3;
const CLIENTS_BESIDE_REMOTES: usize = 2;
/// How often an operator, and what supervises processes, look at them.
const SUPERVISED_EVERY: Duration = Duration::from_millis(50);

/// The cluster.
pub(crate) struct Cluster {
    pub(crate) now: Duration,
    pub(crate) members: Vec<Member>,
    founders: usize,
    pub(crate) wire: Wire,
    pub(crate) trace: Trace,
    pub(crate) history: History,
    random: fastrand::Rng,
    /// What each member has last said of the leader.
    leadership: Vec<Option<(watch::Receiver<Leadership>, Leadership)>>,
    /// The term of the newest leader that each member has followed, and when it followed it first.
    followed: Vec<(u64, Duration)>,
    /// The term of the vote that a member has on its disk, at least.
    voted: Vec<u64>,
    /// The members' ids, once they have started.
    ids: Vec<u64>,
    /// The newest leader of each term. A later one of the same term has a greater id.
    leaders: BTreeMap<u64, u64>,
    /// The first hash of the trees at an index, and whose it is.
    hashes: BTreeMap<u64, (usize, bowline::TreeHashes)>,
    subscribers: Subscribers,
    pub(crate) operator: Operator,
    /// Users over the network, if there are any.
    remotes: Option<Remotes>,
    /// Whether the programs of users over the network are stopped.
    pub(crate) users_paused: bool,
    fence: Fence,
    /// What faults have met.
    pub(crate) met: BTreeMap<String, u64>,
    /// How many disks were damaged at a time, at most.
    damaged_most: usize,
    lives: u64,
    clients_pause_max: Duration,
    /// Whether clients compact the history.
    compacts: bool,
    /// Whose entries members have applied, as they say.
    entries: Entries,
    pub(crate) failure: Option<String>,
}

impl Cluster {
    /// The machines of so many founders, and spare ones; and, if they are served, users over the network.
    pub(crate) fn new(options: &Options, seed: u64) -> Cluster {
        let (founders, serves) = (options.members, options.serves);
        let machines = options.machines();
        let mut random = fastrand::Rng::with_seed(seed);
        let trace = Trace::default();
        let wire_trace = options.traces_wire.then(|| trace.clone());
        let users = if serves { remote::MACHINES } else { 0 };
        let wire = Wire::new(machines, users, random.u64(..), wire_trace);
        let new = |number| Member::new(number, founders, serves, &wire, trace.clone());
        let history = History::new(trace.clone());
        let compacts = random.u8(0..4) == 0;
        let mut cluster = Cluster {
            now: Duration::ZERO,
            members: (0..machines).map(new).collect(),
            founders,
            wire: wire.clone(),
            trace: trace.clone(),
            history: history.clone(),
            subscribers: Subscribers::new(random.u64(..), trace.clone(), history, compacts),
            operator: Operator::new(random.u64(..)),
            met: BTreeMap::new(),
            leadership: vec![None; machines],
            followed: vec![(0, Duration::ZERO); machines],
            voted: vec![0; machines],
            ids: vec![0; machines],
            leaders: BTreeMap::new(),
            hashes: BTreeMap::new(),
            damaged_most: 0,
            lives: 0,
            clients_pause_max: Duration::from_millis([100, 300, 1000][random.usize(0..3)]),
            compacts,
            entries: Entries::default(),
            failure: None,
            remotes: None,
            users_paused: false,
            fence: Fence::default(),
            random,
        };
        if serves {
            cluster.start_remotes();
        }
        cluster
    }

    /// Users over the network begin.
    fn start_remotes(&mut self) {
        let (machines, seed) = (self.members.len(), self.random.u64(..));
        let mut remotes = Remotes::new(
            machines,
            seed,
            &self.wire,
            &self.history,
            &self.trace,
            self.compacts,
        );
        remotes.start(self.clients_pause_max, &mut self.subscribers, &self.fence);
        self.remotes = Some(remotes);
    }

    pub(crate) fn start(&mut self, member: usize) {
        self.members[member].start();
        self.wire.start(member);
    }

    pub(crate) fn end(&mut self, member: usize, end: End) {
        if self.members[member].is_up() {
            self.leadership[member] = None;
            self.followed[member] = (0, Duration::ZERO);
            self.subscribers.leave(member);
            self.wire.stop(member, end != End::Killed);
            self.members[member].end(end);
        }
    }

    /// The newest leader that any member has told of; the first member before there is one.
    pub(crate) fn leader(&self) -> usize {
        let newest = self.leaders.last_key_value();
        let known = newest.and_then(|(_, leader)| self.ids.iter().position(|id| id == leader));
        known.unwrap_or(0)
    }

    /// What goes on in the cluster as a fault begins.
    pub(crate) fn states(&self) -> Vec<&'static str> {
        let known: Vec<_> = { self.members.iter() }
            .filter(|member| member.is_used() && member.runs())
            .filter_map(|member| Some((member, member.client()?)))
            .collect();
        let any = |is_so: &dyn Fn(&LocalClient) -> bool| {
            let mut known = known.iter();
            known.any(|(member, client)| member.within(|| is_so(client)))
        };
        let knows_no_leader = |client: &LocalClient| client.leadership().borrow().leader.is_none();
        let states = [
            (any(&knows_no_leader), "a member knows no leader"),
            (
                any(&LocalClient::is_membership_changing),
                "the members change",
            ),
            (
                any(&|client| client.status().is_learner),
                "one is a learner",
            ),
            (self.learners().next().is_some(), "a learner stays one"),
            (
                self.voters() > self.founders,
                "there are more voters than founders",
            ),
            (!self.operator.is_idle(), "an operator is at work"),
            (
                self.members.iter().any(|member| member.is_rotten),
                "a table is damaged",
            ),
            (self.damaged().nth(1).is_some(), "two disks are damaged"),
            (
                self.members.iter().any(|member| member.is_older),
                "a disk is an older one",
            ),
        ];
        let states = states.into_iter().filter(|(is_so, _)| *is_so);
        states.map(|(_, state)| state).collect()
    }

    /// The host of a machine of users.
    pub(crate) fn user_host(&self, user: usize) -> usize {
        self.members.len() + user
    }

    /// Moves everything by one step.
    pub(crate) fn step(&mut self) {
        self.now += STEP;
        self.trace.set_now(self.now);
        entropy::set_time(Some(self.now));
        self.wire.advance(self.now);
        let mut order: Vec<_> = (0..self.members.len()).collect();
        self.random.shuffle(&mut order);
        for member in order {
            if let Some(client) = self.members[member].drive(STEP) {
                self.has_started(member, &client);
            }
            self.judge(member);
        }
        if let Some(remotes) = &mut self.remotes {
            remotes.drive(STEP, self.users_paused);
            if let Err(reason) = self.subscribers.take_remote() {
                self.fail(reason);
            }
        }
        if self.now.as_millis().is_multiple_of(10) {
            self.compare_entries();
        }
        // What a client has found ends the run there and then, and comes before what judges find later.
        if self.failure.is_none()
            && let Some(reason) = self.history.failure()
        {
            self.fail(reason);
        }
        if self
            .now
            .as_millis()
            .is_multiple_of(SUPERVISED_EVERY.as_millis())
        {
            (0..self.members.len()).for_each(|member| self.supervise(member));
            for member in self.history.take_repaired() {
                self.members[member].is_rotten = false;
                *self.met.entry("tables replaced".to_owned()).or_default() += 1;
            }
            for (member, said) in self.history.take_lost() {
                // The leader says so, too.
                let may_lack = |member: &Member| member.is_older || member.is_damaged();
                match self.members.iter().any(may_lack) {
                    true => *self.met.entry("a loss noticed".to_owned()).or_default() += 1,
                    false => self.fail(format!("{} {said}", name(member))),
                }
            }
            self.look_at_damage();
            let mut operator = std::mem::replace(&mut self.operator, Operator::new(0));
            operator.step(self);
            self.operator = operator;
        }
        if self.now.as_millis().is_multiple_of(POLL_EVERY.as_millis())
            && let Err(reason) = self.subscribers.step(&self.members)
        {
            self.fail(reason);
        }
    }

    /// Notes which damage is mended, and counts it.
    fn look_at_damage(&mut self) {
        let newest = self.entries.newest();
        for member in 0..self.members.len() {
            for of in self.members[member].take_mended(newest, SUPERVISED_EVERY) {
                *self.met.entry(format!("mended: {of}")).or_default() += 1;
            }
            if let Some(of) = self.members[member].overlooked() {
                self.fail(format!(
                    "{} has not found that {of} is damaged",
                    name(member)
                ));
            }
        }
        let damaged = self.damaged().count();
        if damaged > self.damaged_most {
            self.damaged_most = damaged;
            *self
                .met
                .entry(format!("{damaged} disks are damaged"))
                .or_default() += 1;
        }
    }

    /// Starts a process anew that has stopped by itself as its disk was full. One whose flush has failed stays down
    /// until that fault ends.
    fn supervise(&mut self, member: usize) {
        let known = &self.members[member];
        if !known.runs() || known.disk_fails {
            return;
        }
        if known.role == Role::Joining && known.has_failed() {
            self.end(member, End::Killed);
            self.start(member);
            return;
        }
        if known.may_not_start() && known.has_failed() {
            // What is damaged beyond a repair is built anew.
            if self.operator.is_idle() {
                self.lose(member);
            }
            return;
        }
        if known.may_stop() {
            return;
        }
        let failure = known.status().and_then(|status| status.failure);
        let Some(failure) = failure else {
            return;
        };
        // A log that is damaged cannot be sent to others: the process begins it anew.
        match failure.contains("no space left") || known.has_damaged_log() {
            true => {
                self.trace
                    .note(name(member), format_args!("has stopped: {failure}"));
                self.end(member, End::Killed);
                self.start(member);
            }
            false => self.fail(format!("{} has stopped: {failure}", name(member))),
        }
    }

    fn has_started(&mut self, member: usize, client: &LocalClient) {
        self.lives += 1;
        let status = self.members[member].within(|| client.status());
        let known = std::mem::replace(&mut self.ids[member], status.member_id);
        let is_same = known == 0 || known == status.member_id || self.members[member].may_stop();
        if !is_same {
            let (name, now) = (name(member), status.member_id);
            self.fail(format!(
                "{name} was {known:016x} and has started as {now:016x}"
            ));
        }
        self.trace.note(
            name(member),
            format_args!(
                "has on its disk: term {}, entries up to {}, applied up to {}, revision {}",
                status.term, status.raft_index, status.applied_index, status.revision
            ),
        );
        let voted = self.voted[member];
        if status.term < voted {
            let reason = format!(
                "{} has started in term {}, and had voted in term {voted}",
                name(member),
                status.term
            );
            self.fail(reason);
        }
        self.leadership[member] = Some((client.leadership(), Leadership::default()));
        let clients = match self.remotes {
            Some(_) => CLIENTS_BESIDE_REMOTES,
            None => CLIENTS,
        };
        for at in 0..clients {
            let user = self.user(member, at, client);
            self.members[member].spawn(user.run());
        }
        let holder = Holder {
            name: format!("{}/{}.l", name(member), self.lives),
            client: client.clone(),
            history: self.history.clone(),
            trace: self.trace.clone(),
            random: fastrand::Rng::with_seed(self.random.u64(..)),
        };
        self.members[member].spawn(holder.run());
    }

    /// A user of a member's process.
    fn user(&mut self, member: usize, at: usize, client: &LocalClient) -> Client {
        Client {
            name: format!("{}/{}.{at}", name(member), self.lives),
            client: client.clone(),
            history: self.history.clone(),
            random: fastrand::Rng::with_seed(self.random.u64(..)),
            is_reader: at == 0,
            pause_max: self.clients_pause_max,
            compacts: self.compacts,
        }
    }

    /// Reads everything at every member, when nobody writes any more.
    pub(crate) fn read_all(&mut self) {
        for member in 0..self.members.len() {
            if let Some(client) = self.members[member].client() {
                let user = self.user(member, CLIENTS, &client);
                self.members[member].spawn(user.read_all());
            }
        }
        if let Some(remotes) = &mut self.remotes {
            remotes.read_all(self.clients_pause_max);
        }
    }

    /// Has users over the network, if there are any, look for a member that answers a read and then a put.
    pub(crate) fn ask_users(&self) -> Vec<(String, Answer)> {
        let remotes = self.remotes.as_ref();
        remotes.map_or_else(Vec::new, Remotes::ask)
    }

    /// The entries that members have applied are the same: they are of the same leaders.
    fn compare_entries(&mut self) {
        for member in 0..self.members.len() {
            let Some(client) = self.members[member].client() else {
                continue;
            };
            // It does not wait.
            let read = || client.read_barrier(ReadLevel::Eventual).now_or_never();
            let point = self.members[member].within(read);
            let Some(Ok(point)) = point else {
                continue;
            };
            let proposer = (point.term, point.proposer);
            if let Err(reason) = self.entries.note(point.applied_index, member, proposer) {
                self.fail(reason);
            }
        }
    }

    /// Looks at a member: it never follows an earlier leader again, and does not stop by itself. Leaders are
    /// ordered by term and id.
    fn judge(&mut self, member: usize) {
        if self.members[member].disk_fails {
            // It stops by itself, and may be anywhere before that.
            return;
        }
        let known = &self.members[member];
        if known.has_failed() && !known.is_full() && !known.may_not_start() && !known.may_stop() {
            self.fail(format!("{} did not start", name(member)));
        }
        if self.members[member].runs() {
            let (term, since) = &mut self.followed[member];
            let delay = self.members[member].disk_delay;
            if !delay.is_zero() {
                *since = self.now + delay;
            }
            if self.now >= *since + VOTE_WITHIN {
                self.voted[member] = (*term).max(self.voted[member]);
            }
        }
        let Some((known, last)) = &mut self.leadership[member] else {
            return;
        };
        let now = *known.borrow();
        if now == *last {
            return;
        }
        let before = std::mem::replace(last, now);
        let Leadership { leader, term } = now;
        self.trace.note(
            name(member),
            match leader {
                Some(leader) => format!("knows {leader:016x} as the leader in term {term}"),
                None => format!("knows no leader in term {term}"),
            },
        );
        if let Some(leader) = leader {
            if term > self.followed[member].0 {
                self.followed[member] = (term, self.now);
            }
            let newest = self.leaders.entry(term).or_insert(leader);
            *newest = leader.max(*newest);
        }
        let before = (before.term, before.leader);
        if (term, leader) < before && (leader.is_some() || term < before.0) {
            self.fail(format!("{} knew {before:x?} before", name(member)));
        }
    }

    /// Compares the contents of members that have applied the same entries. Gives whether all of them are equal.
    pub(crate) fn compare(&mut self) -> bool {
        let mut indices = Vec::new();
        for member in 0..self.members.len() {
            if self.members[member].disk_fails {
                continue;
            }
            let Some(client) = self.members[member].client() else {
                continue;
            };
            let hashed = self.members[member].within(|| client.tree_hashes());
            let (index, hashes) = match hashed {
                Ok(hashed) => hashed,
                // It is repaired when the damage is found.
                Err(_) if self.members[member].is_damaged() => continue,
                Err(error) => {
                    self.fail(format!("{} cannot be read: {error}", name(member)));
                    return false;
                }
            };
            indices.push(index);
            self.trace.note(
                name(member),
                format_args!("has applied {index}: {hashes:?}"),
            );
            match self.hashes.get(&index) {
                Some((other, found)) if *found != hashes => {
                    let (a, b) = (name(*other), name(member));
                    self.fail(format!("{a} and {b} have applied {index}, and differ"));
                    return false;
                }
                Some(_) => {}
                None => {
                    self.hashes.insert(index, (member, hashes));
                }
            }
        }
        let members = { self.members.iter() }
            .filter(|member| member.is_used())
            .count();
        indices.len() == members && indices.windows(2).all(|two| two[0] == two[1])
    }

    /// Whether a change of the membership may begin: all are members and have been started, and nobody is at work.
    pub(crate) fn may_change(&self) -> bool {
        let is_whole = |member: &Member| match member.role {
            Role::Member | Role::Learner => self.ids[member.number] != 0,
            role => role == Role::Spare,
        };
        self.operator.is_idle() && self.members.iter().all(is_whole)
    }

    /// Whether a loss of a disk may begin, too.
    pub(crate) fn may_lose(&self) -> bool {
        // One disk at a time: the others have the data.
        self.damaged().next().is_none() && self.may_change()
    }

    /// The machines whose disks are damaged, or not as new as they were.
    fn damaged(&self) -> impl Iterator<Item = usize> {
        let is_damaged = |member: &&Member| member.is_damaged();
        let damaged = self.members.iter().filter(is_damaged);
        damaged.map(|member| member.number)
    }

    /// Whether a disk may be damaged although others are: so few that a majority of the voters has sound ones.
    pub(crate) fn may_rot(&self, member: usize) -> bool {
        let others = self.damaged().filter(|&other| other != member).count();
        let is_older = self.members.iter().any(|member| member.is_older);
        self.may_change() && !is_older && others < self.voters().saturating_sub(1) / 2
    }

    /// Whether a member may give up its place: after that, too, a majority of the voters has sound disks.
    pub(crate) fn may_remove(&self) -> bool {
        let damaged = self.damaged().count();
        self.may_change() && damaged <= self.voters().saturating_sub(2) / 2
    }

    /// In the end everything is mended.
    pub(crate) fn judge_damage(&mut self) {
        let damaged = { self.damaged() }.find(|&member| !self.members[member].is_rotten);
        if let Some(member) = damaged {
            self.fail(format!("{} is still damaged in the end", name(member)));
        }
    }

    /// The machines of learners that stay such.
    pub(crate) fn learners(&self) -> impl Iterator<Item = usize> {
        let learners = { self.members.iter() }.filter(|member| member.role == Role::Learner);
        learners.map(|member| member.number)
    }

    /// How many voters there are, while nobody changes that.
    pub(crate) fn voters(&self) -> usize {
        let voters = { self.members.iter() }.filter(|member| member.role == Role::Member);
        voters.count()
    }

    /// The machine that may take a place next.
    pub(crate) fn spare(&self) -> Option<usize> {
        let spare = { self.members.iter() }.find(|member| member.role == Role::Spare);
        spare.map(|spare| spare.number)
    }

    /// A machine's disk is lost with everything on it.
    pub(crate) fn lose(&mut self, member: usize) {
        self.end(member, End::Killed);
        self.members[member].empty_disk();
        let role = std::mem::replace(&mut self.members[member].role, Role::Lost);
        self.forget(member);
        let place = self.place(member);
        self.operator
            .rebuild(place, role == Role::Learner, self.now);
    }

    /// A machine's member is gone: the machine is a spare one, with an empty disk.
    pub(crate) fn retire(&mut self, member: usize) {
        self.end(member, End::Killed);
        self.members[member].empty_disk();
        self.forget(member);
        self.members[member].role = Role::Spare;
    }

    /// Whether all agree on a leader that is another than this member, so that it knows what the member has
    /// acknowledged; and may be relied on for a while.
    pub(crate) fn is_led_by_another(&self, member: usize) -> bool {
        let mut seen = None;
        let mut members = self.members.iter().filter(|member| member.is_used());
        let agree = members.all(|known| {
            let status = known.status().filter(|_| known.runs());
            let led = status.and_then(|status| Some((status.leader?, status.term)));
            led.is_some_and(|led| *seen.get_or_insert(led) == led)
        });
        agree && seen.is_some_and(|(leader, _)| leader != self.ids[member])
    }

    /// Whether a member leads, as it knows itself, and nobody knows a newer leader.
    pub(crate) fn leads(&self, member: usize) -> bool {
        let known = self.leadership[member].as_ref();
        let leads = known.is_some_and(|(_, last)| last.leader == Some(self.ids[member]));
        leads && self.leader() == member && self.members[member].runs()
    }

    /// The monotonic clock of a member leaps forward. What it promised as the leader ends earlier; what a follower's
    /// clock says ends no lease.
    pub(crate) fn leap(&mut self, member: usize, by: Duration) {
        if self.leads(member) {
            self.history.leaps(by);
        }
        self.members[member].leap(by);
        let note = format_args!("its monotonic clock leaps forward by {by:?}");
        self.trace.note(name(member), note);
    }

    /// Copies the disk of a member as it is now, if it has applied anything: a copy from before that is as good as an
    /// empty disk, with which its process rightly stops.
    pub(crate) fn copy_disk(&mut self, member: usize) {
        let status = self.members[member].status();
        if status.is_some_and(|status| status.applied_index > 0) {
            let id = self.ids[member];
            self.members[member].copy_disk(id);
        }
    }

    /// Whether an older copy may be put in the place of a member's disk: everything else is as it should be, and a
    /// leader knows what the member has acknowledged.
    pub(crate) fn may_put_back(&self, member: usize) -> bool {
        let has_copy = self.members[member].has_copy_of(self.ids[member]);
        has_copy && self.may_lose() && self.is_led_by_another(member)
    }

    /// A machine starts anew from an older copy of its disk, or from its own with a damaged log.
    pub(crate) fn put_back(&mut self, member: usize) {
        self.end(member, End::Killed);
        if self.random.bool() {
            let seed = self.random.u64(..);
            self.members[member].rot_log(seed);
            self.start(member);
            return;
        }
        self.members[member].put_back();
        // Its votes of the time between are gone.
        self.forget(member);
        self.start(member);
    }

    /// A machine's next process has nothing on its disk.
    pub(crate) fn forget(&mut self, member: usize) {
        self.voted[member] = 0;
    }

    /// A machine with its member.
    fn place(&self, member: usize) -> Place {
        let id = self.ids[member];
        Place {
            machine: member,
            id,
        }
    }

    /// A spare machine is to take the place of another one.
    pub(crate) fn replace(&mut self, member: usize) {
        if let Some(spare) = self.spare() {
            let place = self.place(member);
            self.operator.replace(place, spare, self.now);
        }
    }

    /// A spare machine is to take a place beside the others.
    pub(crate) fn add(&mut self, stands: bool) {
        if let Some(spare) = self.spare() {
            self.operator.add(spare, stands, self.now);
        }
    }

    /// A learner is to become a voter.
    pub(crate) fn promote(&mut self, learner: usize) {
        let place = self.place(learner);
        self.operator.promote(place, self.now);
    }

    /// A member is to give up its place.
    pub(crate) fn remove(&mut self, member: usize) {
        let place = self.place(member);
        self.operator.remove(place, self.now);
    }

    /// Whether a machine's process knows itself to be a voter, or a learner.
    pub(crate) fn has_place(&self, member: usize, as_learner: bool) -> bool {
        let url = Wire::url(member);
        let client = self.members[member].client();
        client.is_some_and(|client| {
            let id = client.status().member_id;
            let known = client.members();
            let mut own = known.iter().filter(|known| known.id == id);
            // In the middle of the change that made it one, the voters of before are needed, too.
            let is_there =
                own.any(|own| own.is_learner == as_learner && own.peer_urls.contains(&url));
            is_there && !client.is_membership_changing()
        })
    }

    /// Whether no key of a lease is left, as the first member has it.
    pub(crate) fn leases_have_ended(&self) -> bool {
        let mut members = self.members.iter().filter(|member| member.is_used());
        let Some((member, client)) = members.find_map(|member| Some((member, member.client()?)))
        else {
            return false;
        };
        member
            .within(|| {
                let mut keys = client.db().range(bowline::Range::prefix(PREFIX))?;
                Ok::<_, bowline::Error>(keys.next().is_none())
            })
            .unwrap_or(false)
    }

    /// Whether every index is built, or cannot be for want of space, as the first member has it.
    pub(crate) fn indexes_are_built(&self) -> bool {
        let client = self.members.iter().find_map(Member::client);
        client.is_some_and(|client| {
            let mut all = client.indexes().into_iter();
            !client.alarms().is_empty() || all.all(|index| index.ready_since.is_some())
        })
    }

    /// When all members agree: watches have told everything, all members have the same past, and nothing in it contradicts
    /// anything else.
    pub(crate) fn compare_pasts(&mut self) {
        if let Err(reason) = self.subscribers.finish(&self.members) {
            self.fail(reason);
        }
        let mut members = self.members.iter();
        let Some((member, client)) = members.find_map(|member| Some((member, member.client()?)))
        else {
            return;
        };
        match member.within(|| client.db().check()) {
            Ok(report) if report.is_clean() => {}
            found => self.fail(format!(
                "what members agree on contradicts itself: {found:?}"
            )),
        }
    }

    /// Asks a member to hand over the lead, if it has it.
    pub(crate) fn move_lead(&self, member: usize, target: &str) {
        let Some(client) = self.members[member].client() else {
            return;
        };
        let members = client.members();
        let Some(target) = members.iter().find(|known| known.name == target) else {
            return;
        };
        let (id, trace) = (target.id, self.trace.clone());
        self.members[member].spawn(async move {
            let moved = client.move_leader(id).await;
            let moved = moved.map_err(|error| error.to_string());
            trace.note(
                name(member),
                format_args!("the lead was to move to {id:016x}: {moved:?}"),
            );
        });
    }

    pub(crate) fn fail(&mut self, reason: String) {
        self.trace.note("", format_args!("FAILED: {reason}"));
        self.failure.get_or_insert(reason);
    }
}
