//! Which operations the histories are made of, so that one that never happens is noticed.

use std::collections::BTreeMap;
use std::fmt;

use bowline_testing::isolation::{History, Op};

/// By what it does, and to which kind of key.
const EXPECTED: [&str; 15] = [
    "read r", "read l", "read b", "read e", "scan r", "scan l", "scan e", "expect r", "write r",
    "append l", "write b", "write e", "delete r", "delete b", "delete e",
];

/// Counts of operations.
#[derive(Default)]
pub struct Tally(BTreeMap<String, u64>);

impl Tally {
    pub fn add(&mut self, history: &History) {
        for op in history.transactions.iter().flat_map(|t| &t.ops) {
            let (what, key) = match op {
                Op::Read { key, .. } => ("read", key),
                Op::Scan { lower, .. } => ("scan", lower),
                Op::Expect { key, .. } => ("expect", key),
                Op::Write { key, .. } => ("write", key),
                Op::Append { key, .. } => ("append", key),
                Op::Delete { key, .. } => ("delete", key),
            };
            let kind = key.chars().next().unwrap_or('-');
            *self.0.entry(format!("{what} {kind}")).or_default() += 1;
        }
    }

    pub fn missing(&self) -> Vec<&'static str> {
        let missing = EXPECTED.iter().filter(|what| !self.0.contains_key(**what));
        missing.copied().collect()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<_> = self
            .0
            .iter()
            .map(|(what, n)| format!("{what} {n}"))
            .collect();
        write!(f, "{}", counts.join(", "))
    }
}
