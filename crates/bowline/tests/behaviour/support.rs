//! What the scenarios share: a disk that outlives a handle, and the stages data goes through.

use std::sync::Arc;
use std::time::Duration;

use bowline::vfs::MemoryVfs;
use bowline::{Background, Db, DbBuilder, Entry, Result, Revision, Snapshot, Value, Watcher};

/// Long enough for anything that must happen; a test that waits this long has failed.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// A disk in memory on which one database is opened again and again.
#[derive(Clone, Debug, Default)]
pub struct Disk(Arc<MemoryVfs>);

impl Disk {
    pub fn new() -> Disk {
        Disk::default()
    }

    /// Opens the database of this disk with settings.
    pub fn open(&self, builder: DbBuilder) -> Db {
        self.try_open(builder).expect("the database opens")
    }

    pub fn try_open(&self, builder: DbBuilder) -> Result<Db> {
        builder.vfs(self.0.clone()).open("/db")
    }
}

/// Settings without threads: flush and compaction happen when the test says so.
pub fn manual() -> DbBuilder {
    Db::builder().background(Background::Manual)
}

/// Where the data lies when a scenario looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// In the memtable.
    Written,
    /// In the tables of a flush.
    Flushed,
    /// In tables that a compaction merged.
    Compacted,
    /// Recovered from the log.
    Reopened,
    /// In merged tables, opened anew.
    CompactedAndReopened,
}

impl Stage {
    pub const ALL: [Stage; 5] = [
        Stage::Written,
        Stage::Flushed,
        Stage::Compacted,
        Stage::Reopened,
        Stage::CompactedAndReopened,
    ];

    /// Brings what was written into this stage.
    pub fn reach(self, db: Db, disk: &Disk, builder: DbBuilder) -> Result<Db> {
        match self {
            Stage::Written | Stage::Reopened => {}
            Stage::Flushed => db.flush()?,
            Stage::Compacted | Stage::CompactedAndReopened => db.compact()?,
        }
        if matches!(self, Stage::Written | Stage::Flushed | Stage::Compacted) {
            return Ok(db);
        }
        let revision = db.revision();
        db.close()?;
        drop(db);
        let db = disk.try_open(builder)?;
        assert_eq!(
            db.revision(),
            revision,
            "{self:?}: reopening keeps the revision"
        );
        Ok(db)
    }
}

/// Writes with `write`, brings the data into each stage in turn, and looks at it with `look`.
/// Afterwards the database must check clean.
#[expect(
    clippy::needless_pass_by_value,
    reason = "callers make the settings for this call"
)]
pub fn in_every_stage<T>(
    builder: DbBuilder,
    write: impl Fn(&Db) -> Result<T>,
    look: impl Fn(&Db, &T, Stage) -> Result<()>,
) {
    for stage in Stage::ALL {
        let run = || -> Result<()> {
            let disk = Disk::new();
            let db = disk.try_open(builder.clone())?;
            let written = write(&db)?;
            let db = stage.reach(db, &disk, builder.clone())?;
            look(&db, &written, stage)?;
            let check = db.check()?;
            assert!(check.is_clean(), "{stage:?}: {check:?}");
            Ok(())
        };
        run().unwrap_or_else(|error| panic!("{stage:?}: {error}"));
    }
}

/// Everything readable, as keys and values.
pub fn contents(snapshot: &Snapshot) -> Vec<(Vec<u8>, Vec<u8>)> {
    let entries = snapshot.range(..).expect("a full range is valid");
    entries
        .map(|entry| entry.expect("a readable entry"))
        .map(|entry| (entry.key.to_vec(), entry.value.to_vec()))
        .collect()
}

/// The keys of entries, as text.
pub fn keys_of(entries: impl Iterator<Item = Result<Entry>>) -> Result<Vec<String>> {
    entries
        .map(|entry| Ok(String::from_utf8_lossy(&entry?.key).into_owned()))
        .collect()
}

/// The next changes, which must come.
pub fn next(watcher: &mut Watcher) -> bowline::Changes {
    watcher
        .recv_timeout(TIMEOUT)
        .expect("the watch goes on")
        .expect("changes come in time")
}

/// A number as a value and back.
pub fn number(value: Option<Value>) -> u64 {
    value.map_or(0, |value| {
        u64::from_be_bytes(value[..].try_into().expect("eight bytes"))
    })
}

/// An entry without a lease.
pub fn entry(key: &str, value: &str, create: u64, modified: u64, version: u64) -> Entry {
    Entry {
        key: Value::from(key),
        value: Value::from(value),
        create_revision: Revision::new(create),
        mod_revision: Revision::new(modified),
        version,
        lease: None,
    }
}

/// Asserts that an expression is an error of this shape.
macro_rules! assert_error {
    ($result:expr, $pattern:pat $(if $guard:expr)?) => {{
        match $result {
            Err($pattern) $(if $guard)? => {}
            Err(error) => panic!("another error: {error:?}"),
            Ok(value) => panic!("no error: {value:?}"),
        }
    }};
}
pub(crate) use assert_error;
