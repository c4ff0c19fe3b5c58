//! Header blocks, beside another decoder.

use super::*;

/// What another decoder says of a block.
pub enum Other {
    /// It has these fields.
    Fields(Vec<(Vec<u8>, Vec<u8>)>),
    /// It is not valid.
    Bad,
    /// It does not say, and nothing about later ones.
    Unknown,
}

/// Header blocks of one connection, each behind its length in two bytes. `other` decodes the same blocks.
pub(crate) fn header_blocks(mut data: &[u8], mut other: impl FnMut(&[u8]) -> Other) {
    const LIST_BYTES_MAX: usize = 8 << 10;
    /// More of one block is not looked at.
    const BYTES_MAX: usize = 512 << 10;
    let mut decoder = Decoder::new(|name, value| (name.len(), value.len()));
    let mut reader = HeadReader::new(LIST_BYTES_MAX);
    let mut is_compared = true;
    while let [low, high, rest @ ..] = data {
        let bytes = usize::from(u16::from_le_bytes([*low, *high]));
        let (block, rest) = rest.split_at(bytes.min(rest.len()));
        data = rest;
        let (mut fields, mut list_bytes) = (Fields::new(), 0);
        let decoded = decoder.decode(block, |meaning, name, value| {
            assert_eq!(meaning, (name.len(), value.len()));
            list_bytes += name.len() + value.len() + FIELD_BYTES;
            fields.push((name.to_vec(), value.to_vec()));
            list_bytes < BYTES_MAX
        });
        if list_bytes >= BYTES_MAX {
            return;
        }
        if is_compared {
            match (other(block), &decoded) {
                (Other::Fields(theirs), Ok(())) => assert_eq!(theirs, fields),
                (Other::Fields(theirs), Err(_)) => assert!(
                    // Other decoders take a change of the table behind a field.
                    block.iter().any(|byte| (0x20..0x40).contains(byte)),
                    "refused: {theirs:?}"
                ),
                (Other::Bad, Ok(())) => panic!("accepted: {fields:?}"),
                (Other::Bad, Err(_)) => {}
                (Other::Unknown, _) => is_compared = false,
            }
        }
        let read = reader.read(block);
        if decoded.is_err() {
            assert!(read.is_err());
            return;
        }
        let head = match read {
            Ok(head) => head,
            Err(reason) => {
                assert!(reason == Reason::EnhanceYourCalm && list_bytes > 256 << 10);
                return;
            }
        };
        assert_eq!(head.is_too_large, list_bytes > LIST_BYTES_MAX);
        assert!(head.block.len() <= list_bytes);
        if head.is_too_large {
            assert!(head.hot.is_none() && head.block.len() <= LIST_BYTES_MAX);
            continue;
        }
        assert_eq!(head.bytes, list_bytes);
        // What is relayed, and what a block means that comes again.
        let mut again = Fields::new();
        let mut plain = Decoder::new(|_, _| ());
        let visited = plain.decode(&head.block, |(), name, value| {
            again.push((name.to_vec(), value.to_vec()));
            true
        });
        assert!(visited.is_ok() && plain.generation() == 0);
        assert_eq!(again, fields);
        if head.hot.is_some() {
            let count = |name: &[u8]| fields.iter().filter(|field| field.0 == name).count();
            for name in [":method", ":scheme", ":path", ":authority", "content-type"] {
                assert_eq!(count(name.as_bytes()), 1, "{name} of a hot head");
            }
            let plain = fields.iter().position(|field| !field.0.starts_with(b":"));
            assert_eq!(plain, Some(4), "pseudo-fields come first");
        }
    }
}

/// The requests of RFC 7541, appendix C, an eviction, and heads of calls.
#[must_use]
#[cfg_attr(fuzzing, allow(dead_code))]
pub(crate) fn header_blocks_seeds() -> Vec<Vec<u8>> {
    let blocks = |blocks: &[&[u8]]| {
        let mut seed = Vec::new();
        for block in blocks {
            seed.extend_from_slice(&(block.len() as u16).to_le_bytes());
            seed.extend_from_slice(block);
        }
        seed
    };
    let mut indexed = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", PATHS[0]),
        (":authority", "127.0.0.1:2379"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        indexed.push(0x40);
        write_string(&mut indexed, name.as_bytes());
        write_string(&mut indexed, value.as_bytes());
    }
    let mut large = vec![0x40];
    write_string(&mut large, b"name");
    write_string(&mut large, &[b'x'; 3000]);
    vec![
        blocks(&[
            b"\x82\x86\x84\x41\x0fwww.example.com",
            b"\x82\x86\x84\xbe\x58\x08no-cache",
            b"\x82\x87\x85\xbf\x40\x0acustom-key\x0ccustom-value",
        ]),
        blocks(&[
            b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
            b"\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf",
            b"\x82\x87\x85\xbf\x40\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf",
        ]),
        blocks(&[b"\x3f\x45\x48\x03\x33\x30\x32", b"\x20\x3f\xe1\x1f\x10\x01a\x01b"]),
        blocks(&[&indexed, &[0xc3, 0xc2, 0xc1, 0xc0, 0xbf, 0xbe], &[0xc3, 0xc2]]),
        blocks(&[&usual_block(PATHS[1])]),
        blocks(&[&large, &[0xbe; 3], &[0xbe; 100], &large]),
    ]
}
