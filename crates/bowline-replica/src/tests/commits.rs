//! Commits of transactions: which conflict, and that all members decide alike at any time.

use super::*;
use bowline_testing::lease_id;

pub(super) fn key_put(key: &str, value: &str) -> CommitWrite {
    CommitWrite::Put {
        key: key.into(),
        value: Value::from(value),
        lease: 0,
    }
}

fn key_read(key: &str) -> CommitRead {
    CommitRead::Key(key.into())
}

fn key_range(from: &str, end: &str) -> CommitRead {
    CommitRead::Range {
        key: from.into(),
        range_end: end.into(),
    }
}

fn span(first: u128, last: u128) -> CommitRead {
    CommitRead::Blocks {
        first: BlockId(first),
        last: BlockId(last),
    }
}

fn edge_read(source: u128, kind: &str, target: u128) -> CommitRead {
    CommitRead::Edge {
        source: BlockId(source),
        kind: kind.to_owned(),
        target: BlockId(target),
    }
}

fn put_block(id: u128) -> GraphWrite {
    GraphWrite::PutBlock(Block::new(BlockId(id), "node"))
}

fn put_edge(source: u128, target: u128) -> GraphWrite {
    GraphWrite::PutEdge(Edge::new(BlockId(source), "tie", BlockId(target)))
}

fn delete_edge(source: u128, target: u128) -> GraphWrite {
    GraphWrite::DeleteEdge(EdgeKey {
        source: BlockId(source),
        kind: "tie".to_owned(),
        target: BlockId(target),
    })
}

fn delete_key(key: &str) -> Command {
    txn_of(vec![Op::DeleteRange(DeleteRangeOp {
        key: key.into(),
        ..DeleteRangeOp::default()
    })])
}

fn edge(source: u128, target: u128) -> Touched {
    Touched::Edge(EdgeKey {
        source: BlockId(source),
        kind: "tie".to_owned(),
        target: BlockId(target),
    })
}

/// A commit of reads at `at`, with a write that conflicts with nothing.
fn commit(at: Revision, isolation: Isolation, reads: Vec<CommitRead>) -> Command {
    Command::Commit(Commit {
        read_revision: at,
        isolation,
        reads,
        expectations: Vec::new(),
        writes: vec![key_put("written", "w")],
    })
}

pub(super) fn commit_of(at: Revision, isolation: Isolation, writes: Vec<CommitWrite>) -> Command {
    Command::Commit(Commit {
        read_revision: at,
        isolation,
        writes,
        ..Commit::default()
    })
}

pub(super) fn one(member: &mut Member, command: Command) -> Reply {
    member.run(&[command]).pop().unwrap()
}

/// A member with keys a, c and e and with blocks 1, 2 and 3, of which 1 points to 2.
pub(super) fn member() -> Member {
    let mut member = Member::open(&SimDisk::new(), 1);
    let keys = ["a", "c", "e"].map(|key| Op::Put(put(key, "v")));
    member.run(&[
        txn_of(keys.to_vec()),
        Command::Graph(vec![
            put_block(1),
            put_block(2),
            put_block(3),
            put_edge(1, 2),
        ]),
    ]);
    member
}

