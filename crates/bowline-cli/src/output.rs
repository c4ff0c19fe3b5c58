//! Results on standard output: aligned columns for people, JSON for programs.
//!
//! JSON is one object per line, written as soon as it is known, so that a long range or a watch
//! streams. A table is laid out in chunks of `CHUNK_ROWS` rows, so memory is bounded there too.
//!
//! JSON is whole. A table is for people: it fits the terminal (`table`), and of a list it shows the first `LISTED_MAX`
//! texts and how many more there are.
//!
//! Keys and values are bytes. How they are shown depends on what they hold:
//!
//! ```text
//!   bytes           table             JSON
//!   UTF-8           text, with \n     "value": "text"
//!                   and \\ escaped
//!   not UTF-8       \xff escapes      "value_base64": "/w=="
//!   with --hex      ff                "value_hex": "ff"
//! ```
//!
//! Nothing reaches the terminal that could move the cursor, change colours or reorder text: control and
//! direction characters are escaped ([`bowline::text`]). In a table that is reversible, as a backslash is escaped
//! too; in JSON they are written as `\\u202e`, which is the same text to a parser.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

pub use bowline::text::escape;
use bowline::{BlockKinds, Revision, text};
use bowline_load::Figure;
use bowline_load::units::show_size;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::ser::{Serialize, SerializeMap, Serializer};
use unicode_width::UnicodeWidthStr;

use crate::args::Output;
use crate::import::{Attributes, AttributesJson};
use crate::query_json::QueriedJson;
use crate::table::Layout;
use bowline::AttributeValue;
use bowline::cypher::Value;

/// How many texts of a list a table shows.
const LISTED_MAX: usize = 10;

/// How many rows of a table are laid out at once.
pub(crate) const CHUNK_ROWS: usize = 1_000;

/// A value of a result.
#[derive(Debug, Clone, PartialEq)]
pub enum Field {
    /// Nothing: `-` in a table, `null` in JSON.
    Absent,
    /// Text of ours.
    Text(String),
    /// Bytes of the user's.
    Bytes(Vec<u8>),
    /// A count, a size, a revision.
    Number(u64),
    /// A ratio or a weight.
    Real(f64),
    /// A number that may be very small: with three digits that mean something in a table.
    Fine(f64),
    /// Yes or no.
    Flag(bool),
    /// Attributes: `key=value` pairs in a table, an object in JSON.
    Attributes(Attributes),
    /// Several texts: the first of them with commas in a table, an array of all in JSON.
    List(Vec<String>),
    /// Counts by name: as attributes, with numbers in JSON.
    Counts(BTreeMap<String, u64>),
    /// A value that a query has returned.
    Queried(Value),
    /// A time span: rounded down for people, `NAME_ms` in JSON.
    Duration(Duration),
    /// A size: with a unit for people, `NAME_bytes` in JSON.
    Size(u64),
}

impl From<&str> for Field {
    fn from(text: &str) -> Field {
        Field::Text(text.to_owned())
    }
}

impl From<String> for Field {
    fn from(text: String) -> Field {
        Field::Text(text)
    }
}

/// One kind is a text. No kind and several are a list.
impl From<BlockKinds> for Field {
    fn from(kinds: BlockKinds) -> Field {
        match kinds.only() {
            Some(kind) => Field::Text(kind.to_owned()),
            None => Field::List(kinds.into_iter().collect()),
        }
    }
}

impl From<Revision> for Field {
    fn from(revision: Revision) -> Field {
        Field::Number(revision.get())
    }
}

impl From<u64> for Field {
    fn from(number: u64) -> Field {
        Field::Number(number)
    }
}

impl<T: Into<Field>> From<Option<T>> for Field {
    fn from(field: Option<T>) -> Field {
        field.map_or(Field::Absent, Into::into)
    }
}

impl From<Figure> for Field {
    fn from(figure: Figure) -> Field {
        match figure {
            Figure::Absent => Field::Absent,
            Figure::Text(text) => Field::Text(text),
            Figure::Count(count) => Field::Number(count),
            Figure::Real(number) => Field::Real(number),
            Figure::List(texts) => Field::List(texts),
        }
    }
}

