//! The start of a node: the identity of its directory, and its parts.
//!
//! A directory with a file `MEMBER` continues as that member. Without one it becomes a member:
//!
//! - *joining* (`is_existing`): the others are asked which member has this node's peer URL, and only an
//!   answer that a leader has confirmed counts; the directory must hold no database;
//! - *founding alone*: an embedded database becomes the first member's, with all its data and history; the
//!   cluster's id is derived from the database's. Without one, an empty database is created;
//! - *founding together*: the ids are derived from the members' URLs and the token, so that all members
//!   compute the same ones; the directory must hold no database.
//!
//! Joining and founding together continue in `admission`, when the member answers its peers.
//!
//! The file `MEMBER` decides. A new member's is created before its database, so that a crash in between
//! leaves the same member; an embedded directory's is created after the database was opened for the cluster,
//! so that it stays an embedded one until nothing can fail any more. Both happen under the directory's lock.
//! Its founders stay in force, whatever the settings of a later start are.
//!
//! Invariants: a member never founds a cluster whose founders are not those of its first start; a member that
//! has voted and has lost its database does not start.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bowline::vfs::Vfs;
use bowline::{Background, History};
use bowline_replica::{Replica, ReplicaOptions};
use futures_core::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::admission::{self, Place, has_started};
use super::client::LocalClient;
use super::config::{NodeConfig, listen_address, scheme};
use super::core::{Core, Counts, Renewals};
use super::owed::everything_of;
use super::parents::make_parents;
use super::restored::is_proof;
use super::service::Service;
use super::suspension::Suspensions;
use super::{lessor, maintenance};
use crate::error::{Error, Result};
use crate::member_file::{FOUNDERS_BYTES_MAX, MemberFile, MemberState};
use crate::peer::{
    self, Acknowledgements, ClusterMembers, Listener, MemberIdentity, Memory, Peers, Port,
};
use crate::raft::log_store::{LogStore, Replay};
use crate::raft::state_machine::StateMachine;
use crate::raft::waiters::Waiters;
use crate::raft::{Raft, Settings};
use crate::record;
use crate::types::{Member, Membership, NodeId};

/// A running member. Dropping it without [`Node::shutdown`] stops it like a crash.
#[derive(Debug)]
pub struct Node {
    client: LocalClient,
    servers: Vec<JoinHandle<()>>,
    tasks: Vec<JoinHandle<()>>,
    addresses: Vec<SocketAddr>,
}

/// The present or future identity of a directory.
struct Identity {
    state: MemberState,
    /// The time after the start in which it gives no vote.
    votes_after: Duration,
}

