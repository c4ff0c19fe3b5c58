//! Queries in Cypher, of a snapshot, of a transaction and of the newest state.
//!
//! A block is a node whose labels are its kinds, and whose attributes are its properties. An edge is a relationship.
//! What the language is, and what differs, is in docs/cypher.md. [`bowline_query`] parses, plans and runs; the graph of a
//! snapshot answers it in [`crate::graph_view`], that of a transaction in [`transaction`], and one whose commit is another's
//! in [`drafted`]. The graph's algorithms are procedures ([`algorithms`]).
//!
//! Invariants: a query that fails has written nothing; a transaction that queries conflicts with every commit that could
//! have changed an answer, since each page that a query reads is a range of the transaction's read set.

mod algorithms;
mod drafted;
mod own_entries;
mod transaction;

use std::sync::Arc;

use bowline_query::{Answer, Error, Parameters, Query};
use jiff::{Timestamp, tz::TimeZone};

use crate::db::Db;
use crate::handle::{Shared, retry_conflicts};
use crate::reader::DbReader;
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;
use bowline_core::error::Result as StoreResult;
use bowline_types::Revision;

pub use algorithms::Algorithms;
pub use drafted::{DraftRead, Drafted};
pub use transaction::ModelError;

/// What a query returns.
type Result<T> = std::result::Result<T, Error>;

/// A query as of now.
fn query<'q>(shared: &Shared, text: &'q str) -> Query<'q> {
    let wall_ms = i64::try_from(shared.clock().wall_ms()).unwrap_or(i64::MAX);
    let now = Timestamp::from_millisecond(wall_ms).unwrap_or(Timestamp::MAX);
    Query::new(text)
        .now(now.to_zoned_datetime(TimeZone::UTC))
        .seed(fastrand::u64(..))
        .procedures(&Algorithms)
        .plans(Arc::clone(&shared.plans))
}

fn store(error: bowline_core::Error) -> Error {
    Error::Store(error.into())
}

impl Snapshot {
    /// A query as of now, to be run on [`Snapshot::graph`] with limits, a cancel callback, or row by row.
    ///
    /// ```
    /// use bowline::cypher::{Limits, Parameters};
    /// # let db = bowline::Db::in_memory()?;
    /// let snapshot = db.snapshot();
    /// let query = snapshot.build_query("UNWIND range(1, 10) AS i RETURN i");
    /// let query = query.limits(Limits { rows: 5, ..Limits::default() });
    /// let error = query.run(&snapshot.graph(), &Parameters::new()).unwrap_err();
    /// assert!(error.to_string().contains("more than 5 rows"));
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn build_query<'q>(&self, text: &'q str) -> Query<'q> {
        query(self.handle(), text)
    }

    /// Answers a query in Cypher that reads.
    ///
    /// With limits, a cancel callback or row by row: [`Snapshot::build_query`].
    ///
    /// ```
    /// use bowline::cypher::{Parameters, Value};
    /// use bowline::{Block, BlockId, Edge};
    /// # let db = bowline::Db::in_memory()?;
    /// let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
    /// db.transact(|tx| {
    ///     tx.put_block(&Block::new(app, "package").attribute("name", "app"))?;
    ///     tx.put_block(&Block::new(lib, "package").attribute("name", "lib"))?;
    ///     tx.put_edge(&Edge::new(app, "depends_on", lib))
    /// })?;
    /// let parameters = Parameters::from([("name".into(), Value::from("lib"))]);
    /// let text = "MATCH (p:package)-[:depends_on*1..3]->({name: $name}) RETURN p.name";
    /// let answer = db.snapshot().query(text, &parameters)?;
    /// assert_eq!(answer.rows, [[Value::from("app")]]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// What is wrong with the text or the parameters, with its place; a query that writes; a limit; a failed read.
    pub fn query(&self, text: &str, parameters: &Parameters) -> Result<Answer> {
        query(self.handle(), text).run(&self.graph(), parameters)
    }
}

