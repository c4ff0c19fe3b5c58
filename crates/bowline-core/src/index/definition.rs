//! [`Definition`]: what an index is of, and how far it is built.

use bowline_storage::codec::{Reader, put_bytes, put_varint};
use bowline_types::{AttributeValue, BlockId, Revision};

use super::key::{self, Encoded};
use crate::error::{Error, Result, show_key};
use crate::graph::{self, KindId};

/// How many attributes an index may have.
const ATTRIBUTES_MAX: usize = 8;
/// How long the name of one may be.
const NAME_MAX_BYTES: usize = 256;

/// How far an index is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Entries of blocks behind this one may be missing; none that is there is wrong.
    Building {
        /// The last block that was looked at.
        done: Option<BlockId>,
    },
    /// All entries are there since this revision.
    Ready { since: Revision },
    /// It is no index any more; its entries are being deleted.
    Dropped,
}

/// An index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// Its number, from 1, which no other index gets.
    pub id: u32,
    pub kind: KindId,
    /// The order of the values in a key.
    pub attributes: Vec<String>,
    pub is_unique: bool,
    pub state: State,
}

const VERSION: u8 = 1;
const UNIQUE: u8 = 1;
const BUILDING: u8 = 0;
const READY: u8 = 1;
const DROPPED: u8 = 2;

impl Definition {
    /// The prefix of the keys of all definitions; the key with nothing behind it and number 0 holds the next number.
    pub const PREFIX: [u8; 4] = [0; 4];

    /// The key of the record of an index; of the number of the next one for 0.
    #[must_use]
    pub fn key_of(id: u32) -> [u8; 8] {
        let mut key = [0; 8];
        key[4..].copy_from_slice(&id.to_be_bytes());
        key
    }

    /// The key of its record.
    #[must_use]
    pub fn key(&self) -> [u8; 8] {
        Definition::key_of(self.id)
    }

    /// The prefix of its entries.
    #[must_use]
    pub fn prefix(&self) -> [u8; 4] {
        self.id.to_be_bytes()
    }

