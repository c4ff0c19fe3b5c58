//! Watches and leases: a registry of services that announce themselves with a lease, and a
//! watcher that sees each come and go, in order, even what happened before it started.
//!
//! Run it with `cargo run -p bowline --example watch`.

use std::thread;
use std::time::Duration;

use bowline::{ChangeKind, Db, History, LeaseId, Range};

const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;

    // What a watcher may still ask for. The default keeps no more than watches in progress need.
    let db = Db::builder()
        .history(History::Revisions(10_000))
        .open(directory.path().join("data"))?;

    let mut watcher = db.watch(Range::prefix("svc/")).start()?;
    let start = watcher.next_revision();

    // A service announces itself from another thread. Its key lives as long as its lease.
    let service = thread::spawn({
        let db = db.clone();
        move || -> bowline::Result<LeaseId> {
            let lease = db.grant_lease(Duration::from_secs(2))?;
            db.put_with_lease("svc/api", "10.0.0.7", lease)?;
            // It stays alive for a while, then falls silent without a word.
            for _ in 0..3 {
                thread::sleep(Duration::from_millis(50));
                db.keep_alive(lease)?;
            }
            Ok(lease)
        }
    });

    // Outside the watched range: the watcher does not see it.
    db.put("other", "1")?;

    let came = watcher
        .recv_timeout(PATIENCE)?
        .expect("the service announces itself");
    let change = &came.changes[0];
    assert_eq!(
        (change.kind, &change.entry.key[..]),
        (ChangeKind::Put, &b"svc/api"[..])
    );
    println!("revision {}: svc/api came", came.revision);

    let went = watcher.recv_timeout(PATIENCE)?.expect("the lease runs out");
    assert_eq!(went.changes[0].kind, ChangeKind::Delete);
    assert!(went.revision > came.revision);
    println!("revision {}: svc/api went", went.revision);
    let lease = service.join().expect("the service panicked")?;
    assert!(db.keep_alive(lease).is_err(), "it is over");

    // A watcher that starts in the past gets everything from there on, as the first one did.
    let mut late = db.watch(Range::prefix("svc/")).from(start).start()?;
    assert_eq!(late.try_recv()?, Some(came));
    assert_eq!(late.try_recv()?, Some(went));
    assert_eq!(late.try_recv()?, None, "nothing more has happened");

    // All changes of one transaction arrive together.
    db.transact(|tx| {
        tx.put("svc/a", "1")?;
        tx.put("svc/b", "2")
    })?;
    let both = late
        .recv_timeout(PATIENCE)?
        .expect("two puts, one revision");
    assert_eq!(both.changes.len(), 2);
    Ok(())
}
