//! Running one scenario, on any graph: [`Ground`]. The database's tests use it for its own.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use bowline_query::{
    Answer, Error, Graph, MemoryGraph, Name, Parameters, Phase, ProcedureRows, Procedures, Query,
    Signature, Type, Value,
};
use jiff::civil::date;
use jiff::tz::TimeZone;

use super::expected::{actual, expected, value};
use super::gherkin::{Scenario, Step};

/// What became of a scenario.
pub enum Outcome {
    Passed,
    /// An error that names what is not supported.
    Unsupported(String),
    /// An error where none was expected, or another one than was expected.
    OtherError(String),
    /// Another answer, another effect, or no error where one was expected.
    Wrong(String),
}

/// A graph that scenarios are run on; empty at first.
pub trait Ground: Default {
    /// Runs a query. Also tells whether it compiles.
    fn execute(
        &mut self,
        text: &str,
        parameters: &Parameters,
        procedures: &Tables,
    ) -> (Result<Answer, Error>, bool);

    /// What it holds.
    fn contents(&self) -> Contents;
}

impl Ground for MemoryGraph {
    fn execute(
        &mut self,
        text: &str,
        parameters: &Parameters,
        procedures: &Tables,
    ) -> (Result<Answer, Error>, bool) {
        let now = date(2024, 5, 17)
            .at(11, 22, 33, 0)
            .to_zoned_datetime(TimeZone::UTC)
            .unwrap();
        let query = Query::new(text).procedures(procedures).now(now);
        let compiles = query.plan(self).is_ok();
        (query.run_mut(self, parameters), compiles)
    }

    fn contents(&self) -> Contents {
        let mut contents = Contents::default();
        for (id, record) in self.all_nodes() {
            let labels = record.labels.iter().map(ToString::to_string);
            let properties = record.properties.iter();
            let properties = properties.map(|(key, value)| format!("{key} {value}"));
            contents.node(&id.to_string(), labels, properties);
        }
        for (id, properties) in self.all_relationships() {
            let properties = properties.iter();
            let properties = properties.map(|(key, value)| format!("{key} {value}"));
            contents.relationship(&format!("{id:?}"), properties);
        }
        contents
    }
}

#[derive(Default)]
struct World<G> {
    graph: G,
    parameters: Parameters,
    procedures: Tables,
    before: Contents,
    query: String,
    result: Option<Result<Answer, Error>>,
    compiled: bool,
}

pub fn run<G: Ground>(scenario: &Scenario, root: &Path) -> Outcome {
    let run = || {
        let mut world = World::<G>::default();
        for step in &scenario.steps {
            if let Err(outcome) = world.step(step, root) {
                return outcome;
            }
        }
        match world.result {
            Some(Err(error)) => failed(&world.query, &error),
            _ => Outcome::Passed,
        }
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default();
        Outcome::Wrong(format!("panic: {message}"))
    })
}

fn failed(query: &str, error: &Error) -> Outcome {
    let reason = format!("{query}{error}");
    match error {
        Error::Unsupported { .. } => Outcome::Unsupported(reason),
        _ => Outcome::OtherError(reason),
    }
}

impl<G: Ground> World<G> {
    fn execute(&mut self, text: &str) -> Result<Answer, Error> {
        let (graph, parameters) = (&mut self.graph, &self.parameters);
        let (result, compiled) = graph.execute(text, parameters, &self.procedures);
        self.compiled = compiled;
        result
    }

    /// Runs a query that makes the graph. The parameters are not for it.
    fn setup(&mut self, text: &str) -> Result<(), Outcome> {
        let parameters = std::mem::take(&mut self.parameters);
        let result = self.execute(text);
        self.parameters = parameters;
        result.map(|_| ()).map_err(|error| failed(text, &error))
    }

