//! `put`, `get`, `del`, `range`, `history`, `watch`, `cas` on a cluster.

use std::time::Duration;

use bowline_client::{
    Compare, Entry, Error, EventKind, KeyRange, Operation, OperationReply, SortBy,
};
use bytes::Bytes;

use crate::args;
use crate::commands::keys;
use crate::context::{Context, not_found, usage};
use crate::exit::Failure;
use crate::output::{Field, escape};
use crate::store::connection::{Remote, check_durability};

/// How many entries are asked for at once.
const PAGE: u64 = 1_000;

/// How long a server may take to tell of the past.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn put(context: &mut Context<'_, '_>, args: &args::Put) -> Result<(), Failure> {
    check_durability(&args.write)?;
    let key = keys::decode(args.encoding, &args.key)?;
    let value = keys::value(context, args.encoding, args.value.as_deref())?;
    let remote = Remote::of(context)?;
    let put = remote.client.put(key, value).lease(args.lease.unwrap_or(0));
    let revision = remote.wait(put.into_future())?.header.revision;
    Ok(context
        .printer(false)
        .record(&[("revision", revision.into())])?)
}

pub(crate) fn get(context: &mut Context<'_, '_>, args: &args::Get) -> Result<(), Failure> {
    let key = keys::decode(args.encoding, &args.key)?;
    let remote = Remote::of(context)?;
    let mut get = remote.client.get(key.clone()).level(remote.level);
    if let Some(revision) = args.rev {
        get = get.revision(revision);
    }
    let reply = remote.wait(get.into_future())?;
    let Some(entry) = reply.entry() else {
        return Err(keys::absent(&key, args.rev));
    };
    if args.raw {
        return Ok(context.stdout().write_all(&entry.value)?);
    }
    Ok(context.printer(args.encoding.hex).record(&[
        ("key", bytes(&entry.key)),
        ("value", bytes(&entry.value)),
        ("modified", entry.mod_revision.into()),
        ("created", entry.create_revision.into()),
        ("version", entry.version.into()),
        (
            "lease",
            if entry.lease == 0 {
                Field::Absent
            } else {
                Field::Signed(entry.lease)
            },
        ),
    ])?)
}

fn bytes(bytes: &Bytes) -> Field {
    Field::Bytes(bytes.to_vec())
}

pub(crate) fn del(context: &mut Context<'_, '_>, args: &args::Del) -> Result<(), Failure> {
    check_durability(&args.write)?;
    let decode = |text: &str| keys::decode(args.encoding, text);
    let range = match (&args.key, &args.range) {
        (Some(key), None) if args.prefix => KeyRange::prefix(decode(key)?),
        (Some(key), None) => KeyRange::key(decode(key)?),
        (None, Some(bounds)) if bounds.len() == 2 => {
            KeyRange::between(decode(&bounds[0])?, decode(&bounds[1])?)
        }
        _ => return Err(usage("give a key, a prefix or a range".to_owned())),
    };
    let remote = Remote::of(context)?;
    let reply = remote.wait(remote.client.delete(range).into_future())?;
    if let (Some(key), false, 0) = (&args.key, args.prefix, reply.deleted) {
        let shown = escape(&decode(key)?).into_owned();
        return Err(not_found(format!(
            "key {shown} does not exist; nothing changed"
        )));
    }
    let revision = reply.header.revision;
    let fields = [
        ("deleted", reply.deleted.into()),
        ("revision", revision.into()),
    ];
    Ok(context.printer(false).record(&fields)?)
}

