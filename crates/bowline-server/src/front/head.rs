//! The heads of requests: which call it is, and on what terms.
//!
//! A head is *hot* if it names one of the calls that are served here, or a watch, and has nothing that these
//! or HTTP/2 would treat in a special way. Every other head is relayed, also a malformed one: the library at
//! the other end of the relay refuses it in its own way. So this module only has to recognise what is usual.
//!
//! A client sends the same few bytes of indices again and again, so the newest heads are kept with their
//! blocks. A block that is known costs a comparison, as long as the dynamic table has not changed.

use std::sync::Arc;

use bowline_cluster::ReadLevel;

use super::frame::Reason;
use super::hot::Served;
use super::hpack::{Decoder, FIELD_BYTES, write_field};
use crate::credentials::Credentials;
use crate::service::Terms;

/// The head of a request.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// What is asked for, if the head is hot.
    pub(super) hot: Option<Served>,
    pub(super) terms: Terms,
    /// Whether it is one of gRPC.
    pub(super) is_grpc: bool,
    /// The length of the list of fields, with an overhead for each.
    pub(super) bytes: usize,
    /// All fields, as literals.
    pub(super) block: Vec<u8>,
    /// Whether the list of fields is longer than allowed. Then `block` has only a part of it.
    pub(super) is_too_large: bool,
}

/// The meaning of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Post,
    Scheme,
    Path(Served),
    Authority,
    Grpc,
    Level(ReadLevel),
    NeedsLeader,
    /// The token of a user.
    Token,
    /// How long the client waits.
    Deadline,
    /// It changes nothing.
    Ignored,
    /// It makes the head one to be relayed.
    Unusual,
}

impl Field {
    fn of(name: &[u8], value: &[u8]) -> Field {
        match name {
            b":method" if value == b"POST" => Field::Post,
            b":scheme" if matches!(value, b"http" | b"https") => Field::Scheme,
            b":path" => Served::of_path(value).map_or(Field::Unusual, Field::Path),
            b":authority" if !value.is_empty() && value.iter().all(is_of_authority) => {
                Field::Authority
            }
            b"content-type" => match value {
                b"application/grpc" | b"application/grpc+proto" => Field::Grpc,
                _ => Field::Unusual,
            },
            b"te" if value == b"trailers" => Field::Ignored,
            b"grpc-encoding" if value == b"identity" => Field::Ignored,
            b"bowline-read" => match value {
                b"linearizable" => Field::Level(ReadLevel::Linearizable),
                b"lease" => Field::Level(ReadLevel::Lease),
                b"eventual" => Field::Level(ReadLevel::Eventual),
                _ => Field::Unusual,
            },
            b"hasleader" if value == b"true" => Field::NeedsLeader,
            b"token" | b"authorization" => Field::Token,
            b"grpc-timeout" if value.iter().all(is_of_value) => Field::Deadline,
            b"te" | b"grpc-encoding" | b"hasleader" | b"connection" | b"content-length"
            | b"expect" | b"host" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" | b"" => Field::Unusual,
            // Pseudo-fields and everything else that is not a lower-case name.
            // A long name may come again and again, in two bytes.
            _ if name.len() > NAME_BYTES_MAX => Field::Unusual,
            _ if !name.iter().all(is_of_name) || !value.iter().all(is_of_value) => Field::Unusual,
            _ => Field::Ignored,
        }
    }
}

/// Longer names are not looked at.
const NAME_BYTES_MAX: usize = 64;

fn is_of_authority(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b".-_:[]".contains(byte)
}

fn is_of_name(byte: &u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(byte)
}

