//! The places at which each workload's crashes must be tried, in the ordinary run.

pub const KEYS: &[&str] = &["put: write segment"];
pub const GRAPH: &[&str] = KEYS;
pub const LEASES: &[&str] = KEYS;
pub const HISTORY: &[&str] = KEYS;
pub const MANIFEST: &[&str] = KEYS;
pub const CREATION: &[&str] = KEYS;
pub const BATCHED: &[&str] = KEYS;
pub const SEGMENTS: &[&str] = KEYS;
