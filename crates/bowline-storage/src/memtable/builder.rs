//! Builds a whole memtable before it has readers: for recovery.
//!
//! The cost of an insertion is the search for the key in the hash index and in the skiplist: a walk
//! through uncached memory. A memtable without readers needs neither index yet. So the builder only
//! appends the entries, each as if its key were new. At the end it sorts them, links the versions of
//! each key, and fills skiplist and hash index in order:
//!
//! ```text
//!  insert     arena: | c 1 | a 2 | d 3 | a 4 |
//!  finish     sorted:  a 2   a 4   c 1   d 3      list: head ─► a ─► c ─► d     hash: a, c, d
//!                        ▲─prev──┘                              └─newest─► a 4
//! ```
//!
//! Entries of one key stay in the order in which they were written.
//!
//! Invariant: the result of [`MemtableBuilder::finish`] behaves like a memtable with the same insertions
//! through a [`MemtableWriter`]. It needs somewhat more memory where keys have many versions, since each
//! version has a node, and less for the hash index, which never grew.

use super::hash::{HashIndex, Tag};
use super::record::{Node, NodeAt};
use super::sort::{Sorted, key, sort};
use super::{Arena, Memtable, MemtableWriter, Tree};
use crate::{EntryKind, Error, Index, Result, Revision, TreeId};

/// An entry that is not linked yet, with its node.
#[derive(Clone, Copy)]
struct Loose {
    /// Eight bytes of its key, while it is sorted.
    prefix: u64,
    node: NodeAt,
    /// The tag of its key, so that keys are rarely compared.
    tag: Tag,
}

impl Loose {
    fn is_of_key_of(self, arena: &Arena, other: Loose) -> bool {
        self.tag == other.tag && key(arena, self) == key(arena, other)
    }
}

impl Sorted for Loose {
    fn node(self) -> NodeAt {
        self.node
    }

    fn part(self) -> u64 {
        self.prefix
    }

    fn set_part(&mut self, part: u64) {
        self.prefix = part;
    }
}

/// A memtable that is being filled and cannot be read yet.
pub(crate) struct MemtableBuilder {
    memtable: Memtable,
    /// The entries by tree.
    loose: Vec<Vec<Loose>>,
    last_revision: Revision,
}

impl std::fmt::Debug for MemtableBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemtableBuilder")
            .field("memtable", &self.memtable)
            .finish_non_exhaustive()
    }
}

impl MemtableBuilder {
    /// See [`Memtable::new`].
    #[must_use]
    pub fn new(generation: u64, trees: usize, capacity_bytes: usize) -> MemtableBuilder {
        MemtableBuilder {
            memtable: Memtable::new(generation, trees, capacity_bytes),
            loose: vec![Vec::new(); trees],
            last_revision: 0,
        }
    }

    /// See [`Memtable::writer`]. For many insertions at a time.
    pub fn writer(&mut self) -> BuilderWriter<'_> {
        BuilderWriter {
            writer: self.memtable.writer(),
            loose: &mut self.loose,
            last_revision: &mut self.last_revision,
        }
    }

    /// Puts the keys in order. From now on it can be read.
    #[must_use]
    pub fn finish(self) -> Memtable {
        let MemtableBuilder {
            memtable, loose, ..
        } = self;
        for (number, mut entries) in loose.into_iter().enumerate() {
            if entries.is_empty() {
                continue;
            }
            let (arena, tree) = (&memtable.arena, &memtable.trees[number]);
            sort(arena, &mut entries);
            let repeated = entries.windows(2);
            let repeated = repeated.filter(|pair| pair[1].is_of_key_of(arena, pair[0]));
            let keys = (entries.len() - repeated.count()) as u64;
            let (replaced, hash_bytes) = link(arena, tree, &entries, keys);
            let tree = TreeId(number as u8);
            let mut writer = memtable.writer();
            writer.appended(tree, keys, replaced, hash_bytes);
        }
        memtable
    }
}