impl Node {
    /// Starts a member on the caller's tokio runtime.
    ///
    /// # Errors
    /// `Config`, `Directory`, `Bind`, `Peer` for wrong settings and their consequences; `Storage`, `Log` when
    /// the directory cannot be opened.
    #[inline(never)]
    pub fn start(config: NodeConfig) -> BoxFuture<'static, Result<Node>> {
        // The body of a future is compiled where it is awaited: in a box, the consensus is compiled here alone.
        Box::pin(Node::begin(config))
    }

    async fn begin(mut config: NodeConfig) -> Result<Node> {
        config.check()?;
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for url in &config.listen_peer_urls {
            let address = listen_address(url, config.peers.network.is_secure())?;
            let bind_error = |error: std::io::Error| Error::Bind {
                address: address.clone(),
                reason: error.to_string(),
            };
            let listening = config.peers.network.listen(&address);
            let listener = listening.await.map_err(bind_error)?;
            addresses.push(listener.address().map_err(bind_error)?);
            listeners.push(listener);
        }
        if config.advertise_peer_urls.is_empty() {
            let own = config.initial_cluster.iter();
            let own = own.filter(|(name, _)| *name == config.name);
            config.advertise_peer_urls = own.map(|(_, url)| url.clone()).collect();
        }
        if config.advertise_peer_urls.is_empty() {
            let scheme = scheme(config.peers.network.is_secure());
            let urls = addresses
                .iter()
                .map(|address| format!("{scheme}://{address}"));
            config.advertise_peer_urls = urls.collect();
        }
        if config.initial_cluster.is_empty() {
            let urls = config.advertise_peer_urls.iter();
            let own = urls.map(|url| (config.name.clone(), url.clone()));
            config.initial_cluster = own.collect();
        }
        make_parents(&*config.vfs, &config.data_dir)?;
        let identity = tokio::select! {
            biased;
            identity = identify(&config) => identity?,
            // Founders that start together ask each other, and would wait for answers that cannot come yet.
            () = hang_up(&listeners) => return Err(Error::stopped("it takes no connections")),
        };
        let opening = {
            let config = config.clone();
            crate::blocking::spawn(move || open(&config, &identity).map(|o| (o, identity)))
        };
        let (opened, identity) = opening.await.map_err(Error::stopped)??;
        let core = start_raft(config, opened, &identity).await?;
        let mut node = Node {
            client: LocalClient::new(core.clone()),
            servers: Vec::new(),
            tasks: Vec::new(),
            addresses,
        };
        let port = Port::new(core.options.peers.port.clone());
        for listener in listeners {
            node.servers.push(serve(&core, &port, listener));
        }
        if core.is_blank() || core.is_unproven() || !core.is_admitted() {
            node.tasks.push(tokio::spawn(admission::run(core.clone())));
        }
        if let Some(damage) = core.repairs.is_up_now() {
            core.damage.note(damage);
        }
        node.tasks
            .push(tokio::spawn(core.clone().follow_leadership()));
        node.tasks.push(tokio::spawn(lessor::run(core.clone())));
        node.tasks.push(tokio::spawn(maintenance::run(core)));
        Ok(node)
    }

    /// The in-process client.
    #[must_use]
    pub fn client(&self) -> LocalClient {
        self.client.clone()
    }

    /// The addresses of the peer port.
    #[must_use]
    pub fn peer_addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Stops the member: it refuses further commands, and closes the log and the database.
    ///
    /// # Errors
    /// When closing the files fails; acknowledged commands are on disk in any case.
    #[inline(never)]
    pub fn shutdown(self) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.end())
    }

    async fn end(self) -> Result<()> {
        let core = self.client.core().clone();
        core.closing.send_replace(true);
        for task in self.tasks {
            // The task ends at once, or has panicked, which is logged.
            let _ = task.await;
        }
        for server in self.servers {
            server.abort();
            // Its port is free then: this node may be started again at once.
            let _ = server.await;
        }
        core.log.stop_waiting();
        if let Err(error) = core.raft.shutdown().await {
            tracing::error!(%error, "Raft ended badly");
        }
        core.waiters.fail_all(&Error::stopped("it is closed"));
        let closing = crate::blocking::spawn(move || {
            let log = core.log.close().map_err(Error::from);
            let db = core.replica.db().close().map_err(Error::from);
            log.and(db)
        });
        closing.await.map_err(Error::stopped)?
    }
}