/// What each kind of read conflicts with, and what not, with the change in memory and in merged tables.
#[test]
fn what_was_read_conflicts_with_its_change_and_with_nothing_else() {
    use Isolation::{Serializable, Snapshot};
    let graph = |write| Command::Graph(vec![write]);
    let key = |key: &str| Touched::Key(key.to_owned().into());
    let cases: Vec<(CommitRead, Command, Option<Touched>)> = vec![
        (
            key_read("a"),
            txn_of(vec![Op::Put(put("a", "w"))]),
            Some(key("a")),
        ),
        (key_read("a"), txn_of(vec![Op::Put(put("b", "w"))]), None),
        // Deleted, and created.
        (key_read("a"), delete_key("a"), Some(key("a"))),
        (
            key_read("b"),
            txn_of(vec![Op::Put(put("b", "w"))]),
            Some(key("b")),
        ),
        // A deletion of an absent key changes nothing.
        (key_read("b"), delete_key("b"), None),
        // A phantom, a deletion, and a change beside the range.
        (
            key_range("b", "d"),
            txn_of(vec![Op::Put(put("bb", "w"))]),
            Some(key("bb")),
        ),
        (key_range("b", "d"), delete_key("c"), Some(key("c"))),
        (
            key_range("b", "d"),
            txn_of(vec![Op::Put(put("d", "w"))]),
            None,
        ),
        (
            key_range("b", "d"),
            txn_of(vec![Op::Put(put("a", "w"))]),
            None,
        ),
        (
            key_range("b", "\0"),
            txn_of(vec![Op::Put(put("z", "w"))]),
            Some(key("z")),
        ),
        (
            key_range("d", "b"),
            txn_of(vec![Op::Put(put("c", "w"))]),
            None,
        ),
        (
            CommitRead::Block(BlockId(1)),
            graph(put_block(1)),
            Some(Touched::Block(BlockId(1))),
        ),
        (
            CommitRead::Block(BlockId(9)),
            graph(put_block(9)),
            Some(Touched::Block(BlockId(9))),
        ),
        (
            CommitRead::Block(BlockId(3)),
            graph(GraphWrite::DeleteBlock(BlockId(3))),
            Some(Touched::Block(BlockId(3))),
        ),
        // An edge is not a part of its blocks.
        (CommitRead::Block(BlockId(1)), graph(put_edge(1, 3)), None),
        // Both ends of a span belong to it, and what is absent.
        (
            span(7, 9),
            graph(put_block(9)),
            Some(Touched::Block(BlockId(9))),
        ),
        (
            span(9, 11),
            graph(put_block(9)),
            Some(Touched::Block(BlockId(9))),
        ),
        (
            span(0, u128::MAX),
            graph(put_block(9)),
            Some(Touched::Block(BlockId(9))),
        ),
        (span(7, 8), graph(put_block(9)), None),
        (span(10, u128::MAX), graph(put_block(9)), None),
        (
            edge_read(1, "tie", 2),
            graph(delete_edge(1, 2)),
            Some(edge(1, 2)),
        ),
        (
            edge_read(1, "tie", 3),
            graph(put_edge(1, 3)),
            Some(edge(1, 3)),
        ),
        (edge_read(1, "other", 3), graph(put_edge(1, 3)), None),
        // Read by a kind that was not used.
        (
            edge_read(1, "new", 2),
            graph(GraphWrite::PutEdge(Edge::new(
                BlockId(1),
                "new",
                BlockId(2),
            ))),
            Some(Touched::Edge(EdgeKey {
                source: BlockId(1),
                kind: "new".to_owned(),
                target: BlockId(2),
            })),
        ),
        (
            CommitRead::EdgesOut(BlockId(1)),
            graph(put_edge(1, 3)),
            Some(edge(1, 3)),
        ),
        (
            CommitRead::EdgesOut(BlockId(1)),
            graph(put_edge(3, 1)),
            None,
        ),
        (
            CommitRead::EdgesIn(BlockId(1)),
            graph(put_edge(3, 1)),
            Some(edge(3, 1)),
        ),
        (CommitRead::EdgesIn(BlockId(1)), graph(put_edge(1, 3)), None),
        // A deleted block takes its edges along.
        (
            CommitRead::EdgesOut(BlockId(1)),
            graph(GraphWrite::DeleteBlock(BlockId(2))),
            Some(edge(1, 2)),
        ),
    ];
    for (read, change, what) in cases {
        for is_merged in [false, true] {
            let mut member = member();
            let at = member.replica.db().revision();
            let case = format!("{read:?} after {change:?}, merged {is_merged}");
            one(&mut member, change.clone());
            // Later changes do not matter; the refusal names the first in the order of the command.
            one(&mut member, txn_of(vec![Op::Put(put("zz", "w"))]));
            if is_merged {
                member.replica.db().compact().unwrap();
            }
            let before = member.dump();
            let done = one(&mut member, commit(at, Serializable, vec![read.clone()]));
            match what.clone() {
                Some(what) => {
                    let refusal = Refusal::Conflict {
                        what,
                        revision: at + 1,
                        snapshot: at,
                    };
                    assert_eq!(done.result, Err(refusal), "{case}");
                    assert_eq!(member.dump(), before, "{case}");
                }
                None => {
                    assert!(done.result.is_ok(), "{case}: {done:?}");
                    assert_eq!(value(&member, "written"), Some(b"w".to_vec()), "{case}");
                }
            }
            let mut again = self::member();
            one(&mut again, change.clone());
            // Snapshot isolation does not check reads, and nothing conflicts with a read after the change.
            let skewed = one(&mut again, commit(at, Snapshot, vec![read.clone()]));
            assert!(skewed.result.is_ok(), "{case}: {skewed:?}");
            let now = again.replica.db().revision();
            let fresh = one(&mut again, commit(now, Serializable, vec![read.clone()]));
            assert!(fresh.result.is_ok(), "{case}: {fresh:?}");
        }
    }
}

