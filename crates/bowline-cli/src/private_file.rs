//! Files with data that a command writes: exports and snapshots.
//!
//! The data goes to a new file beside the target and gets the target's name once it is complete and on the disk. So a
//! half of a file is never taken for a whole, and a command that fails leaves what was there.
//!
//! Invariants:
//!
//! - Nobody but the owner can read the file (mode 0600), from its first byte on, whatever was there before.
//! - It is created, never opened: a link that somebody else put in its place is not followed. Where the target
//!   itself is a link, the link is replaced.
//! - Unless it is [committed](PrivateFile::commit), it is removed.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// See the module.
pub(crate) struct PrivateFile {
    unfinished: NamedTempFile,
    target: PathBuf,
}

impl PrivateFile {
    /// Begins a file that is to be named `target`.
    pub(crate) fn create(target: &Path) -> io::Result<PrivateFile> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let unfinished = tempfile::Builder::new()
            .prefix(&format!(".{name}."))
            .suffix(".unfinished")
            .tempfile_in(folder_of(target))?;
        Ok(PrivateFile {
            unfinished,
            target: target.to_owned(),
        })
    }

    /// Gives it its name, after everything is on the disk.
    pub(crate) fn commit(self) -> io::Result<()> {
        self.unfinished.as_file().sync_all()?;
        self.unfinished
            .persist(&self.target)
            .map_err(|refused| refused.error)?;
        File::open(folder_of(&self.target))?.sync_all()
    }
}

impl Write for PrivateFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.unfinished.as_file_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn folder_of(target: &Path) -> &Path {
    let folder = target.parent();
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    /// Exports and snapshots were created with the permissions of any file, under a name that could be foreseen:
    /// whoever could write into the folder put a link there, and the data went, or was cut off, where it pointed.
    #[test]
    fn a_file_is_private_and_follows_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let (target, elsewhere) = (
            folder.path().join("backup"),
            folder.path().join("elsewhere"),
        );
        fs::write(&elsewhere, "precious").unwrap();
        for name in ["backup", "backup.part", "backup.unfinished"] {
            symlink(&elsewhere, folder.path().join(name)).unwrap();
        }
        let mut file = PrivateFile::create(&target).unwrap();
        let begun = file.unfinished.path().to_owned();
        assert_eq!(mode(&begun), 0o600);
        file.write_all(b"data").unwrap();
        file.commit().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"data");
        assert_eq!(mode(&target), 0o600);
        assert!(!fs::symlink_metadata(&target).unwrap().is_symlink());
        assert_eq!(fs::read(&elsewhere).unwrap(), b"precious");
        assert!(!begun.exists());
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
