//! The node, and its client.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline::replica::{
    AlarmKind, Command, Outcome, RangeOp, RangeReply, Refusal, Reply, Txn, TxnReply,
};
use bowline::{Db, Durability, History};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    Applied, Error, Frozen, LeaseStatus, MemberInfo, NodeConfig, NodeMetrics, Read, ReadLevel,
    ReadPoint, Status, txn,
};

/// A node.
#[derive(Debug)]
pub struct Node {
    client: LocalClient,
}

/// Its client in the same process.
#[derive(Debug, Clone)]
pub struct LocalClient {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    db: Db,
    index: AtomicU64,
    order: Mutex<()>,
    members: Mutex<Vec<MemberInfo>>,
    alarms: Mutex<Vec<(u64, AlarmKind)>>,
    leadership: watch::Sender<(Option<u64>, u64)>,
    leases: Mutex<HashMap<i64, Duration>>,
}

const MEMBER: u64 = 0x8e9e_05c5_2164_694d;

impl Node {
    /// Starts it.
    #[expect(clippy::unused_async, reason = "the real one waits")]
    pub async fn start(config: NodeConfig) -> Result<Node, Error> {
        let db = Db::builder()
            .durability(Durability::Memory)
            .history(History::All)
            .open("memory")?;
        let me = MemberInfo {
            id: MEMBER,
            name: config.name,
            peer_urls: config.advertise_peer_urls,
            client_urls: config.advertise_client_urls,
            is_learner: false,
        };
        let inner = Inner {
            db,
            index: AtomicU64::new(4),
            order: Mutex::new(()),
            members: Mutex::new(vec![me]),
            alarms: Mutex::new(Vec::new()),
            leadership: watch::Sender::new((Some(MEMBER), 2)),
            leases: Mutex::new(HashMap::new()),
        };
        Ok(Node {
            client: LocalClient {
                inner: Arc::new(inner),
            },
        })
    }

    /// Its client.
    #[must_use]
    pub fn client(&self) -> LocalClient {
        self.client.clone()
    }

    /// Stops it.
    #[expect(clippy::unused_async, reason = "the real one waits")]
    pub async fn shutdown(self) -> Result<(), Error> {
        Ok(self.client.inner.db.close()?)
    }
}

#[expect(clippy::unused_async, reason = "the real one waits")]
#[expect(missing_docs, reason = "a placeholder")]
impl LocalClient {
    pub async fn execute(&self, command: Command) -> Result<Applied, Error> {
        let _order = self.inner.order.lock();
        let db = &self.inner.db;
        let result = match self.apply(&command) {
            Ok(outcome) => Ok(outcome),
            Err(Error::Refused(refusal)) => Err(refusal),
            Err(error) => return Err(error),
        };
        let index = self.inner.index.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(Applied {
            reply: Reply {
                revision: db.revision(),
                result,
            },
            index,
            term: 2,
        })
    }

    fn apply(&self, command: &Command) -> Result<Outcome, Error> {
        let db = &self.inner.db;
        Ok(match command {
            Command::Txn(txn) => {
                let tx = db.begin_with(bowline::Isolation::Snapshot);
                let reply = txn::write(db, &tx, txn)?;
                tx.commit()?;
                Outcome::Txn(reply)
            }
            Command::LeaseGrant { id, ttl } => {
                match db.grant_lease_with_id(*id, *ttl) {
                    Err(bowline::Error::LeaseExists { id }) => {
                        return Err(Refusal::LeaseExists { id }.into());
                    }
                    other => other?,
                }
                self.inner.leases.lock().insert(*id, *ttl);
                Outcome::Done
            }
            Command::LeaseRevoke { id } => match db.revoke_lease(*id) {
                Err(bowline::Error::LeaseNotFound { id }) => {
                    return Err(Refusal::LeaseNotFound { id }.into());
                }
                other => Outcome::LeaseEnded { deleted: other? },
            },
            Command::Compact { revision } => {
                let (newest, oldest) = (db.revision(), db.oldest_revision());
                if *revision > newest {
                    return Err(Refusal::FutureRevision {
                        revision: *revision,
                        newest,
                    }
                    .into());
                }
                if *revision <= oldest && oldest > 1 || *revision == 0 {
                    return Err(Refusal::Compacted {
                        revision: *revision,
                        oldest,
                    }
                    .into());
                }
                db.compact(*revision)?;
                Outcome::Done
            }
            Command::Alarm {
                member,
                kind,
                is_raised,
            } => {
                let mut alarms = self.inner.alarms.lock();
                alarms.retain(|alarm| *alarm != (*member, *kind));
                if *is_raised {
                    alarms.push((*member, *kind));
                }
                Outcome::Done
            }
            _ => Outcome::Done,
        })
    }

    fn point(&self, level: ReadLevel) -> ReadPoint {
        ReadPoint {
            level,
            applied_index: self.inner.index.load(Ordering::Relaxed),
            revision: self.inner.db.revision(),
            term: 2,
        }
    }

    pub async fn range(&self, op: RangeOp, level: ReadLevel) -> Result<Read<RangeReply>, Error> {
        let value = txn::read(&self.inner.db, &op)?;
        let point = self.point(level);
        Ok(Read { value, point })
    }

    pub async fn read_txn(&self, txn: Txn, level: ReadLevel) -> Result<Read<TxnReply>, Error> {
        let value = txn::read_txn(&self.inner.db, &txn)?;
        let point = self.point(level);
        Ok(Read { value, point })
    }

