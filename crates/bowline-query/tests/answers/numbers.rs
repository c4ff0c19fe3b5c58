//! Numbers and durations that are exact, and stay so.

use bowline_query::{MemoryGraph, Parameters, Query, Value};

/// The value of an expression.
fn value(expression: &str) -> Value {
    let text = format!("RETURN {expression} AS value");
    let answer = Query::new(&text).run(&MemoryGraph::new(), &Parameters::new());
    let answer = answer.unwrap_or_else(|e| panic!("{text}\n{e}"));
    answer.rows[0][0].clone()
}

fn check(cases: &[(&str, &str)]) {
    for (expression, expected) in cases {
        let shown = value(expression).to_string();
        assert_eq!(shown.trim_matches('\''), *expected, "{expression}");
    }
}

/// The half was added before the rest was cut off, and the sum rounds: 0.49999999999999994 became 1.0, and 4503599627370497
/// became 4503599627370498.0. Found in review.
#[test]
fn round_does_not_round_twice() {
    for (expression, expected) in [
        ("round(4503599627370497)", 4_503_599_627_370_497.0),
        ("round(9007199254740991)", 9_007_199_254_740_991.0),
        ("round(-4503599627370497)", -4_503_599_627_370_497.0),
        ("round(0.49999999999999994)", 0.0),
        ("round(0.5)", 1.0),
        ("round(-0.5)", 0.0),
        ("round(-1.5)", -1.0),
        ("round(-1.6)", -2.0),
        ("round(2.5)", 3.0),
        ("round(2.4)", 2.0),
        ("round(-2.4)", -2.0),
        ("round(1e300)", 1e300),
    ] {
        assert_eq!(value(expression), Value::Float(expected), "{expression}");
    }
}

/// The average of durations was the sum times the inverse of the count: of 49 days it was PT24H instead of P1D. Found in
/// review.
#[test]
fn the_average_of_equal_durations_is_one_of_them() {
    for part in ["days", "months", "seconds", "nanoseconds"] {
        let text = format!(
            "UNWIND range(1, 49) AS i WITH avg(duration({{{part}: 1}})) AS it RETURN it, it = duration({{{part}: 1}})"
        );
        let answer = Query::new(&text)
            .run(&MemoryGraph::new(), &Parameters::new())
            .unwrap();
        assert_eq!(answer.rows[0][1], Value::Bool(true), "{:?}", answer.rows[0]);
    }
}

/// Durations were multiplied and divided as floats, so that times one lost a nanosecond. Found in review.
#[test]
fn durations_times_whole_numbers_are_exact() {
    check(&[
        (
            "duration({seconds: 10000000, nanoseconds: 1}) * 1 = duration({seconds: 10000000, nanoseconds: 1})",
            "true",
        ),
        (
            "3 * duration({days: 3002399751580331}) = duration({days: 9007199254740993})",
            "true",
        ),
        (
            "duration({seconds: 10000000, nanoseconds: 1}) * 2.0 = duration({seconds: 20000000, nanoseconds: 2})",
            "true",
        ),
        (
            "duration({seconds: 10000000, nanoseconds: 1}) / 1 = duration({seconds: 10000000, nanoseconds: 1})",
            "true",
        ),
        (
            "duration({days: 9007199254740993}) / 1 = duration({days: 9007199254740993})",
            "true",
        ),
        ("duration({days: 1}) / 2", "PT12H"),
        ("duration({days: 1}) * 0.5", "PT12H"),
        (
            "duration({days: 3}) / 2 = duration({days: 1, hours: 12})",
            "true",
        ),
        (
            "duration({days: -3}) / 2 = duration({days: -1, hours: -12})",
            "true",
        ),
        (
            "duration({nanoseconds: -3}) / 2 = duration({nanoseconds: -1})",
            "true",
        ),
    ]);
}

/// Whole months, weeks and days went through a float, and became 9007199254740992 of 9007199254740993. Found in review.
#[test]
fn whole_parts_of_durations_are_exact() {
    check(&[
        (
            "duration({days: 9007199254740993}).days",
            "9007199254740993",
        ),
        (
            "duration({months: 9007199254740993}).months",
            "9007199254740993",
        ),
        (
            "duration({weeks: 1286742750677285}).days",
            "9007199254740995",
        ),
        (
            "duration({years: 750599937895083}).months",
            "9007199254740996",
        ),
        (
            "duration({years: 750599937895083, months: 1}).months",
            "9007199254740997",
        ),
        (
            "duration({quarters: 3002399751580331}).months",
            "9007199254740993",
        ),
        ("duration('P9007199254740993D').days", "9007199254740993"),
        ("duration('P9007199254740993M').months", "9007199254740993"),
        ("duration('P-9007199254740993D').days", "-9007199254740993"),
        ("duration('P1286742750677285W').days", "9007199254740995"),
        (
            "duration({days: 9007199254740993, hours: 0.5}).days",
            "9007199254740993",
        ),
        ("duration({months: 0.75})", "P22DT19H51M49.5S"),
        ("duration('P1.5D') = duration({days: 1, hours: 12})", "true"),
        (
            "duration({days: 1.5, weeks: 0.5}) = duration({days: 5})",
            "true",
        ),
    ]);
}

