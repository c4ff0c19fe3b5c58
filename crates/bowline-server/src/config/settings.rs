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
        "Name of this member";
    "data-dir" "DIR" = "":
        "Directory of its files [default: NAME.bowline]";
    "listen-client-urls" "URLS" = "http://localhost:2379":
        "Addresses to listen on for clients, separated by commas";
    "advertise-client-urls" "URLS" = "":
        "Addresses at which clients reach this member [default: those it listens on]";
    "listen-metrics-urls" "URLS" = "":
        "Additional addresses that serve /metrics and health checks, and nothing else";
    "metrics" "NAMES" = "etcd,bowline":
        "Names that /metrics uses: etcd's, bowline's or both; etcd's values basic and extensive mean both";
    "host-whitelist" "NAMES" = "":
        "Host names, besides its own, that HTTP requests may name; * allows any";
    "reflection" "true|false" = "false":
        "Serve gRPC reflection, for tools such as grpcurl";
    "cert-file" "FILE" = "":
        "Certificate for clients, in PEM; for https in --listen-client-urls and --listen-metrics-urls";
    "key-file" "FILE" = "":
        "Private key of --cert-file, in PEM, which only its owner may read";
    "client-cert-auth" "true|false" = "false":
        "Take the common name of a client's certificate for its user; needs --trusted-ca-file";
    "trusted-ca-file" "FILE" = "":
        "CA certificates of clients; as in etcd, it requires a certificate of each client";
    "client-crl-file" "FILE" = "":
        "Revocation list of clients' certificates, in PEM or DER";
    "client-cert-allowed-hostname" "HOSTS" = "":
        "Hosts, one of which a client's certificate must be for";
    "auto-tls" "true|false" = "false":
        "Serve clients with a certificate that signs itself, made in the data directory";
    "peer-cert-file" "FILE" = "":
        "Certificate for other members, in PEM, as server and as client; for https in --listen-peer-urls";
    "peer-key-file" "FILE" = "":
        "Private key of --peer-cert-file, in PEM, which only its owner may read";
    "peer-client-cert-auth" "true|false" = "false":
        "Require a certificate of each member, issued by a CA of --peer-trusted-ca-file";
    "peer-trusted-ca-file" "FILE" = "":
        "CA certificates of members; as in etcd, it requires a certificate of each member";
    "peer-crl-file" "FILE" = "":
        "Revocation list of members' certificates, in PEM or DER";
    "peer-cert-allowed-cn" "NAMES" = "":
        "Common names, one of which a member's certificate must have";
    "peer-cert-allowed-hostname" "HOSTS" = "":
        "Hosts, one of which a member's certificate must be for";
    "peer-auto-tls" "true|false" = "false":
        "Encrypt between members with certificates that sign themselves; no member is verified";
    "self-signed-cert-validity" "YEARS" = "1":
        "Time for which --auto-tls and --peer-auto-tls make certificates valid";
    "tls-min-version" "VERSION" = "TLS1.2":
        "Oldest version of TLS: TLS1.2 or TLS1.3";
    "tls-max-version" "VERSION" = "":
        "Newest version of TLS: TLS1.2 or TLS1.3 [default: the newest]";
    "cipher-suites" "NAMES" = "":
        "Cipher suites of TLS, separated by commas [default: all that are safe]";
    "listen-peer-urls" "URLS" = "http://localhost:2380":
        "Addresses to listen on for other members";
    "initial-advertise-peer-urls" "URLS" = "http://localhost:2380":
        "Addresses at which other members reach this one";
    "initial-cluster" "NAME=URL,..." = "":
        "All members of a new cluster [default: this one]";
    "initial-cluster-state" "new|existing" = "new":
        "Found a new cluster with the others, or join an existing one";
    "initial-cluster-token" "TOKEN" = "bowline-cluster":
        "Distinguishes clusters that were founded with the same addresses";
    "quota-backend-bytes" "BYTES" = "0":
        "Maximum size of the database; 0 means 2 GiB";
    "auto-compaction-mode" "periodic|revision" = "periodic":
        "Whether the retention of history is a time or a number of revisions";
    "auto-compaction-retention" "HOURS|TIME|N" = "0":
        "How much history the leader keeps: hours (8) or a time (30m), or revisions; 0 keeps all";
    "heartbeat-interval" "MS" = "100":
        "Interval between the heartbeats of a leader";
    "election-timeout" "MS" = "1000":
        "Time without a heartbeat after which a member stands for election";
    "lease-checkpoint-interval" "TIME" = "1m":
        "Leases may outlive their TTL by this after failover";
    "snapshot-count" "ENTRIES" = "10000":
        "Number of entries after which the log is truncated";
    "snapshot-catchup-entries" "ENTRIES" = "5000":
        "Entries that the log keeps for members that lag; one that lags further receives a snapshot";
    "scrub-interval" "TIME" = "24h":
        "Time within which every table is read to find damage; 0 for never";
    "corrupt-check-time" "TIME" = "12h":
        "Interval at which the leader compares the data of all voters; 0 for never";
    "max-learners" "N" = "1":
        "Maximum number of learners";
    "max-request-bytes" "BYTES" = "1572864":
        "Maximum size of a request";
    "max-txn-ops" "N" = "128":
        "Maximum number of operations in one list of a transaction";
    "max-traversal-blocks" "N" = "1000000":
        "Maximum number of blocks that a traversal visits, whatever the request allows";
    "max-query-time" "TIME" = "2m":
        "Maximum time of a graph query; one that takes longer is refused";
    "auth-token" "simple|jwt,..." = "simple":
        "Tokens that members store, or signed ones: jwt,pub-key=FILE,priv-key=FILE,sign-method=RS256,ttl=5m";
    "auth-token-ttl" "SECONDS|TIME" = "300":
        "Time for which a token is valid after its last use: a number of seconds, or a time like 5m";
    "max-requests-per-second" "N" = "0":
        "Maximum requests of one user per second, or of one address without authentication; 0 for any";
    "max-scanned-bytes-per-second" "BYTES" = "0":
        "Maximum bytes that one user, or one address, reads per second: a debt delays its next call; 0 for any";
    "min-password-bytes" "BYTES" = "0":
        "Minimum length of a new password; as in etcd, any is long enough by default";
    "graph-view-bytes" "BYTES" = "268435456":
        "Maximum memory for the graph view, which makes graph queries fast, and a quarter as much for attributes that queries read; 0 for none";
    "max-concurrent-streams" "N" = "4294967295":
        "Maximum number of concurrent calls on one connection";
    "max-connections" "N" = "16384":
        "Maximum number of connections; any further one is closed at once";
    "max-header-bytes" "BYTES" = "65536":
        "Maximum size of the header of a request";
    "partial-request-timeout" "TIME" = "30s":
        "Time for a client to finish what it began to send: the first bytes, a header, a message";
    "unread-reply-timeout" "TIME" = "1m":
        "Time after which a call ends if its client reads nothing of the reply";
    "max-client-memory" "BYTES" = "536870912":
        "Maximum memory for clients: requests in progress, unread replies, watches";
    "max-connection-memory" "BYTES" = "134217728":
        "Maximum memory for the client of one connection";
    "max-resets" "N" = "10000":
        "Maximum number of calls that a client resets on one connection within ten seconds";
    "grpc-keepalive-interval" "TIME" = "2h":
        "Interval between pings on an idle connection; 0 for none";
    "grpc-keepalive-timeout" "TIME" = "20s":
        "Time to wait for the reply to a ping; 0 for no pings";
    "watch-progress-notify-interval" "TIME" = "10m":
        "Interval between progress notifications of an idle watch that asked for them; 0 for 10m";
    "watch-queue-bytes" "BYTES" = "4194304":
        "Bytes queued for a slow client before its watches read history";
    "audit-log" "FILE|stdout" = "":
        "File to write calls to, as lines of JSON, or stdout for standard output [default: none]";
    "audit-events" "NAMES" = "reads,writes,watches,leases,logins,admin,refused":
        "Calls to write: any of reads, writes, watches, leases, logins, admin, refused and health, or all";
    "audit-overflow" "block|drop" = "block":
        "When lines cannot be written fast enough: let calls wait, and refuse them, or drop lines and count them";
    "audit-file-bytes" "BYTES" = "104857600":
        "Size at which the audit log begins a new file";
    "audit-files" "N" = "10":
        "Maximum number of files of the audit log; the oldest is replaced";
    "audit-queue-bytes" "BYTES" = "8388608":
        "Maximum memory for lines that wait to be written";
    "drain-timeout" "TIME" = "5s":
        "Time for requests to finish when the server stops";
    "log-level" "LEVEL" = "info":
        "Log level: off, error, warn, info, debug or trace";
    "log-format" "text|json" = "text":
        "Format of the log: text for people, json for programs";
}
