//! A member loses power at any moment: its vote, its log and its tables still fit together.
//!
//! The test is a script over the shipped parts: replica, log store, state machine, `MEMBER`. The committed
//! log is fixed beforehand, with the state after each entry. From each crash image the member is opened as a
//! process would open it, and then
//!
//! 1. its vote is the last one that was answered, or one that was being saved;
//! 2. its log continues where its tables end, without a hole, and holds every entry that was reported durable
//!    and is not in the tables;
//! 3. its commit index is within the committed log;
//! 4. its state is that of the last entry it reports as applied;
//! 5. after the rest of the log, it reaches the same final state as all.
//!
//! `BOWLINE_MEMBER_CRASH_IMAGES` sets the number of images, `BOWLINE_SEED` their seed.

use std::path::Path;

use bowline::{Background, BlobOptions, Db, History, Revision, Value};
use bowline_replica::{AlarmKind, Command, DeleteRangeOp, Op, PutOp, ReplicaOptions, Txn};
use bowline_storage::vfs::{OpenMode, Vfs};
use bowline_testing::{CrashImage, Images, Seed, SimDisk};
use openraft::RaftLogReader;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use tokio::sync::oneshot;

use super::*;
use crate::member_file::{MemberFile, MemberState};
use crate::node::tests::unreachable::Events;
use crate::raft::log_store::{LogStoreOptions, Replay};
use crate::types::{Entry, Payload, Proposal, Vote};

const DIR: &str = "db";
/// The length of the committed log.
const AGREED: u64 = 140;
/// The ends of the leader's snapshots that the member installs: behind its log, and within it.
const BEHIND: u64 = 75;
const WITHIN: u64 = 100;

/// Marks: this many states of the log were durable; the tables held this much; this vote was answered, this
/// one was requested.
const FLUSHED: u64 = 10_000;
const ANSWERED: u64 = 100_000;
const ASKED: u64 = 200_000;

type Ids = Vec<(u64, u64)>;

fn term_of(index: u64) -> u64 {
    1 + index / 30
}

/// An entry of a leader of `term`; the contents depend on the term.
fn entry(term: u64, index: u64) -> Entry {
    let mut random = fastrand::Rng::with_seed(term << 32 | index);
    let key = |random: &mut fastrand::Rng| format!("k{:02}", random.u64(..40)).into_bytes();
    let put = |random: &mut fastrand::Rng| {
        Op::Put(PutOp {
            key: key(random),
            value: Value::from(vec![b'a' + (index % 26) as u8; random.usize(..200)]),
            ..PutOp::default()
        })
    };
    let commands = match index % 20 {
        // Larger than a memtable: applied in parts.
        7 => (0..40)
            .map(|_| Command::Txn(Txn::of(put(&mut random))))
            .collect(),
        11 => vec![Command::LeaseGrant {
            id: index as i64,
            ttl: Duration::from_secs(3600),
        }],
        // A revision that every history has by then.
        13 => vec![Command::Compact {
            revision: Revision::new(2 + index / 2),
        }],
        // While it is raised, few commands are executed.
        17 | 18 => vec![Command::Alarm {
            member: 3,
            kind: AlarmKind::Corrupt,
            is_raised: index % 20 == 17,
        }],
        19 => vec![Command::Txn(Txn::of(Op::DeleteRange(DeleteRangeOp {
            key: key(&mut random),
            ..DeleteRangeOp::default()
        })))],
        _ => (0..random.u64(1..4))
            .map(|_| Command::Txn(Txn::of(put(&mut random))))
            .collect(),
    };
    let payload = match index {
        0 => Payload::Blank,
        _ => {
            // Of another member: nobody waits here.
            let (_, proposal) = Waiters::new(9).propose(&commands, Vec::new());
            Payload::Normal(Proposal(proposal))
        }
    };
    Entry {
        log_id: log_id(term, 1, index),
        payload,
    }
}

