//! [`Shelf`]: the places in memory for the pieces of one file.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::PageCache;
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::{ArcSwapOption, Guard};

/// The overhead of a piece: its header, its slot and its queue entry.
const OVERHEAD_BYTES: u64 = 200;
/// The maximum use count of a piece: how often it is spared without a further use.
const USES_MAX: u8 = 3;

/// A piece of a file that is kept in memory: a page of a table, a chunk of a blob file.
pub(crate) trait Piece: Send + Sync + 'static {
    /// What is known of a piece before it is looked at, so that its memory can be asked for early.
    type Hints: Default + Send + Sync;

    /// A piece of nothing.
    fn nothing() -> &'static Self;

    /// How long it is, in bytes.
    fn len(&self) -> usize;

    /// Notes where its memory is.
    fn hint(shelved: &Shelved<Self>, hints: &Self::Hints)
    where
        Self: Sized;
}

/// The places for the pieces of one file.
pub(crate) struct Shelf<T: Piece> {
    file_id: u64,
    places: Box<[Place<T>]>,
    cache: Arc<PageCache>,
}

struct Place<T: Piece> {
    piece: ArcSwapOption<Shelved<T>>,
    hints: T::Hints,
}

/// A piece that is, or was at the time of the read, on its shelf. It has its own cache line, apart from the
/// reference count: a read waits for one line, and counting references does not disturb other readers.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Shelved<T> {
    piece: T,
    /// Uses since the last check by a queue, up to [`USES_MAX`].
    uses: AtomicU8,
}

/// A piece, alive as long as this value. Keep it only for a short time: few of them per thread are cheap.
#[derive(Debug)]
pub(crate) struct Held<T>(Guard<Option<Arc<Shelved<T>>>>);

/// A shelf, whatever is on it: what the queues know of it.
pub(super) trait AnyShelf: fmt::Debug + Send + Sync {
    fn file_id(&self) -> u64;

    /// Whether what is in a place was wanted. Takes note that this was asked: of a fresh piece, once and for all.
    fn spare(&self, number: usize, is_fresh: bool) -> bool;

    /// Takes what is in a place off the shelf.
    fn clear(&self, number: usize);
}

impl<T: Piece> Shelf<T> {
    /// Places for the pieces `0..pieces` of a file, all of them empty.
    pub(crate) fn new(file_id: u64, pieces: usize, cache: Arc<PageCache>) -> Shelf<T> {
        let place = |_| Place {
            piece: ArcSwapOption::empty(),
            hints: T::Hints::default(),
        };
        Shelf {
            file_id,
            places: (0..pieces).map(place).collect(),
            cache,
        }
    }

    #[inline]
    fn place(&self, number: usize) -> Option<&Place<T>> {
        self.places.get(number)
    }

    /// What is known of a piece, if it is in its place or was.
    #[inline]
    pub(crate) fn hints(&self, number: usize) -> Option<&T::Hints> {
        self.place(number).map(|place| &place.hints)
    }

    /// A piece, if it is in its place.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> Option<Held<T>> {
        let held = self.place(number)?.piece.load();
        let counters = &self.cache.counters;
        if let Some(piece) = &*held {
            piece.note_use();
            counters.cache_hits.add(1);
            Some(Held(held))
        } else {
            counters.cache_misses.add(1);
            None
        }
    }

    /// Puts a piece in its place, if the cache has room for it, and gives it back.
    pub(crate) fn put(self: &Arc<Self>, number: usize, piece: T) -> Held<T> {
        let piece = Arc::new(Shelved {
            piece,
            uses: AtomicU8::new(0),
        });
        if let Some(place) = self.place(number) {
            let shelf: Arc<dyn AnyShelf> = self.clone();
            let is_there = || place.piece.load().is_some();
            self.cache
                .put(&shelf, number, piece.weight(), is_there, || {
                    T::hint(&piece, &place.hints);
                    place.piece.store(Some(piece.clone()));
                });
        }
        Held(Guard::from_inner(Some(piece)))
    }

    /// Whether a piece that is not in its place is worth to be put there, as a part of it was wanted lately, too: then its
    /// name is known. Else the name is noted.
    pub(crate) fn is_wanted_again(&self, number: usize, len: usize) -> bool {
        self.cache
            .is_wanted_again(self.file_id, number, len as u64 + OVERHEAD_BYTES)
    }

    /// Bytes held in memory, without the pieces.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.places)
    }

    /// The weights of the pieces in their places.
    #[cfg(test)]
    pub(super) fn weights(&self) -> Vec<u64> {
        let places = self.places.iter();
        let pieces = places.filter_map(|place| place.piece.load().clone());
        pieces.map(|piece| piece.weight()).collect()
    }
}

impl<T: Piece> AnyShelf for Shelf<T> {
    fn file_id(&self) -> u64 {
        self.file_id
    }

    fn spare(&self, number: usize, is_fresh: bool) -> bool {
        let Some(place) = self.place(number) else {
            return false;
        };
        place
            .piece
            .load()
            .as_ref()
            .is_some_and(|piece| piece.spare(is_fresh))
    }

    fn clear(&self, number: usize) {
        if let Some(place) = self.place(number) {
            place.piece.store(None);
        }
    }
}

impl<T: Piece> Drop for Shelf<T> {
    fn drop(&mut self) {
        let (mut pieces, mut bytes) = (0, 0);
        for piece in self
            .places
            .iter()
            .filter_map(|place| place.piece.swap(None))
        {
            pieces += 1;
            bytes += piece.weight();
        }
        self.cache.note_dropped(pieces, bytes);
    }
}

impl<T: Piece> fmt::Debug for Shelf<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf")
            .field("file_id", &self.file_id)
            .field("places", &self.places.len())
            .finish_non_exhaustive()
    }
}

impl<T: Piece> Shelved<T> {
    /// The bytes that it adds to the used bytes.
    fn weight(&self) -> u64 {
        self.piece.len() as u64 + OVERHEAD_BYTES
    }

    /// A use that another thread notes at the same time may be lost. That is no matter, and a
    /// piece that is wanted all the time is not written to.
    #[inline]
    fn note_use(&self) {
        let uses = self.uses.load(Ordering::Relaxed);
        if uses < USES_MAX {
            self.uses.store(uses + 1, Ordering::Relaxed);
        }
    }

    fn spare(&self, is_fresh: bool) -> bool {
        let uses = self.uses.load(Ordering::Relaxed);
        let left = if is_fresh { 0 } else { uses.saturating_sub(1) };
        self.uses.store(left, Ordering::Relaxed);
        uses > 0
    }
}

impl<T> Deref for Shelved<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.piece
    }
}

impl<T: Piece> Held<T> {
    /// The same piece again. Both may be kept for long.
    pub(crate) fn share(&mut self) -> Held<T> {
        let piece = (*self.0).clone();
        self.0 = Guard::from_inner(piece.clone());
        Held(Guard::from_inner(piece))
    }
}

impl<T: Piece> Deref for Held<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match &*self.0 {
            Some(piece) => &piece.piece,
            // Is never made.
            None => T::nothing(),
        }
    }
}
