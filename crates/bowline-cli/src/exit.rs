//! How the program ends: one small table of exit codes that scripts can rely on.
//!
//! The codes never change their meaning. `2` is what the argument parser uses, `1` is what `grep`
//! and `diff` use for "the answer is no". Everything else is grouped by what a script would do
//! next: look again, retry, fix its input, wait, restore, make room, report.

use std::fmt;
use std::io;
use std::process::{ExitCode, Termination};

use bowline_client::Code;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// The answer is "no": no such key, block, lease or path, or a wait that ran out.
    NotFound = 1,
    /// The command line is not understood.
    Usage = 2,
    /// A compare-and-swap lost, or a transaction kept conflicting. Nothing was written.
    Conflict = 3,
    /// What was given is not acceptable: a malformed file, a value too large, a revision that is
    /// compacted or in the future.
    Invalid = 4,
    /// Another process has the data directory open.
    Locked = 5,
    /// Bytes on disk are damaged or missing.
    Corrupt = 6,
    /// The operating system refused: no space, no permission, no such file.
    Io = 7,
    /// A bug in Bowline.
    Internal = 8,
    /// No server could be reached, or none that could answer. Nothing was written.
    Unreachable = 9,
    /// The request was sent, and no answer says what came of it.
    Unknown = 10,
}

impl Exit {
    /// Every way to end, in the order of the codes.
    pub const ALL: [Exit; 11] = [
        Exit::Done,
        Exit::NotFound,
        Exit::Usage,
        Exit::Conflict,
        Exit::Invalid,
        Exit::Locked,
        Exit::Corrupt,
        Exit::Io,
        Exit::Internal,
        Exit::Unreachable,
        Exit::Unknown,
    ];

