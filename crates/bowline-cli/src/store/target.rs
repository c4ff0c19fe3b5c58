//! What a command works on: a directory, or the cluster that `--endpoints` names.
//!
//! Each verb is one method, which makes one call of the library or sends one request. A verb gives the same in both
//! places, so that a command is one piece of code.
//!
//! A directory has to exist to be read, and is created to be written.

use std::rc::Rc;
use std::time::Duration;

use bowline::{Expected, Lease, LeaseId, Range, Revision, Update, Value, Version};
use bowline_client::graph::GraphWrite;
use bowline_client::{Compare, Error, KeyRange, Operation, OperationReply, ReadLevel};

use super::bulk::BulkLoad;
use super::history::Change;
use super::remote_sink;
use super::sink::{self, Imported};
use super::view::{RemoteView, View, refuse_zero};
use super::watch::Watcher;
use crate::args::Durability;
use crate::context::{Context, usage};
use crate::exit::Failure;
use crate::import::{Item, Position, Refusal};
use crate::interrupt;
use crate::output::escape;
use crate::remote::{KEYS_TIMEOUT, Remote, or_of_etcd, single_key, wire_range};
use crate::session::Directory;

/// The keys of a lease; `None` where they are more than a server tells.
pub(crate) type LeaseKeys = Option<Vec<Value>>;

/// A directory or a cluster.
pub(crate) enum Target {
    Local(Directory),
    Remote(Rc<Remote>),
}

impl Target {
    /// To read; a request to a cluster may take as long as `timeout`.
    pub(crate) fn open_to_read(
        context: &Context<'_, '_>,
        timeout: Duration,
    ) -> Result<Target, Failure> {
        match context.is_remote() {
            true => Target::open(context, timeout),
            false => Ok(Target::Local(context.open_to_read()?)),
        }
    }

    /// To change what is there; a request to a cluster may take as long as `timeout`.
    pub(crate) fn open(context: &Context<'_, '_>, timeout: Duration) -> Result<Target, Failure> {
        if context.is_remote() {
            return Ok(Target::Remote(context.remote(timeout)?));
        }
        Ok(Target::Local(context.open()?))
    }

    /// To write. A cluster replies once a majority has flushed; nothing less can be asked for.
    pub(crate) fn open_to_write(
        context: &Context<'_, '_>,
        durability: Durability,
        timeout: Duration,
    ) -> Result<Target, Failure> {
        if !context.is_remote() {
            return Ok(Target::Local(context.open_to_write(durability)?));
        }
        match durability {
            Durability::Sync => Target::open(context, timeout),
            Durability::Batched { .. } => Err(usage(
                "a cluster always flushes before it answers: leave --durability out".to_owned(),
            )),
        }
    }

    /// To import into: what is there already is read as fresh as can be, whatever the command line says.
    pub(crate) fn open_to_import(
        context: &Context<'_, '_>,
        durability: Durability,
    ) -> Result<Target, Failure> {
        match Target::open_to_write(context, durability, KEYS_TIMEOUT)? {
            Target::Remote(_) => {
                let remote = context.remote_at(ReadLevel::Linearizable, KEYS_TIMEOUT)?;
                Ok(Target::Remote(remote))
            }
            local => Ok(local),
        }
    }

    /// Closes a directory that no session keeps, which may fail to write what is left.
    pub(crate) fn close(self) -> Result<(), Failure> {
        match self {
            Target::Local(db) => db.close(),
            Target::Remote(_) => Ok(()),
        }
    }

    /// The newest revision.
    pub(crate) fn revision(&self) -> Result<Revision, Failure> {
        match self {
            Target::Local(db) => Ok(db.revision()),
            Target::Remote(remote) => {
                let get = remote.client.get("\0").level(remote.level);
                Ok(match remote.outcome(get.into_future())? {
                    // The user may not read this key, and may know the revision.
                    Err(Error::PermissionDenied) => {
                        remote.wait(remote.client.status())?.header.revision
                    }
                    read => read?.header.revision,
                })
            }
        }
    }

