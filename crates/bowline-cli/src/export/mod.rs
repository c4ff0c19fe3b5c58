//! Writing graphs and key-values to files, without the database.
//!
//! A writer takes [`Item`]s one by one and keeps none of them, so an export needs no more memory
//! than its largest item. [`json_lines`] is read back by `import` to the same data; [`dot`] is for
//! looking at.

pub mod dot;
pub mod json_lines;
mod writer;

use std::io::{self, Write};

use crate::import::Item;

pub use writer::ItemWriter;

/// The writer of a format, onto `out`.
pub fn writer<'a>(
    format: crate::args::ExportFormat,
    out: impl Write + 'a,
) -> Box<dyn ItemWriter + 'a> {
    match format {
        crate::args::ExportFormat::Jsonl => Box::new(json_lines::JsonLinesWriter::new(out)),
        crate::args::ExportFormat::Dot => Box::new(dot::DotWriter::new(out)),
    }
}

/// Writes everything that `items` gives, and the end. Gives how many items there were.
pub fn write_all<E: From<io::Error>>(
    writer: &mut dyn ItemWriter,
    items: impl IntoIterator<Item = Result<Item, E>>,
) -> Result<u64, E> {
    let mut count = 0;
    for item in items {
        writer.item(&item?)?;
        count += 1;
    }
    writer.finish()?;
    Ok(count)
}
