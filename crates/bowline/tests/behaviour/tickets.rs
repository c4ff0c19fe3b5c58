//! Commits that are not waited for: their order, when they are seen, who makes them durable, and what a failed flush does.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use bowline::{Block, BlockId, Db, Edge, Error, Expected, Isolation, Result, Ticket};
use bowline_testing::fault::{Call, Failure, Rule};
use bowline_testing::{FaultVfs, SimDisk};

use crate::gated::Gated;
use crate::support::{Disk, TIMEOUT, manual};

fn value(db: &Db, key: &str) -> Option<String> {
    let value = db.get(key).expect("a read");
    value.map(|value| String::from_utf8(value.to_vec()).expect("a text"))
}

#[test]
fn a_ticket_has_its_place_at_once_and_is_seen_when_it_is_durable() -> Result<()> {
    let disk = Disk::new();
    let db = disk.open(manual());
    let before = db.revision();
    let first = db.put_later("k", "1")?;
    let second = db.put_later("k", "2")?;
    assert!(!first.is_done() && !second.is_done());
    assert_eq!((value(&db, "k"), db.revision()), (None, before));
    // Whoever waits takes along what stands before, and what stands behind.
    let third = db.put_later("k", "3")?;
    let committed = second.wait()?;
    assert!(first.is_done() && third.is_done());
    assert_eq!(value(&db, "k").as_deref(), Some("3"));
    assert_eq!(first.wait()?.revision, before + 1);
    assert_eq!(committed.revision, before + 2);
    assert_eq!(third.wait()?.revision, before + 3);
    Ok(())
}

#[test]
fn tickets_are_decided_in_the_order_of_their_calls() -> Result<()> {
    let db = Db::in_memory()?;
    let start = db.put("k", "0")?;
    let reads_and_writes = || {
        let mut tx = db.begin();
        tx.get("k")?;
        tx.put("k", "of a transaction")?;
        db.commit_later(tx)
    };
    let winner = reads_and_writes()?;
    let loser = reads_and_writes()?;
    let blind = db.put_later("k", "blind")?;
    let mut swap = db.begin_with(Isolation::Snapshot);
    swap.compare_and_swap("other", Expected::Revision(start), "v")?;
    let swap = db.commit_later(swap)?;
    let mut only_reads = db.begin();
    only_reads.get("k")?;
    let only_reads = db.commit_later(only_reads)?;
    assert!(only_reads.is_done(), "there is nothing to commit");
    assert_eq!(only_reads.wait()?.revision, start);
    // Waited for from behind: the order is that of the calls all the same.
    assert!(matches!(swap.wait(), Err(Error::CompareFailed { .. })));
    assert_eq!(blind.wait()?.revision, start + 2);
    assert!(matches!(loser.wait(), Err(Error::Conflict { .. })));
    assert_eq!(winner.wait()?.revision, start + 1);
    assert_eq!(value(&db, "k").as_deref(), Some("blind"));
    assert!(matches!(db.put_later("", "v"), Err(Error::EmptyKey)));
    Ok(())
}

#[test]
fn a_commit_takes_along_the_tickets_before_it() -> Result<()> {
    let db = Db::in_memory()?;
    let ticket = db.put_later("k", "1")?;
    let revision = db.put("k", "2")?;
    assert!(ticket.is_done());
    assert_eq!(ticket.wait()?.revision + 1, revision);
    // So does what is not a commit and has its place in the order.
    let (a, b) = (BlockId::from_name("a"), BlockId::from_name("b"));
    let mut tx = db.begin();
    tx.put_block(&Block::new(a, "host"))?;
    tx.put_block(&Block::new(b, "host"))?;
    tx.put_edge(&Edge::new(a, "link", b))?;
    let ticket = db.commit_later(tx)?;
    assert!(db.build_graph_view()?);
    assert!(ticket.is_done());
    assert_eq!(db.stats().graph_view.edges, 1);
    ticket.wait()?;
    Ok(())
}

