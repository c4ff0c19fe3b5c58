//! The clients of others, in their own languages, against a server of this process. A client that cannot
//! be had on this machine says SKIPPED.

mod etcd_client;
mod go;
mod java;
mod python;
mod server;
