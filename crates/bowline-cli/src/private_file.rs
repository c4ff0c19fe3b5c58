//! Files with data that a command writes: exports and snapshots.
//!
//! The data goes to a new file beside the target, which takes the target's name once it is complete and on the disk. So an
//! incomplete file is never taken for a complete one, and a command that fails leaves the previous file. A pipe or a device
//! is written directly: it has no previous content.
//!
//! | the target | |
//! |---|---|
//! | nothing | a new file that only its owner can read (mode 0600) |
//! | a regular file of this user, or of root | replaced at once; the new file has its mode |
//! | another user's regular file | replaced at once; the new file has mode 0600 |
//! | a pipe or a device of this user, or of root | written |
//! | a symbolic link of this user, or of root | the file that it names, by these rules; the link stays |
//! | another user's link, pipe or device; a directory | refused |
//!
//! Another user who can write into the folder may have created the target. So another user's file, link or pipe decides
//! neither where the data goes nor who can read it.
//!
//! Invariants:
//!
//! - Until it is complete nobody but the owner can read the file.
//! - The file beside the target is created, never opened: a link in its place is not followed.
//! - Unless it is [committed](PrivateFile::commit), the file is removed. What a command that was killed left is
//!   removed by the next one with the same target: a file that is being written is locked.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// How the name of a file ends while it is written.
const UNFINISHED: &str = ".unfinished";

/// See the module. Its errors name the file.
pub(crate) struct PrivateFile {
    /// The name that was given.
    name: PathBuf,
    sink: Sink,
}

enum Sink {
    /// A file that takes its target's name.
    Unfinished {
        file: NamedTempFile,
        target: PathBuf,
        /// The mode of the file that it replaces, to be taken over.
        mode: Option<u32>,
    },
    /// A pipe or a device.
    Stream(File),
}

impl PrivateFile {
    /// Begins a file that is to be named `target`.
    pub(crate) fn create(target: &Path) -> io::Result<PrivateFile> {
        let sink = Sink::open(target).map_err(|error| named(target, &error))?;
        Ok(PrivateFile {
            name: target.to_owned(),
            sink,
        })
    }

    /// Whether it is a pipe or a device.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.sink, Sink::Stream(_))
    }

    /// Gives it its name, after everything is on the disk.
    pub(crate) fn commit(self) -> io::Result<()> {
        let PrivateFile { name, sink } = self;
        sink.commit().map_err(|error| named(&name, &error))
    }
}

impl Sink {
    fn open(target: &Path) -> io::Result<Sink> {
        let found = match fs::symlink_metadata(target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Sink::beside(target.to_owned(), None);
            }
            found => found?,
        };
        if found.is_symlink() && !is_trusted(&found) {
            return Err(of_another_user("symbolic link"));
        }
        let named = fs::metadata(target)?;
        if named.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !named.is_file() {
            if !is_trusted(&named) {
                return Err(of_another_user("pipe or device"));
            }
            let stream = OpenOptions::new().write(true).open(target)?;
            // It may have been exchanged meanwhile.
            let opened = stream.metadata()?;
            if opened.is_file() || !is_trusted(&opened) {
                return Err(of_another_user("file"));
            }
            return Ok(Sink::Stream(stream));
        }
        let target = match found.is_symlink() {
            true => fs::canonicalize(target)?,
            false => target.to_owned(),
        };
        let mode = is_trusted(&named).then(|| named.mode() & 0o777);
        Sink::beside(target, mode)
    }

    fn beside(target: PathBuf, mode: Option<u32>) -> io::Result<Sink> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let prefix = format!(".{name}.");
        remove_leftovers(folder_of(&target), &prefix);
        let file = tempfile::Builder::new()
            .prefix(&prefix)
            .suffix(UNFINISHED)
            .tempfile_in(folder_of(&target))?;
        // Where the file system has no locks, nobody gets one, and leftovers stay.
        let _ = file.as_file().try_lock();
        Ok(Sink::Unfinished { file, target, mode })
    }

    fn commit(self) -> io::Result<()> {
        let (file, target, mode) = match self {
            Sink::Unfinished { file, target, mode } => (file, target, mode),
            Sink::Stream(mut stream) => return stream.flush(),
        };
        if let Some(mode) = mode {
            file.as_file()
                .set_permissions(Permissions::from_mode(mode))?;
        }
        file.as_file().sync_all()?;
        file.persist(&target).map_err(|refused| refused.error)?;
        File::open(folder_of(&target))?.sync_all()
    }
}

impl Write for PrivateFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match &mut self.sink {
            Sink::Unfinished { file, .. } => file.as_file_mut().write(bytes),
            Sink::Stream(stream) => stream.write(bytes),
        };
        written.map_err(|error| named(&self.name, &error))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An error that names the file. A reader of a named pipe who hangs up is one, unlike that of standard output.
fn named(file: &Path, error: &io::Error) -> io::Error {
    let kind = match error.kind() {
        io::ErrorKind::BrokenPipe => io::ErrorKind::Other,
        kind => kind,
    };
    let file = file.display();
    io::Error::new(kind, format!("cannot write {file}: {error}"))
}

