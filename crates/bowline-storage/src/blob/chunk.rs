//! [`Chunk`]: a piece of a blob file in the cache of pages; [`Loaded`]: a value, in a chunk or read for itself.

use std::ops::{Deref, Range};

use crate::cache::{Held, Piece, Shelved};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::value::Value;

/// How much of a file is kept together in memory.
pub(super) const CHUNK_BYTES: u64 = 16 << 10;
/// The longest record that is read through the cache. For a longer one the system call costs little beside the copy, and
/// it would displace too many others.
pub(super) const RECORD_BYTES_MAX: u64 = 4 << 10;

/// Less than the shortest record: at most one begins in each step.
const STEP_BYTES: usize = 16;
const WORDS: usize = CHUNK_BYTES as usize / STEP_BYTES / 64;

/// The bytes of a blob file from a multiple of [`CHUNK_BYTES`] on, as they were read.
///
/// Invariant: a mark in `checked` says that the record that begins in that step lies in this chunk as a whole, is not
/// compressed, and has the checksum of its place.
#[derive(Debug)]
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    /// A bit for each [`STEP_BYTES`].
    checked: [AtomicU64; WORDS],
}

static NOTHING: Chunk = Chunk::new(Vec::new());

impl Chunk {
    pub(super) const fn new(bytes: Vec<u8>) -> Chunk {
        Chunk {
            bytes,
            checked: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether the record that begins at `at` is known to be whole.
    pub(super) fn is_checked(&self, at: usize) -> bool {
        let (word, bit) = place_of(at);
        let word = self.checked.get(word);
        word.is_some_and(|word| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Notes that the record that begins at `at` is whole. A mark that another thread sets at the same time may be lost: its
    /// record is checked again.
    pub(super) fn note_checked(&self, at: usize) {
        let (word, bit) = place_of(at);
        if let Some(word) = self.checked.get(word) {
            let marks = word.load(Ordering::Relaxed);
            if marks & bit == 0 {
                word.store(marks | bit, Ordering::Relaxed);
            }
        }
    }
}

fn place_of(at: usize) -> (usize, u64) {
    let step = at / STEP_BYTES;
    (step / 64, 1 << (step % 64))
}

impl Piece for Chunk {
    type Hints = ();

    fn nothing() -> &'static Chunk {
        &NOTHING
    }

    fn len(&self) -> usize {
        self.bytes.len() + size_of::<Chunk>()
    }

    fn hint(_: &Shelved<Chunk>, (): &()) {}
}

/// A value that was read from a blob file.
#[derive(Debug)]
pub(crate) enum Loaded {
    /// It lies in a chunk.
    InChunk {
        chunk: Held<Chunk>,
        range: Range<usize>,
    },
    Owned(Value),
}

impl Loaded {
    /// Sets `value` to a part of it.
    ///
    /// # Panics
    /// When `part` is not inside it.
    #[inline]
    pub fn slice_into(&self, part: Range<usize>, value: &mut Value) {
        match self {
            Loaded::InChunk { .. } => value.assign(&self[part]),
            Loaded::Owned(owned) => *value = owned.slice(part),
        }
    }
}

impl Deref for Loaded {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            // It was inside when the value was found.
            Loaded::InChunk { chunk, range } => &chunk.bytes[range.clone()],
            Loaded::Owned(value) => value,
        }
    }
}
