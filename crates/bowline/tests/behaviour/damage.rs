//! Damaged, cut and missing files: opening says which file and where, never answers wrongly, and a
//! check lists all of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use bowline::{Block, BlockId, Db, Edge, Error, Result, StorageError, check_files};

use crate::support::{assert_error, contents, manual};

/// A closed database with several tables and a log that holds more.
struct Victim {
    _dir: tempfile::TempDir,
    path: PathBuf,
    contents: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Victim {
    fn new() -> Result<Victim> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("db");
        // Small segments, so that the log lets go of what the tables hold.
        let db = manual().log_segment_bytes(64 << 10).open(&path)?;
        for round in 0..3u32 {
            for at in 0..300u32 {
                db.put(format!("k{at:04}"), format!("{round}:{at}").repeat(80))?;
            }
            db.transact(|tx| {
                tx.put_block(&Block::new(BlockId(round.into()), "node"))?;
                tx.put_edge(&Edge::new(BlockId(round.into()), "to", BlockId(0)))
            })?;
            if round < 2 {
                db.flush()?;
            }
        }
        let contents = contents(&db.snapshot());
        db.close()?;
        Ok(Victim {
            _dir: dir,
            path,
            contents,
        })
    }

    /// A copy of it, to be damaged.
    fn copy(&self) -> Victim {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("db");
        copy_all(&self.path, &path);
        Victim {
            _dir: dir,
            path,
            contents: self.contents.clone(),
        }
    }

    /// All files but the lock.
    fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut rest = vec![self.path.clone()];
        while let Some(dir) = rest.pop() {
            for entry in fs::read_dir(dir).expect("a directory") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    rest.push(path);
                } else if !path.ends_with("LOCK") {
                    found.push(path);
                }
            }
        }
        found.sort();
        found
    }

    fn tables(&self) -> Vec<PathBuf> {
        let is_table = |path: &PathBuf| path.extension().is_some_and(|end| end == "table");
        self.files().into_iter().filter(is_table).collect()
    }

    fn manifest(&self) -> PathBuf {
        let is_manifest = |path: &PathBuf| path.to_string_lossy().contains("manifest-");
        self.files()
            .into_iter()
            .find(is_manifest)
            .expect("a manifest")
    }

    /// The segment that holds entries.
    fn log(&self) -> PathBuf {
        let logs = self.files().into_iter().filter(|path| {
            path.parent().is_some_and(|dir| dir.ends_with("log"))
                && path.extension().is_some_and(|end| end == "log")
        });
        let used = |path: &PathBuf| {
            let bytes = fs::read(path).expect("a file");
            bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0)
        };
        logs.max_by_key(used).expect("a segment")
    }

    /// Opens it and reads everything: `Ok` means that every answer was right.
    fn read_all(&self) -> Result<()> {
        let db = manual().open(&self.path)?;
        let snapshot = db.snapshot();
        let found: Result<Vec<_>> = snapshot
            .range(..)?
            .map(|entry| entry.map(|entry| (entry.key.to_vec(), entry.value.to_vec())))
            .collect();
        assert!(found? == self.contents, "a wrong answer");
        for (key, value) in &self.contents {
            assert_eq!(
                snapshot.get(key)?.as_deref(),
                Some(&value[..]),
                "a wrong answer"
            );
        }
        let graph = snapshot.graph();
        let mut count = 0;
        graph.for_each_edge(|_| {
            count += 1;
            Ok(())
        })?;
        assert_eq!(count, 3, "a wrong answer");
        Ok(())
    }
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy_all(&path, &target);
        } else {
            fs::copy(&path, &target).expect("a copy");
        }
    }
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).expect("a file");
    bytes[at] ^= 0x10;
    fs::write(path, bytes).expect("a write");
}

fn cut(path: &Path, len: usize) {
    let bytes = fs::read(path).expect("a file");
    fs::write(path, &bytes[..len]).expect("a write");
}

/// The file and the offset an error names.
fn place_of(error: &Error) -> (PathBuf, Option<u64>) {
    match error {
        Error::Storage(StorageError::Corrupt { path, offset, .. }) => (path.clone(), Some(*offset)),
        Error::Storage(StorageError::MissingFile { path, .. }) => (path.clone(), None),
        other => panic!("not an error of damage: {other:?}"),
    }
}

