//! Equal requests leave equal states: the same random transactions through the library and through the
//! commands of a cluster.
//!
//! Both use the rules of [`bowline_core::write`], so this fails when one of them uses another rule, or none.
//! It found that the library required the lease of a put that the same transaction overwrote (docs/bugs.md).
//! One difference is left out here: a block or an edge that a transaction both puts and deletes is no change
//! in the library, and one in a cluster.

use std::collections::BTreeSet;

use bowline_storage::TreeId;
use bowline_testing::Seed;
use bowline_testing::lease_id;
use bowline_types::Expected;

use super::*;
use bowline::{Error, Transaction};

const TTL: Duration = Duration::from_secs(1_000_000);
const LEASES: [i64; 3] = [1, 2, 3];
const KINDS: [&str; 2] = ["uses", "knows"];
const BLOCK_KINDS: [&str; 3] = ["block", "other", "third"];
const BLOCKS: u128 = 5;
const OPEN_MAX: usize = 3;
const STEPS: usize = 250;

/// A transaction of the library, and the equivalent command.
struct Draft {
    tx: Transaction,
    commit: Commit,
    /// The blocks and ends of edges that it puts, and does not delete.
    put: BTreeSet<BlockId>,
    /// Its own writes, which it reads without relying on the database.
    own: BTreeSet<(TreeId, Vec<u8>)>,
}

/// The compared result of a transaction.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Committed { revision: Revision, deleted: u64 },
    Unchanged,
    Conflict,
    Refused,
}

struct Both {
    random: fastrand::Rng,
    db: Db,
    member: Member,
    open: Vec<Draft>,
    ends: [u32; 4],
}

fn key(number: u8) -> Vec<u8> {
    vec![b'a' + number]
}

impl Both {
    fn new(seed: Seed) -> Both {
        let library = SimDisk::new();
        let db = builder(Arc::new(library)).open("db").unwrap();
        let mut member = Member::open(&SimDisk::new(), 1);
        let blocks: Vec<Block> = (0..2)
            .map(|id| Block::new(BlockId(id), BLOCK_KINDS))
            .collect();
        let edges = KINDS.map(|kind| Edge::new(BlockId(0), kind, BlockId(1)));
        db.transact(|tx| {
            blocks.iter().try_for_each(|block| tx.put_block(block))?;
            edges.iter().try_for_each(|edge| tx.put_edge(edge))
        })
        .unwrap();
        let blocks = blocks.into_iter().map(GraphWrite::PutBlock);
        let edges = edges.into_iter().map(GraphWrite::PutEdge);
        member.run(&[Command::Graph(blocks.chain(edges).collect())]);
        for id in LEASES {
            db.grant_lease_with_id(lease_id(id), TTL).unwrap();
            member.run(&[Command::LeaseGrant { id, ttl: TTL }]);
        }
        Both {
            random: seed.rng(),
            db,
            member,
            open: Vec::new(),
            ends: [0; 4],
        }
    }

    fn key(&mut self) -> Vec<u8> {
        key(self.random.u8(0..6))
    }

    fn block(&mut self) -> BlockId {
        BlockId(self.random.u128(0..BLOCKS))
    }

    /// 0 is none.
    fn lease(&mut self) -> i64 {
        // One in four puts names a lease, which may have ended.
        match self.random.u8(0..4) {
            0 => LEASES[self.random.usize(0..LEASES.len())],
            _ => 0,
        }
    }

    fn step(&mut self) {
        match self.random.u8(0..100) {
            0..20 if self.open.len() < OPEN_MAX => self.begin(),
            0..70 if !self.open.is_empty() => self.act(),
            70..85 if !self.open.is_empty() => self.end(),
            85..88 => self.revoke(),
            88..90 => self.grant(),
            _ => self.write_alone(),
        }
        assert_eq!(self.db.revision(), self.member.replica.db().revision());
    }

    fn begin(&mut self) {
        let isolation = match self.random.bool() {
            true => Isolation::Serializable,
            false => Isolation::Snapshot,
        };
        let tx = self.db.begin_with(isolation);
        let commit = Commit {
            read_revision: tx.snapshot_revision(),
            isolation,
            ..Commit::default()
        };
        self.open.push(Draft {
            tx,
            commit,
            put: BTreeSet::new(),
            own: BTreeSet::new(),
        });
    }