/// The transaction of a ticket gave its snapshot up before it was decided: a flush dropped the deletion that it conflicts with,
/// and it was committed.
#[test]
fn a_ticket_conflicts_with_a_deletion_that_was_merged_away() -> Result<()> {
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        for merges in [false, true] {
            let db = Disk::new().open(manual());
            db.put("k", "1")?;
            let mut tx = db.begin_with(isolation);
            match isolation {
                Isolation::Snapshot => tx.put("k", "2")?,
                _ => assert_eq!(tx.range("k".."l")?.count(), 1),
            }
            tx.put("x", "from k")?;
            db.delete("k")?;
            db.put("y", "")?;
            let ticket = db.commit_later(tx)?;
            match merges {
                true => db.compact()?,
                false => db.flush()?,
            }
            let outcome = ticket.wait();
            assert!(
                matches!(outcome, Err(Error::Conflict { .. })),
                "{isolation:?}: {outcome:?}"
            );
            assert_eq!(value(&db, "x"), None);
        }
    }
    Ok(())
}

#[test]
fn a_failed_flush_fails_every_ticket_behind_it() -> Result<()> {
    for call in [Call::Write, Call::Sync] {
        let disk = SimDisk::new();
        let vfs = FaultVfs::new(disk.clone());
        let open = |vfs: FaultVfs| manual().vfs(Arc::new(vfs)).open("db");
        let db = open(vfs.clone())?;
        db.put("k", "durable")?;
        vfs.add(Rule::on(call).path(".log").fail(Failure::Io));
        let tickets: Vec<_> = (0..3).map(|_| db.put_later("k", "lost")).collect();
        // One that changes nothing, and one that would be refused: they were decided against what is lost.
        let mut nothing = db.begin();
        nothing.delete("absent")?;
        let mut refused = db.begin();
        refused.compare_and_swap("k", Expected::Absent, "v")?;
        let others = [db.commit_later(nothing), db.commit_later(refused)];
        let mut watch = db.watch(..).start()?;
        for ticket in tickets.into_iter().chain(others) {
            let outcome = ticket?.wait();
            assert!(matches!(outcome, Err(Error::Storage(_))), "{outcome:?}");
        }
        assert!(!vfs.injected().is_empty());
        let behind = db.put_later("k", "behind").and_then(Ticket::wait);
        assert!(matches!(behind, Err(Error::Storage(_))), "{behind:?}");
        assert!(watch.try_recv()?.is_none(), "nobody is told");
        assert_eq!(value(&db, "k").as_deref(), Some("durable"));
        drop((watch, db));
        let db = open(FaultVfs::new(disk.after_power_loss()))?;
        assert_eq!(value(&db, "k").as_deref(), Some("durable"));
    }
    Ok(())
}

#[test]
fn a_ticket_that_is_dropped_is_committed() -> Result<()> {
    for builder in [manual(), Db::builder()] {
        let disk = Disk::new();
        let db = disk.open(builder);
        let revision = db.revision();
        drop(db.put_later("k", "v")?);
        assert!(db.wait_for_revision(revision + 1, TIMEOUT)?);
        assert_eq!(value(&db, "k").as_deref(), Some("v"));
    }
    Ok(())
}

#[test]
fn closing_commits_what_was_ordered() -> Result<()> {
    for builder in [manual(), Db::builder()] {
        let disk = Disk::new();
        let db = disk.open(builder);
        let ticket = db.put_later("k", "v")?;
        db.close()?;
        assert!(ticket.wait()?.changed);
        assert!(matches!(db.put_later("k", "w"), Err(Error::Closed)));
        drop(db);
        assert_eq!(value(&disk.open(manual()), "k").as_deref(), Some("v"));
    }
    Ok(())
}

/// A waker that notes that it was called.
#[derive(Default)]
struct Noted(AtomicBool);

