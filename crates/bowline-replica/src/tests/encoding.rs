//! The encoding of commands: each command has one encoding, and whatever is not a whole encoding is refused.

use bowline_storage::codec::put_bytes;

use super::*;
use crate::codec::required;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn commands_round_trip_and_refuse_every_cut(
        commands in prop::collection::vec(
            prop_oneof![quotas::quota_command(), users::acted_command()],
            0..6,
        ),
    ) {
        let mut bytes = Vec::new();
        encode_commands(commands.iter(), &mut bytes);
        let bytes = Bytes::from(bytes);
        prop_assert_eq!(decode_commands(&bytes).unwrap(), commands);
        for cut in 0..bytes.len() {
            prop_assert!(decode_commands(&bytes.slice(..cut)).is_err());
        }
    }
}

/// Found by the fuzzer: attributes that were named twice, or out of order, decoded to the map with the last
/// of them, so that one command had several encodings.
#[test]
fn attributes_named_twice_or_out_of_order_are_refused() {
    let block = Block::new(BlockId(1), "kind")
        .attribute("name1", "x")
        .attribute("name2", "x");
    let mut bytes = Vec::new();
    let command = Command::Graph(vec![GraphWrite::PutBlock(block)]);
    encode_commands([&command].into_iter(), &mut bytes);
    assert!(decode_commands(&Bytes::from(bytes.clone())).is_ok());

    let digits: Vec<usize> = (4..bytes.len())
        .filter(|&at| bytes[..at].ends_with(b"name"))
        .collect();
    let [first, second] = digits[..] else {
        panic!("two names: {digits:?}");
    };
    for (one, two) in [(b'1', b'1'), (b'2', b'1')] {
        let mut bytes = bytes.clone();
        (bytes[first], bytes[second]) = (one, two);
        let refused = decode_commands(&Bytes::from(bytes)).unwrap_err();
        assert!(
            refused.to_string().contains("out of the order"),
            "{refused}"
        );
    }
}

/// The bytes of one command, with their version.
fn bytes_of(command: &Command) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_commands([command].into_iter(), &mut bytes);
    bytes
}

/// The reason why bytes are refused.
fn refused(bytes: Vec<u8>) -> String {
    decode_commands(&Bytes::from(bytes))
        .unwrap_err()
        .to_string()
}

#[test]
fn users_tokens_and_actors_need_the_fifth_version() {
    let by = Command::By {
        actor: Actor::Process,
        at_ms: None,
        command: Box::new(txn_of(Vec::new())),
    };
    let expire = TokenChange::Expire { before_ms: 9 };
    for command in [
        Command::Users(UsersChange::Enable),
        Command::Tokens(expire),
        by,
    ] {
        assert_eq!(command.version(), 5);
        let mut bytes = bytes_of(&command);
        assert_eq!(commands_version(&bytes), Some(5));
        // So does a list that has it among others.
        let mut list = Vec::new();
        encode_commands([&txn_of(Vec::new()), &command].into_iter(), &mut list);
        assert_eq!(commands_version(&list), Some(5));
        assert!(decode_commands(&Bytes::from(list)).is_ok());
        bytes[0] = 4;
        assert!(refused(bytes.clone()).contains("a version other than"));
        bytes[0] = COMMAND_VERSION + 1;
        let newer = decode_commands(&Bytes::from(bytes)).unwrap_err();
        let is_newer =
            matches!(newer, DecodeError::Newer { found } if found == COMMAND_VERSION + 1);
        assert!(is_newer, "{newer}");
    }
}

/// A program without quotas must apply nothing while there are some: it would not count.
#[test]
fn quotas_need_the_sixth_version_and_while_there_are_some_so_does_every_command() {
    let remove = Command::Quota(QuotaChange::Remove {
        prefix: b"a".to_vec(),
    });
    let by = Command::By {
        actor: Actor::Process,
        at_ms: None,
        command: Box::new(remove.clone()),
    };
    assert_eq!((remove.version(), by.version()), (6, 6));
    let plain = txn_of(Vec::new());
    let mut bytes = bytes_of(&plain);
    assert_eq!(required(&bytes), (false, false));
    require_quotas(&mut bytes);
    assert!(required(&bytes) == (true, false) && bytes[0] > 6);
    // It may be proposed to members of which each knows the version of the command itself.
    assert_eq!(commands_version(&bytes), Some(1));
    assert_eq!(decode_commands(&Bytes::from(bytes)).unwrap(), [plain]);
}

