//! What fuzzers call: any bytes as a file to import. Exists in tests and with `--cfg fuzzing` only.
//!
//! No bytes may make an import panic, run for ever, hold more than they justify, place an event
//! outside of the file, or depend on how the reader cuts the file into pieces.

use std::io::BufReader;

use super::{Event, Format, Item, KIND_SIZE_MAX_BYTES, Options, detect, read};

/// Which format an input is read as, by its first byte.
const FORMATS: [Format; 3] = [Format::CargoLock, Format::EdgeList, Format::JsonLines];

/// A byte that says how to read, and a file. Gives the items of the file.
pub fn import(data: &[u8]) -> Vec<Item> {
    let Some((&flags, file)) = data.split_first() else {
        return Vec::new();
    };
    let format = match flags & 3 {
        3 => match detect(None, file) {
            Ok(found) => found.format,
            Err(_) => return Vec::new(),
        },
        which => FORMATS[usize::from(which)],
    };
    let options = Options {
        third_column: if flags & 4 != 0 { "since" } else { "weight" }.to_owned(),
        skip_lines: u64::from(flags >> 3 & 1),
        line_max_bytes: (flags & 16 != 0).then_some(60),
        ..Options::default()
    };
    let lines = file.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
    let whole = events(file, format, &options, file.len() + 1);
    let mut items = Vec::new();
    let mut size_bytes = 0;
    for event in &whole {
        let at = match event {
            Event::Item { at, item } => {
                size_bytes += check(item, format);
                items.push(item.clone());
                at
            }
            Event::Refused(refusal) => {
                assert!(!refusal.message.is_empty());
                &refusal.at
            }
        };
        assert!(
            (1..=lines).contains(&at.line),
            "{format}: {at} of {lines} lines"
        );
        assert!(
            (1..=file.len() as u64 + 1).contains(&at.column),
            "{format}: {at}"
        );
    }
    assert!(
        whole.len() <= file.len() * 3 + 1,
        "{format}: {} events",
        whole.len()
    );
    // A name is repeated by what refers to it, within the limit on names.
    let justified = file.len() * 2_000 + 4096;
    assert!(
        size_bytes <= justified,
        "{format}: {size_bytes} bytes of items"
    );
    let pieces = events(file, format, &options, 1 + usize::from(flags >> 5));
    assert_eq!(
        pieces, whole,
        "{format}: the size of the reader's buffer matters"
    );
    items
}

fn events(file: &[u8], format: Format, options: &Options, buffer_bytes: usize) -> Vec<Event> {
    let input = BufReader::with_capacity(buffer_bytes, file);
    let events = read(input, format, options).collect::<Result<_, _>>();
    events.expect("a slice does not fail")
}

/// Checks what holds for every item; gives its size.
fn check(item: &Item, format: Format) -> usize {
    let is_kind = |kind: &String| (1..=KIND_SIZE_MAX_BYTES).contains(&kind.len());
    assert!(match item {
        Item::Block(block) => block.kinds.iter().all(is_kind),
        Item::Edge(edge) => is_kind(&edge.kind),
        Item::KeyValue(pair) => !pair.key.is_empty() && format == Format::JsonLines,
    });
    item.size_bytes()
}

/// A small file of each format.
pub(crate) fn import_seeds() -> Vec<Vec<u8>> {
    let lock = "# generated\nversion = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\
        source = \"registry+https://x\"\nchecksum = \"00\"\ndependencies = [\n \"b\",\n \
        \"c 1.0.0 (git+https://y#aa)\",\n]\n\n[[package]]\nname = \"b\"\nversion = \"2.0.0\"\n\n\
        [[package]]\nname = \"c\"\nversion = \"1.0.0\"\nsource = \"git+https://y#aabb\"\n\n\
        [[package]]\nname = \"c\"\nversion = \"1.0.0\"\n";
    let old = "[root]\nname = \"r\"\nversion = \"1.0.0\"\ndependencies = [\"a 1.0.0 (x)\"]\n\
        [[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"x\"\n\
        [metadata]\n\"checksum a 1.0.0 (x)\" = \"ff\"\n";
    let edges = "# From\tTo\r\n0\t1\r\n0 2 2.5\n2,2\né ü\n\
        0123abcd-4567-89ef-fedc-ba9876543210 , b, -1e3\n";
    let lines = r#"{"key": "a", "value": "b"}
{"key_base64": "/w==", "value_base64": ""}
{"block": {"id": "0123abcd-4567-89ef-fedc-ba9876543210", "kind": "k", "content": "c\u00e9"}}
{"block": {"name": "n", "kind": "k", "content_base64": "AAE=", "attributes": {"a": "\n"}}}
{"edge": {"source": "n", "kind": "k", "target": "é", "attributes": {"a": "b", "c": ""}}}
{"edge": {"source": "n", "kind": ["k"], "target": {}}, "key": null}
"#;
    [
        (0, lock),
        (3, lock),
        (0, old),
        (1, edges),
        (1 + 4 + 8, edges),
        (2, lines),
        (2 + 16, lines),
    ]
    .into_iter()
    .map(|(flags, file)| [&[flags][..], file.as_bytes()].concat())
    .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::export::ItemWriter;
    use crate::export::json_lines::JsonLinesWriter;

    use super::*;

    #[test]
    fn no_file_misleads_an_import() {
        let corpus =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/fuzz/corpus/import.tar");
        let seeds = import_seeds();
        bowline_testing::replay("no_file_misleads_an_import", &corpus, seeds, |data| {
            // What an export writes is read back as it was, but for the mark of an edge list.
            let items = import(data);
            let mut file = vec![2];
            let mut writer = JsonLinesWriter::new(&mut file);
            for item in &items {
                writer.item(item).expect("memory takes it");
            }
            writer.finish().expect("memory takes it");
            let mut read = import(&file);
            for (read, item) in read.iter_mut().zip(&items) {
                if let (Item::Block(read), Item::Block(item)) = (read, item) {
                    read.if_absent = item.if_absent;
                }
            }
            assert_eq!(read, items);
        });
    }
}
