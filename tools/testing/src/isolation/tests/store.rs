//! A multi-version store on one thread, with sessions in random order. It can be as strong as Bowline, or
//! weaker in one known way.

use std::collections::{BTreeMap, BTreeSet};

use crate::isolation::{History, Op, Outcome, Seen, Transaction, Version};

/// The quality of the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quality {
    /// One transaction after the other.
    Serial,
    /// Optimistic: all reads are validated.
    Serializable,
    /// First committer wins.
    Snapshot,
    /// Reads of keys are validated, reads of ranges are not.
    NoRangeValidation,
    /// Nothing is validated.
    NoValidation,
    /// Each read is of the newest committed version.
    ReadCommitted,
    /// Reads return uncommitted writes of others.
    ReadUncommitted,
    /// A transaction does not see its own writes.
    OwnWritesUnseen,
    /// Aborted writes stay.
    AbortedApplied,
    /// Sometimes half of a commit is visible before the other half.
    HalfVisible,
    /// Sometimes a snapshot is an old one.
    Stale,
}

const SESSIONS: usize = 5;
const KEYS: u64 = 6;

struct Session {
    transaction: Transaction,
    /// Its writes so far, with their numbers.
    writes: BTreeMap<String, Version>,
    keys_read: BTreeSet<String>,
    ranges_read: Vec<(String, String)>,
    steps_left: u32,
}

/// The versions of each key, oldest first, with their revisions.
type Versions = BTreeMap<String, Vec<(u64, Version)>>;

pub struct Store {
    quality: Quality,
    rng: fastrand::Rng,
    versions: Versions,
    dirty: BTreeMap<String, Version>,
    revision: u64,
    clock: u64,
    number: u64,
    history: History,
}

/// A random execution.
pub fn execute(quality: Quality, seed: u64, transactions: usize) -> History {
    let mut store = Store {
        quality,
        rng: fastrand::Rng::with_seed(seed),
        versions: BTreeMap::new(),
        dirty: BTreeMap::new(),
        revision: 1,
        clock: 0,
        number: 0,
        history: History::default(),
    };
    let mut sessions: Vec<Option<Session>> = (0..SESSIONS).map(|_| None).collect();
    while store.history.transactions.len() < transactions {
        let mut which = store.rng.usize(0..SESSIONS);
        if quality == Quality::Serial
            && let Some(busy) = sessions.iter().position(Option::is_some)
        {
            which = busy;
        }
        match sessions[which].take() {
            None => sessions[which] = Some(store.begin(which as u64)),
            Some(mut session) if session.steps_left > 0 => {
                session.steps_left -= 1;
                store.step(&mut session);
                sessions[which] = Some(session);
            }
            Some(session) => store.finish(session),
        }
    }
    store.history
}

impl Store {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn begin(&mut self, process: u64) -> Session {
        let is_stale = self.quality == Quality::Stale && self.rng.u8(0..4) == 0;
        let back = if is_stale { self.rng.u64(0..4) } else { 0 };
        Session {
            transaction: Transaction {
                process,
                invoked: self.tick(),
                completed: None,
                outcome: Outcome::Unknown,
                snapshot: Some(self.revision.saturating_sub(back)),
                ops: Vec::new(),
            },
            writes: BTreeMap::new(),
            keys_read: BTreeSet::new(),
            ranges_read: Vec::new(),
            steps_left: self.rng.u32(1..6),
        }
    }

    /// Half of the keys are lists.
    fn key(&mut self) -> String {
        let number = self.rng.u64(0..KEYS);
        let kind = if self.rng.bool() { "l" } else { "r" };
        format!("{kind}{number}")
    }

    fn look(&self, session: &Session, key: &str) -> Seen {
        let own = session.writes.get(key);
        if let (Some(own), true) = (own, self.quality != Quality::OwnWritesUnseen) {
            return Seen {
                version: own.clone(),
                revision: None,
            };
        }
        if let (Quality::ReadUncommitted, Some(dirty)) = (self.quality, self.dirty.get(key)) {
            return Seen {
                version: dirty.clone(),
                revision: None,
            };
        }
        let at = match self.quality {
            Quality::ReadCommitted | Quality::ReadUncommitted => u64::MAX,
            _ => session.transaction.snapshot.unwrap_or(0),
        };
        let versions = self.versions.get(key).map_or(&[][..], |all| &all[..]);
        let found = versions.iter().rev().find(|(revision, _)| *revision <= at);
        let (revision, version) = found.cloned().unwrap_or((0, Version::Absent));
        let revision = (version != Version::Absent).then_some(revision);
        Seen { version, revision }
    }

