//! A full disk: what needs room waits for it, in order, and nothing is promised meanwhile.

use std::time::Duration;

use bowline_testing::SimDisk;
use bowline_testing::fault::FaultVfs;

use super::*;

const PAUSE: Duration = Duration::from_millis(50);

/// Appends until something waits; returns how many entries there are, and who waits for the last.
async fn fill(store: &mut LogStore) -> (u64, oneshot::Receiver<Result<(), io::Error>>) {
    for index in 0..10_000 {
        let mut waiting = append(store, [entry(1, index)]).await;
        match tokio::time::timeout(PAUSE, &mut waiting).await {
            Ok(done) => done.expect("called back").expect("durable"),
            Err(_) => return (index + 1, waiting),
        }
    }
    panic!("the disk does not fill up");
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
        let (count, mut waiting) = fill(&mut store).await;
        assert!(store.waits_for_room() && store.is_short_of_space());
        // What was handed in can be read, as ever.
        assert_eq!(ids(&mut store).await.len() as u64, count);
        let mut voter = store.clone();
        let voting = tokio::spawn(async move { voter.save_vote(&Vote::new(3, 1)).await });
        tokio::time::sleep(PAUSE).await;
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
        let mut next = 200;
        let waiting = loop {
            let mut waiting = append(&mut store, [entry(1, next)]).await;
            next += 1;
            match tokio::time::timeout(PAUSE, &mut waiting).await {
                Ok(done) => done.expect("called back").expect("durable"),
                Err(_) => break waiting,
            }
        };
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
        let (count, waiting) = fill(&mut store).await;
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
