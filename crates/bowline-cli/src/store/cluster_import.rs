//! Importing into a cluster.
//!
//! Each batch is read first, then what differs is written: the graph at one revision, and the keys after
//! it. Nothing else may write the same blocks, edges and keys meanwhile, or what it wrote in between is
//! replaced. A cluster takes requests of a limited size, so a large batch is written in several.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::future::IntoFuture;

use bowline::{BlockId, Error, Revision};
use bowline_client::graph as wire;
use bowline_client::{Operation, OperationReply};
use bytes::Bytes;

use super::cluster_graph::{RemoteGraph, RemoteGraphs};
use super::resolve::id_of;
use super::sink::{Imported, Sink, refusal_text};
use crate::exit::Failure;
use crate::import::{Item, Position, Refusal};

/// The most operations that a server takes in a transaction, unless it is told to take more or fewer.
const OPERATIONS_MAX: usize = 100;

/// The most writes of the graph in one request, and about the most bytes of either sort.
const WRITES_MAX: usize = 5_000;
const BYTES_MAX: usize = 1 << 20;
/// The largest item: what a server takes in one request as it comes, without what goes around it.
const ITEM_BYTES_MAX: usize = (2 << 20) - (1 << 10);

/// What the cluster has of what a batch speaks of.
struct Known {
    /// `None` for one of which it is only known that it is there.
    blocks: HashMap<BlockId, Option<bowline::Block>>,
    edges: HashMap<wire::EdgeKey, bowline::Edge>,
    keys: BTreeMap<Vec<u8>, Bytes>,
}

/// What is to be written.
#[derive(Default)]
struct Pending {
    graph: Vec<wire::GraphWrite>,
    graph_bytes: usize,
    puts: Vec<(Vec<u8>, Vec<u8>)>,
    put_bytes: usize,
    put_keys: HashSet<Vec<u8>>,
}

fn key_of(edge: &crate::import::Edge) -> wire::EdgeKey {
    let (source, target) = (id_of(&edge.source), id_of(&edge.target));
    wire::EdgeKey::new(source, &*edge.kind, target)
}

impl RemoteGraph<'_> {
    fn known(&self, items: &[(Position, Item)]) -> Result<Known, Failure> {
        let (mut whole, mut ends) = (BTreeSet::new(), BTreeSet::new());
        let (mut edges, mut keys) = (BTreeSet::new(), BTreeSet::new());
        for (_, item) in items {
            match item {
                Item::Block(block) => drop(whole.insert(id_of(&block.block))),
                Item::Edge(edge) => {
                    ends.extend([id_of(&edge.source), id_of(&edge.target)]);
                    edges.insert(key_of(edge));
                }
                Item::KeyValue(pair) => drop(keys.insert(pair.key.clone())),
            }
        }
        let whole: Vec<_> = whole.into_iter().collect();
        let ends: Vec<_> = ends.into_iter().collect();
        let mut blocks = HashMap::new();
        if !ends.is_empty() {
            let found = self.blocks(&ends, false)?.into_iter();
            blocks.extend(found.map(|block| (block.id, None)));
        }
        if !whole.is_empty() {
            let found = self.blocks(&whole, true)?.into_iter();
            blocks.extend(found.map(|block| (block.id, Some(block))));
        }
        let edges = if edges.is_empty() {
            HashMap::new()
        } else {
            self.ask(async |graph, level, revision| {
                let asked = graph.edges(edges).level(level).revision(revision);
                let reply = asked.await?;
                let found = reply.edges.into_iter();
                let found = found.map(|found| (found.key(), found)).collect();
                Ok((found, reply.revision))
            })?
        };
        Ok(Known {
            blocks,
            edges,
            keys: self.of.known_keys(keys)?,
        })
    }
}

impl RemoteGraphs {
    fn known_keys(&self, keys: BTreeSet<Vec<u8>>) -> Result<BTreeMap<Vec<u8>, Bytes>, Failure> {
        let mut known = BTreeMap::new();
        let keys: Vec<_> = keys.into_iter().filter(|key| !key.is_empty()).collect();
        for keys in keys.chunks(OPERATIONS_MAX) {
            let reads = keys.iter().cloned().map(Operation::get);
            let txn = self.remote.client.txn().then(reads);
            for reply in self.remote.wait(txn.into_future())?.replies {
                if let OperationReply::Get(found) = reply {
                    let entries = found.entries.into_iter();
                    known.extend(entries.map(|entry| (entry.key.to_vec(), entry.value)));
                }
            }
        }
        Ok(known)
    }