#[test]
fn what_is_written_conflicts_under_snapshot_isolation_only() {
    let cases: Vec<(CommitWrite, Command)> = vec![
        (key_put("a", "mine"), delete_key("a")),
        (
            key_put("b", "mine"),
            txn_of(vec![Op::Put(put("b", "theirs"))]),
        ),
        (
            CommitWrite::Delete { key: "a".into() },
            txn_of(vec![Op::Put(put("a", "theirs"))]),
        ),
        (
            CommitWrite::DeleteRange {
                key: "b".into(),
                range_end: "d".into(),
            },
            txn_of(vec![Op::Put(put("bb", "theirs"))]),
        ),
        (
            CommitWrite::Graph(put_block(1)),
            Command::Graph(vec![put_block(1)]),
        ),
        (
            CommitWrite::Graph(put_edge(1, 2)),
            Command::Graph(vec![delete_edge(1, 2)]),
        ),
        (
            CommitWrite::Graph(delete_edge(1, 2)),
            Command::Graph(vec![put_edge(1, 2)]),
        ),
    ];
    for (write, change) in cases {
        for isolation in [Isolation::Serializable, Isolation::Snapshot] {
            let mut member = member();
            let at = member.replica.db().revision();
            one(&mut member, change.clone());
            let done = one(&mut member, commit_of(at, isolation, vec![write.clone()]));
            let is_conflict = matches!(done.result, Err(Refusal::Conflict { .. }));
            let case = format!("{write:?} after {change:?}: {done:?}");
            assert_eq!(is_conflict, isolation == Isolation::Snapshot, "{case}");
            assert_eq!(done.result.is_ok(), !is_conflict, "{case}");
            // Without reads there is no revision since which anything could have changed.
            let blind = one(
                &mut member,
                commit_of(Revision::ZERO, isolation, vec![write.clone()]),
            );
            assert!(blind.result.is_ok(), "{blind:?}");
            assert!(member.replica.db().check().unwrap().is_clean());
        }
    }
}

#[test]
fn a_block_is_not_deleted_with_an_edge_that_its_transaction_has_not_seen() {
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        for (change, seen) in [(put_edge(3, 1), edge(3, 1)), (put_edge(1, 3), edge(1, 3))] {
            let mut member = member();
            let at = member.replica.db().revision();
            one(&mut member, Command::Graph(vec![change]));
            let delete = || {
                let delete = CommitWrite::Graph(GraphWrite::DeleteBlock(BlockId(1)));
                vec![delete]
            };
            let refused = one(&mut member, commit_of(at, isolation, delete()));
            let refusal = Refusal::Conflict {
                what: seen,
                revision: at + 1,
                snapshot: at,
            };
            assert_eq!(refused.result, Err(refusal));
            let done = one(&mut member, commit_of(at + 1, isolation, delete()));
            assert!(done.result.is_ok(), "{done:?}");
            assert!(member.replica.db().check().unwrap().is_clean());
        }
    }
}

