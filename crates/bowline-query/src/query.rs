//! What a caller uses: a text with its settings, and its answer.

use jiff::{Timestamp, ZonedDateTime, tz::TimeZone};

use crate::call::{NoProcedures, Procedures};
use crate::compile::{self, Compiled};
use crate::error::{Class, Detail, Error, Result, Span, nearest};
use crate::execute::{Access, Context, Effects, Limits, Setting, materialize, open};
use crate::explain::explain;
use crate::graph::{Graph, GraphMut};
use crate::syntax;
use crate::value::{Name, Properties, Value};

/// Values for the parameters of a query, by name without `$`.
pub type Parameters = Properties;

/// A query: its text, and how to run it.
///
/// ```
/// use bowline_query::{MemoryGraph, Parameters, Query, Value};
///
/// let parameters = Parameters::from([("n".into(), Value::Int(3))]);
/// let answer = Query::new("UNWIND range(1, $n) AS i RETURN sum(i)").run(&MemoryGraph::new(), &parameters).unwrap();
/// assert_eq!(answer.rows, [[Value::Int(6)]]);
/// ```
pub struct Query<'q> {
    text: &'q str,
    limits: Limits,
    procedures: &'q dyn Procedures,
    now: ZonedDateTime,
    seed: u64,
    cancelled: &'q dyn Fn() -> bool,
}

/// All rows of a query.
///
/// ```
/// use bowline_query::{MemoryGraph, Parameters, Query};
///
/// let answer = Query::new("RETURN 1 AS one, 2").run(&MemoryGraph::new(), &Parameters::new()).unwrap();
/// assert_eq!(answer.columns, ["one".into(), "2".into()]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The names of the columns.
    pub columns: Vec<Name>,
    /// The rows: one value per column.
    pub rows: Vec<Vec<Value>>,
    /// What was changed.
    pub effects: Effects,
}

/// A checked and planned query.
///
/// ```
/// use bowline_query::{MemoryGraph, Query};
///
/// let prepared = Query::new("CREATE (n {p: $p}) RETURN n").plan(&MemoryGraph::new()).unwrap();
/// assert!(prepared.writes());
/// assert_eq!(prepared.parameters(), ["p".into()]);
/// ```
#[derive(Debug)]
pub struct Prepared {
    compiled: Compiled,
    columns: Vec<Name>,
    parameters: Vec<Name>,
}

impl Prepared {
    /// Whether the query may change the graph.
    pub fn writes(&self) -> bool {
        self.compiled.writes
    }

    /// The names of the columns; none if the query returns nothing.
    pub fn columns(&self) -> &[Name] {
        &self.columns
    }

    /// The parameters that the query needs.
    pub fn parameters(&self) -> &[Name] {
        &self.parameters
    }
}

impl<'q> Query<'q> {
    /// A query without limits of rows, at the time zero.
    pub fn new(text: &'q str) -> Query<'q> {
        Query {
            text,
            limits: Limits::default(),
            procedures: &NoProcedures,
            now: Timestamp::UNIX_EPOCH.to_zoned_datetime(TimeZone::UTC),
            seed: 0,
            cancelled: &|| false,
        }
    }

    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Query<'q> {
        self.limits = limits;
        self
    }

    /// Sets the procedures that CALL finds.
    #[must_use]
    pub fn procedures(mut self, procedures: &'q dyn Procedures) -> Query<'q> {
        self.procedures = procedures;
        self
    }

    /// Sets what the clock shows throughout the query.
    #[must_use]
    pub fn now(mut self, now: ZonedDateTime) -> Query<'q> {
        self.now = now;
        self
    }

