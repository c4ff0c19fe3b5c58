//! Each command does on a cluster what it does on a directory.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Place;

/// One field of every row, as text.
fn column(rows: &[Value], name: &str) -> Vec<String> {
    let text = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    rows.iter().map(|row| text(&row[name])).collect()
}

#[test]
fn keys_are_put_read_swapped_and_deleted() {
    let Some(place) = Place::start() else { return };
    assert_eq!(place.json("put greeting hello")[0]["revision"], 2);
    assert_eq!(place.json("put greeting hi")[0]["revision"], 3);
    for level in ["linearizable", "lease", "eventual"] {
        let entry = &place.json(&format!("get greeting --read {level}"))[0];
        assert_eq!(
            (&entry["value"], &entry["modified"]),
            (&"hi".into(), &3.into())
        );
        assert_eq!(
            (&entry["version"], &entry["lease"]),
            (&2.into(), &Value::Null)
        );
    }
    assert_eq!(place.json("get greeting --rev 2")[0]["value"], "hello");
    assert_eq!(place.ok("get greeting --raw"), "hi");
    let lost = place.fails("cas greeting 2 x", 3);
    assert!(
        lost.contains("is at revision 3") && lost.contains("should be at revision 2"),
        "{lost}"
    );
    assert_eq!(place.json("cas greeting 3 x")[0]["revision"], 4);
    assert_eq!(place.json("del greeting")[0]["deleted"], 1);
    assert!(place.fails("get greeting", 1).contains("does not exist"));
    assert!(place.fails("del greeting", 1).contains("nothing changed"));
    assert!(place.fails("get greeting --rev 99", 4).contains("future"));
    assert!(
        place
            .fails("put k v --durability batched", 2)
            .contains("flushes")
    );
    assert!(place.fails("stats", 2).contains("directory"));
    assert!(
        place
            .fails("get k --endpoints 127.0.0.1:1", 9)
            .contains("cannot be reached")
    );
}

/// A cluster took revision 0 for the newest one, as etcd does, and found nothing to delete or to list in a range
/// that ends before it starts. A script that passes wrong arguments must not read that as success.
#[test]
fn a_revision_of_zero_and_a_range_that_ends_before_it_starts_are_refused_as_on_a_directory() {
    let Some(place) = Place::start() else { return };
    for line in ["put b 1", "put c 2"] {
        place.ok(line);
        place.ok(&format!("{line} --data-dir ./own"));
    }
    for (line, says) in [
        ("get b --rev 0", "compacted"),
        ("del --range z a", "ends before it starts"),
        ("range z a", "ends before it starts"),
        ("range z a --keys-only", "ends before it starts"),
    ] {
        for line in [line.to_owned(), format!("{line} --data-dir ./own")] {
            let text = place.fails(&line, 4);
            assert!(text.contains(says), "bowline {line}: {text}");
        }
    }
    assert_eq!(column(&place.json("range"), "key"), ["b", "c"]);
}

#[test]
fn ranges_come_in_pages_that_fit_together() {
    let Some(place) = Place::start() else { return };
    place.ok(
        "bench put --sequential-keys --key-space-size 2500 --total 2500 --clients 20 --val-size 1",
    );
    let all = column(&place.json("range"), "key");
    assert_eq!(all.len(), 2_500);
    assert!(all.is_sorted());
    let mut reverse = column(&place.json("range --reverse --keys-only"), "key");
    reverse.reverse();
    assert_eq!(reverse, all);
    assert_eq!(
        column(&place.json("range --limit 1200"), "key"),
        all[..1_200]
    );
    assert_eq!(
        column(&place.json("range --prefix 0000001"), "key").len(),
        16
    );
    assert_eq!(
        column(&place.json("range 00000001 00000003"), "key"),
        all[1..3]
    );
    assert_eq!(place.json("range --rev 11").len(), 10);
    assert!(
        place
            .fails("range z a", 4)
            .contains("ends before it starts")
    );
    assert_eq!(place.json("del --range 00000001 00000003")[0]["deleted"], 2);
    assert_eq!(place.json("del --prefix 0000001")[0]["deleted"], 16);
}

#[test]
fn history_and_watch_tell_the_past() {
    let Some(place) = Place::start() else { return };
    for line in [
        "cas leader 0 one",
        "cas leader 2 two",
        "del leader",
        "put other x",
    ] {
        place.ok(line);
    }
    // Of a key that does not exist, and of one that does.
    for (revisions, changes) in [
        (&["4", "3", "2"][..], &["delete", "put", "put"][..]),
        (&["6", "4", "3", "2"], &["put", "delete", "put", "put"]),
    ] {
        let history = place.json("history leader");
        assert_eq!(column(&history, "revision"), revisions);
        assert_eq!(column(&history, "change"), changes);
        if revisions.len() == 3 {
            place.ok("cas leader 0 three");
        }
    }
    assert_eq!(place.json("history leader --limit 1").len(), 1);
    assert!(
        place
            .fails("history never-there", 1)
            .contains("never written")
    );
    assert_eq!(
        column(&place.json("watch leader --from 3 --count 3"), "revision"),
        ["3", "4", "6"]
    );
    assert_eq!(place.json("watch --from 99 --timeout 50ms").len(), 0);
    assert!(
        place
            .fails("watch --from 7 --count 1 --timeout 50ms", 1)
            .contains("--from 7")
    );

    place.ok("compact 5");
    assert_eq!(column(&place.json("history leader"), "revision"), ["6"]);
    assert_eq!(column(&place.json("history other"), "revision"), ["5"]);
    assert!(
        place
            .fails("watch leader --from 3 --count 1", 4)
            .contains("the oldest left is 5")
    );
    assert!(place.fails("get leader --rev 3", 4).contains("compacted"));
    assert!(place.fails("compact", 2).contains("revision"));
}

