//! The services over loopback, asked by a client made from the same messages, and by etcdctl.

mod etcdctl;
mod graph;
mod keys;
mod others;
mod plain_http;
mod range_stream;
mod restores;
mod support;
mod watch_races;
mod watches;
