//! What the files in `packaging` say of the program is true.

use std::path::{Path, PathBuf};
use std::process::Command;

fn packaging(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging")).join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(packaging(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// What `bowline serve --print-config` says with these variables.
fn settings_with(variables: &[(&str, &str)]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_bowline"))
        .args(["serve", "--print-config"])
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{variables:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_variables_of_the_service_are_settings_of_the_server() {
    let file = read("systemd/bowline.env");
    let lines = file.lines().filter_map(|line| line.strip_prefix('#'));
    let variables: Vec<(&str, &str)> = lines
        .filter(|line| line.starts_with("BOWLINE_") && !line.contains("CONFIG_FILE"))
        .filter_map(|line| line.split_once('='))
        .collect();
    assert!(variables.len() >= 5, "{file}");
    let printed = settings_with(&variables);
    for (name, value) in variables {
        let line = printed
            .lines()
            .find(|line| line.ends_with(&format!(" # {name}")));
        assert!(
            line.is_some_and(|line| line.contains(value)),
            "{name}: {printed}"
        );
    }
    let unit = read("systemd/bowline.service");
    assert!(unit.contains("\nEnvironment=BOWLINE_DATA_DIR=/var/lib/bowline/data\n"));
    let printed = settings_with(&[("BOWLINE_DATA_DIR", "/var/lib/bowline/data")]);
    let line = "data-dir = \"/var/lib/bowline/data\" # BOWLINE_DATA_DIR\n";
    assert!(printed.contains(line), "{printed}");
}