    /// Sets the seed of `rand()`.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Query<'q> {
        self.seed = seed;
        self
    }

    /// Sets a callback that is asked now and then whether to stop.
    #[must_use]
    pub fn cancelled(mut self, cancelled: &'q dyn Fn() -> bool) -> Query<'q> {
        self.cancelled = cancelled;
        self
    }

    /// The revision that the text asks for by `AT REVISION n` before the query.
    ///
    /// ```
    /// use bowline_query::Query;
    ///
    /// assert_eq!(Query::new("AT REVISION 42 MATCH (n) RETURN n").revision().unwrap(), Some(42));
    /// assert_eq!(Query::new("MATCH (n) RETURN n").revision().unwrap(), None);
    /// ```
    pub fn revision(&self) -> Result<Option<u64>> {
        let found = syntax::revision(self.text).map_err(|error| error.in_text(self.text))?;
        Ok(found.map(|(revision, _)| revision))
    }

    /// Where the text asks for a revision. It must be that of the graph.
    fn asked_of(&self, graph: &dyn Graph) -> Result<Option<Span>> {
        let Some((asked, span)) = syntax::revision(self.text)? else {
            return Ok(None);
        };
        let message = match graph.revision() {
            Some(is) if is == asked => return Ok(Some(span)),
            Some(is) => format!("the query asks for revision {asked}, and this is revision {is}"),
            None => format!("the query asks for revision {asked}, and this graph has none"),
        };
        let error = Error::compile(
            Class::SemanticError,
            Detail::InvalidArgumentValue,
            message,
            span,
        );
        Err(error.help("run the query on the whole database"))
    }

    /// Parses, checks and plans.
    pub fn plan(&self, graph: &dyn Graph) -> Result<Prepared> {
        let query = self.asked_of(graph).and_then(|asked| {
            let text = syntax::without_revision(self.text, asked);
            syntax::parse(&text, self.limits.text_bytes, self.limits.depth)
        });
        query
            .and_then(|query| compile::compile(&query, graph, self.procedures))
            .map(|compiled| {
                let columns = compiled
                    .columns
                    .iter()
                    .map(|(name, _)| name.clone())
                    .collect();
                let parameters = compiled
                    .parameters
                    .iter()
                    .map(|(name, _)| name.clone())
                    .collect();
                Prepared {
                    compiled,
                    columns,
                    parameters,
                }
            })
            .map_err(|error| error.in_text(self.text))
    }

    /// How the query is run, an operator a line, each above those that it reads from. Nothing is read but counts.
    ///
    /// ```
    /// use bowline_query::{MemoryGraph, Query};
    ///
    /// let text = "MATCH (a:A)-[:T]->(b) WHERE b.p > 1 RETURN a.p";
    /// let shown = Query::new(text).explain(&MemoryGraph::new()).unwrap();
    /// let expected = "Project a.p\n  Filter b.p > 1\n    Expand (a)-[:T]->(b)\n      Scan (a:A), about 0 nodes\n";
    /// assert_eq!(shown, expected);
    /// ```
    pub fn explain(&self, graph: &dyn Graph) -> Result<String> {
        let prepared = self.plan(graph)?;
        let compiled = &prepared.compiled;
        Ok(explain(&compiled.plan, self.text, &compiled.names, graph)?)
    }

    /// Runs a query that reads.
    pub fn run(&self, graph: &dyn Graph, parameters: &Parameters) -> Result<Answer> {
        let prepared = self.plan(graph)?;
        if prepared.writes() {
            return Err(Error::compile(
                Class::SemanticError,
                Detail::WriteInReadOnlyQuery,
                "the query writes, but was run for reading",
                Span {
                    start: 0,
                    end: self.text.len(),
                },
            )
            .help("run it in a transaction")
            .in_text(self.text));
        }
        self.collect(&prepared, Access::Read(graph), parameters)
    }

    /// Runs a query that may write. After an error the graph may hold a part of what the query wrote: the caller drops
    /// the transaction.
    pub fn run_mut(&self, graph: &mut dyn GraphMut, parameters: &Parameters) -> Result<Answer> {
        let prepared = self.plan(&*graph)?;
        self.collect(&prepared, Access::Write(graph), parameters)
    }

    fn collect<'a>(
        &'a self,
        prepared: &Prepared,
        access: Access<'a>,
        parameters: &'a Parameters,
    ) -> Result<Answer> {
        let mut rows = Vec::new();
        let effects = self.each(prepared, access, parameters, &mut |row| {
            rows.push(row);
            Ok(())
        })?;
        Ok(Answer {
            columns: prepared.columns.clone(),
            rows,
            effects,
        })
    }

    /// Runs a planned query that reads, and hands each row to the callback as soon as it is known.
    ///
    /// ```
    /// use bowline_query::{MemoryGraph, Parameters, Query};
    ///
    /// let (graph, parameters) = (MemoryGraph::new(), Parameters::new());
    /// let query = Query::new("UNWIND range(1, 3) AS i RETURN i");
    /// let mut count = 0;
    /// query
    ///     .for_each(&query.plan(&graph).unwrap(), &graph, &parameters, &mut |_| {
    ///         count += 1;
    ///         Ok(())
    ///     })
    ///     .unwrap();
    /// assert_eq!(count, 3);
    /// ```
    pub fn for_each(
        &self,
        prepared: &Prepared,
        graph: &dyn Graph,
        parameters: &Parameters,
        row: &mut dyn FnMut(Vec<Value>) -> Result<()>,
    ) -> Result<()> {
        self.each(prepared, Access::Read(graph), parameters, row)
            .map(|_| ())
    }

    fn each<'a>(
        &'a self,
        prepared: &Prepared,
        access: Access<'a>,
        parameters: &'a Parameters,
        row: &mut dyn FnMut(Vec<Value>) -> Result<()>,
    ) -> Result<Effects> {
        let compiled = &prepared.compiled;
        let mut state = self.seed;
        let random: Box<dyn FnMut() -> f64> = Box::new(move || next_random(&mut state));
        let setting = Setting {
            access,
            parameters,
            procedures: self.procedures,
            limits: &self.limits,
            now: self.now.clone(),
            random,
            cancelled: self.cancelled,
        };
        let mut cx = Context::new(setting, open);
        let mut run = || -> Result<Effects> {
            check_parameters(compiled, parameters)?;
            let mut stream = open(&compiled.plan, vec![Value::Null; compiled.slots]);
            let mut count = 0;
            while let Some(mut values) = stream.next(&mut cx)? {
                count += 1;
                if count > self.limits.rows {
                    let limit = self.limits.rows;
                    return Err(Error::LimitExceeded {
                        what: "rows",
                        limit,
                        setting: "rows",
                    });
                }
                let mut answer = Vec::with_capacity(compiled.columns.len());
                for (_, slot) in &compiled.columns {
                    answer.push(materialize(&cx, std::mem::take(&mut values[*slot]))?);
                }
                row(answer)?;
            }
            Ok(cx.effects)
        };
        run().map_err(|error| error.in_text(self.text))
    }
}

