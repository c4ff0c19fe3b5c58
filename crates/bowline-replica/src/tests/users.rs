//! Users in the state machine: who may do what, and that all members decide alike.

use std::sync::atomic::AtomicUsize;

use super::*;
use crate::users::encode_token;
use crate::users::tests::records::any_change;
use crate::users::tests::{
    add_role, add_user, change_password, delete_user, grant, grant_role, keys, kinds, revoke_role,
};

pub(super) fn by(name: &str, since: u64, command: Command) -> Command {
    let name = name.into();
    Command::By {
        actor: Actor::User { name, since },
        at_ms: None,
        command: Box::new(command),
    }
}

pub(super) fn by_process(command: Command) -> Command {
    Command::By {
        actor: Actor::Process,
        at_ms: None,
        command: Box::new(command),
    }
}

pub(super) fn login(user: &str, token: u8, checked_at: u64, expires_ms: u64) -> Command {
    Command::Tokens(TokenChange::Login {
        user: user.to_owned(),
        token: [token; 32],
        checked_at,
        expires_ms,
    })
}

pub(super) fn put_of(key: &str) -> Command {
    txn_of(vec![Op::Put(put(key, "v"))])
}

fn leased(key: &str, lease: i64) -> Op {
    Op::Put(PutOp {
        lease,
        ..put(key, "v")
    })
}

/// Enables authentication, with a root, with `ann` who may do something, and with `bob` who may nothing. Returns the auth
/// revision.
pub(super) fn enable(member: &mut Member) -> u64 {
    let changes = [
        add_user(ROOT),
        grant_role(ROOT, ROOT),
        add_role("r"),
        grant("r", keys(Grant::ReadWrite, "a", "d")),
        grant("r", keys(Grant::Write, "w", "")),
        grant("r", keys(Grant::Read, "x", "")),
        grant("r", kinds(Grant::ReadWrite, "doc")),
        add_user("ann"),
        grant_role("ann", "r"),
        add_user("bob"),
        UsersChange::Enable,
    ];
    for reply in member.run(&changes.map(Command::Users)) {
        assert_eq!(reply.result, Ok(Outcome::Done));
    }
    member.replica.users().revision()
}

/// A member with authentication enabled, and its auth revision.
pub(super) fn enabled() -> (Member, u64) {
    let mut member = Member::open(&SimDisk::new(), 1);
    let since = enable(&mut member);
    (member, since)
}

pub(super) fn run(member: &mut Member, command: Command) -> Reply {
    member.run(&[command]).remove(0)
}

/// Runs a command that must be refused, and sees that it leaves no trace.
#[track_caller]
pub(super) fn assert_refused(member: &mut Member, command: Command, refusal: UsersRefusal) {
    let (before, users) = (member.dump(), users_of(member));
    let revision = member.replica.db().revision();
    let shown = format!("{command:?}");
    let reply = run(member, command);
    assert_eq!(reply.result, Err(Refusal::Users(refusal)), "{shown}");
    assert_eq!(reply.revision, revision, "{shown}");
    assert_eq!(member.dump(), before, "{shown}");
    assert_eq!(users_of(member), users, "{shown}");
}

#[track_caller]
pub(super) fn assert_done(member: &mut Member, command: Command) -> Outcome {
    let shown = format!("{command:?}");
    let result = run(member, command).result;
    result.unwrap_or_else(|why| panic!("{shown}: {why}"))
}

/// Users, roles and tokens as text.
pub(super) fn users_of(member: &Member) -> String {
    let replica = &member.replica;
    let mut out = format!("{:?}\n", replica.users());
    for token in replica.tokens.filtered(usize::MAX, |_| true) {
        let session = replica.session(&token).unwrap();
        let (user, since) = (session.user(), session.since());
        out += &format!("{:?} {user} {since} {}\n", token, session.expires_ms());
    }
    out
}

