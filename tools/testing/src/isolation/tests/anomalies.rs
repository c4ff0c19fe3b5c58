//! One manual history for each anomaly; the checker finds that one and nothing else.

use super::judge;
use crate::isolation::{Level, Trust};

/// Judges under both levels without revisions; snapshot isolation allows it if `is_skew`.
#[track_caller]
fn finds(text: &str, names: &[&str], is_skew: bool) -> String {
    let report = judge(text, Level::Serializable, Trust::Nothing);
    assert_eq!(report.names(), names, "{report}");
    assert!(!report.is_clean());
    let report = judge(text, Level::Snapshot, Trust::Nothing);
    assert_eq!(report.is_clean(), is_skew, "{report}");
    report.to_string()
}

#[test]
fn internal_a_transaction_does_not_see_its_own_write() {
    finds("t 0 1 2 committed - - w x 1; r x 0", &["internal"], false);
    finds(
        "t 0 1 2 committed - - a l 1; r l [2]\nt 1 1 2 committed - - a l 2",
        &["internal"],
        false,
    );
    finds(
        "t 0 1 2 committed - - w x 1\nt 0 3 4 committed - - r x 1; d x 2; r x 1",
        &["internal"],
        false,
    );
    finds("t 0 1 2 committed - - w b 1; s a c", &["internal"], false);
}

#[test]
fn internal_two_reads_of_a_key_do_not_agree() {
    let history = "t 0 1 2 committed - - w x 1\n\
                   t 1 1 4 committed - - r x 0; r x 1";
    finds(history, &["internal"], false);
    let history = "t 0 1 2 committed - - w x 1\n\
                   t 1 1 4 committed - - s a z; s w y x=1";
    finds(history, &["internal"], false);
}

#[test]
fn internal_a_range_gives_what_is_not_in_it_or_twice() {
    let write = "t 0 1 2 committed - - w x 1\n";
    finds(
        &format!("{write}t 0 3 4 committed - - s a c x=1"),
        &["internal"],
        false,
    );
    finds(
        &format!("{write}t 0 3 4 committed - - s a z x=1 x=1"),
        &["internal"],
        false,
    );
}

#[test]
fn garbage_nobody_wrote_it() {
    finds("t 0 1 2 committed - - r x 9", &["garbage-read"], false);
}

#[test]
fn g1a_an_aborted_read() {
    let history = "t 0 1 3 aborted - - w x 1\n\
                   t 1 2 4 committed - - r x 1";
    let shown = finds(history, &["G1a"], false);
    assert!(
        shown.contains("T1 read x = 1, which T0 wrote and rolled back"),
        "{shown}"
    );
    // In the middle of a list, too.
    let history = "t 0 1 3 aborted - - a l 1\n\
                   t 1 2 5 committed - - a l 2\n\
                   t 1 6 7 committed - - r l [1,2]";
    finds(history, &["G1a"], false);
}

#[test]
fn g1b_an_intermediate_read() {
    let history = "t 0 1 3 committed - - w x 1; w x 2\n\
                   t 1 2 4 committed - - r x 1";
    let shown = finds(history, &["G1b"], false);
    assert!(
        shown.contains("T1 read x = 1, which T0 wrote and then replaced"),
        "{shown}"
    );
    // A replaced element read in a list is G-single as well: the rest came later.
    let history = "t 0 1 3 committed - - a l 1; a l 2\n\
                   t 1 2 4 committed - - r l [1]\n\
                   t 1 5 6 committed - - r l [1,2]";
    finds(history, &["G1b", "G-single"], false);
}

#[test]
fn duplicate_an_element_is_there_twice() {
    let history = "t 0 1 2 committed - - a l 1\n\
                   t 0 3 4 committed - - r l [1,1]";
    finds(history, &["duplicate-element"], false);
}

#[test]
fn incompatible_orders_of_a_list() {
    let history = "t 0 1 9 committed - - a l 1\n\
                   t 1 2 9 committed - - a l 2\n\
                   t 2 3 9 committed - - r l [1]\n\
                   t 3 4 9 committed - - r l [2]";
    finds(history, &["incompatible-order"], false);
}

