//! The longest and deepest queries that are allowed run on a stack of two megabytes, in a debug build. In a program of its
//! own, because a stack that overflows ends the program.

use bowline_query::{Detail, MemoryGraph, Parameters, Query};

#[test]
fn plans_of_many_operators_are_refused_or_run_on_a_small_stack() {
    let run = || {
        for count in [390, 950, 3_000] {
            let clauses = "MATCH (a) ".repeat(count) + "RETURN 1";
            let patterns = format!("MATCH {} RETURN 1", vec!["(:A)"; count].join(", "));
            let unions = "RETURN 1 AS a UNION ".repeat(count) + "RETURN 1 AS a";
            let creates = "CREATE (:A) ".repeat(count);
            for text in [clauses, patterns, unions, creates] {
                let mut graph = MemoryGraph::new();
                if let Err(error) = Query::new(&text).run_mut(&mut graph, &Parameters::new()) {
                    assert_eq!(error.problem().unwrap().detail, Detail::QueryTooLong);
                }
            }
        }
        // The deepest expression that is allowed.
        for (open, close) in [
            ("(", ")"),
            ("[", "]"),
            ("abs(", ")"),
            ("CASE WHEN true THEN ", " END"),
            ("[x IN [1] | ", "]"),
        ] {
            let text = format!("RETURN {}1{}", open.repeat(180), close.repeat(180));
            if let Err(error) = Query::new(&text).run(&MemoryGraph::new(), &Parameters::new()) {
                assert_eq!(error.problem().unwrap().detail, Detail::QueryTooDeep);
            }
        }
    };
    std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(run)
        .unwrap()
        .join()
        .unwrap();
}