    fn step(&mut self, step: &Step, root: &Path) -> Result<(), Outcome> {
        let text = step.text.as_deref().unwrap_or_default();
        let sentence = step.sentence.as_str();
        match sentence {
            "an empty graph" | "any graph" => {}
            "having executed:" => self.setup(text)?,
            "parameters are:" => {
                for row in &step.table {
                    self.parameters
                        .insert(row[0].as_str().into(), value(&row[1]));
                }
            }
            "executing query:" => {
                self.before = self.graph.contents();
                self.query = text.to_owned();
                self.result = Some(self.execute(text));
            }
            "executing control query:" => {
                if let Some(Err(error)) = &self.result {
                    return Err(failed(&self.query, error));
                }
                self.before = self.graph.contents();
                self.query = text.to_owned();
                self.result = Some(self.execute(text));
            }
            "the result should be empty" => {
                let answer = self.answer()?;
                if !answer.rows.is_empty() {
                    return Err(Outcome::Wrong(format!(
                        "{}{} rows, not none",
                        self.query,
                        answer.rows.len()
                    )));
                }
            }
            "no side effects" => self.effects(&[])?,
            "the side effects should be:" => self.effects(&step.table)?,
            _ => {
                if let Some(rest) = sentence.strip_prefix("the result should be") {
                    let sorted = rest.contains("ignoring element order for lists");
                    return self.rows(&step.table, !rest.contains("in order"), sorted);
                }
                if let Some(name) = sentence
                    .strip_prefix("the ")
                    .and_then(|s| s.strip_suffix(" graph"))
                {
                    let file = root.join("graphs").join(format!("{name}.cypher"));
                    let text = std::fs::read_to_string(file).expect("a named graph has a file");
                    return self.setup(&text);
                }
                if let Some(signature) = sentence.strip_prefix("there exists a procedure ") {
                    self.procedures.add(signature, &step.table);
                    return Ok(());
                }
                if sentence.contains(" should be raised at ") {
                    return self.raised(sentence);
                }
                panic!("an unknown step: {sentence}");
            }
        }
        Ok(())
    }

    fn answer(&self) -> Result<&Answer, Outcome> {
        match self.result.as_ref().expect("a query was executed") {
            Ok(answer) => Ok(answer),
            Err(error) => Err(failed(&self.query, error)),
        }
    }

    fn rows(&self, table: &[Vec<String>], any_order: bool, sorted: bool) -> Result<(), Outcome> {
        let answer = self.answer()?;
        let columns: Vec<String> = answer.columns.iter().map(ToString::to_string).collect();
        // Columns may be written in another order than they are returned.
        let order: Option<Vec<usize>> = table[0]
            .iter()
            .map(|name| columns.iter().position(|column| column == name))
            .collect();
        let Some(order) = order.filter(|order| order.len() == columns.len()) else {
            return Err(Outcome::Wrong(format!(
                "{}columns {columns:?}, not {:?}",
                self.query, table[0]
            )));
        };
        let mut wanted: Vec<Vec<String>> = table[1..]
            .iter()
            .map(|row| row.iter().map(|cell| expected(cell, sorted)).collect())
            .collect();
        let mut found: Vec<Vec<String>> = answer
            .rows
            .iter()
            .map(|row| order.iter().map(|at| actual(&row[*at], sorted)).collect())
            .collect();
        if any_order {
            wanted.sort();
            found.sort();
        }
        if wanted == found {
            return Ok(());
        }
        Err(Outcome::Wrong(format!(
            "{}wanted {wanted:?}\nfound  {found:?}",
            self.query
        )))
    }

    fn raised(&mut self, sentence: &str) -> Result<(), Outcome> {
        let (class, rest) = sentence.split_once(" should be raised at ").unwrap();
        let class = class.split(' ').next_back().unwrap();
        let (phase, detail) = rest.split_once(": ").unwrap();
        let wanted = format!("{}wanted {class} at {phase}: {detail}\nfound ", self.query);
        let result = self.result.take().expect("a query was executed");
        let error = match result {
            Err(error) => error,
            Ok(answer) => {
                return Err(Outcome::Wrong(format!(
                    "{wanted} {} rows",
                    answer.rows.len()
                )));
            }
        };
        let Some(problem) = error.problem() else {
            return Err(failed(&wanted, &error));
        };
        let phase_fits = match phase {
            "compile time" => problem.phase == Phase::CompileTime,
            "runtime" => problem.phase == Phase::Runtime && self.compiled,
            _ => true,
        };
        let detail_fits = detail == "*" || detail == problem.detail.to_string();
        if class == problem.class.to_string() && phase_fits && detail_fits {
            return Ok(());
        }
        Err(Outcome::OtherError(format!(
            "{wanted} at {}: {error}",
            problem.phase
        )))
    }

