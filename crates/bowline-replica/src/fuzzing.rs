//! Entry points of fuzzers for commands and members' records; see the module of the same name in
//! `bowline-storage`. Only in tests and with `--cfg fuzzing`.

use std::time::Duration;

use bowline::{Block, BlockId, Edge, Isolation, LeaseId, Revision, Update, Value};
use bytes::Bytes;

use crate::codec::required;
use crate::users::{
    Actor, Grant, Permission, TokenChange, Users, UsersChange, decode_role, decode_token,
    decode_user, encode_role, encode_token, encode_user,
};
use crate::{
    AlarmKind, AppliedMark, Command, Commit, CommitRead, CommitWrite, Compare, DeleteRangeOp,
    EdgeKey, Expectation, GraphWrite, IndexChange, LeaseLeft, Op, PutOp, QuotaChange, QuotaLimits,
    RangeOp, Relation, Target, Txn, decode_commands, encode_commands, require_indexes,
    require_quotas,
};

/// A byte that selects the format, then commands or a member's record.
pub fn replicated(data: &[u8]) {
    let Some((&which, data)) = data.split_first() else {
        return;
    };
    match which {
        0 => {
            if let Ok(commands) = decode_commands(&Bytes::copy_from_slice(data)) {
                let mut again = Vec::new();
                encode_commands(commands.iter(), &mut again);
                let (quotas, indexes) = required(data);
                if quotas {
                    require_quotas(&mut again);
                }
                if indexes {
                    require_indexes(&mut again);
                }
                assert_eq!(again, data, "two encodings of one list of commands");
            }
        }
        1 => {
            if let Some(mark) = AppliedMark::decode(data) {
                let again = AppliedMark::encode(&mark.mark, mark.commands);
                assert_eq!(again, data, "two encodings of one mark");
            }
        }
        2 => {
            if let Some(user) = decode_user(data) {
                assert_eq!(encode_user(&user), data, "two encodings of one user");
            }
        }
        3 => {
            if let Some(role) = decode_role(data) {
                assert_eq!(encode_role(&role), data, "two encodings of one role");
            }
        }
        4 => {
            if let Some(token) = decode_token([0; 32], data) {
                let again = encode_token(token.user(), token.since(), token.expires_ms());
                assert_eq!(again, data, "two encodings of one token");
            }
        }
        _ => {}
    }
}

/// Changes of users and tokens of every kind, and commands with actors.
#[cfg_attr(fuzzing, allow(dead_code))]
fn commands_of_users() -> Vec<Command> {
    let (name, role) = (|| "ann".to_owned(), || "readers".to_owned());
    let password = || "$argon2id$hash".to_owned();
    let on_keys = Permission::Keys {
        grant: Grant::ReadWrite,
        key: b"key".to_vec(),
        range_end: vec![0],
    };
    let on_kinds = Permission::Kinds {
        grant: Grant::Read,
        prefix: "team/".to_owned(),
    };
    let changes = [
        UsersChange::Enable,
        UsersChange::Disable,
        UsersChange::AddUser {
            name: name(),
            password: Some(password()),
        },
        UsersChange::AddUser {
            name: name(),
            password: None,
        },
        UsersChange::DeleteUser { name: name() },
        UsersChange::ChangePassword {
            name: name(),
            password: password(),
        },
        UsersChange::GrantRole {
            user: name(),
            role: role(),
        },
        UsersChange::RevokeRole {
            user: name(),
            role: role(),
        },
        UsersChange::AddRole { name: role() },
        UsersChange::DeleteRole { name: role() },
        UsersChange::GrantPermission {
            role: role(),
            permission: on_keys.clone(),
        },
        UsersChange::GrantPermission {
            role: role(),
            permission: on_kinds,
        },
        UsersChange::RevokePermission {
            role: role(),
            permission: on_keys,
        },
    ];
    let tokens = [
        TokenChange::Login {
            user: name(),
            token: [7; 32],
            checked_at: 300,
            expires_ms: 1_700_000_000_000,
        },
        TokenChange::Renew {
            token: [7; 32],
            expires_ms: 1_700_000_300_000,
        },
        TokenChange::Expire {
            before_ms: 1_700_000_000_000,
        },
    ];
    let by = |actor| Command::By {
        actor,
        at_ms: None,
        command: Box::new(Command::LeaseRevoke { id: 77 }),
    };
    let user = Actor::User {
        name: name().into(),
        since: 300,
    };
    let changes = changes.into_iter().map(Command::Users);
    let tokens = tokens.into_iter().map(Command::Tokens);
    let by = [Actor::Process, user].into_iter().map(by);
    changes.chain(tokens).chain(by).collect()
}

