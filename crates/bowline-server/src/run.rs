//! A server as a process: its log, its threads, its signals.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

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
    let served = runtime.block_on(serve(config));
    // A walk that is under way yet asks a database that is closed: nobody waits for it.
    runtime.shutdown_background();
    served
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
        // Its disk failed, say. Another process may do better; this one would only refuse.
        reason = server.node_stopped() => return Err(ServeError::NodeStopped { reason }),
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
    // What libraries tell of their daily work is for who asks for details.
    let theirs = match config.log_level {
        level if level >= LevelFilter::DEBUG => level,
        level => level.min(LevelFilter::WARN),
    };
    let levels = Targets::new()
        .with_default(theirs)
        .with_target("bowline", config.log_level);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()));
    let registry = tracing_subscriber::registry();
    let started = if config.log_json {
        registry.with(lines.json().with_filter(levels)).try_init()
    } else {
        registry.with(lines.with_filter(levels)).try_init()
    };
    if let Err(error) = started {
        // The process has a log of its own already.
        tracing::debug!(%error, "the log was started before");
    }
}
