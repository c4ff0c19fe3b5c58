//! The graph over the network: each line prints the same, and ends the same, on a directory and on a server.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::{Place, Run};
use bowline_testing::ports::free_ports;
use rustix::process::{Pid, Signal, kill_process};

/// A server of this program in a place, next to the place's own directory.
pub(super) struct Served {
    pub(super) place: Place,
    server: Child,
    endpoint: String,
}

/// Whether all threads of a process, by its folder in `/proc`, have stopped; true where there is no such folder.
fn have_stopped(tasks: &Path) -> bool {
    let Ok(tasks) = std::fs::read_dir(tasks) else {
        return true;
    };
    tasks.flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat"));
        // The state follows the name, which is in brackets and may hold any character. One that has ended has no file.
        stat.map_or(true, |stat| {
            stat.rsplit(')')
                .next()
                .is_some_and(|rest| rest.starts_with(" T"))
        })
    })
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Served {
    pub(super) fn start() -> Served {
        let place = Place::new();
        let port = free_ports(8);
        let (client, peer) = (port, port + 1);
        let line = format!(
            "serve --data-dir served --listen-client-urls http://127.0.0.1:{client} \
             --listen-peer-urls http://127.0.0.1:{peer} --initial-advertise-peer-urls \
             http://127.0.0.1:{peer} --max-traversal-blocks 40"
        );
        let words: Vec<_> = line.split_whitespace().collect();
        let mut command = place.command(&words);
        let mut server = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(server.stderr.take().unwrap()).lines();
        assert!(log.any(|line| line.unwrap().contains("ready")));
        // Somebody has to read what it says, or it would wait.
        std::thread::spawn(move || log.count());
        Served {
            place,
            server,
            endpoint: format!("127.0.0.1:{client}"),
        }
    }

    /// Where it is.
    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Lets it answer nobody, and keep its connections.
    ///
    /// Each thread stops when it is scheduled next, so one that runs on another processor may answer a request after the
    /// signal was sent: returns when all have stopped.
    pub(super) fn pause(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.server.id());
        let deadline = Instant::now() + Duration::from_secs(10);
        while !have_stopped(Path::new(&tasks)) {
            assert!(Instant::now() < deadline, "the server does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets it go on after a pause.
    pub(super) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.server), signal).unwrap();
    }

    /// Runs a line on the server.
    pub(super) fn remote(&self, line: &str) -> Run {
        self.place
            .run(&format!("--endpoints {} {line}", self.endpoint))
    }

    /// Runs a line in both places, which must give the same; gives what it printed.
    pub(super) fn both(&self, line: &str, code: i32) -> String {
        let (here, there) = (self.place.run(line), self.remote(line));
        assert_eq!(here.code, code, "{line}: {}", here.stderr);
        assert_eq!(
            (there.code, &*there.stdout, &*there.stderr),
            (here.code, &*here.stdout, &*here.stderr),
            "bowline {line}"
        );
        here.stdout + &here.stderr
    }
}