fn agreed(index: u64) -> Entry {
    entry(term_of(index), index)
}

/// A member, opened as in a process.
struct Member {
    machine: StateMachine,
    store: LogStore,
    member: Arc<MemberFile>,
}

impl Member {
    fn open(disk: &SimDisk, number: u64) -> Member {
        let mut replay = Replay::new(DIR.into());
        let options = ReplicaOptions {
            database_id: 7,
            first_file_id: (number << 32) | u64::from(fastrand::u32(..)),
            locked: &mut |_| Ok(()),
            damaged: &mut |_| Ok(false),
            visit: &mut |index, payload| replay.visit(index, payload),
        };
        let database = Db::builder()
            .vfs(Arc::new(disk.clone()))
            .background(Background::Manual)
            .history(History::All)
            .memtable_bytes(8 << 10)
            .log_segment_bytes(16 << 10)
            .blobs(BlobOptions {
                threshold_bytes: Some(64),
                garbage_percent_max: 20,
                file_bytes: 2 << 10,
            });
        let (replica, log) = Replica::open(database, DIR, options).expect("replica");
        let dir = Path::new(DIR);
        let member = match MemberFile::exists(disk, dir).expect("stat") {
            true => MemberFile::open(disk, dir),
            false => MemberFile::create(disk, dir, MemberState::new(1, number)),
        };
        let member = Arc::new(member.expect("MEMBER"));
        let replica = Arc::new(replica);
        let applied = StateMachine::applied_of(&replica, false).expect("mark");
        let flushed = replica.flushed_index();
        let options = LogStoreOptions {
            cache_bytes: 4 << 10,
            read_bytes: 1 << 10,
            ..LogStoreOptions::default()
        };
        let store = LogStore::open(log, &replay, flushed, applied, member.clone(), options);
        let store = store.expect("log");
        let waiters = Arc::new(Waiters::new(number));
        let machine = StateMachine::new(replica, store.clone(), waiters, None).expect("machine");
        Member {
            machine,
            store,
            member,
        }
    }

    fn applied_next(&self) -> u64 {
        self.machine.last_applied.map_or(0, |id| id.index + 1)
    }

    async fn append(&mut self, entries: Vec<Entry>) -> oneshot::Receiver<io::Result<()>> {
        let (sender, receiver) = TypeConfig::oneshot();
        let appended = self.store.append(entries, IOFlushed::signal(sender)).await;
        appended.expect("append");
        receiver
    }

    async fn entries(&self, from: u64) -> Vec<Entry> {
        let mut reader = self.store.clone().get_log_reader().await;
        reader.try_get_log_entries(from..).await.expect("read")
    }

    fn apply(&mut self, entries: Vec<Entry>) {
        let chunk = entries.into_iter().map(|entry| (entry, None)).collect();
        self.machine.apply_chunk(chunk).expect("apply");
    }

    /// All replicated state.
    fn dump(&self) -> String {
        let replica = &self.machine.replica;
        let db = replica.db();
        let mut out = format!("at {}\n", db.revision());
        for entry in db.range(..).expect("range") {
            out += &format!("{:?}\n", entry.expect("entry"));
        }
        for lease in db.leases() {
            out += &format!("lease {} {:?}\n", lease.id, lease.ttl);
        }
        out += &format!("{:?} {}\n", replica.alarms(), replica.compacted_revision());
        out
    }
}

/// The states after each entry, and the leader's snapshots.
struct Model {
    states: Vec<String>,
    snapshots: Vec<(SnapshotMeta, FrozenTables)>,
}

