//! Edge lists: one edge per line, two ids and perhaps a third column, as SNAP publishes them.
//!
//! ```text
//!   # Directed graph          comment: the line starts with # or %
//!   0 <tab> 11342             separators: tabs and spaces in any number, or one comma
//!   0, 824020, 2.5            the third column becomes the attribute `weight`
//! ```
//!
//! An id is any text without separators and control characters. It is the block's name, or its
//! id where it has a UUID's form. A block is given before the first edge that mentions it, marked
//! [`Block::if_absent`]: an edge list says that a block exists, not what it is.
//!
//! A graph may have too many nodes to remember all of them. So the blocks that were given already are kept in a cache of
//! fixed size, a direct-mapped table: each id has one slot, and a new id evicts the one there. An evicted block is given
//! again, which changes nothing.

use std::collections::VecDeque;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io::{self, BufRead};

use super::item::{
    Attributes, Block, BlockRef, Edge, Event, Item, NAME_ATTRIBUTE, Options, Position, Refusal,
};
use super::lines::{LineReader, column_of};

/// The longest line taken unless another limit is asked for: 1 MiB.
pub(crate) const LINE_MAX_BYTES: usize = 1 << 20;

/// The kind of blocks unless another is asked for.
pub const BLOCK_KIND: &str = "node";

/// The kind of edges unless another is asked for.
pub(crate) const EDGE_KIND: &str = "links";

/// Slots of the table of blocks given already.
const SEEN_SLOTS: usize = 1 << 16;

/// Longer ids are not remembered, which bounds the table at about 8 MiB.
const SEEN_ID_MAX_BYTES: usize = 64;

/// Reads an edge list.
pub struct EdgeList<R> {
    lines: LineReader<R>,
    /// What the current line says and has not been given yet.
    pending: VecDeque<Event>,
    seen: Vec<Box<str>>,
    block_kind: String,
    edge_kind: String,
    third_column: String,
    skip_lines: u64,
}

impl<R: BufRead> EdgeList<R> {
    /// Reads `input`.
    pub fn new(input: R, options: &Options) -> EdgeList<R> {
        let or = |kind: &Option<String>, default: &str| {
            kind.clone().unwrap_or_else(|| default.to_owned())
        };
        EdgeList {
            lines: LineReader::new(input, options.line_max_bytes.unwrap_or(LINE_MAX_BYTES)),
            pending: VecDeque::new(),
            seen: vec![Box::default(); SEEN_SLOTS],
            block_kind: or(&options.block_kind, BLOCK_KIND),
            edge_kind: or(&options.edge_kind, EDGE_KIND),
            third_column: options.third_column.clone(),
            skip_lines: options.skip_lines,
        }
    }

    /// Reads one line into `pending`. Says whether there was one.
    fn read_line(&mut self) -> io::Result<bool> {
        let Some(line) = self.lines.next_line()? else {
            return Ok(false);
        };
        let parsed = match line {
            Ok(line) => parse_line(line, &self.third_column).map(|row| row.map(Row::into_owned)),
            Err(refusal) => {
                let Refusal { at, message } = refusal;
                if at.line > self.skip_lines {
                    self.pending
                        .push_back(Event::Refused(Refusal { at, message }));
                }
                return Ok(true);
            }
        };
        let line = self.lines.line_number();
        if line <= self.skip_lines {
            return Ok(true);
        }
        match parsed {
            Ok(None) => {}
            Ok(Some(row)) => self.push_row(line, row),
            Err((column, message)) => {
                let at = Position { line, column };
                self.pending
                    .push_back(Event::Refused(Refusal { at, message }));
            }
        }
        Ok(true)
    }

