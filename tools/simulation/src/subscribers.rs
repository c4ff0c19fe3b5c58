//! Watches over all keys, which go on at another member now and then: every change once, the same on all members.
//!
//! A subscriber polls between two steps, as the stream of a watch does in a member's process. When the process ends,
//! and sometimes without a reason, it goes on at another member from the revision after the last that it was told.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use bowline::{ChangeKind, Changes, Range, Revision, Watcher};
use bowline_testing::linear::Held;

use crate::clients::{History, number, register_of};
use crate::holders::PREFIX;
use crate::member::{Member, name};
use crate::trace::Trace;

/// How often watches are polled.
pub(crate) const POLL_EVERY: Duration = Duration::from_millis(5);
/// How many there are.
const COUNT: usize = 3;
/// One of so many polls is the last at a member.
const MOVES: u32 = 3_000;

/// One who watches.
struct Subscriber {
    watch: Option<(usize, Watcher)>,
    /// The revisions that it was told, in their order.
    told: Vec<Revision>,
    /// Below this revision it was not told of what others were told: the history was compacted.
    told_from: Revision,
}

/// All who watch, and what they were told.
pub(crate) struct Subscribers {
    all: Vec<Subscriber>,
    /// What each revision has changed, as whoever was told first has it.
    changes: BTreeMap<Revision, String>,
    /// What the registers held, each from a revision on.
    registers: BTreeMap<(usize, Revision), Held>,
    /// Whether the history is compacted in this run.
    are_compacting: bool,
    random: fastrand::Rng,
    trace: Trace,
    history: History,
}

impl Subscribers {
    pub(crate) fn new(
        seed: u64,
        trace: Trace,
        history: History,
        are_compacting: bool,
    ) -> Subscribers {
        let new = |_| Subscriber {
            watch: None,
            told: Vec::new(),
            told_from: Revision::FIRST,
        };
        Subscribers {
            all: (0..COUNT).map(new).collect(),
            changes: BTreeMap::new(),
            registers: BTreeMap::new(),
            are_compacting,
            random: fastrand::Rng::with_seed(seed),
            trace,
            history,
        }
    }

    /// A member's process ends, and with it its watches.
    pub(crate) fn leave(&mut self, member: usize) {
        for subscriber in &mut self.all {
            if subscriber
                .watch
                .as_ref()
                .is_some_and(|(at, _)| *at == member)
            {
                subscriber.watch = None;
            }
        }
    }

    /// Polls every watch, of a process that runs, once. Gives what is wrong.
    pub(crate) fn step(&mut self, members: &[Member]) -> Result<(), String> {
        for number in 0..self.all.len() {
            let moves = self.random.u32(0..MOVES) == 0;
            let target = self.random.usize(0..members.len());
            if moves {
                self.all[number].watch = None;
            }
            if self.all[number].watch.is_none() {
                self.all[number].begin(number, &members[target], &self.trace);
            }
            self.poll(number, members)?;
        }
        Ok(())
    }

    /// Takes what a watch has to tell.
    fn poll(&mut self, number: usize, members: &[Member]) -> Result<(), String> {
        let now = self.trace.now();
        loop {
            let subscriber = &mut self.all[number];
            let Some((at, watcher)) = &mut subscriber.watch else {
                return Ok(());
            };
            let member = &members[*at];
            if !member.runs() {
                return Ok(());
            }
            match member.within(|| watcher.try_recv()) {
                Ok(None) => return Ok(()),
                Ok(Some(told)) => {
                    let after = subscriber.told.last();
                    if after.is_some_and(|after| *after >= told.revision) {
                        return Err(format!(
                            "{} told revision {} after {after:?}",
                            name(*at),
                            told.revision
                        ));
                    }
                    subscriber.told.push(told.revision);
                    let at = *at;
                    note(&mut self.changes, at, &told)?;
                    self.registers.extend(registers(&told));
                    deletions(&told).for_each(|key| self.history.is_deleted(key, now));
                }
                Err(error) => {
                    // What is behind the watch was replaced or closed: a client begins anew.
                    let reason = format_args!("watch {number} ends at {}: {error}", name(*at));
                    self.trace.note("", reason);
                    subscriber.watch = None;
                    if let bowline::Error::Compacted { oldest, .. } = error {
                        if !self.are_compacting {
                            return Err(format!("a watch has lost history that is kept: {error}"));
                        }
                        subscriber.is_behind(oldest);
                    }
                    return Ok(());
                }
            }
        }
    }