impl Field {
    /// As the cell of a table.
    fn cell(&self, hex: bool) -> String {
        match self {
            Field::Absent => "-".to_owned(),
            Field::Text(text) => escape(text.as_bytes()).into_owned(),
            Field::Bytes(bytes) if hex => hexadecimal(bytes),
            Field::Bytes(bytes) => escape(bytes).into_owned(),
            Field::Number(number) => number.to_string(),
            Field::Real(number) => format!("{number:.3}"),
            Field::Fine(number) => fine(*number),
            Field::Flag(true) => "yes".to_owned(),
            Field::Flag(false) => "no".to_owned(),
            Field::Attributes(attributes) => {
                let pair = |(key, value): (&String, &AttributeValue)| format!("{key}={value}");
                let pairs: Vec<String> = attributes.iter().map(pair).collect();
                escape(pairs.join(" ").as_bytes()).into_owned()
            }
            Field::List(texts) => list(texts, LISTED_MAX),
            Field::Counts(counts) => {
                let pair = |(name, count): (&String, &u64)| format!("{name}={count}");
                let pairs: Vec<String> = counts.iter().map(pair).collect();
                escape(pairs.join(" ").as_bytes()).into_owned()
            }
            Field::Queried(Value::Null) => "-".to_owned(),
            Field::Queried(value) => {
                // As attributes are shown.
                let plain = value.to_attribute().map(|value| value.to_string());
                let shown = plain.unwrap_or_else(|| value.to_string());
                escape(shown.as_bytes()).into_owned()
            }
            Field::Duration(duration) => show_about(*duration),
            Field::Size(bytes) => show_size(*bytes),
        }
    }

    /// As a cell of at most `width` columns, where that can be had without a cut through its middle.
    fn narrow_cell(&self, hex: bool, width: usize) -> String {
        let whole = self.cell(hex);
        match self {
            Field::List(texts) if whole.width() > width => (1..=LISTED_MAX.min(texts.len()))
                .rev()
                .map(|shown| list(texts, shown))
                .find(|cell| cell.width() <= width)
                .unwrap_or(whole),
            _ => whole,
        }
    }

    fn is_number(&self) -> bool {
        matches!(self, Field::Number(_) | Field::Real(_) | Field::Fine(_))
    }
}

/// The first texts of a list, and how many more there are.
fn list(texts: &[String], shown_max: usize) -> String {
    let shown = texts.len().min(shown_max);
    let mut list = escape(texts[..shown].join(", ").as_bytes()).into_owned();
    let more = texts.len() - shown;
    if more > 0 {
        list.push_str(&format!(", and {} more", grouped(more)));
    }
    list
}

/// A number of at least 0 with three digits behind the point, and more where it begins later.
fn fine(number: f64) -> String {
    if number == 0.0 || number >= 0.1 {
        return format!("{number:.3}");
    }
    let zeros = (-number.log10()).floor() as usize;
    format!("{number:.*}", zeros + 3)
}

/// A number with commas between thousands.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Prints results.
pub(crate) struct Printer<'a> {
    out: &'a mut dyn Write,
    output: Output,
    hex: bool,
    /// How many columns a table may have.
    width: Option<usize>,
}

impl<'a> Printer<'a> {
    /// Prints to `out` as `output`; bytes in hexadecimal if `hex`.
    pub fn new(out: &'a mut dyn Write, output: Output, hex: bool) -> Printer<'a> {
        Printer {
            out,
            output,
            hex,
            width: None,
        }
    }

    /// Fits tables into so many columns of a terminal.
    pub fn fitting(self, width: Option<usize>) -> Printer<'a> {
        Printer { width, ..self }
    }

    /// Prints many results of one shape.
    pub fn rows(&mut self, columns: &[&str]) -> Rows<'_, 'a> {
        Rows {
            printer: self,
            columns: columns.iter().map(|name| (*name).to_owned()).collect(),
            rows: Vec::new(),
            layout: None,
            count: 0,
        }
    }

    /// Prints one result: a line per field in a table, one object in JSON.
    pub fn record(&mut self, fields: &[(&str, Field)]) -> io::Result<()> {
        match self.output {
            Output::Json => self.json(fields.iter().map(|(name, field)| (*name, field))),
            Output::Table => {
                let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
                for (name, field) in fields {
                    let name = name.replace('_', " ");
                    writeln!(self.out, "{name:width$}  {}", field.cell(self.hex))?;
                }
                Ok(())
            }
        }
    }

