//! Blocks and edges borrowed from a memtable, a page or a value read from a blob file.
//!
//! Invariant: a record is validated completely before any of it is borrowed.

use bowline_storage::codec::Reader;
use bytes::Bytes;

use super::typed::{TEXT, read_value, skip_value};
use bowline_types::{AttributeValue, Attributes, Block, BlockId, Edge};

/// A borrowed block, valid during a visit (`Graph::visit_block`).
///
/// ```
/// use bowline::{Block, BlockId, BlockRef};
/// # let db = bowline::Db::in_memory()?;
/// let id = BlockId::from_name("svc/billing");
/// db.transact(|tx| tx.put_block(&Block::new(id, "service").content("10.0.0.7")))?;
///
/// let graph = db.snapshot().graph();
/// let size = |block: BlockRef<'_>| block.content.len();
/// assert_eq!(graph.visit_block(id, size)?, Some(8));
/// assert_eq!(graph.visit_block(id, |block| block.kinds == ["service"])?, Some(true));
/// // What is to outlive the visit has to be copied.
/// let kept: Option<Block> = graph.visit_block(id, |block| block.to_block())?;
/// assert_eq!(kept, graph.block(id)?);
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BlockRef<'a> {
    /// Its id.
    pub id: BlockId,
    /// The names of its kinds, ascending; most blocks have one.
    pub kinds: &'a [&'a str],
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
            kinds: self.kinds.iter().copied().collect(),
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
/// let block = Block::new(id, "package").attribute("name", "app").attribute("stars", 40);
/// db.transact(|tx| tx.put_block(&block))?;
///
/// db.snapshot().graph().visit_block(id, |found| {
///     let attributes: AttributesRef<'_> = found.attributes;
///     assert_eq!((attributes.len(), attributes.is_empty()), (2, false));
///     assert_eq!(attributes.text("name"), Some("app"));
///     assert_eq!(attributes.get("stars").map(|value| value.to_value()), Some(40.into()));
///     assert_eq!(attributes.iter().next().map(|(name, _)| name), Some("name"));
///     assert_eq!(attributes.to_attributes(), block.attributes);
/// })?;
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct AttributesRef<'a> {
    count: usize,
    /// Encoded as in `record`, without the count; validated by [`AttributesRef::read`].
    encoded: &'a [u8],
    are_typed: bool,
}

impl<'a> AttributesRef<'a> {
    /// Reads attributes at the position of `reader` in `value`; `None` when they are invalid. Typed ones have values as in
    /// `typed`, the others are texts.
    pub(super) fn read(
        value: &'a [u8],
        reader: &mut Reader<'a>,
        are_typed: bool,
    ) -> Option<AttributesRef<'a>> {
        let count = reader.varint_usize()?;
        let start = reader.position();
        let mut last = None;
        // A wrong count ends the loop at the end of the bytes: each attribute takes at least two.
        for _ in 0..count {
            let name = text(reader)?;
            match are_typed {
                true => skip_value(reader)?,
                false => drop(text(reader)?),
            }
            if last.is_some_and(|last| last >= name) {
                return None;
            }
            last = Some(name);
        }
        let encoded = value.get(start..reader.position())?;
        Some(AttributesRef {
            count,
            encoded,
            are_typed,
        })
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
    pub fn get(&self, name: &str) -> Option<AttributeRef<'a>> {
        let mut all = self.iter().skip_while(|(held, _)| *held < name);
        all.next()
            .filter(|(held, _)| *held == name)
            .map(|(_, value)| value)
    }

    /// The same, if it is a text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.get(name)?.as_text()
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, AttributeRef<'a>)> + use<'a> {
        let (encoded, are_typed) = (self.encoded, self.are_typed);
        let mut reader = Reader::new(encoded);
        // Validated before: the loop ends at the end of the bytes.
        std::iter::from_fn(move || {
            let name = text(&mut reader)?;
            if !are_typed {
                return Some((name, AttributeRef(Lent::Text(text(&mut reader)?))));
            }
            let start = reader.position();
            skip_value(&mut reader)?;
            Some((
                name,
                AttributeRef::of(encoded.get(start..reader.position())?)?,
            ))
        })
    }

    /// Whether every value is a text.
    pub(super) fn are_texts(&self) -> bool {
        !self.are_typed || self.iter().all(|(_, value)| value.as_text().is_some())
    }

    /// A copy to keep.
    #[must_use]
    pub fn to_attributes(&self) -> Attributes {
        let own = |(name, value): (&str, AttributeRef<'_>)| (name.to_owned(), value.to_value());
        self.iter().map(own).collect()
    }
}

impl std::fmt::Debug for AttributesRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// The borrowed value of an attribute.
///
/// ```
/// use bowline::{AttributeRef, Block, BlockId};
/// # let db = bowline::Db::in_memory()?;
/// let id = BlockId::from_name("app");
/// db.transact(|tx| tx.put_block(&Block::new(id, "package").attribute("stars", 40)))?;
/// let is_liked = |value: AttributeRef<'_>| value.as_number().is_some_and(|stars| stars > 10.0);
/// let graph = db.snapshot().graph();
/// let liked = graph.visit_block(id, |found| found.attributes.get("stars").is_some_and(is_liked))?;
/// assert_eq!(liked, Some(true));
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct AttributeRef<'a>(Lent<'a>);

