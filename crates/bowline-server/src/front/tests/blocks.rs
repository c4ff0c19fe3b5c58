//! Random lists of fields, encoded in every way that RFC 7541 allows, are what the decoder says.

use std::collections::VecDeque;

use bowline_testing::Seed;
use fastrand::Rng;

use super::super::hpack::{Decoder, FIELD_BYTES, STATIC, TABLE_BYTES};
use super::super::huffman;

type Field = (Vec<u8>, Vec<u8>);

/// An encoder that chooses at random how it says a thing.
struct Encoder {
    random: Rng,
    /// The newest one first.
    table: VecDeque<Field>,
    bytes_max: usize,
}

impl Encoder {
    fn new(random: Rng) -> Encoder {
        Encoder {
            random,
            table: VecDeque::new(),
            bytes_max: TABLE_BYTES,
        }
    }

    /// A block of fields, some of which came before.
    fn block(&mut self) -> (Vec<u8>, Vec<Field>) {
        let mut out = Vec::new();
        for _ in 0..[0, 0, 0, 1, 2][self.random.usize(..5)] {
            // A smaller table may be said before a larger one, at the beginning only.
            self.bytes_max = match self.random.u8(..4) {
                0 => 0,
                1 => TABLE_BYTES,
                _ => self.random.usize(..=TABLE_BYTES),
            };
            self.evict(0);
            integer(&mut out, 0x20, 5, self.bytes_max);
        }
        let fields: Vec<Field> = (0..self.random.usize(..12)).map(|_| self.field()).collect();
        for field in &fields {
            self.write(&mut out, field);
        }
        (out, fields)
    }

    fn field(&mut self) -> Field {
        let known = self.random.usize(..STATIC.len() + 2 * self.table.len());
        let (name, value) = self.at(known).unwrap_or_else(|| (self.text(), self.text()));
        match self.random.u8(..4) {
            0 => (name, value),
            1 | 2 => (name, self.text()),
            _ => (self.text(), self.text()),
        }
    }

    fn text(&mut self) -> Vec<u8> {
        let bytes = match self.random.u8(..20) {
            0 => 0,
            1 => self.random.usize(120..140),
            2 => self.random.usize(..5000),
            _ => self.random.usize(..20),
        };
        let is_plain = self.random.bool();
        let mut byte = || match is_plain {
            true => self.random.alphanumeric() as u8,
            false => self.random.u8(..),
        };
        (0..bytes).map(|_| byte()).collect()
    }

    /// What both tables have at a place.
    fn at(&self, at: usize) -> Option<Field> {
        match at.checked_sub(STATIC.len()) {
            Some(at) => self.table.get(at).cloned(),
            None => {
                let (name, value) = STATIC[at];
                Some((name.into(), value.into()))
            }
        }
    }

    /// One of the indices of what both tables have, beginning at 1.
    fn index(&mut self, is_meant: impl Fn(&Field) -> bool) -> Option<usize> {
        let all = 0..STATIC.len() + self.table.len();
        let places = all.filter(|at| self.at(*at).is_some_and(|field| is_meant(&field)));
        let places: Vec<usize> = places.collect();
        self.random.choice(places).map(|at| at + 1)
    }

    fn write(&mut self, out: &mut Vec<u8>, field: &Field) {
        if self.random.u8(..4) > 0
            && let Some(index) = self.index(|other| other == field)
        {
            integer(out, 0x80, 7, index);
            return;
        }
        // Inserted, not inserted, and never to be.
        let (lead, bits) = [(0x40, 6), (0x40, 6), (0, 4), (0x10, 4)][self.random.usize(..4)];
        let (name, value) = field;
        let index = self.index(|other| other.0 == *name);
        match index.filter(|_| self.random.u8(..4) > 0) {
            Some(index) => integer(out, lead, bits, index),
            None => {
                integer(out, lead, bits, 0);
                self.string(out, name);
            }
        }
        self.string(out, value);
        if lead == 0x40 {
            let bytes = name.len() + value.len() + FIELD_BYTES;
            self.evict(bytes);
            if bytes <= self.bytes_max {
                self.table.push_front(field.clone());
            }
        }
    }

    fn string(&mut self, out: &mut Vec<u8>, text: &[u8]) {
        if self.random.bool() {
            let coded = huffman::tests::encode(text);
            integer(out, 0x80, 7, coded.len());
            out.extend_from_slice(&coded);
        } else {
            integer(out, 0, 7, text.len());
            out.extend_from_slice(text);
        }
    }

    fn evict(&mut self, bytes: usize) {
        let of = |(name, value): &Field| name.len() + value.len() + FIELD_BYTES;
        while self.table.iter().map(of).sum::<usize>() + bytes > self.bytes_max
            && self.table.pop_back().is_some()
        {}
    }
}

/// Appends an integer (section 5.1) behind the bits of a lead.
fn integer(out: &mut Vec<u8>, lead: u8, bits: u32, value: usize) {
    let limit = (1 << bits) - 1;
    if value < limit {
        out.push(lead | value as u8);
        return;
    }
    out.push(lead | limit as u8);
    let mut rest = value - limit;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[test]
fn what_is_encoded_in_any_way_is_decoded() {
    const BLOCKS: usize = 60;
    for seed in Seed::fixed_and_fresh(7541, "what_is_encoded_in_any_way_is_decoded") {
        let _printed = seed.print_on_failure("what_is_encoded_in_any_way_is_decoded");
        let mut random = seed.rng();
        let (mut of_table, mut evictions) = (0, 0);
        for _ in 0..40 {
            let mut encoder = Encoder::new(random.fork());
            let mut decoder = Decoder::new(|name, value| (name.len(), value.len()));
            for _ in 0..BLOCKS {
                let before = encoder.table.len();
                let (block, fields) = encoder.block();
                evictions += usize::from(encoder.table.len() < before);
                of_table += block.iter().filter(|byte| **byte > 0xbd).count();
                let mut decoded = Vec::new();
                let whole = decoder.decode(&block, |meaning, name, value| {
                    assert_eq!(meaning, (name.len(), value.len()));
                    decoded.push((name.to_vec(), value.to_vec()));
                    true
                });
                assert_eq!(whole, Ok(()), "{block:x?}");
                assert_eq!(decoded, fields, "{block:x?}");
            }
        }
        assert!(of_table > 1000 && evictions > 100, "{of_table} {evictions}");
    }
}