#[test]
fn a_command_goes_with_an_actor_while_authentication_is_enabled_and_only_then() {
    let mut member = Member::open(&SimDisk::new(), 1);
    // Disabled: with an actor, whoever it is, and without.
    for command in [
        put_of("k"),
        by_process(put_of("k")),
        by("nobody", 0, put_of("k")),
    ] {
        assert_done(&mut member, command);
    }
    let since = enable(&mut member);
    assert!(member.replica.are_users_enabled());
    let ttl = Duration::from_secs(60);
    let asked = [
        put_of("a"),
        txn_of(Vec::new()),
        Command::UnboundedTxn(Txn::default()),
        Command::LeaseGrant { id: 9, ttl },
        Command::LeaseRevoke { id: 9 },
        Command::LeaseDeleteKeys {
            id: 9,
            expired: None,
        },
        Command::Compact {
            revision: Revision::new(1),
        },
        Command::Graph(Vec::new()),
        Command::Commit(Commit::default()),
        Command::Users(add_user("eve")),
        Command::Users(UsersChange::Disable),
    ];
    for command in asked {
        assert_refused(&mut member, command.clone(), UsersRefusal::NoUser);
        let nobody = by("nobody", u64::MAX, command);
        assert_refused(&mut member, nobody, UsersRefusal::InvalidToken);
    }
    // What members do by themselves.
    let alarm = |is_raised| Command::Alarm {
        member: 1,
        kind: AlarmKind::NoSpace,
        is_raised,
    };
    for command in [alarm(true), alarm(false), login("ann", 1, since, 9)] {
        assert_done(&mut member, command);
    }
    assert_done(&mut member, by_process(put_of("k")));
    assert_done(&mut member, by(ROOT, since, put_of("k")));
    assert_done(&mut member, by("ann", since, put_of("a")));
    for (name, command) in [
        ("ann", put_of("k")),
        ("bob", put_of("a")),
        ("ann", Command::Users(add_user("eve"))),
        ("ann", Command::Users(UsersChange::Disable)),
    ] {
        let command = by(name, since, command);
        assert_refused(&mut member, command, UsersRefusal::PermissionDenied);
    }
    assert_done(
        &mut member,
        by(ROOT, since, Command::Users(add_user("eve"))),
    );
    let disable = Command::Users(UsersChange::Disable);
    assert_done(&mut member, by(ROOT, since, disable));
    assert!(!member.replica.are_users_enabled());
    for command in [put_of("k"), by("bob", 0, put_of("k"))] {
        assert_done(&mut member, command);
    }
}

/// An actor within an actor does not come from bytes. It is refused in any case.
#[test]
fn an_actor_of_an_actor_is_refused() {
    let (member, since) = enabled();
    let command = by(ROOT, since, by(ROOT, since, put_of("k")));
    let before = member.replica.db().revision();
    let mut applier = member.replica.apply();
    let replies = applier.entry(2, 1, &[command], b"mark", Some(&[true]));
    applier.finish().unwrap();
    let refused = Err(Refusal::Users(UsersRefusal::InvalidToken));
    assert_eq!(replies.unwrap()[0].result, refused);
    assert_eq!(member.replica.db().revision(), before);
}

#[test]
fn a_user_who_came_later_is_another() {
    let (mut member, since) = enabled();
    let root = |member: &mut Member, change| {
        let command = by(ROOT, since, Command::Users(change));
        assert_done(member, command);
        member.replica.users().revision()
    };
    let put = |since| by("ann", since, put_of("a"));
    assert_done(&mut member, put(since));
    let changed = root(&mut member, change_password("ann"));
    assert_refused(&mut member, put(since), UsersRefusal::InvalidToken);
    assert_refused(&mut member, put(changed - 1), UsersRefusal::InvalidToken);
    assert_done(&mut member, put(changed));
    root(&mut member, delete_user("ann"));
    assert_refused(&mut member, put(changed), UsersRefusal::InvalidToken);
    let added = root(&mut member, add_user("ann"));
    assert_refused(&mut member, put(changed), UsersRefusal::InvalidToken);
    assert_refused(&mut member, put(added - 1), UsersRefusal::InvalidToken);
    // The new one has no roles.
    assert_refused(&mut member, put(added), UsersRefusal::PermissionDenied);
    root(&mut member, grant_role("ann", "r"));
    assert_done(&mut member, put(added));
    // Rights that are taken away end at once.
    root(&mut member, revoke_role("ann", "r"));
    assert_refused(&mut member, put(added), UsersRefusal::PermissionDenied);
}

