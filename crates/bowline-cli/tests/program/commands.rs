//! Each command does what its help says.

use std::time::{Duration, Instant};

use super::Place;

#[test]
fn keys_are_put_read_and_deleted() {
    let place = Place::new();
    assert_eq!(place.json("put greeting hello")[0]["revision"], 2);
    assert_eq!(place.json("put greeting hi")[0]["revision"], 3);
    let entry = &place.json("get greeting")[0];
    assert_eq!(entry["value"], "hi");
    assert_eq!(
        (&entry["modified"], &entry["created"]),
        (&3.into(), &2.into())
    );
    assert_eq!(
        (&entry["version"], &entry["lease"]),
        (&2.into(), &serde_json::Value::Null)
    );
    assert_eq!(place.json("get greeting --rev 2")[0]["value"], "hello");
    assert_eq!(place.ok("get greeting --raw"), "hi");
    assert!(place.ok("get greeting").contains("value     hi"));
    assert_eq!(place.json("del greeting")[0]["deleted"], 1);
    assert!(place.fails("get greeting", 1).contains("does not exist"));
    assert!(place.fails("del greeting", 1).contains("nothing changed"));
    place.check_is_clean();
}

#[test]
fn values_come_from_standard_input_and_bytes_as_hex() {
    let place = Place::new();
    let bytes = [0, 255, 10, 13];
    assert_eq!(place.run_with_input("put raw", &bytes).code, 0);
    let entry = &place.json("get raw")[0];
    assert_eq!(entry["value_base64"], "AP8KDQ==");
    place.ok("put --hex 00ff cafe");
    let entry = &place.json("get --hex 00ff")[0];
    assert_eq!(
        (&entry["key_hex"], &entry["value_hex"]),
        (&"00ff".into(), &"cafe".into())
    );
    assert_eq!(place.run_with_input("put dash -", b"from input").code, 0);
    assert_eq!(place.ok("get dash --raw"), "from input");
}

