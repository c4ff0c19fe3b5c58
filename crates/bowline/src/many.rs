//! Reads of several keys, blocks and edges by one call.
//!
//! A read of what lies in memory is two loads that wait for each other: the slot of a hash table, then the record. Here
//! those of many keys are asked for together and waited for together, which takes a fraction of the time of as many reads
//! (`SuperVersion::get_many` in `bowline-storage`; docs/benchmarks.md, S3m).
//!
//! Invariants:
//!
//! - A result has one place for each key asked for, in the order of the keys; a key that is asked for twice is there twice.
//! - All of it is of one revision.
//! - In a transaction each key counts as read, unless the transaction wrote it: as if they were read one by one.

use std::ops::ControlFlow;

use bowline_storage::engine::Found;
use bowline_storage::{EntryKind, TreeId, Value};

use crate::graph_view::{block_of, edge_of};
use crate::reader::DbReader;
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;
use bowline_core::error::Result;
use bowline_core::graph::{self, Block, BlockId, Edge};
use bowline_core::kv::record;
use bowline_core::trees;
use bowline_core::write::mutation::Action;

/// What a call gives for several keys: one place for each.
type Places<T> = Vec<Option<T>>;

fn places<T>(count: usize) -> Places<T> {
    std::iter::repeat_with(|| None).take(count).collect()
}

