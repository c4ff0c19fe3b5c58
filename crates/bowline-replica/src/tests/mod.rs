//! A replica with a log of the test, on a disk that can lose power.
//!
//! | file | what it tests |
//! |---|---|
//! | [`agreement`] | members that apply the same entries are equal |
//! | [`commits`] | which commits of transactions conflict |
//! | [`directory`] | the directory of a member, when it is opened |
//! | [`encoding`] | the encoding of commands |
//! | [`indexes`] | indexes of blocks: steps, entries and refusals |
//! | [`installation`] | the installation of another member's tables |
//! | [`leases`] | who ends a lease, with its keys, and who records its remaining time |
//! | [`order`] | watchers receive the writes of a transaction in their order |
//! | [`quotas`] | the counters of quotas, and what is refused for them |
//! | [`ranges`] | the order and the limit of a range |
//! | [`reads`] | users and data that a read finds are of one state |
//! | [`same_as_library`] | the same transactions through the library and through commands |
//! | [`sessions`] | who gets a token, when a session ends, and how many there may be |
//! | [`space`] | lack of space, in the cluster and on the disk |
//! | [`transactions`] | conditions, operations and refusals of a transaction |
//! | [`users`] | who may do what, and that all members decide alike |
//! | [`work`] | the bound of a transaction's work |
//!
//! Here is what they share: a member, its state as text, and random commands.

mod agreement;
mod commits;
mod directory;
mod encoding;
mod indexes;
mod installation;
mod leases;
mod order;
mod quotas;
mod ranges;
mod reads;
mod same_as_library;
mod sessions;
mod space;
mod transactions;
mod updates;
mod users;
mod work;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bowline_storage::vfs::{OpenMode, Vfs};
use bowline_testing::SimDisk;
use bowline_testing::lease_id;
use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use bowline::{ChangeKind, Direction, Range, Value, Watcher};
use bowline_core::graph::{Block, BlockId, BlockKinds, Edge};
use bowline_core::options::{Background, BlobOptions, History, Isolation};
use bowline_types::Update;

/// A member: its database and its log, whose entries are commands only.
struct Member {
    disk: SimDisk,
    replica: Replica,
    log: Log,
}

fn builder(vfs: Arc<dyn Vfs>) -> DbBuilder {
    Db::builder()
        .vfs(vfs)
        .background(Background::Manual)
        .history(History::All)
        .memtable_bytes(8 << 10)
        .log_segment_bytes(16 << 10)
        .blobs(BlobOptions {
            threshold_bytes: Some(64),
            garbage_percent_max: 20,
            file_bytes: 2 << 10,
        })
}

impl Member {
    /// Opens it, and applies the log.
    fn open(disk: &SimDisk, number: u64) -> Member {
        Member::open_through(Arc::new(disk.clone()), disk, number)
    }

    /// [`Member::open`] through a wrapper around its disk.
    fn open_through(vfs: Arc<dyn Vfs>, disk: &SimDisk, number: u64) -> Member {
        Member::open_with(builder(vfs), disk, number)
    }

    fn open_with(builder: DbBuilder, disk: &SimDisk, number: u64) -> Member {
        let mut behind = Vec::new();
        let mut visit = |index: Index, payload: &[u8]| {
            behind.push((index, payload.to_vec()));
            Ok(())
        };
        let options = ReplicaOptions {
            database_id: 7,
            first_file_id: (number << 32) | u64::from(fastrand::u32(..)),
            locked: &mut |_| Ok(()),
            damaged: &mut |_| Ok(false),
            visit: &mut visit,
        };
        let (replica, log) = Replica::open(builder, "db", options).unwrap();
        let mut member = Member {
            disk: disk.clone(),
            replica,
            log,
        };
        for (index, payload) in behind {
            member.apply(index, &payload, false);
        }
        member
    }

    fn apply(&mut self, index: Index, payload: &[u8], wants_replies: bool) -> Vec<Reply> {
        let all = [true; COMMANDS_MAX];
        self.apply_for(index, payload, wants_replies.then_some(&all))
    }

    fn apply_for(&mut self, index: Index, payload: &[u8], awaited: Option<&[bool]>) -> Vec<Reply> {
        let commands = decode_commands(&Bytes::copy_from_slice(payload)).unwrap();
        let mut applier = self.replica.apply();
        let mark = index.to_be_bytes();
        let replies = applier.entry(index, 1, &commands, &mark, awaited);
        let replies = replies.unwrap();
        applier.finish().unwrap();
        while self.replica.run_background() {}
        replies
    }

