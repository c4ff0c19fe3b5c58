//! Entry points of fuzzers for commands and members' records; see the module of the same name in
//! `bowline-storage`. Only in tests and with `--cfg fuzzing`.

use std::time::Duration;

use bowline::{Block, BlockId, Edge, Isolation, LeaseId, Revision, Value};
use bytes::Bytes;

use crate::{
    AlarmKind, AppliedMark, Command, Commit, CommitRead, CommitWrite, Compare, DeleteRangeOp,
    EdgeKey, Expectation, GraphWrite, LeaseLeft, Op, PutOp, RangeOp, Relation, Target, Txn,
    decode_commands, encode_commands,
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
                assert_eq!(again, data, "two encodings of one list of commands");
            }
        }
        1 => {
            if let Some(mark) = AppliedMark::decode(data) {
                let again = AppliedMark::encode(&mark.mark, mark.commands);
                assert_eq!(again, data, "two encodings of one mark");
            }
        }
        _ => {}
    }
}

/// Commands of every kind, and a mark.
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
    ];
    let mut seeds: Vec<Vec<u8>> = (commands.iter().map(std::slice::from_ref))
        .chain([&commands[..], &[]])
        .map(|commands| {
            let mut out = vec![0];
            encode_commands(commands.iter(), &mut out);
            out
        })
        .collect();
    seeds.push([&[1][..], &AppliedMark::encode(b"mark", 300)].concat());
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
