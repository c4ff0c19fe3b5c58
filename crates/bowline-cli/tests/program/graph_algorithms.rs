//! `bowline graph rank|communities|triangles|clustering|k-hop|simple-paths`, on a directory and on a server.

use super::Place;
use super::graph_remote::Served;

/// Two rings of three who know each other, a1 a2 a3 and b1 b2 b3, tied from a3 to b1; and 30 fans who follow a1.
fn circles() -> Place {
    let place = Place::new();
    place.write("edges.txt", circle_edges());
    place.ok("import edges.txt");
    place
}

fn circle_edges() -> String {
    let mut lines = String::new();
    for (source, target) in [
        ("a1", "a2"),
        ("a2", "a3"),
        ("a3", "a1"),
        ("b1", "b2"),
        ("b2", "b3"),
        ("b3", "b1"),
        ("a3", "b1"),
    ] {
        lines.push_str(&format!("{source} {target}\n"));
    }
    for fan in 0..30 {
        lines.push_str(&format!("fan{fan} a1\n"));
    }
    lines
}

fn number(row: &serde_json::Value, name: &str) -> f64 {
    row[name].as_f64().unwrap()
}

#[test]
fn blocks_are_ranked_and_a_table_says_what_is_left() {
    let place = circles();
    let rows = place.json("graph rank");
    assert_eq!(rows.len(), 36, "JSON has all");
    let sum: f64 = rows.iter().map(|row| number(row, "rank")).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    assert!(rows.is_sorted_by(|a, b| number(a, "rank") >= number(b, "rank")));
    let first: Vec<_> = rows[..6]
        .iter()
        .map(|row| row["block"].as_str().unwrap())
        .collect();
    assert!(
        first.iter().all(|block| !block.starts_with("fan")),
        "{first:?}"
    );
    assert_eq!(place.json("graph rank --limit 3").len(), 3);

    let table = place.ok("graph rank");
    assert_eq!(table.lines().count(), 1 + 20 + 1, "{table}");
    let left = "36 blocks, 16 of them not shown: --limit shows more, -o json all";
    assert!(table.trim_end().ends_with(left), "{table}");
    let table = place.ok("graph rank --limit 36");
    assert!(table.trim_end().ends_with("\n36 blocks"), "{table}");
    // A small rank has digits that mean something.
    let fan = table.lines().find(|line| line.starts_with("fan")).unwrap();
    let rank = fan.split_whitespace().nth(1).unwrap();
    assert!(
        rank.starts_with("0.00") && rank.parse::<f64>().unwrap() > 0.0,
        "{fan}"
    );
    let narrow = place.ok("--width 30 graph rank");
    assert!(
        narrow
            .lines()
            .take(21)
            .all(|line| line.chars().count() <= 30),
        "{narrow}"
    );

    // The other way round, fans are where one comes to.
    let rows = place.json("graph rank --direction in --damping 0.99 --iterations 1 --limit 1");
    assert_ne!(rows[0]["block"], "a1");
    assert!(
        place
            .fails("graph rank --damping 1.5", 2)
            .contains("between 0 and 1")
    );
    assert!(
        place
            .fails("graph rank --kind hates", 1)
            .contains("known kinds")
    );
}

#[test]
fn communities_triangles_and_coefficients_are_listed() {
    let place = circles();
    let rows = place.json("graph communities");
    assert_eq!(rows[0]["community"], 1);
    let sizes: Vec<_> = rows
        .iter()
        .map(|row| row["size"].as_u64().unwrap())
        .collect();
    assert_eq!(sizes.iter().sum::<u64>(), 36);
    assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
    let table = place.ok("graph communities --limit 1 --iterations 3");
    assert!(table.contains("communit"), "{table}");

    let rows = place.json("graph triangles");
    assert_eq!(rows.len(), 36);
    let counts: Vec<_> = rows
        .iter()
        .map(|row| row["triangles"].as_u64().unwrap())
        .collect();
    assert!(counts[..6].iter().all(|count| *count == 1), "{counts:?}");
    assert!(counts[6..].iter().all(|count| *count == 0), "{counts:?}");
    let table = place.ok("graph triangles");
    assert!(table.trim_end().ends_with("\n2 triangles"), "{table}");

    // Each of a2's two neighbors is tied to the other, by one of two possible edges.
    let of = |line: &str, name: &str| {
        let rows = place.json(line);
        let row = rows.iter().find(|row| row["block"] == name).unwrap();
        number(row, "coefficient")
    };
    assert_eq!(of("graph clustering", "a2"), 0.5);
    assert_eq!(of("graph clustering --undirected", "a2"), 1.0);
    let table = place.ok("graph clustering --limit 2");
    assert!(
        table.contains("34 of them not shown") && table.contains("on average"),
        "{table}"
    );
}

