//! The installation of another member's tables: the state, the watchers and the graph view afterwards, and the
//! state after an installation that fails.

use bowline_testing::fault::{Call, Failure, FaultVfs, Rule};

use super::*;

/// A leader with several runs and a history floor above the state of `late`, and `late`.
fn leader_and_late(late: Member) -> (Member, Member) {
    let mut late = late;
    let mut leader = Member::open(&SimDisk::new(), 1);
    let first = [txn_of(vec![Op::Put(put("k", "first"))])];
    leader.run(&first);
    late.run(&first);
    for number in 0..10 {
        let name = format!("k{number}");
        leader.run(&[txn_of(vec![
            Op::Put(put(&name, "v")),
            Op::Put(put("k", &name)),
        ])]);
        leader.replica.db().flush().unwrap();
    }
    leader.run(&[Command::Compact {
        revision: Revision::new(8),
    }]);
    (leader, late)
}

/// The member continued its own numbers of runs, below those of the installed ones: what it flushed lay under
/// the older tables, and was not read any more, not even the mark of the last applied entry. Found by crash
/// images of a member.
#[test]
fn what_is_flushed_after_a_take_over_is_newer_than_what_came() {
    let (mut leader, mut late) = leader_and_late(Member::open(&SimDisk::new(), 2));
    let frozen = bring(&leader, &late);
    let installed = late.install(&frozen).unwrap();
    late.restart_log(installed);
    let newer = [txn_of(vec![Op::Put(put("k", "newer"))])];
    leader.run(&newer);
    late.run(&newer);
    let mark = late.replica.applied();
    late.replica.db().flush().unwrap();
    assert_eq!(value(&late, "k"), Some(b"newer".to_vec()));
    assert_eq!(late.dump(), leader.dump());
    let again = Member::open(&late.disk.after_power_loss(), 2);
    assert_eq!(again.replica.applied(), mark);
    assert_eq!(again.dump(), leader.dump());
}

/// The graph view is of the state that an installation replaces: it ends with it, and may be built anew.
#[test]
fn an_installed_state_ends_the_graph_view() {
    let graph = |number| {
        let [one, two] = [number, number + 1].map(BlockId);
        let blocks = [one, two].map(|id| GraphWrite::PutBlock(Block::new(id, "node")));
        let edge = GraphWrite::PutEdge(Edge::new(one, "tie", two));
        Command::Graph([blocks.to_vec(), vec![edge]].concat())
    };
    let (mut leader, mut late) = leader_and_late(Member::open(&SimDisk::new(), 2));
    leader.run(&[graph(1)]);
    late.run(&[graph(3)]);
    let view = |member: &Member| member.replica.db().stats().graph_view;
    assert!(late.replica.db().build_graph_view().unwrap());
    assert_eq!((view(&late).is_ready, view(&late).edges), (true, 1));
    let frozen = bring(&leader, &late);
    let installed = late.install(&frozen).unwrap();
    late.restart_log(installed);
    assert!(!view(&late).is_ready);
    assert_eq!(late.dump(), leader.dump());
    assert!(late.replica.db().build_graph_view().unwrap());
    for member in [&mut leader, &mut late] {
        member.run(&[graph(2)]);
    }
    assert_eq!(late.dump(), leader.dump());
    assert_eq!((view(&late).is_ready, view(&late).changes), (true, 1));
}

/// A watcher that had read its changes when another member's tables were installed got a storage error for
/// the previous entries, instead of the error that says from which revision it can continue.
#[test]
fn a_watcher_whose_past_is_replaced_is_told_where_history_begins() {
    let (leader, mut late) = leader_and_late(Member::open(&SimDisk::new(), 2));
    late.run(&[txn_of(vec![Op::Put(put("k", "k0"))])]);
    let db = late.replica.db().clone();
    let watch = db
        .watch(Range::key("k"))
        .from(Revision::new(2))
        .with_previous();
    let mut watch = watch.start().unwrap();
    assert_eq!(
        watch.try_recv().unwrap().map(|changes| changes.revision),
        Some(Revision::new(2))
    );
    let frozen = bring(&leader, &late);
    let installed = late.install(&frozen).unwrap();
    late.restart_log(installed);
    let expected = Error::Compacted {
        requested: Revision::new(3),
        oldest: late.replica.compacted_revision(),
        current: leader.replica.db().revision(),
    };
    for _ in 0..2 {
        let error = watch.try_recv().unwrap_err();
        assert_eq!(format!("{error:?}"), format!("{expected:?}"));
    }
}

