//! Watches over all keys, which go on at another member now and then: every change once, the same on all members.
//!
//! A subscriber polls between two steps, as the stream of a watch does in a member's process. When the process ends,
//! and sometimes without a reason, it goes on at another member from the revision after the last that it was told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline::{Range, Revision, Watcher};
use parking_lot::Mutex;

use crate::history::History;
use crate::member::Member;
use crate::register::{Registers, SeenRegister};
use crate::remote::fence;
use crate::told::{Seen, Told};
use crate::trace::{Trace, name};

/// How often watches are polled.
pub(crate) const POLL_EVERY: Duration = Duration::from_millis(5);
/// How many there are.
const COUNT: usize = 3;
/// One of so many polls is the last at a member.
const MOVES: u32 = 3_000;

/// One who watches.
struct Subscriber {
    watch: Option<(usize, Watcher)>,
    seen: Seen,
}

/// What a watch over the network has told.
pub(crate) enum News {
    Told(Told),
    /// Everything up to there has come.
    Progress(Revision),
    /// What it was to be told next is compacted, up to this revision.
    Compacted(Revision),
}

/// What each revision has changed.
type Past = BTreeMap<Revision, String>;

/// Where watches over the network put what they were told, each with its number.
pub(crate) type Inbox = Arc<Mutex<Vec<(usize, News)>>>;

/// All who watch, and what they were told.
pub(crate) struct Subscribers {
    all: Vec<Subscriber>,
    /// Those over the network.
    remote: Vec<Seen>,
    /// Those over the network that watch one register.
    of_registers: Vec<SeenRegister>,
    pub(crate) inbox: Inbox,
    /// What each revision has changed, as whoever was told first has it.
    changes: Past,
    /// What the registers held, each from a revision on.
    registers: Registers,
    /// The tokens with which writes were made that only the holder of a lock may make.
    guarded: BTreeMap<Revision, u64>,
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
        let new = |number| Subscriber {
            watch: None,
            seen: Seen::new(format!("watch {number}")),
        };
        Subscribers {
            all: (0..COUNT).map(new).collect(),
            remote: Vec::new(),
            of_registers: Vec::new(),
            inbox: Inbox::default(),
            changes: Past::new(),
            registers: Registers::new(),
            guarded: BTreeMap::new(),
            are_compacting,
            random: fastrand::Rng::with_seed(seed),
            trace,
            history,
        }
    }

    /// One more who watches over the network. Gives its number.
    pub(crate) fn add_remote(&mut self, name: &str) -> usize {
        self.remote.push(Seen::new(format!("the watch of {name}")));
        self.remote.len() - 1
    }

    /// One more who watches a register over the network.
    pub(crate) fn add_register(&mut self, name: &str, register: usize) -> SeenRegister {
        let seen = SeenRegister::new(format!("the watch of {name}"), register);
        self.of_registers.push(seen.clone());
        seen
    }

    /// Takes what watches over the network were told. Gives what is wrong.
    pub(crate) fn take_remote(&mut self) -> Result<(), String> {
        let news = std::mem::take(&mut *self.inbox.lock());
        for (number, news) in news {
            let seen = &mut self.remote[number];
            match news {
                News::Told(told) => {
                    seen.add(told.revision)?;
                    let by = seen.name().to_owned();
                    self.note(&by, &told)?;
                }
                News::Progress(revision) => seen.has_all_up_to(revision),
                News::Compacted(oldest) => seen.is_behind(oldest, self.are_compacting)?,
            }
        }
        Ok(())
    }

    /// Notes what somebody was told of a revision, which must be what was told of it before.
    fn note(&mut self, by: &str, told: &Told) -> Result<(), String> {
        let (now, found) = (self.history.lease_now(), told.text());
        let first = { self.changes.entry(told.revision) }.or_insert_with(|| found.clone());
        if *first != found {
            return Err(format!(
                "{by} told of revision {}: {found}, and another member: {first}",
                told.revision
            ));
        }
        self.keep(told);
        { told.deletions() }.for_each(|key| self.history.is_deleted(key, now));
        Ok(())
    }

    /// Keeps what is to be judged in the end.
    fn keep(&mut self, told: &Told) {
        self.registers.extend(told.registers());
        let guarded = told.put_to(fence::GUARDED).filter_map(fence::token_of);
        self.guarded
            .extend(guarded.map(|token| (told.revision, token)));
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
                let target = &members[target];
                self.all[number].begin(number, target, &self.trace, self.are_compacting)?;
            }
            self.poll(number, members)?;
        }
        Ok(())
    }

    /// Takes what a watch has to tell.
    fn poll(&mut self, number: usize, members: &[Member]) -> Result<(), String> {
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
                    let by = name(*at);
                    subscriber.seen.add(told.revision)?;
                    self.note(&by, &Told::from(&told))?;
                }
                Err(error) => {
                    // What is behind the watch was replaced or closed: a client begins anew.
                    let reason = format_args!("watch {number} ends at {}: {error}", name(*at));
                    self.trace.note("", reason);
                    subscriber.watch = None;
                    return subscriber.meet(&error, self.are_compacting);
                }
            }
        }
    }

    /// When all members agree: everyone was told everything, and every member has that past.
    pub(crate) fn finish(&mut self, members: &[Member]) -> Result<(), String> {
        let used: Vec<_> = members.iter().filter(|member| member.is_used()).collect();
        self.judge_pasts(&used)?;
        for number in 0..self.all.len() {
            let member = used[number % used.len()];
            self.all[number].begin(number, member, &self.trace, self.are_compacting)?;
            self.poll(number, members)?;
            self.all[number].seen.judge(&self.changes)?;
            self.all[number].watch = None;
        }
        self.take_remote()?;
        for seen in &self.remote {
            seen.judge(&self.changes)?;
        }
        self.judge_registers()?;
        fence::judge(&self.guarded)?;
        if self.are_compacting {
            // Who was told nothing before it was compacted cannot say what there was.
            return Ok(());
        }
        self.judge_told()
    }

    /// Members that have applied the same have the same past, from where their history begins; and everything that
    /// somebody was told of is in it.
    fn judge_pasts(&mut self, members: &[&Member]) -> Result<(), String> {
        let mut pasts = Vec::new();
        for member in members {
            let (from, past) = self.past_of(member)?;
            let name = name(member.number);
            for (revision, changes) in &past {
                let first = { self.changes.entry(*revision) }.or_insert_with(|| changes.clone());
                if *first != *changes {
                    return Err(format!(
                        "{name} has another revision {revision}: {changes} instead of {first}"
                    ));
                }
            }
            pasts.push((name, from, past));
        }
        // Only now it is known what there is.
        let mut pasts = pasts.iter();
        pasts.try_for_each(|(name, from, past)| has_all(name, *from, past, &self.changes))
    }

    /// The past of a member, with the revision from which on it is to have all.
    fn past_of(&mut self, member: &Member) -> Result<(Revision, Past), String> {
        let name = name(member.number);
        let Some(client) = member.client() else {
            return Err(format!("{name} does not run"));
        };
        let from = match client.compacted_revision() {
            Revision::ZERO => Revision::FIRST,
            compacted if self.are_compacting => compacted + 1,
            compacted => {
                return Err(format!(
                    "{name} has compacted its history up to {compacted}, and nobody has asked for that"
                ));
            }
        };
        let past = member.within(|| {
            let mut watcher = client.db().watch(Range::all()).from(from).start()?;
            let mut past = Past::new();
            while let Some(told) = watcher.try_recv()? {
                let told = Told::from(&told);
                self.keep(&told);
                past.insert(told.revision, told.text());
            }
            Ok::<_, bowline::Error>(past)
        });
        let past = past.map_err(|error| format!("{name}: {error}"))?;
        Ok((from, past))
    }

    /// Watches of one register were told all of its changes.
    fn judge_registers(&mut self) -> Result<(), String> {
        if self.are_compacting {
            // They may have been told of what was compacted before anybody else was.
            for (change, held) in self.of_registers.iter().flat_map(SeenRegister::registers) {
                self.registers.entry(change).or_insert(held);
            }
        }
        for seen in &self.of_registers {
            seen.judge(&self.registers, self.are_compacting)?;
        }
        Ok(())
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
    fn begin(
        &mut self,
        number: usize,
        member: &Member,
        trace: &Trace,
        are_compacting: bool,
    ) -> Result<(), String> {
        let Some(client) = member.client().filter(|_| member.runs()) else {
            return Ok(());
        };
        let from = self.seen.next();
        let started = member.within(|| client.db().watch(Range::all()).from(from).start());
        let at = name(member.number);
        match started {
            Ok(watcher) => {
                trace.note("", format_args!("watch {number} is at {at} from {from} on"));
                self.watch = Some((member.number, watcher));
                Ok(())
            }
            Err(error) => {
                trace.note(
                    "",
                    format_args!("watch {number} is refused at {at}: {error}"),
                );
                self.meet(&error, are_compacting)
            }
        }
    }

    /// Its watch was refused, or has ended. If history is gone, it goes on where that begins.
    fn meet(&mut self, error: &bowline::Error, are_compacting: bool) -> Result<(), String> {
        match error {
            bowline::Error::Compacted { oldest, .. } => {
                self.seen.is_behind(*oldest, are_compacting)
            }
            _ => Ok(()),
        }
    }
}

