//! TLS through the real program: certificates that it makes, a server that uses them, commands that show them, and what
//! each bad file is answered with.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{ChildStderr, Stdio};
use std::time::{Duration, Instant};

use bowline_testing::ports::free_ports;
use rustix::process::{Pid, Signal, kill_process};

use super::Place;
use super::serve::{Server, terminate};

/// A server that speaks TLS, its address and its log.
struct Secure {
    server: Server,
    at: String,
    log: Lines<BufReader<ChildStderr>>,
}

impl Secure {
    fn start(place: &Place, more: &str) -> Secure {
        let port = free_ports(4);
        let peer = format!("http://127.0.0.1:{}", port + 1);
        let line = format!(
            "serve --data-dir served --listen-client-urls https://127.0.0.1:{port} --listen-peer-urls {peer} \
             --initial-advertise-peer-urls {peer} {more}"
        );
        let words: Vec<_> = line.split_whitespace().collect();
        let mut command = place.command(&words);
        let mut server = Server(command.stderr(Stdio::piped()).spawn().unwrap());
        let mut log = BufReader::new(server.0.stderr.take().unwrap()).lines();
        assert!(log.any(|line| line.unwrap().contains("ready")));
        Secure {
            server,
            at: format!("https://127.0.0.1:{port}"),
            log,
        }
    }

    fn stop(mut self) {
        terminate(&self.server.0);
        self.log.for_each(|line| drop(line.unwrap()));
        assert!(self.server.0.wait().unwrap().success());
    }
}

/// The certificates of a trial, made by the program.
fn make(place: &Place) {
    place.ok("cert ca --dir pki");
    place.ok("cert server --dir pki --name server --host localhost,127.0.0.1");
    place.ok("cert client --dir pki --name alice");
}

const SERVER: &str = "--cert-file pki/server.crt --key-file pki/server.key";
const ALICE: &str = "--cacert pki/ca.crt --cert pki/alice.crt --key pki/alice.key";

