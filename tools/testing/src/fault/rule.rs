//! Rules of injected faults.

use std::fmt;
use std::io;
use std::path::Path;

/// The kinds of calls of a [`Vfs`](bowline_storage::vfs::Vfs) and its files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Call {
    /// An existing file is opened.
    Open,
    /// A file is created.
    Create,
    /// A directory is created.
    CreateDir,
    /// A directory is listed.
    ReadDir,
    /// The metadata of a name, or the length of an open file, is read.
    Stat,
    /// A file is renamed.
    Rename,
    /// A file is removed.
    Remove,
    /// A directory is synced.
    SyncDir,
    /// A lock is taken.
    Lock,
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// A file is synced.
    Sync,
    /// A file is truncated or extended.
    SetLen,
}

impl Call {
    /// All kinds of calls.
    pub const ALL: [Call; 13] = [
        Call::Open,
        Call::Create,
        Call::CreateDir,
        Call::ReadDir,
        Call::Stat,
        Call::Rename,
        Call::Remove,
        Call::SyncDir,
        Call::Lock,
        Call::Read,
        Call::Write,
        Call::Sync,
        Call::SetLen,
    ];

    /// Whether the call changes or syncs something.
    #[must_use]
    pub fn is_change(self) -> bool {
        !matches!(
            self,
            Call::Open | Call::ReadDir | Call::Stat | Call::Lock | Call::Read
        )
    }

    /// Whether the call may need space on the disk: every change except a removal.
    #[must_use]
    pub fn needs_space(self) -> bool {
        self.is_change() && self != Call::Remove
    }
}

/// An error of the operating system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// `EIO`: the disk failed.
    Io,
    /// `ENOSPC`: the disk is full.
    NoSpace,
    /// `EMFILE`: the process may open no more files.
    NoFile,
    /// `EINTR`: a signal arrived; the caller should retry.
    Interrupted,
    /// Any other, by its number.
    Os(i32),
}

impl Failure {
    /// The error as the operating system would return it.
    #[must_use]
    pub fn to_error(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            Failure::Io => 5,
            Failure::NoSpace => 28,
            Failure::NoFile => 24,
            Failure::Interrupted => 4,
            Failure::Os(code) => code,
        })
    }
}

/// The effect of a rule on a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    /// The call does nothing and fails.
    Fail(Failure),
    /// The call does its work, then fails: the outcome is unknown to the caller.
    FailAfter(Failure),
    /// The call reads or writes at most so many bytes. Other calls are not affected.
    Short(usize),
    /// The call panics and does nothing.
    Panic,
}

/// Which calls fail, and how. The default is the next matching call, once.
///
/// ```
/// use bowline_testing::fault::{Call, Failure, Rule};
///
/// let third_sync_of_a_log = Rule::on(Call::Sync).nth(3).path("log").fail(Failure::Io);
/// let all_writes_from_now_on = Rule::on(Call::Write).for_ever().fail(Failure::NoSpace);
/// # let _ = (third_sync_of_a_log, all_writes_from_now_on);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    matching: Matching,
    path: Option<String>,
    nth: u64,
    times: u64,
    pub(super) effect: Effect,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Matching {
    One(Call),
    Changes,
    NeedsSpace,
    All,
}

impl Rule {
    fn new(matching: Matching) -> Rule {
        Rule {
            matching,
            path: None,
            nth: 1,
            times: 1,
            effect: Effect::Fail(Failure::Io),
        }
    }

    /// A rule for calls of one kind.
    #[must_use]
    pub fn on(call: Call) -> Rule {
        Rule::new(Matching::One(call))
    }

    /// A rule for all calls that change or sync something.
    #[must_use]
    pub fn on_changes() -> Rule {
        Rule::new(Matching::Changes)
    }

    /// A rule for all calls that may need space on the disk.
    #[must_use]
    pub fn on_calls_that_need_space() -> Rule {
        Rule::new(Matching::NeedsSpace)
    }

    /// A rule for all calls.
    #[must_use]
    pub fn on_all() -> Rule {
        Rule::new(Matching::All)
    }

    /// Starts at the n-th matching call after the rule is added; 1 is the next.
    #[must_use]
    pub fn nth(mut self, nth: u64) -> Rule {
        self.nth = nth.max(1);
        self
    }

    /// Applies to that many matching calls in a row.
    #[must_use]
    pub fn times(mut self, times: u64) -> Rule {
        self.times = times;
        self
    }

    /// Applies to every matching call from the first on, until the rules are cleared.
    #[must_use]
    pub fn for_ever(self) -> Rule {
        self.times(u64::MAX)
    }

    /// Matches only calls on a path that contains `part` (for a rename, either path).
    #[must_use]
    pub fn path(mut self, part: &str) -> Rule {
        self.path = Some(part.to_owned());
        self
    }

    /// The call does nothing and fails. The default of a rule, with [`Failure::Io`].
    #[must_use]
    pub fn fail(mut self, failure: Failure) -> Rule {
        self.effect = Effect::Fail(failure);
        self
    }

    /// The call does its work, then fails.
    #[must_use]
    pub fn fail_after(mut self, failure: Failure) -> Rule {
        self.effect = Effect::FailAfter(failure);
        self
    }

    /// A read or write handles at most `bytes` bytes.
    #[must_use]
    pub fn short(mut self, bytes: usize) -> Rule {
        self.effect = Effect::Short(bytes);
        self
    }

    /// The call panics, as with a bug in an implementation of `Vfs`.
    #[must_use]
    pub fn panic(mut self) -> Rule {
        self.effect = Effect::Panic;
        self
    }

    pub(super) fn matches(&self, call: Call, paths: &[&Path]) -> bool {
        let kind_matches = match self.matching {
            Matching::One(wanted) => wanted == call,
            Matching::Changes => call.is_change(),
            Matching::NeedsSpace => call.needs_space(),
            Matching::All => true,
        };
        kind_matches
            && self.path.as_ref().is_none_or(|part| {
                paths
                    .iter()
                    .any(|path| path.to_string_lossy().contains(part.as_str()))
            })
    }

    /// Whether the `seen`-th matching call (from 1) fails.
    pub(super) fn applies_to(&self, seen: u64) -> bool {
        seen >= self.nth && seen - self.nth < self.times
    }
}

/// The number of calls of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    by_call: [u64; Call::ALL.len()],
}

impl Counts {
    pub(super) fn add(&mut self, call: Call) -> u64 {
        self.by_call[call as usize] += 1;
        self.by_call[call as usize]
    }

    /// Calls of one kind.
    #[must_use]
    pub fn get(&self, call: Call) -> u64 {
        self.by_call[call as usize]
    }

    /// Calls of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.by_call.iter().sum()
    }

    /// Calls that change or sync something: what [`Rule::on_changes`] counts.
    #[must_use]
    pub fn changes(&self) -> u64 {
        Call::ALL
            .into_iter()
            .filter(|call| call.is_change())
            .map(|call| self.get(call))
            .sum()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} calls", self.total())?;
        for call in Call::ALL.into_iter().filter(|call| self.get(*call) > 0) {
            write!(f, ", {call:?} {}", self.get(call))?;
        }
        Ok(())
    }
}
