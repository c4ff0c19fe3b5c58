//! `lease grant`, `keep-alive`, `revoke`, `list`.

use std::time::Duration;

use crate::args::{Durability, Lease};
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{Field, escape};
use bowline_load::units::show_duration;

pub(crate) fn run(context: &mut Context<'_, '_>, args: &Lease) -> Result<(), Failure> {
    match args {
        Lease::Grant { ttl, id } => grant(context, *ttl, *id),
        Lease::KeepAlive { id, once } => keep_alive(context, *id, *once),
        Lease::Revoke { id } => revoke(context, *id),
        Lease::List => list(context),
    }
}

fn grant(context: &mut Context<'_, '_>, ttl: Duration, id: Option<i64>) -> Result<(), Failure> {
    let db = context.open_to_write(Durability::Sync)?;
    let id = match id {
        Some(id) => db.grant_lease_with_id(id, ttl).map(|()| id)?,
        None => db.grant_lease(ttl)?,
    };
    db.close()?;
    let fields = [
        ("lease", Field::Signed(id)),
        ("ttl", show_duration(ttl).into()),
    ];
    Ok(context.printer(false).record(&fields)?)
}

fn keep_alive(context: &mut Context<'_, '_>, id: i64, once: bool) -> Result<(), Failure> {
    let db = context.open()?;
    let mut printer = context.printer(false);
    let mut rows = printer.rows(&["lease", "ttl"]);
    loop {
        let ttl = db.keep_alive(id)?;
        rows.push(vec![Field::Signed(id), show_duration(ttl).into()])?;
        if once {
            rows.finish()?;
            return Ok(());
        }
        rows.flush()?;
        // A third of the TTL, as etcd's clients do: two tries may fail.
        std::thread::sleep(ttl / 3);
    }
}

fn revoke(context: &mut Context<'_, '_>, id: i64) -> Result<(), Failure> {
    let db = context.open()?;
    let deleted = db.revoke_lease(id)?;
    db.close()?;
    let fields = [("lease", Field::Signed(id)), ("deleted", deleted.into())];
    Ok(context.printer(false).record(&fields)?)
}

fn list(context: &mut Context<'_, '_>) -> Result<(), Failure> {
    let db = context.open()?;
    let mut printer = context.printer(false);
    let mut rows = printer.rows(&["lease", "ttl", "remaining", "keys"]);
    for lease in db.leases() {
        let keys = db.lease_keys(lease.id)?;
        let keys = keys.iter().map(|key| escape(key).into_owned()).collect();
        rows.push(vec![
            Field::Signed(lease.id),
            show_duration(lease.ttl).into(),
            show_duration(lease.remaining).into(),
            Field::List(keys),
        ])?;
    }
    rows.finish()?;
    Ok(())
}
