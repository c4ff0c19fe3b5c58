//! A power loss at any point: the log is not older than what was acknowledged.

use bowline_testing::{Images, SimDisk};
use tokio::sync::oneshot::error::TryRecvError;

use super::*;

/// Marks: this many states were acknowledged; the tables hold this much; a restart was recorded, and has
/// returned.
const FLUSHED: u64 = 10_000;
const RESTARTING: u64 = 100_000;
const RESTARTED: u64 = 100_001;
/// The Raft index behind the gap.
const BEHIND_GAP: u64 = 100;

type Ids = Vec<(u64, u64)>;

struct Run {
    disk: SimDisk,
    store: LogStore,
    /// The log's contents after each step; a step is acknowledged when its number is marked.
    states: Vec<Ids>,
}

impl Run {
    fn now(&self) -> Ids {
        self.states.last().cloned().unwrap_or_default()
    }

    fn acknowledged(&self) {
        self.disk.mark(self.states.len() as u64 - 1);
    }

    async fn append(&mut self, term: u64, indices: std::ops::Range<u64>) {
        let mut state = self.now();
        state.extend(indices.clone().map(|index| (term, index)));
        self.states.push(state);
        append_durably(&mut self.store, indices.map(|index| entry(term, index))).await;
        self.acknowledged();
    }

    async fn cut(&mut self, term: u64, last: u64) {
        let mut state = self.now();
        state.retain(|(_, index)| *index <= last);
        self.states.push(state);
        let last = Some(log_id(term, 1, last));
        self.store.truncate_after(last).await.expect("cut");
    }

    async fn give_up(&mut self, term: u64, last: u64) {
        self.disk.mark(FLUSHED + last + 1);
        self.store.set_flushed(last + 1);
        self.store
            .purge(log_id(term, 1, last))
            .await
            .expect("purge");
        self.store.flush().await.expect("flush");
    }
}

async fn work(disk: &SimDisk, vouch_after: Duration) -> Vec<Ids> {
    let mut run = Run {
        disk: disk.clone(),
        store: open_vouching(Arc::new(disk.clone()), 0, None, vouch_after),
        states: vec![Vec::new()],
    };
    run.append(1, 0..5).await;
    run.append(1, 5..20).await;
    run.cut(1, 9).await;
    run.append(2, 10..15).await;
    run.give_up(1, 7).await;
    let vote = Vote::new(3, 1);
    run.store.save_vote(&vote).await.expect("vote");
    // Concurrently: two truncations, and appends that share a flush.
    let first = append(&mut run.store, (15..60).map(|index| entry(3, index))).await;
    run.store
        .truncate_after(Some(log_id(3, 1, 49)))
        .await
        .expect("cut");
    let second = append(&mut run.store, (50..55).map(|index| entry(4, index))).await;
    let mut state = run.now();
    // In one group or in several.
    for (term, indices, kept) in [(3, 15..60, 59), (4, 50..55, 49)] {
        state.retain(|(_, index)| *index <= kept.min(indices.start - 1));
        run.states.push(state.clone());
        state.extend(indices.map(|index| (term, index)));
        run.states.push(state.clone());
    }
    for callback in [first, second] {
        callback.await.expect("called back").expect("durable");
    }
    run.acknowledged();
    run.give_up(3, 48).await;
    // A snapshot up to the entry before the gap.
    disk.mark(RESTARTING);
    run.states.push(Vec::new());
    let last = log_id(3, 1, BEHIND_GAP - 1);
    run.store.restart_behind(last).await.expect("restart");
    run.acknowledged();
    disk.mark(RESTARTED);
    run.store.set_flushed(BEHIND_GAP);
    run.append(5, 100..110).await;
    run.cut(5, 104).await;
    run.append(6, 105..108).await;
    run.states.clone()
}

/// The log on a disk, and the disk after a power loss once it is open. It must be one of the states from the last that was
/// acknowledged on. `None` before there is a log; `place` is for messages.
fn contents(disk: &SimDisk, marks: &[u64], states: &[Ids], place: &str) -> Option<(Ids, SimDisk)> {
    let above = |from: u64| {
        marks
            .iter()
            .copied()
            .filter(move |mark| (from..).contains(mark))
    };
    let step = marks.iter().copied().filter(|mark| *mark < FLUSHED).max();
    let step = step.unwrap_or(0) as usize;
    let flushed = above(FLUSHED).filter(|mark| *mark < RESTARTING).max();
    let mut flushed = flushed.map_or(0, |mark| mark - FLUSHED);
    if marks.contains(&RESTARTING) {
        flushed = BEHIND_GAP;
        if !marks.contains(&RESTARTED) {
            Log::discard(disk, &Path::new(DIR).join("log")).expect("discard");
        }
    } else if step == 0 && !MemberFile::exists(disk, Path::new(DIR)).unwrap_or(false) {
        return None;
    }
    let is_gone = |state: &Ids| -> Ids {
        let kept = state.iter().copied().filter(|(_, index)| *index >= flushed);
        kept.collect()
    };
    let applied = (flushed > 0).then(|| log_id(u64::from(flushed < BEHIND_GAP), 1, flushed - 1));
    // The id of the applied entry, as its owner knows it.
    let applied = applied.map(|applied| {
        let known = states
            .iter()
            .flatten()
            .filter(|(_, index)| *index == applied.index);
        let term = known.map(|(term, _)| *term).filter(|term| *term <= 3).max();
        log_id(term.unwrap_or(5), 1, applied.index)
    });
    block_on(async {
        let mut store = open(Arc::new(disk.clone()), flushed, applied);
        let found = is_gone(&ids(&mut store).await);
        let position = states[step..]
            .iter()
            .position(|state| is_gone(state) == found);
        assert!(position.is_some(), "{place}: step {step}, found {found:?}");
        Some((found, disk.after_power_loss()))
    })
}

