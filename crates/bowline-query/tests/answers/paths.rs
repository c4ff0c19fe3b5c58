//! Paths of variable length and shortest paths whose conditions read something else of the pattern.

use bowline_query::{Error, MemoryGraph, Parameters, Query};

use crate::{graph, rows};

/// What is refused as not supported.
fn refused(graph: &MemoryGraph, text: &str) -> String {
    match Query::new(text).run(graph, &Parameters::new()) {
        Err(Error::Unsupported { what, .. }) => what,
        other => panic!("{text}: {other:?}"),
    }
}

/// The properties of a step of variable length were compared with Null where the plan began at the other end, and no row
/// came. Found in review.
#[test]
fn properties_of_a_long_step_read_the_node_at_its_other_end() {
    let graph = graph("CREATE (:A {x: 1})-[:T {w: 1}]->(:B), (:A {x: 2})");
    for text in [
        "MATCH (a:A)-[:T*1..2 {w: a.x}]->(b:B) RETURN a.x",
        "MATCH (b:B)<-[:T* {w: a.x}]-(a:A) RETURN a.x",
        "MATCH (a:A)-[r:T*1..2 {w: r[0].w}]->(b:B) RETURN a.x",
    ] {
        assert_eq!(rows(&graph, text), ["1"], "{text}");
    }
}

/// Two MATCH clauses that are planned as one began at the end of the second, and its properties were compared with Null.
/// Found in review.
#[test]
fn properties_of_a_long_step_read_the_match_before() {
    let graph =
        graph("CREATE (:A {x: 1})-[:T {w: 1}]->(:B), (:A {x: 2}), (:A {x: 3}), (:A {x: 4})");
    let text = "MATCH (a:A) WITH a MATCH (a)-[:T* {w: a.x}]->(b:B) RETURN a.x, labels(b)";
    assert_eq!(rows(&graph, text), ["1 ['B']"]);
}

/// The properties of a step of variable length were compared with Null where they read a later pattern, and no row came.
/// Found in review.
#[test]
fn properties_of_a_long_step_read_another_pattern() {
    let graph = graph(
        "CREATE (:A {x: 1})-[:T {w: 7}]->(:B)-[:T {w: 7}]->(:B)-[:T {w: 8}]->(:B), \
         (:C {k: 7}), (:C {k: 9}), (:C {k: 6}), (:C {k: 6}), (:C {k: 6}), (:C {k: 6}), (:C {k: 6})",
    );
    for text in [
        "MATCH (a:A)-[r:T* {w: c.k}]->(b), (c:C) RETURN size(r) AS s, c.k ORDER BY s",
        "MATCH (c:C), (a:A)-[r:T* {w: c.k}]->(b) RETURN size(r) AS s, c.k ORDER BY s",
    ] {
        assert_eq!(rows(&graph, text), ["1 7", "2 7"], "{text}");
    }
    // Each of the two steps needs what the other binds.
    let text = "MATCH (a:A)-[r:T*1..1 {w: s[0].w}]->(b)-[s:T*1..1 {w: r[0].w}]->(c) RETURN r[0].w";
    assert_eq!(rows(&graph, text), ["7"]);
}

/// The properties of a shortest path were compared with Null where they read a later pattern, and no row came. Found in
/// review.
#[test]
fn properties_of_a_shortest_path_read_another_pattern() {
    let graph = graph(
        "CREATE (a:A)-[:T {w: 8}]->(b:B), (a)-[:T {w: 7}]->(:X)-[:T {w: 7}]->(b), \
         (:C {k: 7}), (:C {k: 9}), (:C {k: 9}), (:C {k: 9}), (:C {k: 9}), (:C {k: 9})",
    );
    for text in [
        "MATCH p = shortestPath((a:A)-[* {w: c.k}]->(b:B)), (c:C) RETURN length(p), c.k",
        "MATCH p = allShortestPaths((a:A)-[* {w: c.k}]->(b:B)), (c:C) RETURN length(p), c.k",
        "MATCH (c:C) MATCH p = shortestPath((a:A)-[* {w: c.k}]->(b:B)) RETURN length(p), c.k",
    ] {
        assert_eq!(rows(&graph, text), ["2 7"], "{text}");
    }
    let text = "MATCH p = shortestPath((a:A)-[r* {w: r[0].w}]->(b:B)) RETURN length(p)";
    assert!(refused(&graph, text).contains("shortest path"));
}