/// A program without indexes must apply nothing while there are some: it would not keep them.
#[test]
fn indexes_need_the_eighth_version_and_while_there_are_some_so_does_every_command() {
    let step = Command::Index(IndexChange::Step { id: 1, done: None });
    let read = Command::Commit(Commit {
        reads: vec![CommitRead::Entries {
            index: 1,
            first: vec![1],
            end: vec![2],
        }],
        ..Commit::default()
    });
    for command in [step, read] {
        assert_eq!(command.version(), 8);
        let bytes = Bytes::from(bytes_of(&command));
        for end in 0..bytes.len() {
            assert!(decode_commands(&bytes.slice(..end)).is_err(), "{end}");
        }
        assert_eq!(decode_commands(&bytes).unwrap(), [command]);
    }
    let plain = txn_of(Vec::new());
    let mut bytes = bytes_of(&plain);
    require_indexes(&mut bytes);
    assert!(required(&bytes) == (false, true) && bytes[0] > 7);
    require_quotas(&mut bytes);
    assert_eq!(required(&bytes), (true, true));
    assert_eq!(commands_version(&bytes), Some(1));
    assert_eq!(decode_commands(&Bytes::from(bytes)).unwrap(), [plain]);
}

/// A member that does not know spans of blocks would take the commit for damaged, also where it is a user's.
#[test]
fn a_commit_that_has_read_a_span_of_blocks_needs_a_version_of_its_own() {
    let commit = |read| {
        let reads = vec![read];
        Command::Commit(Commit {
            reads,
            ..Commit::default()
        })
    };
    let (first, last) = (BlockId(1), BlockId(u128::MAX));
    let span = commit(CommitRead::Blocks { first, last });
    let by = Command::By {
        actor: Actor::Process,
        at_ms: None,
        command: Box::new(span.clone()),
    };
    for command in [span, by] {
        assert_eq!(command.version(), 7);
        let bytes = Bytes::from(bytes_of(&command));
        assert_eq!(commands_version(&bytes), Some(7));
        assert_eq!(decode_commands(&bytes).unwrap(), [command]);
    }
    assert_eq!(commit(CommitRead::Block(first)).version(), 1);
}

/// Each actor of an actor would take a call of the decoder, so a message of a megabyte would use up the stack.
#[test]
fn actors_of_actors_are_refused_without_recursion() {
    let mut command = txn_of(Vec::new());
    for actor in [
        Actor::Process,
        Actor::User {
            name: "ann".into(),
            since: 300,
        },
    ] {
        let command_of = command.clone();
        command = Command::By {
            actor,
            at_ms: None,
            command: Box::new(command_of),
        };
    }
    let why = refused(bytes_of(&command));
    assert!(why.contains("an actor of a command that has one"), "{why}");
    let by_process = |at_ms| {
        let by = Command::By {
            actor: Actor::Process,
            at_ms,
            command: Box::new(txn_of(Vec::new())),
        };
        // The version, the count and the length; then the tag, the actor and a time of one byte.
        let bytes = bytes_of(&by);
        let end = if at_ms.is_some() { 6 } else { 5 };
        bytes[3..end].to_vec()
    };
    let (plain, timed) = (by_process(None), by_process(Some(0)));
    for deep in [
        plain.clone(),
        vec![plain[0]; 2],
        timed.clone(),
        vec![timed[0]; 2],
    ] {
        let mut bytes = vec![COMMAND_VERSION, 1];
        put_bytes(&mut bytes, &deep.repeat(1 << 19));
        let why = refused(bytes);
        assert!(why.contains("an actor"), "{why}");
    }
}

/// A member of before does not know of times: what has one must not be sent to it, and what it was sent has none.
#[test]
fn a_time_needs_the_version_that_knows_of_it() {
    let of = |at_ms| Command::By {
        actor: Actor::User {
            name: "ann".into(),
            since: 3,
        },
        at_ms,
        command: Box::new(Command::LeaseRevoke { id: 7 }),
    };
    for (at_ms, version) in [(None, 5), (Some(0), 6), (Some(u64::MAX), 6)] {
        let command = of(at_ms);
        assert_eq!(command.version(), version);
        let mut bytes = Vec::new();
        encode_commands([command.clone()].iter(), &mut bytes);
        assert_eq!(commands_version(&bytes), Some(version));
        assert_eq!(decode_commands(&bytes.into()).unwrap(), [command]);
    }
}

/// The commands of one user have one copy of its name, and those of users in turns have each their own.
#[test]
fn commands_of_one_user_share_its_name() {
    let of = |name: &str| Command::By {
        actor: Actor::User {
            name: name.into(),
            since: 3,
        },
        at_ms: Some(9),
        command: Box::new(Command::LeaseRevoke { id: 7 }),
    };
    let commands = ["ann", "ann", "an", "bob", "", "ann"].map(of);
    let mut bytes = Vec::new();
    encode_commands(commands.iter(), &mut bytes);
    let decoded = decode_commands(&bytes.into()).unwrap();
    assert_eq!(decoded, commands);
    let name = |at: usize| match &decoded[at] {
        Command::By {
            actor: Actor::User { name, .. },
            ..
        } => name.as_ptr(),
        other => panic!("{other:?}"),
    };
    assert_eq!(name(0), name(1));
    assert_ne!(name(1), name(5));
}

#[test]
fn an_update_needs_the_ninth_version() {
    for update in [Update::Add(1), Update::Append(Vec::new())] {
        let commit = Commit {
            writes: vec![CommitWrite::Update {
                key: b"k".to_vec(),
                update,
            }],
            ..Commit::default()
        };
        assert_eq!(Command::Commit(commit).version(), 9);
    }
}
