//! Rows of Bowline beside other stores of graphs: the same questions of the same vertices, in turns.
//!
//! In a round all stores answer the same: 1-hops of the blocks of degree ten in a random order, and one search, of a
//! vertex that the round draws, again and again. Each answer is checked against the bare arrays.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use fastrand::Rng;

use super::Stage;
use super::bare::Arrays;
use super::stores::{Ask, GraphStore, LADYBUG, PETGRAPH, Question, SQLITE, Stores};
use crate::fallible::Fallible;
use crate::measure::{Row, Sample, Turn, check};
use crate::result::Unit;

/// 1-hops of a batch: the clock is read once in so many.
const HOPS: usize = 256;
/// Farther than any vertex.
const NOWHERE: u32 = u32::MAX;

/// The stores and what they are asked.
pub struct Beside<'a> {
    stage: &'a Stage,
    stores: RefCell<Vec<Box<dyn GraphStore + 'a>>>,
    /// Where paths end, one for each start.
    ends: Vec<u32>,
    pub left_out: Vec<String>,
}

impl<'a> Beside<'a> {
    /// Loads the graph into all stores.
    pub fn new(stage: &'a Stage, directory: &Path, python: Option<&str>) -> Fallible<Beside<'a>> {
        let Stores { stores, left_out } = Stores::load(stage, directory, python)?;
        let mut rng = Rng::with_seed(crate::data::SEED);
        let ends = sources(stage).iter().map(|&start| {
            let away = distances(&stage.plain.arrays, start);
            let reached: Vec<u32> = (0..away.len() as u32)
                .filter(|&vertex| (1..NOWHERE).contains(&away[vertex as usize]))
                .collect();
            reached[rng.usize(..reached.len())]
        });
        Ok(Beside {
            ends: ends.collect(),
            stage,
            stores: RefCell::new(stores),
            left_out,
        })
    }

    /// The stores with their configurations.
    pub fn contestants(&self) -> Vec<(String, String)> {
        let stores = self.stores.borrow();
        let told = stores
            .iter()
            .map(|store| (store.name().to_owned(), store.about()));
        told.collect()
    }

    pub fn rows(&self) -> Vec<Row<'_>> {
        let row = |name, question, remark: &str| {
            let stores = self.stores.borrow();
            let able = stores.iter().filter(|store| store.can(question));
            let names = able.map(|store| store.name()).collect();
            let mut row = Row::new(name, Unit::Nanoseconds, names, move |turn| {
                self.sample(question, turn)
            });
            for peer in [PETGRAPH, SQLITE, LADYBUG] {
                row = row.beside(peer, None);
            }
            row.remark(remark)
        };
        vec![
            row(
                "stores: 1-hop of ten",
                Question::OneHop,
                "1,000 blocks of degree ten, every far id read",
            ),
            row(
                "stores: 3-hop",
                Question::ThreeHops,
                "distinct blocks, from a block of degree ten; a round has one start",
            ),
            row(
                "stores: BFS",
                Question::Reach,
                "all that can be reached, from a block of large degree; a round has one start",
            ),
            row(
                "stores: shortest path",
                Question::ShortestPath,
                "from a block of degree ten to one that is drawn, both ends at once but for LadybugDB; a round has one pair",
            ),
        ]
    }

    /// What a round asks.
    fn batch(&self, question: Question, rng: &mut Rng) -> Vec<Ask> {
        let at = rng.usize(..self.ends.len());
        match question {
            Question::OneHop => {
                let hot = &self.stage.hot;
                (0..HOPS)
                    .map(|_| (hot[rng.usize(..hot.len())], 0))
                    .collect()
            }
            Question::Reach => vec![(self.stage.starts[at], 0)],
            Question::ThreeHops | Question::ShortestPath => {
                vec![(sources(self.stage)[at], self.ends[at])]
            }
        }
    }