impl DbReader {
    /// The newest values of several keys, in the order of the keys: all of one revision, and faster than as many calls of
    /// [`DbReader::get`].
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// db.put("a", "1")?;
    /// db.put("b", "2")?;
    /// let values = db.get_many(&["b", "absent", "a"])?;
    /// let values: Vec<_> = values.iter().map(Option::as_deref).collect();
    /// assert_eq!(values, [Some(&b"2"[..]), None, Some(b"1")]);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Closed`; `InvalidRecord`, `Storage` when a key cannot be read.
    pub fn get_many(&self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Value>>> {
        self.handle().check_open()?;
        self.snapshot().get_many(keys)
    }
}

impl Snapshot {
    /// The values of several keys, in the order of the keys. Faster than as many calls of [`Snapshot::get`].
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// db.put("a", "1")?;
    /// let snapshot = db.snapshot();
    /// db.put("b", "2")?;
    /// let values = snapshot.get_many(&["a", "b"])?;
    /// assert_eq!(values[0].as_deref(), Some(&b"1"[..]));
    /// assert_eq!(values[1], None, "it is newer than the snapshot");
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidRecord`, `Storage` when a key cannot be read.
    pub fn get_many(&self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Value>>> {
        let mut values = places(keys.len());
        self.read_many(trees::KV, keys, |place, found| {
            record::value_to(keys[place].as_ref(), found, &mut values[place])
        })?;
        Ok(values)
    }

    /// Passes each key's place and what was found of it to `read`, in no order, until `read` fails.
    fn read_many(
        &self,
        tree: TreeId,
        keys: &[impl AsRef<[u8]>],
        mut read: impl FnMut(usize, Option<Found<'_>>) -> Result<()>,
    ) -> Result<()> {
        let mut outcome = Ok(());
        let at = self.revision().get();
        let engine = &self.handle().engine;
        engine.read_many_at(tree, keys, at, |place, found| match read(place, found) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                outcome = Err(error);
                ControlFlow::Break(())
            }
        })?;
        outcome
    }

    /// The records of a tree of the graph, decoded.
    fn decode_many<T>(
        &self,
        tree: TreeId,
        keys: &[impl AsRef<[u8]>],
        decode: impl Fn(usize, &[u8]) -> Result<T>,
    ) -> Result<Places<T>> {
        let mut records = places(keys.len());
        self.read_many(tree, keys, |place, found| {
            if let Some(found) = found
                && found.kind == EntryKind::Put
            {
                records[place] = Some(decode(place, found.bytes())?);
            }
            Ok(())
        })?;
        Ok(records)
    }

    pub(crate) fn many_blocks(&self, ids: &[BlockId]) -> Result<Vec<Option<Block>>> {
        let keys: Vec<_> = ids.iter().map(|&id| graph::block_key(id)).collect();
        let kinds = &self.handle().kinds;
        self.decode_many(trees::BLOCK, &keys, |place, bytes| {
            block_of(kinds, ids[place], bytes)
        })
    }

    pub(crate) fn many_edges(
        &self,
        edges: &[(BlockId, &str, BlockId)],
    ) -> Result<Vec<Option<Edge>>> {
        let kinds = &self.handle().kinds;
        // Of a kind that was never used there is no edge.
        let known: Vec<_> = edges
            .iter()
            .enumerate()
            .filter_map(|(place, &(source, kind, target))| {
                let key = graph::edge_out_key(source, kinds.id(kind)?, target);
                Some((place, key))
            })
            .collect();
        let keys: Vec<_> = known.iter().map(|(_, key)| *key).collect();
        let found = self.decode_many(trees::EDGE_OUT, &keys, |at, bytes| {
            let (source, kind, target) = edges[known[at].0];
            edge_of(source, kind, target, &keys[at], bytes)
        })?;
        let mut all = places(edges.len());
        for ((place, _), edge) in known.iter().zip(found) {
            all[*place] = edge;
        }
        Ok(all)
    }
}

impl Transaction {
    /// The values of several keys, in the order of the keys. Sees the transaction's writes. Faster than as many calls of
    /// [`Transaction::get`].
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// db.put("from", [5])?;
    /// db.put("to", [0])?;
    /// db.transact(|tx| {
    ///     let balances = tx.get_many(&["from", "to"])?;
    ///     let balance = |place: usize| balances[place].as_ref().map_or(0, |value| value[0]);
    ///     tx.put("from", [balance(0) - 1])?;
    ///     tx.put("to", [balance(1) + 1])
    /// })?;
    /// assert_eq!(db.get("to")?.as_deref(), Some(&[1][..]));
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidRecord`, `Storage` when a key cannot be read.
    pub fn get_many(&mut self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Value>>> {
        let mut values = self.snapshot().get_many(keys)?;
        let draft = self.draft_mut();
        for (key, value) in keys.iter().zip(&mut values) {
            let key = key.as_ref();
            match draft.own(trees::KV, key) {
                Some(Action::PutEntry { value: own, .. }) => *value = Some(own.clone()),
                Some(_) => *value = None,
                None => draft.keys.push((trees::KV, key.to_vec())),
            }
        }
        Ok(values)
    }

    /// Reads several blocks, in the order of the ids. Sees the transaction's writes.
    ///
    /// ```
    /// # use bowline::{Block, BlockId};
    /// # let db = bowline::Db::in_memory()?;
    /// let ids = ["a", "b"].map(BlockId::from_name);
    /// let mut tx = db.begin();
    /// tx.put_block(&Block::new(ids[1], "host"))?;
    /// let blocks = tx.many_blocks(&ids)?;
    /// assert!(blocks[0].is_none() && blocks[1].is_some());
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidRecord`, `Storage`.
    pub fn many_blocks(&mut self, ids: &[BlockId]) -> Result<Vec<Option<Block>>> {
        let mut blocks = self.snapshot().many_blocks(ids)?;
        for (&id, block) in ids.iter().zip(&mut blocks) {
            let key = graph::block_key(id);
            if let Some(own) = self.own_record(trees::BLOCK, &key) {
                let kinds = &self.shared().kinds;
                *block = own.map(|bytes| block_of(kinds, id, bytes)).transpose()?;
            } else {
                self.draft_mut().keys.push((trees::BLOCK, key.to_vec()));
            }
        }
        Ok(blocks)
    }

    /// Reads several edges, each given by its source, kind and target, in the order asked for. Sees the transaction's
    /// writes.
    ///
    /// ```
    /// # use bowline::{Block, BlockId, Edge};
    /// # let db = bowline::Db::in_memory()?;
    /// let [a, b] = ["a", "b"].map(BlockId::from_name);
    /// let mut tx = db.begin();
    /// tx.put_block(&Block::new(a, "host"))?;
    /// tx.put_block(&Block::new(b, "host"))?;
    /// tx.put_edge(&Edge::new(a, "link", b))?;
    /// let edges = tx.many_edges(&[(a, "link", b), (b, "link", a)])?;
    /// assert!(edges[0].is_some() && edges[1].is_none());
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidRecord`, `Storage`.
    pub fn many_edges(&mut self, edges: &[(BlockId, &str, BlockId)]) -> Result<Vec<Option<Edge>>> {
        let mut found = self.snapshot().many_edges(edges)?;
        for (&(source, kind, target), edge) in edges.iter().zip(&mut found) {
            // Also notes what is read of a kind that nobody has registered.
            let Some(kind_id) = self.kind_of(source, kind, target)? else {
                continue;
            };
            let key = graph::edge_out_key(source, kind_id, target);
            if let Some(own) = self.own_record(trees::EDGE_OUT, &key) {
                *edge = own
                    .map(|bytes| edge_of(source, kind, target, &key, bytes))
                    .transpose()?;
            } else {
                self.draft_mut().keys.push((trees::EDGE_OUT, key.to_vec()));
            }
        }
        Ok(found)
    }

    /// What the transaction wrote to a record of the graph: the new one, or that it is deleted. `None` if nothing.
    fn own_record(&self, tree: TreeId, key: &[u8]) -> Option<Option<&[u8]>> {
        Some(match self.draft().own(tree, key)? {
            Action::PutRaw { value } => Some(value),
            _ => None,
        })
    }
}
