//! WITH, RETURN and UNION: what the openCypher test suite does not ask of keys, aggregates, columns and numbers of rows.

use bowline_query::{Detail, MemoryGraph, Parameters, Query};

use crate::{graph, rows};

/// Each text, and its rows.
fn all_have(graph: &MemoryGraph, wanted: &[(&str, &[&str])]) {
    for (text, wanted) in wanted {
        assert_eq!(rows(graph, text), *wanted, "{text}");
    }
}

/// Each text is refused with this.
fn all_are(graph: &MemoryGraph, detail: Detail, texts: &[&str]) {
    for text in texts {
        let error = Query::new(text)
            .run(graph, &Parameters::new())
            .expect_err(text);
        let problem = error.problem().unwrap_or_else(|| panic!("{text}\n{error}"));
        assert_eq!(problem.detail, detail, "{text}\n{error}");
    }
}

/// A number of rows was computed in a row without room: one that binds a variable of its own, as `reduce` does, stopped the
/// process with a panic. It is a number as any other. Found in review.
#[test]
fn a_number_of_rows_may_bind_variables_of_its_own() {
    all_have(
        &MemoryGraph::new(),
        &[
            ("RETURN 1 LIMIT reduce(a = 0, x IN [1] | 5)", &["1"]),
            (
                "UNWIND [1, 2, 3] AS x RETURN x SKIP size([x IN [1, 2] WHERE true])",
                &["3"],
            ),
            (
                "UNWIND [3, 2, 1] AS x RETURN x ORDER BY x LIMIT size([y IN [1, 2] | 0])",
                &["1", "2"],
            ),
            (
                "UNWIND [1, 2] AS x RETURN COUNT { UNWIND [1, 2, 3] AS y RETURN y LIMIT reduce(a = 0, z IN [1] | 2) } AS c",
                &["2", "2"],
            ),
            (
                "UNWIND [1, 2] AS x RETURN x LIMIT CASE WHEN any(y IN [1] WHERE true) THEN 1 ELSE 2 END",
                &["1"],
            ),
        ],
    );
}

/// Literals were compared as values are, by which 1 is 1.0: `sum(x / 2)` and `sum(x / 2.0)` were taken for the same
/// aggregate, and both columns had the first one's value. Found in review.
#[test]
fn an_integer_and_a_float_make_two_aggregates() {
    all_have(
        &MemoryGraph::new(),
        &[
            (
                "UNWIND [1, 2, 3] AS x RETURN sum(x / 2) AS a, sum(x / 2.0) AS b",
                &["2 3.0"],
            ),
            (
                "UNWIND [1, 2] AS x RETURN sum(1) AS a, sum(1.0) AS b",
                &["2 2.0"],
            ),
            (
                "UNWIND [1] AS x RETURN collect(0.0) AS a, collect(-0.0) AS b",
                &["[0.0] [-0.0]"],
            ),
            (
                "UNWIND [3, 2] AS x RETURN x / 2 AS a, x / 2.0 AS b, count(*) AS c ORDER BY x / 2.0",
                &["1 1.0 1", "1 1.5 1"],
            ),
            // The same numbers are the same expression, as before.
            (
                "UNWIND [3, 2] AS x RETURN x / 2.0 AS b, count(*) AS c ORDER BY x / 2.0",
                &["1.0 1", "1.5 1"],
            ),
        ],
    );
}

/// Two columns of the first part that show the same thing had one place in the row, into which both columns of the next part were
/// written: `1, 1` and `4, 4` were answered for `1, 1` and `3, 4`. Found in review.
#[test]
fn the_parts_of_a_union_keep_columns_apart_that_were_one_in_the_first() {
    all_have(
        &MemoryGraph::new(),
        &[
            (
                "UNWIND [1] AS a RETURN a AS x, a AS y UNION ALL RETURN 3 AS x, 4 AS y",
                &["1 1", "3 4"],
            ),
            (
                "UNWIND [1] AS a RETURN a AS x, a AS y UNION RETURN 1 AS x, 4 AS y UNION RETURN 5 AS x, 4 AS y",
                &["1 1", "1 4", "5 4"],
            ),
            (
                "RETURN count(*) AS x, count(*) AS y UNION RETURN 3 AS x, 4 AS y",
                &["1 1", "3 4"],
            ),
            (
                "RETURN 3 AS x, 4 AS y UNION ALL UNWIND [1] AS a RETURN a AS x, a AS y",
                &["3 4", "1 1"],
            ),
        ],
    );
}

