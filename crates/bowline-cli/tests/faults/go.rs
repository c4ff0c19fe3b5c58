//! Watchers of etcd's own client for Go: they resume as that client does, on whichever member it chooses.
//!
//! Where Go is not installed, or its modules cannot be had, they are skipped.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bowline::Revision;
use bowline_client::{Event, LeaseId};
use bowline_proto::mvccpb;
use bowline_testing::skip_part;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::observed::Observed;
use crate::watches::{ASKING, is_done};

/// How long it may take to fetch the modules and to build the program.
const BUILD_PATIENCE: Duration = Duration::from_secs(300);

/// A program that is killed with whoever has it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Builds the program that follows; `None`, said aloud, where that is not possible.
pub(crate) async fn program() -> Option<PathBuf> {
    let usual = Path::new("/usr/local/go/bin/go");
    let go = if usual.exists() {
        usual
    } else {
        Path::new("go")
    };
    if Command::new(go).arg("version").output().is_err() {
        skip_part("the watches of the client for Go: go is not installed");
        return None;
    }
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("etcd-go-follow");
    let mut build = Command::new(go);
    build
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/go"))
        .args(["build", "-mod=readonly", "-buildvcs=false", "-o"])
        .args([program.as_os_str(), "./follow".as_ref()]);
    let building = tokio::task::spawn_blocking(move || build.output());
    let built = timeout(BUILD_PATIENCE, building).await;
    let built = built.expect("go takes too long to build the client");
    let output = built.expect("no panic").expect("go runs");
    if output.status.success() {
        return Some(program);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    // Its words for a proxy or a name server that does not answer, and for a toolchain that is too old.
    let unreachable = [
        "dial tcp",
        "i/o timeout",
        "proxyconnect",
        "GOPROXY=off",
        "requires go >=",
    ];
    let is_unreachable = unreachable.iter().any(|words| errors.contains(words));
    assert!(
        is_unreachable,
        "the client for Go cannot be built: {errors}"
    );
    skip_part(format!("the watches of the client for Go: {errors}"));
    None
}

/// Follows by the program, from what was told on, until all is told.
pub(crate) async fn follow(
    program: PathBuf,
    endpoints: Vec<String>,
    mut told: Observed,
    last: Arc<AtomicU64>,
) -> Observed {
    let child = Command::new(program)
        // A proxy of the environment knows no address of this machine.
        .env("NO_PROXY", "*")
        .env("no_proxy", "*")
        .arg(format!("{}", told.seen() + 1))
        .args(
            endpoints
                .iter()
                .map(|endpoint| format!("http://{endpoint}")),
        )
        // It ends with its input.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut child = Running(child);
    let output = child.0.stdout.take().expect("it is piped");
    let (sender, mut lines) = mpsc::unbounded_channel();
    // Ends with the program.
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    told.opened += 1;
    while !is_done(&told, &last) {
        let Ok(next) = timeout(ASKING, lines.recv()).await else {
            continue;
        };
        let line = next.unwrap_or_else(|| panic!("{} ended at {}", told.name, told.seen()));
        let said: Value = serde_json::from_str(&line).expect("a line of JSON");
        let error = said["Error"].as_str().unwrap_or_default();
        assert!(
            error.is_empty(),
            "{} ended at {}: {error}",
            told.name,
            told.seen()
        );
        match said["Events"].as_array() {
            Some(events) if !events.is_empty() => told.take(events.iter().map(event).collect()),
            _ => told.progress(said["Revision"].as_u64().expect("a revision")),
        }
    }
    told
}

/// An event as Go's client writes it: numbers that are 0 and texts that are empty are left out.
fn event(event: &Value) -> Event {
    let number = |value: &Value| value.as_i64().unwrap_or_default();
    let bytes = |value: &Value| {
        let text = value.as_str().unwrap_or_default();
        STANDARD.decode(text).expect("base64")
    };
    let entry = |entry: &Value| mvccpb::KeyValue {
        key: bytes(&entry["key"]).into(),
        value: bytes(&entry["value"]).into(),
        create_revision: number(&entry["create_revision"]),
        mod_revision: number(&entry["mod_revision"]),
        version: number(&entry["version"]),
        lease: number(&entry["lease"]),
    };
    Event::from(mvccpb::Event {
        r#type: i32::try_from(number(&event["type"])).expect("a type"),
        kv: Some(entry(&event["kv"])),
        prev_kv: event["prev_kv"]
            .is_object()
            .then(|| entry(&event["prev_kv"])),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_go_is_read_as_it_was_written() {
        let text = r#"{"type":1,"kv":{"key":"YQ==","mod_revision":9},
            "prev_kv":{"key":"YQ==","value":"eA==","create_revision":3,"mod_revision":4,"version":2,"lease":5}}"#;
        let event = event(&serde_json::from_str(text).expect("JSON"));
        assert_eq!(event.kind, bowline_client::EventKind::Delete);
        assert_eq!(
            (&event.entry.key[..], event.revision()),
            (&b"a"[..], Revision::new(9))
        );
        let before = event.previous.expect("it was there");
        assert_eq!(
            (&before.value[..], before.version, before.lease),
            (&b"x"[..], 2, LeaseId::new(5))
        );
    }
}
