#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bowline_cluster::fuzzing::raft_record(data));
