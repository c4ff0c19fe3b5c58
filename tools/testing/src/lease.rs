//! Ids of leases from the numbers that tests name.

use bowline_types::LeaseId;

/// The lease id with this number.
///
/// # Panics
/// For 0, which is no id.
#[must_use]
#[track_caller]
pub const fn lease_id(number: i64) -> LeaseId {
    LeaseId::new(number).expect("0 is no lease id")
}
