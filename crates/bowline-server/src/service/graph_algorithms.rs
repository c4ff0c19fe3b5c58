//! The algorithms of `bowline.v1.Graph`: ranks, communities, triangles, clustering coefficients, neighborhoods
//! and simple paths.
//!
//! Those over the whole graph compute first, in one of the few turns for the whole graph, and then send their
//! result in parts. A search for simple paths sends each path when it is found:
//!
//! ```text
//!   find ──▶ one path ──▶ two paths ──▶ four paths ──▶ … ──▶ at most PART_ITEMS or 1 MiB
//! ```
//!
//! so that the first comes soon, and many need few messages.
//!
//! Invariants: the results are those of the library on the snapshot. No message grows with the graph: a
//! community and a path are sent in pieces of at most [`PART_ITEMS`] blocks. What a request bounds is checked
//! before the graph is read.

use std::cmp::Reverse;

use bowline::{BlockId, BlockValues, Cancel, Path, Stop};
use bowline_proto::v1 as pb;
use tonic::{Request, Response, Status};

use super::graph_query::{Canceling, Queries, SEARCH_WEIGHT, component_parts, parts_of};
use super::reading::{PART_ITEMS, Parts};
use super::stream::{Replies, produced};
use crate::context::respond_read;
use crate::convert::graph as convert;
use crate::status::Fault;

/// The most iterations of an algorithm.
const ITERATIONS_MAX: u32 = 10_000;

/// A reply in parts.
type InParts<T> = Result<Response<Replies<T>>, Status>;

/// What is sent of the values of all blocks.
struct Largest<T> {
    found: Vec<(BlockId, T)>,
    count: u64,
    sum: T,
}

impl<T: Copy + PartialOrd + std::iter::Sum> Largest<T> {
    /// So many blocks with the largest values; all without a limit.
    fn of(values: &BlockValues<T>, limit: Option<u64>) -> Largest<T> {
        Largest {
            found: values.largest(at_most(limit)),
            count: values.len() as u64,
            sum: values.iter().map(|(_, value)| value).sum(),
        }
    }
}

fn at_most(limit: Option<u64>) -> usize {
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}

fn iterations(asked: Option<u32>, default: u32) -> Result<u32, Fault> {
    match asked.unwrap_or(default) {
        count @ 0..=ITERATIONS_MAX => Ok(count),
        _ => Err(Fault::Invalid(
            "a server makes at most 10,000 iterations: ask for fewer",
        )),
    }
}

pub(super) async fn page_rank(
    queries: &Queries,
    request: Request<pb::PageRankRequest>,
) -> InParts<pb::RealValuesReply> {
    let (metadata, _, asked) = request.into_parts();
    let direction = convert::direction(asked.direction)?;
    let iterations = iterations(asked.iterations, 20)?;
    let damping = asked.damping.unwrap_or(0.85);
    let opened = queries.open(&metadata, asked.read, &asked.kinds).await?;
    let turn = queries.turn_of_whole().await?;
    let (ranks, turn) = queries
        .compute(turn, opened.view, move |view| {
            let ranks = view.page_rank().kinds(asked.kinds).direction(direction);
            let ranks = ranks.damping(damping).iterations(iterations).run()?;
            Ok(Largest::of(&ranks, asked.limit))
        })
        .await?;
    let parts = real_values(opened.header, ranks);
    Ok(respond_read(queries.in_parts(parts, turn)?, &opened.point))
}

pub(super) async fn clustering(
    queries: &Queries,
    request: Request<pb::ClusteringRequest>,
) -> InParts<pb::RealValuesReply> {
    let (metadata, _, asked) = request.into_parts();
    let opened = queries.open(&metadata, asked.read, &asked.kinds).await?;
    let turn = queries.turn_of_whole().await?;
    let (found, turn) = queries
        .compute(turn, opened.view, move |view| {
            let coefficients = view.clustering_coefficients().kinds(asked.kinds);
            let found = match asked.undirected {
                true => coefficients.undirected().run()?,
                false => coefficients.run()?,
            };
            Ok(Largest::of(&found, asked.limit))
        })
        .await?;
    let parts = real_values(opened.header, found);
    Ok(respond_read(queries.in_parts(parts, turn)?, &opened.point))
}