#[test]
fn all_branches_of_a_transaction_need_their_rights() {
    let (mut member, since) = enabled();
    let compare = |key: &str| Compare {
        key: key.into(),
        range_end: Vec::new(),
        relation: Relation::Equal,
        target: Target::Version(0),
    };
    let put_op = |key: &str| Op::Put(put(key, "v"));
    let of = |compared: &str, success: Vec<Op>, failure: Vec<Op>| Txn {
        compares: vec![compare(compared)],
        success,
        failure,
    };
    let fine = of("x", vec![put_op("a")], vec![put_op("b")]);
    assert_done(&mut member, by("ann", since, Command::Txn(fine.clone())));
    let nest = |txn: Txn| Txn::of(Op::Txn(txn));
    let previous = |key: &str| {
        Op::Put(PutOp {
            prev_kv: true,
            ..put(key, "v")
        })
    };
    let deletes = |key: &str, end: &str, prev_kv| {
        Op::DeleteRange(DeleteRangeOp {
            key: key.into(),
            range_end: end.into(),
            prev_kv,
        })
    };
    for allowed in [
        Txn::of(put_op("w")),
        Txn::of(deletes("w", "", false)),
        Txn::of(previous("a")),
        Txn::of(deletes("a", "d", true)),
        nest(fine),
    ] {
        assert_done(&mut member, by("ann", since, Command::Txn(allowed)));
    }
    for denied in [
        of("k", vec![], vec![]),
        of("x", vec![put_op("k")], vec![]),
        of("x", vec![put_op("a")], vec![put_op("k")]),
        nest(nest(of("x", vec![], vec![put_op("k")]))),
        // To write is not to read.
        Txn::of(previous("w")),
        Txn::of(deletes("w", "", true)),
        Txn::of(put_op("x")),
        Txn::of(deletes("a", "e", false)),
        Txn::of(deletes("a", "\0", false)),
    ] {
        let command = by("ann", since, Command::Txn(denied));
        assert_refused(&mut member, command, UsersRefusal::PermissionDenied);
    }
}

#[test]
fn a_lease_with_keys_needs_the_right_to_write_them() {
    let (mut member, since) = enabled();
    let ttl = Duration::from_secs(60);
    let ann = |command| by("ann", since, command);
    assert_done(&mut member, ann(Command::LeaseGrant { id: 5, ttl }));
    assert_done(&mut member, ann(txn_of(vec![leased("a", 5)])));
    assert_done(&mut member, by_process(txn_of(vec![leased("k", 5)])));
    let commit = |lease| {
        Command::Commit(Commit {
            writes: vec![CommitWrite::Put {
                key: b"c".to_vec(),
                value: Value::from("v"),
                lease,
            }],
            ..Commit::default()
        })
    };
    let delete_keys = Command::LeaseDeleteKeys {
        id: 5,
        expired: None,
    };
    let all = [
        txn_of(vec![leased("b", 5)]),
        commit(5),
        delete_keys,
        Command::LeaseRevoke { id: 5 },
    ];
    for command in &all {
        assert_refused(
            &mut member,
            ann(command.clone()),
            UsersRefusal::PermissionDenied,
        );
    }
    let delete = DeleteRangeOp {
        key: b"k".to_vec(),
        ..DeleteRangeOp::default()
    };
    assert_done(
        &mut member,
        by_process(txn_of(vec![Op::DeleteRange(delete)])),
    );
    for command in all {
        assert_done(&mut member, ann(command));
    }
    // One that does not exist is refused as such.
    let reply = run(&mut member, ann(Command::LeaseRevoke { id: 5 }));
    assert_eq!(reply.result, Err(Refusal::LeaseNotFound { id: 5 }));
    // What an earlier command of the same entry has attached counts.
    let replies = member.run(&[
        ann(Command::LeaseGrant { id: 6, ttl }),
        by_process(txn_of(vec![leased("k", 6)])),
        ann(Command::LeaseRevoke { id: 6 }),
    ]);
    let denied = Err(Refusal::Users(UsersRefusal::PermissionDenied));
    assert_eq!(replies[2].result, denied);
    // The leader ends an expired lease, whatever its keys.
    let granted = member.log.next_index() - 1;
    let expire = Command::LeaseExpire {
        id: 6,
        term: 1,
        granted: Some(granted),
    };
    let ended = assert_done(&mut member, expire);
    assert_eq!(ended, Outcome::LeaseEnded { deleted: 1 });
}