/// Both the error of reading and the report of a check name the file.
#[track_caller]
fn assert_noticed(victim: &Victim, file: &Path) {
    let error = victim.read_all().expect_err("damage is noticed");
    let (named, offset) = place_of(&error);
    assert!(
        named.starts_with(file),
        "{named:?} is named, not {file:?}: {error}"
    );
    let len = fs::metadata(file).map_or(0, |found| found.len());
    assert!(
        offset.is_none_or(|offset| offset <= len),
        "offset {offset:?} of {len}"
    );
    assert!(
        error.to_string().contains(&*file.to_string_lossy()),
        "{error}"
    );
    let report = check_files(&victim.path).expect("a report");
    let found = report.files.iter().find(|file| file.error.is_some());
    let found = found.unwrap_or_else(|| panic!("the check found nothing: {report:?}"));
    let text = found.error.as_ref().expect("it has one").to_string();
    assert!(text.contains(&*file.to_string_lossy()), "{text}");
}

#[test]
fn an_undamaged_database_reads_and_checks_clean() -> Result<()> {
    let victim = Victim::new()?;
    assert!(victim.tables().len() >= 8, "{:?}", victim.files());
    let report = check_files(&victim.path)?;
    assert!(report.is_clean(), "{report:?}");
    assert!(report.files.len() >= 3 + victim.tables().len() - 1);
    victim.read_all()?;
    victim.copy().read_all()
}

#[test]
fn a_flipped_bit_in_a_table_is_noticed_wherever_it_is() -> Result<()> {
    let victim = Victim::new()?;
    let largest = victim
        .tables()
        .into_iter()
        .max_by_key(|path| fs::metadata(path).map_or(0, |m| m.len()));
    let largest = largest.expect("a table");
    let name = largest
        .strip_prefix(&victim.path)
        .expect("inside")
        .to_owned();
    let len = fs::read(&largest).expect("a file").len();
    for at in (0..len).step_by(len / 60).chain([len - 1]) {
        let damaged = victim.copy();
        let file = damaged.path.join(&name);
        flip(&file, at);
        // A byte of padding may be free; whatever is read must be right.
        if damaged.read_all().is_err() {
            assert_noticed(&damaged, &file);
        } else {
            let report = check_files(&damaged.path)?;
            assert!(
                !report.is_clean(),
                "byte {at} of {len} may change unnoticed"
            );
        }
    }
    Ok(())
}

#[test]
fn a_cut_or_missing_table_is_noticed() -> Result<()> {
    let victim = Victim::new()?;
    for (number, table) in victim.tables().iter().enumerate() {
        let name = table.strip_prefix(&victim.path).expect("inside");
        let len = fs::read(table).expect("a file").len();
        for left in [0, 1, len / 2, len - 1] {
            let damaged = victim.copy();
            cut(&damaged.path.join(name), left);
            assert_noticed(&damaged, &damaged.path.join(name));
        }
        if number < 3 {
            let damaged = victim.copy();
            fs::remove_file(damaged.path.join(name)).expect("removed");
            assert_noticed(&damaged, &damaged.path.join(name));
        }
    }
    Ok(())
}

/// Another table's file under this one's name: every checksum in it holds.
#[test]
fn exchanged_tables_are_noticed() -> Result<()> {
    let victim = Victim::new()?;
    let tables = victim.tables();
    fs::rename(&tables[0], victim.path.join("aside")).expect("renamed");
    fs::rename(&tables[1], &tables[0]).expect("renamed");
    fs::rename(victim.path.join("aside"), &tables[1]).expect("renamed");
    let error = victim.read_all().expect_err("noticed");
    assert!(tables.contains(&place_of(&error).0), "{error}");
    assert_eq!(check_files(&victim.path)?.errors().count(), 2);
    Ok(())
}

/// A table from another database that agrees in name, length, counts and bounds with the one whose
/// place it takes, and differs in one byte of one value, was read without notice.
#[test]
fn a_table_of_another_database_is_noticed() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let fill = |name: &str, last: u8| -> Result<PathBuf> {
        let path = directory.path().join(name);
        let db = Db::open(&path)?;
        let mut noise = fastrand::Rng::with_seed(5);
        for number in 0..50u32 {
            // Noise does not compress, so both tables are equally long.
            let mut value: Vec<u8> = (0..64).map(|_| noise.u8(..)).collect();
            value[63] = if number == 49 { last } else { 0 };
            db.put(number.to_be_bytes(), value)?;
        }
        db.flush()?;
        db.close()?;
        let mut tables = fs::read_dir(path.join("tables")).expect("tables");
        Ok(tables.next().expect("a table").expect("a name").path())
    };
    let (own, twin) = (fill("own", 1)?, fill("twin", 2)?);
    let (before, after) = (
        fs::read(&own).expect("read"),
        fs::read(&twin).expect("read"),
    );
    assert_eq!(
        (own.file_name(), before.len()),
        (twin.file_name(), after.len())
    );
    assert_ne!(before, after);
    fs::write(&own, after).expect("written");
    let error = Db::open(directory.path().join("own")).expect_err("it is not its own");
    assert_eq!(place_of(&error).0, own);
    Ok(())
}

