//! The services over loopback, asked by a client made from the same messages, and by etcdctl.

mod auth;
mod auto_compaction;
mod beside;
mod browsers;
mod budget;
mod elections;
mod etcdctl;
mod gateway;
mod graph;
mod graph_algorithms;
mod health;
mod keys;
mod leaderless;
mod locks;
mod long_range;
mod mixed;
mod others;
mod plain_http;
mod range_stream;
mod restores;
mod support;
mod surface;
mod users;
mod watch_races;
mod watches;
mod work;
