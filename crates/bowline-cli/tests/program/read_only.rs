//! Commands that read a directory: they change nothing in it, and disturb nobody who has it open.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use bowline::Db;
use bowline_storage::TreeId;
use bowline_storage::engine::{BatchWriter, ScanDirection};

use super::serve::with_server_of;
use super::{Place, files_in};

/// Every file below a directory, with its bytes.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for path in files_in(directory) {
        match path.is_dir() {
            true => found.extend(contents(&path)),
            false => {
                let bytes = std::fs::read(&path).unwrap();
                found.insert(path, bytes);
            }
        }
    }
    found
}

const READING: [&str; 11] = [
    "get k",
    "get k --rev 2",
    "range",
    "history k",
    "graph stats",
    "graph reach a --direction out",
    "block list",
    "edge list",
    "lease list",
    "stats --all",
    "export -",
];

#[test]
fn commands_that_read_change_no_file() {
    let place = Place::new();
    place.ok("put k v");
    for name in ["a", "b"] {
        place.ok(&format!("block put --kind service {name}"));
    }
    place.ok("edge put a calls b");
    let before = contents(&place.data());
    for line in READING {
        let run = place.run(line);
        assert_eq!(run.code, 0, "{line}: {}", run.stderr);
        assert!(contents(&place.data()) == before, "{line}");
    }
}

/// They were refused: the directory "is in use by another process".
#[test]
fn commands_that_read_work_beside_the_process_that_has_the_directory_open() {
    let place = Place::new();
    let db = Db::builder()
        .history(bowline::History::All)
        .open(place.data())
        .unwrap();
    db.put("k", "first").unwrap();
    db.transact(|tx| {
        for name in ["a", "b"] {
            let id = bowline::BlockId::from_name(name);
            tx.put_block(&bowline::Block::new(id, "service"))?;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(place.json("get k")[0]["value"], "first");
    db.put("k", "second").unwrap();
    assert_eq!(place.json("get k")[0]["value"], "second");
    assert_eq!(place.json("get k --rev 2")[0]["value"], "first");
    for line in READING
        .iter()
        .filter(|line| !line.starts_with("graph reach"))
    {
        let run = place.run(line);
        assert_eq!(run.code, 0, "{line}: {}", run.stderr);
    }
    for line in ["put k third", "del k", "compact", "check"] {
        let said = place.fails(line, 5);
        assert!(said.contains("in use by another process"), "{line}: {said}");
    }
    db.put("k", "third").unwrap();
    db.close().unwrap();
    place.check_is_clean();
}

#[test]
fn the_files_of_a_member_that_is_stopped_are_checked() {
    let place = Place::new();
    let check = "check --data-dir member";
    with_server_of(&place, "member", "", |at, _| {
        place.ok(&format!("put k v --endpoints {at}"));
        let said = place.fails(check, 4);
        assert!(said.contains("belongs to a member that runs"), "{said}");
    });
    let told = place.run(check);
    assert_eq!(told.code, 0, "{}", told.stderr);
    assert!(
        told.stdout
            .contains("the directory of a member: verified as of revision"),
        "{}",
        told.stdout
    );
    let files = contents(&place.path("member"));
    let is_log = |path: &&PathBuf| path.extension().is_some_and(|ending| ending == "log");
    let log = files.keys().find(is_log).expect("a segment of the log");
    let mut bytes = std::fs::read(log).unwrap();
    // In the middle of what was written.
    let written = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[written / 2] ^= 0xFF;
    std::fs::write(log, bytes).unwrap();
    let said = place.fails(check, 6);
    assert!(said.contains("1 problem found"), "{said}");
}

/// Deletes an edge at one of its ends only, which nothing in the program does.
fn delete_backward_edge(path: &Path) {
    const EDGE_IN: TreeId = TreeId(3);
    let db = Db::open(path).unwrap();
    let engine = &db.core().engine;
    let at = engine.visible();
    let all = (Bound::Unbounded, Bound::Unbounded);
    let mut scan = engine.scan(EDGE_IN, all.0, all.1, at, ScanDirection::Forward);
    assert!(scan.advance().unwrap(), "there is an edge");
    let mut batch = Vec::new();
    BatchWriter::start(&mut batch, at + 1).delete(EDGE_IN, scan.key());
    drop(scan);
    let mut group = engine.begin_group(1, 1, batch.len() as u64).unwrap();
    group.apply(&batch).unwrap();
    group.finish().unwrap();
    db.close().unwrap();
}

/// The check of a member's directory read its files, and not what they mean together.
#[test]
fn what_the_trees_of_a_member_mean_together_is_checked() {
    let place = Place::new();
    for line in [
        "put k v",
        "block put --kind service a",
        "block put --kind service b",
        "edge put a calls b",
    ] {
        place.ok(line);
    }
    // It becomes a member's.
    with_server_of(&place, "data", "", |_, _| ());
    let found = place.json("check --data-dir data");
    let counts = found.last().unwrap();
    for (name, count) in [("keys", 1), ("blocks", 2), ("edges", 1)] {
        assert_eq!(counts[name], count, "{counts}");
    }
    let before = contents(&place.data());
    let told = place.ok("check --data-dir data");
    assert!(contents(&place.data()) == before, "it was only read");
    // It said "1 pages, 1 entries".
    assert!(told.contains("1 page, 1 entry"), "{told}");

    let place = Place::new();
    for line in [
        "block put --kind service a",
        "block put --kind service b",
        "edge put a calls b",
    ] {
        place.ok(line);
    }
    delete_backward_edge(&place.data());
    let of_directory = place.run("check");
    with_server_of(&place, "data", "", |_, _| ());
    let of_member = place.run("check --data-dir data");
    for run in [of_directory, of_member] {
        assert_eq!(run.code, 6, "{} {}", run.stdout, run.stderr);
        assert!(
            run.stdout.contains("is missing backwards"),
            "{}",
            run.stdout
        );
        assert!(run.stderr.contains("1 problem found"), "{}", run.stderr);
    }
}