#[test]
fn all_of_a_commit_has_one_revision_and_each_key_one_version() {
    let mut member = member();
    let ttl = Duration::from_secs(60);
    one(&mut member, Command::LeaseGrant { id: 5, ttl });
    let mut watch = member.replica.db().watch(..).start().unwrap();
    let at = member.replica.db().revision();
    let content = |text: &str| {
        let block = Block::new(BlockId(4), "node").content(text.as_bytes());
        CommitWrite::Graph(GraphWrite::PutBlock(block))
    };
    let leased = CommitWrite::Put {
        key: "b".into(),
        value: Value::from("leased"),
        lease: 5,
    };
    let done = one(
        &mut member,
        Command::Commit(Commit {
            read_revision: at,
            reads: vec![key_read("a"), CommitRead::EdgesOut(BlockId(1))],
            expectations: vec![
                Expectation {
                    key: "a".into(),
                    mod_revision: Revision::new(2),
                },
                Expectation {
                    key: "nothing".into(),
                    mod_revision: Revision::ZERO,
                },
            ],
            writes: vec![
                key_put("cc", "put and deleted"),
                CommitWrite::DeleteRange {
                    key: "a".into(),
                    range_end: "d".into(),
                },
                key_put("a", "deleted and put"),
                key_put("e", "first"),
                key_put("e", "last"),
                leased,
                CommitWrite::Delete {
                    key: "nothing".into(),
                },
                content("first"),
                content("last"),
                CommitWrite::Graph(put_edge(4, 1)),
            ],
            ..Commit::default()
        }),
    );
    let committed = Outcome::Committed {
        deleted: 1,
        is_changed: true,
        updated: Vec::new(),
    };
    assert_eq!((done.revision, done.result), (at + 1, Ok(committed)));
    let seen = watch.try_recv().unwrap().unwrap();
    let changed: Vec<_> = seen.changes.iter().map(|c| c.entry.key.to_vec()).collect();
    assert_eq!(seen.revision, at + 1);
    assert_eq!(changed, [b"a", b"b", b"c", b"e"]);
    assert_eq!(watch.try_recv().unwrap(), None, "one revision, told once");
    for is_flushed in [false, true] {
        if is_flushed {
            member.replica.db().compact().unwrap();
        }
        let db = member.replica.db();
        let entry = |key: &str| {
            db.entry(key)
                .unwrap()
                .map(|e| (e.value.to_vec(), e.version))
        };
        assert_eq!(entry("a"), Some((b"deleted and put".to_vec(), 2)));
        assert_eq!(entry("b"), Some((b"leased".to_vec(), 1)));
        assert_eq!((entry("c"), entry("cc")), (None, None));
        assert_eq!(entry("e"), Some((b"last".to_vec(), 2)));
        assert_eq!(keys_of(db, lease_id(5)), [Value::from("b")]);
        let graph = db.snapshot().graph();
        assert_eq!(
            &graph.block(BlockId(4)).unwrap().unwrap().content[..],
            b"last"
        );
        assert!(graph.edge(BlockId(4), "tie", BlockId(1)).unwrap().is_some());
        let before = db.snapshot_at(at).unwrap().graph();
        assert!(before.block(BlockId(4)).unwrap().is_none());
        assert!(db.check().unwrap().is_clean());
    }
    // Without a change there is no revision.
    let nothing = CommitWrite::Delete {
        key: "nothing".into(),
    };
    let done = one(
        &mut member,
        commit_of(at + 1, Isolation::Serializable, vec![nothing]),
    );
    let committed = Outcome::Committed {
        deleted: 0,
        is_changed: false,
        updated: Vec::new(),
    };
    assert_eq!((done.revision, done.result), (at + 1, Ok(committed)));
}

