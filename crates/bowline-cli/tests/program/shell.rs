//! `bowline shell`: one session, from a terminal and from a pipe.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use super::graph_remote::Served;
use super::terminal::Terminal;
use super::{Place, Run};

const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";
const UP: &str = "\u{1b}[A";

fn script(place: &Place, line: &str, script: &str) -> Run {
    place.run_with_input(line, script.as_bytes())
}

/// Waits for the next prompt: the editor begins a line with this sequence, and draws the prompt again as it likes.
fn prompt(terminal: &mut Terminal) -> String {
    let before = terminal.until("\u{1b}[?2004h");
    before + &terminal.until("data> ")
}

fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The bytes that a server has not yet read from its connections, as the kernel's table of sockets shows them.
fn unread_bytes(endpoint: &str) -> u64 {
    const CONNECTED: &str = "01";
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port: u16 = endpoint.rsplit(':').next().unwrap().parse().unwrap();
    let own = format!(":{port:04X}");
    let unread = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (address, _, state) = (words.next()?, words.next()?, words.next()?);
        let is_its = address.ends_with(&own) && state == CONNECTED;
        let (_, unread) = words.next()?.split_once(':')?;
        is_its.then(|| u64::from_str_radix(unread, 16).ok())?
    };
    table.lines().skip(1).filter_map(unread).sum()
}

#[test]
fn a_script_runs_the_commands_of_the_program() {
    let place = Place::new();
    let run = script(
        &place,
        "shell",
        "# a comment\n\nput 'two words' \"a value\"\nbowline put b 2 -o json\nget 'two words' --raw\nexit\nget nothing\n",
    );
    assert_eq!((run.code, &*run.stderr), (0, ""));
    assert_eq!(run.stdout, "revision  2\n{\"revision\":3}\na value");
    assert_eq!(place.json("range").len(), 2);
    // The options of the session are those of its lines. The last line need not end.
    let run = script(&place, "-o json shell", "get b\nversion");
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert!(
        lines[0].contains("\"value\":\"2\"") && lines[1].contains("etcd_api"),
        "{lines:?}"
    );
    let help = script(&place, "shell", "help\nhelp range\n").stdout;
    assert!(
        help.contains("range") && help.contains("--keys-only"),
        "{help}"
    );
    assert!(!help.contains("completions"), "{help}");
    place.check_is_clean();
}

#[test]
fn a_script_ends_at_the_first_line_that_fails_or_goes_on_if_told() {
    let place = Place::new();
    let lines = "put a 1\nget nothing\nput b 2\nnonsense\n";
    let run = script(&place, "shell", lines);
    assert_eq!(run.code, 1);
    assert!(
        run.stderr.contains("line 2: key nothing does not exist"),
        "{}",
        run.stderr
    );
    assert_eq!(place.json("range").len(), 1);
    let run = script(&place, "shell --keep-going", lines);
    assert_eq!(run.code, 1, "the first that failed");
    assert!(run.stderr.contains("line 4: "), "{}", run.stderr);
    assert_eq!(place.json("range").len(), 2);
    let run = script(&place, "shell --keep-going", "nonsense\nget nothing\n");
    assert_eq!(run.code, 2);
}

#[test]
fn what_a_session_has_no_use_for_is_refused() {
    let place = Place::new();
    place.ok("put a 1");
    for (line, said) in [
        ("serve", "not a command of a session"),
        ("shell", "not a command of a session"),
        ("--data-dir other get a", "has its target"),
        ("get a --endpoints 127.0.0.1:1", "has its target"),
        ("put a 2 --durability batched", "flushes every write"),
        // The rest of the script is not its value.
        ("put a", "standard input has the lines"),
        ("import -", "standard input has the lines"),
        ("put 'a", "quote"),
    ] {
        let run = script(&place, "shell", &format!("{line}\nput a 3\n"));
        assert_eq!(run.code, 2, "{line}: {}", run.stderr);
        assert!(run.stderr.contains(said), "{line}: {}", run.stderr);
    }
    assert_eq!(place.json("get a")[0]["version"], 1);
    // A session that reads makes no directory.
    let run = script(&place, "--data-dir nowhere shell", "get a\n");
    assert_ne!(run.code, 0);
    assert!(!place.path("nowhere").exists());
}

#[test]
fn a_session_works_on_a_cluster() {
    let served = Served::start();
    let lines =
        "put a 1\nblock put ann --kind person\nget a --raw\nrange --read eventual\nblock list\n";
    let endpoint = served.endpoint().to_owned();
    let run = script(
        &served.place,
        &format!("--endpoints {endpoint} shell"),
        lines,
    );
    assert_eq!((run.code, &*run.stderr), (0, ""));
    assert!(run.stdout.contains("ann"), "{}", run.stdout);
    let dead = script(&served.place, "--endpoints 127.0.0.1:1 shell", lines);
    assert_eq!(dead.code, 9, "{}", dead.stderr);
}

