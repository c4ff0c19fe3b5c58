//! What can be done with the file of a snapshot: look into it, and make a member's directory of it.
//!
//! A file is read twice. First all of it is checked, so that a damaged one is refused before anything is
//! made; then the tables are copied, each verified in its place. See [`SnapshotFile`] for the format, and
//! [`bowline_cluster::restore`] for what a restore means.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use bowline_cluster::{Restored, Saved};
use sha2::{Digest, Sha256};

use crate::config::Config;
use crate::snapshot_file::{BadSnapshot, SnapshotFile};

const HASH_BYTES: u64 = 32;
const CHUNK_BYTES: usize = 1 << 20;

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotSummary {
    /// The SHA-256 with which it ends.
    pub sha256: [u8; 32],
    /// The newest entry of the cluster's log in it.
    pub index: u64,
    /// The revision.
    pub revision: u64,
    /// Entries of all trees, every version counted.
    pub entries: u64,
    /// How many tables there are.
    pub tables: u64,
    /// The size of the file.
    pub bytes: u64,
}

/// Why there is no restore.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not a whole snapshot.
    #[error("{} is damaged, or no snapshot of Bowline: {bad}; take another copy", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where, and what should be there.
        bad: BadSnapshot,
    },
    /// The directory that is to become the member's has something in it.
    #[error("{} is not an empty directory: choose another one, or move it away", path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// The settings cannot be right, the copy is damaged in itself, or the disk failed.
    #[error(transparent)]
    Node(#[from] bowline_cluster::Error),
}

/// A file that has been checked.
struct Checked {
    file: File,
    head: SnapshotFile,
    head_bytes: u64,
    bytes: u64,
    sha256: [u8; 32],
}

/// Checks a file, and says what it holds.
///
/// # Errors
/// `Unreadable`, `Damaged`.
pub fn snapshot_summary(path: &Path) -> Result<SnapshotSummary, RestoreError> {
    let checked = check(path)?;
    let contents = bowline_cluster::frozen_contents(&checked.head.state);
    let contents = contents.ok_or_else(|| RestoreError::Damaged {
        path: path.to_owned(),
        bad: BadSnapshot {
            offset: 0,
            expected: "a state that this version knows",
        },
    })?;
    Ok(SnapshotSummary {
        sha256: checked.sha256,
        index: checked.head.index,
        revision: checked.head.revision,
        entries: contents.entries,
        tables: checked.head.tables.len() as u64,
        bytes: checked.bytes,
    })
}

/// Makes a directory of a file, of which a server makes a member of a new cluster. Which directory, member
/// and cluster is said by the settings of the server.
///
/// # Errors
/// `Unreadable`, `Damaged`, `NotEmpty`; `Node` for what only shows when the directory is made. No file is
/// left then.
pub fn restore_snapshot(path: &Path, config: &Config) -> Result<Restored, RestoreError> {
    let directory = &config.node.data_dir;
    let was_there = is_there(directory)?;
    let checked = check(path)?;
    let unreadable = |source| RestoreError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let mut contents = BufReader::with_capacity(CHUNK_BYTES, checked.file);
    contents
        .seek(SeekFrom::Start(checked.head_bytes))
        .map_err(unreadable)?;
    let mut saved = Saved {
        path,
        sha256: checked.sha256,
        index: checked.head.index,
        revision: checked.head.revision,
        state: &checked.head.state,
        tables: &checked.head.tables,
        contents: &mut contents,
    };
    let restored = bowline_cluster::restore(&mut saved, &config.node);
    if restored.is_err() && !was_there {
        // Only what is empty goes; the first error counts.
        let _ = fs::remove_dir(directory.join("tables"));
        let _ = fs::remove_dir(directory);
    }
    Ok(restored?)
}

/// Whether there is such a directory; one with something in it is refused.
fn is_there(directory: &Path) -> Result<bool, RestoreError> {
    let mut found = match fs::read_dir(directory) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(source) => {
            return Err(RestoreError::Unreadable {
                path: directory.to_owned(),
                source,
            });
        }
    };
    match found.next() {
        None => Ok(true),
        Some(_) => Err(RestoreError::NotEmpty {
            path: directory.to_owned(),
        }),
    }
}

fn check(path: &Path) -> Result<Checked, RestoreError> {
    let unreadable = |source| RestoreError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let damaged = |bad| RestoreError::Damaged {
        path: path.to_owned(),
        bad,
    };
    let bad = |offset: u64, expected| {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        damaged(BadSnapshot { offset, expected })
    };
    let mut file = File::open(path).map_err(unreadable)?;
    let bytes = file.metadata().map_err(unreadable)?.len();
    let (head, head_bytes) = read_head(&mut file, bytes).map_err(|error| match error {
        Unread::System(source) => unreadable(source),
        Unread::Bad(bad) => damaged(bad),
    })?;
    let tables = head.tables.iter().map(|(_, bytes)| *bytes);
    let unpadded = tables.fold(head_bytes, u64::saturating_add);
    let whole = unpadded
        .checked_next_multiple_of(SnapshotFile::ALIGNMENT)
        .and_then(|padded| padded.checked_add(HASH_BYTES));
    if whole.is_none_or(|whole| bytes < whole) {
        let expected = "more of the tables that its head names, padding, and a hash: it is cut off";
        return Err(bad(bytes, expected));
    }
    if let Some(whole) = whole.filter(|whole| bytes > *whole) {
        return Err(bad(whole, "the end of the file"));
    }
    let (found, stated) = hash(&mut file, bytes - HASH_BYTES).map_err(unreadable)?;
    if found != stated {
        let expected = "the SHA-256 of everything before it";
        return Err(bad(bytes - HASH_BYTES, expected));
    }
    Ok(Checked {
        file,
        head,
        head_bytes,
        bytes,
        sha256: found,
    })
}

enum Unread {
    System(io::Error),
    Bad(BadSnapshot),
}

/// The head, and how long it is. How much of the file that takes is known only when it is decoded.
fn read_head(file: &mut File, bytes: u64) -> Result<(SnapshotFile, u64), Unread> {
    /// The lists of a million tables take less.
    const HEAD_BYTES_MAX: u64 = 1 << 30;
    let mut start = Vec::new();
    let mut wanted = 64 << 10;
    loop {
        let more = wanted - start.len() as u64;
        let read = file.by_ref().take(more).read_to_end(&mut start);
        read.map_err(Unread::System)?;
        match SnapshotFile::decode_head(&start) {
            Ok((head, len)) => return Ok((head, len as u64)),
            // A wrong beginning does not get better.
            Err(bad) if bad.offset == 0 => return Err(Unread::Bad(bad)),
            Err(bad) if start.len() as u64 >= bytes.min(HEAD_BYTES_MAX) => {
                return Err(Unread::Bad(bad));
            }
            // It grew while it was read, or shrank.
            Err(bad) if (start.len() as u64) < wanted => return Err(Unread::Bad(bad)),
            Err(_) => wanted *= 4,
        }
    }
}

/// The hash of the first `content` bytes, and the one that follows them.
fn hash(file: &mut File, content: u64) -> io::Result<([u8; 32], [u8; 32])> {
    file.seek(SeekFrom::Start(0))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut left = content;
    while left > 0 {
        let len = left.min(CHUNK_BYTES as u64) as usize;
        file.read_exact(&mut buffer[..len])?;
        hash.update(&buffer[..len]);
        left -= len as u64;
    }
    let mut stated = [0; 32];
    file.read_exact(&mut stated)?;
    Ok((hash.finalize().into(), stated))
}
