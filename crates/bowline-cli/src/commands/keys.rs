//! `put`, `get`, `del`, `range`, `history`, `watch`, `cas`.

use std::time::Duration;

use bowline::{ChangeKind, Entry, Expected, Range};

use crate::args::{self, Encoding};
use crate::context::{Context, not_found, snapshot, usage};
use crate::exit::Failure;
use crate::output::{Field, escape};

pub(crate) fn decode(encoding: Encoding, text: &str) -> Result<Vec<u8>, Failure> {
    encoding.decode(text).map_err(usage)
}

/// A value from the command line, or from standard input. What comes from there is taken as it
/// is, whatever the encoding.
pub(crate) fn value(
    context: &mut Context<'_, '_>,
    encoding: Encoding,
    text: Option<&str>,
) -> Result<Vec<u8>, Failure> {
    match text {
        None | Some("-") => context.read_input(),
        Some(text) => decode(encoding, text),
    }
}

/// There is no such key, at that revision if one was asked for.
pub(crate) fn absent(key: &[u8], revision: Option<u64>) -> Failure {
    let at = revision.map_or(String::new(), |revision| format!(" at revision {revision}"));
    not_found(format!("key {} does not exist{at}", escape(key)))
}

/// Nothing is known of a key.
pub(crate) fn never_written(key: &[u8]) -> Failure {
    let shown = escape(key);
    not_found(format!(
        "key {shown} was never written, or its history is gone"
    ))
}

pub(crate) fn put(context: &mut Context<'_, '_>, args: &args::Put) -> Result<(), Failure> {
    let key = decode(args.encoding, &args.key)?;
    let value = value(context, args.encoding, args.value.as_deref())?;
    let db = context.open_to_write(args.write.durability)?;
    let revision = db.put_with_lease(key, value, args.lease.unwrap_or(0))?;
    db.close()?;
    Ok(context
        .printer(false)
        .record(&[("revision", revision.into())])?)
}

pub(crate) fn get(context: &mut Context<'_, '_>, args: &args::Get) -> Result<(), Failure> {
    let key = decode(args.encoding, &args.key)?;
    let db = context.open()?;
    let entry = snapshot(&db, args.rev)?.entry(&key)?;
    let Some(entry) = entry else {
        return Err(absent(&key, args.rev));
    };
    if args.raw {
        return Ok(context.streams.stdout.write_all(&entry.value)?);
    }
    Ok(context.printer(args.encoding.hex).record(&[
        ("key", Field::Bytes(entry.key.to_vec())),
        ("value", Field::Bytes(entry.value.to_vec())),
        ("modified", entry.mod_revision.into()),
        ("created", entry.create_revision.into()),
        ("version", entry.version.into()),
        ("lease", lease(&entry)),
    ])?)
}

fn lease(entry: &Entry) -> Field {
    if entry.lease == 0 {
        Field::Absent
    } else {
        Field::Signed(entry.lease)
    }
}

pub(crate) fn del(context: &mut Context<'_, '_>, args: &args::Del) -> Result<(), Failure> {
    let encoding = args.encoding;
    let db = context.open_to_write(args.write.durability)?;
    let deleted = match (&args.key, &args.range) {
        (Some(key), None) if args.prefix => {
            db.delete_range(Range::prefix(decode(encoding, key)?))?
        }
        (Some(key), None) => {
            let bytes = decode(encoding, key)?;
            if db.delete(&bytes)?.is_none() {
                let shown = escape(&bytes).into_owned();
                return Err(not_found(format!(
                    "key {shown} does not exist; nothing changed"
                )));
            }
            1
        }
        (None, Some(bounds)) if bounds.len() == 2 => {
            db.delete_range(decode(encoding, &bounds[0])?..decode(encoding, &bounds[1])?)?
        }
        _ => return Err(usage("give a key, a prefix or a range".to_owned())),
    };
    let revision = db.revision();
    db.close()?;
    let fields = [("deleted", deleted.into()), ("revision", revision.into())];
    Ok(context.printer(false).record(&fields)?)
}

