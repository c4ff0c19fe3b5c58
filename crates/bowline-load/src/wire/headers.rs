//! The headers of requests, compressed as RFC 7541 says, and the status in those of answers.
//!
//! The first request on a connection puts its headers into the server's dynamic table, and the first one to another method
//! that method; each later one refers to the entries. In the other direction the table is switched off (its size is set to 0 before
//! the first request), so each block of an answer can be read by itself.

use super::way::Way;

/// What requests are for.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// The service and the method.
    pub(crate) path: &'static str,
    /// One more header.
    pub(crate) metadata: Option<(&'static str, &'static str)>,
}

/// The headers of all requests of a connection.
#[derive(Debug)]
pub(crate) struct RequestHeaders {
    /// All that differ, each once.
    entries: Vec<Entry>,
    /// The entries of a request, for each target.
    targets: Vec<Vec<usize>>,
    scheme: u8,
    /// How many entries have been put into the server's table.
    inserted: usize,
    table: Table,
}

/// One header.
#[derive(Debug)]
struct Entry {
    /// Puts it into the table.
    first: Vec<u8>,
    /// Without the table, for a server that has none.
    plain: Vec<u8>,
    /// Which one it is in the table, from the first that was put there.
    number: Option<usize>,
}

/// Whether the server has a table.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Table {
    On,
    /// The server wants a smaller one than the headers need.
    Off {
        is_told: bool,
    },
}

/// Indexes of the static table that are used here.
const METHOD_POST: u8 = 3;
const SCHEME_HTTP: u8 = 6;
const SCHEME_HTTPS: u8 = 7;
const NAME_AUTHORITY: u8 = 1;
const NAME_PATH: u8 = 4;
const NAME_CONTENT_TYPE: u8 = 31;
/// The first index of the dynamic table, which is that of its newest entry.
const DYNAMIC: u8 = 62;
/// The size of the table that every server has unless it says otherwise.
pub(crate) const TABLE_BYTES: u32 = 4_096;

impl Entry {
    /// A header whose name is in the static table.
    fn named(name: u8, value: &str) -> Entry {
        let (mut first, mut plain) = (vec![0x40 | name], Vec::new());
        string(&mut first, value);
        integer(&mut plain, 0, 4, usize::from(name));
        string(&mut plain, value);
        Entry {
            first,
            plain,
            number: None,
        }
    }

    fn unnamed(name: &str, value: &str) -> Entry {
        let (mut first, mut plain) = (vec![0x40], vec![0]);
        for block in [&mut first, &mut plain] {
            string(block, name);
            string(block, value);
        }
        Entry {
            first,
            plain,
            number: None,
        }
    }
}

impl RequestHeaders {
    pub(crate) fn new(targets: &[Target], authority: &str, way: &Way) -> RequestHeaders {
        let mut entries = vec![
            Entry::named(NAME_AUTHORITY, authority),
            Entry::named(NAME_CONTENT_TYPE, "application/grpc"),
            Entry::unnamed("te", "trailers"),
        ];
        let token = way.token.as_ref().map(|token| {
            entries.push(Entry::unnamed("token", token));
            entries.len() - 1
        });
        let mut of_targets = Vec::new();
        for target in targets {
            // Headers with a colon stand first.
            let mut own = vec![entries.len(), 0, 1, 2];
            own.extend(token);
            entries.push(Entry::named(NAME_PATH, target.path));
            if let Some((name, value)) = target.metadata {
                own.push(entries.len());
                entries.push(Entry::unnamed(name, value));
            }
            of_targets.push(own);
        }
        RequestHeaders {
            entries,
            targets: of_targets,
            scheme: match way.tls {
                Some(_) => SCHEME_HTTPS,
                None => SCHEME_HTTP,
            },
            inserted: 0,
            table: Table::On,
        }
    }

    /// The server's table has this size from now on.
    pub(crate) fn resize_table(&mut self, bytes: u32) {
        if bytes < TABLE_BYTES {
            self.table = Table::Off { is_told: false };
        }
    }

