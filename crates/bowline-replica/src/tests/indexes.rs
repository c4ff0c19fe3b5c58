//! Indexes of blocks: they are built in steps by all members alike, every command keeps them, and what they do not allow is
//! refused as a whole.

use super::*;

use bowline::Filter;

fn create(attribute: &str, is_unique: bool) -> Command {
    Command::Index(IndexChange::Create {
        kind: "person".to_owned(),
        attributes: vec![attribute.to_owned()],
        is_unique,
    })
}

fn drop_it(attribute: &str) -> Command {
    Command::Index(IndexChange::Drop {
        kind: "person".to_owned(),
        attributes: vec![attribute.to_owned()],
    })
}

fn person(id: u128, name: impl Into<bowline::AttributeValue>) -> GraphWrite {
    GraphWrite::PutBlock(Block::new(BlockId(id), "person").attribute("name", name))
}

/// The result of one command.
fn result_of(member: &mut Member, command: Command) -> Result<Outcome, Refusal> {
    member.run(&[command])[0].result.clone()
}

fn progress_of(member: &mut Member, command: Command) -> IndexProgress {
    match result_of(member, command).unwrap() {
        Outcome::Index(progress) => progress,
        other => panic!("{other:?}"),
    }
}

/// Takes steps until none is left; how many there were.
fn finish(member: &mut Member) -> usize {
    let mut steps = 0;
    while let Some(step) = member.replica.index_step() {
        member.run(&[Command::Index(step)]);
        steps += 1;
    }
    steps
}

/// The people with a name, by the index if `by_index`.
fn named(member: &Member, name: &str, by_index: bool) -> Vec<u128> {
    let graph = member.replica.db().snapshot().graph();
    let found = graph.blocks("person").filter("name", Filter::equals(name));
    assert_eq!(found.index().is_some(), by_index);
    found.ids().unwrap().into_iter().map(|id| id.0).collect()
}

fn is_clean(member: &Member) {
    let report = member.replica.db().check().unwrap();
    assert!(report.is_clean(), "{report:?}");
}

/// While an index is built, blocks before and behind the builder's place are put, changed and deleted, the member loses
/// power, and steps come twice and from places of before.
#[test]
fn an_index_is_built_while_others_write_and_members_fall() {
    let mut member = Member::open(&SimDisk::new(), 1);
    for first in (0..1_200).step_by(100) {
        let some = (first..first + 100).map(|id| person(id, ["Ada", "Bob"][id as usize % 2]));
        member.run(&[Command::Graph(some.collect())]);
    }
    let mut progress = progress_of(&mut member, create("name", false));
    let mut steps = 0;
    while let IndexProgress::Unfinished { id, done } = progress {
        let step = Command::Index(IndexChange::Step { id, done });
        member.run(&[Command::Graph(vec![
            person(steps, "Cyd"),
            person(1_100 - steps, "Cyd"),
            GraphWrite::DeleteBlock(BlockId(500 + steps)),
        ])]);
        progress = progress_of(&mut member, step.clone());
        // The second one does nothing.
        let before = member.replica.db().revision();
        assert_eq!(progress_of(&mut member, step), progress);
        assert_eq!(member.replica.db().revision(), before);
        if steps == 2 {
            let disk = member.disk.after_power_loss();
            member = Member::open(&disk, 1);
        }
        steps += 1;
    }
    assert_eq!(steps, 6, "256 blocks in each, and the last one finds none");
    let since = member.replica.db().revision();
    assert_eq!(progress, IndexProgress::Ready { since });
    assert_eq!(named(&member, "Cyd", true).len(), 12);
    is_clean(&member);
    // It exists.
    let again = progress_of(&mut member, create("name", false));
    assert_eq!((again, member.replica.db().revision()), (progress, since));
    assert_eq!(member.replica.index_step(), None);
}

/// A step looks at a bounded number of blocks, of whatever kind.
#[test]
fn a_step_is_bounded_by_the_blocks_that_it_looks_at() {
    let mut member = Member::open(&SimDisk::new(), 1);
    for first in (0..9_000).step_by(1_000) {
        let some =
            (first..first + 1_000).map(|id| GraphWrite::PutBlock(Block::new(BlockId(id), "x")));
        member.run(&[Command::Graph(some.collect())]);
    }
    progress_of(&mut member, create("name", false));
    // 8192 of 9000, the rest, and the end.
    assert_eq!(finish(&mut member), 3);
}