/// A condition on a shortest path was asked of the path that is the shortest without it, so that no row came. Found in
/// review.
#[test]
fn a_shortest_path_is_the_shortest_of_those_that_fit() {
    let graph = graph(
        "CREATE (a:A {n: 1})-[:BAD]->(b:B {n: 1}), (a)-[:T {w: 1}]->(:X {n: 0})-[:T {w: 1}]->(b), \
         (a)-[:T {w: 2}]->(:X {n: 1})-[:T {w: 2}]->(:X {n: 1})-[:T {w: 2}]->(b), (:C {k: 2})",
    );
    let length = |condition: &str| {
        let text = format!(
            "MATCH (a:A), (b:B), (c:C), p = shortestPath((a)-[r*]->(b)) WHERE {condition} RETURN length(p)"
        );
        rows(&graph, &text).join(" ")
    };
    for (condition, expected) in [
        ("none(r IN relationships(p) WHERE type(r) = 'BAD')", "2"),
        ("a.n = 1 AND NOT any(e IN r WHERE type(e) = 'BAD')", "2"),
        ("all(x IN relationships(p) WHERE x.w = c.k)", "3"),
        (
            "all(x IN relationships(p) WHERE x.w > 0) AND all(n IN nodes(p) WHERE n.n = 1)",
            "3",
        ),
        // Unknown of :BAD, which has no `w`.
        ("none(x IN relationships(p) WHERE x.w = 2)", "2"),
        ("all(n IN nodes(p) WHERE NOT n:A)", ""),
        ("all(n IN nodes(p) WHERE NOT n:B)", ""),
        ("a.n = 1 AND EXISTS { (b)<--(x) WHERE x.n = 0 }", "1"),
        ("NOT (a)-[:MISSING]->()", "1"),
    ] {
        assert_eq!(length(condition), expected, "{condition}");
    }
    let text = "MATCH p = shortestPath((a:A)-[*]->(b:B)) WHERE none(x IN relationships(p) WHERE x.w = 2) RETURN p";
    let shown = Query::new(text).explain(&graph).unwrap();
    assert!(
        shown.contains("if none(x IN relationships(p) WHERE x.w = 2)"),
        "{shown}"
    );
    let all = "MATCH p = allShortestPaths((a:A)-[*]->(b:B)) WHERE all(x IN relationships(p) WHERE x.w > 0) RETURN length(p)";
    assert_eq!(rows(&graph, all), ["2"]);
    let none = "MATCH (a:A), (b:B) OPTIONAL MATCH p = shortestPath((a)-[*]->(b)) WHERE all(x IN nodes(p) WHERE x.n = 5) RETURN p";
    assert_eq!(rows(&graph, none), ["null"]);
}

/// All shortest paths were made before the first was given: of thirty rhombs in a row there are 2^30, more than memory holds.
/// Found in review.
#[test]
fn many_shortest_paths_come_one_after_the_other() {
    let graph = graph(
        "UNWIND range(0, 30) AS i CREATE (:N {i: i}) WITH count(*) AS c MATCH (a:N), (b:N) WHERE b.i = a.i + 1 \
         CREATE (a)-[:T]->(:M {m: 0})-[:T]->(b), (a)-[:T]->(:M {m: 1})-[:T]->(b)",
    );
    let text = "MATCH (a:N {i: 0}), (b:N {i: 30}) MATCH p = allShortestPaths((a)-[*]->(b)) \
                RETURN length(p), size(nodes(p))";
    assert_eq!(rows(&graph, &format!("{text} LIMIT 1")), ["60 61"]);
    // They differ, and a few of them are all of a shorter row.
    let all = "MATCH (a:N {i: 0}), (b:N {i: 3}) MATCH p = allShortestPaths((a)-[*]->(b)) \
               RETURN count(DISTINCT [n IN nodes(p) WHERE n.m >= 0 | n.m]), count(p)";
    assert_eq!(rows(&graph, all), ["8 8"]);
    let asked = std::cell::Cell::new(0);
    let cancelled = || {
        asked.set(asked.get() + 1);
        asked.get() > 3
    };
    let counted = text.replace("length(p), size(nodes(p))", "count(p)");
    let query = Query::new(&counted).cancelled(&cancelled);
    let stopped = query.run(&graph, &Parameters::new()).unwrap_err();
    assert!(matches!(stopped, Error::Cancelled { .. }), "{stopped}");
}