#[test]
fn a_refused_commit_leaves_no_trace() {
    let mut member = member();
    member.run(&[
        txn_of(vec![Op::Put(put("a", "w"))]),
        Command::Compact {
            revision: Revision::new(4),
        },
    ]);
    let before = member.dump();
    let newest = member.replica.db().revision();
    let leased = CommitWrite::Put {
        key: "b".into(),
        value: Value::from("v"),
        lease: 9,
    };
    let with = |write| {
        commit_of(
            newest,
            Isolation::Serializable,
            vec![key_put("new", "v"), write],
        )
    };
    let expects = |key: &str, mod_revision| {
        Command::Commit(Commit {
            expectations: vec![Expectation {
                key: key.into(),
                mod_revision,
            }],
            writes: vec![key_put("new", "v")],
            ..Commit::default()
        })
    };
    let at = |revision| {
        commit(
            revision,
            Isolation::Serializable,
            vec![key_read("untouched")],
        )
    };
    for (command, refusal) in [
        (
            at(Revision::new(3)),
            Refusal::Compacted {
                revision: Revision::new(3),
                oldest: Revision::new(4),
            },
        ),
        (
            at(newest + 1),
            Refusal::FutureRevision {
                revision: newest + 1,
                newest,
            },
        ),
        (with(leased), Refusal::LeaseNotFound { id: 9 }),
        (
            with(CommitWrite::Graph(put_edge(1, 7))),
            Refusal::MissingBlock { id: BlockId(7) },
        ),
        (
            expects("a", Revision::new(2)),
            Refusal::CompareFailed {
                key: "a".into(),
                expected: Revision::new(2),
                actual: Revision::new(4),
            },
        ),
        (
            expects("absent", Revision::new(2)),
            Refusal::CompareFailed {
                key: "absent".into(),
                expected: Revision::new(2),
                actual: Revision::ZERO,
            },
        ),
    ] {
        let reply = one(&mut member, command.clone());
        assert_eq!(reply.result, Err(refusal), "{command:?}");
        assert_eq!((reply.revision, member.dump()), (newest, before.clone()));
    }
    assert!(
        one(&mut member, at(Revision::new(4))).result.is_ok(),
        "the compacted revision is readable"
    );
}

/// From the compacted revision on every change can be found: the tombstone of a key that no reader can see
/// stays, through flushes and merges.
#[test]
fn a_deletion_above_the_compacted_revision_is_found_in_merged_tables() {
    let mut member = member();
    member.run(&[delete_key("a"), Command::Graph(vec![delete_edge(1, 2)])]);
    let compact = |revision| Command::Compact { revision };
    member.run(&[
        txn_of(vec![Op::Put(put("b", "v"))]),
        compact(Revision::new(4)),
    ]);
    member.replica.db().compact().unwrap();
    let conflicts = |member: &mut Member, at, read: CommitRead| {
        let done = one(member, commit(at, Isolation::Serializable, vec![read]));
        matches!(done.result, Err(Refusal::Conflict { .. }))
    };
    assert!(
        !conflicts(&mut member, Revision::new(4), key_read("a")),
        "deleted at 4"
    );
    assert!(
        conflicts(&mut member, Revision::new(4), edge_read(1, "tie", 2)),
        "deleted at 5"
    );
    assert!(conflicts(
        &mut member,
        Revision::new(4),
        CommitRead::EdgesIn(BlockId(2))
    ));
    assert!(!conflicts(
        &mut member,
        Revision::new(5),
        edge_read(1, "tie", 2)
    ));
    member.run(&[compact(Revision::new(6))]);
    for _ in 0..2 {
        member.replica.db().compact().unwrap();
    }
    let refused = one(
        &mut member,
        commit(
            Revision::new(5),
            Isolation::Serializable,
            vec![key_read("a")],
        ),
    );
    assert_eq!(
        refused.result,
        Err(Refusal::Compacted {
            revision: Revision::new(5),
            oldest: Revision::new(6)
        })
    );
}