#[test]
fn leases_are_granted_kept_and_revoked() {
    let Some(place) = Place::start() else { return };
    let granted = &place.json("lease grant 60s --id 1f")[0];
    assert_eq!(
        (&granted["lease"], &granted["ttl_ms"]),
        (&"1f".into(), &60_000.into())
    );
    place.fails("lease grant 60s --id 1f", 3);
    place.ok("put a 1 --lease 1f");
    assert_eq!(place.json("get a")[0]["lease"], "1f");
    assert_eq!(place.json("lease list")[0]["keys"][0], "a");
    let renewed = &place.json("lease keep-alive 1f --once")[0];
    assert_eq!(renewed["ttl_ms"], 60_000);
    assert_eq!(place.json("lease revoke 1f")[0]["deleted"], 1);
    place.fails("get a", 1);
    for line in [
        "lease revoke 1f",
        "lease keep-alive 1f --once",
        "put a 1 --lease 1f",
    ] {
        place.fails(line, 1);
    }
}

#[test]
fn members_endpoints_and_alarms_are_shown() {
    let Some(place) = Place::start() else { return };
    place.ok("put k v");
    let members = place.json("member list");
    assert_eq!(
        (&members[0]["name"], &members[0]["learner"]),
        (&"n1".into(), &false.into())
    );
    let status = &place.json("endpoint status --cluster")[0];
    assert_eq!(
        (&status["leader"], &status["revision"]),
        (&true.into(), &2.into())
    );
    assert_eq!(status["member"], members[0]["member"]);
    assert_eq!(place.json("endpoint health")[0]["healthy"], true);
    place.fails("endpoint health --endpoints 127.0.0.1:1", 9);
    let hash = |line: &str| place.json(line)[0]["hash"].clone();
    assert_eq!(hash("endpoint hashkv"), hash("endpoint hashkv --rev 2"));
    assert!(place.json("alarm list").is_empty() && place.json("alarm disarm").is_empty());
    place.ok("defrag");

    let added = place.json("member add http://127.0.0.1:1 --learner");
    let learner = added.iter().find(|one| one["learner"] == true).unwrap();
    let id = learner["member"].as_str().unwrap();
    assert!(
        place
            .fails(&format!("member promote {id}"), 9)
            .contains("caught up")
    );
    let updated = place.json(&format!("member update {id} http://127.0.0.1:2"));
    assert!(
        updated
            .iter()
            .any(|one| one["peer_urls"][0] == "http://127.0.0.1:2")
    );
    assert_eq!(place.json(&format!("member remove {id}")).len(), 1);
    for line in [
        "member remove abc",
        "member promote abc",
        "member update abc http://127.0.0.1:1",
        "move-leader abc",
    ] {
        let said = place.fails(line, 1);
        assert!(said.contains("no member `abc` in this cluster"), "{said}");
    }
    let said = place.fails("compact", 2);
    assert!(
        said.contains("give a revision: `compact REVISION`"),
        "{said}"
    );
}

#[test]
fn a_snapshot_is_saved_whole() {
    let Some(place) = Place::start() else { return };
    place.ok("put k v");
    let saved = &place.json("snapshot save backup.db")[0];
    let bytes = std::fs::metadata(place.path("backup.db")).unwrap().len();
    assert_eq!(saved["bytes"], bytes);
    assert_eq!(bytes % 512, 32);
    assert!(!place.path("backup.db.part").exists());
    place.fails("snapshot save nowhere/backup.db", 7);
}

/// `member add` said "now start it", and not how.
#[test]
fn a_member_that_was_added_starts_with_the_command_that_is_printed() {
    let Some(place) = Place::start() else { return };
    place.ok("put before 1");
    let first = bowline_testing::ports::free_ports(2);
    let url = format!("http://127.0.0.1:{}", first + 1);
    let printed = place.ok(&format!("member add {url} --name second"));
    let begin = printed.find("bowline serve").expect(&printed);
    let end = printed[begin..].find("\n\n").expect(&printed);
    let line = printed[begin..begin + end].replace('\\', "");
    assert!(line.contains(&format!("second={url}")), "{line}");
    assert!(
        line.contains(&format!("--listen-client-urls http://127.0.0.1:{first}")),
        "{line}"
    );
    if env!("CARGO_CRATE_NAME") != "cluster" {
        // A server of Bowline does not join one of etcd.
        return;
    }
    let words = line.split_whitespace().skip(1);
    let second = Command::new(env!("CARGO_BIN_EXE_bowline"))
        .args(words)
        .current_dir(place.path("."))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the server starts");
    let _second = Ended(second);
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let members = place.json("member list --read eventual");
        if members.len() == 2 && members.iter().all(|member| member["started"] == true) {
            break;
        }
        assert!(Instant::now() < deadline, "it did not start: {members:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    place.ok("put after 2");
    let of_second = place.json(&format!("get before --endpoints 127.0.0.1:{first}"));
    assert_eq!(of_second[0]["value"], "1");
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
