//! A read finds users and data of one state, also while both change.

use std::cell::Cell;

use bowline_storage::SystemClock;

use super::users::{assert_done, by_process, enable, enabled, put_of};
use super::*;
use crate::users::tests::{grant, grant_role, keys, revoke_role};

/// New rights were shown when they were planned, and what was written before them later: who got the right to a key whose
/// value had been deleted could read the value.
#[test]
fn a_right_is_not_shown_before_what_it_is_granted_on() {
    let (mut member, _) = enabled();
    assert_done(&mut member, by_process(put_of("secret")));
    let db = member.replica.db().clone();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = seen.clone();
    member.replica.on_users_changed(move || {
        let is_there = db.get("secret").unwrap().is_some();
        told.lock().push(is_there);
    });
    let deletion = Op::DeleteRange(DeleteRangeOp {
        key: b"secret".to_vec(),
        ..DeleteRangeOp::default()
    });
    let granted = grant("r", keys(Grant::Read, "secret", ""));
    let replies = member.run(&[
        by_process(txn_of(vec![deletion])),
        by_process(Command::Users(granted)),
    ]);
    assert!(
        replies.iter().all(|reply| reply.result.is_ok()),
        "{replies:?}"
    );
    assert_eq!(
        *seen.lock(),
        [false],
        "the right is shown with the old data"
    );
}

/// The rights were checked first and the state was pinned then: what was written after a right had been taken away was read
/// with it.
#[test]
fn a_read_is_of_the_state_in_which_it_was_allowed() {
    let (member, since) = enabled();
    let ann = Caller::User(Arc::new(Session::without_token("ann", since)));
    let index = Cell::new(member.log.next_index());
    let apply = |commands: &[Command]| {
        let mut applier = member.replica.apply();
        let replies = applier.entry(index.get(), 1, commands, b"mark", Some(&[true; 2]));
        for reply in replies.unwrap() {
            assert!(reply.result.is_ok(), "{reply:?}");
        }
        applier.finish().unwrap();
        index.set(index.get() + 1);
    };
    let is_due = Cell::new(false);
    let check = || {
        let replica = &member.replica;
        let allowed = replica.check_rights(&ann, |each| each(Need::read(b"a", b"")));
        if is_due.take() {
            apply(&[
                by_process(Command::Users(revoke_role("ann", "r"))),
                by_process(put_of("a")),
            ]);
        }
        allowed?.map_err(|_| Error::Closed)
    };
    let range = |range_end: &str, revision| RangeOp {
        key: b"a".to_vec(),
        range_end: range_end.into(),
        revision,
        ..RangeOp::default()
    };
    let now = member.replica.db().revision();
    for op in [
        range("", Revision::ZERO),
        range("b", Revision::ZERO),
        range("b", now),
    ] {
        apply(&[by_process(Command::Users(grant_role("ann", "r")))]);
        let read = member.replica.range(&op, check);
        assert!(matches!(read, Ok(Some(_))), "{op:?}: {read:?}");
        is_due.set(true);
        let read = member.replica.range(&op, check);
        assert!(matches!(read, Err(Error::Closed)), "{op:?}: {read:?}");
    }
    apply(&[by_process(Command::Users(grant_role("ann", "r")))]);
    is_due.set(true);
    let txn = Txn::of(Op::Range(range("", Revision::ZERO)));
    let read = member.replica.read_txn(&txn, check);
    assert!(matches!(read, Err(Error::Closed)), "{read:?}");
}

/// A clock that has something done whenever it is asked.
struct HookedClock {
    system: SystemClock,
    hook: Mutex<Option<Box<dyn FnMut() + Send>>>,
}

impl std::fmt::Debug for HookedClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HookedClock").finish_non_exhaustive()
    }
}

impl Clock for HookedClock {
    fn monotonic(&self) -> Duration {
        let hook = self.hook.lock().take();
        if let Some(mut hook) = hook {
            hook();
            *self.hook.lock() = Some(hook);
        }
        self.system.monotonic()
    }

    fn wall_ms(&self) -> u64 {
        self.system.wall_ms()
    }
}

fn read_by_nobody(replica: &Replica) -> Result<Option<ReadAt<RangeReply>>> {
    let op = RangeOp {
        key: b"secret".to_vec(),
        ..RangeOp::default()
    };
    replica.range(&op, || {
        let allowed =
            replica.check_rights(&Caller::Nobody, |each| each(Need::read(b"secret", b"")));
        allowed?.map_err(|_| Error::Closed)
    })
}

/// While another member's state was installed, its tables were read by the users of before. The clock is asked before the
/// tables are replaced, when reads go on, and when the leases are loaded, between tables and users.
#[test]
fn nobody_reads_an_installed_state_with_the_rights_of_the_old_one() {
    let mut leader = Member::open(&SimDisk::new(), 1);
    enable(&mut leader);
    assert_done(&mut leader, by_process(put_of("secret")));
    leader.replica.db().flush().unwrap();
    let disk = SimDisk::new();
    let clock = Arc::new(HookedClock {
        system: SystemClock::new(),
        hook: Mutex::new(None),
    });
    // Its users are not enabled: everybody may read everything.
    let vfs = Arc::new(disk.clone());
    let late = Member::open_with(builder(vfs).clock(clock.clone()), &disk, 2);
    let frozen = bring(&leader, &late);
    let Member {
        replica, mut log, ..
    } = late;
    let replica = Arc::new(replica);
    assert!(read_by_nobody(&replica).unwrap().is_some());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (told, reader) = (seen.clone(), Arc::downgrade(&replica));
    let hook = move || {
        if let Some(replica) = reader.upgrade() {
            let read = read_by_nobody(&replica).unwrap();
            told.lock()
                .push(read.map(|(_, reply)| reply.unwrap().count));
        }
    };
    *clock.hook.lock() = Some(Box::new(hook));
    let directory = Path::new("db/incoming");
    let installed = replica.install(&frozen.state, directory, false).unwrap();
    *clock.hook.lock() = None;
    log.restart_at(installed.index + 1).unwrap();
    replica.log_restarted().unwrap();
    let seen = seen.lock();
    assert_eq!(seen.first(), Some(&Some(0)), "it goes on before: {seen:?}");
    assert_eq!(
        seen.last(),
        Some(&None),
        "it is refused meanwhile: {seen:?}"
    );
    let is_told = |count: &Option<u64>| count.is_some_and(|count| count > 0);
    assert!(!seen.iter().any(is_told), "{seen:?}");
    let read = read_by_nobody(&replica);
    assert!(matches!(read, Err(Error::Closed)), "{read:?}");
}
