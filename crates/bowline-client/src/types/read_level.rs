//! Read levels.

use std::fmt;
use std::str::FromStr;

/// How fresh a read has to be, and what that costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReadLevel {
    /// Every write that was acknowledged before the read began is seen. The leader asks a majority
    /// whether it still leads; no clock is trusted.
    #[default]
    Linearizable,
    /// The same, as long as clocks run at nearly the same speed: the leader trusts its lease and asks
    /// nobody. A server that does not know it, such as etcd, reads linearizably.
    Lease,
    /// Whatever the member that is asked has applied: never torn, possibly old. etcd calls it
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
            "linearizable" => Ok(ReadLevel::Linearizable),
            "lease" => Ok(ReadLevel::Lease),
            "eventual" | "serializable" => Ok(ReadLevel::Eventual),
            _ => Err("expected linearizable, lease or eventual".to_owned()),
        }
    }
}
