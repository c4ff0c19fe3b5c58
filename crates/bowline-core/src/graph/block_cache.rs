//! [`BlockCache`]: kinds and attributes of blocks that queries have read, beside the graph view.
//!
//! The trees are the truth. A query reads the attributes of many blocks one by one, and to find and decode a record takes
//! most of its time. So what was read is held, decoded, until the block changes.
//!
//! # Algorithm
//!
//! The blocks are spread over shards by a hash of their ids. Each shard has its blocks, and the newest revision that
//! changed any block of it, held here or not. A group of commits takes the blocks that it changed out of their shards before
//! it raises `published` of the [view](super::csr); one who reads at a revision asks the cache only if that is
//! published.
//!
//! # Invariants
//!
//! - A block that is held, and was read at revision R, is that of every published revision from R on: a change of it has taken
//!   it out, and one that was read before a change of its shard is not taken in.
//! - A change raises the shard's revision, then looks whether there are blocks in it; one who takes a block in
//!   raises their number, then looks at the revision. So at least one of two at the same time sees the other.
//! - While the view does not collect changes, nothing is held and nothing taken in.
//! - Memory: an eighth of the budget for the names of attributes, and an equal part of the rest for each shard. Where that is
//!   used up, blocks are refused; a shard that has refused as many as it holds is emptied, as those that are read now are more
//!   likely to be read again.
//! - A name keeps its number for good: one who reads may have asked for it long ago.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use bowline_storage::sync::Mutex;
use bowline_storage::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use bowline_types::{AttributeValue, BlockId, IdHashing, IdMap};

use super::kind_id::KindId;
use super::record::BlockParts;

/// Each is locked by itself.
const SHARDS: usize = 64;
/// Larger ones are read from the trees.
const BLOCK_MAX_BYTES: usize = 4096;
/// What a block takes beside its attributes, and an attribute beside its value.
const BLOCK_BYTES: usize = 128;
const ATTRIBUTE_BYTES: usize = 48;
/// So many names of attributes are known at most, in this part of the budget. Blocks with others are read from the trees.
const NAMES_MAX: usize = 1 << 14;
const NAMES_PART: u64 = 8;
/// What a name takes beside its text.
const NAME_BYTES: usize = 64;
/// While changes are not collected.
const CLOSED: u64 = u64::MAX;

/// The number of an attribute's name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct NameId(u32);

/// The names that one who reads asks for.
#[derive(Debug)]
pub struct AskedNames {
    /// `None`: no block is held that has it.
    ids: Vec<Option<NameId>>,
    /// How many names were known. A block with a later one may have one that was asked for.
    known: u32,
}

/// The value of an attribute. Cloning shares a text.
#[derive(Clone, PartialEq, Debug)]
pub enum HeldValue {
    Text(Arc<str>),
    Other(AttributeValue),
}

/// Kinds and attributes of a block.
#[derive(Debug)]
pub struct HeldBlock {
    read_at: u64,
    bytes: usize,
    kinds: Box<[KindId]>,
    attributes: Box<[(NameId, HeldValue)]>,
    /// Behind the last of its names.
    names_end: u32,
}

impl HeldBlock {
    /// Its kinds, ascending.
    pub fn kinds(&self) -> &[KindId] {
        &self.kinds
    }

    /// The values of the attributes that were asked for.
    pub fn values<'a>(
        &'a self,
        asked: &'a AskedNames,
    ) -> impl Iterator<Item = Option<&'a HeldValue>> + 'a {
        let held = |name| self.attributes.iter().find(|(held, _)| *held == name);
        let value = move |name: &Option<NameId>| name.and_then(held).map(|(_, value)| value);
        asked.ids.iter().map(value)
    }
}

#[derive(Debug, Default)]
struct Blocks {
    held: IdMap<HeldBlock>,
    bytes: usize,
    refused: usize,
}

#[derive(Debug)]
struct Shard {
    /// The newest revision that changed a block of it.
    changed: AtomicU64,
    /// How many blocks are held, or about to be.
    count: AtomicUsize,
    blocks: Mutex<Blocks>,
}

/// The names of attributes that are known.
#[derive(Debug, Default)]
struct Names {
    ids: HashMap<Box<str>, NameId>,
    bytes: usize,
}

impl Names {
    /// The number of a name, which gets one if it has none; `None` where too many are known, or they would take more than
    /// `max_bytes`.
    fn number(&mut self, name: &str, max_bytes: usize) -> Option<NameId> {
        if let Some(id) = self.ids.get(name) {
            return Some(*id);
        }
        let (next, bytes) = (self.ids.len(), self.bytes + NAME_BYTES + name.len());
        if next >= NAMES_MAX || bytes > max_bytes {
            return None;
        }
        let id = NameId(u32::try_from(next).ok()?);
        self.ids.insert(name.into(), id);
        self.bytes = bytes;
        Some(id)
    }
}

