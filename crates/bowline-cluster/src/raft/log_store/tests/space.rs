//! A full disk: work that needs room waits for it, in order, and nothing is promised meanwhile.

use std::time::Duration;

use bowline_testing::SimDisk;
use bowline_testing::fault::{Call, FaultVfs};

use super::*;

/// The interval of checks.
const PAUSE: Duration = Duration::from_millis(1);

/// Appends from `next` on until the log waits for room; returns the number of entries, and the receiver of
/// the last.
async fn fill(store: &mut LogStore, next: u64) -> (u64, oneshot::Receiver<Result<(), io::Error>>) {
    for index in next..next + 10_000 {
        let mut waiting = append(store, [entry(1, index)]).await;
        let waits_for_room = async {
            while !store.waits_for_room() {
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::select! {
            biased;
            done = &mut waiting => done.expect("called back").expect("durable"),
            () = waits_for_room => return (index + 1, waiting),
        }
    }
    panic!("the disk does not fill up");
}

/// Waits until the log has tried twice more to allocate a segment.
async fn it_tries_again(disk: &FaultVfs) {
    let attempts = || disk.counts().get(Call::Create);
    let at = attempts();
    let again = async {
        while attempts() < at + 2 {
            tokio::time::sleep(PAUSE).await;
        }
    };
    let again = tokio::time::timeout(Duration::from_secs(20), again).await;
    again.expect("it tries again");
}

fn limited() -> FaultVfs {
    FaultVfs::new(SimDisk::new())
}

#[test]
fn what_finds_no_room_waits_and_nothing_overtakes_it() {
    let disk = limited();
    block_on(async {
        let mut store = open(Arc::new(disk.clone()), 0, None);
        disk.limit_space(0);
        let (count, mut waiting) = fill(&mut store, 0).await;
        assert!(store.waits_for_room() && store.is_short_of_space());
        // Queued entries are readable, as always.
        assert_eq!(ids(&mut store).await.len() as u64, count);
        let mut voter = store.clone();
        let voting = tokio::spawn(async move { voter.save_vote(&Vote::new(3, 1)).await });
        it_tries_again(&disk).await;
        assert!(
            !voting.is_finished(),
            "it would say that the entry is durable"
        );
        assert!(waiting.try_recv().is_err());
        assert_eq!(store.member().read_vote(), None);
        disk.lift_space_limit();
        waiting.await.expect("called back").expect("durable");
        voting.await.expect("no panic").expect("saved");
        assert!(!store.waits_for_room() && !store.is_short_of_space());
        append_durably(&mut store, [entry(1, count)]).await;
        store.close().expect("close");
        let mut again = open(Arc::new(disk.clone()), 0, None);
        assert_eq!(ids(&mut again).await.len() as u64, count + 1);
    });
}

/// The room may come from the log itself.
#[test]
fn what_waits_for_room_gets_that_of_superfluous_entries() {
    let disk = limited();
    block_on(async {
        let mut store = open(Arc::new(disk.clone()), 0, None);
        append_durably(&mut store, (0..200).map(|index| entry(1, index))).await;
        disk.limit_space(0);
        let (next, waiting) = fill(&mut store, 200).await;
        store.set_flushed(150);
        store.purge(log_id(1, 1, 149)).await.expect("purge");
        waiting.await.expect("called back").expect("durable");
        assert_eq!(ids(&mut store).await.len() as u64, next - 150);
    });
}

#[test]
fn a_log_that_waits_for_room_can_be_closed() {
    let disk = limited();
    block_on(async {
        let mut store = open(Arc::new(disk.clone()), 0, None);
        disk.limit_space(0);
        let (count, waiting) = fill(&mut store, 0).await;
        store.close().expect_err("not all of it is written");
        waiting
            .await
            .expect("called back")
            .expect_err("it is not durable");
        disk.lift_space_limit();
        let mut again = open(Arc::new(disk.clone()), 0, None);
        assert_eq!(ids(&mut again).await.len() as u64, count - 1);
    });
}
