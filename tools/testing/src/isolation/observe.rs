//! The writes that each read saw, and anomalies that need no graph: transactions that contradict themselves,
//! dirty and intermediate reads, values that nobody wrote.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::history::{History, Level, Op, Outcome, Seen, Transaction, Trust, Version};
use super::report::{Kind, Report};

/// The version before all writes.
pub(super) const INITIAL: u64 = 0;

/// One write of a history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) transaction: usize,
    /// Whether it is its transaction's last one of the key.
    pub(super) is_last: bool,
    pub(super) is_delete: bool,
}

/// A key, and all attempted writes to it.
#[derive(Debug, Default)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) writes: HashMap<u64, Write>,
    pub(super) is_list: bool,
}

/// A read of other transactions' writes, or of an absence.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) transaction: usize,
    pub(super) key: usize,
    /// `None` for an absence by an unknown deletion.
    pub(super) version: Option<u64>,
    pub(super) list: Option<Vec<u64>>,
    pub(super) revision: Option<u64>,
    /// Whether it was part of a range read.
    pub(super) in_range: bool,
    /// Whether it was checked at commit, not read at the snapshot.
    pub(super) at_commit: bool,
    /// Whether it implies dependencies. A condition checked at commit is not a read of the snapshot: under
    /// snapshot isolation it implies something only for a key that is also written, which then has not
    /// changed since.
    pub(super) is_dependency: bool,
}

/// A history with its reads and writes resolved.
#[derive(Debug)]
pub(super) struct Observed<'a> {
    pub(super) history: &'a History,
    pub(super) keys: Vec<Key>,
    /// The reads of all transactions, including uncommitted ones.
    pub(super) reads: Vec<Read>,
    /// Whether each transaction committed, as far as can be inferred.
    pub(super) committed: Vec<bool>,
}

