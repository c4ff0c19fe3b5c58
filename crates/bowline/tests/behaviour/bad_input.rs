//! What users get wrong: each mistake has its own error, and does no harm.

use std::ffi::OsString;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bowline::{
    Block, BlockId, Db, Direction, Edge, Error, Expected, Range, Result, Revision, StorageError,
    check_files,
};
use bowline_testing::FaultVfs;
use bowline_testing::fault::{Call, Failure, Rule};
use bowline_testing::lease_id;

use crate::support::{Disk, assert_error, manual};

/// A directory that is removed with the test, and the path of a database in it.
fn place() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("db");
    (dir, path)
}

/// Names and bytes of all files below a directory.
fn files(path: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.push((path.clone(), None));
            found.extend(files(&path));
        } else {
            let bytes = std::fs::read(&path).expect("a file");
            found.push((path, Some(bytes)));
        }
    }
    found.sort();
    found
}

// --- calls ---

#[test]
fn an_empty_key_is_refused() -> Result<()> {
    let db = Disk::new().open(manual());
    assert_error!(db.put("", "v"), Error::EmptyKey);
    assert_error!(db.delete(""), Error::EmptyKey);
    assert_error!(
        db.compare_and_swap("", Expected::Absent, "v"),
        Error::EmptyKey
    );
    assert_error!(db.put_with_lease("", "v", lease_id(1)), Error::EmptyKey);
    assert_error!(db.history(""), Error::EmptyKey);
    let mut tx = db.begin();
    assert_error!(tx.put("", "v"), Error::EmptyKey);
    assert_error!(tx.delete(""), Error::EmptyKey);
    assert_error!(tx.expect("", Expected::Absent), Error::EmptyKey);
    assert_eq!(tx.get("")?, None, "no key is empty");
    assert!(!tx.commit()?.changed);
    assert_eq!((db.get("")?, db.entry("")?), (None, None));
    assert_eq!(db.range(""..)?.count(), 0);
    assert_eq!(db.revision(), 1);
    Ok(())
}

#[test]
fn deleting_what_is_absent_is_no_error() -> Result<()> {
    let db = Disk::new().open(manual());
    assert_eq!(db.delete("k")?, None);
    assert_eq!(db.delete_range("a".."b")?, 0);
    let (gone, edge_gone) = db.transact(|tx| {
        Ok((
            tx.delete_block(BlockId(1))?,
            tx.delete_edge(BlockId(1), "k", BlockId(2))?,
        ))
    })?;
    assert!(!gone && !edge_gone);
    Ok(())
}

#[test]
fn a_range_that_ends_before_it_starts_is_refused() -> Result<()> {
    let db = Disk::new().open(manual());
    for key in ["a", "b", "c"] {
        db.put(key, "v")?;
    }
    let backwards = || Range::from("c".."a");
    let named = |result: Error| {
        let text = result.to_string();
        assert!(text.contains("\"c\"") && text.contains("\"a\""), "{text}");
    };
    named(db.range(backwards()).unwrap_err());
    named(db.snapshot().range(backwards()).unwrap_err());
    named(db.delete_range(backwards()).unwrap_err());
    named(db.watch(backwards()).start().unwrap_err());
    let mut tx = db.begin();
    named(tx.range(backwards()).unwrap_err());
    named(tx.delete_range(backwards()).unwrap_err());
    assert_eq!(db.stats().watchers, 0);
    // Empty, and that is fine: also between two bounds that leave nothing.
    use Bound::{Excluded, Included};
    for (lower, upper) in [
        (Included("b"), Excluded("b")),
        (Excluded("b"), Included("b")),
        (Excluded("b"), Excluded("b")),
    ] {
        let range = || Range::from((lower, upper));
        assert_eq!(db.range(range())?.count(), 0);
        assert_eq!(db.range(range())?.rev().count(), 0);
        assert_eq!(tx.range(range())?.count(), 0);
        assert_eq!(db.delete_range(range())?, 0);
        assert_eq!(
            db.watch(range())
                .from(Revision::new(1))
                .start()?
                .try_recv()?,
            None
        );
    }
    tx.put("x", "v")?;
    tx.commit()?;
    Ok(())
}

