//! Graphviz DOT: the graph to look at.
//!
//! ```text
//!   digraph bowline {
//!     "0123abcd-…" [label="libc@0.2.180", tooltip="package\nname=libc"];
//!     "89ab…" -> "0123abcd-…" [label="depends_on"];
//!   }
//! ```
//!
//! A block is identified by its reference and shown by its label; its kind and attributes are
//! in the tooltip of an SVG. Keys have no place in a graph and are left out. Whatever is in the
//! data, the file is well-formed: names are quoted, and nothing in them is taken for one of
//! Graphviz's escapes.

use std::io::{self, Write};

use bowline::text::is_plain;

use super::ItemWriter;
use crate::import::{Attributes, Item, label};

/// Writes DOT.
pub(crate) struct DotWriter<W> {
    out: W,
    started: bool,
}

impl<W: Write> DotWriter<W> {
    /// Writes onto `out`, which should be buffered.
    pub fn new(out: W) -> DotWriter<W> {
        DotWriter {
            out,
            started: false,
        }
    }

    /// Writes the head if nothing is written yet.
    fn start(&mut self) -> io::Result<()> {
        if !self.started {
            self.started = true;
            self.out
                .write_all(b"digraph bowline {\n  node [shape=box];\n")?;
        }
        Ok(())
    }
}

impl<W: Write> ItemWriter for DotWriter<W> {
    fn item(&mut self, item: &Item) -> io::Result<()> {
        self.start()?;
        match item {
            Item::Block(block) => writeln!(
                self.out,
                "  {} [label={}, tooltip={}];",
                quote(&block.block.to_string()),
                quote(&label(&block.block, &block.attributes)),
                quote(&tooltip(&block.kinds.to_string(), &block.attributes)),
            ),
            Item::Edge(edge) => {
                let [source, target] =
                    [&edge.source, &edge.target].map(|block| quote(&block.to_string()));
                write!(
                    self.out,
                    "  {source} -> {target} [label={}",
                    quote(&edge.kind)
                )?;
                if !edge.attributes.is_empty() {
                    let tooltip = tooltip(&edge.kind, &edge.attributes);
                    write!(self.out, ", tooltip={}", quote(&tooltip))?;
                }
                self.out.write_all(b"];\n")
            }
            Item::KeyValue(_) => Ok(()),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.start()?;
        self.out.write_all(b"}\n")?;
        self.out.flush()
    }
}

/// A kind and attributes, a line each.
fn tooltip(kind: &str, attributes: &Attributes) -> String {
    let mut text = kind.to_owned();
    for (key, value) in attributes {
        text.push_str(&format!("\n{key}={value}"));
    }
    text
}

/// A quoted string in which everything stands for itself. A backslash is doubled, because labels
/// and tooltips have escapes of their own; for identifiers that gives another name, but always
/// the same one. What is not [plain](is_plain) becomes U+FFFD: no output format takes control characters, and no
/// terminal should.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push('\t'),
            c if !is_plain(c) => quoted.push('\u{FFFD}'),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::{self, Block, BlockRef, Edge, Event, Format, KeyValue, Options};

    fn written(items: &[Item]) -> String {
        let mut out = Vec::new();
        let items = items.iter().cloned().map(Ok::<Item, io::Error>);
        super::super::write_all(&mut DotWriter::new(&mut out), items).unwrap();
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn blocks_have_labels_and_edges_their_kind() {
        let block = Block {
            block: BlockRef::Name("b".into()),
            kinds: "package".into(),
            content: vec![],
            attributes: Attributes::from([
                ("label".into(), "libc@0.2.1".into()),
                ("name".into(), "libc".into()),
            ]),
            if_absent: false,
        };
        let edge = Edge {
            source: BlockRef::Name("app".into()),
            kind: "depends_on".into(),
            target: block.block.clone(),
            attributes: Attributes::from([("weight".into(), "2".into())]),
        };
        let pair = KeyValue {
            key: b"k".to_vec(),
            value: vec![],
        };
        assert_eq!(
            written(&[Item::KeyValue(pair), Item::Block(block), Item::Edge(edge)]),
            "digraph bowline {\n  node [shape=box];\n  \"b\" [label=\"libc@0.2.1\", \
             tooltip=\"package\\nlabel=libc@0.2.1\\nname=libc\"];\n  \"app\" -> \"b\" \
             [label=\"depends_on\", tooltip=\"depends_on\\nweight=2\"];\n}\n"
        );
        assert_eq!(written(&[]), "digraph bowline {\n  node [shape=box];\n}\n");
    }

    #[test]
    fn nothing_in_a_name_ends_its_quotes() {
        assert_eq!(quote("a\"b\\N\nc\0"), "\"a\\\"b\\\\N\\nc\u{FFFD}\"");
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..1_000 {
            let text: String = (0..random.usize(0..9))
                .map(|_| random.choice(['"', '\\', 'n', '\n']).unwrap())
                .collect();
            let quoted = quote(&text);
            let inner = &quoted[1..quoted.len() - 1];
            let mut escaped = false;
            for c in inner.chars() {
                assert!(c != '\n' && (escaped || c != '"'), "{text:?} {quoted}");
                escaped = c == '\\' && !escaped;
            }
            assert!(
                !escaped,
                "{text:?}: the closing quote is escaped in {quoted}"
            );
        }
    }

    #[test]
    fn a_lock_file_becomes_a_line_per_package_and_dependency() {
        let file = include_bytes!("../../../../Cargo.lock");
        let items: Vec<Item> = import::read(&file[..], Format::CargoLock, &Options::default())
            .map(|event| match event {
                Ok(Event::Item { item, .. }) => item,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(written(&items).lines().count(), items.len() + 3);
    }
}