impl<'a> Observed<'a> {
    pub(super) fn of(
        history: &'a History,
        level: Level,
        trust: Trust,
        report: &mut Report,
    ) -> Observed<'a> {
        let keys = keys_of(history);
        let mut observed = Observed {
            history,
            keys,
            reads: Vec::new(),
            committed: Vec::new(),
        };
        let names: BTreeMap<&str, usize> = observed
            .keys
            .iter()
            .enumerate()
            .map(|(index, key)| (&key.name[..], index))
            .collect();
        let mut reads = Vec::new();
        for number in 0..history.transactions.len() {
            let mut session = Session {
                number,
                names: &names,
                own: HashMap::new(),
                first: HashMap::new(),
                reads: &mut reads,
                report,
            };
            session.run(&history.transactions[number]);
        }
        observed.reads = reads;
        if level == Level::Snapshot {
            observed.forget_conditions();
        }
        observed.find_committed();
        if trust == Trust::Commits {
            observed.resolve_absences();
        }
        observed.look_for_dirt(report);
        observed.count(report);
        observed
    }

    pub(super) fn transaction(&self, number: usize) -> &Transaction {
        &self.history.transactions[number]
    }

    /// The transaction that wrote a version, if it is not the initial one.
    pub(super) fn writer(&self, key: usize, version: u64) -> Option<usize> {
        let write = self.keys[key].writes.get(&version);
        write.map(|write| write.transaction)
    }

    /// Reads by transactions that committed.
    pub(super) fn committed_reads(&self) -> impl Iterator<Item = &Read> {
        self.reads
            .iter()
            .filter(|read| self.committed[read.transaction])
    }

    /// Those of them that imply dependencies.
    pub(super) fn dependencies(&self) -> impl Iterator<Item = &Read> {
        self.committed_reads().filter(|read| read.is_dependency)
    }

    fn forget_conditions(&mut self) {
        for read in self.reads.iter_mut().filter(|read| read.at_commit) {
            let writes = self.keys[read.key].writes.values();
            let mut writers = writes.map(|write| write.transaction);
            read.is_dependency = writers.any(|writer| writer == read.transaction);
        }
    }

    /// Marks committed transactions, and unknown ones whose writes such transactions saw.
    fn find_committed(&mut self) {
        let transactions = &self.history.transactions;
        let says_so = |t: &Transaction| matches!(t.outcome, Outcome::Committed(_));
        self.committed = transactions.iter().map(says_so).collect();
        loop {
            let mut seen = Vec::new();
            for read in self.committed_reads() {
                let last = read.version.into_iter().filter(|v| *v != INITIAL);
                let versions = last.chain(read.list.iter().flatten().copied());
                seen.extend(versions.filter_map(|version| self.writer(read.key, version)));
            }
            let is_news = |number: &usize| {
                !self.committed[*number] && transactions[*number].outcome == Outcome::Unknown
            };
            seen.retain(is_news);
            if seen.is_empty() {
                return;
            }
            for number in seen {
                self.committed[number] = true;
            }
        }
    }

    /// An absence is the newest deletion at the snapshot, or the initial version.
    fn resolve_absences(&mut self) {
        let mut deletions: Vec<Vec<(u64, u64)>> = Vec::new();
        for key in &self.keys {
            let mut of_key = Vec::new();
            for (version, write) in &key.writes {
                let outcome = self.transaction(write.transaction).outcome;
                if let (Outcome::Committed(Some(revision)), true, true) =
                    (outcome, write.is_delete, write.is_last)
                {
                    of_key.push((revision, *version));
                }
            }
            of_key.sort_unstable();
            deletions.push(of_key);
        }
        let transactions = &self.history.transactions;
        for read in &mut self.reads {
            let snapshot = transactions[read.transaction].snapshot;
            if let (None, Some(snapshot), false) = (read.version, snapshot, read.at_commit) {
                let until = deletions[read.key].partition_point(|(at, _)| *at <= snapshot);
                let newest = until.checked_sub(1).map(|last| deletions[read.key][last].1);
                read.version = Some(newest.unwrap_or(INITIAL));
            }
        }
        self.resolve_initial();
    }

    /// For a key that was never deleted, an absence is the initial version.
    fn resolve_initial(&mut self) {
        let has_deletes = |key: &Key| key.writes.values().any(|write| write.is_delete);
        let has_deletes: Vec<bool> = self.keys.iter().map(has_deletes).collect();
        for read in &mut self.reads {
            if read.version.is_none() && !has_deletes[read.key] {
                read.version = Some(INITIAL);
            }
        }
    }

    fn look_for_dirt(&mut self, report: &mut Report) {
        self.resolve_initial();
        for read in self.committed_reads() {
            let reader = read.transaction;
            let name = &self.keys[read.key].name;
            if let Some(list) = &read.list {
                let mut seen = BTreeSet::new();
                if let Some(twice) = list.iter().find(|item| !seen.insert(**item)) {
                    let text = format!("T{reader} read {name} = {list:?}: {twice} is there twice");
                    report.add(Kind::Duplicate, vec![reader], text);
                }
            }
            let last = read.version.into_iter().filter(|v| *v != INITIAL);
            let items: Vec<u64> = match &read.list {
                Some(list) => list.clone(),
                None => last.collect(),
            };
            for (place, item) in items.iter().enumerate() {
                let Some(write) = self.keys[read.key].writes.get(item) else {
                    let text = format!("T{reader} read {name} = {item}, which nobody wrote");
                    report.add(Kind::Garbage, vec![reader], text);
                    continue;
                };
                let writer = write.transaction;
                if !self.committed[writer] {
                    let text = format!(
                        "T{reader} read {name} = {item}, which T{writer} wrote and rolled back"
                    );
                    report.add(Kind::G1a, vec![reader, writer], text);
                } else if place + 1 == items.len() && !write.is_last && writer != reader {
                    let text = format!(
                        "T{reader} read {name} = {item}, which T{writer} wrote and then replaced"
                    );
                    report.add(Kind::G1b, vec![reader, writer], text);
                }
            }
        }
    }

    fn count(&self, report: &mut Report) {
        let committed = self.committed.iter().filter(|is| **is).count();
        report.counts.committed = committed as u64;
        let unresolved = self.committed_reads().filter(|read| read.version.is_none());
        report.counts.unresolved = unresolved.count() as u64;
    }
}

/// All keys that were read or written, in order, with their writes.
fn keys_of(history: &History) -> Vec<Key> {
    let mut keys: BTreeMap<&str, Key> = BTreeMap::new();
    for (number, transaction) in history.transactions.iter().enumerate() {
        let mut last: HashMap<&str, u64> = HashMap::new();
        for op in &transaction.ops {
            let (key, value) = match op {
                Op::Read { key, .. } | Op::Expect { key, .. } => {
                    keys.entry(key).or_default();
                    continue;
                }
                Op::Scan { found, .. } => {
                    for (key, _) in found {
                        keys.entry(key).or_default();
                    }
                    continue;
                }
                Op::Write { key, value }
                | Op::Append { key, value }
                | Op::Delete { key, value } => (&key[..], *value),
            };
            let known = keys.entry(key).or_default();
            known.is_list |= matches!(op, Op::Append { .. });
            if let Some(before) = last.insert(key, value)
                && let Some(before) = known.writes.get_mut(&before)
            {
                before.is_last = false;
            }
            let write = Write {
                transaction: number,
                is_last: true,
                is_delete: matches!(op, Op::Delete { .. }),
            };
            let old = known.writes.insert(value, write);
            assert!(
                value != INITIAL && old.is_none(),
                "a write's number is its own, and above 0: {value} of {key} in T{number}"
            );
        }
    }
    let named = keys.into_iter().map(|(name, key)| Key {
        name: name.to_owned(),
        ..key
    });
    named.collect()
}

/// The effect of a transaction's own writes on a key.
enum Own {
    Is(Version),
    /// It appended to a list that it had not read.
    EndsWith(Vec<u64>),
}

