//! `lease grant`, `keep-alive`, `revoke`, `list` on a cluster.

use std::time::Duration;

use bowline_client::Error;

use crate::args::Lease;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{Field, escape};
use crate::store::connection::Remote;
use bowline_load::units::show_duration;

pub(crate) fn run(context: &mut Context<'_, '_>, args: &Lease) -> Result<(), Failure> {
    let remote = Remote::of(context)?;
    match args {
        Lease::Grant { ttl, id } => grant(context, &remote, *ttl, id.unwrap_or(0)),
        Lease::KeepAlive { id, once } => keep_alive(context, &remote, *id, *once),
        Lease::Revoke { id } => revoke(context, &remote, *id),
        Lease::List => list(context, &remote),
    }
}

fn grant(
    context: &mut Context<'_, '_>,
    remote: &Remote,
    ttl: Duration,
    id: i64,
) -> Result<(), Failure> {
    let client = &remote.client;
    let granted = remote.wait(async {
        match client.grant_lease_ms_with_id(id, ttl).await {
            // etcd knows whole seconds only.
            Err(Error::Unimplemented { .. }) => client.grant_lease_with_id(id, ttl).await,
            granted => granted,
        }
    })?;
    let fields = [
        ("lease", Field::Signed(granted.id)),
        ("ttl", show_duration(granted.ttl).into()),
    ];
    Ok(context.printer(false).record(&fields)?)
}

fn keep_alive(
    context: &mut Context<'_, '_>,
    remote: &Remote,
    id: i64,
    once: bool,
) -> Result<(), Failure> {
    let mut printer = context.printer(false);
    let mut rows = printer.rows(&["lease", "ttl"]);
    if once {
        let ttl = remote.wait(async {
            match remote.client.keep_alive_ms_once(id).await {
                Err(Error::Unimplemented { .. }) => remote.client.keep_alive_once(id).await,
                kept => kept,
            }
        })?;
        rows.push(vec![Field::Signed(id), show_duration(ttl).into()])?;
        rows.finish()?;
        return Ok(());
    }
    let mut alive = remote.wait(async {
        match remote.client.keep_alive_ms(id).await {
            Err(Error::Unimplemented { .. }) => remote.client.keep_alive(id).await,
            alive => alive,
        }
    })?;
    let mut ttl = alive.ttl();
    loop {
        rows.push(vec![Field::Signed(id), show_duration(ttl).into()])?;
        rows.flush()?;
        ttl = remote.wait(alive.renewed())?;
    }
}

fn revoke(context: &mut Context<'_, '_>, remote: &Remote, id: i64) -> Result<(), Failure> {
    // The answer to a revocation does not say what went with it.
    let keys = remote.wait(remote.client.time_to_live(id, true))?.keys;
    remote.wait(remote.client.revoke_lease(id))?;
    let deleted = u64::try_from(keys.len()).unwrap_or(u64::MAX);
    let fields = [("lease", Field::Signed(id)), ("deleted", deleted.into())];
    Ok(context.printer(false).record(&fields)?)
}

fn list(context: &mut Context<'_, '_>, remote: &Remote) -> Result<(), Failure> {
    let leases = remote.wait(remote.client.leases())?;
    let mut printer = context.printer(false);
    let mut rows = printer.rows(&["lease", "ttl", "remaining", "keys"]);
    for id in leases {
        let asked = async {
            match remote.client.time_to_live_ms(id, true).await {
                Err(Error::Unimplemented { .. }) => remote.client.time_to_live(id, true).await,
                told => told,
            }
        };
        let lease = match remote.runtime.block_on(asked) {
            Ok(lease) => lease,
            // It ended since it was listed.
            Err(Error::LeaseNotFound) => continue,
            Err(error) => return Err(error.into()),
        };
        let keys = lease
            .keys
            .iter()
            .map(|key| escape(key).into_owned())
            .collect();
        rows.push(vec![
            Field::Signed(id),
            show_duration(lease.granted).into(),
            show_duration(lease.remaining).into(),
            Field::List(keys),
        ])?;
    }
    rows.finish()?;
    Ok(())
}
