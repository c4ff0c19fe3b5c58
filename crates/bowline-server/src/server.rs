//! A server: start and shutdown of a node and its ports.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bowline_cluster::peer::{self, PortLimits, TlsNetwork};
use bowline_cluster::{LocalClient, Node};
use bowline_tls::{LOOK_INTERVAL, Looked, Reload, ServerTls, TlsError, Watching};
use futures_core::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub use crate::audit::OpenError as AuditError;
use crate::audit::{Audit, NodeClock};
use crate::auto_compaction;
use crate::config::{AutoCompaction, Config};
use crate::context::Context;
use crate::jwt::Jwt;
use crate::memory::Memory;
use crate::transport::{ConnectionOptions, Dispatch, Listener};
use crate::url::Url;
use crate::version::VERSION;
use crate::watch::{WatchOptions, Watches};
use crate::{open_directory, open_files};

/// Why a server did not start, or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The server cannot listen on an address.
    #[error("cannot listen on {url}: {source}")]
    Bind {
        /// The URL.
        url: String,
        /// Why.
        source: io::Error,
    },
    /// A host name has no address.
    #[error("cannot find the address of {url}: {reason}")]
    Resolve {
        /// The URL.
        url: String,
        /// Why.
        reason: String,
    },
    /// The node did not start, or did not close.
    #[error(transparent)]
    Node(#[from] bowline_cluster::Error),
    /// The node stopped by itself: its disk failed, or its data is damaged.
    #[error("the node has stopped: {reason}")]
    NodeStopped {
        /// Why.
        reason: String,
    },
    /// A certificate, a key, a CA or a revocation list cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The audit log cannot be opened.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The system refused a thread or a signal handler.
    #[error("the system refused {what}: {source}")]
    System {
        /// The refused resource.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    node: Node,
    context: Arc<Context>,
    addresses: Vec<SocketAddr>,
    metrics_addresses: Vec<SocketAddr>,
    tasks: Vec<JoinHandle<()>>,
    /// Closes when the last connection has ended.
    drained: mpsc::Receiver<()>,
    drain_timeout: Duration,
    certificates: Certificates,
}

/// The certificates of all ports, and the keys of signed tokens.
#[derive(Default)]
struct Certificates {
    all: Vec<Arc<dyn Reload>>,
    /// Those of ports, with the names of the ports in metrics.
    ports: Vec<(&'static str, ServerTls)>,
    /// Looks at their files.
    _watching: Option<Watching>,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates")
            .field("ports", &self.all.len())
            .finish_non_exhaustive()
    }
}

impl Certificates {
    /// Reads the files of all ports, and gives the members' network to the node. Gives the client ports' part, and what
    /// signs tokens.
    fn open(
        config: &mut Config,
    ) -> Result<(Certificates, Option<ServerTls>, Option<Jwt>), TlsError> {
        let mut all: Vec<Arc<dyn Reload>> = Vec::new();
        let mut ports = Vec::new();
        let data_dir = config.node.data_dir.clone();
        let opened = config.client_tls.as_ref();
        let for_clients = opened.map(|tls| tls.open_for_clients(&data_dir));
        let for_clients = for_clients.transpose()?;
        if let Some(tls) = &for_clients {
            all.push(Arc::new(tls.clone()));
            ports.push(("clients", tls.clone()));
        }
        if let Some(tls) = &config.peer_tls {
            let (server, client) = tls.open_for_peers(&data_dir)?;
            all.push(Arc::new(server.clone()));
            ports.push(("peers", server.clone()));
            all.push(Arc::new(client.clone()));
            config.node.peers.network = Arc::new(TlsNetwork::new(server, client));
        }
        let jwt = config.jwt.as_ref().map(Jwt::open).transpose()?;
        if let Some(jwt) = &jwt {
            all.push(jwt.keys.clone());
        }
        let watching = (!all.is_empty()).then(|| Watching::begin(all.clone(), LOOK_INTERVAL));
        let certificates = Certificates {
            all,
            ports,
            _watching: watching,
        };
        Ok((certificates, for_clients, jwt))
    }
}

impl Server {
    /// Waits until the node stops by itself; returns the reason.
    pub(crate) async fn node_stopped(&self) -> String {
        self.node.client().stopped().await
    }

    /// Starts the node and its ports. The ports are bound first: a server that cannot listen does not touch
    /// the data.
    ///
    /// # Errors
    /// See [`ServeError`].
    #[inline(never)]
    pub fn start(config: Config) -> BoxFuture<'static, Result<Server, ServeError>> {
        // The body of a future is compiled where it is awaited: in a box, the services are compiled here alone.
        Box::pin(async {
            let mut listeners = Vec::new();
            for url in &config.listen_client_urls {
                listeners.extend(bind(url).await?);
            }
            Server::start_with(config, listeners).await
        })
    }

    /// Starts the node and a server whose clients come from a network in memory, and not from the sockets that the
    /// configuration names: for simulations.
    ///
    /// # Errors
    /// See [`ServeError`].
    #[doc(hidden)]
    #[inline(never)]
    pub fn start_on(
        config: Config,
        listener: Box<dyn peer::Listener>,
    ) -> BoxFuture<'static, Result<Server, ServeError>> {
        Box::pin(async {
            let listener = Listener::of(listener).map_err(|source| ServeError::System {
                what: "an address",
                source,
            })?;
            Server::start_with(config, vec![listener]).await
        })
    }

    async fn start_with(
        mut config: Config,
        listeners: Vec<Listener>,
    ) -> Result<Server, ServeError> {
        tracing::info!(
            "Bowline {} starts as node {:?} in the directory {}; its clients see etcd {VERSION}",
            env!("CARGO_PKG_VERSION"),
            config.node.name,
            config.node.data_dir.display()
        );
        let mut for_metrics = Vec::new();
        for url in &config.listen_metrics_urls {
            for_metrics.extend(bind(url).await?);
        }
        let (certificates, client_tls, jwt) = Certificates::open(&mut config)?;
        let mut connections = config.connections();
        divide_open_files(&mut connections, &mut config.node.peers.port);
        let node = Node::start(config.node.clone()).await?;
        open_directory::warn_of(&config.node.data_dir);
        let client = node.client();
        log_identity(&config, &node);
        let audit = config.audit.take().map(|options| {
            let clock = Arc::new(NodeClock(client.clone()));
            Audit::start(options, &config.node.vfs, clock)
        });
        let audit = audit.transpose()?;
        let settings = config.settings();
        let refused = |source| ServeError::System {
            what: "a thread",
            source,
        };
        let options = WatchOptions {
            progress_interval: settings.watch_progress_interval,
            queue_bytes: settings.watch_queue_bytes,
            fragment_bytes: settings.message_bytes_max(),
        };
        let memory = Memory::new(settings.client_bytes_max, settings.connection_bytes_max);
        let watches = Watches::start(client.db(), &options, &memory).map_err(refused)?;
        let context =
            Context::new(client, settings, watches, memory, audit, jwt).map_err(refused)?;
        // It is new, and has none yet.
        let _ = context.ports.set(certificates.ports.clone());
        let mut tasks = vec![
            tokio::spawn(context.clone().follow_node()),
            tokio::spawn(context.clone().expire_tokens()),
            tokio::spawn(context.clone().follow_users()),
        ];
        if let Some(setting) = config.auto_compaction {
            let compacting = auto_compaction::run(context.clone(), setting);
            tasks.push(tokio::spawn(compacting));
        }
        let dispatch = Dispatch::new(context.clone());
        let connections = Arc::new(connections);
        let (alive, drained) = mpsc::channel(1);
        let mut addresses = Vec::new();
        for listener in listeners {
            addresses.push(listener.address());
            let address = listener.address();
            let listener = listener.secured_by(client_tls.as_ref());
            let scheme = listener.scheme();
            tracing::info!("clients are served at {scheme}://{address}: etcd v3, bowline.v1, JSON");
            let (context, dispatch) = (context.clone(), dispatch.clone());
            let (connections, alive) = (connections.clone(), alive.clone());
            let serving = listener.serve(context, dispatch, connections, alive);
            tasks.push(tokio::spawn(serving));
        }
        let mut metrics_addresses = Vec::new();
        for listener in for_metrics {
            metrics_addresses.push(listener.address());
            let address = listener.address();
            let listener = listener.secured_by(client_tls.as_ref());
            let scheme = listener.scheme();
            tracing::info!("metrics and health are served at {scheme}://{address}");
            let (context, dispatch) = (context.clone(), dispatch.for_metrics());
            let (connections, alive) = (connections.clone(), alive.clone());
            let serving = listener.serve(context, dispatch, connections, alive);
            tasks.push(tokio::spawn(serving));
        }
        Ok(Server {
            metrics_addresses,
            node,
            context,
            addresses,
            tasks,
            drained,
            drain_timeout: config.drain_timeout,
            certificates,
        })
    }

    /// Reads the certificates, keys, CAs and revocation lists of all ports again. Bad ones are refused with a warning,
    /// and those from before stay. The files are looked at each second besides.
    pub fn reload_certificates(&self) {
        if self.certificates.all.is_empty() {
            tracing::info!("there are no certificates to read again");
        }
        for one in &self.certificates.all {
            // What was taken, and what is wrong, was logged.
            if let Ok(Looked::Unchanged) = one.reload() {
                tracing::info!("certificates are as before");
            }
        }
    }

    /// Whether any port has certificates.
    pub(crate) fn has_certificates(&self) -> bool {
        !self.certificates.all.is_empty()
    }

    /// The addresses of the client ports.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The addresses of the ports for metrics and health only.
    #[must_use]
    pub fn metrics_addresses(&self) -> &[SocketAddr] {
        &self.metrics_addresses
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// How often the automatic compaction has looked whether something is due, and has done it: a test that moves the
    /// clock waits for that.
    #[doc(hidden)]
    #[must_use]
    pub fn compaction_looks(&self) -> u64 {
        self.context.compaction_looks.load(Ordering::Relaxed)
    }

    /// An in-process client of the node.
    #[must_use]
    pub fn client(&self) -> LocalClient {
        self.node.client()
    }

    /// Stops accepting, ends streams, lets requests under way finish, and closes the node.
    ///
    /// # Errors
    /// When the node does not close.
    #[inline(never)]
    pub fn shutdown(self) -> BoxFuture<'static, Result<(), ServeError>> {
        Box::pin(self.end())
    }

    async fn end(mut self) -> Result<(), ServeError> {
        self.context.stop();
        self.context.watches.end_all();
        // Each connection and each listener holds a sender of this channel.
        let timeout = self.drain_timeout + Duration::from_secs(1);
        if tokio::time::timeout(timeout, self.drained.recv())
            .await
            .is_err()
        {
            tracing::warn!("some requests did not end in time");
        }
        for task in self.tasks.drain(..) {
            task.abort();
        }
        let watches = self.context.watches.clone();
        if tokio::task::spawn_blocking(move || watches.stop())
            .await
            .is_err()
        {
            tracing::error!("the threads of the watches did not end");
        }
        if let Some(audit) = self.context.audit.clone() {
            // What is left of it was logged.
            let _ = tokio::task::spawn_blocking(move || audit.close()).await;
        }
        drop(self.context);
        Ok(self.node.shutdown().await?)
    }
}

