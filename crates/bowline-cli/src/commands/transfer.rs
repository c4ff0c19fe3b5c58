//! `import` and `export`.
//!
//! An import reads item by item and writes in batches, each one transaction, so its memory is
//! bounded by a batch. An item that the database has already is not written again: importing the
//! same file twice changes nothing, not even the revision. With `--bulk` a graph is loaded as one
//! revision instead ([`BulkLoad`]).
//!
//! Where the items go, and where they come from, is a [`Target`].

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Cursor, Read, Write};
use std::path::Path;

use bowline::{BlockId, Range};

use crate::args::{Export, Import};
use crate::context::{Context, usage};
use crate::exit::{Exit, Failure};
use crate::export;
use crate::import::{
    self, Block, BlockRef, Detected, Edge, Event, Item, KeyValue, Position, Refusal,
};
use crate::interrupt;
use crate::private_file::PrivateFile;
use crate::progress::Progress;
use crate::remote::GRAPH_TIMEOUT;
use crate::store::bulk::BulkLoad;
use crate::store::sink::Imported;
use crate::store::target::Target;
use crate::store::view::{Scan, View};

pub(crate) fn import(context: &mut Context<'_, '_>, args: &Import) -> Result<(), Failure> {
    // What can be refused is refused before the database is created.
    let file = match args.file == Path::new("-") {
        true => None,
        false => Some(open_file(&args.file)?),
    };
    let target = Target::open_to_import(context, args.write.durability)?;
    // A cluster refuses a bulk load without being asked.
    let load = Load::begin(&target, args)?;
    let before = target.revision()?;
    let (path, total) = file
        .as_ref()
        .map(|(_, bytes)| (&*args.file, *bytes))
        .unzip();
    let progress = Progress::bytes("import", total, context.global.quiet);
    let input: Box<dyn Read> = match file {
        Some((file, _)) => Box::new(progress.reading(file)),
        None => Box::new(progress.reading(context.input()?)),
    };
    let (detected, imported) = read_into(load, input, path, args, &progress)?;
    drop(progress);
    let revision = target.revision()?;
    target.close()?;
    if imported.refused > 0 && imported.taken() == 0 {
        let refused = match imported.refused {
            1 => "its only item was refused".to_owned(),
            refused => format!("each of its {refused} items was refused"),
        };
        let text = format!(
            "nothing was imported: {}, and {refused}; name another format, or mend the file",
            read_as(detected)
        );
        return Err(Failure::new(Exit::Invalid, text));
    }
    let mut record = vec![
        ("format", detected.format.to_string().into()),
        ("format_because", detected.because.into()),
        ("blocks", imported.blocks.into()),
        ("edges", imported.edges.into()),
    ];
    if !args.bulk {
        record.extend([
            ("keys", imported.keys.into()),
            ("again", imported.again.into()),
            ("changed", imported.changed.into()),
        ]);
    }
    record.extend([
        ("refused", imported.refused.into()),
        ("revision_before", before.into()),
        ("revision", revision.into()),
    ]);
    context.record(&record)
}

/// What a file was taken for, and why.
fn read_as(detected: Detected) -> String {
    let Detected { format, because } = detected;
    format!("the file was read as --format {format} because {because}")
}

/// Opens a file; gives its bytes, too.
fn open_file(path: &Path) -> Result<(File, u64), Failure> {
    let named = |error: io::Error| {
        let text = format!("cannot read {}: {error}", path.display());
        Failure::new(Exit::Io, text)
    };
    let file = File::open(path).map_err(named)?;
    let metadata = file.metadata().map_err(named)?;
    if metadata.is_dir() {
        let path = path.display();
        let text = format!("{path} is a directory; import takes a file");
        return Err(usage(text));
    }
    Ok((file, metadata.len()))
}

fn read_into(
    mut load: Load<'_>,
    input: impl Read,
    path: Option<&Path>,
    args: &Import,
    progress: &Progress,
) -> Result<(Detected, Imported), Failure> {
    let mut input = BufReader::with_capacity(1 << 16, input);
    let (detected, head) = match args.format.fixed() {
        Some(format) => {
            let because = "--format says so";
            (Detected { format, because }, Vec::new())
        }
        None => {
            let head = import::read_head(&mut input)?;
            let detected = import::detect(path, &head)
                .map_err(|error| Failure::new(Exit::Invalid, error.to_string()))?;
            (detected, head)
        }
    };
    let input = Cursor::new(head).chain(input);
    let mut refusals = Refusals {
        strict: args.strict,
        detected,
        count: 0,
        progress,
    };
    for event in import::read(input, detected.format, &args.options()) {
        let refused = match event? {
            Event::Item { at, item } => load.add(at, item)?,
            Event::Refused(refusal) => vec![refusal],
        };
        if let Err(failure) = refusals.show(refused) {
            load.abort()?;
            return Err(failure);
        }
        interrupt::check()?;
    }
    let (refused, mut imported) = load.finish()?;
    refusals.show(refused)?;
    imported.refused = refusals.count;
    Ok((detected, imported))
}

/// Where the items of a file go.
enum Load<'a> {
    Batches(Batch<'a>),
    Bulk(Box<BulkLoad>),
}

