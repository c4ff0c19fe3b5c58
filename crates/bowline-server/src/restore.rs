//! Inspection of a snapshot file, and restore of a member's directory from it.
//!
//! A file is read twice. First all of it is checked, so that a damaged file is refused before anything is
//! created. Then the tables are copied, each verified at its place. [`SnapshotFile`] has the format,
//! [`bowline_cluster::restore`] the meaning of a restore.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use bowline::Revision;
use bowline_cluster::{Restored, Saved};
use sha2::{Digest, Sha256};

use crate::config::Config;
use crate::snapshot_file::{BadSnapshot, SnapshotFile};

const HASH_BYTES: u64 = 32;
const CHUNK_BYTES: usize = 1 << 20;

/// The contents of a snapshot file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotSummary {
    /// The SHA-256 at the end of the file.
    pub sha256: [u8; 32],
    /// The index of the newest log entry in it.
    pub index: u64,
    /// The revision.
    pub revision: u64,
    /// Entries of all trees, with every version.
    pub entries: u64,
    /// The number of tables.
    pub tables: u64,
    /// The size of the file.
    pub bytes: u64,
}

/// Why a restore failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file does not begin as a snapshot does.
    #[error("{}: this is not a Bowline snapshot; `bowline snapshot save` makes one", path.display())]
    NotASnapshot {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a complete snapshot.
    #[error("{} is damaged: {bad}; take another copy", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The offset, and what was expected there.
        bad: BadSnapshot,
    },
    /// The target directory is not empty.
    #[error("{} is not an empty directory: choose another one, or move it away", path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// The settings are wrong, the copy is damaged inside, or the disk failed.
    #[error(transparent)]
    Node(#[from] bowline_cluster::Error),
}

/// A checked file.
struct Checked {
    file: File,
    head: SnapshotFile,
    head_bytes: u64,
    bytes: u64,
    sha256: [u8; 32],
}

/// Checks a file, and returns its contents in numbers.
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

/// Creates a directory from a file; a server then starts it as a member of a new cluster. The server's
/// settings determine directory, member and cluster.
///
/// # Errors
/// `Unreadable`, `Damaged`, `NotEmpty`; `Node` for what only the creation of the directory shows. No file is
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
        revision: Revision::new(checked.head.revision),
        state: &checked.head.state,
        tables: &checked.head.tables,
        contents: &mut contents,
    };
    let restored = bowline_cluster::restore(&mut saved, &config.node);
    if restored.is_err() && !was_there {
        // Only empty directories are removed; the first error counts.
        let _ = fs::remove_dir(directory.join("tables"));
        let _ = fs::remove_dir(directory);
    }
    Ok(restored?)
}

/// Whether the directory exists. A directory that is not empty is refused.
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
        Unread::Bad(BadSnapshot { offset: 0, .. }) => RestoreError::NotASnapshot {
            path: path.to_owned(),
        },
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

/// The head and its length, which is known only after decoding.
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
            // Wrong magic: more bytes cannot help.
            Err(bad) if bad.offset == 0 => return Err(Unread::Bad(bad)),
            Err(bad) if start.len() as u64 >= bytes.min(HEAD_BYTES_MAX) => {
                return Err(Unread::Bad(bad));
            }
            // The file grew or shrank while it was read.
            Err(bad) if (start.len() as u64) < wanted => return Err(Unread::Bad(bad)),
            Err(_) => wanted *= 4,
        }
    }
}

/// The hash of the first `content` bytes, and the stored hash after them.
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
