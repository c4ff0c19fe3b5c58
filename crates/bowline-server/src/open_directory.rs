//! A warning about a data directory that other users of the machine can enter.
//!
//! What Bowline creates is for its owner alone: directories have the mode 0700, files 0600. A directory that was there
//! before keeps its mode. With a looser one, others see the names and sizes of files, and where they may write, they can
//! put other files in their places. Volumes of containers are often like that, so it is no reason to refuse them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// What others may do in a directory, and how that is mended; `None` where it is for its owner alone, or cannot be seen.
fn openness(directory: &Path) -> Option<String> {
    let mode = fs::metadata(directory).ok()?.permissions().mode() & 0o777;
    let what = match mode & 0o077 {
        0 => return None,
        others if others & 0o022 != 0 => "others may put files into it",
        _ => "others can look into it",
    };
    let path = directory.display();
    Some(format!(
        "the data directory {path} has the mode {mode:o}, so {what}: chmod 700 {path} mends it"
    ))
}

/// Logs a warning if others can enter a directory.
pub(crate) fn warn_of(directory: &Path) {
    if let Some(openness) = openness(directory) {
        tracing::warn!("{openness}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CVE-2020-15113: etcd used directories that were there before whatever their mode, and said nothing.
    #[test]
    fn a_directory_that_others_can_enter_is_told_of() {
        let root = tempfile::tempdir().unwrap();
        for (mode, said) in [
            (0o700, None),
            (0o500, None),
            (0o755, Some("look into it")),
            (0o710, Some("look into it")),
            (0o777, Some("put files into it")),
            (0o730, Some("put files into it")),
        ] {
            fs::set_permissions(root.path(), fs::Permissions::from_mode(mode)).unwrap();
            let found = openness(root.path());
            assert_eq!(found.is_some(), said.is_some(), "{mode:o}");
            let found = found.unwrap_or_default();
            assert!(found.contains(said.unwrap_or_default()), "{found}");
        }
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(openness(&root.path().join("nothing")), None);
    }
}
