//! [`Loose`]: the large values that expressions have made, for as long as somebody holds them.
//!
//! Nobody says when a value is given up: it goes from an expression into a row, into another value, or nowhere. So each
//! large one is noted where it is made, and when memory is short, or many have been noted, it is looked which of them are gone.
//! Small ones are not noted: whoever gathers many of them counts them.

use std::collections::HashMap;

use crate::value::{Value, Watch};

/// With fewer values than this, it is not looked which are gone.
const VALUES_MIN: usize = 16;
/// Nor with fewer bytes.
const BYTES_MIN: u64 = 4 << 20;

/// See the [module](self).
#[derive(Default)]
pub(super) struct Loose {
    /// Each by its place, with its bytes.
    values: HashMap<usize, (Watch, u64)>,
    /// How many there were when it was last looked which are gone, and their bytes.
    kept: (usize, u64),
    /// The bytes of those that were noted since.
    noted: u64,
}

impl Loose {
    /// Notes a value, and gives the bytes that it takes beside those that were noted before. `None`: it is known, or others
    /// hold it, who count it.
    pub fn note(&mut self, value: &Value) -> Option<u64> {
        if self.is_counted(value) {
            return None;
        }
        let (place, watch) = (value.place()?, Watch::of(value)?);
        let bytes = value.footprint_without(|part| part.is_large() && self.is_counted(part));
        self.values.insert(place, (watch, bytes));
        self.noted = self.noted.saturating_add(bytes);
        Some(bytes)
    }

    fn is_counted(&self, value: &Value) -> bool {
        let is_noted = |place: usize| self.values.contains_key(&place);
        value.is_shared() || value.place().is_some_and(is_noted)
    }

    /// The bytes of those that are noted, also of those that are gone.
    pub fn bytes(&self) -> u64 {
        self.kept.1.saturating_add(self.noted)
    }

    /// Whether so many were noted that some may be gone.
    pub fn are_many(&self) -> bool {
        let (values, bytes) = self.kept;
        self.values.len() >= VALUES_MIN.max(2 * values) || self.noted > BYTES_MIN.max(bytes)
    }

    /// Forgets those that are gone, and gives their bytes.
    pub fn forget(&mut self) -> u64 {
        let (mut freed, mut kept): (u64, u64) = (0, 0);
        self.values.retain(|_, (watch, bytes)| {
            let is_gone = watch.is_gone();
            let sum = if is_gone { &mut freed } else { &mut kept };
            *sum = sum.saturating_add(*bytes);
            !is_gone
        });
        self.kept = (self.values.len(), kept);
        self.noted = 0;
        freed
    }
}
