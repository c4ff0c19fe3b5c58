//! The text format of histories, to store interesting ones.
//!
//! One line per transaction: `t process invoked completed outcome snapshot revision operations`, with `-` for
//! unknown fields; operations are separated by `; `. Lines that begin with `#` and empty ones are skipped.
//!
//! | operation | text |
//! |---|---|
//! | read | `r key seen` |
//! | scan | `s lower upper key=seen key=seen` |
//! | expect | `e key seen` |
//! | write, append, delete | `w key number`, `a key number`, `d key number` |
//!
//! The seen contents: `0` for absent, a number, or a list as `[1,2,3]`; then `@revision`, if known.

use std::fmt::{self, Write};

use super::history::{History, Op, Outcome, Seen, Transaction, Version};

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Version::Absent => f.write_char('0')?,
            Version::Value(value) => write!(f, "{value}")?,
            Version::List(items) => {
                let items: Vec<_> = items.iter().map(u64::to_string).collect();
                write!(f, "[{}]", items.join(","))?;
            }
        }
        match self.revision {
            Some(revision) => write!(f, "@{revision}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Read { key, seen } => write!(f, "r {key} {seen}"),
            Op::Expect { key, seen } => write!(f, "e {key} {seen}"),
            Op::Write { key, value } => write!(f, "w {key} {value}"),
            Op::Append { key, value } => write!(f, "a {key} {value}"),
            Op::Delete { key, value } => write!(f, "d {key} {value}"),
            Op::Scan {
                lower,
                upper,
                found,
            } => {
                write!(f, "s {lower} {upper}")?;
                for (key, seen) in found {
                    write!(f, " {key}={seen}")?;
                }
                Ok(())
            }
        }
    }
}

fn or_dash(number: Option<u64>) -> String {
    number.map_or("-".to_owned(), |number| number.to_string())
}

impl fmt::Display for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (outcome, revision) = match self.outcome {
            Outcome::Committed(revision) => ("committed", revision),
            Outcome::Aborted => ("aborted", None),
            Outcome::Unknown => ("unknown", None),
        };
        let ops: Vec<_> = self.ops.iter().map(Op::to_string).collect();
        write!(
            f,
            "t {} {} {} {outcome} {} {} {}",
            self.process,
            self.invoked,
            or_dash(self.completed),
            or_dash(self.snapshot),
            or_dash(revision),
            ops.join("; ")
        )
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for transaction in &self.transactions {
            writeln!(f, "{transaction}")?;
        }
        Ok(())
    }
}

impl History {
    /// Parses a history from [`ToString::to_string`], or a manual one.
    ///
    /// # Errors
    /// The error and its line.
    pub fn parse(text: &str) -> Result<History, String> {
        let mut transactions = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let transaction = parse_transaction(line);
            let located = |what| format!("line {}: {what}: {line}", number + 1);
            transactions.push(transaction.map_err(located)?);
        }
        Ok(History { transactions })
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

fn optional(text: &str) -> Result<Option<u64>, String> {
    (text != "-").then(|| number(text)).transpose()
}

fn parse_transaction(line: &str) -> Result<Transaction, String> {
    let fields: Vec<&str> = line.splitn(8, ' ').collect();
    let [
        tag,
        process,
        invoked,
        completed,
        outcome,
        snapshot,
        revision,
        ref rest @ ..,
    ] = fields[..]
    else {
        return Err("a transaction has at least seven fields".to_owned());
    };
    if tag != "t" {
        return Err(format!("{tag:?} is not a transaction"));
    }
    let outcome = match outcome {
        "committed" => Outcome::Committed(optional(revision)?),
        "aborted" => Outcome::Aborted,
        "unknown" => Outcome::Unknown,
        other => return Err(format!("{other:?} is no outcome")),
    };
    let ops = rest.first().unwrap_or(&"").split("; ");
    let ops = ops.filter(|op| !op.trim().is_empty());
    Ok(Transaction {
        process: number(process)?,
        invoked: number(invoked)?,
        completed: optional(completed)?,
        outcome,
        snapshot: optional(snapshot)?,
        ops: ops.map(parse_op).collect::<Result<_, _>>()?,
    })
}

fn parse_op(text: &str) -> Result<Op, String> {
    let mut words = text.split_whitespace();
    let mut next = || words.next().ok_or_else(|| format!("{text:?} is too short"));
    let (tag, key) = (next()?, next()?.to_owned());
    Ok(match tag {
        "r" => Op::Read {
            key,
            seen: parse_seen(next()?)?,
        },
        "e" => Op::Expect {
            key,
            seen: parse_seen(next()?)?,
        },
        "w" => Op::Write {
            key,
            value: number(next()?)?,
        },
        "a" => Op::Append {
            key,
            value: number(next()?)?,
        },
        "d" => Op::Delete {
            key,
            value: number(next()?)?,
        },
        "s" => {
            let upper = next()?.to_owned();
            let mut found = Vec::new();
            for word in words {
                let (key, seen) = word
                    .split_once('=')
                    .ok_or_else(|| format!("{word:?} is not key=seen"))?;
                found.push((key.to_owned(), parse_seen(seen)?));
            }
            Op::Scan {
                lower: key,
                upper,
                found,
            }
        }
        other => return Err(format!("{other:?} is no operation")),
    })
}

fn parse_seen(text: &str) -> Result<Seen, String> {
    let (version, revision) = match text.split_once('@') {
        Some((version, revision)) => (version, Some(number(revision)?)),
        None => (text, None),
    };
    let list = version
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let version = match list {
        Some("") => Version::List(Vec::new()),
        Some(items) => Version::List(items.split(',').map(number).collect::<Result<_, _>>()?),
        None => match number(version)? {
            0 => Version::Absent,
            value => Version::Value(value),
        },
    };
    Ok(Seen { version, revision })
}
