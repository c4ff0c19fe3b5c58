//! What every user over the network has, and the judge of the errors that it sees.

use std::sync::Arc;
use std::time::Duration;

use bowline_client::{Client, Code, Error};
use parking_lot::Mutex;

use crate::history::History;
use crate::trace::Trace;

/// Who only looks for a member that answers, asks for this key.
pub(crate) const KEY: &[u8] = b"beside a member that is hurt";

/// Where the answer to a question appears.
pub(crate) type Answer = Arc<Mutex<Option<Result<(), String>>>>;

/// What every user over the network has.
#[derive(Clone)]
pub(super) struct Program {
    pub(super) name: String,
    pub(super) client: Client,
    pub(super) history: History,
    pub(super) trace: Trace,
    /// Whether the history is compacted in this run.
    pub(super) compacts: bool,
}

impl Program {
    pub(super) fn named(&self, part: &str) -> Program {
        Program {
            name: format!("{}.{part}", self.name),
            ..self.clone()
        }
    }

    /// Asks until it is answered.
    pub(super) async fn ask(self, answer: Answer) {
        const PAUSE: Duration = Duration::from_millis(100);
        while let Err(error) = self.client.get(KEY).await {
            self.note(format_args!("a read fails: {error}"));
            self.judge(&error);
            tokio::time::sleep(PAUSE).await;
        }
        while let Err(error) = self.client.put(KEY, "").await {
            self.note(format_args!("a put fails: {error}"));
            self.judge(&error);
            tokio::time::sleep(PAUSE).await;
        }
        *answer.lock() = Some(Ok(()));
    }

    pub(super) fn note(&self, what: impl std::fmt::Display) {
        self.trace.note(&self.name, what);
    }

    /// Judges an error: these are all that a sound program sees of a cluster under faults.
    pub(super) fn judge(&self, error: &Error) {
        let is_expected = match error {
            Error::NoLeader
            | Error::NotServing { .. }
            | Error::NotLeader
            | Error::LeaderChanged
            | Error::NotForLearner
            | Error::TooManyRequests
            | Error::Stopped
            | Error::ServerTimedOut { .. }
            | Error::TimedOut
            | Error::Unreachable { .. }
            | Error::Disconnected { .. }
            | Error::NoSpace
            // A table is damaged, until it is replaced, at every member that answers.
            | Error::Other { code: Code::DataLoss, .. }
            | Error::Conflict { .. }
            | Error::TooManyConflicts { .. }
            | Error::FutureRevision
            | Error::LeaseNotFound
            | Error::LeaseLost { .. } => true,
            Error::Compacted { .. } => self.compacts,
            // A member whose table is damaged met it, perhaps when it was done.
            Error::UnknownOutcome { cause } => match **cause {
                Error::Other { code, .. } => code == Code::DataLoss,
                ref cause => return self.judge(cause),
            },
            _ => false,
        };
        if !is_expected {
            self.history
                .fail(format!("{}: an unexpected error: {error:?}", self.name));
        }
    }
}