#[test]
fn a_block_needs_the_kinds_that_it_gets_and_those_that_it_has() {
    let (mut member, since) = enabled();
    let block = |id: u128, kinds: &[&str]| {
        let kinds: BlockKinds = kinds.iter().map(|&kind| kind.to_owned()).collect();
        // Long enough for a blob.
        let block = Block::new(BlockId(id), kinds).content(vec![1; 300]);
        GraphWrite::PutBlock(block)
    };
    let edge = |kind: &str| GraphWrite::PutEdge(Edge::new(BlockId(1), kind, BlockId(2)));
    let no_edge = |kind: &str| GraphWrite::DeleteEdge(EdgeKey::new(BlockId(1), kind, BlockId(2)));
    let begin = [
        block(1, &["doc", "plan"]),
        block(2, &["doc"]),
        block(3, &[]),
        edge("tie"),
    ];
    assert_done(&mut member, by_process(Command::Graph(begin.to_vec())));
    for flushes in [false, true] {
        if flushes {
            member.replica.db().flush().unwrap();
            member.replica.db().compact().unwrap();
        }
        for denied in [
            block(1, &["doc"]),
            block(3, &["doc"]),
            block(2, &["doc", "plan"]),
            block(2, &[]),
            block(4, &[]),
            block(4, &["plan"]),
            GraphWrite::DeleteBlock(BlockId(2)),
            GraphWrite::DeleteBlock(BlockId(9)),
            edge("tie"),
            no_edge("tie"),
        ] {
            let commit = Commit {
                writes: vec![CommitWrite::Graph(denied.clone())],
                ..Commit::default()
            };
            // The write before it leaves no trace either.
            let graph = Command::Graph(vec![block(5, &["doc"]), denied]);
            for command in [graph, Command::Commit(commit)] {
                let command = by("ann", since, command);
                assert_refused(&mut member, command, UsersRefusal::PermissionDenied);
            }
        }
        for allowed in [
            block(2, &["doc page"]),
            block(2, &["doc", "docs"]),
            block(4, &["doc"]),
            edge("doc of"),
            no_edge("doc of"),
        ] {
            let graph = Command::Graph(vec![allowed]);
            assert_done(&mut member, by("ann", since, graph));
        }
    }
    // A member with another memtable decides alike: the kinds come from what is there.
    let mut again = Member::open(&member.disk.after_power_loss(), 1);
    let command = by("ann", since, Command::Graph(vec![block(1, &["doc"])]));
    assert_refused(&mut again, command, UsersRefusal::PermissionDenied);
}

/// The session of a token, which whoever has it keeps.
pub(super) fn session(member: &Member, token: u8) -> Arc<Session> {
    member.replica.session(&[token; 32]).unwrap()
}

#[test]
fn a_call_is_checked_as_its_command_is() {
    let (mut member, since) = enabled();
    assert_done(&mut member, login("ann", 1, since, 100));
    let ann = Caller::User(session(&member, 1));
    let check = |member: &Member, caller: &Caller, key: &str| {
        let read = Txn::of(Op::Range(RangeOp {
            key: key.into(),
            ..RangeOp::default()
        }));
        let checked = member
            .replica
            .check_rights(caller, |each| needs_of_txn(&read, each));
        checked.unwrap().err()
    };
    use UsersRefusal as R;
    assert_eq!(check(&member, &Caller::Nobody, "a"), Some(R::NoUser));
    assert_eq!(check(&member, &Caller::Process, "k"), None);
    assert_eq!(check(&member, &ann, "a"), None);
    assert_eq!(check(&member, &ann, "k"), Some(R::PermissionDenied));
    assert_eq!(check(&member, &ann, "w"), Some(R::PermissionDenied));
    let since = member.replica.users().revision();
    let certified = |since| Caller::User(Arc::new(Session::without_token("ann", since)));
    assert_eq!(check(&member, &certified(since), "a"), None);
    assert_eq!(check(&member, &certified(0), "a"), Some(R::InvalidToken));
    // A certificate whose name is no user's shows no token that could be wrong.
    let certified = Caller::User(Arc::new(Session::without_token("eve", u64::MAX)));
    assert_eq!(check(&member, &certified, "a"), Some(R::PermissionDenied));
    let signed = Caller::User(Arc::new(Session::until("eve", since, 100)));
    assert_eq!(check(&member, &signed, "a"), Some(R::InvalidToken));
    let root = |change| by_process(Command::Users(change));
    assert_done(&mut member, root(change_password("ann")));
    assert_eq!(check(&member, &ann, "a"), Some(R::InvalidToken));
    assert_done(&mut member, root(UsersChange::Disable));
    for caller in [ann, Caller::Nobody, Caller::Process] {
        assert_eq!(check(&member, &caller, "k"), None);
    }
}