pub(crate) fn range(context: &mut Context<'_, '_>, args: &args::Range) -> Result<(), Failure> {
    let decode = |text: &Option<String>| {
        text.as_deref()
            .map(|text| keys::decode(args.encoding, text))
            .transpose()
    };
    let range = match (decode(&args.start)?, decode(&args.end)?) {
        (Some(start), _) if args.prefix => KeyRange::prefix(start),
        (Some(start), Some(end)) if end < start => {
            let text = "the range ends before it starts".to_owned();
            return Err(Failure::new(crate::exit::Exit::Invalid, text));
        }
        (Some(start), Some(end)) => KeyRange::between(start, end),
        (Some(start), None) => KeyRange::starting_at(start),
        (None, _) => KeyRange::all(),
    };
    let remote = Remote::of(context)?;
    let mut printer = context.printer(args.encoding.hex);
    let mut rows = printer.rows(if args.keys_only {
        &["key", "modified", "version"]
    } else {
        &["key", "value", "modified", "version"]
    });
    let mut left = args.limit.unwrap_or(u64::MAX);
    // All pages are of the revision of the first, so that they fit together.
    let mut revision = args.rev;
    let (mut start, mut end) = (range.start().clone(), range.end().clone());
    while left > 0 {
        let rest = KeyRange::from_wire(start.clone(), end.clone());
        let mut get = remote
            .client
            .range(rest)
            .level(remote.level)
            .limit(left.min(PAGE));
        if args.reverse {
            get = get.descending(SortBy::Key);
        }
        if args.keys_only {
            get = get.keys_only();
        }
        if let Some(revision) = revision {
            get = get.revision(revision);
        }
        let reply = remote.wait(get.into_future())?;
        revision = revision.or(Some(reply.header.revision));
        for entry in &reply.entries {
            let mut row = vec![bytes(&entry.key)];
            if !args.keys_only {
                row.push(bytes(&entry.value));
            }
            row.extend([entry.mod_revision.into(), entry.version.into()]);
            rows.push(row)?;
            left -= 1;
        }
        let Some(last) = reply.entries.last().filter(|_| reply.more) else {
            break;
        };
        if args.reverse {
            end = last.key.clone();
        } else {
            // The first key behind this one.
            start = [&last.key[..], b"\0"].concat().into();
        }
    }
    rows.finish()?;
    Ok(())
}

pub(crate) fn history(context: &mut Context<'_, '_>, args: &args::History) -> Result<(), Failure> {
    let key = keys::decode(args.encoding, &args.key)?;
    let remote = Remote::of(context)?;
    let mut changes = remote.wait(async {
        let mut asked = remote.client.history(key.clone()).level(remote.level);
        if let Some(limit) = args.limit {
            asked = asked.limit(limit);
        }
        match asked.await {
            Ok(reply) => {
                let versions = reply.versions.into_iter();
                Ok(versions.map(|one| (one.revision, one.entry)).collect())
            }
            // etcd has no such call, but a watch tells the past, too.
            Err(Error::Unimplemented { .. }) => changes_of(&remote, key.clone()).await,
            Err(error) => Err(error),
        }
    })?;
    if changes.is_empty() {
        return Err(keys::never_written(&key));
    }
    changes.sort_by_key(|change| std::cmp::Reverse(change.0));
    let limit = args.limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    });
    let mut printer = context.printer(args.encoding.hex);
    let mut rows = printer.rows(&["revision", "change", "value", "version"]);
    for (revision, entry) in changes.into_iter().take(limit) {
        let row = match entry {
            Some(entry) => vec![
                revision.into(),
                "put".into(),
                bytes(&entry.value),
                entry.version.into(),
            ],
            None => vec![
                revision.into(),
                "delete".into(),
                Field::Absent,
                Field::Absent,
            ],
        };
        rows.push(row)?;
    }
    rows.finish()?;
    Ok(())
}