/// Backward a range forgot that it was refused, and read the new tables at the old revision.
#[test]
fn a_snapshot_that_was_replaced_is_refused_in_both_directions() {
    let (leader, mut late) = leader_and_late(Member::open(&SimDisk::new(), 2));
    let snapshot = late.replica.db().snapshot();
    let frozen = bring(&leader, &late);
    let installed = late.install(&frozen).unwrap();
    late.restart_log(installed);
    let entries = || snapshot.range(..).unwrap();
    let reads = [
        snapshot.get("k").map(drop),
        entries().next().expect("a refusal").map(drop),
        entries().next_back().expect("a refusal").map(drop),
        snapshot.graph().block(BlockId(1)).map(drop),
    ];
    for read in reads {
        assert!(
            matches!(
                read,
                Err(Error::Storage(bowline_storage::Error::Replaced { .. }))
            ),
            "{read:?}"
        );
    }
}

/// The floor was raised for a state about to be installed, and stayed when the installation failed: readers
/// waited for ever for a revision that reaches it.
#[test]
fn a_take_over_that_fails_leaves_the_readers_what_they_had() {
    let (leader, late) = leader_and_late(Member::open(&SimDisk::new(), 2));
    let before = late.dump();
    let frozen = bring(&leader, &late);
    late.disk.fail_syncs(1);
    late.install(&frozen).unwrap_err();
    let (done, is_done) = std::sync::mpsc::channel();
    // A blocked reader is left behind: the test must end.
    std::thread::spawn(move || done.send((value(&late, "k"), late.dump())));
    let read = is_done.recv_timeout(Duration::from_secs(20));
    let (value, dump) = read.expect("readers wait for ever");
    assert_eq!(value, Some(b"first".to_vec()));
    assert_eq!(dump, before);
}

#[test]
fn a_take_over_that_finds_no_room_can_be_tried_again() {
    let disk = SimDisk::new();
    let vfs = FaultVfs::new(disk.clone());
    let late = Member::open_through(Arc::new(vfs.clone()), &disk, 2);
    let (leader, mut late) = leader_and_late(late);
    let frozen = bring(&leader, &late);
    let before = late.dump();
    vfs.limit_space(0);
    for _ in 0..2 {
        let full = late.install(&frozen).unwrap_err();
        let no_space = bowline_storage::Error::NoSpace {
            path: PathBuf::new(),
        };
        assert_eq!(
            std::mem::discriminant(&full),
            std::mem::discriminant(&Error::Storage(no_space)),
            "{full}"
        );
        assert!(full.is_retryable(), "{full}");
        assert_eq!(late.dump(), before);
    }
    vfs.lift_space_limit();
    let installed = late.install(&frozen).unwrap();
    late.restart_log(installed);
    assert_eq!(late.dump(), leader.dump());
    let again = Member::open(&disk.after_power_loss(), 2);
    assert_eq!(again.dump(), leader.dump());
    assert!(again.replica.db().check().unwrap().is_clean());
}

/// The tables that came had ids which this member had given before its directory was replaced by an older one. It gave them
/// again: its flush failed at a file that was there, and what it had flushed before it noticed was in the way of the tables
/// that came, so that it stopped. Found by review, and by the simulation.
#[test]
fn a_member_with_an_older_directory_gives_no_number_twice() {
    // The others have what it made: here they are one of the same number.
    let mut leader = Member::open(&SimDisk::new(), 1);
    let mut late = Member::open(&SimDisk::new(), 1);
    let names = |member: &Member| member.disk.read_dir(Path::new("db/tables")).unwrap();
    for member in [&mut leader, &mut late] {
        member.run(&[txn_of(vec![Op::Put(put("k", "before it noticed"))])]);
        member.replica.db().flush().unwrap();
    }
    let (own, others) = (names(&late), names(&leader));
    assert!(
        own.iter().all(|name| !others.contains(name)),
        "{own:?}, {others:?}"
    );
    leader.run(&[txn_of(vec![Op::Put(put("k", "what it lacks"))])]);
    let frozen = bring(&leader, &late);
    let installed = late.install(&frozen).unwrap();
    late.restart_log(installed);
    for text in ["after it", "after a start"] {
        let before = names(&late);
        late.run(&[txn_of(vec![Op::Put(put("k", text))])]);
        late.replica.db().flush().unwrap();
        let mut added = names(&late);
        added.retain(|name| !before.contains(name));
        assert!(!added.is_empty());
        let are_own = added.iter().all(|name| name.starts_with("00000001"));
        assert!(are_own, "{added:?}");
        late = Member::open(&late.disk.after_power_loss(), 1);
    }
    assert!(late.replica.db().check().unwrap().is_clean());
}