    /// When all members agree: everyone was told everything, and every member has that past.
    pub(crate) fn finish(&mut self, members: &[Member]) -> Result<(), String> {
        let used: Vec<_> = members.iter().filter(|member| member.is_used()).collect();
        for member in &used {
            let Some(client) = member.client() else {
                return Err(format!("{} does not run", name(member.number)));
            };
            let from = match client.compacted_revision() {
                Revision::ZERO => Revision::FIRST,
                compacted => compacted + 1,
            };
            let past = member.within(|| {
                let mut watcher = client.db().watch(Range::all()).from(from).start()?;
                let mut past = BTreeMap::new();
                while let Some(told) = watcher.try_recv()? {
                    self.registers.extend(registers(&told));
                    past.insert(told.revision, text(&told));
                }
                Ok::<_, bowline::Error>(past)
            });
            let past = past.map_err(|error| format!("{}: {error}", name(member.number)))?;
            for (revision, changes) in past {
                let first = self
                    .changes
                    .entry(revision)
                    .or_insert_with(|| changes.clone());
                if *first != changes {
                    return Err(format!(
                        "{} has another revision {revision}: {changes} instead of {first}",
                        name(member.number)
                    ));
                }
            }
        }
        for number in 0..self.all.len() {
            let member = used[number % used.len()];
            self.all[number].begin(number, member, &self.trace);
            self.poll(number, members)?;
            let from = self.all[number].told_from;
            let mut all = self.changes.range(from..).map(|(revision, _)| revision);
            for told in { self.all[number].told.iter() }.filter(|told| **told >= from) {
                let next = all.next();
                if next != Some(told) {
                    return Err(format!(
                        "watch {number} was told {told} instead of {next:?}"
                    ));
                }
            }
            if let Some(missing) = all.next() {
                return Err(format!("watch {number} was never told {missing}"));
            }
            self.all[number].watch = None;
        }
        if self.are_compacting {
            // Who was told nothing before it was compacted cannot say what there was.
            return Ok(());
        }
        self.judge_told()
    }

    /// Eventual reads gave the state of the revision that they told, and every acknowledged write is in the past.
    fn judge_told(&self) -> Result<(), String> {
        let (eventual, acknowledged) = self.history.told();
        for (register, revision, found) in eventual {
            let mut before = self
                .registers
                .range((register, Revision::ZERO)..=(register, revision));
            let expected = before.next_back().and_then(|(_, held)| *held);
            if found != expected {
                return Err(format!(
                    "an eventual read of r{register} at revision {revision} gave {found:?} and not {expected:?}"
                ));
            }
        }
        let mut missing = acknowledged.iter();
        match missing.find(|revision| !self.changes.contains_key(revision)) {
            None => Ok(()),
            Some(missing) => Err(format!(
                "a write was acknowledged at revision {missing}, which no member has"
            )),
        }
    }
}

impl Subscriber {
    /// Begins at a member, after what was told last.
    fn begin(&mut self, number: usize, member: &Member, trace: &Trace) {
        let Some(client) = member.client().filter(|_| member.runs()) else {
            return;
        };
        let from = self.told.last().map_or(Revision::FIRST, |last| *last + 1);
        let from = from.max(self.told_from);
        let started = member.within(|| client.db().watch(Range::all()).from(from).start());
        let at = name(member.number);
        match started {
            Ok(watcher) => {
                trace.note("", format_args!("watch {number} is at {at} from {from} on"));
                self.watch = Some((member.number, watcher));
            }
            Err(error) => {
                trace.note(
                    "",
                    format_args!("watch {number} is refused at {at}: {error}"),
                );
                if let bowline::Error::Compacted { oldest, .. } = error {
                    self.is_behind(oldest);
                }
            }
        }
    }

    /// What it was to be told next is compacted: it goes on where the history begins.
    fn is_behind(&mut self, oldest: Revision) {
        self.told_from = oldest.max(self.told_from);
    }
}

/// What a change says of registers.
fn registers(told: &Changes) -> impl Iterator<Item = ((usize, Revision), Held)> {
    told.changes.iter().filter_map(|change| {
        let register = register_of(&change.entry.key)?;
        let held = match change.kind {
            ChangeKind::Delete => None,
            _ => number(&change.entry.value),
        };
        Some(((register, told.revision), held))
    })
}

/// Notes what a member has told of a revision, which must be what was told of it before.
fn note(
    changes: &mut BTreeMap<Revision, String>,
    member: usize,
    told: &Changes,
) -> Result<(), String> {
    let found = text(told);
    let first = changes
        .entry(told.revision)
        .or_insert_with(|| found.clone());
    match *first == found {
        true => Ok(()),
        false => Err(format!(
            "{} told of revision {}: {found}, and another member: {first}",
            name(member),
            told.revision
        )),
    }
}

fn deletions(told: &Changes) -> impl Iterator<Item = &[u8]> {
    let deleted = |change: &&bowline::Change| change.kind == ChangeKind::Delete;
    let keys = told
        .changes
        .iter()
        .filter(deleted)
        .map(|change| &change.entry.key[..]);
    keys.filter(|key| key.starts_with(PREFIX))
}

/// Everything that a change says.
fn text(told: &Changes) -> String {
    let mut text = String::new();
    for change in &told.changes {
        let entry = &change.entry;
        let _ = write!(
            text,
            "{:?} {}={} of {}, {}, version {}, lease {:?}; ",
            change.kind,
            entry.key.escape_ascii(),
            entry.value.escape_ascii(),
            entry.create_revision,
            entry.mod_revision,
            entry.version,
            entry.lease
        );
    }
    text
}