    /// Its record. When it became ready is the revision of the record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let state = match self.state {
            State::Building { .. } => BUILDING,
            State::Ready { .. } => READY,
            State::Dropped => DROPPED,
        };
        let mut out = vec![VERSION, if self.is_unique { UNIQUE } else { 0 }, state];
        put_varint(&mut out, u64::from(self.kind.0));
        put_varint(&mut out, self.attributes.len() as u64);
        for name in &self.attributes {
            put_bytes(&mut out, name.as_bytes());
        }
        if let State::Building { done: Some(id) } = self.state {
            out.extend(id.to_bytes());
        }
        out
    }

    /// Reads a record of this revision.
    pub fn decode(key: &[u8], value: &[u8], revision: Revision) -> Result<Definition> {
        let read = || {
            let id = u32::from_be_bytes(key.strip_prefix(&Definition::PREFIX)?.try_into().ok()?);
            let mut reader = Reader::new(value);
            let head = (reader.u8()?, reader.u8()?);
            let is_unique = match head {
                (VERSION, 0) => false,
                (VERSION, UNIQUE) => true,
                _ => return None,
            };
            let state = reader.u8()?;
            let kind = KindId(reader.varint_u32()?);
            let count = reader.varint_usize()?;
            if !(1..=ATTRIBUTES_MAX).contains(&count) {
                return None;
            }
            let mut attributes = Vec::with_capacity(count);
            for _ in 0..count {
                attributes.push(std::str::from_utf8(reader.bytes()?).ok()?.to_owned());
            }
            let state = match state {
                BUILDING if reader.is_empty() => State::Building { done: None },
                BUILDING => {
                    let id = BlockId::from_bytes(reader.take(16)?.try_into().ok()?);
                    State::Building { done: Some(id) }
                }
                READY => State::Ready { since: revision },
                DROPPED => State::Dropped,
                _ => return None,
            };
            (id > 0 && reader.is_empty()).then_some(Definition {
                id,
                kind,
                attributes,
                is_unique,
                state,
            })
        };
        read().ok_or_else(|| Error::InvalidRecord {
            what: "index",
            key: show_key(key),
            reason: "it is no definition that this version knows",
        })
    }

    /// Refuses attributes that no index can have.
    pub fn check_attributes(attributes: &[String]) -> Result<()> {
        let is_name = |name: &String| (1..=NAME_MAX_BYTES).contains(&name.len());
        let mut sorted: Vec<&String> = attributes.iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        let is_valid = (1..=ATTRIBUTES_MAX).contains(&attributes.len())
            && attributes.iter().all(is_name)
            && sorted.len() == attributes.len();
        match is_valid {
            true => Ok(()),
            false => Err(Error::InvalidIndex {
                attributes: attributes.join(", "),
            }),
        }
    }

    /// Whether snapshots of this revision can be read by it.
    #[must_use]
    pub fn answers(&self, revision: Revision) -> bool {
        matches!(self.state, State::Ready { since } if since <= revision)
    }

    /// The most bytes that the key of an entry has.
    #[must_use]
    pub(crate) fn entry_max_bytes(&self) -> u64 {
        (4 + self.attributes.len() * key::VALUE_MAX_BYTES + 16) as u64
    }

    /// The key of the entry of a block with this record, if it has one. A record that does not decode has none.
    #[must_use]
    pub fn entry(&self, block_key: &[u8], record: &[u8]) -> Option<Vec<u8>> {
        if !graph::block_kinds(record)?.contains(self.kind) {
            return None;
        }
        let block = graph::decode_block(record)?;
        let mut out = self.prefix().to_vec();
        for name in &self.attributes {
            let value = block.attributes.get(name)?;
            let encoded = match value.as_text() {
                // Most values are; they need no copy.
                Some(text) => key::put_text_value(text, &mut out),
                None => key::put_value(&value.to_value(), &mut out),
            };
            if !matches!(encoded, Encoded::Whole | Encoded::Cut) {
                return None;
            }
        }
        out.extend_from_slice(block_key);
        Some(out)
    }

    /// What the values in a key are of, without the block: all entries with the same values begin so.
    #[must_use]
    pub fn values_of(entry: &[u8]) -> &[u8] {
        &entry[..entry.len().saturating_sub(16)]
    }

    /// Appends the key of values.
    pub(super) fn put_values(&self, values: &[AttributeValue], out: &mut Vec<u8>) -> Encoded {
        for value in values {
            let encoded = key::put_value(value, out);
            if !matches!(encoded, Encoded::Whole | Encoded::Cut) {
                return encoded;
            }
        }
        Encoded::Whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_types::Block;

    fn definition(state: State) -> Definition {
        Definition {
            id: 7,
            kind: KindId(300),
            attributes: vec!["a".to_owned(), "größe".to_owned()],
            is_unique: true,
            state,
        }
    }

    #[test]
    fn records_round_trip_and_nothing_shorter_is_one() {
        let at = Revision::new(9);
        for state in [
            State::Building { done: None },
            State::Building {
                done: Some(BlockId(5)),
            },
            State::Ready { since: at },
            State::Dropped,
        ] {
            let index = definition(state);
            let record = index.encode();
            let read = Definition::decode(&index.key(), &record, at).expect("it is one");
            assert_eq!(read, index);
            for end in 0..record.len() {
                let cut = Definition::decode(&index.key(), &record[..end], at);
                // Without its mark, one that is being built has done nothing.
                assert!(cut.is_err() || end + 16 == record.len(), "{state:?} {end}");
            }
        }
        assert!(Definition::decode(&[0; 8], &definition(State::Dropped).encode(), at).is_err());
    }

    #[test]
    fn an_entry_needs_the_kind_and_every_attribute() {
        let index = definition(State::Dropped);
        let block = Block::new(BlockId(1), "x")
            .attribute("a", 1)
            .attribute("größe", "m");
        let entry = |kinds: &[KindId], block: &Block| {
            let mut record = Vec::new();
            graph::encode_block(kinds, block, &mut record);
            index.entry(&graph::block_key(block.id), &record)
        };
        let kinds = [KindId(2), KindId(300)];
        let found = entry(&kinds, &block).expect("it has an entry");
        assert!(found.starts_with(&index.prefix()) && found.ends_with(&BlockId(1).to_bytes()));
        assert_eq!(entry(&[KindId(2)], &block), None);
        let mut less = block.clone();
        less.attributes.remove("a");
        assert_eq!(entry(&kinds, &less), None);
        let list = AttributeValue::List(Vec::new());
        for value in [AttributeValue::Null, f64::NAN.into(), list] {
            let mut other = block.clone();
            other.attributes.insert("a".to_owned(), value);
            assert_eq!(entry(&kinds, &other), None);
        }
    }
}
