//! Files with data that a command writes: exports and snapshots.
//!
//! The data goes to a new file beside the target, which takes the target's name once it is complete and on the disk. So a
//! half of a file is never taken for a whole, and a command that fails leaves what was there. A pipe or a device is
//! written as it is: it has no other content to lose.
//!
//! | the target | |
//! |---|---|
//! | nothing | a new file that only its owner can read (mode 0600) |
//! | a regular file | replaced at once; the new file has its mode |
//! | a pipe, a device | written |
//! | a symbolic link of this user, or of root | the file that it names, by these rules; the link stays |
//! | another user's symbolic link, a directory | refused |
//!
//! Invariants:
//!
//! - Until it is complete nobody but the owner can read the file.
//! - The file beside the target is created, never opened: a link in its place is not followed.
//! - Unless it is [committed](PrivateFile::commit), the file is removed.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// See the module.
pub(crate) enum PrivateFile {
    /// A file that takes its target's name.
    Unfinished {
        file: NamedTempFile,
        target: PathBuf,
        /// The permissions of the file that it replaces.
        permissions: Option<Permissions>,
    },
    /// A pipe or a device.
    Stream(File),
}

impl PrivateFile {
    /// Begins a file that is to be named `target`.
    pub(crate) fn create(target: &Path) -> io::Result<PrivateFile> {
        let found = match fs::symlink_metadata(target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return PrivateFile::beside(target.to_owned(), None);
            }
            found => found?,
        };
        if found.is_symlink() && !is_trusted(found.uid()) {
            let text = "it is another user's symbolic link: name the file that is to be written";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let named = fs::metadata(target)?;
        if named.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !named.is_file() {
            let stream = OpenOptions::new().write(true).open(target)?;
            return Ok(PrivateFile::Stream(stream));
        }
        let target = match found.is_symlink() {
            true => fs::canonicalize(target)?,
            false => target.to_owned(),
        };
        PrivateFile::beside(target, Some(named.permissions()))
    }

    fn beside(target: PathBuf, permissions: Option<Permissions>) -> io::Result<PrivateFile> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let file = tempfile::Builder::new()
            .prefix(&format!(".{name}."))
            .suffix(".unfinished")
            .tempfile_in(folder_of(&target))?;
        Ok(PrivateFile::Unfinished {
            file,
            target,
            permissions,
        })
    }

    /// Whether it is a pipe or a device.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self, PrivateFile::Stream(_))
    }

    /// Gives it its name, after everything is on the disk.
    pub(crate) fn commit(self) -> io::Result<()> {
        let (file, target, permissions) = match self {
            PrivateFile::Unfinished {
                file,
                target,
                permissions,
            } => (file, target, permissions),
            PrivateFile::Stream(mut stream) => return stream.flush(),
        };
        if let Some(permissions) = permissions {
            file.as_file().set_permissions(permissions)?;
        }
        file.as_file().sync_all()?;
        file.persist(&target).map_err(|refused| refused.error)?;
        File::open(folder_of(&target))?.sync_all()
    }
}

impl Write for PrivateFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            PrivateFile::Unfinished { file, .. } => file.as_file_mut().write(bytes),
            PrivateFile::Stream(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether a link of this user is followed: who else can write into the folder could have put it there.
fn is_trusted(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

fn folder_of(target: &Path) -> &Path {
    let folder = target.parent();
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

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
        let PrivateFile::Unfinished { file: begun, .. } = &file else {
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

    #[test]
    fn a_link_of_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "precious").unwrap();
        symlink("file", &link).unwrap();
        if lchown(&link, Some(65_534), None).is_err() {
            return bowline_testing::skip_part("a link of another user: only root can make one");
        }
        let refused = write(&link).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(fs::read(&file).unwrap(), b"precious");
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
