//! `lease grant`, `keep-alive`, `revoke`, `list`.

use crate::args::{Durability, Lease};
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{Field, escape};
use crate::remote::KEYS_TIMEOUT;
use crate::store::target::Target;

pub(crate) fn run(context: &mut Context<'_, '_>, args: &Lease) -> Result<(), Failure> {
    match args {
        Lease::Grant { ttl, id } => {
            let target = Target::open_to_write(context, Durability::Sync, KEYS_TIMEOUT)?;
            let (id, ttl) = target.grant_lease(*id, *ttl)?;
            target.close()?;
            context.record(&[
                ("lease", id.to_string().into()),
                ("ttl", Field::Duration(ttl)),
            ])
        }
        Lease::KeepAlive { id, once } => {
            let target = Target::open(context, KEYS_TIMEOUT)?;
            let mut printer = context.printer(false);
            let mut rows = printer.rows(&["lease", "ttl"]);
            target.keep_alive(*id, *once, &mut |ttl| {
                rows.push(vec![id.to_string().into(), Field::Duration(ttl)])?;
                Ok(rows.flush()?)
            })
        }
        Lease::Revoke { id } => {
            let target = Target::open(context, KEYS_TIMEOUT)?;
            let deleted = target.revoke_lease(*id)?;
            target.close()?;
            context.record(&[
                ("lease", id.to_string().into()),
                ("deleted", deleted.map_or(Field::Absent, Field::Number)),
            ])
        }
        Lease::List => {
            let leases = Target::open_to_read(context, KEYS_TIMEOUT)?.leases()?;
            let rows = leases.into_iter().map(|(lease, keys)| {
                let keys = keys.map_or(Field::Absent, |keys| {
                    let keys = keys.iter().map(|key| escape(key).into_owned());
                    Field::List(keys.collect())
                });
                Ok(vec![
                    lease.id.to_string().into(),
                    Field::Duration(lease.ttl),
                    Field::Duration(lease.remaining),
                    keys,
                ])
            });
            context.rows(&["lease", "ttl", "remaining", "keys"], rows)
        }
    }
}
