//! The client's calls for the indexes of blocks.

use super::Client;
use crate::{Index, Result, index};

impl Client {
    /// Creates an index of the blocks of a kind by the values of attributes, which queries in Cypher read by. Others read
    /// and write meanwhile. Returns when it is complete, however long that takes; at once, if it exists.
    ///
    /// A connection that breaks meanwhile is a repetition: the cluster goes on building by itself. So it does when the
    /// future is dropped.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let index = client.create_index("person", ["name", "age"]).await?;
    /// println!("read by since revision {:?}", index.ready_since);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `IndexExists` with another uniqueness; `Refused` for a kind or attributes that no index can have, more than 100
    /// indexes, and a cluster with a member of an earlier version; `NotFound` when it is dropped while it is built; `NoSpace`;
    /// those of [any read](crate::Error#errors-of-any-read), after which it may be called again.
    pub async fn create_index<N: Into<String>>(
        &self,
        kind: impl Into<String>,
        attributes: impl IntoIterator<Item = N>,
    ) -> Result<Index> {
        index::create(&self.caller, kind.into(), owned(attributes), false).await
    }

    /// [`Client::create_index`] of an index in which no two blocks have the same values. From then on a write, a commit or a
    /// query fails with [`Error::NotUnique`](crate::Error::NotUnique) that would give a block the values of another one.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::Error;
    /// use bowline_client::graph::{Block, BlockId};
    ///
    /// client.create_unique_index("person", ["mail"]).await?;
    /// let block = Block::new(BlockId(2), "person").attribute("mail", "ada@example.org");
    /// match client.graph().put_block(block).await {
    ///     Err(Error::NotUnique { other, .. }) => println!("block {other} has this address"),
    ///     put => println!("revision {}", put?.header.revision),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Refused` when blocks that exist have the same values, with pairs of them; those of [`Client::create_index`].
    pub async fn create_unique_index<N: Into<String>>(
        &self,
        kind: impl Into<String>,
        attributes: impl IntoIterator<Item = N>,
    ) -> Result<Index> {
        index::create(&self.caller, kind.into(), owned(attributes), true).await
    }

    /// Lists the indexes of the kinds that the user may read, in the order in which they were created. Linearizable.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// for index in client.indexes().await? {
    ///     println!("{} by {:?}: {:?}", index.kind, index.attributes, index.ready_since);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [any read](crate::Error#errors-of-any-read).
    pub async fn indexes(&self) -> Result<Vec<Index>> {
        index::list(&self.caller).await
    }

    /// Drops an index. Queries and writes do without it from then on; its entries are deleted afterwards.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// client.drop_index("person", ["name", "age"]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound` if there is none; those of [any change](crate::Error#errors-of-any-change).
    pub async fn drop_index<N: Into<String>>(
        &self,
        kind: impl Into<String>,
        attributes: impl IntoIterator<Item = N>,
    ) -> Result<()> {
        index::drop(&self.caller, kind.into(), owned(attributes)).await
    }
}

fn owned<N: Into<String>>(attributes: impl IntoIterator<Item = N>) -> Vec<String> {
    attributes.into_iter().map(Into::into).collect()
}
