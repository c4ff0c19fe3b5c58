//! Failures that were found once, each as small as it could be made. The head of a test tells
//! what happened.

use std::sync::Arc;

use bowline::{Background, CompactionOptions, Db};
use bowline_testing::SimDisk;

fn compaction_of_two_runs() -> CompactionOptions {
    CompactionOptions {
        runs_max: 2,
        ..CompactionOptions::default()
    }
}

/// A merge leaves tables of the lowest run alone that it does not touch. It took a table for
/// untouched that lay in the gap between two upper ones, merged those into one table across the
/// gap, and so made a run of tables that overlap: point reads then missed keys that scans showed.
/// Found by the crash tests, as blocks that were listed but did not exist.
#[test]
fn keys_between_two_merged_tables_are_found() {
    let db = Db::builder()
        .vfs(Arc::new(SimDisk::new()))
        .background(Background::Manual)
        .compaction(compaction_of_two_runs())
        .open("db")
        .expect("a new database");
    for key in ["m1", "m2"] {
        db.put(key, "between").expect("put");
    }
    db.compact_tables().expect("merges into the lowest run");
    for key in ["a", "z"] {
        db.put(key, "outside").expect("put");
        db.flush().expect("makes a run");
    }
    db.put("elsewhen", "runs what is due").expect("put");
    assert_eq!(
        db.stats().engine.levels[0][0].runs,
        0,
        "the runs were merged down"
    );
    for key in ["a", "m1", "m2", "z"] {
        assert!(db.get(key).expect("get").is_some(), "{key} is not found");
    }
    let keys: Vec<_> = db
        .range(..)
        .expect("range")
        .map(|e| e.expect("entry").key)
        .collect();
    assert!(keys.is_sorted(), "{keys:?}");
}
