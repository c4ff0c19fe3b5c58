//! The names of the health checks under `/livez` and `/readyz`, and what each of them tests.

use bowline_cluster::ReadLevel;

/// One check of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Check {
    /// `livez` or `readyz`.
    pub(crate) kind: &'static str,
    pub(crate) name: &'static str,
    pub(crate) of: Of,
}

/// What is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    Read(ReadLevel),
    Corruption,
    Learner,
}

/// All checks, by the names that etcd gives them.
pub(crate) const CHECKS: [Check; 5] = [
    Check {
        kind: "livez",
        name: "serializable_read",
        of: Of::Read(ReadLevel::Eventual),
    },
    Check {
        kind: "readyz",
        name: "data_corruption",
        of: Of::Corruption,
    },
    Check {
        kind: "readyz",
        name: "serializable_read",
        of: Of::Read(ReadLevel::Eventual),
    },
    Check {
        kind: "readyz",
        name: "linearizable_read",
        of: Of::Read(ReadLevel::Linearizable),
    },
    Check {
        kind: "readyz",
        name: "non_learner",
        of: Of::Learner,
    },
];
