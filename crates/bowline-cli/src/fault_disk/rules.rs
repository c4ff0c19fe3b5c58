//! The rules of a [`FaultDisk`](super::FaultDisk), and the lines that give them.
//!
//! A line has a call, an effect, and what narrows it down. Empty lines and those that begin with `#` do not count.
//!
//! | call | what it is |
//! |---|---|
//! | `read` | bytes of a file are read |
//! | `write` | bytes of a file are written |
//! | `grow` | a file becomes longer, or a name is created |
//! | `flush` | a file or a directory is flushed |
//!
//! | effect | what happens |
//! |---|---|
//! | `eio` | the call does nothing and fails: the disk is broken |
//! | `enospc` | the call does nothing and fails: the disk is full |
//! | `short BYTES` | a read or a write transfers at most so many |
//! | `slow MS` | the call begins so much later |
//!
//! | narrowed by | to |
//! |---|---|
//! | `path TEXT` | calls on paths that contain the text |
//! | `after N` | those after the first N that match |
//! | `times M` | the first M of these |
//!
//! Every rule counts the calls that match it; of several rules that apply to a call, the first is in effect.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;

/// The calls that a rule may be about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Call {
    Read,
    Write,
    Grow,
    Flush,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Call::Read => "read",
            Call::Write => "write",
            Call::Grow => "grow",
            Call::Flush => "flush",
        })
    }
}

/// What a rule does to a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    Fail(Errno),
    Short(usize),
    Slow(Duration),
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effect::Fail(Errno::NOSPC) => f.write_str("enospc"),
            Effect::Fail(_) => f.write_str("eio"),
            Effect::Short(bytes) => write!(f, "short {bytes}"),
            Effect::Slow(delay) => write!(f, "slow {}", delay.as_millis()),
        }
    }
}

/// A wrong line.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct WrongLine {
    number: usize,
    why: String,
}

impl fmt::Display for WrongLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.number, self.why)
    }
}

#[derive(PartialEq, Eq, Debug)]
struct Rule {
    call: Call,
    effect: Effect,
    path: String,
    after: u64,
    times: u64,
    /// How many calls have matched.
    seen: u64,
}

/// The rules of a file, each with the number of calls that it has matched.
#[derive(PartialEq, Eq, Default, Debug)]
pub(super) struct Rules(Vec<Rule>);

impl Rules {
    pub(super) fn parse(text: &str) -> Result<Rules, WrongLine> {
        let lines = (1..).zip(text.lines().map(str::trim));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let rules =
            lines.map(|(number, line)| Rule::parse(line).map_err(|why| WrongLine { number, why }));
        Ok(Rules(rules.collect::<Result<_, _>>()?))
    }

    /// Counts a call, and gives what happens to it.
    pub(super) fn effect(&mut self, call: Call, path: &Path) -> Option<Effect> {
        let mut effect = None;
        let path = path.to_string_lossy();
        for rule in &mut self.0 {
            if rule.call == call && path.contains(&rule.path) {
                let number = rule.seen;
                rule.seen += 1;
                if number >= rule.after && number - rule.after < rule.times {
                    effect = effect.or(Some(rule.effect));
                }
            }
        }
        effect
    }
}

impl Rule {
    fn parse(line: &str) -> Result<Rule, String> {
        let mut words = line.split_whitespace();
        let call = match words.next().unwrap_or_default() {
            "read" => Call::Read,
            "write" => Call::Write,
            "grow" => Call::Grow,
            "flush" => Call::Flush,
            other => return Err(format!("{other:?} is no call: read, write, grow or flush")),
        };
        let number = |word: Option<&str>, of: &str| -> Result<u64, String> {
            let word = word.ok_or_else(|| format!("{of} needs a number"))?;
            word.parse()
                .map_err(|_| format!("{of} {word:?} is no number"))
        };
        let effect = match words.next().unwrap_or_default() {
            "eio" => Effect::Fail(Errno::IO),
            "enospc" => Effect::Fail(Errno::NOSPC),
            "slow" => Effect::Slow(Duration::from_millis(number(words.next(), "slow")?)),
            "short" => match (call, number(words.next(), "short")?) {
                // A read of no bytes would be the end of the file.
                (Call::Read | Call::Write, bytes @ 1..) => {
                    Effect::Short(usize::try_from(bytes).unwrap_or(usize::MAX))
                }
                (Call::Read | Call::Write, _) => return Err("short needs at least 1".to_owned()),
                (call, _) => return Err(format!("a {call} cannot be short")),
            },
            other => {
                return Err(format!(
                    "{other:?} is no effect: eio, enospc, short or slow"
                ));
            }
        };
        let (mut path, mut after, mut times) = (String::new(), 0, u64::MAX);
        while let Some(word) = words.next() {
            match word {
                "path" => words
                    .next()
                    .ok_or("path needs a text")?
                    .clone_into(&mut path),
                "after" => after = number(words.next(), "after")?,
                "times" => times = number(words.next(), "times")?,
                other => return Err(format!("{other:?} is not path, after or times")),
            }
        }
        Ok(Rule {
            call,
            effect,
            path,
            after,
            times,
            seen: 0,
        })
    }
}