    /// Everything as it is now, or as it was at a revision.
    pub(crate) fn at(&self, revision: Option<Revision>) -> Result<View<'_>, Failure> {
        Ok(match (self, revision) {
            (Target::Local(db), None) => View::Local(db.snapshot()),
            (Target::Local(db), Some(revision)) => View::Local(db.snapshot_at(revision)?),
            (Target::Remote(remote), revision) => View::Remote(RemoteView::new(remote, revision)?),
        })
    }

    /// Puts a key; gives the revision.
    pub(crate) fn put(
        &self,
        key: Vec<u8>,
        value: Vec<u8>,
        lease: Option<LeaseId>,
    ) -> Result<Revision, Failure> {
        match self {
            Target::Local(db) => Ok(match (db.to_write()?, lease) {
                (db, Some(lease)) => db.put_with_lease(key, value, lease)?,
                (db, None) => db.put(key, value)?,
            }),
            Target::Remote(remote) => {
                let put = remote.client.put(key, value);
                let put = match lease {
                    Some(lease) => put.lease(lease),
                    None => put,
                };
                Ok(remote.wait(put)?.header.revision)
            }
        }
    }

    /// Updates a key; gives the revision, whether it was changed, and its value.
    pub(crate) fn update(
        &self,
        key: Vec<u8>,
        update: Update,
    ) -> Result<(Revision, bool, Option<Vec<u8>>), Failure> {
        Ok(match self {
            Target::Local(db) => {
                let updated = db.to_write()?.update(key, update)?;
                let value = updated.value.map(|value| value.to_vec());
                (updated.revision, updated.changed, value)
            }
            Target::Remote(remote) => {
                let updated = remote.wait(remote.client.update(key, update))?;
                let value = updated.value.map(Vec::from);
                (updated.header.revision, updated.changed, value)
            }
        })
    }

    /// Puts a key if it is as expected; gives the revision.
    pub(crate) fn compare_and_swap(
        &self,
        key: Vec<u8>,
        expected: Expected,
        value: Vec<u8>,
    ) -> Result<Revision, Failure> {
        let remote = match self {
            Target::Local(db) => {
                return Ok(db.to_write()?.compare_and_swap(key, expected, value)?);
            }
            Target::Remote(remote) => remote,
        };
        let range = KeyRange::key(key.clone());
        let txn = remote
            .client
            .txn()
            .when([Compare::mod_revision(range.clone()).equals(expected)])
            .then([Operation::put(key.clone(), value)])
            .otherwise([Operation::get(range)]);
        let reply = remote.wait(txn)?;
        if reply.succeeded {
            return Ok(reply.header.revision);
        }
        let actual = match reply.replies.first() {
            Some(OperationReply::Get(found)) => found.entry().map(|entry| entry.mod_revision),
            _ => None,
        };
        // The library's own error, so that the same loss reads the same in both places.
        Err(Failure::from(bowline::Error::CompareFailed {
            key: escape(&key).into_owned(),
            expected,
            actual,
        }))
    }

    /// Deletes the keys of a range; gives how many there were, and the revision.
    pub(crate) fn delete(&self, range: &Range) -> Result<(u64, Revision), Failure> {
        match self {
            Target::Local(db) => {
                let db = db.to_write()?;
                let deleted = match single_key(range) {
                    Some(key) => u64::from(db.delete(key)?.is_some()),
                    None => db.delete_range(range.clone())?,
                };
                Ok((deleted, db.revision()))
            }
            Target::Remote(remote) => {
                let reply = remote.wait(remote.client.delete(wire_range(range)))?;
                Ok((reply.deleted, reply.header.revision))
            }
        }
    }

    /// The versions of a key, the newest first; more than `limit` need not be given.
    pub(crate) fn history(
        &self,
        key: &[u8],
        limit: Option<u64>,
        who: bool,
    ) -> Result<Vec<Change>, Failure> {
        match self {
            Target::Local(db) => {
                let versions = db.history(key)?.into_iter();
                let change = |version: Version| -> Result<Change, Failure> {
                    let found = match who {
                        true => db.author(version.revision)?,
                        false => None,
                    };
                    let who = found.map(|author| (Some(author.user), author.at_ms));
                    Ok(Change { version, who })
                };
                versions.map(change).collect()
            }
            Target::Remote(remote) => remote.history(key, limit, who),
        }
    }

    /// Watches a range from a revision on, or from now on.
    pub(crate) fn watch(
        &self,
        range: &Range,
        from: Option<Revision>,
    ) -> Result<Watcher<'_>, Failure> {
        match self {
            Target::Local(db) => {
                let watch = set!(db.watch(range.clone()), from(from));
                Ok(Watcher::Local(watch.start()?))
            }
            Target::Remote(remote) => {
                refuse_zero(from)?;
                let watch = set!(remote.client.watch(wire_range(range)), from(from));
                Ok(Watcher::Remote(remote, remote.wait(watch)?))
            }
        }
    }

    /// Grants a lease, with an id of the target's choice if none is given; gives its id and its time to live.
    pub(crate) fn grant_lease(
        &self,
        id: Option<LeaseId>,
        ttl: Duration,
    ) -> Result<(LeaseId, Duration), Failure> {
        match (self, id) {
            (Target::Local(db), None) => Ok((db.to_write()?.grant_lease(ttl)?, ttl)),
            (Target::Local(db), Some(id)) => {
                db.to_write()?.grant_lease_with_id(id, ttl)?;
                Ok((id, ttl))
            }
            (Target::Remote(remote), id) => {
                let client = &remote.client;
                let granted = match id {
                    Some(id) => remote.wait(or_of_etcd(
                        client.grant_lease_ms_with_id(id, ttl),
                        client.grant_lease_with_id(id, ttl),
                    ))?,
                    None => remote.wait(or_of_etcd(
                        client.grant_lease_ms(ttl),
                        client.grant_lease(ttl),
                    ))?,
                };
                Ok((granted.id, granted.ttl))
            }
        }
    }

    /// Renews a lease, once, or until that fails or the user interrupts a session; gives its time to live to `renewed`
    /// each time.
    pub(crate) fn keep_alive(
        &self,
        id: LeaseId,
        once: bool,
        renewed: &mut dyn FnMut(Duration) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match self {
            Target::Local(db) => loop {
                let ttl = db.to_write()?.keep_alive(id)?;
                renewed(ttl)?;
                if once {
                    return Ok(());
                }
                // A third of the TTL, as etcd's clients do: two tries may fail.
                if !interrupt::sleep(ttl / 3) {
                    return Ok(());
                }
            },
            Target::Remote(remote) if once => {
                let client = &remote.client;
                renewed(remote.wait(or_of_etcd(
                    client.keep_alive_ms_once(id),
                    client.keep_alive_once(id),
                ))?)
            }
            Target::Remote(remote) => {
                let client = &remote.client;
                let begun = or_of_etcd(client.keep_alive_ms(id), client.keep_alive(id));
                let mut alive = remote.wait(begun)?;
                let mut ttl = alive.ttl();
                loop {
                    renewed(ttl)?;
                    ttl = match remote.wait(alive.renewed()) {
                        // It goes on until then.
                        Err(_) if interrupt::is_pressed() => return Ok(()),
                        next => next?,
                    };
                }
            }
        }
    }

    /// Ends a lease; gives how many keys it deleted, unless only that is not known.
    pub(crate) fn revoke_lease(&self, id: LeaseId) -> Result<Option<u64>, Failure> {
        match self {
            Target::Local(db) => Ok(Some(db.to_write()?.revoke_lease(id)?)),
            Target::Remote(remote) => {
                let client = &remote.client;
                match remote.outcome(client.revoke_lease_counted(id))? {
                    Err(Error::Unimplemented { .. }) => {}
                    revoked => return Ok(Some(revoked?.deleted)),
                }
                // etcd does not say what went with a lease. Where its keys cannot be read, it is ended all the same.
                let state = remote.outcome(client.time_to_live(id, true))?;
                remote.wait(client.revoke_lease(id))?;
                let keys = state.ok().map(|state| state.keys.len());
                Ok(keys.map(|keys| u64::try_from(keys).unwrap_or(u64::MAX)))
            }
        }
    }

    /// Every lease, with its keys.
    pub(crate) fn leases(&self) -> Result<Vec<(Lease, LeaseKeys)>, Failure> {
        let mut found = Vec::new();
        match self {
            Target::Local(db) => {
                for lease in db.leases() {
                    let keys = db
                        .lease_keys(lease.id)?
                        .collect::<bowline::Result<Vec<_>>>()?;
                    found.push((lease, Some(keys)));
                }
            }
            Target::Remote(remote) => {
                let client = &remote.client;
                for id in remote.wait(client.leases())? {
                    let ask = |keys| {
                        let request = client.time_to_live_ms(id, keys);
                        remote.outcome(or_of_etcd(request, client.time_to_live(id, keys)))
                    };
                    // The keys of one lease may be too many for a reply: the others are listed all the same.
                    let (state, has_keys) = match ask(true)? {
                        Ok(state) => (Ok(state), true),
                        Err(Error::LeaseNotFound) => continue,
                        Err(_) => (ask(false)?, false),
                    };
                    let state = match state {
                        Ok(state) => state,
                        // It ended since it was listed.
                        Err(Error::LeaseNotFound) => continue,
                        Err(error) => return Err(error.into()),
                    };
                    let lease = Lease {
                        id,
                        ttl: state.granted,
                        remaining: state.remaining,
                    };
                    let keys = state.keys.into_iter().map(Value::from).collect();
                    found.push((lease, has_keys.then_some(keys)));
                }
            }
        }
        Ok(found)
    }

    /// Writes the items that are not there yet; gives those that are refused, and counts. With `strict` nothing after
    /// the first refusal is written.
    pub(crate) fn import(
        &self,
        items: &[(Position, Item)],
        strict: bool,
    ) -> Result<(Vec<Refusal>, Imported), Failure> {
        match self {
            Target::Local(db) => sink::write(db.to_write()?, items, strict),
            Target::Remote(remote) => remote_sink::write(remote, items, strict),
        }
    }

    /// Begins a bulk load of a graph.
    pub(crate) fn bulk_load(&self) -> Result<BulkLoad, Failure> {
        match self {
            Target::Local(db) => BulkLoad::new(db.to_write()?),
            Target::Remote(_) => Err(usage(
                "a cluster agrees on each write, so it takes no bulk load: import without --bulk, or load a directory \
                 with --data-dir and serve that"
                    .to_owned(),
            )),
        }
    }

    /// Writes a block or an edge; gives whether something changed, and the revision.
    pub(crate) fn write(&self, write: GraphWrite) -> Result<(bool, Revision), Failure> {
        match self {
            Target::Local(db) => {
                let db = db.to_write()?;
                let changed = db.transact(|tx| match write.clone() {
                    GraphWrite::PutBlock(new) => tx.put_block(&new).map(|()| true),
                    GraphWrite::DeleteBlock(id) => tx.delete_block(id),
                    GraphWrite::PutEdge(new) => tx.put_edge(&new).map(|()| true),
                    GraphWrite::DeleteEdge(key) => {
                        tx.delete_edge(key.source, &key.kind, key.target)
                    }
                })?;
                Ok((changed, db.revision()))
            }
            Target::Remote(remote) => {
                let reply = remote.wait(remote.graph.write([write]))?;
                let changed = reply.changed.first().copied().unwrap_or(false);
                Ok((changed, reply.header.revision))
            }
        }
    }
}
