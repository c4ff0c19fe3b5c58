//! SQLite: a table of edges in the order of both ends, another index the other way, and recursive queries.
//!
//! Vertices are integers, its fastest keys. Statements are prepared once, everything lies in its page cache, and the
//! file is mapped. A recursive query with `UNION` visits each row once, in the order in which it was found; a row of a
//! query with depths is a vertex and a depth, so that vertices come again at each depth. `CROSS JOIN` holds the order of
//! the tables.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, params};

use super::{Answers, Ask, GraphStore, Question, SQLITE, timed};
use crate::fallible::Fallible;
use crate::graph::Stage;
use crate::timing::time;

const SETTINGS: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    PRAGMA cache_size = -1048576;
    PRAGMA mmap_size = 4294967296;
    PRAGMA temp_store = MEMORY;
";
const TABLES: &str = "
    CREATE TABLE edges (
        source INTEGER NOT NULL,
        target INTEGER NOT NULL,
        PRIMARY KEY (source, target)
    ) WITHOUT ROWID;
    CREATE UNIQUE INDEX reverse_edges ON edges (target, source);
";
const ONE_HOP: &str = "SELECT target FROM edges WHERE source = ?1";
const THREE_HOPS: &str = "
    WITH RECURSIVE near (id, depth) AS (
        SELECT ?1, 0
        UNION
        SELECT target, depth + 1 FROM near CROSS JOIN edges ON source = id WHERE depth < 3
    )
    SELECT count(DISTINCT id) - 1 FROM near";
const REACH: &str = "
    WITH RECURSIVE reached (id) AS (
        SELECT ?1
        UNION
        SELECT target FROM reached CROSS JOIN edges ON source = id
    )
    SELECT count(*) FROM reached";
/// The bound keeps a search for what cannot be reached from going round for ever.
const SHORTEST_PATH: &str = "
    WITH RECURSIVE near (id, depth) AS (
        SELECT ?1, 0
        UNION
        SELECT target, depth + 1 FROM near CROSS JOIN edges ON source = id WHERE depth < 30
    )
    SELECT depth FROM near WHERE id = ?2 LIMIT 1";

pub struct Sqlite {
    connection: Connection,
    load: Duration,
}

impl Sqlite {
    pub fn load(stage: &Stage, directory: &Path) -> Fallible<Sqlite> {
        let mut connection = Connection::open(directory.join("edges.sqlite"))?;
        connection.execute_batch(SETTINGS)?;
        let (load, ()) = time(|| {
            let transaction = connection.transaction()?;
            transaction.execute_batch(TABLES)?;
            {
                let mut insert = transaction.prepare("INSERT INTO edges VALUES (?1, ?2)")?;
                let arrays = &stage.plain.arrays;
                for near in 0..arrays.vertices() as u32 {
                    for far in arrays.row(near) {
                        insert.execute(params![near, far])?;
                    }
                }
            }
            transaction.commit()?;
            Ok(connection.execute_batch("ANALYZE; PRAGMA wal_checkpoint(TRUNCATE);")?)
        })?;
        Ok(Sqlite { connection, load })
    }

    fn number(&self, query: &str, batch: &[Ask], has_end: bool) -> Fallible<Answers> {
        let mut statement = self.connection.prepare_cached(query)?;
        timed(batch, |(vertex, end)| {
            let number: i64 = if has_end {
                statement.query_row(params![vertex, end], |row| row.get(0))?
            } else {
                statement.query_row(params![vertex], |row| row.get(0))?
            };
            Ok(number.try_into()?)
        })
    }
}

impl GraphStore for Sqlite {
    fn name(&self) -> &'static str {
        SQLITE
    }

    fn about(&self) -> String {
        format!(
            "{}, integers, `WITHOUT ROWID` and an index the other way, prepared statements, WAL, a cache of 1 GiB, \
             file mapped; the graph loaded in order, in one transaction, in {:.1} s",
            rusqlite::version(),
            self.load.as_secs_f64()
        )
    }

    fn ask(&mut self, question: Question, batch: &[Ask]) -> Fallible<Answers> {
        match question {
            Question::OneHop => {
                let mut statement = self.connection.prepare_cached(ONE_HOP)?;
                timed(batch, |(vertex, _)| {
                    let mut rows = statement.query(params![vertex])?;
                    let (mut count, mut folded) = (0, 0);
                    while let Some(row) = rows.next()? {
                        count += 1;
                        folded ^= row.get::<_, i64>(0)?;
                    }
                    std::hint::black_box(folded);
                    Ok(count)
                })
            }
            Question::ThreeHops => self.number(THREE_HOPS, batch, false),
            Question::Reach => self.number(REACH, batch, false),
            Question::ShortestPath => self.number(SHORTEST_PATH, batch, true),
        }
    }
}