#[derive(Clone, Copy)]
enum Lent<'a> {
    Text(&'a str),
    /// No text; encoded as in `typed`, and validated.
    Other(&'a [u8]),
}

impl<'a> AttributeRef<'a> {
    /// A validated value.
    fn of(encoded: &'a [u8]) -> Option<AttributeRef<'a>> {
        Some(AttributeRef(match encoded.split_first()? {
            (&TEXT, rest) => Lent::Text(text(&mut Reader::new(rest))?),
            _ => Lent::Other(encoded),
        }))
    }

    /// The text, if it is one.
    ///
    /// ```
    /// # use bowline::{Block, BlockId};
    /// # let db = bowline::Db::in_memory()?;
    /// # db.transact(|tx| tx.put_block(&Block::new(BlockId(1), "package").attribute("stars", 40)))?;
    /// let graph = db.snapshot().graph();
    /// graph.visit_block(BlockId(1), |found| {
    ///     let stars = found.attributes.get("stars").expect("it is there");
    ///     assert_eq!(stars.as_text(), None);
    /// })?;
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn as_text(&self) -> Option<&'a str> {
        match self.0 {
            Lent::Text(text) => Some(text),
            Lent::Other(_) => None,
        }
    }

    /// How many bytes its encoding has, about.
    pub(super) fn encoded_len(&self) -> usize {
        match self.0 {
            Lent::Text(text) => text.len(),
            Lent::Other(encoded) => encoded.len(),
        }
    }

    /// The number: of an integer, of a float, and of a text that is one.
    #[must_use]
    pub fn as_number(&self) -> Option<f64> {
        match self.0 {
            Lent::Text(text) => text.parse().ok(),
            Lent::Other(_) => self.to_value().as_number(),
        }
    }

    /// Whether it is this text, or, for what is no text, its text form is.
    ///
    /// ```
    /// # use bowline::{Block, BlockId};
    /// # let db = bowline::Db::in_memory()?;
    /// # db.transact(|tx| tx.put_block(&Block::new(BlockId(1), "package").attribute("stars", 40)))?;
    /// let graph = db.snapshot().graph();
    /// graph.visit_block(BlockId(1), |found| {
    ///     let stars = found.attributes.get("stars").expect("it is there");
    ///     assert!(stars.reads("40"));
    /// })?;
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn reads(&self, wanted: &str) -> bool {
        match self.0 {
            Lent::Text(text) => text == wanted,
            Lent::Other(_) => self.to_value().reads(wanted),
        }
    }

    /// A copy to keep.
    ///
    /// ```
    /// # use bowline::{Block, BlockId};
    /// # let db = bowline::Db::in_memory()?;
    /// # db.transact(|tx| tx.put_block(&Block::new(BlockId(1), "package").attribute("stars", 40)))?;
    /// let graph = db.snapshot().graph();
    /// graph.visit_block(BlockId(1), |found| {
    ///     let stars = found.attributes.get("stars").expect("it is there");
    ///     assert_eq!(stars.to_value(), bowline::AttributeValue::Int(40));
    /// })?;
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn to_value(&self) -> AttributeValue {
        match self.0 {
            Lent::Text(text) => text.into(),
            // Validated before.
            Lent::Other(encoded) => read_value(&mut Reader::new(encoded)).unwrap_or_default(),
        }
    }
}

impl std::fmt::Debug for AttributeRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_value().fmt(f)
    }
}

fn text<'a>(reader: &mut Reader<'a>) -> Option<&'a str> {
    std::str::from_utf8(reader.bytes()?).ok()
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
        encode_block(&[KindId(1)], &block, &mut value);
        let lent = decode_block(&value).expect("it decodes").attributes;
        assert_eq!((lent.len(), lent.is_empty()), (3, false));
        let text = |(name, value): (&'static str, AttributeRef<'static>)| (name, value.as_text());
        let value: &'static [u8] = value.clone().leak();
        let all: Vec<_> = decode_block(value)
            .expect("it decodes")
            .attributes
            .iter()
            .map(text)
            .collect();
        assert_eq!(
            all,
            [("", Some("empty")), ("b", Some("2")), ("größe", Some(""))]
        );
        assert_eq!(lent.text("b"), Some("2"));
        assert_eq!(lent.text(""), Some("empty"));
        assert_eq!(lent.text("größe"), Some(""));
        for absent in ["a", "bb", "c", "zz"] {
            assert!(lent.get(absent).is_none(), "{absent}");
        }
        assert_eq!(lent.to_attributes(), block.attributes);
        assert_eq!(format!("{lent:?}"), format!("{:?}", block.attributes));
    }

    #[test]
    fn values_of_every_kind_are_lent() {
        for value in super::super::typed::samples() {
            let block = Block::new(BlockId(1), "x").attribute("b", value.clone());
            let block = block.attribute("a", "text").attribute("c", "after");
            let mut bytes = Vec::new();
            encode_block(&[KindId(1)], &block, &mut bytes);
            let lent = decode_block(&bytes).expect("it decodes").attributes;
            assert_eq!(lent.to_attributes(), block.attributes);
            let found = lent.get("b").expect("it is there");
            assert_eq!(found.to_value(), value);
            assert_eq!(found.as_text(), value.as_text());
            assert_eq!(
                found.as_number().map(f64::to_bits),
                value.as_number().map(f64::to_bits)
            );
            assert!(found.reads(&value.to_string()) && !found.reads("other"));
            assert_eq!(
                (lent.text("a"), lent.text("c")),
                (Some("text"), Some("after"))
            );
        }
    }

    #[test]
    fn what_has_no_attributes_lends_none() {
        let mut value = Vec::new();
        encode_block(&[KindId(1)], &Block::new(BlockId(1), "x"), &mut value);
        let lent = decode_block(&value).expect("it decodes").attributes;
        assert!(lent.is_empty() && lent.iter().next().is_none() && lent.get("").is_none());
    }
}
