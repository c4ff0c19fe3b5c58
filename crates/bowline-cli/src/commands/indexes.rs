//! `graph index create|list|drop`, on a directory.

use bowline::{Db, Index};

use crate::args::{Durability, IndexOf, Indexed};
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::Field;
use crate::remote::GRAPH_TIMEOUT;
use crate::store::target::Target;

const COLUMNS: [&str; 4] = ["kind", "attributes", "unique", "since"];

pub(crate) fn run(context: &mut Context<'_, '_>, args: &Indexed) -> Result<(), Failure> {
    if context.is_remote() {
        let told =
            "a cluster keeps no indexes in this version: leave --endpoints out, for a directory";
        return Err(Failure::new(Exit::Usage, told));
    }
    match args {
        Indexed::Create { of, unique } => {
            let index = changed(context, |db| match unique {
                true => db.create_unique_index(&of.kind, &of.attributes),
                false => db.create_index(&of.kind, &of.attributes),
            })?;
            context.rows(&COLUMNS, [Ok(fields(index))])
        }
        Indexed::List => {
            let target = Target::open_to_read(context, GRAPH_TIMEOUT)?;
            let Target::Local(directory) = &target else {
                return Err(Failure::new(Exit::Internal, "a directory is local"));
            };
            let indexes = directory.indexes();
            let count = indexes.len();
            context.rows(&COLUMNS, indexes.into_iter().map(|index| Ok(fields(index))))?;
            context.remark(&match count {
                1 => "1 index".to_owned(),
                count => format!("{count} indexes"),
            })
        }
        Indexed::Drop { of } => {
            changed(context, |db| db.drop_index(&of.kind, &of.attributes))?;
            let IndexOf { kind, attributes } = of;
            context.remark(&format!("dropped: {kind} by {}", attributes.join(", ")))
        }
    }
}

fn changed<T>(
    context: &mut Context<'_, '_>,
    change: impl FnOnce(&Db) -> bowline::Result<T>,
) -> Result<T, Failure> {
    let target = Target::open_to_write(context, Durability::Sync, GRAPH_TIMEOUT)?;
    let Target::Local(directory) = &target else {
        return Err(Failure::new(Exit::Internal, "a directory is local"));
    };
    let changed = change(directory.to_write()?)?;
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
