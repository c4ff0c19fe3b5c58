//! The checks of `/livez` and `/readyz`, and counters of their results.

use bowline_cluster::ReadLevel;

use super::Counter;

/// One check of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Check {
    /// `livez` or `readyz`.
    pub(crate) kind: &'static str,
    pub(crate) name: &'static str,
    pub(crate) of: CheckOf,
}

/// The condition that is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckOf {
    Read(ReadLevel),
    Corruption,
    /// Whether the audit log is written.
    Audit,
    Learner,
}

/// All checks, with etcd's names; the last is of this server alone, and only where it has an audit log.
pub(crate) const CHECKS: [Check; 6] = [
    Check {
        kind: "livez",
        name: "serializable_read",
        of: CheckOf::Read(ReadLevel::Eventual),
    },
    Check {
        kind: "readyz",
        name: "data_corruption",
        of: CheckOf::Corruption,
    },
    Check {
        kind: "readyz",
        name: "serializable_read",
        of: CheckOf::Read(ReadLevel::Eventual),
    },
    Check {
        kind: "readyz",
        name: "linearizable_read",
        of: CheckOf::Read(ReadLevel::Linearizable),
    },
    Check {
        kind: "readyz",
        name: "non_learner",
        of: CheckOf::Learner,
    },
    Check {
        kind: "readyz",
        name: "audit_log",
        of: CheckOf::Audit,
    },
];

/// Counters of passed and failed checks.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) passed: Counter,
    pub(crate) failed: Counter,
}
