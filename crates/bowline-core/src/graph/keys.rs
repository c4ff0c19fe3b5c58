//! Keys of blocks and edges in their trees.
//!
//! ```text
//! block     | id 16                                |
//! edge_out  | source 16 | kind 4 | target 16       |
//! edge_in   | target 16 | kind 4 | source 16       |
//! ```
//!
//! All numbers are big-endian, so the byte order is the order of (id, kind, id): the edges of a block share a
//! prefix, and so do its edges of one kind.

use super::kind_id::KindId;
use bowline_types::BlockId;

/// The key of a block in the tree `block`.
pub fn block_key(id: BlockId) -> [u8; 16] {
    id.to_bytes()
}

/// The key of an edge in the tree `edge_out`.
pub fn edge_out_key(source: BlockId, kind: KindId, target: BlockId) -> [u8; 36] {
    edge_key(source, kind, target)
}

/// The key of an edge in the tree `edge_in`.
pub fn edge_in_key(target: BlockId, kind: KindId, source: BlockId) -> [u8; 36] {
    edge_key(target, kind, source)
}

/// The key prefix of a block's edges: the leaving ones in `edge_out`, the arriving ones in `edge_in`.
pub fn edge_prefix(id: BlockId) -> [u8; 16] {
    id.to_bytes()
}

/// The key prefix of a block's edges of one kind.
pub fn edge_kind_prefix(id: BlockId, kind: KindId) -> [u8; 20] {
    let mut prefix = [0; 20];
    prefix[..16].copy_from_slice(&id.to_bytes());
    prefix[16..].copy_from_slice(&kind.0.to_be_bytes());
    prefix
}

/// Splits a key of `edge_out` (source, kind, target) or `edge_in` (target, kind, source).
pub fn split_edge_key(key: &[u8]) -> Option<(BlockId, KindId, BlockId)> {
    let (near, rest) = key.split_first_chunk::<16>()?;
    let (kind, far) = rest.split_first_chunk::<4>()?;
    let far = <[u8; 16]>::try_from(far).ok()?;
    Some((
        BlockId::from_bytes(*near),
        KindId(u32::from_be_bytes(*kind)),
        BlockId::from_bytes(far),
    ))
}

fn edge_key(near: BlockId, kind: KindId, far: BlockId) -> [u8; 36] {
    let mut key = [0; 36];
    key[..20].copy_from_slice(&edge_kind_prefix(near, kind));
    key[20..].copy_from_slice(&far.to_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edge_keys_sort_by_block_then_kind_then_block() {
        let ids = [0, 1, 0xff, 0x100, u128::MAX].map(BlockId);
        let kinds = [0, 1, 0xff, 0x100, u32::MAX].map(KindId);
        let mut parts = Vec::new();
        for near in ids {
            for kind in kinds {
                for far in ids {
                    parts.push((near, kind, far));
                }
            }
        }
        let keys: Vec<_> = parts
            .iter()
            .map(|&(a, k, b)| edge_out_key(a, k, b))
            .collect();
        assert!(keys.is_sorted_by(|a, b| a < b));
        for (key, &part) in keys.iter().zip(&parts) {
            assert_eq!(split_edge_key(key), Some(part));
            assert!(key.starts_with(&edge_prefix(part.0)));
            assert!(key.starts_with(&edge_kind_prefix(part.0, part.1)));
        }
    }

    #[test]
    fn the_two_keys_of_an_edge_mirror_each_other() {
        let (a, kind, b) = (BlockId(7), KindId(3), BlockId(9));
        assert_eq!(
            split_edge_key(&edge_out_key(a, kind, b)),
            Some((a, kind, b))
        );
        assert_eq!(split_edge_key(&edge_in_key(b, kind, a)), Some((b, kind, a)));
        assert_eq!(block_key(a), a.to_bytes());
    }

    #[test]
    fn the_layout_of_an_edge_key_is_fixed() {
        let mut expected = [0; 36];
        (expected[15], expected[19], expected[35]) = (1, 2, 3);
        assert_eq!(edge_out_key(BlockId(1), KindId(2), BlockId(3)), expected);
    }

    #[test]
    fn keys_of_another_length_are_refused() {
        for len in (0..36).chain(37..80) {
            assert_eq!(split_edge_key(&vec![0; len]), None, "{len}");
        }
    }
}