fn is_of_value(byte: &u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

/// The fields of a head that was read so far.
#[derive(Debug, Default)]
struct Seen {
    has_post: bool,
    has_scheme: bool,
    has_authority: bool,
    has_type: bool,
    path: Option<Served>,
    has_level: bool,
    has_token: bool,
    has_deadline: bool,
    /// A field that is not a pseudo-field.
    has_plain: bool,
    is_unusual: bool,
}

impl Seen {
    fn add(&mut self, field: Field, value: &[u8], terms: &mut Terms) {
        let set = |seen: &mut bool| std::mem::replace(seen, true);
        let is_pseudo = matches!(
            field,
            Field::Post | Field::Scheme | Field::Path(_) | Field::Authority
        );
        // Each pseudo-field comes once, and before all others.
        let is_wrong = match field {
            Field::Post => set(&mut self.has_post),
            Field::Scheme => set(&mut self.has_scheme),
            Field::Authority => set(&mut self.has_authority),
            Field::Path(method) => self.path.replace(method).is_some(),
            Field::Grpc => set(&mut self.has_type),
            Field::NeedsLeader => std::mem::replace(&mut terms.needs_leader, true),
            Field::Level(level) => {
                terms.level = Some(level);
                set(&mut self.has_level)
            }
            Field::Token => {
                terms.credentials = Credentials::of_token(value);
                set(&mut self.has_token)
            }
            Field::Deadline => {
                self.has_deadline = true;
                false
            }
            Field::Ignored => false,
            Field::Unusual => true,
        };
        self.is_unusual |= is_wrong || is_pseudo && self.has_plain;
        self.has_plain |= !is_pseudo;
    }

    fn hot(&self) -> Option<Served> {
        let is_whole = self.has_post && self.has_scheme && self.has_authority && self.has_type;
        // The libraries end a stream at its deadline. A call ends by itself.
        let may_last = self.path == Some(Served::Watch) && self.has_deadline;
        let is_hot = is_whole && !self.is_unusual && !may_last;
        self.path.filter(|_| is_hot)
    }
}

/// A head with the block that it came in.
#[derive(Debug)]
struct Known {
    generation: u64,
    block: Box<[u8]>,
    head: Arc<Head>,
}

/// Reads the heads of a connection.
#[derive(Debug)]
pub(super) struct HeadReader {
    decoder: Decoder<Field>,
    known: Vec<Known>,
    /// The oldest of them.
    oldest: usize,
    list_bytes_max: usize,
}

/// A client makes each of the four calls and watches, some of them with and without a level.
const KNOWN_MAX: usize = 6;
/// A longer block is not worth keeping.
const KNOWN_BYTES_MAX: usize = 256;
/// A head with a longer list is not kept.
const KNOWN_LIST_MAX: usize = 4 << 10;
/// A list that is longer, and much longer than allowed, ends the connection.
const ENDLESS_BYTES: usize = 256 << 10;

impl HeadReader {
    pub(super) fn new(list_bytes_max: usize) -> HeadReader {
        HeadReader {
            decoder: Decoder::new(Field::of),
            known: Vec::new(),
            oldest: 0,
            list_bytes_max,
        }
    }

    /// The head in a block.
    pub(super) fn read(&mut self, block: &[u8]) -> Result<Arc<Head>, Reason> {
        let generation = self.decoder.generation();
        let mut known = self.known.iter();
        if let Some(known) = known.find(|it| it.generation == generation && *it.block == *block) {
            return Ok(known.head.clone());
        }
        let mut head = Head::default();
        let mut seen = Seen::default();
        let mut list_bytes = 0;
        let list_bytes_max = self.list_bytes_max;
        // The list of an honest client may be too long, but not without end.
        let endless_bytes = list_bytes_max.saturating_mul(4).max(ENDLESS_BYTES);
        let decoded = self.decoder.decode(block, |field, name, value| {
            list_bytes += name.len() + value.len() + FIELD_BYTES;
            if list_bytes > list_bytes_max {
                head.is_too_large = true;
                return list_bytes <= endless_bytes;
            }
            seen.add(field, value, &mut head.terms);
            write_field(&mut head.block, name, value);
            true
        });
        if decoded.is_err() {
            return Err(match list_bytes > endless_bytes {
                true => Reason::EnhanceYourCalm,
                false => Reason::Compression,
            });
        }
        if !head.is_too_large {
            head.hot = seen.hot();
            head.is_grpc = seen.has_type;
            head.bytes = list_bytes;
        }
        let head = Arc::new(head);
        let is_short = block.len() <= KNOWN_BYTES_MAX && list_bytes <= KNOWN_LIST_MAX;
        if self.decoder.generation() == generation && is_short {
            self.keep(Known {
                generation,
                block: block.into(),
                head: head.clone(),
            });
        }
        Ok(head)
    }

    fn keep(&mut self, known: Known) {
        if self.known.len() < KNOWN_MAX {
            self.known.push(known);
            return;
        }
        self.known[self.oldest] = known;
        self.oldest = (self.oldest + 1) % KNOWN_MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::super::hot::HotMethod;
    use super::*;

    const USUAL: [(&str, &str); 6] = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/etcdserverpb.KV/Range"),
        (":authority", "127.0.0.1:2379"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];

    fn block(fields: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        for (name, value) in fields {
            write_field(&mut block, name.as_bytes(), value.as_bytes());
        }
        block
    }

    fn head(fields: &[(&str, &str)]) -> Arc<Head> {
        HeadReader::new(16 << 10).read(&block(fields)).unwrap()
    }

    #[test]
    fn usual_heads_are_hot() {
        let usual = head(&USUAL);
        assert_eq!(usual.hot, Some(Served::Call(HotMethod::Range)));
        assert!(!usual.terms.needs_leader && usual.terms.level.is_none());
        assert_eq!(usual.block, block(&USUAL));
        let more = [
            ("user-agent", "grpc-go/1.81"),
            ("grpc-timeout", "4999m"),
            ("grpc-accept-encoding", "gzip"),
            ("grpc-encoding", "identity"),
            ("hasleader", "true"),
            ("bowline-read", "lease"),
            ("x-trace.id", "ä\t1"),
        ];
        let more = head(&[&USUAL[..], &more].concat());
        assert_eq!(more.hot, Some(Served::Call(HotMethod::Range)));
        assert!(more.terms.needs_leader);
        assert_eq!(more.terms.level, Some(ReadLevel::Lease));
    }

    #[test]
    fn a_watch_with_a_deadline_is_left_to_the_libraries() {
        let mut fields = USUAL.to_vec();
        fields[2].1 = "/etcdserverpb.Watch/Watch";
        assert_eq!(head(&fields).hot, Some(Served::Watch));
        fields.push(("grpc-timeout", "5S"));
        assert_eq!(head(&fields).hot, None);
    }

    #[test]
    fn unusual_heads_are_not() {
        for missing in 0..5 {
            let mut fields = USUAL.to_vec();
            fields.remove(missing);
            assert_eq!(head(&fields).hot, None, "without {missing}");
        }
        for (at, twice) in USUAL.into_iter().enumerate().take(5) {
            let mut fields = USUAL.to_vec();
            fields.insert(at, twice);
            assert_eq!(head(&fields).hot, None, "{twice:?} twice");
        }
        for changed in [
            (":method", "GET"),
            (":scheme", "ftp"),
            (":path", "/etcdserverpb.KV/Compact"),
            (":authority", ""),
            (":authority", "a@b"),
            ("content-type", "application/json"),
            ("te", "gzip"),
        ] {
            let mut fields = USUAL;
            let field = fields.iter_mut().find(|field| field.0 == changed.0);
            *field.unwrap() = changed;
            assert_eq!(head(&fields).hot, None, "{changed:?}");
        }
        for added in [
            ("grpc-encoding", "gzip"),
            ("bowline-read", "maybe"),
            ("hasleader", "false"),
            ("content-length", "5"),
            ("host", "127.0.0.1"),
            ("connection", "close"),
            ("Upper", "case"),
            ("name with space", "1"),
            ("", "1"),
            ("value", "a\nb"),
            ("value", "a\0b"),
            (":protocol", "websocket"),
            (":status", "200"),
            // Behind a field that is not a pseudo-field.
            (":scheme", "http"),
        ] {
            let fields = [&USUAL[..], &[added]].concat();
            assert_eq!(head(&fields).hot, None, "{added:?}");
            assert_eq!(head(&fields).block, block(&fields));
        }
        let twice = [("bowline-read", "lease"), ("bowline-read", "eventual")];
        assert_eq!(head(&[&USUAL[..], &twice].concat()).hot, None);
        let late = [&USUAL[1..], &USUAL[..1]].concat();
        assert_eq!(head(&late).hot, None);
    }

    /// A block of indices is up to a thousand times smaller than what it stands for.
    #[test]
    fn a_list_that_is_too_long_is_not_built() {
        let mut reader = HeadReader::new(8 << 10);
        let mut entry = vec![0x40, 1, b'a'];
        super::super::hpack::write_string(&mut entry, &[b'x'; 3000]);
        let head = reader.read(&entry).unwrap();
        assert!(!head.is_too_large);
        let head = reader.read(&[0xbe; 50]).unwrap();
        assert!(head.is_too_large && head.hot.is_none());
        assert!(head.block.len() < 8 << 10);
        assert!(!reader.read(&[0xbe; 2]).unwrap().is_too_large);
        let endless = reader.read(&[0xbe; 10_000]);
        assert_eq!(endless.err(), Some(Reason::EnhanceYourCalm));
    }

    /// Two bytes refer to a long name, so it is neither copied nor looked at for each of them.
    #[test]
    fn a_long_name_costs_nothing_when_it_comes_again() {
        let mut reader = HeadReader::new(64 << 10);
        let mut entry = vec![0x40];
        super::super::hpack::write_string(&mut entry, &[b'x'; 3000]);
        entry.push(0);
        assert_eq!(reader.read(&entry).unwrap().hot, None);
        for again in [&[0x0f, 0x2f, 0][..], &[0x7e, 0]] {
            let head = reader.read(&again.repeat(60)).unwrap();
            assert!(head.is_too_large);
            let endless =
                HeadReader::new(64 << 10).read(&[&entry[..], &again.repeat(20_000)].concat());
            assert_eq!(endless.err(), Some(Reason::EnhanceYourCalm));
        }
        assert_eq!(Field::of(&[b'x'; 65], b""), Field::Unusual);
        assert_eq!(Field::of(&[b'x'; 64], b""), Field::Ignored);
    }

    #[test]
    fn known_blocks_are_not_read_again_unless_the_table_has_changed() {
        let mut reader = HeadReader::new(16 << 10);
        let mut first = Vec::new();
        for (name, value) in USUAL {
            first.push(0x40);
            super::super::hpack::write_string(&mut first, name.as_bytes());
            super::super::hpack::write_string(&mut first, value.as_bytes());
        }
        reader.read(&first).unwrap();
        let later: Vec<u8> = (0..6).rev().map(|back| 0x80 | (62 + back)).collect();
        let one = reader.read(&later).unwrap();
        assert_eq!(one.hot, Some(Served::Call(HotMethod::Range)));
        assert!(Arc::ptr_eq(&one, &reader.read(&later).unwrap()));
        for number in 0..KNOWN_MAX {
            let other = block(&[("a", &number.to_string())]);
            reader.read(&other).unwrap();
        }
        assert_eq!(reader.known.len(), KNOWN_MAX);
        let again = reader.read(&later).unwrap();
        assert!(!Arc::ptr_eq(&one, &again), "it was replaced by newer ones");
        // An insertion moves the indices.
        reader.read(&[0x40, 1, b'a', 1, b'b']).unwrap();
        let moved = reader.read(&later).unwrap();
        assert_eq!(moved.hot, None);
    }
}
