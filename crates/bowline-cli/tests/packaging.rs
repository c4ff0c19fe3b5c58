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

/// The bill of materials names every crate of the program, with the checksum of its source, and no other.
#[test]
fn the_bill_of_materials_is_that_of_the_program() {
    let root = packaging("..");
    let output = match Command::new("python3")
        .arg(root.join("checks/sbom"))
        .args(["--target", "x86_64-unknown-linux-gnu"])
        .env("CARGO_NET_OFFLINE", "true")
        .output()
    {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return bowline_testing::skip("python3 is missing, which writes the bill of materials");
        }
        output => output.unwrap(),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let bill: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(bill["bomFormat"], "CycloneDX");
    let components = bill["components"].as_array().unwrap();
    let with = |name: &str| components.iter().find(|one| one["name"] == name);
    for (name, scope) in [
        ("tokio", "required"),
        ("bowline", "required"),
        ("tonic-prost-build", "excluded"),
    ] {
        assert_eq!(with(name).unwrap()["scope"], scope, "{name}");
    }
    // Of the tests, and of an optional feature.
    for name in ["proptest", "zstd-sys", "bowline-testing"] {
        assert!(with(name).is_none(), "{name}");
    }
    for one in components {
        let name = one["name"].as_str().unwrap();
        let is_ours = name.starts_with("bowline");
        assert_eq!(one["hashes"][0]["content"].is_null(), is_ours, "{one}");
        assert!(one["licenses"][0]["expression"].is_string(), "{one}");
    }
    let references: std::collections::BTreeSet<_> = components
        .iter()
        .map(|one| one["bom-ref"].as_str().unwrap())
        .collect();
    assert_eq!(references.len(), components.len(), "each once");
}
