//! `import` and `export`.
//!
//! An import reads item by item and writes in batches, each one transaction, so its memory is
//! bounded by a batch. An item that the database has already is not written again: importing the
//! same file twice changes nothing, not even the revision.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

use bowline::{BlockId, Db, Error, Transaction};

use super::resolve::id_of;
use super::{Context, snapshot, usage};
use crate::args::{Export, Import};
use crate::exit::{Exit, Failure};
use crate::export;
use crate::import::{self, Block, BlockRef, Edge, Event, Item, KeyValue, Position, Refusal};
use crate::output::Field;
use crate::progress::Progress;

/// What an import did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Imported {
    pub(super) blocks: u64,
    pub(super) edges: u64,
    pub(super) keys: u64,
    /// How many of those were not there yet, or were different.
    pub(super) changed: u64,
    pub(super) refused: u64,
}

pub(super) fn import(context: &mut Context<'_, '_>, args: &Import) -> Result<(), Failure> {
    let from_input = args.file == Path::new("-");
    // What can be refused is refused before the database is created.
    let file = if from_input {
        None
    } else {
        Some(open_file(&args.file)?)
    };
    let total = match &file {
        Some(file) => Some(file.metadata().map_err(|e| named(&args.file, &e))?.len()),
        None => None,
    };
    let db = context.open_to_write(args.write.durability)?;
    let before = db.revision();
    let progress = Progress::bytes("import", total, context.global.quiet);
    let path = (!from_input).then_some(&*args.file);
    let imported = match file {
        Some(file) => read_into(&db, progress.reading(file), path, args, &progress),
        None => read_into(
            &db,
            progress.reading(&mut context.streams.stdin),
            None,
            args,
            &progress,
        ),
    };
    let imported = imported?;
    drop(progress);
    let revision = db.revision();
    db.close()?;
    Ok(context.printer(false).record(&[
        ("blocks", imported.blocks.into()),
        ("edges", imported.edges.into()),
        ("keys", imported.keys.into()),
        ("changed", imported.changed.into()),
        ("refused", imported.refused.into()),
        ("revision_before", before.into()),
        ("revision", revision.into()),
    ])?)
}

fn open_file(path: &Path) -> Result<File, Failure> {
    let file = File::open(path).map_err(|error| named(path, &error))?;
    let is_directory = file
        .metadata()
        .map_err(|error| named(path, &error))?
        .is_dir();
    if is_directory {
        return Err(usage(format!(
            "{} is a directory; import takes a file",
            path.display()
        )));
    }
    Ok(file)
}

fn named(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Exit::Io, format!("cannot read {}: {error}", path.display()))
}

fn read_into(
    db: &Db,
    input: impl Read,
    path: Option<&Path>,
    args: &Import,
    progress: &Progress,
) -> Result<Imported, Failure> {
    let mut input = BufReader::with_capacity(1 << 16, input);
    let format = match args.format.fixed() {
        Some(format) => format,
        None => {
            let head = input.fill_buf()?;
            import::detect(path, head)
                .map_err(|error| Failure::new(Exit::Invalid, error.to_string()))?
        }
    };
    let mut batch = Batch::new(db, args.batch as usize, args.batch_bytes, args.strict);
    for event in import::read(input, format, &args.options()) {
        let refused = match event? {
            Event::Item { at, item } => batch.add(at, item)?,
            Event::Refused(refusal) => vec![refusal],
        };
        batch.refuse(refused, progress)?;
    }
    let refused = batch.write()?;
    batch.refuse(refused, progress)?;
    Ok(batch.imported)
}

/// Items on their way into the database.
pub(super) struct Batch<'a> {
    db: &'a Db,
    items: Vec<(Position, Item)>,
    bytes: u64,
    items_max: usize,
    bytes_max: u64,
    /// Whether the first refusal ends the import.
    strict: bool,
    pub(super) imported: Imported,
}

