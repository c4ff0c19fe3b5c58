//! What the tests share: a log store on a disk in memory, and a state machine that keeps what was
//! proposed in a list.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowline_cluster::member_file::{MemberFile, MemberState};
use bowline_cluster::peer::{OutgoingFile, SnapshotData, SnapshotFile};
use bowline_cluster::raft::log_store::{LogStore, LogStoreOptions, Replay};
use bowline_cluster::types::{Applied, LogId, Payload, SnapshotMeta, StoredMembership, TypeConfig};
use bowline_storage::counters::Counters;
use bowline_storage::log::{Log, LogOptions};
use bowline_storage::vfs::{self, OpenMode, Vfs};
use bowline_storage::workers::Background;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use openraft::alias::SnapshotOf;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend};
use parking_lot::Mutex;

pub const DIR: &str = "data";

pub fn log_options() -> LogOptions {
    LogOptions {
        segment_bytes: 64 << 10,
        first_segment_bytes: 16 << 10,
        background: Background::Manual,
        spares_max: 2,
        owner: 7,
    }
}

/// Opens, or makes, the store of a member in `DIR`.
pub fn open_store(
    vfs: Arc<dyn Vfs>,
    member_id: u64,
    applied: Option<LogId>,
    options: LogStoreOptions,
) -> LogStore {
    let dir = Path::new(DIR);
    match vfs.create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => panic!("{error}"),
        _ => vfs.sync_dir(Path::new("")).expect("sync"),
    }
    let member = if MemberFile::exists(&*vfs, dir).expect("stat") {
        MemberFile::open(&*vfs, dir)
    } else {
        MemberFile::create(&*vfs, dir, MemberState::new(99, member_id))
    };
    let flushed = applied.map_or(0, |id| id.index + 1);
    let log_dir = dir.join("log");
    let mut replay = Replay::new(log_dir.clone());
    let log = Log::open(
        vfs,
        log_dir,
        log_options(),
        Arc::new(Counters::default()),
        flushed,
        false,
        &mut |index, bytes| replay.visit(index, bytes),
    )
    .expect("open the log");
    let member = Arc::new(member.expect("the member's file"));
    LogStore::open(log, &replay, flushed, applied, member, options).expect("open the store")
}

#[derive(Clone, Default, Debug)]
pub struct State {
    pub applied: Option<LogId>,
    pub membership: StoredMembership,
    pub values: Vec<Bytes>,
    snapshot: Option<Taken>,
}

#[derive(Clone, Debug)]
struct Taken {
    meta: SnapshotMeta,
    values: Vec<Bytes>,
}

/// A list of what was proposed. Its state outlives it, as tables would.
#[derive(Clone, Debug)]
pub struct Machine {
    pub state: Arc<Mutex<State>>,
    vfs: Arc<dyn Vfs>,
    /// Told of the gap when a snapshot is installed.
    log: Option<LogStore>,
}

impl Machine {
    /// A snapshot does not outlive the process: openraft has a new one made, and refuses one that
    /// ends before what is purged.
    pub fn new(vfs: Arc<dyn Vfs>, state: Arc<Mutex<State>>, log: Option<LogStore>) -> Machine {
        state.lock().snapshot = None;
        Machine { state, vfs, log }
    }

    fn data(&self, taken: &Taken) -> io::Result<SnapshotData> {
        let contents: Vec<u8> = taken
            .values
            .iter()
            .flat_map(|value| [&(value.len() as u32).to_le_bytes()[..], value].concat())
            .collect();
        let number = fastrand::u64(..);
        let path = PathBuf::from(format!("snapshot-{number:016x}"));
        let file = self.vfs.open(&path, OpenMode::CreateNew)?;
        vfs::write_all_at(&*file, &path, &contents, 0).map_err(io::Error::other)?;
        let described = SnapshotFile {
            name: "values".to_owned(),
            bytes: contents.len() as u64,
            crc32c: crc32c::crc32c(&contents),
        };
        // An empty one too, which has no chunk.
        let path = PathBuf::from(format!("empty-{number:016x}"));
        let empty = self.vfs.open(&path, OpenMode::CreateNew)?;
        let described_empty = SnapshotFile {
            name: "empty".to_owned(),
            bytes: 0,
            crc32c: 0,
        };
        Ok(SnapshotData::Outgoing {
            state: Bytes::copy_from_slice(&(taken.values.len() as u64).to_le_bytes()),
            files: vec![
                OutgoingFile {
                    described,
                    file,
                    table: None,
                },
                OutgoingFile {
                    described: described_empty,
                    file: empty,
                    table: None,
                },
            ],
        })
    }
}