/// The records of a user, a role and a token.
#[cfg_attr(fuzzing, allow(dead_code))]
fn records_of_users() -> Vec<Vec<u8>> {
    let mut users = Users::default();
    // Twice, as a role is granted before it is added.
    for command in [commands_of_users(), commands_of_users()].concat() {
        if let Command::Users(change) = command
            && !matches!(
                change,
                UsersChange::DeleteUser { .. }
                    | UsersChange::RevokeRole { .. }
                    | UsersChange::DeleteRole { .. }
                    | UsersChange::RevokePermission { .. }
            )
            && let Ok(Some((after, _))) = users.changed(&change)
        {
            users = after;
        }
    }
    let user = users.user("ann").map(encode_user);
    let role = users.role("readers").map(encode_role);
    let token = Some(encode_token("ann", 300, 1_700_000_000_000));
    let all = [(2, user), (3, role), (4, token)].into_iter();
    all.filter_map(|(which, record)| Some([&[which], &record?[..]].concat()))
        .collect()
}

/// Commands of every kind, a mark, and records of users.
#[cfg_attr(fuzzing, allow(dead_code))]
pub(crate) fn replicated_seeds() -> Vec<Vec<u8>> {
    let key = || b"key".to_vec();
    let put = PutOp {
        key: key(),
        value: b"value"[..].into(),
        lease: 77,
        prev_kv: true,
        ..PutOp::default()
    };
    let range = RangeOp {
        key: key(),
        range_end: vec![0],
        limit: 300,
        ..RangeOp::default()
    };
    let delete = DeleteRangeOp {
        key: key(),
        ..DeleteRangeOp::default()
    };
    let compare = |target| Compare {
        key: key(),
        range_end: Vec::new(),
        relation: Relation::Less,
        target,
    };
    let inner = Txn {
        success: vec![Op::Range(range.clone())],
        ..Txn::default()
    };
    let txn = Txn {
        compares: vec![
            compare(Target::Value(key())),
            compare(Target::Mod(Revision::new(300))),
            compare(Target::Lease(7)),
        ],
        success: vec![Op::Put(put), Op::Txn(inner)],
        failure: vec![Op::DeleteRange(delete), Op::Range(range)],
    };
    let (a, b) = (BlockId::from_name("a"), BlockId::from_name("b"));
    let attribute = |name: &str| (name.to_owned(), "value".into());
    let attributes = [attribute("name"), attribute("zone")];
    let block = Block {
        id: a,
        kinds: "person".into(),
        content: b"content"[..].into(),
        attributes: attributes.clone().into_iter().collect(),
    };
    let update = |update: Update| CommitWrite::Update { key: key(), update };
    let edge = Edge {
        source: a,
        kind: "knows".to_owned(),
        target: b,
        attributes: attributes.into_iter().collect(),
    };
    let ttl = Duration::from_secs(60);
    let key_range = || (key(), vec![0]);
    let ((from, end), (first, behind)) = (key_range(), key_range());
    let commit = Commit {
        read_revision: Revision::new(300),
        isolation: Isolation::Snapshot,
        reads: vec![
            CommitRead::Key(key()),
            CommitRead::Range {
                key: from,
                range_end: end,
            },
            CommitRead::Block(a),
            CommitRead::Edge {
                source: a,
                kind: "knows".to_owned(),
                target: b,
            },
            CommitRead::EdgesOut(a),
            CommitRead::EdgesIn(b),
            CommitRead::Blocks { first: a, last: b },
            CommitRead::Entries {
                index: 300,
                first: key(),
                end: key(),
            },
        ],
        expectations: vec![Expectation {
            key: key(),
            mod_revision: Revision::new(299),
        }],
        writes: vec![
            CommitWrite::Put {
                key: key(),
                value: Value::from("value"),
                lease: 77,
            },
            CommitWrite::Delete { key: key() },
            CommitWrite::DeleteRange {
                key: first,
                range_end: behind,
            },
            CommitWrite::Graph(GraphWrite::PutEdge(edge.clone())),
            update(Update::Add(-1)),
            update(Update::AddWithin {
                amount: 1,
                min: i64::MIN,
                max: i64::MAX,
            }),
            update(Update::Max(300)),
            update(Update::Min(-300)),
            update(Update::Append(b"more".to_vec())),
            update(Update::SetIfAbsent(Vec::new())),
            update(Update::Swap {
                expected: None,
                new: Some(b"new".to_vec()),
            }),
        ],
    };
    let commands = [
        Command::Txn(txn.clone()),
        Command::UnboundedTxn(txn),
        Command::LeaseGrant { id: 77, ttl },
        Command::LeaseRevoke { id: 77 },
        Command::LeaseExpire {
            id: 77,
            term: 3,
            granted: None,
        },
        Command::LeaseExpire {
            id: 77,
            term: 3,
            granted: Some(12),
        },
        Command::LeaseDeleteKeys {
            id: 77,
            expired: None,
        },
        Command::LeaseDeleteKeys {
            id: 77,
            expired: Some((3, 12)),
        },
        Command::LeaseCheckpoint {
            remaining: vec![(77, ttl)],
        },
        Command::LeaseRemaining {
            term: 3,
            leases: [Some(ttl), None]
                .map(|left| LeaseLeft {
                    id: LeaseId::new(77).expect("not 0"),
                    granted: 12,
                    left,
                })
                .to_vec(),
        },
        Command::Compact {
            revision: Revision::new(300),
        },
        Command::Graph(vec![
            GraphWrite::PutBlock(block.clone()),
            GraphWrite::PutBlock(block.kind("author")),
            GraphWrite::PutEdge(edge),
            GraphWrite::DeleteEdge(EdgeKey {
                source: a,
                kind: "knows".to_owned(),
                target: b,
            }),
            GraphWrite::DeleteBlock(b),
        ]),
        Command::Commit(commit),
        Command::Alarm {
            member: 1 << 60,
            kind: AlarmKind::NoSpace,
            is_raised: true,
        },
        Command::Quota(QuotaChange::Set {
            prefix: b"a/".to_vec(),
            limits: QuotaLimits {
                keys: Some(300),
                bytes: None,
            },
        }),
        Command::Quota(QuotaChange::Remove { prefix: Vec::new() }),
        Command::Index(IndexChange::Create {
            kind: "person".to_owned(),
            attributes: vec!["name".to_owned(), "age".to_owned()],
            is_unique: true,
        }),
        Command::Index(IndexChange::Drop {
            kind: "person".to_owned(),
            attributes: vec!["age".to_owned()],
        }),
        Command::Index(IndexChange::Step {
            id: 300,
            done: None,
        }),
        Command::Index(IndexChange::Step {
            id: 1,
            done: Some(a),
        }),
    ];
    let commands = [&commands[..], &commands_of_users()].concat();
    let mut seeds: Vec<Vec<u8>> = (commands.iter().map(std::slice::from_ref))
        .chain([&commands[..], &[]])
        .map(|commands| {
            let mut out = vec![0];
            encode_commands(commands.iter(), &mut out);
            out
        })
        .collect();
    seeds.push([&[1][..], &AppliedMark::encode(b"mark", 300)].concat());
    seeds.extend(records_of_users());
    seeds
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn every_command_has_one_encoding() {
        let corpus =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/fuzz/corpus/replicated.tar");
        let seeds = super::replicated_seeds();
        bowline_testing::replay(
            "every_command_has_one_encoding",
            &corpus,
            seeds,
            super::replicated,
        );
    }
}