#[test]
fn damage_of_the_manifest_is_noticed() -> Result<()> {
    let victim = Victim::new()?;
    let name = victim
        .manifest()
        .strip_prefix(&victim.path)
        .expect("inside")
        .to_owned();
    let len = fs::read(victim.manifest()).expect("a file").len();
    let mut unnoticed = 0;
    for at in (0..len).step_by(7) {
        let damaged = victim.copy();
        let file = damaged.path.join(&name);
        flip(&file, at);
        // Damage of the last record looks like a torn append; then the log proves the loss.
        match damaged.read_all() {
            // Padding between records means nothing.
            Ok(()) => unnoticed += usize::from(at < len / 2),
            Err(Error::Storage(StorageError::NewerFormat { .. })) if (8..12).contains(&at) => {}
            Err(error) => drop(place_of(&error)),
        }
    }
    assert!(unnoticed * 7 < len / 10, "{unnoticed} of {len} bytes");
    for left in [0, 15, 16] {
        let damaged = victim.copy();
        cut(&damaged.path.join(&name), left);
        assert_noticed(&damaged, &damaged.path.join(&name));
    }
    let damaged = victim.copy();
    fs::remove_file(damaged.path.join(&name)).expect("removed");
    assert_noticed(&damaged, &damaged.path.join(&name));
    Ok(())
}

/// The last records of the manifest name tables, and the log behind them is gone: the manifest must
/// not be taken for one that ends earlier. Found by this test: it was noticed, but only after the
/// tables that the rest of the manifest does not name had been removed as leftovers.
#[test]
fn a_manifest_that_lost_its_end_is_not_taken_for_an_older_one() -> Result<()> {
    let victim = Victim::new()?;
    let file = victim.manifest();
    let len = fs::read(&file).expect("a file").len();
    let mut refused = 0;
    for left in (41..len).rev().step_by(5) {
        let damaged = victim.copy();
        let file = damaged
            .path
            .join(file.strip_prefix(&victim.path).expect("inside"));
        cut(&file, left);
        let before = damaged.tables();
        // It may be a torn append that the log makes up for. If not, it is an error.
        if let Err(error) = damaged.read_all() {
            place_of(&error);
            assert_eq!(
                damaged.tables(),
                before,
                "cut at {left}: tables were removed"
            );
            refused += 1;
        }
    }
    assert!(refused > 0, "no cut lost anything");
    Ok(())
}

#[test]
fn damage_of_the_identity_is_noticed() -> Result<()> {
    let victim = Victim::new()?;
    let len = fs::read(victim.path.join("BOWLINE")).expect("a file").len();
    for at in 0..len - 1 {
        let damaged = victim.copy();
        flip(&damaged.path.join("BOWLINE"), at);
        match damaged.read_all() {
            Err(Error::Storage(StorageError::NewerFormat { .. })) => {}
            result => {
                let error = result.expect_err("noticed");
                assert_eq!(place_of(&error).0, damaged.path.join("BOWLINE"));
                assert!(!check_files(&damaged.path)?.is_clean());
            }
        }
    }
    let damaged = victim.copy();
    cut(&damaged.path.join("BOWLINE"), 0);
    assert_noticed(&damaged, &damaged.path.join("BOWLINE"));
    // Gone: it must not be taken for an empty directory.
    let damaged = victim.copy();
    fs::remove_file(damaged.path.join("BOWLINE")).expect("removed");
    let before = damaged.files();
    assert_error!(
        damaged.read_all(),
        Error::Storage(StorageError::MissingFile { .. })
    );
    assert_eq!(damaged.files(), before);
    Ok(())
}

