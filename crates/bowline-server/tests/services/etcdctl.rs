//! The real etcdctl, where it is installed.

use tokio::process::Command;

use crate::support::start;

#[tokio::test]
async fn etcdctl_is_served() {
    if std::process::Command::new("etcdctl")
        .arg("version")
        .output()
        .is_err()
    {
        bowline_testing::skip("etcdctl is not installed");
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
