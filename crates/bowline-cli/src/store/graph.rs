//! Where the graph is that a command reads and writes: in a directory, or in a cluster.

use bowline::{Block, BlockId, Db, Edge, Revision};

use super::cluster_graph::RemoteGraphs;
use super::graph_reader::GraphReader;
use crate::args::Write;
use crate::context::{Context, snapshot};
use crate::exit::Failure;

/// Where the graph is: in a directory, or in a cluster.
pub(crate) enum Store {
    Directory(Db),
    Cluster(RemoteGraphs),
}

impl Store {
    /// To read it.
    pub(crate) fn open(context: &Context<'_, '_>) -> Result<Store, Failure> {
        if context.is_remote() {
            return Ok(Store::Cluster(RemoteGraphs::of(context)?));
        }
        Ok(Store::Directory(context.open()?))
    }

    /// To write it; a directory is created when there is none.
    pub(crate) fn open_to_write(
        context: &Context<'_, '_>,
        write: &Write,
    ) -> Result<Store, Failure> {
        if context.is_remote() {
            return Ok(Store::Cluster(RemoteGraphs::to_write(context, write)?));
        }
        Ok(Store::Directory(context.open_to_write(write.durability)?))
    }

    /// The graph as it is now, or as it was at a revision.
    pub(crate) fn graph(
        &self,
        revision: Option<Revision>,
    ) -> Result<Box<dyn GraphReader + '_>, Failure> {
        Ok(match self {
            Store::Directory(db) => Box::new(snapshot(db, revision)?.graph()),
            Store::Cluster(remote) => Box::new(remote.at(revision)?),
        })
    }

    /// Puts a block; gives the revision.
    pub(crate) fn put_block(&self, block: &Block) -> Result<Revision, Failure> {
        match self {
            Store::Directory(db) => {
                db.transact(|tx| tx.put_block(block))?;
                Ok(db.revision())
            }
            Store::Cluster(remote) => remote.put_block(block),
        }
    }

    /// Deletes a block; gives the revision, if there was one.
    pub(crate) fn delete_block(&self, id: BlockId) -> Result<Option<Revision>, Failure> {
        match self {
            Store::Directory(db) => {
                let is_gone = db.transact(|tx| tx.delete_block(id))?;
                Ok(is_gone.then(|| db.revision()))
            }
            Store::Cluster(remote) => remote.delete_block(id),
        }
    }

    /// Puts an edge; gives the revision.
    pub(crate) fn put_edge(&self, edge: &Edge) -> Result<Revision, Failure> {
        match self {
            Store::Directory(db) => {
                db.transact(|tx| tx.put_edge(edge))?;
                Ok(db.revision())
            }
            Store::Cluster(remote) => remote.put_edge(edge),
        }
    }

    /// Deletes an edge; gives the revision, if there was one.
    pub(crate) fn delete_edge(
        &self,
        source: BlockId,
        kind: &str,
        target: BlockId,
    ) -> Result<Option<Revision>, Failure> {
        match self {
            Store::Directory(db) => {
                let is_gone = db.transact(|tx| tx.delete_edge(source, kind, target))?;
                Ok(is_gone.then(|| db.revision()))
            }
            Store::Cluster(remote) => remote.delete_edge(source, kind, target),
        }
    }

    /// Closes a directory; what it cannot write then is told.
    pub(crate) fn close(self) -> Result<(), Failure> {
        match self {
            Store::Directory(db) => Ok(db.close()?),
            Store::Cluster(_) => Ok(()),
        }
    }
}
