//! Writes of blocks and edges.

use std::sync::Arc;

use bowline_proto::v1 as pb;

use super::wire::IntoWire;
use super::{Block, BlockId, Edge, EdgeKey, GraphClient, GraphWrite, service};
use crate::caller::{Caller, Repeat};
use crate::v1::{awaits, header, senseless, typed};
use crate::{Header, Result};

/// Writes to be sent. [`GraphClient::write`] gives them; `await` sends them.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::{Block, BlockId, Edge, GraphWrite};
///
/// let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
/// let replaced = client
///     .graph()
///     .write([
///         GraphWrite::DeleteBlock(BlockId::from_name("old-lib")),
///         GraphWrite::PutBlock(Block::new(lib, "package").attribute("version", "2.0")),
///         GraphWrite::PutEdge(Edge::new(app, "depends_on", lib)),
///     ])
///     .await?;
/// println!("all at revision {}", replaced.header.revision);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until it is awaited"]
pub struct Write {
    caller: Arc<Caller>,
    request: pb::WriteRequest,
}

impl GraphClient {
    /// Carries out several writes in order: all at one revision, or none of them.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::{Block, BlockId, Edge, GraphWrite};
    /// # let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
    /// // Both blocks and their edge, or nothing.
    /// client
    ///     .graph()
    ///     .write([
    ///         GraphWrite::PutBlock(Block::new(app, "package")),
    ///         GraphWrite::PutBlock(Block::new(lib, "package")),
    ///         GraphWrite::PutEdge(Edge::new(app, "depends_on", lib)),
    ///     ])
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn write(&self, writes: impl IntoIterator<Item = GraphWrite>) -> Write {
        let writes = writes.into_iter().map(GraphWrite::into_wire).collect();
        Write {
            caller: Arc::clone(&self.caller),
            request: pb::WriteRequest { writes },
        }
    }

    /// Creates or replaces a block.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::{Block, BlockId};
    /// # let id = BlockId::from_name("app");
    /// client.graph().put_block(Block::new(id, "package").attribute("name", "app")).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_block(&self, block: Block) -> Write {
        self.write([GraphWrite::PutBlock(block)])
    }

    /// Deletes a block with every edge from or to it.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # let id = bowline_client::graph::BlockId::from_name("app");
    /// client.graph().delete_block(id).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_block(&self, id: BlockId) -> Write {
        self.write([GraphWrite::DeleteBlock(id)])
    }

    /// Creates or replaces an edge between two blocks that exist.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::{BlockId, Edge};
    /// # let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
    /// client.graph().put_edge(Edge::new(app, "depends_on", lib)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_edge(&self, edge: Edge) -> Write {
        self.write([GraphWrite::PutEdge(edge)])
    }

    /// Deletes an edge.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::{BlockId, EdgeKey};
    /// # let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
    /// client.graph().delete_edge(EdgeKey::new(app, "depends_on", lib)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_edge(&self, key: EdgeKey) -> Write {
        self.write([GraphWrite::DeleteEdge(key)])
    }
}

impl Write {
    async fn send(self) -> Result<WriteReply> {
        let caller = &*self.caller;
        let count = self.request.writes.len();
        let send = |channel, request| async move { service(caller, channel).write(request).await };
        let sent = caller.call(Repeat::Never, None, self.request, send).await;
        let (reply, _) = sent.map_err(typed)?;
        let understood = header(reply.header).and_then(|(header, _)| {
            if reply.changed.len() == count {
                Ok(header)
            } else {
                Err(senseless("it does not answer each write"))
            }
        });
        Ok(WriteReply {
            // Something was written, whatever the answer means.
            header: understood.map_err(crate::Error::of_change)?,
            changed: reply.changed,
        })
    }
}

awaits!(Write, WriteReply);

/// The result of writes.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::{BlockId, WriteReply};
///
/// let gone: WriteReply = client.graph().delete_block(BlockId::from_name("app")).await?;
/// println!("{}", if gone.changed[0] { "deleted" } else { "there was none" });
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteReply {
    /// The reply header; its revision is the revision of the writes, or the newest one if they changed
    /// nothing.
    pub header: Header,
    /// For each write, in order: true for a put; for a deletion, whether there was something to delete.
    pub changed: Vec<bool>,
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::silent::silent_server;
    use crate::{Client, Error};

    #[tokio::test]
    async fn a_write_whose_answer_is_lost_is_not_sent_again() {
        let (address, taken) = silent_server(b"KINDOFB").await;
        let client = Client::builder()
            .endpoints([address])
            .connect_lazy()
            .unwrap();
        let block = Block::new(BlockId(1), "KINDOFB");
        let sent = client.graph().put_block(block).await;
        assert!(
            matches!(sent, Err(Error::UnknownOutcome { .. })),
            "{sent:?}"
        );
        assert_eq!(taken.load(Ordering::Relaxed), 1);
    }
}
