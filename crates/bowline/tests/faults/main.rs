//! I/O errors: every call that a database makes of its file system fails, and what was acknowledged
//! is there all the same.
//!
//! A scripted life of a database (see [`script`]) runs once on a sound disk, which tells the sites:
//! which call, of which kind of file, in which phase. Then it runs again and again, each time with
//! one call that goes wrong in one way (see [`sweep::Fault`]), and everything that the database says
//! is held against the model. [`sweep`] prints the sites with what became of them and asserts that
//! none was left out. The other modules are about single promises.
//!
//! `BOWLINE_FAULT_CASES` sets how many cases the sweep tries at least, beyond one for each site and
//! fault (default 0); `all` tries every call with every fault. `BOWLINE_SEED` sets the seed.
//! `BOWLINE_FAULT_ONLY` narrows it to cases whose name (as a failure prints it) has all its parts,
//! which `|` separates. `--nocapture` shows the table.

mod full_disk;
mod promises;
mod script;
#[path = "../support/mod.rs"]
mod support;
mod sweep;
