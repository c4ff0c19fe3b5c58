//! The import sink of a cluster: it writes batches of items by requests of a limited size.
//!
//! Each batch is read first, then what differs is written: the graph at one revision, and the keys after
//! it. Nothing else may write the same blocks, edges and keys meanwhile, or what it wrote in between is
//! replaced. A cluster takes requests of a limited size, so a large batch is written in several, and a large item
//! by itself: it may be the one that a server refuses.

use std::collections::{BTreeSet, HashMap};

use bowline::Error;
use bowline_client::graph::{self as wire, GraphWrite};
use bowline_client::{Code, Operation, OperationReply};
use bytes::Bytes;

use super::resolve::id_of;
use super::sink::{Imported, Unfit, Written, write_each};
use super::view::RemoteView;
use crate::exit::Failure;
use crate::import::{Item, Position, Refusal};
use crate::remote::Remote;

/// The most operations that a server takes in a transaction, unless it is told to take more or fewer.
const OPERATIONS_MAX: usize = 100;

/// The most writes of the graph in one request, and about the most bytes of either sort. A larger item is sent by itself.
const WRITES_MAX: usize = 5_000;
const BYTES_MAX: usize = 1 << 20;
/// The largest item: what a server takes in one request as it comes, without what goes around it.
const ITEM_BYTES_MAX: usize = (2 << 20) - (1 << 10);

/// A batch of items.
struct Batch<'a> {
    remote: &'a Remote,
    /// The blocks that exist; `None` for one of which no more is known.
    blocks: HashMap<wire::BlockId, Option<wire::Block>>,
    edges: HashMap<wire::EdgeKey, wire::Attributes>,
    keys: HashMap<Vec<u8>, Bytes>,
    /// Writes that have not been sent, and their bytes.
    writes: Vec<GraphWrite>,
    writes_bytes: usize,
    puts: Vec<(Vec<u8>, Vec<u8>)>,
    puts_bytes: usize,
}

/// Writes items into a cluster.
pub(super) fn write(
    remote: &Remote,
    items: &[(Position, Item)],
    strict: bool,
) -> Result<(Vec<Refusal>, Imported), Failure> {
    let mut batch = Batch::read(remote, items)?;
    let done = write_each(items, strict, |item| batch.write(item))?;
    batch.send_writes()?;
    batch.send_puts()?;
    Ok(done)
}

/// The refusal of an item that was sent by itself and is too large for the server. Another failure is one of the import.
fn unless_too_large<T>(sent: bowline_client::Result<T>) -> Result<Result<(), Unfit>, Failure> {
    match sent {
        Ok(_) => Ok(Ok(())),
        Err(error @ bowline_client::Error::RequestTooLarge) => Ok(Err(Unfit::Server(error))),
        Err(error) => Err(error.into()),
    }
}

fn edge_key(edge: &crate::import::Edge) -> wire::EdgeKey {
    wire::EdgeKey::new(id_of(&edge.source), &*edge.kind, id_of(&edge.target))
}

