//! The state of an opened log.

use bowline_storage::vfs::MemoryVfs;

use super::*;

fn vfs() -> Arc<dyn Vfs> {
    Arc::new(MemoryVfs::default())
}

#[test]
fn what_is_below_the_tables_stays_readable_and_what_is_known_committed_is_kept() {
    let vfs = vfs();
    block_on(async {
        let mut store = open(vfs.clone(), 0, None);
        append_durably(&mut store, (0..10).map(|index| entry(1, index))).await;
        store
            .save_committed(Some(log_id(1, 1, 7)))
            .await
            .expect("note");
        append_durably(&mut store, [entry(1, 10)]).await;
        store.close().expect("close");

        let applied = Some(log_id(1, 1, 4));
        let mut store = open(vfs.clone(), 5, applied);
        let state = store.get_log_state().await.expect("state");
        assert_eq!(state.last_purged_log_id, None);
        assert_eq!(state.last_log_id, Some(log_id(1, 1, 10)));
        assert_eq!(
            store.read_committed().await.expect("read"),
            Some(log_id(1, 1, 7))
        );
        assert_eq!(ids(&mut store).await.len(), 11);
        assert!(store.holds(&log_id(1, 1, 3)).await.expect("look"));
        assert!(!store.holds(&log_id(2, 1, 3)).await.expect("look"));
        assert!(!store.holds(&log_id(1, 1, 11)).await.expect("look"));
    });
}

#[test]
fn entries_go_when_they_are_purged_and_in_the_tables() {
    let vfs = vfs();
    block_on(async {
        let mut store = open(vfs.clone(), 0, None);
        for index in 0..200 {
            append_durably(&mut store, [entry(1, index)]).await;
        }
        let first = |store: &LogStore| store.with_log(Log::first_index).expect("open");
        store.purge(log_id(1, 1, 150)).await.expect("purge");
        store.flush().await.expect("flush");
        assert_eq!(first(&store), 1, "the tables do not have it");
        store.set_flushed(101);
        store.flush().await.expect("flush");
        let kept = first(&store);
        assert!((2..=102).contains(&kept), "{kept}");
        assert_eq!(ids(&mut store).await.first(), Some(&(1, 151)));
        store.close().expect("close");

        let mut store = open(vfs.clone(), 101, Some(log_id(1, 1, 100)));
        let purged = store.last_purged_log_id().expect("something is gone");
        assert_eq!(
            purged.index,
            kept - 1,
            "the first that is left counts as purged"
        );
        assert_eq!(ids(&mut store).await.first(), Some(&(1, kept)));
    });
}

#[test]
fn what_an_embedded_database_wrote_counts_as_purged() {
    let vfs = vfs();
    vfs.create_dir(Path::new(DIR)).expect("make");
    let mut log = open_log(vfs.clone(), 0, &mut Replay::new(DIR.into())).expect("log");
    for number in 0..30u8 {
        log.stage(&[1, number]);
    }
    log.write().expect("write");
    log.close().expect("close");
    block_on(async {
        let mut store = open(vfs.clone(), 20, None);
        let before = Some(log_id(0, 0, 29));
        assert_eq!(store.last_purged_log_id(), before);
        assert_eq!(store.last_log_id(), before);
        append_durably(&mut store, (30..35).map(|index| entry(1, index))).await;
        store.close().expect("close");

        let mut store = open(vfs.clone(), 30, before);
        assert_eq!(store.last_purged_log_id(), before);
        assert_eq!(ids(&mut store).await.len(), 5);
        store.close().expect("close");

        let mut store = open(vfs.clone(), 33, Some(log_id(1, 1, 32)));
        assert_eq!(store.last_purged_log_id(), Some(log_id(1, 1, 30)));
        assert_eq!(ids(&mut store).await.len(), 4);
    });
}

#[test]
fn a_log_that_contradicts_the_tables_is_refused() {
    let vfs = vfs();
    block_on(async {
        let mut store = open(vfs.clone(), 0, None);
        append_durably(&mut store, (0..10).map(|index| entry(1, index))).await;
        store.close().expect("close");
        let member = Arc::new(MemberFile::open(&*vfs, Path::new(DIR)).expect("member"));
        let mut replay = Replay::new(DIR.into());
        let log = open_log(vfs.clone(), 5, &mut replay).expect("log");
        let other = Some(log_id(2, 1, 4));
        let opened = LogStore::open(log, &replay, 5, other, member, LogStoreOptions::default());
        assert!(matches!(opened, Err(LogStoreError::Contradiction(_))));
    });
}

#[test]
fn a_truncation_that_the_thread_has_not_reached_hides_nothing() {
    let vfs = vfs();
    block_on(async {
        let mut store = open(vfs.clone(), 0, None);
        let mut expected: Vec<(u64, u64)> = Vec::new();
        let mut random = fastrand::Rng::with_seed(8);
        for term in 1..400 {
            let keep = random.usize(expected.len().saturating_sub(20)..=expected.len());
            if keep > 0 {
                let (term, index) = expected[keep - 1];
                store
                    .truncate_after(Some(log_id(term, 1, index)))
                    .await
                    .expect("cut");
            } else {
                store.truncate_after(None).await.expect("cut");
            }
            expected.truncate(keep);
            let indices = keep as u64..keep as u64 + random.u64(1..30);
            let entries = indices.clone().map(|index| entry(term, index));
            drop(append(&mut store, entries).await);
            expected.extend(indices.map(|index| (term, index)));
            if term % 10 == 0 {
                assert_eq!(ids(&mut store).await, expected);
            }
            if term % 50 == 0 {
                store.flush().await.expect("flush");
            }
        }
        store.close().expect("close");
        let mut store = open(vfs.clone(), 0, None);
        assert_eq!(ids(&mut store).await, expected);
    });
}
