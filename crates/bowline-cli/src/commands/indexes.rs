//! `graph index create|list|drop`.

use bowline::{Db, Index};

use crate::args::{Durability, IndexOf, Indexed};
use crate::context::Context;
use crate::exit::Failure;
use crate::output::Field;
use crate::remote::{GRAPH_TIMEOUT, Remote};
use crate::store::target::Target;

const COLUMNS: [&str; 4] = ["kind", "attributes", "unique", "since"];

pub(crate) fn run(context: &mut Context<'_, '_>, args: &Indexed) -> Result<(), Failure> {
    match args {
        Indexed::Create { of, unique } => {
            let IndexOf { kind, attributes } = of;
            let index = changed(
                context,
                |db| match unique {
                    true => db.create_unique_index(kind, attributes),
                    false => db.create_index(kind, attributes),
                },
                |remote| match unique {
                    true => remote.wait(remote.client.create_unique_index(kind, attributes)),
                    false => remote.wait(remote.client.create_index(kind, attributes)),
                },
            )?;
            context.rows(&COLUMNS, [Ok(fields(index))])
        }
        Indexed::List => {
            let indexes = match Target::open_to_read(context, GRAPH_TIMEOUT)? {
                Target::Local(directory) => directory.indexes(),
                Target::Remote(remote) => remote.wait(remote.client.indexes())?,
            };
            let count = indexes.len();
            context.rows(&COLUMNS, indexes.into_iter().map(|index| Ok(fields(index))))?;
            context.remark(&match count {
                1 => "1 index".to_owned(),
                count => format!("{count} indexes"),
            })
        }
        Indexed::Drop { of } => {
            let IndexOf { kind, attributes } = of;
            changed(
                context,
                |db| db.drop_index(kind, attributes),
                |remote| remote.wait(remote.client.drop_index(kind, attributes)),
            )?;
            context.remark(&format!("dropped: {kind} by {}", attributes.join(", ")))
        }
    }
}

/// Makes a change, on a directory or in a cluster.
fn changed<T>(
    context: &mut Context<'_, '_>,
    in_directory: impl FnOnce(&Db) -> bowline::Result<T>,
    in_cluster: impl FnOnce(&Remote) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let target = Target::open_to_write(context, Durability::Sync, GRAPH_TIMEOUT)?;
    let changed = match &target {
        Target::Local(directory) => in_directory(directory.to_write()?)?,
        Target::Remote(remote) => in_cluster(remote)?,
    };
    target.close()?;
    Ok(changed)
}

fn fields(index: Index) -> Vec<Field> {
    let unique = if index.is_unique { "yes" } else { "no" };
    vec![
        index.kind.into(),
        Field::List(index.attributes),
        unique.into(),
        index.ready_since.map_or(Field::Absent, Field::from),
    ]
}
