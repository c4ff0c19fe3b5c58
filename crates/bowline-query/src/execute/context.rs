//! What a running query has.

use std::time::Duration;

use jiff::ZonedDateTime;

use super::count::Counts;
use super::remembered::Held;
use super::stream::{Row, Stream};
use crate::call::Procedures;
use crate::error::{Class, Detail, Error, Result};
use crate::function::{Env, Room};
use crate::graph::{Graph, GraphMut};
use crate::plan::Plan;
use crate::value::{DEPTH_MAX, LARGE_BYTES, Properties, Value};

/// Bounds on a query. What exceeds one is an error that names it.
///
/// ```
/// let limits = bowline_query::Limits { rows: 1_000, ..Default::default() };
/// assert!(limits.memory_bytes > 0);
/// ```
#[derive(Clone, Debug)]
pub struct Limits {
    /// How many rows the query may return.
    pub rows: u64,
    /// How many bytes sorts, groups, lists of rows and large values may hold at once.
    pub memory_bytes: u64,
    /// How long the text may be.
    pub text_bytes: usize,
    /// How deeply the text may be nested.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            rows: u64::MAX,
            memory_bytes: 1 << 30,
            text_bytes: 1 << 16,
            depth: 200,
        }
    }
}

/// What a query changed.
///
/// ```
/// use bowline_query::{MemoryGraph, Parameters, Query};
///
/// let mut graph = MemoryGraph::new();
/// let answer = Query::new("CREATE (:A)-[:T]->(:B)").run_mut(&mut graph, &Parameters::new()).unwrap();
/// assert_eq!((answer.effects.nodes_created, answer.effects.relationships_created), (2, 1));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Effects {
    /// Nodes created.
    pub nodes_created: u64,
    /// Nodes deleted.
    pub nodes_deleted: u64,
    /// Relationships created.
    pub relationships_created: u64,
    /// Relationships deleted.
    pub relationships_deleted: u64,
    /// Properties set, removals included.
    pub properties_set: u64,
    /// Labels added to nodes that existed.
    pub labels_added: u64,
    /// Labels removed.
    pub labels_removed: u64,
}

/// The graph, which may or may not be written.
pub(crate) enum Access<'g> {
    Read(&'g dyn Graph),
    Write(&'g mut dyn GraphMut),
}

/// What the caller gives.
pub(crate) struct Setting<'g> {
    pub access: Access<'g>,
    pub parameters: &'g Properties,
    pub procedures: &'g dyn Procedures,
    pub now: ZonedDateTime,
    pub random: Box<dyn FnMut() -> f64>,
    pub cancelled: &'g dyn Fn() -> bool,
    /// The memory of the query.
    pub held: &'g Held<'g>,
    /// The time since some moment, for a query whose operators are counted.
    pub clock: Option<&'g dyn Fn() -> Duration>,
}

type Open = for<'p> fn(&'p Plan, Row) -> Box<dyn Stream + 'p>;

pub(crate) struct Context<'g> {
    pub setting: Setting<'g>,
    pub effects: Effects,
    /// How to run a plan within an expression.
    pub open: Open,
    /// Of the operators, if they are counted.
    pub counts: Counts,
    /// How long the rows of the plan are.
    pub slots: usize,
    rows: u64,
}

/// How many rows pass between two calls of the cancel callback.
const ROWS_BETWEEN_CHECKS: u64 = 128;

impl<'g> Context<'g> {
    pub fn new(setting: Setting<'g>, open: Open, slots: usize) -> Context<'g> {
        Context {
            setting,
            effects: Effects::default(),
            open,
            counts: Counts::default(),
            slots,
            rows: 0,
        }
    }

    pub fn graph(&self) -> &dyn Graph {
        match &self.setting.access {
            Access::Read(graph) => *graph,
            Access::Write(graph) => &**graph,
        }
    }

    pub fn graph_mut(&mut self) -> Result<&mut dyn GraphMut> {
        match &mut self.setting.access {
            Access::Write(graph) => Ok(&mut **graph),
            Access::Read(_) => Err(Error::runtime(
                Class::SemanticError,
                Detail::WriteInReadOnlyQuery,
                "the query writes, but was run for reading",
            )),
        }
    }

    /// What functions may use.
    pub fn env(&mut self) -> Env<'_> {
        let graph: &dyn Graph = match &self.setting.access {
            Access::Read(graph) => *graph,
            Access::Write(graph) => &**graph,
        };
        Env {
            graph,
            now: &self.setting.now,
            random: &mut *self.setting.random,
            room: self.setting.held,
        }
    }

