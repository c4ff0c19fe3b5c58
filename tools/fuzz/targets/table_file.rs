#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bowline_storage::fuzzing::table_file(data));