/// What a pattern or a subquery beside an aggregate reads of the group: its keys. They read the places of the rows that were
/// grouped, which are empty by then, and found everything or nothing. Found in review.
#[test]
fn patterns_and_subqueries_beside_aggregates_read_the_keys() {
    let graph = graph("CREATE (:P {x: 1})-[:T]->(:Q {x: 2}), (:P {x: 3})");
    all_have(
        &graph,
        &[
            (
                "MATCH (n:P) RETURN n.x AS x, n, count(*) + COUNT { (n)-->() } AS c ORDER BY x",
                &["1 (:P {x: 1}) 2", "3 (:P {x: 3}) 1"],
            ),
            (
                "MATCH (n:P) WITH n, exists((n)-->()) AND count(*) > 0 AS e RETURN n.x, e ORDER BY n.x",
                &["1 true", "3 false"],
            ),
            (
                "MATCH (n:P) WITH n, size([(n)-->() | 1]) + count(*) AS s RETURN n.x, s ORDER BY n.x",
                &["1 2", "3 1"],
            ),
            (
                "MATCH (n:P) WITH n AS m, [(n)-->(q {x: n.x + 1}) WHERE q.x > n.x | q.x] + count(*) AS s \
                 RETURN m.x, s ORDER BY m.x",
                &["1 [2, 1]", "3 [1]"],
            ),
            // A key that is a property, within a pattern.
            (
                "MATCH (n:P) RETURN n.x AS x, [(a:P)-->(b) WHERE a.x = n.x | b.x + n.x] + count(*) AS s ORDER BY x",
                &["1 [3, 1]", "3 [1]"],
            ),
            // A variable of a comprehension around the subquery.
            (
                "MATCH (n:P) WITH n, [i IN [1, 2] | COUNT { MATCH (n)-->(q) WHERE q.x = i }] + count(*) AS s \
                 RETURN n.x, s ORDER BY n.x",
                &["1 [0, 1, 1]", "3 [0, 0, 1]"],
            ),
            // Behind the aggregation.
            (
                "MATCH (n:P) WITH n, count(*) AS c WHERE (n)-->() RETURN n.x, c",
                &["1 1"],
            ),
            (
                "MATCH (n:P) WITH n AS m, count(*) AS c WHERE EXISTS { (m)-->({x: c + 1}) } RETURN m.x",
                &["1"],
            ),
            (
                "MATCH (n:P) WITH n, count(*) AS c ORDER BY COUNT { (n)-->() } RETURN n.x",
                &["3", "1"],
            ),
            (
                "MATCH (n:P) WITH DISTINCT n ORDER BY size([(n)-->(m) | m]) RETURN n.x",
                &["3", "1"],
            ),
        ],
    );
}

/// A variable that is no key of the group was empty in a pattern or a subquery beside an aggregate; it is an error there, as it is
/// elsewhere. Found in review.
#[test]
fn patterns_and_subqueries_beside_aggregates_read_nothing_but_the_keys() {
    let graph = graph("CREATE (:P)-[:T]->(:Q)");
    all_are(
        &graph,
        Detail::AmbiguousAggregationExpression,
        &[
            "MATCH (n:P)-->(m) RETURN n, count(*) + COUNT { (m)-->() } AS c",
            "MATCH (n:P)-->(m) RETURN n, count(*) + COUNT { MATCH (n) WHERE m.x > 1 } AS c",
            "MATCH (n:P)-->(m) RETURN n, count(*) + COUNT { WITH n MATCH (n)-->(m) RETURN m } AS c",
            "MATCH (n:P)-->(m) RETURN n, exists((m)-->()) AND count(*) > 0 AS e",
            "MATCH (n:P)-->(m) RETURN n, size([(n)-->(m) | 1]) + count(*) AS s",
            "MATCH (n:P)-[r]->(m) RETURN n, size([(n)-[r]->() | 1]) + count(*) AS s",
            "MATCH (n:P) RETURN count(*) + COUNT { (n)-->() } AS c",
            "MATCH (n:P) RETURN n.x AS x, count(*) + COUNT { (a) WHERE a.x = n.x } AS c",
        ],
    );
}

/// Behind an aggregation or DISTINCT, a pattern or a subquery read variables that were left behind: empty ones, or those of
/// whichever row came first. They are not defined there. Found in review.
#[test]
fn patterns_and_subqueries_behind_groups_do_not_read_what_was_left_behind() {
    let graph = graph("CREATE (:P {x: 1})-[:T]->(:Q)-[:T]->(:R), (:P {x: 2})");
    all_are(
        &graph,
        Detail::UndefinedVariable,
        &[
            "MATCH (n)-->(m) WITH n, count(*) AS c WHERE (m)-->() RETURN n",
            "MATCH (n)-->(m) WITH DISTINCT n WHERE (m)-->() RETURN n",
            "MATCH (n)-->(m) WITH DISTINCT n WHERE exists((m)-->()) RETURN n",
            "MATCH (n)-->(m) RETURN n, count(*) AS c ORDER BY exists((m)-->())",
            "MATCH (n)-->(m) RETURN DISTINCT n ORDER BY exists((m)-->())",
            "MATCH (n)-->(m) WITH DISTINCT n WHERE EXISTS { (n)-->(a) WHERE a = m } RETURN n",
        ],
    );
    // A subquery may bind the name anew, and reads what it was given itself.
    all_have(
        &graph,
        &[
            (
                "MATCH (n:P)-->(m) WITH n, count(*) AS c WHERE EXISTS { MATCH (m:P {x: 2}) } RETURN n.x",
                &["1"],
            ),
            (
                "MATCH (n:P) RETURN n.x, COUNT { MATCH (a)-->(b) WITH DISTINCT b WHERE EXISTS { (n)-->(b) } RETURN b } AS c \
                 ORDER BY n.x",
                &["1 1", "2 0"],
            ),
            (
                "MATCH (n:P) RETURN n.x, COLLECT { MATCH (a)-->(b) RETURN count(*) + n.x } AS c ORDER BY n.x",
                &["1 [3]", "2 [4]"],
            ),
        ],
    );
}

