//! The page cache: loads and evictions at once.

use std::sync::Arc;

use bowline_storage::sync::thread;
use bowline_storage::vfs::MemoryVfs;

use crate::explore::explore;
use crate::vfs::StepVfs;
use crate::{builder, bytes, get};

/// Readers of many pages through a cache that holds few of them, while merges retire the tables
/// they come from: each read gives the page it asked for.
#[test]
fn a_page_is_the_one_that_was_asked_for() {
    explore("a_page_is_the_one_that_was_asked_for", 6_000, || {
        let vfs = StepVfs::new(MemoryVfs::default());
        let db = builder(Arc::new(vfs)).cache_bytes(8 << 10).page_bytes(512);
        let db = db.open("/db").expect("it opens");
        const KEYS: u64 = 40;
        let key = |number: u64| format!("a-key-of-some-length-{number:04}");
        let fill = |from: u64| {
            let mut tx = db.begin();
            for number in (from..KEYS).step_by(2) {
                tx.put(key(number), bytes(number)).expect("a write");
            }
            tx.commit().expect("nobody else writes");
            db.flush().expect("a flush");
        };
        fill(0);
        fill(1);
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                let db = db.clone();
                thread::spawn(move || {
                    for step in 0..8 {
                        let number = (reader * 7 + step * 11) % KEYS;
                        assert_eq!(get(&db, &key(number)), number);
                    }
                })
            })
            .collect();
        db.compact().expect("a merge");
        for reader in readers {
            reader.join().expect("no panic");
        }
    });
}
