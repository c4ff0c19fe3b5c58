//! [`LogFile`]: the file, and its rotation.
//!
//! When the next line would make the file longer than its limit, it becomes `PATH.1`, the one before `PATH.2`, and so on; the
//! oldest is replaced. Files are created with mode 0600. `PATH.lock` keeps two processes from writing one log.
//!
//! Lines are appended at a known offset. A write that has failed in the middle is made again at the same offset, so no line is
//! torn or doubled while the process lives. A process that ends in the middle of a write leaves a part of a line; the next one
//! begins a new line behind it.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowline::vfs::{
    OpenMode, UninterruptedVfs, Vfs, VfsFile, VfsLock, read_exact_at, sync_data, sync_parent,
    write_all_at,
};

/// Why the log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file cannot be opened or created.
    #[error("cannot open the audit log {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process writes it.
    #[error("the audit log {} is written by another process: give each server its own", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The system refused a thread.
    #[error("the system refused a thread for the audit log: {0}")]
    Thread(io::Error),
}

/// A file with a number behind its name.
fn with(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    PathBuf::from(name)
}

/// The file that lines are appended to.
#[derive(Debug)]
struct Open {
    file: Arc<dyn VfsFile>,
    len: u64,
}

/// The audit log as a file.
#[derive(Debug)]
pub(super) struct LogFile {
    vfs: UninterruptedVfs,
    path: PathBuf,
    bytes_max: u64,
    files_max: u32,
    /// `None` between the files of a rotation.
    open: Option<Open>,
    /// Whether something is written that was not flushed.
    is_unflushed: bool,
    _lock: Box<dyn VfsLock>,
}

impl LogFile {
    pub(super) fn open(
        vfs: &Arc<dyn Vfs>,
        path: &Path,
        bytes_max: u64,
        files_max: u32,
    ) -> Result<LogFile, OpenError> {
        let failed = |source| OpenError::File {
            path: path.to_owned(),
            source,
        };
        let vfs = UninterruptedVfs::new(vfs.clone());
        let lock = vfs.lock(&with(path, ".lock")).map_err(failed)?;
        let lock = lock.ok_or_else(|| OpenError::InUse {
            path: path.to_owned(),
        })?;
        let mut log = LogFile {
            vfs,
            path: path.to_owned(),
            bytes_max,
            files_max,
            open: None,
            is_unflushed: false,
            _lock: lock,
        };
        log.ensure_open().map_err(failed)?;
        Ok(log)
    }

    /// The file, opened or created if it is not open.
    fn ensure_open(&mut self) -> io::Result<&mut Open> {
        let open = match self.open.take() {
            Some(open) => open,
            None => self.open_or_create()?,
        };
        Ok(self.open.insert(open))
    }

    fn open_or_create(&self) -> io::Result<Open> {
        let mode = match self.vfs.metadata(&self.path)? {
            None => OpenMode::CreateNew,
            Some(_) => OpenMode::ReadWrite,
        };
        let file = self.vfs.open(&self.path, mode)?;
        // Also if it was there: its creator may have died, or failed, before this sync.
        sync_parent(&self.vfs, &self.path).map_err(io::Error::other)?;
        let mut len = file.len()?;
        let mut last = [b'\n'];
        if len > 0 {
            read_exact_at(&*file, &self.path, &mut last, len - 1).map_err(io::Error::other)?;
        }
        if last != [b'\n'] {
            write_all_at(&*file, &self.path, b"\n", len).map_err(io::Error::other)?;
            len += 1;
        }
        Ok(Open { file, len })
    }

    /// Appends whole lines, and takes from them what is written. Returns how often the file was changed for a new one.
    pub(super) fn append(&mut self, lines: &mut &[u8]) -> io::Result<u64> {
        let mut rotations = 0;
        while !lines.is_empty() {
            let bytes_max = self.bytes_max;
            let len = self.ensure_open()?.len;
            let room = usize::try_from(bytes_max.saturating_sub(len)).unwrap_or(usize::MAX);
            let fitting = match lines.len() <= room {
                true => lines.len(),
                false => lines[..room]
                    .iter()
                    .rposition(|byte| *byte == b'\n')
                    .map_or(0, |at| at + 1),
            };
            if fitting == 0 && len > 0 {
                self.rotate()?;
                rotations += 1;
                continue;
            }
            // A line that is longer than a file has one to itself.
            let fitting = match fitting {
                0 => lines
                    .iter()
                    .position(|byte| *byte == b'\n')
                    .map_or(lines.len(), |at| at + 1),
                fitting => fitting,
            };
            let (part, rest) = lines.split_at(fitting);
            let path = self.path.clone();
            let open = self.ensure_open()?;
            write_all_at(&*open.file, &path, part, open.len).map_err(io::Error::other)?;
            open.len += part.len() as u64;
            self.is_unflushed = true;
            *lines = rest;
        }
        Ok(rotations)
    }

    /// Makes what is written durable.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if let Some(open) = &self.open
            && self.is_unflushed
        {
            sync_data(&*open.file, &self.path).map_err(io::Error::other)?;
            self.is_unflushed = false;
        }
        Ok(())
    }

    /// Begins a new file. After a failure it is done again from the start: the older files move up to the first number
    /// that none has, so those that have moved before stay where they are.
    fn rotate(&mut self) -> io::Result<()> {
        self.flush()?;
        if self.vfs.metadata(&self.path)?.is_none() {
            // Somebody has moved it away.
            self.open = None;
            return Ok(());
        }
        let old = |number: u32| with(&self.path, &format!(".{number}"));
        let last = self.files_max.saturating_sub(1);
        let mut free = 1;
        while free < last && self.vfs.metadata(&old(free))?.is_some() {
            free += 1;
        }
        for number in (1..free).rev() {
            self.vfs.rename(&old(number), &old(number + 1))?;
        }
        match self.files_max {
            0 | 1 => self.vfs.remove_file(&self.path)?,
            _ => self.vfs.rename(&self.path, &old(1))?,
        }
        self.open = None;
        sync_parent(&self.vfs, &self.path).map_err(io::Error::other)
    }
}