/// The variable of a comprehension was taken for the key of the same name: `[n IN [1, 2] | n] + count(*)` beside the key `n`
/// had the key's value for each element. Found in review.
#[test]
fn a_variable_that_an_expression_binds_itself_is_no_key() {
    all_have(
        &MemoryGraph::new(),
        &[
            (
                "UNWIND [{x: 5}] AS n RETURN n.x AS k, [n IN [{x: 1}] | n.x] + count(*) AS l",
                &["5 [1, 1]"],
            ),
            (
                "UNWIND [7] AS n RETURN n, [n IN [1, 2] | n] + count(*) AS l",
                &["7 [1, 2, 1]"],
            ),
            (
                "UNWIND [7] AS n RETURN n, [n IN [1, 2] WHERE n > 1] + count(*) AS l",
                &["7 [2, 1]"],
            ),
            (
                "UNWIND [7] AS n RETURN n, reduce(n = 0, i IN [1, 2] | n + i) + count(*) AS l",
                &["7 4"],
            ),
            (
                "UNWIND [7] AS n RETURN n, reduce(s = 0, n IN [1, 2] | s + n) + count(*) AS l",
                &["7 4"],
            ),
            (
                "UNWIND [7] AS n RETURN n, all(n IN [1] WHERE n = 1) AND any(n IN [1] WHERE n = 1) \
                 AND none(n IN [1] WHERE n = 7) AND single(n IN [1, 7] WHERE n = 1) AND count(*) = 1 AS l",
                &["7 true"],
            ),
            (
                "UNWIND [7] AS n RETURN n, [n IN [1, 2] | {m: 1}{n}] + count(*) AS l",
                &["7 [{n: 1}, {n: 2}, 1]"],
            ),
            (
                "UNWIND [1, 2] AS n RETURN DISTINCT n ORDER BY reduce(s = n, n IN [n, -n, -n] | s + n)",
                &["1", "2"],
            ),
            (
                "UNWIND [1, 3, 2] AS n RETURN DISTINCT n, -n AS m ORDER BY [n IN [m] | n]",
                &["3 -3", "2 -2", "1 -1"],
            ),
            // The key itself is one within the list, and within a comprehension of another variable.
            (
                "UNWIND [7] AS n RETURN n, [n IN [n, 1] | n] + [i IN [1] | n] + count(*) AS l",
                &["7 [7, 1, 7, 1]"],
            ),
        ],
    );
    all_are(
        &MemoryGraph::new(),
        Detail::InvalidAggregation,
        &["UNWIND [7] AS n RETURN sum(n) AS s, [n IN [1] | sum(n)] AS l"],
    );
}

/// Behind DISTINCT, ORDER BY took a name that stands for something new for what it had stood for before, if both were items.
/// Found in review.
#[test]
fn order_by_behind_distinct_reads_the_new_names_first() {
    all_have(
        &MemoryGraph::new(),
        &[(
            "UNWIND [[1, 4], [2, 3]] AS r WITH r[0] AS a, r[1] AS b RETURN DISTINCT a AS b, b AS a ORDER BY a",
            &["2 3", "1 4"],
        )],
    );
}

/// A subquery that ends with MATCH, as EXISTS may, was refused where it had a WITH: "this clause cannot stand here". Found in review.
#[test]
fn a_subquery_that_ends_with_match_may_have_with() {
    let graph = graph("CREATE (:P {x: 1})-[:T]->(:Q)-[:T]->(:R), (:P {x: 2})-[:T]->(:Q)");
    all_have(
        &graph,
        &[
            (
                "MATCH (a:P) WHERE EXISTS { MATCH (a)-->(b) WITH b MATCH (b)-->(c) } RETURN a.x",
                &["1"],
            ),
            (
                "MATCH (a:P) RETURN a.x, COUNT { MATCH (a)-->(b) WITH b, count(*) AS n WHERE n = 1 MATCH (a)-->(b) } AS c \
                 ORDER BY a.x",
                &["1 1", "2 1"],
            ),
        ],
    );
    all_are(
        &graph,
        Detail::UnexpectedSyntax,
        &["MATCH (a:P) WHERE EXISTS { MATCH (a)-->(b) RETURN b MATCH (b)-->(c) } RETURN a.x"],
    );
}

/// Where MATCH clauses are planned as one, a WITH between them may name a column twice, and a WITH before a RETURN not.
#[test]
fn a_with_before_a_match_names_no_column_twice() {
    all_are(
        &MemoryGraph::new(),
        Detail::ColumnNameConflict,
        &[
            "MATCH (a:A) WITH a, a RETURN a",
            "MATCH (a:A) WITH a, a MATCH (a)-->(b) RETURN b",
        ],
    );
}