#[test]
fn an_index_that_is_dropped_is_cleared_and_its_number_is_not_used_again() {
    let mut member = Member::open(&SimDisk::new(), 1);
    for first in (0..1_500).step_by(500) {
        let some = (first..first + 500).map(|id| person(id, "Ada"));
        member.run(&[Command::Graph(some.collect())]);
    }
    member.run(&[create("name", false)]);
    finish(&mut member);
    let before = member.replica.db().snapshot();
    assert!(matches!(
        progress_of(&mut member, drop_it("name")),
        IndexProgress::Unfinished { id: 1, .. }
    ));
    // Who has read by it reads on by it.
    let old = before.graph();
    let filter = || Filter::equals("Ada");
    assert_eq!(named(&member, "Ada", false).len(), 1_500);
    assert_eq!(
        finish(&mut member),
        3,
        "1024 entries, the rest, and the end"
    );
    assert_eq!(
        old.blocks("person")
            .filter("name", filter())
            .ids()
            .unwrap()
            .len(),
        1_500
    );
    assert!(!member.replica.has_indexes());
    is_clean(&member);
    let refused = result_of(&mut member, drop_it("name")).unwrap_err();
    assert!(matches!(
        refused,
        Refusal::Index(IndexRefusal::NotFound { .. })
    ));
    let step = |id| Command::Index(IndexChange::Step { id, done: None });
    assert_eq!(progress_of(&mut member, step(1)), IndexProgress::Gone);
    assert!(matches!(
        progress_of(&mut member, create("name", true)),
        IndexProgress::Unfinished { id: 2, .. }
    ));
}

/// Two blocks may exchange their values, and a block may take the value that another one gives up in the same command.
#[test]
fn a_unique_index_refuses_a_command_as_a_whole() {
    let mut member = Member::open(&SimDisk::new(), 1);
    member.run(&[create("name", true)]);
    finish(&mut member);
    member.run(&[Command::Graph(vec![person(1, "Ada"), person(2, "Bob")])]);
    let before = member.replica.db().revision();
    for writes in [
        vec![person(3, "Cyd"), person(4, "Bob")],
        vec![person(3, "Cyd"), person(4, "Cyd")],
        vec![person(2, "Ada")],
    ] {
        let commit = Commit {
            writes: writes.iter().cloned().map(CommitWrite::Graph).collect(),
            ..Commit::default()
        };
        for command in [Command::Graph(writes), Command::Commit(commit)] {
            let refused = result_of(&mut member, command).unwrap_err();
            let Refusal::Index(IndexRefusal::NotUnique(clash)) = &refused else {
                panic!("{refused:?}");
            };
            assert_eq!((&*clash.kind, &*clash.attributes), ("person", "name"));
            assert!(
                refused
                    .to_string()
                    .contains("would have the same name as block")
            );
        }
    }
    assert_eq!(member.replica.db().revision(), before);
    let exchange = vec![person(1, "Bob"), person(2, "Ada")];
    result_of(&mut member, Command::Graph(exchange)).unwrap();
    let give_up = vec![GraphWrite::DeleteBlock(BlockId(1)), person(5, "Bob")];
    result_of(&mut member, Command::Graph(give_up)).unwrap();
    // Written twice in one command, only the last record counts.
    let twice = vec![person(6, "Ada"), person(6, "Eve")];
    result_of(&mut member, Command::Graph(twice)).unwrap();
    assert_eq!(named(&member, "Bob", true), [5]);
    is_clean(&member);
}

#[test]
fn a_unique_index_over_equal_values_is_dropped_and_names_them() {
    let mut member = Member::open(&SimDisk::new(), 1);
    let names = ["Ada", "Bob", "Ada", "Cyd", "Bob", "Ada"];
    let people = names
        .iter()
        .enumerate()
        .map(|(id, name)| person(id as u128, *name));
    member.run(&[Command::Graph(people.collect())]);
    let IndexProgress::Unfinished { id, done } = progress_of(&mut member, create("name", true))
    else {
        panic!("it is to be built");
    };
    let step = Command::Index(IndexChange::Step { id, done });
    let IndexProgress::NotUnique { mut pairs } = progress_of(&mut member, step) else {
        panic!("it is not unique");
    };
    pairs.sort_unstable();
    assert_eq!(
        pairs,
        [(0, 2), (1, 4), (2, 5)].map(|(a, b)| (BlockId(a), BlockId(b)))
    );
    finish(&mut member);
    assert!(!member.replica.has_indexes());
    is_clean(&member);
}

