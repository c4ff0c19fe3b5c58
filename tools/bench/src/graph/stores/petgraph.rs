//! petgraph: its compressed sparse rows, the type of its that searches fastest.
//!
//! It numbers vertices, so it is asked by number; the ids of what it finds are read from an array beside it, as the
//! bare arrays do. The memory of its search is allocated once. Searches are its own `Bfs`; the one of three hops is
//! level by level with its map of visited vertices, as `Bfs` knows no depth.
//!
//! It has no row of shortest paths: those of the library have weights. Nor one of PageRank: the library's function
//! leaves out the jump from vertices that lead to the one that is computed, so that its ranks are others than
//! those of Graphalytics, and it compares each vertex with the edges of each other.

use std::collections::VecDeque;

use petgraph::csr::Csr;
use petgraph::visit::{Bfs, VisitMap, Visitable};

use super::graph_store::{Answers, Ask, GraphStore, PETGRAPH, Question, timed};
use crate::fallible::Fallible;
use crate::graph::Stage;
use crate::graph::stage::number;

type Rows = Csr<(), ()>;

pub struct Petgraph<'a> {
    stage: &'a Stage,
    rows: Rows,
    search: Bfs<u32, <Rows as Visitable>::Map>,
    /// In the order of the visits.
    visited: Vec<u32>,
}

impl<'a> Petgraph<'a> {
    pub fn new(stage: &'a Stage) -> Fallible<Petgraph<'a>> {
        let arrays = &stage.plain.arrays;
        let vertices = arrays.vertices() as u32;
        let edges: Vec<(u32, u32)> = (0..vertices)
            .flat_map(|near| arrays.row(near).iter().map(move |&far| (near, far)))
            .collect();
        let mut rows = Rows::from_sorted_edges(&edges).map_err(|_| "edges out of order")?;
        // It made those that edges mention.
        while rows.node_count() < vertices as usize {
            rows.add_node(());
        }
        let search = Bfs {
            stack: VecDeque::with_capacity(vertices as usize),
            discovered: rows.visit_map(),
        };
        Ok(Petgraph {
            stage,
            rows,
            search,
            visited: Vec::with_capacity(vertices as usize),
        })
    }

    fn begin(&mut self, start: u32) {
        self.search.stack.clear();
        self.visited.clear();
        self.rows.reset_map(&mut self.search.discovered);
        self.search.discovered.visit(start);
    }

    fn reach(&mut self, start: u32) {
        self.begin(start);
        self.search.stack.push_back(start);
        while let Some(vertex) = self.search.next(&self.rows) {
            self.visited.push(vertex);
        }
    }

    fn within(&mut self, start: u32, hops: u32) {
        self.begin(start);
        self.visited.push(start);
        let mut level = 0;
        for _ in 0..hops {
            let end = self.visited.len();
            for at in level..end {
                for &far in self.rows.neighbors_slice(self.visited[at]) {
                    if self.search.discovered.visit(far) {
                        self.visited.push(far);
                    }
                }
            }
            level = end;
        }
    }

    /// Reads the ids of some vertices.
    fn read(&self, vertices: &[u32]) {
        let ids = vertices.iter().map(|&vertex| number(self.stage.id(vertex)));
        std::hint::black_box(ids.fold(0, |folded, id| folded ^ id));
    }
}

impl GraphStore for Petgraph<'_> {
    fn name(&self) -> &'static str {
        PETGRAPH
    }

    fn about(&self) -> String {
        "0.8.3, `Csr` in memory, asked by number; memory of searches allocated once".to_owned()
    }

    fn can(&self, question: Question) -> bool {
        question != Question::ShortestPath
    }

    fn ask(&mut self, question: Question, batch: &[Ask]) -> Fallible<Answers> {
        match question {
            Question::OneHop => timed(batch, |(vertex, _)| {
                let row = self.rows.neighbors_slice(vertex);
                self.read(row);
                Ok(row.len() as u64)
            }),
            Question::ThreeHops => timed(batch, |(vertex, _)| {
                self.within(vertex, 3);
                self.read(&self.visited);
                Ok(self.visited.len() as u64 - 1)
            }),
            Question::Reach => timed(batch, |(vertex, _)| {
                self.reach(vertex);
                self.read(&self.visited);
                Ok(self.visited.len() as u64)
            }),
            Question::ShortestPath => Err("not among its questions".into()),
        }
    }
}