    fn install(&self, frozen: &FrozenTables) -> Result<Installed> {
        let directory = Path::new("db/incoming");
        self.replica.install(&frozen.state, directory, false)
    }

    /// Restarts the log behind the installed state.
    fn restart_log(&mut self, installed: Installed) {
        self.log.restart_at(installed.index + 1).unwrap();
        self.replica.log_restarted().unwrap();
    }

    fn run(&mut self, commands: &[Command]) -> Vec<Reply> {
        let mut payload = Vec::new();
        encode_commands(commands.iter(), &mut payload);
        let index = self.log.stage(&payload);
        self.log.write().unwrap();
        self.log.sync().unwrap();
        self.apply(index, &payload, true)
    }

    /// The changes that a watch from a past revision receives, as text.
    fn events(&self, from: Revision) -> String {
        let watch = self.replica.db().watch(Range::all()).from(from);
        told(&mut watch.start().unwrap())
    }

    /// The whole state as text.
    fn dump(&self) -> String {
        let db = self.replica.db();
        let mut out = format!("at {}\n", db.revision());
        for entry in db.range(..).unwrap() {
            let entry = entry.unwrap();
            let mut versions = db.history(&entry.key).unwrap();
            // A deletion from before the start of history is visible until a merge drops it.
            let given_up = self.replica.compacted_revision();
            let oldest = versions.last();
            if oldest.is_some_and(|last| last.entry.is_none() && last.revision <= given_up) {
                versions.pop();
            }
            for version in versions {
                out += &format!("{version:?}\n");
            }
        }
        out += &self.events(self.replica.compacted_revision() + 1);
        let graph = db.snapshot().graph();
        for id in 0..6 {
            let block = graph.block(BlockId(id)).unwrap();
            out += &format!("{id} {block:?}\n");
            if block.is_some() {
                for direction in [Direction::Out, Direction::In] {
                    let near = graph.neighbors(BlockId(id), direction, [""; 0]).unwrap();
                    out += &format!("{direction:?} {near:?}\n");
                }
            }
        }
        for lease in db.leases() {
            let keys = keys_of(db, lease.id);
            out += &format!("lease {} {:?} {keys:?}\n", lease.id, lease.ttl);
        }
        let replica = &self.replica;
        out += &format!("{:?} {}\n", replica.alarms(), replica.compacted_revision());
        out
    }
}

/// A watch's changes as text, one line per revision.
fn told(watch: &mut Watcher) -> String {
    let mut out = String::new();
    while let Some(changes) = watch.try_recv().unwrap() {
        out += &format!("{}:", changes.revision);
        for change in changes.changes {
            let (entry, kind) = (change.entry, change.kind);
            let key = String::from_utf8_lossy(&entry.key).into_owned();
            assert_eq!(entry.mod_revision, changes.revision);
            match kind {
                ChangeKind::Delete => out += &format!(" -{key}"),
                ChangeKind::Put => {
                    let value = String::from_utf8_lossy(&entry.value).into_owned();
                    let (created, version) = (entry.create_revision, entry.version);
                    out += &format!(" {key}={value}@{created}.{version}");
                    if let Some(lease) = entry.lease {
                        out += &format!("/{lease}");
                    }
                }
            }
        }
        out += "\n";
    }
    out
}

/// The keys of a lease.
fn keys_of(db: &DbReader, id: LeaseId) -> Vec<Value> {
    let keys = db.lease_keys(id).unwrap();
    keys.map(Result::unwrap).collect()
}

fn value(member: &Member, key: &str) -> Option<Vec<u8>> {
    let found = member.replica.db().get(key).unwrap();
    found.map(|value| value.to_vec())
}

/// The check of a read that anybody may make.
fn unchecked() -> Result<()> {
    Ok(())
}

/// The evaluation of a transaction that only reads.
fn read_of(member: &Member, txn: &Txn) -> ReadAt<TxnReply> {
    let read = member.replica.read_txn(txn, unchecked).unwrap();
    read.expect("no state is installed")
}

/// Copies one member's tables to another, as files.
fn bring(from: &Member, to: &Member) -> FrozenTables {
    let (frozen, mark) = from.replica.freeze().unwrap();
    assert_eq!(mark, from.replica.applied().mark);
    let directory = Path::new("db/incoming");
    to.disk.create_dir(directory).unwrap();
    for table in &frozen.tables {
        let target = to
            .disk
            .open(&directory.join(table.name()), OpenMode::CreateNew);
        let target = target.unwrap();
        let mut bytes = vec![0; table.file_bytes() as usize];
        let read = table.file().read_at(&mut bytes, 0).unwrap();
        assert_eq!(read, bytes.len());
        target.write_at(&bytes, 0).unwrap();
        target.sync_data().unwrap();
    }
    frozen
}

