//! The commit queue, from outside: what writers of one commit group may do to each other.

use std::thread;

use bowline::{Db, Durability, Limits};

/// The engine bounds a commit group by a multiple of the largest transaction. The queue filled groups up to
/// eight megabytes whatever that bound was, so with a lower limit the groups of ordinary concurrent
/// writers were refused as a whole: puts of 4,000 bytes failed as "a batch of 24918 bytes",
/// though each would have fitted alone.
#[test]
fn writers_who_share_a_group_are_not_refused_for_their_sum() {
    const WRITERS: usize = 48;
    const PUTS: usize = 40;
    let limits = Limits {
        transaction_size_max_bytes: 10_000,
        ..Limits::default()
    };
    let db = Db::builder()
        .limits(limits)
        .durability(Durability::Memory)
        .open("memory")
        .expect("opens");
    let db = &db;
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                for put in 0..PUTS {
                    let key = format!("{writer}/{put}");
                    let result = db.put(&key, [7; 4_000]);
                    assert!(result.is_ok(), "{key}: {result:?}");
                }
            });
        }
    });
    assert_eq!(db.range(..).expect("reads").count(), WRITERS * PUTS);
}