    /// The number the shell sees.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// One line for the help.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Exit::Done => "done",
            Exit::NotFound => "not found: no such key, block, lease or path; or a wait ran out",
            Exit::Usage => "the command line is not understood",
            Exit::Conflict => "a compare-and-swap lost, or a transaction kept conflicting",
            Exit::Invalid => {
                "input refused: malformed file, value too large, revision out of range"
            }
            Exit::Locked => "another process has the data directory open",
            Exit::Corrupt => "bytes on disk are damaged or missing",
            Exit::Io => "the system refused: no space, no permission, no such file",
            Exit::Internal => "a bug in bowline; please report it",
            Exit::Unreachable => {
                "no server could be reached, or none could answer; nothing was written"
            }
            Exit::Unknown => "no answer says whether the change was made; read it back",
        }
    }

    /// How an error of the database ends the program. The one place that decides it.
    #[must_use]
    pub(crate) fn of_database(error: &bowline::Error) -> Exit {
        use bowline::Error as E;
        match error {
            E::Storage(error) => Exit::of_storage(error),
            E::Conflict { .. }
            | E::TooManyConflicts { .. }
            | E::CompareFailed { .. }
            | E::NotUnique { .. }
            | E::IndexExists { .. }
            | E::LeaseExists { .. } => Exit::Conflict,
            E::MissingBlock { .. }
            | E::UnknownKind { .. }
            | E::LeaseNotFound { .. }
            | E::IndexNotFound { .. }
            // The user has ended it, as one ends a wait.
            | E::Canceled => Exit::NotFound,
            E::EmptyKey
            | E::KeyTooLarge { .. }
            | E::ValueTooLarge { .. }
            | E::TransactionTooLarge { .. }
            | E::NotAscending { .. }
            | E::InvalidRange { .. }
            | E::FutureRevision { .. }
            | E::Compacted { .. }
            | E::InvalidKind { .. }
            | E::TooManyKinds { .. }
            | E::InvalidIndex { .. }
            | E::BuiltNotUnique { .. }
            | E::Cycle { .. }
            | E::InvalidWeight { .. }
            | E::InvalidTtl { .. }
            | E::NotUpdatable { .. }
            | E::NotSupported { .. } => Exit::Invalid,
            E::InvalidRecord { .. } => Exit::Corrupt,
            // This program used what it had closed.
            E::Closed => Exit::Internal,
            // The enum may grow.
            _ => Exit::Internal,
        }
    }

    /// How an error of the engine below ends the program.
    pub(crate) fn of_storage(error: &bowline_storage::Error) -> Exit {
        use bowline_storage::Error as E;
        match error {
            E::Io { .. } | E::NoSpace { .. } | E::TooManyFiles { .. } | E::Poisoned { .. } => {
                Exit::Io
            }
            E::Corrupt { .. } | E::MissingFile { .. } => Exit::Corrupt,
            E::Locked { .. } => Exit::Locked,
            E::NotADatabase { .. }
            | E::Member { .. }
            | E::NewerFormat { .. }
            | E::Unsupported { .. }
            | E::BatchTooLarge { .. }
            // As of a revision that is compacted.
            | E::Replaced { .. } => Exit::Invalid,
            // This program used what it had closed, or the engine found itself in a state that it excludes.
            E::Closed | E::Internal(_) => Exit::Internal,
            // The enum may grow.
            _ => Exit::Internal,
        }
    }

    /// How an error of the client ends the program.
    #[must_use]
    pub fn of_client(error: &bowline_client::Error) -> Exit {
        use bowline_client::Error as E;
        match error {
            E::LeaseExists
            | E::MemberExists
            | E::PeerAddressExists
            | E::UserExists
            | E::RoleExists
            | E::Conflict { .. }
            | E::TooManyConflicts { .. }
            | E::Contended { .. }
            | E::NotUnique { .. }
            | E::IndexExists { .. }
            | E::CompareFailed { .. } => Exit::Conflict,
            E::LeaseNotFound
            | E::KeyNotFound
            | E::MemberNotFound
            | E::UserNotFound
            | E::RoleNotFound
            | E::RoleNotGranted
            | E::PermissionNotGranted
            | E::NotFound { .. }
            | E::LeaseLost { .. } => Exit::NotFound,
            E::InvalidEndpoint { .. } => Exit::Usage,
            E::Corrupt => Exit::Corrupt,
            E::NoSpace
            | E::QuotaExceeded { .. }
            | E::PermissionDenied
            | E::UserRequired
            | E::InvalidToken
            | E::AuthenticationFailed { .. } => Exit::Io,
            E::UnknownOutcome { .. } => Exit::Unknown,
            error if error.is_retryable() => Exit::Unreachable,
            // Another member answers.
            E::NotForLearner => Exit::Unreachable,
            E::InvalidReply { .. } | E::WatchCanceled { .. } => Exit::Unreachable,
            E::Other { code, .. } => Exit::of_code(*code),
            // What is left was refused for what it asked.
            _ => Exit::Invalid,
        }
    }

    /// How an error of which only the code is known ends the program.
    fn of_code(code: Code) -> Exit {
        match code {
            Code::InvalidArgument
            | Code::OutOfRange
            | Code::FailedPrecondition
            | Code::Unimplemented => Exit::Invalid,
            Code::NotFound => Exit::NotFound,
            Code::AlreadyExists | Code::Aborted => Exit::Conflict,
            Code::PermissionDenied | Code::Unauthenticated => Exit::Io,
            Code::DataLoss => Exit::Corrupt,
            _ => Exit::Unreachable,
        }
    }

    /// The table for the help text.
    #[must_use]
    pub fn table() -> String {
        let mut table = String::from("Exit codes:\n");
        for exit in Exit::ALL {
            table.push_str(&format!("{:>3}  {}\n", exit.code(), exit.meaning()));
        }
        table.truncate(table.trim_end().len());
        table
    }
}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        ExitCode::from(self.code())
    }
}

/// A command that did not get done: the code to end with and what to tell the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The code to end with.
    pub exit: Exit,
    /// What happened and what to do next, without a trailing newline. Empty where the code says
    /// it all, as it does when the reader of a pipe has gone.
    pub message: String,
}