/// Logs which member this is, and what it serves besides clients.
fn log_identity(config: &Config, node: &Node) {
    let status = node.client().status();
    tracing::info!(
        "this is member {:x} of the cluster {:x}, at revision {}",
        status.member_id,
        status.cluster_id,
        status.revision
    );
    for address in node.peer_addresses() {
        let scheme = if config.peer_tls.is_some() {
            "https"
        } else {
            "http"
        };
        tracing::info!("other members are served at {scheme}://{address}");
    }
    match config.auto_compaction {
        Some(AutoCompaction::Periodic(retention)) => {
            tracing::info!("the leader compacts history that is older than {retention:?}");
        }
        Some(AutoCompaction::Revisions(count)) => {
            tracing::info!("the leader compacts history but for the last {count} revisions");
        }
        None => {}
    }
}

/// Lowers the connection limits of both ports to what the limit of open files allows.
fn divide_open_files(clients: &mut ConnectionOptions, peers: &mut PortLimits) {
    let wanted = open_files::Connections {
        clients_max: clients.connections_max,
        peers_max: peers.connections_max as u64,
    };
    let files_max = open_files::limit();
    let divided = open_files::Connections::divide(wanted, files_max);
    if divided.clients_max < wanted.clients_max {
        tracing::warn!(
            wanted = wanted.clients_max,
            limit = divided.clients_max,
            files_max,
            "fewer connections than --max-connections: raise the limit of open files"
        );
    }
    clients.connections_max = divided.clients_max;
    peers.connections_max = usize::try_from(divided.peers_max).unwrap_or(usize::MAX);
    // No single address may take all of them.
    let address_max = peers.connections_max * 3 / 4;
    peers.connections_per_address_max = peers.connections_per_address_max.min(address_max);
}

