//! The graph that `bowline bench graph` writes, and its queries.
//!
//! Block `n` has the number's 16 hexadecimal digits as its id, and edges of the kind `link` to blocks that
//! follow from `n` alone: a second run writes the same graph. Edges that are measured have another kind, so
//! that reads find the same after them.

use bowline_client::graph::{Block, BlockId, Edge, GraphWrite};
use bowline_client::{Client, ReadLevel};
use bowline_proto::v1 as pb;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use prost::Message;

use super::workload::{Expected, Workload};
use crate::access::Access;
use crate::args::{GraphLoad, GraphOperation};
use crate::error::{Error, Result};
use crate::progress::{Progress, Show};

/// The kind of the edges that make the graph.
const KIND: &str = "link";

/// How many writes each request of the filling has, and how many of those are under way.
const BATCH: usize = 1_000;
const BATCHES_UNDER_WAY: usize = 4;

fn id(number: u64) -> BlockId {
    let mut digits = [0; 16];
    digits.copy_from_slice(format!("{number:016x}").as_bytes());
    BlockId::from_bytes(digits)
}

/// Where the `nth` edge of a block leads: splitmix64 of both.
fn target(block: u64, nth: u64, blocks: u64) -> u64 {
    let mut mixed = (block << 20 ^ nth).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ mixed >> 31) % blocks
}

/// Writes the graph.
pub(crate) fn fill(
    endpoints: &[String],
    access: &Access,
    args: &GraphLoad,
    show: Show<'_>,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let total = args.blocks.saturating_mul(args.fan_out.saturating_add(1));
    let progress = show("fill", Some(total));
    runtime.block_on(async {
        let client = access.client().endpoints(endpoints).connect().await?;
        let blocks = (0..args.blocks).map(|n| GraphWrite::PutBlock(Block::new(id(n), "block")));
        write_all(&client, &*progress, blocks).await?;
        let edges = (0..args.blocks).flat_map(|n| {
            let to = move |nth| id(target(n, nth, args.blocks));
            (0..args.fan_out).map(move |nth| GraphWrite::PutEdge(Edge::new(id(n), KIND, to(nth))))
        });
        // Every block is there by now, so the order of the batches makes no difference.
        write_all(&client, &*progress, edges).await
    })
}

async fn write_all(
    client: &Client,
    progress: &dyn Progress,
    writes: impl Iterator<Item = GraphWrite>,
) -> Result<()> {
    let mut writes = writes.peekable();
    let batches = std::iter::from_fn(|| {
        writes.peek()?;
        Some(writes.by_ref().take(BATCH).collect::<Vec<_>>())
    });
    let graph = client.graph();
    stream::iter(batches)
        .map(|batch| {
            let graph = &graph;
            async move {
                let count = batch.len();
                graph.write(batch).await?;
                Ok::<_, Error>(count)
            }
        })
        .buffer_unordered(BATCHES_UNDER_WAY)
        .try_for_each(|count| {
            progress.add(u64::try_from(count).unwrap_or(0));
            std::future::ready(Ok(()))
        })
        .await
}

/// The name of what is measured, and its requests.
pub(crate) fn workload(args: &GraphLoad) -> Result<(&'static str, Workload)> {
    let level = match args.consistency {
        ReadLevel::Linearizable => pb::ReadLevel::Linearizable,
        ReadLevel::Lease => pb::ReadLevel::Lease,
        ReadLevel::Eventual => pb::ReadLevel::Eventual,
    };
    let read = Some(pb::Read {
        level: level.into(),
        revision: 0,
    });
    let (load, kinds) = (args.load(), vec![KIND.to_owned()]);
    Ok(match args.operation {
        GraphOperation::Edge => {
            let path = "/bowline.v1.Graph/Write";
            let encode = |ids: &[Bytes]| {
                let edge = pb::Edge {
                    key: Some(pb::EdgeKey {
                        source: ids[0].clone(),
                        kind: "measured".to_owned(),
                        target: ids[1].clone(),
                    }),
                    ..pb::Edge::default()
                };
                let write = Some(pb::graph_write::Write::PutEdge(edge));
                let writes = vec![pb::GraphWrite { write }];
                pb::WriteRequest { writes }.encode_to_vec()
            };
            (
                "graph edge",
                Workload::of_graph(&load, path, 2, Expected::Nothing, encode)?,
            )
        }
        GraphOperation::Neighbors => {
            let path = "/bowline.v1.Graph/Neighbors";
            let encode = |ids: &[Bytes]| {
                let request = pb::NeighborsRequest {
                    read,
                    id: ids[0].clone(),
                    kinds: kinds.clone(),
                    ..pb::NeighborsRequest::default()
                };
                request.encode_to_vec()
            };
            let expects = match args.fan_out {
                0 => Expected::Nothing,
                _ => Expected::Rows,
            };
            let workload = Workload::of_graph(&load, path, 1, expects, encode)?;
            ("graph neighbors", workload)
        }
        GraphOperation::Traverse => {
            let path = "/bowline.v1.Graph/Traverse";
            let encode = |ids: &[Bytes]| {
                let request = pb::TraverseRequest {
                    read,
                    starts: ids.to_vec(),
                    kinds: kinds.clone(),
                    max_depth: Some(args.max_depth),
                    ..pb::TraverseRequest::default()
                };
                request.encode_to_vec()
            };
            (
                "graph traverse",
                Workload::of_graph(&load, path, 1, Expected::Rows, encode)?,
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_graph_is_written_again_and_its_edges_spread() {
        assert_eq!(id(0x2a).to_bytes(), *b"000000000000002a");
        let mut arriving = [0; 16];
        for block in 0..16 {
            for nth in 0..100 {
                let to = target(block, nth, 16);
                assert_eq!(to, target(block, nth, 16));
                arriving[usize::try_from(to).unwrap()] += 1;
            }
        }
        assert!(arriving.iter().all(|count| (50..200).contains(count)));
    }
}