#[test]
fn g0_writes_of_two_transactions_interleave() {
    let history = "t 0 1 3 committed - - a x 1; a y 2\n\
                   t 1 2 4 committed - - a x 3; a y 4\n\
                   t 2 5 6 committed - - r x [1,3]; r y [4,2]";
    let shown = finds(history, &["G0"], false);
    assert!(
        shown.contains("T0 -ww-> T1: T0 wrote x = 1, T1 the newer 3"),
        "{shown}"
    );
    assert!(
        shown.contains("T1 -ww-> T0: T1 wrote y = 4, T0 the newer 2"),
        "{shown}"
    );
}

#[test]
fn g0_against_time_and_process() {
    let of = |process| {
        format!(
            "t 0 1 2 committed - - a x 1\n\
             t {process} 3 4 committed - - a x 2\n\
             t 5 5 6 committed - - r x [2,1]"
        )
    };
    finds(&of(0), &["G0-process"], false);
    finds(&of(1), &["G0-realtime"], false);
}

#[test]
fn g1c_information_flows_in_a_circle() {
    let history = "t 0 1 3 committed - - w x 1; r y 2\n\
                   t 1 2 4 committed - - w y 2; r x 1";
    let shown = finds(history, &["G1c"], false);
    assert!(
        shown.contains("T0 -wr-> T1: T0 wrote x = 1, T1 read it"),
        "{shown}"
    );
}

#[test]
fn g1c_a_read_from_the_future() {
    let history = "t 0 1 2 committed - - r x 1\n\
                   t 1 3 4 committed - - w x 1";
    finds(history, &["G1c-realtime"], false);
}

#[test]
fn g_single_read_skew() {
    // T1 sees T0's y and not its x.
    let history = "t 0 1 3 committed - - w x 1; w y 2\n\
                   t 1 2 4 committed - - r x 0; r y 2";
    let shown = finds(history, &["G-single"], false);
    assert!(
        shown.contains("T1 -rw-> T0: T1 read x = nothing, T0 wrote the newer 1"),
        "{shown}"
    );
}

#[test]
fn g_single_a_range_and_a_key_of_two_moments() {
    let history = "t 0 1 3 committed - - w k1 1; w k2 2\n\
                   t 1 2 4 committed - - s k1 k2; r k2 2";
    let shown = finds(history, &["G-single"], false);
    assert!(shown.contains("T1 found by range k1 = nothing"), "{shown}");
}

#[test]
fn g_single_realtime_a_stale_read() {
    let history = "t 0 1 2 committed - - w x 1\n\
                   t 1 3 4 committed - - r x 0";
    finds(history, &["G-single-realtime"], false);
    let same_process = history.replace("t 1", "t 0");
    finds(&same_process, &["G-single-process"], false);
    // A list without what was appended before.
    let history = "t 0 1 2 committed - - r l []; a l 1\n\
                   t 1 3 4 committed - - r l [1]; a l 2\n\
                   t 2 5 6 committed - - r l [1]";
    finds(history, &["G-single-realtime"], false);
}

/// The second began behind the first and did not see it, and the first had read what the second wrote over. The cycle was told
/// by the edges of a write skew, which snapshots allow.
#[test]
fn a_stale_snapshot_is_no_skew_though_both_overwrote_what_the_other_read() {
    let history = "t 0 1 2 committed - - r y 0; w x 7\n\
                   t 1 3 4 committed - - r x 0; w y 8";
    finds(history, &["G-single-realtime"], false);
    let same_process = history.replace("t 1", "t 0");
    finds(&same_process, &["G-single-process"], false);
}

#[test]
fn lost_update_of_a_register() {
    // Without revisions the order of the two is unknown.
    let history = "t 0 1 3 committed - - r x 0; w x 1\n\
                   t 1 2 4 committed - - r x 0; w x 2";
    let shown = finds(history, &["lost-update", "G2-item"], false);
    assert!(
        shown.contains("T0 read x = 0 and wrote 1\n    T1 read x = 0 and wrote 2"),
        "{shown}"
    );
    // With them it is known.
    let history = "t 0 1 3 committed 1 2 r x 0; w x 1\n\
                   t 1 2 4 committed 1 3 r x 0; w x 2";
    for level in [Level::Serializable, Level::Snapshot] {
        let report = judge(history, level, Trust::Commits);
        let names = report.names();
        assert_eq!(names[0], "lost-update");
        assert_eq!(
            names.last().map(String::as_str),
            Some("G-single"),
            "{report}"
        );
        assert!(!report.is_clean());
    }
}