#[test]
fn damage_of_the_log_before_its_end_is_noticed() -> Result<()> {
    let victim = Victim::new()?;
    let name = victim
        .log()
        .strip_prefix(&victim.path)
        .expect("inside")
        .to_owned();
    let bytes = fs::read(victim.log()).expect("a file");
    let used = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .expect("not empty");
    for at in (4096 + 100..used - 8_000).step_by(used / 40) {
        let damaged = victim.copy();
        let file = damaged.path.join(&name);
        flip(&file, at);
        assert_noticed(&damaged, &file);
    }
    let damaged = victim.copy();
    fs::remove_file(damaged.path.join(&name)).expect("removed");
    assert!(damaged.read_all().is_err());
    let damaged = victim.copy();
    fs::remove_dir_all(damaged.path.join("log")).expect("removed");
    assert_noticed(&damaged, &damaged.path.join("log"));
    Ok(())
}

/// A check goes on after the first damage.
#[test]
fn a_check_lists_all_damage() -> Result<()> {
    let victim = Victim::new()?;
    let mut harmed = BTreeSet::new();
    for (number, table) in victim.tables().iter().enumerate() {
        match number % 3 {
            0 => flip(table, 20),
            1 => fs::remove_file(table).expect("removed"),
            _ => continue,
        }
        harmed.insert(table.clone());
    }
    flip(&victim.log(), 4096 + 200);
    let report = check_files(&victim.path)?;
    let found: BTreeSet<_> = report
        .errors()
        .map(|error| place_of(&Error::Storage(error.clone())).0)
        .collect();
    harmed.insert(victim.log());
    assert_eq!(found, harmed);

    // A damaged manifest hides which tables there are, but not the log.
    let manifest = victim.manifest();
    flip(&manifest, 20);
    let report = check_files(&victim.path)?;
    let found: BTreeSet<_> = report
        .errors()
        .map(|error| place_of(&Error::Storage(error.clone())).0)
        .collect();
    assert_eq!(found, BTreeSet::from([manifest, victim.log()]));

    // Nor does `BOWLINE`, damaged or lost.
    let identity = victim.path.join("BOWLINE");
    for is_lost in [false, true] {
        if is_lost {
            fs::remove_file(&identity).expect("removed");
        } else {
            flip(&identity, 3);
        }
        let report = check_files(&victim.path)?;
        let errors: Vec<_> = report.errors().map(ToString::to_string).collect();
        assert_eq!(errors.len(), 2, "{errors:?}");
        for path in [&identity, &victim.log()] {
            let path = path.to_string_lossy();
            assert!(
                errors.iter().any(|error| error.contains(&*path)),
                "{errors:?}"
            );
        }
    }
    Ok(())
}

/// Damage that comes while the database is open: reads of other pages go on, reads of this one are
/// errors, the check lists it, and nothing is merged over it.
#[test]
fn damage_under_an_open_database_is_an_error_and_no_more() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("db");
    let db = manual().cache_bytes(0).open(&path)?;
    for at in 0..2_000u32 {
        db.put(format!("k{at:04}"), fastrand::u128(..).to_be_bytes())?;
    }
    db.flush()?;
    let table = fs::read_dir(path.join("tables"))
        .expect("a directory")
        .next();
    let table = table.expect("a table").expect("an entry").path();
    flip(&table, 3_000);
    let (mut good, mut bad) = (0, 0);
    for at in 0..2_000u32 {
        match db.get(format!("k{at:04}")) {
            Ok(value) => {
                assert!(value.is_some(), "a wrong answer");
                good += 1;
            }
            Err(error) => {
                assert_eq!(place_of(&error).0, table);
                bad += 1;
            }
        }
    }
    assert!(good > 0 && bad > 0, "{good} {bad}");
    let scan: Result<Vec<_>> = db.range(..)?.collect();
    assert!(scan.is_err(), "a scan does not step over damage");
    assert!(db.compact().is_err());
    assert!(table.exists());
    db.put("still", "writes")?;
    // The check goes on behind what it cannot read, and lists the file.
    let check = db.check()?;
    let listed: Vec<_> = check.files.errors().cloned().map(Error::Storage).collect();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(place_of(&listed[0]).0, table);
    assert_eq!(check.problems.len(), 1, "{:?}", check.problems);
    // A copy is what one falls back on: damage does not get into it unnoticed.
    let copy = dir.path().join("copy");
    let error = db
        .checkpoint(&copy)
        .expect_err("a damaged table is not copied");
    assert_eq!(place_of(&error).0, table);
    assert!(!copy.join("BOWLINE").exists(), "it is not a database");
    Ok(())
}