/// Each parameter that the query uses has a value, and no other is given: one that is misspelt would be without effect.
fn check_parameters(compiled: &Compiled, parameters: &Parameters) -> Result<()> {
    let mut used = compiled.parameters.iter();
    if let Some((name, span)) = used.find(|(name, _)| !parameters.contains_key(name)) {
        let message = format!("parameter `${name}` has no value");
        let (class, detail) = (Class::ParameterMissing, Detail::MissingParameter);
        let given = parameters.keys().map(|given| &**given);
        let help = match nearest(name, given) {
            Some(given) => format!("give it with the query; `${given}` is given"),
            None => "give it with the query".to_owned(),
        };
        return Err(Error::compile(class, detail, message, *span).help(help));
    }
    let is_used = |given: &Name| compiled.parameters.iter().any(|(name, _)| name == given);
    match parameters.keys().find(|given| !is_used(given)) {
        None => Ok(()),
        Some(given) => {
            let message = format!("parameter `${given}` is given, and the query does not use it");
            let (class, detail) = (Class::SemanticError, Detail::UnusedParameter);
            Err(Error::compile_of_all(class, detail, message).help("use it, or leave it out"))
        }
    }
}

/// SplitMix64, as a fraction.
fn next_random(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    (mixed >> 11) as f64 / (1u64 << 53) as f64
}
