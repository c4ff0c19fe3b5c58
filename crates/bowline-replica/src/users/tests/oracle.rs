//! Rights and needs against a plain oracle, which looks at every key by itself.
//!
//! The bounds of all ranges are byte strings of at most two bytes of four. What a range has beyond the permissions begins
//! at its first key, or at the end of a permission; both are byte strings of at most three of those bytes. So the oracle
//! is exact although it looks only at these: its [`universe`].

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use bowline_core::graph::{Block, BlockId, BlockKinds, Edge};
use bowline_types::{EdgeKey, GraphWrite, Revision, Update};
use proptest::prelude::*;

use super::*;
use crate::command::{
    Command, Commit, CommitRead, CommitWrite, Compare, DeleteRangeOp, Expectation, Op, PutOp,
    RangeOp, Relation, Target, Txn,
};
use crate::index::IndexChange;
use crate::needs::Present;
use crate::quota::QuotaChange;

/// The least, the greatest and two that touch.
const BYTES: [u8; 4] = [0, b'a', b'b', 0xff];

/// Every byte string of at most so many of [`BYTES`].
fn strings(len_max: usize) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new()];
    let mut last = all.clone();
    for _ in 0..len_max {
        let longer = |string: &Vec<u8>| BYTES.map(|byte| [&string[..], &[byte]].concat());
        last = last.iter().flat_map(longer).collect();
        all.extend_from_slice(&last);
    }
    all
}

fn universe() -> Vec<Vec<u8>> {
    strings(3)
}

/// Whether a key is in a range, which is given as in etcd.
fn is_in(key: &[u8], first: &[u8], range_end: &[u8]) -> bool {
    match range_end {
        [] => key == first,
        [0] => key >= first,
        end => first <= key && key < end,
    }
}

/// Whether a permission grants an access.
fn grants(permission: &Permission, access: Access) -> bool {
    matches!(
        (permission.grant(), access),
        (Grant::ReadWrite, _) | (Grant::Read, Access::Read) | (Grant::Write, Access::Write)
    )
}

/// The keys and kinds that a command accesses.
#[derive(Debug, Default)]
struct Accessed {
    keys: BTreeSet<(Access, Vec<u8>)>,
    /// Whether keys without an end are accessed.
    to_the_end: BTreeSet<Access>,
    kinds: BTreeSet<(Access, Option<String>)>,
    users: bool,
}

impl Accessed {
    fn range(&mut self, access: Access, first: &[u8], range_end: &[u8]) {
        // An empty range counts as its first key.
        self.keys.insert((access, first.to_vec()));
        let all = universe().into_iter();
        for key in all.filter(|key| is_in(key, first, range_end)) {
            self.keys.insert((access, key));
        }
        if range_end == [0] {
            self.to_the_end.insert(access);
        }
    }

    fn key(&mut self, access: Access, key: &[u8]) {
        self.keys.insert((access, key.to_vec()));
    }

    fn kind(&mut self, access: Access, kind: Option<&str>) {
        self.kinds.insert((access, kind.map(str::to_owned)));
    }

    fn lease(&mut self, id: i64, held: &Held) {
        for key in held.leases.get(&id).into_iter().flatten() {
            self.key(Access::Write, key);
        }
    }

    fn txn(&mut self, txn: &Txn, held: &Held) {
        for Compare { key, range_end, .. } in &txn.compares {
            self.range(Access::Read, key, range_end);
        }
        for branch in [&txn.success, &txn.failure] {
            for op in branch {
                match op {
                    Op::Txn(inner) => self.txn(inner, held),
                    Op::Range(range) => self.range(Access::Read, &range.key, &range.range_end),
                    Op::Put(put) => {
                        self.key(Access::Write, &put.key);
                        self.lease(put.lease, held);
                        if put.prev_kv {
                            self.key(Access::Read, &put.key);
                        }
                    }
                    Op::DeleteRange(delete) => {
                        self.range(Access::Write, &delete.key, &delete.range_end);
                        if delete.prev_kv {
                            self.range(Access::Read, &delete.key, &delete.range_end);
                        }
                    }
                }
            }
        }
    }

    fn graph(&mut self, write: &GraphWrite, held: &Held) {
        match write {
            GraphWrite::PutBlock(block) => {
                let mut has: Vec<Vec<String>> =
                    vec![block.kinds.iter().map(String::from).collect()];
                has.extend(held.blocks.get(&block.id).cloned());
                for kinds in has {
                    for kind in &kinds {
                        self.kind(Access::Write, Some(kind));
                    }
                    if kinds.is_empty() {
                        self.kind(Access::Write, None);
                    }
                }
            }
            GraphWrite::DeleteBlock(_) => self.kind(Access::Write, None),
            GraphWrite::PutEdge(Edge { kind, .. })
            | GraphWrite::DeleteEdge(EdgeKey { kind, .. }) => {
                self.kind(Access::Write, Some(kind));
            }
        }
    }

