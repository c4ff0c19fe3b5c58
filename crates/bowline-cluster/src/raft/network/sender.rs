//! The sender of a snapshot: its head, then its files in chunks.
//!
//! A blocking thread reads the files, a few chunks ahead of the connection. The whole transfer, which may be
//! terabytes, has no time limit; the time without progress has.
//!
//! Invariant: every table and blob file is verified before anything is sent; a checksum detects a change
//! between that and the sending.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline_proto::peer::peer_client::PeerClient as GrpcClient;
use bowline_proto::peer::snapshot_chunk::Part;
use bowline_proto::peer::{FileChunk, SnapshotChunk, SnapshotHead};
use bowline_storage::vfs;
use openraft::alias::SnapshotOf;
use openraft::raft::SnapshotResponse;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::Channel;

use super::wire;
use crate::peer::link::Link;
use crate::peer::{CHUNK_BYTES, OutgoingFile, Peers, SnapshotData, Traffic};
use crate::types::{TypeConfig, Vote};

/// The number of chunks read ahead.
const CHUNKS_AHEAD: usize = 4;

type Files = Vec<OutgoingFile>;

/// Sends `snapshot`; returns when the peer has installed it, or has refused it.
pub(super) async fn send(
    mut client: GrpcClient<Channel>,
    peers: &Peers,
    vote: &Vote,
    snapshot: SnapshotOf<TypeConfig, SnapshotData>,
    link: &Link,
    limit: Duration,
    is_repair: bool,
) -> Result<SnapshotResponse<TypeConfig>, Status> {
    let (state, files) = match snapshot.snapshot {
        SnapshotData::Outgoing { state, files } => (state, files),
        SnapshotData::Incoming { .. } => {
            return Err(Status::internal(
                "a snapshot that arrived is not for sending",
            ));
        }
    };
    // Not earlier, since most snapshots are never sent.
    let described = crate::blocking::spawn(move || describe(files));
    let files = described
        .await
        .map_err(|error| Status::internal(error.to_string()))?;
    let files = files.map_err(|unreadable| {
        let Unreadable { reason, is_damage } = unreadable;
        link.snapshot_unreadable(&reason);
        if is_damage {
            peers.note_damage(reason.clone());
        }
        Status::unavailable(reason)
    })?;
    let sender = peers.sender(link);
    let id = format!("{:016x}-{:016x}", sender.member_id, fastrand::u64(..));
    let described = files.iter().map(|file| file.described.clone());
    let head = wire::put_head(sender, vote, &snapshot.meta, id, state, described);
    let head = SnapshotHead { is_repair, ..head };
    let (chunks, receiver) = mpsc::channel(CHUNKS_AHEAD);
    let progress = Arc::new(AtomicU64::new(0));
    let (counter, traffic) = (progress.clone(), link.traffic().clone());
    let reading = crate::blocking::spawn_waiting(async move {
        let head = SnapshotChunk {
            part: Some(Part::Head(head)),
        };
        match chunks.send(head).await {
            Ok(()) => read_files(&files, &chunks, &counter, &traffic).await,
            // The call has ended, and its result has the reason.
            Err(_) => Ok(()),
        }
    });
    let call = client.snapshot(ReceiverStream::new(receiver));
    tokio::pin!(call);
    let mut last_progress = 0;
    let answered = loop {
        match tokio::time::timeout(limit, &mut call).await {
            Ok(answered) => break answered,
            Err(_) => {
                let now = progress.load(Ordering::Relaxed);
                if now == last_progress {
                    let reason = format!("a snapshot made no progress in {limit:?}");
                    return Err(Status::deadline_exceeded(reason));
                }
                last_progress = now;
            }
        }
    };
    match answered {
        Ok(reply) => Ok(SnapshotResponse::new(wire::get_vote(
            reply.into_inner().vote,
        )?)),
        Err(status) => {
            // If our own files cannot be read, the peer only sees the stream end.
            if reading.is_finished()
                && let Ok(Err(reason)) = reading.await
            {
                link.snapshot_unreadable(&reason);
                return Err(Status::unavailable(reason));
            }
            Err(status)
        }
    }
}

/// Verifies every file, and computes its checksum. A damaged file is not sent: the receiver would be damaged,
/// too.
/// Why no snapshot can be sent.
struct Unreadable {
    reason: String,
    /// Whether bytes of a table are damaged.
    is_damage: bool,
}

fn describe(mut files: Files) -> Result<Files, Unreadable> {
    let mut data = vec![0; CHUNK_BYTES];
    for OutgoingFile {
        described,
        file,
        table,
    } in &mut files
    {
        if let Some(table) = table {
            table.verify().map_err(|error| {
                let name = &described.name;
                Unreadable {
                    reason: format!("{name} is damaged here, so no snapshot is sent: {error}"),
                    is_damage: error.is_corruption(),
                }
            })?;
        }
        let path = Path::new(&described.name);
        described.crc32c = 0;
        let mut offset = 0;
        while offset < described.bytes {
            let len = (described.bytes - offset).min(CHUNK_BYTES as u64) as usize;
            let read = vfs::read_exact_at(&**file, path, &mut data[..len], offset);
            read.map_err(|error| Unreadable {
                reason: error.to_string(),
                is_damage: false,
            })?;
            described.crc32c = crc32c::crc32c_append(described.crc32c, &data[..len]);
            offset += len as u64;
        }
    }
    Ok(files)
}

async fn read_files(
    files: &Files,
    chunks: &mpsc::Sender<SnapshotChunk>,
    progress: &AtomicU64,
    traffic: &Traffic,
) -> Result<(), String> {
    for (
        number,
        OutgoingFile {
            described, file, ..
        },
    ) in (0..).zip(files)
    {
        let path = Path::new(&described.name);
        let mut crc = 0;
        let mut offset = 0;
        while offset < described.bytes {
            let len = (described.bytes - offset).min(CHUNK_BYTES as u64) as usize;
            let mut data = vec![0; len];
            vfs::read_exact_at(&**file, path, &mut data, offset)
                .map_err(|error| error.to_string())?;
            crc = crc32c::crc32c_append(crc, &data);
            let chunk = FileChunk {
                file: number,
                offset,
                crc32c: crc32c::crc32c(&data),
                data: data.into(),
            };
            offset += len as u64;
            let part = Some(Part::Chunk(chunk));
            if chunks.send(SnapshotChunk { part }).await.is_err() {
                return Ok(());
            }
            traffic.sent(len as u64);
            progress.fetch_add(1, Ordering::Relaxed);
        }
        if crc != described.crc32c {
            return Err(format!("{} is not what was described", described.name));
        }
    }
    Ok(())
}