    /// Writes the block of the next request, to one of the targets.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>, target: usize) {
        if let Table::Off { is_told: false } = self.table {
            // From now on the table has no room.
            out.push(0x20);
            self.table = Table::Off { is_told: true };
        }
        out.extend_from_slice(&[0x80 | METHOD_POST, 0x80 | self.scheme]);
        for entry in &self.targets[target] {
            let entry = &mut self.entries[*entry];
            match (self.table, entry.number) {
                (Table::Off { .. }, _) => out.extend_from_slice(&entry.plain),
                (Table::On, Some(number)) => {
                    let back = self.inserted - 1 - number;
                    integer(out, 0x80, 7, usize::from(DYNAMIC) + back);
                }
                (Table::On, None) => {
                    out.extend_from_slice(&entry.first);
                    entry.number = Some(self.inserted);
                    self.inserted += 1;
                }
            }
        }
    }

    /// How long a block is at most.
    pub(crate) fn max_bytes(&self) -> usize {
        let longest = |entry: &Entry| entry.plain.len().max(entry.first.len());
        3 + self.entries.iter().map(longest).sum::<usize>()
    }
}

/// An integer with a prefix of so many bits, below which `lead` stands.
fn integer(out: &mut Vec<u8>, lead: u8, prefix_bits: u32, number: usize) {
    let limit = (1_usize << prefix_bits) - 1;
    if number < limit {
        out.push(lead | low_byte(number));
        return;
    }
    out.push(lead | low_byte(limit));
    let mut rest = number - limit;
    while rest >= 0x80 {
        out.push(low_byte(rest & 0x7f) | 0x80);
        rest >>= 7;
    }
    out.push(low_byte(rest));
}

fn low_byte(number: usize) -> u8 {
    u8::try_from(number & 0xff).unwrap_or(0)
}

fn string(out: &mut Vec<u8>, text: &str) {
    integer(out, 0, 7, text.len());
    out.extend_from_slice(text.as_bytes());
}

/// The status in the headers of an answer, if there is one.
pub(crate) fn grpc_status(block: &[u8]) -> Option<u8> {
    let mut block = Reader { rest: block };
    while let Some(&lead) = block.rest.first() {
        let prefix_bits = match lead {
            // One of the static table, of which none is the status; the dynamic one is empty.
            0x80.. => {
                block.integer(7)?;
                continue;
            }
            0x20..0x40 => {
                block.integer(5)?;
                continue;
            }
            0x40..0x80 => 6,
            _ => 4,
        };
        let is_named = block.integer(prefix_bits)? == 0;
        let name = if is_named {
            block.string()?
        } else {
            (false, &[][..])
        };
        let (is_huffman, value) = block.string()?;
        let is_status = match name {
            (false, name) => name == b"grpc-status",
            (true, name) => name == STATUS_IN_HUFFMAN,
        };
        if is_status {
            return if is_huffman {
                huffman_number(value)
            } else {
                number(value)
            };
        }
    }
    None
}

/// `grpc-status`, in the code of RFC 7541, appendix B.
const STATUS_IN_HUFFMAN: &[u8] = &[0x9a, 0xca, 0xc8, 0xb2, 0x12, 0x34, 0xda, 0x8f];

fn number(digits: &[u8]) -> Option<u8> {
    str::from_utf8(digits).ok()?.parse().ok()
}

/// A number of up to two digits in the code of RFC 7541: 0 to 2 have five bits, 3 to 9 six.
fn huffman_number(bytes: &[u8]) -> Option<u8> {
    let mut bits = bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    let mut value = 0_u8;
    let mut digits = 0;
    loop {
        let mut code = 0_u8;
        for _ in 0..5 {
            match bits.next() {
                Some(bit) => code = code << 1 | bit,
                // The rest is padding.
                None => return (digits > 0).then_some(value),
            }
        }
        let digit = match code {
            0..=2 => code,
            0b01100..=0b01111 => {
                let code = code << 1 | bits.next()?;
                // 011001 is 3.
                (code.checked_sub(0b011_001)?) + 3
            }
            0b11111 => return (digits > 0).then_some(value),
            _ => return None,
        };
        value = value.checked_mul(10)?.checked_add(digit)?;
        digits += 1;
    }
}

