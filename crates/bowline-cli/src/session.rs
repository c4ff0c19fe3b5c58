//! What a session of several commands keeps open between them: the directory, or the clients of a cluster.
//!
//! A directory is opened by the first command that needs it, by the rules of that command: one that reads refuses a
//! directory that does not exist, and one that writes creates it.

use std::cell::RefCell;
use std::ops::Deref;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use bowline::{Db, DbBuilder, DbReader};
use bowline_client::ReadLevel;

use crate::exit::{Exit, Failure};
use crate::remote::{Credentials, Remote};

/// See the module.
#[derive(Default)]
pub(crate) struct Session {
    db: RefCell<Option<Db>>,
    clients: RefCell<Vec<Client>>,
}

/// A client of the session's cluster, with the settings that it was made with.
struct Client {
    level: ReadLevel,
    timeout: Duration,
    remote: Rc<Remote>,
}

/// An open directory: of one command, which closes it, or of a session, which keeps it.
pub(crate) enum Directory {
    /// Of a command that reads: nothing is written to it, and its owner is not disturbed.
    Read(DbReader),
    /// Of a command that may write.
    Owned(Db),
    /// Of a session.
    Kept(Db),
}

impl Directory {
    /// The database to write to.
    pub(crate) fn to_write(&self) -> Result<&Db, Failure> {
        match self {
            Directory::Owned(db) | Directory::Kept(db) => Ok(db),
            Directory::Read(_) => Err(Failure::new(
                Exit::Internal,
                "the directory is open to be read, and the command writes",
            )),
        }
    }

    /// Closes it, which may fail to write what is left. A session keeps it open.
    pub(crate) fn close(self) -> Result<(), Failure> {
        match self {
            Directory::Read(_) | Directory::Kept(_) => Ok(()),
            Directory::Owned(db) => Ok(db.close()?),
        }
    }
}

impl Deref for Directory {
    type Target = DbReader;

    fn deref(&self) -> &DbReader {
        match self {
            Directory::Read(reader) => reader,
            Directory::Owned(db) | Directory::Kept(db) => db,
        }
    }
}

impl Session {
    /// Opens the directory, unless it is open already.
    pub(crate) fn open(&self, builder: DbBuilder, path: &Path) -> Result<Directory, Failure> {
        let mut kept = self.db.borrow_mut();
        let db = match &*kept {
            Some(db) => db,
            None => kept.insert(builder.open(path)?),
        };
        Ok(Directory::Kept(db.clone()))
    }

    /// A client of the cluster with these settings.
    pub(crate) fn remote(
        &self,
        endpoints: Vec<String>,
        credentials: &Credentials,
        level: ReadLevel,
        timeout: Duration,
    ) -> Result<Rc<Remote>, Failure> {
        let mut clients = self.clients.borrow_mut();
        let is_it = |client: &&Client| client.level == level && client.timeout == timeout;
        if let Some(client) = clients.iter().find(is_it) {
            return Ok(Rc::clone(&client.remote));
        }
        let remote = Rc::new(Remote::kept(endpoints, credentials, level, timeout)?);
        clients.push(Client {
            level,
            timeout,
            remote: Rc::clone(&remote),
        });
        Ok(remote)
    }

    /// Lets go of a directory in which a command failed so that the database may refuse everything after it. The next
    /// command opens it again.
    pub(crate) fn recover(&self, failure: &Failure) {
        if matches!(failure.exit, Exit::Io | Exit::Corrupt | Exit::Internal) {
            // What is wrong with it has been said.
            let _ = self.close();
        }
    }

    /// Closes the directory, which may fail to write what is left.
    pub(crate) fn close(&self) -> Result<(), Failure> {
        match self.db.take() {
            Some(db) => Ok(db.close()?),
            None => Ok(()),
        }
    }
}
