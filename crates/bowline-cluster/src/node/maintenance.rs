//! The maintenance tasks of a member: they report the flushed index to the log, watch its size, publish the
//! member's name; on the leader, they promote learners that have caught up.
//!
//! *Space.* A member raises the alarm for all when its database exceeds the quota, when it refused a request for
//! which the quota has no room ([`space`](super::space)), when a flush or a merge found no room, or when the log cannot allocate a spare segment. The last comes first, while the log still
//! has a segment or more, which deletions, compactions and the alarm itself are written to. From then on each
//! member refuses requests that take space before they reach any log, so that clients that retry do not use
//! up the reserve. The same member clears the alarm when all three are over, or the leader does once that
//! member is removed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bowline_replica::{AlarmKind, Caller, Command, Refusal};
use tokio::time::Instant;

use super::core::Core;
use super::leader_request::LeaderRequest;
use super::space::Reserved;
use super::{comparison, indexing, memory, repair, scrubber};
use crate::error::Result;
use crate::types::NodeId;

const TICK: Duration = Duration::from_millis(250);
/// The interval until the cluster knows this member's name.
const FIRST_TICK: Duration = Duration::from_millis(20);
/// A check briefly takes the free space.
const LOOK_FOR_SPACE_EVERY: Duration = Duration::from_secs(1);
/// The timeout of an attempt to change an alarm.
const ALARM_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs until the node is closed, whatever is under way then.
pub(crate) async fn run(core: Arc<Core>) {
    let mut closing = core.closing.subscribe();
    // They run concurrently, because each may take as long as a request.
    let all = async {
        tokio::join!(
            keep_space(&core),
            say_name(&core),
            keep_up(&core),
            repair::run(&core),
            scrubber::run(&core),
            comparison::run(&core),
            memory::run(&core),
            indexing::run(&core),
        )
    };
    tokio::select! {
        biased;
        _ = all => {}
        _ = closing.wait_for(|closed| *closed) => {}
    }
}

async fn keep_space(core: &Core) {
    let mut looked_for_space = Instant::now();
    let mut shortage = core.log.shortage();
    loop {
        let mut has_refused = false;
        tokio::select! {
            biased;
            () = tokio::time::sleep(TICK) => {}
            // The remaining space may be used up fast.
            _ = shortage.changed() => {}
            () = core.space.refused() => has_refused = true,
        }
        core.log.set_flushed(core.replica.flushed_index());
        if core.log.is_short_of_space() && looked_for_space.elapsed() >= LOOK_FOR_SPACE_EVERY {
            core.log.look_for_space();
            looked_for_space = Instant::now();
        }
        watch_space(core, has_refused).await;
    }
}

async fn say_name(core: &Core) {
    while !publish(core).await {
        tokio::time::sleep(FIRST_TICK).await;
    }
}

async fn keep_up(core: &Core) {
    let mut is_joint = false;
    let mut absence = Absence::default();
    loop {
        tokio::time::sleep(TICK).await;
        core.settle_what_is_owed().await;
        let members = core.membership();
        let ids = members.nodes().map(|(id, _)| *id);
        core.seen_members.lock().extend(ids);
        if core.is_leading() {
            absence.was_in |= core.is_agreed_member() == Some(true);
            // Seen twice in a row: a joint membership that is just being left does not count.
            let was_joint = std::mem::replace(&mut is_joint, core.is_membership_joint());
            if was_joint && is_joint {
                core.leave_joint_membership().await;
            }
            core.promote_those_who_wait().await;
            core.clear_alarms_of_removed().await;
        } else {
            is_joint = false;
        }
        // A leader that nobody answers may be removed, too, and nobody tells it.
        let is_heard = core.heard_leadership().leader == Some(core.member_id);
        if !is_heard && absence.is_removed(core).await {
            core.fail("this member was removed from the cluster");
            return;
        }
    }
}

/// Detects that this member was removed. Either it applies the membership without itself; or it hears from no
/// leader, since nobody sends to a removed member, and from time to time asks the others whether it still is
/// one. Only an answer that a leader confirmed after the question counts: the others may know an older
/// membership than this member does.
///
/// Invariant: a member that is missing in a later committed membership stops. It never comes back under this
/// id: a member that is added again has another one.
#[derive(Debug, Default)]
struct Absence {
    asked: Option<Instant>,
    was_in: bool,
    /// Since when its own membership shows the removal.
    gone: Option<Instant>,
}

impl Absence {
    /// Time for the reply to a client that removed this member through itself.
    const FAREWELL: Duration = Duration::from_secs(1);

    async fn is_removed(&mut self, core: &Core) -> bool {
        match core.is_agreed_member() {
            Some(true) => self.was_in = true,
            Some(false) if self.was_in => {
                let gone = *self.gone.get_or_insert_with(Instant::now);
                return gone.elapsed() >= Absence::FAREWELL;
            }
            // About to be one, by entries from before it was added; or restarted.
            Some(false) | None => {}
        }
        if core.heard_leadership().leader.is_some() {
            self.asked = None;
            return false;
        }
        let pause = 2 * core.options.election_timeout;
        if self.asked.is_some_and(|asked| asked.elapsed() < pause) {
            return false;
        }
        self.asked = Some(Instant::now());
        // Without any known member it is new; `admission` takes care of it.
        let membership = core.membership();
        for (id, member) in membership.nodes().filter(|(id, _)| **id != core.member_id) {
            let asked = core.peers.client(*id, member);
            let answer = tokio::time::timeout(pause, asked.agreed_members()).await;
            match answer {
                Ok(Ok(answer)) if answer.cluster_id == core.cluster_id => {
                    return answer
                        .members
                        .iter()
                        .all(|member| member.id != core.member_id);
                }
                _ => {}
            }
        }
        false
    }
}

