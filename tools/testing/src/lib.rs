//! Test tools for Bowline: simulated disks, injected faults, a manual clock, a reference model, and checkers
//! of histories. Nothing here is shipped.
//!
//! | module | contents |
//! |---|---|
//! | [`disk`] | [`SimDisk`]: an in-memory file system that records every operation |
//! | [`crash`] | [`Images`]: every state that a power loss could leave, from such a recording |
//! | [`fault`] | [`FaultVfs`]: errors, short reads and writes, and a full disk, on any `Vfs` |
//! | [`clock`] | [`ManualClock`]: time that only the test advances |
//! | [`model`] | [`Model`]: the answers of a correct database, in plain maps |
//! | [`isolation`] | [`isolation::check`]: the anomalies in a history of transactions |
//! | [`linear`] | [`linear::check`]: whether a history of a cluster's keys is linearizable |
//! | [`log`] | [`listen`]: what the code under test logs, beside other tests |
//! | [`ports`] | ports for servers that no other socket gets in between |
//! | [`seed`] | [`Seed`]: seeds of random tests, with the command that repeats them |
//! | [`vitals`] | the resource use of a process, compared with bounds |
//! | [`skip`](mod@skip) | skipped tests, reported and counted |
//! | [`etcd`] | the etcd programs for comparison |
//!
//! # What the disk models
//!
//! A power loss after any operation of the recording (a *point*), at which
//!
//! - data that a `sync_data` covered is there; each later write or change of length is there or missing,
//!   independently of all others, so that writes reach the disk in any order;
//! - an unsynced write may be torn: each sector of 512 (or 4,096) bytes is old or new, the file may have its
//!   new length without its new bytes (they read as zeros), or a length in between;
//! - a created, renamed or removed name that a `sync_dir` of its directory covered is there; each later one
//!   is there or missing, independently. Syncing a file does not sync its name, and syncing a directory does
//!   not sync the directory's own name. A rename is atomic: a lost one leaves the old name and the old
//!   target. An operation that is impossible, because one before it is missing (the rename of a file whose
//!   creation is lost), is missing, too. A rename between two directories is safe when both are synced;
//! - after a sync that *failed* ([`SimDisk::fail_syncs`]), the data it should have covered may be missing for
//!   good, even when a later sync succeeds, as on Linux;
//! - a process that is killed without a power loss keeps every operation
//!   ([`Faults::AllKept`](crash::Faults::AllKept)).
//!
//! # What it does not model
//!
//! - An `fsync` that lies. The engine assumes that it does not.
//! - A sync that takes time: a write on another thread comes wholly before it, and is covered, or wholly
//!   after it.
//! - Garbage: a sector that was never written reads as zeros, not as another file's old bytes.
//! - A sector that is half old and half new; sectors are atomic.
//! - Decay of data at rest, unless requested: see [`SimDisk::damaged`].
//! - A name that is half renamed, hard links, permissions, removal of directories.
//! - A `sync_dir` that fails and loses names for good; [`FaultVfs`] makes it fail and keep them.
//!
//! # Example
//!
//! A file is replaced by writing a new one and renaming it. After any crash, one of the two is there,
//! complete:
//!
//! ```
//! use bowline_storage::vfs::{OpenMode, Vfs};
//! use bowline_testing::{Images, SimDisk};
//! use std::path::Path;
//!
//! let disk = SimDisk::new();
//! disk.put_durable(Path::new("current"), b"old");
//!
//! let file = disk.open(Path::new("new"), OpenMode::CreateNew)?;
//! file.write_at(b"new", 0)?;
//! file.sync_data()?; // without this line the loop below fails
//! disk.rename(Path::new("new"), Path::new("current"))?;
//! disk.sync_dir(Path::new(""))?;
//! disk.mark(1); // from here on, "new" is promised
//!
//! for image in Images::all(&disk.recording(), 7) {
//!     let found = image.build().read(Path::new("current"))?;
//!     assert!(found == b"new" || (found == b"old" && image.marks().is_empty()), "{image}");
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod clock;
pub mod crash;
pub mod disk;
pub mod etcd;
pub mod fault;
pub mod isolation;
pub mod lease;
pub mod linear;
pub mod log;
pub mod model;
pub mod ports;
pub mod replay;
pub mod seed;
pub mod skip;
#[cfg(target_os = "linux")]
pub mod vitals;

pub use clock::ManualClock;
pub use crash::{CrashImage, Images};
pub use disk::SimDisk;
pub use fault::FaultVfs;
pub use lease::lease_id;
pub use log::listen;
pub use model::Model;
pub use replay::replay;
pub use seed::Seed;
pub use skip::{skip, skip_part};