/// Closes every incoming connection: a peer learns at once that nothing is served yet.
async fn hang_up(listeners: &[Box<dyn Listener>]) {
    const PAUSE: Duration = Duration::from_millis(10);
    let ends = listeners.iter().map(|listener| async move {
        loop {
            match listener.accept().await {
                Ok(connection) => drop(connection),
                // For example, too many files are open.
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    });
    futures_util::future::join_all(ends).await;
}

/// The parts that are opened before Raft starts.
struct Opened {
    replica: Arc<Replica>,
    log: LogStore,
    machine: StateMachine,
    waiters: Arc<Waiters>,
}

/// The most tasks that block a thread of the runtime at once: more than CPUs, as some wait for the disk.
fn long_work_max() -> usize {
    2 * std::thread::available_parallelism().map_or(1, usize::from)
}

fn directory_error(path: &Path, reason: impl Into<String>) -> Error {
    Error::Directory {
        path: path.to_owned(),
        reason: reason.into(),
    }
}

/// Determines the directory's identity.
async fn identify(config: &NodeConfig) -> Result<Identity> {
    let dir = &config.data_dir;
    let vfs = &*config.vfs;
    if let Some(state) = MemberFile::read(vfs, dir)? {
        if state.vote.is_none() {
            // New, or created again from a saved copy for a member that existed.
            refuse_a_lost_directory(config, &state).await?;
        }
        return Ok(Identity {
            state,
            votes_after: config.election_timeout,
        });
    }
    let identity_path = dir.join("BOWLINE");
    let found = vfs
        .metadata(&identity_path)
        .map_err(|e| bowline_storage::Error::io("stat", &identity_path, e))?;
    let has_database = found.is_some();
    let incarnation = fastrand::u64(1..);
    if config.is_existing {
        if has_database {
            return Err(directory_error(
                dir,
                "it holds a database, and a node that joins a cluster gets its data from there: \
                 choose another directory",
            ));
        }
        return join(config, incarnation).await;
    }
    if has_database {
        if !is_alone(config) {
            return Err(directory_error(
                dir,
                "it holds a database: serve it alone first, then add the others as members",
            ));
        }
        let (cfg, dir) = (config.clone(), dir.clone());
        let flushing = crate::blocking::spawn(move || -> Result<u128> {
            // The contents of its log are flushed into tables, so that the cluster's log begins behind it. No
            // lease may expire meanwhile, since that would write to the log.
            let db = database(&cfg).background(Background::Manual).open(&dir)?;
            Replica::end_embedded_time(&db)?;
            let id = db.id();
            db.close()?;
            Ok(id)
        });
        let database_id = flushing.await.map_err(Error::stopped)??;
        let cluster_id = hash(&[&database_id.to_be_bytes(), b"cluster"]);
        let member_id = member_id(&config.advertise_peer_urls, &config.cluster_token);
        return Ok(Identity {
            state: MemberState {
                cluster_id,
                member_id,
                database_id,
                founders: Some(membership(&[(member_id, own_member(config, incarnation))])?),
                vote: None,
                incarnation,
                owed: None,
                remembered: Acknowledgements::new(),
            },
            votes_after: Duration::ZERO,
        });
    }
    let founders = founders(config);
    let own = founders
        .iter()
        .find(|(_, member)| member.name == config.name);
    let Some((member_id, _)) = own else {
        let reason = "this member's name is not in it".to_owned();
        return Err(Error::Config {
            setting: "initial-cluster",
            reason,
        });
    };
    let member_id = *member_id;
    let ids: Vec<[u8; 8]> = founders.iter().map(|(id, _)| id.to_be_bytes()).collect();
    let ids = ids.concat();
    let token = config.cluster_token.as_bytes();
    let cluster_id = hash(&[&ids, token]);
    let high = u128::from(hash(&[&ids, token, b"database"]));
    let state = MemberState {
        cluster_id,
        member_id,
        database_id: (high << 64) | u128::from(cluster_id),
        founders: Some(membership(&founders)?),
        vote: None,
        incarnation,
        owed: None,
        remembered: Acknowledgements::new(),
    };
    refuse_a_lost_directory(config, &state).await?;
    Ok(Identity {
        state,
        votes_after: Duration::ZERO,
    })
}

/// Asks the members of a cluster which of them this one is. Only an answer that a leader has confirmed
/// counts; until then, all are asked again.
async fn join(config: &NodeConfig, incarnation: u64) -> Result<Identity> {
    const PAUSE: Duration = Duration::from_millis(100);
    let deadline = tokio::time::Instant::now() + config.request_timeout;
    let peers = Peers::new(0, 0, config.peers.clone());
    loop {
        let mut last_error = Error::Config {
            setting: "initial-cluster",
            reason: "it names no other member to ask".to_owned(),
        };
        for url in other_urls(config) {
            let client = peers.client_at(url);
            let answer = tokio::time::timeout_at(deadline, client.agreed_members()).await;
            let reason = match answer {
                Ok(Ok(answer)) => return place_in(config, url, &answer, incarnation),
                Ok(Err(status)) => status.message().to_owned(),
                Err(_) => "it does not answer in time".to_owned(),
            };
            let reason = format!(
                "{reason}; to join its cluster, start that member or mend its URL in --initial-cluster"
            );
            last_error = Error::Peer {
                url: url.clone(),
                reason,
            };
        }
        let is_late = tokio::time::Instant::now() + PAUSE >= deadline;
        if is_late || matches!(last_error, Error::Config { .. }) {
            return Err(last_error);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The member that an empty directory becomes, by the leader's answer through the member at `url`.
fn place_in(
    config: &NodeConfig,
    url: &str,
    answer: &ClusterMembers,
    incarnation: u64,
) -> Result<Identity> {
    let mut members = answer.members.iter();
    let own = members.find(|member| {
        let mut urls = member.peer_urls.iter();
        urls.any(|url| config.advertise_peer_urls.contains(url))
    });
    let own = own.ok_or_else(|| Error::Peer {
        url: url.to_owned(),
        reason: "its cluster has no member with this node's peer URL: add it first".to_owned(),
    })?;
    let is_free = own.incarnation == 0 && own.is_learner && !has_started(own);
    if !is_free {
        return Err(directory_error(&config.data_dir, admission::LOST));
    }
    Ok(Identity {
        state: MemberState {
            database_id: answer.database_id,
            incarnation,
            ..MemberState::new(answer.cluster_id, own.id)
        },
        votes_after: Duration::ZERO,
    })
}

/// The other members' peer URLs in the settings.
fn other_urls(config: &NodeConfig) -> impl Iterator<Item = &String> {
    let urls = config.initial_cluster.iter().map(|(_, url)| url);
    urls.filter(|url| !config.advertise_peer_urls.contains(url))
}

/// A member whose directory was lost must not come back as if it had never voted. A member that does not
/// answer is skipped; `admission` keeps asking.
async fn refuse_a_lost_directory(config: &NodeConfig, state: &MemberState) -> Result<()> {
    let peers = Peers::new(0, 0, config.peers.clone());
    let place = Place {
        cluster_id: state.cluster_id,
        member_id: state.member_id,
        incarnation: state.incarnation,
        is_founder: state.founders.is_some(),
    };
    for url in other_urls(config) {
        if let Ok(answer) = peers.client_at(url).members().await
            && let Some(reason) = place.refusal(&answer, || true)
        {
            return Err(directory_error(&config.data_dir, reason));
        }
    }
    Ok(())
}

fn is_alone(config: &NodeConfig) -> bool {
    let mut names = config.initial_cluster.iter();
    names.all(|(name, _)| *name == config.name)
}

fn own_member(config: &NodeConfig, incarnation: u64) -> Member {
    Member {
        name: config.name.clone(),
        peer_urls: config.advertise_peer_urls.clone(),
        client_urls: config.advertise_client_urls.clone(),
        wants_vote: true,
        incarnation,
        ..Member::default()
    }
}

/// The founders, equal on all of them: names and peer URLs only.
pub(super) fn founders(config: &NodeConfig) -> Vec<(NodeId, Member)> {
    let mut by_name = BTreeMap::<&String, Vec<String>>::new();
    for (name, url) in &config.initial_cluster {
        by_name.entry(name).or_default().push(url.clone());
    }
    let founder = |(name, urls): (&String, Vec<String>)| {
        let id = member_id(&urls, &config.cluster_token);
        let member = Member {
            name: name.clone(),
            peer_urls: urls,
            client_urls: Vec::new(),
            wants_vote: true,
            ..Member::default()
        };
        (id, member)
    };
    let mut founders: Vec<_> = by_name.into_iter().map(founder).collect();
    founders.sort_by_key(|(id, _)| *id);
    founders
}

/// The founding membership.
pub(super) fn membership(founders: &[(NodeId, Member)]) -> Result<Membership> {
    let refuse = |reason: String| Error::Config {
        setting: "initial-cluster",
        reason,
    };
    let ids = founders.iter().map(|(id, _)| *id).collect();
    let nodes: BTreeMap<NodeId, Member> = founders.iter().cloned().collect();
    let membership = Membership::new(vec![ids], nodes);
    let membership = membership.map_err(|error| refuse(error.to_string()))?;
    let mut bytes = Vec::new();
    record::encode_membership(&membership, &mut bytes);
    if bytes.len() > FOUNDERS_BYTES_MAX {
        return Err(refuse(format!(
            "the members' names and URLs take {} bytes, over the limit of {FOUNDERS_BYTES_MAX}: \
             begin with fewer members and add the others",
            bytes.len()
        )));
    }
    Ok(membership)
}

fn member_id(urls: &[String], token: &str) -> NodeId {
    let mut urls = urls.to_vec();
    urls.sort();
    let joined = urls.join(",");
    // 0 means none.
    hash(&[joined.as_bytes(), token.as_bytes()]).max(1)
}

/// A hash of parts, each with its length, so that their boundaries count.
pub(super) fn hash(parts: &[&[u8]]) -> u64 {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    // Ids fit into an i64, for languages without unsigned integers.
    xxhash_rust::xxh3::xxh3_64(&bytes) >> 1
}

/// Below the numbers of the tables that a member makes.
pub(super) fn file_id_base(member_id: NodeId) -> u64 {
    let tag = hash(&[&member_id.to_be_bytes(), b"tables"]) as u32;
    u64::from(tag.max(1)) << 32
}

/// The database's settings for a member: the cluster decides which history is trimmed.
fn database(config: &NodeConfig) -> bowline::DbBuilder {
    let builder: bowline::DbBuilder = config.database.clone();
    builder.history(History::All).vfs(config.vfs.clone())
}

fn open(config: &NodeConfig, identity: &Identity) -> Result<Opened> {
    let dir = &config.data_dir;
    let vfs = &*config.vfs;
    let mut replay = Replay::new(dir.clone());
    let state = &identity.state;
    let member = RefCell::new(None);
    let mut locked = |has_database: bool| {
        if MemberFile::exists(vfs, dir)? {
            member.replace(Some(reopen_member(vfs, dir, state, has_database)?));
        } else if !has_database {
            member.replace(Some(MemberFile::create(vfs, dir, state.clone())?));
        }
        Ok(())
    };
    let mut damaged = |damage: &bowline_storage::Error| match &*member.borrow() {
        Some(member) => owe_everything(config, member, damage),
        None => Ok(false),
    };
    let options = ReplicaOptions {
        database_id: state.database_id,
        first_file_id: file_id_base(state.member_id) | u64::from(fastrand::u32(..)),
        locked: &mut locked,
        damaged: &mut damaged,
        visit: &mut |index, payload| replay.visit(index, payload),
    };
    let opened = Replica::open(database(config), dir, options);
    let (replica, log) = opened.map_err(|error| Error::of_opening(dir, error))?;
    let replica = Arc::new(replica);
    let member = match member.into_inner() {
        Some(member) => member,
        None if replica.db().id() != state.database_id
            || replay.batches_upto() > replica.flushed_index() =>
        {
            return Err(directory_error(
                dir,
                "another program wrote to it while it was being made a member's: start again",
            ));
        }
        None => MemberFile::create(vfs, dir, state.clone())?,
    };
    let waiters = Arc::new(Waiters::new(state.member_id));
    // Founders that start with data have committed it before there was a log.
    let founders = state.founders.clone();
    let founders = founders.filter(|_| replica.flushed_index() > 0);
    let applied = StateMachine::applied_of(&replica, founders.is_some())?;
    let log = LogStore::open(
        log,
        &replay,
        replica.flushed_index(),
        applied,
        Arc::new(member),
        config.log.clone(),
    )?;
    let machine = StateMachine::new(replica.clone(), log.clone(), waiters.clone(), founders)?;
    Ok(Opened {
        replica,
        log,
        machine,
        waiters,
    })
}

/// Notes that a member whose log is damaged may have lost whatever it acknowledged, and returns whether it may go on: if
/// others can give it back.
fn owe_everything(
    config: &NodeConfig,
    member: &MemberFile,
    damage: &bowline_storage::Error,
) -> bowline_storage::Result<bool> {
    let state = member.state();
    // One that joined was not alone then.
    let has_others = match &state.founders {
        Some(founders) => founders.nodes().count() > 1 || !is_alone(config),
        None => true,
    };
    let Some(vote) = state.vote.filter(|_| has_others) else {
        return Ok(false);
    };
    // What a restored member owes is another thing.
    if state.owed.is_some_and(is_proof) {
        return Ok(false);
    }
    member.add_owed(everything_of(&vote))?;
    tracing::error!(
        %damage,
        "the log of this member is damaged: it begins anew behind the tables, and gets back what it lacks from the others; \
         until then this member does not vote"
    );
    Ok(true)
}

/// Opens the file `MEMBER` of a directory that is locked now: it must be unchanged since it was read, and its
/// database must exist if it was ever used.
fn reopen_member(
    vfs: &dyn Vfs,
    dir: &Path,
    state: &MemberState,
    has_database: bool,
) -> bowline_storage::Result<MemberFile> {
    let file = MemberFile::open(vfs, dir)?;
    let found = file.state();
    if (found.cluster_id, found.member_id) != (state.cluster_id, state.member_id) {
        return Err(bowline_storage::Error::Locked {
            path: dir.to_owned(),
        });
    }
    if !has_database && found.vote.is_some() {
        return Err(bowline_storage::Error::MissingFile {
            path: dir.join("BOWLINE"),
            reason: "the member has voted, and its database is gone: remove the member from the \
                     cluster, and add it again with an empty directory"
                .to_owned(),
        });
    }
    Ok(file)
}

async fn start_raft(config: NodeConfig, opened: Opened, identity: &Identity) -> Result<Arc<Core>> {
    let (cluster_id, member_id) = (identity.state.cluster_id, identity.state.member_id);
    let owes = opened.log.member().read_owed().is_some();
    let member = MemberIdentity {
        cluster_id,
        member_id,
        incarnation: identity.state.incarnation,
    };
    let mut peer_options = config.peers.clone();
    // A peer that comes back hears from its leader before it would begin an election.
    let longest = &mut peer_options.backoff.1;
    *longest = (*longest).min(config.election_timeout / 2);
    let peers = Peers::of(member, peer_options);
    let Opened {
        replica,
        log,
        machine,
        waiters,
    } = opened;
    let progress = machine.progress();
    let repairs = machine.repairs();
    let settings = Settings {
        cluster_id,
        member_id,
        heartbeat_interval: config.heartbeat_interval,
        campaign_wait: config.campaign_wait(),
        vote_lease: config.vote_lease(),
        snapshot_entries: config.snapshot_entries,
        kept_entries: config.kept_entries,
        snapshot_timeout: config.peers.snapshot_timeout,
        // See `stand_later` and `owed`.
        may_stand: identity.votes_after.is_zero() && !owes,
    };
    let raft = Raft::start(&settings, &peers, log.clone(), machine).await?;
    if !identity.votes_after.is_zero() {
        stand_later(&raft, &log, &config, identity).await?;
    }
    let state = raft.watch();
    peers.follow(move |id| Some(state.view().membership().get_node(&id)?.incarnation));
    let state = raft.watch();
    peers.bind_to(move |id| Some(state.view().membership().get_node(&id)?.peer_urls.clone()));
    let suspensions = Suspensions::new(replica.clock());
    let damage = Arc::<super::damage::Damage>::default();
    let noted = damage.clone();
    peers.tell_of_damage(move |reason| noted.note(reason));
    let users_changes = watch::Sender::new(0);
    let changes = users_changes.clone();
    replica.on_users_changed(move || changes.send_modify(|count| *count += 1));
    let core = Arc::new(Core {
        cluster_id,
        member_id,
        incarnation: identity.state.incarnation,
        founders: identity.state.founders.clone(),
        options: config,
        raft,
        replica,
        log,
        waiters,
        peers,
        progress,
        abdication: Arc::default(),
        seen_members: Mutex::default(),
        has_seen_log: AtomicBool::new(false),
        suspensions,
        read_floor: AtomicU64::new(0),
        renewals: Renewals::default(),
        space: super::space::Space::default(),
        repairs,
        damage,
        sending: Arc::default(),
        hashing: super::damage::Hashing::default(),
        long_work: tokio::sync::Semaphore::new(long_work_max()),
        heavy_turns: super::heavy_turns::HeavyTurns::new(),
        vouching: tokio::sync::Semaphore::new(1),
        changing: Arc::default(),
        failure: Mutex::new(None),
        closing: watch::Sender::new(false),
        leadership: watch::Sender::default(),
        users_changes,
        counts: Counts::default(),
        log_limits: Arc::default(),
        started: tokio::time::Instant::now(),
        heard_ms: AtomicU64::new(0),
        votes_after: identity.votes_after,
    });
    let memory: Weak<dyn Memory> = Arc::<Core>::downgrade(&core);
    core.peers.remember_by(memory);
    Ok(core)
}

/// Lets a member stand for election after the time in which it gives no vote, not even to itself. The times
/// are staggered, in case all members were restarted at once. A single voter has promised nothing to another
/// member.
async fn stand_later(
    raft: &Raft,
    log: &LogStore,
    config: &NodeConfig,
    identity: &Identity,
) -> Result<()> {
    // A member that owes stands only after that: see `owed`, which repeats this after it has noted it.
    let elect = |raft: &Raft, member: &MemberFile| {
        let owes = || member.read_owed().is_some();
        if !owes() {
            raft.may_stand(true);
            if owes() {
                raft.may_stand(false);
            }
        }
    };
    let member = log.member().clone();
    let own = identity.state.member_id;
    if raft.is_only_voter(own).await? {
        elect(raft, &member);
        return Ok(());
    }
    let apart = config.vote_lease().saturating_sub(config.campaign_wait());
    let wait = identity.votes_after + apart.mul_f64(fastrand::f64());
    let raft = raft.clone();
    tokio::spawn(async move {
        tokio::time::sleep(wait).await;
        elect(&raft, &member);
    });
    Ok(())
}

/// Serves peers at a listener until the node is closed.
fn serve(core: &Arc<Core>, port: &Arc<Port>, listener: Box<dyn Listener>) -> JoinHandle<()> {
    let service = core.raft.peer_service(
        core.options.vfs.clone(),
        &core.options.data_dir,
        core.peers.clone(),
        Arc::new(Service(core.clone())),
    );
    let options = core.options.peers.clone();
    let grpc = service.clone().into_server();
    tokio::spawn(peer::serve(listener, grpc, service, port.clone(), options))
}