#[test]
fn a_person_has_a_prompt_history_and_completion_and_errors_end_no_session() {
    let place = Place::new();
    place.ok("put greeting hello");
    let mut terminal = Terminal::start(&place, &["shell"], 80);
    terminal.until("Ctrl-D ends the session");
    prompt(&mut terminal);
    terminal.keys("get nothing\r");
    terminal.until("does not exist");
    prompt(&mut terminal);
    terminal.keys("nonsense\r");
    terminal.until("unrecognized");
    prompt(&mut terminal);
    // Commands and keys by their first letters.
    terminal.keys("hist\tgre\t\r");
    terminal.until("hello");
    prompt(&mut terminal);
    // The line is gone, and the session is not.
    terminal.keys(&format!("put greeting wrong{CTRL_C}"));
    prompt(&mut terminal);
    terminal.keys("get greeting --raw\r");
    let shown = prompt(&mut terminal);
    assert!(
        shown.contains("hello") && !shown.contains("wrong"),
        "{shown}"
    );
    // It is open once, until the end.
    assert!(place.fails("put greeting x", 5).contains("another process"));
    terminal.keys(" put secret x\r");
    prompt(&mut terminal);
    terminal.keys(CTRL_D);
    let (_, status) = terminal.end();
    assert!(status.success());
    assert_eq!(place.json("get secret")[0]["value"], "x");

    let history = place.path("state/bowline/history");
    let mode = std::fs::metadata(&history).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let kept = std::fs::read_to_string(&history).unwrap();
    assert!(
        kept.contains("get greeting --raw") && !kept.contains("secret"),
        "{kept}"
    );
    // The next session has the lines of the last.
    let mut terminal = Terminal::start(&place, &["shell"], 80);
    prompt(&mut terminal);
    terminal.keys(&format!("{UP}\r"));
    terminal.until("hello");
    prompt(&mut terminal);
    terminal.keys("exit\r");
    assert!(terminal.end().1.success());
}

/// Two people type at once, each into a session of their own with the same history.
#[test]
fn two_sessions_share_a_history_and_lose_no_line() {
    const LINES: usize = 25;
    let place = Place::new();
    std::thread::scope(|scope| {
        for session in ["left", "right"] {
            let place = &place;
            scope.spawn(move || {
                let directory = format!("{session}/data");
                std::fs::create_dir(place.path(session)).unwrap();
                let words = ["--data-dir", &*directory, "shell"];
                let mut terminal = Terminal::start(place, &words, 80);
                prompt(&mut terminal);
                for number in 0..LINES {
                    terminal.keys(&format!("set {session} {number}\r"));
                    terminal.until("revision");
                    prompt(&mut terminal);
                }
                terminal.keys(CTRL_D);
                assert!(terminal.end().1.success());
            });
        }
    });
    let kept = std::fs::read_to_string(place.path("state/bowline/history")).unwrap();
    for session in ["left", "right"] {
        let of_session = kept.lines().filter(|line| line.contains(session));
        let typed = (0..LINES).map(|number| format!("set {session} {number}"));
        assert!(of_session.eq(typed), "{kept}");
    }
    // The header, and nothing else.
    assert_eq!(kept.lines().count(), 2 * LINES + 1, "{kept}");
}

#[test]
fn the_environment_can_say_that_there_is_no_history() {
    let place = Place::new();
    let mut terminal = Terminal::start_with(&place, &["shell"], 80, &[("BOWLINE_HISTORY", "")]);
    terminal.until("the first write creates it");
    prompt(&mut terminal);
    terminal.keys("set a 1\r");
    terminal.until("revision");
    prompt(&mut terminal);
    terminal.keys(CTRL_D);
    assert!(terminal.end().1.success());
    assert!(!place.path("state").exists());
    place.check_is_clean();
}

/// Ctrl-C ends what computes, and not the session.
#[test]
fn an_interrupt_ends_a_computation() {
    let place = Place::new();
    // Of 22 blocks each two are tied: more simple paths than can be listed while this test waits.
    let mut edges = String::new();
    for a in 0..22 {
        for b in (0..22).filter(|b| *b != a) {
            edges.push_str(&format!("n{a} n{b}\n"));
        }
    }
    place.write("edges.txt", edges);
    place.ok("import edges.txt");
    let mut terminal = Terminal::start(&place, &["shell"], 80);
    prompt(&mut terminal);
    terminal.keys("graph simple-paths n0 n1 --limit 1000000000\r");
    // The head of the table comes with the first thousand paths.
    terminal.until("OVER");
    terminal.interrupt();
    terminal.until("error: interrupted");
    prompt(&mut terminal);
    terminal.keys("get a --raw\r");
    terminal.until("key a does not exist");
    prompt(&mut terminal);
    terminal.keys(CTRL_D);
    assert!(terminal.end().1.success());
}

