//! `endpoint status`, `health`, `hashkv`: each endpoint is asked by itself.

use std::time::Instant;

use bowline::Revision;
use bowline_client::{Error, ReadLevel};

use crate::args::Output;
use crate::args::cluster::Endpoint as Args;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::Field;
use crate::remote::{KEYS_TIMEOUT, Remote};
use bowline_load::units::show_size;

pub(crate) fn run(context: &mut Context<'_, '_>, args: &Args) -> Result<(), Failure> {
    match args {
        Args::Status { cluster } => status(context, *cluster),
        Args::Health { cluster } => health(context, *cluster),
        Args::Hashkv { rev, cluster } => hashkv(context, *rev, *cluster),
    }
}

/// The endpoints given, or those that the members tell.
fn endpoints(context: &Context<'_, '_>, cluster: bool) -> Result<Vec<String>, Failure> {
    if !cluster {
        return Ok(context.endpoints());
    }
    let remote = context.remote(KEYS_TIMEOUT)?;
    let members = remote
        .wait(remote.client.members(ReadLevel::Eventual))?
        .members;
    Ok(members
        .into_iter()
        .flat_map(|member| member.client_urls)
        .collect())
}

/// Prints a row for each endpoint, then ends with the first failure.
fn rows(
    context: &mut Context<'_, '_>,
    cluster: bool,
    columns: &'static [&'static str],
    ask: impl Fn(&str) -> (Vec<Field>, Result<(), Failure>),
) -> Result<(), Failure> {
    let mut ended = Ok(());
    let rows = endpoints(context, cluster)?.into_iter().map(|endpoint| {
        let (mut row, done) = ask(&endpoint);
        row.insert(0, endpoint.into());
        if ended.is_ok() {
            ended = done;
        }
        Ok(row)
    });
    context.rows(columns, rows)?;
    ended
}

fn status(context: &mut Context<'_, '_>, cluster: bool) -> Result<(), Failure> {
    const COLUMNS: &[&str] = &[
        "endpoint", "member", "version", "size", "in_use", "leader", "learner", "term", "index",
        "applied", "revision", "errors",
    ];
    let is_table = context.output(false) == Output::Table;
    let size = |bytes| match is_table {
        true => show_size(bytes).into(),
        false => Field::Number(bytes),
    };
    let credentials = context.credentials()?;
    rows(context, cluster, COLUMNS, |endpoint| {
        let remote = Remote::member(endpoint, &credentials);
        let asked = remote.and_then(|remote| remote.wait(remote.client.status()));
        let status = match asked {
            Ok(status) => status,
            Err(failure) => {
                let mut row = vec![Field::Absent; COLUMNS.len() - 2];
                row.push(Field::List(vec![failure.message.clone()]));
                return (row, Err(failure));
            }
        };
        let row = vec![
            status.header.member_id.to_string().into(),
            status.version.as_str().into(),
            size(status.db_size_bytes),
            size(status.db_size_in_use_bytes),
            Field::Flag(status.leader == Some(status.header.member_id)),
            Field::Flag(status.is_learner),
            status.raft_term.into(),
            status.raft_index.into(),
            status.raft_applied_index.into(),
            status.header.revision.into(),
            Field::List(status.errors),
        ];
        (row, Ok(()))
    })
}

fn health(context: &mut Context<'_, '_>, cluster: bool) -> Result<(), Failure> {
    let columns = &["endpoint", "healthy", "took_ms", "error"];
    let credentials = context.credentials()?;
    rows(context, cluster, columns, |endpoint| {
        let started = Instant::now();
        // A linearizable read needs a majority, as a commit does.
        let remote = Remote::member(endpoint, &credentials);
        let asked = remote.and_then(|remote| {
            match remote.outcome(remote.client.get("health").into_future())? {
                // The user may not read this key, which the member has agreed on with a majority.
                Err(Error::PermissionDenied) => Ok(()),
                Err(error) => Err(error.into()),
                Ok(_) => Ok(()),
            }
        });
        let took = Field::Real(started.elapsed().as_secs_f64() * 1e3);
        let error = asked.as_ref().err().map(|failure| failure.message.as_str());
        let row = vec![Field::Flag(asked.is_ok()), took, error.into()];
        let unhealthy = |failure: Failure| Failure::new(Exit::Unreachable, failure.message);
        (row, asked.map_err(unhealthy))
    })
}

fn hashkv(
    context: &mut Context<'_, '_>,
    rev: Option<Revision>,
    cluster: bool,
) -> Result<(), Failure> {
    let mut revision = rev;
    let credentials = context.credentials()?;
    let rows = endpoints(context, cluster)?.into_iter().map(|endpoint| {
        let remote = Remote::member(&endpoint, &credentials)?;
        // The same revision everywhere, or the hashes say nothing.
        let asked = match revision {
            Some(revision) => revision,
            None => remote.wait(remote.client.get("\0"))?.header.revision,
        };
        revision = Some(asked);
        // A member that is behind does not have it yet; a linearizable read makes it catch up.
        remote.wait(remote.client.get("\0"))?;
        let hash = remote.wait(remote.client.hash_kv(Some(asked)))?;
        Ok(vec![
            endpoint.into(),
            u64::from(hash.hash).into(),
            asked.into(),
            hash.compact_revision.map_or(0, Revision::get).into(),
        ])
    });
    context.rows(&["endpoint", "hash", "revision", "compacted"], rows)
}