/// After a crash the entries behind the flushed ones are applied again, on tables from which a later
/// compaction in the log has trimmed more than at the first time. Without the tombstone, the commit would
/// succeed where every other member has refused it.
#[test]
fn a_commit_that_is_applied_again_after_a_later_compaction_is_decided_as_before() {
    let disk = SimDisk::new();
    // All of it fits into one memtable, so that nothing is flushed by itself.
    let open = |disk: &SimDisk| {
        let builder = builder(Arc::new(disk.clone())).memtable_bytes(1 << 20);
        Member::open_with(builder, disk, 1)
    };
    let mut member = open(&disk);
    // Four runs, so that the next applied entry merges them.
    let at = one(&mut member, txn_of(vec![Op::Put(put("k", "v"))])).revision;
    member.replica.db().flush().unwrap();
    one(&mut member, delete_key("k"));
    member.replica.db().flush().unwrap();
    for other in ["x", "y"] {
        one(&mut member, txn_of(vec![Op::Put(put(other, "v"))]));
        member.replica.db().flush().unwrap();
    }
    let stale = commit(at, Isolation::Serializable, vec![key_read("k")]);
    let newest = member.replica.db().revision();
    let entries = [vec![stale], vec![Command::Compact { revision: newest }]];
    let flushed = member.replica.flushed_index();
    let mut applier_entries = Vec::new();
    for commands in &entries {
        let mut payload = Vec::new();
        encode_commands(commands.iter(), &mut payload);
        applier_entries.push((member.log.stage(&payload), commands));
    }
    member.log.write().unwrap();
    member.log.sync().unwrap();
    let merges = |member: &Member| member.replica.db().stats().engine.counters.compactions;
    let before = merges(&member);
    let mut applier = member.replica.apply();
    let mut replies = Vec::new();
    for (index, commands) in applier_entries {
        replies.extend(
            applier
                .entry(index, 1, commands, b"", Some(&[true; COMMANDS_MAX]))
                .unwrap(),
        );
    }
    applier.finish().unwrap();
    while member.replica.run_background() {}
    assert!(
        matches!(replies[0].result, Err(Refusal::Conflict { .. })),
        "{replies:?}"
    );
    assert!(replies[1].result.is_ok());
    assert!(merges(&member) > before, "it has merged");
    assert_eq!(member.replica.flushed_index(), flushed, "and not flushed");

    let again = open(&disk.after_power_loss());
    assert_eq!(value(&again, "written"), None);
    assert_eq!(again.dump(), member.dump());
    // With the compaction in the tables the tombstone is removed.
    again.replica.db().flush().unwrap();
    again.replica.db().compact().unwrap();
    let engine = &again.replica.core().engine;
    let tombstone = engine.read_since(trees::KV, b"k", 0, |found| found.is_some());
    assert!(!tombstone.unwrap());
}

/// A commit names the same keys in tens of thousands of ranges, a few bytes each. All keys were visited for
/// each deleted range, and all recent changes for each read one: minutes in which no member applied anything
/// else. Now it takes the time of one range.
#[test]
fn no_key_is_walked_over_twice_for_a_commit() {
    const KEYS: u64 = 5_000;
    const RANGES: usize = 40_000;
    let mut member = Member::open(&SimDisk::new(), 1);
    let puts: Vec<Op> = (0..KEYS)
        .map(|n| Op::Put(put(&format!("k{n:04}"), "v")))
        .collect();
    let at = one(&mut member, txn_of(puts)).revision;
    let mut writes = vec![key_put("k0", "first"), key_put("kept", "w")];
    let range = |n: usize| CommitWrite::DeleteRange {
        key: format!("k{}", n % 2).into_bytes(),
        range_end: b"k8".to_vec(),
    };
    writes.extend((0..RANGES).map(range));
    // A put between two deletions is deleted, puts after them stay.
    writes.insert(RANGES / 2, key_put("k5", "between"));
    writes.push(key_put("k6", "after"));
    let reads = vec![key_range("k", "l"); RANGES];
    let begun = std::time::Instant::now();
    let command = Command::Commit(Commit {
        read_revision: at,
        isolation: Isolation::Serializable,
        reads,
        writes,
        ..Commit::default()
    });
    let reply = one(&mut member, command);
    let took = begun.elapsed();
    let Ok(Outcome::Committed { deleted, .. }) = reply.result else {
        panic!("{reply:?}")
    };
    assert_eq!(deleted, KEYS);
    assert_eq!(value(&member, "k0"), None);
    assert_eq!(value(&member, "k5"), None);
    assert_eq!(value(&member, "k6"), Some(b"after".to_vec()));
    assert_eq!(value(&member, "kept"), Some(b"w".to_vec()));
    // Visiting the keys for each range takes a hundred times as long.
    assert!(took < Duration::from_secs(20), "{took:?}");
}