/// Attributes keep their types over the network, and weigh and filter as their numbers and texts do.
#[test]
fn attributes_of_every_type_are_the_same_on_a_server() {
    let served = Served::start();
    let values = r#"--attr-json n=41 --attr-json f=2.5 --attr-json b=true --attr-json l=[1,"x",null] --attr t=x"#;
    let times = r#"--attr-json d={"$date":"2026-11-29"} --attr-json z={"$date_time":"2026-11-29T12:00+01:00[Europe/Berlin]"}"#;
    served.both(&format!("block put ann --kind person {values} {times}"), 0);
    served.both("block put bob --kind person", 0);
    served.both(
        "edge put ann knows bob --attr-json km=7 --attr-json u={\"$duration\":\"P1M\"}",
        0,
    );
    let block = served.both("-o json block get ann", 0);
    for part in [
        r#""n":41"#,
        r#""f":2.5"#,
        r#""l":[1,"x",null]"#,
        r#""d":{"$date":"2026-11-29"}"#,
        r#""z":{"$date_time":"2026-11-29T12:00+01:00[Europe/Berlin]"}"#,
    ] {
        assert!(block.contains(part), "{part}: {block}");
    }
    let edge = served.both("-o json edge get ann knows bob", 0);
    assert!(edge.contains(r#""km":7,"u":{"$duration":"P1M"}"#), "{edge}");
    served.both("-o json graph reach ann --where km=7", 0);
    let path = served.both("graph path ann bob --weight km", 0);
    assert!(path.contains('7'), "{path}");
    served.both("block put ann --kind person --attr-json n=x", 2);
    served.both("graph query RETURN", 4);
}

/// Blocks of no kind and of several are written, shown, listed by each kind and moved, here as there.
#[test]
fn kinds_are_the_same_on_a_server() {
    let served = Served::start();
    served.both("block put ann --kind person", 0);
    served.both("block put bob --kind person --kind author --content x", 0);
    served.both("block put cid --no-kind --attr-json age=41", 0);
    served.both("block put dan", 2);
    served.both("block put dan --kind person --no-kind", 2);
    served.both("block put dan --kind person --kind=", 4);
    let bob = served.both("-o json block get bob", 0);
    assert!(bob.contains(r#""kind":["author","person"]"#), "{bob}");
    let shown = served.both("block get bob", 0);
    assert!(shown.contains("author, person"), "{shown}");
    let cid = served.both("-o json block get cid", 0);
    assert!(cid.contains(r#""kind":[]"#), "{cid}");
    served.both("block get cid", 0);
    for (kind, count) in [("person", 2), ("author", 1), ("never", 0)] {
        let listed = served.both(&format!("-o json block list --kind {kind}"), 0);
        assert_eq!(listed.lines().count(), count, "{kind}: {listed}");
    }
    let stats = served.both("-o json graph stats", 0);
    assert!(
        stats.contains(r#""blocks_by_kind":{"author":1,"person":2}"#),
        "{stats}"
    );

    let exported = served.both("export -", 0);
    assert!(
        exported.contains(r#""kinds":["author","person"]"#),
        "{exported}"
    );
    assert!(exported.contains(r#""kinds":[]"#), "{exported}");
    served.both("export - --format dot", 0);
    served.place.write("all.jsonl", &exported);
    let again = served.both("-o json import all.jsonl", 0);
    assert!(again.contains("\"changed\":0"), "{again}");
    for name in ["ann", "bob", "cid"] {
        served.both(&format!("block del {name}"), 0);
    }
    served.both("-o json import all.jsonl", 0);
    assert_eq!(served.both("export -", 0), exported);
}

/// Indexes, and what they refuse, in the same words. The revision since which one is complete is each place's own.
#[test]
fn indexes_are_the_same_on_a_server() {
    let served = Served::start();
    served.both(
        "block put ann --kind person --attr name=Ann --attr zone=eu",
        0,
    );
    served.both(
        "block put bob --kind person --attr name=Bob --attr zone=eu",
        0,
    );
    served.both("graph index list", 0);
    let created = "-o json graph index create person name --unique";
    for run in [served.place.run(created), served.remote(created)] {
        assert_eq!(run.code, 0, "{}", run.stderr);
        let row = r#""kind":"person","attributes":["name"],"unique":"yes","since":"#;
        assert!(run.stdout.contains(row), "{}", run.stdout);
    }
    let refused = served.both("block put cid --kind person --attr name=Ann", 3);
    assert!(
        refused.contains("would have the same name as block"),
        "{refused}"
    );
    served.both("graph index create person name", 3);
    let refused = served.both("graph index create person zone --unique", 4);
    assert!(refused.contains("no index by that is unique"), "{refused}");
    served.both("graph index create person zone zone", 4);
    for run in [
        served.place.run("graph index list"),
        served.remote("graph index list"),
    ] {
        let (out, remark) = (run.stdout.as_str(), run.stderr.as_str());
        assert!(out.contains("name") && !out.contains("zone"), "{out}");
        assert!((out.to_owned() + remark).contains("1 index"), "{remark}");
    }
    let dropped = served.both("graph index drop person name", 0);
    assert!(dropped.contains("dropped: person by name"), "{dropped}");
    served.both("graph index drop person name", 1);
    served.both("graph index list", 0);
    let put = "block put cid --kind person --attr name=Ann";
    assert_eq!(
        (served.place.run(put).code, served.remote(put).code),
        (0, 0)
    );
}

#[test]
fn graph_commands_print_the_same_for_a_directory_and_a_server() {
    let served = Served::start();
    served.both(
        "block put ann --kind person --attr age=41 --content hello",
        0,
    );
    for name in ["bob", "cem", "dan", "eva"] {
        served.both(&format!("block put {name} --kind person"), 0);
    }
    served.both("-o json block put lib@1 --kind package --attr name=lib", 0);
    served.both("block put lib@2 --kind package --attr name=lib", 0);
    served.both("edge put ann knows bob --attr km=2", 0);
    served.both("edge put bob knows cem --attr km=2", 0);
    let revision = served.both("-o json edge put ann knows cem --attr km=9", 0);
    assert!(revision.contains("\"revision\":11"), "{revision}");
    served.both("edge put cem likes dan", 0);
    served.both("edge put dan likes ann --attr km=far", 0);

    // A name that is an attribute of one block only, and of two.
    served.both("block get lib", 1);
    served.both("block del lib@2", 0);
    let got = served.both("-o json block get lib", 0);
    assert!(got.contains("package"), "{got}");

    for line in [
        "block get ann",
        "graph neighbors cem",
        "graph neighbors cem --direction both",
        "-o json graph neighbors ann --kind knows --limit 1",
        "graph neighbors ann --limit 0",
        "graph reach ann",
        "graph reach ann --max-depth 1",
        "graph reach dan --direction in --depth-first",
        "graph reach ann --limit 2",
        "graph reach ann --max-bytes 20",
        "graph reach ann --where km=2",
        "-o json graph reach ann --where km=2 --max-neighbors 1",
        "-o json graph reach ann --max-neighbors 1 --kind knows",
        "graph dot ann --where km=2",
        "-o json graph reach ann --rev 10",
        "graph path ann dan",
        "graph path ann cem --kind knows --weight km",
        "graph path ann eva --rev 9 --max-depth 3 --direction both --kind person",
        "graph order --kind knows",
        "graph components",
        "graph components --strong --limit 2",
        "graph stats",
        "-o json graph stats --kind likes",
        "graph dot",
        "graph dot ann --max-depth 1 --kind knows",
    ] {
        let code = i32::from(line.contains("--rev 9"));
        let printed = served.both(line, code);
        assert_eq!(printed.is_empty(), line.contains("--limit 0"), "{line}");
    }
    for level in ["linearizable", "lease", "eventual"] {
        let line = format!("--read {level} graph path ann dan");
        served.both(&line, 0);
    }

    // What is refused, and what is not there.
    for (line, code) in [
        ("block get zoe", 1),
        ("block get 00000000-0000-0000-0000-000000000009", 1),
        ("block del zoe", 1),
        ("block put x --kind=", 4),
        ("edge put ann knows zoe", 1),
        ("edge del ann knows dan", 1),
        ("edge del ann never dan", 1),
        ("graph reach ann --kind never", 1),
        ("graph reach ann --where km", 2),
        ("graph path ann dan --limit 3", 2),
        ("graph dot --max-depth 3", 2),
        ("graph path eva ann", 1),
        ("graph path ann dan --weight km --max-depth 2", 4),
        ("graph path cem bob --weight km", 4),
        ("graph path ann dan --weight miles", 4),
        ("graph path ann dan --weight miles --default-weight 2.5", 0),
        ("graph order", 4),
    ] {
        served.both(line, code);
    }
    let revision = served.both("edge del ann knows cem", 0);
    assert!(
        revision.contains("15"),
        "refusals change nothing: {revision}"
    );
    served.both("graph stats", 0);
}

#[test]
fn what_only_a_server_bounds_is_said() {
    let served = Served::start();
    let endpoint = &served.endpoint;
    let lines: String = (0..45).map(|n| format!("{n} {}\n", n + 1)).collect();
    served.place.write("path.txt", lines);
    served.place.ok("import path.txt --format edge-list");
    served.remote("import path.txt --format edge-list");
    let reached = served
        .place
        .ok(&format!("--endpoints {endpoint} graph reach 0"));
    assert!(reached.contains("40 blocks over"), "{reached}");
    assert!(
        reached.contains("stopped by the server's --max-traversal-blocks; there is more"),
        "{reached}"
    );
    let within = served
        .place
        .ok(&format!("--endpoints {endpoint} graph reach 10"));
    assert!(
        within.contains("everything reachable was visited"),
        "{within}"
    );
    let lines: String = (1..45).map(|n| format!("hub s{n}\n")).collect();
    served.place.write("hub.txt", lines);
    served.remote("import hub.txt --format edge-list");
    let cut = served.remote("graph neighbors hub");
    assert_eq!(cut.code, 4, "{}", cut.stderr);
    assert!(cut.stderr.contains("than the 40 that"), "{}", cut.stderr);
    let some = served.remote("graph neighbors hub --limit 5");
    assert_eq!(some.code, 0, "{}", some.stderr);
    let message = served.remote("block put x --kind node --durability batched:10ms");
    assert_eq!(message.code, 2);
    assert!(message.stderr.contains("leave --durability out"));
}

#[test]
fn an_import_and_an_export_are_the_same_for_a_directory_and_a_server() {
    let served = Served::start();
    let place = &served.place;
    // Blocks that are only mentioned, edges given twice, keys given twice, an edge before its block.
    place.write("path.txt", "a b\nb c\na b\nc a\n");
    let lines = [
        r#"{"key":"k1","value":"1"}"#,
        r#"{"key":"k2","value":"2"}"#,
        r#"{"key":"k1","value":"3"}"#,
        r#"{"edge":{"source":"a","kind":"knows","target":"later"}}"#,
        r#"{"block":{"name":"later","kind":"person","content":"x"}}"#,
        r#"{"edge":{"source":"a","kind":"knows","target":"later"}}"#,
        "nonsense",
    ];
    place.write("more.jsonl", lines.join("\n"));
    served.both("import path.txt --format edge-list", 0);
    // A second time changes nothing, not even the revision.
    let again = served.both("-o json import path.txt --format edge-list", 0);
    assert!(again.contains("\"changed\":0"), "{again}");
    let here = place.run("-o json import more.jsonl");
    let there = served.remote("-o json import more.jsonl");
    assert_eq!((here.code, &here.stderr), (there.code, &there.stderr));
    let counts = |run: &Run| {
        let mut report: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        // On a cluster the graph and the keys of a batch are two writes, and a key given twice is one more.
        report.as_object_mut().unwrap().remove("revision");
        report
    };
    assert_eq!(counts(&here), counts(&there));
    assert_eq!(counts(&here)["refused"], 2, "{}", here.stdout);
    let exported = served.both("export -", 0);
    assert!(exported.contains("k1") && exported.contains("later"));
    served.both("export - --format dot --rev 2", 0);
    served.both("import more.jsonl --strict", 4);
}

#[test]
fn every_load_on_the_graph_runs_without_errors() {
    let served = Served::start();
    for (line, total) in [
        (
            "edge --blocks 100 --fan-out 3 --total 60 --clients 6 --conns 2",
            60,
        ),
        (
            "neighbors --blocks 100 --fan-out 3 --no-fill --total 200 --clients 8",
            200,
        ),
        (
            "traverse --blocks 100 --no-fill --max-depth 1 --total 100 --consistency e",
            100,
        ),
        (
            "neighbors --blocks 100 --no-fill --total 20 --consistency lease",
            20,
        ),
    ] {
        let line = format!(
            "--endpoints {} -o json bench graph --operation {line}",
            served.endpoint
        );
        let report: serde_json::Value = serde_json::from_str(&served.place.ok(&line)).unwrap();
        assert_eq!(report["requests"], total, "{report}");
        assert_eq!(
            (&report["errors"], &report["empty_answers"]),
            (&0.into(), &0.into()),
            "{report}"
        );
    }
    // What the load wrote is what it says: 100 blocks with up to 3 edges of one kind, and the measured ones.
    let stats = served.remote("-o json graph stats --kind link").stdout;
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    assert_eq!(stats["blocks"], 100);
    assert!(
        (250..=300).contains(&stats["edges"].as_u64().unwrap()),
        "{stats}"
    );
    // Blocks that are not there are refused, and counted as what they are.
    let missing =
        served.remote("bench graph --operation neighbors --no-fill --blocks 9000 --total 50");
    let said = missing.stdout + &missing.stderr;
    assert!(said.contains("NOT_FOUND"), "{said}");
}

/// `--weight km` gave a cost though no edge had the attribute `km`: each edge counted 1.
#[test]
fn a_weight_that_no_edge_has_is_an_error_that_names_the_edge() {
    let served = Served::start();
    for line in [
        "block put bonn --kind city",
        "block put cologne --kind city",
        "block put rome --kind city",
        "edge put bonn road cologne --attr km=30",
        "edge put cologne road rome",
    ] {
        served.both(line, 0);
    }
    let refused = served.both("graph path bonn rome --weight miles", 4);
    let expected = "edge bonn -> cologne has no attribute \"miles\"";
    assert!(refused.contains(expected), "{refused}");
    let refused = served.both("graph path bonn rome --weight km", 4);
    let expected = "edge cologne -> rome has no attribute \"km\"";
    assert!(refused.contains(expected), "{refused}");
    let found = served.both(
        "graph path bonn rome --weight km --default-weight 1200.5",
        0,
    );
    assert!(found.contains("2 edges, cost 1230.5"), "{found}");
    let found = served.both("graph path bonn cologne --weight km", 0);
    assert!(found.contains("1 edge, cost 30"), "{found}");

    for line in [
        "graph path bonn rome --default-weight 1",
        "graph path bonn rome --weight km --default-weight=-1",
        "graph path bonn rome --weight km --default-weight much",
    ] {
        served.both(line, 2);
    }
}

/// A block of an edge list was counted again for each mention that the reader of the file did not
/// remember: 4,363 blocks of 4,039.
#[test]
fn an_edge_list_counts_each_block_once() {
    const BLOCKS: usize = 3_000;
    let served = Served::start();
    // Each block is mentioned six times, far apart, and in several transactions.
    let edges: String = [1, 7, 11]
        .iter()
        .flat_map(|factor| (0..BLOCKS).map(move |n| format!("{n} {}\n", (n * factor + 1) % BLOCKS)))
        .collect();
    served.place.write("many.txt", edges);
    let first = served.both("-o json import many.txt --batch 500", 0);
    let first: serde_json::Value = serde_json::from_str(first.trim()).unwrap();
    assert_eq!(
        (&first["blocks"], &first["refused"]),
        (&3_000.into(), &0.into())
    );
    let stats = served.both("-o json graph stats", 0);
    assert!(stats.contains("\"blocks\":3000"), "{stats}");
    assert!(stats.contains("{\"node\":3000}"), "a number: {stats}");
    let again = served.both("-o json import many.txt", 0);
    assert!(
        again.contains("\"blocks\":0"),
        "nothing is created anew: {again}"
    );
    assert!(again.contains("\"changed\":0"), "{again}");
}
