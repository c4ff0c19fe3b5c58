//! Clients of other languages, unchanged, against a server of this process.

mod go;
mod java;
mod python;
mod server;
