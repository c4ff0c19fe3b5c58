//! All checks of a round of faults, run over the results of its clients.

use std::collections::{HashMap, HashSet};

use bowline_testing::linear::{self, Held, Operation};

use crate::load::{Change, Record, STRIDE, TOTAL, Written};

/// Whether everything fits together.
pub(crate) fn check(record: &Record) -> Result<(), String> {
    for (at, history) in record.registers.iter().enumerate() {
        linear::check(history).map_err(|failure| format!("register {at}: {failure}"))?;
    }
    linear::check(&record.accounts).map_err(|failure| format!("accounts: {failure}"))?;
    money_is_kept(&record.accounts)?;
    revisions_rise(record)
}

/// Whoever sees both accounts at once sees all of the money.
fn money_is_kept(accounts: &[Operation]) -> Result<(), String> {
    for operation in accounts {
        let seen: HashMap<usize, Held> = operation.seen.iter().copied().collect();
        if let (Some(Some(a)), Some(Some(b))) = (seen.get(&0), seen.get(&1))
            && a / STRIDE + b / STRIDE != TOTAL
        {
            return Err(format!("money: {operation}"));
        }
    }
    Ok(())
}

/// Across all keys: a change that began after another was acknowledged has a newer revision, no two
/// have the same, and a read is of a revision that is no older than what was acknowledged before.
fn revisions_rise(record: &Record) -> Result<(), String> {
    let mut given = HashMap::new();
    for change in &record.changes {
        if let Some(other) = given.insert(change.revision, &change.note) {
            let (revision, note) = (change.revision, &change.note);
            return Err(format!("revision {revision} twice: {other}, {note}"));
        }
    }
    let mut ended: Vec<&Change> = record.changes.iter().chain(&record.reads).collect();
    ended.sort_by_key(|change| change.end);
    let mut began: Vec<(&Change, bool)> = (record.changes.iter().map(|change| (change, true)))
        .chain(record.reads.iter().map(|read| (read, false)))
        .collect();
    began.sort_by_key(|(change, _)| change.start);
    let mut ended = ended.into_iter().peekable();
    let mut newest: Option<&Change> = None;
    for (change, is_write) in began {
        while let Some(past) = ended.next_if(|past| past.end < change.start) {
            if newest.is_none_or(|newest| newest.revision < past.revision) {
                newest = Some(past);
            }
        }
        let Some(past) = newest else {
            continue;
        };
        let least = past.revision + u64::from(is_write);
        if change.revision < least {
            return Err(format!(
                "{} from {} to {} is of revision {}, but {} was over at {} with revision {}",
                change.note,
                change.start,
                change.end,
                change.revision,
                past.note,
                past.end,
                past.revision,
            ));
        }
    }
    Ok(())
}

/// The first line of the ledger that was acknowledged and is not among what was found: key, value, revision.
pub(crate) fn missing<'a>(
    found: &HashSet<(&[u8], &[u8], u64)>,
    ledger: &'a [Written],
) -> Option<&'a Written> {
    ledger.iter().find(|written| {
        let value = written.value.to_string();
        !found.contains(&(written.key.as_bytes(), value.as_bytes(), written.revision))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(start: u64, end: u64, revision: u64) -> Change {
        Change {
            start,
            end,
            revision,
            note: format!("c0 {revision}"),
        }
    }

    /// One put, one read of it, and a transfer.
    fn record() -> Record {
        let mut record = Record::default();
        record.registers[0] = vec![
            Operation::put(0, 7).lasted(0, 10),
            Operation::read(0, Some(7))
                .lasted(12, 14)
                .noted("c1 lease read @2"),
        ];
        let half = TOTAL / 2 * STRIDE;
        let seen = Operation::read(0, Some(half + 1)).saw(1, Some(half + 2));
        let made = Operation::put(0, half + 1).writing(1, Some(half + 2));
        record.accounts = vec![made.lasted(0, 10), seen.lasted(11, 12)];
        record.changes = vec![change(0, 10, 2), change(11, 12, 3)];
        record.reads = vec![change(11, 14, 2)];
        record
    }

    fn refused(change: impl FnOnce(&mut Record)) -> String {
        let mut record = record();
        assert_eq!(check(&record), Ok(()));
        change(&mut record);
        check(&record).expect_err("it is refused")
    }

    /// Planted: what each judge is there for, and it is that judge that refuses it.
    #[test]
    fn each_judge_refuses_what_it_is_there_for() {
        let stale = refused(|record| record.registers[0][1].seen = vec![(0, None)]);
        assert!(
            stale.contains("register 0: not linearizable") && stale.contains("lease read"),
            "{stale}"
        );
        let torn = refused(|record| {
            let half = TOTAL / 2 * STRIDE;
            let more = Operation::put(0, half + STRIDE + 3).lasted(11, 12);
            let seen = Operation::read(0, Some(half + STRIDE + 3)).saw(1, Some(half + 2));
            record.accounts = vec![record.accounts[0].clone(), more, seen.lasted(13, 14)];
        });
        assert!(torn.starts_with("money"), "{torn}");
        let twice = refused(|record| record.changes[1].revision = 2);
        assert!(twice.contains("revision 2 twice"), "{twice}");
        let back = refused(|record| record.changes.push(change(20, 21, 1)));
        assert!(back.contains("is of revision 1"), "{back}");
        let old = refused(|record| record.reads[0] = change(13, 14, 2));
        assert!(old.contains("over at 12 with revision 3"), "{old}");
    }

    /// Planted: a line that is not there, has another value, or came at another revision.
    #[test]
    fn a_line_of_the_ledger_that_is_missing_is_named() {
        let written = Written {
            key: "0/ledger/5".to_owned(),
            value: 5,
            revision: 9,
        };
        let ledger = [written];
        let (key, value): (&[u8], &[u8]) = (b"0/ledger/5", b"5");
        assert!(missing(&HashSet::from([(key, value, 9)]), &ledger).is_none());
        let wrong: [(&[u8], &[u8], u64); 3] = [(key, b"6", 9), (key, value, 8), (b"k", value, 9)];
        for found in wrong {
            let found = missing(&HashSet::from([found]), &ledger);
            assert_eq!(found.map(|written| written.revision), Some(9));
        }
    }
}