/// Installs one member's tables on another, and restarts its log.
fn take_over(from: &Member, to: &mut Member) {
    let frozen = bring(from, to);
    let installed = to.install(&frozen).unwrap();
    assert_eq!(installed.index, frozen.index);
    // As for a member that was closed at this moment: the void log is discarded.
    let disk = to.disk.clone();
    let stand_in = Member::open(&SimDisk::new(), 9);
    drop(std::mem::replace(to, stand_in));
    *to = Member::open(&disk, 3);
    assert_eq!(to.log.next_index(), frozen.index + 1);
}

fn put(key: &str, value: &str) -> PutOp {
    PutOp {
        key: key.into(),
        value: Value::from(value),
        ..PutOp::default()
    }
}

fn txn_of(ops: Vec<Op>) -> Command {
    Command::Txn(Txn {
        success: ops,
        ..Txn::default()
    })
}

fn txn_reply(reply: &Reply) -> &TxnReply {
    match &reply.result {
        Ok(Outcome::Txn(txn)) => txn,
        other => panic!("{other:?}"),
    }
}

/// Changes of two indexes, and steps that are mostly the next ones.
fn index_change() -> impl Strategy<Value = Command> {
    let of = |number: u8| {
        (
            "kind 1".to_owned(),
            vec![["n", "m"][usize::from(number % 2)].to_owned()],
        )
    };
    let step = (
        1u32..4,
        prop::option::weighted(0.3, (0u128..6).prop_map(BlockId)),
    );
    prop_oneof![
        3 => (0u8..2, prop::bool::weighted(0.2)).prop_map(move |(number, is_unique)| {
            let (kind, attributes) = of(number);
            IndexChange::Create { kind, attributes, is_unique }
        }),
        1 => (0u8..2).prop_map(move |number| {
            let (kind, attributes) = of(number);
            IndexChange::Drop { kind, attributes }
        }),
        6 => step.prop_map(|(id, done)| IndexChange::Step { id, done }),
    ]
    .prop_map(Command::Index)
}

