//! `graph query`.

use super::Place;

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
