//! `graph query`: Cypher over a directory or a cluster, with the same output.

use std::time::Instant;

use bowline::Revision;
use bowline::cypher::{self, Effects, Parameters, Query};
use bowline_client::graph as remote;

use crate::args::{Durability, Output, Queried, Shown, Statement};
use crate::context::{Context, counted, usage};
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::output::Field;
use crate::query_value::of_wire;
use crate::remote::GRAPH_TIMEOUT;
use crate::store::target::Target;
use crate::store::view::{View, refuse_zero};

impl From<cypher::Error> for Failure {
    fn from(error: cypher::Error) -> Failure {
        match error {
            cypher::Error::Store(source) => match source.downcast::<bowline::Error>() {
                Ok(error) => Failure::from(*error),
                Err(source) => Failure::new(Exit::Invalid, source.to_string()),
            },
            cypher::Error::Cancelled { .. } => Failure::interrupted(),
            error => Failure::new(Exit::Invalid, error.to_string()),
        }
    }
}

pub(crate) fn run(context: &mut Context<'_, '_>, args: &Queried) -> Result<(), Failure> {
    let text = match args.text.as_deref() {
        // Without a text the program begins a session, unless it is a line of one.
        None => {
            return Err(usage(
                "a session has begun already: give the query".to_owned(),
            ));
        }
        Some("-") => String::from_utf8(context.read_input()?)
            .map_err(|_| Failure::new(Exit::Invalid, "the query is not text"))?,
        Some(text) => text.to_owned(),
    };
    execute(context, &args.statement(text))
}

/// Runs a statement, and prints what it returns.
pub(crate) fn execute(context: &mut Context<'_, '_>, statement: &Statement) -> Result<(), Failure> {
    if context.is_remote() {
        return ask(context, statement);
    }
    match writes(&statement.text)? {
        _ if statement.shown == Shown::Plan => explain(context, statement),
        true => write(context, statement),
        false => read(context, statement),
    }
}

/// Whether a text writes, which decides how the directory is opened. What is wrong with it is told before.
fn writes(text: &str) -> Result<bool, Failure> {
    // An empty graph has no revision, and needs none to tell.
    let query = match Query::new(text).revision()? {
        None => Query::new(text),
        Some(_) => return Ok(false),
    };
    let query = query.procedures(&cypher::Algorithms);
    Ok(query.plan(&bowline_query::MemoryGraph::new())?.writes())
}

fn parameters(statement: &Statement) -> Parameters {
    let all = statement.parameters.iter();
    all.map(|(name, value)| (name.as_str().into(), value.clone().into()))
        .collect()
}

/// Shows the plan. Its counts are those of the directory.
fn explain(context: &mut Context<'_, '_>, statement: &Statement) -> Result<(), Failure> {
    let text = &statement.text;
    let target = Target::open_to_read(context, GRAPH_TIMEOUT)?;
    let asked = Query::new(text).revision()?.map(Revision::new);
    let view = target.at(asked.or(statement.rev))?;
    let View::Local(snapshot) = &view else {
        return Err(Failure::new(Exit::Internal, "a directory is local"));
    };
    let plan = snapshot.build_query(text).explain(&snapshot.graph())?;
    show_plan(context, &plan)
}

fn show_plan(context: &mut Context<'_, '_>, plan: &str) -> Result<(), Failure> {
    match context.global.output {
        Output::Json => context.record(&[("plan", plan.into())]),
        Output::Table => Ok(context
            .streams
            .stdout
            .write_all(line_by_line(plan).as_bytes())?),
    }
}

/// The lines of a text, in which nothing moves the cursor.
fn line_by_line(text: &str) -> String {
    text.lines()
        .map(|line| bowline::text::escape(line.as_bytes()).into_owned() + "\n")
        .collect()
}

fn read(context: &mut Context<'_, '_>, statement: &Statement) -> Result<(), Failure> {
    let text = &statement.text;
    let target = Target::open_to_read(context, GRAPH_TIMEOUT)?;
    let asked = Query::new(text).revision()?.map(Revision::new);
    let view = target.at(asked.or(statement.rev))?;
    let View::Local(snapshot) = &view else {
        return Err(Failure::new(Exit::Internal, "a directory is local"));
    };
    let graph = snapshot.graph().cancelable(&interrupt::cancel());
    let is_pressed = || interrupt::is_pressed();
    let begun = Instant::now();
    let clock = || begun.elapsed();
    let query = snapshot.build_query(text).cancelled(&is_pressed);
    let query = match statement.shown {
        Shown::Profile => query.profiled(&clock),
        Shown::Answer | Shown::Plan => query,
    };
    let prepared = query.plan(&graph)?;
    let columns: Vec<&str> = prepared.columns().iter().map(|name| &**name).collect();
    let mut printer = context.printer(false);
    let mut rows = printer.rows(&columns);
    let mut stopped = None;
    let found = query.for_each(&prepared, &graph, &parameters(statement), &mut |row| {
        let row = row.into_iter().map(Field::Queried).collect();
        rows.push(row).map_err(|error| {
            let told = error.to_string();
            stopped = Some(Failure::from(error));
            cypher::Error::Store(told.into())
        })
    });
    if let Some(stopped) = stopped {
        return Err(stopped);
    }
    let summary = found?;
    let count = usize::try_from(rows.finish()?).unwrap_or(usize::MAX);
    context.remark(&counted(count, "row"))?;
    match summary.profile {
        Some(profile) => show_plan(context, &profile),
        None => Ok(()),
    }
}

