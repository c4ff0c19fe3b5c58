//! The settings of a run.

use std::collections::BTreeSet;

/// The settings of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// How many members there are.
    pub members: usize,
    /// How long clients work, in virtual time.
    pub virtual_seconds: u64,
    /// The faults that are left out, by their number.
    pub without: BTreeSet<usize>,
    /// Whether disks are full at times.
    pub fills_disks: bool,
    /// Whether the members are behind the shipped server, and there are users over the network.
    pub serves: bool,
    /// Whether the membership grows and shrinks, with learners that stay such for a while.
    pub grows: bool,
    /// Whether files of all kinds rot, at several members at a time if there are many.
    pub rots: bool,
    /// Whether monotonic clocks leap forward.
    pub leaps: bool,
    /// Whether the trace has what members send each other: votes, entries, snapshots.
    pub tells_messages: bool,
    /// Whether the trace has what arrives on each connection.
    pub traces_wire: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            members: 3,
            virtual_seconds: 60,
            without: BTreeSet::new(),
            fills_disks: false,
            serves: false,
            grows: false,
            rots: false,
            leaps: false,
            tells_messages: false,
            traces_wire: false,
        }
    }
}

impl Options {
    /// The machines of members and the spare ones: enough for a cluster of three to become one of five that can still
    /// replace a member.
    pub(crate) fn machines(&self) -> usize {
        self.members + if self.grows { 3 } else { 1 }
    }
}