#[test]
fn ranges_go_both_ways_and_stop() {
    let place = Place::new();
    for key in ["svc/a", "svc/b", "svc/c", "other"] {
        place.ok(&format!("put {key} v-{key}"));
    }
    let keys = |line: &str| -> Vec<String> {
        let rows = place.json(line);
        rows.iter()
            .map(|row| row["key"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(keys("range"), ["other", "svc/a", "svc/b", "svc/c"]);
    assert_eq!(
        keys("range svc/ --prefix --reverse"),
        ["svc/c", "svc/b", "svc/a"]
    );
    assert_eq!(keys("range svc/a svc/c"), ["svc/a", "svc/b"]);
    assert_eq!(keys("range svc/b"), ["svc/b", "svc/c"]);
    assert_eq!(keys("range --limit 2 --keys-only"), ["other", "svc/a"]);
    assert_eq!(keys("range --rev 3"), ["svc/a", "svc/b"]);
    assert_eq!(place.json("del --prefix svc/")[0]["deleted"], 3);
    assert_eq!(keys("range"), ["other"]);
    assert_eq!(place.json("del --range a z")[0]["deleted"], 1);
    assert!(
        place
            .fails("range z a", 4)
            .contains("ends before it starts")
    );
}

#[test]
fn history_watch_and_cas_tell_the_past() {
    let place = Place::new();
    assert_eq!(place.json("cas leader 0 one")[0]["revision"], 2);
    let lost = place.fails("cas leader 0 two", 3);
    assert!(
        lost.contains("is at revision 2") && lost.contains("should be absent"),
        "{lost}"
    );
    place.ok("cas leader 2 two");
    place.ok("del leader");
    place.ok("cas leader 0 three");
    let history = place.json("history leader");
    let told: Vec<_> = history
        .iter()
        .map(|row| {
            (
                row["revision"].as_u64().unwrap(),
                row["change"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(told, [(5, "put"), (4, "delete"), (3, "put"), (2, "put")]);
    assert_eq!(place.json("history leader --limit 1").len(), 1);
    let seen = place.json("watch leader --from 3 --count 3");
    let seen: Vec<_> = seen
        .iter()
        .map(|row| row["revision"].as_u64().unwrap())
        .collect();
    assert_eq!(seen, [3, 4, 5]);
    assert_eq!(place.json("watch --from 99 --timeout 50ms").len(), 0);
    assert!(
        place
            .fails("watch --count 1 --timeout 50ms", 1)
            .contains("--from 6")
    );
    assert!(
        place
            .fails("history never-there", 1)
            .contains("never written")
    );
}

/// Each command opened the directory and started the time of every lease anew, so none ever expired.
#[test]
fn a_lease_in_a_directory_expires_between_commands() {
    let place = Place::new();
    let granted = Instant::now();
    let id = place.json("lease grant 3s")[0]["lease"].clone();
    let id = id.as_str().expect("an id").to_owned();
    place.ok(&format!("put svc/a up --lease {id}"));
    // Whoever looks does not keep it alive.
    let deadline = granted + Duration::from_secs(60);
    while !place.json("lease list").is_empty() {
        assert!(Instant::now() < deadline, "it lives on");
        std::thread::sleep(Duration::from_millis(50));
    }
    let lived = granted.elapsed();
    assert!(lived >= Duration::from_secs(3), "{lived:?}");
    place.fails("get svc/a", 1);
}

#[test]
fn leases_are_granted_listed_and_revoked() {
    let place = Place::new();
    assert_eq!(place.json("lease grant 60s --id 1f")[0]["lease"], "1f");
    place.ok("put svc/a up --lease 1f");
    let leases = place.json("lease list");
    assert_eq!(leases[0]["lease"], "1f");
    assert_eq!(leases[0]["keys"][0], "svc/a");
    // In JSON a number with its unit in the name, as in `"ttl_ms":60000`, and in a table what people say.
    let remaining = leases[0]["remaining_ms"].as_u64().unwrap();
    assert!((1..=60_000).contains(&remaining), "{remaining}");
    assert_eq!(leases[0]["ttl_ms"], 60_000);
    let shown = place.ok("lease list");
    assert!(!shown.contains("ms") && !shown.contains("ns"), "{shown}");
    assert_eq!(place.json("get svc/a")[0]["lease"], "1f");
    assert_eq!(place.json("lease keep-alive 1f --once")[0]["lease"], "1f");
    assert!(
        place
            .fails("lease grant 1s --id 1f", 3)
            .contains("exists already")
    );
    assert!(place.fails("put x y --lease 8", 1).contains("lease 8"));
    assert_eq!(place.json("lease revoke 1f")[0]["deleted"], 1);
    assert!(place.fails("get svc/a", 1).contains("does not exist"));
    assert!(
        place
            .fails("lease keep-alive 1f --once", 1)
            .contains("lease 1f")
    );
    let id = place.json("lease grant 1s")[0]["lease"].clone();
    let id = id.as_str().expect("a text");
    assert!(i64::from_str_radix(id, 16).is_ok_and(|id| id > 0), "{id}");
    // Written as etcdctl prints it, with zeros in front.
    place.ok(&format!("lease revoke {id:0>16}"));
    for id in ["0", "-1", "1g"] {
        let refused = place.fails(&format!("put x y --lease={id}"), 2);
        assert!(refused.contains("hexadecimal"), "{refused}");
    }
    place.check_is_clean();
}

/// ann -> bob -> cat -> dan, ann -> dan by a dear edge, and eve on her own.
fn people(place: &Place) {
    for name in ["ann", "bob", "cat", "dan", "eve"] {
        place.ok(&format!("block put {name} --kind person --attr age=41"));
    }
    place.ok("edge put ann knows bob --attr weight=1");
    place.ok("edge put bob knows cat --attr weight=1");
    place.ok("edge put cat knows dan --attr weight=1");
    place.ok("edge put ann avoids dan --attr weight=10");
}

fn column(rows: &[serde_json::Value], name: &str) -> Vec<String> {
    rows.iter()
        .map(|row| row[name].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn blocks_and_edges_are_put_read_and_deleted() {
    let place = Place::new();
    people(&place);
    let block = &place.json("block get ann")[0];
    assert_eq!(block["kind"], "person");
    assert_eq!(block["attributes"]["age"], "41");
    assert_eq!(block["attributes"]["name"], "ann");
    let id = block["id"].as_str().unwrap().to_owned();
    assert_eq!(place.json(&format!("block get {id}"))[0]["id"], id);
    let run = place.run_with_input("block put readme --kind file --content -", b"# Hello\n");
    assert_eq!(run.code, 0);
    assert_eq!(place.json("block get readme")[0]["content"], "# Hello\n");
    assert!(
        place
            .fails("edge put ann knows nobody", 1)
            .contains("nobody")
    );
    assert!(
        place
            .fails("edge del ann knows dan", 1)
            .contains("nothing changed")
    );
    place.ok("edge del ann avoids dan");
    place.ok("block del bob");
    assert!(place.fails("block get bob", 1).contains("does not exist"));
    assert!(
        place.json("graph neighbors ann").is_empty(),
        "bob took his edges along"
    );
    assert!(place.json("graph neighbors cat --direction in").is_empty());
    place.check_is_clean();
}

#[test]
fn graph_questions_are_answered() {
    let place = Place::new();
    people(&place);
    assert_eq!(
        column(&place.json("graph neighbors ann"), "block"),
        ["bob", "dan"]
    );
    let both = place.json("graph neighbors bob --direction both");
    assert_eq!(column(&both, "block"), ["cat", "ann"]);
    assert_eq!(place.json("graph neighbors ann --kind knows").len(), 1);
    assert!(
        place
            .fails("graph neighbors ann --kind hates", 1)
            .contains("known kinds")
    );

    let reached = place.json("graph reach ann --kind knows --max-depth 2");
    assert_eq!(column(&reached[..3], "block"), ["ann", "bob", "cat"]);
    assert_eq!(reached[3]["stopped_by"], "--max-depth");
    let text = place.ok("graph reach ann --kind knows --max-depth 2");
    assert!(text.contains("stopped by --max-depth"), "{text}");
    let text = place.ok("graph reach ann --limit 2");
    assert!(text.contains("stopped by --limit"), "{text}");
    let text = place.ok("graph reach ann --max-neighbors 0");
    assert!(
        text.contains("beyond --max-neighbors were left out"),
        "{text}"
    );
    let cut = place.json("graph reach ann --max-neighbors 0");
    assert_eq!(cut.last().unwrap()["stopped_by"], "--max-neighbors");
    let unlike = place.json("graph reach ann --where weight=no");
    assert_eq!(column(&unlike, "block"), ["ann"]);
    assert!(
        place
            .fails("graph dot --max-depth 2", 2)
            .contains("name the block that it starts at")
    );
    let text = place.ok("graph reach dan --direction in --depth-first");
    assert!(
        text.contains("4 blocks") && text.contains("everything reachable"),
        "{text}"
    );

    assert_eq!(
        column(&place.json("graph path ann dan"), "block"),
        ["ann", "dan"]
    );
    let light = place.json("graph path ann dan --weight weight");
    assert_eq!(column(&light, "block"), ["ann", "bob", "cat", "dan"]);
    assert!(place.fails("graph path ann eve", 1).contains("no path"));

    let order = column(&place.json("graph order"), "block");
    let at = |name: &str| order.iter().position(|other| other == name).unwrap();
    assert_eq!(order.len(), 5);
    assert!(at("ann") < at("bob") && at("bob") < at("cat") && at("cat") < at("dan"));
    place.ok("edge put dan knows bob");
    let cycle = place.fails("graph order", 4);
    assert!(
        cycle.contains("bob") && cycle.contains("cat") && cycle.contains("dan"),
        "{cycle}"
    );

    let strong = place.json("graph components --strong --limit 1");
    assert_eq!(strong[0]["size"], 3);
    let weak = place.json("graph components");
    assert_eq!((weak.len(), &weak[0]["size"]), (2, &4.into()));

    let stats = &place.json("graph stats")[0];
    assert_eq!((&stats["blocks"], &stats["edges"]), (&5.into(), &5.into()));
    assert_eq!(stats["edges_by_kind"]["avoids"], 1);

    let dot = place.ok("graph dot");
    assert!(
        dot.starts_with("digraph") && dot.contains("label=\"ann\""),
        "{dot}"
    );
    let part = place.ok("graph dot cat --direction out");
    assert!(
        part.contains("\"dan\"") && !part.contains("\"ann\""),
        "{part}"
    );
    // As it was before the last edge: no cycle.
    let revision = place.json("stats")[0]["revision"].as_u64().unwrap();
    place.ok(&format!("graph order --rev {}", revision - 1));
}

#[test]
fn upkeep_compacts_checks_and_copies() {
    let place = Place::new();
    for round in 0..3 {
        place.ok(&format!("put key value-{round}"));
    }
    let before = &place.json("stats")[0];
    assert_eq!(
        (&before["revision"], &before["oldest_revision"]),
        (&4.into(), &1.into())
    );
    let compacted = &place.json("compact 3")[0];
    assert_eq!(
        (&compacted["oldest_revision"], &compacted["revision"]),
        (&3.into(), &4.into())
    );
    let refused = place.fails("get key --rev 2", 4);
    assert!(refused.contains("oldest readable is 3"), "{refused}");
    assert!(place.fails("get key --rev 9", 4).contains("newest is 4"));
    assert_eq!(place.json("get key --rev 3")[0]["value"], "value-1");
    assert_eq!(place.json("history key").len(), 2);

    let copy = place.path("backup/monday");
    let copied = &place.json(&format!("checkpoint {}", copy.display()))[0];
    assert_eq!(copied["revision"], 4);
    place.ok("put key later");
    let run = place.run_words(&["--data-dir", copy.to_str().unwrap(), "get", "key", "--raw"]);
    assert_eq!(run.stdout, "value-2", "{}", run.stderr);
    assert!(
        place
            .fails(&format!("checkpoint {}", copy.display()), 7)
            .contains("monday")
    );

    let check = place.json("check");
    assert!(check.iter().any(|row| row["keys"] == 1), "{check:?}");
    assert!(place.ok("completions bash").contains("checkpoint"));
}

#[test]
fn manual_pages_are_written_and_are_the_same_each_time() {
    let place = Place::new();
    assert_eq!(place.ok("man share/man1"), "");
    place.ok("man again");
    let pages = super::files_in(&place.path("share/man1"));
    assert!(pages.len() > 50, "{}", pages.len());
    for page in &pages {
        let name = page.file_name().unwrap();
        let text = std::fs::read_to_string(page).unwrap();
        assert!(
            text.contains("\n.SH NAME\nbowline"),
            "{}: {text}",
            page.display()
        );
        let again = std::fs::read_to_string(place.path("again").join(name)).unwrap();
        assert_eq!(text, again, "{}", page.display());
    }
    place.write("file", "");
    let said = place.fails("man file/pages", 7);
    assert!(said.contains("cannot create file/pages"), "{said}");
}

#[test]
fn the_tour_needs_no_argument_and_leaves_nothing() {
    let place = Place::new();
    let text = place.ok("tour");
    for part in [
        "Import",
        "revision",
        "It loses",
        "libc@",
        " -> ",
        "Watch",
        "opened in",
        "no damage",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    assert!(
        super::files_in(&place.path("")).is_empty(),
        "the tour left something behind"
    );

    // With the lock file at hand, kept, and as JSON.
    place.write("Cargo.lock", "version = 4\n[[package]]\nname = \"app\"\nversion = \"1.0.0\"\ndependencies = [\"lib\"]\n[[package]]\nname = \"lib\"\nversion = \"2.0.0\"\n");
    let kept = place.path("kept");
    let steps = place.json(&format!("tour --keep {}", kept.display()));
    assert_eq!(steps.len(), 10);
    assert!(
        steps[0]["result"][0]
            .as_str()
            .unwrap()
            .starts_with("2 blocks, 1 edges")
    );
    let run = place.run_words(&[
        "--data-dir",
        kept.to_str().unwrap(),
        "graph",
        "path",
        "app",
        "lib",
    ]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        place
            .fails(&format!("tour --keep {}", kept.display()), 4)
            .contains("not empty")
    );
}