/// Every other condition on a shortest path was asked after the search, too: `length(p) > 1` gave no row. It is refused.
/// Found in review.
#[test]
fn other_conditions_on_a_shortest_path_are_refused() {
    let graph = graph("CREATE (a:A)-[:BAD]->(b:B), (a)-[:T]->(:X)-[:T]->(b)");
    let ends = "MATCH (a:A), (b:B)";
    for text in [
        "MATCH p = shortestPath((a)-[*]->(b)) WHERE length(p) > 1 RETURN p",
        "MATCH p = allShortestPaths((a)-[*]->(b)) WHERE length(p) > 1 RETURN p",
        "MATCH shortestPath((a)-[r*]->(b)) WHERE size(r) > 1 RETURN r",
        "MATCH p = shortestPath((a)-[*]->(b)) WHERE any(n IN nodes(p) WHERE n:X) RETURN p",
        "MATCH p = shortestPath((a)-[*]->(b)) WHERE all(n IN nodes(p) WHERE length(p) > 1) RETURN p",
        "MATCH p = shortestPath((a)-[*]->(b)) WHERE EXISTS { MATCH (x:X) WHERE x IN nodes(p) } RETURN p",
        "MATCH p = shortestPath((a)-[*]->(b)) WHERE [(x:X)-->() WHERE x IN nodes(p) | 1] <> [] RETURN p",
        "MATCH p = shortestPath((a)-[*]->(b)) WHERE a{p}.p IS NOT NULL RETURN p",
        "MATCH p = shortestPath((a)-[*]->(b)), (x:X {n: length(p)}) RETURN p",
        "OPTIONAL MATCH p = shortestPath((a)-[*]->(b)) WHERE length(p) > 1 RETURN p",
    ] {
        let what = refused(&graph, &format!("{ends} {text}"));
        assert!(what.contains("WITH before the WHERE"), "{text}: {what}");
    }
    let within = "MATCH shortestPath((a)-[r* WHERE r.w = 1]->(b)) RETURN r";
    refused(&graph, &format!("{ends} {within}"));
    let after = "MATCH p = shortestPath((a)-[*]->(b)) WITH p WHERE length(p) > 1 RETURN p";
    assert!(rows(&graph, &format!("{ends} {after}")).is_empty());
}

/// What the search for a shortest path is asked gives the paths that are the shortest of all that fit, and properties on the way give
/// the paths whose relationships all have them, from whichever end the plan begins.
#[test]
fn conditions_on_the_way_agree_with_conditions_on_whole_paths() {
    let mut random = fastrand::Rng::with_seed(6);
    for _ in 0..60 {
        let nodes = 5;
        let mut setup: Vec<String> = (0..nodes)
            .map(|i| {
                let label = ["A", "B"][random.usize(..2)];
                format!("(n{i}:{label} {{i: {i}, x: {}}})", random.u8(..2))
            })
            .collect();
        for from in 0..nodes {
            for to in 0..nodes {
                if from != to && random.u8(..3) == 0 {
                    let w = random.u8(..2);
                    setup.push(format!("(n{from})-[:T {{w: {w}}}]->(n{to})"));
                }
            }
        }
        let setup = format!("CREATE {}", setup.join(", "));
        let graph = graph(&setup);
        for condition in [
            "all(r IN relationships(p) WHERE r.w = 1)",
            "none(n IN nodes(p) WHERE n.x = 0)",
            "all(n IN nodes(p) WHERE n.x = 1 OR n:A) AND none(r IN relationships(p) WHERE r.w = a.x)",
        ] {
            let ends = "MATCH (a), (b) WITH a, b WHERE a.i <> b.i";
            let found = rows(
                &graph,
                &format!(
                    "{ends} MATCH p = allShortestPaths((a)-[*]->(b)) WHERE {condition} \
                     RETURN a.i AS a, b.i AS b, count(p), min(length(p)) ORDER BY a, b"
                ),
            );
            let expected = rows(
                &graph,
                &format!(
                    "{ends} MATCH p = (a)-[*]->(b) WHERE {condition} WITH a, b, collect(length(p)) AS found, min(length(p)) AS least \
                     RETURN a.i AS a, b.i AS b, size([l IN found WHERE l = least]), least ORDER BY a, b"
                ),
            );
            assert_eq!(found, expected, "{condition}: {setup}");
        }
        for (of, ends) in [
            ("a.x", "(a:A), (b:B)"),
            ("b.x", "(a), (b:A)"),
            ("c.x", "(a:B), (b)"),
        ] {
            let (from, to) = ends.split_once(", ").unwrap();
            let tail = "RETURN a.i AS a, b.i AS b, c.i AS c, count(*) ORDER BY a, b, c";
            let found = rows(
                &graph,
                &format!("MATCH {from}-[:T*1..3 {{w: {of}}}]->{to}, (c:A) {tail}"),
            );
            let expected = rows(
                &graph,
                &format!(
                    "MATCH p = {from}-[:T*1..3]->{to}, (c:A) WITH a, b, c, p WHERE all(r IN relationships(p) WHERE r.w = {of}) {tail}"
                ),
            );
            assert_eq!(found, expected, "{of}: {setup}");
        }
    }
}
