//! Users, roles and authentication, through the program: what a user may do, where passwords come from, and a session that
//! lives through a change of its password.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use super::serve::with_server_of;
use super::terminal::Terminal;
use super::{Place, Run};

/// A server of a test, with a place to run the program in.
struct Served<'a> {
    place: &'a Place,
    at: &'a str,
}

impl Served<'_> {
    /// Runs a line that succeeds.
    fn ok(&self, line: &str) -> String {
        self.place.ok(&format!("--endpoints {} {line}", self.at))
    }

    fn json(&self, line: &str) -> Vec<serde_json::Value> {
        self.place.json(&format!("--endpoints {} {line}", self.at))
    }

    fn fails(&self, line: &str, code: i32) -> String {
        self.place
            .fails(&format!("--endpoints {} {line}", self.at), code)
    }

    /// A member takes no change of users before it has told the cluster which commands it reads, soon after its start.
    fn wait_until_it_takes_users(&self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        let line = format!("--endpoints {} role add first", self.at);
        while self.place.run(&line).code == 10 {
            assert!(Instant::now() < deadline, "it does not take a role");
        }
        self.ok("role delete first");
    }

    /// Adds `root`, and `ann` who may use `own/` and read `shared`, and enables authentication.
    fn enable(&self) {
        self.wait_until_it_takes_users();
        self.ok("user add root:secret");
        self.ok("user add ann:pw");
        self.ok("role add worker");
        self.ok("role grant worker readwrite own/ --prefix");
        self.ok("role grant worker read shared");
        self.ok("user grant-role ann worker");
        self.ok("put shared 1");
        assert_eq!(self.ok("auth enable"), "enabled  yes\n");
    }
}