    /// Turns a row into its blocks, where they are new, and its edge.
    fn push_row(&mut self, line: u64, row: OwnedRow) {
        let [source, target] = row.ids.map(|(column, id)| {
            let at = Position { line, column };
            let block = BlockRef::parse(&id);
            if self.is_new(&id) {
                let mut attributes = Attributes::new();
                if let BlockRef::Name(name) = &block {
                    attributes.insert(NAME_ATTRIBUTE.to_owned(), name.into());
                }
                let item = Item::Block(Block {
                    block: block.clone(),
                    kinds: self.block_kind.as_str().into(),
                    content: Vec::new(),
                    attributes,
                    if_absent: true,
                });
                self.pending.push_back(Event::Item { at, item });
            }
            (at, block)
        });
        let mut attributes = Attributes::new();
        if let Some(value) = row.third {
            attributes.insert(self.third_column.clone(), value.into());
        }
        let edge = Edge {
            source: source.1,
            kind: self.edge_kind.clone(),
            target: target.1,
            attributes,
        };
        self.pending.push_back(Event::Item {
            at: source.0,
            item: Item::Edge(edge),
        });
    }

    /// Whether `id` is not known to have been given before; remembers it.
    fn is_new(&mut self, id: &str) -> bool {
        if id.len() > SEEN_ID_MAX_BYTES {
            return true;
        }
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        let slot = &mut self.seen[hasher.finish() as usize % SEEN_SLOTS];
        let new = **slot != *id;
        if new {
            *slot = id.into();
        }
        new
    }
}

impl<R: BufRead> Iterator for EdgeList<R> {
    type Item = io::Result<Event>;

    fn next(&mut self) -> Option<io::Result<Event>> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(Ok(event));
            }
            match self.read_line() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The columns of one line; each id with its column in the file.
#[derive(Debug, PartialEq)]
struct Row<'a> {
    ids: [(u64, &'a str); 2],
    third: Option<&'a str>,
}

/// A [`Row`] that does not borrow from the line.
struct OwnedRow {
    ids: [(u64, String); 2],
    third: Option<String>,
}

impl Row<'_> {
    fn into_owned(self) -> OwnedRow {
        OwnedRow {
            ids: self.ids.map(|(column, id)| (column, id.to_owned())),
            third: self.third.map(str::to_owned),
        }
    }
}

/// Parses one line; `None` for a blank line or a comment, a column and a reason if malformed.
fn parse_line<'a>(line: &'a [u8], third_column: &str) -> Result<Option<Row<'a>>, (u64, String)> {
    let start = line.iter().position(|byte| !matches!(byte, b' ' | b'\t'));
    if start.is_none_or(|start| matches!(line[start], b'#' | b'%')) {
        return Ok(None);
    }
    let refuse = |offset: usize, message: &str| (column_of(line, offset), message.to_owned());
    let text = match str::from_utf8(line) {
        Ok(text) => text,
        Err(error) => return Err(refuse(error.valid_up_to(), "not UTF-8")),
    };
    if let Some((offset, found)) = text
        .char_indices()
        .find(|(_, c)| c.is_control() && *c != '\t')
    {
        let message = format!("control character U+{:04X}", u32::from(found));
        return Err(refuse(offset, &message));
    }

    let mut fields = Fields {
        text,
        offset: 0,
        after_comma: false,
    };
    let [source, target] = [fields.next(), fields.next()];
    let [third, fourth] = [fields.next(), fields.next()];
    let missing = |name: &str| {
        let message = format!("the {name} is missing: expected two ids");
        refuse(text.trim_end().len(), &message)
    };
    let source = source
        .ok_or_else(|| missing("source"))?
        .map_err(|at| refuse(at, EMPTY))?;
    let target = target
        .ok_or_else(|| missing("target"))?
        .map_err(|at| refuse(at, EMPTY))?;
    let third = third.transpose().map_err(|at| refuse(at, EMPTY))?;
    if let Some(fourth) = fourth {
        let offset = fourth.map_or_else(|at| at, |(at, _)| at);
        return Err(refuse(
            offset,
            "a fourth column: expected two ids and at most one more",
        ));
    }
    if let Some((offset, value)) = third
        && third_column == "weight"
        && !value.parse::<f64>().is_ok_and(f64::is_finite)
    {
        return Err(refuse(
            offset,
            &format!("the weight {value:?} is not a finite number"),
        ));
    }
    let id = |(offset, id)| (column_of(line, offset), id);
    Ok(Some(Row {
        ids: [id(source), id(target)],
        third: third.map(|(_, value)| value),
    }))
}