impl Model {
    fn new() -> Model {
        let mut leader = Member::open(&SimDisk::new(), 1);
        let mut model = Model {
            states: vec![leader.dump()],
            snapshots: Vec::new(),
        };
        block_on(async {
            for index in 0..AGREED {
                leader
                    .append(vec![agreed(index)])
                    .await
                    .await
                    .expect("answer")
                    .expect("durable");
                leader.apply(vec![agreed(index)]);
                model.states.push(leader.dump());
                if [BEHIND, WITHIN].contains(&(index + 1)) {
                    let snapshot = leader.machine.snapshot().expect("freeze");
                    model.snapshots.push(snapshot.expect("something"));
                }
            }
        });
        model
    }
}

struct Run<'a> {
    disk: SimDisk,
    member: Member,
    model: &'a Model,
    /// The log's contents after each step; a step is acknowledged when its number is marked.
    states: Vec<Ids>,
}

impl Run<'_> {
    fn now(&self) -> Ids {
        self.states.last().cloned().unwrap_or_default()
    }

    fn acknowledged(&self) {
        self.disk.mark(self.states.len() as u64 - 1);
    }

    async fn append(&mut self, entries: Vec<Entry>) {
        let mut state = self.now();
        state.extend(
            entries
                .iter()
                .map(|e| (e.log_id.leader_id.term, e.log_id.index)),
        );
        self.states.push(state);
        self.member
            .append(entries)
            .await
            .await
            .expect("answer")
            .expect("durable");
        self.acknowledged();
    }

    async fn append_agreed(&mut self, indices: std::ops::Range<u64>) {
        self.append(indices.map(agreed).collect()).await;
    }

    async fn cut(&mut self, next: u64) {
        let mut state = self.now();
        state.retain(|(_, index)| *index < next);
        self.states.push(state);
        let last = log_id(term_of(next - 1), 1, next - 1);
        self.member
            .store
            .truncate_after(Some(last))
            .await
            .expect("cut");
    }

    /// As one chunk, each entry with its known commit index.
    async fn apply(&mut self, next: u64) {
        let from = self.member.applied_next();
        let committed = Some(agreed(next - 1).log_id);
        self.member
            .store
            .save_committed(committed)
            .await
            .expect("committed");
        self.member.apply((from..next).map(agreed).collect());
    }

    async fn vote(&mut self, term: u64) {
        self.disk.mark(ASKED + term);
        let saved = self.member.store.save_vote(&Vote::new(term, 1)).await;
        saved.expect("vote");
        self.disk.mark(ANSWERED + term);
    }

    fn snapshot(&mut self) -> SnapshotMeta {
        let snapshot = self.member.machine.snapshot().expect("snapshot");
        let (meta, frozen) = snapshot.expect("something");
        self.disk.mark(FLUSHED + frozen.index);
        meta
    }

    async fn trim(&mut self, keep: u64) {
        let last = self.snapshot().last_log_id.expect("something").index - keep;
        let purged = self.member.store.purge(agreed(last).log_id).await;
        purged.expect("purge");
        self.member.store.flush().await.expect("flush");
    }

    async fn install(&mut self, number: usize) {
        let (meta, frozen) = &self.model.snapshots[number];
        let directory = Path::new(DIR).join("incoming");
        match self.disk.create_dir(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => panic!("{error}"),
            _ => self.disk.sync_dir(Path::new(DIR)).expect("sync"),
        }
        for table in &frozen.tables {
            let mut bytes = vec![0; table.file_bytes() as usize];
            let read = table.file().read_at(&mut bytes, 0).expect("read");
            assert_eq!(read, bytes.len());
            let path = directory.join(table.name());
            let file = self.disk.open(&path, OpenMode::CreateNew).expect("create");
            file.write_at(&bytes, 0).expect("write");
            file.sync_data().expect("sync");
        }
        self.disk.sync_dir(&directory).expect("sync");
        let last = meta.last_log_id.expect("an end");
        if self
            .now()
            .last()
            .is_none_or(|(_, index)| *index < last.index)
        {
            self.states.push(Vec::new());
        }
        let arrival = Arc::new(tokio::sync::Mutex::new(())).try_lock_owned();
        let snapshot = SnapshotData::Incoming {
            arrival: Arc::new(arrival.unwrap()),
            state: frozen.state.clone().into(),
            directory,
            files: Vec::new(),
        };
        let installed = self.member.machine.install(meta, snapshot).await;
        installed.expect("install");
        self.acknowledged();
        self.disk.mark(FLUSHED + frozen.index);
        self.member.store.purge(last).await.expect("purge");
    }
}

