//! Correct histories.

use super::judge;
use crate::isolation::{Level, Trust};

#[track_caller]
fn accepts(text: &str) {
    for trust in [Trust::Nothing, Trust::Read, Trust::Commits] {
        for level in [Level::Serializable, Level::Snapshot] {
            let report = judge(text, level, trust);
            assert!(report.anomalies.is_empty(), "{trust:?}: {report}");
        }
    }
}

#[test]
fn nothing_and_one_transaction() {
    accepts("");
    accepts("t 0 1 2 committed 1 2 r x 0; w x 1; r x 1; d x 2; r x 0; w x 3; s a z x=3");
}

#[test]
fn writers_in_any_order_that_time_leaves_open() {
    // T1 began first, ended last, and came between the two others.
    accepts(
        "t 0 2 3 committed 1 2 r x 0; w x 1\n\
         t 1 1 9 committed 2 3 r x 1@2; w x 2\n\
         t 2 8 10 committed 3 4 r x 2@3; w x 3",
    );
}

#[test]
fn a_long_reader_sees_its_snapshot_only() {
    accepts(
        "t 0 1 2 committed 1 2 a l 1; w x 2\n\
         t 1 3 20 committed 2 - r l [1]@2; s a z l=[1]@2 x=2@2\n\
         t 0 4 5 committed 2 3 r l [1]@2; a l 3; d x 4\n\
         t 0 6 7 committed 3 - r l [1,3]@3; r x 0; s a z l=[1,3]",
    );
}

#[test]
fn blind_writes_and_aborted_ones() {
    accepts(
        "t 0 1 5 committed 1 3 w x 1\n\
         t 1 2 6 committed 1 2 w x 2\n\
         t 2 3 7 aborted 1 - w x 3; r x 3\n\
         t 3 8 9 committed 3 - r x 1@3",
    );
}

#[test]
fn several_appends_of_one_transaction() {
    accepts(
        "t 0 1 2 committed 1 2 a l 1; a l 2; r l [1,2]\n\
         t 1 3 4 committed 2 3 r l [1,2]@2; a l 3; r l [1,2,3]\n\
         t 1 5 6 committed 3 - r l [1,2,3]@3",
    );
}

#[test]
fn an_unknown_transaction_may_have_happened_or_not() {
    let history = "t 0 1 - unknown - - w x 1\n\
                   t 1 2 3 committed - - r x 0\n";
    accepts(history);
    accepts(&format!("{history}t 1 4 5 committed - - r x 1"));
}
