//! The stream of `Maintenance.Snapshot`.
//!
//! It is a [`SnapshotFile`](crate::snapshot_file) followed by the SHA-256 of everything before it, as etcd's
//! tools expect it. A dedicated thread reads the tables, no faster than the client takes them.

use std::sync::Arc;

use bowline::vfs::VfsFile;
use bowline_cluster::{Frozen, LocalClient};
use bowline_proto::etcdserverpb as pb;
use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::context::Context;
use crate::memory::{Charge, current_account};
use crate::snapshot_file::SnapshotFile;
use crate::status::{Fault, status};
use crate::version::CLUSTER_VERSION;

const CHUNK_BYTES: usize = 64 << 10;

type Replies = ReceiverStream<Result<pb::SnapshotResponse, Status>>;

/// Starts the stream. The turn is kept until the last chunk is handed over.
pub(super) fn stream(
    context: &Arc<Context>,
    turn: OwnedSemaphorePermit,
) -> Result<Replies, Status> {
    /// Chunks that wait for the client.
    const WAITING_MAX: usize = 4;
    // With the one being made, and one on its way.
    let bytes = (WAITING_MAX + 2) * CHUNK_BYTES;
    let charge = Charge::of(&current_account(&context.memory), bytes)?;
    let (replies, receiver) = mpsc::channel(WAITING_MAX);
    let context = context.clone();
    tokio::task::spawn_blocking(move || {
        let _held = (turn, charge);
        let frozen = match context.client.freeze() {
            // The log is empty, so nothing could be restored from it.
            Ok(frozen) if frozen.index == 0 => {
                let _ = replies.blocking_send(Err(Fault::NoLeader.into()));
                return;
            }
            Ok(frozen) => frozen,
            Err(error) => {
                let _ = replies.blocking_send(Err(status(error)));
                return;
            }
        };
        let mut sender = Sender {
            header: context.header(frozen.revision, context.term()),
            remaining: 0,
            hash: Sha256::new(),
            replies,
            client: context.client.clone(),
        };
        if let Err(Some(fault)) = sender.send_all(&frozen) {
            // An error means that the client has disconnected.
            let _ = sender.replies.blocking_send(Err(fault.into()));
        }
    });
    Ok(ReceiverStream::new(receiver))
}

struct Sender {
    header: Option<pb::ResponseHeader>,
    /// The bytes that follow, without the hash.
    remaining: u64,
    hash: Sha256,
    client: LocalClient,
    replies: mpsc::Sender<Result<pb::SnapshotResponse, Status>>,
}

impl Sender {
    /// An error without a fault means that the client has disconnected.
    fn send_all(&mut self, frozen: &Frozen) -> Result<(), Option<Fault>> {
        let file = SnapshotFile::of(frozen);
        let head = file.encode_head().map_err(Fault::Internal)?;
        let tables: u64 = frozen.tables.iter().map(|table| table.bytes).sum();
        let unpadded = head.len() as u64 + tables;
        let padding = unpadded.next_multiple_of(SnapshotFile::ALIGNMENT) - unpadded;
        self.remaining = unpadded + padding;
        for chunk in head.chunks(CHUNK_BYTES) {
            self.send(Bytes::copy_from_slice(chunk))?;
        }
        for table in &frozen.tables {
            // The hash is of what is sent: a rotten backup would be found out when it is needed.
            let checked = self.client.check_table(table);
            checked.map_err(|error| {
                let name = &table.name;
                Fault::Internal(format!("{name} is damaged, so it is not sent: {error}"))
            })?;
            self.send_file(&table.name, &*table.file, table.bytes)?;
        }
        if padding > 0 {
            self.send(vec![0; padding as usize].into())?;
        }
        let hash = self.hash.finalize_reset();
        self.reply(Bytes::copy_from_slice(&hash))
    }

    fn send_file(
        &mut self,
        name: &str,
        file: &dyn VfsFile,
        bytes: u64,
    ) -> Result<(), Option<Fault>> {
        let mut offset = 0;
        while offset < bytes {
            let len = (bytes - offset).min(CHUNK_BYTES as u64) as usize;
            let mut chunk = BytesMut::zeroed(len);
            let read = file
                .read_at(&mut chunk, offset)
                .map_err(|error| Fault::Internal(format!("cannot read {name}: {error}")))?;
            if read == 0 {
                let text = format!("{name} has {offset} bytes, not {bytes}");
                return Err(Some(Fault::Internal(text)));
            }
            chunk.truncate(read);
            offset += read as u64;
            self.send(chunk.freeze())?;
        }
        Ok(())
    }

    fn send(&mut self, blob: Bytes) -> Result<(), Option<Fault>> {
        self.hash.update(&blob);
        self.remaining -= blob.len() as u64;
        self.reply(blob)
    }

    fn reply(&mut self, blob: Bytes) -> Result<(), Option<Fault>> {
        let reply = pb::SnapshotResponse {
            header: self.header,
            remaining_bytes: self.remaining,
            blob,
            version: CLUSTER_VERSION.to_owned(),
        };
        self.replies.blocking_send(Ok(reply)).map_err(|_| None)
    }
}