/// Why two commas in a row, or one at either end, are refused.
const EMPTY: &str = "an empty column: expected an id between the commas";

/// Splits a line at runs of tabs and spaces and at single commas. Gives each field with its byte
/// offset, or the offset of a field that is empty.
struct Fields<'a> {
    text: &'a str,
    offset: usize,
    /// Whether a comma stands before `offset`, so that a field has to follow.
    after_comma: bool,
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(usize, &'a str), usize>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.text.as_bytes();
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        let skip = |from: usize| {
            bytes[from..]
                .iter()
                .position(|byte| !is_blank(byte))
                .map_or(bytes.len(), |n| from + n)
        };
        let start = skip(self.offset);
        match bytes.get(start) {
            None if !self.after_comma => return None,
            None | Some(b',') => {
                // Go past the comma, so that the field after it is next.
                self.after_comma = start < bytes.len();
                self.offset = (start + 1).min(bytes.len());
                return Some(Err(start));
            }
            Some(_) => {}
        }
        let is_end = |byte: &u8| is_blank(byte) || *byte == b',';
        let end = bytes[start..]
            .iter()
            .position(is_end)
            .map_or(bytes.len(), |n| start + n);
        let next = skip(end);
        self.after_comma = bytes.get(next) == Some(&b',');
        self.offset = if self.after_comma { next + 1 } else { next };
        Some(Ok((start, &self.text[start..end])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Columns<'a> = (&'a str, &'a str, Option<&'a str>);

    fn row(line: &str) -> Result<Option<Columns<'_>>, (u64, String)> {
        let row = parse_line(line.as_bytes(), "weight")?;
        Ok(row.map(|row| (row.ids[0].1, row.ids[1].1, row.third)))
    }

    fn read(file: &str, options: &Options) -> Vec<Event> {
        EdgeList::new(file.as_bytes(), options)
            .collect::<Result<_, _>>()
            .unwrap()
    }

    fn texts(attributes: &Attributes) -> std::collections::BTreeMap<&str, &str> {
        let text = |(name, value)| -> (&str, &str) {
            let (name, value): (&String, &bowline_types::AttributeValue) = (name, value);
            (name, value.as_text().expect("a text"))
        };
        attributes.iter().map(text).collect()
    }

    /// Items and refusals in one line each.
    fn shown(events: &[Event]) -> Vec<String> {
        let show = |event: &Event| match event {
            Event::Item {
                at,
                item: Item::Block(block),
            } => {
                assert!(block.if_absent && block.content.is_empty());
                let attributes = texts(&block.attributes);
                format!("{at} {} {} {attributes:?}", block.kinds, block.block)
            }
            Event::Item {
                at,
                item: Item::Edge(edge),
            } => {
                let attributes = texts(&edge.attributes);
                format!(
                    "{at} {} {} {} {attributes:?}",
                    edge.source, edge.kind, edge.target
                )
            }
            Event::Item { item, .. } => panic!("{item:?}"),
            Event::Refused(refusal) => refusal.to_string(),
        };
        events.iter().map(show).collect()
    }

    #[test]
    fn every_separator_gives_the_same_row() {
        for line in ["a\tb", "a b", "a,b", "a , b", "  a \t  b  ", "a,\tb\t"] {
            assert_eq!(row(line), Ok(Some(("a", "b", None))), "{line:?}");
        }
        for line in ["a\tb\t2.5", "a b 2.5", "a,b,2.5", "a, b 2.5"] {
            assert_eq!(row(line), Ok(Some(("a", "b", Some("2.5")))), "{line:?}");
        }
    }

    #[test]
    fn blank_lines_and_comments_say_nothing() {
        for line in ["", "   ", "\t", "# a b", "% a b", "  # a b", "#"] {
            assert_eq!(row(line), Ok(None), "{line:?}");
        }
    }

    #[test]
    fn a_malformed_line_names_its_column() {
        for (line, column, part) in [
            ("a", 2, "the target is missing"),
            ("a   ", 2, "the target is missing"),
            ("a,", 3, "empty column"),
            (",a", 1, "empty column"),
            (",", 1, "empty column"),
            ("a,,b", 3, "empty column"),
            ("a, ,b", 4, "empty column"),
            ("a,b,", 5, "empty column"),
            ("a b 1 2", 7, "a fourth column"),
            ("a,b,1,", 7, "a fourth column"),
            ("a b c", 5, "the weight \"c\" is not a finite number"),
            ("a b inf", 5, "not a finite number"),
            ("a b NaN", 5, "not a finite number"),
            ("é ü x", 5, "not a finite number"),
            ("a\0 b", 2, "control character U+0000"),
            ("a\r b", 2, "control character U+000D"),
        ] {
            let (found, message) = row(line).unwrap_err();
            assert!(message.contains(part), "{line:?}: {message}");
            assert_eq!(found, column, "{line:?}: {message}");
        }
        let (column, message) = parse_line(b"\xC3\xA9 \xFF", "weight").unwrap_err();
        assert_eq!((column, message.as_str()), (3, "not UTF-8"));
    }

    #[test]
    fn a_snap_file_gives_each_block_before_its_first_edge() {
        let file = "# FromNodeId\tToNodeId\r\n0\t1\r\n0\t2\r\n\r\n2\t2\r\n";
        assert_eq!(
            shown(&read(file, &Options::default())),
            [
                "2:1 node 0 {\"name\": \"0\"}",
                "2:3 node 1 {\"name\": \"1\"}",
                "2:1 0 links 1 {}",
                "3:3 node 2 {\"name\": \"2\"}",
                "3:1 0 links 2 {}",
                "5:1 2 links 2 {}",
            ]
        );
    }

    #[test]
    fn options_choose_kinds_third_column_and_header() {
        let options = Options {
            block_kind: Some("user".into()),
            edge_kind: Some("follows".into()),
            third_column: "since".into(),
            skip_lines: 1,
            ..Options::default()
        };
        let file = "from,to,since\nann,0123abcd-4567-89ef-fedc-ba9876543210,May\n";
        assert_eq!(
            shown(&read(file, &options)),
            [
                "2:1 user ann {\"name\": \"ann\"}",
                "2:5 user 0123abcd-4567-89ef-fedc-ba9876543210 {}",
                "2:1 ann follows 0123abcd-4567-89ef-fedc-ba9876543210 {\"since\": \"May\"}",
            ]
        );
    }

    #[test]
    fn reading_goes_on_after_a_refusal() {
        let long = "x".repeat(50);
        let file = format!("a\nb c\n{long} y\nc b\n");
        let options = Options {
            line_max_bytes: Some(20),
            ..Options::default()
        };
        assert_eq!(
            shown(&read(&file, &options)),
            [
                "line 1, column 2: the target is missing: expected two ids",
                "2:1 node b {\"name\": \"b\"}",
                "2:3 node c {\"name\": \"c\"}",
                "2:1 b links c {}",
                "line 3, column 21: the line is longer than 20 bytes",
                "4:1 c links b {}",
            ]
        );
    }

    #[test]
    fn the_table_of_seen_blocks_forgets_but_never_hides_a_block() {
        let mut list = EdgeList::new(io::empty(), &Options::default());
        let ids = SEEN_SLOTS * 3;
        for id in 0..ids {
            assert!(list.is_new(&id.to_string()), "{id} was never given");
        }
        let again = (0..ids).filter(|id| list.is_new(&id.to_string())).count();
        assert!(again > SEEN_SLOTS, "the table holds no more than its slots");
        let long = "x".repeat(SEEN_ID_MAX_BYTES + 1);
        assert!(
            list.is_new(&long) && list.is_new(&long),
            "long ids take no room"
        );
        assert_eq!(list.seen.len(), SEEN_SLOTS);
    }
}
