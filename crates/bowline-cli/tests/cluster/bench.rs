//! `bench` against a real server.

use super::Place;

#[test]
fn every_load_runs_without_errors() {
    let Some(place) = Place::start() else { return };
    for line in [
        "bench put --total 200",
        "bench put --conns 4 --clients 40 --threads 2 --total 2000 --key-size 20 --value-size 1000",
        "bench put --total 20 --clients 5 --val-size 300000",
        "bench txn --txn-ops 8 --clients 10 --total 200",
        "bench range --fill --key-space-size 500 --conns 3 --clients 30 --total 2000",
        "bench range --fill --key-space-size 50 --consistency e --total 200",
        "bench range --fill --key-space-size 50 --consistency lease --total 200 --target-leader",
        "bench put --rate 200 --clients 4 --duration 500ms",
    ] {
        let report = &place.json(line)[0];
        assert_eq!(
            (&report["errors"], &report["empty_answers"]),
            (&0.into(), &0.into()),
            "{line}"
        );
        assert!(
            report["requests"].as_u64().unwrap() > 50 || line.contains("300000"),
            "{report}"
        );
        assert!(
            report["p50_ms"].as_f64().unwrap() > 0.001,
            "{line}: {report}"
        );
        assert!(report["p50_ms"].as_f64() <= report["max_ms"].as_f64());
    }
    // Reads that find nothing are counted.
    let report = &place.json("bench range --key-size 3 --key-space-size 10 --total 50")[0];
    assert_eq!(report["empty_answers"], 50);
    // What the server refuses is an error, and a run of nothing else a failure.
    let message = place.fails("bench put --total 3 --val-size 3000000", 9);
    assert!(message.contains("no request succeeded"), "{message}");
    place.fails("bench put --key-size 1 --key-space-size 17", 2);
}

#[test]
fn every_watcher_is_told_of_every_put() {
    let Some(place) = Place::start() else { return };
    let report = &place.json("bench watch --watchers 50 --conns 3 --streams 2 --total 200")[0];
    assert_eq!(report["events"], 10_000);
    assert_eq!(
        (&report["broken_streams"], &report["put_errors"]),
        (&0.into(), &0.into())
    );
}
