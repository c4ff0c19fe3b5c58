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
    changes: BTreeMap<Revision, String>,
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
            changes: BTreeMap::new(),
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
                News::Compacted(oldest) if self.are_compacting => seen.is_behind(oldest),
                News::Compacted(oldest) => {
                    return Err(format!(
                        "{} has lost history that is kept, up to {oldest}",
                        seen.name()
                    ));
                }
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
                self.all[number].begin(number, &members[target], &self.trace);
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
                    if let bowline::Error::Compacted { oldest, .. } = error {
                        if !self.are_compacting {
                            return Err(format!("a watch has lost history that is kept: {error}"));
                        }
                        subscriber.seen.is_behind(oldest);
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
                    let told = Told::from(&told);
                    self.keep(&told);
                    past.insert(told.revision, told.text());
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
    fn begin(&mut self, number: usize, member: &Member, trace: &Trace) {
        let Some(client) = member.client().filter(|_| member.runs()) else {
            return;
        };
        let from = self.seen.next();
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
                    self.seen.is_behind(oldest);
                }
            }
        }
    }
}