/// Listens on every address of the URL's host.
async fn bind(url: &Url) -> Result<Vec<Listener>, ServeError> {
    let found = tokio::net::lookup_host((url.host.as_str(), url.port)).await;
    let addresses: Vec<SocketAddr> = found
        .map_err(|error| ServeError::Resolve {
            url: url.to_string(),
            reason: error.to_string(),
        })?
        .collect();
    let mut listeners = Vec::new();
    let mut failure = None;
    for address in addresses {
        match Listener::bind(address) {
            Ok(listener) => listeners.push(listener.expecting_tls(url.scheme == "https")),
            // A machine without IPv6 may still resolve localhost to `::1`.
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => failure = Some(error),
            Err(source) if is_unsupported(&source) => failure = Some(source),
            Err(source) => {
                return Err(ServeError::Bind {
                    url: url.to_string(),
                    source,
                });
            }
        }
    }
    if listeners.is_empty() {
        let source = failure.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into());
        return Err(ServeError::Bind {
            url: url.to_string(),
            source,
        });
    }
    Ok(listeners)
}

/// Whether the system does not support this address family.
fn is_unsupported(error: &io::Error) -> bool {
    /// `EAFNOSUPPORT` on Linux.
    const UNSUPPORTED: i32 = 97;
    error.raw_os_error() == Some(UNSUPPORTED)
}