impl<'a> Load<'a> {
    fn begin(target: &'a Target, args: &Import) -> Result<Load<'a>, Failure> {
        Ok(match args.bulk {
            true => Load::Bulk(Box::new(target.bulk_load()?)),
            false => Load::Batches(Batch::new(
                target,
                args.batch as usize,
                args.batch_bytes,
                args.strict,
            )),
        })
    }

    fn add(&mut self, at: Position, item: Item) -> Result<Vec<Refusal>, Failure> {
        match self {
            Load::Batches(batch) => batch.add(at, item),
            Load::Bulk(bulk) => Ok(Vec::from_iter(bulk.add(at, &item)?)),
        }
    }

    /// Ends it before the end of the file. Batches keep what was read.
    fn abort(self) -> Result<(), Failure> {
        match self {
            Load::Batches(mut batch) => batch.write().map(drop),
            Load::Bulk(_) => Ok(()),
        }
    }

    fn finish(self) -> Result<(Vec<Refusal>, Imported), Failure> {
        match self {
            Load::Batches(mut batch) => Ok((batch.write()?, batch.imported)),
            Load::Bulk(bulk) => {
                let loaded = bulk.commit()?;
                let imported = Imported {
                    blocks: loaded.blocks,
                    edges: loaded.edges,
                    ..Imported::default()
                };
                Ok((Vec::new(), imported))
            }
        }
    }
}

/// What was refused: counted, and the first of it shown.
struct Refusals<'a> {
    /// Whether the first one ends the import.
    strict: bool,
    detected: Detected,
    count: u64,
    progress: &'a Progress,
}

impl Refusals<'_> {
    fn show(&mut self, refused: Vec<Refusal>) -> Result<(), Failure> {
        const SHOWN_MAX: u64 = 20;
        for refusal in refused {
            if self.strict {
                let text = format!("{refusal}; {}", read_as(self.detected));
                return Err(Failure::new(Exit::Invalid, text));
            }
            self.count += 1;
            match self.count {
                ..=SHOWN_MAX => self.progress.line(&format!("refused: {refusal}")),
                n if n == SHOWN_MAX + 1 => {
                    self.progress.line("further refusals are only counted");
                }
                _ => {}
            }
            self.progress.remark(format!("{} refused", self.count));
        }
        Ok(())
    }
}

/// Items on their way into the database.
pub(super) struct Batch<'a> {
    target: &'a Target,
    items: Vec<(Position, Item)>,
    bytes: u64,
    items_max: usize,
    bytes_max: u64,
    /// Whether the first refusal ends the import.
    strict: bool,
    pub(super) imported: Imported,
}

impl<'a> Batch<'a> {
    pub(super) fn new(
        target: &'a Target,
        items_max: usize,
        bytes_max: u64,
        strict: bool,
    ) -> Batch<'a> {
        let imported = Imported::default();
        Batch {
            target,
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
        let (refused, imported) = self.target.import(&items, self.strict)?;
        self.imported.blocks += imported.blocks;
        self.imported.edges += imported.edges;
        self.imported.keys += imported.keys;
        self.imported.again += imported.again;
        self.imported.changed += imported.changed;
        Ok(refused)
    }
}

pub(crate) fn export(context: &mut Context<'_, '_>, args: &Export) -> Result<(), Failure> {
    let target = Target::open_to_read(context, GRAPH_TIMEOUT)?;
    let source = target.at(args.rev)?;
    // Refused before anything is printed.
    let revision = source.revision()?;
    if args.file == Path::new("-") {
        write_items(&source, args, &mut *context.streams.stdout)?;
        return Ok(());
    }
    let mut file = PrivateFile::create(&args.file)?;
    let mut out = BufWriter::new(&mut file);
    let count = write_items(&source, args, &mut out)?;
    out.flush()?;
    drop(out);
    let is_stream = file.is_stream();
    file.commit()?;
    if is_stream {
        // It may be standard output, where nothing else belongs.
        return Ok(());
    }
    context.record(&[
        ("file", args.file.display().to_string().into()),
        ("items", count.into()),
        ("revision", revision.into()),
    ])
}

fn write_items(source: &View<'_>, args: &Export, out: &mut dyn Write) -> Result<u64, Failure> {
    let mut writer = export::writer(args.format, out);
    let mut count = 0;
    let mut write = |item: &Item| {
        count += 1;
        Ok(writer.item(item)?)
    };
    source.for_each_entry(&Range::all(), Scan::default(), &mut |entry| {
        let (key, value) = (entry.key.to_vec(), entry.value.to_vec());
        write(&Item::KeyValue(KeyValue { key, value }))
    })?;
    // Blocks first: an import refuses an edge whose blocks it has not seen.
    source.for_each_block(&mut |block| write(&block_item(block)))?;
    source.for_each_edge(&mut |edge| write(&edge_item(edge)))?;
    writer.finish()?;
    drop(writer);
    Ok(count)
}

pub(super) fn block_item(block: bowline::Block) -> Item {
    Item::Block(Block {
        block: BlockRef::Id(block.id.0),
        kinds: block.kinds,
        content: block.content.into(),
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