    fn effects(&self, table: &[Vec<String>]) -> Result<(), Outcome> {
        if let Some(Err(error)) = &self.result {
            return Err(failed(&self.query, error));
        }
        let after = self.graph.contents();
        let mut wanted: Vec<(String, usize)> = table
            .iter()
            .map(|row| (row[0].clone(), row[1].parse().unwrap()))
            .collect();
        let mut found = self.before.changes(&after);
        wanted.sort();
        found.sort();
        if wanted == found {
            return Ok(());
        }
        Err(Outcome::Wrong(format!(
            "{}wanted effects {wanted:?}\nfound {found:?}",
            self.query
        )))
    }
}

/// What a graph holds, for the comparison of before and after.
#[derive(Default)]
pub struct Contents {
    nodes: BTreeSet<String>,
    relationships: BTreeSet<String>,
    labels: BTreeSet<String>,
    properties: BTreeSet<String>,
}

impl Contents {
    /// Adds a node.
    pub fn node(
        &mut self,
        id: &str,
        labels: impl Iterator<Item = String>,
        properties: impl Iterator<Item = String>,
    ) {
        self.nodes.insert(id.to_owned());
        self.labels.extend(labels);
        self.properties
            .extend(properties.map(|property| format!("{id} {property}")));
    }

    /// Adds a relationship.
    pub fn relationship(&mut self, id: &str, properties: impl Iterator<Item = String>) {
        self.relationships.insert(id.to_owned());
        self.properties
            .extend(properties.map(|property| format!("{id} {property}")));
    }

    fn changes(&self, after: &Contents) -> Vec<(String, usize)> {
        let pairs = [
            ("nodes", &self.nodes, &after.nodes),
            ("relationships", &self.relationships, &after.relationships),
            ("labels", &self.labels, &after.labels),
            ("properties", &self.properties, &after.properties),
        ];
        let mut changes = Vec::new();
        for (name, before, after) in pairs {
            changes.push((format!("+{name}"), after.difference(before).count()));
            changes.push((format!("-{name}"), before.difference(after).count()));
        }
        changes.retain(|(_, count)| *count > 0);
        changes
    }
}

/// Procedures that look their rows up in tables.
#[derive(Default)]
pub struct Tables {
    tables: Vec<(Signature, Vec<Vec<Value>>)>,
}

impl Tables {
    fn add(&mut self, text: &str, table: &[Vec<String>]) {
        let (name, rest) = text.split_once('(').unwrap();
        let (inputs, rest) = rest.split_once(')').unwrap();
        let outputs = rest.split_once('(').unwrap().1.split_once(')').unwrap().0;
        let signature = Signature {
            name: name.trim().into(),
            inputs: fields(inputs),
            optional: 0,
            outputs: fields(outputs),
        };
        let rows = table.iter().skip(1);
        let rows = rows.map(|row| {
            row.iter()
                .filter(|cell| !cell.is_empty())
                .map(|cell| value(cell))
                .collect()
        });
        self.tables.push((signature, rows.collect()));
    }
}

fn fields(text: &str) -> Vec<(Name, Type)> {
    text.split(',')
        .filter(|field| !field.trim().is_empty())
        .map(|field| {
            let (name, kind) = field.split_once("::").unwrap();
            let kind = match kind.trim().trim_end_matches('?') {
                "STRING" => Type::Text,
                "INTEGER" => Type::Int,
                "FLOAT" => Type::Float,
                "NUMBER" => Type::Number,
                "BOOLEAN" => Type::Bool,
                _ => Type::Any,
            };
            (name.trim().into(), kind)
        })
        .collect()
}

impl Procedures for Tables {
    fn signature(&self, name: &str) -> Option<Signature> {
        self.tables
            .iter()
            .find(|(s, _)| &*s.name == name)
            .map(|(s, _)| s.clone())
    }

    fn names(&self) -> Vec<Name> {
        self.tables
            .iter()
            .map(|(signature, _)| signature.name.clone())
            .collect()
    }

    fn call(
        &self,
        name: &str,
        arguments: &[Value],
        _: &dyn Graph,
    ) -> Result<ProcedureRows, Box<dyn std::error::Error + Send + Sync>> {
        let (signature, rows) = self
            .tables
            .iter()
            .find(|(s, _)| &*s.name == name)
            .ok_or("no such procedure")?;
        let inputs = signature.inputs.len();
        let arguments = arguments.to_vec();
        let fits = move |row: &&Vec<Value>| row[..inputs] == arguments[..];
        let found = rows.iter().filter(fits);
        let found: Vec<_> = found.map(|row| Ok(row[inputs..].to_vec())).collect();
        Ok(Box::new(found.into_iter()))
    }
}