/// Texts that Rust reads as numbers were converted: `inf` and `nan` became Infinity and NaN, and not null. Found in review.
#[test]
fn to_float_takes_the_names_that_cypher_has() {
    for text in [
        "inf",
        "-inf",
        "+inf",
        "nan",
        "NAN",
        "infinity",
        "INFINITY",
        "-infinity",
    ] {
        assert_eq!(value(&format!("toFloat('{text}')")), Value::Null, "{text}");
    }
    for (text, expected) in [
        ("Infinity", f64::INFINITY),
        ("+Infinity", f64::INFINITY),
        (" -Infinity ", f64::NEG_INFINITY),
        ("1e3", 1000.0),
        ("-.5", -0.5),
    ] {
        assert_eq!(
            value(&format!("toFloat('{text}')")),
            Value::Float(expected),
            "{text}"
        );
    }
    for text in ["NaN", "-NaN", "+NaN"] {
        assert_eq!(
            value(&format!("isNaN(toFloat('{text}'))")),
            Value::Bool(true),
            "{text}"
        );
    }
}

/// The least integer was null when it came from a float. Found in review.
#[test]
fn to_integer_takes_the_least_integer() {
    assert_eq!(
        value("toInteger(-9223372036854775808.0)"),
        Value::Int(i64::MIN)
    );
    assert_eq!(
        value("toInteger('-9223372036854775808.0')"),
        Value::Int(i64::MIN)
    );
    assert_eq!(
        value("toInteger(9223372036854774784.0)"),
        Value::Int(9_223_372_036_854_774_784)
    );
    assert_eq!(value("toInteger(9223372036854775808.0)"), Value::Null);
    assert_eq!(value("toInteger(-9223372036854777856.0)"), Value::Null);
    assert_eq!(value("toInteger('inf')"), Value::Null);
}

/// The day was clipped to the end of the shorter month before months were counted: from 31 January to 28 February was a
/// month, and not 28 days. Found in review.
#[test]
fn whole_months_lie_between_the_same_days() {
    check(&[
        (
            "duration.between(date('2021-01-31'), date('2021-02-28'))",
            "P28D",
        ),
        (
            "duration.inMonths(date('2021-01-31'), date('2021-02-28'))",
            "PT0S",
        ),
        (
            "duration.between(date('2021-01-31'), date('2021-03-01'))",
            "P1M1D",
        ),
        (
            "duration.between(date('2021-01-31'), date('2021-03-31'))",
            "P2M",
        ),
        (
            "duration.between(date('2021-01-28'), date('2021-02-28'))",
            "P1M",
        ),
        (
            "duration.between(localdatetime('2021-01-31T12:00'), localdatetime('2021-03-01T06:00'))",
            "P28DT18H",
        ),
        (
            "duration.inMonths(date('2021-03-31'), date('2021-02-28'))",
            "P-1M",
        ),
        (
            "duration.inMonths(date('2021-02-28'), date('2021-01-31'))",
            "PT0S",
        ),
        (
            "duration.between(date('2021-02-28'), date('2021-01-31'))",
            "P-28D",
        ),
    ]);
}

