//! The limit of open files, and its division.
//!
//! Connections, log segments and tables all take open files. If connections took all of them, the next log
//! segment could not be created. So the limit is raised to the system's maximum, and a part of it is never
//! given to connections. The rest is divided between the client port and the peer port:
//!
//! | for | files |
//! |---|---|
//! | log, tables, connections to other members | half of the limit; 192 at least, 65,536 at most |
//! | connections to the peer port | a quarter of the rest, or as many as are wanted |
//! | connections to the client port | what is left, or as many as are wanted |

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The bounds of the reserve for the log, the tables and connections to other members.
const RESERVED_MIN: u64 = 192;
const RESERVED_MAX: u64 = 64 << 10;
/// The minimum of each port. Without connections, no operator could see what is wrong, and no member could
/// reach another.
const CONNECTIONS_MIN: u64 = 16;

/// Raises the limit to the allowed maximum.
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

/// The limit of open files of this process.
pub(crate) fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The connection limits of both ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Connections {
    pub(crate) clients_max: u64,
    pub(crate) peers_max: u64,
}

impl Connections {
    /// Reduces the wanted limits to what `files_max` open files allow.
    pub(crate) fn divide(wanted: Connections, files_max: u64) -> Connections {
        let reserved = (files_max / 2).clamp(RESERVED_MIN, RESERVED_MAX);
        let left = files_max.saturating_sub(reserved);
        let peers_max = wanted.peers_max.min((left / 4).max(CONNECTIONS_MIN));
        let clients = left.saturating_sub(peers_max).max(CONNECTIONS_MIN);
        Connections {
            clients_max: wanted.clients_max.min(clients),
            peers_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The two ports had separate limits, whose sum was the whole limit of open files.
    #[test]
    fn connections_never_have_what_the_member_needs() {
        let divide = |clients_max, files_max| {
            let wanted = Connections {
                clients_max,
                peers_max: 512,
            };
            let divided = Connections::divide(wanted, files_max);
            (divided.clients_max, divided.peers_max)
        };
        assert_eq!(divide(16_384, u64::MAX), (16_384, 512));
        assert_eq!(divide(16_384, 1 << 20), (16_384, 512));
        assert_eq!(divide(16_384, 4096), (1536, 512));
        assert_eq!(divide(16_384, 1024), (384, 128));
        assert_eq!(divide(100, 1024), (100, 128));
        assert_eq!(divide(16_384, 256), (48, 16));
        assert_eq!(divide(16_384, 100), (16, 16));
        for files_max in 256..5000 {
            let (clients, peers) = divide(16_384, files_max);
            let left = files_max - clients - peers;
            assert!(left >= RESERVED_MIN, "{left} of {files_max}");
        }
    }

    #[test]
    fn the_limit_is_raised_to_its_maximum() {
        raise();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        assert_eq!(super::limit(), limit.maximum.unwrap_or(u64::MAX));
    }
}
