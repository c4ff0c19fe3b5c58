//! S8: opening a store that was killed.
//!
//! A process of its own writes and is killed; another opens a copy of what is left, and answers one read. So no store
//! has the memory of the other rows around it, and no file is at rest that a kill would not have left so.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fastrand::Rng;

use super::stage::{Stage, fill};
use crate::data::{ENTRY_BYTES, SEED, VALUE_BYTES, is_value_of, key};
use crate::fallible::Fallible;
use crate::machine::{allocated_bytes, copy};
use crate::measure::{Row, Sample, Turn, check};
use crate::result::{Bound, Unit};
use crate::store::{Durability, Settings, Store, flushing, system};
use crate::timing::time;

/// What the process that is to be killed says when it has written.
const WRITTEN: &str = "written";

/// What was killed, by the store's name.
type Images = RefCell<HashMap<&'static str, PathBuf>>;

pub fn rows(stage: &Stage) -> Vec<Row<'_>> {
    let takes_part = || stage.names(|system| system.has_log);
    let mebibytes = stage.scale.recovered_bytes >> 20;
    let images = Images::default();
    let of_log = Row::new(
        "S8 recovery of a log",
        Unit::BytesPerSecond,
        takes_part(),
        move |turn| {
            let (elapsed, files) = recover(stage, turn, &images, true)?;
            let bytes = keys_of(stage.scale.recovered_bytes) * ENTRY_BYTES;
            let rate = bytes as f64 / elapsed.as_secs_f64();
            Ok(Sample::figure(rate).note("bytes of files", files as f64))
        },
    );
    let images = Images::default();
    let ordinary = Row::new(
        "S8 first read after a kill",
        Unit::Nanoseconds,
        takes_part(),
        move |turn| {
            let (elapsed, files) = recover(stage, turn, &images, false)?;
            let sample = Sample::figure(elapsed.as_nanos() as f64);
            Ok(sample.note("bytes of files", files as f64))
        },
    );
    vec![
        of_log
            .long()
            .remark(format!(
                "{mebibytes} MiB of keys and values in the log, in the page cache; in a process of its own, until the first read is answered",
            ))
            .bound(Bound::AtLeast(0.6e9))
            .beside("RocksDB", Some(10.0))
            .beside("fjall", Some(10.0))
            .beside("SurrealKV", None),
        ordinary
            .long()
            .remark("the same data through a memtable of 64 MiB, killed behind the last put")
            .bound(Bound::AtMost(0.5e9))
            .beside("RocksDB", None)
            .beside("fjall", None)
            .beside("SurrealKV", None),
    ]
}

fn keys_of(bytes: u64) -> u64 {
    bytes / ENTRY_BYTES
}

/// With nothing in tables, neither before nor while it recovers, or with a memtable of the default size.
fn settings(bytes: u64, keep_in_log: bool) -> Settings {
    const ORDINARY_BYTES: usize = 64 << 20;
    Settings {
        durability: Durability::Batched,
        memtable_bytes: match keep_in_log {
            true => (4 * bytes as usize).max(ORDINARY_BYTES),
            false => ORDINARY_BYTES,
        },
        cache_bytes: ORDINARY_BYTES,
    }
}

fn child(stage: &Stage, command: &str, name: &str, path: &Path, keep_in_log: bool) -> Command {
    let mut child = Command::new(&stage.program);
    child.args([command, name]).arg(path);
    child.arg(stage.scale.recovered_bytes.to_string());
    if keep_in_log {
        child.arg("--keep-in-log");
    }
    child
}

/// A process, killed with whoever started it.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself: then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a kill leaves behind.
fn image(stage: &Stage, name: &str, keep_in_log: bool) -> Fallible<PathBuf> {
    let path = stage.fresh_directory(name);
    let mut command = child(stage, "child-write", name, &path, keep_in_log);
    let mut writer = Killed(command.stdout(Stdio::piped()).spawn()?);
    let output = writer.0.stdout.take().ok_or("no output of a process")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    check(line.trim() == WRITTEN, "the process that writes has failed")?;
    drop(writer);
    Ok(path)
}

/// How long it takes until the first read is answered, and how much the files take.
fn recover(
    stage: &Stage,
    turn: Turn,
    images: &Images,
    keep_in_log: bool,
) -> Fallible<(Duration, u64)> {
    let name = stage.system(turn.contestant)?.name;
    let known = images.borrow().get(name).cloned();
    let image = match known {
        Some(image) => image,
        None => {
            let made = image(stage, name, keep_in_log)?;
            images.borrow_mut().insert(name, made.clone());
            made
        }
    };
    let path = stage.fresh_directory(name);
    copy(&image, &path)?;
    let files = allocated_bytes(&path)?;
    let output = child(stage, "child-recover", name, &path, keep_in_log).output()?;
    std::fs::remove_dir_all(&path)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let elapsed_ns: Option<u64> = text.trim().parse().ok();
    match elapsed_ns.filter(|_| output.status.success()) {
        Some(elapsed_ns) => Ok((Duration::from_nanos(elapsed_ns), files)),
        None => {
            let error = String::from_utf8_lossy(&output.stderr);
            Err(format!("the process of its own failed: {text}{error}").into())
        }
    }
}

/// What the process does that is to be killed.
pub fn write_child(name: &str, path: &Path, bytes: u64, keep_in_log: bool) -> Fallible<()> {
    let system = system(name)?;
    let store = (system.open)(path, &settings(bytes, keep_in_log))?;
    flushing(system, &*store, || {
        fill(&*store, 0..keys_of(bytes), VALUE_BYTES)
    })?;
    store.sync()?;
    let mut output = std::io::stdout();
    writeln!(output, "{WRITTEN}")?;
    output.flush()?;
    loop {
        std::thread::park();
    }
}

/// What the process does that recovers: gives how long it took until the first read was answered.
pub fn recover_child(name: &str, path: &Path, bytes: u64, keep_in_log: bool) -> Fallible<Duration> {
    let system = system(name)?;
    let keys = keys_of(bytes);
    let (elapsed, store) = time(|| {
        let store = (system.open)(path, &settings(bytes, keep_in_log))?;
        check_key(&*store, keys - 1)?;
        Ok(store)
    })?;
    let mut rng = Rng::with_seed(SEED);
    for _ in 0..1_000 {
        check_key(&*store, rng.u64(..keys))?;
    }
    Ok(elapsed)
}

fn check_key(store: &dyn Store, number: u64) -> Fallible<()> {
    let mut see = |value: &[u8]| {
        let is_right = is_value_of(value, number, VALUE_BYTES);
        check(is_right, "another value after recovery")
    };
    let found = store.reader()?.get(&key(number), &mut see)?;
    check(found, "a key is gone after recovery")
}