/// Every change of a key that a cluster of etcd still has: what a watch from the past tells, and the version
/// that was there when that past begins.
///
/// The watch has told everything when it has told the last change. Of a key that exists, that is known.
/// Of one that does not, it is not known when it was deleted; so everything is watched up to the newest
/// revision. Notifications of progress would be cheaper, but servers have sent them ahead of events.
async fn changes_of(
    remote: &Remote,
    key: Vec<u8>,
) -> bowline_client::Result<Vec<(u64, Option<Entry>)>> {
    let found = remote.client.get(key.clone()).await?;
    let (range, last) = match found.entry() {
        Some(entry) => (KeyRange::key(key.clone()), entry.mod_revision),
        None => (KeyRange::all(), found.header.revision),
    };
    let mut changes = Vec::new();
    // The first revision of all is that of an empty database.
    let mut from = 2;
    while from <= last {
        match changes_between(remote, &range, &key, from, last).await {
            Ok(found) => {
                changes.extend(found);
                break;
            }
            Err(Error::Compacted {
                compact_revision: Some(oldest),
            }) if oldest > from => {
                from = oldest;
                let before = remote.client.get(key.clone()).revision(oldest).await?;
                let before = before.entries.into_iter().next();
                changes = before
                    .filter(|entry| entry.mod_revision <= oldest)
                    .map(|entry| (entry.mod_revision, Some(entry)))
                    .into_iter()
                    .collect();
                // What this revision has changed is seen by that read.
                from += 1;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(changes)
}

async fn changes_between(
    remote: &Remote,
    range: &KeyRange,
    key: &[u8],
    from: u64,
    last: u64,
) -> bowline_client::Result<Vec<(u64, Option<Entry>)>> {
    let mut watcher = remote.client.watch(range.clone()).from(from).await?;
    let mut changes = Vec::new();
    while watcher.next_revision() <= last {
        let next = tokio::time::timeout(PATIENCE, watcher.next()).await;
        let Some(batch) = next.map_err(|_| Error::TimedOut)?? else {
            break;
        };
        for event in batch.events {
            if event.entry.key == key && event.revision() <= last {
                let revision = event.revision();
                let entry = (event.kind == EventKind::Put).then_some(event.entry);
                changes.push((revision, entry));
            }
        }
    }
    Ok(changes)
}

pub(crate) fn watch(context: &mut Context<'_, '_>, args: &args::Watch) -> Result<(), Failure> {
    let range = match &args.key {
        None => KeyRange::all(),
        Some(key) if args.prefix => KeyRange::prefix(keys::decode(args.encoding, key)?),
        Some(key) => KeyRange::key(keys::decode(args.encoding, key)?),
    };
    let remote = Remote::of(context)?;
    let mut watch = remote.client.watch(range);
    if let Some(from) = args.from {
        watch = watch.from(from);
    }
    let mut watcher = remote.wait(watch.into_future())?;
    let mut printer = context.printer(args.encoding.hex);
    let mut rows = printer.rows(&["revision", "change", "key", "value"]);
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let next = remote.runtime.block_on(async {
            match args.timeout {
                None => Ok(watcher.next().await),
                Some(timeout) => tokio::time::timeout(timeout, watcher.next()).await,
            }
        });
        let Ok(next) = next else {
            rows.finish()?;
            let text = format!(
                "no change came in time; resume with --from {}",
                watcher.next_revision()
            );
            return if args.count.is_some() {
                Err(not_found(text))
            } else {
                Ok(())
            };
        };
        let Some(batch) = next? else {
            break;
        };
        for event in batch.events {
            if left == 0 {
                break;
            }
            left -= 1;
            let (kind, value) = match event.kind {
                EventKind::Put => ("put", bytes(&event.entry.value)),
                EventKind::Delete => ("delete", Field::Absent),
            };
            rows.push(vec![
                event.revision().into(),
                kind.into(),
                bytes(&event.entry.key),
                value,
            ])?;
        }
        // The next change may take long: what is known is shown now.
        rows.flush()?;
    }
    rows.finish()?;
    Ok(())
}

pub(crate) fn cas(context: &mut Context<'_, '_>, args: &args::Cas) -> Result<(), Failure> {
    check_durability(&args.write)?;
    let key = keys::decode(args.encoding, &args.key)?;
    let value = keys::value(context, args.encoding, Some(&args.value))?;
    let remote = Remote::of(context)?;
    let txn = remote
        .client
        .txn()
        .when([Compare::mod_revision(KeyRange::key(key.clone())).equals(args.expected_revision)])
        .then([Operation::put(key.clone(), value)])
        .otherwise([Operation::get(KeyRange::key(key.clone()))]);
    let reply = remote.wait(txn.into_future())?;
    if !reply.succeeded {
        let actual = match reply.replies.first() {
            Some(OperationReply::Get(found)) => found.entry().map_or(0, |entry| entry.mod_revision),
            _ => 0,
        };
        // The database's own words, so that the same loss reads the same in both places.
        return Err(Failure::from(bowline::Error::CompareFailed {
            key: escape(&key).into_owned(),
            expected: args.expected_revision,
            actual,
        }));
    }
    let revision = reply.header.revision;
    Ok(context
        .printer(false)
        .record(&[("revision", revision.into())])?)
}
