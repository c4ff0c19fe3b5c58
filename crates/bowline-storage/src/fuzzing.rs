//! Entry points of fuzzers: one function for each decoder of bytes from disk, and seeds for it.
//!
//! A function takes any bytes and panics when a decoder breaks a promise: it must not panic, loop
//! or allocate beyond what the bytes justify; it gives errors that name damage and nothing else;
//! what it accepts has one encoding, and reads alike in every direction.
//!
//! Most bytes on disk stand behind a checksum that no fuzzer guesses, so an input begins with a
//! byte of flags that say which checksums to put right before the decoder sees the file. What is
//! found then is what a bug of the writer, or a flip that the checksum missed, would do.
//!
//! This module exists in tests and with `--cfg fuzzing` only. `tools/fuzz` holds the targets, and the
//! corpus that the tests replay.

pub use crate::blob::fuzzing::blob;
pub use crate::engine::fuzzing::{batch, varints};
pub use crate::log::fuzzing::segment;
pub use crate::table::fuzzing::{entries, page, table_file};
pub use crate::version::fuzzing::manifest;
#[cfg(test)]
pub(crate) use crate::{
    blob::fuzzing::blob_seeds,
    engine::fuzzing::batch_seeds,
    log::fuzzing::segment_seeds,
    table::fuzzing::{entries_seeds, page_seeds, table_seeds},
    version::fuzzing::manifest_seeds,
};

/// Panics unless an error says that bytes are damaged, missing, newer than this program, or not for
/// this build of it.
#[track_caller]
pub(crate) fn assert_blames_the_bytes(error: &crate::Error) {
    assert!(
        error.is_corruption()
            || matches!(
                error,
                crate::Error::NewerFormat { .. } | crate::Error::Unsupported { .. }
            ),
        "{error:?}"
    );
}

/// Little-endian bytes from the start of an input; zeros where it has ended.
pub(crate) fn number<const N: usize>(data: &mut &[u8]) -> [u8; N] {
    let taken = data.len().min(N);
    let (head, rest) = data.split_at(taken);
    *data = rest;
    let mut bytes = [0; N];
    bytes[..taken].copy_from_slice(head);
    bytes
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bowline_testing::replay;

    fn corpus(target: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tools/fuzz/corpus")
            .join(format!("{target}.tar"))
    }

    #[test]
    fn no_bytes_mislead_the_log() {
        let seeds = super::segment_seeds();
        replay(
            "no_bytes_mislead_the_log",
            &corpus("log_segment"),
            seeds,
            super::segment,
        );
    }

    #[test]
    fn no_bytes_mislead_a_page() {
        let seeds = super::page_seeds();
        replay(
            "no_bytes_mislead_a_page",
            &corpus("table_page"),
            seeds,
            super::page,
        );
    }

    #[test]
    fn no_bytes_mislead_a_table() {
        let seeds = super::table_seeds();
        replay(
            "no_bytes_mislead_a_table",
            &corpus("table_file"),
            seeds,
            super::table_file,
        );
    }

    #[test]
    fn no_bytes_mislead_a_blob_file() {
        let seeds = super::blob_seeds();
        replay(
            "no_bytes_mislead_a_blob_file",
            &corpus("blob_file"),
            seeds,
            super::blob,
        );
    }

    #[test]
    fn no_bytes_mislead_the_manifest() {
        let seeds = super::manifest_seeds();
        replay(
            "no_bytes_mislead_the_manifest",
            &corpus("manifest"),
            seeds,
            super::manifest,
        );
    }

    #[test]
    fn any_entries_read_back_from_a_table_and_a_memtable() {
        let seeds = super::entries_seeds();
        let test = "any_entries_read_back_from_a_table_and_a_memtable";
        replay(test, &corpus("entries"), seeds, super::entries);
    }

    #[test]
    fn a_batch_has_one_encoding() {
        let seeds = super::batch_seeds();
        // The same corpus as the records of the crate above.
        replay(
            "a_batch_has_one_encoding",
            &corpus("records"),
            seeds,
            |data| {
                super::batch(data);
                super::varints(data);
            },
        );
    }
}
