//! An error has the same exit code on a directory and from a server.

use super::serve::with_server_of;
use super::{Place, files_in};

/// What is there before the table: alike in both places.
const BEFORE: &[&str] = &[
    "put k first",
    "put k second",
    "block put a --kind node",
    "block put b --kind node",
    "block put c --kind node",
    "edge put a likes b --attr km=far",
    "edge put b likes a --attr km=1",
    "lease grant 1h --id 1f",
    "block put d --kind mailbox --attr mail=x --attr zone=eu",
    "block put e --kind mailbox --attr zone=eu",
    "graph index create mailbox mail --unique",
    // As it is in the table, without the revision.
    "graph query RETURN/**/1",
    "put last x",
];

/// An error of each class: its command, and its exit code.
const ERRORS: &[(&str, i32)] = &[
    // Not there.
    ("get none", 1),
    ("del none", 1),
    ("history none", 1),
    ("block get none", 1),
    ("block del none", 1),
    ("edge del a likes c", 1),
    ("edge put a likes none", 1),
    ("graph reach none", 1),
    ("graph path a c", 1),
    ("graph reach a --kind hates", 1),
    ("lease revoke 99", 1),
    ("lease keep-alive 99 --once", 1),
    ("put k v --lease 99", 1),
    ("watch none --count 1 --timeout 50ms", 1),
    ("graph index drop mailbox zone", 1),
    // The words.
    ("put k v --lease soon", 2),
    ("get", 2),
    ("lease grant soon", 2),
    // Lost, or there already.
    ("cas k 99 x", 3),
    ("cas k 0 x", 3),
    ("lease grant 1h --id 1f", 3),
    ("update k set-if-absent x", 3),
    ("update k swap --expected x --new y", 3),
    ("update none add -1 --min 0", 3),
    ("block put e --kind mailbox --attr mail=x", 3),
    ("graph index create mailbox mail", 3),
    // Revisions that cannot be read.
    ("get k --rev 2", 4),
    ("range --rev 2", 4),
    ("graph reach a --rev 2", 4),
    ("watch --from 2 --count 1", 4),
    ("get k --rev 999", 4),
    ("range --rev 999", 4),
    ("graph reach a --rev 999", 4),
    // Over the network 0 is the newest, which a watch and a query were given.
    ("graph reach a --rev 0", 4),
    ("watch --from 0 --count 1 --timeout 50ms", 4),
    ("graph query RETURN/**/1 --rev 0", 4),
    ("compact 999", 4),
    ("compact 2", 4),
    // Input that is not acceptable.
    ("update k add 1", 4),
    ("range z a", 4),
    ("graph order", 4),
    ("graph path a b --weight km", 4),
    ("lease grant 0s", 4),
    ("graph index create mailbox zone --unique", 4),
    ("graph index create mailbox zone zone", 4),
];

#[test]
fn an_error_has_the_same_exit_code_in_both_places() {
    let place = Place::new();
    // More than either takes by default.
    let too_large = vec![b'v'; 65 << 20];
    let mut different = Vec::new();
    let mut run = |at: &str| {
        for line in BEFORE {
            place.ok(&format!("{line} {at}"));
        }
        let revision = place.json(&format!("get last {at}"))[0]["modified"].clone();
        place.ok(&format!("compact {revision} {at}"));
        let mut codes: Vec<(String, i32, i32, String)> = Vec::new();
        for (line, expected) in ERRORS {
            let run = place.run(&format!("{line} {at}"));
            codes.push(((*line).to_owned(), *expected, run.code, run.stderr));
        }
        let words: Vec<&str> = at.split_whitespace().collect();
        let empty = place.run_words(&[&["put", "", "v"], &words[..]].concat());
        codes.push((
            "put with an empty key".to_owned(),
            4,
            empty.code,
            empty.stderr,
        ));
        let large = place.run_with_input(&format!("put k - {at}"), &too_large);
        codes.push(("put of too much".to_owned(), 4, large.code, large.stderr));
        for (line, expected, code, stderr) in codes {
            if code != expected {
                different.push(format!("{line} {at}: {code}, not {expected}: {stderr}"));
            }
        }
    };
    run("--data-dir directory");
    with_server_of(&place, "served", "", |at, _| {
        run(&format!("--endpoints {at}"));
    });
    assert!(different.is_empty(), "{different:#?}");
}

/// A full database is 7, as a full disk is; an endpoint at which nobody answers is 9, and has no equal.
#[test]
fn a_full_server_has_the_code_of_a_full_disk() {
    let place = Place::new();
    let value = "v".repeat(60_000);
    with_server_of(&place, "d", "--quota-backend-bytes 300000", |at, _| {
        let full = (0..200).find_map(|number| {
            let run = place.run(&format!("put key-{number} {value} --endpoints {at}"));
            (run.code != 0).then_some(run)
        });
        let full = full.expect("the quota is reached");
        assert_eq!(full.code, 7, "{}", full.stderr);
        assert!(full.stderr.contains("full"), "{}", full.stderr);
    });
    place.fails("get k --endpoints 127.0.0.1:1", 9);
}

/// Damage that a server met was reported as an unreachable server.
#[test]
fn damage_has_the_code_of_damage_in_both_places() {
    let place = Place::new();
    for number in 0..50 {
        place.ok(&format!("put key-{number} value"));
    }
    place.ok("compact 51");
    for table in files_in(&place.data().join("tables")) {
        let mut bytes = std::fs::read(&table).expect("a table");
        bytes[20] ^= 0x20;
        std::fs::write(&table, bytes).expect("written");
    }
    let of_directory = place.fails("get key-7", 6);
    assert!(of_directory.contains("damaged at offset"), "{of_directory}");
    with_server_of(&place, "data", "", |at, _| {
        let of_server = place.fails(&format!("get key-7 --endpoints {at}"), 6);
        assert!(of_server.contains("damaged at offset"), "{of_server}");
        let of_server = place.fails(&format!("range --endpoints {at}"), 6);
        assert!(of_server.contains("damaged at offset"), "{of_server}");
    });
}

/// A lack of memory for a thread was "an internal error", with exit code 8: a bug in bowline.
#[test]
fn a_lack_of_threads_is_no_bug_of_the_program() {
    let place = Place::new();
    place.ok("put k v");
    let program = super::program();
    let (mut refused, mut done) = (0, 0);
    // Each thread of the engine reserves 2 MiB for its stack: one after the other is the one that lacks it.
    for mib in (40..300).rev() {
        let limit = mib * 1024;
        let mut command = place.command_of("sh");
        let script = format!("ulimit -c 0; ulimit -v {limit}; exec {program} put k v");
        command.args(["-c", &script]).env("RUST_BACKTRACE", "0");
        let run = super::Run::of(command.output().expect("a shell"));
        assert_ne!(run.code, 8, "{mib} MiB: {}", run.stderr);
        if run.stderr.contains("cannot start a thread for") {
            assert_eq!(run.code, 7, "{mib} MiB: {}", run.stderr);
            refused += 1;
        }
        done += i32::from(run.code == 0);
    }
    assert!(refused > 0 && done > 0, "{refused} refused, {done} done");
    place.check_is_clean();
}
