//! Stores of graphs behind one interface: they answer the same questions about the same graph.
//!
//! | module | what it has |
//! |---|---|
//! | `graph_store` | the interface |
//! | `bowline` | Bowline, through its graph view |
//! | `petgraph` | `petgraph::csr::Csr`, a library of graphs in memory (feature `petgraph`) |
//! | `sqlite` | SQLite, prepared statements and recursive queries (feature `sqlite`) |
//! | `ladybug` | LadybugDB, in a process of Python (`--ladybug`) |
//!
//! A question is asked of a batch of vertices, and the store times the batch itself: the figure of a store in another
//! process is without the pipe to that process. Each answer is a number that the bare arrays give, too.
//!
//! # Invariants
//!
//! - An answer reads all that was found: every far id of a 1-hop, every block of a search.
//! - All stores answer on one thread.

mod bowline;
mod graph_store;
mod ladybug;
#[cfg(feature = "petgraph")]
mod petgraph;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::path::Path;

pub use graph_store::{Ask, GraphStore, LADYBUG, PETGRAPH, Question, SQLITE};

use super::Stage;
use crate::fallible::Fallible;

/// The stores that take part, and the others with the reasons.
pub struct Stores<'a> {
    pub stores: Vec<Box<dyn GraphStore + 'a>>,
    pub left_out: Vec<String>,
}

impl<'a> Stores<'a> {
    /// Loads the graph of a stage into every store that can be had. `python` runs LadybugDB.
    pub fn load(stage: &'a Stage, directory: &Path, python: Option<&str>) -> Fallible<Stores<'a>> {
        let mut stores: Vec<Box<dyn GraphStore + 'a>> =
            vec![Box::new(bowline::Bowline::new(stage))];
        let mut left_out = Vec::new();
        #[cfg(feature = "petgraph")]
        stores.push(Box::new(petgraph::Petgraph::new(stage)?));
        #[cfg(not(feature = "petgraph"))]
        left_out.push(format!("{PETGRAPH}: built without the feature `petgraph`"));
        #[cfg(feature = "sqlite")]
        stores.push(Box::new(sqlite::Sqlite::load(stage, directory)?));
        #[cfg(not(feature = "sqlite"))]
        left_out.push(format!("{SQLITE}: built without the feature `sqlite`"));
        match python.map(|python| ladybug::Ladybug::load(stage, directory, python)) {
            Some(Ok(Ok(ladybug))) => stores.push(Box::new(ladybug)),
            Some(Ok(Err(missing))) => left_out.push(missing),
            Some(Err(error)) => return Err(error),
            None => left_out.push(format!("{LADYBUG}: not asked for (`--ladybug`)")),
        }
        Ok(Stores { stores, left_out })
    }
}
