//! The history file, to which several sessions append at once.
//!
//! The format is that of the line editor: `#V2`, then one entry in each line, in which a backslash and a line feed are
//! escaped. The editor reads the file. It does not write it: to append beside another session, it empties the file and
//! writes all of it again, and a session that is killed in between would lose the history of all.
//!
//! An entry is appended with one write, under the file's lock. A file with twice as many entries as are kept is replaced
//! at the start of a session by a new file with the newest ones, under the lock of the old file. A session
//! that waited for that lock finds another file under the name, and begins anew.
//!
//! Invariant: at every moment the file holds every entry that was appended, but for the oldest ones beyond the limit; so
//! it does after a session was killed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The first line of a file with escaped entries.
const HEADER: &[u8] = b"#V2\n";

/// Opens the file, which is made if it is gone, and takes its lock. The lock ends with the result.
fn lock(path: &Path) -> io::Result<File> {
    loop {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.mode(0o600).open(path)?;
        file.lock()?;
        let ours = file.metadata()?;
        match fs::metadata(path) {
            Ok(named) if (named.dev(), named.ino()) == (ours.dev(), ours.ino()) => return Ok(file),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
}

/// Adds an entry at the end of the file.
pub(super) fn append(path: &Path, entry: &str) -> io::Result<()> {
    let file = lock(path)?;
    let end = file.metadata()?.len();
    let mut head = [0; HEADER.len()];
    let is_escaped = end == 0 || (file.read_exact_at(&mut head, 0).is_ok() && head == *HEADER);
    let mut bytes = Vec::new();
    if end == 0 {
        bytes.extend_from_slice(HEADER);
    } else {
        let mut last = [0];
        file.read_exact_at(&mut last, end - 1)?;
        // The rest of an entry whose writer was killed stays an entry of its own.
        bytes.extend((last != *b"\n").then_some(b'\n'));
    }
    let entry = match is_escaped {
        true => entry.replace('\\', r"\\").replace('\n', r"\n"),
        // The file of another program.
        false => entry.replace('\n', " "),
    };
    bytes.extend_from_slice(entry.as_bytes());
    bytes.push(b'\n');
    let written = file.write_all_at(&bytes, end);
    if written.is_err() {
        // Part of it may be there, as on a full disk. If this fails too, the next entry begins a new line.
        let _ = file.set_len(end);
    }
    written
}

/// Removes the oldest entries of a file that has more than twice as many as are kept.
pub(super) fn trim(path: &Path, entries_max: usize) -> io::Result<()> {
    // A link is kept, and the file that it leads to is replaced.
    let path = fs::canonicalize(path)?;
    let mut file = lock(&path)?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let (header, entries) = match text.strip_prefix(HEADER) {
        Some(entries) => (HEADER, entries),
        None => (&b""[..], &text[..]),
    };
    let entries: Vec<&[u8]> = entries.split_inclusive(|byte| *byte == b'\n').collect();
    if entries.len() <= 2 * entries_max {
        return Ok(());
    }
    let mut kept = header.to_vec();
    kept.extend_from_slice(&entries[entries.len() - entries_max..].concat());
    replace(&path, &kept)
}

/// Puts a new file in the place of the one at `path`, of which the caller has the lock.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let write = || -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    // One that is there was left by a session that was killed: nobody else has the lock.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let written = write();
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustyline::history::{FileHistory, History};

    use super::*;

    const ENTRIES_MAX: usize = 50;

    fn empty() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("history");
        fs::write(&path, "").unwrap();
        (directory, path)
    }

    /// What the editor makes of the file.
    fn loaded(path: &Path) -> Vec<String> {
        let config = rustyline::Config::builder().max_history_size(10_000);
        let mut history = FileHistory::with_config(&config.unwrap().build());
        history.load(path).unwrap();
        history.iter().cloned().collect()
    }

    /// Two sessions append, and a third one looks at every moment, as it would after all were killed then: no entry is
    /// missing or cut. The editor's own way to append empties the file and writes it again.
    #[test]
    fn sessions_append_at_once_and_lose_nothing_at_any_moment() {
        // All of it in one page: of a write across two, the observer may see the first part alone.
        const EACH: usize = 150;
        let (_directory, path) = empty();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let look = scope.spawn(|| {
                let (mut most, mut looks) = (0, 0);
                // Once at least, also on a machine that does much else.
                while !is_done.load(Ordering::Relaxed) || looks == 0 {
                    let text = fs::read_to_string(&path).unwrap();
                    let count = text.lines().count();
                    assert!(count >= most, "{count} lines of {most}");
                    for line in text.lines().skip(1) {
                        assert!(line.ends_with(" end"), "{line:?}");
                    }
                    assert!(text.is_empty() || text.ends_with('\n'), "a part of a line");
                    (most, looks) = (count, looks + 1);
                }
                looks
            });
            let sessions = ["a", "b"].map(|session| {
                let path = &path;
                scope.spawn(move || {
                    for number in 0..EACH {
                        append(path, &format!("{session} {number} end")).unwrap();
                    }
                })
            });
            for session in sessions {
                session.join().unwrap();
            }
            is_done.store(true, Ordering::Relaxed);
            assert!(look.join().unwrap() > 0);
        });
        // Each entry is there once, those of a session in their order.
        let mut next = HashMap::from([("a", 0), ("b", 0)]);
        for entry in loaded(&path) {
            let (session, rest) = entry.split_once(' ').unwrap();
            let next = next.get_mut(session).unwrap();
            assert_eq!(rest, format!("{next} end"));
            *next += 1;
        }
        assert!(next.values().all(|count| *count == EACH), "{next:?}");
    }

    /// A session that starts replaces a file that has grown. The others append to the new one, and not to the one that
    /// has no name any more.
    #[test]
    fn a_file_that_is_replaced_loses_only_the_oldest() {
        const EACH: usize = 1_000;
        let (_directory, path) = empty();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    trim(&path, ENTRIES_MAX).unwrap();
                }
            });
            let session = scope.spawn(|| {
                for number in 0..EACH {
                    append(&path, &number.to_string()).unwrap();
                    let newest = loaded(&path).pop();
                    assert_eq!(newest, Some(number.to_string()));
                }
            });
            let ended = session.join();
            is_done.store(true, Ordering::Relaxed);
            ended.unwrap();
        });
        trim(&path, ENTRIES_MAX).unwrap();
        let left = loaded(&path);
        assert!(
            (ENTRIES_MAX..=2 * ENTRIES_MAX).contains(&left.len()),
            "{}",
            left.len()
        );
        let expected = (EACH - left.len()..EACH).map(|number| number.to_string());
        assert_eq!(left, expected.collect::<Vec<_>>());
    }

    #[test]
    fn what_the_editor_reads_is_what_was_appended() {
        let (_directory, path) = empty();
        let entries = [r"put a '\n'", "two\nlines", r"\", "ä", r"back\\slash"];
        for entry in entries {
            append(&path, entry).unwrap();
        }
        assert_eq!(loaded(&path), entries);
        // A session was killed while it wrote.
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text + "get ha").unwrap();
        append(&path, "get whole").unwrap();
        assert_eq!(loaded(&path)[entries.len()..], ["get ha", "get whole"]);
        // It was removed meanwhile.
        fs::remove_file(&path).unwrap();
        append(&path, "get again").unwrap();
        assert_eq!(loaded(&path), ["get again"]);
        // The file of another program has no header, and no escapes.
        fs::write(&path, "theirs\n").unwrap();
        append(&path, r"our\s").unwrap();
        assert_eq!(loaded(&path), ["theirs", r"our\s"]);
    }

    #[test]
    fn a_link_to_the_history_stays_one() {
        let (directory, path) = empty();
        for number in 0..=2 * ENTRIES_MAX {
            append(&path, &number.to_string()).unwrap();
        }
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        trim(&link, ENTRIES_MAX).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(loaded(&path).len(), ENTRIES_MAX);
    }
}
