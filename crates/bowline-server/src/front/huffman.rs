//! The Huffman code of header strings (RFC 7541, appendix B).
//!
//! The code is canonical: codes of one length are consecutive numbers, in the order of their symbols. So the
//! lengths are the whole table, and the rest is computed from them at compile time. Codes of up to eight bits,
//! which are those of nearly all text, are found by one look-up; longer ones by comparing one length after the
//! other.

/// The code of the end of a string, which must not occur within one.
const END: usize = 256;
const SYMBOLS: usize = 257;
const LENGTH_MAX: usize = 30;

/// The lengths of the codes of all bytes, and of [`END`].
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The codes of one length.
#[derive(Clone, Copy)]
struct OfLength {
    first_code: u32,
    count: u32,
    /// The position of their first symbol in [`Code::symbols`].
    at: usize,
}

struct Code {
    lengths: [OfLength; LENGTH_MAX + 1],
    /// All symbols, by length and then by value.
    symbols: [u16; SYMBOLS],
    /// By the next eight bits: the symbol, and the length of its code or 0 if that is longer.
    short: [(u8, u8); 256],
}

const CODE: Code = code();

const fn code() -> Code {
    let none = OfLength {
        first_code: 0,
        count: 0,
        at: 0,
    };
    let mut code = Code {
        lengths: [none; LENGTH_MAX + 1],
        symbols: [0; SYMBOLS],
        short: [(0, 0); 256],
    };
    let (mut length, mut at, mut next) = (1, 0, 0_u32);
    while length <= LENGTH_MAX {
        next <<= 1;
        code.lengths[length] = OfLength {
            first_code: next,
            count: 0,
            at,
        };
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                code.symbols[at] = symbol as u16;
                if length <= 8 {
                    let free = 8 - length;
                    let first = (next as usize) << free;
                    let mut rest = 0;
                    while rest < 1 << free {
                        code.short[first + rest] = (symbol as u8, length as u8);
                        rest += 1;
                    }
                }
                at += 1;
                next += 1;
                code.lengths[length].count += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    code
}

/// Appends the decoded string; `None` if it is no string in this code.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Option<()> {
    static CODES: Code = CODE;
    let mut rest = coded.iter();
    // The bits not decoded yet, from the highest on; below them there are ones.
    let mut bits = u64::MAX;
    let mut have = 0_u32;
    loop {
        while have <= 56 - 8 {
            let Some(byte) = rest.next() else { break };
            let shift = 56 - have;
            bits &= !(0xff << shift);
            bits |= u64::from(*byte) << shift;
            have += 8;
        }
        let (symbol, length) = match CODES.short[(bits >> 56) as usize] {
            (_, 0) => long(&CODES, bits)?,
            (symbol, length) => (usize::from(symbol), u32::from(length)),
        };
        if length > have {
            // What remains is padding: less than a byte, of ones.
            return (have < 8 && bits == u64::MAX).then_some(());
        }
        if symbol == END {
            return None;
        }
        out.push(u8::try_from(symbol).ok()?);
        bits = bits << length | ((1 << length) - 1);
        have -= length;
    }
}

/// The symbol of a code of more than eight bits, and its length.
fn long(codes: &Code, bits: u64) -> Option<(usize, u32)> {
    for length in 9..=LENGTH_MAX {
        let of = codes.lengths[length];
        let code = u32::try_from(bits >> (64 - length)).ok()?;
        let number = code.wrapping_sub(of.first_code);
        if number < of.count {
            let symbol = codes.symbols.get(of.at + number as usize)?;
            return Some((usize::from(*symbol), u32::try_from(length).ok()?));
        }
    }
    None
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Encodes by the same lengths; the codes themselves are checked against the examples of RFC 7541.
    pub(in crate::front) fn encode(text: &[u8]) -> Vec<u8> {
        let mut bits = Vec::new();
        for byte in text {
            let length = usize::from(LENGTHS[usize::from(*byte)]);
            let of = CODE.lengths[length];
            let symbols = &CODE.symbols[of.at..of.at + of.count as usize];
            let at = symbols.iter().position(|it| *it == u16::from(*byte));
            let code = of.first_code as usize + at.unwrap();
            bits.extend((0..length).rev().map(|bit| code >> bit & 1 == 1));
        }
        while !bits.len().is_multiple_of(8) {
            bits.push(true);
        }
        let byte = |bits: &[bool]| bits.iter().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
        bits.chunks(8).map(byte).collect()
    }

    #[test]
    fn the_examples_of_the_rfc_are_decoded() {
        for (coded, text) in [
            (
                &b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"[..],
                "www.example.com",
            ),
            (b"\xa8\xeb\x10\x64\x9c\xbf", "no-cache"),
            (b"\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f", "custom-key"),
            (b"\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf", "custom-value"),
            (b"", ""),
        ] {
            let mut out = Vec::new();
            decode(coded, &mut out).unwrap();
            assert_eq!(out, text.as_bytes());
        }
    }

    #[test]
    fn every_byte_is_decoded_beside_every_other() {
        assert_eq!(CODE.lengths[5].count, 10);
        assert_eq!(CODE.lengths[30].first_code + 3, 0x3fff_ffff);
        for one in 0..=255 {
            for other in 0..=255 {
                let text = [one, other, b'a', one];
                let mut out = Vec::new();
                decode(&encode(&text), &mut out).unwrap();
                assert_eq!(out, text);
            }
        }
    }

    #[test]
    fn what_is_no_string_is_refused() {
        for coded in [
            // A byte of padding.
            &b"\xff"[..],
            b"\x1f\xff",
            // Padding of zeros: a 0 (00000), then 000.
            b"\x00",
            // The end itself, within the string and as its last code.
            b"\xff\xff\xff\xff",
            b"\xff\xff\xff\xfc\x07",
        ] {
            assert_eq!(decode(coded, &mut Vec::new()), None, "{coded:x?}");
        }
    }
}
