//! Transactions: money moved between accounts by several threads at once, a conflict seen and
//! repeated by hand, and what snapshot isolation lets through.
//!
//! Run it with `cargo run -p bowline --example transaction`.

use std::thread;

use bowline::{Db, Error, Isolation, Range, Transaction};

const ACCOUNTS: u64 = 8;
const DEPOSIT: u64 = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let db = Db::open(directory.path().join("data"))?;

    // One transaction, one revision, all keys or none.
    db.transact(|tx| {
        for account in 0..ACCOUNTS {
            set(tx, account, DEPOSIT)?;
        }
        Ok(())
    })?;

    // `transact` runs its closure again when somebody else changed what it read.
    let bank = &db;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| scope.spawn(move || move_money(bank, worker)))
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("a worker panicked"))
    })?;
    let mut total = 0;
    for entry in db.range(Range::prefix("account/"))? {
        total += number(&entry?.value);
    }
    assert_eq!(total, ACCOUNTS * DEPOSIT, "no transfer lost or made money");

    // The first to commit wins. The other is told, and nothing of it is kept.
    let (mut one, mut other) = (db.begin(), db.begin());
    for tx in [&mut one, &mut other] {
        let more = balance(tx, 0)? + 1;
        set(tx, 0, more)?;
    }
    one.commit()?;
    assert!(matches!(other.commit(), Err(Error::Conflict { .. })));

    // Write skew: each reads what the other writes. By default that is a conflict; under snapshot
    // isolation, which only checks what was written, both commit.
    assert_eq!(both_go_off_call(&db, Isolation::Serializable)?, 1);
    assert_eq!(both_go_off_call(&db, Isolation::Snapshot)?, 2);

    println!(
        "{total} in {ACCOUNTS} accounts at revision {}",
        db.revision()
    );
    Ok(())
}

fn move_money(db: &Db, worker: u64) -> bowline::Result<()> {
    for round in 0..50 {
        let (from, to) = (
            (worker + round) % ACCOUNTS,
            (worker * 3 + round * 5) % ACCOUNTS,
        );
        if from == to {
            continue;
        }
        db.transact(|tx| {
            let available = balance(tx, from)?;
            let amount = available.min(7);
            set(tx, from, available - amount)?;
            let has = balance(tx, to)?;
            set(tx, to, has + amount)
        })?;
    }
    Ok(())
}

/// Two doctors are on call. Each leaves if the other stays. Returns how many got away with it.
fn both_go_off_call(db: &Db, isolation: Isolation) -> bowline::Result<u64> {
    db.put("on_call/ann", "yes")?;
    db.put("on_call/bob", "yes")?;
    let (mut ann, mut bob) = (db.begin_with(isolation), db.begin_with(isolation));
    if ann.get("on_call/bob")?.is_some() {
        ann.delete("on_call/ann")?;
    }
    if bob.get("on_call/ann")?.is_some() {
        bob.delete("on_call/bob")?;
    }
    let mut left = 0;
    for tx in [ann, bob] {
        match tx.commit() {
            Ok(_) => left += 1,
            Err(Error::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(left)
}

fn key(account: u64) -> String {
    format!("account/{account}")
}

fn balance(tx: &mut Transaction, account: u64) -> bowline::Result<u64> {
    Ok(tx.get(key(account))?.map_or(0, |value| number(&value)))
}

fn set(tx: &mut Transaction, account: u64, balance: u64) -> bowline::Result<()> {
    tx.put(key(account), balance.to_le_bytes())
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().expect("a balance has eight bytes"))
}