#[test]
fn what_no_index_can_be_is_refused() {
    let mut member = Member::open(&SimDisk::new(), 1);
    let refused = |member: &mut Member, command| match result_of(member, command) {
        Err(Refusal::Index(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    let is_invalid = |refusal| matches!(refusal, IndexRefusal::Invalid { .. });
    assert!(is_invalid(refused(&mut member, create("", false))));
    let twice = Command::Index(IndexChange::Create {
        kind: "person".to_owned(),
        attributes: vec!["a".to_owned(), "a".to_owned()],
        is_unique: false,
    });
    assert!(is_invalid(refused(&mut member, twice)));
    let of_no_kind = Command::Index(IndexChange::Create {
        kind: String::new(),
        attributes: vec!["a".to_owned()],
        is_unique: false,
    });
    let result = result_of(&mut member, of_no_kind);
    assert!(
        matches!(result, Err(Refusal::InvalidKind { .. })),
        "{result:?}"
    );
    member.run(&[create("name", false)]);
    assert!(matches!(
        refused(&mut member, create("name", true)),
        IndexRefusal::Exists {
            is_unique: false,
            ..
        }
    ));
    for number in 1..100 {
        result_of(&mut member, create(&number.to_string(), false)).unwrap();
    }
    assert_eq!(
        refused(&mut member, create("one more", false)),
        IndexRefusal::TooMany
    );
}

/// A transaction that has read a range of entries conflicts with who puts one there or takes one away, and with the end of
/// the index, but not with others.
#[test]
fn a_range_of_entries_that_was_read_must_be_unchanged() {
    let mut member = Member::open(&SimDisk::new(), 1);
    member.run(&[create("name", false)]);
    finish(&mut member);
    member.run(&[Command::Graph(vec![person(1, "Ada"), person(2, "Zoe")])]);
    let set = member.replica.core().indexes.now();
    let index = set.kept[0].clone();
    let asked = bowline_core::index::Asked {
        equal: Vec::new(),
        last: bowline_core::index::Last::OneOf(vec!["Ada".into()]),
    };
    let ranges = asked.ranges(&index).unwrap();
    let (first, end) = ranges[0].clone();
    let reads = vec![CommitRead::Entries {
        index: index.id,
        first,
        end,
    }];
    let commit = |at| {
        Command::Commit(Commit {
            read_revision: at,
            reads: reads.clone(),
            writes: vec![CommitWrite::Graph(person(9, "Joe"))],
            ..Commit::default()
        })
    };
    let conflicts = |result: &Result<Outcome, Refusal>| match result {
        Ok(_) => false,
        Err(Refusal::Conflict {
            what: Touched::Block(_),
            ..
        }) => true,
        other => panic!("{other:?}"),
    };
    for (writes, is_conflict) in [
        (vec![person(3, "Bob")], false),
        // It has the value already.
        (vec![person(1, "Ada")], false),
        (vec![person(4, "Ada")], true),
        (vec![person(1, "Bob")], true),
        (vec![GraphWrite::DeleteBlock(BlockId(4))], true),
    ] {
        let at = member.replica.db().revision();
        result_of(&mut member, Command::Graph(writes.clone())).unwrap();
        let result = result_of(&mut member, commit(at));
        assert_eq!(conflicts(&result), is_conflict, "{writes:?}");
    }
    let at = member.replica.db().revision();
    member.run(&[drop_it("name")]);
    let result = result_of(&mut member, commit(at));
    assert_eq!(result, Err(Refusal::Index(IndexRefusal::Dropped)));
}

/// Nothing is built while the space is used up, and dropping goes on.
#[test]
fn without_space_an_index_is_not_built_and_may_be_dropped() {
    let mut member = Member::open(&SimDisk::new(), 1);
    member.run(&[Command::Graph(vec![person(1, "Ada")])]);
    progress_of(&mut member, create("name", false));
    member.run(&[Command::Alarm {
        member: 1,
        kind: AlarmKind::NoSpace,
        is_raised: true,
    }]);
    let step = member.replica.index_step().unwrap();
    assert_eq!(
        result_of(&mut member, Command::Index(step)),
        Err(Refusal::NoSpace)
    );
    assert_eq!(
        result_of(&mut member, create("age", false)),
        Err(Refusal::NoSpace)
    );
    result_of(&mut member, drop_it("name")).unwrap();
    finish(&mut member);
    assert!(!member.replica.has_indexes());
}

/// A member that installs another one's tables keeps its indexes.
#[test]
fn an_installed_state_brings_its_indexes() {
    let mut from = Member::open(&SimDisk::new(), 1);
    from.run(&[create("name", false)]);
    finish(&mut from);
    from.run(&[Command::Graph(vec![person(1, "Ada")])]);
    let mut to = Member::open(&SimDisk::new(), 3);
    to.run(&[create("age", false)]);
    let frozen = bring(&from, &to);
    let installed = to.install(&frozen).unwrap();
    to.restart_log(installed);
    let more = Command::Graph(vec![person(2, "Ada")]);
    to.run(&[more]);
    assert_eq!(named(&to, "Ada", true), [1, 2]);
    assert_eq!(to.replica.db().indexes().len(), 1);
    is_clean(&to);
}
