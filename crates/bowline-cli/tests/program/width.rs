//! Output fits the terminal, is short enough to read, and shows only what the command is about.

use super::Place;
use super::terminal::Terminal;

/// Keys with short values, and one with a long one.
fn long_value(place: &Place) {
    place.ok("put a short");
    place.ok(&format!("put b {}", "x".repeat(300)));
    place.ok("put c short");
}

#[test]
fn a_table_on_a_terminal_fits_it() {
    let place = Place::new();
    long_value(&place);
    for columns in [60, 100] {
        let terminal = Terminal::start(&place, &["range"], columns);
        let (shown, status) = terminal.end();
        assert!(status.success());
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 4, "{shown}");
        let widths: Vec<usize> = lines.iter().map(|line| line.chars().count()).collect();
        assert!(
            widths.iter().all(|width| *width == usize::from(columns)),
            "{shown}"
        );
        assert!(
            lines[2].contains("xxx…  ") && lines[2].ends_with("3        1"),
            "{shown}"
        );
    }
    // A question about one key is answered with the whole value.
    let (shown, _) = Terminal::start(&place, &["get", "b"], 60).end();
    assert!(shown.contains(&"x".repeat(300)), "{shown}");
}

#[test]
fn a_pipe_gets_everything_and_a_long_value_widens_its_own_row_only() {
    let place = Place::new();
    long_value(&place);
    let shown = place.ok("range");
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[2].contains(&"x".repeat(300)), "{shown}");
    assert_eq!(lines[1], "a    short         2        1");
    // Unless somebody says how much fits.
    let cut = place.ok("range --width 40");
    assert!(cut.lines().all(|line| line.chars().count() == 40), "{cut}");
    let mut command = place.command(&["range"]);
    let output = command.env("COLUMNS", "40").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), cut);
    let mut command = place.command(&["range", "--width", "0"]);
    let output = command.env("COLUMNS", "40").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), shown);
    // JSON is whole.
    assert_eq!(
        place.json("range --width 40")[1]["value"]
            .as_str()
            .unwrap()
            .len(),
        300
    );
}

/// A component of 4,000 blocks is one line, not forty screens.
#[test]
fn a_long_list_ends_with_how_many_more_there_are() {
    let place = Place::new();
    let edges: String = (0..3_999).map(|n| format!("n{n}\tn{}\n", n + 1)).collect();
    place.write("chain.txt", edges);
    place.ok("import chain.txt --format edge-list");
    let shown = place.ok("graph components");
    assert!(shown.contains(", and 3,990 more"), "{shown}");
    let narrow = place.ok("graph components --width 60");
    let line = narrow.lines().nth(1).unwrap();
    assert!(
        line.chars().count() <= 60 && line.contains(", and 3,99"),
        "{line}"
    );
    let whole = place.json("graph components");
    assert_eq!(whole[0]["blocks"].as_array().unwrap().len(), 4_000);

    place.ok("lease grant 600s --id 7");
    let keys: Vec<String> = (0..12).map(|n| format!("k{n:02}")).collect();
    keys.iter()
        .for_each(|key| drop(place.ok(&format!("put {key} v --lease 7"))));
    let shown = place.ok("lease list");
    assert!(shown.contains("k09, and 2 more"), "{shown}");
    let whole = place.json("lease list");
    assert_eq!(whole[0]["keys"].as_array().unwrap().len(), 12);
}

/// Who reads the blocks of a traversal has to know that a bound cut it.
#[test]
fn json_says_when_a_bound_cut_it() {
    let place = Place::new();
    place.write("chain.txt", "1\t2\n2\t3\n3\t4\n");
    place.ok("import chain.txt --format edge-list");
    let whole = place.json("graph reach 1");
    assert_eq!(whole.len(), 4);
    assert!(whole.iter().all(|row| row["stopped_by"].is_null()));
    for (bound, blocks) in [("--limit", 2), ("--max-depth", 3)] {
        let cut = place.json(&format!("graph reach 1 {bound} 2"));
        assert_eq!(cut.len(), blocks + 1, "{bound}");
        assert_eq!(cut[blocks], serde_json::json!({ "stopped_by": bound }));
    }
}

#[test]
fn stats_are_ten_lines_and_everything_on_demand() {
    let place = Place::new();
    place.ok("put a 1");
    let short = place.ok("stats");
    assert_eq!(short.lines().count(), 11, "{short}");
    assert!(
        short.contains("revision") && short.contains("stats --all"),
        "{short}"
    );
    assert_eq!(place.ok("-q stats").lines().count(), 10);
    let all = place.ok("stats --all");
    let json = &place.json("stats")[0];
    let names = json.as_object().unwrap();
    assert!(names.len() > 30, "{json}");
    assert_eq!(all.lines().count(), names.len());
    for name in names.keys() {
        assert!(all.contains(&name.replace('_', " ")), "{name}: {all}");
    }
}

/// The help of a command offers no option that it has no use for.
#[test]
fn global_options_are_shown_where_they_apply() {
    let place = Place::new();
    for (line, shown, hidden) in [
        ("check", "--data-dir", "--endpoints"),
        ("stats", "--data-dir", "--read"),
        ("checkpoint", "--data-dir", "--endpoints"),
        ("graph rank", "--endpoints", "--raw <"),
        ("tour", "--keep", "--data-dir"),
        ("serve", "--data-dir", "--endpoints"),
        ("cluster up", "--data-dir", "--endpoints"),
        ("member list", "--endpoints", "--data-dir"),
        ("endpoint status", "--endpoints", "--data-dir"),
        ("alarm list", "--read", "--data-dir"),
        ("snapshot save", "--endpoints", "--data-dir"),
        ("snapshot status", "--output", "--endpoints"),
        ("snapshot restore", "--data-dir", "--endpoints"),
        ("bench put", "--endpoints", "--data-dir"),
        ("completions", "Usage", "--output"),
        ("version", "--output", "--data-dir"),
        ("get", "--endpoints", "--raw <"),
        ("get", "--data-dir", "--raw <"),
    ] {
        // What the examples and the texts name is not an option of the command.
        let help = place.ok(&format!("{line} --help"));
        let offers = |option: &str| {
            let mut lines = help.lines().map(str::trim_start);
            lines.any(|line| line.starts_with(option) || line.contains(&format!(", {option} ")))
        };
        assert!(offers(shown), "{line} does not offer {shown}: {help}");
        assert!(!offers(hidden), "{line} offers {hidden}: {help}");
    }
    // It is refused with a reason all the same, wherever it stands.
    place.ok("put a 1");
    for line in [
        "check --endpoints 127.0.0.1:1",
        "--endpoints 127.0.0.1:1 check",
    ] {
        let refused = place.fails(line, 2);
        assert!(refused.contains("works on a directory"), "{refused}");
    }
    place.ok("--data-dir data check");
    place.ok("check --data-dir data");
}