/// [`bring`] after an attempt that failed: a receiver begins with an empty directory.
fn bring_anew(from: &Member, to: &Member) -> FrozenTables {
    let aside = format!("db/incoming before {}", to.disk.point());
    let directory = Path::new("db/incoming");
    to.disk.rename(directory, Path::new(&aside)).unwrap();
    bring(from, to)
}

fn install_anew(leader: &Member, late: &mut Member) {
    let frozen = bring_anew(leader, late);
    let installed = late.install(&frozen).unwrap();
    late.restart_log(installed);
    assert_eq!(late.dump(), leader.dump());
    let again = Member::open(&late.disk.after_power_loss(), 2);
    assert_eq!(again.dump(), leader.dump());
    assert!(again.replica.db().check().unwrap().is_clean());
}

/// An installation that failed after it had renamed files left them under their final names, where they were in
/// the way of every later one until the process was started again.
#[test]
fn a_take_over_that_fails_half_way_is_in_nobodys_way() {
    let rules = [
        // Done, but not said so.
        Rule::on(Call::Rename)
            .nth(2)
            .path("db/tables")
            .fail_after(Failure::Io),
        Rule::on(Call::SyncDir).path("db/tables"),
        Rule::on(Call::SyncDir).path("db/incoming"),
        Rule::on(Call::Open).nth(2).path("db/tables"),
        Rule::on(Call::Write).path("db/manifest"),
        // The edit is on the disk, all of it.
        Rule::on(Call::Write)
            .path("db/manifest")
            .fail_after(Failure::Io),
    ];
    for rule in rules {
        let disk = SimDisk::new();
        let vfs = FaultVfs::new(disk.clone());
        let late = Member::open_through(Arc::new(vfs.clone()), &disk, 2);
        let (leader, mut late) = leader_and_late(late);
        let before = late.dump();
        let frozen = bring(&leader, &late);
        vfs.add(rule.clone());
        late.install(&frozen).unwrap_err();
        assert_eq!(vfs.injected().len(), 1, "{rule:?}");
        assert_eq!(late.dump(), before);
        let again = Member::open(&disk.after_power_loss(), 2);
        assert_eq!(again.dump(), before, "{rule:?}");
        install_anew(&leader, &mut late);
    }
}

/// When the edit may be on the disk, its files stay: to give them back would take from a manifest what it names.
#[test]
fn a_take_over_that_may_be_on_the_disk_keeps_its_files() {
    let disk = SimDisk::new();
    let vfs = FaultVfs::new(disk.clone());
    let late = Member::open_through(Arc::new(vfs.clone()), &disk, 2);
    let (leader, late) = leader_and_late(late);
    let frozen = bring(&leader, &late);
    vfs.add(
        Rule::on(Call::Sync)
            .path("db/manifest")
            .fail_after(Failure::Io),
    );
    let error = late.install(&frozen).unwrap_err();
    let poisoned = matches!(
        error,
        Error::Storage(bowline_storage::Error::Poisoned { .. })
    );
    assert!(poisoned, "{error}");
    for disk in [disk.after_power_loss(), disk] {
        // Of a killed process, the second: it has all that was written.
        disk.kill();
        let again = Member::open(&disk, 2);
        assert_eq!(again.dump(), leader.dump());
    }
    std::mem::forget(late);
}

/// A state that came with a table which was merged away here, while a reader held it, stopped the member instead of
/// waiting for the reader, and left the tables that it had renamed before in the way.
#[test]
fn a_take_over_waits_for_who_reads_a_table_of_before() {
    let (leader, mut late) = leader_and_late(Member::open(&SimDisk::new(), 2));
    take_over(&leader, &mut late);
    let (frozen, _) = late.replica.freeze().unwrap();
    let read = frozen.tables.last().unwrap().clone();
    drop(frozen);
    late.replica.db().compact().unwrap();
    let before = late.dump();
    let frozen = bring_anew(&leader, &late);
    assert!(
        frozen
            .tables
            .iter()
            .any(|table| table.name() == read.name())
    );
    let error = late.install(&frozen).unwrap_err();
    let is_read = matches!(
        error,
        Error::Storage(bowline_storage::Error::StillRead { .. })
    );
    assert!(is_read && error.is_retryable(), "{error:?}");
    assert_eq!(late.dump(), before);
    drop(read);
    install_anew(&leader, &mut late);
}
