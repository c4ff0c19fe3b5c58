//! openraft's own tests of a storage, over the real log.

mod common;

use std::io;
use std::sync::Arc;

use bowline_cluster::raft::log_store::{LogReader, LogStore, LogStoreOptions};
use bowline_cluster::types::{Entry, LogId, TypeConfig, Vote};
use bowline_storage::log::Log;
use bowline_testing::SimDisk;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::{OptionalSend, StorageError};
use parking_lot::Mutex;

use common::{Machine, State, open_store};

/// The suite begins logs anywhere, without a snapshot before. Here the test plays the part of the
/// snapshot's installer.
struct AnywhereLog(LogStore);

impl RaftLogStorage<TypeConfig> for AnywhereLog {
    type LogReader = LogReader;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        self.0.get_log_state().await
    }

    async fn get_log_reader(&mut self) -> LogReader {
        self.0.get_log_reader().await
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        self.0.save_vote(vote).await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        self.0.save_committed(committed).await
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        self.0.read_committed().await
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: IOFlushed<TypeConfig>,
    ) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        if let Some(first) = entries.first() {
            self.0.flush().await?;
            let next_index = self.0.with_log(Log::next_index);
            if next_index != Some(first.log_id.index + 1) {
                let LogId { leader_id, index } = first.log_id;
                let last = LogId::new(leader_id, index - 1);
                self.0.restart_behind(last).await?;
            }
        }
        self.0.append(entries, callback).await
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        self.0.truncate_after(last_log_id).await
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        self.0.purge(log_id).await
    }
}

struct Builder(LogStoreOptions);

impl StoreBuilder<TypeConfig, AnywhereLog, Machine> for Builder {
    async fn build(&self) -> Result<((), AnywhereLog, Machine), StorageError<TypeConfig>> {
        let disk = Arc::new(SimDisk::new());
        let log = open_store(disk.clone(), 1, None, self.0.clone());
        let state = Arc::new(Mutex::new(State::default()));
        Ok(((), AnywhereLog(log), Machine::new(disk, state, None)))
    }
}

#[test]
fn the_log_passes_the_tests_of_openraft() {
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    let suite = Suite::test_all(Builder(LogStoreOptions::default()));
    runtime.block_on(suite).expect("suite");
}

/// The same with next to nothing in memory: everything is read from disk.
#[test]
fn the_log_passes_the_tests_of_openraft_without_a_cache() {
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    let options = LogStoreOptions {
        cache_bytes: 0,
        read_bytes: 1,
        ..LogStoreOptions::default()
    };
    let suite = Suite::test_all(Builder(options));
    runtime.block_on(suite).expect("suite");
}
