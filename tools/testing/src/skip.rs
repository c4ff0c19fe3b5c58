//! Reports of tests that cannot run on a machine, in a form that the pipeline counts.
//!
//! Each writes one line, `SKIPPED: …`, past the test runner, which hides the output of a passing test.
//! `.ci/run` ends with their number, and does not count a skipped test as passed. With `BOWLINE_STRICT=1`
//! each is a failure: where everything is installed nothing may be skipped.

use std::fmt::Display;
use std::io::{self, Write};
use std::thread;

/// The environment variable that makes a skip a failure.
const STRICT: &str = "BOWLINE_STRICT";

/// Reports that the calling test does nothing on this machine, and why. The caller returns next.
///
/// # Panics
/// When `BOWLINE_STRICT` is `1`.
#[track_caller]
pub fn skip(why: impl Display) {
    say(&format!("test {}: {why}", name()));
}

/// Reports that the calling test skips a part on this machine, and why.
///
/// # Panics
/// When `BOWLINE_STRICT` is `1`.
#[track_caller]
pub fn skip_part(why: impl Display) {
    say(&format!("a part of {}: {why}", name()));
}

/// The name of the test, from its thread.
fn name() -> String {
    thread::current().name().unwrap_or("a thread").to_owned()
}

#[track_caller]
fn say(what: &str) {
    let what = what.replace('\n', " ");
    let is_strict = std::env::var_os(STRICT).is_some_and(|value| value == "1");
    assert!(!is_strict, "{STRICT}=1 allows no skip: {what}");
    // A write error does not matter.
    let _ = io::stderr().write_all(format!("SKIPPED: {what}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    /// Set in the process that skips.
    const CHILD: &str = "BOWLINE_TEST_SKIPS";

    /// A skip is one line past the runner, and a failure where it is not allowed. Runs itself as a process,
    /// with and without the variable.
    #[test]
    fn a_skip_is_told_and_fails_where_it_is_not_allowed() {
        if std::env::var_os(CHILD).is_some() {
            super::skip("there is no moon");
            super::skip_part("nor stars");
            return;
        }
        let name = "skip::tests::a_skip_is_told_and_fails_where_it_is_not_allowed";
        let run = |strict: &str| {
            let mut command = Command::new(std::env::current_exe().expect("a program"));
            command.args(["--exact", name]).env(CHILD, "1");
            let output = command.env(super::STRICT, strict).output();
            let output = output.expect("it runs");
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.success(), stderr)
        };
        let lines = format!(
            "SKIPPED: test {name}: there is no moon\nSKIPPED: a part of {name}: nor stars\n"
        );
        assert_eq!(run("0"), (true, lines));
        let (passed, stderr) = run("1");
        assert!(!passed && !stderr.contains("SKIPPED"), "{stderr}");
    }
}