#[test]
fn neighborhoods_and_simple_paths_are_listed() {
    let place = circles();
    let rows = place.json("graph k-hop fan7 2");
    let found: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row["hops"].as_u64().unwrap(),
                row["block"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(found, [(1, "a1"), (2, "a2")]);
    let table = place.ok("graph k-hop a1 1 --direction in");
    assert!(
        table.contains("31 blocks: 31 at distance 1, 11 of them not shown"),
        "{table}"
    );
    assert!(place.ok("graph k-hop a1 0").contains("0 blocks"));
    assert!(place.fails("graph k-hop nobody 2", 1).contains("nobody"));

    let rows = place.json("graph simple-paths fan1 b3");
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["edges"], 6);
    assert_eq!(rows[0]["blocks"].as_array().unwrap().len(), 7);
    let both = "graph simple-paths a1 b3 --direction both";
    assert_eq!(place.json(both).len(), 4, "each ring is passed either way");
    assert_eq!(place.json(&format!("{both} --max-depth 3")).len(), 1);
    let rows = place.json(&format!("{both} --limit 2"));
    assert_eq!((rows.len(), &rows[2]["stopped_by"]), (3, &"--limit".into()));
    let table = place.ok(&format!("{both} --limit 2"));
    assert!(
        table.contains("the first 2 paths; there are more"),
        "{table}"
    );
    let table = place.ok(&format!("{both} --limit 4"));
    assert!(table.trim_end().ends_with("\n4 paths"), "{table}");
    assert!(
        place
            .fails("graph simple-paths b3 a1", 1)
            .contains("no path")
    );
}

#[test]
fn old_revisions_are_seen() {
    let place = circles();
    let before = place.json("stats")[0]["revision"].as_u64().unwrap();
    place.ok("block del a1");
    assert!(place.ok("graph triangles").contains("\n1 triangle"));
    let old = place.ok(&format!("graph triangles --rev {before}"));
    assert!(old.contains("\n2 triangles"), "{old}");
    assert!(place.fails("graph rank --rev 99999", 4).contains("future"));
}

/// The mean of no coefficients was "-0.000" in a directory, and "0.000" on a server.
#[test]
fn an_empty_graph_says_the_same_in_both_places() {
    let served = Served::start();
    served.place.ok("put k v");
    let said = served.both("graph clustering", 0);
    assert!(said.contains("0.000 on average"), "{said}");
    assert!(!said.contains("-0"), "{said}");
}

#[test]
fn algorithms_print_the_same_for_a_directory_and_a_server() {
    let served = Served::start();
    served.place.write("edges.txt", circle_edges());
    served.both("import edges.txt", 0);
    served.both("block put lone --kind node", 0);
    served.both("edge put a2 likes b2", 0);
    for line in [
        "graph rank",
        "graph rank --limit 0",
        "-o json graph rank --kind likes --direction both --damping 0.5 --iterations 3",
        "-o json graph rank --limit 7",
        "graph communities",
        "graph communities --iterations 2 --limit 1",
        "-o json graph communities",
        "graph triangles",
        "-o json graph triangles --limit 100",
        "graph clustering",
        "graph clustering --undirected --limit 3",
        "-o json graph clustering",
        "graph k-hop fan7 2",
        "graph k-hop a1 1 --direction in",
        "graph k-hop lone 5",
        "-o json graph k-hop b2 4 --direction both --kind likes",
        "graph simple-paths fan1 b3",
        "graph simple-paths a1 b3 --limit 0",
        "graph simple-paths a1 b3 --limit 1",
        "graph simple-paths a1 b3 --max-depth 9 --direction both --limit 3",
        "-o json graph simple-paths a1 b3 --limit 2",
        "-o json graph simple-paths a1 b3",
        "graph simple-paths lone lone",
        "graph triangles --rev 3",
        "--read eventual graph rank --limit 2",
    ] {
        served.both(line, 0);
    }
    for (line, code) in [
        ("graph rank --kind hates", 1),
        ("graph k-hop nobody 2", 1),
        ("graph simple-paths lone a1", 1),
        ("graph simple-paths a1 b3 --kind hates", 1),
    ] {
        served.both(line, code);
    }
    // What only a server bounds: 40 blocks.
    for fan in 30..45 {
        served.remote(&format!("block put fan{fan} --kind node"));
        served.remote(&format!("edge put fan{fan} likes a1"));
    }
    let refused = served.remote("graph k-hop a1 1 --direction in");
    assert_eq!(refused.code, 4, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("than the 40 blocks"),
        "{}",
        refused.stderr
    );
    let refused = served.remote("graph rank --iterations 10001");
    assert_eq!(refused.code, 4, "{}", refused.stderr);
}
