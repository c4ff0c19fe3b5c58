//! Pages that are compressed with zstd. Only with the feature `zstd`, which needs a C compiler.
//!
//! The contexts of zstd are large (some 100 KiB, more for high levels), so each is made once: for
//! compression by the writer that needs one, for decompression by the thread that does.

use std::cell::RefCell;
use std::fmt;

use zstd::bulk::{Compressor, Decompressor};

thread_local! {
    static DECOMPRESSOR: RefCell<Decompressor<'static>> = RefCell::default();
}

/// Compresses pages at one level.
pub(super) struct Encoder {
    level: i32,
    compressor: Compressor<'static>,
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder")
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}

impl Encoder {
    /// An encoder for a level, if zstd takes it.
    pub(super) fn new(level: i32) -> Option<Encoder> {
        let range = zstd::compression_level_range();
        let in_range = level.clamp(*range.start(), *range.end());
        let compressor = Compressor::new(in_range).ok()?;
        Some(Encoder { level, compressor })
    }

    /// The level it was made for.
    pub(super) fn level(&self) -> i32 {
        self.level
    }

    /// Compresses `payload` to the start of `out`, if it fits there; returns the length.
    pub(super) fn compress(&mut self, payload: &[u8], out: &mut [u8]) -> Option<usize> {
        self.compressor.compress_to_buffer(payload, out).ok()
    }
}

/// Fills `payload` with what `block` holds; `None` when that has another length, or `block` is not
/// of zstd.
pub(super) fn decompress(block: &[u8], payload: &mut [u8]) -> Option<()> {
    DECOMPRESSOR.with_borrow_mut(|decompressor| {
        let len = decompressor.decompress_to_buffer(block, payload).ok()?;
        (len == payload.len()).then_some(())
    })
}
