//! `graph query`.

use std::os::unix::fs::PermissionsExt;

use super::Place;
use super::graph_remote::Served;
use super::terminal::Terminal;

fn rows(place: &Place, line: &[&str]) -> String {
    let run = place.run_words(&[&["-o", "json", "graph", "query"], line].concat());
    assert_eq!(run.code, 0, "{line:?}: {}", run.stderr);
    run.stdout
}

#[test]
fn a_query_writes_and_reads_a_directory() {
    let place = Place::new();
    let ann = [
        "MERGE (p:person {name: $name}) SET p.age = $age",
        "--param",
        "name=ann",
    ];
    let run =
        place.run_words(&[&["graph", "query"], &ann[..], &["--param-json", "age=41"]].concat());
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    assert_eq!(
        run.stdout,
        "1 block created, 2 attributes set, 1 kind added at revision 2\n"
    );
    rows(
        &place,
        &[
            "MATCH (a:person) CREATE (a)-[:knows {since: date('2019-05-01')}]->(:person {name: 'bob'})",
        ],
    );
    let found = rows(
        &place,
        &["MATCH (a)-[e:knows]->(b) RETURN a.age, e.since, b.name, b"],
    );
    assert!(
        found.starts_with(
            r#"{"a.age":41,"e.since":{"$date":"2019-05-01"},"b.name":"bob","b":{"id":""#
        ),
        "{found}"
    );
    assert!(
        found.ends_with("\"labels\":[\"person\"],\"properties\":{\"name\":\"bob\"}}}\n"),
        "{found}"
    );
    let table = [
        "graph",
        "query",
        "MATCH (p:person) RETURN p.name, p.age ORDER BY p.name",
    ];
    let table = place.run_words(&table).stdout;
    assert_eq!(table, "P.NAME  P.AGE\nann     41\nbob     -\n2 rows\n");
    // An older state, by the text and by the flag.
    for line in [
        &["AT REVISION 2 MATCH (p) RETURN count(p) AS n"][..],
        &["MATCH (p) RETURN count(p) AS n", "--rev", "2"],
    ] {
        assert_eq!(rows(&place, line), "{\"n\":1}\n");
    }
    let plan = [
        "graph",
        "query",
        "MATCH (p:person) WHERE p.age > 40 SET p.old = true",
        "--explain",
    ];
    let plan = place.run_words(&plan);
    assert_eq!(plan.code, 0, "{}", plan.stderr);
    let expected = "Discard\n  Set p.old = true\n";
    assert!(plan.stdout.starts_with(expected), "{}", plan.stdout);
    assert!(
        plan.stdout
            .ends_with("Filter p.age > 40\n        Scan (p:person), about 2 nodes\n"),
        "{}",
        plan.stdout
    );
    assert_eq!(rows(&place, &["MATCH (p {old: true}) RETURN p"]), "");
    // What is exported is imported again, with its types.
    let exported = place.ok("export -");
    assert!(exported.contains(r#""age":41"#), "{exported}");
    let other = Place::new();
    other.write("all.jsonl", exported.as_bytes());
    other.ok("import all.jsonl");
    assert_eq!(
        rows(
            &other,
            &["MATCH (p {age: 41})-[e]->() RETURN e.since.year AS year"]
        ),
        "{\"year\":2019}\n"
    );
}

#[test]
fn what_is_wrong_with_a_query_is_told_with_its_place_and_changes_nothing() {
    let place = Place::new();
    rows(&place, &["CREATE (:person {name: 1})"]);
    for (text, told) in [
        ("MATCH (p:person) RETURN q.name", "q"),
        ("MATCH (p:person RETURN p", "^"),
        ("MATCH (p:person) RETURN $missing", "$missing"),
        ("MATCH (p) WHERE p.name =~ 'a.*' RETURN p", "=~"),
        (
            "CREATE (a:b)-[:t]->(c), (a)-[:t]->(c)",
            "one edge of each kind",
        ),
        ("MATCH (p) CREATE (:person {x: 1 / (p.name - 1)})", "zero"),
        ("AT REVISION 99 MATCH (p) RETURN p", "99"),
        ("AT REVISION 2 CREATE (:person)", "reading"),
    ] {
        let run = place.run_words(&["graph", "query", text]);
        assert_eq!(run.code, 4, "{text}: {} {}", run.stdout, run.stderr);
        assert!(run.stderr.contains(told), "{text}: {}", run.stderr);
    }
    let run = place.run_words(&["graph", "query", "CREATE ()", "--rev", "2"]);
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert_eq!(
        rows(&place, &["MATCH (p) RETURN count(p) AS n"]),
        "{\"n\":1}\n"
    );
}

/// What is printed over the network is what is printed of a directory.
#[test]
fn a_cluster_is_asked_as_a_directory_is() {
    let (place, served) = (Place::new(), Served::start());
    let endpoint = served.endpoint().to_owned();
    let query = |words: &[&str]| {
        let all = [&["graph", "query"], words].concat();
        let here = place.run_words(&all);
        let there = || {
            served
                .place
                .run_words(&[&all[..], &["--endpoints", &endpoint]].concat())
        };
        let mut found = there();
        // A member that has just started says in a moment which commands it knows.
        for _ in 0..200 {
            if !found.stderr.contains("needs version") {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            found = there();
        }
        assert_eq!(found.stdout, here.stdout, "{words:?}: {}", found.stderr);
        assert_eq!(
            (found.code, &found.stderr),
            (here.code, &here.stderr),
            "{words:?}"
        );
        here.stdout
    };
    query(&[
        "CREATE (:person {name: $name, age: 41})-[:knows {since: date('2019-05-01')}]->(:person)",
        "--param",
        "name=ann",
    ]);
    query(&["MATCH (p:person) SET p.seen = true RETURN p.name ORDER BY p.name"]);
    query(&["MATCH (a)-[e:knows]->(b) RETURN a.age, e.since, labels(b), {x: [1, null]} AS m"]);
    query(&[
        "-o",
        "json",
        "MATCH p = ()-[e]->() RETURN length(p), type(e), e.since",
    ]);
    query(&["MATCH (p:nobody) RETURN p"]);
    query(&["MATCH (p:nobody) DELETE p"]);
    query(&["CALL bowline.kinds()"]);
    query(&["AT REVISION 2 MATCH (p) RETURN p.seen"]);
    query(&["MATCH (p) RETURN count(p)", "--rev", "2"]);
    for text in [
        "MATCH (p RETURN p",
        "RETURN $x",
        "RETURN 'a' =~ 'b'",
        "RETURN 1 / 0",
        "CALL bowline.kindz()",
        "AT REVISION 2 CREATE ()",
    ] {
        query(&[text]);
    }
    query(&["CREATE ()", "--rev", "2"]);
    let plan = query(&["MATCH (p:person) WHERE p.age > 40 RETURN p", "--explain"]);
    assert!(plan.contains("Filter p.age > 40"), "{plan}");
    let profile = ["graph", "query", "UNWIND [1, 2] AS i RETURN i", "--profile"];
    let there = [&profile[..], &["--endpoints", &endpoint]].concat();
    for run in [place.run_words(&profile), served.place.run_words(&there)] {
        let told = run.stdout + &run.stderr;
        assert!(
            told.contains("\n2 rows\nUnwind [1, 2] as i  [2 rows, "),
            "{told}"
        );
    }
}

#[test]
fn standard_input_has_statements() {
    let place = Place::new();
    let script =
        "CREATE (:a {x: ';'}); // one;\n MATCH (n:a)\nRETURN n.x AS x;\n\nRETURN $p AS p\n";
    let run = place.run_with_input("-o json graph query --param p=1", script.as_bytes());
    assert_eq!((run.code, &*run.stderr), (0, ""));
    assert_eq!(run.stdout, "{\"x\":\";\"}\n{\"p\":\"1\"}\n");
    let wrong = "RETURN 1 AS one; RETURN x; CREATE (:b);";
    let run = place.run_with_input("-o json graph query", wrong.as_bytes());
    assert_eq!(
        (run.code, &*run.stdout),
        (4, "{\"one\":1}\n"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains('^'), "{}", run.stderr);
    assert_eq!(rows(&place, &["MATCH (n:b) RETURN n"]), "");
}

#[test]
fn a_person_has_a_session_of_queries() {
    let place = Place::new();
    rows(&place, &["CREATE (:person {name: 'ann'})"]);
    let mut terminal = Terminal::start(&place, &["graph", "query"], 80);
    terminal.until("Ctrl-D ends the session");
    terminal.until("cypher> ");
    // Kinds and keywords by their first letters, and a second line.
    terminal.keys("mat\t (n:per\t)\r");
    terminal.keys("RETURN n.name AS who;\r");
    terminal.until("ann");
    terminal.until("1 row");
    terminal.until("cypher> ");
    terminal.keys("RETURN who;\r");
    terminal.until("^");
    terminal.until("cypher> ");
    terminal.keys(":param x=[1,2]\r");
    terminal.until("cypher> ");
    terminal.keys("RETURN $x[1] + 40 AS sum;\r");
    terminal.until("42");
    terminal.until("cypher> ");
    terminal.keys(":params\r");
    terminal.until("x: [1, 2]");
    terminal.until("cypher> ");
    terminal.keys(":exit\r");
    assert!(terminal.end().1.success());
    let history = place.path("state/bowline/query-history");
    let mode = std::fs::metadata(&history).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let kept = std::fs::read_to_string(&history).unwrap();
    assert!(kept.contains("$x[1]"), "{kept}");
}

#[test]
fn indexes_are_created_listed_used_and_dropped() {
    let place = Place::new();
    rows(
        &place,
        &["UNWIND range(1, 20) AS n CREATE (:person {name: 'p' + toString(n), age: n % 3})"],
    );
    let index = |line: &[&str]| place.run_words(&[&["graph", "index"], line].concat());
    let created = index(&["create", "person", "name", "--unique"]);
    assert_eq!((created.code, created.stderr.as_str()), (0, ""));
    let refused = index(&["create", "person", "age", "--unique"]);
    assert_eq!(refused.code, 4, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("no index by that is unique"),
        "{}",
        refused.stderr
    );
    let plan = rows(
        &place,
        &["MATCH (p:person {name: 'p7'}) RETURN p.age", "--explain"],
    );
    assert!(
        plan.contains("Seek (p:person) by its index, name = 'p7'"),
        "{plan}"
    );
    let listed = place.run_words(&["-o", "json", "graph", "index", "list"]);
    assert!(
        listed
            .stdout
            .contains(r#""attributes":["name"],"unique":"yes""#),
        "{}",
        listed.stdout
    );
    assert_eq!(index(&["drop", "person", "name"]).code, 0);
    assert_eq!(index(&["drop", "person", "name"]).code, 1);
    let plan = rows(
        &place,
        &["MATCH (p:person {name: 'p7'}) RETURN p.age", "--explain"],
    );
    assert!(plan.contains("Scan"), "{plan}");
}
