//! [`ReadLevel`]: the required freshness of a read from a cluster.

use std::fmt;
use std::str::FromStr;

/// The required freshness of a read.
///
/// ```
/// use bowline_types::ReadLevel;
///
/// // From a command line, also with etcd's words and letters, and back.
/// let level: ReadLevel = "lease".parse().expect("a level");
/// assert_eq!(level.name(), "lease");
/// assert_eq!("serializable".parse(), Ok(ReadLevel::Eventual));
/// assert_eq!("l".parse(), Ok(ReadLevel::Linearizable));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReadLevel {
    /// The read sees every write acknowledged before it began. The leader confirms its leadership with a
    /// majority; no clock is trusted.
    #[default]
    Linearizable,
    /// The same, if clocks run at nearly the same speed: the leader relies on its lease instead of a
    /// majority. Servers without this level, such as etcd, read linearizably.
    Lease,
    /// The read sees the applied state of the member: consistent, possibly old. etcd calls it
    /// serializable.
    Eventual,
}

impl ReadLevel {
    /// As it is written in metadata and on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ReadLevel::Linearizable => "linearizable",
            ReadLevel::Lease => "lease",
            ReadLevel::Eventual => "eventual",
        }
    }
}

impl fmt::Display for ReadLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ReadLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<ReadLevel, String> {
        match text {
            "l" | "linearizable" => Ok(ReadLevel::Linearizable),
            "lease" => Ok(ReadLevel::Lease),
            "e" | "eventual" | "s" | "serializable" => Ok(ReadLevel::Eventual),
            _ => Err("expected linearizable, lease or eventual".to_owned()),
        }
    }
}
