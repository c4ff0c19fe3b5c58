#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bowline_server::fuzzing::server_input(data));