impl<'a> Batch<'a> {
    pub(super) fn new(db: &'a Db, items_max: usize, bytes_max: u64, strict: bool) -> Batch<'a> {
        let imported = Imported::default();
        Batch {
            db,
            items: Vec::new(),
            bytes: 0,
            items_max,
            bytes_max,
            strict,
            imported,
        }
    }

    /// Adds an item; writes the batch when it is full. Gives what the database refused.
    pub(super) fn add(&mut self, at: Position, item: Item) -> Result<Vec<Refusal>, Failure> {
        let size = item.size_bytes() as u64;
        let mut refused = Vec::new();
        if !self.items.is_empty() && self.bytes + size > self.bytes_max {
            refused = self.write()?;
        }
        self.bytes += size;
        self.items.push((at, item));
        if self.items.len() >= self.items_max {
            refused.extend(self.write()?);
        }
        Ok(refused)
    }

    /// Writes what there is as one transaction. An item that the database refuses is left out.
    pub(super) fn write(&mut self) -> Result<Vec<Refusal>, Failure> {
        let items = std::mem::take(&mut self.items);
        self.bytes = 0;
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let (refused, imported) = self.db.transact(|tx| {
            let mut refused = Vec::new();
            let mut imported = Imported::default();
            for (at, item) in &items {
                match write_item(tx, item) {
                    Ok(changed) => {
                        imported.changed += u64::from(changed);
                        match item {
                            Item::Block(_) => imported.blocks += 1,
                            Item::Edge(_) => imported.edges += 1,
                            Item::KeyValue(_) => imported.keys += 1,
                        }
                    }
                    Err(error) if is_refusal(&error) => {
                        refused.push(Refusal {
                            at: *at,
                            message: refusal_text(item, &error),
                        });
                        if self.strict {
                            break;
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok((refused, imported))
        })?;
        self.imported.blocks += imported.blocks;
        self.imported.edges += imported.edges;
        self.imported.keys += imported.keys;
        self.imported.changed += imported.changed;
        Ok(refused)
    }

    fn refuse(&mut self, refused: Vec<Refusal>, progress: &Progress) -> Result<(), Failure> {
        const SHOWN_MAX: u64 = 20;
        for refusal in refused {
            if self.strict {
                // What was read before the refused part is kept.
                self.write()?;
                return Err(Failure::new(Exit::Invalid, refusal.to_string()));
            }
            self.imported.refused += 1;
            match self.imported.refused {
                ..=SHOWN_MAX => progress.line(&format!("refused: {refusal}")),
                n if n == SHOWN_MAX + 1 => progress.line("further refusals are only counted"),
                _ => {}
            }
            progress.remark(format!("{} refused", self.imported.refused));
        }
        Ok(())
    }
}

/// Whether the item is at fault, and not the database.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::EmptyKey
            | Error::KeyTooLarge { .. }
            | Error::ValueTooLarge { .. }
            | Error::InvalidKind { .. }
            | Error::MissingBlock { .. }
    )
}

/// Says it with the name that the file used, where the database only knows an id.
fn refusal_text(item: &Item, error: &Error) -> String {
    let (Item::Edge(edge), Error::MissingBlock { id }) = (item, error) else {
        return error.to_string();
    };
    let block = if id_of(&edge.source) == *id {
        &edge.source
    } else {
        &edge.target
    };
    format!("block {block} does not exist: an edge comes after both of its blocks")
}

/// Writes an item unless it is there already; tells whether it wrote.
fn write_item(tx: &Transaction, item: &Item) -> bowline::Result<bool> {
    match item {
        Item::KeyValue(KeyValue { key, value }) => {
            if tx.get(key)?.is_some_and(|old| old == value[..]) {
                return Ok(false);
            }
            tx.put(key, value)?;
        }
        Item::Block(Block {
            block,
            kind,
            content,
            attributes,
            if_absent,
        }) => {
            let id = id_of(block);
            let new = bowline::Block {
                id,
                kind: kind.clone(),
                content: content.clone(),
                attributes: attributes.clone(),
            };
            let old = tx.block(id)?;
            if old.is_some_and(|old| *if_absent || old == new) {
                return Ok(false);
            }
            tx.put_block(&new)?;
        }
        Item::Edge(Edge {
            source,
            kind,
            target,
            attributes,
        }) => {
            let new = bowline::Edge {
                source: id_of(source),
                kind: kind.clone(),
                target: id_of(target),
                attributes: attributes.clone(),
            };
            if tx.edge(new.source, kind, new.target)?.as_ref() == Some(&new) {
                return Ok(false);
            }
            tx.put_edge(&new)?;
        }
    }
    Ok(true)
}

pub(super) fn export(context: &mut Context<'_, '_>, args: &Export) -> Result<(), Failure> {
    let db = context.open()?;
    let snapshot = snapshot(&db, args.rev)?;
    let to_output = args.file == Path::new("-");
    let count = if to_output {
        write_items(&snapshot, args, &mut *context.streams.stdout)?
    } else {
        // Beside the target and then renamed, so that a failed export leaves no half a file.
        let unfinished = unfinished_path(&args.file);
        let failed = |error: io::Error| {
            Failure::new(
                Exit::Io,
                format!("cannot write {}: {error}", args.file.display()),
            )
        };
        let file = File::create(&unfinished).map_err(failed)?;
        let written = write_items(&snapshot, args, &mut BufWriter::new(&file))
            .and_then(|count| file.sync_all().map(|()| count).map_err(failed))
            .and_then(|count| {
                std::fs::rename(&unfinished, &args.file)
                    .map(|()| count)
                    .map_err(failed)
            });
        if written.is_err() {
            // The first failure is what the user hears of.
            let _ = std::fs::remove_file(&unfinished);
        }
        written?
    };
    if to_output {
        return Ok(());
    }
    Ok(context.printer(false).record(&[
        ("file", args.file.display().to_string().into()),
        ("items", count.into()),
        ("revision", snapshot.revision().into()),
    ])?)
}

fn unfinished_path(path: &Path) -> std::path::PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".unfinished");
    path.with_file_name(name)
}

fn write_items(
    snapshot: &bowline::Snapshot,
    args: &Export,
    out: &mut dyn Write,
) -> Result<u64, Failure> {
    let mut writer = export::writer(args.format, out);
    let mut count = 0;
    for entry in snapshot.range(..)? {
        let entry = entry?;
        let pair = KeyValue {
            key: entry.key.to_vec(),
            value: entry.value.to_vec(),
        };
        writer.item(&Item::KeyValue(pair))?;
        count += 1;
    }
    let graph = snapshot.graph();
    let mut failure = None;
    let mut write = |item: &Item| {
        count += 1;
        writer.item(item).map_err(|error| {
            failure = Some(error);
            Error::Closed
        })
    };
    // Blocks first: an import refuses an edge whose blocks it has not seen.
    let result = graph
        .for_each_block(|block| write(&block_item(block)))
        .and_then(|()| graph.for_each_edge(|edge| write(&edge_item(edge))));
    // A writer's failure ends the scan by an error that stands for it.
    if let Some(error) = failure {
        return Err(error.into());
    }
    result?;
    writer.finish()?;
    drop(writer);
    Ok(count)
}

pub(super) fn block_item(block: bowline::Block) -> Item {
    Item::Block(Block {
        block: BlockRef::Id(block.id.0),
        kind: block.kind,
        content: block.content,
        attributes: block.attributes,
        if_absent: false,
    })
}

pub(super) fn edge_item(edge: bowline::Edge) -> Item {
    let id = |id: BlockId| BlockRef::Id(id.0);
    Item::Edge(Edge {
        source: id(edge.source),
        kind: edge.kind,
        target: id(edge.target),
        attributes: edge.attributes,
    })
}

/// The fields of an import's result, for other commands to show.
impl Imported {
    pub(super) fn fields(&self) -> [(&'static str, Field); 3] {
        [
            ("blocks", self.blocks.into()),
            ("edges", self.edges.into()),
            ("refused", self.refused.into()),
        ]
    }
}
