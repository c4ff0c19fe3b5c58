//! Updates of keys in the workload.

use bowline::{Error, Update};
use bowline_testing::model::Change;
use bowline_types::NewValue;

use crate::workload::Run;

impl Run {
    /// An update of a random key, or of one with a number. Draws as much from the seed as a compare-and-swap.
    pub fn update(&mut self) -> Result<(), Error> {
        let (mut key, value, kind) = (self.key(), self.value(100), self.rng.u8(0..4));
        let held = |key: &[u8]| self.model.get(key, self.model.revision()).cloned();
        let update = match (kind, value.len() % 4) {
            (0, _) => {
                key = b"number".to_vec();
                Update::Add(value.len() as i64 - 50)
            }
            (1, 0) => Update::SetIfAbsent(value),
            (1, rest) => Update::Swap {
                expected: held(&key).map(|entry| entry.value),
                new: Some(value).filter(|_| rest > 1),
            },
            _ => Update::Append(value),
        };
        self.commit_update(&key, update)
    }

    /// A put of a key with a lease, or an update that gives the value and keeps the lease that the key has.
    pub fn put_leased(&mut self, is_update: bool) -> Result<(), Error> {
        let (key, value) = (self.key(), self.value(60));
        let lease = self.some_lease().unwrap_or(0);
        if !is_update {
            return self.put(&key, &value, lease);
        }
        let held = self.model.get(&key, self.model.revision());
        let update = Update::Swap {
            expected: held.map(|entry| entry.value.clone()),
            new: Some(value),
        };
        self.commit_update(&key, update)
    }

    fn commit_update(&mut self, key: &[u8], update: Update) -> Result<(), Error> {
        let held = self.model.get(key, self.model.revision()).cloned();
        let made = update.apply(held.as_ref().map(|entry| &entry.value[..]));
        let lease = held.map_or(0, |entry| entry.lease);
        let changes = match made.expect("only updates add to the number") {
            NewValue::Unchanged => vec![],
            NewValue::Put(value) => vec![Change::Put {
                key: key.to_vec(),
                value,
                lease,
            }],
            NewValue::Delete => vec![Change::delete(key)],
        };
        self.commit(&changes, |db| {
            let updated = db.update(key, update)?;
            assert_eq!(updated.changed, !changes.is_empty());
            Ok(())
        })
    }
}
