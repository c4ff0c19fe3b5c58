//! The longest and deepest queries that are allowed run on a stack of two megabytes, in a debug build. In a program of its
//! own, because a stack that overflows ends the program.

use bowline_query::{Detail, MemoryGraph, Parameters, Query, Value};

fn on_a_small_stack(run: fn()) {
    std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(run)
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn plans_of_many_operators_are_refused_or_run_on_a_small_stack() {
    on_a_small_stack(|| {
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
    });
}

/// A value that `reduce` nested was as deep as a list is long: the stack of whoever walked through it, or only dropped it,
/// overflowed, and the process was gone.
#[test]
fn a_value_is_nested_no_deeper_than_is_allowed() {
    on_a_small_stack(|| {
        let mut graph = MemoryGraph::new();
        let none = Parameters::new();
        Query::new("CREATE (:A)")
            .run_mut(&mut graph, &none)
            .unwrap();
        let ask =
            |text: &str, parameters: &Parameters| match Query::new(text).run(&graph, parameters) {
                Ok(answer) => Ok(answer.rows),
                Err(error) => Err(error.problem().unwrap_or_else(|| panic!("{error}")).detail),
            };
        let too_deep = |text: &str| {
            let refused = ask(text, &none).expect_err(text);
            assert_eq!(refused, Detail::QueryTooDeep, "{text}");
        };
        for step in [
            "[l]",
            "{m: l}",
            "[1, 2] + [l]",
            "[1] + {m: l}",
            "[x IN [1] | l]",
            "CASE WHEN true THEN [l] END",
        ] {
            let nested = |count: u32| format!("reduce(l = [n], i IN range(1, {count}) | {step})");
            too_deep(&format!("MATCH (n:A) RETURN {} IS NULL", nested(1_000_000)));
            // What is allowed is compared, hashed, ordered, shown and dropped.
            let deep = nested(90);
            let text = format!(
                "MATCH (n:A) WITH DISTINCT {deep} AS l RETURN l, l = l, 1 IN [l] ORDER BY l"
            );
            let rows = ask(&text, &none).unwrap();
            assert!(rows[0][0].to_string().len() > 90 && rows[0][0].to_attribute().is_none());
        }
        // 200 deep.
        let deepest = "MATCH (n:A) WITH reduce(l = [n], i IN range(1, 199) | [l]) AS l";
        assert_eq!(
            ask(&format!("{deepest} RETURN l, l = l"), &none)
                .unwrap()
                .len(),
            1
        );
        too_deep(&format!("{deepest} RETURN [l]"));
        too_deep(&format!("{deepest} RETURN {{m: l}}"));
        too_deep(&format!("{deepest} RETURN collect(l)"));
        too_deep(&format!("{deepest} RETURN n{{l}}").replace("WITH ", "WITH n, "));
        let nest = |count: u32| (0..count).fold(Value::Null, |value, _| Value::list(vec![value]));
        let with = |depth| Parameters::from([("l".into(), nest(depth))]);
        assert_eq!(ask("RETURN $l", &with(200)).unwrap().len(), 1);
        assert_eq!(ask("RETURN $l", &with(201)), Err(Detail::QueryTooDeep));
    });
}
