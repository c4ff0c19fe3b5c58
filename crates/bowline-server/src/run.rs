//! The server as a process: its log, threads, signals and service manager.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bowline::text;
use bowline_cluster::raft;
use tokio::signal::unix::{SignalKind, signal};
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::Config;
use crate::notify::ServiceManager;
use crate::open_files;
use crate::server::{ServeError, Server};

/// Serves until SIGTERM or SIGINT, then shuts down cleanly. A second signal ends the process at once.
///
/// # Errors
/// See [`ServeError`].
pub fn run(config: Config) -> Result<(), ServeError> {
    start_log(&config);
    open_files::raise();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("bowline-serve")
        .enable_all()
        .build()
        .map_err(|source| ServeError::System {
            what: "threads",
            source,
        })?;
    let served = runtime.block_on(serve(config));
    // A traversal still under way reads a closed database and fails: no need to wait for it.
    runtime.shutdown_background();
    served
}

/// How long a server whose member has stopped may take to end its streams.
const ENDED_WITHIN: Duration = Duration::from_secs(1);

async fn serve(config: Config) -> Result<(), ServeError> {
    let refused = |source| ServeError::System {
        what: "a signal handler",
        source,
    };
    let mut terminated = signal(SignalKind::terminate()).map_err(refused)?;
    let mut interrupted = signal(SignalKind::interrupt()).map_err(refused)?;
    let manager = Arc::new(ServiceManager::from_environment());
    let mut signaled = async || {
        tokio::select! {
            _ = terminated.recv() => "SIGTERM",
            _ = interrupted.recv() => "SIGINT",
        }
    };
    // A member that waits for the others can be stopped, too. What it has written is on disk.
    let server = tokio::select! {
        started = Server::start(config) => started?,
        signal = signaled() => {
            tracing::info!("the server stops before it has served: it received {signal}");
            return Ok(());
        }
    };
    tracing::info!("ready");
    manager.ready(&status(&server));
    tokio::spawn(manager.clone().keep_watchdog());
    // Without certificates SIGHUP stays what it is elsewhere: the terminal is gone. A service manager means a reload.
    let mut reload = match server.has_certificates() || manager.is_there() {
        true => Some(signal(SignalKind::hangup()).map_err(refused)?),
        false => None,
    };
    let reloads = async {
        while let Some(signal) = &mut reload
            && signal.recv().await.is_some()
        {
            tracing::info!("the certificates are read again: it received SIGHUP");
            server.reload_certificates();
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = reloads => {}
        signal = signaled() => tracing::info!("the server stops: it received {signal}"),
        // For example, its disk failed. Another process may succeed; this one would only refuse.
        reason = server.node_stopped() => {
            tracing::error!("the server stops: {reason}");
            // Streams that are dropped are reset as canceled, which etcd's client for Go takes for its user's wish: its
            // watches would end. So they are ended with an error after which clients go on elsewhere.
            let _ = tokio::time::timeout(ENDED_WITHIN, server.shutdown()).await;
            return Err(ServeError::NodeStopped { reason });
        }
    }
    manager.stopping();
    tokio::select! {
        stopped = server.shutdown() => stopped?,
        _ = signaled() => return Ok(()),
    }
    tracing::info!("stopped");
    Ok(())
}

/// What a service manager shows of a server that runs.
fn status(server: &Server) -> String {
    let addresses: Vec<_> = server.addresses().iter().map(ToString::to_string).collect();
    format!("clients are served on {}", addresses.join(", "))
}

/// The events logged at `level`.
///
/// Routine events of libraries are logged at the debug level only. Raft and the transport emit a warning or
/// error each time a peer is down or a request is refused; our own events report what matters of it, once.
fn log_levels(level: LevelFilter) -> Targets {
    const SILENT: [&str; 4] = [raft::LOG_TARGET, "h2", "hyper", "tonic"];
    let asks_for_details = level >= LevelFilter::DEBUG;
    let of_libraries = match asks_for_details {
        true => level,
        false => level.min(LevelFilter::WARN),
    };
    let levels = Targets::new()
        .with_default(of_libraries)
        .with_target("bowline", level);
    match asks_for_details {
        true => levels,
        false => levels.with_targets(SILENT.map(|target| (target, LevelFilter::OFF))),
    }
}

fn start_log(config: &Config) {
    let levels = log_levels(config.log_level);
    // https://no-color.org: a variable that is not empty.
    let wants_none = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let has_colours = !wants_none && io::IsTerminal::is_terminal(&io::stderr());
    let lines = lines(config.log_json, has_colours, io::stderr);
    let registry = tracing_subscriber::registry();
    if let Err(error) = registry.with(lines.with_filter(levels)).try_init() {
        // The process has already installed a log.
        tracing::debug!(%error, "the log was started before");
    }
}

/// The log's lines. Fields may hold text of a client or a peer, so they are escaped: an event is one line,
/// and no line sends commands to a terminal.
fn lines<S, W>(is_json: bool, has_colours: bool, open: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    if is_json {
        return Box::new(fmt::layer().with_writer(PlainJson(open)).json());
    }
    let fields = debug_fn(|out, field, value| {
        let text = format!("{value:?}");
        let text = text::line(&text);
        match field.name() {
            "message" => write!(out, "{text}"),
            name => write!(out, "{name}={text}"),
        }
    });
    let lines = fmt::layer()
        .with_writer(open)
        .with_ansi(has_colours)
        .fmt_fields(fields.delimited(" "));
    Box::new(lines)
}

/// A writer of JSON in which control characters are escaped.
struct PlainJson<W>(W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for PlainJson<W> {
    type Writer = PlainJson<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        PlainJson(self.0.make_writer())
    }
}

impl<W: io::Write> io::Write for PlainJson<W> {
    /// Each call has one whole event.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let json = String::from_utf8_lossy(event);
        self.0.write_all(text::in_json(&json).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tracing::Level;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A peer's error message was logged unescaped: it could begin a new line, look like an event of this
    /// server, and clear the reader's terminal.
    #[test]
    fn an_event_is_one_line_whatever_its_fields_hold() {
        let evil = "x\nINFO bowline: all is well\u{1B}[2J\u{9B}2J\u{202E}\u{2028}\u{7F}";
        for (is_json, has_colours) in [(false, false), (false, true), (true, false)] {
            let written = Written::default();
            let open = written.clone();
            let lines = lines(is_json, has_colours, move || open.clone());
            let log = tracing_subscriber::registry().with(lines);
            tracing::subscriber::with_default(log, || {
                tracing::warn!(error = %evil, name = evil, number = 7, "a peer failed: {evil}");
            });
            let text = written.0.lock().unwrap().clone();
            let text = String::from_utf8(text).unwrap();
            assert_eq!(text.lines().count(), 1, "{text:?}");
            assert!(text.contains("a peer failed"), "{text}");
            // Colours come from the log itself.
            let is_shown = |c: char| text::is_plain(c) || has_colours && c == '\x1B';
            assert!(text.trim_end().chars().all(is_shown), "{text:?}");
            assert!(!text.contains("\x1B[2J"), "{text:?}");
            if is_json {
                let event: serde_json::Value = serde_json::from_str(&text).unwrap();
                assert_eq!(event["fields"]["error"], evil);
            } else {
                assert!(text.contains("number=7"), "{text}");
            }
        }
    }

    /// Raft logged every attempt to reach a dead follower, thousands a second, and called an ordinary
    /// bootstrap an error. Its events are for the debug level.
    #[test]
    fn libraries_are_silent_unless_asked_for() {
        let ordinary = log_levels(LevelFilter::INFO);
        let of_raft = format!("{}::core", raft::LOG_TARGET);
        for target in [&*of_raft, "h2::proto", "hyper_util", "tonic::transport"] {
            assert!(!ordinary.would_enable(target, &Level::ERROR), "{target}");
        }
        assert!(ordinary.would_enable("rustls", &Level::WARN));
        assert!(ordinary.would_enable("bowline_cluster::node", &Level::INFO));
        assert!(!ordinary.would_enable("bowline_cluster::node", &Level::DEBUG));
        let detailed = log_levels(LevelFilter::DEBUG);
        assert!(detailed.would_enable(&of_raft, &Level::DEBUG));
        let quiet = log_levels(LevelFilter::ERROR);
        assert!(!quiet.would_enable("bowline_cluster::node", &Level::WARN));
    }
}
