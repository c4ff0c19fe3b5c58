//! The interface of the stores of graphs.

use std::time::{Duration, Instant};

use crate::fallible::Fallible;

pub const PETGRAPH: &str = "petgraph";
pub const SQLITE: &str = "SQLite";
pub const LADYBUG: &str = "LadybugDB";

/// What is asked of a vertex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// How many edges leave it.
    OneHop,
    /// How many other vertices are within three hops.
    ThreeHops,
    /// How many vertices can be reached, itself included.
    Reach,
    /// How many edges a shortest path to another vertex has.
    ShortestPath,
}

/// The vertex, and where a path ends. Other questions do not read the second.
pub type Ask = (u32, u32);

/// The answers to a batch.
#[derive(Debug)]
pub struct Answers {
    pub elapsed: Duration,
    pub numbers: Vec<u64>,
}

/// A store that has the graph.
pub trait GraphStore {
    fn name(&self) -> &'static str;

    /// Its version and configuration.
    fn about(&self) -> String;

    /// Whether it has an answer to a question at all.
    fn can(&self, _question: Question) -> bool {
        true
    }

    fn ask(&mut self, question: Question, batch: &[Ask]) -> Fallible<Answers>;
}

/// Times the answers to a batch, one by one in this thread.
pub(super) fn timed(
    batch: &[Ask],
    mut answer: impl FnMut(Ask) -> Fallible<u64>,
) -> Fallible<Answers> {
    let mut numbers = Vec::with_capacity(batch.len());
    let begun = Instant::now();
    for &ask in batch {
        numbers.push(answer(ask)?);
    }
    Ok(Answers {
        elapsed: begun.elapsed(),
        numbers,
    })
}
