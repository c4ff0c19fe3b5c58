//! [`BulkLoad`]: the blocks and edges of a file into a directory, past the log, as one revision or not at all.
//!
//! What is there already is not read, except for blocks that a file of edges only mentions: these stay as they are.

use bowline::{Db, Error, GraphIngest, GraphLoaded};

use super::sink::{block_of, edge_of};
use crate::exit::{Exit, Failure};
use crate::import::{Item, Position, Refusal};

pub(crate) struct BulkLoad {
    ingest: GraphIngest,
}

impl BulkLoad {
    pub(super) fn new(db: &Db) -> Result<BulkLoad, Failure> {
        let ingest = db.ingest_graph()?;
        Ok(BulkLoad { ingest })
    }

    /// Adds a block or an edge; gives the refusal of anything else.
    pub(crate) fn add(&mut self, at: Position, item: &Item) -> Result<Option<Refusal>, Failure> {
        let added = match item {
            Item::Block(block) if block.if_absent => self.ingest.block_if_absent(&block_of(block)),
            Item::Block(block) => self.ingest.block(&block_of(block)),
            Item::Edge(edge) => self.ingest.edge(&edge_of(edge)),
            Item::KeyValue(_) => {
                let message = "a key is no part of a graph: import it without --bulk".to_owned();
                return Ok(Some(Refusal { at, message }));
            }
        };
        match added {
            Ok(()) => Ok(None),
            Err(error) => {
                let place = Refusal {
                    at,
                    message: error.to_string(),
                };
                Err(nothing_loaded(&error, &place.to_string()))
            }
        }
    }

    /// Makes all of it visible at one revision.
    pub(crate) fn commit(self) -> Result<GraphLoaded, Failure> {
        let committed = self.ingest.commit();
        committed.map_err(|error| nothing_loaded(&error, &error.to_string()))
    }
}

fn nothing_loaded(error: &Error, text: &str) -> Failure {
    let exit = match error {
        // The file names no such block: it is not the answer to a question.
        Error::MissingBlock { .. } => Exit::Invalid,
        error => Exit::of_database(error),
    };
    Failure::new(exit, format!("nothing was loaded: {text}"))
}