    fn json<'f>(
        &mut self,
        fields: impl Iterator<Item = (&'f str, &'f Field)> + Clone,
    ) -> io::Result<()> {
        let object = Object {
            fields,
            hex: self.hex,
        };
        let json = serde_json::to_string(&object)?;
        self.out.write_all(text::in_json(&json).as_bytes())?;
        self.out.write_all(b"\n")
    }
}

/// Results of one shape on their way out. Call [`finish`](Rows::finish) at the end.
#[must_use = "rows that are not finished may not be printed"]
pub struct Rows<'p, 'a> {
    printer: &'p mut Printer<'a>,
    columns: Vec<String>,
    /// Rows of a table that are not laid out yet.
    rows: Vec<Vec<Field>>,
    /// None before the first chunk.
    layout: Option<Layout>,
    count: u64,
}

impl Rows<'_, '_> {
    /// Adds a row, with a field for each column.
    pub fn push(&mut self, row: Vec<Field>) -> io::Result<()> {
        assert_eq!(
            row.len(),
            self.columns.len(),
            "a row has a field for each column"
        );
        self.count += 1;
        match self.printer.output {
            Output::Json => {
                let columns = self.columns.iter().map(String::as_str);
                self.printer.json(columns.zip(&row))
            }
            Output::Table => {
                self.rows.push(row);
                if self.rows.len() >= CHUNK_ROWS {
                    self.lay_out()
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Prints what there is, for results that come slowly.
    pub fn flush(&mut self) -> io::Result<()> {
        self.lay_out()?;
        self.printer.out.flush()
    }

    /// Prints the rest. Gives how many rows there were.
    pub fn finish(mut self) -> io::Result<u64> {
        self.lay_out()?;
        Ok(self.count)
    }

    fn lay_out(&mut self) -> io::Result<()> {
        let Some(first) = self.rows.first() else {
            return Ok(());
        };
        let numeric: Vec<bool> = first.iter().map(Field::is_number).collect();
        let Printer {
            out, hex, width, ..
        } = &mut *self.printer;
        let header = |name: &String| name.to_uppercase().replace('_', " ");
        let headers: Vec<String> = self.columns.iter().map(header).collect();
        let is_first_chunk = self.layout.is_none();
        let layout = self
            .layout
            .get_or_insert_with(|| Layout::new(*width, &headers));
        layout.set_numeric(numeric);
        let mut cells: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| row.iter().map(|field| field.cell(*hex)).collect())
            .collect();
        cells.iter().for_each(|cells| layout.measure(cells));
        let widths = layout.widths();
        if is_first_chunk {
            writeln!(out, "{}", layout.line(&widths, &headers))?;
        }
        for (row, cells) in self.rows.drain(..).zip(&mut cells) {
            if width.is_some() {
                for ((field, cell), width) in row.iter().zip(&mut *cells).zip(&widths) {
                    *cell = field.narrow_cell(*hex, *width);
                }
            }
            writeln!(out, "{}", layout.line(&widths, cells))?;
        }
        Ok(())
    }
}

/// One JSON object in the order of its fields.
struct Object<I> {
    fields: I,
    hex: bool,
}

impl<'f, I: Iterator<Item = (&'f str, &'f Field)> + Clone> Serialize for Object<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, field) in self.fields.clone() {
            match field {
                Field::Absent => map.serialize_entry(name, &())?,
                Field::Text(text) => map.serialize_entry(name, text)?,
                Field::Bytes(bytes) if self.hex => {
                    map.serialize_entry(&format!("{name}_hex"), &hexadecimal(bytes))?;
                }
                Field::Bytes(bytes) => match str::from_utf8(bytes) {
                    Ok(text) => map.serialize_entry(name, text)?,
                    Err(_) => {
                        map.serialize_entry(&format!("{name}_base64"), &STANDARD.encode(bytes))?;
                    }
                },
                Field::Number(number) => map.serialize_entry(name, number)?,
                Field::Real(number) | Field::Fine(number) => map.serialize_entry(name, number)?,
                Field::Flag(flag) => map.serialize_entry(name, flag)?,
                Field::Attributes(attributes) => {
                    map.serialize_entry(name, &AttributesJson(attributes))?;
                }
                Field::List(texts) => map.serialize_entry(name, texts)?,
                Field::Queried(value) => map.serialize_entry(name, &QueriedJson(value))?,
                Field::Counts(counts) => map.serialize_entry(name, counts)?,
                Field::Duration(duration) => {
                    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
                    map.serialize_entry(&format!("{name}_ms"), &ms)?;
                }
                Field::Size(bytes) => map.serialize_entry(&format!("{name}_bytes"), bytes)?,
            }
        }
        map.end()
    }
}