/// The evaluation of one transaction.
struct Session<'a> {
    number: usize,
    names: &'a BTreeMap<&'a str, usize>,
    own: HashMap<usize, Own>,
    /// The results of the first read of each key.
    first: HashMap<usize, Version>,
    reads: &'a mut Vec<Read>,
    report: &'a mut Report,
}

impl Session<'_> {
    fn run(&mut self, transaction: &Transaction) {
        for op in &transaction.ops {
            match op {
                Op::Read { key, seen } => self.read(key, seen, false),
                Op::Expect { key, seen } => {
                    let read = self.external(self.names[&key[..]], seen, false);
                    self.reads.push(Read {
                        at_commit: true,
                        ..read
                    });
                }
                Op::Scan {
                    lower,
                    upper,
                    found,
                } => self.scan(lower, upper, found),
                Op::Write { key, value } => {
                    self.wrote(key, Own::Is(Version::Value(*value)));
                }
                Op::Delete { key, .. } => self.wrote(key, Own::Is(Version::Absent)),
                Op::Append { key, value } => self.append(key, *value),
            }
        }
    }

    fn wrote(&mut self, key: &str, own: Own) {
        self.own.insert(self.names[key], own);
    }

    fn append(&mut self, key: &str, value: u64) {
        let index = self.names[key];
        let own = self.own.remove(&index);
        let own = match (own, self.first.get(&index)) {
            (Some(Own::Is(Version::List(mut items))), _) => {
                items.push(value);
                Own::Is(Version::List(items))
            }
            (Some(Own::EndsWith(mut items)), _) => {
                items.push(value);
                Own::EndsWith(items)
            }
            (None, Some(Version::List(items))) => {
                let items = items.iter().copied().chain([value]);
                Own::Is(Version::List(items.collect()))
            }
            (None, None) => Own::EndsWith(vec![value]),
            // Absent, or not a list: the list begins here.
            _ => Own::Is(Version::List(vec![value])),
        };
        self.own.insert(index, own);
    }

    fn scan(&mut self, lower: &str, upper: &str, found: &[(String, Seen)]) {
        let keys: Vec<&str> = found.iter().map(|(key, _)| &key[..]).collect();
        let in_order = keys.windows(2).all(|pair| pair[0] < pair[1]);
        if !in_order || keys.iter().any(|key| *key < lower || *key >= upper) {
            let text = format!("T{}: the range {lower}..{upper} gave {keys:?}", self.number);
            self.report.add(Kind::Internal, vec![self.number], text);
        }
        let absent = Seen {
            version: Version::Absent,
            revision: None,
        };
        let mut found: HashMap<&str, &Seen> =
            found.iter().map(|(key, seen)| (&key[..], seen)).collect();
        let names = self.names;
        if lower < upper {
            for name in names.range(lower..upper).map(|(name, _)| *name) {
                let seen = found.remove(name).unwrap_or(&absent);
                self.read(name, seen, true);
            }
        }
    }

    fn read(&mut self, key: &str, seen: &Seen, in_range: bool) {
        let index = self.names[key];
        let found = &seen.version;
        let agrees = match (self.own.get(&index), self.first.get(&index)) {
            (Some(Own::Is(own)), _) => is_same(own, found).then_some(()).ok_or("wrote"),
            (Some(Own::EndsWith(items)), _) => {
                let ends = matches!(found, Version::List(list) if list.ends_with(items));
                ends.then_some(()).ok_or("appended")
            }
            (None, Some(first)) => is_same(first, found).then_some(()).ok_or("read"),
            (None, None) => {
                self.first.insert(index, found.clone());
                let read = self.external(index, seen, in_range);
                self.reads.push(read);
                Ok(())
            }
        };
        if let Err(did) = agrees {
            let number = self.number;
            let text = format!("T{number} read {key} = {seen}, after it {did} something else");
            self.report.add(Kind::Internal, vec![number], text);
        }
        // The first read of a key was by range, this one is not: it counts as the stronger.
        if !in_range && !self.own.contains_key(&index) {
            let mine = self.reads.iter_mut().rev();
            let mut mine = mine.take_while(|read| read.transaction == self.number);
            if let Some(read) = mine.find(|read| read.key == index && !read.at_commit) {
                read.in_range = false;
            }
        }
    }

    fn external(&self, key: usize, seen: &Seen, in_range: bool) -> Read {
        let (version, list) = match &seen.version {
            Version::Absent => (None, None),
            Version::Value(value) => (Some(*value), None),
            Version::List(items) => (
                Some(items.last().copied().unwrap_or(INITIAL)),
                Some(items.clone()),
            ),
        };
        Read {
            transaction: self.number,
            key,
            version,
            list,
            revision: seen.revision,
            in_range,
            at_commit: false,
            is_dependency: true,
        }
    }
}

/// An empty list equals an absent one.
fn is_same(one: &Version, other: &Version) -> bool {
    let is_nothing =
        |version: &Version| matches!(version, Version::Absent) || *version == Version::List(vec![]);
    one == other || (is_nothing(one) && is_nothing(other))
}
