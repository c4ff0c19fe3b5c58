//! What a caller uses: a text with its settings, and its answer.

use std::sync::Arc;
use std::time::Duration;

use jiff::{Timestamp, ZonedDateTime, tz::TimeZone};

use crate::cache::PlanCache;
use crate::call::{NoProcedures, Procedures};
use crate::compile::{self, Compiled};
use crate::error::{Class, Detail, Error, Result, Span, nearest};
use crate::execute::{
    Access, Columns, Context, Effects, Held, Limits, Remembered, Setting, materialize, open,
    open_counted, open_whole,
};
use crate::explain::explain;
use crate::graph::{Graph, GraphMut};
use crate::prepared::Prepared;
use crate::syntax;
use crate::value::{DEPTH_MAX, Name, Properties, Value};

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
    may_hold: &'q dyn Fn(u64) -> bool,
    clock: Option<&'q dyn Fn() -> Duration>,
    plans: Option<Arc<PlanCache>>,
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
    /// The plan with what its operators did, if [`Query::profiled`] asks for it.
    pub profile: Option<String>,
}

/// What is known of a query at its end, beside its rows.
///
/// ```
/// use bowline_query::{MemoryGraph, Parameters, Query, Summary};
///
/// let (mut graph, parameters) = (MemoryGraph::new(), Parameters::new());
/// let query = Query::new("CREATE ()");
/// let prepared = query.plan(&graph).unwrap();
/// let summary: Summary = query.for_each_mut(&prepared, &mut graph, &parameters, &mut |_| Ok(())).unwrap();
/// assert_eq!(summary.effects.nodes_created, 1);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// What was changed.
    pub effects: Effects,
    /// See [`Answer::profile`].
    pub profile: Option<String>,
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
            may_hold: &|_| true,
            clock: None,
            plans: None,
        }
    }

    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Query<'q> {
        self.limits = limits;
        self
    }

    /// Sets the procedures that CALL finds. Plans that are held were made with others: they are not used.
    #[must_use]
    pub fn procedures(mut self, procedures: &'q dyn Procedures) -> Query<'q> {
        self.procedures = procedures;
        self.plans = None;
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

    /// Sets a callback that is asked whether sorts, groups and lists of rows may hold so many bytes. What it refuses is
    /// [`Error::LimitExceeded`].
    #[must_use]
    pub fn may_hold(mut self, may_hold: &'q dyn Fn(u64) -> bool) -> Query<'q> {
        self.may_hold = may_hold;
        self
    }

    /// Counts the rows and the time of each operator. The clock shows the time since any moment.
    ///
    /// ```
    /// use std::time::Duration;
    /// use bowline_query::{MemoryGraph, Parameters, Query};
    ///
    /// let clock = || Duration::ZERO;
    /// let query = Query::new("UNWIND [1, 2, 3] AS i WITH i WHERE i > 1 RETURN i").profiled(&clock);
    /// let answer = query.run(&MemoryGraph::new(), &Parameters::new()).unwrap();
    /// let profile = answer.profile.unwrap();
    /// assert!(profile.contains("Filter i > 1  [2 rows, 0.000 ms]"), "{profile}");
    /// ```
    #[must_use]
    pub fn profiled(mut self, clock: &'q dyn Fn() -> Duration) -> Query<'q> {
        self.clock = Some(clock);
        self
    }

    /// Sets where plans are held. All queries that use it have the same procedures.
    #[must_use]
    pub fn plans(mut self, plans: Arc<PlanCache>) -> Query<'q> {
        self.plans = Some(plans);
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

    /// Parses, checks and plans, or takes the plan that is held for the text.
    pub fn plan(&self, graph: &dyn Graph) -> Result<Prepared> {
        let planned = self.asked_of(graph).and_then(|asked| match &self.plans {
            None => self.plan_anew(asked, graph),
            Some(plans) => plans.plan(self.text, &self.limits, graph, |graph| {
                self.plan_anew(asked, graph)
            }),
        });
        planned.map_err(|error| error.in_text(self.text))
    }

    fn plan_anew(&self, asked: Option<Span>, graph: &dyn Graph) -> Result<Prepared> {
        let text = syntax::without_revision(self.text, asked);
        let query = syntax::parse(&text, self.limits.text_bytes, self.limits.depth)?;
        let compiled = compile::compile(&query, graph, self.procedures)?;
        let columns = compiled.columns.iter().map(|(name, _)| name.clone());
        let parameters = compiled.parameters.iter().map(|(name, _)| name.clone());
        Ok(Prepared {
            columns: columns.collect(),
            parameters: parameters.collect(),
            compiled: Arc::new(compiled),
        })
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
        Ok(explain(
            &compiled.plan,
            self.text,
            &compiled.names,
            graph,
            None,
        )?)
    }

    /// Runs a query that reads.
    pub fn run(&self, graph: &dyn Graph, parameters: &Parameters) -> Result<Answer> {
        let prepared = self.plan(graph)?;
        self.check_reads(&prepared)?;
        self.collect(&prepared, Access::Read(graph), parameters)
    }

    /// Runs a query that may write. After an error the graph may hold a part of what the query wrote: the caller drops
    /// the transaction.
    pub fn run_mut(&self, graph: &mut dyn GraphMut, parameters: &Parameters) -> Result<Answer> {
        let prepared = self.plan(&*graph)?;
        self.collect(&prepared, Access::Write(graph), parameters)
    }

    /// Refuses a query that writes.
    fn check_reads(&self, prepared: &Prepared) -> Result<()> {
        if !prepared.writes() {
            return Ok(());
        }
        let error = Error::compile(
            Class::SemanticError,
            Detail::WriteInReadOnlyQuery,
            "the query writes, but was run for reading",
            Span {
                start: 0,
                end: self.text.len(),
            },
        );
        Err(error.help("run it in a transaction").in_text(self.text))
    }

    fn collect<'a>(
        &'a self,
        prepared: &Prepared,
        access: Access<'a>,
        parameters: &'a Parameters,
    ) -> Result<Answer> {
        let mut rows = Vec::new();
        let summary = self.each(prepared, access, parameters, &mut |row| {
            rows.push(row);
            Ok(())
        })?;
        Ok(Answer {
            columns: prepared.columns.to_vec(),
            rows,
            effects: summary.effects,
            profile: summary.profile,
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
    ) -> Result<Summary> {
        self.check_reads(prepared)?;
        self.each(prepared, Access::Read(graph), parameters, row)
    }

    /// The same for a planned query that may write. After an error the graph may hold a part of what the query wrote.
    pub fn for_each_mut(
        &self,
        prepared: &Prepared,
        graph: &mut dyn GraphMut,
        parameters: &Parameters,
        row: &mut dyn FnMut(Vec<Value>) -> Result<()>,
    ) -> Result<Summary> {
        self.each(prepared, Access::Write(graph), parameters, row)
    }

    fn each<'a>(
        &'a self,
        prepared: &Prepared,
        access: Access<'a>,
        parameters: &'a Parameters,
        row: &mut dyn FnMut(Vec<Value>) -> Result<()>,
    ) -> Result<Summary> {
        let compiled = &prepared.compiled;
        let mut state = self.seed;
        let random: Box<dyn FnMut() -> f64> = Box::new(move || next_random(&mut state));
        let held = Held::new(self.may_hold, self.limits.memory_bytes);
        let remembered;
        let access = match access {
            Access::Read(graph) => {
                remembered = Remembered::new(graph, &held);
                Access::Read(&remembered)
            }
            Access::Write(graph) => Access::Write(graph),
        };
        let setting = Setting {
            access,
            parameters,
            procedures: self.procedures,
            now: self.now.clone(),
            random,
            cancelled: self.cancelled,
            held: &held,
            clock: self.clock,
        };
        let open = match self.clock {
            Some(_) => open_counted,
            None => open,
        };
        let mut cx = Context::new(setting, open, compiled.slots);
        let mut run = || -> Result<Summary> {
            check_parameters(compiled, parameters)?;
            let only_reads = matches!(cx.setting.access, Access::Read(_));
            let columns = only_reads.then(|| Columns {
                has_parallel_relationships: cx.graph().has_parallel_relationships(),
                slots: compiled.slots,
            });
            let is_counted = self.clock.is_some();
            let answer = compiled.columns.iter().map(|(_, slot)| *slot);
            let mut stream =
                open_whole(&compiled.plan, compiled.slots, answer, is_counted, columns);
            let mut count = 0;
            stream.drain(&mut cx, &mut |values, cx| {
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
                    answer.push(materialize(cx, values[*slot].clone())?);
                }
                row(answer)
            })?;
            drop(stream);
            let (plan, names) = (&compiled.plan, &compiled.names);
            let profile = self
                .clock
                .map(|_| explain(plan, self.text, names, cx.graph(), Some(&cx.counts)));
            Ok(Summary {
                effects: cx.effects,
                profile: profile.transpose()?,
            })
        };
        run().map_err(|error| error.in_text(self.text))
    }
}

/// Each parameter that the query uses has a value, none is too deep, and no other is given: one that is misspelt would be
/// without effect.
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
    let mut used = compiled.parameters.iter();
    let is_deep = |name: &Name| parameters[name].depth() > DEPTH_MAX;
    if let Some((name, span)) = used.find(|(name, _)| is_deep(name)) {
        let message =
            format!("parameter `${name}` has more than {DEPTH_MAX} lists and maps in each other");
        let (class, detail) = (Class::SemanticError, Detail::QueryTooDeep);
        return Err(Error::compile(class, detail, message, *span).help("give its parts"));
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
