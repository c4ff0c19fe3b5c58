//! Verifies every file of a directory without opening it as a database.
//!
//! So it also works for a directory that refuses to open. It continues after damage and reports all of
//! it. It changes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::blob::{BlobFile, BlobReader};
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::log::{self, Log};
use crate::table::{PageCache, Table};
use crate::version::{BlobReference, BlobReferences, Identity, Layout, Manifest, State};
use crate::vfs::{UninterruptedVfs, Vfs};

/// The result for one file.
///
/// ```
/// # use bowline_storage::engine::FileReport;
/// fn show(file: &FileReport) {
///     match &file.error {
///         None => println!("{}: {}", file.path.display(), file.summary),
///         Some(error) => println!("{}: {error}", file.path.display()),
///     }
/// }
/// ```
#[derive(Debug, Clone)]
pub struct FileReport {
    /// The file.
    pub path: PathBuf,
    /// What was read from it: `12 pages, 340 entries`.
    pub summary: String,
    /// The damage, if any.
    pub error: Option<Error>,
}

/// The result of a check.
///
/// ```
/// # use bowline_storage::engine::CheckReport;
/// fn show(report: &CheckReport) {
///     for error in report.errors() {
///         println!("{error}");
///     }
///     let verdict = if report.is_clean() { "no damage" } else { "damage" };
///     println!("{verdict} in {} files", report.files.len());
/// }
/// # show(&CheckReport::default());
/// ```
#[derive(Debug, Clone, Default)]
pub struct CheckReport {
    /// Every file that was read.
    pub files: Vec<FileReport>,
}

impl CheckReport {
    /// Whether there is no damage.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.errors().next().is_none()
    }

    /// All damage.
    pub fn errors(&self) -> impl Iterator<Item = &Error> {
        self.files.iter().filter_map(|file| file.error.as_ref())
    }

    fn add(&mut self, path: PathBuf, result: Result<String>) {
        let (summary, error) = match result {
            Ok(summary) => (summary, None),
            Err(error) => (String::new(), Some(error)),
        };
        self.files.push(FileReport {
            path,
            summary,
            error,
        });
    }
}

/// Verifies the directory at `path`.
///
/// Returns an error only when the directory is not a database at all; damage is in the report.
pub fn check_directory(vfs: &Arc<dyn Vfs>, path: impl Into<PathBuf>) -> Result<CheckReport> {
    let vfs: &Arc<dyn Vfs> = &(Arc::new(UninterruptedVfs::new(vfs.clone())) as Arc<dyn Vfs>);
    let layout = Layout::new(path);
    let mut report = CheckReport::default();
    let identity = match Identity::read(&**vfs, &layout) {
        Ok(Some(identity)) => identity,
        Ok(None) if holds_files(vfs, &layout)? => {
            let path = layout.identity();
            let reason = "log or tables have files".to_owned();
            report.add(path.clone(), Err(Error::MissingFile { path, reason }));
            check_log(vfs, &layout, None, &mut report)?;
            return Ok(report);
        }
        Ok(None) => {
            let reason = "it has no file BOWLINE".to_owned();
            return Err(Error::NotADatabase {
                path: layout.root().to_owned(),
                reason,
            });
        }
        Err(error) => {
            report.add(layout.identity(), Err(error));
            check_log(vfs, &layout, None, &mut report)?;
            return Ok(report);
        }
    };
    report.add(
        layout.identity(),
        Ok(format!("database {:032x}", identity.database_id)),
    );
    let manifest_path = layout.manifest(identity.manifest);
    let (state, position) = match Manifest::read(&**vfs, &layout, &identity) {
        Ok(found) => found,
        Err(error) => {
            // It is unknown now which tables should exist. The log can still be checked.
            report.add(manifest_path, Err(error));
            check_log(vfs, &layout, None, &mut report)?;
            return Ok(report);
        }
    };
    let torn = if position.torn {
        ", a torn tail that the next open drops"
    } else {
        ""
    };
    let summary = format!(
        "{}, {}, {}{torn}",
        counted(state.tables.len() as u64, "table", "tables"),
        counted(state.blobs.len() as u64, "blob file", "blob files"),
        counted(position.end, "byte", "bytes")
    );
    report.add(manifest_path, Ok(summary));

    let tables = layout.tables();
    let found = vfs.metadata(&tables);
    if found.map_err(|e| Error::io("stat", &tables, e))?.is_none() {
        report.add(tables, Err(missing_tables(&layout, &state)));
    }
    let counters = Arc::new(Counters::default());
    let cache = Arc::new(PageCache::new(1 << 20, counters.clone()));
    let mut blobs: BTreeMap<u64, Arc<BlobFile>> = BTreeMap::new();
    for meta in state.blobs.values() {
        let path = layout.blob(meta.file_id);
        let opened = BlobFile::open(vfs, path.clone(), meta, cache.clone(), counters.clone());
        let result = opened.and_then(|blob| {
            let found = blob.verify()?;
            blobs.insert(meta.file_id, Arc::new(blob));
            Ok(counted(found.records, "value", "values"))
        });
        report.add(path, result);
    }
    // A blob file that is damaged or gone has its own line in the report.
    let is_known = |id: u64| state.blobs.contains_key(&id);
    for placed in state.tables.values() {
        let meta = &placed.meta;
        let references = state.references.get(&meta.file_id);
        let path = layout.table(meta.file_id);
        let table = Table::open(vfs, path.clone(), meta, cache.clone(), counters.clone());
        let result = table.and_then(|table| {
            let found = table.verify()?;
            let blob = |id| blobs.get(&id).cloned();
            verify_pointers(
                &Arc::new(table),
                found.pointers,
                references,
                is_known,
                &blob,
            )?;
            let pages = counted(found.pages, "page", "pages");
            let entries = counted(found.entries, "entry", "entries");
            Ok(format!("{pages}, {entries}"))
        });
        report.add(path, result);
    }
    check_log(vfs, &layout, Some((&identity, &state)), &mut report)?;
    Ok(report)
}

