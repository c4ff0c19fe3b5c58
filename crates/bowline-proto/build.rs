//! Compiles the messages with `protox`, which is written in Rust: no `protoc` is needed.

use std::error::Error;
use std::path::PathBuf;

use prost::Message;

/// What clients may call.
const PUBLIC: [&str; 10] = [
    "etcd/rpc.proto",
    "etcd/lock.proto",
    "etcd/election.proto",
    "bowline/v1/graph.proto",
    "bowline/v1/store.proto",
    "bowline/v1/lease.proto",
    "bowline/v1/member.proto",
    "bowline/v1/roles.proto",
    "bowline/v1/quota.proto",
    "bowline/v1/index.proto",
];

/// What members say to each other: no business of a client.
const PEER: &str = "bowline/peer/v1/peer.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let public = protox::compile(PUBLIC, ["proto"])?;
    let path = PathBuf::from(std::env::var("OUT_DIR")?).join("descriptors.bin");
    std::fs::write(path, public.encode_to_vec())?;
    let all = protox::compile(PUBLIC.into_iter().chain([PEER]), ["proto"])?;
    tonic_prost_build::configure()
        // Keys and values are slices of what was received, not copies.
        .bytes(".")
        // Attributes in the order of their names, so that a message has one encoding.
        .btree_map(".bowline.v1")
        .compile_fds(all)?;
    Ok(())
}
