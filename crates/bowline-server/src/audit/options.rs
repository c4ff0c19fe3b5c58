//! What is written, where to, and what happens when that is not possible.

use std::path::PathBuf;
use std::time::Duration;

/// The kinds of calls, of which an operator asks for some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Class {
    /// Reads of keys and of the graph.
    Read,
    /// Changes of keys and of the graph, locks and elections.
    Write,
    /// Watches.
    Watch,
    /// Leases.
    Lease,
    /// Logins.
    Login,
    /// Members, users, roles, maintenance, snapshots.
    Admin,
    /// Health, and the description of the services.
    Health,
}

impl Class {
    /// All, with their names in `--audit-events`.
    const NAMES: [(&str, Class); 7] = [
        ("reads", Class::Read),
        ("writes", Class::Write),
        ("watches", Class::Watch),
        ("leases", Class::Lease),
        ("logins", Class::Login),
        ("admin", Class::Admin),
        ("health", Class::Health),
    ];

    /// Its name in a line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Class::Read => "read",
            Class::Write => "write",
            Class::Watch => "watch",
            Class::Lease => "lease",
            Class::Login => "login",
            Class::Admin => "admin",
            Class::Health => "health",
        }
    }
}

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Events {
    classes: u8,
    /// Calls that end with an error, of all classes but health.
    pub(crate) refused: bool,
}

impl Events {
    /// Reads a list of names, separated by commas.
    pub(crate) fn parse(text: &str) -> Result<Events, String> {
        let mut events = Events::default();
        for name in text.split(',').map(str::trim) {
            let known = Class::NAMES.iter().find(|(known, _)| *known == name);
            match (name, known) {
                ("all", _) => {
                    events.classes = u8::MAX;
                    events.refused = true;
                }
                ("refused", _) => events.refused = true,
                (_, Some((_, class))) => events.classes |= 1 << *class as u8,
                _ => {
                    let names: Vec<_> = Class::NAMES.iter().map(|(name, _)| *name).collect();
                    let names = names.join(", ");
                    return Err(format!("{name:?} is none of {names}, refused and all"));
                }
            }
        }
        Ok(events)
    }

    /// Whether calls of a class are written.
    pub(crate) fn has(self, class: Class) -> bool {
        self.classes & 1 << class as u8 != 0
    }
}

/// What happens when the queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// Calls wait, and are then refused.
    Block,
    /// Lines are dropped and counted.
    Drop,
}

/// Where lines are written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// A file, which rotates.
    File(PathBuf),
    /// Standard output.
    StandardOutput,
}

/// The settings of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuditOptions {
    pub(crate) target: Target,
    pub(crate) events: Events,
    pub(crate) overflow: Overflow,
    /// A file is at most so long.
    pub(crate) file_bytes_max: u64,
    /// So many files there are at most, with the newest.
    pub(crate) files_max: u32,
    /// The limit of the queue.
    pub(crate) queue_bytes_max: usize,
    /// How long a call waits for room.
    pub(crate) wait_max: Duration,
}

impl AuditOptions {
    /// How long a call waits for room.
    pub(crate) const WAIT_MAX: Duration = Duration::from_secs(5);
    /// A file holds many lines.
    pub(crate) const FILE_BYTES_MIN: u64 = 64 << 10;
    /// The queue holds many lines.
    pub(crate) const QUEUE_BYTES_MIN: u64 = 64 << 10;
}