/// Makes chains of the sorted entries of each key, and puts the keys, of which there are `keys`, into
/// list and hash. Says how many entries are out of reach, because the next one has their revision,
/// too, and what the hash takes.
fn link(arena: &Arena, tree: &Tree, entries: &[Loose], keys: u64) -> (u64, usize) {
    // What some entries need is looked at together before any of it is used: then their misses of
    // the cache overlap.
    const TOGETHER: usize = 32;
    let mut replaced = 0;
    let mut list = tree.list.filler(arena);
    let hash = tree.index.filler(keys);
    let mut last: Option<(Loose, Node<'_>)> = None;
    for some in entries.chunks(TOGETHER) {
        let look = |seen, entry: &Loose| {
            seen ^ hash.look(entry.tag) ^ Node::new(arena, entry.node).height() as u64
        };
        std::hint::black_box(some.iter().fold(0, look));
        for entry in some {
            let node = Node::new(arena, entry.node);
            if let Some((of, first)) = last {
                if entry.is_of_key_of(arena, of) {
                    let is_again = node.first().revision() == first.newest().revision();
                    replaced += u64::from(is_again);
                    first.take_version(node);
                    continue;
                }
                hash.put(of.tag, first.newest().at());
            }
            list.push(node);
            last = Some((*entry, node));
        }
    }
    if let Some((of, first)) = last {
        hash.put(of.tag, first.newest().at());
    }
    (replaced, tree.index.filled(&hash))
}

/// The right to insert into a [`MemtableBuilder`].
pub(crate) struct BuilderWriter<'a> {
    writer: MemtableWriter<'a>,
    loose: &'a mut [Vec<Loose>],
    last_revision: &'a mut Revision,
}

