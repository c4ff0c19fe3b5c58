//! Ingestions beside commits.

use std::sync::Arc;

use bowline::{Error, History, Revision};
use bowline_storage::sync::thread;
use bowline_storage::vfs::MemoryVfs;

use crate::explore::explore;
use crate::vfs::StepVfs;
use crate::{builder, bytes, number};

/// An ingestion, puts of a key that is in it, and a transaction that has read that key, in any order:
/// each has a revision of its own and counts on from what was there before it, and the transaction
/// commits only if what it read still held right before it.
#[test]
fn an_ingestion_has_its_place_among_commits() {
    explore("an_ingestion_has_its_place_among_commits", 6_000, || {
        let vfs = StepVfs::new(MemoryVfs::default());
        let builder = builder(Arc::new(vfs)).history(History::All);
        let db = builder.open("/db").expect("it opens");
        let first = db.put("b", bytes(1)).expect("a put");
        db.flush().expect("a flush");
        let writer = {
            let db = db.clone();
            thread::spawn(move || [2, 3].map(|n| db.put("b", bytes(n)).expect("a put")))
        };
        let reader = {
            let db = db.clone();
            thread::spawn(move || {
                let mut tx = db.begin();
                let read = tx.get("b").expect("a read");
                tx.put("d", bytes(9)).expect("a write");
                match tx.commit() {
                    Ok(committed) => Some((committed.revision, read)),
                    Err(Error::Conflict { .. }) => None,
                    Err(other) => panic!("{other}"),
                }
            })
        };
        let mut ingest = db.ingest().expect("an ingestion");
        ingest.put("a", bytes(4)).expect("an entry");
        ingest.put("b", bytes(5)).expect("an entry");
        let ingested = ingest.commit().expect("it commits").revision;
        let put = writer.join().expect("no panic");
        let read = reader.join().expect("no panic");

        let mut writes = vec![(first, 1), (put[0], 2), (put[1], 3), (ingested, 5)];
        writes.sort_unstable();
        for (before, (revision, value)) in writes.iter().enumerate() {
            let at = db.snapshot_at(*revision).expect("all is kept");
            let entry = at.entry("b").expect("a read").expect("it is there");
            assert_eq!(entry.mod_revision, *revision);
            assert_eq!(number(Some(&entry.value)), *value);
            assert_eq!(entry.create_revision, first);
            assert_eq!(entry.version, before as u64 + 1);
            let is_there = at.get("a").expect("a read").is_some();
            assert_eq!(is_there, *revision >= ingested, "all of it at once");
        }
        let mut revisions: Vec<_> = writes.iter().map(|(revision, _)| *revision).collect();
        if let Some((revision, value)) = read {
            let before = db.snapshot_at(revision - 1).expect("all is kept");
            assert_eq!(before.get("b").expect("a read"), value);
            revisions.push(revision);
            revisions.sort_unstable();
        }
        assert!(
            revisions
                .into_iter()
                .map(Revision::get)
                .eq(first.get()..=db.revision().get())
        );
    });
}
