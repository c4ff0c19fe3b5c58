//! The log store on a disk with power losses: what a callback promised is there, and what was truncated is
//! not.

mod crash;
mod opening;
mod space;
mod vouch;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bowline_storage::Index;
use bowline_storage::counters::Counters;
use bowline_storage::log::{Log, LogOptions};
use bowline_storage::vfs::Vfs;
use bowline_storage::workers::Background;
use openraft::RaftLogReader;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use tokio::sync::oneshot;

use super::*;
use crate::member_file::MemberState;
use crate::types::{Payload, Proposal, log_id};

const DIR: &str = "data";

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 16 << 10,
        first_segment_bytes: 8 << 10,
        background: Background::Manual,
        spares_max: 1,
        owner: 5,
    }
}

fn open_log(
    vfs: Arc<dyn Vfs>,
    flushed: Index,
    replay: &mut Replay,
) -> bowline_storage::Result<Log> {
    Log::open(
        vfs,
        Path::new(DIR).join("log"),
        options(),
        Arc::new(Counters::default()),
        flushed,
        false,
        &mut |index, bytes| replay.visit(index, bytes),
    )
}

fn open(vfs: Arc<dyn Vfs>, flushed: Index, applied: Option<LogId>) -> LogStore {
    open_vouching(vfs, flushed, applied, Duration::from_secs(3_600))
}

/// [`open`] with this `vouch_after`.
fn open_vouching(
    vfs: Arc<dyn Vfs>,
    flushed: Index,
    applied: Option<LogId>,
    vouch_after: Duration,
) -> LogStore {
    let dir = Path::new(DIR);
    match vfs.create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => panic!("{error}"),
        _ => vfs.sync_dir(Path::new("")).expect("sync"),
    }
    let member = if MemberFile::exists(&*vfs, dir).expect("stat") {
        MemberFile::open(&*vfs, dir).expect("member")
    } else {
        MemberFile::create(&*vfs, dir, MemberState::new(1, 1)).expect("member")
    };
    let mut replay = Replay::new(dir.join("log"));
    let log = open_log(vfs, flushed, &mut replay).expect("log");
    let options = LogStoreOptions {
        cache_bytes: 1000,
        read_bytes: 500,
        vouch_after,
    };
    LogStore::open(log, &replay, flushed, applied, Arc::new(member), options).expect("store")
}

fn entry(term: u64, index: u64) -> Entry {
    let payload = format!("{term}-{index}-{}", "x".repeat(index as usize % 300));
    Entry {
        log_id: log_id(term, 1, index),
        payload: Payload::Normal(Proposal(payload.into())),
    }
}

/// Appends entries; the receiver completes when they are durable.
async fn append(
    store: &mut LogStore,
    entries: impl IntoIterator<Item = Entry>,
) -> oneshot::Receiver<Result<(), io::Error>> {
    let (sender, receiver) = TypeConfig::oneshot();
    let callback = IOFlushed::signal(sender);
    let entries: Vec<_> = entries.into_iter().collect();
    store.append(entries, callback).await.expect("append");
    receiver
}

async fn append_durably(store: &mut LogStore, entries: impl IntoIterator<Item = Entry>) {
    append(store, entries)
        .await
        .await
        .expect("called back")
        .expect("durable");
}

/// Waits until the writing thread has done all that it can: it waits for more work, however long.
async fn wait_until_at_rest(store: &LogStore) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !store.shared.queue.is_at_rest() {
        assert!(tokio::time::Instant::now() < deadline, "it never rests");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn ids(store: &mut LogStore) -> Vec<(u64, u64)> {
    let mut reader = store.get_log_reader().await;
    let entries = reader.try_get_log_entries(..).await.expect("read");
    let id = |entry: &Entry| (entry.log_id.leader_id.term, entry.log_id.index);
    let found: Vec<_> = entries.iter().map(id).collect();
    for found in &entries {
        let id = found.log_id;
        assert_eq!(
            *found,
            entry(id.leader_id.term, id.index),
            "as it was written"
        );
    }
    found
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .expect("runtime")
        .block_on(future)
}
