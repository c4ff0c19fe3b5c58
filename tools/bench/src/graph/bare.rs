//! A breadth-first search over bare arrays: what a traversal costs without a database around it.
//!
//! [`Arrays`] are compressed sparse rows: the targets of all edges, and where each vertex's begin. The search
//! keeps a bit for each vertex, its parent, and the queue, which is the answer. It allocates nothing, checks no
//! revision, reads no kind, and knows vertices by rank alone.

use super::edges::Edge;

/// Compressed sparse rows.
pub struct Arrays {
    /// Where the edges of each vertex begin in `targets`, and at last where all end.
    starts: Vec<u32>,
    targets: Vec<u32>,
}

impl Arrays {
    /// Of edges in order.
    pub fn of(vertices: usize, edges: &[Edge]) -> Arrays {
        let mut starts = vec![0; vertices + 1];
        for &(source, _) in edges {
            starts[source as usize + 1] += 1;
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        Arrays {
            starts,
            targets: edges.iter().map(|&(_, target)| target).collect(),
        }
    }

    pub fn vertices(&self) -> usize {
        self.starts.len() - 1
    }

    /// The targets of a vertex.
    #[inline]
    pub fn row(&self, vertex: u32) -> &[u32] {
        let vertex = vertex as usize;
        &self.targets[self.starts[vertex] as usize..self.starts[vertex + 1] as usize]
    }
}

/// How many vertices a search visited, and how many edges it read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walked {
    pub visited: usize,
    pub touched: u64,
}

/// A search and its memory, which is used again.
pub struct Search {
    is_visited: Vec<u64>,
    pub parents: Vec<u32>,
    /// In the order of the visits.
    pub visited: Vec<u32>,
}

impl Search {
    pub fn new(vertices: usize) -> Search {
        Search {
            is_visited: vec![0; vertices.div_ceil(64)],
            parents: vec![0; vertices],
            visited: Vec::with_capacity(vertices),
        }
    }

    /// Visits all that can be reached from a vertex.
    pub fn run(&mut self, arrays: &Arrays, start: u32) -> Walked {
        self.is_visited.fill(0);
        self.visited.clear();
        self.is_visited[start as usize / 64] |= 1 << (start % 64);
        self.parents[start as usize] = start;
        self.visited.push(start);
        let (mut at, mut touched) = (0, 0);
        while at < self.visited.len() {
            let near = self.visited[at];
            at += 1;
            let row = arrays.row(near);
            touched += row.len() as u64;
            for &far in row {
                let word = &mut self.is_visited[far as usize / 64];
                let bit = 1 << (far % 64);
                if *word & bit == 0 {
                    *word |= bit;
                    self.parents[far as usize] = near;
                    self.visited.push(far);
                }
            }
        }
        Walked {
            visited: self.visited.len(),
            touched,
        }
    }
}
