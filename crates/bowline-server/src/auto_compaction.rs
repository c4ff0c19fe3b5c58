//! Automatic compaction: the leader trims history that is older than the settings say, as etcd's does.
//!
//! *Periodic*, with a retention: every member notes its revision ten times per retention, or ten times an hour
//! when the retention is longer. The first compaction comes one retention after the start; later ones follow
//! every retention, or every hour when that is shorter. Each compacts to the oldest noted revision that the
//! retention still needs. A failed one is tried again at the next note, a tenth later. *By revisions*: every
//! five minutes, to the present revision less the retention.
//!
//! Every member notes revisions and only the leader compacts: a new leader goes on with its own notes.
//!
//! Invariants: the compaction is an ordinary command of the log; one is under way at a time; a revision is
//! never compacted before it has been old for the retention, by the monotonic clock of the leader.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bowline::Revision;
use bowline_replica::{Caller, Command, Refusal};

use crate::config::AutoCompaction;
use crate::context::{Context, stopped};

const HOUR: Duration = Duration::from_secs(3600);
/// The interval of compactions by revisions.
const BY_REVISIONS: Duration = Duration::from_secs(300);
/// The notes of a retention, or of an hour.
const NOTES: u32 = 10;
/// The interval in which the clock is read: a tenth of a note's, within these bounds.
const TICK_MIN: Duration = Duration::from_millis(5);
const TICK_MAX: Duration = Duration::from_millis(250);

/// Compacts until the server stops.
pub(crate) async fn run(context: Arc<Context>, setting: AutoCompaction) {
    let mut stopping = context.stopping();
    tokio::select! {
        () = keep_compacting(&context, setting) => {}
        () = stopped(&mut stopping) => {}
    }
}

