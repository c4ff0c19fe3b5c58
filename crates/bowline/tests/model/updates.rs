//! Updates of keys, compared with what the rule of each makes of the model's value.

use bowline::{Error, Update};
use bowline_testing::model::Change;
use bowline_types::NewValue;

use crate::case::Case;
use crate::support::{random_key, random_value};

impl Case {
    /// An update of a key with a value, or of one of two keys that hold numbers at first.
    pub fn update(&mut self) {
        let mut key = random_key(&mut self.rng);
        let (value, number) = (random_value(&mut self.rng, 60), self.rng.i64(-9..10));
        let newest = self.model.revision();
        let kind = self.rng.u8(0..9);
        if kind < 4 {
            key = format!("k{:02}", self.rng.u8(38..40)).into_bytes();
        }
        if kind >= 4 && self.rng.bool() {
            // Keys with a lease are rare.
            let held = self.model.range(.., newest);
            let leased = held.filter(|(_, entry)| entry.lease != 0);
            let leased: Vec<_> = leased.map(|(key, _)| key.clone()).collect();
            key = self.rng.choice(leased).unwrap_or(key);
        }
        let held = self.model.get(&key, newest).cloned();
        let old = held.as_ref().map(|entry| entry.value.clone());
        let update = match kind {
            0 => Update::Add(number),
            1 => Update::AddWithin {
                amount: number,
                min: -20,
                max: 20,
            },
            2 => Update::Max(number),
            3 => Update::Min(number),
            4 => Update::SetIfAbsent(value),
            5 => Update::Swap {
                expected: old.clone().filter(|_| number != 0),
                new: None,
            },
            6 => Update::Swap {
                expected: old.clone().filter(|_| number < 5),
                // Something to count from, now and then.
                new: Some(if number < -5 { b"7".to_vec() } else { value }),
            },
            _ => Update::Append(value),
        };
        self.note(&format!("{update} of {}", key.escape_ascii()));
        let made = update.apply(old.as_deref());
        let updated = match (made, self.db.update(&key, update)) {
            (Err(expected), Err(Error::NotUpdatable { source, .. })) => {
                assert_eq!(source, expected);
                assert_eq!(self.db.revision(), newest);
                return self.did("update refused");
            }
            (Ok(made), Ok(updated)) => (made, updated),
            other => panic!("{other:?}"),
        };
        let (made, updated) = updated;
        let lease = held.map_or(0, |entry| entry.lease);
        let (what, expected, changes) = match made {
            NewValue::Unchanged => ("update of nothing", old, vec![]),
            NewValue::Put(value) => {
                let (what, put) = (
                    ["update", "update of a key with a lease"][usize::from(lease != 0)],
                    Change::Put {
                        key,
                        value: value.clone(),
                        lease,
                    },
                );
                (what, Some(value), vec![put])
            }
            NewValue::Delete => ("update that deletes", None, vec![Change::Delete { key }]),
        };
        self.did(what);
        assert_eq!(updated.value.as_deref(), expected.as_deref());
        assert_eq!(updated.changed, !changes.is_empty());
        self.committed(&changes, updated.revision);
    }
}