#[test]
fn the_listener_is_called_after_each_change_of_users() {
    let (mut member, since) = enabled();
    let called = Arc::new(AtomicUsize::new(0));
    let count = called.clone();
    let count = move || {
        count.fetch_add(1, Ordering::Relaxed);
    };
    member.replica.on_users_changed(count);
    let mut calls = 0;
    for (command, calls_it) in [
        (Command::Users(add_user("eve")), true),
        (Command::Users(add_user("eve")), false),
        (Command::Users(UsersChange::Enable), false),
        (put_of("k"), false),
        (Command::Users(UsersChange::Disable), true),
        (Command::Users(UsersChange::Enable), true),
    ] {
        run(&mut member, by(ROOT, since, command.clone()));
        calls += usize::from(calls_it);
        assert_eq!(called.load(Ordering::Relaxed), calls, "{command:?}");
    }
    let mut leader = Member::open(&SimDisk::new(), 2);
    enable(&mut leader);
    while leader.log.next_index() <= member.log.next_index() {
        assert_done(&mut leader, by_process(put_of("k")));
    }
    leader.replica.db().flush().unwrap();
    let installed = member.install(&bring(&leader, &member)).unwrap();
    member.restart_log(installed);
    assert_eq!(called.load(Ordering::Relaxed), calls + 1);
}

/// An installed state replaces the users and the tokens: sessions that calls have kept end, since nobody knows whether
/// their tokens are in the new state.
#[test]
fn an_installed_state_has_the_users_and_tokens_of_the_other() {
    let (mut leader, since) = enabled();
    let mut late = Member::open(&SimDisk::new(), 2);
    for member in [&mut leader, &mut late] {
        if member.log.next_index() == 1 {
            enable(member);
        }
        assert_done(member, login("ann", 1, since, 100));
    }
    assert_done(&mut late, login("ann", 2, since, 100));
    let kept = session(&late, 1);
    for command in [
        login("bob", 3, since, 200),
        by_process(Command::Users(change_password("bob"))),
        login("bob", 4, since + 1, 200),
        by_process(Command::Users(grant("r", keys(Grant::Read, "m", "")))),
    ] {
        assert_done(&mut leader, command);
    }
    leader.replica.db().flush().unwrap();
    let installed = late.install(&bring(&leader, &late)).unwrap();
    late.restart_log(installed);
    assert_eq!(users_of(&late), users_of(&leader));
    assert!(late.replica.are_users_enabled());
    assert!(!kept.is_valid(0) && session(&late, 1).is_valid(0));
    assert!(late.replica.session(&[2; 32]).is_none());
    let again = Member::open(&late.disk.after_power_loss(), 2);
    assert_eq!(users_of(&again), users_of(&leader));
    for member in [&mut leader, &mut late] {
        assert_done(member, by("ann", since, put_of("a")));
        let bob = by("bob", since, put_of("a"));
        assert_refused(member, bob, UsersRefusal::InvalidToken);
    }
    assert_eq!(late.dump(), leader.dump());
}

#[test]
fn a_damaged_record_of_users_stops_the_opening() {
    let good = encode_token("ann", 1, 100);
    for (key, record) in [
        (trees::users_config_key().to_vec(), vec![9]),
        (trees::user_key("ann"), vec![1, 0]),
        (trees::role_key("r"), vec![7]),
        (trees::token_key(&[7; 32]).to_vec(), vec![1]),
        // A hash of another length, and what is unknown.
        (trees::token_key(&[7; 32])[..30].to_vec(), good),
        (b"ux".to_vec(), Vec::new()),
        (b"uu\xff".to_vec(), vec![1, 0, 0, 0]),
    ] {
        let disk = SimDisk::new();
        let db = builder(Arc::new(disk.clone())).open("db").unwrap();
        db.put_system_record(&key, record).unwrap();
        Replica::end_embedded_time(&db).unwrap();
        drop(db);
        let options = ReplicaOptions {
            database_id: 7,
            first_file_id: 1 << 32,
            locked: &mut |_| Ok(()),
            damaged: &mut |_| Ok(false),
            visit: &mut |_, _| Ok(()),
        };
        let opened = Replica::open(builder(Arc::new(disk)), "db", options);
        let refused = matches!(&opened, Err(Error::InvalidRecord { .. }));
        assert!(refused, "{key:?}: {:?}", opened.err());
    }
}