#[test]
fn lost_update_of_a_list() {
    let history = "t 0 1 3 committed - - r l [5]; a l 1\n\
                   t 1 2 4 committed - - r l [5]; a l 2\n\
                   t 2 0 1 committed - - a l 5\n\
                   t 3 5 6 committed - - r l [5,2]";
    let report = judge(history, Level::Snapshot, Trust::Nothing);
    assert!(
        report.names().contains(&"lost-update".to_owned()),
        "{report}"
    );
    assert!(!report.is_clean());
}

#[test]
fn lost_update_three_on_one_version() {
    let history = "t 0 1 7 committed - - r x 0; w x 1\n\
                   t 1 2 8 committed - - r x 0; w x 2\n\
                   t 2 3 9 committed - - r x 0; w x 3";
    let report = judge(history, Level::Snapshot, Trust::Nothing);
    assert_eq!(report.anomalies[0].transactions, [0, 1, 2], "{report}");
}

#[test]
fn g_nonadjacent_a_long_fork() {
    // T2 and T3 see the two writes in different orders.
    let history = "t 0 1 8 committed - - w x 1\n\
                   t 1 2 8 committed - - w y 2\n\
                   t 2 3 8 committed - - r x 1; r y 0\n\
                   t 3 4 8 committed - - r x 0; r y 2";
    let shown = finds(history, &["G-nonadjacent"], false);
    assert_eq!(shown.matches("-rw->").count(), 2, "{shown}");
}

#[test]
fn g2_item_write_skew_is_allowed_under_snapshot_isolation() {
    let history = "t 0 1 3 committed - - r x 0; r y 0; w x 1\n\
                   t 1 2 4 committed - - r x 0; r y 0; w y 2";
    let shown = finds(history, &["G2-item"], true);
    assert!(
        shown.contains("allowed G2-item (2 transactions)"),
        "{shown}"
    );
    assert!(shown.contains("1 skews"), "{shown}");
}

#[test]
fn g2_item_of_three_and_a_reader() {
    // Fekete, O'Neil and O'Neil, "A Read-Only Transaction Anomaly" (2004): without T2 it is serial.
    let history = "t 0 1 4 committed - - r x 0; r y 0; w x 1\n\
                   t 1 2 3 committed - - r y 0; w y 2\n\
                   t 2 5 6 committed - - r x 0; r y 2\n";
    let later = history.replace("t 0 1 4", "t 0 1 9");
    finds(&later, &["G2-item"], true);
    let without: String = later
        .lines()
        .take(2)
        .map(|line| format!("{line}\n"))
        .collect();
    let report = judge(&without, Level::Serializable, Trust::Nothing);
    assert!(report.anomalies.is_empty(), "{report}");
}

#[test]
fn g2_a_phantom() {
    // Each looks for a person on call, finds none, and adds one.
    let history = "t 0 1 3 committed - - s call/ call0; w call/a 1\n\
                   t 1 2 4 committed - - s call/ call0; w call/b 2";
    let shown = finds(history, &["G2"], true);
    assert!(shown.contains("found by range call/a = nothing"), "{shown}");
}

#[test]
fn a_condition_is_checked_at_commit() {
    // Two that should have refused each other, if there is a serial order.
    let history = "t 0 1 3 committed 1 2 e x 0; w y 1\n\
                   t 1 2 4 committed 1 3 e y 0; w x 2";
    let report = judge(history, Level::Serializable, Trust::Nothing);
    assert_eq!(report.names(), ["G2-item"], "{report}");
    // Under snapshot isolation only the revisions show it.
    revisions_disagree(
        history,
        Level::Snapshot,
        "T1 read y = 0; at revision 2 it is 1",
    );
    // It may be of a later revision than the reads.
    let history = "t 0 1 3 committed 1 2 r x 0; w x 1\n\
                   t 1 2 4 committed 1 - r x 0; e x 1@2";
    let report = judge(history, Level::Snapshot, Trust::Commits);
    assert!(report.anomalies.is_empty(), "{report}");
    let report = judge(history, Level::Serializable, Trust::Nothing);
    assert_eq!(report.names(), ["G-single"], "{report}");
}