    fn write_graph(&self, pending: &mut Pending) -> Result<(), Failure> {
        pending.graph_bytes = 0;
        let writes = std::mem::take(&mut pending.graph);
        if !writes.is_empty() {
            self.remote.wait(self.graph.write(writes).into_future())?;
        }
        Ok(())
    }

    fn write_keys(&self, pending: &mut Pending) -> Result<(), Failure> {
        pending.put_bytes = 0;
        pending.put_keys.clear();
        let puts = std::mem::take(&mut pending.puts).into_iter();
        let puts: Vec<_> = puts
            .map(|(key, value)| Operation::put(key, value))
            .collect();
        if !puts.is_empty() {
            let txn = self.remote.client.txn().then(puts);
            self.remote.wait(txn.into_future())?;
        }
        Ok(())
    }

    fn push_graph(
        &self,
        pending: &mut Pending,
        write: wire::GraphWrite,
        bytes: usize,
    ) -> Result<(), Failure> {
        let is_full = pending.graph.len() >= WRITES_MAX || pending.graph_bytes + bytes > BYTES_MAX;
        if is_full {
            self.write_graph(pending)?;
        }
        pending.graph_bytes += bytes;
        pending.graph.push(write);
        Ok(())
    }

    /// Plans one item. Tells whether it changes something; an error of the library refuses the item.
    fn plan(
        &self,
        item: &Item,
        known: &mut Known,
        pending: &mut Pending,
    ) -> Result<Result<bool, Error>, Failure> {
        let bytes = item.size_bytes();
        if bytes > ITEM_BYTES_MAX {
            return Ok(Err(Error::ValueTooLarge {
                size: bytes as u64,
                limit: ITEM_BYTES_MAX as u64,
            }));
        }
        match item {
            Item::KeyValue(pair) => {
                if pair.key.is_empty() {
                    return Ok(Err(Error::EmptyKey));
                }
                if known
                    .keys
                    .get(&pair.key)
                    .is_some_and(|old| old == &pair.value)
                {
                    return Ok(Ok(false));
                }
                // A key changes once in a transaction.
                if pending.puts.len() >= OPERATIONS_MAX
                    || pending.put_bytes + bytes > BYTES_MAX
                    || pending.put_keys.contains(&pair.key)
                {
                    self.write_keys(pending)?;
                }
                pending.put_bytes += bytes;
                pending.put_keys.insert(pair.key.clone());
                pending.puts.push((pair.key.clone(), pair.value.clone()));
                known
                    .keys
                    .insert(pair.key.clone(), pair.value.clone().into());
            }
            Item::Block(block) => {
                let id = id_of(&block.block);
                let new = bowline::Block {
                    id,
                    kind: block.kind.clone(),
                    content: block.content.clone().into(),
                    attributes: block.attributes.clone(),
                };
                if let Some(old) = known.blocks.get(&id)
                    && (block.if_absent || old.as_ref() == Some(&new))
                {
                    return Ok(Ok(false));
                }
                self.push_graph(pending, wire::GraphWrite::PutBlock(new.clone()), bytes)?;
                known.blocks.insert(id, Some(new));
            }
            Item::Edge(item) => {
                for id in [id_of(&item.source), id_of(&item.target)] {
                    if !known.blocks.contains_key(&id) {
                        return Ok(Err(Error::MissingBlock { id }));
                    }
                }
                let key = key_of(item);
                let new = key.clone().with_attributes(item.attributes.clone());
                if known.edges.get(&key) == Some(&new) {
                    return Ok(Ok(false));
                }
                self.push_graph(pending, wire::GraphWrite::PutEdge(new.clone()), bytes)?;
                known.edges.insert(key, new);
            }
        }
        Ok(Ok(true))
    }
}

impl Sink for RemoteGraphs {
    fn write(
        &self,
        items: &[(Position, Item)],
        strict: bool,
    ) -> Result<(Vec<Refusal>, Imported), Failure> {
        let mut known = self.at(None)?.known(items)?;
        let mut pending = Pending::default();
        let (mut refused, mut imported) = (Vec::new(), Imported::default());
        for (at, item) in items {
            match self.plan(item, &mut known, &mut pending)? {
                Ok(changed) => imported.count(item, changed),
                Err(error) => {
                    refused.push(Refusal {
                        at: *at,
                        message: refusal_text(item, &error),
                    });
                    if strict {
                        break;
                    }
                }
            }
        }
        self.write_graph(&mut pending)?;
        self.write_keys(&mut pending)?;
        Ok((refused, imported))
    }

    fn revision(&self) -> Result<Revision, Failure> {
        self.newest()
    }
}
