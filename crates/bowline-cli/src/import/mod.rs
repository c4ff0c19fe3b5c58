//! Reading graphs and key-values from files, without the database.
//!
//! Three formats become one stream of [`Event`]s, in the order of the file:
//!
//! ```text
//!   Cargo.lock ──▶ cargo_lock ─┐
//!   edge list  ──▶ edge_list  ─┼──▶ Event::Item { at, item }     to be written
//!   JSON Lines ──▶ json_lines ─┘    Event::Refused(Refusal)      to be counted and shown
//! ```
//!
//! Invariants, whatever the bytes:
//!
//! * A malformed part gives one [`Refusal`] with its line and column, and reading goes on after
//!   it. Only a failing reader ends the stream early, with its `io::Error`.
//! * Memory does not grow with the file. Edge lists and JSON Lines hold one line (bounded, see
//!   [`Options::line_max_bytes`]) and what it says; `Cargo.lock` is read whole, up to
//!   [`cargo_lock::SIZE_MAX_BYTES`].
//! * The same file gives the same items, so importing it twice changes nothing: a block's id
//!   follows from its name, and blocks that an edge list only mentions are marked
//!   [`Block::if_absent`].
//!
//! Lines and columns count from 1; a column counts characters, as editors do.

pub mod cargo_lock;
mod detect;
pub mod edge_list;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod item;
pub mod json_lines;
mod lines;
mod typed;

use std::io::{self, BufRead};

pub(crate) use detect::read_head;
pub(crate) use typed::{AttributesJson, Read as AttributeJson, Shown as ValueJson};

pub use detect::{DetectError, Detected, detect};
pub use item::{
    Attributes, Block, BlockRef, Edge, Event, Format, Item, KIND_SIZE_MAX_BYTES, KeyValue,
    LABEL_ATTRIBUTE, NAME_ATTRIBUTE, Options, Position, Refusal, label, parse_uuid, show_uuid,
};

/// The steps through a file. After an `Err` there are no more.
pub type Events<'a> = Box<dyn Iterator<Item = io::Result<Event>> + 'a>;