    fn step(&mut self, session: &mut Session) {
        let key = self.key();
        self.number += 1;
        let value = self.number;
        match self.rng.u8(0..10) {
            0..4 => {
                let seen = self.read(session, &key);
                session.transaction.ops.push(Op::Read { key, seen });
            }
            4 => {
                let from = self.rng.u64(0..KEYS);
                let until = from + self.rng.u64(1..4);
                let (lower, upper) = (format!("r{from}"), format!("r{until}"));
                session.ranges_read.push((lower.clone(), upper.clone()));
                let keys = (from..until.min(KEYS)).map(|number| format!("r{number}"));
                let seen = keys.map(|key| (key.clone(), self.look(session, &key)));
                let found = seen.filter(|(_, seen)| seen.version != Version::Absent);
                let found = found.collect();
                let scan = Op::Scan {
                    lower,
                    upper,
                    found,
                };
                session.transaction.ops.push(scan);
            }
            _ if key.starts_with('l') => {
                // An append is a read and a write.
                let seen = self.read(session, &key);
                let mut items = match &seen.version {
                    Version::List(items) => items.clone(),
                    _ => Vec::new(),
                };
                items.push(value);
                let read = Op::Read {
                    key: key.clone(),
                    seen,
                };
                let ops = [
                    read,
                    Op::Append {
                        key: key.clone(),
                        value,
                    },
                ];
                session.transaction.ops.extend(ops);
                self.write(session, key, Version::List(items));
            }
            9 => {
                session.transaction.ops.push(Op::Delete {
                    key: key.clone(),
                    value,
                });
                self.write(session, key, Version::Absent);
            }
            _ => {
                session.transaction.ops.push(Op::Write {
                    key: key.clone(),
                    value,
                });
                self.write(session, key, Version::Value(value));
            }
        }
    }

    fn read(&mut self, session: &mut Session, key: &str) -> Seen {
        if !session.writes.contains_key(key) {
            session.keys_read.insert(key.to_owned());
        }
        self.look(session, key)
    }

    fn write(&mut self, session: &mut Session, key: String, version: Version) {
        self.dirty.insert(key.clone(), version.clone());
        session.writes.insert(key, version);
    }

    fn finish(&mut self, mut session: Session) {
        let rolls_back = self.rng.u8(0..8) == 0;
        for key in session.writes.keys() {
            self.dirty.remove(key);
        }
        let commits = !rolls_back && self.is_valid(&session);
        if !commits && self.quality == Quality::AbortedApplied {
            self.apply(&session);
        }
        session.transaction.outcome = if !commits {
            Outcome::Aborted
        } else if session.writes.is_empty() {
            Outcome::Committed(None)
        } else {
            self.apply(&session);
            Outcome::Committed(Some(self.revision))
        };
        session.transaction.completed = Some(self.tick());
        self.history.transactions.push(session.transaction);
    }

    fn is_valid(&self, session: &Session) -> bool {
        let since = session.transaction.snapshot.unwrap_or(0);
        let is_old = |key: &String| {
            let newest = self.versions.get(key).and_then(|all| all.last());
            newest.is_none_or(|(revision, _)| *revision <= since)
        };
        let mut in_ranges = session.ranges_read.iter().flat_map(|(lower, upper)| {
            let range = self.versions.range(lower.clone()..upper.clone());
            range.map(|(key, _)| key)
        });
        match self.quality {
            Quality::Snapshot | Quality::HalfVisible => session.writes.keys().all(is_old),
            Quality::NoRangeValidation => session.keys_read.iter().all(is_old),
            Quality::NoValidation | Quality::ReadCommitted | Quality::ReadUncommitted => true,
            _ if session.writes.is_empty() => true,
            _ => session.keys_read.iter().all(is_old) && in_ranges.all(is_old),
        }
    }

    fn apply(&mut self, session: &Session) {
        self.revision += 1;
        for (place, (key, version)) in session.writes.iter().enumerate() {
            // Half of it can be read at the revision before.
            let is_early = self.quality == Quality::HalfVisible && place == 0;
            let revision = self.revision - u64::from(is_early);
            let versions = self.versions.entry(key.clone()).or_default();
            versions.push((revision, version.clone()));
        }
    }
}