impl Failure {
    /// A failure with its message.
    pub fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure {
            exit,
            message: message.into(),
        }
    }

    /// The failure of a command that the user ended: it may have changed something before.
    pub(crate) fn interrupted() -> Failure {
        Failure::new(Exit::Unknown, Interrupted.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<bowline::Error> for Failure {
    fn from(error: bowline::Error) -> Failure {
        if matches!(error, bowline::Error::Canceled) {
            // Only an interrupt cancels here; a command says the same wherever it noticed it.
            return Failure::new(Exit::of_database(&error), Interrupted.to_string());
        }
        Failure::new(Exit::of_database(&error), with_sources(&error))
    }
}

impl From<bowline_client::Error> for Failure {
    fn from(error: bowline_client::Error) -> Failure {
        if matches!(error, bowline_client::Error::UserRequired) {
            let text = "the server answers users only: give --user NAME, or BOWLINE_USER and BOWLINE_PASSWORD";
            return Failure::new(Exit::of_client(&error), text);
        }
        Failure::new(Exit::of_client(&error), with_sources(&error))
    }
}

impl From<bowline_load::Error> for Failure {
    fn from(error: bowline_load::Error) -> Failure {
        use bowline_load::Error as E;
        match error {
            E::Usage(message) => Failure::new(Exit::Usage, message),
            E::NotFound(message) => Failure::new(Exit::NotFound, message),
            E::Worse(message) => Failure::new(Exit::NotFound, message),
            E::Unreachable(message) => Failure::new(Exit::Unreachable, message),
            E::System(message) => Failure::new(Exit::Io, message),
            E::Internal(message) => Failure::new(Exit::Internal, message),
            E::Io(error) => error.into(),
            E::Client(error) => error.into(),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        if matches!(error.get_ref(), Some(cause) if cause.is::<Interrupted>()) {
            return Failure::interrupted();
        }
        match error.kind() {
            // `bowline range | head` is no failure.
            io::ErrorKind::BrokenPipe => Failure::new(Exit::Done, ""),
            io::ErrorKind::InvalidData => Failure::new(Exit::Invalid, with_sources(&error)),
            _ => Failure::new(Exit::Io, with_sources(&error)),
        }
    }
}

/// That a command was ended, as the error of a reader.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// An error and its chain of causes on one line.
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // A transparent wrapper shows its source's text already.
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use bowline::{Expected, Revision};
    use std::path::Path;

    use super::*;

    #[test]
    fn codes_are_what_the_documentation_promises() {
        let codes: Vec<u8> = Exit::ALL.iter().map(|exit| exit.code()).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert!(Exit::table().contains("  5  another process has the data directory open"));
        assert!(!Exit::table().ends_with('\n'));
    }

    #[test]
    fn errors_of_the_database_map_to_what_a_script_would_do_next() {
        let lost = bowline::Error::CompareFailed {
            key: "\"k\"".into(),
            expected: Expected::Revision(Revision::new(1)),
            actual: Some(Revision::new(2)),
        };
        assert_eq!(Exit::of_database(&lost), Exit::Conflict);
        assert_eq!(Exit::of_database(&bowline::Error::EmptyKey), Exit::Invalid);
        assert_eq!(Exit::of_database(&bowline::Error::Closed), Exit::Internal);
        let locked = bowline_storage::Error::Locked { path: "d".into() };
        assert_eq!(Exit::of_database(&locked.into()), Exit::Locked);
        let damaged = bowline_storage::Error::corrupt(Path::new("d/1.table"), 7, "bad checksum");
        assert_eq!(Exit::of_database(&damaged.into()), Exit::Corrupt);
        let member = bowline_storage::Error::Member { path: "d".into() };
        assert_eq!(Exit::of_database(&member.into()), Exit::Invalid);
    }

    #[test]
    fn errors_of_a_cluster_map_to_the_codes_of_a_directory() {
        use bowline_client::Error as E;
        let unknown = E::UnknownOutcome {
            cause: Box::new(E::TimedOut),
        };
        let other = |code| E::Other {
            code,
            message: "something new".to_owned(),
        };
        for (error, exit) in [
            (E::LeaseNotFound, Exit::NotFound),
            (E::LeaseExists, Exit::Conflict),
            (E::EmptyKey, Exit::Invalid),
            (E::FutureRevision, Exit::Invalid),
            (E::NoSpace, Exit::Io),
            (E::UserExists, Exit::Conflict),
            (E::RoleNotFound, Exit::NotFound),
            (E::PermissionDenied, Exit::Io),
            (E::UserRequired, Exit::Io),
            (E::RootUserMissing, Exit::Invalid),
            (E::NoLeader, Exit::Unreachable),
            (E::NotForLearner, Exit::Unreachable),
            (other(Code::InvalidArgument), Exit::Invalid),
            (other(Code::OutOfRange), Exit::Invalid),
            (other(Code::FailedPrecondition), Exit::Invalid),
            (other(Code::NotFound), Exit::NotFound),
            (other(Code::AlreadyExists), Exit::Conflict),
            (other(Code::PermissionDenied), Exit::Io),
            (other(Code::DataLoss), Exit::Corrupt),
            (other(Code::ResourceExhausted), Exit::Unreachable),
            (other(Code::Internal), Exit::Unreachable),
            (E::TimedOut, Exit::Unreachable),
            (unknown, Exit::Unknown),
        ] {
            assert_eq!(Exit::of_client(&error), exit, "{error:?}");
        }
    }

    #[test]
    fn a_failure_names_the_cause_below_once() {
        let refused = io::Error::from(io::ErrorKind::PermissionDenied);
        let error = bowline_storage::Error::io("open", Path::new("d/LOCK"), refused);
        let failure = Failure::from(bowline::Error::from(error));
        assert_eq!(failure.exit, Exit::Io);
        assert_eq!(failure.message, "cannot open d/LOCK: permission denied");
    }

    #[test]
    fn a_closed_pipe_ends_the_program_in_silence() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(failure, Failure::new(Exit::Done, ""));
    }
}
