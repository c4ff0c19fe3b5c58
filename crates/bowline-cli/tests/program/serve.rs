//! `serve` and `cluster up`: what they refuse, and that they end cleanly when they are told to.

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bowline_testing::ports::free_ports;
use rustix::process::{Pid, Signal, kill_process};

use super::Place;

pub(crate) fn terminate(child: &Child) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
}

#[test]
fn a_port_in_use_and_a_wrong_configuration_are_told_from_one_another() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", taken.local_addr().unwrap());
    let said = place.fails(&format!("serve --listen-client-urls {url}"), 7);
    assert!(said.contains(&format!("cannot listen on {url}")), "{said}");
    assert!(!place.data().exists(), "the data was not touched");
    let said = place.fails("serve --config-file none.toml", 7);
    assert!(
        said.contains("cannot read the configuration none.toml"),
        "{said}"
    );
    let said = place.fails("serve --listen-client-urls nonsense", 4);
    assert!(
        said.contains("--listen-client-urls: \"nonsense\" is not a URL"),
        "{said}"
    );
    place.write("c.toml", "name = 'a'\n\nmax-txn-ops = 'x'\n");
    let said = place.fails("serve --config-file c.toml", 4);
    assert!(said.contains("c.toml:3: max-txn-ops: "), "{said}");
    assert!(place.fails("serve --bogus", 2).contains("--bogus"));
}

#[test]
fn the_configuration_in_effect_says_where_each_value_came_from() {
    let place = Place::new();
    place.write("c.toml", "name = 'a'\nmax-txn-ops = 7\n");
    let printed = place.ok("serve --config-file c.toml --name b --print-config");
    assert!(printed.contains("name = \"b\" # --name\n"), "{printed}");
    assert!(
        printed.contains("max-txn-ops = 7 # c.toml:2\n"),
        "{printed}"
    );
    assert!(printed.contains(" # BOWLINE_DATA_DIR\n"), "{printed}");
    let printed = place.ok("serve --data-dir d --print-config");
    assert!(
        printed.contains("data-dir = \"d\" # --data-dir\n"),
        "{printed}"
    );
    // What follows from other settings was printed as an empty value, and the quota as 0.
    let place = Place::new();
    let mut command = place.command(&["serve", "--name", "n", "--print-config"]);
    let printed = command.env_remove("BOWLINE_DATA_DIR").output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    for line in [
        "data-dir = \"n.bowline\" # default",
        "advertise-client-urls = \"http://localhost:2379\" # default",
        "# listen-metrics-urls is not set",
        "initial-cluster = \"n=http://localhost:2380\" # default",
        "quota-backend-bytes = 2147483648 # default",
    ] {
        let found = printed.lines().any(|printed| printed == line);
        assert!(found, "{line}: {printed}");
    }
    assert!(!printed.contains("\"\""), "{printed}");
    place.write("printed.toml", &printed);
    let again = place.ok("serve --config-file printed.toml --print-config");
    assert!(again.contains("n=http://localhost:2380"), "{again}");
}

#[test]
fn a_server_ends_cleanly_when_it_is_told_to() {
    let place = Place::new();
    let port = free_ports(8);
    let (client, peer) = (port, port + 1);
    let line = format!(
        "serve --listen-client-urls http://127.0.0.1:{client} --listen-peer-urls \
         http://127.0.0.1:{peer} --initial-advertise-peer-urls http://127.0.0.1:{peer}"
    );
    let words: Vec<_> = line.split_whitespace().collect();
    let mut child = place
        .command(&words)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(log.any(|line| line.unwrap().contains("ready")));
    terminate(&child);
    let rest: Vec<String> = log.map(Result::unwrap).collect();
    assert!(rest.iter().any(|line| line.contains("stopped")), "{rest:?}");
    assert!(child.wait().unwrap().success());
}