    /// Counts a row of an operator, and stops a query that was cancelled.
    pub fn tick(&mut self) -> Result<()> {
        self.rows += 1;
        match self.rows.is_multiple_of(ROWS_BETWEEN_CHECKS) {
            true => self.stop_if_cancelled(),
            false => Ok(()),
        }
    }

    /// Counts many rows of an operator at once.
    pub fn tick_many(&mut self, rows: u64) -> Result<()> {
        let before = self.rows / ROWS_BETWEEN_CHECKS;
        self.rows += rows;
        match self.rows / ROWS_BETWEEN_CHECKS > before {
            true => self.stop_if_cancelled(),
            false => Ok(()),
        }
    }

    fn stop_if_cancelled(&self) -> Result<()> {
        match (self.setting.cancelled)() {
            true => Err(Error::Cancelled { rows: self.rows }),
            false => Ok(()),
        }
    }

    /// Takes memory for values that an operator keeps.
    pub fn charge(&mut self, values: &[Value]) -> Result<u64> {
        let bytes = charge_of(values);
        self.setting.held.take(bytes)?;
        Ok(bytes)
    }

    /// Takes memory for what an operator keeps beside values.
    pub fn take(&mut self, bytes: u64) -> Result<()> {
        self.setting.held.take(bytes)
    }

    /// What operators hold, without the large values.
    pub fn held_by_operators(&self) -> u64 {
        self.setting.held.of_operators()
    }

    /// Gives back what operators have taken since they held so much, as they are gone.
    pub fn release_to(&mut self, of_operators: u64) {
        let more = self.held_by_operators().saturating_sub(of_operators);
        self.release(more);
    }

    /// Refuses a value of so many bytes that is to be made, if the query may not hold it.
    pub fn room_for(&self, bytes: u64) -> Result<()> {
        self.setting.held.room_for(bytes)
    }

    /// Looks at what an expression has made: a value that is too deep is refused, a large one is charged until it is gone.
    #[inline]
    pub fn made(&self, value: &Value) -> Result<()> {
        match value {
            Value::Text(_) | Value::List(_) | Value::Map(_) => self.made_shared(value),
            _ => Ok(()),
        }
    }

    fn made_shared(&self, value: &Value) -> Result<()> {
        check_depth(value.depth())?;
        match value.is_large() {
            true => self.made_large(value),
            false => Ok(()),
        }
    }

    #[cold]
    fn made_large(&self, value: &Value) -> Result<()> {
        // To make it, or to look through it, takes as long as many rows.
        self.stop_if_cancelled()?;
        self.setting.held.take_for_value(value)
    }

    /// What the clock of the counts shows.
    pub fn elapsed(&self) -> Duration {
        self.setting.clock.map(|clock| clock()).unwrap_or_default()
    }

    /// Gives memory back.
    pub fn release(&mut self, bytes: u64) {
        self.setting.held.give_back(bytes);
    }
}

/// What is taken for values that are kept together.
pub(super) fn charge_of(values: &[Value]) -> u64 {
    let bytes = values.iter().map(Value::footprint);
    bytes.fold(48, u64::saturating_add)
}

/// Refuses a value of so many lists and maps in each other. The stack of whoever walks through it is bounded.
pub(super) fn check_depth(depth: u32) -> Result<()> {
    if depth <= DEPTH_MAX {
        return Ok(());
    }
    let message = format!("more than {DEPTH_MAX} lists and maps would contain one another");
    let error = Error::runtime(Class::SemanticError, Detail::QueryTooDeep, message);
    Err(error.help("put the elements beside each other, as `list + [element]` does"))
}

/// The memory of a list while elements are added. Large elements are charged by themselves.
#[derive(Default)]
pub(super) struct Growing {
    charged: u64,
    /// Since the last charge: a charge for each element would take longer than most elements do.
    more: u64,
}

impl Growing {
    /// Takes memory for one more element.
    pub fn add(&mut self, element: &Value, cx: &Context<'_>) -> Result<()> {
        self.more += match element.is_large() {
            true => size_of::<Value>() as u64,
            false => element.footprint(),
        };
        if self.more >= LARGE_BYTES {
            cx.setting.held.take(self.more)?;
            self.charged += std::mem::take(&mut self.more);
        }
        Ok(())
    }

    /// Gives the memory back. A list that has become large is charged as a whole from now on.
    pub fn end(self, cx: &mut Context<'_>) {
        cx.release(self.charged);
    }
}
