//! Updates in commits: what they see, what they conflict with, and how much they may read and make.

use super::commits::{commit_of, key_put, member, one};
use super::*;

fn key_update(key: &str, update: Update) -> CommitWrite {
    CommitWrite::Update {
        key: key.into(),
        update,
    }
}

fn updated(is_changed: bool, value: Option<&str>) -> UpdatedKey {
    UpdatedKey {
        is_changed,
        value: value.map(Value::from),
    }
}

/// An update reads the newest value, whatever the revision of the commit's reads, and what the commit has written before it.
#[test]
fn an_update_sees_what_its_commit_has_written_and_conflicts_with_nobody() {
    let mut member = member();
    member.run(&[txn_of(vec![Op::Put(put("n", "40"))])]);
    let at = member.replica.db().revision();
    // Changed since, by a put and by an update, under either isolation.
    member.run(&[txn_of(vec![Op::Put(put("n", "41"))])]);
    for (isolation, number) in [(Isolation::Serializable, "42"), (Isolation::Snapshot, "43")] {
        let update = vec![key_update("n", Update::Add(1))];
        let done = one(&mut member, commit_of(at, isolation, update));
        let committed = Outcome::Committed {
            deleted: 0,
            is_changed: true,
            updated: vec![updated(true, Some(number))],
        };
        assert_eq!(done.result, Ok(committed));
    }
    let at = member.replica.db().revision();
    let swap = |expected: Option<&str>, new: Option<&str>| Update::Swap {
        expected: expected.map(Vec::from),
        new: new.map(Vec::from),
    };
    let done = one(
        &mut member,
        Command::Commit(Commit {
            writes: vec![
                key_put("a", "5"),
                key_update("a", Update::Add(2)),
                key_update("a", Update::Max(6)),
                key_update("a", swap(Some("7"), None)),
                key_update("a", Update::SetIfAbsent(b"x".to_vec())),
                key_update("a", Update::Append(b"y".to_vec())),
                key_update("n", swap(Some("43"), None)),
                key_update("nothing", swap(None, None)),
            ],
            ..Commit::default()
        }),
    );
    let committed = Outcome::Committed {
        deleted: 1,
        is_changed: true,
        updated: vec![
            updated(true, Some("7")),
            updated(false, Some("7")),
            updated(true, None),
            updated(true, Some("x")),
            updated(true, Some("xy")),
            updated(true, None),
            updated(false, None),
        ],
    };
    assert_eq!((done.revision, done.result), (at + 1, Ok(committed)));
    let entry = member.replica.db().entry("a").unwrap().unwrap();
    assert_eq!((&entry.value[..], entry.version), (&b"xy"[..], 2));
    // One update that does not suit refuses the commit, with what it has written before.
    let refused = one(
        &mut member,
        Command::Commit(Commit {
            writes: vec![key_put("b", "1"), key_update("a", Update::Add(1))],
            ..Commit::default()
        }),
    );
    assert!(
        matches!(refused.result, Err(Refusal::NotUpdatable { .. })),
        "{refused:?}"
    );
    assert_eq!(member.replica.db().get("b").unwrap(), None);
}

/// Updates of one commit that would read and make more than a command may write are refused, before they have.
#[test]
fn the_values_of_updates_are_bounded() {
    let mut member = member();
    member.replica.limit_writes(1 << 20);
    let long = "x".repeat(1 << 10);
    member.run(&[txn_of(vec![Op::Put(put("long", &long))])]);
    let append = || key_update("long", Update::Append(b"y".to_vec()));
    let refused = one(
        &mut member,
        Command::Commit(Commit {
            writes: (0..1_000).map(|_| append()).collect(),
            ..Commit::default()
        }),
    );
    assert!(
        matches!(refused.result, Err(Refusal::TooManyWrites { .. })),
        "{refused:?}"
    );
    let done = one(
        &mut member,
        Command::Commit(Commit {
            writes: vec![append()],
            ..Commit::default()
        }),
    );
    assert!(done.result.is_ok(), "{done:?}");
}
