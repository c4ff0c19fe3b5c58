#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bowline_tls::fuzzing::certificates(data));