/// Ctrl-C ends what waits, and not the session.
#[test]
fn an_interrupt_ends_a_watch() {
    let place = Place::new();
    place.ok("put a 1");
    let mut terminal = Terminal::start(&place, &["shell"], 80);
    prompt(&mut terminal);
    terminal.keys("watch a --from 2\r");
    terminal.until("put");
    terminal.interrupt();
    prompt(&mut terminal);
    terminal.keys("get a --raw\r");
    prompt(&mut terminal);
    terminal.keys(CTRL_D);
    assert!(terminal.end().1.success());
}

/// A command that waited for a reply, for input or for time took no notice of Ctrl-C; the second one ended the session.
#[test]
fn an_interrupt_ends_the_command_that_runs() {
    let place = Place::new();
    place.ok("lease grant 1h --id 1f");
    let mut terminal = Terminal::start(&place, &["shell"], 80);
    prompt(&mut terminal);
    for number in 0..2 {
        terminal.keys("lease keep-alive 1f\r");
        terminal.until("1f     1h");
        terminal.interrupt();
        let said = prompt(&mut terminal);
        assert!(!said.contains("error"), "{said}");
        // Nothing of the value is taken.
        terminal.keys("put k\r");
        terminal.until("waiting for the value");
        terminal.keys("half\n");
        terminal.interrupt();
        terminal.until("error: interrupted");
        prompt(&mut terminal);
        terminal.keys("get k\r");
        terminal.until("does not exist");
        prompt(&mut terminal);
        terminal.keys(&format!("put 'from the terminal {number}'\r"));
        terminal.until("waiting for the value");
        terminal.keys("whole\n");
        terminal.keys(CTRL_D);
        terminal.until("revision");
        prompt(&mut terminal);
    }
    // One that comes at the prompt is for no command.
    terminal.interrupt();
    terminal.interrupt();
    terminal.keys("get 'from the terminal 1' --raw\r");
    terminal.until("whole");
    prompt(&mut terminal);
    terminal.keys(CTRL_D);
    assert!(terminal.end().1.success());
}

#[test]
fn an_interrupt_ends_a_command_whose_server_does_not_answer() {
    let served = Served::start();
    let endpoint = served.endpoint().to_owned();
    served.place.ok(&format!("put a 1 --endpoints {endpoint}"));
    let words = ["--endpoints", &endpoint, "shell"];
    let mut terminal = Terminal::start(&served.place, &words, 80);
    let prompt = format!("{endpoint}> ");
    terminal.until(&prompt);
    served.pause();
    let before = unread_bytes(&endpoint);
    let started = Instant::now();
    terminal.keys("get a\r");
    // It is sent before it is interrupted.
    soon("the request waits for the server", || {
        unread_bytes(&endpoint) > before
    });
    terminal.interrupt();
    terminal.until("error: interrupted");
    let took = started.elapsed();
    served.go_on();
    // Its own timeout is ten seconds.
    assert!(took < Duration::from_secs(8), "{took:?}");
    terminal.until(&prompt);
    terminal.keys("get a --raw\r");
    terminal.until("1\r\n");
    // What is typed while a command runs may be dropped.
    terminal.until(&prompt);
    terminal.keys(CTRL_D);
    assert!(terminal.end().1.success());
}

/// What cannot be ended says so, and a second Ctrl-C ends the session.
#[test]
fn an_interrupt_that_a_command_does_not_notice_is_answered_all_the_same() {
    let place = Place::new();
    place.ok("put a 1");
    let made = place.command_of("mkfifo").arg("pipe").status().unwrap();
    assert!(made.success());
    let mut terminal = Terminal::start(&place, &["shell"], 80);
    prompt(&mut terminal);
    // It waits until somebody writes.
    terminal.keys("import pipe\r");
    terminal.until("import pipe");
    // A writer that does not wait finds the pipe only once somebody reads from it.
    let mut written = None;
    soon("the pipe is read", || {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK;
        written = rustix::fs::open(place.path("pipe"), flags, Mode::empty()).ok();
        written.is_some()
    });
    terminal.interrupt();
    terminal.until("this command does not stop before its end; Ctrl-C again ends the session");
    terminal.interrupt();
    assert_eq!(terminal.end().1.code(), Some(130));
    drop(written);
    place.check_is_clean();
}
