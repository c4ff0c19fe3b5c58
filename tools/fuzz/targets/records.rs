#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    bowline_core::fuzzing::record(data);
    bowline_storage::fuzzing::batch(data);
    bowline_storage::fuzzing::varints(data);
});
