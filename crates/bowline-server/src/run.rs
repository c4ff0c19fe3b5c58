//! A server as a process: its log, its threads, its signals.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

use crate::config::Config;
use crate::server::{ServeError, Server};

/// Serves until SIGTERM or SIGINT, and then ends cleanly. A second signal ends it at once.
///
/// # Errors
/// See [`ServeError`].
pub fn run(config: Config) -> Result<(), ServeError> {
    start_log(&config);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("bowline-serve")
        .enable_all()
        .build()
        .map_err(|source| ServeError::System {
            what: "threads",
            source,
        })?;
    runtime.block_on(serve(config))
}

async fn serve(config: Config) -> Result<(), ServeError> {
    let refused = |source| ServeError::System {
        what: "a signal handler",
        source,
    };
    let mut terminated = signal(SignalKind::terminate()).map_err(refused)?;
    let mut interrupted = signal(SignalKind::interrupt()).map_err(refused)?;
    let server = Server::start(config).await?;
    tracing::info!("ready");
    tokio::select! {
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    tracing::info!("stopping");
    tokio::select! {
        stopped = server.shutdown() => stopped?,
        _ = terminated.recv() => return Ok(()),
        _ = interrupted.recv() => return Ok(()),
    }
    tracing::info!("stopped");
    Ok(())
}

fn start_log(config: &Config) {
    let builder = tracing_subscriber::fmt()
        .with_max_level(config.log_level)
        .with_writer(io::stderr)
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()));
    let started = if config.log_json {
        builder.json().try_init()
    } else {
        builder.try_init()
    };
    if let Err(error) = started {
        // The process has a log of its own already.
        tracing::debug!(%error, "the log was started before");
    }
}
