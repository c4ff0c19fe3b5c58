//! Queries about people, their places, interests and followers, in Cypher and in SQL: the nine of prrao87's comparison of graph
//! databases, beside other stores; and a query beside the same by the library's calls.
//!
//! | module | what is in it |
//! |---|---|
//! | `data` | the people |
//! | `questions` | the queries |
//! | `stores` | the stores behind one interface |
//!
//! Before anything is measured each store is asked everything once, and all must have the same rows.

mod data;
mod questions;
mod stores;

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use fastrand::Rng;

use crate::fallible::Fallible;
use crate::measure::{Row, Sample, Turn, check};
use crate::result::Unit;
use crate::store::BOWLINE;
use crate::timing::run_for;
use data::People;
use questions::{QUESTIONS, Question};
use stores::{Bowline, LADYBUG, Others, PeopleStore, SQLITE};

/// The contestant that asks without a query.
const CALLS: &str = "library calls";
/// Queries for which the clock is read once.
const HOPS: u64 = 16;

pub struct Stage {
    people: People,
    bowline: RefCell<Bowline>,
    others: RefCell<Vec<Box<dyn PeopleStore>>>,
    pub left_out: Vec<String>,
}

impl Stage {
    /// Loads so many people into all stores, and has them answer everything once.
    pub fn new(count: usize, directory: &Path, python: Option<&str>) -> Fallible<Stage> {
        eprintln!("{count} people: loading");
        let people = People::generate(count);
        let bowline = Bowline::load(&people, directory)?;
        let Others { stores, left_out } = Others::load(&people, directory, python)?;
        let stage = Stage {
            people,
            bowline: RefCell::new(bowline),
            others: RefCell::new(stores),
            left_out,
        };
        stage.compare()?;
        Ok(stage)
    }

    /// Checks that all stores give the same rows.
    fn compare(&self) -> Fallible<()> {
        for question in &QUESTIONS {
            let expected = self.bowline.borrow_mut().ask(question)?.rows;
            for other in self.others.borrow_mut().iter_mut() {
                let found = other.ask(question)?.rows;
                if found != expected {
                    let (name, other) = (question.name, other.name());
                    return Err(format!("{name}: {expected:?}, and {other}: {found:?}").into());
                }
            }
        }
        for person in 0..10 {
            let bowline = self.bowline.borrow();
            let by_query = bowline.two_hops_by_query(person)?;
            check(
                by_query == bowline.two_hops_by_calls(person)? && by_query > 0,
                "a query and the calls give different paths",
            )?;
        }
        Ok(())
    }

    /// What is loaded.
    pub fn scale(&self) -> String {
        let (people, edges) = (self.people.people.len(), self.people.edges());
        format!("{people} people, {edges} edges")
    }

    /// The stores with their configurations.
    pub fn contestants(&self) -> Vec<(String, String)> {
        let own = self.bowline.borrow();
        let mut told = vec![(own.name().to_owned(), own.about())];
        for other in self.others.borrow().iter() {
            told.push((other.name().to_owned(), other.about()));
        }
        let calls =
            "Bowline's calls, without a query: the person by an index, then neighbors of neighbors";
        told.push((CALLS.to_owned(), calls.to_owned()));
        told
    }

    pub fn rows(&self) -> Vec<Row<'_>> {
        let others = self.others.borrow();
        let names = || {
            let others = others.iter().map(|store| store.name());
            [BOWLINE.name].into_iter().chain(others).collect()
        };
        let row = |question: &'static Question| {
            let run = move |turn: Turn| self.sample(question, turn);
            Row::new(question.name, Unit::Nanoseconds, names(), run)
                .beside(SQLITE, None)
                .beside(LADYBUG, None)
                .remark(question.remark)
                .long()
        };
        let two_hops = Row::new(
            "two hops from a person, by index",
            Unit::Nanoseconds,
            vec![BOWLINE.name, CALLS],
            |turn| self.two_hops(turn),
        );
        let two_hops = two_hops
            .beside(CALLS, Some(1.0 / 1.5))
            .remark("paths of two edges, some 600; the goal is at most 1.5 times the time");
        let questions = QUESTIONS.iter().map(row);
        questions.chain([two_hops]).collect()
    }

    fn sample(&self, question: &Question, turn: Turn) -> Fallible<Sample> {
        let (mut elapsed, mut asked) = (Duration::ZERO, 0);
        while asked == 0 || elapsed < turn.sample {
            elapsed += match turn.contestant == BOWLINE.name {
                true => self.bowline.borrow_mut().ask(question)?.elapsed,
                false => {
                    let mut others = self.others.borrow_mut();
                    let is_it = |store: &&mut Box<dyn PeopleStore>| store.name() == turn.contestant;
                    let store = others.iter_mut().find(is_it).ok_or("no such store")?;
                    store.ask(question)?.elapsed
                }
            };
            asked += 1;
        }
        Ok(Sample::figure(elapsed.as_nanos() as f64 / f64::from(asked)))
    }

    fn two_hops(&self, turn: Turn) -> Fallible<Sample> {
        let bowline = self.bowline.borrow();
        let mut rng = Rng::with_seed(turn.seed);
        let count = self.people.people.len() as i64;
        let mut paths = 0;
        let timed = run_for(turn.sample, HOPS, || {
            let person = rng.i64(0..count);
            let found = match turn.contestant == CALLS {
                true => bowline.two_hops_by_calls(person)?,
                false => bowline.two_hops_by_query(person)?,
            };
            paths += found;
            Ok(())
        })?;
        check(paths > 0, "no path was found")?;
        let paths = paths as f64 / timed.operations as f64;
        Ok(Sample::time(timed).note("paths", paths))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All stores that are built in have the same rows for every query, none of which is empty.
    #[test]
    fn every_store_gives_the_same_rows() {
        let directory = tempfile::tempdir().unwrap();
        let stage = Stage::new(600, directory.path(), None).unwrap();
        for question in &QUESTIONS {
            let rows = stage.bowline.borrow_mut().ask(question).unwrap().rows;
            assert!(!rows.is_empty(), "{}", question.name);
        }
    }
}