/// Reads a block.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn integer(&mut self, prefix_bits: u32) -> Option<usize> {
        let limit = (1_usize << prefix_bits) - 1;
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        let mut value = usize::from(*first) & limit;
        if value < limit {
            return Some(value);
        }
        for shift in (0..28).step_by(7) {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A string, and whether it is in the code of RFC 7541.
    fn string(&mut self) -> Option<(bool, &'a [u8])> {
        let is_huffman = self.rest.first()? & 0x80 != 0;
        let length = self.integer(7)?;
        let (string, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some((is_huffman, string))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes of RFC 7541 of the letters in `grpc-status`.
    #[test]
    fn the_name_in_huffman_code_is_right() {
        let codes = [
            ('g', "100110"),
            ('r', "101100"),
            ('p', "101011"),
            ('c', "00100"),
            ('-', "010110"),
            ('s', "01000"),
            ('t', "01001"),
            ('a', "00011"),
            ('u', "101101"),
        ];
        let code = |letter| codes.iter().find(|(one, _)| *one == letter).unwrap().1;
        let mut bits: String = "grpc-status".chars().map(code).collect();
        while !bits.len().is_multiple_of(8) {
            bits.push('1');
        }
        let byte = |at: usize| u8::from_str_radix(&bits[at..at + 8], 2).unwrap();
        let bytes: Vec<u8> = (0..bits.len()).step_by(8).map(byte).collect();
        assert_eq!(bytes, STATUS_IN_HUFFMAN);
    }

    #[test]
    fn the_status_is_found_in_every_form() {
        let literal = |lead: u8, value: &[u8]| {
            let mut block = vec![0x88, lead];
            string(&mut block, "content-type");
            string(&mut block, "application/grpc");
            block.push(lead);
            string(&mut block, "grpc-status");
            block.extend_from_slice(value);
            block
        };
        for lead in [0x00, 0x10, 0x40] {
            assert_eq!(grpc_status(&literal(lead, b"\x010")), Some(0));
            assert_eq!(grpc_status(&literal(lead, b"\x0214")), Some(14));
        }
        let mut coded = vec![0x20, 0x40, 0x88];
        coded.extend_from_slice(STATUS_IN_HUFFMAN);
        // 0 is 00000, 8 is 011110, 14 is 00001 011010, each with ones behind.
        for (value, expected) in [
            (&[0x81, 0x07][..], 0),
            (&[0x81, 0b0111_1011], 8),
            (&[0x82, 0b0000_1011, 0b0101_1111], 14),
        ] {
            let block = [&coded[..], value].concat();
            assert_eq!(grpc_status(&block), Some(expected), "{block:x?}");
        }
        assert_eq!(grpc_status(&[0x88, 0x40, 0x7f]), None);
        assert_eq!(grpc_status(&[]), None);
    }

    #[test]
    fn later_requests_refer_to_the_first() {
        let target = Target {
            path: "/etcdserverpb.KV/Put",
            metadata: Some(("bowline-read", "lease")),
        };
        let range = Target {
            path: "/etcdserverpb.KV/Range",
            metadata: None,
        };
        let mut headers = RequestHeaders::new(&[target, range], "127.0.0.1:2379", &Way::default());
        let mut write = |target| {
            let mut out = Vec::new();
            headers.write(&mut out, target);
            out
        };
        let fixed = [0x83, 0x86];
        assert!(write(0).len() > 60);
        let later = [66, 65, 64, 63, 62].map(|index| 0x80 | index);
        assert_eq!(write(0), [&fixed[..], &later].concat());
        // The other path is the newest entry then, and all others are one further back.
        let first = write(1);
        let (path, rest) = first[2..].split_at(first.len() - 5);
        assert!(path.ends_with(b"/etcdserverpb.KV/Range"));
        assert_eq!(rest, [66, 65, 64].map(|index| 0x80 | index));
        assert_eq!(
            write(1),
            [0x83, 0x86, 0x80 | 62, 0x80 | 66, 0x80 | 65, 0x80 | 64]
        );
        let later = [67, 66, 65, 64, 63].map(|index| 0x80 | index);
        assert_eq!(write(0), [&fixed[..], &later].concat());
        headers.resize_table(0);
        let mut write = |target| {
            let mut out = Vec::new();
            headers.write(&mut out, target);
            out
        };
        let told = write(0);
        assert_eq!(told[0], 0x20);
        assert_eq!(write(0), told[1..]);
        assert!(headers.max_bytes() >= told.len());
    }
}
