//! Watchers of every kind, and what each of them saw.
//!
//! A watcher's life is a list of *spans*: revisions from a first one up to where it was when it
//! was dropped, ended, or was told that history had been trimmed. Within a span nothing may be
//! missing, and each span that goes on from another begins exactly where that one ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline::{Db, Error, Range, Revision, Watcher};

use crate::truth::{Seen, Truth};
use crate::writers::{PREFIXES, random_key};

/// How a watcher behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Takes what is there.
    Fast,
    /// Takes one or two, now and then.
    Slow,
    /// Takes nothing until the writers are done.
    Stalled,
    /// Is dropped all the time and resumed from where it was.
    Resumed,
    /// Is resumed by another before it is dropped.
    Replaced,
}

const PACES: [Pace; 5] = [
    Pace::Fast,
    Pace::Slow,
    Pace::Stalled,
    Pace::Resumed,
    Pace::Replaced,
];

/// What the floor may be at most; a watcher that is refused more than this was robbed.
#[derive(Debug)]
pub struct Bounds<'a> {
    pub lag_max: u64,
    /// What the history setting keeps of the newest revisions, for those who are away.
    pub kept: u64,
    pub given_up: &'a AtomicU64,
}

impl Bounds<'_> {
    /// Whether a watcher never loses what it has not been given.
    fn holds_everything(&self) -> bool {
        self.lag_max == u64::MAX && self.given_up.load(Ordering::SeqCst) == 0
    }

    fn check(&self, oldest: Revision, newest: Revision, kept: u64, who: &Watching) {
        let given_up = self.given_up.load(Ordering::SeqCst);
        // A new database is at revision 1.
        let most = given_up.max(newest.saturating_sub(kept).get()).max(1);
        assert!(
            oldest <= most,
            "{}: history from {oldest} only, though {kept} revisions below {newest} are kept and \
             no more than {given_up} was trimmed",
            who.name()
        );
    }
}

/// What one watcher saw without a break.
#[derive(Debug)]
struct Span {
    from: Revision,
    to: Revision,
    seen: Vec<Seen>,
}

/// A watcher and what it saw, over all its lives.
#[derive(Debug)]
pub struct Watching {
    range: Range,
    pub pace: Pace,
    with_previous: bool,
    watcher: Option<Watcher>,
    spans: Vec<Span>,
    pub told_compacted: u64,
    pub resumed: u64,
}

impl Watching {
    pub fn random(rng: &mut fastrand::Rng) -> Watching {
        let range = match rng.u8(0..8) {
            0..2 => Range::all(),
            2..5 => Range::prefix(PREFIXES[rng.usize(0..PREFIXES.len())]),
            5..7 => Range::key(random_key(rng)),
            _ => Range::from(random_key(rng)..b"d/99".to_vec()),
        };
        Watching {
            range,
            pace: PACES[rng.usize(0..PACES.len())],
            with_previous: rng.u8(0..3) == 0,
            watcher: None,
            spans: Vec::new(),
            told_compacted: 0,
            resumed: 0,
        }
    }

    pub fn name(&self) -> String {
        format!("{:?} of {:?}", self.pace, self.range)
    }

    pub fn is_started(&self) -> bool {
        self.watcher.is_some()
    }

    /// Starts now, in the past, at the oldest revision, or in the future.
    fn start_somewhere(&mut self, db: &Db, rng: &mut fastrand::Rng, bounds: &Bounds<'_>) {
        let newest = db.revision();
        match rng.u8(0..5) {
            0 => {
                let watch = self.builder(db).start().expect("now is always readable");
                assert!(watch.next_revision() > newest, "now lies in the past");
                self.begin(watch);
            }
            1 => self.start_from(db, Revision::new(rng.u64(1..newest.get() + 2)), bounds),
            2 => self.start_from(db, db.oldest_revision(), bounds),
            3 => self.start_from(db, newest + rng.u64(1..200), bounds),
            _ => self.start_from(
                db,
                newest.saturating_sub(rng.u64(0..300)).max(Revision::new(1)),
                bounds,
            ),
        }
    }

    fn builder(&self, db: &Db) -> bowline::WatchBuilder {
        let builder = db.watch(self.range.clone());
        if self.with_previous {
            builder.with_previous()
        } else {
            builder
        }
    }

    fn begin(&mut self, watcher: Watcher) {
        let from = watcher.next_revision();
        self.spans.push(Span {
            from,
            to: from,
            seen: Vec::new(),
        });
        self.watcher = Some(watcher);
    }

    /// Starts at a revision, or at the oldest one that is left.
    fn start_from(&mut self, db: &Db, from: Revision, bounds: &Bounds<'_>) {
        let mut at = from;
        loop {
            match self.builder(db).from(at).start() {
                Ok(watcher) => {
                    assert_eq!(watcher.next_revision(), at);
                    return self.begin(watcher);
                }
                Err(Error::Compacted {
                    requested,
                    oldest,
                    current,
                }) => {
                    assert!(requested == at && at < oldest && oldest <= current);
                    bounds.check(oldest, db.revision(), bounds.kept, self);
                    self.told_compacted += 1;
                    at = oldest;
                }
                Err(error) => panic!("{}: {error}", self.name()),
            }
        }
    }