    fn commit(&mut self, commit: &Commit, held: &Held) {
        for read in &commit.reads {
            match read {
                CommitRead::Key(key) => self.key(Access::Read, key),
                CommitRead::Range { key, range_end } => self.range(Access::Read, key, range_end),
                CommitRead::Edge { kind, .. } => self.kind(Access::Read, Some(kind)),
                _ => self.kind(Access::Read, None),
            }
        }
        for expectation in &commit.expectations {
            self.key(Access::Read, &expectation.key);
        }
        for write in &commit.writes {
            match write {
                CommitWrite::Put { key, lease, .. } => {
                    self.key(Access::Write, key);
                    self.lease(*lease, held);
                }
                CommitWrite::Delete { key } => self.key(Access::Write, key),
                CommitWrite::DeleteRange { key, range_end } => {
                    self.range(Access::Write, key, range_end);
                }
                CommitWrite::Graph(write) => self.graph(write, held),
                CommitWrite::Update { key, .. } => {
                    self.key(Access::Read, key);
                    self.key(Access::Write, key);
                }
            }
        }
    }

    fn of(command: &Command, held: &Held) -> Accessed {
        let mut accessed = Accessed::default();
        match command.inner() {
            Command::Txn(txn) | Command::UnboundedTxn(txn) => accessed.txn(txn, held),
            Command::LeaseRevoke { id } | Command::LeaseDeleteKeys { id, expired: None } => {
                accessed.lease(*id, held);
            }
            Command::Graph(writes) => {
                for write in writes {
                    accessed.graph(write, held);
                }
            }
            Command::Commit(commit) => accessed.commit(commit, held),
            Command::Users(_)
            | Command::Quota(_)
            | Command::Index(IndexChange::Create { .. } | IndexChange::Drop { .. })
            | Command::Compact { .. } => {
                accessed.users = true;
            }
            _ => {}
        }
        accessed
    }

    /// Whether permissions allow all of it.
    fn is_allowed(&self, permissions: &[Permission]) -> bool {
        let granted = |access| permissions.iter().filter(move |it| grants(it, access));
        let has_key = |(access, key): &(Access, Vec<u8>)| {
            granted(*access).any(|permission| match permission {
                Permission::Keys {
                    key: first,
                    range_end,
                    ..
                } => is_in(key, first, range_end),
                Permission::Kinds { .. } => false,
            })
        };
        let has_end = |access: &Access| {
            granted(*access).any(|permission| match permission {
                Permission::Keys { range_end, .. } => range_end == &[0],
                Permission::Kinds { .. } => false,
            })
        };
        let has_kind = |(access, kind): &(Access, Option<String>)| {
            granted(*access).any(|permission| match (permission, kind) {
                (Permission::Kinds { prefix, .. }, Some(kind)) => kind.starts_with(prefix),
                (Permission::Kinds { prefix, .. }, None) => prefix.is_empty(),
                (Permission::Keys { .. }, _) => false,
            })
        };
        !self.users
            && self.keys.iter().all(has_key)
            && self.to_the_end.iter().all(has_end)
            && self.kinds.iter().all(has_kind)
    }
}

/// The keys of leases, and the kinds of blocks.
#[derive(Debug)]
struct Held {
    leases: BTreeMap<i64, Vec<Vec<u8>>>,
    blocks: BTreeMap<BlockId, Vec<String>>,
}

impl Held {
    fn new() -> Held {
        let keys = |keys: &[&[u8]]| keys.iter().map(|key| key.to_vec()).collect();
        let kinds = |kinds: &[&str]| kinds.iter().map(|&kind| kind.to_owned()).collect();
        Held {
            // Lease 1 has no keys, and 4 does not exist.
            leases: [
                (1, keys(&[])),
                (2, keys(&[b"a"])),
                (3, keys(&[b"", b"ab", b"\xff\xff"])),
            ]
            .into(),
            blocks: [
                (BlockId(1), kinds(&[])),
                (BlockId(2), kinds(&["a"])),
                (BlockId(3), kinds(&["ab", "b"])),
            ]
            .into(),
        }
    }
}

impl Present for Held {
    type Error = Infallible;

    fn key_of_lease(&self, id: i64, from: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        let mut keys = self.leases.get(&id).into_iter().flatten();
        Ok(keys.find(|key| &key[..] >= from).cloned())
    }

    fn kinds_of_block(
        &self,
        id: BlockId,
        visit: &mut dyn FnMut(Option<&str>) -> bool,
    ) -> Result<(), Infallible> {
        match self.blocks.get(&id).map(|kinds| &kinds[..]) {
            None => {}
            Some([]) => drop(visit(None)),
            Some(kinds) => drop(kinds.iter().all(|kind| visit(Some(kind)))),
        }
        Ok(())
    }
}