impl Wake for Noted {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// Beside a leader in its flush nobody led what stood behind it when the database was closed: the commit thread had ended,
/// and closing looked only whether somebody led. A future was never woken, and a ticket that was dropped was lost. Found in
/// review.
#[test]
fn closing_beside_a_flush_commits_what_was_ordered_behind_it() -> Result<()> {
    let disk = Gated::default();
    let open = || Db::builder().vfs(Arc::new(disk.clone())).open("db");
    let db = open()?;
    db.put("before", "v")?;
    let noted = Arc::new(Noted::default());
    thread::scope(|scope| -> Result<()> {
        let shut = disk.gate.shut();
        let leader = scope.spawn(|| db.put("leader", "v"));
        disk.gate.wait_until_somebody_waits();
        let mut polled = db.put_later("polled", "v")?;
        let waker = Waker::from(noted.clone());
        let looked = Pin::new(&mut polled).poll(&mut Context::from_waker(&waker));
        assert!(looked.is_pending());
        drop(db.put_later("dropped", "v")?);
        let held = db.put_later("held", "v")?;
        let closing = scope.spawn(|| db.close());
        while db.get("before").is_ok() {
            thread::yield_now();
        }
        // It comes to what it does last, behind the gate.
        thread::sleep(Duration::from_millis(100));
        drop(shut);
        leader.join().expect("no panic")?;
        closing.join().expect("no panic")?;
        assert!(held.wait()?.changed && polled.wait()?.changed);
        Ok(())
    })?;
    assert!(noted.0.load(Ordering::Acquire), "the future was woken");
    drop(db);
    let db = open()?;
    for key in ["leader", "polled", "dropped", "held"] {
        assert_eq!(value(&db, key).as_deref(), Some("v"), "{key}");
    }
    Ok(())
}

/// Has the last handle of a database, and drops it when it is woken: as the task of an executor that is gone.
struct LastHandle {
    held: Mutex<Option<(Db, Ticket)>>,
    over: mpsc::Sender<()>,
}

impl Wake for LastHandle {
    fn wake(self: Arc<Self>) {
        let held = self.held.lock().expect("no panic").take();
        drop(held);
        self.over.send(()).expect("the test waits");
    }
}

/// The commit thread that woke it closed the database, and was to wait for its own end: it panicked within a destructor, and
/// what stood in the queue was neither committed nor refused.
#[test]
fn a_waker_may_drop_the_last_handle() -> Result<()> {
    let disk = Disk::new();
    let db = disk.open(Db::builder());
    let mut ticket = db.put_later("polled", "v")?;
    let (over, is_over) = mpsc::channel();
    let held = Mutex::new(None);
    let last = Arc::new(LastHandle { held, over });
    {
        // Whoever wakes waits until the handle is there.
        let mut held = last.held.lock().expect("no panic");
        let waker = Waker::from(last.clone());
        let looked = Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker));
        assert!(looked.is_pending());
        drop(db.put_later("behind", "v")?);
        *held = Some((db, ticket));
    }
    drop(last);
    is_over.recv_timeout(TIMEOUT).expect("it is closed");
    let db = disk.open(manual());
    for key in ["polled", "behind"] {
        assert_eq!(value(&db, key).as_deref(), Some("v"), "{key}");
    }
    Ok(())
}

/// Wakes the thread that runs futures.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs futures until all are ready.
fn run_all(mut tickets: Vec<Ticket>) -> Result<()> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    while !tickets.is_empty() {
        let mut pending = Vec::new();
        for mut ticket in tickets {
            match Pin::new(&mut ticket).poll(&mut context) {
                Poll::Ready(outcome) => assert!(outcome?.changed),
                Poll::Pending => pending.push(ticket),
            }
        }
        tickets = pending;
        if !tickets.is_empty() {
            // A wake-up that is lost fails the test.
            thread::park_timeout(TIMEOUT);
        }
    }
    Ok(())
}