/// Whether a file is this user's, or root's.
fn is_trusted(file: &Metadata) -> bool {
    file.uid() == 0 || file.uid() == rustix::process::geteuid().as_raw()
}

/// Removes the files that commands were writing for the same target when they were killed. Best effort.
fn remove_leftovers(folder: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let is_unfinished = name
            .to_str()
            .is_some_and(|name| name.starts_with(prefix) && name.ends_with(UNFINISHED));
        let is_own =
            |found: Metadata| found.is_file() && found.uid() == rustix::process::geteuid().as_raw();
        // The metadata is that of the entry itself: a link is none of ours.
        if !is_unfinished || !entry.metadata().is_ok_and(is_own) {
            continue;
        }
        let path = entry.path();
        if File::open(&path).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = fs::remove_file(&path);
        }
    }
}

fn of_another_user(what: &str) -> io::Error {
    let text = format!("it is another user's {what}: name another file");
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

fn folder_of(target: &Path) -> &Path {
    let folder = target.parent();
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn write(target: &Path) -> io::Result<()> {
        let mut file = PrivateFile::create(target)?;
        file.write_all(b"data")?;
        file.commit()
    }

    /// Exports and snapshots were created with the permissions of any file, under a name that could be foreseen:
    /// whoever could write into the folder put a link there, and the data went, or was cut off, where it pointed.
    #[test]
    fn a_file_is_private_and_its_name_cannot_be_foreseen() {
        let folder = tempfile::tempdir().unwrap();
        let (target, elsewhere) = (
            folder.path().join("backup"),
            folder.path().join("elsewhere"),
        );
        fs::write(&elsewhere, "precious").unwrap();
        for name in ["backup.part", "backup.unfinished"] {
            symlink(&elsewhere, folder.path().join(name)).unwrap();
        }
        let mut file = PrivateFile::create(&target).unwrap();
        let Sink::Unfinished { file: begun, .. } = &file.sink else {
            panic!("a new file");
        };
        let begun = begun.path().to_owned();
        assert_eq!(mode(&begun), 0o600);
        file.write_all(b"data").unwrap();
        file.commit().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"data");
        assert_eq!(mode(&target), 0o600);
        assert_eq!(fs::read(&elsewhere).unwrap(), b"precious");
        assert!(!begun.exists());
    }

    /// An export replaced a link by a file, and made a file of mode 0640 one of mode 0600.
    #[test]
    fn a_file_keeps_its_mode_and_a_link_of_ours_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "before").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        symlink("file", &link).unwrap();
        write(&link).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"data");
        assert_eq!(mode(&file), 0o640);
        let names = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 2, "nothing is left beside them");
    }

    /// A file that another user had made beforehand, readable by all, gave the export its mode.
    #[test]
    fn what_is_another_users_decides_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "precious").unwrap();
        symlink("file", at("link")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            0o666.into(),
            0,
        )
        .unwrap();
        fs::write(at("open"), "before").unwrap();
        fs::set_permissions(at("open"), Permissions::from_mode(0o666)).unwrap();
        for name in ["link", "pipe", "open"] {
            if lchown(at(name), Some(65_534), None).is_err() {
                let part = "files of another user: only root can make them";
                return bowline_testing::skip_part(part);
            }
        }
        for name in ["link", "pipe"] {
            let refused = write(&at(name)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{name}");
        }
        assert_eq!(fs::read(at("file")).unwrap(), b"precious");
        write(&at("open")).unwrap();
        assert_eq!(fs::read(at("open")).unwrap(), b"data");
        assert_eq!(mode(&at("open")), 0o600);
    }

    /// `export /dev/full` replaced the device by a file.
    #[test]
    fn a_device_is_written_and_a_directory_refused() {
        let folder = tempfile::tempdir().unwrap();
        let full = write(Path::new("/dev/full")).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        let refused = write(folder.path()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::IsADirectory);
        // A link to a device that is root's, as /dev/stdout is.
        let link = folder.path().join("null");
        symlink("/dev/null", &link).unwrap();
        write(&link).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    /// A command that was killed left its file, as large as the database, for ever.
    #[test]
    fn what_a_killed_command_left_is_removed_and_what_is_being_written_stays() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("backup");
        let left = folder.path().join(".backup.aB3dE6.unfinished");
        let other = folder.path().join(".other.aB3dE6.unfinished");
        for path in [&left, &other] {
            fs::write(path, "half").unwrap();
        }
        let mut begun = PrivateFile::create(&target).unwrap();
        assert!(!left.exists());
        assert!(other.exists(), "it is for another target");
        write(&target).unwrap();
        begun.write_all(b"slow").unwrap();
        begun.commit().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"slow");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_is_not_committed_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("backup");
        fs::write(&target, "before").unwrap();
        let mut file = PrivateFile::create(&target).unwrap();
        file.write_all(b"half").unwrap();
        drop(file);
        assert_eq!(fs::read(&target).unwrap(), b"before");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
