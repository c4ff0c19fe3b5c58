//! The number of a kind, and the numbers of the kinds of a block.

use bowline_storage::codec::Reader;

/// The number a kind's name is registered under; keys and records carry it instead of the name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct KindId(pub u32);

/// The kinds of a block, ascending, borrowed from its record.
#[derive(Clone, Copy, Debug)]
pub enum KindIds<'a> {
    /// One, as most blocks have.
    One(KindId),
    /// None or several: a varint for each. Validated by `KindIds::read`.
    Other(&'a [u8]),
}

impl<'a> KindIds<'a> {
    /// Reads so many kinds at the position of `reader` in `value`. `None` if they are not ascending.
    #[cold]
    pub(super) fn read(
        count: usize,
        value: &'a [u8],
        reader: &mut Reader<'a>,
    ) -> Option<KindIds<'a>> {
        let start = reader.position();
        let mut last = None;
        // A wrong count ends the loop at the end of the bytes.
        for _ in 0..count {
            let kind = reader.varint_u32()?;
            if last.is_some_and(|last| last >= kind) {
                return None;
            }
            last = Some(kind);
        }
        value.get(start..reader.position()).map(KindIds::Other)
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = KindId> + use<'a> {
        let (one, encoded) = match self {
            KindIds::One(kind) => (Some(kind), &[][..]),
            KindIds::Other(encoded) => (None, encoded),
        };
        let mut reader = Reader::new(encoded);
        // Validated before: the rest ends at the end of the bytes.
        one.into_iter()
            .chain(std::iter::from_fn(move || reader.varint_u32().map(KindId)))
    }

    /// The kind, if there is exactly one.
    #[inline]
    pub fn only(self) -> Option<KindId> {
        match self {
            KindIds::One(kind) => Some(kind),
            KindIds::Other(_) => None,
        }
    }

    /// Whether a kind is among them.
    #[inline]
    pub fn contains(self, kind: KindId) -> bool {
        match self {
            KindIds::One(held) => held == kind,
            KindIds::Other(_) => self.iter().any(|held| held == kind),
        }
    }
}
