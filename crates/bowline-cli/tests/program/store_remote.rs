//! The past of a key and leases in milliseconds: each line prints the same, and ends the same, on a directory
//! and on a server.

use super::graph_remote::Served;

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