    /// The right answer.
    fn expected(&self, question: Question, (vertex, end): Ask) -> u64 {
        let arrays = &self.stage.plain.arrays;
        if question == Question::OneHop {
            return arrays.row(vertex).len() as u64;
        }
        let away = distances(arrays, vertex);
        let within = |hops| away.iter().filter(|&&distance| distance <= hops).count() as u64;
        match question {
            Question::ThreeHops => within(3) - 1,
            Question::ShortestPath => u64::from(away[end as usize]),
            Question::OneHop | Question::Reach => within(NOWHERE - 1),
        }
    }

    fn sample(&self, question: Question, turn: Turn) -> Fallible<Sample> {
        let mut stores = self.stores.borrow_mut();
        let store = stores
            .iter_mut()
            .find(|store| store.name() == turn.contestant);
        let store = store.ok_or("no such store")?;
        let batch = self.batch(question, &mut Rng::with_seed(turn.seed));
        let expected: Vec<u64> = batch
            .iter()
            .map(|&ask| self.expected(question, ask))
            .collect();
        let (mut elapsed, mut asked) = (Duration::ZERO, 0);
        while elapsed < turn.sample {
            let answers = store.ask(question, &batch)?;
            check(
                answers.numbers == expected,
                "an answer is another than that of the bare arrays",
            )?;
            elapsed += answers.elapsed;
            asked += batch.len();
        }
        Ok(Sample::figure(elapsed.as_nanos() as f64 / asked as f64))
    }
}

/// From where three hops and paths begin.
fn sources(stage: &Stage) -> &[u32] {
    &stage.hot[..stage.starts.len()]
}

/// How many edges away each vertex is, by the plainest search there is.
fn distances(arrays: &Arrays, start: u32) -> Vec<u32> {
    let mut away = vec![NOWHERE; arrays.vertices()];
    away[start as usize] = 0;
    let mut level = vec![start];
    for distance in 1.. {
        let mut next = Vec::new();
        for far in level.iter().flat_map(|&near| arrays.row(near)) {
            if away[*far as usize] == NOWHERE {
                away[*far as usize] = distance;
                next.push(*far);
            }
        }
        if next.is_empty() {
            break;
        }
        level = next;
    }
    away
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTIONS: [Question; 4] = [
        Question::OneHop,
        Question::ThreeHops,
        Question::Reach,
        Question::ShortestPath,
    ];

    #[test]
    fn every_store_gives_the_answers_of_the_bare_arrays() {
        let directory = tempfile::tempdir().unwrap();
        let stage = Stage::new(8, directory.path()).unwrap();
        let beside = Beside::new(&stage, directory.path(), None).unwrap();
        let mut is_far = false;
        for store in beside.stores.borrow_mut().iter_mut() {
            for question in QUESTIONS {
                if !store.can(question) {
                    continue;
                }
                for at in 0..stage.starts.len() {
                    let batch = [
                        (sources(&stage)[at], beside.ends[at]),
                        (stage.starts[at], beside.ends[at]),
                    ];
                    let told = store.ask(question, &batch).unwrap().numbers;
                    let expected = batch.map(|ask| beside.expected(question, ask));
                    assert_eq!(told, expected, "{}, {question:?}, {batch:?}", store.name());
                    is_far |= question == Question::ShortestPath && expected[0] > 1;
                }
            }
        }
        assert!(is_far, "all paths have one edge");
    }

    #[test]
    fn a_python_that_is_missing_leaves_its_store_out() {
        let directory = tempfile::tempdir().unwrap();
        let stage = Stage::new(8, directory.path()).unwrap();
        let beside = Beside::new(&stage, directory.path(), Some("no-such-python")).unwrap();
        let told = beside.left_out.iter().find(|told| told.contains(LADYBUG));
        assert!(
            told.unwrap().contains("skipped: no-such-python"),
            "{told:?}"
        );
        assert!(beside.contestants().iter().all(|(name, _)| name != LADYBUG));
    }
}
