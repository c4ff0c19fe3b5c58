//! The configuration of a server: etcd's flags, and some more.
//!
//! [`SETTINGS`] is the one table. A setting's key is its flag (`--data-dir`), its environment variable
//! (`BOWLINE_DATA_DIR`) and its key in the file (`data-dir`). Flags beat the environment, which beats the
//! file, which beats the default. Values stay text until their source is known, so that an error can name the
//! flag, the variable, or file and line.

mod audit;
mod auto_compaction;
mod error;
mod file;
mod layers;
mod origin;
mod parse;
mod settings;
mod tls;

pub use crate::jwt::JwtOptions;
pub use crate::rates::RateLimits;
pub use crate::settings::MetricNames;
pub(crate) use auto_compaction::AutoCompaction;
pub use error::ConfigError;
pub use layers::Layers;
pub use origin::Origin;
pub use settings::{SETTINGS, Setting};
pub use tls::PortTls;

use std::path::PathBuf;
use std::time::Duration;

use bowline_cluster::NodeConfig;
use parse::{duration, number, one_of, url_list};

use crate::audit::AuditOptions;
use crate::hosts::Hosts;
use crate::settings::Settings;
use crate::transport::ConnectionOptions;
use crate::url::{Url, parse_url};

/// The configuration of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// The node's configuration.
    pub node: NodeConfig,
    /// The URLs of the client ports.
    pub listen_client_urls: Vec<Url>,
    /// The URLs of the ports for metrics and health only.
    pub listen_metrics_urls: Vec<Url>,
    /// The names that `/metrics` uses.
    pub metric_names: MetricNames,
    /// The TLS of the client and metrics ports whose URLs are `https`.
    pub client_tls: Option<PortTls>,
    /// The TLS between members.
    pub peer_tls: Option<PortTls>,
    /// Further host names that HTTP requests may use for this server.
    pub host_whitelist: String,
    /// Whether reflection is served.
    pub reflection: bool,
    /// The largest request, in bytes.
    pub max_request_bytes: usize,
    /// The most operations in a list of a transaction.
    pub max_txn_ops: usize,
    /// The most blocks a traversal of the graph visits.
    pub max_traversal_blocks: u64,
    /// The longest time of a query of the graph.
    pub max_query_time: Duration,
    /// How long a token is valid after its last use.
    pub auth_token_ttl: Duration,
    /// How tokens are signed; `None` for tokens that are in the replicated state.
    pub jwt: Option<JwtOptions>,
    /// The rates of each user, or of each address.
    pub rates: RateLimits,
    /// The minimum length of a new password, in bytes.
    pub min_password_bytes: usize,
    /// The most calls under way on one connection.
    pub max_concurrent_streams: u32,
    /// The most connections.
    pub max_connections: u64,
    /// The largest head of a request, in bytes.
    pub max_header_bytes: u32,
    /// The deadline for a request or message to arrive completely.
    pub partial_request_timeout: Duration,
    /// A call ends when its client reads nothing of the reply for so long.
    pub unread_reply_timeout: Duration,
    /// The memory budget of all clients.
    pub max_client_memory: usize,
    /// The memory limit of one connection.
    pub max_connection_memory: usize,
    /// The most calls that a connection may reset within ten seconds.
    pub max_resets: u32,
    /// The interval of pings on a silent connection; without pings, this or the timeout is zero.
    pub keep_alive_interval: Duration,
    /// The timeout of a ping's answer.
    pub keep_alive_timeout: Duration,
    /// The interval of progress notifications to an idle watch.
    pub watch_progress_interval: Duration,
    /// The bound of one client's queue of events, in bytes.
    pub watch_queue_bytes: usize,
    /// The time for requests under way to finish when the server stops.
    pub drain_timeout: Duration,
    /// The largest size of the database, in bytes.
    pub quota_bytes: u64,
    /// How much history automatic compaction keeps; `None` when it is off.
    pub(crate) auto_compaction: Option<AutoCompaction>,
    /// The audit log; `None` when calls are not written.
    pub(crate) audit: Option<AuditOptions>,
    /// Whether the hot calls are served by HTTP/2 of our own. Tests switch it off to compare.
    #[doc(hidden)]
    pub has_front: bool,
    /// The log level.
    pub log_level: tracing::level_filters::LevelFilter,
    /// Whether the log is JSON.
    pub log_json: bool,
}