#[test]
fn an_unknown_kind_is_named_with_the_known_ones() -> Result<()> {
    let db = Disk::new().open(manual());
    db.transact(|tx| tx.put_block(&Block::new(BlockId(1), "service")))?;
    let graph = db.snapshot().graph();
    let unknown = graph.neighbors(BlockId(1), Direction::Out, ["servise"]);
    let text = unknown.unwrap_err().to_string();
    assert!(
        text.contains("servise") && text.contains("service"),
        "{text}"
    );
    // Asking for one edge is no mistake: it is just not there.
    assert_eq!(graph.edge(BlockId(1), "servise", BlockId(1))?, None);
    Ok(())
}

#[test]
fn an_edge_to_a_missing_block_is_named() {
    let db = Disk::new().open(manual());
    let missing = BlockId::from_name("missing");
    let refused = db.transact(|tx| tx.put_edge(&Edge::new(missing, "to", missing)));
    let text = refused.unwrap_err().to_string();
    assert!(text.contains(&missing.to_string()), "{text}");
}

#[test]
fn after_close_every_call_says_closed() -> Result<()> {
    let db = Disk::new().open(manual());
    db.put("k", "v")?;
    let twin = db.clone();
    let mut watcher = db.watch(..).start()?;
    db.close()?;
    db.close()?;
    for db in [&db, &twin] {
        assert_error!(db.get("k"), Error::Closed);
        assert_error!(db.entry("k"), Error::Closed);
        assert_error!(db.range(..), Error::Closed);
        assert_error!(db.snapshot_at(Revision::new(1)), Error::Closed);
        assert_error!(db.history("k"), Error::Closed);
        assert_error!(db.put("k", "v"), Error::Closed);
        assert_error!(db.delete("k"), Error::Closed);
        assert_error!(db.delete_range(..), Error::Closed);
        assert_error!(
            db.compare_and_swap("k", Expected::Absent, "v"),
            Error::Closed
        );
        assert_error!(db.transact(|tx| tx.put("k", "v")), Error::Closed);
        assert_error!(db.watch(..).start(), Error::Closed);
        assert_error!(db.grant_lease(Duration::from_secs(1)), Error::Closed);
        assert_error!(db.keep_alive(lease_id(1)), Error::Closed);
        assert_error!(db.revoke_lease(lease_id(1)), Error::Closed);
        assert_error!(db.lease_keys(lease_id(1)), Error::Closed);
        assert_error!(db.expire_leases(), Error::Closed);
        assert_error!(db.sync(), Error::Closed);
        assert_error!(db.trim_history(Revision::new(1)), Error::Closed);
        assert_error!(db.compact(), Error::Closed);
        assert_error!(db.flush(), Error::Closed);
        assert_error!(db.check(), Error::Closed);
        assert_error!(db.checkpoint("/copy"), Error::Closed);
    }
    assert_error!(watcher.try_recv(), Error::Closed);
    Ok(())
}

// --- places ---

#[test]
fn what_is_not_a_database_is_refused_and_nothing_is_written_into_it() {
    let (dir, path) = place();
    std::fs::create_dir(&path).expect("a directory");
    std::fs::write(path.join("thesis.txt"), "years of work").expect("a file");
    let before = files(dir.path());
    let refused = Db::open(&path);
    assert_error!(refused, Error::Storage(StorageError::NotADatabase { path: named, reason })
        if named == path && reason.contains("thesis.txt"));
    assert_error!(
        check_files(&path),
        Error::Storage(StorageError::NotADatabase { .. })
    );
    assert_eq!(files(dir.path()), before);

    let file = path.join("thesis.txt");
    assert_error!(
        Db::open(&file),
        Error::Storage(StorageError::NotADatabase { .. })
    );
    assert_error!(Db::open(file.join("below")), Error::Storage(_));
    assert_error!(
        Db::open(dir.path().join("no/such/parent")),
        Error::Storage(StorageError::Io { .. })
    );
    assert_eq!(files(dir.path()), before);
}

#[test]
fn nothing_is_created_when_that_is_not_wanted() {
    let (dir, path) = place();
    let open = |path: &Path| Db::builder().create(false).open(path);
    assert_error!(
        open(&path),
        Error::Storage(StorageError::NotADatabase { .. })
    );
    assert!(!path.exists());
    std::fs::create_dir(&path).expect("a directory");
    assert_error!(
        open(&path),
        Error::Storage(StorageError::NotADatabase { .. })
    );
    assert_eq!(files(&path), []);
    drop(Db::open(&path).expect("an empty directory becomes a database"));
    drop(open(&path).expect("now there is one"));
    drop(dir);
}