/// A number of things: `1 page`, `2 pages`.
fn counted(count: u64, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    }
}

/// Checks every blob pointer of a table that has passed its own check: the pointer leads to the value
/// of its entry, and the table refers to exactly what the manifest says. `pointers` is their number. A
/// blob file that `is_known` and cannot be opened is skipped, since it has its own line in the report.
pub(super) fn verify_pointers(
    table: &Arc<Table>,
    pointers: u64,
    references: Option<&BlobReferences>,
    is_known: impl Fn(u64) -> bool,
    blob: &dyn Fn(u64) -> Option<Arc<BlobFile>>,
) -> Result<()> {
    if pointers == 0 && references.is_none() {
        return Ok(());
    }
    let damaged = |reason| Err(Error::corrupt(table.path(), 0, reason));
    let mut found: BTreeMap<u64, u64> = BTreeMap::new();
    let mut reader = BlobReader::default();
    let mut cursor = table.version_cursor(false);
    cursor.seek_first()?;
    while cursor.valid() {
        if let Some(pointer) = cursor.pointer()? {
            let id = pointer.file_id;
            let (key, revision) = (cursor.key(), cursor.revision());
            match blob(id) {
                Some(file) => {
                    let value = reader.read(&file, &pointer, key, revision, file.bytes_read())?;
                    if !value.starts_with(cursor.value()) {
                        return damaged(format!(
                            "the head of \"{}\" at revision {revision} is not that of its value",
                            key.escape_ascii()
                        ));
                    }
                }
                None if is_known(id) => {}
                None => return damaged(format!("it refers to blob file {id}, which is none")),
            }
            *found.entry(id).or_default() += pointer.record_bytes;
        }
        cursor.next()?;
    }
    let found = found.into_iter();
    let found: Vec<_> = found
        .map(|(file_id, bytes)| BlobReference { file_id, bytes })
        .collect();
    if found[..] != *references.map_or(&[][..], |references| references) {
        return damaged("it refers to other bytes of blob files than the manifest says".to_owned());
    }
    Ok(())
}

/// The error for a database whose directory of tables is gone.
pub(super) fn missing_tables(layout: &Layout, state: &State) -> Error {
    let count = state.tables.len() + state.blobs.len();
    let reason = match count {
        0 => "it was empty, so an empty directory in its place will do".to_owned(),
        count => format!("{count} files of the database were in it"),
    };
    let path = layout.tables();
    Error::MissingFile { path, reason }
}

/// Whether a directory without `BOWLINE` has files that only a database has.
fn holds_files(vfs: &Arc<dyn Vfs>, layout: &Layout) -> Result<bool> {
    for directory in [layout.log(), layout.tables()] {
        let found = vfs.metadata(&directory);
        if !found
            .map_err(|e| Error::io("stat", &directory, e))?
            .is_some_and(|found| found.is_dir)
        {
            continue;
        }
        let names = vfs.read_dir(&directory);
        if !names
            .map_err(|e| Error::io("list", &directory, e))?
            .is_empty()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Checks the log by itself and, if the manifest is known, that the log continues where the manifest
/// ends.
fn check_log(
    vfs: &Arc<dyn Vfs>,
    layout: &Layout,
    known: Option<(&Identity, &State)>,
    report: &mut CheckReport,
) -> Result<()> {
    let log = layout.log();
    let has_log = vfs
        .metadata(&log)
        .map_err(|e| Error::io("stat", &log, e))?
        .is_some();
    if has_log {
        let result = Log::verify(&**vfs, &log).and_then(|found| {
            if let Some((identity, state)) = known {
                check_connection(&log, &found, identity, state)?;
            }
            let segments = counted(found.segments, "segment", "segments");
            let entries = counted(found.entries, "entry", "entries");
            Ok(format!("{segments}, {entries}"))
        });
        report.add(log, result);
    } else if known.is_some_and(|(_, state)| state.log_started) {
        let reason = "the manifest says that a log was started".to_owned();
        report.add(log.clone(), Err(Error::MissingFile { path: log, reason }));
    }
    Ok(())
}

/// Returns the errors of an opening: the log belongs to another database, is missing, ends too early or
/// begins too late.
fn check_connection(
    log: &Path,
    found: &log::Report,
    identity: &Identity,
    state: &State,
) -> Result<()> {
    let flushed = state.flushed_index;
    let missing = |reason: String| {
        let path = log.to_owned();
        Err(Error::MissingFile { path, reason })
    };
    let Some((last, end)) = &found.end else {
        return match state.log_started {
            true => missing("the manifest says that a log was started".to_owned()),
            false => Ok(()),
        };
    };
    if found.owner != Some(identity.database_id) {
        return Err(Error::corrupt(last, 0, "it belongs to another database"));
    }
    if found.next_index <= flushed {
        let ends = found.next_index - 1;
        let reason = format!("the log ends at index {ends}, the tables at {flushed}");
        return Err(Error::corrupt(last, *end, reason));
    }
    if found.first_index > flushed + 1 {
        let begins = found.first_index;
        return missing(format!(
            "it begins at index {begins}, the tables end at {flushed}"
        ));
    }
    Ok(())
}
