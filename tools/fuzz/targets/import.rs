#![no_main]

#[allow(
    dead_code,
    unused_imports,
    reason = "the program uses more of it than a fuzzer"
)]
#[path = "../../../crates/bowline-cli/src/import/mod.rs"]
mod import;

libfuzzer_sys::fuzz_target!(|data: &[u8]| drop(import::fuzzing::import(data)));
