//! Closing while others are at work.

use std::sync::Arc;
use std::time::Duration;

use bowline::{Error, Range};
use bowline_storage::sync::thread;
use bowline_storage::vfs::MemoryVfs;

use crate::explore::explore;
use crate::vfs::StepVfs;
use crate::{builder, bytes, get};

/// A close did not wait for a compaction that somebody had asked for. What that did afterwards, it did to the files of the
/// next owner of the directory: it removed tables by their names, which are given again, and cut the manifest. Found by
/// review.
#[test]
fn a_close_waits_for_a_compaction_that_was_asked_for() {
    let name = "a_close_waits_for_a_compaction_that_was_asked_for";
    explore(name, 4_000, || {
        let vfs = Arc::new(StepVfs::new(MemoryVfs::default()));
        let db = builder(vfs.clone()).open("/db").expect("it opens");
        for value in 1..3 {
            db.put("old", bytes(value)).expect("a put");
            db.flush().expect("a flush");
        }
        let compactor = {
            let db = db.clone();
            // It may come too late.
            thread::spawn(move || drop(db.compact()))
        };
        db.close().expect("a close");
        let next = builder(vfs.clone()).open("/db").expect("it opens again");
        next.put("new", bytes(1)).expect("a put");
        next.flush().expect("a flush");
        compactor.join().expect("no panic");
        next.close().expect("a close");
        let last = builder(vfs).open("/db").expect("it opens at last");
        assert_eq!((get(&last, "old"), get(&last, "new")), (2, 1));
        assert!(last.check().expect("a check").is_clean());
    });
}

/// A close comes between writers, a waiting watcher, a flush and another close. All of them return,
/// with a result or `Closed`; what was acknowledged is there when it is opened again.
#[test]
fn a_close_leaves_nobody_waiting_and_loses_nothing() {
    explore(
        "a_close_leaves_nobody_waiting_and_loses_nothing",
        12_000,
        || {
            let vfs = Arc::new(StepVfs::new(MemoryVfs::default()));
            let db = builder(vfs.clone()).open("/db").expect("it opens");
            let is_closed = |error: &Error| {
                matches!(
                    error,
                    Error::Closed | Error::Storage(bowline_storage::Error::Closed)
                )
            };
            let writers: Vec<_> = (0..2)
                .map(|number| {
                    let db = db.clone();
                    thread::spawn(move || {
                        let key = format!("k{number}");
                        let mut acknowledged = 0;
                        for value in 1..4 {
                            match db.put(&key, bytes(value)) {
                                Ok(_) => acknowledged = value,
                                Err(error) => {
                                    assert!(is_closed(&error), "{error}");
                                    break;
                                }
                            }
                        }
                        acknowledged
                    })
                })
                .collect();
            let mut watcher = db.watch(Range::all()).start().expect("a watch");
            let watching = thread::spawn(move || {
                let error = loop {
                    if let Err(error) = watcher.recv_timeout(Duration::from_secs(1 << 30)) {
                        break error;
                    }
                };
                assert!(is_closed(&error), "{error}");
            });
            let flusher = {
                let db = db.clone();
                thread::spawn(move || {
                    if let Err(error) = db.flush() {
                        assert!(is_closed(&error), "{error}");
                    }
                })
            };
            let closer = {
                let db = db.clone();
                thread::spawn(move || db.close().expect("a close"))
            };
            db.close().expect("a close");
            closer.join().expect("no panic");
            let acknowledged: Vec<_> = writers
                .into_iter()
                .map(|writer| writer.join().expect("no panic"))
                .collect();
            watching.join().expect("no panic");
            flusher.join().expect("no panic");
            drop(db);
            let db = builder(vfs).open("/db").expect("it opens again");
            for (number, acknowledged) in acknowledged.into_iter().enumerate() {
                let found = get(&db, &format!("k{number}"));
                assert!(found >= acknowledged, "{found} after {acknowledged}");
            }
        },
    );
}