/// Random changes of tokens among few.
fn token_change() -> impl Strategy<Value = TokenChange> {
    let token = || (0u8..4).prop_map(|token| [token; 32]);
    let user = prop::sample::select(&["ann", "bob", ROOT][..]).prop_map(str::to_owned);
    let checked_at = prop_oneof![1 => 0u64..20, 2 => Just(u64::MAX)];
    let login = (user, token(), checked_at, 0u64..50);
    prop_oneof![
        4 => login.prop_map(|(user, token, checked_at, expires_ms)| {
            TokenChange::Login { user, token, checked_at, expires_ms }
        }),
        2 => (token(), 0u64..80).prop_map(|(token, expires_ms)| {
            TokenChange::Renew { token, expires_ms }
        }),
        1 => (0u64..50).prop_map(|before_ms| TokenChange::Expire { before_ms }),
    ]
}

/// Random commands with actors, and changes of users and tokens.
pub(super) fn acted_command() -> impl Strategy<Value = Command> {
    let name = prop::sample::select(&["ann", "ann", "bob", ROOT, "nobody"][..]);
    let since = prop_oneof![1 => 0u64..20, 3 => Just(u64::MAX)];
    let actor = prop_oneof![
        1 => Just(None),
        2 => Just(Some(Actor::Process)),
        5 => (name, since).prop_map(|(name, since)| {
            Some(Actor::User { name: name.into(), since })
        }),
    ];
    let command = prop_oneof![
        3 => any_change().prop_map(Command::Users),
        2 => token_change().prop_map(Command::Tokens),
        5 => command(),
    ];
    let at_ms = prop::option::of(0u64..3);
    (actor, at_ms, command).prop_map(|(actor, at_ms, command)| match actor {
        None => command,
        Some(actor) => Command::By {
            actor,
            at_ms,
            command: Box::new(command),
        },
    })
}

/// A command with its time.
fn at(at_ms: u64, command: Command) -> Command {
    let Command::By { actor, command, .. } = command else {
        return command;
    };
    let at_ms = Some(at_ms);
    Command::By {
        actor,
        at_ms,
        command,
    }
}

/// Who has made a revision is known from the commit on, and as long as the history is.
#[test]
fn a_revision_has_its_author_until_its_history_is_trimmed() {
    let disk = SimDisk::new();
    let mut member = Member::open(&disk, 1);
    let since = enable(&mut member);
    let revision_of = |member: &mut Member, command: Command| {
        let reply = run(member, command);
        assert!(reply.result.is_ok(), "{reply:?}");
        reply.revision
    };
    let author = |member: &Member, revision: Revision| {
        let found = member.replica.db().author(revision).unwrap();
        found.map(|author| (author.user, author.at_ms))
    };
    let ann = |at_ms| Some(("ann".to_owned(), at_ms));
    let first = revision_of(&mut member, at(11, by("ann", since, put_of("a"))));
    let second = revision_of(&mut member, at(22, by("ann", since, put_of("b"))));
    // What is not a user's, or was proposed for members of before, has no author, not that of the revision before.
    let of_process = revision_of(&mut member, at(33, by_process(put_of("a"))));
    let without = revision_of(&mut member, by("ann", since, put_of("a")));
    let last = revision_of(&mut member, at(44, by("ann", since, put_of("a"))));
    // It changes nothing, so it makes no revision; a refused command leaves no author either.
    let nothing = at(55, by("ann", since, txn_of(Vec::new())));
    assert_eq!(revision_of(&mut member, nothing), last);
    let refused = at(66, by("bob", since, put_of("a")));
    assert_refused(&mut member, refused, UsersRefusal::PermissionDenied);
    let seen = [first, second, of_process, without, last].map(|revision| author(&member, revision));
    assert_eq!(seen, [ann(11), ann(22), None, None, ann(44)]);
    let check = member.replica.db().check().unwrap();
    assert!(check.is_clean(), "{:?}", check.problems);
    // A reader of the past keeps what is given up; nobody else is told of it.
    let _reader = member.replica.db().snapshot_at(first).unwrap();
    let compact = by(ROOT, since, Command::Compact { revision: second });
    assert_done(&mut member, compact);
    let seen = [first, second, without, last].map(|revision| author(&member, revision));
    assert_eq!(seen, [None, ann(22), None, ann(44)]);
}