/// A time span as people say it, rounded down to two units: `250ms`, `59.9s`, `1m 30s`, `23d 3h`. The second is left
/// out where nothing is left over, as in `1m`.
fn show_about(duration: Duration) -> String {
    const SECOND: u128 = 1_000;
    const MINUTE: u128 = 60 * SECOND;
    const HOUR: u128 = 60 * MINUTE;
    const DAY: u128 = 24 * HOUR;
    let ms = duration.as_millis();
    if ms < SECOND {
        return format!("{ms}ms");
    }
    if ms < MINUTE {
        return match ms % SECOND {
            0 => format!("{}s", ms / SECOND),
            rest => format!("{}.{}s", ms / SECOND, rest / 100),
        };
    }
    let (large, large_name, small, small_name) = if ms < HOUR {
        (MINUTE, "m", SECOND, "s")
    } else if ms < DAY {
        (HOUR, "h", MINUTE, "m")
    } else {
        (DAY, "d", HOUR, "h")
    };
    let count = ms / large;
    match ms % large {
        0 => format!("{count}{large_name}"),
        rest => format!("{count}{large_name} {}{small_name}", rest / small),
    }
}

/// Bytes as hexadecimal digits.
#[must_use]
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(
        String::with_capacity(bytes.len() * 2),
        |mut digits, byte| {
            // Writing into a string does not fail.
            let _ = write!(digits, "{byte:02x}");
            digits
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &[u8]) -> Field {
        Field::Bytes(text.to_vec())
    }

    /// What `print` prints.
    fn printed(
        output: Output,
        hex: bool,
        print: impl FnOnce(&mut Printer<'_>) -> io::Result<()>,
    ) -> String {
        let mut out = Vec::new();
        print(&mut Printer::new(&mut out, output, hex)).expect("a vector takes everything");
        String::from_utf8(out).expect("UTF-8")
    }

    fn entries(printer: &mut Printer<'_>) -> io::Result<()> {
        let mut rows = printer.rows(&["key", "value", "modified_at"]);
        rows.push(vec![bytes(b"a"), bytes(b"line\nbreak"), 7.into()])?;
        rows.push(vec![bytes(b"\xFFz"), Field::Absent, 12345.into()])?;
        assert_eq!(rows.finish()?, 2);
        Ok(())
    }

    #[test]
    fn a_table_aligns_columns_and_escapes_bytes() {
        assert_eq!(
            printed(Output::Table, false, entries),
            "KEY    VALUE        MODIFIED AT\n\
             a      line\\nbreak            7\n\
             \\xffz  -                  12345\n"
        );
    }

    #[test]
    fn json_is_one_object_per_line_in_the_order_of_columns() {
        assert_eq!(
            printed(Output::Json, false, entries),
            "{\"key\":\"a\",\"value\":\"line\\nbreak\",\"modified_at\":7}\n\
             {\"key_base64\":\"/3o=\",\"value\":null,\"modified_at\":12345}\n"
        );
    }

    #[test]
    fn hex_shows_bytes_as_digits() {
        let one = |printer: &mut Printer<'_>| printer.record(&[("key", bytes(b"a\xFF"))]);
        assert_eq!(printed(Output::Table, true, one), "key  61ff\n");
        assert_eq!(printed(Output::Json, true, one), "{\"key_hex\":\"61ff\"}\n");
    }

    #[test]
    fn a_record_shows_every_kind_of_field() {
        let attributes = Attributes::from([("a".into(), "1".into()), ("b".into(), "x\ty".into())]);
        let record = |printer: &mut Printer<'_>| {
            printer.record(&[
                ("name", "é".into()),
                ("lease_id", 1.into()),
                ("ratio", Field::Real(1.5)),
                ("ok", Field::Flag(true)),
                ("attributes", Field::Attributes(attributes.clone())),
                ("kinds", Field::List(vec!["x".into(), "y".into()])),
                ("none", None::<u64>.into()),
            ])
        };
        assert_eq!(
            printed(Output::Table, false, record),
            "name        é\nlease id    1\nratio       1.500\nok          yes\nattributes  a=1 \
             b=x\\ty\nkinds       x, y\nnone        -\n"
        );
        assert_eq!(
            printed(Output::Json, false, record),
            "{\"name\":\"é\",\"lease_id\":1,\"ratio\":1.5,\"ok\":true,\"attributes\":{\"a\":\"1\",\
             \"b\":\"x\\ty\"},\"kinds\":[\"x\",\"y\"],\"none\":null}\n"
        );
    }

    /// Counts, durations and sizes were text in JSON: `"node":"4039"`, `"remaining":"1999825911ns"`.
    #[test]
    fn json_has_numbers_where_people_read_units() {
        let record = |printer: &mut Printer<'_>| {
            printer.record(&[
                ("kinds", Field::Counts([("node".into(), 4_039)].into())),
                (
                    "remaining",
                    Field::Duration(Duration::from_nanos(1_999_825_911)),
                ),
                ("view", Field::Size(1_536)),
            ])
        };
        assert_eq!(
            printed(Output::Table, false, record),
            "kinds      node=4039\nremaining  1.9s\nview       1.5 KiB\n"
        );
        assert_eq!(
            printed(Output::Json, false, record),
            "{\"kinds\":{\"node\":4039},\"remaining_ms\":1999,\"view_bytes\":1536}\n"
        );
    }

    #[test]
    fn time_spans_read_as_people_say_them() {
        for (ms, expected) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (59_996, "59.9s"),
            (60_000, "1m"),
            (60_004, "1m 0s"),
            (90_000, "1m 30s"),
            (3_599_999, "59m 59s"),
            (7_200_000, "2h"),
            (7_260_000, "2h 1m"),
            (86_400_000, "1d"),
            (1_999_825_911, "23d 3h"),
        ] {
            assert_eq!(show_about(Duration::from_millis(ms)), expected);
        }
    }

    #[test]
    fn no_rows_print_nothing() {
        for output in [Output::Table, Output::Json] {
            let none = |printer: &mut Printer<'_>| printer.rows(&["key"]).finish().map(drop);
            assert_eq!(printed(output, false, none), "");
        }
    }

    #[test]
    fn long_tables_come_in_chunks_under_one_header_and_stay_aligned() {
        let text = printed(Output::Table, false, |printer| {
            let mut rows = printer.rows(&["key", "n"]);
            rows.push(vec!["a long key".into(), 1.into()])?;
            rows.flush()?;
            for n in 0..2 * CHUNK_ROWS as u64 {
                rows.push(vec!["k".into(), n.into()])?;
                assert!(rows.rows.len() < CHUNK_ROWS);
            }
            rows.finish().map(drop)
        });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2 + 2 * CHUNK_ROWS);
        assert_eq!(lines.iter().filter(|line| line.contains("KEY")).count(), 1);
        assert_eq!(lines[1], "a long key  1");
        assert_eq!(lines[2].find('k'), Some(0));
        assert_eq!(lines[2].len() - lines[2].trim_end_matches('0').len(), 1);
        assert!(
            lines[2..]
                .iter()
                .all(|line| line.len() > "a long key  ".len()),
            "{}",
            lines[2]
        );
    }

    /// JSON has no escapes of its own for most of what a terminal obeys, and an encoder lets it through.
    #[test]
    fn nothing_reaches_the_terminal_that_could_command_it() {
        let evil = "a\u{1B}]0;x\u{7}\u{9B}2J\u{202E}\u{2066}\u{2028}\u{7F}\nz";
        for output in [Output::Table, Output::Json] {
            let text = printed(output, false, |printer| {
                let attributes = Attributes::from([(evil.to_owned(), evil.into())]);
                printer.record(&[
                    ("text", evil.into()),
                    ("bytes", bytes(evil.as_bytes())),
                    ("list", Field::List(vec![evil.to_owned()])),
                    ("attributes", Field::Attributes(attributes)),
                ])?;
                let mut rows = printer.rows(&["key"]);
                rows.push(vec![bytes(evil.as_bytes())])?;
                rows.finish().map(drop)
            });
            let shown = |c: char| c == '\n' || text::is_plain(c);
            assert!(text.chars().all(shown), "{text:?}");
            if output == Output::Json {
                for line in text.lines().take(1) {
                    let read: serde_json::Value = serde_json::from_str(line).unwrap();
                    assert_eq!(read["text"], evil);
                    assert_eq!(read["attributes"][evil], evil);
                }
            }
        }
    }
}