    /// Starts for the first time, or goes on where it was.
    pub fn begin_again(&mut self, db: &Db, rng: &mut fastrand::Rng, bounds: &Bounds<'_>) {
        if self.spans.is_empty() {
            self.start_somewhere(db, rng, bounds);
        } else {
            self.resume(db, bounds);
        }
    }

    fn resume(&mut self, db: &Db, bounds: &Bounds<'_>) {
        let next = self.spans.last().expect("it was started").to;
        self.resumed += 1;
        self.start_from(db, next, bounds);
    }

    /// Drops the watcher; what it was to report next is kept.
    pub fn put_aside(&mut self) {
        if let Some(watcher) = self.watcher.take() {
            self.spans.last_mut().expect("a span").to = watcher.next_revision();
        }
    }

    /// Takes up to `most` changes, waiting up to `wait` for the first. Whether it has caught up.
    pub fn take(&mut self, db: &Db, most: usize, wait: Duration, bounds: &Bounds<'_>) -> bool {
        for taken in 0..most {
            let watcher = self.watcher.as_mut().expect("it is started");
            let next = watcher.next_revision();
            let found = if taken == 0 && !wait.is_zero() {
                watcher.recv_timeout(wait)
            } else {
                watcher.try_recv()
            };
            match found {
                Ok(Some(changes)) => {
                    assert!(changes.revision >= next);
                    let after = watcher.next_revision();
                    assert!(after > changes.revision, "{after} comes next");
                    let span = self.spans.last().expect("a span");
                    let floor = if bounds.holds_everything() && changes.revision > span.from {
                        // Its pin held what was before each change.
                        Revision::ZERO
                    } else {
                        db.oldest_revision()
                    };
                    let seen = Seen::new(&changes, &self.range, self.with_previous, floor);
                    self.spans.last_mut().expect("a span").seen.push(seen);
                }
                Ok(None) => return true,
                Err(Error::Compacted {
                    requested,
                    oldest,
                    current,
                }) => {
                    // Where it is, and not from where it was when it was asked.
                    let at = watcher.next_revision();
                    assert_eq!(requested, at, "{}", self.name());
                    assert!(at < oldest && at <= current && oldest <= db.revision());
                    let kept = bounds.lag_max.max(bounds.kept);
                    bounds.check(oldest, db.revision(), kept, self);
                    self.told_compacted += 1;
                    self.put_aside();
                    self.start_from(db, oldest, bounds);
                }
                Err(error) => panic!("{}: {error}", self.name()),
            }
        }
        false
    }

    /// What it does while the writers write.
    pub fn act(&mut self, db: &Db, rng: &mut fastrand::Rng, bounds: &Bounds<'_>) {
        match self.pace {
            Pace::Stalled => {}
            Pace::Fast => {
                self.take(db, usize::MAX, Duration::ZERO, bounds);
            }
            Pace::Slow => {
                if rng.u8(0..4) == 0 {
                    self.take(db, rng.usize(1..3), Duration::ZERO, bounds);
                }
            }
            Pace::Resumed => {
                self.take(db, rng.usize(1..20), Duration::ZERO, bounds);
                self.put_aside();
                self.resume(db, bounds);
            }
            Pace::Replaced => {
                self.take(db, rng.usize(1..20), Duration::ZERO, bounds);
                let old = self.watcher.take().expect("it is started");
                let at = old.next_revision();
                self.spans.last_mut().expect("a span").to = at;
                // The new one holds the history before the old one lets go of it; it is refused
                // only what the old one would have been.
                self.resumed += 1;
                self.start_from(db, at, bounds);
                drop(old);
            }
        }
    }

    /// Sees all there is. Nobody writes any more.
    pub fn finish(&mut self, db: &Db, bounds: &Bounds<'_>) {
        while !self.take(db, usize::MAX, Duration::ZERO, bounds) {}
        let watcher = self.watcher.as_ref().expect("it is started");
        let next = watcher.next_revision();
        assert!(next > db.revision(), "{}: {next} is next", self.name());
    }

    /// Whether all of it is true; how many changes it saw.
    pub fn judge(&mut self, truth: &Truth) -> u64 {
        self.put_aside();
        let mut count = 0;
        let mut last = 0;
        for span in &self.spans {
            assert!(span.from >= last, "it began before its end");
            last = span.from.get();
            match truth.judge(&self.range, span.from, span.to, &span.seen) {
                Ok(changes) => count += changes,
                Err(why) => panic!("{}: {}..{}: {why}", self.name(), span.from, span.to),
            }
        }
        count
    }
}
