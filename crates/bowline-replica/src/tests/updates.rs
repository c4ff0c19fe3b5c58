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

fn commit_updates(member: &mut Member, updates: Vec<CommitWrite>) -> Result<Outcome, Refusal> {
    let commit = Commit {
        writes: updates,
        ..Commit::default()
    };
    one(member, Command::Commit(commit)).result
}

/// Updates of one commit that would read and make more than a transaction may read are refused, before they have. They
/// were bounded by what a command may write, a gigabyte: that much was copied by every member, and told in one reply.
/// Found in review.
#[test]
fn the_values_of_updates_are_bounded() {
    let mut member = member();
    let long = "x".repeat(1 << 19);
    member.run(&[txn_of(vec![Op::Put(put("long", &long))])]);
    let append = || key_update("long", Update::Append(b"y".to_vec()));
    let known = || key_update("long", Update::SetIfAbsent(b"y".to_vec()));
    for update in [append(), known()] {
        let updates = vec![update; 200];
        let commit = Commit {
            writes: updates.clone(),
            ..Commit::default()
        };
        let weighed = member.replica.weigh_updates(&commit).unwrap();
        assert!(
            matches!(weighed, Err(Refusal::TooMuchWork { .. })),
            "{weighed:?}"
        );
        let refused = commit_updates(&mut member, updates);
        assert!(
            matches!(refused, Err(Refusal::TooMuchWork { .. })),
            "{refused:?}"
        );
    }
    // More than is proposed, and less than is refused where it is applied.
    let updates = vec![known(); 20];
    let commit = Commit {
        writes: updates.clone(),
        ..Commit::default()
    };
    assert!(member.replica.weigh_updates(&commit).unwrap().is_err());
    let done = commit_updates(&mut member, updates);
    assert!(done.is_ok(), "{done:?}");
    let few = Commit {
        writes: vec![append()],
        ..Commit::default()
    };
    let weight = member.replica.weigh_updates(&few).unwrap().unwrap();
    assert!(!weight.is_light() && weight.bytes > 2 * long.len() as u64);
    let short = Commit {
        writes: vec![key_update("n", Update::Add(1)); 100],
        ..Commit::default()
    };
    let weight = member.replica.weigh_updates(&short).unwrap().unwrap();
    assert!(weight.is_light(), "{weight:?}");
}

/// Appends make no value that no request could carry. Found in review.
#[test]
fn an_append_ends_at_a_bound() {
    let mut member = member();
    let long = "x".repeat((1 << 20) - 1);
    member.run(&[txn_of(vec![Op::Put(put("long", &long))])]);
    let append = || vec![key_update("long", Update::Append(b"y".to_vec()))];
    let done = commit_updates(&mut member, append());
    assert!(done.is_ok(), "{done:?}");
    let refused = commit_updates(&mut member, append());
    assert!(
        matches!(refused, Err(Refusal::TooLarge { .. })),
        "{refused:?}"
    );
    let entry = member.replica.db().entry("long").unwrap().unwrap();
    assert_eq!(entry.value.len(), 1 << 20);
}