#[test]
fn a_newer_format_is_refused_and_left_alone() -> Result<()> {
    let (dir, path) = place();
    drop(Db::open(&path)?);
    let identity = path.join("BOWLINE");
    let text = std::fs::read_to_string(&identity).expect("text");
    std::fs::write(&identity, text.replace("format 1", "format 99")).expect("a file");
    let before = files(dir.path());
    let refused = Db::open(&path);
    assert_error!(&refused, Error::Storage(StorageError::NewerFormat { found: 99, supported: 1, path: named })
        if *named == identity);
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("99") && text.contains("BOWLINE"), "{text}");
    assert_eq!(files(dir.path()), before);
    Ok(())
}

#[test]
fn a_second_opener_in_this_process_is_refused() -> Result<()> {
    let (_dir, path) = place();
    let db = Db::open(&path)?;
    db.put("k", "v")?;
    for _ in 0..3 {
        let refused = Db::open(&path);
        assert_error!(&refused, Error::Storage(StorageError::Locked { path: named }) if *named == path);
        assert!(refused.unwrap_err().is_retryable());
    }
    db.put("k", "w")?;
    drop(db);
    assert_eq!(Db::open(&path)?.get("k")?.as_deref(), Some(&b"w"[..]));
    Ok(())
}

const CHILD_PATH: &str = "BOWLINE_TEST_CHILD_PATH";

/// Not a test by itself: the other process of the one below.
#[test]
fn child_that_opens() {
    let Some(path) = std::env::var_os(CHILD_PATH) else {
        return;
    };
    match Db::open(PathBuf::from(path)) {
        Ok(db) => println!("opened at {}", db.revision()),
        Err(Error::Storage(StorageError::Locked { .. })) => println!("refused: locked"),
        Err(error) => println!("another error: {error}"),
    }
}

fn child(path: &Path) -> String {
    let this = std::env::current_exe().expect("this program");
    let value = OsString::from(path);
    let output = Command::new(this)
        .args(["--exact", "bad_input::child_that_opens", "--nocapture"])
        .env(CHILD_PATH, value)
        .output()
        .expect("a process");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn another_process_is_refused_while_this_one_has_it_open() -> Result<()> {
    let (_dir, path) = place();
    let db = Db::open(&path)?;
    db.put("k", "v")?;
    let said = child(&path);
    assert!(said.contains("refused: locked"), "{said}");
    db.close()?;
    let said = child(&path);
    assert!(
        said.contains("opened at 2"),
        "closed, though the handle still exists: {said}"
    );
    drop(db);
    assert_eq!(Db::open(&path)?.revision(), 2);
    Ok(())
}

#[test]
fn a_read_only_disk_is_an_error_that_names_the_place() -> Result<()> {
    const READ_ONLY: i32 = 30;
    let disk = FaultVfs::new(bowline_testing::SimDisk::new());
    let open = || manual().vfs(std::sync::Arc::new(disk.clone())).open("/db");
    let read_only = || {
        for call in Call::ALL
            .into_iter()
            .filter(|call| call.is_change() || *call == Call::Lock)
        {
            disk.add(Rule::on(call).for_ever().fail(Failure::Os(READ_ONLY)));
        }
    };
    read_only();
    assert_error!(open(), Error::Storage(StorageError::Io { path, .. }) if path.starts_with("/db"));
    disk.clear();
    let db = open()?;
    db.put("k", "v")?;
    drop(db);
    read_only();
    let refused = open();
    let text = refused.as_ref().unwrap_err().to_string();
    assert_error!(refused, Error::Storage(StorageError::Io { path, .. }) if path.starts_with("/db"));
    assert!(text.contains("/db"), "{text}");
    disk.clear();
    assert_eq!(open()?.get("k")?.as_deref(), Some(&b"v"[..]));
    Ok(())
}

/// The same with permissions. Root is not bound by them, so this says so and goes.
#[test]
fn a_directory_without_permission_is_an_error_that_names_it() -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if rustix::process::geteuid().is_root() {
        bowline_testing::skip("permissions do not bind root");
        return Ok(());
    }
    let (_dir, path) = place();
    drop(Db::open(&path)?);
    let set = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode));
    set(0o500).expect("its owner may");
    std::fs::remove_file(path.join("LOCK")).unwrap_or_default();
    let refused = Db::open(&path);
    set(0o700).expect("its owner may");
    assert_error!(refused, Error::Storage(StorageError::Io { path: named, .. }) if named.starts_with(&path));
    Ok(())
}
