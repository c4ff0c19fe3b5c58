//! Header compression (RFC 7541): a decoder for requests, and literals for replies.
//!
//! The decoder has the dynamic table that the client's encoder fills. Each entry of it carries a *meaning*,
//! which was found when the entry was inserted: later heads refer to the entry by a byte or two, and then no
//! text is compared.
//!
//! The encoder has no table, so it has no state: every field is a literal that the client must not insert.
//!
//! Invariants:
//!
//! - The table's size, as the RFC counts it, is at most [`TABLE_BYTES`].
//! - [`Decoder::generation`] changes whenever the table does: two equal blocks at one generation have the same
//!   fields.

use std::collections::VecDeque;

use bytes::Bytes;

use super::huffman;

/// The largest dynamic table, which is also the one that every client may assume.
pub(super) const TABLE_BYTES: usize = 4096;
/// The overhead of a field in the size of a table or a list.
pub(super) const FIELD_BYTES: usize = 32;

/// A larger buffer is not kept.
const KEPT_BYTES_MAX: usize = 4096;

/// The block is not valid, or `visit` did not go on: the connection cannot go on, since the table is unknown from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadBlock;

/// Finds the meaning of a field.
pub(super) type Classify<M> = fn(&[u8], &[u8]) -> M;

/// An entry of the dynamic table.
#[derive(Debug)]
struct Entry<M> {
    name: Bytes,
    value: Box<[u8]>,
    meaning: M,
}

impl<M> Entry<M> {
    fn bytes(&self) -> usize {
        self.name.len() + self.value.len() + FIELD_BYTES
    }
}

/// Decodes the header blocks of a connection.
#[derive(Debug)]
pub(super) struct Decoder<M> {
    /// The newest one first.
    entries: VecDeque<Entry<M>>,
    bytes: usize,
    /// The size that the client has chosen.
    bytes_max: usize,
    generation: u64,
    classify: Classify<M>,
    /// Name and value of a literal that is compressed.
    name: Vec<u8>,
    value: Vec<u8>,
}

impl<M: Copy> Decoder<M> {
    pub(super) fn new(classify: Classify<M>) -> Decoder<M> {
        Decoder {
            entries: VecDeque::new(),
            bytes: 0,
            bytes_max: TABLE_BYTES,
            generation: 0,
            classify,
            name: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Counts the changes of the table.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Decodes a block, and hands each field with its meaning to `visit`, which returns whether to go on.
    pub(super) fn decode(
        &mut self,
        block: &[u8],
        mut visit: impl FnMut(M, &[u8], &[u8]) -> bool,
    ) -> Result<(), BadBlock> {
        let mut input = Input { rest: block };
        let mut is_first = true;
        while let Some(lead) = input.rest.first().copied() {
            match lead {
                0x80.. => {
                    let index = input.integer(7)?;
                    self.indexed(index, &mut visit)?;
                }
                0x40..0x80 => self.literal(&mut input, 6, true, &mut visit)?,
                0x20..0x40 => {
                    // Only at the beginning of a block.
                    let bytes_max = input.integer(5)?;
                    if !is_first || bytes_max > TABLE_BYTES {
                        return Err(BadBlock);
                    }
                    self.bytes_max = bytes_max;
                    self.generation += 1;
                    self.evict(0);
                    continue;
                }
                _ => self.literal(&mut input, 4, false, &mut visit)?,
            }
            is_first = false;
        }
        for text in [&mut self.name, &mut self.value] {
            text.clear();
            text.shrink_to(KEPT_BYTES_MAX);
        }
        Ok(())
    }

    fn indexed(
        &self,
        index: usize,
        visit: &mut impl FnMut(M, &[u8], &[u8]) -> bool,
    ) -> Result<(), BadBlock> {
        let index = index.checked_sub(1).ok_or(BadBlock)?;
        if let Some((name, value)) = STATIC.get(index) {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            return match visit((self.classify)(name, value), name, value) {
                true => Ok(()),
                false => Err(BadBlock),
            };
        }
        let entry = self.entries.get(index - STATIC.len()).ok_or(BadBlock)?;
        match visit(entry.meaning, &entry.name, &entry.value) {
            true => Ok(()),
            false => Err(BadBlock),
        }
    }

    fn literal(
        &mut self,
        input: &mut Input<'_>,
        prefix_bits: u32,
        is_inserted: bool,
        visit: &mut impl FnMut(M, &[u8], &[u8]) -> bool,
    ) -> Result<(), BadBlock> {
        let index = input.integer(prefix_bits)?;
        // A name of the table is shared, since two bytes can refer to a long one.
        let shared = match index.checked_sub(1 + STATIC.len()) {
            Some(at) => Some(self.entries.get(at).ok_or(BadBlock)?.name.clone()),
            None => None,
        };
        let name = match (&shared, index) {
            (Some(name), _) => name,
            (None, 0) => input.string(&mut self.name)?,
            (None, index) => STATIC.get(index - 1).ok_or(BadBlock)?.0.as_bytes(),
        };
        let value = input.string(&mut self.value)?;
        let meaning = (self.classify)(name, value);
        if !visit(meaning, name, value) {
            return Err(BadBlock);
        }
        if is_inserted {
            let bytes = name.len() + value.len() + FIELD_BYTES;
            let entry = (bytes <= self.bytes_max).then(|| Entry {
                name: shared
                    .clone()
                    .unwrap_or_else(|| Bytes::copy_from_slice(name)),
                value: value.into(),
                meaning,
            });
            self.generation += 1;
            self.evict(bytes);
            if let Some(entry) = entry {
                self.bytes += bytes;
                self.entries.push_front(entry);
            }
        }
        Ok(())
    }

    /// Makes room for so many bytes; a field that is larger than the table empties it.
    fn evict(&mut self, bytes: usize) {
        while self.bytes + bytes > self.bytes_max {
            let Some(oldest) = self.entries.pop_back() else {
                return;
            };
            self.bytes -= oldest.bytes();
        }
    }
}

/// The rest of a block.
struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn byte(&mut self) -> Result<u8, BadBlock> {
        let (first, rest) = self.rest.split_first().ok_or(BadBlock)?;
        self.rest = rest;
        Ok(*first)
    }

    fn integer(&mut self, prefix_bits: u32) -> Result<usize, BadBlock> {
        let limit = (1_usize << prefix_bits) - 1;
        let mut value = usize::from(self.byte()?) & limit;
        if value < limit {
            return Ok(value);
        }
        // Five bytes are more than any length or index that is accepted.
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(BadBlock)
    }

    /// A string, which is decoded into `buffer` if it is compressed.
    fn string<'b>(&mut self, buffer: &'b mut Vec<u8>) -> Result<&'b [u8], BadBlock>
    where
        'a: 'b,
    {
        let is_huffman = self.rest.first().is_some_and(|lead| lead & 0x80 != 0);
        let bytes = self.integer(7)?;
        let (text, rest) = self.rest.split_at_checked(bytes).ok_or(BadBlock)?;
        self.rest = rest;
        match is_huffman {
            true => {
                buffer.clear();
                huffman::decode(text, buffer).ok_or(BadBlock)?;
                Ok(buffer)
            }
            false => Ok(text),
        }
    }
}