async fn live(disk: &SimDisk, model: &Model) -> Vec<Ids> {
    let mut run = Run {
        disk: disk.clone(),
        member: Member::open(disk, 2),
        model,
        states: vec![Vec::new()],
    };
    run.vote(1).await;
    run.append_agreed(0..10).await;
    run.apply(8).await;
    run.append_agreed(10..22).await;
    run.apply(20).await;
    run.trim(5).await;
    // A leader of an earlier term had proposed other entries there.
    run.append((22..27).map(|index| entry(40, index)).collect())
        .await;
    run.vote(2).await;
    run.cut(22).await;
    run.append_agreed(22..40).await;
    run.apply(35).await;
    // A majority may have an entry that is not even written here. Then the tables wait for the log.
    let machine = run.member.machine.clone();
    let mut state = run.now();
    state.extend((40..44).map(|index| (term_of(index), index)));
    run.states.push(state);
    run.member.apply((35..44).map(agreed).collect());
    let freezing = std::thread::spawn(move || machine.snapshot().expect("snapshot"));
    tokio::time::sleep(Duration::from_millis(20)).await;
    let appended = run.member.append((40..44).map(agreed).collect()).await;
    appended.await.expect("answer").expect("durable");
    run.acknowledged();
    let frozen = freezing.join().expect("no panic").expect("something").1;
    run.disk.mark(FLUSHED + frozen.index);
    run.append_agreed(44..50).await;
    run.vote(3).await;
    // It lags: the snapshot begins behind its log.
    run.install(0).await;
    run.vote(5).await;
    run.append_agreed(BEHIND..85).await;
    run.apply(80).await;
    run.append_agreed(85..110).await;
    // And a snapshot within its log: what follows was acknowledged.
    run.install(1).await;
    run.apply(105).await;
    run.append_agreed(110..120).await;
    run.apply(120).await;
    run.trim(3).await;
    run.append((120..123).map(|index| entry(41, index)).collect())
        .await;
    run.cut(120).await;
    run.append_agreed(120..130).await;
    run.apply(128).await;
    run.vote(6).await;
    run.states.clone()
}

