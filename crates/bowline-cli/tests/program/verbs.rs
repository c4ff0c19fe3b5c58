//! The verbs that people try first, because another program has them.

use super::Place;
use super::graph_remote::Served;
use super::terminal::Terminal;

#[test]
fn get_with_a_prefix_lists_keys() {
    let served = Served::start();
    for key in ["svc/a", "svc/b", "svc/c", "other"] {
        served.both(&format!("put {key} v-{key}"), 0);
    }
    let listed = served.both("get --prefix svc/", 0);
    assert_eq!(listed, served.both("range svc/ --prefix", 0));
    assert_eq!(listed.lines().count(), 4, "{listed}");
    let some = served.both("-o json get svc/ --prefix --keys-only --limit 2", 0);
    assert_eq!(some.lines().count(), 2, "{some}");
    assert!(!some.contains("value"), "{some}");
    let all = served.place.run_words(&["get", "--prefix", ""]);
    assert_eq!((all.code, all.stdout.lines().count()), (0, 5));
    assert_eq!(served.both("get --prefix nothing/", 0), "");
    for line in ["get svc/ --limit 2", "get svc/ --prefix --raw"] {
        served.both(line, 2);
    }
}

#[test]
fn verbs_of_other_programs_are_understood() {
    let place = Place::new();
    place.ok("set greeting hello");
    for line in ["list", "ls", "range"] {
        assert_eq!(place.json(line)[0]["value"], "hello", "{line}");
    }
    let version = place.ok("version");
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    let version = &place.json("version")[0];
    assert_eq!(version["bowline"], env!("CARGO_PKG_VERSION"));
    assert!(version["etcd_api"].as_str().unwrap().starts_with("3."));
}

#[test]
fn a_value_comes_from_a_file() {
    let place = Place::new();
    let bytes = [0, 255, b'\n', 27];
    place.write("config.bin", bytes);
    place.ok("put config --file config.bin");
    assert_eq!(place.json("get config")[0]["value_base64"], "AP8KGw==");
    let missing = place.fails("put config --file nowhere.bin", 7);
    assert!(missing.contains("nowhere.bin"), "{missing}");
    place.fails("put config value --file config.bin", 2);
    assert_eq!(place.json("get config")[0]["version"], 1);
}

/// A person who types `put KEY` sees a program that hangs, unless it says what it waits for.
#[test]
fn put_says_that_it_waits_for_a_value() {
    let place = Place::new();
    let mut terminal = Terminal::start(&place, &["put", "greeting"], 80);
    terminal.until("waiting for the value");
    terminal.keys("hello\n\u{4}");
    let (_, status) = terminal.end();
    assert!(status.success());
    assert_eq!(place.json("get greeting")[0]["value"], "hello\n");

    let mut quiet = Terminal::start(&place, &["-q", "put", "greeting"], 80);
    quiet.keys("again\n\u{4}");
    let (shown, status) = quiet.end();
    assert!(status.success());
    assert!(!shown.contains("waiting"), "{shown}");
    // No person is there to be told.
    let piped = place.run_with_input("put greeting", b"piped");
    assert_eq!((piped.code, &*piped.stderr), (0, ""));
}

#[test]
fn blocks_and_edges_are_listed() {
    let served = Served::start();
    for name in ["ann", "bob", "cem"] {
        served.both(&format!("block put {name} --kind person"), 0);
    }
    served.both("block put readme --kind file --content text", 0);
    served.both("edge put ann knows bob --attr since=2019", 0);
    served.both("edge put bob knows cem", 0);
    served.both("edge put bob reads readme", 0);

    let blocks = served.both("-o json block list", 0);
    assert_eq!(blocks.lines().count(), 4);
    assert!(!blocks.contains("content"), "{blocks}");
    assert!(served.both("block list", 0).contains("readme"));
    let people = served.both("block list --kind person", 0);
    assert!(people.contains("ann") && !people.contains("readme"));
    assert_eq!(served.both("block list --limit 2", 0).lines().count(), 3);
    // Before the second block.
    assert_eq!(served.both("block list --rev 2", 0).lines().count(), 2);

    let edge = served.both("edge get ann knows bob", 0);
    assert!(edge.contains("since=2019"), "{edge}");
    let none = served.both("edge get ann knows cem", 1);
    assert!(none.contains("does not exist"), "{none}");

    let edges = served.both("-o json edge list", 0);
    assert_eq!(edges.lines().count(), 3);
    assert!(edges.contains("\"source_id\":"), "{edges}");
    assert_eq!(served.both("edge list --limit 1", 0).lines().count(), 2);
    assert_eq!(served.both("edge list --kind knows", 0).lines().count(), 3);
    let of_bob = served.both("edge list bob", 0);
    assert!(
        !of_bob.contains("ann") && of_bob.contains("reads"),
        "{of_bob}"
    );
    let both = served.both("edge list bob --direction both", 0);
    assert!(
        both.contains("ann") && both.contains("since=2019"),
        "{both}"
    );
    assert_eq!(both.lines().count(), 4);
    let into = served.both("edge list bob --direction in --kind knows", 0);
    assert_eq!(into.lines().count(), 2);
    served.both("edge list --direction in", 2);
    served.both("edge list nobody", 1);
    an_edge_to_itself_is_listed_once(&served);
}

/// It was listed once for each of its ends. Found by review.
fn an_edge_to_itself_is_listed_once(served: &Served) {
    served.both("edge put bob knows bob", 0);
    for (line, edges) in [
        ("edge list bob --direction both", 4),
        ("edge list bob --direction both --limit 4", 4),
        ("edge list bob --direction both --limit 2", 2),
        ("edge list bob", 3),
        ("edge list bob --direction in", 2),
    ] {
        let listed = served.both(line, 0);
        assert_eq!(listed.lines().count(), edges + 1, "{line}: {listed}");
    }
}