/// Kinds and attributes of blocks, by id, until they change. The invariants are those of the module.
#[derive(Debug)]
pub struct BlockCache {
    shard_max_bytes: usize,
    names_max_bytes: usize,
    hashing: IdHashing,
    shards: Box<[Shard]>,
    names: Mutex<Names>,
}

impl BlockCache {
    /// One that may take so much memory, about. It is closed.
    pub fn new(max_bytes: u64) -> BlockCache {
        let shard = |_| Shard {
            changed: AtomicU64::new(CLOSED),
            count: AtomicUsize::new(0),
            blocks: Mutex::new(Blocks::default()),
        };
        let names_max_bytes = max_bytes / NAMES_PART;
        let shard_max_bytes = (max_bytes - names_max_bytes) / SHARDS as u64;
        BlockCache {
            shard_max_bytes: usize::try_from(shard_max_bytes).unwrap_or(usize::MAX),
            names_max_bytes: usize::try_from(names_max_bytes).unwrap_or(usize::MAX),
            hashing: IdHashing::default(),
            shards: (0..SHARDS).map(shard).collect(),
            names: Mutex::default(),
        }
    }

    fn shard(&self, id: BlockId) -> &Shard {
        &self.shards[self.hashing.hash_one(id) as usize % SHARDS]
    }

    /// Begins to hold blocks: all changes after `revision` will be told.
    pub(super) fn open(&self, revision: u64) {
        self.empty(revision);
    }

    /// Lets go of all blocks. Changes are not told any more.
    pub(super) fn close(&self) {
        self.empty(CLOSED);
    }

    /// A revision that may have changed any block.
    pub(super) fn all_changed(&self, revision: u64) {
        self.empty(revision);
    }

    fn empty(&self, changed: u64) {
        for shard in &self.shards {
            // The revision first, as in `changed`.
            shard.changed.store(changed, Ordering::SeqCst);
            let mut blocks = shard.blocks.lock();
            *blocks = Blocks::default();
            shard.count.store(0, Ordering::SeqCst);
        }
    }

    /// A revision that changes a block.
    #[inline]
    pub(super) fn changed(&self, id: BlockId, revision: u64) {
        let shard = self.shard(id);
        shard.changed.fetch_max(revision, Ordering::SeqCst);
        if shard.count.load(Ordering::SeqCst) > 0 {
            shard.blocks.lock().remove(id, &shard.count);
        }
    }

