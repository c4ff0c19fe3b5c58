//! What the crash tests and the model test share: a database with everything small, the changes
//! of the [`Model`] carried out on it, and all that it holds as plain values.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use bowline::vfs::Vfs;
use bowline::{
    AttributeValue, Background, Block, BlockId, BlockKinds, CompactionOptions, Db, DbBuilder,
    Direction, Edge, Error, LeaseId, Revision, Snapshot, Strategy, Transaction,
};
use bowline_testing::model::{self, Change, EdgeKey};
use bowline_testing::{ManualClock, Model, SimDisk};

/// The attribute of an edge that carries the model's attributes, which are one text.
const EDGE_ATTRIBUTE: &str = "v";
/// The attribute of a block that repeats the length of its content.
const BLOCK_ATTRIBUTE: &str = "len";

/// Blocks of random changes have the ids from 1 to this.
pub const BLOCKS: u128 = 16;
/// The kinds of their edges.
pub const EDGE_KINDS: [&str; 2] = ["calls", "owns"];

/// One of forty keys.
pub fn random_key(rng: &mut fastrand::Rng) -> Vec<u8> {
    format!("k{:02}", rng.u32(0..40)).into_bytes()
}

/// A value of fewer bytes than `most`, half of which does not compress.
pub fn random_value(rng: &mut fastrand::Rng, most: usize) -> Vec<u8> {
    let len = rng.usize(0..most);
    (0..len)
        .map(|at| if at % 2 == 0 { b'v' } else { rng.u8(..) })
        .collect()
}

/// The kinds of a block with this content: half of all blocks are services, the others are of no kind or of two.
pub fn block_kinds(content: &[u8]) -> BlockKinds {
    match content.len() % 4 {
        0 => BlockKinds::none(),
        1 => BlockKinds::from(["service", "shared"]),
        _ => "service".into(),
    }
}

/// A block with less content than `most`, of no kind, one or two.
pub fn random_block(rng: &mut fastrand::Rng, id: u128, most: usize) -> Change {
    let content = random_value(rng, most);
    Change::put_block(id, block_kinds(&content), &content)
}

/// Changes of keys, blocks and edges for one transaction. Touches each edge at most once, so that
/// nothing is made and taken back.
pub fn random_changes(rng: &mut fastrand::Rng, model: &Model) -> Vec<Change> {
    let graph = model.graph(model.revision());
    let mut changes = Vec::new();
    let mut present: BTreeSet<u128> = graph.blocks.keys().copied().collect();
    for _ in 0..rng.u8(0..4) {
        let (key, value) = (random_key(rng), random_value(rng, 80));
        let put = rng.u8(0..4) > 0;
        changes.push(if put {
            Change::put(&key, &value)
        } else {
            Change::delete(&key)
        });
    }
    for _ in 0..rng.u8(0..3) {
        let id = rng.u128(1..=BLOCKS);
        changes.push(random_block(rng, id, 150));
        present.insert(id);
    }
    let present: Vec<_> = present.into_iter().collect();
    let mut touched = BTreeSet::new();
    for _ in 0..rng.u8(0..5) {
        let (Some(source), Some(target)) = (rng.choice(&present), rng.choice(&present)) else {
            break;
        };
        let kind = EDGE_KINDS[rng.usize(0..EDGE_KINDS.len())];
        let edge = EdgeKey::new(*source, kind, *target);
        if !touched.insert(edge.clone()) {
            continue;
        }
        let is_there = graph.edges.contains_key(&edge);
        changes.push(if is_there && rng.bool() {
            Change::DeleteEdge { edge }
        } else {
            Change::PutEdge {
                edge,
                attributes: format!("{:x}", rng.u64(..)).into_bytes(),
            }
        });
    }
    changes
}

/// A database so small that a few hundred commits flush, merge, rotate and recycle.
pub fn small_database(disk: &SimDisk, clock: &ManualClock) -> DbBuilder {
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    Db::builder()
        .vfs(vfs)
        .clock(Arc::new(clock.clone()))
        .background(Background::Manual)
        .memtable_bytes(16 << 10)
        .cache_bytes(16 << 10)
        .log_segment_bytes(12 << 10)
        .page_bytes(512)
        .watch_ring_bytes(2 << 10)
        .compaction(CompactionOptions {
            strategy: Strategy::LazyLeveling,
            runs_max: 2,
            table_bytes: 4 << 10,
            level_base_bytes: 8 << 10,
            ..CompactionOptions::default()
        })
}

/// Stages one change of the model.
pub fn stage(tx: &mut Transaction, change: &Change) -> Result<(), Error> {
    match change {
        Change::Put { key, value, lease } => match LeaseId::new(*lease) {
            Some(lease) => tx.put_with_lease(key, value, lease),
            None => tx.put(key, value),
        },
        Change::Delete { key } => tx.delete(key).map(drop),
        Change::PutBlock { id, kinds, content } => {
            let block = Block::new(BlockId(*id), kinds.clone()).content(content.clone());
            tx.put_block(&block.attribute(BLOCK_ATTRIBUTE, length_of(content)))
        }
        Change::DeleteBlock { id } => tx.delete_block(BlockId(*id)).map(drop),
        Change::PutEdge { edge, attributes } => {
            let text = String::from_utf8_lossy(attributes).into_owned();
            let (source, target) = (BlockId(edge.source), BlockId(edge.target));
            let edge = Edge::new(source, &edge.kind, target);
            tx.put_edge(&match text.len() % 2 {
                0 => edge.attribute(EDGE_ATTRIBUTE, text),
                _ => edge.attribute(EDGE_ATTRIBUTE, AttributeValue::List(vec![text.into()])),
            })
        }
        Change::DeleteEdge { edge } => {
            let (source, target) = (BlockId(edge.source), BlockId(edge.target));
            tx.delete_edge(source, &edge.kind, target).map(drop)
        }
    }
}

