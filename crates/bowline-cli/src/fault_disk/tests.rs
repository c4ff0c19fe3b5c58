use bowline_storage::vfs::{OsVfs, read_exact_at, read_full_at, sync_parent, write_all_at};

use super::*;
use crate::exit::Exit;

/// A disk in a directory of its own, whose rules can be changed.
struct Disk {
    directory: tempfile::TempDir,
    vfs: FaultDisk,
}

impl Disk {
    fn with(rules: &str) -> Disk {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("rules");
        std::fs::write(&file, rules).expect("written");
        let vfs = FaultDisk::new(Arc::new(OsVfs), &file).expect("good rules");
        Disk { directory, vfs }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn file(&self, name: &str) -> Arc<dyn VfsFile> {
        let file = self.vfs.open(&self.path(name), OpenMode::CreateNew);
        file.expect("created")
    }

    /// Replaces the rules, and waits until the disk looks at them again.
    fn set(&self, rules: &str) {
        std::fs::write(self.path("new"), rules).expect("written");
        std::fs::rename(self.path("new"), self.path("rules")).expect("renamed");
        thread::sleep(LOOK_INTERVAL);
    }

    fn injected(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("rules.injected")).expect("read");
        let below = format!("{}/", self.directory.path().display());
        text.lines().map(|line| line.replace(&below, "")).collect()
    }
}

fn code<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

const EIO: Option<i32> = Some(5);
const ENOSPC: Option<i32> = Some(28);

#[test]
fn calls_fail_by_path_after_some_and_so_often() {
    let disk = Disk::with("# Only the log\n\nflush eio path .log after 1 times 2\n");
    let (log, table) = (disk.file("1.log"), disk.file("1.table"));
    let flushes: Vec<_> = (0..4).map(|_| code(log.sync_data())).collect();
    assert_eq!(flushes, [None, EIO, EIO, None]);
    assert_eq!(code(table.sync_data()), None);
    assert_eq!(disk.injected(), ["flush eio 1.log", "flush eio 1.log"]);
}

#[test]
fn each_kind_of_call_fails_and_does_nothing() {
    let disk = Disk::with("");
    let file = disk.file("f");
    write_all_at(&*file, Path::new("f"), b"before", 0).expect("no rules");
    disk.set("read eio\nwrite eio times 1\ngrow enospc\nflush eio");
    assert_eq!(code(file.read_at(&mut [0; 6], 0)), EIO);
    assert_eq!(code(file.write_at(b"lost", 0)), EIO);
    assert_eq!(code(file.write_at(b"lost", 3)), ENOSPC, "one byte more");
    assert_eq!(code(file.set_len(7)), ENOSPC);
    assert_eq!(
        code(disk.vfs.open(&disk.path("g"), OpenMode::CreateNew)),
        ENOSPC
    );
    assert_eq!(code(disk.vfs.create_dir(&disk.path("d"))), ENOSPC);
    assert_eq!(code(disk.vfs.sync_dir(disk.directory.path())), EIO);
    assert_eq!(code(file.write_at(b"B", 0)), None, "it grows nothing");
    disk.set("");
    let mut content = [0; 6];
    read_exact_at(&*file, Path::new("f"), &mut content, 0).expect("no rules");
    assert_eq!(&content, b"Before");
    sync_parent(&disk.vfs, &disk.path("f")).expect("no rules");
    assert!(disk.vfs.metadata(&disk.path("g")).expect("read").is_none());
}

#[test]
fn short_transfers_are_continued_and_slow_flushes_are_slow() {
    let disk = Disk::with("write short 3\nread short 4\nflush slow 50");
    let file = disk.file("f");
    write_all_at(&*file, Path::new("f"), b"0123456789", 0).expect("continued");
    let mut content = [0; 20];
    let read = read_full_at(&*file, Path::new("f"), &mut content, 0);
    assert_eq!(read.expect("continued"), 10);
    assert_eq!(&content[..10], b"0123456789");
    let began = Instant::now();
    file.sync_data().expect("slow");
    assert!(began.elapsed() >= Duration::from_millis(50));
    let counted = |fault: &str| {
        disk.injected()
            .iter()
            .filter(|line| line.starts_with(fault))
            .count()
    };
    let counts = ["write short 3", "read short 4", "flush slow 50"].map(counted);
    assert_eq!(counts, [3, 4, 1], "the last write had one byte");
}

/// A segment of the log is written under the name of a spare, and renamed while it is open.
#[test]
fn a_rule_follows_a_file_that_is_renamed() {
    let disk = Disk::with("write eio path .log");
    let file = disk.file("spare.tmp");
    assert_eq!(code(file.write_at(b"x", 0)), None);
    let renamed = disk
        .vfs
        .rename(&disk.path("spare.tmp"), &disk.path("1.log"));
    renamed.expect("renamed");
    assert_eq!(code(file.write_at(b"x", 0)), EIO);
}

/// A program for tests has the flag, and shows it to nobody.
#[test]
fn the_flag_is_hidden_and_names_a_wrong_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rules");
    std::fs::write(&file, "erase eio").expect("written");
    let data = directory.path().join("data");
    let run = |arguments: &[&str]| {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut streams = crate::Streams {
            stdin: &mut io::empty(),
            stdout: &mut stdout,
            stderr: &mut stderr,
            terminal: crate::Terminal::default(),
        };
        let exit = crate::run([&["bowline", "serve"], arguments].concat(), &mut streams);
        let written = [stdout, stderr].concat();
        (exit, String::from_utf8(written).expect("UTF-8"))
    };
    let (_, help) = run(&["--help"]);
    assert!(
        help.contains("--data-dir") && !help.contains("fault-disk"),
        "{help}"
    );
    let (file, data) = (file.to_string_lossy(), data.to_string_lossy());
    let (exit, written) = run(&["--data-dir", &data, "--fault-disk", &file]);
    assert_eq!(exit, Exit::Invalid);
    assert!(
        written.contains("line 1: \"erase\" is no call"),
        "{written}"
    );
}

#[test]
fn wrong_rules_are_refused_at_first_and_change_nothing_later() {
    for (text, why) in [
        ("erase eio", "is no call"),
        ("read", "is no effect"),
        ("read short", "needs a number"),
        ("read short 0", "at least 1"),
        ("flush short 5", "cannot be short"),
        ("flush slow soon", "is no number"),
        ("flush eio path", "needs a text"),
        ("\nflush eio for ever", "line 2: \"for\" is not"),
    ] {
        let wrong = Rules::parse(text).expect_err(text).to_string();
        assert!(wrong.contains(why), "{text}: {wrong}");
    }
    let disk = Disk::with("flush eio");
    std::fs::write(disk.path("wrong"), "erase eio").expect("written");
    let refused = FaultDisk::new(Arc::new(OsVfs), &disk.path("wrong"));
    let kind = refused.map(drop).map_err(|error| error.kind());
    assert_eq!(kind, Err(io::ErrorKind::InvalidData));
    let file = disk.file("f");
    disk.set("erase eio");
    assert_eq!(code(file.sync_data()), EIO);
    std::fs::remove_file(disk.path("rules")).expect("removed");
    thread::sleep(LOOK_INTERVAL);
    assert_eq!(code(file.sync_data()), None);
}
