//! `put`, `get`, `del`, `range`, `history`, `watch`, `cas`, `update`.

use std::path::Path;

use bowline::{ChangeKind, Expected, Range, Revision};
use jiff::Timestamp;

use crate::args::{self, Encoding};
use crate::context::{Context, at_most, not_found, usage};
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::output::{Field, escape};
use crate::remote::KEYS_TIMEOUT;
use crate::store::history::Change;
use crate::store::target::Target;
use crate::store::view::Scan;

fn decode(encoding: Encoding, text: &str) -> Result<Vec<u8>, Failure> {
    encoding.decode(text).map_err(usage)
}

/// A value from the command line, or from standard input. What comes from there is taken as it
/// is, whatever the encoding.
fn value(
    context: &mut Context<'_, '_>,
    encoding: Encoding,
    text: Option<&str>,
) -> Result<Vec<u8>, Failure> {
    match text {
        None | Some("-") => context.read_input(),
        Some(text) => decode(encoding, text),
    }
}

/// A value from a file, taken as it is.
fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| {
        let text = format!("cannot read {}: {error}", path.display());
        Failure::new(Exit::Io, text)
    })
}

fn bytes(bytes: &[u8]) -> Field {
    Field::Bytes(bytes.to_vec())
}

pub(crate) fn put(context: &mut Context<'_, '_>, args: &args::Put) -> Result<(), Failure> {
    let key = decode(args.encoding, &args.key)?;
    let value = match &args.file {
        Some(path) => read_file(path)?,
        None => value(context, args.encoding, args.value.as_deref())?,
    };
    let target = Target::open_to_write(context, args.write.durability, KEYS_TIMEOUT)?;
    let revision = target.put(key, value, args.lease)?;
    target.close()?;
    context.record(&[("revision", revision.into())])
}

pub(crate) fn get(context: &mut Context<'_, '_>, args: &args::Get) -> Result<(), Failure> {
    if args.prefix {
        let listed = args::Range {
            start: Some(args.key.clone()),
            end: None,
            prefix: true,
            reverse: false,
            limit: args.limit,
            keys_only: args.keys_only,
            rev: args.rev,
            encoding: args.encoding,
        };
        return range(context, &listed);
    }
    let key = decode(args.encoding, &args.key)?;
    let target = Target::open_to_read(context, KEYS_TIMEOUT)?;
    let Some(entry) = target.at(args.rev)?.entry(&key)? else {
        let at = args.rev.map(|revision| format!(" at revision {revision}"));
        let (key, at) = (escape(&key), at.unwrap_or_default());
        return Err(not_found(format!("key {key} does not exist{at}")));
    };
    if args.raw {
        let terminal = context.streams.terminal;
        context.stdout().write_all(&entry.value)?;
        if context.session.is_some() && terminal.is_output && !entry.value.ends_with(b"\n") {
            // The prompt begins at the start of its line, and would write over the value.
            writeln!(context.stdout())?;
        }
        return Ok(());
    }
    Ok(context.printer(args.encoding.hex).record(&[
        ("key", bytes(&entry.key)),
        ("value", bytes(&entry.value)),
        ("modified", entry.mod_revision.into()),
        ("created", entry.create_revision.into()),
        ("version", entry.version.into()),
        ("lease", entry.lease.map(|lease| lease.to_string()).into()),
    ])?)
}

pub(crate) fn del(context: &mut Context<'_, '_>, args: &args::Del) -> Result<(), Failure> {
    let decode = |text: &str| decode(args.encoding, text);
    let range = match (&args.key, args.range.as_deref()) {
        (Some(prefix), _) if args.prefix => Range::prefix(decode(prefix)?),
        (Some(key), _) => Range::key(decode(key)?),
        (None, Some([start, end])) => Range::from(decode(start)?..decode(end)?).validate()?,
        _ => return Err(usage("give a key, a prefix or a range".to_owned())),
    };
    let target = Target::open_to_write(context, args.write.durability, KEYS_TIMEOUT)?;
    let (deleted, revision) = target.delete(&range)?;
    target.close()?;
    if let (Some(key), false, 0) = (&args.key, args.prefix, deleted) {
        let key = escape(&decode(key)?).into_owned();
        let text = format!("key {key} does not exist; nothing changed");
        return Err(not_found(text));
    }
    context.record(&[("deleted", deleted.into()), ("revision", revision.into())])
}

pub(crate) fn range(context: &mut Context<'_, '_>, args: &args::Range) -> Result<(), Failure> {
    let decode = |text: &Option<String>| {
        text.as_deref()
            .map(|text| decode(args.encoding, text))
            .transpose()
    };
    let range = match (decode(&args.start)?, decode(&args.end)?) {
        (Some(start), _) if args.prefix => Range::prefix(start),
        (Some(start), Some(end)) => Range::from(start..end).validate()?,
        (Some(start), None) => Range::from(start..),
        (None, _) => Range::all(),
    };
    let scan = Scan {
        reverse: args.reverse,
        limit: args.limit,
        keys_only: args.keys_only,
    };
    let target = Target::open_to_read(context, KEYS_TIMEOUT)?;
    let view = target.at(args.rev)?;
    let mut printer = context.printer(args.encoding.hex);
    let mut rows = printer.rows(if args.keys_only {
        &["key", "modified", "version"]
    } else {
        &["key", "value", "modified", "version"]
    });
    view.for_each_entry(&range, scan, &mut |entry| {
        let mut row = vec![bytes(&entry.key)];
        if !args.keys_only {
            row.push(bytes(&entry.value));
        }
        row.extend([entry.mod_revision.into(), entry.version.into()]);
        Ok(rows.push(row)?)
    })?;
    rows.finish()?;
    Ok(())
}

