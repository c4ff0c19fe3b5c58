//! The limits on the size of requests and proposals.

use bowline_replica::COMMANDS_MAX;

/// The largest proposal: the largest allowed request, and a batch besides.
pub(crate) const PROPOSAL_BYTES_MAX: usize = 72 << 20;
/// The most bytes of a lease's keys in one reply. It is one message, which the leader builds in memory.
pub(crate) const LEASE_KEYS_BYTES_MAX: usize = 32 << 20;
/// The largest limit that the settings may set for a request.
pub(crate) const REQUEST_BYTES_MAX: u64 = 66 << 20;

// A full batch, and one more request.
const _: () =
    assert!(REQUEST_BYTES_MAX as usize + (2 << 20) < PROPOSAL_BYTES_MAX && COMMANDS_MAX > 0);
