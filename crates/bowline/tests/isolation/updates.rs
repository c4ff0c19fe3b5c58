//! Updates as transactions of one key: they read nothing, unless what they give back shows it.

use bowline::{Committed, Update, Updated};
use bowline_testing::isolation::{Op, Transaction};

use crate::keys::{ABSENT, seen_bytes, seen_entry, value_bytes};
use crate::session::Session;

fn committed(updated: &Updated) -> Committed {
    Committed {
        revision: updated.revision,
        deleted: u64::from(updated.changed && updated.value.is_none()),
        changed: updated.changed,
    }
}

impl Session<'_> {
    /// Appends to a list without a look at it.
    pub fn append(&mut self, mut record: Transaction, number: u64) {
        let key = self.list_key();
        self.appended(&key);
        let more = Update::Append(format!(",{number}").into_bytes());
        let result = self.db.update(&key, more);
        // What it gives back is what is there now.
        if let Ok(updated) = &result {
            let value = updated.value.as_deref().expect("something was appended");
            assert!(value.ends_with(format!(",{number}").as_bytes()));
        }
        let append = Op::Append { key, value: number };
        record.ops.push(append);
        self.end(record, result.map(|updated| committed(&updated)));
    }

    /// Takes a register that is free, or exchanges or deletes what it has. Which of them happened shows what it had.
    pub fn claim(&mut self, mut record: Transaction, key: String, number: u64) {
        let entry = self.db.entry(&key).expect("entry");
        let mut seen = seen_entry(&key, entry.as_ref());
        seen.revision = None;
        // After a crash nobody could tell whose deletion it is.
        let deletes = !self.shared.has_markers && entry.is_some() && self.rng.u8(0..3) == 0;
        let new = value_bytes(number, 20);
        let update = match &entry {
            None => Update::SetIfAbsent(new),
            Some(entry) => Update::Swap {
                expected: Some(entry.value.to_vec()),
                new: Some(new).filter(|_| !deletes),
            },
        };
        self.pause();
        let result = self.db.update(&key, update);
        let (key_of_write, has_lost) = (key.clone(), matches!(&result, Ok(it) if !it.changed));
        if has_lost {
            let value = result.as_ref().ok().and_then(|it| it.value.as_deref());
            let seen = value.map_or(ABSENT, |value| seen_bytes(&key, value));
            record.ops.push(Op::Read { key, seen });
        } else {
            record.ops.push(Op::Expect { key, seen });
            let (key, value) = (key_of_write, number);
            record.ops.push(match deletes {
                true => Op::Delete { key, value },
                false => Op::Write { key, value },
            });
        }
        self.end(record, result.map(|updated| committed(&updated)));
    }
}