fn refuse_revision(rev: Option<Revision>) -> Result<(), Failure> {
    match rev {
        None => Ok(()),
        Some(_) => Err(usage(
            "a query that writes has no --rev: it writes at a new revision".to_owned(),
        )),
    }
}

fn write(context: &mut Context<'_, '_>, statement: &Statement) -> Result<(), Failure> {
    refuse_revision(statement.rev)?;
    let target = Target::open_to_write(context, statement.durability, GRAPH_TIMEOUT)?;
    let Target::Local(directory) = &target else {
        return Err(Failure::new(Exit::Internal, "a directory is local"));
    };
    let db = directory.to_write()?;
    let parameters = parameters(statement);
    let begun = Instant::now();
    let clock = || begun.elapsed();
    let answer = match statement.shown {
        Shown::Profile => {
            // Nobody else writes to the directory: it conflicts with nothing.
            let query = db.snapshot().build_query(&statement.text).profiled(&clock);
            let mut tx = db.begin();
            let answer = tx.run_query(&query, &parameters)?;
            tx.commit()?;
            answer
        }
        Shown::Answer | Shown::Plan => db.query(&statement.text, &parameters)?,
    };
    let revision = db.revision();
    target.close()?;
    if !answer.columns.is_empty() {
        let columns: Vec<&str> = answer.columns.iter().map(|name| &**name).collect();
        let mut printer = context.printer(false);
        let mut rows = printer.rows(&columns);
        for row in answer.rows {
            rows.push(row.into_iter().map(Field::Queried).collect())?;
        }
        rows.finish()?;
    }
    remark_effects(context, answer.effects, revision)?;
    match answer.profile {
        Some(profile) => show_plan(context, &profile),
        None => Ok(()),
    }
}

/// Asks a cluster.
fn ask(context: &mut Context<'_, '_>, statement: &Statement) -> Result<(), Failure> {
    if statement.durability != Durability::Sync {
        let text = "a cluster always flushes before it answers: leave --durability out";
        return Err(usage(text.to_owned()));
    }
    // Where it can be read here: a newer server may know more of the language.
    let writes = writes(&statement.text).ok();
    if writes == Some(true) {
        refuse_revision(statement.rev)?;
    }
    refuse_zero(statement.rev)?;
    let cluster = context.remote(GRAPH_TIMEOUT)?;
    let query = cluster
        .client
        .query(&*statement.text, &statement.parameters);
    let query = query.level(cluster.level);
    let query = match statement.rev {
        Some(rev) => query.revision(rev),
        None => query,
    };
    let query = match writes {
        // Another member may be asked after a broken connection.
        Some(false) => query.read_only(),
        _ => query,
    };
    let query = match statement.shown {
        Shown::Answer => query,
        Shown::Plan => query.explain(),
        Shown::Profile => query.profile(),
    };
    let mut rows = cluster.wait(query.rows())?;
    if statement.shown == Shown::Plan {
        while cluster.outcome(rows.next())??.is_some() {}
        return show_plan(context, rows.plan().unwrap_or_default());
    }
    let mut count = 0;
    if !rows.columns().is_empty() {
        let columns = rows.columns().to_vec();
        let columns: Vec<&str> = columns.iter().map(|name| &**name).collect();
        let mut printer = context.printer(false);
        let mut shown = printer.rows(&columns);
        while let Some(row) = cluster.outcome(rows.next())?? {
            shown.push(
                row.into_iter()
                    .map(|value| Field::Queried(of_wire(value)))
                    .collect(),
            )?;
        }
        count = usize::try_from(shown.finish()?).unwrap_or(usize::MAX);
    }
    while cluster.outcome(rows.next())??.is_some() {}
    match rows.writes() {
        true => remark_effects(
            context,
            effects_of_wire(rows.effects()),
            rows.header().revision,
        )?,
        false => context.remark(&counted(count, "row"))?,
    }
    match rows.plan() {
        Some(profile) => show_plan(context, profile),
        None => Ok(()),
    }
}

fn effects_of_wire(effects: remote::Effects) -> Effects {
    Effects {
        nodes_created: effects.blocks_created,
        nodes_deleted: effects.blocks_deleted,
        relationships_created: effects.edges_created,
        relationships_deleted: effects.edges_deleted,
        properties_set: effects.attributes_set,
        labels_added: effects.kinds_added,
        labels_removed: effects.kinds_removed,
    }
}

fn remark_effects(
    context: &mut Context<'_, '_>,
    done: Effects,
    revision: Revision,
) -> Result<(), Failure> {
    let done = effects(done);
    match done.is_empty() {
        true => context.remark("nothing changed"),
        false => context.remark(&format!("{} at revision {revision}", done.join(", "))),
    }
}

/// What was changed, in words.
fn effects(effects: Effects) -> Vec<String> {
    let all = [
        (effects.nodes_created, "block created", "blocks created"),
        (effects.nodes_deleted, "block deleted", "blocks deleted"),
        (
            effects.relationships_created,
            "edge created",
            "edges created",
        ),
        (
            effects.relationships_deleted,
            "edge deleted",
            "edges deleted",
        ),
        (effects.properties_set, "attribute set", "attributes set"),
        (effects.labels_added, "kind added", "kinds added"),
        (effects.labels_removed, "kind removed", "kinds removed"),
    ];
    let done = all.into_iter().filter(|(count, ..)| *count > 0);
    done.map(|(count, one, many)| format!("{count} {}", if count == 1 { one } else { many }))
        .collect()
}