/// What the actor of a command decides before its rights do.
fn refusal_of_actor(users: &Users, command: &Command) -> Option<UsersRefusal> {
    let is_of_members = match command.inner() {
        Command::LeaseExpire { .. }
        | Command::LeaseCheckpoint { .. }
        | Command::LeaseRemaining { .. }
        | Command::Tokens(_)
        | Command::Alarm { .. } => true,
        Command::LeaseDeleteKeys { expired, .. } => expired.is_some(),
        _ => false,
    };
    if !users.is_enabled() || is_of_members {
        return None;
    }
    match command {
        Command::By { actor, .. } => match actor {
            Actor::Process => None,
            Actor::User { name, since } => match users.user(name) {
                Some(user) if user.since <= *since => None,
                _ => Some(UsersRefusal::InvalidToken),
            },
        },
        _ => Some(UsersRefusal::NoUser),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// As `members_that_are_fed_the_same_are_the_same`, with users: one member runs through, one loses power and comes
    /// back, one installs the first one's tables in the middle. The refusals are those of the state before each entry.
    #[test]
    fn members_agree_about_users(
        entries in prop::collection::vec(prop::collection::vec(acted_command(), 1..3), 1..40),
        seeds in prop::collection::vec(any::<u8>(), 40),
        takes_over_at in 0usize..40,
    ) {
        let mut steady = Member::open(&SimDisk::new(), 1);
        let mut shaken = Member::open(&SimDisk::new(), 2);
        let mut late = Member::open(&SimDisk::new(), 3);
        enable(&mut steady);
        enable(&mut shaken);
        for (number, commands) in entries.iter().enumerate() {
            let users = steady.replica.users();
            let revision = steady.replica.db().revision();
            let replies = steady.run(commands);
            let refused = refusal_of_actor(&users, &commands[0]);
            match (&replies[0].result, refused) {
                (Err(Refusal::Corrupt), _) => {}
                (result, Some(refusal)) => {
                    prop_assert_eq!(result, &Err(Refusal::Users(refusal)), "{:?}", commands[0]);
                    prop_assert_eq!(replies[0].revision, revision);
                }
                (result, None) => {
                    let is_token = matches!(commands[0].inner(), Command::Tokens(_));
                    let no_user = Err(Refusal::Users(UsersRefusal::NoUser));
                    let invalid = Err(Refusal::Users(UsersRefusal::InvalidToken));
                    prop_assert_ne!(result, &no_user, "{:?}", commands[0]);
                    prop_assert!(is_token || *result != invalid, "{:?}", commands[0]);
                }
            }
            prop_assert_eq!(&shaken.run(commands), &replies);
            match seeds[number] % 8 {
                0 => {
                    let disk = shaken.disk.after_power_loss();
                    shaken = Member::open(&disk, 2);
                }
                1 => shaken.replica.db().flush().unwrap(),
                2 => shaken.replica.db().compact().unwrap(),
                _ => {}
            }
            if number == takes_over_at {
                take_over(&steady, &mut late);
            }
            if number > takes_over_at {
                prop_assert_eq!(&late.run(commands), &replies);
            }
            prop_assert_eq!(users_of(&shaken), users_of(&steady));
        }
        let (state, users) = (steady.dump(), users_of(&steady));
        let hashes = steady.replica.tree_hashes().unwrap();
        prop_assert_eq!(shaken.dump(), state.clone());
        prop_assert_eq!(shaken.replica.tree_hashes().unwrap(), hashes);
        if takes_over_at < entries.len() {
            prop_assert_eq!(late.dump(), state);
            prop_assert_eq!(users_of(&late), users.clone());
            prop_assert_eq!(late.replica.tree_hashes().unwrap(), hashes);
        }
        let again = Member::open(&steady.disk.after_power_loss(), 1);
        prop_assert_eq!(users_of(&again), users);
        prop_assert!(steady.replica.db().check().unwrap().is_clean());
    }
}
