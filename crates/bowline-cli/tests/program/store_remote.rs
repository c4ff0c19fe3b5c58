//! The past of a key and leases in milliseconds: each line prints the same, and ends the same, on a directory
//! and on a server.

use std::time::Duration;

use bowline_client::{Client, LeaseId};

use super::Place;
use super::graph_remote::Served;
use super::serve::with_server_of;

#[test]
fn the_past_and_leases_are_the_same_for_a_directory_and_a_server() {
    let served = Served::start();
    for line in ["put a 1", "put a 2", "del a", "put a 3"] {
        served.both(line, 0);
    }
    let all = served.both("-o json history a", 0);
    assert_eq!(all.lines().count(), 4);
    assert_eq!(
        served
            .both("-o json history a --limit 2", 0)
            .lines()
            .count(),
        2
    );
    served.both("history never", 1);

    // Not in whole seconds.
    let granted = served.both("-o json lease grant 61500ms --id 7", 0);
    assert!(granted.contains("\"ttl_ms\":61500"), "{granted}");
    // What is wrong is said in the words of the library, or of the client.
    let ends = |line: &str, code| {
        let codes = (served.place.run(line).code, served.remote(line).code);
        assert_eq!(codes, (code, code), "bowline {line}");
    };
    ends("lease grant 61500ms --id 7", 3);
    served.both("put b 1 --lease 7", 0);
    let kept = served.both("-o json lease keep-alive 7 --once", 0);
    assert!(kept.contains("\"ttl_ms\":61500"), "{kept}");
    served.both("lease revoke 7", 0);
    ends("lease keep-alive 7 --once", 1);
    served.both("get b", 1);
}

#[test]
fn updates_are_the_same_for_a_directory_and_a_server() {
    let served = Served::start();
    let update = |line: &str, changed: bool, value: Option<&str>| {
        let told = served.both(&format!("-o json update {line}"), 0);
        let told: serde_json::Value = serde_json::from_str(told.trim()).unwrap();
        assert_eq!(
            (told["changed"].as_bool(), told["value"].as_str()),
            (Some(changed), value)
        );
    };
    update("n add 5", true, Some("5"));
    update("n add -7", true, Some("-2"));
    update("n max -3", false, Some("-2"));
    update("n max 4", true, Some("4"));
    update("n min 3", true, Some("3"));
    update("n add -3 --min 0 --max 9", true, Some("0"));
    update("n append 1", true, Some("01"));
    update("n swap --expected 01 --new 1", true, Some("1"));
    update("n swap --expected 1", true, None);
    update("n set-if-absent -1", true, Some("-1"));
    // The value was shown as text, whatever was asked for.
    let told = served.both("-o json update --hex 6e append 30", 0);
    assert!(told.contains(r#""value_hex":"2d3130""#), "{told}");
    let told = served.both("update --hex 6e append 31", 0);
    assert!(told.contains("2d313031"), "{told}");
    update("n swap --expected -101 --new -10", true, Some("-10"));
    // It is already what it is to become, which was reported as a refusal. Found in review.
    update("n swap --expected -10 --new -10", false, Some("-10"));
    update("n add 0 --min -20", false, Some("-10"));
    update("none swap", false, None);
    // It stays attached to its lease.
    served.both("-o json lease grant 61500ms --id 7", 0);
    served.both("put leased 1 --lease 7", 0);
    update("leased add 1", true, Some("2"));
    served.both("lease revoke 7", 0);
    served.both("get leased", 1);
}

/// To say how many keys went with a lease, its keys were read before it was ended: the count was that of another
/// moment, and a lease with more keys than a reply holds could not be ended, nor any lease be listed beside it.
/// Found by review.
#[test]
fn a_lease_with_more_keys_than_a_reply_holds_is_listed_and_revoked() {
    /// More than the 32 MiB of a reply, at 64 KB each.
    const KEYS: usize = 33 * 16;
    let place = Place::new();
    with_server_of(&place, "served", "", |at, _| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let client = Client::connect([at]).await.unwrap();
            let ids = [7, 8].map(|id| LeaseId::new(id).unwrap());
            for id in ids {
                let ttl = Duration::from_secs(600);
                client.grant_lease_with_id(id, ttl).await.unwrap();
            }
            client.put("few", "").lease(ids[1]).await.unwrap();
            for number in 0..KEYS {
                let key = format!("{number:065500}");
                client.put(key, "").lease(ids[0]).await.unwrap();
            }
        });
        let remote = |line: &str| place.json(&format!("--endpoints {at} {line}"));
        let mut listed = remote("lease list");
        listed.sort_by_key(|row| row["lease"].to_string());
        assert_eq!(
            (&listed[0]["lease"], &listed[1]["lease"]),
            (&"7".into(), &"8".into())
        );
        assert!(listed[0]["keys"].is_null(), "{}", listed[0]);
        assert_eq!(listed[1]["keys"], serde_json::json!(["few"]));
        assert_eq!(remote("lease revoke 7")[0]["deleted"], KEYS);
        assert_eq!(remote("lease revoke 8")[0]["deleted"], 1);
        assert!(remote("lease list").is_empty());
    });
}
