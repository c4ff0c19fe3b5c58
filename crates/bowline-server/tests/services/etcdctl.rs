//! The real etcdctl, where it is installed.

use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::support::start;

/// Whether it is there; says that the test is skipped if it is not.
fn is_installed() -> bool {
    let found = std::process::Command::new("etcdctl")
        .arg("version")
        .output();
    if found.is_err() {
        bowline_testing::skip("etcdctl is not installed");
    }
    found.is_ok()
}

#[tokio::test]
async fn etcdctl_is_served() {
    if !is_installed() {
        return;
    }
    let running = start(&[]).await;
    let endpoint = running.address();
    let ctl = async |line: &str| {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &endpoint, "--command-timeout", "20s"])
            .args(line.split_whitespace())
            .output()
            .await
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (text, errors)
    };
    assert_eq!(ctl("put a 1").await.0, "OK\n");
    assert_eq!(ctl("put b 2").await.0, "OK\n");
    assert_eq!(ctl("get a c").await.0, "a\n1\nb\n2\n");
    assert_eq!(
        ctl("get --rev 2 --prefix a --print-value-only").await.0,
        "1\n"
    );
    assert_eq!(ctl("del a").await.0, "1\n");
    let (_, errors) = ctl("get --rev 99 b").await;
    assert!(
        errors.contains("mvcc: required revision is a future revision"),
        "{errors}"
    );
    let (granted, _) = ctl("lease grant 100").await;
    assert!(granted.contains("granted with TTL(100s)"), "{granted}");
    let id = granted.split_whitespace().nth(1).unwrap();
    assert_eq!(ctl(&format!("put --lease={id} leased 1")).await.0, "OK\n");
    let (alive, _) = ctl(&format!("lease keep-alive --once {id}")).await;
    assert!(alive.contains("keepalived with TTL(100)"), "{alive}");
    let (left, _) = ctl(&format!("lease timetolive --keys {id}")).await;
    assert!(
        left.contains("granted with TTL(100s)") && left.contains("leased"),
        "{left}"
    );
    let (revoked, _) = ctl(&format!("lease revoke {id}")).await;
    assert!(revoked.contains("revoked"), "{revoked}");
    assert_eq!(ctl("get leased").await.0, "");
    let (members, _) = ctl("member list").await;
    assert!(members.contains("started, default, "), "{members}");
    let (status, _) = ctl("endpoint status -w json").await;
    assert!(status.contains("\"version\":\"3.7.3\""), "{status}");
    assert!(ctl("endpoint health").await.1.contains("is healthy"));
    assert!(ctl("endpoint hashkv").await.0.contains(&endpoint));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("snapshot");
    let (saved, errors) = ctl(&format!("snapshot save {}", file.display())).await;
    assert!(saved.contains("Snapshot saved"), "{saved} {errors}");
    assert_eq!(std::fs::metadata(&file).unwrap().len() % 512, 32);
}

/// Its commands about users, and what its users may do.
#[tokio::test]
async fn etcdctl_manages_users_and_logs_in() {
    if !is_installed() {
        return;
    }
    let running = start(&[]).await;
    let endpoint = running.address();
    // Both of its outputs, one after the other.
    let ctl = async |user: &str, line: &str, input: &str| {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args([
            "--endpoints",
            &endpoint,
            "--command-timeout",
            "20s",
        ]);
        if !user.is_empty() {
            command.args(["--user", user]);
        }
        let mut child = command
            .args(line.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // One that reads nothing may have ended.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        let output = child.wait_with_output().await.unwrap();
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).into_owned()
    };
    // A member takes no change of users before it has told the cluster which commands it reads, soon after its start.
    for _ in 0..100 {
        if ctl("", "role add first", "").await.contains("created") {
            break;
        }
    }
    let (root, ann) = ("root:secret", "ann:pw");
    for (user, line, expected) in [
        ("", "user add root:secret", "User root created"),
        ("", "user add ann:pw", "User ann created"),
        ("", "role add worker", "Role worker created"),
        (
            "",
            "role grant-permission worker readwrite own/ --prefix=true",
            "Role worker updated",
        ),
        (
            "",
            "role grant-permission worker read shared",
            "Role worker updated",
        ),
        (
            "",
            "user grant-role ann worker",
            "Role worker is granted to user ann",
        ),
        ("", "user get ann", "Roles: worker"),
        ("", "put shared 1", "OK"),
        // It grants the role root, which is missing.
        (root, "auth enable", "Authentication Enabled"),
        ("", "get shared", "user name is empty"),
        ("ann:wrong", "get shared", "invalid user ID or password"),
        (ann, "put own/a 1", "OK"),
        (ann, "get shared", "shared\n1"),
        (ann, "put shared 2", "permission denied"),
        (ann, "get own --prefix", "permission denied"),
        (ann, "user list", "permission denied"),
        (ann, "user get ann", "Roles: worker"),
        (ann, "lease grant 100", "granted with TTL(100s)"),
        (root, "role get worker", "own/"),
        (root, "user list", "ann\nroot"),
        (root, "endpoint status", "3.7.3"),
        (root, "compact 1", "ompact"),
        (root, "role revoke-permission worker shared", "shared"),
        (ann, "get shared", "permission denied"),
        (
            root,
            "user passwd ann --interactive=false",
            "Password updated",
        ),
        (ann, "get own/a", "invalid user ID or password"),
        ("ann:new", "get own/a", "own/a\n1"),
        (root, "user delete ann", "User ann deleted"),
        (root, "user delete root", "invalid auth management"),
        (root, "auth disable", "Authentication Disabled"),
        ("", "get own/a", "own/a\n1"),
    ] {
        let input = if line.contains("passwd") { "new\n" } else { "" };
        let shown = ctl(user, line, input).await;
        assert!(shown.contains(expected), "{user} {line}: {shown}");
    }
}
