//! What goes wrong around a watch or a lease, and must not make it lose anything.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline::vfs::MemoryVfs;
use bowline::{Background, Db, History, Result};
use bowline_testing::FaultVfs;
use bowline_testing::fault::{Call, Rule};

use crate::{small, within_timeout};

/// Found by this test: the changes of a revision were taken off what the watcher had ready before
/// their previous entries were read. When that read failed, the watcher went on behind a revision
/// that nobody had been given.
#[test]
fn a_read_that_fails_skips_no_change() -> Result<()> {
    for (ring_bytes, name) in [(1 << 20, "from the ring"), (0, "from history")] {
        let vfs = FaultVfs::new(MemoryVfs::default());
        let db = small()
            .vfs(Arc::new(vfs.clone()))
            .background(Background::Manual)
            .history(History::All)
            .cache_bytes(0)
            .watch_ring_bytes(ring_bytes)
            .open("/db")?;
        let key = |number: u64| format!("k{}", number % 40);
        for number in 0..40 {
            db.put(key(number), [7; 300])?;
        }
        db.compact()?;
        let mut watcher = db.watch(..).with_previous().start()?;
        let first = watcher.next_revision();
        for number in 0..40 {
            db.put(key(number), number.to_string())?;
        }
        if ring_bytes == 0 {
            db.compact()?;
        }
        let mut failed = 0;
        for number in 0..40 {
            let expected = first + number;
            vfs.add(Rule::on(Call::Read).for_ever());
            if let Err(error) = watcher.try_recv() {
                assert!(error.to_string().contains("read"), "{error}");
                assert_eq!(watcher.next_revision(), expected, "{name}");
                failed += 1;
                vfs.clear();
                let changes = watcher.try_recv()?.expect("it is there");
                assert_eq!(changes.revision, expected, "{name}");
                let previous = changes.changes[0].previous.as_ref().expect("it was put");
                assert_eq!(previous.value, [7; 300][..], "{name}");
            } else {
                panic!("{name}: nothing was read for {expected}");
            }
            vfs.clear();
        }
        assert_eq!(failed, 40, "{name}");
        assert_eq!(watcher.try_recv()?, None);
    }
    Ok(())
}

/// Found by review: the lease thread asked for the next deadline, and only then took the lock
/// under which it is told of a new lease. A lease granted between the two was not heard of, and
/// lived for up to a minute beyond its time.
#[test]
fn a_lease_granted_while_the_thread_looks_away_expires() -> Result<()> {
    const SOON: Duration = Duration::from_secs(40);
    within_timeout("leases that expire", || {
        let db: Db = small().vfs(Arc::new(MemoryVfs::default())).open("/db")?;
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..500 {
            let id = db.grant_lease(Duration::from_millis(1))?;
            let start = Instant::now();
            while db.leases().iter().any(|lease| lease.id == id) {
                assert!(
                    start.elapsed() < SOON,
                    "lease {id} is not missed by anybody"
                );
                std::thread::sleep(Duration::from_micros(50));
            }
            // The thread looks for the next deadline about a millisecond after an expiry.
            std::thread::sleep(Duration::from_micros(rng.u64(0..1_300)));
        }
        Ok(())
    })
}