fn real_values(
    header: pb::Header,
    values: Largest<f64>,
) -> impl Iterator<Item = pb::RealValuesReply> + Send {
    let Largest { found, count, sum } = values;
    let mut header = Some(header);
    parts_of(found).map(move |(part, is_last)| pb::RealValuesReply {
        header: header.take(),
        blocks: part.iter().map(|(id, _)| convert::id_bytes(*id)).collect(),
        values: part.iter().map(|(_, value)| *value).collect(),
        is_last,
        count: if is_last { count } else { 0 },
        sum: if is_last { sum } else { 0.0 },
    })
}

pub(super) async fn triangles(
    queries: &Queries,
    request: Request<pb::TrianglesRequest>,
) -> InParts<pb::WholeValuesReply> {
    let (metadata, _, asked) = request.into_parts();
    let opened = queries.open(&metadata, asked.read, &asked.kinds).await?;
    let turn = queries.turn_of_whole().await?;
    let (values, turn) = queries
        .compute(turn, opened.view, move |view| {
            let counts = view.triangles().kinds(asked.kinds).per_block()?;
            Ok(Largest::of(&counts, asked.limit))
        })
        .await?;
    let Largest { found, count, sum } = values;
    let mut header = Some(opened.header);
    let parts = parts_of(found).map(move |(part, is_last)| pb::WholeValuesReply {
        header: header.take(),
        blocks: part.iter().map(|(id, _)| convert::id_bytes(*id)).collect(),
        values: part.iter().map(|(_, value)| *value).collect(),
        is_last,
        count: if is_last { count } else { 0 },
        sum: if is_last { sum } else { 0 },
    });
    Ok(respond_read(queries.in_parts(parts, turn)?, &opened.point))
}

pub(super) async fn communities(
    queries: &Queries,
    request: Request<pb::CommunitiesRequest>,
) -> InParts<pb::CommunitiesReply> {
    let (metadata, _, asked) = request.into_parts();
    let iterations = iterations(asked.iterations, 10)?;
    let opened = queries.open(&metadata, asked.read, &asked.kinds).await?;
    let turn = queries.turn_of_whole().await?;
    let ((groups, count), turn) = queries
        .compute(turn, opened.view, move |view| {
            let labels = view.communities().kinds(asked.kinds).iterations(iterations);
            let mut groups = labels.run()?.groups();
            // Stable, so that equally large ones stay in the order of their first blocks.
            groups.sort_by_key(|group| Reverse(group.len()));
            let count = groups.len() as u64;
            groups.truncate(at_most(asked.limit));
            Ok((groups, count))
        })
        .await?;
    let mut header = Some(opened.header);
    let parts = component_parts(groups).map(move |(communities, is_last)| pb::CommunitiesReply {
        header: header.take(),
        communities,
        is_last,
        count: if is_last { count } else { 0 },
    });
    Ok(respond_read(queries.in_parts(parts, turn)?, &opened.point))
}

pub(super) async fn k_hop(
    queries: &Queries,
    request: Request<pb::KHopRequest>,
) -> InParts<pb::KHopReply> {
    let (metadata, _, asked) = request.into_parts();
    let start = convert::id(&asked.id)?;
    let direction = convert::direction(asked.direction)?;
    let opened = queries.open(&metadata, asked.read, &asked.kinds).await?;
    let turn = queries.turn(1).await?;
    let blocks_max = queries.blocks_max();
    let (found, turn) = queries
        .compute(turn, opened.view, move |view| {
            // A traversal by distance visits the same blocks, and has the bound. The start is one more.
            let walk = view.traverse(start).direction(direction).kinds(asked.kinds);
            let walk = walk.limit(blocks_max.saturating_add(1));
            let visited = walk.max_depth(asked.hops).run()?;
            if visited.stop() == Stop::Limit {
                return Ok(None);
            }
            let near = visited.visits().skip(1);
            let mut near: Vec<(u32, BlockId)> = near.map(|visit| (visit.depth, visit.id)).collect();
            near.sort_unstable();
            Ok(Some(near))
        })
        .await?;
    let Some(found) = found else {
        let text = format!(
            "the neighborhood has more than the {blocks_max} blocks that the server reads at once: ask for \
             fewer hops or kinds, or raise the server's --max-traversal-blocks"
        );
        return Err(Fault::Unfit(text).into());
    };
    let kept = (turn, queries.charge(&found)?);
    let mut header = Some(opened.header);
    let parts = parts_of(found).map(move |(part, is_last)| pb::KHopReply {
        header: header.take(),
        blocks: part.iter().map(|(_, id)| convert::id_bytes(*id)).collect(),
        hops: part.iter().map(|(hops, _)| *hops).collect(),
        is_last,
    });
    Ok(respond_read(queries.in_parts(parts, kept)?, &opened.point))
}

