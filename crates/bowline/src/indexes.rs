//! Indexes of blocks: how a program creates, lists and drops them. The work is in [`crate::index_build`].

use crate::db::Db;
use crate::handle::Shared;
use crate::index_build;
use crate::reader::DbReader;
use bowline_core::error::Result;
use bowline_types::Index;

impl DbReader {
    /// The indexes, in the order in which they were created.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// db.create_index("person", ["name"])?;
    /// assert_eq!(db.indexes()[0].attributes, ["name"]);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn indexes(&self) -> Vec<Index> {
        let shared: &Shared = self.handle();
        let all = shared.indexes.now();
        let kept = all.kept.iter();
        kept.map(|index| index_build::index_of(shared, index))
            .collect()
    }
}

impl Db {
    /// Creates an index of the blocks of a kind by the values of attributes, for
    /// [`Graph::blocks`](crate::Graph::blocks) and for queries in Cypher. Other threads read and write meanwhile. Returns when
    /// it is complete; at once, if it exists.
    ///
    /// Of several attributes all but the last have to be given to find a block. See docs/design/indexes.md for which values
    /// an index has.
    ///
    /// ```
    /// use bowline::{Block, BlockId, Filter};
    /// # let db = bowline::Db::in_memory()?;
    /// db.transact(|tx| tx.put_block(&Block::new(BlockId(1), "person").attribute("age", 36)))?;
    /// db.create_index("person", ["age"])?;
    /// db.transact(|tx| tx.put_block(&Block::new(BlockId(2), "person").attribute("age", 41)))?;
    /// let graph = db.snapshot().graph();
    /// assert_eq!(graph.blocks("person").filter("age", Filter::above(40)).ids()?, [BlockId(2)]);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidIndex`, `InvalidKind`; `IndexExists` with another uniqueness; `IndexNotFound` when it is dropped while it is
    /// built; `Closed`; `Storage` when the disk fails or is full: the index is then built on after the next opening.
    pub fn create_index<N: Into<String>>(
        &self,
        kind: &str,
        attributes: impl IntoIterator<Item = N>,
    ) -> Result<Index> {
        let attributes = attributes.into_iter().map(Into::into).collect();
        index_build::create(self.handle(), kind, attributes, false)
    }

    /// [`Db::create_index`] of an index in which no two blocks have the same values. From then on a commit fails with
    /// [`Error::NotUnique`](crate::Error::NotUnique) that would give a block the values of another one.
    ///
    /// ```
    /// use bowline::{Block, BlockId, Error};
    /// # let db = bowline::Db::in_memory()?;
    /// db.create_unique_index("person", ["mail"])?;
    /// let put = |id| {
    ///     let block = Block::new(BlockId(id), "person").attribute("mail", "ada@example.org");
    ///     db.transact(|tx| tx.put_block(&block))
    /// };
    /// put(1)?;
    /// assert!(matches!(put(2), Err(Error::NotUnique { other: BlockId(1), .. })));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `BuiltNotUnique` when blocks that exist have the same values; those of [`Db::create_index`].
    pub fn create_unique_index<N: Into<String>>(
        &self,
        kind: &str,
        attributes: impl IntoIterator<Item = N>,
    ) -> Result<Index> {
        let attributes = attributes.into_iter().map(Into::into).collect();
        index_build::create(self.handle(), kind, attributes, true)
    }

    /// Drops an index. Queries and writers do without it as soon as that is committed; then its entries are deleted.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// db.create_index("person", ["age"])?;
    /// db.drop_index("person", ["age"])?;
    /// assert!(db.indexes().is_empty());
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `IndexNotFound`; `Closed`; `Storage` when the disk fails or is full.
    pub fn drop_index<N: Into<String>>(
        &self,
        kind: &str,
        attributes: impl IntoIterator<Item = N>,
    ) -> Result<()> {
        let attributes: Vec<String> = attributes.into_iter().map(Into::into).collect();
        index_build::drop_index(self.handle(), kind, &attributes)
    }
}