async fn keep_compacting(context: &Context, setting: AutoCompaction) {
    let now = || context.client.clock().monotonic();
    let revision = || context.client.db().revision();
    let mut schedule = Schedule::start(setting, now(), revision());
    // The clock may be one that a test moves, so it is polled.
    let tick = (schedule.interval / NOTES).clamp(TICK_MIN, TICK_MAX);
    let mut has_failed = false;
    loop {
        tokio::time::sleep(tick).await;
        let Some(target) = schedule.look(now(), revision(), context.leads()) else {
            context.compaction_looks.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        match compact(context, target).await {
            Ok(()) => {
                has_failed = false;
                schedule.succeeded(now(), target);
            }
            // Of failures in a row, the first is logged.
            Err(_) if has_failed => {}
            Err(reason) => {
                has_failed = true;
                let again = schedule.interval;
                tracing::warn!(
                    "the automatic compaction to revision {target} failed and is tried again every {again:?}: {reason}"
                );
            }
        }
        context.compaction_looks.fetch_add(1, Ordering::Relaxed);
    }
}

async fn compact(context: &Context, revision: Revision) -> Result<(), String> {
    if revision <= context.client.compacted_revision() {
        return Ok(());
    }
    let client = context.client.by(&Caller::Process);
    let applied = client.execute(Command::Compact { revision }).await;
    match applied.map_err(|error| error.to_string())?.reply.result {
        Ok(_) => {
            tracing::info!("the history before revision {revision} was compacted automatically");
            Ok(())
        }
        // Somebody else did it in the meantime.
        Err(Refusal::Compacted { .. }) => Ok(()),
        Err(refusal) => Err(refusal.to_string()),
    }
}

/// What is to be compacted when: time and revisions are inputs.
#[derive(Debug)]
struct Schedule {
    setting: AutoCompaction,
    /// Between two notes.
    interval: Duration,
    /// When the next note is due.
    next: Duration,
    /// The noted revisions of a retention, oldest first.
    notes: VecDeque<Revision>,
    notes_max: u64,
    /// A compaction is due so long after the last.
    pause: Duration,
    last_success: Duration,
    last_target: Revision,
}

impl Schedule {
    fn start(setting: AutoCompaction, now: Duration, revision: Revision) -> Schedule {
        let (interval, notes_max, pause) = match setting {
            AutoCompaction::Periodic(retention) => {
                let interval = retention.min(HOUR) / NOTES;
                let notes = retention.as_nanos() / interval.as_nanos() + 1;
                (interval, notes as u64, retention)
            }
            AutoCompaction::Revisions(_) => (BY_REVISIONS, 1, Duration::ZERO),
        };
        Schedule {
            setting,
            interval,
            next: now + interval,
            notes: VecDeque::from([revision]),
            notes_max,
            pause,
            last_success: now,
            last_target: Revision::ZERO,
        }
    }

    /// The revision to compact to, if one is due now on this member.
    fn look(&mut self, now: Duration, revision: Revision, leads: bool) -> Option<Revision> {
        if now < self.next {
            return None;
        }
        self.next = now + self.interval;
        let target = match self.setting {
            AutoCompaction::Periodic(_) => self.oldest_note(revision),
            AutoCompaction::Revisions(kept) => revision.saturating_sub(kept),
        };
        let is_due = leads && now.saturating_sub(self.last_success) >= self.pause;
        if !is_due || target == 0 || target == self.last_target {
            return None;
        }
        if let AutoCompaction::Periodic(retention) = self.setting {
            // The first has waited for a whole retention.
            self.pause = retention.min(HOUR);
        }
        Some(target)
    }

    /// Notes a revision; returns the oldest note from before that.
    fn oldest_note(&mut self, revision: Revision) -> Revision {
        let oldest = self.notes.front().copied().unwrap_or(revision);
        self.notes.push_back(revision);
        if self.notes.len() as u64 > self.notes_max {
            self.notes.pop_front();
        }
        oldest
    }

    fn succeeded(&mut self, now: Duration, target: Revision) {
        // By revisions, the pause is the interval itself.
        self.last_success = now;
        self.last_target = target;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Looks every minute, at a revision that is the minute; returns when what was compacted to.
    fn compactions(
        setting: AutoCompaction,
        minutes: u32,
        leads: impl Fn(u32) -> bool,
        succeeds: impl Fn(u32) -> bool,
    ) -> Vec<(u32, u64)> {
        let mut schedule = Schedule::start(setting, Duration::ZERO, Revision::new(1));
        let mut seen = Vec::new();
        for minute in 1..=minutes {
            let now = MINUTE * minute;
            if let Some(target) =
                schedule.look(now, Revision::new(u64::from(minute) + 1), leads(minute))
            {
                seen.push((minute, target.get()));
                if succeeds(minute) {
                    schedule.succeeded(now, target);
                }
            }
        }
        seen
    }

    fn always(_: u32) -> bool {
        true
    }

    #[test]
    fn a_long_retention_is_waited_for_once_and_compacted_every_hour() {
        let ten_hours = AutoCompaction::Periodic(10 * HOUR);
        let seen = compactions(ten_hours, 13 * 60, always, always);
        // The oldest note is that of ten hours ago, and at most an interval older.
        assert_eq!(seen, [(600, 1), (660, 55), (720, 115), (780, 175)]);
    }

    #[test]
    fn a_short_retention_is_also_the_interval() {
        let half_an_hour = AutoCompaction::Periodic(30 * MINUTE);
        let seen = compactions(half_an_hour, 125, always, always);
        assert_eq!(seen, [(30, 1), (60, 28), (90, 58), (120, 88)]);
    }

    #[test]
    fn a_failed_compaction_is_tried_again_after_a_tenth() {
        let hour = AutoCompaction::Periodic(HOUR);
        let seen = compactions(hour, 140, always, |minute| minute >= 72);
        assert_eq!(seen, [(60, 1), (66, 1), (72, 7), (132, 67)]);
    }

    #[test]
    fn only_the_leader_compacts_and_a_new_one_goes_on_with_its_own_notes() {
        let hour = AutoCompaction::Periodic(HOUR);
        assert_eq!(compactions(hour, 500, |_| false, always), []);
        let seen = compactions(hour, 190, |minute| minute > 100, always);
        assert_eq!(seen, [(102, 37), (162, 97)]);
    }

    #[test]
    fn a_database_at_rest_is_compacted_once() {
        let mut schedule = Schedule::start(
            AutoCompaction::Periodic(HOUR),
            Duration::ZERO,
            Revision::new(7),
        );
        let mut count = 0;
        for minute in 1..1000 {
            let now = MINUTE * minute;
            if let Some(target) = schedule.look(now, Revision::new(7), true) {
                assert_eq!(target, 7);
                schedule.succeeded(now, target);
                count += 1;
            }
        }
        assert_eq!(count, 1);
    }

    #[test]
    fn revisions_are_compacted_every_five_minutes() {
        let seven = AutoCompaction::Revisions(7);
        let seen = compactions(seven, 22, always, always);
        assert_eq!(seen, [(10, 4), (15, 9), (20, 14)]);
        assert_eq!(compactions(seven, 22, |_| false, always), []);
        let seen = compactions(seven, 22, always, |minute| minute > 10);
        assert_eq!(seen, [(10, 4), (15, 9), (20, 14)]);
    }

    #[test]
    fn notes_are_bounded() {
        let mut schedule = Schedule::start(
            AutoCompaction::Periodic(2 * HOUR),
            Duration::ZERO,
            Revision::new(1),
        );
        for minute in 1..10_000 {
            schedule.look(MINUTE * minute, Revision::new(u64::from(minute)), false);
        }
        assert_eq!(schedule.notes.len(), 21);
    }
}