pub(super) async fn simple_paths(
    queries: &Queries,
    request: Request<pb::SimplePathsRequest>,
) -> Result<Response<Canceling<pb::SimplePathsReply>>, Status> {
    let (metadata, _, asked) = request.into_parts();
    let (from, to) = (convert::id(&asked.from)?, convert::id(&asked.to)?);
    let direction = convert::direction(asked.direction)?;
    let opened = queries.open(&metadata, asked.read, &asked.kinds).await?;
    let turn = queries.turn(SEARCH_WEIGHT).await?;
    let limit_of_server = queries.blocks_max();
    let limit = asked.limit.unwrap_or(u64::MAX).min(limit_of_server);
    let is_own_limit = asked.limit.is_some_and(|limit| limit <= limit_of_server);
    let cancel = Cancel::new();
    let (view, header) = (opened.view.cancelable(&cancel), opened.header);
    let replies = produced(queries.account(), move |sender| {
        let _turn = turn;
        // Known at the last part.
        let more = std::cell::Cell::new(false);
        let mut parts = Parts::growing(sender, header, |header, paths, is_last| {
            pb::SimplePathsReply {
                header,
                paths,
                is_last,
                more: is_last && more.get(),
                is_of_server: is_last && more.get() && !is_own_limit,
            }
        });
        let search = || {
            let search = view.simple_paths(from, to).kinds(asked.kinds);
            let search = search.direction(direction);
            let search = match asked.max_depth {
                Some(depth) => search.max_depth(depth),
                None => search,
            };
            for (number, path) in (0..).zip(search.find()?) {
                let path = path?;
                if number == limit {
                    more.set(true);
                    break;
                }
                for piece in path_pieces(&path) {
                    let kinds: usize = piece.kinds.iter().map(String::len).sum();
                    let bytes = 20 * piece.blocks.len() + kinds;
                    parts.push(piece, bytes)?;
                }
                if number + 1 == limit {
                    // Whether there is one more may take long to find.
                    parts.flush()?;
                }
            }
            Ok(())
        };
        let searched = search();
        parts.finish(searched)
    });
    let replies = queries.canceling(replies, cancel);
    Ok(respond_read(replies, &opened.point))
}

/// A path in pieces; a long one takes several.
fn path_pieces(path: &Path) -> impl Iterator<Item = pb::PathPart> {
    let starts = (0..path.blocks.len()).step_by(PART_ITEMS);
    starts.map(move |start| {
        let blocks = &path.blocks[start..path.blocks.len().min(start + PART_ITEMS)];
        let kinds = &path.kinds[start..path.kinds.len().min(start + PART_ITEMS)];
        pb::PathPart {
            blocks: blocks.iter().map(|id| convert::id_bytes(*id)).collect(),
            kinds: kinds.iter().map(ToString::to_string).collect(),
            continues: start > 0,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_is_told_in_pieces_with_the_edges_that_leave_their_blocks() {
        for blocks in [1, 2, PART_ITEMS, PART_ITEMS + 1, 2 * PART_ITEMS] {
            let path = Path {
                blocks: (0..blocks as u128).map(BlockId).collect(),
                kinds: vec!["next".into(); blocks - 1],
                cost: blocks as f64 - 1.0,
            };
            let pieces: Vec<_> = path_pieces(&path).collect();
            assert_eq!(pieces.len(), blocks.div_ceil(PART_ITEMS));
            assert!(
                pieces
                    .iter()
                    .zip(0..)
                    .all(|(piece, at)| piece.continues == (at > 0))
            );
            let (last, before) = pieces.split_last().unwrap();
            assert!(
                before
                    .iter()
                    .all(|piece| piece.kinds.len() == piece.blocks.len())
            );
            assert_eq!(last.kinds.len() + 1, last.blocks.len(), "{blocks} blocks");
            let told: usize = pieces.iter().map(|piece| piece.blocks.len()).sum();
            assert_eq!(told, blocks);
        }
    }

    #[test]
    fn iterations_are_bounded() {
        assert_eq!(iterations(None, 20), Ok(20));
        assert_eq!(iterations(Some(ITERATIONS_MAX), 20), Ok(ITERATIONS_MAX));
        assert!(iterations(Some(ITERATIONS_MAX + 1), 20).is_err());
    }
}