#[test]
fn unknown_transactions_count_when_they_were_seen() {
    let history = "t 0 1 - unknown - - w x 1; w y 2\n\
                   t 1 2 4 committed - - r x 0; r y 2";
    finds(history, &["G-single"], false);
    let unseen = "t 0 1 - unknown - - w x 1; w y 2\n\
                  t 1 2 4 committed - - r x 0; r y 0";
    let report = judge(unseen, Level::Serializable, Trust::Nothing);
    assert!(
        report.anomalies.is_empty() && report.counts.committed == 1,
        "{report}"
    );
}

#[test]
fn cyclic_versions_revisions_and_reads_say_the_opposite() {
    let history = "t 0 1 2 committed - - w x 1\n\
                   t 0 3 4 committed - - r x 1@9; w x 2\n\
                   t 0 5 6 committed - - r x 2@8";
    let report = judge(history, Level::Snapshot, Trust::Read);
    assert_eq!(report.names(), ["cyclic-versions"], "{report}");
    let report = judge(history, Level::Serializable, Trust::Nothing);
    assert!(report.anomalies.is_empty(), "{report}");
}

#[track_caller]
fn revisions_disagree(text: &str, level: Level, what: &str) {
    let without = judge(text, level, Trust::Nothing);
    assert!(without.is_clean(), "{without}");
    let report = judge(text, level, Trust::Commits);
    assert!(report.names().contains(&"revisions".to_owned()), "{report}");
    assert!(report.to_string().contains(what), "{report}");
}

#[test]
fn revisions_that_do_not_fit() {
    let snapshot = Level::Snapshot;
    revisions_disagree(
        "t 0 1 5 committed 1 2 w x 1\nt 1 2 6 committed 1 2 w y 2",
        snapshot,
        "both have revision 2",
    );
    revisions_disagree(
        "t 0 1 5 committed 1 2 w x 1\nt 1 2 6 committed 2 - r x 1@3",
        snapshot,
        "T0 had committed it at 2",
    );
    // By the snapshot, x existed.
    revisions_disagree(
        "t 0 1 5 committed 1 2 w x 1\nt 1 2 6 committed 2 - r x 0",
        snapshot,
        "T1 read x = 0; at revision 2 it is 1",
    );
    revisions_disagree(
        "t 0 1 2 committed 1 3 w x 1\nt 1 3 4 committed 1 2 w y 2",
        snapshot,
        "T0 had completed at revision 3 when this began",
    );
    revisions_disagree(
        "t 0 1 2 committed 1 2 w x 1\nt 1 3 4 committed 1 - r y 0",
        snapshot,
        "T0 had completed at revision 2 when this began",
    );
}

#[test]
fn the_order_of_revisions_must_be_the_serial_order() {
    // T1 then T0 would be serial, their revisions say T0 then T1.
    let history = "t 0 1 5 committed 1 2 w x 1\n\
                   t 1 2 6 committed 1 3 r x 0; w y 2";
    revisions_disagree(
        history,
        Level::Serializable,
        "T1 read x = 0; at revision 2 it is 1",
    );
    let report = judge(history, Level::Snapshot, Trust::Commits);
    assert!(report.anomalies.is_empty(), "{report}");
}

#[test]
fn a_deletion_is_told_from_the_beginning_by_revisions() {
    // T2 sees y from after the deletion and x from before its first write.
    let history = "t 0 1 2 committed 1 2 w x 1\n\
                   t 0 3 4 committed 2 3 d x 2\n\
                   t 1 5 6 committed 3 4 w x 3; w y 4\n\
                   t 2 5 7 committed 3 - r x 0; r y 4";
    let report = judge(history, Level::Snapshot, Trust::Commits);
    assert!(report.names().contains(&"G-single".to_owned()), "{report}");
    let report = judge(history, Level::Snapshot, Trust::Nothing);
    assert_eq!(report.counts.unresolved, 1, "{report}");
}