/// Appends a field with its name, as a literal that is not inserted into the table.
pub(super) fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.push(0);
    write_string(out, name);
    write_string(out, value);
}

/// Appends a string as it is.
pub(super) fn write_string(out: &mut Vec<u8>, text: &[u8]) {
    const LIMIT: usize = 0x7f;
    match u8::try_from(text.len()) {
        Ok(bytes) if usize::from(bytes) < LIMIT => out.push(bytes),
        _ => {
            out.push(0x7f);
            let mut rest = text.len() - LIMIT;
            while rest >= 0x80 {
                out.push((rest & 0x7f) as u8 | 0x80);
                rest >>= 7;
            }
            out.push(rest as u8);
        }
    }
    out.extend_from_slice(text);
}

/// The static table (RFC 7541, appendix A).
#[rustfmt::skip]
pub(super) const STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"),
    (":path", "/index.html"), (":scheme", "http"), (":scheme", "https"), (":status", "200"),
    (":status", "204"), (":status", "206"), (":status", "304"), (":status", "400"),
    (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""),
    ("accept", ""), ("access-control-allow-origin", ""), ("age", ""), ("allow", ""),
    ("authorization", ""), ("cache-control", ""), ("content-disposition", ""),
    ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""),
    ("date", ""), ("etag", ""), ("expect", ""), ("expires", ""), ("from", ""), ("host", ""),
    ("if-match", ""), ("if-modified-since", ""), ("if-none-match", ""), ("if-range", ""),
    ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""), ("location", ""),
    ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""),
    ("via", ""), ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    type Fields = Vec<(String, String)>;

    fn decode(decoder: &mut Decoder<usize>, block: &[u8]) -> Result<Fields, BadBlock> {
        let mut fields = Vec::new();
        decoder.decode(block, |meaning, name, value| {
            assert_eq!(meaning, name.len() * 1000 + value.len());
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            fields.push((text(name), text(value)));
            true
        })?;
        Ok(fields)
    }

    fn decoder() -> Decoder<usize> {
        Decoder::new(|name, value| name.len() * 1000 + value.len())
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let hex: String = hex.split_whitespace().collect();
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(byte).collect()
    }

    fn check(decoder: &mut Decoder<usize>, block: &str, fields: &[(&str, &str)], size: usize) {
        let expected: Fields = fields
            .iter()
            .map(|(a, b)| ((*a).into(), (*b).into()))
            .collect();
        assert_eq!(decode(decoder, &bytes(block)).unwrap(), expected);
        assert_eq!(decoder.bytes, size, "{block}");
    }

    /// Appendix C.2.
    #[test]
    fn single_fields_of_the_rfc_are_decoded() {
        let custom = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
        check(
            &mut decoder(),
            custom,
            &[("custom-key", "custom-header")],
            55,
        );
        let path = "040c 2f73 616d 706c 652f 7061 7468";
        check(&mut decoder(), path, &[(":path", "/sample/path")], 0);
        let secret = "1008 7061 7373 776f 7264 0673 6563 7265 74";
        check(&mut decoder(), secret, &[("password", "secret")], 0);
        check(&mut decoder(), "82", &[(":method", "GET")], 0);
    }

    /// Appendix C.3 and C.4.
    #[test]
    fn requests_of_the_rfc_are_decoded() {
        let plain = [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ];
        let huffman = [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ];
        for [first, second, third] in [plain, huffman] {
            let mut decoder = decoder();
            let host = (":authority", "www.example.com");
            let start = [
                (":method", "GET"),
                (":scheme", "http"),
                (":path", "/"),
                host,
            ];
            check(&mut decoder, first, &start, 57);
            let mut fields = start.to_vec();
            fields.push(("cache-control", "no-cache"));
            check(&mut decoder, second, &fields, 110);
            let fields = [
                (":method", "GET"),
                (":scheme", "https"),
                (":path", "/index.html"),
                host,
                ("custom-key", "custom-value"),
            ];
            check(&mut decoder, third, &fields, 164);
        }
    }

    /// Appendix C.5: responses with a table of 256 bytes, so that entries are evicted.
    #[test]
    fn evictions_of_the_rfc_are_followed() {
        let mut decoder = decoder();
        decoder.bytes_max = 256;
        let cache = ("cache-control", "private");
        let (old, new) = (
            "Mon, 21 Oct 2013 20:13:21 GMT",
            "Mon, 21 Oct 2013 20:13:22 GMT",
        );
        let place = ("location", "https://www.example.com");
        let first = "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 \
                     2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 \
                     6c65 2e63 6f6d";
        check(
            &mut decoder,
            first,
            &[(":status", "302"), cache, ("date", old), place],
            222,
        );
        let second = [(":status", "307"), cache, ("date", old), place];
        check(&mut decoder, "4803 3330 37c1 c0bf", &second, 222);
        let third = "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d \
                     54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 \
                     5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e \
                     3d31";
        let cookie = "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
        let fields = [
            (":status", "200"),
            cache,
            ("date", new),
            place,
            ("content-encoding", "gzip"),
            ("set-cookie", cookie),
        ];
        check(&mut decoder, third, &fields, 215);
    }

    #[test]
    fn a_block_that_is_not_valid_is_refused() {
        for block in [
            "80",                // index 0
            "be",                // of an empty table
            "7f ff ff ff ff 0f", // far beyond it
            "ff 80 80 80 80 80 80 01",
            "40 05 61",       // a short string
            "40 82 ff ff 00", // not in the code
            "3f e2 1f",       // a table of 4097 bytes
            "82 20",          // a change of the table behind a field
            "7e 00",          // a name of an empty table
            "00",
            "0f",
        ] {
            assert_eq!(
                decode(&mut decoder(), &bytes(block)),
                Err(BadBlock),
                "{block}"
            );
        }
        // 4096 bytes are what it has.
        assert_eq!(
            decode(&mut decoder(), &bytes("3f e1 1f 20")),
            Ok(Vec::new())
        );
    }

    #[test]
    fn equal_blocks_of_one_generation_have_the_same_fields() {
        let mut decoder = decoder();
        let insert = bytes("4001 6101 62");
        decode(&mut decoder, &insert).unwrap();
        let before = decoder.generation();
        assert_eq!(
            decode(&mut decoder, &[0xbe]).unwrap(),
            [("a".into(), "b".into())]
        );
        assert_eq!(decoder.generation(), before);
        decode(&mut decoder, &bytes("4001 6101 63")).unwrap();
        assert_ne!(decoder.generation(), before);
        assert_eq!(
            decode(&mut decoder, &[0xbe]).unwrap(),
            [("a".into(), "c".into())]
        );
        let before = decoder.generation();
        assert_eq!(decode(&mut decoder, &[0x20]), Ok(Vec::new()));
        assert_ne!(decoder.generation(), before);
        assert_eq!(decode(&mut decoder, &[0xbe]), Err(BadBlock));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut block = Vec::new();
        let mut fields = Vec::new();
        for length in [0, 1, 126, 127, 128, 254, 255, 300, 20_000] {
            let text = "x".repeat(length);
            write_field(&mut block, b"name", text.as_bytes());
            fields.push(("name".to_owned(), text));
        }
        let mut decoder = decoder();
        assert_eq!(decode(&mut decoder, &block).unwrap(), fields);
        assert_eq!(decoder.generation(), 0);
    }

    /// Any bytes: it ends without a panic, and the table stays within its bound.
    #[test]
    fn garbage_is_survived() {
        for seed in 0..2000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut decoder = decoder();
            for _ in 0..20 {
                let mut block: Vec<u8> = (0..random.usize(..60)).map(|_| random.u8(..)).collect();
                if random.bool() {
                    // Valid insertions, so that the table has something in it.
                    block.splice(..0, bytes("4003 616263 0401020304"));
                }
                let _ = decoder.decode(&block, |_, _, _| true);
                let sum: usize = decoder.entries.iter().map(Entry::bytes).sum();
                assert!(sum == decoder.bytes && sum <= decoder.bytes_max);
                assert!(decoder.bytes_max <= TABLE_BYTES);
            }
        }
    }
}