    /// One read or write of an open transaction.
    fn act(&mut self) {
        let number = self.random.usize(0..self.open.len());
        let (key, end) = (self.key(), self.key());
        let (lease, value) = (
            self.lease(),
            Value::from(self.random.u64(..).to_string().as_str()),
        );
        let (source, target) = (self.block(), self.block());
        let kind = KINDS[self.random.usize(0..KINDS.len())];
        let what = self.random.u8(0..14);
        let Draft {
            tx,
            commit,
            put,
            own,
        } = &mut self.open[number];
        let own_key = (trees::KV, key.clone());
        let own_block = (trees::BLOCK, source.to_bytes().to_vec());
        let edge = [
            &source.to_bytes()[..],
            kind.as_bytes(),
            &target.to_bytes()[..],
        ]
        .concat();
        let own_edge = (trees::EDGE_OUT, edge);
        let edge_read = |source, target| CommitRead::Edge {
            source,
            kind: kind.to_owned(),
            target,
        };
        match what {
            0 => {
                tx.get(&key).unwrap();
                if !own.contains(&own_key) {
                    commit.reads.push(CommitRead::Key(key));
                }
            }
            1 if key < end => {
                tx.range(&key[..]..&end[..]).unwrap().for_each(drop);
                let range_end = end;
                commit.reads.push(CommitRead::Range { key, range_end });
            }
            2..5 => {
                match LeaseId::new(lease) {
                    Some(lease) => tx.put_with_lease(&key, &value, lease).unwrap(),
                    None => tx.put(&key, &value).unwrap(),
                }
                own.insert(own_key);
                commit.writes.push(CommitWrite::Put { key, value, lease });
            }
            5 => {
                tx.delete(&key).unwrap();
                if own.insert(own_key) {
                    commit.reads.push(CommitRead::Key(key.clone()));
                }
                commit.writes.push(CommitWrite::Delete { key });
            }
            // Under snapshot isolation a cluster also checks for new keys in the range.
            6 if key < end && commit.isolation == Isolation::Serializable => {
                let range = tx.range(&key[..]..&end[..]).unwrap();
                let present = range.map(|entry| entry.unwrap().key.to_vec());
                own.extend(present.map(|key| (trees::KV, key)));
                let count = tx.delete_range(&key[..]..&end[..]).unwrap();
                let (key, range_end) = (key, end);
                commit.reads.push(CommitRead::Range {
                    key: key.clone(),
                    range_end: range_end.clone(),
                });
                // Without a key to delete the library validates nothing except reads of one snapshot.
                if count > 0 {
                    let write = CommitWrite::DeleteRange { key, range_end };
                    commit.writes.push(write);
                }
            }
            7 => {
                let entry = tx.snapshot_revision();
                let expected = entry.saturating_sub(1);
                tx.expect(&key, Expected::Revision(expected)).unwrap();
                commit.expectations.push(Expectation {
                    key,
                    mod_revision: expected,
                });
            }
            8 => {
                tx.block(source).unwrap();
                if !own.contains(&own_block) {
                    commit.reads.push(CommitRead::Block(source));
                }
            }
            9 => {
                let kinds = BLOCK_KINDS.into_iter().take(usize::from(value[0] % 4));
                let block = Block::new(source, kinds.collect::<BlockKinds>()).content(&value[..]);
                tx.put_block(&block).unwrap();
                put.insert(source);
                own.insert(own_block);
                commit
                    .writes
                    .push(CommitWrite::Graph(GraphWrite::PutBlock(block)));
            }
            10 | 11 => {
                let edge = Edge::new(source, kind, target).attribute("value", "1");
                match tx.put_edge(&edge) {
                    Ok(()) => {
                        put.extend([source, target]);
                        own.insert(own_edge);
                        let write = GraphWrite::PutEdge(edge);
                        commit.writes.push(CommitWrite::Graph(write));
                    }
                    Err(Error::MissingBlock { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            12 if !put.contains(&source) || !put.contains(&target) => {
                let is_there = tx.delete_edge(source, kind, target).unwrap();
                if !own.contains(&own_edge) {
                    commit.reads.push(edge_read(source, target));
                }
                if is_there {
                    own.insert(own_edge);
                    let kind = kind.to_owned();
                    commit
                        .writes
                        .push(CommitWrite::Graph(GraphWrite::DeleteEdge(EdgeKey {
                            source,
                            kind,
                            target,
                        })));
                }
            }
            13 if put.is_empty() => {
                let is_there = tx.delete_block(source).unwrap();
                if !own.contains(&own_block) {
                    commit.reads.push(CommitRead::Block(source));
                }
                if is_there {
                    own.insert(own_block);
                    let write = GraphWrite::DeleteBlock(source);
                    commit.writes.push(CommitWrite::Graph(write));
                }
            }
            _ => {}
        }
    }

    fn end(&mut self) {
        let number = self.random.usize(0..self.open.len());
        let Draft { tx, commit, .. } = self.open.swap_remove(number);
        if commit.writes.is_empty() && commit.expectations.is_empty() {
            // The cluster receives nothing.
            tx.commit().unwrap();
            return;
        }
        let of_library = match tx.commit() {
            Ok(committed) if committed.changed => End::Committed {
                revision: committed.revision,
                deleted: committed.deleted,
            },
            Ok(_) => End::Unchanged,
            Err(Error::Conflict { .. }) => End::Conflict,
            Err(
                Error::CompareFailed { .. }
                | Error::MissingBlock { .. }
                | Error::LeaseNotFound { .. },
            ) => End::Refused,
            Err(other) => panic!("{other}"),
        };
        self.ends[match of_library {
            End::Committed { .. } => 0,
            End::Unchanged => 1,
            End::Conflict => 2,
            End::Refused => 3,
        }] += 1;
        let shown = format!("{commit:?}");
        let of_cluster = self.member_end(Command::Commit(commit));
        assert_eq!(of_library, of_cluster, "{shown}");
    }

    fn member_end(&mut self, command: Command) -> End {
        let reply = self.member.run(&[command]).pop().unwrap();
        match reply.result {
            Ok(Outcome::Committed {
                deleted,
                is_changed: true,
                ..
            }) => End::Committed {
                revision: reply.revision,
                deleted,
            },
            Ok(_) => End::Unchanged,
            Err(Refusal::Conflict { .. }) => End::Conflict,
            Err(_) => End::Refused,
        }
    }

    /// A put, a deletion or a compare-and-swap outside of a transaction.
    fn write_alone(&mut self) {
        let (key, lease) = (self.key(), self.lease());
        let value = Value::from(self.random.u64(..).to_string().as_str());
        match self.random.u8(0..4) {
            0 => self.update_alone(key, &value),
            1 => {
                let of_library = match LeaseId::new(lease) {
                    Some(lease) => self.db.put_with_lease(&key, &value, lease),
                    None => self.db.put(&key, &value),
                };
                let put = PutOp {
                    key,
                    value,
                    lease,
                    ..PutOp::default()
                };
                let reply = self.member.run(&[txn_of(vec![Op::Put(put)])]).pop();
                assert_eq!(of_library.is_ok(), reply.unwrap().result.is_ok());
            }
            2 => {
                self.db.delete(&key).unwrap();
                let delete = DeleteRangeOp {
                    key,
                    ..DeleteRangeOp::default()
                };
                self.member.run(&[txn_of(vec![Op::DeleteRange(delete)])]);
            }
            _ => {
                let entry = self.db.entry(&key).unwrap();
                let right = entry.map_or(Revision::ZERO, |entry| entry.mod_revision);
                let expected = right + u64::from(self.random.u8(0..4) == 0);
                let of_library =
                    self.db
                        .compare_and_swap(&key, Expected::Revision(expected), &value);
                let expectation = Expectation {
                    key: key.clone(),
                    mod_revision: expected,
                };
                let commit = Commit {
                    expectations: vec![expectation],
                    writes: vec![CommitWrite::Put {
                        key,
                        value,
                        lease: 0,
                    }],
                    ..Commit::default()
                };
                let of_cluster = self.member_end(Command::Commit(commit));
                assert_eq!(of_library.is_ok(), of_cluster != End::Refused);
            }
        }
    }

    fn update_alone(&mut self, key: Vec<u8>, value: &Value) {
        let value = value.to_vec();
        let number = self.random.i64(-5..6);
        let update = match self.random.u8(0..8) {
            0 => Update::Add(number),
            1 => Update::AddWithin {
                amount: number,
                min: 0,
                max: 10,
            },
            2 => Update::Max(number),
            3 => Update::Min(number),
            4 => Update::Append(b"0".to_vec()),
            5 => Update::SetIfAbsent(value),
            which => {
                let present = self.db.get(&key).unwrap().map(|value| value.to_vec());
                let new = (which == 6).then_some(value);
                Update::Swap {
                    expected: present.filter(|_| self.random.u8(0..4) > 0),
                    new,
                }
            }
        };
        let of_library = self.db.update(&key, update.clone());
        let commit = Commit {
            writes: vec![CommitWrite::Update {
                key,
                update: update.clone(),
            }],
            ..Commit::default()
        };
        let reply = self.member.run(&[Command::Commit(commit)]).pop().unwrap();
        match (of_library, reply.result) {
            (Ok(of_library), Ok(Outcome::Committed { updated, .. })) => {
                assert_eq!(of_library.revision, reply.revision, "{update:?}");
                let expected = UpdatedKey {
                    is_changed: of_library.changed,
                    value: of_library.value,
                };
                assert_eq!(updated, [expected], "{update:?}");
            }
            (Err(Error::NotUpdatable { .. }), Err(Refusal::NotUpdatable { .. })) => {}
            other => panic!("{update:?}: {other:?}"),
        }
    }

    fn revoke(&mut self) {
        let id = LEASES[self.random.usize(0..LEASES.len())];
        let of_library = self.db.revoke_lease(lease_id(id));
        let reply = self.member.run(&[Command::LeaseRevoke { id }]).pop();
        match (of_library, reply.unwrap().result) {
            (Ok(count), Ok(Outcome::LeaseEnded { deleted })) => assert_eq!(count, deleted),
            (Err(Error::LeaseNotFound { .. }), Err(Refusal::LeaseNotFound { .. })) => {}
            other => panic!("{other:?}"),
        }
    }

    fn grant(&mut self) {
        let id = LEASES[self.random.usize(0..LEASES.len())];
        let of_library = self.db.grant_lease_with_id(lease_id(id), TTL);
        let reply = self.member.run(&[Command::LeaseGrant { id, ttl: TTL }]);
        assert_eq!(of_library.is_ok(), reply[0].result.is_ok());
    }

    fn compare(&self) {
        let replica = self.member.replica.db();
        let [one, other] = [&self.db, replica].map(|db| db.snapshot().tree_hashes().unwrap());
        let shown = |of: &TreeHashes| (of.keys, of.blocks, of.edges_out, of.edges_in);
        assert_eq!(shown(&one), shown(&other), "keys, blocks, edges out and in");
        let [one, other] = [&self.db, replica].map(|db| {
            let leases = LEASES.map(|id| {
                db.lease_keys(lease_id(id))
                    .ok()
                    .map(|keys| keys.collect::<Result<Vec<_>>>().unwrap())
            });
            (leases, db.stats().kinds)
        });
        assert_eq!(one, other, "keys of leases, and kinds");
    }
}

#[test]
fn equal_requests_leave_equal_states_in_the_library_and_in_a_cluster() {
    const CASES: u64 = 60;
    let test = "equal_requests_leave_equal_states_in_the_library_and_in_a_cluster";
    for seed in Seed::fixed_and_fresh(0x5EED_0018, test) {
        let _guard = seed.print_on_failure("-p bowline-replica --lib same_as_library");
        let mut ends = [0; 4];
        for case in 0..CASES {
            let mut both = Both::new(seed.part(case));
            for step in 0..STEPS {
                both.step();
                if step % 10 == 0 {
                    both.compare();
                }
            }
            both.compare();
            for (sum, of_case) in ends.iter_mut().zip(both.ends) {
                *sum += of_case;
            }
        }
        // Committed, unchanged, conflicts, refused: each of them must have happened.
        assert!(ends.iter().all(|count| *count > 0), "{ends:?}");
    }
}