fn with_users(settings: &str, visit: impl FnOnce(&Served<'_>)) {
    let place = Place::new();
    with_server_of(&place, "served", settings, |at, _| {
        let served = Served { place: &place, at };
        served.enable();
        visit(&served);
    });
}

#[test]
fn a_user_may_do_what_its_roles_allow() {
    with_users("", |served| {
        let ann = |line: &str| format!("--user ann:pw {line}");
        let root = |line: &str| format!("--user root:secret {line}");
        served.ok(&ann("put own/a 1"));
        assert_eq!(served.json(&ann("get own/a"))[0]["value"], "1");
        served.ok(&ann("get shared"));
        for line in [
            "put shared 2",
            "get other",
            "range",
            "del --prefix own",
            "watch other --timeout 5s",
            "block put b --kind thing",
            "graph stats",
            "user list",
            "auth disable",
            "compact 2",
        ] {
            let said = served.fails(&ann(line), 7);
            assert!(said.contains("permission denied"), "{line}: {said}");
        }
        assert_eq!(
            served.json(&ann("user get ann"))[0]["roles"],
            json!(["worker"])
        );
        served.ok(&root("block put b --kind thing"));
        served.ok(&root("graph stats"));
        served.ok(&root("endpoint status"));
        served.ok(&root("endpoint hashkv"));
        served.ok(&ann("endpoint health"));
        served.ok(&root("member list"));
        let session = format!("--endpoints {} --user ann:pw shell", served.at);
        let run = served
            .place
            .run_with_input(&session, b"put own/b 2\nget own/b --raw\n");
        assert_eq!((run.code, &*run.stderr), (0, ""));
        assert!(run.stdout.ends_with('2'), "{}", run.stdout);
        let seen = served.json(&ann("watch own/ --prefix --from 1 --count 1 --timeout 10s"));
        assert_eq!(seen.len(), 1);

        let load = "bench put --total 20";
        let report = &served.json(&root(load))[0];
        assert_eq!(
            (&report["requests"], &report["errors"]),
            (&20.into(), &0.into())
        );
        let said = served.fails(&ann(load), 9);
        assert!(said.contains("no request succeeded"), "{said}");
        let said = served.fails(&format!("--user ann:wrong {load}"), 9);
        assert!(said.contains("could not log in"), "{said}");

        let said = served.fails("get own/a", 7);
        assert!(said.contains("--user"), "{said}");
        let said = served.fails("--user ann:wrong get own/a", 7);
        assert!(said.contains("check the name of the user"), "{said}");
        assert!(!said.contains("wrong"), "{said}");

        served.ok(&root("auth disable"));
        served.ok("put shared 2");
        assert_eq!(served.json("auth status")[0]["enabled"], false);
    });
}

/// From `member add` until the new member had started nobody could write, or log in to remove it.
#[test]
fn users_write_and_log_in_while_an_added_member_has_not_started() {
    with_users("", |served| {
        let root = |line: &str| format!("--user root:secret {line}");
        // Nobody is there.
        served.ok(&root("member add http://127.0.0.1:1"));
        served.ok("--user ann:pw put own/a 1");
        served.ok(&root("role add later"));
        let roles = served.ok(&root("role list"));
        assert!(roles.contains("later"), "{roles}");
    });
}

#[test]
fn users_and_roles_are_listed_changed_and_deleted() {
    let place = Place::new();
    with_server_of(&place, "served", "", |at, _| {
        let served = Served { place: &place, at };
        served.wait_until_it_takes_users();
        let said = served.fails("auth enable", 1);
        assert!(said.contains("user add root"), "{said}");
        served.ok("user add ann:pw");
        served.ok("user add service --no-password");
        assert_eq!(served.ok("user list"), "USER\nann\nservice\n");
        served.ok("role add worker");
        assert_eq!(served.json("role list"), [json!({"role": "worker"})]);
        served.ok("user grant-role ann worker");
        assert_eq!(served.ok("user get ann"), "user   ann\nroles  worker\n");
        for (keys, what, key, end) in [
            ("a/ --prefix", "prefix", json!("a/"), json!("a0")),
            ("k", "one", json!("k"), json!(null)),
            ("m p", "range", json!("m"), json!("p")),
            ("z --from-key", "from", json!("z"), json!(null)),
            ("--kind doc", "kinds", json!("doc"), json!(null)),
        ] {
            let granted = served.json(&format!("role grant worker write {keys}"));
            assert_eq!(granted[0]["keys"], what);
            let all = served.json("role get worker");
            let found = all.iter().find(|permission| permission["key"] == key);
            let found = found.unwrap_or_else(|| panic!("{keys}: {all:?}"));
            assert_eq!(
                (&found["access"], &found["range_end"]),
                (&json!("write"), &end)
            );
        }
        served.ok("role revoke worker m p");
        assert_eq!(served.json("role get worker").len(), 4);
        served.ok("role revoke worker --kind doc");
        assert_eq!(served.json("role get worker").len(), 3);
        for (line, code, said) in [
            ("user add ann:pw", 3, "exists already"),
            ("user get bob", 1, "no user `bob`"),
            ("user delete bob", 1, "no user `bob`"),
            ("user grant-role ann king", 1, "no role `king`"),
            (
                "user revoke-role service worker",
                1,
                "does not have the role",
            ),
            ("role get king", 1, "no role `king`"),
            ("role revoke worker m", 1, "does not have this permission"),
            (
                "role grant worker read m --prefix --from-key",
                2,
                "cannot be used with",
            ),
            ("role grant worker own k", 2, "readwrite"),
            (
                "role grant worker read k --kind doc",
                2,
                "cannot be used with",
            ),
            ("role grant worker read", 2, "required"),
        ] {
            let text = served.fails(line, code);
            assert!(text.contains(said), "{line}: {text}");
        }
        served.ok("user revoke-role ann worker");
        served.ok("role delete worker");
        served.ok("user delete service");
        assert_eq!(served.json("user list"), [json!({"user": "ann"})]);
    });
}

/// A password on the command line can be seen by everybody on the machine, so there are other ways.
#[test]
fn passwords_come_from_files_streams_and_the_environment() {
    with_users("", |served| {
        let (place, at) = (served.place, served.at);
        let file = place.write("new.txt", "of a file\n");
        let add = format!(
            "--user root:secret user add bob --new-password-file {}",
            file.display()
        );
        served.ok(&add);
        served.ok("--user root:secret user add eve:x");
        let words =
            format!("--endpoints {at} --user root:secret user passwd eve --interactive=false");
        let run = place.run_with_input(&words, b"of a stream\r\nrest");
        assert_eq!((run.code, &*run.stderr), (0, ""));
        let status = |user: &str, password: &str| {
            let mut command = place.command(&["--endpoints", at, "user", "get", user]);
            command.env("BOWLINE_USER", user);
            command.env("BOWLINE_PASSWORD", password);
            Run::of(command.output().unwrap())
        };
        for (user, password, code) in [
            ("bob", "of a file", 0),
            ("eve", "of a stream", 0),
            ("eve", "x", 7),
        ] {
            let run = status(user, password);
            assert_eq!(run.code, code, "{user}: {}", run.stderr);
            assert!(!run.stderr.contains(password), "{}", run.stderr);
        }
        // With a password of its own, all of the text is the name.
        let said = served.fails("--user ann:pw --password pw get shared", 7);
        assert!(said.contains("the login was refused"), "{said}");
        served.ok("--user ann --password pw get shared");

        let said = served.fails("--user ann get shared", 2);
        assert!(said.contains("no terminal to ask on"), "{said}");
        let said = served.fails("--user root:secret user passwd ann", 2);
        assert!(said.contains("--new-password-file"), "{said}");
        let said = served.fails("--password pw get shared", 2);
        assert!(said.contains("give --user"), "{said}");
        // Not a word of it where there is no cluster, or the session has its user.
        let said = place.fails("--user ann:pw put k v", 2);
        assert!(said.contains("give --endpoints"), "{said}");
        assert!(!place.data().exists());
        let mut local = place.command(&["put", "k", "v"]);
        local.env("BOWLINE_USER", "ann");
        assert_eq!(Run::of(local.output().unwrap()).code, 0);
        let shell = format!("--endpoints {at} --user ann:pw shell");
        let run = place.run_with_input(&shell, b"get shared --user root:secret\n");
        assert_eq!(run.code, 2);
        assert!(run.stderr.contains("has its user"), "{}", run.stderr);
    });
}

/// The help shows what the environment says, and a screen is seen by others.
#[test]
fn help_shows_no_password() {
    let place = Place::new();
    let mut command = place.command(&["get", "--help"]);
    command.env("BOWLINE_USER", "ann:open");
    command.env("BOWLINE_PASSWORD", "sesame");
    let run = Run::of(command.output().unwrap());
    assert!(run.stdout.contains("BOWLINE_PASSWORD"), "{}", run.stdout);
    assert!(!run.stdout.contains("open") && !run.stdout.contains("sesame"));
}

#[test]
fn a_terminal_is_asked_for_passwords_and_does_not_show_them() {
    with_users("", |served| {
        let (place, at) = (served.place, served.at);
        let start = |line: &str| {
            let mut words = vec!["--endpoints", at];
            words.extend(line.split_whitespace());
            Terminal::start(place, &words, 100)
        };
        let mut asked = start("--user ann get shared");
        asked.until("Password of ann: ");
        asked.keys("pw\n");
        let (shown, status) = asked.end();
        assert!(status.success(), "{shown}");
        assert!(shown.contains("shared") && !shown.contains("pw"), "{shown}");

        let mut asked = start("--user root:secret user add bob");
        asked.until("New password of bob: ");
        asked.keys("sesame\n");
        asked.until("New password of bob again: ");
        asked.keys("sesame\n");
        let (shown, status) = asked.end();
        assert!(status.success(), "{shown}");
        assert!(!shown.contains("sesame"), "{shown}");
        served.ok("--user bob:sesame user get bob");

        let mut asked = start("--user root:secret user passwd bob");
        asked.until("New password of bob: ");
        asked.keys("one\n");
        asked.until("again: ");
        asked.keys("other\n");
        let (shown, status) = asked.end();
        assert_eq!(status.code(), Some(2), "{shown}");
        assert!(shown.contains("the two passwords differ"), "{shown}");
        served.ok("--user bob:sesame user get bob");
    });
}

/// Nobody starts a program anew because a token has expired.
#[test]
fn a_session_and_a_watch_outlive_their_token() {
    with_users("--auth-token-ttl 2s", |served| {
        let (place, at) = (served.place, served.at);
        let words = ["--endpoints", at, "--user", "ann:pw", "-o", "json"];
        let mut watch = place.command(&words);
        let line = "watch own/ --prefix --from 1 --count 3 --timeout 60s";
        let watch = watch.args(line.split(' ')).stdout(Stdio::piped());
        let mut watch = watch.spawn().unwrap();
        let mut seen = BufReader::new(watch.stdout.take().unwrap()).lines();
        let mut session = place.command(&words);
        let mut session = session
            .arg("shell")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(session.stdout.take().unwrap()).lines();
        let mut lines = session.stdin.take().unwrap();
        let mut run = |line: &str| {
            use std::io::Write;
            writeln!(lines, "{line}").unwrap();
            said.next().expect("an answer").unwrap()
        };
        run("put own/a 1");
        seen.next().expect("the watch has begun").unwrap();
        std::thread::sleep(Duration::from_millis(2500));
        run("put own/a 2");
        // After a change of users the server looks at what is watched again.
        served.ok("--user root:secret role add another");
        run("put own/a 3");
        for _ in 2..=3 {
            seen.next().expect("a change").unwrap();
        }
        assert!(watch.wait().unwrap().success());
        // Logins end with their password, and the session knows that of the user who comes after it.
        served.ok("--user root:secret user delete ann");
        served.ok("--user root:secret user add ann:pw");
        served.ok("--user root:secret user grant-role ann worker");
        assert!(run("get own/a").contains("\"value\":\"3\""));
        drop(lines);
        assert!(session.wait().unwrap().success());
    });
}
