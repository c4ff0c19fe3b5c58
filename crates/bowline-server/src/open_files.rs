//! The files that the process may have open, and how they are divided.
//!
//! A connection is an open file, and so are the log, the tables and the connections of the other members. When
//! clients have all of them, the next segment of the log cannot be made, and the member stops. So the limit is
//! raised to the most that the system allows, and of it a part is never given to clients.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The least and the most that the log, the tables and other members have for themselves.
const RESERVED_MIN: u64 = 192;
const RESERVED_MAX: u64 = 64 << 10;
/// So many connections there may be however few files there are: without any, nobody could ask what is wrong.
const CONNECTIONS_MIN: u64 = 16;

/// Raises the limit to the most that is allowed.
pub(crate) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        tracing::warn!(%error, "the limit of open files cannot be raised");
    }
}

/// How many files the process may have open.
pub(crate) fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many connections of clients there may be, of so many open files.
pub(crate) fn connections_max(wanted: u64, files_max: u64) -> u64 {
    let reserved = (files_max / 2).clamp(RESERVED_MIN, RESERVED_MAX);
    let left = files_max.saturating_sub(reserved).max(CONNECTIONS_MIN);
    wanted.min(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_never_have_what_the_member_needs() {
        assert_eq!(connections_max(16_384, u64::MAX), 16_384);
        assert_eq!(connections_max(16_384, 1 << 20), 16_384);
        assert_eq!(connections_max(16_384, 1024), 512);
        assert_eq!(connections_max(100, 1024), 100);
        assert_eq!(connections_max(16_384, 256), 64);
        assert_eq!(connections_max(16_384, 100), 16);
    }

    #[test]
    fn the_limit_is_raised_to_its_maximum() {
        raise();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        assert_eq!(super::limit(), limit.maximum.unwrap_or(u64::MAX));
    }
}