impl<'a> Batch<'a> {
    /// Reads what there is of all that the items speak of.
    fn read(remote: &'a Remote, items: &[(Position, Item)]) -> Result<Batch<'a>, Failure> {
        let (mut whole, mut ends) = (BTreeSet::new(), BTreeSet::new());
        let (mut edges, mut keys) = (BTreeSet::new(), BTreeSet::new());
        for (_, item) in items {
            match item {
                Item::Block(block) => drop(whole.insert(id_of(&block.block))),
                Item::Edge(edge) => {
                    ends.extend([id_of(&edge.source), id_of(&edge.target)]);
                    edges.insert(edge_key(edge));
                }
                Item::KeyValue(pair) => drop(keys.insert(pair.key.clone())),
            }
        }
        keys.remove(&Vec::new());
        let mut batch = Batch {
            remote,
            blocks: HashMap::new(),
            edges: HashMap::new(),
            keys: HashMap::new(),
            writes: Vec::new(),
            writes_bytes: 0,
            puts: Vec::new(),
            puts_bytes: 0,
        };
        let view = RemoteView::new(remote, None)?;
        if !ends.is_empty() {
            let found = view.blocks(&Vec::from_iter(ends), false)?.into_iter();
            batch.blocks.extend(found.map(|block| (block.id, None)));
        }
        if !whole.is_empty() {
            let found = view.blocks(&Vec::from_iter(whole), true)?.into_iter();
            let found = found.map(|block| (block.id, Some(block)));
            batch.blocks.extend(found);
        }
        if !edges.is_empty() {
            let found = view.edges(edges)?.into_iter();
            batch
                .edges
                .extend(found.map(|edge| (edge.key(), edge.attributes)));
        }
        for keys in Vec::from_iter(keys).chunks(OPERATIONS_MAX) {
            batch.read_keys(keys)?;
        }
        Ok(batch)
    }

    /// Reads the values that keys have. A server reads only so many bytes in one transaction, and for one connection at
    /// once: keys with more than that are read in halves, and in the end each by itself.
    fn read_keys(&mut self, keys: &[Vec<u8>]) -> Result<(), Failure> {
        let remote = self.remote;
        let found = match keys {
            [key] => {
                let get = remote.client.get(key.clone()).level(remote.level);
                vec![remote.wait(get)?]
            }
            keys => {
                let reads = keys.iter().cloned().map(Operation::get);
                let read = remote.client.txn().then(reads).into_future();
                let replies = match remote.outcome(read)? {
                    Err(bowline_client::Error::Other {
                        code: Code::ResourceExhausted,
                        ..
                    }) => {
                        let (first, rest) = keys.split_at(keys.len() / 2);
                        self.read_keys(first)?;
                        return self.read_keys(rest);
                    }
                    reply => reply?.replies,
                };
                let found = replies.into_iter().filter_map(|reply| match reply {
                    OperationReply::Get(found) => Some(found),
                    _ => None,
                });
                found.collect()
            }
        };
        let entries = found.into_iter().flat_map(|reply| reply.entries);
        let pairs = entries.map(|entry| (entry.key.to_vec(), entry.value));
        self.keys.extend(pairs);
        Ok(())
    }

    /// Sends the writes of the graph.
    fn send_writes(&mut self) -> Result<(), Failure> {
        self.writes_bytes = 0;
        let writes = std::mem::take(&mut self.writes);
        if !writes.is_empty() {
            self.remote.wait(self.remote.graph.write(writes))?;
        }
        Ok(())
    }

    /// Sends the puts of keys.
    fn send_puts(&mut self) -> Result<(), Failure> {
        self.puts_bytes = 0;
        let puts = std::mem::take(&mut self.puts);
        if !puts.is_empty() {
            let puts = puts.into_iter();
            let puts = puts.map(|(key, value)| Operation::put(key, value));
            self.remote.wait(self.remote.client.txn().then(puts))?;
        }
        Ok(())
    }

    /// Sends all that waits.
    fn send(&mut self) -> Result<(), Failure> {
        self.send_writes()?;
        self.send_puts()
    }

    /// Adds a write of the graph.
    fn push(&mut self, write: GraphWrite, bytes: usize) -> Result<Result<(), Unfit>, Failure> {
        if bytes > BYTES_MAX {
            self.send()?;
            let sent = self.remote.graph.write([write]).into_future();
            return unless_too_large(self.remote.outcome(sent)?);
        }
        if self.writes.len() >= WRITES_MAX || self.writes_bytes + bytes > BYTES_MAX {
            self.send_writes()?;
        }
        self.writes_bytes += bytes;
        self.writes.push(write);
        Ok(Ok(()))
    }

    /// Adds a put of a key.
    fn push_put(&mut self, key: &[u8], value: &[u8]) -> Result<Result<(), Unfit>, Failure> {
        let bytes = key.len() + value.len();
        if bytes > BYTES_MAX {
            self.send()?;
            let put = Operation::put(key.to_vec(), value.to_vec());
            let sent = self.remote.client.txn().then([put]).into_future();
            return unless_too_large(self.remote.outcome(sent)?);
        }
        // A key changes once in a transaction.
        if self.puts.len() >= OPERATIONS_MAX
            || self.puts_bytes + bytes > BYTES_MAX
            || self.puts.iter().any(|(other, _)| other == key)
        {
            self.send_puts()?;
        }
        self.puts_bytes += bytes;
        self.puts.push((key.to_vec(), value.to_vec()));
        Ok(Ok(()))
    }

    /// Writes one item unless it is there. An error within the result refuses the item.
    fn write(&mut self, item: &Item) -> Result<Result<Written, Unfit>, Failure> {
        let bytes = item.size_bytes();
        if bytes > ITEM_BYTES_MAX {
            let (size, limit) = (bytes as u64, ITEM_BYTES_MAX as u64);
            return Ok(Err(Error::ValueTooLarge { size, limit }.into()));
        }
        let written = match item {
            Item::KeyValue(pair) => {
                let (key, value) = (&pair.key, &pair.value);
                if key.is_empty() {
                    return Ok(Err(Error::EmptyKey.into()));
                }
                let written = Written::over(self.keys.get(key).map(|old| &old[..]), &value[..]);
                if written == Written::Unchanged {
                    return Ok(Ok(written));
                }
                if let Err(unfit) = self.push_put(key, value)? {
                    return Ok(Err(unfit));
                }
                self.keys.insert(key.clone(), value.clone().into());
                written
            }
            Item::Block(block) => {
                let new = wire::Block {
                    id: id_of(&block.block),
                    kinds: block.kinds.clone(),
                    content: block.content.clone().into(),
                    attributes: block.attributes.clone(),
                };
                let written = match self.blocks.get(&new.id) {
                    None => Written::Created,
                    Some(old) if block.if_absent || old.as_ref() == Some(&new) => {
                        return Ok(Ok(Written::Unchanged));
                    }
                    Some(_) => Written::Replaced,
                };
                if let Err(unfit) = self.push(GraphWrite::PutBlock(new.clone()), bytes)? {
                    return Ok(Err(unfit));
                }
                self.blocks.insert(new.id, Some(new));
                written
            }
            Item::Edge(edge) => {
                let key = edge_key(edge);
                for end in [key.source, key.target] {
                    if !self.blocks.contains_key(&end) {
                        return Ok(Err(Error::MissingBlock { id: end }.into()));
                    }
                }
                let attributes = edge.attributes.clone();
                let written = Written::over(self.edges.get(&key), &attributes);
                if written == Written::Unchanged {
                    return Ok(Ok(written));
                }
                let put = key.clone().with_attributes(attributes.clone());
                if let Err(unfit) = self.push(GraphWrite::PutEdge(put), bytes)? {
                    return Ok(Err(unfit));
                }
                self.edges.insert(key, attributes);
                written
            }
        };
        Ok(Ok(written))
    }
}
