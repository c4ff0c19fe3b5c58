//! Reads of many keys, blocks and edges by one call give what as many reads give.

use bowline::{Block, BlockId, Db, Edge, Error, Result};

use crate::support::{Disk, Stage, manual};

/// More than are looked up together.
const KEYS: usize = 150;

fn key(number: usize) -> String {
    format!("k{number:03}")
}

fn id(number: usize) -> BlockId {
    BlockId::from_name(&key(number))
}

/// Two thirds of the keys, blocks and edges in `db`, those of them again that divide by 5 and without those that divide
/// by 7. `between` runs after each step, so that versions of a key lie in different places.
fn fill(db: &Db, between: impl Fn(&Db)) -> Result<()> {
    let present = || (0..KEYS).filter(|number| number % 3 != 0);
    db.transact(|tx| {
        for number in present() {
            tx.put(key(number), format!("first of {number}"))?;
            tx.put_block(&Block::new(id(number), "host").content(key(number)))?;
            tx.put_edge(&Edge::new(id(number), "link", id(number)).attribute("n", key(number)))?;
        }
        Ok(())
    })?;
    between(db);
    db.transact(|tx| {
        for number in present().filter(|number| number % 5 == 0) {
            tx.put(key(number), vec![b'x'; 10 * number])?;
            tx.put_block(&Block::new(id(number), "router"))?;
        }
        Ok(())
    })?;
    between(db);
    db.transact(|tx| {
        for number in present().filter(|number| number % 7 == 0) {
            tx.delete(key(number))?;
            tx.delete_block(id(number))?;
        }
        Ok(())
    })
}

/// All keys twice, in another order.
fn asked_for() -> Vec<usize> {
    let backwards = (0..KEYS).rev();
    backwards.chain((0..KEYS).map(|n| n * 7 % KEYS)).collect()
}

/// Whether many reads by one call are the same as one after the other, in the snapshot and in a transaction of `db`.
fn check(db: &Db) -> Result<()> {
    let numbers = asked_for();
    let keys: Vec<_> = numbers.iter().map(|&n| key(n)).collect();
    let ids: Vec<_> = numbers.iter().map(|&n| id(n)).collect();
    let edges: Vec<_> = numbers
        .iter()
        .map(|&n| (id(n), ["link", "never used"][n % 11 / 10], id(n)))
        .collect();
    let snapshot = db.snapshot();
    let graph = snapshot.graph();
    let values = keys.iter().map(|key| snapshot.get(key));
    let values: Vec<_> = values.collect::<Result<_>>()?;
    assert!(values.iter().any(Option::is_some) && values.iter().any(Option::is_none));
    assert_eq!(snapshot.get_many(&keys)?, values);
    assert_eq!(db.get_many(&keys)?, values);
    let blocks: Vec<_> = ids
        .iter()
        .map(|&id| graph.block(id))
        .collect::<Result<_>>()?;
    assert!(blocks.iter().any(Option::is_some));
    assert_eq!(graph.many_blocks(&ids)?, blocks);
    let found = edges
        .iter()
        .map(|&(from, kind, to)| graph.edge(from, kind, to));
    let found: Vec<_> = found.collect::<Result<_>>()?;
    assert!(found.iter().any(Option::is_some));
    assert_eq!(graph.many_edges(&edges)?, found);
    let mut tx = db.begin();
    assert_eq!(tx.get_many(&keys)?, values);
    assert_eq!(tx.many_blocks(&ids)?, blocks);
    assert_eq!(tx.many_edges(&edges)?, found);
    Ok(())
}

#[test]
fn many_reads_are_the_same_as_one_after_the_other() -> Result<()> {
    for stage in Stage::ALL {
        let disk = Disk::new();
        let db = disk.open(manual());
        // Versions in tables, some of them in a run of their own, and in the memtable.
        fill(&db, |db| {
            if stage != Stage::Written {
                db.flush().expect("a flush");
            }
        })?;
        check(&db)?;
        check(&stage.reach(db, &disk, manual())?)?;
    }
    Ok(())
}

#[test]
fn many_reads_of_a_snapshot_are_of_its_revision() -> Result<()> {
    let db = Db::in_memory()?;
    fill(&db, |_| {})?;
    let snapshot = db.snapshot();
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let before = snapshot.get_many(&keys)?;
    db.delete_range(..)?;
    assert_eq!(snapshot.get_many(&keys)?, before);
    assert_eq!(db.get_many(&keys)?, vec![None; KEYS]);
    assert_eq!(db.get_many(&[""; 0])?, []);
    db.close()?;
    assert!(matches!(db.get_many(&keys), Err(Error::Closed)));
    Ok(())
}

#[test]
fn a_transaction_sees_its_own_writes_among_many() -> Result<()> {
    let db = Db::in_memory()?;
    fill(&db, |_| {})?;
    let mut tx = db.begin();
    tx.put(key(1), "own")?;
    tx.delete(key(2))?;
    let values = tx.get_many(&[key(1), key(2), key(4)])?;
    let values: Vec<_> = values.iter().map(Option::as_deref).collect();
    assert_eq!(values, [Some(&b"own"[..]), None, Some(b"first of 4")]);
    tx.put_block(&Block::new(id(0), "own"))?;
    tx.delete_block(id(1))?;
    let blocks = tx.many_blocks(&[id(0), id(1), id(2)])?;
    let kinds: Vec<_> = blocks.iter().map(|it| it.as_ref()?.kinds.only()).collect();
    assert_eq!(kinds, [Some("own"), None, Some("host")]);
    tx.put_edge(&Edge::new(id(0), "link", id(2)))?;
    tx.delete_edge(id(2), "link", id(2))?;
    let edges = [
        (id(0), "link", id(2)),
        (id(2), "link", id(2)),
        (id(4), "link", id(4)),
    ];
    let found = tx.many_edges(&edges)?;
    let there: Vec<_> = found.iter().map(Option::is_some).collect();
    assert_eq!(there, [true, false, true]);
    Ok(())
}

#[test]
fn each_of_many_reads_is_in_the_read_set() -> Result<()> {
    type Read = fn(&mut bowline::Transaction) -> Result<()>;
    type Write = fn(&Db) -> Result<()>;
    let cases: [(Read, Write); 5] = [
        (
            |tx| tx.get_many(&[key(1), key(0)]).map(drop),
            |db| db.put(key(0), "v").map(drop),
        ),
        (
            |tx| tx.get_many(&[key(1), key(0)]).map(drop),
            |db| db.put(key(1), "v").map(drop),
        ),
        (
            |tx| tx.many_blocks(&[id(1), id(0)]).map(drop),
            |db| db.transact(|tx| tx.put_block(&Block::new(id(0), "host"))),
        ),
        (
            |tx| tx.many_edges(&[(id(1), "link", id(1))]).map(drop),
            |db| db.transact(|tx| tx.delete_edge(id(1), "link", id(1)).map(drop)),
        ),
        (
            |tx| tx.many_edges(&[(id(1), "new", id(1))]).map(drop),
            |db| db.transact(|tx| tx.put_edge(&Edge::new(id(1), "new", id(1)))),
        ),
    ];
    for (number, (read, write)) in cases.into_iter().enumerate() {
        let db = Db::in_memory()?;
        fill(&db, |_| {})?;
        let mut tx = db.begin();
        read(&mut tx)?;
        tx.put("another", "v")?;
        write(&db)?;
        let committed = tx.commit();
        assert!(matches!(committed, Err(Error::Conflict { .. })), "{number}");
    }
    Ok(())
}