/// Publishes this member's name, client URLs and command version.
async fn publish(core: &Core) -> bool {
    let mine = core.membership().get_node(&core.member_id).cloned();
    let Some(mine) = mine else {
        return false;
    };
    let options = &core.options;
    if mine.name == options.name
        && mine.client_urls == options.advertise_client_urls
        && mine.command_version == options.command_version
    {
        return true;
    }
    let question = LeaderRequest::MemberPublish {
        id: core.member_id,
        name: options.name.clone(),
        client_urls: options.advertise_client_urls.clone(),
        command_version: options.command_version,
    };
    core.ask_leader(&Caller::Process, question).await.is_ok()
}

impl Core {
    /// Clears the space alarms of removed members: otherwise writes would be refused for ever. As in etcd, an
    /// alarm that a client raised for member 0 stays.
    pub(crate) async fn clear_alarms_of_removed(&self) {
        let alarms = self.replica.alarms();
        if alarms.is_empty() {
            return;
        }
        let membership = self.membership();
        let of_strangers: Vec<NodeId> = alarms
            .into_iter()
            .filter(|(id, kind)| *kind == AlarmKind::NoSpace && membership.get_node(id).is_none())
            .map(|(id, _)| id)
            .collect();
        let is_seen = |id: &NodeId| self.seen_members.lock().contains(id);
        if !of_strangers.iter().all(is_seen) {
            self.see_members_of_the_log().await;
        }
        let of_removed = of_strangers.into_iter().filter(is_seen);
        let commands: Vec<Command> = of_removed
            .map(|member| Command::Alarm {
                member,
                kind: AlarmKind::NoSpace,
                is_raised: false,
            })
            .collect();
        if commands.is_empty() {
            return;
        }
        tracing::info!(
            ?commands,
            "the alarm for space of a removed member is cleared"
        );
        let (number, proposal) = self.waiters.propose(&commands, Vec::new());
        let deadline = Instant::now() + ALARM_TIMEOUT;
        self.hand_in_once(number, proposal, deadline).await;
    }

    /// Notes the members of the memberships still in the log: one may have been removed before this member
    /// was started. Done once: later memberships are seen as they come.
    async fn see_members_of_the_log(&self) {
        if self.has_seen_log.swap(true, Ordering::Relaxed) {
            return;
        }
        let see = |id| {
            self.seen_members.lock().insert(id);
        };
        if let Err(error) = self.log.search_members(see).await {
            tracing::warn!(%error, "the log was not searched for members that were removed");
        }
    }

    /// Whether requests that take space are refused: some member has raised the alarm, or this one is about
    /// to.
    pub(crate) fn is_out_of_space(&self) -> bool {
        self.replica.is_out_of_space() || self.log.is_short_of_space()
    }

    /// Admits a request that takes space: its bytes are reserved until the result is dropped.
    ///
    /// # Errors
    /// `Refused` while an alarm is raised, and where the request would exceed the quota.
    pub(crate) fn reserve_space(&self, bytes: u64) -> Result<Reserved<'_>> {
        if self.is_out_of_space() {
            // As in applying commands: the alarm about differing data comes first.
            let mut alarms = self.replica.alarms().into_iter();
            return Err(match alarms.any(|(_, kind)| kind == AlarmKind::Corrupt) {
                true => Refusal::Corrupt.into(),
                false => Refusal::NoSpace.into(),
            });
        }
        let quota = self.options.quota_bytes;
        let data_bytes = || self.replica.db().data_bytes();
        let reserved = self.space.reserve(bytes, quota, data_bytes);
        reserved.ok_or_else(|| Refusal::NoSpace.into())
    }
}

/// Raises the alarm when the space is used up, and clears it when there is room again. With `has_refused` a
/// request did not fit.
async fn watch_space(core: &Core, has_refused: bool) {
    let quota = core.options.quota_bytes;
    let stats = core.replica.db().stats().engine;
    if let Some(error) = &stats.background_error
        && error.is_corruption()
    {
        core.damage.note(error.to_string());
    }
    let size = core.replica.db().data_bytes();
    let has_failed = matches!(
        stats.background_error,
        Some(bowline_storage::Error::NoSpace { .. })
    );
    let is_disk_full = has_failed || core.log.is_short_of_space();
    let alarm = (core.member_id, AlarmKind::NoSpace);
    let is_raised = core.replica.alarms().contains(&alarm);
    // With a margin, or the alarm would flap.
    let has_room = !is_disk_full && (quota == 0 || size < quota - quota / 10);
    // A request that is refused for its own size while there is room for others is no alarm.
    let is_full = is_disk_full || (quota > 0 && size > quota) || (has_refused && !has_room);
    let change = match is_raised {
        false if is_full => true,
        true if has_room => false,
        _ => return,
    };
    let command = Command::Alarm {
        member: core.member_id,
        kind: AlarmKind::NoSpace,
        is_raised: change,
    };
    let (number, proposal) = core.waiters.propose(&[command], Vec::new());
    let timeout = core.options.request_timeout.min(ALARM_TIMEOUT);
    let deadline = Instant::now() + timeout;
    // It is retried until it is committed.
    if let Some(more) = core.log_limits.alarm.admit_now() {
        tracing::warn!(
            is_raised = change,
            size,
            quota,
            "the alarm for space changes{more}"
        );
    }
    core.hand_in_once(number, proposal, deadline).await;
}
