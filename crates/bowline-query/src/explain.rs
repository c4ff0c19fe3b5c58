//! A plan as text, for people: an operator a line, each above those that it reads from.
//!
//! Expressions are shown as they stand in the query. A slot has the name of its variable; one that has none is `_` with its
//! number.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bowline_types::Direction;

use crate::error::StoreError;
use crate::execute::Counts;
use crate::graph::Graph;
use crate::plan::{
    Aggregate, CreateNode, CreateRelationship, Expansion, Expr, Kind, NodeSeek, Plan, Remove,
    SeekKeys, Set, Slot,
};
use crate::syntax::ast::Shortest;
use crate::value::Name;

/// Shows a plan of a text, whose variables have these names. Scans say how many nodes the graph has for them, about.
/// Counts show the rows that each operator gave, and the time that it took without those below it.
pub(crate) fn explain(
    plan: &Plan,
    text: &str,
    names: &BTreeMap<Slot, Name>,
    graph: &dyn Graph,
    counts: Option<&Counts>,
) -> Result<String, StoreError> {
    let names = Names { text, names };
    let mut shown = Shown {
        names: &names,
        graph,
        counts,
        out: String::new(),
    };
    shown.plan(plan, 0)?;
    Ok(shown.out)
}

/// What expressions and slots are in the query.
struct Names<'t> {
    text: &'t str,
    names: &'t BTreeMap<Slot, Name>,
}

impl<'t> Names<'t> {
    fn text(&self, expr: &Expr) -> &'t str {
        if let Kind::Slot(slot) = expr.kind
            && let Some(name) = self.names.get(&slot)
        {
            return name;
        }
        let text = self.text.get(expr.span.start..expr.span.end);
        text.unwrap_or("…").trim()
    }

    fn slot(&self, slot: Slot) -> String {
        let name = self.names.get(&slot);
        name.map_or_else(|| format!("_{slot}"), ToString::to_string)
    }
}

/// The plans that an operator opens for each of its rows, or beside one another.
fn inner(plan: &Plan) -> Vec<&Plan> {
    match plan {
        Plan::Optional { inner, .. } | Plan::Apply { inner, .. } | Plan::Foreach { inner, .. } => {
            vec![inner]
        }
        Plan::Merge { matching, .. } => vec![matching],
        Plan::Union { inputs } => inputs.iter().collect(),
        _ => Vec::new(),
    }
}

struct Shown<'s> {
    names: &'s Names<'s>,
    graph: &'s dyn Graph,
    counts: Option<&'s Counts>,
    out: String,
}