/// Random commands over few keys, so that they interact.
fn command() -> impl Strategy<Value = Command> {
    let key = || (0u8..8).prop_map(|n| vec![b'a' + n]);
    let end = prop_oneof![
        Just(Vec::new()),
        Just(vec![0]),
        (0u8..9).prop_map(|n| vec![b'a' + n])
    ];
    let put_op =
        (key(), 0usize..600, 0i64..4, any::<[bool; 3]>()).prop_map(|(key, len, lease, f)| {
            Op::Put(PutOp {
                key,
                value: Value::from(vec![b'v'; len]),
                lease,
                prev_kv: f[0],
                ignore_value: f[1] && f[2],
                ignore_lease: f[1] && f[0],
            })
        });
    let delete = (key(), end.clone(), any::<bool>()).prop_map(|(key, range_end, prev_kv)| {
        Op::DeleteRange(DeleteRangeOp {
            key,
            range_end,
            prev_kv,
        })
    });
    let range =
        (key(), end.clone(), 0u64..4, 0u64..40).prop_map(|(key, range_end, limit, revision)| {
            Op::Range(RangeOp {
                key,
                range_end,
                limit,
                revision: Revision::new(revision.saturating_sub(30)),
                sort_target: SortTarget::Mod,
                sort_order: SortOrder::Descend,
                ..RangeOp::default()
            })
        });
    let op = prop_oneof![4 => put_op, 2 => delete, 1 => range];
    let op = op.prop_recursive(2, 8, 3, |inner| {
        let ops = || prop::collection::vec(inner.clone(), 0..3);
        (ops(), ops()).prop_map(|(success, failure)| {
            Op::Txn(Txn {
                compares: vec![Compare {
                    key: b"a".to_vec(),
                    range_end: Vec::new(),
                    relation: Relation::Greater,
                    target: Target::Version(2),
                }],
                success,
                failure,
            })
        })
    });
    let lease = || 1i64..4;
    let ttl = Duration::from_secs(60);
    let block = || (0u128..6).prop_map(BlockId);
    let write =
        prop_oneof![
            // Of no kind, one or two.
            (block(), 0usize..300).prop_map(|(id, len)| GraphWrite::PutBlock(
                Block::new(
                    id,
                    (0..len % 3)
                        .map(|kind| format!("kind {kind}"))
                        .collect::<BlockKinds>()
                )
                .content(vec![1; len])
                .attribute("n", (len % 4) as i64)
            )),
            block().prop_map(GraphWrite::DeleteBlock),
            (block(), block(), 0..3).prop_map(|(source, target, kind)| GraphWrite::PutEdge(
                Edge::new(source, format!("tie {kind}"), target)
            )),
            (block(), block()).prop_map(|(source, target)| GraphWrite::DeleteEdge(EdgeKey {
                source,
                kind: "tie 1".to_owned(),
                target,
            })),
        ];
    let update = || {
        prop_oneof![
            (-3i64..4).prop_map(Update::Add),
            (0usize..400).prop_map(|len| Update::Append(vec![b'u'; len])),
            Just(Update::SetIfAbsent(b"7".to_vec())),
            Just(Update::Swap {
                expected: Some(b"7".to_vec()),
                new: None,
            }),
        ]
    };
    let range_end = end.clone();
    let read = prop_oneof![
        3 => key().prop_map(CommitRead::Key),
        2 => (key(), end.clone()).prop_map(|(key, range_end)| CommitRead::Range { key, range_end }),
        1 => block().prop_map(CommitRead::Block),
        1 => (block(), block()).prop_map(|(first, last)| CommitRead::Blocks { first, last }),
        1 => block().prop_map(CommitRead::EdgesOut),
        1 => block().prop_map(CommitRead::EdgesIn),
        1 => (block(), block(), 0..3).prop_map(|(source, target, kind)| CommitRead::Edge {
            source,
            kind: format!("tie {kind}"),
            target,
        }),
    ];
    let commit_write = prop_oneof![
        3 => (key(), 0usize..600, 0i64..4).prop_map(|(key, len, lease)| CommitWrite::Put {
            key,
            value: Value::from(vec![b'c'; len]),
            lease,
        }),
        1 => key().prop_map(|key| CommitWrite::Delete { key }),
        1 => (key(), range_end)
            .prop_map(|(key, range_end)| CommitWrite::DeleteRange { key, range_end }),
        2 => write.clone().prop_map(CommitWrite::Graph),
        2 => (key(), update()).prop_map(|(key, update)| CommitWrite::Update { key, update }),
    ];
    let expectation = (key(), 0u64..9).prop_map(|(key, mod_revision)| Expectation {
        key,
        mod_revision: Revision::new(mod_revision),
    });
    let commit = (
        prop_oneof![1 => Just(0), 4 => 1u64..40],
        any::<bool>(),
        prop::collection::vec(read, 0..3),
        prop_oneof![9 => Just(None), 1 => expectation.prop_map(Some)],
        prop::collection::vec(commit_write, 0..4),
    );
    let commit = commit.prop_map(|(read_revision, is_snapshot, reads, expectation, writes)| {
        let isolation = match is_snapshot {
            true => Isolation::Snapshot,
            false => Isolation::Serializable,
        };
        Command::Commit(Commit {
            read_revision: Revision::new(read_revision),
            isolation,
            reads,
            expectations: expectation.into_iter().collect(),
            writes,
        })
    });
    prop_oneof![
        6 => commit,
        8 => prop::collection::vec(op, 0..4).prop_map(txn_of),
        2 => lease().prop_map(move |id| Command::LeaseGrant { id, ttl }),
        1 => lease().prop_map(|id| Command::LeaseRevoke { id }),
        1 => (lease(), 0u64..3, prop::option::of(0u64..4)).prop_map(|(id, term, granted)| {
            Command::LeaseExpire { id, term, granted }
        }),
        1 => (lease(), prop::option::of((0u64..3, 0u64..4))).prop_map(|(id, expired)| {
            Command::LeaseDeleteKeys { id, expired }
        }),
        1 => (lease(), 0u64..3, 0u64..4, any::<bool>()).prop_map(move |(id, term, granted, left)| {
            let left = left.then_some(ttl / 3);
            let leases = vec![LeaseLeft { id: lease_id(id), granted, left }];
            Command::LeaseRemaining { term, leases }
        }),
        1 => lease().prop_map(move |id| Command::LeaseCheckpoint { remaining: vec![(id, ttl / 2)] }),
        1 => (1u64..60).prop_map(|revision| Command::Compact { revision: Revision::new(revision) }),
        4 => prop::collection::vec(write, 1..4).prop_map(Command::Graph),
        // While it is raised, few commands are executed.
        1 => prop::bool::weighted(0.2).prop_map(|is_raised| Command::Alarm {
            member: 1,
            kind: AlarmKind::Corrupt,
            is_raised,
        }),
    ]
}