/// A server in a directory, until it is told to end.
fn with_server<T>(place: &Place, directory: &str, visit: impl FnOnce(&str) -> T) -> T {
    with_server_of(place, directory, "", |at, _| visit(at))
}

/// The same with more settings; its process id is told, too.
pub(crate) fn with_server_of<T>(
    place: &Place,
    directory: &str,
    settings: &str,
    visit: impl FnOnce(&str, u32) -> T,
) -> T {
    let port = free_ports(8);
    let peer = format!("http://127.0.0.1:{}", port + 1);
    let line = format!(
        "serve --data-dir {directory} --listen-client-urls http://127.0.0.1:{port} \
         --listen-peer-urls {peer} --initial-advertise-peer-urls {peer} {settings}"
    );
    let words: Vec<_> = line.split_whitespace().collect();
    let mut command = place.command(&words);
    let mut server = Server(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut log = BufReader::new(server.0.stderr.take().unwrap()).lines();
    assert!(log.any(|line| line.unwrap().contains("ready")));
    let seen = visit(&format!("127.0.0.1:{port}"), server.0.id());
    terminate(&server.0);
    log.for_each(|line| drop(line.unwrap()));
    assert!(server.0.wait().unwrap().success());
    seen
}

#[test]
fn history_is_compacted_automatically() {
    let place = Place::new();
    for (flags, why) in [
        (
            "--auto-compaction-retention soon",
            "--auto-compaction-retention: \"soon\" is not a number of hours like 8, or a time",
        ),
        (
            "--auto-compaction-mode revision --auto-compaction-retention 1h",
            "\"1h\" is not a number of revisions, which --auto-compaction-mode revision expects",
        ),
        (
            "--auto-compaction-mode yearly",
            "\"yearly\" is not one of periodic, revision",
        ),
    ] {
        let said = place.fails(&format!("serve {flags}"), 4);
        assert!(said.contains(why), "{said}");
    }
    let printed = place.ok("serve --auto-compaction-retention 8 --print-config");
    assert!(
        printed.contains("auto-compaction-retention = 8 # --auto-compaction-retention\n"),
        "{printed}"
    );
    with_server_of(&place, "d", "--auto-compaction-retention 500ms", |at, _| {
        place.ok(&format!("put k first --endpoints {at}"));
        place.ok(&format!("put k second --endpoints {at}"));
        let deadline = Instant::now() + Duration::from_secs(20);
        let line = format!("get k --rev 2 --endpoints {at}");
        while place.run(&line).code == 0 {
            assert!(Instant::now() < deadline, "it is still there");
        }
        let said = place.fails(&line, 4);
        assert!(said.contains("compacted"), "{said}");
        let now = place.ok(&format!("get k --raw --endpoints {at}"));
        assert_eq!(now.trim_end(), "second");
    });
}

/// Does not outlive a test that fails.
pub(crate) struct Server(pub(crate) Child);

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

#[test]
fn what_was_saved_is_restored_and_served() {
    let place = Place::new();
    let saved = with_server(&place, "old", |at| {
        place.ok(&format!("put k first --endpoints {at}"));
        place.ok(&format!("put k second --endpoints {at}"));
        place.json(&format!("snapshot save saved --endpoints {at}"))
    });
    let status = place.json("snapshot status saved");
    for column in ["sha256", "bytes"] {
        assert_eq!(status[0][column], saved[0][column]);
    }
    let restored = place.json("snapshot restore saved --data-dir new");
    assert_eq!(
        (&restored[0]["path"], &restored[0]["revision"]),
        (&"new".into(), &status[0]["revision"])
    );
    with_server(&place, "new", |at| {
        assert_eq!(
            place
                .ok(&format!("get k --raw --endpoints {at}"))
                .trim_end(),
            "second"
        );
        let before = place.ok(&format!("get k --raw --rev 2 --endpoints {at}"));
        assert_eq!(before.trim_end(), "first");
    });
    let said = place.fails("snapshot restore saved --data-dir new", 4);
    assert!(said.contains("new is not an empty directory"), "{said}");
    let mut bytes = std::fs::read(place.path("saved")).unwrap();
    bytes[100] ^= 1;
    place.write("damaged", &bytes);
    let said = place.fails("snapshot restore damaged --data-dir other", 6);
    assert!(said.contains("damaged is damaged: at byte "), "{said}");
    assert!(!place.path("other").exists());
    place.fails("snapshot status damaged", 6);
    place.write("other-file", "# notes\n");
    let said = place.fails("snapshot status other-file", 4);
    assert!(said.contains("this is not a Bowline snapshot"), "{said}");
    place.fails("snapshot restore none --data-dir other", 7);
    place.fails(
        "snapshot restore saved --data-dir other --name a --initial-cluster b=http://h:1",
        4,
    );
    assert!(!place.path("other").exists());
}

/// Both ended with exit code 8, "a bug in bowline".
#[test]
fn what_a_member_owns_and_a_peer_that_is_down_are_no_bugs_of_the_program() {
    let place = Place::new();
    with_server(&place, "member", |at| {
        place.ok(&format!("put k v --endpoints {at}"))
    });
    for line in ["put k w", "get k", "compact", "export -"] {
        let said = place.fails(&format!("{line} --data-dir member"), 4);
        assert!(said.contains("member belongs to a member"), "{said}");
        assert!(said.contains("`bowline serve`"), "{said}");
    }

    let port = free_ports(8);
    let (own, other) = (
        format!("http://127.0.0.1:{port}"),
        format!("http://127.0.0.1:{}", port + 1),
    );
    let line = format!(
        "serve --name b --data-dir joining --initial-cluster a={other},b={own} \
         --initial-cluster-state existing --listen-peer-urls {own} --initial-advertise-peer-urls {own} \
         --listen-client-urls http://127.0.0.1:0"
    );
    let said = place.fails(&line, 9);
    assert!(said.contains(&format!("member at {other}: ")), "{said}");
    assert!(said.contains("start that member"), "{said}");
}

#[test]
fn members_within_the_program_are_measured() {
    let place = Place::new();
    let reports = place.json("bench node --clients 8 --total 300 --key-space-size 200");
    let name = |row: &serde_json::Value| row["benchmark"].as_str().unwrap().to_owned();
    let names: Vec<String> = reports.iter().map(name).collect();
    assert_eq!(
        names,
        [
            "node put",
            "node linearizable read",
            "node lease read",
            "node eventual read"
        ]
    );
    for report in &reports {
        assert_eq!(report["requests"], 300, "{report}");
        let (errors, empty) = (&report["errors"], &report["empty_answers"]);
        assert_eq!((errors, empty), (&0.into(), &0.into()), "{report}");
        assert!(report["p50_ms"].as_f64() > Some(0.0), "{report}");
    }
    let only = place.json("bench node --nodes 1 --only put --duration 200ms --threads 2");
    assert_eq!(only.len(), 1);
    assert!(only[0]["requests"].as_u64() > Some(10), "{}", only[0]);
    place.fails("bench node --only bogus", 2);
    place.fails("bench node --key-size 1 --key-space-size 17", 2);
    let left = std::fs::read_dir(place.path("")).unwrap().count();
    assert_eq!(left, 0, "the data is gone");
}

/// The lines that a program writes, as they come.
fn lines_of(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map(Result::unwrap) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// All lines until one has these words; an error with the lines if none has them in time.
fn until(lines: &Receiver<String>, words: &str) -> Result<Vec<String>, Vec<String>> {
    const TIMEOUT: Duration = Duration::from_secs(60);
    let mut seen = Vec::new();
    while let Ok(line) = lines.recv_timeout(TIMEOUT) {
        let is_it = line.contains(words);
        seen.push(line);
        if is_it {
            return Ok(seen);
        }
    }
    Err(seen)
}

/// A cluster of `cluster up`: what it prints, line by line, and its log.
struct Cluster {
    up: Server,
    told: Receiver<String>,
    log: Arc<Mutex<String>>,
    logging: JoinHandle<()>,
    endpoints: String,
}

impl Cluster {
    fn start(place: &Place, settings: &str) -> Cluster {
        let port = free_ports(8);
        let line = format!("cluster up --nodes 3 --base-port {port} {settings}");
        let words: Vec<_> = line.split_whitespace().collect();
        let mut command = place.command(&words);
        command.env("TMPDIR", place.path(""));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut up = Server(command.spawn().unwrap());
        let told = lines_of(up.0.stdout.take().unwrap());
        let log = Arc::new(Mutex::new(String::new()));
        let (written, lines) = (log.clone(), BufReader::new(up.0.stderr.take().unwrap()));
        let logging = std::thread::spawn(move || {
            for line in lines.lines().map(Result::unwrap) {
                *written.lock().unwrap() += &format!("{line}\n");
            }
        });
        let ports = [port, port + 2, port + 4].map(|port| format!("127.0.0.1:{port}"));
        Cluster {
            up,
            told,
            log,
            logging,
            endpoints: ports.join(","),
        }
    }

    /// Waits for a line that has these words; gives all lines until then.
    fn told_until(&mut self, words: &str) -> Vec<String> {
        let seen = until(&self.told, words);
        seen.unwrap_or_else(|seen| panic!("{words:?} is not in {seen:?}; the log: {}", self.log()))
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits for a line of the log in which all of these words are.
    fn logs(&self, words: &[&str]) {
        let deadline = Instant::now() + Duration::from_secs(30);
        let has_all = |line: &str| words.iter().all(|word| line.contains(word));
        while !self.log().lines().any(has_all) {
            assert!(Instant::now() < deadline, "{words:?}: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The process of node1, as the command to kill it names it.
    fn first_process(lines: &[String]) -> u32 {
        let line = lines.iter().find(|line| line.contains("kill -9 "));
        let word = line.and_then(|line| line.split_whitespace().nth(2));
        word.unwrap_or_else(|| panic!("{lines:?}")).parse().unwrap()
    }
}

fn kill(process: u32) {
    let pid = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

#[test]
fn a_cluster_starts_and_takes_its_data_with_it() {
    let place = Place::new();
    let mut cluster = Cluster::start(&place, "");
    cluster.told_until("ready");
    let told = cluster.told_until("kill -9 ");
    // What it says to try is tried.
    let endpoints = cluster.endpoints.clone();
    assert!(
        told.contains(&format!("  export BOWLINE_ENDPOINTS={endpoints}")),
        "{told:?}"
    );
    for line in told.iter().filter(|line| line.starts_with("  bowline ")) {
        let words: Vec<_> = line.split_whitespace().skip(1).collect();
        let mut command = place.command(&words);
        let output = command.env("BOWLINE_ENDPOINTS", &endpoints).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
    }
    let etcdctl = "  etcdctl --endpoints $BOWLINE_ENDPOINTS get greeting".to_owned();
    assert!(told.contains(&etcdctl), "{told:?}");
    for node in ["node1 | ", "node2 | ", "node3 | "] {
        cluster.logs(&[node, "leads in term"]);
    }
    terminate(&cluster.up.0);
    cluster.told_until("stopped");
    assert!(cluster.up.0.wait().unwrap().success());
    cluster.logging.join().unwrap();
    let log = cluster.log.lock().unwrap().clone();
    assert_eq!(log.matches(": stopped").count(), 3, "{log}");
    for line in log.lines() {
        assert!(
            ["node1 | ", "node2 | ", "node3 | "]
                .iter()
                .any(|node| line.starts_with(node)),
            "{line}"
        );
        assert!(!line.contains('\x1B'), "{line:?}");
    }
    let left = std::fs::read_dir(place.path("")).unwrap().count();
    assert_eq!(left, 0, "the data is gone");
}

#[test]
fn a_killed_node_is_started_again_and_no_node_outlives_the_command() {
    let place = Place::new();
    let mut cluster = Cluster::start(&place, "--data-dir kept");
    let mut told = cluster.told_until("ready");
    told.extend(cluster.told_until("kill -9 "));
    let endpoints = cluster.endpoints.clone();
    // The one that is killed leads: another is elected, and says so.
    let members = place.json(&format!("member list --endpoints {endpoints}"));
    let first = members.iter().find(|row| row["name"] == "node1").unwrap();
    let id = first["member"].as_str().unwrap();
    cluster.logs(&["this is member", id]);
    place.ok(&format!("move-leader {id} --endpoints {endpoints}"));
    cluster.logs(&["node2 | ", &format!("member {id} (node1) leads in term ")]);
    cluster.logs(&[
        "node1 | ",
        &format!("this member {id} (node1) leads in term "),
    ]);
    place.ok(&format!("put k v --endpoints {endpoints}"));

    kill(Cluster::first_process(&told));
    let told = cluster.told_until("node1 was started again as process ");
    assert!(
        told.iter().any(|line| line
            .starts_with("node1 ended (signal: 9 (SIGKILL)); it is started again in 500ms")),
        "{told:?}"
    );
    cluster.told_until("node1 serves again");
    let own = endpoints.split(',').next().unwrap();
    let read = place.ok(&format!("get k --raw --endpoints {own}"));
    assert_eq!(read.trim_end(), "v");

    // It is itself killed, and cannot stop them any more.
    kill(cluster.up.0.id());
    cluster.up.0.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    for endpoint in endpoints.split(',') {
        while TcpStream::connect(endpoint).is_ok() {
            assert!(Instant::now() < deadline, "{endpoint} is still served");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn a_node_that_cannot_run_ends_the_cluster() {
    let place = Place::new();
    let mut cluster = Cluster::start(&place, "--data-dir kept");
    let mut told = cluster.told_until("ready");
    told.extend(cluster.told_until("kill -9 "));
    // Whenever it is started again, it does not understand its directory.
    std::fs::write(place.path("kept/node1/BOWLINE"), "nonsense").unwrap();
    kill(Cluster::first_process(&told));
    let news: Vec<String> = cluster.told.iter().collect();
    for pause in ["500ms", "1s", "2s", "4s"] {
        let again = format!("it is started again in {pause} (");
        assert_eq!(
            news.iter().filter(|line| line.contains(&again)).count(),
            1,
            "{news:?}"
        );
    }
    let status = cluster.up.0.wait().unwrap();
    cluster.logging.join().unwrap();
    let log = cluster.log.lock().unwrap().clone();
    assert_eq!(status.code(), Some(6), "{log}");
    assert!(
        log.contains("error: node1 ended 5 times in a row, each time within 10 s of its start"),
        "{log}"
    );
    assert_eq!(log.matches(": stopped").count(), 2, "{log}");

    // One that never served is not tried again.
    let port = free_ports(8);
    let taken = TcpListener::bind(("127.0.0.1", port + 2)).unwrap();
    let said = place.fails(&format!("cluster up --nodes 3 --base-port {port}"), 7);
    drop(taken);
    assert!(
        said.contains("node2 ended (exit status: 7); its log says why"),
        "{said}"
    );
    assert!(said.contains("node2 | "), "{said}");
}

/// Nodes that somebody killed again and again ended the command with exit code 8, "a bug in bowline".
#[test]
fn a_node_that_others_end_is_no_bug_of_the_program() {
    let place = Place::new();
    let mut cluster = Cluster::start(&place, "--data-dir kept");
    let mut told = cluster.told_until("ready");
    told.extend(cluster.told_until("kill -9 "));
    kill(Cluster::first_process(&told));
    for _ in 0..4 {
        let told = cluster.told_until("node1 was started again as process ");
        let id = told.last().unwrap().rsplit(' ').next().unwrap();
        kill(id.parse().unwrap());
    }
    let status = cluster.up.0.wait().unwrap();
    cluster.logging.join().unwrap();
    let log = cluster.log.lock().unwrap().clone();
    assert_eq!(status.code(), Some(7), "{log}");
    assert!(
        log.contains("the last time with signal: 9 (SIGKILL)"),
        "{log}"
    );
}

/// What a server says of itself, in sentences.
#[test]
fn a_server_logs_what_it_is_and_what_it_does() {
    let place = Place::new();
    let port = free_ports(8);
    let peer = format!("127.0.0.1:{}", port + 1);
    let line = format!(
        "serve --name solo --data-dir d --listen-client-urls http://127.0.0.1:{port} --listen-peer-urls \
         http://{peer} --initial-advertise-peer-urls http://{peer} --auto-compaction-retention 8"
    );
    let words: Vec<_> = line.split_whitespace().collect();
    let mut server = Server(
        place
            .command(&words)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let log = lines_of(server.0.stderr.take().unwrap());
    let mut lines: Vec<String> = Vec::new();
    let mut read_until = |words: &str| lines.extend(until(&log, words).unwrap());
    read_until("leads in term");
    let at = format!("127.0.0.1:{port}");
    let id = place.json(&format!("member list --endpoints {at}"))[0]["member"].clone();
    let id = id.as_str().unwrap();
    terminate(&server.0);
    read_until(": stopped");
    assert!(server.0.wait().unwrap().success());
    for expected in [
        format!(
            "Bowline {} starts as node \"solo\" in the directory d; its clients see etcd 3.7.3",
            env!("CARGO_PKG_VERSION")
        ),
        format!("this is member {id} of the cluster "),
        format!("other members are served at http://{peer}"),
        format!("clients are served at http://{at}: etcd v3, bowline.v1, JSON"),
        "the leader compacts history that is older than 28800s".to_owned(),
        format!("this member {id} (solo) leads in term 1"),
        "the server stops: it received SIGTERM".to_owned(),
    ] {
        assert_eq!(
            lines.iter().filter(|line| line.contains(&expected)).count(),
            1,
            "{expected}: {lines:#?}"
        );
    }
    for line in &lines {
        assert!(!line.contains("openraft") && !line.contains('{'), "{line}");
    }
}

/// A signal was noticed only once a server had started: one that waits for others could only be killed.
#[test]
fn a_server_that_waits_for_others_can_be_stopped() {
    let place = Place::new();
    let port = free_ports(8);
    let peer = format!("http://127.0.0.1:{}", port + 1);
    let line = format!(
        "serve --name b --data-dir b --listen-client-urls http://127.0.0.1:{port} --listen-peer-urls {peer} \
         --initial-advertise-peer-urls {peer} --initial-cluster-state existing \
         --initial-cluster b={peer},a=http://127.0.0.1:{}",
        port + 3
    );
    let words: Vec<_> = line.split_whitespace().collect();
    let mut command = place.command(&words);
    let mut server = Server(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut log = BufReader::new(server.0.stderr.take().unwrap()).lines();
    // It listens before it asks the others.
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < deadline, "nobody listens");
        std::thread::sleep(Duration::from_millis(20));
    }
    terminate(&server.0);
    ends_well(&mut server);
    let said = "the server stops before it has served: it received SIGTERM";
    assert!(log.any(|line| line.unwrap().contains(said)));
}

fn ends_well(server: &mut Server) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let status = loop {
        if let Some(status) = server.0.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "it does not stop");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "{status}");
}

/// The quota was looked at four times a second: ten puts of 500 kB went in beyond one of 4 MB.
#[test]
fn a_quota_holds_for_puts_that_come_at_once() {
    const QUOTA: usize = 4_000_000;
    const VALUE: usize = 500_000;
    let place = Place::new();
    let settings = format!("--quota-backend-bytes {QUOTA}");
    with_server_of(&place, "full", &settings, |at, _| {
        let put = |number| {
            let line = format!("put k{number} --endpoints {at}");
            place.run_with_input(&line, &vec![b'x'; VALUE])
        };
        let runs: Vec<_> = std::thread::scope(|scope| {
            let puts: Vec<_> = (0..20)
                .map(|number| scope.spawn(move || put(number)))
                .collect();
            puts.into_iter().map(|put| put.join().unwrap()).collect()
        });
        let accepted = runs.iter().filter(|run| run.code == 0).count();
        assert!((5..=QUOTA / VALUE).contains(&accepted), "{accepted} puts");
        for run in runs.iter().filter(|run| run.code != 0) {
            assert_eq!(run.code, 7, "{}", run.stderr);
            assert!(
                run.stderr.contains("the database is full"),
                "{}",
                run.stderr
            );
        }
        let alarms = || place.ok(&format!("alarm list --endpoints {at}"));
        let deadline = Instant::now() + Duration::from_secs(20);
        // What was refused was large: while there is room for less, that is no alarm.
        for number in 20.. {
            if alarms().contains("NOSPACE") {
                break;
            }
            assert!(Instant::now() < deadline, "{}", alarms());
            let line = format!("put k{number} --endpoints {at}");
            place.run_with_input(&line, &vec![b'x'; VALUE / 10]);
        }
        // What frees space goes on. Which puts were the accepted ones is up to their order.
        let there = runs.iter().position(|run| run.code == 0).unwrap();
        place.ok(&format!("del k{there} --endpoints {at}"));
    });
}

#[test]
fn a_cluster_is_not_started_with_another_number_of_nodes() {
    let place = Place::new();
    let port = free_ports(16);
    let up = |nodes: u16| {
        let line = format!("cluster up --nodes {nodes} --base-port {port} --data-dir kept");
        let words: Vec<_> = line.split_whitespace().collect();
        let mut command = place.command(&words);
        command.stderr(Stdio::null()).stdout(Stdio::piped());
        Server(command.spawn().unwrap())
    };
    let mut three = up(3);
    let told = BufReader::new(three.0.stdout.take().unwrap()).lines();
    assert!(told.map(Result::unwrap).any(|line| line == "ready"));
    terminate(&three.0);
    assert!(three.0.wait().unwrap().success());
    for nodes in [1, 5] {
        // One that is not refused runs until it is told to end.
        let mut other = up(nodes);
        let deadline = Instant::now() + Duration::from_secs(30);
        let ended = loop {
            match other.0.try_wait().unwrap() {
                Some(ended) => break ended.code(),
                None if Instant::now() > deadline => {
                    // It ends its servers, which outlive it otherwise.
                    terminate(&other.0);
                    other.0.wait().unwrap();
                    panic!("{nodes} nodes were started");
                }
                None => {}
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(ended, Some(4));
        let line = format!("cluster up --nodes {nodes} --base-port {port} --data-dir kept");
        let said = place.fails(&line, 4);
        assert!(said.contains("kept has a cluster of 3 nodes"), "{said}");
        assert!(said.contains("--nodes 3"), "{said}");
    }
    assert!(!place.path("kept/node4").exists());
}

/// A member that others cannot reach was added, and the cluster waited for it.
#[test]
fn peer_urls_without_http_are_refused() {
    let place = Place::new();
    for line in [
        "member add ftp://10.0.0.4:2380",
        "member add 10.0.0.4:2380",
        "member update 1 http://10.0.0.4:2380,10.0.0.4:2380",
    ] {
        let said = place.fails(&format!("{line} --endpoints 127.0.0.1:1"), 2);
        assert!(said.contains("peer URLs must start with http://"), "{said}");
    }
}
