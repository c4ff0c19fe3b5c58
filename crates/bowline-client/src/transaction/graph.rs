//! The graph within a transaction: blocks, edges and neighbors, read and written with the keys.

use super::Transaction;
use super::state::Read;
use crate::graph::{Block, BlockId, Direction, Edge, EdgeKey, GraphWrite, Neighbor};
use crate::{Error, Result};

impl Transaction {
    /// A block.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::graph::BlockId;
    ///
    /// let mut tx = client.begin();
    /// if let Some(mut block) = tx.block(BlockId::from_name("app")).await? {
    ///     block.content = "1.1".into();
    ///     tx.put_block(block);
    /// }
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    pub async fn block(&mut self, id: BlockId) -> Result<Option<Block>> {
        if let Some(own) = self.state.blocks.get(&id) {
            return Ok(own.clone());
        }
        self.stored_block(id).await
    }

    async fn stored_block(&mut self, id: BlockId) -> Result<Option<Block>> {
        self.state.reads.insert(Read::Block(id));
        let graph = &self.graph();
        let found = self.read(|read| async move {
            let reply = graph.blocks([id]).read_at(read).await?;
            Ok((reply.blocks, reply.revision))
        });
        Ok(found.await?.into_iter().next())
    }

    /// An edge.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::graph::{BlockId, Edge};
    ///
    /// let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
    /// let mut tx = client.begin();
    /// if tx.edge(app, "depends_on", lib).await?.is_none() {
    ///     tx.put_edge(Edge::new(app, "depends_on", lib));
    /// }
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    pub async fn edge(
        &mut self,
        source: BlockId,
        kind: impl Into<String>,
        target: BlockId,
    ) -> Result<Option<Edge>> {
        let key = EdgeKey::new(source, kind, target);
        if let Some(own) = self.state.own_edge(&key) {
            return Ok(own);
        }
        self.state.reads.insert(Read::Edge(key.clone()));
        let (graph, key) = (&self.graph(), &key);
        let found = self.read(|read| async move {
            let reply = graph.edges([key.clone()]).read_at(read).await?;
            Ok((reply.edges, reply.revision))
        });
        Ok(found.await?.into_iter().next())
    }

    /// The blocks next to a block, by kind, then by id; for both directions those it points to come first. No
    /// kinds means every kind. All edges of the block in that direction count as read.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::graph::{BlockId, Direction};
    ///
    /// let lib = BlockId::from_name("lib");
    /// let mut tx = client.begin();
    /// let users = tx.neighbors(lib, Direction::In, ["depends_on"]).await?;
    /// if users.is_empty() {
    ///     tx.delete_block(lib).await?;
    /// }
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound` when there is no such block. `Refused` when it has more neighbors than the server tells at
    /// once.
    pub async fn neighbors<N: Into<String>>(
        &mut self,
        id: BlockId,
        direction: Direction,
        kinds: impl IntoIterator<Item = N>,
    ) -> Result<Vec<Neighbor>> {
        let kinds: Vec<String> = kinds.into_iter().map(Into::into).collect();
        let is_own = match self.state.blocks.get(&id) {
            Some(None) => return Err(missing(id)),
            own => own.is_some(),
        };
        // Determines the transaction's revision, too, which a refusal of the server would not.
        let is_stored = self.stored_block(id).await?.is_some();
        if !is_stored && !is_own {
            return Err(missing(id));
        }
        if direction != Direction::In {
            self.state.reads.insert(Read::EdgesOut(id));
        }
        if direction != Direction::Out {
            self.state.reads.insert(Read::EdgesIn(id));
        }
        let mut stored = Vec::new();
        if is_stored {
            let graph = &self.graph();
            let found = self.read(|read| async move {
                let neighbors = graph.neighbors(id).direction(direction);
                let reply = neighbors.read_at(read).await?;
                Ok(((reply.neighbors, reply.more), reply.revision))
            });
            let (neighbors, more) = found.await?;
            if more {
                let message = "the block has more neighbors than the server tells at once";
                return Err(Error::Refused {
                    message: format!("{message}: raise --max-traversal-blocks there"),
                });
            }
            stored = neighbors;
        }
        let mut all = self.state.neighbors(id, direction, stored);
        if !kinds.is_empty() {
            all.retain(|neighbor| kinds.iter().any(|kind| **kind == *neighbor.kind));
        }
        Ok(all)
    }

    /// Creates or replaces a block. Its edges stay.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::graph::{Block, BlockId};
    ///
    /// let mut tx = client.begin();
    /// tx.put_block(Block::new(BlockId::from_name("app"), "package"));
    /// tx.put("packages/app", "1.0")?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_block(&mut self, block: Block) {
        self.state.blocks.insert(block.id, Some(block.clone()));
        self.state.graph.push(GraphWrite::PutBlock(block));
    }

    /// Deletes a block and all its edges. Returns `false` when the block does not exist. An edge that another
    /// commit adds to it meanwhile is a conflict, under either isolation.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::graph::BlockId;
    ///
    /// let mut tx = client.begin();
    /// if tx.delete_block(BlockId::from_name("app")).await? {
    ///     tx.delete("packages/app").await?;
    /// }
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    pub async fn delete_block(&mut self, id: BlockId) -> Result<bool> {
        if self.block(id).await?.is_none() {
            return Ok(false);
        }
        self.state.delete_block(id);
        Ok(true)
    }

    /// Creates or replaces an edge. The commit checks that both blocks exist, in the database or in this
    /// transaction.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::graph::{Block, BlockId, Edge};
    ///
    /// let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
    /// let mut tx = client.begin();
    /// tx.put_block(Block::new(lib, "package"));
    /// tx.put_edge(Edge::new(app, "depends_on", lib));
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_edge(&mut self, edge: Edge) {
        let own = Some(edge.attributes.clone());
        self.state.edges.insert(edge.key(), own);
        self.state.graph.push(GraphWrite::PutEdge(edge));
    }

    /// Deletes an edge. Returns `false` when the edge does not exist.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::graph::{BlockId, Edge};
    ///
    /// let [app, old, new] = ["app", "lib-1", "lib-2"].map(BlockId::from_name);
    /// let mut tx = client.begin();
    /// if tx.delete_edge(app, "depends_on", old).await? {
    ///     tx.put_edge(Edge::new(app, "depends_on", new));
    /// }
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    pub async fn delete_edge(
        &mut self,
        source: BlockId,
        kind: impl Into<String>,
        target: BlockId,
    ) -> Result<bool> {
        let key = EdgeKey::new(source, kind, target);
        let found = self.edge(source, key.kind.clone(), target).await?;
        if found.is_none() {
            return Ok(false);
        }
        self.state.edges.insert(key.clone(), None);
        self.state.graph.push(GraphWrite::DeleteEdge(key));
        Ok(true)
    }
}

fn missing(id: BlockId) -> Error {
    Error::NotFound {
        message: format!("block {id} does not exist: put it first"),
    }
}
