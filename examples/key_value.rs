//! Keys and values: put, get, compare-and-swap, ranges, snapshots, history, and what is still
//! there after the database was closed and opened again.
//!
//! Run it with `cargo run -p bowline --example key_value`.

use bowline::{Db, Error, Expected, History, Range};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("data");

    // Keep everything, so that the past can be asked below. The default keeps only what open
    // snapshots and watches need.
    let db = Db::builder().history(History::All).open(&path)?;

    // Each commit that changes something has a revision. It is durable when the call returns.
    let first = db.put("svc/api", "10.0.0.7")?;
    db.put("svc/web", "10.0.0.9")?;
    assert_eq!(db.get("svc/api")?.as_deref(), Some(&b"10.0.0.7"[..]));

    // Set a key only if nobody changed it since it was read.
    let second = db.compare_and_swap("svc/api", Expected::Revision(first), "10.0.0.8")?;
    let lost = db.compare_and_swap("svc/api", Expected::Revision(first), "10.0.0.1");
    assert!(matches!(lost, Err(Error::CompareFailed { actual, .. }) if actual == Some(second)));

    // A snapshot does not change, whatever is committed after it was taken.
    let before = db.snapshot();
    db.delete("svc/web")?;
    assert_eq!(before.range(Range::prefix("svc/"))?.count(), 2);

    // Ranges are in key order and go both ways.
    for entry in db.range("svc/".."svc0")? {
        let entry = entry?;
        println!(
            "{} = {}, put {} times, last at revision {}",
            entry.key.escape_ascii(),
            entry.value.escape_ascii(),
            entry.version,
            entry.mod_revision,
        );
    }

    // The past, newest first. `None` is a deletion.
    let past = db.history("svc/web")?;
    assert_eq!(past.len(), 2);
    assert!(past[0].entry.is_none() && past[1].entry.is_some());
    let old = db.snapshot_at(first)?;
    assert_eq!(old.get("svc/api")?.as_deref(), Some(&b"10.0.0.7"[..]));

    // The database closes with the last handle, and so with the last snapshot.
    let newest = db.revision();
    drop((before, old, db));
    let db = Db::builder().history(History::All).open(&path)?;
    assert_eq!(db.revision(), newest);
    assert_eq!(db.get("svc/api")?.as_deref(), Some(&b"10.0.0.8"[..]));
    assert_eq!(db.get("svc/web")?, None);

    db.close()?;
    Ok(())
}