impl Config {
    /// Builds the configuration from its layers.
    ///
    /// # Errors
    /// [`ConfigError`] names what is wrong, and the source of the value.
    pub fn from_layers(layers: &Layers) -> Result<Config, ConfigError> {
        let name = layers.text("name");
        let listen_peers = layers.parse("listen-peer-urls", url_list)?;
        let peer_urls = layers.parse("initial-advertise-peer-urls", url_list)?;
        let listen_clients = layers.parse("listen-client-urls", url_list)?;
        let client_urls = if layers.text("advertise-client-urls").is_empty() {
            listen_clients.clone()
        } else {
            layers.parse("advertise-client-urls", url_list)?
        };
        let listen_metrics = match layers.text("listen-metrics-urls").trim() {
            "" => Vec::new(),
            _ => layers.parse("listen-metrics-urls", url_list)?,
        };
        let text = |key: &str| layers.text(key);
        let texts = tls::Texts::new(&text);
        let wrong = |(key, reason): tls::Wrong| layers.wrong(key, reason);
        let client_tls =
            tls::of_clients(&texts, &listen_clients, &listen_metrics).map_err(wrong)?;
        let peer_tls = tls::of_peers(&texts, &listen_peers).map_err(wrong)?;
        let texts = |urls: &[Url]| urls.iter().map(ToString::to_string).collect::<Vec<_>>();
        let initial_cluster = if layers.text("initial-cluster").is_empty() {
            let own = peer_urls.iter();
            own.map(|url| (name.to_owned(), url.to_string())).collect()
        } else {
            layers.parse("initial-cluster", parse::members)?
        };
        if !initial_cluster.iter().any(|(member, _)| member == name) {
            let reason = format!("it names no member {name:?}, which is the --name of this one");
            return Err(layers.wrong("initial-cluster", reason));
        }
        let heartbeat_interval = layers.parse("heartbeat-interval", duration)?;
        let election_timeout: Duration = layers.parse("election-timeout", duration)?;
        if heartbeat_interval.is_zero() {
            return Err(layers.wrong("heartbeat-interval", "must be above 0".to_owned()));
        }
        if election_timeout < heartbeat_interval * 5 {
            let reason = "must be at least five times the --heartbeat-interval".to_owned();
            return Err(layers.wrong("election-timeout", reason));
        }
        let lease_checkpoint_interval = layers.parse("lease-checkpoint-interval", duration)?;
        if lease_checkpoint_interval.is_zero() {
            return Err(layers.wrong("lease-checkpoint-interval", "must be above 0".to_owned()));
        }
        let data_dir = match layers.text("data-dir") {
            "" => PathBuf::from(format!("{name}.bowline")),
            path => PathBuf::from(path),
        };
        /// etcd's default.
        const QUOTA_BYTES: u64 = 2 << 30;
        let quota_bytes = match layers.parse("quota-backend-bytes", number)? {
            0 => QUOTA_BYTES,
            bytes => bytes,
        };
        let existing = |text: &str| one_of(text, &["new", "existing"]);
        let json = |text: &str| one_of(text, &["text", "json"]);
        let is_true = |text: &str| one_of(text, &["false", "true"]);
        /// The most that one message to another member carries, with the entries' overhead.
        const REQUEST_MAX_BYTES: u64 = 64 << 20;
        let request_bytes_max = layers.parse("max-request-bytes", number)?;
        if request_bytes_max > REQUEST_MAX_BYTES {
            let reason = format!("must be at most {REQUEST_MAX_BYTES}");
            return Err(layers.wrong("max-request-bytes", reason));
        }
        // As in etcd: an allowance for the rest of a request.
        let request_bytes_max = request_bytes_max + (512 << 10);
        let view_bytes = layers.parse("graph-view-bytes", number)?;
        let defaults = NodeConfig::new(name, data_dir);
        let node = NodeConfig {
            database: defaults.database.clone().graph_view_bytes(view_bytes),
            listen_peer_urls: texts(&listen_peers),
            advertise_peer_urls: texts(&peer_urls),
            advertise_client_urls: texts(&client_urls),
            initial_cluster,
            is_existing: layers.parse("initial-cluster-state", existing)? == 1,
            cluster_token: layers.text("initial-cluster-token").to_owned(),
            heartbeat_interval,
            election_timeout,
            quota_bytes,
            lease_checkpoint_interval,
            snapshot_entries: layers.parse("snapshot-count", number)?,
            kept_entries: layers.parse("snapshot-catchup-entries", number)?,
            scrub_interval: layers.parse("scrub-interval", duration)?,
            corrupt_check_interval: layers.parse("corrupt-check-time", duration)?,
            learners_max: usize::try_from(layers.parse("max-learners", number)?)
                .unwrap_or(usize::MAX),
            request_bytes_max,
            reads_block_in_place: true,
            ..defaults
        };
        let at_least_one = |key: &str, value: u64| {
            if value == 0 {
                Err(layers.wrong(key, "must be above 0".to_owned()))
            } else {
                Ok(value)
            }
        };
        let bounded = |key: &str| -> Result<u64, ConfigError> {
            at_least_one(key, layers.parse(key, number)?)
        };
        let small = |key: &str| -> Result<u32, ConfigError> {
            let value = bounded(key)?;
            let most = || layers.wrong(key, format!("must be at most {}", u32::MAX));
            u32::try_from(value).map_err(|_| most())
        };
        /// Below this, one request of the default size might exceed the budget.
        const CLIENT_MEMORY_MIN: u64 = 8 << 20;
        let size = |key: &str| -> Result<usize, ConfigError> {
            let bytes = bounded(key)?;
            if bytes < CLIENT_MEMORY_MIN {
                return Err(layers.wrong(key, format!("must be at least {CLIENT_MEMORY_MIN}")));
            }
            Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
        };
        Ok(Config {
            node,
            listen_client_urls: listen_clients,
            listen_metrics_urls: listen_metrics,
            metric_names: layers.parse("metrics", parse::metric_names)?,
            client_tls,
            peer_tls,
            host_whitelist: layers.text("host-whitelist").to_owned(),
            reflection: layers.parse("reflection", is_true)? == 1,
            max_request_bytes: small("max-request-bytes")? as usize,
            max_txn_ops: small("max-txn-ops")? as usize,
            max_traversal_blocks: bounded("max-traversal-blocks")?,
            max_query_time: layers.parse("max-query-time", duration)?,
            auth_token_ttl: layers.parse("auth-token-ttl", parse::token_ttl)?,
            jwt: layers.parse("auth-token", parse::auth_token)?,
            rates: RateLimits {
                requests: layers.parse("max-requests-per-second", number)?,
                scanned_bytes: layers.parse("max-scanned-bytes-per-second", number)?,
            },
            min_password_bytes: usize::try_from(layers.parse("min-password-bytes", number)?)
                .unwrap_or(usize::MAX),
            max_concurrent_streams: small("max-concurrent-streams")?,
            max_connections: bounded("max-connections")?,
            max_header_bytes: small("max-header-bytes")?,
            partial_request_timeout: layers.parse("partial-request-timeout", duration)?,
            unread_reply_timeout: layers.parse("unread-reply-timeout", duration)?,
            max_client_memory: size("max-client-memory")?,
            max_connection_memory: size("max-connection-memory")?,
            max_resets: small("max-resets")?,
            keep_alive_interval: layers.parse("grpc-keepalive-interval", duration)?,
            keep_alive_timeout: layers.parse("grpc-keepalive-timeout", duration)?,
            watch_progress_interval: layers
                .parse("watch-progress-notify-interval", parse::progress_interval)?,
            watch_queue_bytes: small("watch-queue-bytes")? as usize,
            drain_timeout: layers.parse("drain-timeout", duration)?,
            quota_bytes,
            auto_compaction: auto_compaction::of_layers(layers)?,
            audit: audit::of_texts(|key| layers.text(key))
                .map_err(|(key, why)| layers.wrong(key, why))?,
            has_front: true,
            log_level: layers.parse("log-level", parse::level)?,
            log_json: layers.parse("log-format", json)? == 1,
        })
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            request_bytes_max: self.max_request_bytes,
            txn_operations_max: self.max_txn_ops,
            traversal_blocks_max: self.max_traversal_blocks,
            query_time_max: self.max_query_time,
            auth_token_ttl: self.auth_token_ttl,
            rates: self.rates,
            password_bytes_min: self.min_password_bytes,
            election_timeout: self.node.election_timeout,
            watch_progress_interval: self.watch_progress_interval,
            watch_queue_bytes: self.watch_queue_bytes,
            client_bytes_max: self.max_client_memory,
            connection_bytes_max: self.max_connection_memory,
            partial_timeout: self.partial_request_timeout,
            quota_bytes: self.quota_bytes,
            hosts: self.hosts(),
            members_have_tls: self.peer_tls.is_some(),
            client_cert_auth: self.client_tls.as_ref().is_some_and(PortTls::authenticates),
            reflection: self.reflection,
            metric_names: self.metric_names,
        }
    }

    /// The host names that HTTP requests may use.
    fn hosts(&self) -> Hosts {
        let advertised = self.node.advertise_client_urls.iter();
        let advertised: Vec<Url> = advertised.filter_map(|url| parse_url(url).ok()).collect();
        let listened = self
            .listen_client_urls
            .iter()
            .chain(&self.listen_metrics_urls);
        let own = listened.chain(&advertised).map(|url| &*url.host);
        Hosts::new(own, &self.host_whitelist)
    }

    pub(crate) fn connections(&self) -> ConnectionOptions {
        // As in etcd: without one of the two there are no pings.
        let is_pinging = !self.keep_alive_interval.is_zero() && !self.keep_alive_timeout.is_zero();
        ConnectionOptions {
            connections_max: self.max_connections,
            streams_max: self.max_concurrent_streams,
            header_bytes_max: self.max_header_bytes,
            partial_timeout: self.partial_request_timeout,
            unread_timeout: self.unread_reply_timeout,
            resets_max: self.max_resets,
            keep_alive_interval: is_pinging.then_some(self.keep_alive_interval),
            keep_alive_timeout: self.keep_alive_timeout,
            drain_timeout: self.drain_timeout,
            has_front: self.has_front,
        }
    }
}

#[cfg(test)]
mod tests;
