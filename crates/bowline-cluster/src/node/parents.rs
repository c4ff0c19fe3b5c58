//! The directories above a data directory.

use std::io::ErrorKind;
use std::path::Path;

use bowline::vfs::{Vfs, sync_parent};
use bowline_storage::Error as StorageError;

use crate::error::Result;

/// Creates the missing parents of the data directory, durably.
pub(super) fn make_parents(vfs: &dyn Vfs, data_dir: &Path) -> Result<()> {
    let is_there = |path: &Path| -> Result<bool> {
        let found = vfs.metadata(path);
        let found = found.map_err(|e| StorageError::io("stat", path, e))?;
        Ok(found.is_some())
    };
    if is_there(data_dir)? {
        // An earlier start has made it, and all above it durable before; or somebody else has.
        return Ok(());
    }
    let mut missing = Vec::new();
    let parents = data_dir.ancestors().skip(1);
    for path in parents.filter(|path| !path.as_os_str().is_empty()) {
        if is_there(path)? {
            sync_name(vfs, path)?;
            break;
        }
        missing.push(path);
    }
    for path in missing.into_iter().rev() {
        match vfs.create_dir(path) {
            // Members that start side by side in one directory make it at the same time.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made.map_err(|e| StorageError::io("create", path, e))?,
        }
        sync_parent(vfs, path)?;
    }
    Ok(())
}

/// Makes the name of a directory durable: who created it may have been killed before, or may not have come to it yet.
fn sync_name(vfs: &dyn Vfs, path: &Path) -> Result<()> {
    // The root has no name.
    let Some(above) = path.parent() else {
        return Ok(());
    };
    match vfs.sync_dir(above) {
        // A directory that may not be listed is an administrator's, and what is in it, too.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        synced => {
            synced.map_err(|e| StorageError::io("sync", above, e))?;
            Ok(())
        }
    }
}