#[test]
fn a_trial_with_certificates_from_the_first_command_to_the_last() {
    let place = Place::new();
    make(&place);
    for key in ["ca", "server", "alice"] {
        let mode = fs::metadata(place.path(&format!("pki/{key}.key"))).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o600, "{key}");
    }
    let secure = Secure::start(
        &place,
        &format!("{SERVER} --client-cert-auth --trusted-ca-file pki/ca.crt"),
    );
    let at = &secure.at;
    place.ok(&format!("put greeting hello --endpoints {at} {ALICE}"));
    let host = at.trim_start_matches("https://");
    let read = place.ok(&format!("get greeting --raw --endpoints {host} {ALICE}"));
    assert_eq!(read.trim_end(), "hello");
    let health = place.ok(&format!("endpoint health --endpoints {at} {ALICE}"));
    assert!(health.contains("yes"), "{health}");
    let load = place.ok(&format!(
        "bench put --total 20 --clients 3 --endpoints {at} {ALICE} --json"
    ));
    assert!(load.contains(r#""errors":0"#), "{load}");
    // From the environment, as the others are.
    let mut command = place.command(&["get", "greeting", "--raw"]);
    let found = command
        .env("BOWLINE_ENDPOINTS", at)
        .env("BOWLINE_CACERT", "pki/ca.crt")
        .env("BOWLINE_CERT", "pki/alice.crt")
        .env("BOWLINE_KEY", "pki/alice.key")
        .output()
        .unwrap();
    assert_eq!(found.stdout, b"hello");
    // What is missing or wrong is said.
    for (options, code, reason) in [
        ("--cacert pki/ca.crt", 9, "asks for a client's certificate"),
        ("", 9, "not of a trusted CA"),
        (
            "--cacert pki/ca.crt --cert pki/alice.crt --key pki/alice.key --tls-server-name other.example.com",
            9,
            "for another host",
        ),
        (
            "--cacert pki/ca.crt --cert pki/alice.crt",
            2,
            "--cert needs --key",
        ),
        ("--cacert pki/none.crt", 4, "cannot read pki/none.crt"),
        (
            "--cacert pki/ca.crt --cert pki/alice.crt --key pki/server.key",
            4,
            "pki/server.key does not fit the certificate pki/alice.crt",
        ),
    ] {
        let run = place.run(&format!("get greeting --endpoints {at} {options}"));
        assert!(
            run.stderr.contains(reason),
            "{options}: {} {}",
            run.code,
            run.stderr
        );
        assert_eq!(run.code, code, "{options}: {}", run.stderr);
    }
    // Nothing is verified, and the server still wants to know who it is.
    place.ok(&format!(
        "get greeting --endpoints {at} --insecure-skip-tls-verify --cert pki/alice.crt --key pki/alice.key"
    ));
    secure.stop();
}

#[test]
fn files_that_a_server_cannot_use_are_refused_with_what_mends_them() {
    let place = Place::new();
    make(&place);
    place.ok("cert ca --dir other");
    place.ok("cert server --dir other --name server --host localhost");
    let serve = |files: &str| {
        let url = "--listen-client-urls https://127.0.0.1:1";
        place.fails(&format!("serve --data-dir none {url} {files}"), 4)
    };
    fs::set_permissions(
        place.path("other/server.key"),
        fs::Permissions::from_mode(0o644),
    )
    .unwrap();
    for (files, reason) in [
        (
            "--cert-file pki/server.crt --key-file pki/alice.key",
            "does not fit the certificate",
        ),
        (
            "--cert-file pki/server.crt --key-file other/server.key",
            "chmod 600 other/server.key",
        ),
        (
            "--cert-file pki/none.crt --key-file pki/server.key",
            "cannot read pki/none.crt",
        ),
        (
            "--cert-file pki/server.key --key-file pki/server.key",
            "pki/server.key holds no certificate",
        ),
        ("", "https needs --cert-file and --key-file, or --auto-tls"),
    ] {
        let said = serve(files);
        assert!(said.contains(reason), "{files}: {said}");
    }
    assert!(!place.path("none").exists(), "nothing was written");
}

/// A server reads its files again by itself and on SIGHUP; a bad file is refused, and the old one stays.
#[test]
fn sighup_reads_certificates_again_and_a_bad_one_changes_nothing() {
    let place = Place::new();
    make(&place);
    let mut secure = Secure::start(&place, SERVER);
    let get = format!("get k --endpoints {} --cacert pki/ca.crt", secure.at);
    assert_eq!(place.run(&get).code, 1);
    let hang_up = |secure: &Secure| {
        let id = i32::try_from(secure.server.0.id()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), Signal::HUP).unwrap();
    };
    let good = fs::read(place.path("pki/server.crt")).unwrap();
    fs::write(place.path("pki/server.crt"), "damaged").unwrap();
    hang_up(&secure);
    let refused = secure
        .log
        .find(|line| line.as_ref().unwrap().contains("refused"));
    let refused = refused.unwrap().unwrap();
    assert!(refused.contains("pki/server.crt"), "{refused}");
    assert_eq!(place.run(&get).code, 1, "it serves with the old one");
    fs::write(place.path("pki/server.crt"), good).unwrap();
    // A certificate for another host shows that the new one is in use; nobody sends a signal.
    place.ok("cert server --dir pki --name server --host new.example.com --force");
    let begun = Instant::now();
    while place.run(&get).code == 1 {
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody looked");
        std::thread::sleep(Duration::from_millis(100));
    }
    let said = place.run(&get).stderr;
    assert!(said.contains("for another host"), "{said}");
    let named = format!("{get} --tls-server-name new.example.com");
    assert_eq!(place.run(&named).code, 1);
    secure.stop();
}