async fn check(image: &CrashImage, states: &[Ids], model: &Model) {
    let marks = image.marks();
    let highest = |from: u64, below: u64| {
        let of_kind = marks.iter().filter(|mark| (from..below).contains(mark));
        of_kind.max().map_or(0, |mark| mark - from)
    };
    let disk = image.build();
    if marks.is_empty() && !MemberFile::exists(&disk, Path::new(DIR)).unwrap_or(false) {
        // The crash was during the creation of the directory.
        return;
    }
    let mut member = Member::open(&disk, 2);

    let vote = member
        .member
        .read_vote()
        .map_or(0, |vote| vote.leader_id.term);
    let votes = highest(ANSWERED, ASKED)..=highest(ASKED, u64::MAX);
    assert!(votes.contains(&vote), "{image}: vote {vote} of {votes:?}");

    let flushed = member.machine.replica.flushed_index();
    assert!(flushed >= highest(FLUSHED, ANSWERED), "{image}: {flushed}");
    let next = member.applied_next();
    assert_eq!(next, flushed, "{image}: applied is what the tables hold");
    if let Some(applied) = member.machine.last_applied {
        assert_eq!(applied, agreed(applied.index).log_id, "{image}");
        assert!(
            member.store.last_log_id() >= Some(applied),
            "{image}: the log ends before"
        );
    }
    let entries = member.entries(next).await;
    let id = |entry: &Entry| (entry.log_id.leader_id.term, entry.log_id.index);
    let found: Ids = entries.iter().map(id).collect();
    let step = highest(0, FLUSHED) as usize;
    let above = |state: &Ids| -> Ids {
        let above = state.iter().filter(|(_, index)| *index >= next);
        above.copied().collect()
    };
    let is_one = states[step..].iter().any(|state| above(state) == found);
    assert!(is_one, "{image}: at {next}, step {step}, found {found:?}");
    for held in &entries {
        let (term, index) = id(held);
        let Payload::Normal(proposal) = &held.payload else {
            assert_eq!(index, 0, "{image}");
            continue;
        };
        let Payload::Normal(expected) = entry(term, index).payload else {
            panic!("{image}: {index}");
        };
        // Behind the member, its run and a number.
        assert_eq!(proposal.0[24..], expected.0[24..], "{image}: {index}");
    }

    if let Some(committed) = member.store.read_committed().await.expect("committed") {
        assert_eq!(
            committed,
            agreed(committed.index).log_id,
            "{image}: committed"
        );
    }

    let is_whole = member.machine.replica.applied().commands == 0;
    if is_whole {
        assert_eq!(
            member.dump(),
            model.states[next as usize],
            "{image}: at {next}"
        );
    }

    // The leader truncates what was not committed, and sends the rest.
    let is_agreed = |entry: &&Entry| entry.log_id == agreed(entry.log_id.index).log_id;
    let kept: Vec<Entry> = entries.iter().take_while(is_agreed).cloned().collect();
    let end = next + kept.len() as u64;
    if kept.len() < entries.len() {
        let last = end.checked_sub(1).map(|index| agreed(index).log_id);
        member.store.truncate_after(last).await.expect("cut");
    }
    member.apply(kept);
    let rest: Vec<Entry> = (end..AGREED).map(agreed).collect();
    member
        .append(rest.clone())
        .await
        .await
        .expect("answer")
        .expect("durable");
    member.apply(rest);
    assert_eq!(
        member.dump(),
        model.states[AGREED as usize],
        "{image}: in the end"
    );
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build();
    runtime.expect("runtime").block_on(future)
}

#[test]
fn vote_log_and_tables_belong_together_after_a_crash_anywhere() {
    let test = "-p bowline-cluster vote_log_and_tables_belong_together";
    let seed = Seed::from_env_or(11);
    let count = std::env::var("BOWLINE_MEMBER_CRASH_IMAGES");
    let count: u64 = count.map_or(1500, |count| count.parse().expect("a number of images"));
    let model = Model::new();
    let disk = SimDisk::new();
    let states = block_on(live(&disk, &model));
    // A tenth more have a fresh seed in each run.
    let fresh = Seed::fresh(test).map(|seed| (seed, count.div_ceil(10)));
    for (seed, count) in std::iter::once((seed, count)).chain(fresh) {
        let _guard = seed.print_on_failure(test);
        let mut images = Images::sample(&disk.recording(), seed.0, count);
        block_on(async {
            for image in &mut images {
                check(&image, &states, &model).await;
            }
        });
        let tried = images.coverage().total_tried();
        assert!(tried >= count.min(1500), "{tried} images");
    }
}

/// A member on a full disk, or without file descriptors, logged a line at each attempt, twice a second.
#[tokio::test]
async fn what_waits_for_room_says_so_now_and_then() {
    let events = Events::default();
    let _here = bowline_testing::listen(events.clone());
    let member = Member::open(&SimDisk::new(), 1);
    let full = bowline_storage::Error::NoSpace { path: DIR.into() };
    let full = Error::from(bowline::Error::from(full));
    let attempts = (0..20).map(|_| member.machine.wait_for_room(&full));
    for waited in futures_util::future::join_all(attempts).await {
        waited.expect("it is not closing");
    }
    assert_eq!(events.times_said("waits and tries again"), 1);
}
