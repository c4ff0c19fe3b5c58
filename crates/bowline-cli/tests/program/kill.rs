//! SIGKILL at random moments: what the program acknowledged is there afterwards.
//!
//! The record of what was acknowledged is kept here, outside the program: a `put` counts when the
//! program printed its revision. `BOWLINE_KILLS` sets how often, `BOWLINE_SEED` repeats a run.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use bowline_testing::Seed;

use super::Place;

pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// How many keys an import of one transaction puts.
const WHOLE: usize = 40;

#[test]
fn every_acknowledged_put_survives() {
    let (kills, seed) = (setting("BOWLINE_KILLS", 100), Seed::from_env_or(0xB0).0);
    println!(
        "repeat with: BOWLINE_SEED={seed} BOWLINE_KILLS={kills} cargo test -p bowline-cli --test program kill"
    );
    let mut rng = fastrand::Rng::with_seed(seed);
    // What the last ones do is new in each run.
    let mut fresh = Seed::fresh("-p bowline-cli --test program every_acknowledged_put");
    let place = Place::new();
    let mut acknowledged: BTreeMap<String, (String, u64)> = BTreeMap::new();
    // What was being written to a key since its last acknowledgement, when the kill came.
    let mut in_doubt: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut killed, mut round, mut newest) = (0, 0u64, 1);
    let mut killed_by_command: BTreeMap<String, u64> = BTreeMap::new();
    let (mut imports, mut whole) = (Vec::new(), 0);
    // As long as a run takes, more or less: so that some end by themselves on any machine.
    let mut most_us = 25_000;
    while killed < kills {
        if killed >= kills - kills / 10
            && let Some(fresh) = fresh.take()
        {
            rng = fresh.rng();
        }
        round += 1;
        let key = format!("key-{}", rng.u32(0..20));
        let value = format!("value-{round}");
        let file = format!("{round}.jsonl");
        let words = match rng.u8(0..10) {
            0..6 => vec!["-o", "json", "put", &key, &value],
            6..8 => {
                let lines = (0..WHOLE).map(|at| {
                    format!("{{\"key\":\"import-{round}-{at}\",\"value\":\"{round}\"}}\n")
                });
                place.write(&file, lines.collect::<String>());
                vec!["-q", "import", &file]
            }
            8 => vec!["compact"],
            _ => {
                let _ = std::fs::remove_dir_all(place.path("copy"));
                vec!["checkpoint", "copy"]
            }
        };
        let is_put = words.contains(&"put");
        let mut child = place
            .command(&words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(rng.u64(0..most_us)));
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        let is_killed = output.status.code().is_none();
        if is_killed {
            killed += 1;
            most_us += most_us / 20;
            let command = words
                .iter()
                .find(|word| !word.starts_with('-') && **word != "json");
            *killed_by_command
                .entry((*command.expect("a command")).to_owned())
                .or_default() += 1;
        } else {
            most_us = (most_us * 3 / 4).max(10_000);
            // When it ended by itself, all was well. Only a put or an import creates a database: the others refuse when
            // every command before was killed while it was created.
            let why = String::from_utf8_lossy(&output.stderr);
            let is_created = place.data().join("BOWLINE").exists();
            let creates = is_put || words.contains(&"import");
            let has_no_database =
                !creates && !is_created && why.contains("is not a Bowline database");
            assert!(
                output.status.success() || (has_no_database && acknowledged.is_empty()),
                "{words:?} failed: {why}"
            );
        }
        let text = String::from_utf8(output.stdout).unwrap();
        if is_put && text.ends_with('\n') {
            let row: serde_json::Value = serde_json::from_str(&text).unwrap();
            let revision = row["revision"].as_u64().unwrap();
            assert!(revision > newest, "revision {revision} after {newest}");
            newest = revision;
            acknowledged.insert(key.clone(), (value, revision));
            in_doubt.remove(&key);
        } else if is_put {
            in_doubt.entry(key).or_default().push(value);
        } else if words.contains(&"import") {
            imports.push((round, !is_killed));
        } else if words.contains(&"checkpoint") && place.path("copy").join("BOWLINE").exists() {
            let run = place.run("--data-dir copy check");
            assert_eq!(run.code, 0, "{} {}", run.stdout, run.stderr);
        }
        if round % 25 == 0 && place.data().join("BOWLINE").exists() {
            place.check_is_clean();
        }
    }
    assert!(
        !acknowledged.is_empty(),
        "no put was fast enough to be acknowledged"
    );
    for (key, (value, revision)) in &acknowledged {
        let entry = &place.json(&format!("get {key}"))[0];
        let (found, at) = (
            entry["value"].as_str().unwrap(),
            entry["modified"].as_u64().unwrap(),
        );
        let unacknowledged = in_doubt
            .get(key)
            .is_some_and(|all| all.iter().any(|v| v == found));
        assert!(
            (found == value && at == *revision) || (unacknowledged && at > *revision),
            "{key}: {found} at {at}, acknowledged {value} at {revision}"
        );
    }
    for (round, is_done) in &imports {
        let found = place.json(&format!("range --prefix import-{round}-")).len();
        assert!(
            found == WHOLE || (found == 0 && !is_done),
            "{found} of {WHOLE} keys of the import of round {round}"
        );
        whole += u64::from(found > 0);
    }
    place.check_is_clean();
    println!(
        "{killed} kills in {round} runs: {killed_by_command:?}; {} keys acknowledged, {} in \
         doubt, {whole} of {} imports there, each whole",
        acknowledged.len(),
        in_doubt.len(),
        imports.len()
    );
}

#[test]
fn a_killed_import_leaves_whole_batches_and_can_be_repeated() {
    let test = "-p bowline-cli --test program a_killed_import";
    let seed = Seed::from_env_or(0xB1);
    let _guard = seed.print_on_failure(test);
    let mut rng = seed.rng();
    let fresh = Seed::fresh(test);
    let place = Place::new();
    let mut text = String::new();
    for number in 0..20_000 {
        text.push_str(&format!("{} {}\n", number, (number * 7 + 1) % 20_000));
    }
    place.write("graph.txt", &text);
    let mut interrupted = 0;
    for round in 0..8 {
        // When the last one is killed is new in each run.
        if let (7, Some(fresh)) = (round, fresh) {
            rng = fresh.rng();
        }
        let mut child = place
            .command(&[
                "import",
                "graph.txt",
                "--batch",
                "50",
                "--durability",
                "batched:1ms",
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(rng.u64(5..120)));
        child.kill().unwrap();
        interrupted += u64::from(child.wait().unwrap().code().is_none());
        if place.data().join("BOWLINE").exists() {
            // Opens, and both directions of every edge agree.
            place.check_is_clean();
        }
    }
    assert!(
        interrupted > 0,
        "every import was done before it was killed"
    );
    let row = &place.json("import graph.txt --durability batched")[0];
    // What the killed imports had written is there already.
    let counted = ["edges", "again"].map(|name| row[name].as_u64().unwrap());
    assert_eq!(counted[0] + counted[1], 20_000, "{row}");
    assert_eq!(row["refused"], 0);
    assert_eq!(place.json("graph stats")[0]["edges"], 20_000);
    place.check_is_clean();
}

#[test]
fn a_killed_watch_or_keep_alive_loses_nothing() {
    let place = Place::new();
    place.ok("lease grant 60s --id 5");
    let mut child = place
        .command(&["-o", "json", "lease", "keep-alive", "5"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.contains("\"lease\":\"5\""), "{line}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(place.json("lease list")[0]["lease"], "5");
}
