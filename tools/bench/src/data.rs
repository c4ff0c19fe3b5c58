//! Keys and values, computed from numbers: the same for every store, and checkable without a copy
//! of what was written.
//!
//! A key is spread over the whole range and ends with its number. A value begins with its number,
//! holds noise that does not compress, and is so made that the exclusive or of its words is 0. So
//! whoever checks a value reads every byte of it, whether the store copied it or points into its
//! own memory: no store gains by handing out what nobody looks at.

/// Of everything that is random here.
pub const SEED: u64 = 0xDEAD_BEEF_CAFE_BABE;
pub const KEY_BYTES: usize = 16;
pub const VALUE_BYTES: usize = 100;
pub const LARGE_VALUE_BYTES: usize = 1024;
/// Between those: longer than what Bowline keeps beside its keys, shorter than what it keeps in files of its own.
pub const MIDDLE_VALUE_BYTES: usize = 400;
/// What the user means by the size of one entry.
pub const ENTRY_BYTES: u64 = (KEY_BYTES + VALUE_BYTES) as u64;

pub type Key = [u8; KEY_BYTES];

const WORD: usize = size_of::<u64>();

/// The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): spreads numbers.
pub fn spread(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(SEED);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// The key of a number: in random order, and computed, so that a read of it costs no memory.
pub fn key(number: u64) -> Key {
    let mut key = [0; KEY_BYTES];
    key[..WORD].copy_from_slice(&spread(number).to_be_bytes());
    key[WORD..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The number a key was made of.
pub fn number_of(key: &[u8]) -> Option<u64> {
    key.last_chunk().copied().map(u64::from_be_bytes)
}

/// Writes the value of a number into the whole of `value`, at least two words long.
pub fn fill(number: u64, value: &mut [u8]) {
    let last = value.len() / WORD - 1;
    let (words, rest) = value.as_chunks_mut::<WORD>();
    let mut folded = 0;
    for (at, word) in words.iter_mut().enumerate() {
        let content = match at {
            0 => number,
            at if at == last => folded,
            at => spread(number.wrapping_mul(31).wrapping_add(at as u64)),
        };
        folded ^= content;
        *word = content.to_be_bytes();
    }
    rest.copy_from_slice(&number.to_be_bytes()[..rest.len()]);
}

pub fn value(number: u64) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    fill(number, &mut value);
    value
}

/// The value of a number at another length.
pub fn value_of_length(number: u64, length: usize) -> Vec<u8> {
    let mut value = vec![0; length];
    fill(number, &mut value);
    value
}

/// Whether these are the `length` bytes of the value of a number. Reads all of them.
pub fn is_value_of(value: &[u8], number: u64, length: usize) -> bool {
    let (words, rest) = value.as_chunks::<WORD>();
    let folded = words
        .iter()
        .fold(0, |folded, word| folded ^ u64::from_be_bytes(*word));
    value.len() == length
        && folded == 0
        && words.first() == Some(&number.to_be_bytes())
        && rest == &number.to_be_bytes()[..rest.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_value_is_checked() {
        for length in [16, VALUE_BYTES, LARGE_VALUE_BYTES] {
            let mut value = vec![0; length];
            fill(77, &mut value);
            assert!(is_value_of(&value, 77, length));
            assert!(!is_value_of(&value, 78, length));
            for at in 0..length {
                value[at] ^= 1;
                assert!(!is_value_of(&value, 77, length), "byte {at} of {length}");
                value[at] ^= 1;
            }
            value.pop();
            assert!(!is_value_of(&value, 77, length));
        }
    }

    #[test]
    fn a_key_tells_its_number() {
        assert_eq!(number_of(&key(123_456)), Some(123_456));
        assert_eq!(number_of(b"short"), None);
    }
}
