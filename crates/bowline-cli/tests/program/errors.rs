//! Bad input gets a clear error and a stable exit code, and nothing is lost.

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::process::Stdio;

use super::{Place, Run, files_in};

#[test]
fn a_directory_that_is_not_a_database_is_refused_and_left_alone() {
    let place = Place::new();
    assert!(place.fails("get k", 4).contains("does not exist"));
    assert!(!place.data().exists(), "reading creates nothing");
    std::fs::create_dir(place.data()).unwrap();
    std::fs::write(place.data().join("notes.txt"), "mine").unwrap();
    let refused = place.fails("put k v", 4);
    assert!(
        refused.contains("not a Bowline database") && refused.contains("notes.txt"),
        "{refused}"
    );
    assert_eq!(
        files_in(&place.data()).len(),
        1,
        "nothing was written into it"
    );
}

#[test]
fn a_second_program_is_told_that_the_directory_is_in_use() {
    let place = Place::new();
    place.ok("put k v");
    let mut first = place
        .command(&["-o", "json", "watch", "--from", "2"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Once it has printed a change, it has the directory open.
    let mut line = String::new();
    BufReader::new(first.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.contains("put"), "{line}");
    let refused = place.run("put k w");
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!(refused.code, 5);
    assert!(
        refused.stderr.contains("in use by another process"),
        "{}",
        refused.stderr
    );
    assert_eq!(
        place.ok("get k --raw"),
        "v",
        "a killed program leaves no lock behind"
    );
}

#[test]
fn a_newer_format_is_named() {
    let place = Place::new();
    place.ok("put k v");
    let path = place.data().join("BOWLINE");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("format 1", "format 7")).unwrap();
    let refused = place.fails("get k", 4);
    assert!(
        refused.contains("format version 7") && refused.contains("up to 1"),
        "{refused}"
    );
}

#[test]
fn words_that_make_no_sense_are_refused() {
    let place = Place::new();
    place.ok("put k v");
    assert!(
        place
            .run_words(&["put", "", "v"])
            .stderr
            .contains("key is empty")
    );
    let long = "k".repeat(65 * 1024);
    let run = place.run_words(&["put", &long, "v"]);
    assert_eq!(run.code, 4);
    assert!(run.stderr.contains("limit is 65536"), "{}", run.stderr);
    assert!(place.fails("lease grant soon", 2).contains("soon"));
    assert!(place.fails("frobnicate", 2).contains("frobnicate"));
    assert!(
        place
            .fails("import nothing-here.txt", 7)
            .contains("nothing-here.txt")
    );
    assert!(place.fails("put --hex xyz v", 2).contains("hexadecimal"));
    assert_eq!(place.ok("get k --raw"), "v");
}

fn flip(path: &std::path::Path, offset: u64) {
    let mut file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.read_exact(&mut byte).unwrap();
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.write_all(&[byte[0] ^ 0x20]).unwrap();
}

#[test]
fn damage_is_named_with_file_and_offset_and_check_lists_all_of_it() {
    let place = Place::new();
    for number in 0..50 {
        place.ok(&format!("put key-{number} value"));
    }
    place.ok("block put a --kind k");
    place.ok("compact 51");
    place.ok("put after compaction");
    place.check_is_clean();
    let tables = files_in(&place.data().join("tables"));
    assert!(tables.len() >= 2, "{tables:?}");
    for table in &tables {
        flip(table, 20);
    }
    let run = place.run("check");
    assert_eq!(run.code, 6, "{} {}", run.stdout, run.stderr);
    for table in &tables {
        let name = table.file_name().unwrap().to_str().unwrap();
        assert!(
            run.stdout.contains(name),
            "{name} is not listed: {}",
            run.stdout
        );
    }
    assert!(run.stdout.contains("offset"), "{}", run.stdout);
    assert!(place.fails("get key-7", 6).contains("damaged at offset"));

    std::fs::remove_file(&tables[0]).unwrap();
    let missing = place.fails("get key-7", 6);
    assert!(missing.contains("is missing"), "{missing}");
    assert!(place.run("check").stdout.contains("is missing"));
}

#[test]
fn a_truncated_log_manifest_or_identity_is_an_error() {
    for (pattern, expected) in [("log", 6), ("manifest", 6), ("BOWLINE", 6)] {
        let place = Place::new();
        place.ok("put k v");
        let path = match pattern {
            "log" => files_in(&place.data().join("log"))
                .into_iter()
                .next_back()
                .unwrap(),
            _ => files_in(&place.data())
                .into_iter()
                .find(|path| {
                    path.file_name()
                        .unwrap()
                        .to_str()
                        .unwrap()
                        .starts_with(pattern)
                })
                .unwrap(),
        };
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(10).unwrap();
        let run = place.run("get k");
        assert_eq!(
            run.code, expected,
            "{pattern}: {} {}",
            run.stdout, run.stderr
        );
        assert!(
            run.stderr
                .contains(path.file_name().unwrap().to_str().unwrap()),
            "{}",
            run.stderr
        );
        assert_eq!(place.run("check").code, 6, "{pattern}");
    }
}

/// A directory on the command line lost to a cluster in the environment: `put --data-dir` wrote to a cluster.
#[test]
fn a_directory_on_the_command_line_beats_a_cluster_of_the_environment() {
    let place = Place::new();
    place.ok("put k v");
    let data = place.data();
    let data = data.to_str().expect("UTF-8");
    let run = |words: &[&str]| {
        let mut command = place.command(words);
        // Nobody listens there.
        command.env("BOWLINE_ENDPOINTS", "127.0.0.1:1");
        Run::of(command.output().expect("the program starts"))
    };
    let of_directory = run(&["--data-dir", data, "get", "k", "--raw"]);
    assert_eq!((of_directory.code, of_directory.stdout.as_str()), (0, "v"));
    let of_cluster = run(&["get", "k"]);
    assert_eq!(of_cluster.code, 9, "{}", of_cluster.stderr);
    // What is about servers has no directory to open.
    let of_cluster = run(&["member", "list", "--data-dir", data]);
    assert_eq!(of_cluster.code, 9, "{}", of_cluster.stderr);
    let both = run(&["get", "k", "--data-dir", data, "--endpoints", "127.0.0.1:1"]);
    assert_eq!(both.code, 2, "{}", both.stderr);
    assert!(
        both.stderr.starts_with("error: --data-dir"),
        "{}",
        both.stderr
    );
}

/// Usage errors of the program's own began without the word that those of its parser begin with.
#[test]
fn every_usage_error_begins_with_error() {
    let place = Place::new();
    for line in ["del", "put k v --endpoints nowhere"] {
        let refused = place.fails(line, 2);
        assert!(refused.starts_with("error: "), "{line}: {refused}");
        assert!(!refused.starts_with("error: error"), "{line}: {refused}");
    }
}

/// It ended with exit code 7 and `check` printed no report.
#[test]
fn a_missing_folder_of_tables_is_damage_that_check_reports() {
    let place = Place::new();
    place.ok("put k v");
    // Nothing was flushed: nothing is lost but the folder.
    std::fs::rename(place.data().join("tables"), place.path("away")).unwrap();
    let said = place.fails("get k", 6);
    assert!(said.contains("tables is missing"), "{said}");
    assert!(said.contains("an empty directory"), "{said}");
    let run = place.run("check");
    assert_eq!(run.code, 6, "{}", run.stderr);
    assert!(run.stdout.contains("tables is missing"), "{}", run.stdout);
    assert!(run.stderr.contains("1 problem found"), "{}", run.stderr);
    std::fs::rename(place.path("away"), place.data().join("tables")).unwrap();
    place.check_is_clean();

    place.ok("block put a --kind k");
    place.ok("compact");
    std::fs::remove_dir_all(place.data().join("tables")).unwrap();
    let said = place.fails("get k", 6);
    assert!(said.contains("files of the database were in it"), "{said}");
    let run = place.run("check");
    assert_eq!(run.code, 6, "{}", run.stderr);
    assert!(
        run.stdout.contains("restore it from a checkpoint"),
        "{}",
        run.stdout
    );
}