/// Reads `input` as `format`.
///
/// ```
/// use bowline_cli::import::{self, Event, Format, Options};
///
/// let file = "# who knows whom\nann bob\nann\n";
/// let events: Vec<Event> = import::read(file.as_bytes(), Format::EdgeList, &Options::default())
///     .collect::<Result<_, _>>()?;
/// // Two blocks and one edge; the last line lacks its target.
/// assert_eq!(events.len(), 4);
/// let Event::Refused(refusal) = &events[3] else { panic!("{events:?}") };
/// assert_eq!(refusal.to_string(), "line 3, column 4: the target is missing: expected two ids");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read<'a>(input: impl BufRead + 'a, format: Format, options: &Options) -> Events<'a> {
    match format {
        Format::CargoLock => match cargo_lock::CargoLock::read(input, options) {
            Ok(events) => Box::new(events.map(Ok)),
            Err(error) => Box::new(std::iter::once(Err(error))),
        },
        Format::EdgeList => Box::new(edge_list::EdgeList::new(input, options)),
        Format::JsonLines => Box::new(json_lines::JsonLines::new(input, options)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0123abcd-4567-89ef-fedc-ba9876543210";

    #[test]
    fn ids_read_and_write_in_uuid_form() {
        let id = 0x0123_abcd_4567_89ef_fedc_ba98_7654_3210;
        assert_eq!(parse_uuid(UUID), Some(id));
        assert_eq!(parse_uuid(&UUID.to_uppercase()), Some(id));
        assert_eq!(show_uuid(id), UUID);
        assert_eq!(parse_uuid(&show_uuid(0)), Some(0));
        assert_eq!(parse_uuid(&show_uuid(u128::MAX)), Some(u128::MAX));
    }

    #[test]
    fn what_is_not_quite_a_uuid_is_a_name() {
        for text in [
            "",
            "libc",
            "0123abcd456789effedcba9876543210",
            "0123abcd-4567-89ef-fedc-ba987654321",
            "0123abcd-4567-89ef-fedc-ba98765432100",
            "0123abcd+4567-89ef-fedc-ba9876543210",
            "0123abcg-4567-89ef-fedc-ba9876543210",
            "+123abcd-4567-89ef-fedc-ba9876543210",
        ] {
            assert_eq!(BlockRef::parse(text), BlockRef::Name(text.to_owned()));
        }
        assert!(matches!(BlockRef::parse(UUID), BlockRef::Id(_)));
    }

    #[test]
    fn size_counts_what_is_on_the_heap() {
        let small = Item::KeyValue(KeyValue {
            key: vec![0; 10],
            value: vec![],
        });
        let large = Item::KeyValue(KeyValue {
            key: vec![0; 10],
            value: vec![0; 5000],
        });
        assert_eq!(large.size_bytes() - small.size_bytes(), 5000);
    }

    #[test]
    fn labels_prefer_what_people_chose() {
        let block = BlockRef::parse(UUID);
        let mut attributes = Attributes::new();
        let mut put = |key: &str, value: &str| {
            attributes.insert(key.to_owned(), value.into());
            label(&block, &attributes)
        };
        assert_eq!(put("version", "1.0.0"), UUID);
        assert_eq!(put("name", ""), UUID);
        assert_eq!(put("name", "libc"), "libc");
        assert_eq!(put("label", "libc@1.0.0"), "libc@1.0.0");
    }

    /// Whatever the bytes are: no panic, an end, and positions within the file.
    #[test]
    fn garbage_never_panics_and_is_refused_at_places_that_exist() {
        let mut random = fastrand::Rng::with_seed(0x00B0_1111);
        // Pieces that lead deep into each parser, with noise between them.
        let pieces: &[&[u8]] = &[
            b"{\"block\":{\"id\":\"0123abcd-4567-89ef-fedc-ba9876543210\",\"kind\":\"k\"}}",
            b"{\"edge\":{\"source\":\"a\",\"kind\":\"k\",\"target\":\"b\",\"attributes\":{\"a\":\"b\"}}}",
            b"{\"key\":\"\\ud800\",\"value\":\"b\"}",
            b"\"block\"",
            b"[[package]]\n",
            b"name = \"a\"\nversion = \"1.0.0\"\n",
            b"dependencies = [\"a\", \"a 1.0.0\"]\n",
            b"version = 4\n",
            b"[metadata]\n",
            b"\n",
            b"\r\n",
            b"\xEF\xBB\xBF",
            b"\xFF\xC3",
            "é".as_bytes(),
            b"1 2\n",
            b"a,b,3\n",
            b",",
            b"\"",
            b"{",
            b"}",
            b"#",
            b"\0",
        ];
        for round in 0..3_000 {
            let mut file = Vec::new();
            for _ in 0..random.usize(0..20) {
                if random.bool() {
                    file.extend_from_slice(pieces[random.usize(0..pieces.len())]);
                } else {
                    for _ in 0..random.usize(0..12) {
                        file.push(random.u8(..));
                    }
                }
            }
            let lines = file.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
            let options = Options {
                line_max_bytes: Some(200),
                ..Options::default()
            };
            for format in [Format::CargoLock, Format::EdgeList, Format::JsonLines] {
                // A tiny buffer, so that every refill happens in the middle of something.
                let input = io::BufReader::with_capacity(1 + round % 7, file.as_slice());
                let mut events = 0_usize;
                for event in read(input, format, &options) {
                    let at = match event.expect("a slice does not fail") {
                        Event::Item { at, .. } => at,
                        Event::Refused(refusal) => refusal.at,
                    };
                    assert!(
                        (1..=lines).contains(&at.line),
                        "{format} {at} of {lines} lines"
                    );
                    assert!(
                        (1..=file.len() as u64 + 1).contains(&at.column),
                        "{format} {at}"
                    );
                    events += 1;
                }
                assert!(events <= file.len() * 3 + 1, "{format}: {events} events");
            }
            let _ = detect(None, &file);
        }
    }

    /// A reader that fails after its first bytes.
    struct Failing(&'static [u8]);

    impl io::Read for Failing {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Err(io::Error::other("the cable is out"));
            }
            io::Read::read(&mut self.0, buffer)
        }
    }

    #[test]
    fn a_failing_reader_ends_the_stream_with_its_error() {
        for format in [Format::CargoLock, Format::EdgeList, Format::JsonLines] {
            let input = io::BufReader::new(Failing(b"a b\nc"));
            let events: Vec<_> = read(input, format, &Options::default()).collect();
            let (last, before) = events.split_last().expect("an error at least");
            assert_eq!(last.as_ref().unwrap_err().to_string(), "the cable is out");
            assert!(before.iter().all(Result::is_ok));
        }
    }
}