    pub async fn read_barrier(&self, level: ReadLevel) -> Result<ReadPoint, Error> {
        Ok(self.point(level))
    }

    #[must_use]
    pub fn db(&self) -> &Db {
        &self.inner.db
    }

    pub async fn lease_grant(&self, id: i64, ttl: Duration) -> Result<(i64, Applied), Error> {
        let id = if id == 0 { fastrand::i64(1..) } else { id };
        let applied = self.execute(Command::LeaseGrant { id, ttl }).await?;
        Ok((id, applied))
    }

    pub async fn lease_keep_alive(&self, id: i64) -> Result<Option<Duration>, Error> {
        match self.inner.db.keep_alive(id) {
            Err(bowline::Error::LeaseNotFound { .. }) => Ok(None),
            other => Ok(Some(other?)),
        }
    }

    pub async fn lease_time_to_live(
        &self,
        id: i64,
        with_keys: bool,
    ) -> Result<Option<LeaseStatus>, Error> {
        let leases = self.inner.db.leases();
        let Some(lease) = leases.iter().find(|lease| lease.id == id) else {
            return Ok(None);
        };
        let keys = if with_keys {
            self.inner.db.lease_keys(id)?
        } else {
            Vec::new()
        };
        Ok(Some(LeaseStatus {
            id,
            granted: lease.ttl,
            remaining: lease.remaining,
            keys,
        }))
    }

    #[must_use]
    pub fn members(&self) -> Vec<MemberInfo> {
        self.inner.members.lock().clone()
    }

    pub async fn member_add(
        &self,
        peer_urls: Vec<String>,
        is_learner: bool,
    ) -> Result<MemberInfo, Error> {
        let mut members = self.inner.members.lock();
        if members
            .iter()
            .any(|m| m.peer_urls.iter().any(|u| peer_urls.contains(u)))
        {
            return Err(Error::PeerUrlExists);
        }
        let info = MemberInfo {
            id: fastrand::u64(1..),
            name: String::new(),
            peer_urls,
            client_urls: Vec::new(),
            is_learner,
        };
        members.push(info.clone());
        Ok(info)
    }

    pub async fn member_remove(&self, id: u64) -> Result<(), Error> {
        let mut members = self.inner.members.lock();
        let before = members.len();
        members.retain(|m| m.id != id);
        if members.len() == before {
            return Err(Error::MemberNotFound { id });
        }
        Ok(())
    }

    pub async fn member_update(&self, id: u64, peer_urls: Vec<String>) -> Result<(), Error> {
        let mut members = self.inner.members.lock();
        let found = members.iter_mut().find(|m| m.id == id);
        found.ok_or(Error::MemberNotFound { id })?.peer_urls = peer_urls;
        Ok(())
    }

    pub async fn member_promote(&self, id: u64) -> Result<(), Error> {
        let mut members = self.inner.members.lock();
        let found = members.iter_mut().find(|m| m.id == id);
        let found = found.ok_or(Error::MemberNotFound { id })?;
        if !found.is_learner {
            return Err(Error::NotLearner);
        }
        found.is_learner = false;
        Ok(())
    }

    pub async fn move_leader(&self, target: u64) -> Result<(), Error> {
        if target == MEMBER {
            Ok(())
        } else {
            Err(Error::BadTransferee)
        }
    }

    #[must_use]
    pub fn status(&self) -> Status {
        let (leader, term) = *self.inner.leadership.borrow();
        Status {
            cluster_id: 0xcdf8_18ac_15c2_0b10,
            member_id: MEMBER,
            leader,
            term,
            raft_index: self.inner.index.load(Ordering::Relaxed),
            applied_index: self.inner.index.load(Ordering::Relaxed),
            is_learner: false,
            size_bytes: 1 << 20,
            size_in_use_bytes: 1 << 19,
            revision: self.inner.db.revision(),
        }
    }

    #[must_use]
    pub fn alarms(&self) -> Vec<(u64, AlarmKind)> {
        self.inner.alarms.lock().clone()
    }

    pub fn hash_kv(&self, revision: u64) -> Result<(u32, u64, u64), Error> {
        let db = &self.inner.db;
        let at = if revision == 0 {
            db.revision()
        } else {
            revision
        };
        let mut hash = 0u64;
        for entry in db.snapshot_at(at)?.range(..)? {
            let entry = entry?;
            hash ^= xxhash_rust::xxh3::xxh3_64(&entry.value) ^ entry.mod_revision;
        }
        Ok((hash as u32, at, db.oldest_revision()))
    }

    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<(Option<u64>, u64)> {
        self.inner.leadership.subscribe()
    }

    pub fn freeze(&self) -> Result<Frozen, Error> {
        Ok(Frozen {
            index: self.inner.index.load(Ordering::Relaxed),
            revision: self.inner.db.revision(),
            state: b"state".to_vec(),
            tables: Vec::new(),
        })
    }

    #[must_use]
    pub fn metrics(&self) -> NodeMetrics {
        NodeMetrics {
            proposals_committed: self.inner.index.load(Ordering::Relaxed),
            ..NodeMetrics::default()
        }
    }

    /// Takes the leader away, or gives one back.
    pub fn set_leader(&self, leader: Option<u64>) {
        self.inner.leadership.send_replace((leader, 2));
    }
}
