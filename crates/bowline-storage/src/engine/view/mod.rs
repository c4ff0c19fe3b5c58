//! What a reader sees: the super-version, the visible revision, and the reads over them.
//!
//! | file | contents |
//! |---|---|
//! | `super_version` | the memtables and tables at one moment, immutable |
//! | `read_view` | the current super-version and the visible revision; how they are replaced |
//! | `found` | one version that a read found |
//! | `lookup` | point reads and visits of versions in a super-version |
//! | `scan` | range scans of a super-version |
//! | `prefix` | reads of one prefix after the other in a super-version |
//! | `reads` | the reads of the [`Engine`](super::Engine): a super-version and a revision each |

mod found;
mod lookup;
mod prefix;
mod read_view;
mod reads;
mod scan;
mod super_version;

pub use found::{Found, Next, VersionVisit, Want};
pub use prefix::PrefixReader;
pub(super) use read_view::ReadView;
pub use scan::{Scan, ScanDirection};
pub use super_version::SuperVersion;