/// Everything at one revision: keys with their metadata, blocks, and edges as found from their
/// sources and as found from their targets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    pub keys: BTreeMap<Vec<u8>, model::Entry>,
    pub blocks: BTreeMap<u128, model::Block>,
    pub edges: BTreeMap<EdgeKey, Vec<u8>>,
    pub edges_backwards: BTreeSet<EdgeKey>,
}

impl Contents {
    /// What a snapshot holds.
    pub fn of_snapshot(snapshot: &Snapshot) -> Result<Contents, Error> {
        let mut contents = Contents::default();
        for entry in snapshot.range(..)? {
            let entry = entry?;
            contents
                .keys
                .insert(entry.key.to_vec(), plain_entry(&entry));
        }
        let graph = snapshot.graph();
        graph.for_each_block(|block| {
            let len = length_of(&block.content);
            let whole = block.attributes.get(BLOCK_ATTRIBUTE) == Some(&len);
            // A content that does not agree with its attribute compares unequal to every model.
            let content = if whole {
                block.content.to_vec()
            } else {
                b"torn".to_vec()
            };
            contents.blocks.insert(
                block.id.0,
                model::Block {
                    kinds: block.kinds,
                    content,
                },
            );
            Ok(())
        })?;
        graph.for_each_edge(|edge| {
            let text = match edge.attributes.get(EDGE_ATTRIBUTE) {
                Some(AttributeValue::Text(text)) if text.len() % 2 == 0 => Some(text.as_str()),
                Some(AttributeValue::List(list)) => list.first().and_then(AttributeValue::as_text),
                _ => None,
            };
            let key = EdgeKey::new(edge.source.0, &edge.kind, edge.target.0);
            let bytes = text.unwrap_or("torn").as_bytes().to_vec();
            contents.edges.insert(key, bytes);
            Ok(())
        })?;
        for target in contents.blocks.keys() {
            for found in graph.neighbors(BlockId(*target), Direction::In, [""; 0])? {
                contents
                    .edges_backwards
                    .insert(EdgeKey::new(found.id.0, &found.kind, *target));
            }
        }
        Ok(contents)
    }

    /// What the model says was there at a revision.
    pub fn of_model(model: &Model, revision: Revision) -> Contents {
        let keys = model.range(.., revision);
        let graph = model.graph(revision);
        Contents {
            keys: keys
                .map(|(key, entry)| (key.clone(), entry.clone()))
                .collect(),
            blocks: graph.blocks,
            edges_backwards: graph.edges.keys().cloned().collect(),
            edges: graph.edges,
        }
    }

    /// In what way this differs from what was expected, or nothing.
    pub fn difference(&self, expected: &Contents) -> Option<String> {
        map_difference("key", &self.keys, &expected.keys)
            .or_else(|| map_difference("block", &self.blocks, &expected.blocks))
            .or_else(|| map_difference("edge", &self.edges, &expected.edges))
            .or_else(|| {
                let with_unit = |set: &BTreeSet<EdgeKey>| {
                    set.iter()
                        .map(|edge| (edge.clone(), ()))
                        .collect::<BTreeMap<_, _>>()
                };
                let (found, expected) = (&self.edges_backwards, &expected.edges_backwards);
                map_difference(
                    "edge from its target",
                    &with_unit(found),
                    &with_unit(expected),
                )
            })
    }
}

/// An entry in the model's words.
pub fn plain_entry(entry: &bowline::Entry) -> model::Entry {
    model::Entry {
        value: entry.value.to_vec(),
        create_revision: entry.create_revision,
        mod_revision: entry.mod_revision,
        version: entry.version,
        lease: LeaseId::number_of(entry.lease),
    }
}

fn map_difference<K: Ord + Debug, V: PartialEq + Debug>(
    what: &str,
    found: &BTreeMap<K, V>,
    expected: &BTreeMap<K, V>,
) -> Option<String> {
    let differs = |key: &&K| found.get(*key) != expected.get(*key);
    let keys: BTreeSet<&K> = found
        .keys()
        .chain(expected.keys())
        .filter(differs)
        .collect();
    let first = keys.first()?;
    let show = |value: Option<&V>| match value {
        Some(value) => format!("{value:?}").chars().take(300).collect(),
        None => "nothing".to_owned(),
    };
    let (count, is) = (keys.len(), show(found.get(*first)));
    Some(format!(
        "{what} {first:?} is {is}, expected {} ({count} such differences)",
        show(expected.get(*first))
    ))
}

/// The length of a content as the attribute that goes with it: of either version of records.
fn length_of(content: &[u8]) -> AttributeValue {
    match content.len() {
        len if len % 2 == 0 => len.to_string().into(),
        len => (len as i64).into(),
    }
}