/// The parts of a second were multiplied and added in 64 bits: 18446744073710 milliseconds were 448384 nanoseconds, and a debug
/// build stopped; so did the greatest number of months, and 10^13 seconds were a negative number of microseconds. Found in review.
#[test]
fn parts_of_times_do_not_wrap() {
    for expression in [
        "time({hour: 1, millisecond: 18446744073710})",
        "localtime({hour: 1, microsecond: 18446744073709552})",
        "time({hour: 1, millisecond: 0, microsecond: 1, nanosecond: 9223372036854775807})",
        "datetime({epochMillis: 9223372036854775807, nanosecond: 9223372036854775807})",
        "datetime({epochSeconds: 9223372036854775807, nanosecond: 9223372036854775807})",
        "datetime.fromepochmillis(9223372036854775807)",
        "duration({seconds: 10000000000000}).microseconds",
        "duration({seconds: 9223372036854775807}).milliseconds",
        "duration('PT170141183460469231731687303715.9S')",
        "date('2020-01-01') + duration({months: 9223372036854775807})",
        "date('2020-01-01') - duration({months: 9223372036854775807})",
        "date('2020-01-01') + duration({days: 9223372036854775807, seconds: 86400})",
        "datetime('2020-01-01T00:00Z') + duration({months: 9223372036854775807})",
    ] {
        let text = format!("RETURN {expression} AS value");
        let answer = Query::new(&text).run(&MemoryGraph::new(), &Parameters::new());
        assert!(answer.is_err(), "{expression}: {answer:?}");
    }
    check(&[
        (
            "datetime({epochMillis: 1, nanosecond: 9223372036854775807})",
            "2262-04-11T23:47:16.855775807Z",
        ),
        ("datetime.fromepochmillis(-1)", "1969-12-31T23:59:59.999Z"),
        (
            "duration({seconds: 9223372036854}).microseconds",
            "9223372036854000000",
        ),
        (
            "localtime({hour: 1, millisecond: 999, microsecond: 999, nanosecond: 999})",
            "01:00:00.999999999",
        ),
    ]);
}

/// The least integer by -1 has no quotient of 64 bits, and its remainder was refused with it. Found in review.
#[test]
fn the_least_integer_has_a_remainder() {
    check(&[
        ("-9223372036854775808 % -1", "0"),
        ("-9223372036854775808 % 3", "-2"),
        ("7 % -1", "0"),
    ]);
}

/// INF was no number, and INFINITY too large for one. Found in review.
#[test]
fn infinity_and_nan_are_literals() {
    for text in ["INF", "Inf", "INFINITY", "Infinity", "infinity"] {
        assert_eq!(value(text), Value::Float(f64::INFINITY), "{text}");
        let negative = value(&format!("-{text}"));
        assert_eq!(negative, Value::Float(f64::NEG_INFINITY), "{text}");
    }
    for text in ["NAN", "NaN", "nan"] {
        let is_nan = value(&format!("isNaN({text})"));
        assert_eq!(is_nan, Value::Bool(true), "{text}");
    }
    let error = Query::new("RETURN 1e400").run(&MemoryGraph::new(), &Parameters::new());
    assert!(error.is_err(), "it is too large");
}

fn rows(text: &str) -> Vec<Vec<Value>> {
    let answer = Query::new(text).run(&MemoryGraph::new(), &Parameters::new());
    answer.unwrap_or_else(|e| panic!("{text}\n{e}")).rows
}

/// The sum of what an average is of need not be a value: that of two large integers was an error, and that of two large
/// floats infinite.
#[test]
fn an_average_is_there_though_the_sum_does_not_fit() {
    let max = i64::MAX;
    for (list, expected) in [
        (format!("[{max}, 1]"), 4_611_686_018_427_387_904.0),
        (
            format!("[{max}, {max}, {max}]"),
            9_223_372_036_854_775_807.0,
        ),
        ("[1e308, 1e308]".to_owned(), 1e308),
        ("[-1.5e308, -1.5e308, -1.5e308, 7]".to_owned(), -1.125e308),
        ("[1, 2, 3.5]".to_owned(), 6.5 / 3.0),
        ("[0.1, 0.2, 0.3]".to_owned(), (0.1 + 0.2 + 0.3) / 3.0),
        ("[1.0 / 0.0, 1]".to_owned(), f64::INFINITY),
    ] {
        let found = rows(&format!("UNWIND {list} AS x RETURN avg(x)"));
        assert_eq!(found, [[Value::Float(expected)]], "{list}");
    }
    for mixed in ["[1, duration('P1D')]", "[duration('P1D'), 1]", "[1, 'a']"] {
        let text = format!("UNWIND {mixed} AS x RETURN avg(x)");
        let found = Query::new(&text).run(&MemoryGraph::new(), &Parameters::new());
        assert!(found.is_err(), "{mixed}: {found:?}");
    }
    assert_eq!(rows("UNWIND [null] AS x RETURN avg(x)"), [[Value::Null]]);
}

/// Between an infinity and itself nothing was computed right: it was not a number.
#[test]
fn a_percentile_at_an_element_is_that_element() {
    let infinite = [[Value::Float(f64::INFINITY)]];
    let text = "UNWIND [1.0, 1.0 / 0.0] AS x RETURN percentileCont(x, 1.0)";
    assert_eq!(rows(text), infinite);
    let text = "UNWIND [1.0 / 0.0] AS x RETURN percentileCont(x, 0.5)";
    assert_eq!(rows(text), infinite);
}