/// A certificate that exists is not replaced by accident, least of all a CA.
#[test]
fn files_that_exist_are_kept_unless_somebody_insists() {
    let place = Place::new();
    make(&place);
    let before = fs::read(place.path("pki/ca.key")).unwrap();
    for line in ["cert ca --dir pki", "cert client --dir pki --name alice"] {
        let said = place.fails(line, 4);
        assert!(
            said.contains("exists") && said.contains("--force"),
            "{said}"
        );
    }
    assert_eq!(fs::read(place.path("pki/ca.key")).unwrap(), before);
    let said = place.fails("cert server --dir empty --name a --host localhost", 4);
    assert!(said.contains("bowline cert ca --dir empty"), "{said}");
    let said = place.fails("cert server --dir pki --name a/b --host localhost", 2);
    assert!(said.contains("a/b"), "{said}");
}

/// The audit log on standard output: of calls over TLS, and of a watch through the gateway, whose client leaves it.
/// Nothing but its lines is there, and no value. The program held the lock of its standard output, for which the thread of
/// the log waited for ever, and the calls for that; the server did not stop either.
#[test]
fn the_audit_log_on_standard_output_has_what_came_over_tls_and_through_the_gateway() {
    let place = Place::new();
    make(&place);
    let (port, log) = (free_ports(4), place.path("audit"));
    let peer = format!("http://127.0.0.1:{}", port + 1);
    let plain = format!("127.0.0.1:{}", port + 2);
    let line = format!(
        "serve --data-dir served --listen-client-urls https://127.0.0.1:{port},http://{plain} --listen-peer-urls {peer} \
         --initial-advertise-peer-urls {peer} {SERVER} --trusted-ca-file pki/ca.crt --audit-log stdout"
    );
    let words: Vec<_> = line.split_whitespace().collect();
    let mut command = place.command(&words);
    let command = command.stdout(fs::File::create(&log).unwrap());
    let mut server = Server(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut told = BufReader::new(server.0.stderr.take().unwrap()).lines();
    assert!(told.any(|line| line.unwrap().contains("ready")));
    let at = format!("--endpoints https://127.0.0.1:{port} {ALICE}");
    place.ok(&format!("put greeting S3CRET {at}"));
    place.ok(&format!("watch greeting --from 1 --count 1 {at}"));
    let mut gateway = TcpStream::connect(&plain).unwrap();
    let request = r#"{"create_request":{"key":"Z2F0ZXdheQ=="}}"#;
    let head = "POST /v3/watch HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length:";
    let head = format!("{head} {}\r\n\r\n", request.len());
    gateway.write_all((head + request).as_bytes()).unwrap();
    let mut replies = BufReader::new(gateway).lines();
    assert!(replies.any(|line| line.unwrap().contains("created")));
    drop(replies);
    terminate(&server.0);
    let deadline = Instant::now() + Duration::from_secs(30);
    let status = loop {
        match server.0.try_wait().unwrap() {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(10)),
        }
        assert!(Instant::now() < deadline, "the server does not stop");
    };
    assert!(status.success());
    let text = fs::read_to_string(&log).unwrap();
    assert!(!text.contains("S3CRET"), "{text}");
    let lines = text.lines().map(serde_json::from_str::<serde_json::Value>);
    let lines: Vec<_> = lines.map(|line| line.expect("a line of the log")).collect();
    let found = |method: &str, event: &str, certificate: Option<&str>| {
        let is_meant = |line: &&serde_json::Value| {
            let named = line["method"].as_str();
            named.is_some_and(|of| of.ends_with(method))
                && line["event"] == event
                && line["certificate"].as_str() == certificate
        };
        let found = lines.iter().find(is_meant);
        found.unwrap_or_else(|| panic!("no {event} of {method} of {certificate:?} in {text}"))
    };
    let put = found("KV/Put", "call", Some("alice"));
    assert_eq!(
        (&put["code"], &put["class"], &put["on"][0]["key"]),
        (&"OK".into(), &"write".into(), &"greeting".into())
    );
    for (certificate, key) in [(Some("alice"), "greeting"), (None, "gateway")] {
        let watch = found("Watch/Watch", "watch", certificate);
        assert_eq!(watch["on"][0]["key"], key);
        found("Watch/Watch", "unwatch", certificate);
    }
}