fn bound() -> impl Strategy<Value = Vec<u8>> + Clone {
    prop::sample::select(strings(2))
}

/// A range, given as in etcd; also an empty one, or one whose end is before its first key.
fn span() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> + Clone {
    prop_oneof![
        2 => (bound(), Just(Vec::new())),
        1 => (bound(), Just(vec![0])),
        4 => (bound(), bound()),
    ]
}

fn kind() -> impl Strategy<Value = String> + Clone {
    prop::sample::select(&["a", "ab", "abc", "b", "c"][..]).prop_map(str::to_owned)
}

fn permission() -> impl Strategy<Value = Permission> {
    let grant = || prop::sample::select(&[Grant::Read, Grant::Write, Grant::ReadWrite][..]);
    let wide = prop::sample::select(vec![&b""[..], b"\0", b"a"]);
    let wide = wide.prop_map(|key| (key.to_vec(), vec![0]));
    let span = prop_oneof![1 => wide, 5 => span()];
    let keys = (grant(), span).prop_map(|(grant, (key, range_end))| Permission::Keys {
        grant,
        key,
        range_end,
    });
    let prefix = prop::sample::select(&["", "a", "ab", "b"][..]);
    let kinds = (grant(), prefix).prop_map(|(grant, prefix)| kinds(grant, prefix));
    prop_oneof![3 => keys, 1 => kinds]
}

fn permissions() -> impl Strategy<Value = Vec<Permission>> {
    prop::collection::vec(permission(), 0..8)
}

fn access() -> impl Strategy<Value = Access> {
    prop::sample::select(&[Access::Read, Access::Write][..])
}

fn txn() -> impl Strategy<Value = Txn> {
    let compare = || {
        span().prop_map(|(key, range_end)| Compare {
            key,
            range_end,
            relation: Relation::Equal,
            target: Target::Version(1),
        })
    };
    let range = span().prop_map(|(key, range_end)| {
        Op::Range(RangeOp {
            key,
            range_end,
            ..RangeOp::default()
        })
    });
    let put = (bound(), 0i64..5, any::<bool>()).prop_map(|(key, lease, prev_kv)| {
        Op::Put(PutOp {
            key,
            lease,
            prev_kv,
            ..PutOp::default()
        })
    });
    let delete = (span(), any::<bool>()).prop_map(|((key, range_end), prev_kv)| {
        Op::DeleteRange(DeleteRangeOp {
            key,
            range_end,
            prev_kv,
        })
    });
    let of = move |op: BoxedStrategy<Op>| {
        let ops = || prop::collection::vec(op.clone(), 0..2);
        (prop::collection::vec(compare(), 0..2), ops(), ops()).prop_map(
            |(compares, success, failure)| Txn {
                compares,
                success,
                failure,
            },
        )
    };
    let op = prop_oneof![range, put, delete];
    let inner = of;
    let op = op.prop_recursive(3, 6, 2, move |op| inner(op).prop_map(Op::Txn));
    of(op.boxed())
}

fn graph_write() -> impl Strategy<Value = GraphWrite> {
    let block = || (1u128..5).prop_map(BlockId);
    let edge = || (block(), kind(), block());
    prop_oneof![
        3 => (block(), prop::collection::btree_set(kind(), 0..3)).prop_map(|(id, kinds)| {
            let kinds: BlockKinds = kinds.into_iter().collect();
            GraphWrite::PutBlock(Block::new(id, kinds))
        }),
        1 => block().prop_map(GraphWrite::DeleteBlock),
        1 => edge().prop_map(|(from, kind, to)| GraphWrite::PutEdge(Edge::new(from, kind, to))),
        1 => edge().prop_map(|(source, kind, target)| {
            GraphWrite::DeleteEdge(EdgeKey { source, kind, target })
        }),
    ]
}