impl Shown<'_> {
    fn plan(&mut self, plan: &Plan, depth: usize) -> Result<(), StoreError> {
        let mut next = Some(plan);
        let mut depth = depth;
        while let Some(plan) = next {
            next = plan.input();
            if matches!(plan, Plan::Argument) {
                break;
            }
            let line = self.line(plan)?;
            let _ = write!(self.out, "{}{line}", "  ".repeat(depth));
            if let Some(counts) = self.counts {
                let count = counts.of(plan);
                let below = plan.input().into_iter().chain(inner(plan));
                let below = below.map(|below| counts.of(below).time).sum();
                let own_us = count.time.saturating_sub(below).as_micros();
                let (rows, ms) = (count.rows, own_us as f64 / 1e3);
                let _ = write!(self.out, "  [{rows} rows, {ms:.3} ms]");
            }
            self.out.push('\n');
            for inner in inner(plan) {
                self.plan(inner, depth + 2)?;
            }
            depth += 1;
        }
        Ok(())
    }

    fn line(&self, plan: &Plan) -> Result<String, StoreError> {
        let texts = |all: &mut dyn Iterator<Item = &Expr>| {
            let texts: Vec<&str> = all.map(|expr| self.names.text(expr)).collect();
            texts.join(", ")
        };
        let slot = |slot: &Slot| self.names.slot(*slot);
        Ok(match plan {
            Plan::Argument => "Row".to_owned(),
            Plan::Scan {
                slot: at, label, ..
            } => {
                let count = self.graph.node_count(label.as_deref())?;
                let label = label.as_ref().map(|label| format!(":{label}"));
                let label = label.unwrap_or_default();
                format!("Scan ({}{label}), about {count} nodes", slot(at))
            }
            Plan::Seek { slot: at, seek, .. } => self.seek(&slot(at), seek),
            Plan::IsNode { slot: at, .. } => format!("Node ({})", slot(at)),
            Plan::Expand { expansion, .. } => self.expansion(expansion),
            Plan::Filter { predicate, .. } => format!("Filter {}", self.names.text(predicate)),
            Plan::Project { items, .. } => {
                format!("Project {}", texts(&mut items.iter().map(|(_, expr)| expr)))
            }
            Plan::Aggregate {
                keys, aggregates, ..
            } => {
                let keys = texts(&mut keys.iter().map(|(_, expr)| expr));
                let each = |it: &Aggregate| {
                    let text = self.names.text.get(it.span.start..it.span.end);
                    text.unwrap_or("…").trim().to_owned()
                };
                let values: Vec<String> = aggregates.iter().map(each).collect();
                match keys.is_empty() {
                    true => format!("Aggregate {}", values.join(", ")),
                    false => format!("Aggregate {} by {keys}", values.join(", ")),
                }
            }
            Plan::Distinct { slots, .. } => {
                let all: Vec<String> = slots.iter().map(slot).collect();
                format!("Distinct {}", all.join(", "))
            }
            Plan::Sort { keys, limit, .. } => {
                let key = |(key, descending): &(Expr, bool)| {
                    let order = if *descending { " descending" } else { "" };
                    format!("{}{order}", self.names.text(key))
                };
                let keys: Vec<String> = keys.iter().map(key).collect();
                let first = limit
                    .as_ref()
                    .map(|it| format!(", the first {}", self.names.text(it)));
                format!("Sort by {}{}", keys.join(", "), first.unwrap_or_default())
            }
            Plan::Skip { count, .. } => format!("Skip {}", self.names.text(count)),
            Plan::Limit { count, .. } => format!("Limit {}", self.names.text(count)),
            Plan::Unwind { slot: at, list, .. } => {
                format!("Unwind {} as {}", self.names.text(list), slot(at))
            }
            Plan::Optional { .. } => "Optional: each row with those of, or with nulls".to_owned(),
            Plan::Apply { .. } => "Apply: each row with those of".to_owned(),
            Plan::Union { .. } => "Union of".to_owned(),
            Plan::Eager { .. } => "Read all rows".to_owned(),
            Plan::Call {
                procedure,
                arguments,
                ..
            } => format!("Call {procedure}({})", texts(&mut arguments.iter())),
            Plan::Discard { .. } => "Discard".to_owned(),
            Plan::Foreach { slot: at, list, .. } => {
                format!("For each {} of {}", slot(at), self.names.text(list))
            }
            writes => self.writing(writes),
        })
    }

    /// The line of an operator that writes.
    fn writing(&self, plan: &Plan) -> String {
        let slot = |slot: &Slot| self.names.slot(*slot);
        match plan {
            Plan::Create {
                nodes,
                relationships,
                ..
            } => format!("Create {}", self.created(nodes, relationships)),
            Plan::Merge {
                nodes,
                relationships,
                ..
            } => format!(
                "Merge: create {} unless",
                self.created(nodes, relationships)
            ),
            Plan::Set { items, .. } => {
                let each = |item: &Set| match item {
                    Set::Property { target, key, value } => {
                        let (target, value) = (self.names.text(target), self.names.text(value));
                        format!("{target}.{key} = {value}")
                    }
                    Set::Properties { target, value, .. } => {
                        format!("{} = {}", slot(target), self.names.text(value))
                    }
                    Set::Labels { target, labels, .. } => {
                        format!("{}:{}", slot(target), labels.join(":"))
                    }
                };
                let all: Vec<String> = items.iter().map(each).collect();
                format!("Set {}", all.join(", "))
            }
            Plan::Remove { items, .. } => {
                let each = |item: &Remove| match item {
                    Remove::Property { target, key } => {
                        format!("{}.{key}", self.names.text(target))
                    }
                    Remove::Labels { target, labels, .. } => {
                        format!("{}:{}", slot(target), labels.join(":"))
                    }
                };
                let all: Vec<String> = items.iter().map(each).collect();
                format!("Remove {}", all.join(", "))
            }
            Plan::Delete {
                expressions,
                detach,
                ..
            } => {
                let what: Vec<&str> = expressions.iter().map(|it| self.names.text(it)).collect();
                let what = what.join(", ");
                match detach {
                    true => format!("Delete {what} with their relationships"),
                    false => format!("Delete {what}"),
                }
            }
            // All others have their lines above.
            other => format!("{other:?}"),
        }
    }

    fn seek(&self, slot: &str, seek: &NodeSeek) -> String {
        let mut asked: Vec<String> = Vec::new();
        for (name, expr) in seek.properties.iter().zip(&seek.equal) {
            asked.push(format!("{name} = {}", self.names.text(expr)));
        }
        if let Some(name) = seek.properties.last() {
            let mut ask = |operator: &str, expr: &Expr| {
                asked.push(format!("{name} {operator} {}", self.names.text(expr)));
            };
            match &seek.last {
                SeekKeys::Equal(expr) => ask("=", expr),
                SeekKeys::In(expr) => ask("IN", expr),
                SeekKeys::StartsWith(expr) => ask("STARTS WITH", expr),
                SeekKeys::Between { lower, upper } => {
                    if let Some((expr, included)) = lower {
                        ask(if *included { ">=" } else { ">" }, expr);
                    }
                    if let Some((expr, included)) = upper {
                        ask(if *included { "<=" } else { "<" }, expr);
                    }
                }
            }
        }
        format!(
            "Seek ({slot}:{}) by its index, {}",
            seek.label,
            asked.join(", ")
        )
    }

    fn expansion(&self, expansion: &Expansion) -> String {
        let kinds: Vec<&str> = expansion.kinds.iter().map(|kind| &**kind).collect();
        let kinds = match kinds.is_empty() {
            true => String::new(),
            false => format!(":{}", kinds.join("|")),
        };
        let length = match expansion.length {
            None => String::new(),
            Some((least, u64::MAX)) => format!("*{least}.."),
            Some((least, most)) => format!("*{least}..{most}"),
        };
        let (left, right) = match expansion.direction {
            Direction::Out => ("-", "->"),
            Direction::In => ("<-", "-"),
            Direction::Both => ("-", "-"),
        };
        let what = match expansion.shortest {
            Some(Shortest::One) => "Shortest path",
            Some(Shortest::All) => "Shortest paths",
            None => "Expand",
        };
        let (from, to) = (
            self.names.slot(expansion.from),
            self.names.slot(expansion.to),
        );
        let is_known = match expansion.to_bound {
            true => ", whose ends are known",
            false => "",
        };
        let tests = expansion.element_tests.iter();
        let tests: Vec<&str> = tests.map(|it| self.names.text(&it.predicate)).collect();
        let tests = match tests.is_empty() {
            true => String::new(),
            false => format!(", if {}", tests.join(" AND ")),
        };
        format!("{what} ({from}){left}[{kinds}{length}]{right}({to}){is_known}{tests}")
    }

    fn created(&self, nodes: &[CreateNode], relationships: &[CreateRelationship]) -> String {
        let labels = |labels: &[Name]| -> String {
            labels.iter().map(|label| format!(":{label}")).collect()
        };
        let node =
            |it: &CreateNode| format!("({}{})", self.names.slot(it.slot), labels(&it.labels));
        let relationship = |it: &CreateRelationship| {
            let (source, target) = (self.names.slot(it.source), self.names.slot(it.target));
            format!("({source})-[:{}]->({target})", it.kind)
        };
        let all = nodes.iter().map(node);
        let all: Vec<String> = all.chain(relationships.iter().map(relationship)).collect();
        all.join(", ")
    }
}
