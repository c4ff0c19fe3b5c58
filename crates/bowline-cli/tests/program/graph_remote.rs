//! The graph over the network: each line prints the same, and ends the same, on a directory and on a server.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use super::serve::free_port;
use super::{Place, Run};

/// A server of this program in a place, next to the place's own directory.
struct Served {
    place: Place,
    server: Child,
    endpoint: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Served {
    fn start() -> Served {
        let place = Place::new();
        let port = free_port();
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

    /// Runs a line on the server.
    fn remote(&self, line: &str) -> Run {
        self.place
            .run(&format!("--endpoints {} {line}", self.endpoint))
    }

    /// Runs a line in both places, which must give the same; gives what it printed.
    fn both(&self, line: &str, code: i32) -> String {
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
        ("graph path eva ann", 1),
        ("graph path ann dan --weight km --max-depth 2", 4),
        ("graph path cem bob --weight km", 4),
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
    let dot = served.place.ok("graph dot");
    let refused = served.remote("import path.txt --format edge-list");
    if refused.code == 0 {
        assert_eq!(served.remote("graph dot").stdout, dot);
    } else {
        assert!(refused.stderr.contains("--data-dir"), "{}", refused.stderr);
        for n in 0..=45 {
            served.remote(&format!("block put {n} --kind node"));
        }
        for n in 0..45 {
            served.remote(&format!("edge put {n} edge {}", n + 1));
        }
    }
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
    let message = served.remote("block put x --kind node --durability batched:10ms");
    assert_eq!(message.code, 2);
    assert!(message.stderr.contains("leave --durability out"));
}
