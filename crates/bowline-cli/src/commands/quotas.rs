//! `quota set`, `list`, `remove`.

use bowline_client::{Code, Error, QuotaLimits};

use crate::args::Quota as Args;
use crate::context::{Context, not_found, usage};
use crate::exit::Failure;
use crate::output::{Field, escape};
use crate::remote::KEYS_TIMEOUT;

pub(crate) fn run(context: &mut Context<'_, '_>, args: &Args) -> Result<(), Failure> {
    let remote = context.remote(KEYS_TIMEOUT)?;
    match args {
        Args::Set {
            prefix,
            keys,
            bytes,
            encoding,
        } => {
            let prefix = encoding.decode(prefix).map_err(usage)?;
            let limits = QuotaLimits {
                keys: *keys,
                bytes: *bytes,
            };
            remote.wait(remote.client.set_quota(prefix.clone(), limits))?;
            let mut printer = context.printer(encoding.hex);
            Ok(printer.record(&[
                ("prefix", Field::Bytes(prefix)),
                ("keys_max", number(*keys)),
                ("bytes_max", number(*bytes)),
            ])?)
        }
        Args::List { encoding } => {
            let quotas = remote.wait(remote.client.quotas())?;
            let mut printer = context.printer(encoding.hex);
            let columns = &["prefix", "keys", "keys_max", "bytes", "bytes_max"];
            let mut rows = printer.rows(columns);
            for quota in quotas {
                rows.push(vec![
                    Field::Bytes(quota.prefix),
                    quota.used.keys.into(),
                    number(quota.limits.keys),
                    quota.used.bytes.into(),
                    number(quota.limits.bytes),
                ])?;
            }
            rows.finish()?;
            Ok(())
        }
        Args::Remove { prefix, encoding } => {
            let prefix = encoding.decode(prefix).map_err(usage)?;
            match remote.outcome(remote.client.remove_quota(prefix.clone()))? {
                Err(Error::Other {
                    code: Code::NotFound,
                    ..
                }) => {
                    let prefix = escape(&prefix);
                    return Err(not_found(format!(
                        "the prefix `{prefix}` has no quota: `bowline quota list` shows all of them"
                    )));
                }
                removed => removed?,
            }
            let mut printer = context.printer(encoding.hex);
            Ok(printer.record(&[("prefix", Field::Bytes(prefix))])?)
        }
    }
}

fn number(limit: Option<u64>) -> Field {
    limit.map_or(Field::Absent, Field::Number)
}
