//! [`WatchRights`]: whether a client may watch what it asks for, now and after each change of users.
//!
//! A watch needs the right to read its range when it is created; before one is refused to a user, the member catches up.
//! After a change of users, every stream with a watch that its caller may not have any more ends; so does every stream of
//! nobody once authentication is enabled. The client opens its stream anew, and is refused what it may not watch.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context as TaskContext, Poll};

use bowline_cluster::{LocalClient, ReadLevel};
use bowline_replica::{Caller, Need};
use parking_lot::Mutex;
use tonic::Status;

use crate::status::status;

/// Finds out who the caller is.
pub(crate) type Seek = Pin<Box<dyn Future<Output = Result<Caller, Status>> + Send>>;

/// A key and the end of its range, as in etcd.
type WatchedRange = (Vec<u8>, Vec<u8>);

/// What a client was allowed to watch.
#[derive(Debug, Default)]
pub(crate) struct Granted {
    /// Set once it is known.
    caller: OnceLock<Caller>,
    /// The ranges of the watches of a user, by their ids.
    ranges: Mutex<HashMap<i64, WatchedRange>>,
}

impl Granted {
    /// The number of ranges.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.ranges.lock().len()
    }

    /// Whether all of it is allowed still.
    pub(super) fn is_allowed(&self, client: &LocalClient) -> bool {
        let Some(caller) = self.caller.get() else {
            return true;
        };
        let ranges = self.ranges.lock();
        let checked = client.by(caller).check(|each| {
            let mut ranges = ranges.values();
            ranges.try_for_each(|(key, range_end)| each(Need::read(key, range_end)))
        });
        checked.is_ok()
    }
}

/// Who the caller is, as far as it is known.
enum Known {
    Caller(Caller),
    /// It is being found out.
    Sought(Seek),
    /// It is nobody that may watch, for this reason.
    Refused(Status),
}

/// The rights of a client's watches.
pub(crate) struct WatchRights {
    client: LocalClient,
    known: Known,
    granted: Arc<Granted>,
    /// The revision of the users by which all that was granted was allowed when something was last told.
    told_by: Option<u64>,
}

impl WatchRights {
    /// Those of a caller that is known.
    pub(crate) fn of(client: LocalClient, caller: Caller) -> WatchRights {
        let granted = Arc::new(Granted::default());
        let _ = granted.caller.set(caller.clone());
        WatchRights {
            client,
            known: Known::Caller(caller),
            granted,
            told_by: None,
        }
    }

    /// Those of a caller that is to be found out.
    pub(crate) fn sought(client: LocalClient, seek: Seek) -> WatchRights {
        WatchRights {
            client,
            known: Known::Sought(seek),
            granted: Arc::default(),
            told_by: None,
        }
    }

    /// The user that the caller is, if it is known.
    pub(super) fn user(&self) -> Option<&str> {
        match &self.known {
            Known::Caller(Caller::User(session)) => Some(session.user()),
            Known::Caller(_) | Known::Sought(_) | Known::Refused(_) => None,
        }
    }

    pub(super) fn granted(&self) -> &Arc<Granted> {
        &self.granted
    }

    /// Whether the caller may be told what is visible now. The stream is ended by whoever hears of a change of users; but what was
    /// written behind the change may be there before.
    pub(super) fn may_be_told(&mut self) -> bool {
        let users = self.client.users_revision();
        if users.is_some() && users == self.told_by {
            return true;
        }
        let is_allowed = self.granted.is_allowed(&self.client);
        self.told_by = users.filter(|_| is_allowed);
        is_allowed
    }

    /// The number of voters.
    pub(super) fn voters(&self) -> usize {
        let members = self.client.members();
        members.iter().filter(|member| !member.is_learner).count()
    }

    /// Whether the caller is not known yet.
    pub(super) fn is_sought(&self) -> bool {
        matches!(self.known, Known::Sought(_))
    }

    /// Waits until the caller is known, or refused.
    pub(super) fn poll_known(&mut self, task: &mut TaskContext<'_>) -> Poll<()> {
        let Known::Sought(seek) = &mut self.known else {
            return Poll::Ready(());
        };
        self.known = match std::task::ready!(seek.as_mut().poll(task)) {
            Ok(caller) => {
                let _ = self.granted.caller.set(caller.clone());
                Known::Caller(caller)
            }
            Err(refused) => Known::Refused(refused),
        };
        Poll::Ready(())
    }

    /// Waits for what the cluster has agreed on, before something is refused to a user. Returns whether that is of use.
    pub(super) fn catch_up(&mut self) -> bool {
        let Known::Caller(caller @ Caller::User(_)) = &self.known else {
            return false;
        };
        let (client, caller) = (self.client.clone(), caller.clone());
        self.known = Known::Sought(Box::pin(async move {
            // Without a leader, what this member knows counts.
            let _ = client.read_barrier(ReadLevel::Linearizable).await;
            Ok(caller)
        }));
        true
    }

    /// Refuses a watch that the caller may not have.
    pub(super) fn check(&self, key: &[u8], range_end: &[u8]) -> Result<(), Status> {
        match &self.known {
            Known::Caller(caller) => {
                let client = self.client.by(caller);
                let checked = client.check(|each| each(Need::read(key, range_end)));
                checked.map_err(status)
            }
            Known::Refused(refused) => Err(refused.clone()),
            Known::Sought(_) => Err(Status::internal("the caller is not known yet")),
        }
    }

    /// Grants a watch that is about to be created, or refuses it as [`WatchRights::check`] does. The lock is held from the
    /// check to the note: a change of users that the check has not seen is followed by a look at all ranges, which sees it.
    pub(super) fn grant(&self, id: i64, key: &[u8], range_end: &[u8]) -> Result<(), Status> {
        let Known::Caller(Caller::User(_)) = &self.known else {
            return Ok(());
        };
        let mut ranges = self.granted.ranges.lock();
        self.check(key, range_end)?;
        ranges.insert(id, (key.to_vec(), range_end.to_vec()));
        Ok(())
    }

    /// A watch was cancelled, or not created.
    pub(super) fn cancelled(&self, id: i64) {
        if let Known::Caller(Caller::User(_)) = &self.known {
            self.granted.ranges.lock().remove(&id);
        }
    }
}