    /// Asks for attributes.
    pub fn names<'n>(&self, asked: impl IntoIterator<Item = &'n str>) -> AskedNames {
        let names = self.names.lock();
        AskedNames {
            ids: asked
                .into_iter()
                .map(|name| names.ids.get(name).copied())
                .collect(),
            known: names.ids.len() as u32,
        }
    }

    /// The block as of a revision that is published, if it is held and has no name that was not known when they were asked for.
    #[inline]
    pub fn visit<R>(
        &self,
        id: BlockId,
        revision: u64,
        asked: &AskedNames,
        visit: impl FnOnce(&HeldBlock) -> R,
    ) -> Option<R> {
        let shard = self.shard(id);
        if shard.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let blocks = shard.blocks.lock();
        let held = blocks.held.get(&id);
        held.filter(|held| held.read_at <= revision && held.names_end <= asked.known)
            .map(visit)
    }

    /// Takes a block in that was read at a published revision, if it is that of now, and if there is room.
    pub fn take_in(&self, id: BlockId, revision: u64, block: &BlockParts<'_>) {
        let shard = self.shard(id);
        if shard.changed.load(Ordering::Relaxed) > revision {
            return;
        }
        let Some(held) = self.decode(revision, block) else {
            return;
        };
        let mut blocks = shard.blocks.lock();
        if blocks.bytes + held.bytes > self.shard_max_bytes {
            blocks.refused += 1;
            if blocks.refused > blocks.held.len() {
                *blocks = Blocks::default();
                shard.count.store(0, Ordering::SeqCst);
            }
            return;
        }
        shard.count.fetch_add(1, Ordering::SeqCst);
        if shard.changed.load(Ordering::SeqCst) > revision {
            shard.count.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        blocks.bytes += held.bytes;
        if let Some(before) = blocks.held.insert(id, held) {
            blocks.bytes -= before.bytes;
            shard.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// `None` for what is too large, and where a name is not known and there is no room for it.
    fn decode(&self, revision: u64, block: &BlockParts<'_>) -> Option<HeldBlock> {
        let mut bytes = BLOCK_BYTES;
        let mut attributes = Vec::with_capacity(block.attributes.len());
        let mut names = self.names.lock();
        for (name, value) in block.attributes.iter() {
            bytes += ATTRIBUTE_BYTES + value.encoded_len();
            // The name is held once for all blocks, and counted there.
            if bytes + name.len() > BLOCK_MAX_BYTES {
                return None;
            }
            let id = names.number(name, self.names_max_bytes)?;
            let value = match value.as_text() {
                Some(text) => HeldValue::Text(text.into()),
                None => HeldValue::Other(value.to_value()),
            };
            attributes.push((id, value));
        }
        let ends = attributes.iter().map(|(name, _)| name.0 + 1);
        Some(HeldBlock {
            names_end: ends.max().unwrap_or(0),
            read_at: revision,
            bytes,
            kinds: block.kinds.iter().collect(),
            attributes: attributes.into(),
        })
    }

    /// How many blocks are held, and about how many bytes they and the names take.
    pub(super) fn size(&self) -> (u64, u64) {
        let mut size = (0, self.names.lock().bytes as u64);
        for shard in &self.shards {
            let blocks = shard.blocks.lock();
            size.0 += blocks.held.len() as u64;
            size.1 += blocks.bytes as u64;
        }
        size
    }
}

impl Blocks {
    fn remove(&mut self, id: BlockId, count: &AtomicUsize) {
        if let Some(before) = self.held.remove(&id) {
            self.bytes -= before.bytes;
            count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::record::{decode_block, encode_block};
    use super::*;
    use bowline_types::Block;

    fn record(kinds: &[KindId], attributes: &[(&str, AttributeValue)]) -> Vec<u8> {
        let mut block = Block::new(BlockId(1), "x");
        for (name, value) in attributes {
            block = block.attribute(*name, value.clone());
        }
        let mut bytes = Vec::new();
        encode_block(kinds, &block, &mut bytes);
        bytes
    }

    fn version(version: i64) -> Vec<u8> {
        record(&[KindId(3)], &[("version", version.into())])
    }

    fn take_in(cache: &BlockCache, id: u128, revision: u64, bytes: &[u8]) {
        let block = decode_block(bytes).expect("it decodes");
        cache.take_in(BlockId(id), revision, &block);
    }

    fn held(cache: &BlockCache, id: u128, revision: u64) -> Option<i64> {
        let asked = cache.names(["version"]);
        cache.visit(BlockId(id), revision, &asked, |block| {
            match block.values(&asked).next().flatten() {
                Some(HeldValue::Other(AttributeValue::Int(version))) => *version,
                other => panic!("{other:?}"),
            }
        })
    }

    #[test]
    fn kinds_and_attributes_are_held() {
        let cache = BlockCache::new(1 << 20);
        cache.open(0);
        let attributes = [("a", "text".into()), ("b", AttributeValue::Float(0.5))];
        let bytes = record(&[KindId(2), KindId(7)], &attributes);
        take_in(&cache, 1, 5, &bytes);
        let asked = cache.names(["b", "c", "a"]);
        let visited = cache.visit(BlockId(1), 5, &asked, |block| {
            assert_eq!(block.kinds(), [KindId(2), KindId(7)]);
            let values = block.values(&asked).map(Option::<&HeldValue>::cloned);
            let (text, float) = ("text".into(), attributes[1].1.clone());
            let expected = [
                Some(HeldValue::Other(float)),
                None,
                Some(HeldValue::Text(text)),
            ];
            assert_eq!(values.collect::<Vec<_>>(), expected);
        });
        assert_eq!(visited, Some(()));
        assert_eq!(cache.size().0, 1);
    }

    /// Names are asked for once for many blocks. One that became known meanwhile would be missing from what was asked, and
    /// its values from the answer.
    #[test]
    fn a_block_with_a_name_that_became_known_since_is_read_from_the_trees() {
        let cache = BlockCache::new(1 << 20);
        cache.open(0);
        let asked = cache.names(["a"]);
        take_in(&cache, 1, 1, &record(&[KindId(1)], &[("a", "text".into())]));
        assert_eq!(cache.visit(BlockId(1), 1, &asked, |_| ()), None);
        let asked = cache.names(["a"]);
        assert_eq!(cache.visit(BlockId(1), 1, &asked, |_| ()), Some(()));
    }

    #[test]
    fn a_block_is_held_until_it_changes_and_from_when_it_was_read() {
        let cache = BlockCache::new(1 << 20);
        take_in(&cache, 1, 5, &version(5));
        assert_eq!(held(&cache, 1, 5), None, "the cache is closed");
        cache.open(4);
        take_in(&cache, 1, 3, &version(3));
        assert_eq!(
            held(&cache, 1, 9),
            None,
            "it was read before the cache was opened"
        );
        take_in(&cache, 1, 5, &version(5));
        assert_eq!(
            [4, 5, 9].map(|at| held(&cache, 1, at)),
            [None, Some(5), Some(5)]
        );
        cache.changed(BlockId(1), 10);
        assert_eq!(held(&cache, 1, 9), None);
        take_in(&cache, 1, 9, &version(5));
        assert_eq!(held(&cache, 1, 10), None, "it was read before the change");
        take_in(&cache, 1, 10, &version(10));
        take_in(&cache, 2, 11, &version(11));
        assert_eq!([1, 2].map(|id| held(&cache, id, 11)), [Some(10), Some(11)]);
        cache.all_changed(12);
        assert_eq!([1, 2].map(|id| held(&cache, id, 12)), [None, None]);
        take_in(&cache, 1, 12, &version(12));
        cache.close();
        take_in(&cache, 2, 13, &version(13));
        assert_eq!([1, 2].map(|id| held(&cache, id, 13)), [None, None]);
    }

    #[test]
    fn memory_is_bounded_and_old_blocks_make_room() {
        let cache = BlockCache::new(64 << 10);
        cache.open(0);
        for id in 0..10_000 {
            take_in(&cache, id, 1, &version(1));
            assert!(cache.size().1 <= 64 << 10);
        }
        assert!(cache.size().0 > 100, "{:?}", cache.size());
        // Those that are asked for now come in, in the end.
        for _ in 0..20 {
            (0..50).for_each(|id| take_in(&cache, id, 1, &version(1)));
        }
        let found = (0..50).filter(|id| held(&cache, *id, 1).is_some()).count();
        assert!(found > 25, "{found} of 50");
        let large = record(&[KindId(3)], &[("version", "x".repeat(5000).into())]);
        cache.open(0);
        take_in(&cache, 1, 1, &large);
        assert_eq!(cache.size().0, 0);
    }

    /// Only the value of an attribute was counted: a name of a megabyte was held for good, and not told.
    #[test]
    fn a_long_name_counts_as_attributes() {
        let cache = BlockCache::new(1 << 20);
        cache.open(0);
        let name = "n".repeat(5_000);
        let long = record(&[KindId(1)], &[(name.as_str(), AttributeValue::Int(1))]);
        take_in(&cache, 1, 1, &long);
        assert_eq!(cache.size(), (0, 0));
    }

    /// The names of attributes stay when their blocks are let go of, and were charged to nothing: they took what 16,384 of
    /// them take, however small the budget, and the figures did not have them.
    #[test]
    fn names_stay_within_the_budget() {
        let cache = BlockCache::new(64 << 10);
        cache.open(0);
        for id in 0..1_000 {
            let name = format!("{id} {}", "n".repeat(200));
            let named = record(&[KindId(1)], &[(name.as_str(), AttributeValue::Int(1))]);
            take_in(&cache, id, 1, &named);
            assert!(cache.size().1 <= 64 << 10);
        }
        cache.close();
        let (blocks, bytes) = cache.size();
        assert!(blocks == 0 && bytes > 0 && bytes <= 8 << 10, "{bytes}");
        assert!(cache.names([]).known < 100);
    }

    /// What is held is what a store of all versions has.
    #[test]
    fn random_histories() {
        for seed in crate::seeds(0..30) {
            let mut random = fastrand::Rng::with_seed(seed);
            let cache = BlockCache::new(1 << 20);
            cache.open(0);
            let mut versions: BTreeMap<(u128, u64), i64> = BTreeMap::new();
            let mut published = 0_u64;
            let mut hits = 0;
            for _ in 0..2_000 {
                let id = u128::from(random.u8(..6));
                if random.u8(..10) == 0 {
                    published += 1;
                    versions.insert((id, published), published as i64);
                    cache.changed(BlockId(id), published);
                    continue;
                }
                let at = published - random.u64(0..=published.min(3));
                let newest = versions.range((id, 0)..=(id, at)).next_back();
                let is = newest.map_or(0, |(_, version)| *version);
                match held(&cache, id, at) {
                    Some(found) => {
                        assert_eq!(found, is, "seed {seed}");
                        hits += 1;
                    }
                    None => take_in(&cache, id, at, &version(is)),
                }
            }
            assert!(hits > 100, "seed {seed}: {hits}");
        }
    }
}
