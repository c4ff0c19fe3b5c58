//! The checker finds existing anomalies by their right names, and no others.

mod anomalies;
mod clean;
mod simulated;
mod store;

use super::{History, Level, Report, Trust, check};

fn judge(text: &str, level: Level, trust: Trust) -> Report {
    check(&History::parse(text).expect("it reads"), level, trust)
}

#[test]
fn a_history_reads_back_from_its_text() {
    let text = "t 0 1 4 committed 3 5 r x 0; r l [1,2]@3; r e []; s a b aa=4@2 ab=[5]; w x 7\n\
                t 1 2 - unknown - - a l 6; d x 8; e x 7@5\n\
                t 2 6 7 aborted 5 - \n\
                t 2 8 9 committed 5 - r x 7\n";
    let history = History::parse(text).expect("it reads");
    assert_eq!(history.to_string(), text);
    let commented = format!("# a comment\n\n{text}");
    assert_eq!(History::parse(&commented), Ok(history));
}

#[test]
fn what_is_no_history_is_refused_with_its_line() {
    for (text, what) in [
        ("t 0 1 4 done - - r x 0", "outcome"),
        ("t 0 1 4 committed -", "seven fields"),
        ("t 0 1 4 committed - - r x", "too short"),
        ("t 0 1 4 committed - - r x y", "no number"),
        ("t 0 1 4 committed - - q x 1", "no operation"),
        ("u 0 1 4 committed - - r x 1", "not a transaction"),
    ] {
        let error = History::parse(&format!("# first\n{text}")).expect_err(text);
        assert!(error.contains(what) && error.contains("line 2"), "{error}");
    }
}

#[test]
#[should_panic(expected = "a write's number is its own")]
fn two_writes_of_one_number_are_no_history() {
    judge(
        "t 0 1 2 committed - - w x 1\nt 0 3 4 committed - - w x 1",
        Level::Snapshot,
        Trust::Nothing,
    );
}