#[test]
fn what_was_acknowledged_is_there_and_what_was_cut_is_not() {
    // Without vouching, and with vouching whenever the thread is idle.
    for vouch_after in [Duration::from_secs(3_600), Duration::ZERO] {
        let disk = SimDisk::new();
        let states = block_on(work(&disk, vouch_after));
        let mut images = 0;
        for image in Images::all(&disk.recording(), 3) {
            contents(&image.build(), &image.marks(), &states, &image.to_string());
            images += 1;
        }
        assert!(images > 500, "{images}");
    }
}

/// What a process that is killed has not flushed is read by the next one, which may send it and count on it. Every disk of
/// these tests was durable as a whole, so an opening that did not flush it was noticed by none.
#[test]
fn what_a_killed_process_left_unflushed_is_flushed_before_it_is_used() {
    let disk = SimDisk::new();
    let states = block_on(work(&disk, Duration::from_secs(3_600)));
    let recording = disk.recording();
    let mut ahead = 0;
    for point in 0..=recording.len() {
        let marks = recording.marks_until(point);
        let contents = |disk: &SimDisk, how: &str| {
            let place = format!("killed at point {point}{how}");
            contents(disk, &marks, &states, &place)
        };
        let killed = SimDisk::killed_at(&recording, point);
        let durable = contents(&killed.after_power_loss(), ", and a power loss");
        let Some((shown, later)) = contents(&killed, "") else {
            continue;
        };
        ahead += u32::from(durable.is_none_or(|(durable, _)| durable != shown));
        let again = contents(&later, ", opened, and a power loss");
        let again = again.map(|(again, _)| again);
        assert_eq!(again, Some(shown), "killed at point {point}");
    }
    assert!(ahead >= 4, "{ahead}");
}

#[test]
fn after_a_failed_flush_no_callback_succeeds() {
    let disk = SimDisk::new();
    block_on(async {
        let mut store = open(Arc::new(disk.clone()), 0, None);
        append_durably(&mut store, [entry(1, 0)]).await;
        disk.fail_syncs(1);
        for index in 1..4 {
            let callback = append(&mut store, [entry(1, index)]).await;
            let error = callback.await.expect("called back").expect_err("failed");
            assert!(
                error.to_string().contains("takes no more writes"),
                "{error}"
            );
        }
        store
            .save_vote(&Vote::new(3, 1))
            .await
            .expect_err("refused");
        store.close().expect_err("unknown");
    });
}

#[test]
fn an_append_behind_a_gap_waits_for_the_restart() {
    let disk = SimDisk::new();
    block_on(async {
        let mut store = open(Arc::new(disk.clone()), 0, None);
        append_durably(&mut store, (0..5).map(|index| entry(1, index))).await;
        store.purge(log_id(2, 1, 9)).await.expect("purge");
        assert_eq!(store.last_log_id(), Some(log_id(2, 1, 9)));
        assert!(store.holds(&log_id(2, 1, 9)).await.expect("look"));
        let mut waiting = append(&mut store, [entry(2, 10)]).await;
        assert_eq!(ids(&mut store).await, [(2, 10)], "readable at once");
        wait_until_at_rest(&store).await;
        assert!(
            matches!(waiting.try_recv(), Err(TryRecvError::Empty)),
            "nothing is promised before the gap is made"
        );
        store
            .restart_behind(log_id(2, 1, 9))
            .await
            .expect("restart");
        waiting.await.expect("called back").expect("durable");
        append_durably(&mut store, [entry(2, 11)]).await;
        assert_eq!(ids(&mut store).await, [(2, 10), (2, 11)]);
        store.close().expect("close");
        let mut again = open(Arc::new(disk.clone()), 10, Some(log_id(2, 1, 9)));
        assert_eq!(ids(&mut again).await, [(2, 10), (2, 11)]);
        assert_eq!(again.last_purged_log_id(), Some(log_id(2, 1, 9)));
    });
}
