//! Blocks and edges borrowed from a memtable, a page or a value read from a blob file.
//!
//! Invariant: a record is validated completely before any of it is borrowed.

use bowline_storage::codec::Reader;
use bytes::Bytes;

use bowline_types::{Attributes, Block, BlockId, Edge};

/// A borrowed block, valid during a visit (`Graph::visit_block`).
///
/// ```
/// use bowline::{Block, BlockId, BlockRef};
/// # let db = bowline::Db::in_memory()?;
/// let id = BlockId::from_name("svc/billing");
/// db.transact(|tx| tx.put_block(&Block::new(id, "service").content("10.0.0.7")))?;
///
/// let graph = db.snapshot().graph();
/// let size = |block: BlockRef<'_>| block.kind.len() + block.content.len();
/// assert_eq!(graph.visit_block(id, size)?, Some(15));
/// // What is to outlive the visit has to be copied.
/// let kept: Option<Block> = graph.visit_block(id, |block| block.to_block())?;
/// assert_eq!(kept, graph.block(id)?);
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BlockRef<'a> {
    /// Its id.
    pub id: BlockId,
    /// The name of its kind.
    pub kind: &'a str,
    /// Its content.
    pub content: &'a [u8],
    /// Its attributes.
    pub attributes: AttributesRef<'a>,
}

impl BlockRef<'_> {
    /// A copy to keep.
    #[must_use]
    pub fn to_block(&self) -> Block {
        Block {
            id: self.id,
            kind: self.kind.to_owned(),
            content: Bytes::copy_from_slice(self.content),
            attributes: self.attributes.to_attributes(),
        }
    }
}

/// A borrowed edge, valid during a visit (`Graph::visit_edge`).
///
/// ```
/// use bowline::{Block, BlockId, Edge, EdgeRef};
/// # let db = bowline::Db::in_memory()?;
/// # let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
/// # db.transact(|tx| {
/// #     tx.put_block(&Block::new(app, "package"))?;
/// #     tx.put_block(&Block::new(lib, "package"))?;
/// #     tx.put_edge(&Edge::new(app, "depends_on", lib).attribute("version", "1.2"))
/// # })?;
/// let graph = db.snapshot().graph();
/// let is_pinned = |edge: EdgeRef<'_>| edge.attributes.get("version").is_some();
/// assert_eq!(graph.visit_edge(app, "depends_on", lib, is_pinned)?, Some(true));
/// // What is to outlive the visit has to be copied.
/// let kept: Option<Edge> = graph.visit_edge(app, "depends_on", lib, |edge| edge.to_edge())?;
/// assert_eq!(kept, graph.edge(app, "depends_on", lib)?);
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct EdgeRef<'a> {
    /// The block where it starts.
    pub source: BlockId,
    /// The name of its kind.
    pub kind: &'a str,
    /// The block where it ends.
    pub target: BlockId,
    /// Its attributes.
    pub attributes: AttributesRef<'a>,
}

impl EdgeRef<'_> {
    /// A copy to keep.
    #[must_use]
    pub fn to_edge(&self) -> Edge {
        Edge {
            source: self.source,
            kind: self.kind.to_owned(),
            target: self.target,
            attributes: self.attributes.to_attributes(),
        }
    }
}

/// The attributes of a borrowed block or edge, in the order of their names.
///
/// ```
/// use bowline::{AttributesRef, Block, BlockId};
/// # let db = bowline::Db::in_memory()?;
/// let id = BlockId::from_name("app");
/// let block = Block::new(id, "package").attribute("name", "app").attribute("version", "1.2");
/// db.transact(|tx| tx.put_block(&block))?;
///
/// db.snapshot().graph().visit_block(id, |found| {
///     let attributes: AttributesRef<'_> = found.attributes;
///     assert_eq!((attributes.len(), attributes.is_empty()), (2, false));
///     assert_eq!(attributes.get("version"), Some("1.2"));
///     assert_eq!(attributes.iter().next(), Some(("name", "app")));
///     assert_eq!(attributes.to_attributes(), block.attributes);
/// })?;
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct AttributesRef<'a> {
    count: usize,
    /// Encoded as in `record`, without the count; validated by [`AttributesRef::read`].
    encoded: &'a [u8],
}

impl<'a> AttributesRef<'a> {
    /// Reads attributes at the position of `reader` in `value`; `None` when they are invalid.
    pub(super) fn read(value: &'a [u8], reader: &mut Reader<'a>) -> Option<AttributesRef<'a>> {
        let count = reader.varint_usize()?;
        let start = reader.position();
        let mut last = None;
        // A wrong count ends the loop at the end of the bytes: each attribute takes at least two.
        for _ in 0..count {
            let (name, _) = next(reader)?;
            if last.is_some_and(|last| last >= name) {
                return None;
            }
            last = Some(name);
        }
        let encoded = value.get(start..reader.position())?;
        Some(AttributesRef { count, encoded })
    }

    /// The number of attributes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no attributes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The value of the attribute `name`, by linear search.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        let mut all = self.iter().skip_while(|(held, _)| *held < name);
        all.next()
            .filter(|(held, _)| *held == name)
            .map(|(_, value)| value)
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let mut reader = Reader::new(self.encoded);
        // Validated before: the loop ends at the end of the bytes.
        std::iter::from_fn(move || next(&mut reader))
    }

    /// A copy to keep.
    #[must_use]
    pub fn to_attributes(&self) -> Attributes {
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        self.iter().map(own).collect()
    }
}

impl std::fmt::Debug for AttributesRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// The next name and value.
fn next<'a>(reader: &mut Reader<'a>) -> Option<(&'a str, &'a str)> {
    let name = std::str::from_utf8(reader.bytes()?).ok()?;
    let value = std::str::from_utf8(reader.bytes()?).ok()?;
    Some((name, value))
}

#[cfg(test)]
mod tests {
    use super::super::kind_id::KindId;
    use super::super::record::{decode_block, encode_block};
    use super::*;

    #[test]
    fn attributes_are_found_by_name_and_in_order() {
        let block = Block::new(BlockId(1), "service")
            .attribute("b", "2")
            .attribute("größe", "")
            .attribute("", "empty");
        let mut value = Vec::new();
        encode_block(KindId(1), &block, &mut value);
        let lent = decode_block(&value).expect("it decodes").attributes;
        assert_eq!((lent.len(), lent.is_empty()), (3, false));
        let all: Vec<_> = lent.iter().collect();
        assert_eq!(all, [("", "empty"), ("b", "2"), ("größe", "")]);
        assert_eq!(lent.get("b"), Some("2"));
        assert_eq!(lent.get(""), Some("empty"));
        assert_eq!(lent.get("größe"), Some(""));
        for absent in ["a", "bb", "c", "zz"] {
            assert_eq!(lent.get(absent), None, "{absent}");
        }
        assert_eq!(lent.to_attributes(), block.attributes);
        assert_eq!(format!("{lent:?}"), format!("{:?}", block.attributes));
    }

    #[test]
    fn what_has_no_attributes_lends_none() {
        let mut value = Vec::new();
        encode_block(KindId(1), &Block::new(BlockId(1), "x"), &mut value);
        let lent = decode_block(&value).expect("it decodes").attributes;
        assert!(lent.is_empty() && lent.iter().next().is_none() && lent.get("").is_none());
    }
}
