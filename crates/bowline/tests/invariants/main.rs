//! The fifty invariants of the transactional reference, each by its name, on real crash images.
//!
//! A scenario runs on a disk that forgets what was not synced. It is crashed at every kind of place
//! and with every kind of loss (see [`harness`]), the image is opened with the shipped code, and the
//! invariant's own statement is asked of it. Those about snapshots, one's own writes and conflicts
//! must hold while the scenario runs, and again for who goes on with what was recovered.
//!
//! Differences from the reference, all deliberate: the default isolation is serializable, so write
//! skew is refused there and allowed under snapshot isolation; a key that was deleted and one that
//! was never written both compare as 0, and the history tells them apart.
//!
//! `BOWLINE_INVARIANT_IMAGES` sets the images of each invariant (default 1,000), and `BOWLINE_SEED` the
//! seed. `--nocapture` shows what was covered.

mod acid;
mod harness;
mod log;
mod snapshots;
#[path = "../support/mod.rs"]
mod support;
