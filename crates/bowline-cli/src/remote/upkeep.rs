//! `compact`, `defrag`, `alarm`, `snapshot save` on a cluster.

use std::io::Write;
use std::path::Path;

use futures_util::StreamExt;
use sha2::{Digest, Sha256};

use crate::args::Compact;
use crate::args::cluster::{Alarm, Snapshot};
use crate::commands::restore;
use crate::context::{Context, usage};
use crate::exit::{Exit, Failure};
use crate::output::hexadecimal;
use crate::private_file::PrivateFile;
use crate::store::connection::{Remote, member_id};

pub(crate) fn compact(context: &mut Context<'_, '_>, args: &Compact) -> Result<(), Failure> {
    let Some(revision) = args.revision else {
        let text = "say up to which revision the cluster is to give up its history; defrag gives \
                    space back to the disks";
        return Err(usage(text.to_owned()));
    };
    let remote = Remote::of(context)?;
    let header = remote.wait(remote.client.compact(revision, true))?;
    Ok(context.printer(false).record(&[
        ("oldest_revision", revision.into()),
        ("revision", header.revision.into()),
    ])?)
}

pub(crate) fn defrag(context: &mut Context<'_, '_>) -> Result<(), Failure> {
    for endpoint in context.endpoints() {
        let remote = Remote::to(vec![endpoint.clone()], context.read_level())?;
        let before = remote.wait(remote.client.status())?.db_size_bytes;
        remote.wait(remote.client.defragment())?;
        let after = remote.wait(remote.client.status())?.db_size_bytes;
        context.printer(false).record(&[
            ("endpoint", endpoint.into()),
            ("bytes_before", before.into()),
            ("bytes", after.into()),
        ])?;
    }
    Ok(())
}

pub(crate) fn alarm(context: &mut Context<'_, '_>, args: &Alarm) -> Result<(), Failure> {
    let remote = Remote::of(context)?;
    let alarms = match args {
        Alarm::List => remote.wait(remote.client.alarms())?,
        Alarm::Disarm => remote.wait(remote.client.disarm())?,
    };
    let mut printer = context.printer(false);
    let mut rows = printer.rows(&["member", "alarm"]);
    for alarm in alarms {
        rows.push(vec![
            member_id(alarm.member_id).into(),
            alarm.kind.to_string().into(),
        ])?;
    }
    rows.finish()?;
    Ok(())
}

pub(crate) fn snapshot(context: &mut Context<'_, '_>, args: &Snapshot) -> Result<(), Failure> {
    let file = match args {
        Snapshot::Save { file } => file,
        Snapshot::Status { file } => return restore::status(context, file),
        Snapshot::Restore(args) => return restore::run(context, args),
    };
    let remote = Remote::of(context)?;
    let (bytes, hash) = save(&remote, file)?;
    Ok(context.printer(false).record(&[
        ("path", file.display().to_string().into()),
        ("bytes", bytes.into()),
        ("sha256", hexadecimal(&hash).into()),
    ])?)
}

/// Writes a snapshot to a file. Gives its bytes and its hash.
fn save(remote: &Remote, path: &Path) -> Result<(u64, Vec<u8>), Failure> {
    let mut file = PrivateFile::create(path)?;
    let mut verifier = Verifier::default();
    remote.runtime.block_on(async {
        let mut snapshot = remote.client.snapshot().await?;
        while let Some(chunk) = snapshot.next().await {
            let chunk = chunk?;
            verifier.add(&chunk);
            file.write_all(&chunk)?;
        }
        Ok::<_, Failure>(())
    })?;
    let bytes = verifier.bytes;
    let hash = verifier.finish()?;
    file.commit()?;
    Ok((bytes, hash))
}

/// Sees that a snapshot ends with the SHA-256 of what comes before.
#[derive(Default)]
struct Verifier {
    hasher: Sha256,
    /// The last bytes, which may be the hash.
    tail: Vec<u8>,
    bytes: u64,
}

const HASH_BYTES: usize = 32;

impl Verifier {
    fn add(&mut self, chunk: &[u8]) {
        self.bytes += u64::try_from(chunk.len()).unwrap_or(0);
        self.tail.extend_from_slice(chunk);
        let content = self.tail.len().saturating_sub(HASH_BYTES);
        self.hasher.update(&self.tail[..content]);
        self.tail.drain(..content);
    }

    fn finish(self) -> Result<Vec<u8>, Failure> {
        // A database is whole sectors.
        let is_whole = self.bytes % 512 == HASH_BYTES as u64;
        if is_whole && self.hasher.finalize()[..] == self.tail[..] {
            return Ok(self.tail);
        }
        let text = "the snapshot is damaged: its hash is not that of its bytes";
        Err(Failure::new(Exit::Corrupt, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_whole_or_refused() {
        let content = [7; 1024];
        let whole = [&content[..], &Sha256::digest(content)[..]].concat();
        for size in [1, 31, 32, 33, 500, 2_000] {
            let verify = |bytes: &[u8]| {
                let mut verifier = Verifier::default();
                bytes.chunks(size).for_each(|chunk| verifier.add(chunk));
                verifier.finish()
            };
            assert_eq!(verify(&whole).unwrap(), whole[1024..]);
            assert_eq!(verify(&whole[..1055]).unwrap_err().exit, Exit::Corrupt);
            assert_eq!(verify(&whole[..544]).unwrap_err().exit, Exit::Corrupt);
            assert!(verify(&[]).is_err());
            let mut flipped = whole.clone();
            flipped[100] ^= 1;
            assert!(verify(&flipped).is_err());
        }
    }
}
