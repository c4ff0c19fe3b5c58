//! `snapshot restore` and `snapshot status`: what is done with the file, without a server.

use std::path::Path;

use bowline_server::RestoreError;
use bowline_server::config::{Config, ConfigError, Layers};

use super::serve;
use crate::args::cluster::Restore;
use crate::context::Context;
use crate::exit::{Exit, Failure, with_sources};
use crate::output::hexadecimal;

pub(crate) fn status(context: &mut Context<'_, '_>, file: &Path) -> Result<(), Failure> {
    let found = bowline_server::snapshot_summary(file).map_err(|error| failure(&error))?;
    Ok(context.printer(false).record(&[
        ("path", file.display().to_string().into()),
        ("revision", found.revision.into()),
        ("entries", found.entries.into()),
        ("tables", found.tables.into()),
        ("bytes", found.bytes.into()),
        ("sha256", hexadecimal(&found.sha256).into()),
    ])?)
}

pub(crate) fn run(context: &mut Context<'_, '_>, args: &Restore) -> Result<(), Failure> {
    let config = configure(args).map_err(|error| serve::config_failure(&error))?;
    let restored = bowline_server::restore_snapshot(&args.file, &config);
    let restored = restored.map_err(|error| failure(&error))?;
    Ok(context.printer(false).record(&[
        ("path", config.node.data_dir.display().to_string().into()),
        ("cluster", format!("{:x}", restored.cluster_id).into()),
        ("member", format!("{:x}", restored.member_id).into()),
        ("revision", restored.revision.into()),
    ])?)
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
        RestoreError::NotEmpty { .. } => Exit::Invalid,
        RestoreError::Node(error) => serve::of_node(error),
        _ => Exit::Internal,
    };
    Failure::new(exit, with_sources(error))
}
