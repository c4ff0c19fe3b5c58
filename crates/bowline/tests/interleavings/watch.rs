//! Watchers beside writers: the ring (of four slots here), history, and the wake-up signal.

use std::time::Duration;

use bowline::{Db, History, Range, Revision, Watcher};
use bowline_storage::sync::thread::{self, JoinHandle};
use bowline_storage::vfs::MemoryVfs;

use crate::explore::explore;
use crate::vfs::StepVfs;
use crate::{builder, bytes};

const COMMITS: u64 = 7;
/// A wait this long is one for a wake-up that has to come.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);

fn database(history: History) -> Db {
    let vfs = StepVfs::new(MemoryVfs::default());
    let builder = builder(std::sync::Arc::new(vfs)).history(history);
    builder.open("/db").expect("it opens")
}

/// Takes the changes up to the last commit: each revision once, in order, with its value.
fn follow(mut watcher: Watcher, from: u64, last: u64) {
    for revision in from..=last {
        let seen = loop {
            // A wait may end early, as if its time were over.
            if let Some(seen) = watcher.recv_timeout(FOR_EVER).expect("nothing was trimmed") {
                break seen;
            }
        };
        assert_eq!(seen.revision, revision);
        assert_eq!(seen.changes.len(), 1);
        let entry = &seen.changes[0].entry;
        assert_eq!(entry.value[..], bytes(revision));
        // The first one is at revision 2. Whatever was not looked up when it was written is known here.
        assert_eq!(
            (entry.create_revision.get(), entry.version),
            (2, revision - 1)
        );
    }
    assert!(watcher.try_recv().expect("nothing was trimmed").is_none());
}

fn spawn_writer(db: &Db, from: u64) -> JoinHandle<()> {
    let db = db.clone();
    thread::spawn(move || {
        for revision in from..from + COMMITS {
            let at = db.put("k", bytes(revision)).expect("a put");
            assert_eq!(at, revision);
        }
    })
}

/// A watcher from the past and one from now, while commits go around the ring and history is
/// flushed and merged: each gets each change once, in order, and is woken for it.
#[test]
fn each_watcher_gets_each_change_once() {
    explore("each_watcher_gets_each_change_once", 12_000, || {
        let db = database(History::All);
        for revision in 2..5 {
            db.put("k", bytes(revision)).expect("a put");
        }
        let last = 4 + COMMITS;
        let live = db.watch(Range::all()).start().expect("a watch");
        let writer = spawn_writer(&db, 5);
        let live = thread::spawn(move || follow(live, 5, last));
        let late = {
            let db = db.clone();
            thread::spawn(move || {
                let watcher = db
                    .watch(Range::all())
                    .from(Revision::new(2))
                    .start()
                    .expect("a watch");
                follow(watcher, 2, last);
            })
        };
        db.flush().expect("a flush");
        for thread in [writer, live, late] {
            thread.join().expect("no panic");
        }
    });
}

/// No history is kept but what a watcher has not read: its pin holds it, from whatever moment of
/// the commits and merges it began.
#[test]
fn a_watcher_that_begins_beside_merges_misses_nothing() {
    let test = "a_watcher_that_begins_beside_merges_misses_nothing";
    explore(test, 12_000, || {
        let db = database(History::None);
        let writer = spawn_writer(&db, 2);
        let keeper = {
            let db = db.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    db.compact().expect("a merge");
                }
            })
        };
        let watcher = db.watch(Range::all()).start().expect("a watch");
        let from = watcher.next_revision().get();
        follow(watcher, from, 1 + COMMITS);
        for thread in [writer, keeper] {
            thread.join().expect("no panic");
        }
    });
}
