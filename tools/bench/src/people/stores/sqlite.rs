//! SQLite: tables with integer keys, an index for each way that a query goes, statements prepared once.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::types::Value;
use rusqlite::{Connection, params};

use super::{Answer, PeopleStore, SQLITE};
use crate::fallible::Fallible;
use crate::people::data::People;
use crate::people::questions::Question;
use crate::timing::time;

const SETTINGS: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    PRAGMA cache_size = -1048576;
    PRAGMA mmap_size = 4294967296;
    PRAGMA temp_store = MEMORY;
";
const TABLES: &str = "
    CREATE TABLE countries (id INTEGER PRIMARY KEY, country TEXT NOT NULL);
    CREATE TABLE states (id INTEGER PRIMARY KEY, state TEXT NOT NULL, country_id INTEGER NOT NULL);
    CREATE TABLE cities (id INTEGER PRIMARY KEY, city TEXT NOT NULL, state_id INTEGER NOT NULL);
    CREATE TABLE interests (id INTEGER PRIMARY KEY, interest TEXT NOT NULL);
    CREATE TABLE people (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL, gender TEXT NOT NULL, age INTEGER NOT NULL, city_id INTEGER NOT NULL
    );
    CREATE TABLE has_interest (
        person_id INTEGER NOT NULL, interest_id INTEGER NOT NULL, PRIMARY KEY (person_id, interest_id)
    ) WITHOUT ROWID;
    CREATE TABLE follows (
        source INTEGER NOT NULL, target INTEGER NOT NULL, PRIMARY KEY (source, target)
    ) WITHOUT ROWID;
";
const INDEXES: &str = "
    CREATE INDEX states_by_country ON states (country_id);
    CREATE INDEX cities_by_state ON cities (state_id);
    CREATE INDEX cities_by_name ON cities (city);
    CREATE INDEX people_by_city ON people (city_id);
    CREATE UNIQUE INDEX interested ON has_interest (interest_id, person_id);
    CREATE UNIQUE INDEX followers ON follows (target, source);
    ANALYZE;
    PRAGMA wal_checkpoint(TRUNCATE);
";

pub struct Sqlite {
    connection: Connection,
    load: Duration,
}

impl Sqlite {
    pub fn load(people: &People, directory: &Path) -> Fallible<Sqlite> {
        let mut connection = Connection::open(directory.join("people.sqlite"))?;
        connection.execute_batch(SETTINGS)?;
        let (load, ()) = time(|| {
            let transaction = connection.transaction()?;
            transaction.execute_batch(TABLES)?;
            insert(&transaction, people)?;
            transaction.commit()?;
            Ok(connection.execute_batch(INDEXES)?)
        })?;
        Ok(Sqlite { connection, load })
    }
}

fn insert(connection: &Connection, people: &People) -> Fallible<()> {
    let mut country = connection.prepare("INSERT INTO countries VALUES (?1, ?2)")?;
    for (number, name) in people.countries.iter().enumerate() {
        country.execute(params![number as i64, name])?;
    }
    let mut state = connection.prepare("INSERT INTO states VALUES (?1, ?2, ?3)")?;
    for (number, (name, country)) in people.states.iter().enumerate() {
        state.execute(params![number as i64, name, *country as i64])?;
    }
    let mut city = connection.prepare("INSERT INTO cities VALUES (?1, ?2, ?3)")?;
    for (number, (name, state)) in people.cities.iter().enumerate() {
        city.execute(params![number as i64, name, *state as i64])?;
    }
    let mut interest = connection.prepare("INSERT INTO interests VALUES (?1, ?2)")?;
    for (number, name) in people.interests.iter().enumerate() {
        interest.execute(params![number as i64, name])?;
    }
    let mut insert = connection.prepare("INSERT INTO people VALUES (?1, ?2, ?3, ?4, ?5)")?;
    let mut likes = connection.prepare("INSERT INTO has_interest VALUES (?1, ?2)")?;
    let mut follows = connection.prepare("INSERT INTO follows VALUES (?1, ?2)")?;
    for (number, person) in people.people.iter().enumerate() {
        let number = number as i64;
        let city = person.city as i64;
        insert.execute(params![
            number,
            person.name,
            person.gender,
            person.age,
            city
        ])?;
        for interest in &person.interests {
            likes.execute(params![number, *interest as i64])?;
        }
        for other in &person.follows {
            follows.execute(params![number, *other as i64])?;
        }
    }
    Ok(())
}

impl PeopleStore for Sqlite {
    fn name(&self) -> &'static str {
        SQLITE
    }

    fn about(&self) -> String {
        format!(
            "{}, integers, an index for each way, prepared statements, WAL, a cache of 1 GiB, file mapped; loaded in one \
             transaction, with indexes, in {:.1} s",
            rusqlite::version(),
            self.load.as_secs_f64()
        )
    }

    fn ask(&mut self, question: &Question) -> Fallible<Answer> {
        let mut statement = self.connection.prepare_cached(question.sql)?;
        let columns = statement.column_count();
        let begun = Instant::now();
        let mut found = statement.query([])?;
        let mut rows = Vec::new();
        while let Some(row) = found.next()? {
            let cell = |column| match row.get(column) {
                Ok(Value::Integer(number)) => Ok(number.to_string()),
                Ok(Value::Text(text)) => Ok(text),
                Ok(other) => Err(format!("{other:?} was not expected").into()),
                Err(error) => Err(error.into()),
            };
            rows.push((0..columns).map(cell).collect::<Fallible<_>>()?);
        }
        let elapsed = begun.elapsed();
        Ok(Answer { elapsed, rows })
    }
}
