//! Instants in zones whose clocks are put forward and back.

use bowline_query::MemoryGraph;

use crate::rows;

/// The local time was resolved anew, without its offset, so the second of two equal hours became the first: an hour after half
/// past two was half past two again. Found in review.
#[test]
fn an_hour_that_comes_twice_keeps_its_offset() {
    let given = "WITH datetime('2020-10-25T02:30+02:00[Europe/Berlin]') AS early, \
                 datetime('2020-10-25T02:30+01:00[Europe/Berlin]') AS late";
    for (expression, expected) in [
        ("late", "2020-10-25T02:30+01:00[Europe/Berlin]"),
        (
            "late + duration('PT1H')",
            "2020-10-25T03:30+01:00[Europe/Berlin]",
        ),
        (
            "late + duration('PT0S')",
            "2020-10-25T02:30+01:00[Europe/Berlin]",
        ),
        (
            "late - duration('PT1H')",
            "2020-10-25T02:30+02:00[Europe/Berlin]",
        ),
        (
            "early + duration('PT1H')",
            "2020-10-25T02:30+01:00[Europe/Berlin]",
        ),
        (
            "late + duration('P1D')",
            "2020-10-26T02:30+01:00[Europe/Berlin]",
        ),
        (
            "early - duration('P1D') + duration('P1D')",
            "2020-10-25T02:30+02:00[Europe/Berlin]",
        ),
        (
            "late + duration('P1D') - duration('P1D')",
            "2020-10-25T02:30+01:00[Europe/Berlin]",
        ),
        ("datetime(late) = late", "true"),
        ("datetime(early) = early", "true"),
        (
            "datetime({datetime: late})",
            "2020-10-25T02:30+01:00[Europe/Berlin]",
        ),
        (
            "datetime({datetime: late, minute: 45})",
            "2020-10-25T02:45+01:00[Europe/Berlin]",
        ),
        (
            "datetime({datetime: late, timezone: 'Europe/London'})",
            "2020-10-25T01:30Z[Europe/London]",
        ),
        (
            "datetime.truncate('minute', late)",
            "2020-10-25T02:30+01:00[Europe/Berlin]",
        ),
        (
            "datetime.truncate('hour', late)",
            "2020-10-25T02:00+01:00[Europe/Berlin]",
        ),
        ("time(late)", "02:30+01:00"),
        ("time(early)", "02:30+02:00"),
        ("duration.inSeconds(early, late)", "PT1H"),
        ("duration.inSeconds(late, early)", "PT-1H"),
        ("duration.between(early, late)", "PT1H"),
        ("duration.between(early - duration('P1D'), late)", "P1DT1H"),
        (
            "duration.inSeconds(datetime('2020-10-24T12:00+02:00[Europe/Berlin]'), datetime('2020-10-25T01:30Z'))",
            "PT15H30M",
        ),
        // Without an offset it is the first; an hour that is left out is put forward.
        (
            "datetime('2020-10-25T02:30[Europe/Berlin]')",
            "2020-10-25T02:30+02:00[Europe/Berlin]",
        ),
        (
            "datetime('2020-03-28T02:30[Europe/Berlin]') + duration('P1D')",
            "2020-03-29T03:30+02:00[Europe/Berlin]",
        ),
    ] {
        let found = rows(
            &MemoryGraph::new(),
            &format!("{given} RETURN {expression} AS value"),
        );
        assert_eq!(found[0].trim_matches('\''), expected, "{expression}");
    }
}
