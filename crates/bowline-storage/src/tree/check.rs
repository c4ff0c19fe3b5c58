//! Verifies every file of a directory without opening it as a database, so that it can also be
//! asked of one that refuses to open. Goes on after damage and lists all of it. Changes nothing.

use std::path::PathBuf;
use std::sync::Arc;

use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::log::Log;
use crate::table::{PageCache, Table};
use crate::version::{Identity, Layout, Manifest};
use crate::vfs::{UninterruptedVfs, Vfs};

/// One file's verdict.
#[derive(Debug, Clone)]
pub struct FileReport {
    /// The file.
    pub path: PathBuf,
    /// What was read of it: `12 pages, 340 entries`.
    pub summary: String,
    /// What is wrong with it, if anything.
    pub error: Option<Error>,
}

/// What a check found.
#[derive(Debug, Clone, Default)]
pub struct CheckReport {
    /// Every file that was read.
    pub files: Vec<FileReport>,
}

impl CheckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.errors().next().is_none()
    }

    /// Everything that is wrong.
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
/// An error is returned only when the directory is not a database at all; damage is in the report.
pub fn check_directory(vfs: &Arc<dyn Vfs>, path: impl Into<PathBuf>) -> Result<CheckReport> {
    let vfs: &Arc<dyn Vfs> = &(Arc::new(UninterruptedVfs::new(vfs.clone())) as Arc<dyn Vfs>);
    let layout = Layout::new(path);
    let mut report = CheckReport::default();
    let identity = match Identity::read(&**vfs, &layout) {
        Ok(Some(identity)) => identity,
        Ok(None) => {
            let reason = "it has no file BOWLINE".to_owned();
            return Err(Error::NotADatabase {
                path: layout.root().to_owned(),
                reason,
            });
        }
        Err(error) => {
            report.add(layout.identity(), Err(error));
            check_log(vfs, &layout, false, &mut report)?;
            return Ok(report);
        }
    };
    report.add(
        layout.identity(),
        Ok(format!("database {:032x}", identity.database_id)),
    );
    let manifest_path = layout.manifest(identity.manifest);
    let (state, position) = match Manifest::read(&**vfs, &layout, identity.manifest) {
        Ok(found) => found,
        Err(error) => {
            // Which tables there should be is unknown now. The log stands for itself.
            report.add(manifest_path, Err(error));
            check_log(vfs, &layout, false, &mut report)?;
            return Ok(report);
        }
    };
    let torn = if position.torn {
        ", a torn tail that the next open drops"
    } else {
        ""
    };
    let summary = format!(
        "{} tables, {} bytes{torn}",
        state.tables.len(),
        position.end
    );
    report.add(manifest_path, Ok(summary));

    let counters = Arc::new(Counters::default());
    let cache = Arc::new(PageCache::new(1 << 20, counters.clone()));
    for placed in state.tables.values() {
        let path = layout.table(placed.meta.file_id);
        let result = Table::open(
            vfs,
            path.clone(),
            &placed.meta,
            cache.clone(),
            counters.clone(),
        )
        .and_then(|table| table.verify())
        .map(|found| format!("{} pages, {} entries", found.pages, found.entries));
        report.add(path, result);
    }
    check_log(vfs, &layout, state.log_started, &mut report)?;
    Ok(report)
}

fn check_log(
    vfs: &Arc<dyn Vfs>,
    layout: &Layout,
    is_expected: bool,
    report: &mut CheckReport,
) -> Result<()> {
    let log = layout.log();
    let has_log = vfs
        .metadata(&log)
        .map_err(|e| Error::io("stat", &log, e))?
        .is_some();
    if has_log {
        let result = Log::verify(&**vfs, &log)
            .map(|found| format!("{} segments, {} entries", found.segments, found.entries));
        report.add(log, result);
    } else if is_expected {
        let reason = "the manifest says that a log was started".to_owned();
        report.add(log.clone(), Err(Error::MissingFile { path: log, reason }));
    }
    Ok(())
}