pub(crate) fn history(context: &mut Context<'_, '_>, args: &args::History) -> Result<(), Failure> {
    let key = decode(args.encoding, &args.key)?;
    let target = Target::open_to_read(context, KEYS_TIMEOUT)?;
    let versions = target.history(&key, args.limit, args.who)?;
    if versions.is_empty() {
        let key = escape(&key);
        let text = format!("key {key} was never written, or its history is gone");
        return Err(not_found(text));
    }
    let mut printer = context.printer(args.encoding.hex);
    let columns = ["revision", "change", "value", "version", "user", "time"];
    let shown = if args.who {
        &columns[..]
    } else {
        &columns[..4]
    };
    let mut rows = printer.rows(shown);
    let mut has_author = false;
    for Change { version, who } in versions.into_iter().take(at_most(args.limit)) {
        let (change, value, number) = match version.entry {
            Some(entry) => ("put", bytes(&entry.value), entry.version.into()),
            None => ("delete", Field::Absent, Field::Absent),
        };
        let mut row = vec![version.revision.into(), change.into(), value, number];
        if args.who {
            has_author |= who.is_some();
            row.extend(match who {
                Some((user, at_ms)) => {
                    // A name that may not be seen is not an unknown one.
                    let user = user.map_or_else(|| "(another user)".into(), Field::from);
                    [user, time(at_ms)]
                }
                None => [Field::Absent, Field::Absent],
            });
        }
        rows.push(row)?;
    }
    rows.finish()?;
    if args.who && !has_author {
        context.remark("who made these changes is not known: a cluster notes it while authentication is enabled, until the history is trimmed")?;
    }
    Ok(())
}

/// A time in milliseconds since the Unix epoch, as text.
fn time(at_ms: u64) -> Field {
    let ms = i64::try_from(at_ms).unwrap_or(i64::MAX);
    let time = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX);
    format!("{time:.3}").into()
}

pub(crate) fn watch(context: &mut Context<'_, '_>, args: &args::Watch) -> Result<(), Failure> {
    let range = match &args.key {
        None => Range::all(),
        Some(prefix) if args.prefix => Range::prefix(decode(args.encoding, prefix)?),
        Some(key) => Range::key(decode(args.encoding, key)?),
    };
    let target = Target::open(context, KEYS_TIMEOUT)?;
    let mut watcher = target.watch(&range, args.from)?;
    let mut printer = context.printer(args.encoding.hex);
    let mut rows = printer.rows(&["revision", "change", "key", "value"]);
    let mut left = at_most(args.count);
    while left > 0 {
        let Some(changes) = watcher.next(args.timeout)? else {
            rows.finish()?;
            if args.count.is_none() || interrupt::is_pressed() {
                return Ok(());
            }
            let next = watcher.next_revision();
            let text = format!("no change came in time; resume with --from {next}");
            return Err(not_found(text));
        };
        for change in changes.into_iter().take(left) {
            left -= 1;
            let entry = change.entry;
            let (kind, value) = match change.kind {
                ChangeKind::Put => ("put", bytes(&entry.value)),
                ChangeKind::Delete => ("delete", Field::Absent),
            };
            let revision = entry.mod_revision.into();
            rows.push(vec![revision, kind.into(), bytes(&entry.key), value])?;
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
    let expected = match args.expected_revision {
        Revision::ZERO => Expected::Absent,
        revision => Expected::Revision(revision),
    };
    let target = Target::open_to_write(context, args.write.durability, KEYS_TIMEOUT)?;
    let revision = target.compare_and_swap(key, expected, value)?;
    target.close()?;
    context.record(&[("revision", revision.into())])
}

pub(crate) fn update(context: &mut Context<'_, '_>, args: &args::UpdateKey) -> Result<(), Failure> {
    let key = decode(args.encoding, &args.key)?;
    let update = args.change.update(args.encoding).map_err(usage)?;
    let target = Target::open_to_write(context, args.write.durability, KEYS_TIMEOUT)?;
    let (revision, changed, found) = target.update(key, update.clone())?;
    target.close()?;
    let is_refused = !changed && args::is_refused(&update, found.as_deref());
    let found = found.map_or(Field::Absent, Field::Bytes);
    context.printer(args.encoding.hex).record(&[
        ("revision", revision.into()),
        ("changed", Field::Flag(changed)),
        ("value", found),
    ])?;
    match is_refused {
        false => Ok(()),
        true => {
            let text = format!(
                "nothing was written: the value of {} does not allow it",
                args.key
            );
            Err(Failure::new(Exit::Conflict, text))
        }
    }
}