#[test]
fn open_databases_with_missing_pieces_are_refused_without_a_change() -> Result<()> {
    let victim = Victim::new()?;
    fs::remove_file(&victim.tables()[0]).expect("removed");
    let before = victim.files();
    for _ in 0..2 {
        assert_error!(
            Db::open(&victim.path),
            Error::Storage(StorageError::MissingFile { .. })
        );
    }
    assert_eq!(victim.files(), before);
    Ok(())
}

/// Two databases whose files have the same names and lengths: one key, and as many bytes in its
/// value.
fn twins(directory: &Path) -> Result<(PathBuf, PathBuf)> {
    let fill = |name: &str, value: &str| -> Result<PathBuf> {
        let path = directory.join(name);
        let db = manual().open(&path)?;
        db.put("k", value)?;
        db.close()?;
        Ok(path)
    };
    Ok((fill("own", "right")?, fill("twin", "wrong")?))
}

/// The only segment of a log names no other one whose life it continues. One of another database
/// under its name was read as if it were its own, and answered with the other database's values.
#[test]
fn a_log_of_another_database_is_noticed() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let (own, twin) = twins(directory.path())?;
    let name = Path::new("log").join("0000000000000001.log");
    fs::copy(twin.join(&name), own.join(&name)).expect("copied");
    let error = Db::open(&own).expect_err("it is not its own");
    assert_eq!(place_of(&error).0, own.join(&name));
    let report = check_files(&own)?;
    let listed: Vec<_> = report.errors().cloned().map(Error::Storage).collect();
    assert_eq!(listed.len(), 1, "{report:?}");
    assert_eq!(place_of(&listed[0]).0, own.join(&name));
    Ok(())
}

/// `BOWLINE` and the manifest of another database were taken for this one's: the database had
/// another id from then on, or what the other manifest said of history.
#[test]
fn a_manifest_or_identity_of_another_database_is_noticed() -> Result<()> {
    for name in ["BOWLINE", "manifest-0000000000000001"] {
        let directory = tempfile::tempdir().expect("a directory");
        let (own, twin) = twins(directory.path())?;
        fs::copy(twin.join(name), own.join(name)).expect("copied");
        let error = Db::open(&own).expect_err("it is not its own");
        assert!(place_of(&error).0.starts_with(&own), "{error}");
        assert!(!check_files(&own)?.is_clean(), "{name}");
    }
    Ok(())
}

/// What an opening refused for want of a file, a check of the directory called clean, or no
/// database at all.
#[test]
fn a_check_lists_lost_files_that_an_opening_misses() -> Result<()> {
    let victim = Victim::new()?;
    let in_log = |path: &PathBuf| path.parent().is_some_and(|dir| dir.ends_with("log"));
    let is_identity = |path: &PathBuf| path.ends_with("BOWLINE");
    let lost: [&dyn Fn(&PathBuf) -> bool; 2] = [&in_log, &is_identity];
    for is_lost in lost {
        let damaged = victim.copy();
        let files = damaged.files();
        let gone: Vec<_> = files.into_iter().filter(|path| is_lost(path)).collect();
        assert!(!gone.is_empty());
        for file in &gone {
            fs::remove_file(file).expect("removed");
        }
        let error = damaged.read_all().expect_err("it is missing");
        let named = place_of(&error).0;
        let report = check_files(&damaged.path)?;
        let mut listed = report.errors().cloned().map(Error::Storage);
        assert!(
            listed.any(|error| place_of(&error).0 == named),
            "{report:?}"
        );
    }
    Ok(())
}

/// A log that ends before the index the tables were flushed at: an older copy of its last segment,
/// put back after a kill.
#[test]
fn a_check_lists_a_log_that_ends_before_the_tables() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let db = manual().open(&path)?;
    db.put("k", "old")?;
    let segment = path.join("log").join("0000000000000001.log");
    let older = fs::read(&segment).expect("read");
    db.put("k", "new")?;
    db.flush()?;
    // As a kill would leave it, with the older copy.
    let killed = directory.path().join("killed");
    copy_all(&path, &killed);
    let segment = killed.join("log").join("0000000000000001.log");
    fs::write(&segment, older).expect("written");
    let error = Db::open(&killed).expect_err("what was flushed is not in the log");
    assert_eq!(place_of(&error).0, segment);
    let report = check_files(&killed)?;
    let listed: Vec<_> = report.errors().cloned().map(Error::Storage).collect();
    assert_eq!(listed.len(), 1, "{report:?}");
    assert_eq!(place_of(&listed[0]).0, segment);
    Ok(())
}