pub(crate) fn range(context: &mut Context<'_, '_>, args: &args::Range) -> Result<(), Failure> {
    let encoding = args.encoding;
    let start = args
        .start
        .as_deref()
        .map(|text| decode(encoding, text))
        .transpose()?;
    let end = args
        .end
        .as_deref()
        .map(|text| decode(encoding, text))
        .transpose()?;
    let range = match (start, end) {
        (Some(start), _) if args.prefix => Range::prefix(start),
        (Some(start), Some(end)) => Range::from(start..end),
        (Some(start), None) => Range::from(start..),
        (None, _) => Range::all(),
    };
    let db = context.open()?;
    let entries = snapshot(&db, args.rev)?.range(range)?;
    let entries: Box<dyn Iterator<Item = bowline::Result<Entry>>> = if args.reverse {
        Box::new(entries.rev())
    } else {
        Box::new(entries)
    };
    let limit = args.limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    });
    let mut printer = context.printer(encoding.hex);
    let mut rows = printer.rows(if args.keys_only {
        &["key", "modified", "version"]
    } else {
        &["key", "value", "modified", "version"]
    });
    for entry in entries.take(limit) {
        let entry = entry?;
        let mut row = vec![Field::Bytes(entry.key.to_vec())];
        if !args.keys_only {
            row.push(Field::Bytes(entry.value.to_vec()));
        }
        row.extend([entry.mod_revision.into(), entry.version.into()]);
        rows.push(row)?;
    }
    rows.finish()?;
    Ok(())
}

pub(crate) fn history(context: &mut Context<'_, '_>, args: &args::History) -> Result<(), Failure> {
    let key = decode(args.encoding, &args.key)?;
    let db = context.open()?;
    let versions = db.history(&key)?;
    if versions.is_empty() {
        return Err(never_written(&key));
    }
    let limit = args.limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    });
    let mut printer = context.printer(args.encoding.hex);
    let mut rows = printer.rows(&["revision", "change", "value", "version"]);
    for version in versions.into_iter().take(limit) {
        let (change, value, number) = match version.entry {
            Some(entry) => (
                "put",
                Field::Bytes(entry.value.to_vec()),
                Field::Number(entry.version),
            ),
            None => ("delete", Field::Absent, Field::Absent),
        };
        rows.push(vec![version.revision.into(), change.into(), value, number])?;
    }
    rows.finish()?;
    Ok(())
}

pub(crate) fn watch(context: &mut Context<'_, '_>, args: &args::Watch) -> Result<(), Failure> {
    /// How long a wait may last between two looks at whether to go on.
    const FOREVER: Duration = Duration::from_secs(3600);
    let range = match &args.key {
        None => Range::all(),
        Some(key) if args.prefix => Range::prefix(decode(args.encoding, key)?),
        Some(key) => Range::key(decode(args.encoding, key)?),
    };
    let db = context.open()?;
    let mut watch = db.watch(range);
    if let Some(from) = args.from {
        watch = watch.from(from);
    }
    let mut watcher = watch.start()?;
    let mut printer = context.printer(args.encoding.hex);
    let mut rows = printer.rows(&["revision", "change", "key", "value"]);
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let Some(found) = watcher.recv_timeout(args.timeout.unwrap_or(FOREVER))? else {
            if args.timeout.is_none() {
                continue;
            }
            rows.finish()?;
            let wanted = args.count.is_some();
            let text = format!(
                "no change came in time; resume with --from {}",
                watcher.next_revision()
            );
            return if wanted { Err(not_found(text)) } else { Ok(()) };
        };
        for change in found.changes {
            if left == 0 {
                break;
            }
            left -= 1;
            let (kind, value) = match change.kind {
                ChangeKind::Put => ("put", Field::Bytes(change.entry.value.to_vec())),
                ChangeKind::Delete => ("delete", Field::Absent),
            };
            let key = Field::Bytes(change.entry.key.to_vec());
            rows.push(vec![found.revision.into(), kind.into(), key, value])?;
        }
        // The next change may take long: what is known is shown now.
        rows.flush()?;
    }
    rows.finish()?;
    Ok(())
}

pub(crate) fn cas(context: &mut Context<'_, '_>, args: &args::Cas) -> Result<(), Failure> {
    let key = decode(args.encoding, &args.key)?;
    let value = value(context, args.encoding, Some(&args.value))?;
    let db = context.open_to_write(args.write.durability)?;
    let revision = db.compare_and_swap(key, Expected::Revision(args.expected_revision), value)?;
    db.close()?;
    Ok(context
        .printer(false)
        .record(&[("revision", revision.into())])?)
}