impl BuilderWriter<'_> {
    /// See [`MemtableWriter::has_room`]. Counts the hash as if each entry had a key of its own.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        let hashes = self.loose.iter().filter(|entries| !entries.is_empty());
        let hash_bytes = hashes.map(|entries| HashIndex::bytes_for(entries.len() as u64));
        // An empty memtable has room for its capacity.
        let hash_bytes = hash_bytes.fold(0, usize::saturating_add);
        self.writer.has_room(bytes.saturating_add(hash_bytes))
    }

    /// See [`MemtableWriter::insert`]. Revisions must not fall from one insertion to the next.
    ///
    /// # Errors
    /// As there.
    pub fn insert(
        &mut self,
        tree: TreeId,
        key: &[u8],
        revision: Revision,
        kind: EntryKind,
        value: &[u8],
    ) -> Result<()> {
        if revision < *self.last_revision {
            return Err(Error::Internal(format!(
                "revision {revision} after revision {} in a memtable",
                self.last_revision
            )));
        }
        let node = self.writer.append(tree, key, revision, kind, value)?;
        if let Some(entries) = self.loose.get_mut(usize::from(tree.0)) {
            let tag = Tag::of(key);
            entries.push(Loose {
                prefix: 0,
                node,
                tag,
            });
        }
        *self.last_revision = revision;
        Ok(())
    }

    /// See [`MemtableWriter::set_max_index`].
    pub(crate) fn set_max_index(&mut self, index: Index) {
        self.writer.set_max_index(index);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memtable::MemtableVersionCursor;

    /// Keys of every kind that the sort tells apart: short, long, with zeros, with much in common,
    /// beginnings of others.
    fn random_key(rng: &mut fastrand::Rng, shape: usize) -> Vec<u8> {
        let bytes = |rng: &mut fastrand::Rng, max: usize, values: u8| -> Vec<u8> {
            (0..rng.usize(0..=max)).map(|_| rng.u8(0..values)).collect()
        };
        match shape {
            0 => bytes(rng, 20, 255),
            1 => bytes(rng, 30, 2),
            2 => [&[7; 200][..], &rng.u32(0..5000).to_be_bytes()].concat(),
            3 => vec![0; rng.usize(0..300)],
            4 => format!("user:{:012}", rng.u32(0..4000)).into_bytes(),
            _ => vec![9; rng.usize(0..100) * 8],
        }
    }

    type Row = (Vec<u8>, Revision, EntryKind, Vec<u8>);

    fn row(cursor: &MemtableVersionCursor) -> Row {
        (
            cursor.key().to_vec(),
            cursor.revision(),
            cursor.kind(),
            cursor.value().to_vec(),
        )
    }

    /// All that a tree holds, by a walk and by a search for each key; both ways back, too.
    fn rows(memtable: &Arc<Memtable>, tree: TreeId) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut cursor = memtable.version_cursor(tree);
        cursor.seek_first();
        while cursor.valid() {
            rows.push(row(&cursor));
            cursor.next();
        }
        for wanted in &rows {
            let entry = memtable.get(tree, &wanted.0, wanted.1).expect("by hash");
            assert_eq!((entry.revision, entry.value), (wanted.1, &wanted.3[..]));
            cursor.seek(&wanted.0);
            assert!(cursor.valid() && cursor.key() == wanted.0, "by search");
        }
        let mut newest = memtable.read_cursor(tree, Revision::MAX);
        let mut keys: Vec<_> = rows.iter().map(|row| row.0.clone()).collect();
        keys.dedup();
        newest.seek_last();
        for key in keys.iter().rev() {
            assert!(newest.valid() && newest.key() == key, "backward");
            newest.prev();
        }
        assert!(!newest.valid());
        rows
    }

    #[test]
    fn it_builds_what_the_writer_builds_and_the_writer_goes_on_in_it() {
        const CASES: u64 = if cfg!(miri) { 2 } else { 60 };
        const ENTRIES: usize = if cfg!(miri) { 80 } else { 1500 };
        for seed in crate::seeds(0..CASES) {
            let mut rng = fastrand::Rng::with_seed(seed);
            let shapes: Vec<usize> = match seed % 7 {
                6 => (0..6).collect(),
                shape => vec![shape as usize],
            };
            let mut builder = MemtableBuilder::new(1, 2, 4 << 20);
            let inserted = Memtable::new(1, 2, 4 << 20);
            let mut inserted_last = Vec::new();
            let entries = rng.usize(0..ENTRIES);
            let mut revision = 1;
            for number in 0..entries + 50 {
                revision += u64::from(rng.bool());
                let tree = TreeId(u8::from(rng.u8(0..8) == 0));
                let key = random_key(&mut rng, shapes[number % shapes.len()]);
                let kind = match rng.u8(0..4) {
                    0 => EntryKind::Delete,
                    _ => EntryKind::Put,
                };
                let value = rng.u64(..).to_le_bytes();
                let insert = |memtable: &Memtable| {
                    let mut writer = memtable.writer();
                    writer.insert(tree, &key, revision, kind, &value)
                };
                insert(&inserted).expect("room");
                if number < entries {
                    let mut writer = builder.writer();
                    writer
                        .insert(tree, &key, revision, kind, &value)
                        .expect("room");
                    writer.set_max_index(number as u64);
                } else {
                    inserted_last.push((tree, key.clone(), revision, kind, value));
                }
            }
            let built = builder.finish();
            assert_eq!(built.max_index(), entries.saturating_sub(1) as u64);
            for (tree, key, revision, kind, value) in inserted_last {
                let mut writer = built.writer();
                writer
                    .insert(tree, &key, revision, kind, &value)
                    .expect("room");
            }
            assert_eq!(built.entries(), inserted.entries(), "seed {seed}");
            assert_eq!(built.max_revision(), inserted.max_revision());
            assert_eq!(built.min_revision(), inserted.min_revision());
            let (built, inserted) = (Arc::new(built), Arc::new(inserted));
            for tree in [TreeId(0), TreeId(1)] {
                assert_eq!(rows(&built, tree), rows(&inserted, tree), "seed {seed}");
                let counted = (built.tree_entries(tree), inserted.tree_entries(tree));
                assert_eq!(counted.0, counted.1, "seed {seed}");
            }
        }
    }

    #[test]
    fn what_has_no_room_or_no_tree_is_refused_and_leaves_no_trace() {
        let mut builder = MemtableBuilder::new(1, 1, 4 << 10);
        let mut writer = builder.writer();
        let put = |writer: &mut BuilderWriter<'_>, tree, key: &[u8]| {
            writer.insert(TreeId(tree), key, 1, EntryKind::Put, &[0; 500])
        };
        assert!(put(&mut writer, 1, b"a").is_err());
        let mut fitted = 0_u8;
        while put(&mut writer, 0, &[fitted]).is_ok() {
            fitted += 1;
        }
        drop(writer);
        let built = Arc::new(builder.finish());
        assert!(fitted > 3 && built.entries() == u64::from(fitted));
        assert_eq!(rows(&built, TreeId(0)).len(), usize::from(fitted));
    }
}
