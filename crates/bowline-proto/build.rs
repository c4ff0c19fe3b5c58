//! Compiles the messages with `protox`, which is written in Rust: no `protoc` is needed.

use std::error::Error;
use std::path::PathBuf;

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = [
        "etcd/rpc.proto",
        "bowline/v1/graph.proto",
        "bowline/v1/store.proto",
        "bowline/v1/lease.proto",
        "bowline/peer/v1/peer.proto",
    ];
    let descriptors = protox::compile(files, ["proto"])?;
    let path = PathBuf::from(std::env::var("OUT_DIR")?).join("descriptors.bin");
    std::fs::write(path, descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        // Keys and values are slices of what was received, not copies.
        .bytes(".")
        // Attributes in the order of their names, so that a message has one encoding.
        .btree_map(".bowline.v1")
        .compile_fds(descriptors)?;
    Ok(())
}
