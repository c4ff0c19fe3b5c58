//! CREATE and MERGE: what the openCypher test suite does not ask of what they refuse.

use bowline_query::{Detail, MemoryGraph, Parameters, Query};

use crate::{graph, rows};

/// Each text is refused with this, at this part of it, and nothing is written.
fn all_are_refused(graph: &mut MemoryGraph, detail: Detail, told: &str, cases: &[(&str, &str)]) {
    let all = "MATCH (n) OPTIONAL MATCH (n)-[r]->() RETURN count(n), count(r)";
    let before = rows(graph, all);
    for (text, part) in cases {
        let error = Query::new(text)
            .run_mut(graph, &Parameters::new())
            .expect_err(text);
        let problem = error.problem().unwrap_or_else(|| panic!("{text}\n{error}"));
        assert_eq!(problem.detail, detail, "{text}\n{error}");
        assert!(problem.message.contains(told), "{text}\n{error}");
        let span = problem
            .span
            .unwrap_or_else(|| panic!("{text}: {error} has no place"));
        assert_eq!(text[span.start..span.end].trim(), *part, "{text}\n{error}");
    }
    assert_eq!(rows(graph, all), before);
}

/// WHERE within a pattern that was created was not looked at: CREATE ignored it, and MERGE, which looked for it, created another node
/// each time. Found in review.
#[test]
fn a_condition_within_what_is_created_is_refused() {
    let mut graph = graph("CREATE (:A {x: 2}), (:B)");
    all_are_refused(
        &mut graph,
        Detail::UnexpectedSyntax,
        "WHERE cannot stand within what is created",
        &[
            ("CREATE (n:Person WHERE n.name = 'Ada')", "n.name = 'Ada'"),
            ("MERGE (n:Person WHERE n.name = 'Ada')", "n.name = 'Ada'"),
            ("MATCH (a:A) CREATE (a WHERE a.x = 1)-[:T]->()", "a.x = 1"),
            ("MATCH (a:A) MERGE (a WHERE a.x = 1)-[:T]->()", "a.x = 1"),
            (
                "MATCH (a:A), (b:B) CREATE (a)-[r:T WHERE r.w = 1]->(b)",
                "r.w = 1",
            ),
            (
                "MATCH (a:A), (b:B) MERGE (a)-[r:T WHERE r.w = 1]->(b)",
                "r.w = 1",
            ),
        ],
    );
}

/// A property that read what the same clause makes later read null: it was left out by CREATE, and MERGE looked for one value and
/// created another, each time anew. Found in review.
#[test]
fn properties_do_not_read_what_the_same_clause_makes() {
    let mut graph = graph("CREATE (:A {x: 1})");
    all_are_refused(
        &mut graph,
        Detail::UndefinedVariable,
        "stands for what this clause makes",
        &[
            ("MERGE (a:A {x: 1})-[:T]->(b:B {y: coalesce(a.x, 0)})", "a"),
            ("MERGE (a:A)-[r:T {w: a.x}]->(b:B)", "a"),
            ("MERGE (a)-[r:T]->(b)-[s:T {w: r.w}]->(c)", "r"),
            ("CREATE (a)-[r:T {w: 1}]->(b), (c {z: r.w})", "r"),
            ("CREATE p = (a)-[:T]->(b), (c {z: length(p)})", "p"),
            (
                "CREATE p = (a)-[:T]->(b), (a)-[:U {z: length(p)}]->(b)",
                "p",
            ),
        ],
    );
    // What is made before is there, and what was bound before.
    for text in [
        "CREATE (a:C {x: 1})-[r:T {w: a.x + 1}]->(b {y: a.x + 2})-[:T {w: r.w + b.y}]->({z: b.y})",
        "MATCH (a:A) MERGE (a)-[:U]->(:D {y: a.x})",
        "MATCH (a:A) MERGE (a)-[:U]->(:D {y: a.x})",
        "UNWIND [3, 3, 4] AS y MERGE (:E {y: y})",
    ] {
        Query::new(text)
            .run_mut(&mut graph, &Parameters::new())
            .unwrap_or_else(|e| panic!("{text}\n{e}"));
    }
    for (text, expected) in [
        (
            "MATCH (a:C)-[r]->(b)-[s]->(c) RETURN a.x, r.w, b.y, s.w, c.z",
            "1 2 3 5 3",
        ),
        ("MATCH (d:D) RETURN count(d), min(d.y)", "1 1"),
        ("MATCH (e:E) RETURN count(e), sum(e.y)", "2 7"),
    ] {
        assert_eq!(rows(&graph, text), [expected], "{text}");
    }
}
