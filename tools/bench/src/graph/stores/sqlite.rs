//! SQLite: a table of edges in the order of both ends, another index the other way, and recursive queries.
//!
//! Vertices are integers, its fastest keys. Statements are prepared once, everything lies in its page cache, and the
//! file is mapped. A recursive query with `UNION` visits each row once, in the order in which it was found; a row of a
//! query with depths is a vertex and a depth, so that vertices come again at each depth. `CROSS JOIN` holds the order of
//! the tables. Each query is the fastest of those that were tried.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, params};

use super::graph_store::{Answers, Ask, GraphStore, Question, SQLITE, timed};
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
/// The sets of sources are sorted, so that edges are read in the order of the table: a recursive query for (id, depth)
/// takes longer by half, and `WITH` level by level more than twice as long.
const THREE_HOPS: &str = "
    SELECT count(DISTINCT target) FROM edges
    WHERE target <> ?1 AND source IN (
        SELECT ?1
        UNION SELECT target FROM edges WHERE source IN (
            SELECT ?1
            UNION SELECT target FROM edges WHERE source = ?1
        )
    )";
const REACH: &str = "
    WITH RECURSIVE reached (id) AS (
        SELECT ?1
        UNION
        SELECT target FROM reached CROSS JOIN edges ON source = id
    )
    SELECT count(*) FROM reached";
/// The length of a shortest path of `?3` edges from its start to where it meets `?4` edges from its end, at most; null
/// if there is none. One recursive query from the start alone takes a hundred times as long.
const SHORTEST_PATH: &str = "
    WITH RECURSIVE
    forward (id, depth) AS (
        SELECT ?1, 0
        UNION
        SELECT target, depth + 1 FROM forward CROSS JOIN edges ON source = id WHERE depth < ?3
    ),
    backward (id, depth) AS (
        SELECT ?2, 0
        UNION
        SELECT source, depth + 1 FROM backward CROSS JOIN edges ON target = id WHERE depth < ?4
    )
    SELECT min(forward.depth + backward.depth) FROM forward JOIN backward USING (id)";
/// No path of these graphs is longer.
const EDGES_MAX: u32 = 30;

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

    /// The one number that a query gives of a vertex.
    fn number(&self, query: &str, batch: &[Ask]) -> Fallible<Answers> {
        let mut statement = self.connection.prepare_cached(query)?;
        timed(batch, |(vertex, _)| {
            let number: i64 = statement.query_row(params![vertex], |row| row.get(0))?;
            Ok(number.try_into()?)
        })
    }

    /// Asks for longer and longer paths: one edge more each time, at the one end and at the other in turn.
    fn shortest_path(&self, batch: &[Ask]) -> Fallible<Answers> {
        let mut statement = self.connection.prepare_cached(SHORTEST_PATH)?;
        timed(batch, |(from, to)| {
            for edges in 0..EDGES_MAX {
                let (ahead, back) = (edges.div_ceil(2), edges / 2);
                let ask = params![from, to, ahead, back];
                let found: Option<i64> = statement.query_row(ask, |row| row.get(0))?;
                if let Some(found) = found {
                    return Ok(found.try_into()?);
                }
            }
            Err("no path was found".into())
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
            Question::ThreeHops => self.number(THREE_HOPS, batch),
            Question::Reach => self.number(REACH, batch),
            Question::ShortestPath => self.shortest_path(batch),
        }
    }
}
