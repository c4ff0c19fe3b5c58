//! `graph query`: Cypher over a directory.

use bowline::cypher::{self, Effects, Parameters, Query};

use crate::args::{Output, Queried};
use crate::context::{Context, counted};
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::output::Field;
use crate::remote::GRAPH_TIMEOUT;
use crate::store::target::Target;
use crate::store::view::View;

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
    let text = match args.text.as_str() {
        "-" => String::from_utf8(context.read_input()?)
            .map_err(|_| Failure::new(Exit::Invalid, "the query is not text"))?,
        text => text.to_owned(),
    };
    let values = args.parameters().into_iter();
    let parameters: Parameters = values
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    if context.is_remote() {
        let told = "a query runs on a directory in this version: leave --endpoints out, or ask with the other \
                    commands of `bowline graph`";
        return Err(Failure::new(Exit::Usage, told));
    }
    match writes(&text)? {
        _ if args.explain => explain(context, args, &text),
        true => write(context, args, &text, &parameters),
        false => read(context, args, &text, &parameters),
    }
}

/// Whether a text writes, which decides how the directory is opened. What is wrong with it is told before.
fn writes(text: &str) -> Result<bool, Failure> {
    // An empty graph has no revision, and needs none to tell.
    let query = match Query::new(text).revision()? {
        None => Query::new(text),
        Some(_) => return Ok(false),
    };
    Ok(query.plan(&bowline_query::MemoryGraph::new())?.writes())
}

/// Shows the plan. Its counts are those of the directory.
fn explain(context: &mut Context<'_, '_>, args: &Queried, text: &str) -> Result<(), Failure> {
    let target = Target::open_to_read(context, GRAPH_TIMEOUT)?;
    let asked = Query::new(text).revision()?.map(bowline::Revision::new);
    let view = target.at(asked.or(args.rev))?;
    let View::Local(snapshot) = &view else {
        return Err(Failure::new(Exit::Internal, "a directory is local"));
    };
    let plan = snapshot.build_query(text).explain(&snapshot.graph())?;
    match context.global.output {
        Output::Json => context.record(&[("plan", plan.into())]),
        Output::Table => Ok(context
            .streams
            .stdout
            .write_all(line_by_line(&plan).as_bytes())?),
    }
}

/// The lines of a text, in which nothing moves the cursor.
fn line_by_line(text: &str) -> String {
    text.lines()
        .map(|line| bowline::text::escape(line.as_bytes()).into_owned() + "\n")
        .collect()
}

fn read(
    context: &mut Context<'_, '_>,
    args: &Queried,
    text: &str,
    parameters: &Parameters,
) -> Result<(), Failure> {
    let target = Target::open_to_read(context, GRAPH_TIMEOUT)?;
    let asked = Query::new(text).revision()?.map(bowline::Revision::new);
    let view = target.at(asked.or(args.rev))?;
    let View::Local(snapshot) = &view else {
        return Err(Failure::new(Exit::Internal, "a directory is local"));
    };
    let graph = snapshot.graph().cancelable(&interrupt::cancel());
    let is_pressed = || interrupt::is_pressed();
    let query = snapshot.build_query(text).cancelled(&is_pressed);
    let prepared = query.plan(&graph)?;
    let columns: Vec<&str> = prepared.columns().iter().map(|name| &**name).collect();
    let mut printer = context.printer(false);
    let mut rows = printer.rows(&columns);
    let mut stopped = None;
    let found = query.for_each(&prepared, &graph, parameters, &mut |row| {
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
    found?;
    let count = usize::try_from(rows.finish()?).unwrap_or(usize::MAX);
    context.remark(&counted(count, "row"))
}

fn write(
    context: &mut Context<'_, '_>,
    args: &Queried,
    text: &str,
    parameters: &Parameters,
) -> Result<(), Failure> {
    if args.rev.is_some() {
        return Err(Failure::new(
            Exit::Usage,
            "a query that writes has no --rev: it writes at a new revision",
        ));
    }
    let target = Target::open_to_write(context, args.write.durability, GRAPH_TIMEOUT)?;
    let Target::Local(directory) = &target else {
        return Err(Failure::new(Exit::Internal, "a directory is local"));
    };
    let db = directory.to_write()?;
    let answer = db.query(text, parameters)?;
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
    let done = effects(answer.effects);
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
