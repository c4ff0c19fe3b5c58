//! `HazardCell`: a value is not reclaimed while it is read, and is reclaimed afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bowline_storage::sync::{HazardCell, step, thread};

use crate::explore::explore;

const VALUES: usize = 4;

/// Says when it goes.
struct Value {
    number: usize,
    gone: Arc<[AtomicBool; VALUES]>,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.gone[self.number].store(true, Ordering::SeqCst);
    }
}

/// Two readers, one of whom begins again and again with a thread of its own (so that slots change hands), hold
/// values and read a second time while they hold one, beside a writer.
#[test]
fn what_is_read_is_there() {
    explore("what_is_read_is_there", 60_000, || {
        let gone: Arc<[AtomicBool; VALUES]> = Arc::default();
        let value = |number| {
            let gone = gone.clone();
            Arc::new(Value { number, gone })
        };
        let swap = Arc::new(HazardCell::new(value(0)));
        let read = |swap: &HazardCell<Value>, gone: &[AtomicBool; VALUES], last: &mut usize| {
            let held = swap.load();
            assert!(held.number >= *last, "it went back");
            *last = held.number;
            step();
            let again = swap.load();
            assert!(again.number >= *last, "it went back");
            for held in [held, again] {
                step();
                assert!(!gone[held.number].load(Ordering::SeqCst), "it is gone");
            }
        };
        let first = {
            let (swap, gone) = (swap.clone(), gone.clone());
            thread::spawn(move || {
                let mut last = 0;
                for _ in 0..3 {
                    read(&swap, &gone, &mut last);
                }
            })
        };
        let second = {
            let (swap, gone) = (swap.clone(), gone.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    let (swap, gone) = (swap.clone(), gone.clone());
                    let thread = thread::spawn(move || read(&swap, &gone, &mut 0));
                    thread.join().expect("no panic");
                }
                let kept = swap.load_full();
                step();
                assert!(!gone[kept.number].load(Ordering::SeqCst), "it is gone");
            })
        };
        for number in 1..VALUES {
            swap.store(value(number));
        }
        first.join().expect("no panic");
        second.join().expect("no panic");
        assert_eq!(swap.reclaim(), 0, "nobody reads any more");
        let left = gone.iter().filter(|gone| !gone.load(Ordering::SeqCst));
        assert_eq!(left.count(), 1, "only the current one is left");
    });
}
