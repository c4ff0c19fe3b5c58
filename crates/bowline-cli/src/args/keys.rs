//! The arguments of the commands about keys and leases, and how writes are acknowledged.

use std::path::PathBuf;
use std::time::Duration;

use bowline::{LeaseId, Revision};
use clap::{Args, Subcommand};

use bowline_load::units::{parse_duration, show_duration};

/// How keys and values are written on the command line and shown.
#[derive(Debug, Clone, Copy, Args)]
pub struct Encoding {
    /// Keys and values are given and shown as hexadecimal digits
    #[arg(long)]
    pub hex: bool,
}

impl Encoding {
    /// The bytes that a text on the command line stands for.
    pub fn decode(self, text: &str) -> Result<Vec<u8>, String> {
        if !self.hex {
            return Ok(text.as_bytes().to_vec());
        }
        let digits: Option<Vec<u8>> = text
            .chars()
            .map(|digit| {
                digit
                    .to_digit(16)
                    .and_then(|digit| u8::try_from(digit).ok())
            })
            .collect();
        match digits {
            Some(digits) if digits.len() % 2 == 0 => Ok(digits
                .chunks_exact(2)
                .map(|pair| pair[0] << 4 | pair[1])
                .collect()),
            _ => Err(format!(
                "{text:?} is not an even number of hexadecimal digits"
            )),
        }
    }
}

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// After it is flushed to the disk.
    Sync,
    /// Before; a crash loses at most this much time.
    Batched {
        /// How often to flush.
        every: Duration,
    },
}

impl Durability {
    /// The span of `batched` where none is given.
    pub(crate) const DEFAULT_SPAN: Duration = Duration::from_millis(10);
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Durability::Sync => f.write_str("sync"),
            Durability::Batched { every } => write!(f, "batched:{}", show_duration(*every)),
        }
    }
}

impl std::str::FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Durability, String> {
        match text.split_once(':') {
            None if text == "sync" => Ok(Durability::Sync),
            None if text == "batched" => Ok(Durability::Batched {
                every: Self::DEFAULT_SPAN,
            }),
            Some(("batched", span)) => match parse_duration(span)? {
                Duration::ZERO => Err("the span is zero: use sync".to_owned()),
                every => Ok(Durability::Batched { every }),
            },
            _ => Err("expected sync, batched, or batched:SPAN as in batched:10ms".to_owned()),
        }
    }
}

/// Options of commands that write.
#[derive(Debug, Clone, Copy, Args)]
pub struct Write {
    /// When a write is acknowledged: `sync` once it is flushed to the disk; `batched[:SPAN]` at once,
    /// and a crash may lose the writes of the last SPAN
    #[arg(long, default_value_t = Durability::Sync, value_name = "WHEN")]
    pub durability: Durability,
}

/// `bowline put`.
#[derive(Debug, Args)]
pub struct Put {
    /// The key
    pub key: String,
    /// The value; read from standard input if absent or `-`
    #[arg(allow_negative_numbers = true)]
    pub value: Option<String>,
    /// Read the value from this file, whatever its bytes
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with = "value")]
    pub file: Option<PathBuf>,
    /// Delete the key when the lease with this id, in hexadecimal, expires
    #[arg(long, value_name = "ID")]
    pub lease: Option<LeaseId>,
    /// How the key and the value are written.
    #[command(flatten)]
    pub encoding: Encoding,
    /// How the write is acknowledged.
    #[command(flatten)]
    pub write: Write,
}

/// `bowline get`.
#[derive(Debug, Args)]
pub struct Get {
    /// The key, or the prefix with --prefix
    pub key: String,
    /// List every key that starts with KEY, as `range --prefix` does
    #[arg(long, conflicts_with = "raw")]
    pub prefix: bool,
    /// With --prefix: at most this many keys
    #[arg(long, value_name = "N", requires = "prefix")]
    pub limit: Option<u64>,
    /// With --prefix: leave out the values
    #[arg(long, requires = "prefix")]
    pub keys_only: bool,
    /// As it was at this revision
    #[arg(long, value_name = "REVISION")]
    pub rev: Option<Revision>,
    /// Write the bytes of the value and nothing else
    ///
    /// They are written as they are, to a terminal, too, which may obey them. Without --raw, what a terminal would obey
    /// is escaped.
    #[arg(long)]
    pub raw: bool,
    /// How the key and the value are written.
    #[command(flatten)]
    pub encoding: Encoding,
}

