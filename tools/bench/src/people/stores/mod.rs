//! The stores of the people behind one interface: each answers the same queries in its own words, on one thread.

mod bowline;
mod ladybug;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::path::Path;
use std::time::Duration;

pub use bowline::Bowline;

use super::data::People;
use super::questions::Question;
use crate::fallible::Fallible;

pub const SQLITE: &str = "SQLite";
pub const LADYBUG: &str = "LadybugDB";

/// The rows of an answer as texts, and the time it took.
pub struct Answer {
    pub elapsed: Duration,
    pub rows: Vec<Vec<String>>,
}

/// A store that the people are loaded into.
pub trait PeopleStore {
    fn name(&self) -> &'static str;
    /// Its version and configuration.
    fn about(&self) -> String;
    fn ask(&mut self, question: &Question) -> Fallible<Answer>;
}

/// The other stores that take part, and those that do not with the reasons.
pub struct Others {
    pub stores: Vec<Box<dyn PeopleStore>>,
    pub left_out: Vec<String>,
}

impl Others {
    /// Loads the people into every other store that can be had. `python` runs LadybugDB.
    pub fn load(people: &People, directory: &Path, python: Option<&str>) -> Fallible<Others> {
        let mut stores: Vec<Box<dyn PeopleStore>> = Vec::new();
        let mut left_out = Vec::new();
        #[cfg(feature = "sqlite")]
        stores.push(Box::new(sqlite::Sqlite::load(people, directory)?));
        #[cfg(not(feature = "sqlite"))]
        left_out.push(format!("{SQLITE}: built without the feature `sqlite`"));
        match python.map(|python| ladybug::Ladybug::load(people, directory, python)) {
            Some(Ok(Ok(ladybug))) => stores.push(Box::new(ladybug)),
            Some(Ok(Err(missing))) => left_out.push(missing),
            Some(Err(error)) => return Err(error),
            None => left_out.push(format!("{LADYBUG}: not asked for (`--ladybug`)")),
        }
        Ok(Others { stores, left_out })
    }
}