/// Whether a member whose history begins at `from` has every revision from there on that somebody was told of.
fn has_all(member: &str, from: Revision, past: &Past, told: &Past) -> Result<(), String> {
    let mut told = told.range(from..);
    match told.find(|(revision, _)| !past.contains_key(revision)) {
        None => Ok(()),
        Some((missing, _)) => Err(format!(
            "{member} lacks revision {missing}, which another member has or a watch was told"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the past of each member only what it had was compared. A revision that was told, and that one member or all of
    /// them had lost since, was missed by nobody.
    #[test]
    fn a_member_that_lacks_a_revision_that_others_were_told_is_named() {
        let revision = Revision::new;
        let past = |revisions: &[u64]| -> Past {
            let revisions = revisions.iter().map(|number| revision(*number));
            revisions.map(|number| (number, String::new())).collect()
        };
        let told = past(&[2, 3, 5, 9]);
        has_all("m1", revision(1), &told, &told).expect("it has all");
        for (lost, kept) in [
            (2, past(&[3, 5, 9])),
            (5, past(&[2, 3, 9])),
            (9, past(&[2, 3, 5])),
        ] {
            let lacks = has_all("m1", revision(1), &kept, &told).expect_err("it lacks one");
            assert!(
                lacks.starts_with(&format!("m1 lacks revision {lost},")),
                "{lacks}"
            );
        }
        // What is compacted may be gone, or be there still.
        has_all("m1", revision(4), &past(&[5, 9]), &told).expect("the others are compacted");
        has_all("m1", revision(4), &past(&[3, 5, 9]), &told).expect("one of them is there");
    }
}