/// `bowline del`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub struct Del {
    /// The key, or the prefix with --prefix
    #[arg(group = "what")]
    pub key: Option<String>,
    /// Delete every key that starts with KEY
    #[arg(long, requires = "key", conflicts_with = "range")]
    pub prefix: bool,
    /// Delete every key from START up to, not including, END
    #[arg(long, num_args = 2, value_names = ["START", "END"], group = "what")]
    pub range: Option<Vec<String>>,
    /// How the key and the value are written.
    #[command(flatten)]
    pub encoding: Encoding,
    /// How the write is acknowledged.
    #[command(flatten)]
    pub write: Write,
}

/// `bowline range`.
#[derive(Debug, Args)]
pub struct Range {
    /// The first key; the first of all if absent
    pub start: Option<String>,
    /// The key to stop before; none if absent
    #[arg(conflicts_with = "prefix")]
    pub end: Option<String>,
    /// List the keys that start with START
    #[arg(long, requires = "start")]
    pub prefix: bool,
    /// From the last key to the first
    #[arg(long)]
    pub reverse: bool,
    /// At most this many keys
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Leave out the values
    #[arg(long)]
    pub keys_only: bool,
    /// As it was at this revision
    #[arg(long, value_name = "REVISION")]
    pub rev: Option<Revision>,
    /// How the key and the value are written.
    #[command(flatten)]
    pub encoding: Encoding,
}

/// `bowline history`.
#[derive(Debug, Args)]
pub struct History {
    /// The key
    pub key: String,
    /// At most this many versions
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Show who made each change, and when
    #[arg(long)]
    pub who: bool,
    /// How the key and the value are written.
    #[command(flatten)]
    pub encoding: Encoding,
}

/// `bowline watch`.
#[derive(Debug, Args)]
pub struct Watch {
    /// The key, or the prefix with --prefix; everything if absent
    pub key: Option<String>,
    /// Watch every key that starts with KEY
    #[arg(long, requires = "key")]
    pub prefix: bool,
    /// Start with the changes of this revision; with the next one if absent
    #[arg(long, value_name = "REVISION")]
    pub from: Option<Revision>,
    /// Stop after this many changes
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Stop when nothing has changed for this long, as in 500ms or 30s
    #[arg(long, value_parser = parse_duration, value_name = "SPAN")]
    pub timeout: Option<Duration>,
    /// How the key and the value are written.
    #[command(flatten)]
    pub encoding: Encoding,
}

/// `bowline cas`.
#[derive(Debug, Args)]
pub struct Cas {
    /// The key
    pub key: String,
    /// The revision that changed the key last; 0 if it must be absent
    pub expected_revision: Revision,
    /// The new value; read from standard input if `-`
    #[arg(allow_negative_numbers = true)]
    pub value: String,
    /// How the key and the value are written.
    #[command(flatten)]
    pub encoding: Encoding,
    /// How the write is acknowledged.
    #[command(flatten)]
    pub write: Write,
}

/// `bowline lease`.
#[derive(Debug, Subcommand)]
pub enum Lease {
    /// Grant a lease; keys attached to it are deleted when it expires
    #[command(after_help = "Examples:
  bowline lease grant 30s
  bowline lease grant 500ms --id 7")]
    Grant {
        /// Its time to live, as in 500ms or 30s; each renewal starts it anew
        #[arg(value_parser = parse_duration)]
        ttl: Duration,
        /// Its id, in hexadecimal; chosen if absent
        #[arg(long)]
        id: Option<LeaseId>,
    },
    /// Renew a lease, again and again until interrupted
    #[command(after_help = "Examples:
  bowline lease keep-alive 7
  bowline lease keep-alive 7 --once")]
    KeepAlive {
        /// Its id, in hexadecimal
        id: LeaseId,
        /// Only once
        #[arg(long)]
        once: bool,
    },
    /// Revoke a lease and delete its keys
    #[command(after_help = "Examples:
  bowline lease revoke 7")]
    Revoke {
        /// Its id, in hexadecimal
        id: LeaseId,
    },
    /// List leases with their remaining time and their keys
    #[command(after_help = "Examples:
  bowline lease list
  bowline -o json lease list")]
    List,
}