/// The current manifest of a database.
fn manifest_of(path: &Path) -> PathBuf {
    let mut names: Vec<_> = fs::read_dir(path)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.display().to_string().contains("manifest-"))
        .collect();
    assert_eq!(names.len(), 1, "{names:?}");
    names.remove(0)
}

/// A copy of the files of an open database: what a kill would leave.
fn killed(db: &Path) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let copy = directory.path().join("db");
    copy_all(db, &copy);
    (directory, copy)
}

/// Only the manifest tells of an ingestion. When its record rotted while it was the last one, it was
/// taken for one that a crash had torn: the database opened without what had been acknowledged, and
/// removed the tables. Found in review.
#[test]
fn an_ingestion_whose_record_rots_is_an_error_and_its_tables_stay() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let db = manual().open(&path)?;
    db.put("before", "v")?;
    let mut ingest = db.ingest()?;
    ingest.put("ingested", "v")?;
    ingest.commit()?;
    let (_dir, whole) = killed(&path);
    assert!(Db::open(&whole)?.get("ingested")?.is_some());
    let bytes = fs::read(manifest_of(&path)).expect("read");
    let mut damages: Vec<Vec<u8>> = (0..bytes.len())
        .step_by(3)
        .map(|at| flipped(&bytes, at))
        .collect();
    for sector in (0..bytes.len()).step_by(512) {
        let mut damaged = bytes.clone();
        let end = (sector + 512).min(bytes.len());
        damaged[sector..end].fill(0);
        damages.push(damaged);
    }
    for (number, damaged) in damages.iter().enumerate() {
        let (_dir, rotten) = killed(&path);
        let tables = |path: &Path| fs::read_dir(path.join("tables")).expect("there").count();
        let before = tables(&rotten);
        fs::write(manifest_of(&rotten), damaged).expect("written");
        match Db::open(&rotten) {
            // The zeros behind the last record.
            Ok(db) => assert!(db.get("ingested")?.is_some(), "{number}"),
            Err(error) => {
                assert_eq!(place_of(&error).0, manifest_of(&rotten), "{number}");
                assert_eq!(tables(&rotten), before, "{number}");
            }
        }
    }
    Ok(())
}

fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 0x40;
    bytes
}

/// The record of a flush that rots as the last one looks as if it had been torn: the log must still
/// have what the tables hold, or the opening refuses. Tables that nothing names then were removed
/// all the same: they may have been named by the record, so they are kept.
#[test]
fn when_the_last_record_of_a_manifest_is_damaged_no_table_is_removed() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let db = manual().open(&path)?;
    let start = fs::metadata(manifest_of(&path)).expect("there").len();
    db.put("k", "v")?;
    db.flush()?;
    let bytes = fs::read(manifest_of(&path)).expect("read");
    assert!((start as usize) < bytes.len());
    let content = |path: &Path| -> BTreeSet<Vec<u8>> {
        let files = fs::read_dir(path.join("tables")).expect("a directory");
        let files = files.map(|entry| entry.expect("an entry").path());
        files.map(|file| fs::read(file).expect("read")).collect()
    };
    let table = content(&path);
    assert_eq!(table.len(), 1);
    let mut kept = 0;
    for at in (start as usize..bytes.len()).step_by(5) {
        let (_dir, rotten) = killed(&path);
        fs::write(manifest_of(&rotten), flipped(&bytes, at)).expect("written");
        for _ in 0..2 {
            let db = Db::open(&rotten)?;
            assert_eq!(db.get("k")?.as_deref(), Some(&b"v"[..]), "byte {at}");
            assert!(db.check()?.is_clean());
            assert!(content(&rotten).is_superset(&table), "byte {at}");
            db.put("more", "v")?;
            db.flush()?;
            db.close()?;
        }
        let names = fs::read_dir(rotten.join("tables")).expect("a directory");
        let mut names = names.map(|entry| entry.expect("an entry").file_name());
        kept += u32::from(names.any(|name| name.to_string_lossy().contains(".unnamed-")));
    }
    assert!(kept > 5, "{kept}");
    Ok(())
}