fn commit() -> impl Strategy<Value = Commit> {
    let block = || (1u128..5).prop_map(BlockId);
    let read = prop_oneof![
        2 => bound().prop_map(CommitRead::Key),
        2 => span().prop_map(|(key, range_end)| CommitRead::Range { key, range_end }),
        1 => block().prop_map(CommitRead::Block),
        1 => (block(), block()).prop_map(|(first, last)| CommitRead::Blocks { first, last }),
        1 => block().prop_map(CommitRead::EdgesOut),
        1 => block().prop_map(CommitRead::EdgesIn),
        1 => (block(), kind(), block()).prop_map(|(source, kind, target)| {
            CommitRead::Edge { source, kind, target }
        }),
    ];
    let write = prop_oneof![
        2 => (bound(), 0i64..5).prop_map(|(key, lease)| {
            CommitWrite::Put { key, value: b"v"[..].into(), lease }
        }),
        1 => bound().prop_map(|key| CommitWrite::Delete { key }),
        2 => span().prop_map(|(key, range_end)| CommitWrite::DeleteRange { key, range_end }),
        2 => graph_write().prop_map(CommitWrite::Graph),
        1 => bound().prop_map(|key| CommitWrite::Update { key, update: Update::Add(1) }),
    ];
    let expectation = bound().prop_map(|key| Expectation {
        key,
        mod_revision: Revision::ZERO,
    });
    (
        prop::collection::vec(read, 0..2),
        prop::collection::vec(expectation, 0..2),
        prop::collection::vec(write, 0..3),
    )
        .prop_map(|(reads, expectations, writes)| Commit {
            reads,
            expectations,
            writes,
            ..Commit::default()
        })
}

fn command() -> impl Strategy<Value = Command> {
    let expired = prop::option::of(Just((1, 1)));
    let command = prop_oneof![
        6 => txn().prop_map(Command::Txn),
        1 => txn().prop_map(Command::UnboundedTxn),
        3 => commit().prop_map(Command::Commit),
        2 => prop::collection::vec(graph_write(), 0..3).prop_map(Command::Graph),
        1 => (1i64..5).prop_map(|id| Command::LeaseRevoke { id }),
        1 => (1i64..5, expired).prop_map(|(id, expired)| Command::LeaseDeleteKeys { id, expired }),
        1 => (1i64..5).prop_map(|id| Command::LeaseExpire { id, term: 1, granted: None }),
        1 => Just(Command::Users(UsersChange::Disable)),
        1 => Just(Command::Compact { revision: Revision::ZERO }),
        1 => Just(Command::Quota(QuotaChange::Remove { prefix: Vec::new() })),
        1 => Just(Command::Index(IndexChange::Drop { kind: "a".to_owned(), attributes: Vec::new() })),
    ];
    (command, any::<bool>()).prop_map(|(command, has_actor)| match has_actor {
        false => command,
        true => Command::By {
            actor: Actor::Process,
            at_ms: None,
            command: Box::new(command),
        },
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn a_range_is_allowed_exactly_when_each_of_its_keys_is(
        permissions in permissions(),
        access in access(),
        (key, range_end) in span(),
    ) {
        let mut accessed = Accessed::default();
        accessed.range(access, &key, &range_end);
        let rights = Rights::of(false, permissions.iter());
        let expected = accessed.is_allowed(&permissions);
        prop_assert_eq!(rights.allows_keys(access, &key, &range_end), expected);
        prop_assert!(Rights::of(true, permissions.iter()).allows_keys(access, &key, &range_end));
    }

    #[test]
    fn a_kind_is_allowed_exactly_when_a_prefix_of_it_is(
        permissions in permissions(),
        access in access(),
        kind in prop::option::of(kind()),
    ) {
        let mut accessed = Accessed::default();
        accessed.kind(access, kind.as_deref());
        let rights = Rights::of(false, permissions.iter());
        let expected = accessed.is_allowed(&permissions);
        prop_assert_eq!(rights.allows_kind(access, kind.as_deref()), expected);
    }

    #[test]
    fn a_command_is_allowed_exactly_when_all_that_it_accesses_is(
        permissions in permissions(),
        command in command(),
    ) {
        let held = Held::new();
        let accessed = Accessed::of(&command, &held);
        let rights = Rights::of(false, permissions.iter());
        let Ok(decision) = command.check_rights(&rights, &held);
        let expected = match accessed.is_allowed(&permissions) {
            true => Ok(()),
            false => Err(UsersRefusal::PermissionDenied),
        };
        prop_assert_eq!(decision, expected, "{:?}", accessed);
        let root = Rights::of(true, [].iter());
        let Ok(decision) = command.check_rights(&root, &held);
        prop_assert_eq!(decision, Ok(()));
    }
}

/// The oracle meets both answers often: else it would say nothing.
#[test]
fn both_answers_are_met() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut ranges, mut commands) = ([0; 2], [0; 2]);
    for _ in 0..1000 {
        let permissions = permissions().new_tree(&mut runner).unwrap().current();
        let (key, range_end) = span().new_tree(&mut runner).unwrap().current();
        let command = command().new_tree(&mut runner).unwrap().current();
        let mut accessed = Accessed::default();
        accessed.range(Access::Read, &key, &range_end);
        ranges[usize::from(accessed.is_allowed(&permissions))] += 1;
        let accessed = Accessed::of(&command, &Held::new());
        commands[usize::from(accessed.is_allowed(&permissions))] += 1;
    }
    let all = ranges.into_iter().chain(commands);
    assert!(all.min() > Some(100), "{ranges:?} {commands:?}");
}