impl RaftSnapshotBuilder<TypeConfig> for Machine {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<TypeConfig, SnapshotData>> {
        let taken = {
            let mut state = self.state.lock();
            let taken = Taken {
                meta: SnapshotMeta {
                    last_log_id: state.applied,
                    last_membership: state.membership.clone(),
                },
                values: state.values.clone(),
            };
            state.snapshot = Some(taken.clone());
            taken
        };
        Ok(SnapshotOf::<TypeConfig, SnapshotData> {
            snapshot: self.data(&taken)?,
            meta: taken.meta,
        })
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = Machine;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let state = self.state.lock();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let mut state = self.state.lock();
            state.applied = Some(entry.log_id);
            match entry.payload {
                Payload::Blank => {}
                Payload::Normal(proposal) => state.values.push(proposal.0),
                EntryPayload::Membership(membership) => {
                    state.membership = StoredMembership::new(Some(entry.log_id), membership);
                }
            }
            let count = state.values.len() as u64;
            drop(state);
            if let Some(responder) = responder {
                responder.send(Applied(Some(Arc::new(count))));
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Machine {
        self.clone()
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        data: SnapshotData,
    ) -> io::Result<()> {
        let (count, contents) = match data {
            SnapshotData::Outgoing { state, files } => {
                let mut contents = vec![0; files[0].described.bytes as usize];
                vfs::read_exact_at(&*files[0].file, Path::new("out"), &mut contents, 0)
                    .map_err(io::Error::other)?;
                (state, contents)
            }
            SnapshotData::Incoming {
                state,
                directory,
                files,
                ..
            } => {
                assert_eq!(files.len(), 2);
                assert_eq!(
                    self.vfs.metadata(&directory.join("empty"))?.map(|m| m.len),
                    Some(0)
                );
                let path = directory.join(&files[0].name);
                let contents = vfs::read_file(&*self.vfs, &path, 1 << 30);
                (state, contents.map_err(io::Error::other)?)
            }
        };
        let mut values = Vec::new();
        let mut rest = &contents[..];
        while let Some((len, after)) = rest.split_first_chunk::<4>() {
            let (value, after) = after.split_at(u32::from_le_bytes(*len) as usize);
            values.push(Bytes::copy_from_slice(value));
            rest = after;
        }
        assert_eq!(count[..], (values.len() as u64).to_le_bytes());
        {
            let mut state = self.state.lock();
            state.applied = meta.last_log_id;
            state.membership = meta.last_membership.clone();
            state.values = values.clone();
            let meta = meta.clone();
            state.snapshot = Some(Taken { meta, values });
        }
        if let (Some(log), Some(last)) = (&self.log, meta.last_log_id) {
            let holds = log.holds(&last).await.map_err(io::Error::from)?;
            if !holds {
                log.restart_behind(last).await.map_err(io::Error::from)?;
            }
            log.set_flushed(last.index + 1);
        }
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> io::Result<Option<SnapshotOf<TypeConfig, SnapshotData>>> {
        let taken = self.state.lock().snapshot.clone();
        let Some(taken) = taken else {
            return Ok(None);
        };
        Ok(Some(SnapshotOf::<TypeConfig, SnapshotData> {
            snapshot: self.data(&taken)?,
            meta: taken.meta,
        }))
    }
}

pub fn members(ids: &[u64]) -> BTreeMap<u64, bowline_cluster::types::Member> {
    ids.iter()
        .map(|id| (*id, bowline_cluster::types::Member::default()))
        .collect()
}
