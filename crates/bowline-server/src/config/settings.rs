//! The one table of settings.

/// A setting.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Its name, as a flag and as a key in the file.
    pub key: &'static str,
    /// The placeholder of its value in the help.
    pub value: &'static str,
    /// The default value.
    pub default: &'static str,
    /// The help text.
    pub help: &'static str,
}

macro_rules! settings {
    ($($key:literal $value:literal = $default:literal: $help:literal;)*) => {
        /// All settings. Those that exist in etcd have the same names and meanings.
        pub const SETTINGS: &[Setting] = &[
            $(Setting { key: $key, value: $value, default: $default, help: $help },)*
        ];
    };
}

settings! {
    "name" "NAME" = "default":
        "The name of this member";
    "data-dir" "DIR" = "":
        "The directory of its files [default: NAME.bowline]";
    "listen-client-urls" "URLS" = "http://localhost:2379":
        "Where clients are listened to, separated by commas";
    "advertise-client-urls" "URLS" = "":
        "Where clients find this member [default: where they are listened to]";
    "listen-metrics-urls" "URLS" = "":
        "Where /metrics and the paths of health are served besides, and nothing else is";
    "host-whitelist" "NAMES" = "":
        "Names of hosts, besides its own, by which HTTP requests may call this server; * is any";
    "reflection" "true|false" = "false":
        "Whether tools like grpcurl may ask what is served";
    "listen-peer-urls" "URLS" = "http://localhost:2380":
        "Where other members are listened to";
    "initial-advertise-peer-urls" "URLS" = "http://localhost:2380":
        "Where other members find this one";
    "initial-cluster" "NAME=URL,..." = "":
        "All members of a new cluster [default: this one]";
    "initial-cluster-state" "new|existing" = "new":
        "Whether this member makes a cluster with the others, or joins one";
    "initial-cluster-token" "TOKEN" = "bowline-cluster":
        "Sets clusters apart that are made of the same addresses";
    "quota-backend-bytes" "BYTES" = "0":
        "The most the database may take; 0 is 2 GiB";
    "auto-compaction-mode" "periodic|revision" = "periodic":
        "Whether the retention of history is a time or a number of revisions";
    "auto-compaction-retention" "HOURS|TIME|N" = "0":
        "How much history the leader keeps: hours (8) or a time (30m), or revisions; 0 keeps all";
    "heartbeat-interval" "MS" = "100":
        "How often a leader shows that it is there";
    "election-timeout" "MS" = "1000":
        "How long the others wait for it";
    "lease-checkpoint-interval" "TIME" = "1m":
        "How much longer than they have left leases may live after a change of leader";
    "snapshot-count" "ENTRIES" = "10000":
        "After how many entries the log is trimmed";
    "snapshot-catchup-entries" "ENTRIES" = "5000":
        "How many entries more the log keeps for members that are behind; one that needs others gets a snapshot";
    "max-learners" "N" = "1":
        "The most members that are added as learners";
    "max-request-bytes" "BYTES" = "1572864":
        "The largest request";
    "max-txn-ops" "N" = "128":
        "The most operations in one list of a transaction";
    "max-traversal-blocks" "N" = "1000000":
        "The most blocks a traversal of the graph visits, whatever it asks for";
    "max-concurrent-streams" "N" = "4294967295":
        "The most calls under way on one connection";
    "max-connections" "N" = "16384":
        "The most connections; one more is closed at once";
    "max-header-bytes" "BYTES" = "65536":
        "The largest head of a request";
    "partial-request-timeout" "TIME" = "30s":
        "How long a client may take to send what it has begun: the first bytes, a head, a message";
    "unread-reply-timeout" "TIME" = "1m":
        "After what time a call is ended of whose reply its client reads nothing";
    "max-client-memory" "BYTES" = "536870912":
        "The most that clients may make the server hold: requests under way, unread replies, watches";
    "max-connection-memory" "BYTES" = "134217728":
        "The same for one connection";
    "max-resets" "N" = "10000":
        "The most calls that are reset on one connection within ten seconds";
    "grpc-keepalive-interval" "TIME" = "2h":
        "How often a silent connection is asked whether it is there";
    "grpc-keepalive-timeout" "TIME" = "20s":
        "How long the answer may take";
    "watch-progress-notify-interval" "TIME" = "10m":
        "How often an idle watch that asked for it is told how far it is";
    "watch-queue-bytes" "BYTES" = "4194304":
        "How much waits for a client that reads slowly, before its watches read history";
    "drain-timeout" "TIME" = "5s":
        "How long requests may take to end when the server stops";
    "log-level" "LEVEL" = "info":
        "What is logged: off, error, warn, info, debug or trace";
    "log-format" "text|json" = "text":
        "Whether the log is for people or for programs";
}
