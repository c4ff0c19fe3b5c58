//! `snapshot save`, which a member sends; `snapshot status` and `snapshot restore`, which need no server.

use std::io::Write;
use std::path::Path;

use bowline_server::RestoreError;
use bowline_server::config::{Config, ConfigError, Layers};
use futures_util::StreamExt;
use sha2::{Digest, Sha256};

use super::serve;
use crate::args::cluster::{Restore, Snapshot};
use crate::context::Context;
use crate::exit::{Exit, Failure, with_sources};
use crate::output::hexadecimal;
use crate::private_file::PrivateFile;
use crate::remote::{KEYS_TIMEOUT, Remote};

pub(crate) fn run(context: &mut Context<'_, '_>, args: &Snapshot) -> Result<(), Failure> {
    let file = match args {
        Snapshot::Save { file } => file,
        Snapshot::Status { file } => return status(context, file),
        Snapshot::Restore(args) => return restore(context, args),
    };
    let remote = context.remote(KEYS_TIMEOUT)?;
    let (bytes, hash) = save(&remote, file)?;
    context.record(&[
        ("path", file.display().to_string().into()),
        ("bytes", bytes.into()),
        ("sha256", hexadecimal(&hash).into()),
    ])
}

fn status(context: &mut Context<'_, '_>, file: &Path) -> Result<(), Failure> {
    let found = bowline_server::snapshot_summary(file).map_err(|error| failure(&error))?;
    context.record(&[
        ("path", file.display().to_string().into()),
        ("revision", found.revision.into()),
        ("entries", found.entries.into()),
        ("tables", found.tables.into()),
        ("bytes", found.bytes.into()),
        ("sha256", hexadecimal(&found.sha256).into()),
    ])
}

fn restore(context: &mut Context<'_, '_>, args: &Restore) -> Result<(), Failure> {
    let config = configure(args).map_err(|error| serve::config_failure(&error))?;
    let restored = bowline_server::restore_snapshot(&args.file, &config);
    let restored = restored.map_err(|error| failure(&error))?;
    context.record(&[
        ("path", config.node.data_dir.display().to_string().into()),
        ("cluster", format!("{:x}", restored.cluster_id).into()),
        ("member", format!("{:x}", restored.member_id).into()),
        ("revision", restored.revision.into()),
    ])
}

/// The settings of a server that would serve the directory.
fn configure(args: &Restore) -> Result<Config, ConfigError> {
    let mut layers = Layers::default();
    layers.add_environment(|name| std::env::var(name).ok());
    let data_dir = args.data_dir.0.as_ref();
    let data_dir = data_dir.map(|path| path.to_string_lossy().into_owned());
    for (key, value) in [
        ("data-dir", &data_dir),
        ("name", &args.name),
        ("initial-cluster", &args.initial_cluster),
        (
            "initial-advertise-peer-urls",
            &args.initial_advertise_peer_urls,
        ),
        ("initial-cluster-token", &args.initial_cluster_token),
    ] {
        if let Some(value) = value {
            layers.add_flag(key, value.clone())?;
        }
    }
    Config::from_layers(&layers)
}

fn failure(error: &RestoreError) -> Failure {
    let exit = match error {
        RestoreError::Unreadable { .. } => Exit::Io,
        RestoreError::Damaged { .. } => Exit::Corrupt,
        RestoreError::NotEmpty { .. } | RestoreError::NotASnapshot { .. } => Exit::Invalid,
        RestoreError::Node(error) => serve::of_node(error),
        // The enum may grow.
        _ => Exit::Internal,
    };
    Failure::new(exit, with_sources(error))
}

/// Writes a snapshot to a file. Gives its bytes and its hash.
fn save(remote: &Remote, path: &Path) -> Result<(u64, Vec<u8>), Failure> {
    let mut file = PrivateFile::create(path)?;
    let mut verifier = Verifier::default();
    remote.outcome(async {
        let mut snapshot = remote.client.snapshot().await?;
        while let Some(chunk) = snapshot.next().await {
            let chunk = chunk?;
            verifier.add(&chunk);
            file.write_all(&chunk)?;
        }
        Ok::<_, Failure>(())
    })??;
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