impl DbReader {
    /// Answers a query in Cypher that reads, at the newest revision, or at the one that the text asks for by
    /// `AT REVISION n` before the query.
    ///
    /// ```
    /// use bowline::cypher::{Parameters, Value};
    /// # use bowline::{Block, BlockId, Db, Durability, History};
    /// # let db = Db::builder().durability(Durability::Memory).history(History::All).open("memory")?;
    /// # db.transact(|tx| tx.put_block(&Block::new(BlockId(1), "package")))?;
    /// let before = db.revision();
    /// db.transact(|tx| tx.put_block(&Block::new(BlockId(2), "package")))?;
    /// let none = Parameters::new();
    /// let count = db.query("MATCH (p:package) RETURN count(p)", &none)?;
    /// assert_eq!(count.rows, [[Value::Int(2)]]);
    /// let text = format!("AT REVISION {before} MATCH (p:package) RETURN count(p)");
    /// assert_eq!(db.query(&text, &none)?.rows, [[Value::Int(1)]]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Snapshot::query`] and [`DbReader::snapshot_at`].
    pub fn query(&self, text: &str, parameters: &Parameters) -> Result<Answer> {
        self.handle().check_open().map_err(store)?;
        let snapshot = match Query::new(text).revision()? {
            None => self.snapshot(),
            Some(revision) => self.snapshot_at(Revision::new(revision)).map_err(store)?,
        };
        snapshot.query(text, parameters)
    }
}

impl Transaction {
    /// Answers a query in Cypher that may write. It sees the transaction's writes.
    ///
    /// ```
    /// use bowline::cypher::Parameters;
    /// # let db = bowline::Db::in_memory()?;
    /// let none = Parameters::new();
    /// let mut tx = db.begin();
    /// tx.query("CREATE (:package {name: 'app'})-[:depends_on]->(:package {name: 'lib'})", &none)?;
    /// let answer = tx.query("MATCH (p)-[:depends_on]->(q) SET p.tier = 1 RETURN q.name", &none)?;
    /// assert_eq!(answer.rows.len(), 1);
    /// assert_eq!(answer.effects.properties_set, 1);
    /// tx.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Snapshot::query`]; as a source [`ModelError`] for what a block or an edge cannot hold, and the errors of
    /// the transaction's other writes. After an error the query has written nothing.
    pub fn query(&mut self, text: &str, parameters: &Parameters) -> Result<Answer> {
        let query = query(self.shared(), text);
        transaction::run(self, &query, parameters)
    }

    /// The same for a query with limits, a cancel callback or a profile, which [`Snapshot::build_query`] has made.
    ///
    /// ```
    /// use bowline::cypher::Parameters;
    /// # let db = bowline::Db::in_memory()?;
    /// let begun = std::time::Instant::now();
    /// let clock = || begun.elapsed();
    /// let query = db.snapshot().build_query("CREATE (:package)").profiled(&clock);
    /// let mut tx = db.begin();
    /// let answer = tx.run_query(&query, &Parameters::new())?;
    /// assert!(answer.profile.expect("a profile").starts_with("Discard"));
    /// tx.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::query`].
    pub fn run_query(&mut self, query: &Query<'_>, parameters: &Parameters) -> Result<Answer> {
        transaction::run(self, query, parameters)
    }
}

impl Db {
    /// Answers a query in Cypher. One that writes is a transaction of its own, repeated when it conflicts.
    ///
    /// ```
    /// use bowline::cypher::Parameters;
    /// # let db = bowline::Db::in_memory()?;
    /// let none = Parameters::new();
    /// db.query("MERGE (:service {name: 'api'})", &none)?;
    /// db.query("MERGE (:service {name: 'api'})", &none)?;
    /// assert_eq!(db.query("MATCH (s:service) RETURN s", &none)?.rows.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::query`], [`DbReader::query`] and [`Transaction::commit`]; `TooManyConflicts`.
    pub fn query(&self, text: &str, parameters: &Parameters) -> Result<Answer> {
        let newest = self.snapshot().graph();
        let asked = query(self.handle(), text);
        if asked.revision()?.is_some() || !asked.plan(&newest)?.writes() {
            return DbReader::query(self, text, parameters);
        }
        let attempt = || -> StoreResult<Result<Answer>> {
            let mut tx = self.begin();
            match tx.query(text, parameters) {
                Ok(answer) => tx.commit().map(|_| Ok(answer)),
                Err(error) => Ok(Err(error)),
            }
        };
        retry_conflicts(&self.handle().turns, attempt).map_err(store)?
    }
}
