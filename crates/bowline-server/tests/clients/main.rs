//! The clients of others, in their own languages, against a server. A client that cannot be had on
//! this machine says SKIPPED.

mod etcd_client;
mod server;
