//! Bowline: blocks are asked by id, and answered through the graph view.

use super::graph_store::{Answers, Ask, GraphStore, Question, timed};
use crate::fallible::Fallible;
use crate::graph::Stage;
use crate::graph::stage::{hop, number, walk};
use crate::store::BOWLINE;

pub struct Bowline<'a> {
    stage: &'a Stage,
}

impl<'a> Bowline<'a> {
    pub fn new(stage: &'a Stage) -> Bowline<'a> {
        Bowline { stage }
    }
}

impl GraphStore for Bowline<'_> {
    fn name(&self) -> &'static str {
        BOWLINE.name
    }

    fn about(&self) -> String {
        format!(
            "{}, default settings but for a view of up to 1 GiB, `Batched` every 10 ms; the graph loaded in \
             bulk in {:.1} s",
            BOWLINE.version,
            self.stage.load.bulk.time.as_secs_f64()
        )
    }

    fn ask(&mut self, question: Question, batch: &[Ask]) -> Fallible<Answers> {
        let graph = self.stage.plain.db.snapshot().graph();
        let id = |vertex| self.stage.id(vertex);
        match question {
            Question::OneHop => timed(batch, |(vertex, _)| {
                let (count, folded) = hop(&graph, id(vertex))?;
                std::hint::black_box(folded);
                Ok(count as u64)
            }),
            Question::ThreeHops => timed(batch, |(vertex, _)| {
                let found = graph.traverse(id(vertex)).max_depth(3).run()?;
                let folded = found.ids().fold(0, |folded, id| folded ^ number(id));
                std::hint::black_box(folded);
                Ok(found.len() as u64 - 1)
            }),
            Question::Reach => timed(batch, |(vertex, _)| {
                let found = walk(&graph, id(vertex))?;
                let folded = found.ids().fold(0, |folded, id| folded ^ number(id));
                std::hint::black_box(folded);
                Ok(found.len() as u64)
            }),
            Question::ShortestPath => timed(batch, |(from, to)| {
                let path = graph.shortest_path(id(from), id(to)).find()?;
                Ok(path.ok_or("no path was found")?.blocks.len() as u64 - 1)
            }),
        }
    }
}