#[test]
fn tickets_are_futures() -> Result<()> {
    for builder in [manual(), Db::builder()] {
        let disk = Disk::new();
        let db = disk.open(builder);
        let start = std::time::Instant::now();
        for round in 0..20 {
            let tickets = (0..10).map(|key| db.put_later(format!("k{key}"), [round]));
            run_all(tickets.collect::<Result<_>>()?)?;
        }
        assert_eq!(db.range(..)?.count(), 10);
        assert!(start.elapsed() < TIMEOUT, "a wake-up was lost");
    }
    Ok(())
}

#[test]
fn a_wait_with_a_limit_gives_the_ticket_back() -> Result<()> {
    let disk = Disk::new();
    let db = disk.open(Db::builder());
    let mut ticket = db.put_later("k", "v")?;
    // Nobody else leads: the database's own thread does.
    let committed = loop {
        match ticket.wait_timeout(Duration::ZERO) {
            Ok(outcome) => break outcome?,
            Err(under_way) => ticket = under_way,
        }
        thread::yield_now();
    };
    assert_eq!(committed.revision, db.revision());
    let ticket = db.put_later("k", "w")?;
    assert!(ticket.wait_timeout(TIMEOUT).expect("in time")?.changed);
    Ok(())
}

/// Too many under way: then each call waits until the one it makes is done, and takes all others along.
#[test]
fn tickets_under_way_are_bounded() -> Result<()> {
    const MANY: u64 = 3_000;
    let disk = Disk::new();
    let db = disk.open(manual());
    let tickets = (0..MANY).map(|number| db.put_later("k", number.to_be_bytes()));
    let tickets: Vec<_> = tickets.collect::<Result<_>>()?;
    let under_way = tickets.iter().filter(|ticket| !ticket.is_done()).count();
    assert!((1..=1024).contains(&under_way), "{under_way}");
    let large = vec![0; 1 << 20];
    let tickets: Vec<_> = (0..20)
        .map(|_| db.put_later("large", &large))
        .collect::<Result<_>>()?;
    let under_way = tickets.iter().filter(|ticket| !ticket.is_done()).count();
    assert!((1..=8).contains(&under_way), "{under_way}");
    Ok(())
}

/// Threads with several commits under way beside threads that wait for each: all outcomes are there, revisions are given
/// out without gap or repetition, and in the order of each thread's calls.
#[test]
fn threads_with_and_without_tickets_share_one_order() -> Result<()> {
    const EACH: u64 = 200;
    let disk = Disk::new();
    let db = disk.open(Db::builder());
    let start = db.revision();
    let work = |thread: usize| -> Result<Vec<u64>> {
        let mut revisions = Vec::new();
        let mut under_way = VecDeque::new();
        for number in 0..EACH {
            let key = format!("{thread}/{number}");
            if thread == 0 {
                revisions.push(db.put(&key, "v")?.get());
                continue;
            }
            under_way.push_back((key.clone(), db.put_later(&key, "v")?));
            while under_way.len() > 4 * thread {
                let (key, ticket): (String, Ticket) = under_way.pop_front().expect("some");
                revisions.push(ticket.wait()?.revision.get());
                assert!(db.get(key)?.is_some(), "it is done and not seen");
            }
        }
        for (_, ticket) in under_way {
            revisions.push(ticket.wait()?.revision.get());
        }
        assert!(revisions.is_sorted(), "not in the order of the calls");
        Ok(revisions)
    };
    let mut all = Vec::new();
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..4).map(|it| scope.spawn(move || work(it))).collect();
        for thread in threads {
            all.extend(thread.join().expect("no panic").expect("no error"));
        }
    });
    all.sort_unstable();
    assert!(all.into_iter().eq(start.get() + 1..=start.get() + 4 * EACH));
    drop(db);
    assert_eq!(disk.open(manual()).range(..)?.count() as u64, 4 * EACH);
    Ok(())
}
