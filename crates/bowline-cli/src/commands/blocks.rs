//! `block put|get|list|del` and `edge put|get|list|del`.

use bowline::Direction as Way;
use bowline::{Neighbor, Revision};
use bowline_client::graph as wire;

use crate::args::{self, Block, Direction, Edge, EdgeFilter, EdgeKey, Output};
use crate::context::{Context, at_most, not_found};
use crate::exit::{Exit, Failure};
use crate::import::{BlockRef, NAME_ATTRIBUTE, label};
use crate::output::{Field, Rows};
use crate::remote::GRAPH_TIMEOUT;
use crate::store::resolve::{Labels, find, id_of};
use crate::store::target::Target;
use crate::store::view::{View, Visit};

/// How many edges have the names of their ends read at once.
const NAMED_AT_ONCE: usize = 1_000;

pub(crate) fn block(context: &mut Context<'_, '_>, args: &Block) -> Result<(), Failure> {
    match args {
        Block::Put {
            block,
            kinds,
            no_kind: _,
            content,
            attributes,
            write,
        } => {
            let content = if content == "-" {
                context.read_input()?
            } else {
                content.clone().into_bytes()
            };
            let mut attributes = attributes.all();
            if let BlockRef::Name(name) = block {
                attributes
                    .entry(NAME_ATTRIBUTE.to_owned())
                    .or_insert_with(|| name.into());
            }
            let id = id_of(block);
            let target = Target::open_to_write(context, write.durability, GRAPH_TIMEOUT)?;
            let (_, revision) = target.write(wire::GraphWrite::PutBlock(wire::Block {
                id,
                kinds: kinds.iter().collect(),
                content: content.into(),
                attributes,
            }))?;
            target.close()?;
            context.record(&[("id", id.to_string().into()), ("revision", revision.into())])
        }
        Block::Get { block, rev } => {
            let target = Target::open_to_read(context, GRAPH_TIMEOUT)?;
            let graph = target.at(*rev)?;
            let id = find(&graph, block)?;
            let Some(found) = graph.block(id)? else {
                return Err(not_found(format!("block {block} does not exist")));
            };
            context.record(&[
                ("id", found.id.to_string().into()),
                ("kind", found.kinds.into()),
                ("attributes", Field::Attributes(found.attributes)),
                ("content", Field::Bytes(found.content.into())),
            ])
        }
        Block::List { kinds, rev, limit } => {
            let target = Target::open_to_read(context, GRAPH_TIMEOUT)?;
            let graph = target.at(*rev)?;
            let mut printer = context.printer(false);
            let mut rows = printer.rows(&["block", "kind", "attributes", "id"]);
            let mut left = limit.unwrap_or(u64::MAX);
            first(
                |visit| graph.for_each_block_head(visit),
                &mut |block: bowline::Block| {
                    if left == 0 {
                        return Ok(Next::Stop);
                    }
                    if kinds.is_empty() || kinds.iter().any(|kind| block.kinds.contains(kind)) {
                        left -= 1;
                        let name = label(&BlockRef::Id(block.id.0), &block.attributes);
                        rows.push(vec![
                            name.into(),
                            block.kinds.into(),
                            Field::Attributes(block.attributes),
                            block.id.to_string().into(),
                        ])?;
                    }
                    Ok(Next::More)
                },
            )?;
            rows.finish()?;
            Ok(())
        }
        Block::Del { block, write } => {
            let target = Target::open_to_write(context, write.durability, GRAPH_TIMEOUT)?;
            let id = find(&target.at(None)?, block)?;
            let delete = wire::GraphWrite::DeleteBlock(id);
            let (is_gone, revision) = target.write(delete)?;
            target.close()?;
            if !is_gone {
                let text = format!("block {block} does not exist; nothing changed");
                return Err(not_found(text));
            }
            context.record(&[("id", id.to_string().into()), ("revision", revision.into())])
        }
    }
}

/// Whether a visitor wants the next item.
enum Next {
    More,
    Stop,
}

/// Visits items until the visitor wants no more.
fn first<T>(
    scan: impl FnOnce(Visit<'_, T>) -> Result<(), Failure>,
    visit: &mut dyn FnMut(T) -> Result<Next, Failure>,
) -> Result<(), Failure> {
    let mut has_stopped = false;
    let scanned = scan(&mut |item| match visit(item)? {
        Next::More => Ok(()),
        Next::Stop => {
            has_stopped = true;
            // Ends the scan, and goes no further.
            Err(Failure::new(Exit::Done, ""))
        }
    });
    match has_stopped {
        true => Ok(()),
        false => scanned,
    }
}

pub(crate) fn edge(context: &mut Context<'_, '_>, args: &Edge) -> Result<(), Failure> {
    match args {
        Edge::Put {
            edge,
            attributes,
            write,
        } => {
            let attributes = attributes.all();
            let put =
                |key: wire::EdgeKey| wire::GraphWrite::PutEdge(key.with_attributes(attributes));
            let (_, revision) = write_edge(context, edge, *write, put)?;
            context.record(&[("revision", revision.into())])
        }
        Edge::Del { edge, write } => {
            match write_edge(context, edge, *write, wire::GraphWrite::DeleteEdge)? {
                (true, revision) => context.record(&[("revision", revision.into())]),
                (false, _) => Err(not_found(format!("{}; nothing changed", no_edge(edge)))),
            }
        }
        Edge::Get { edge, rev } => {
            let target = Target::open_to_read(context, GRAPH_TIMEOUT)?;
            let graph = target.at(*rev)?;
            let key = key_of(&graph, edge)?;
            let mut labels = Labels::of(&graph, [key.source, key.target])?;
            let names = (labels.get(key.source)?, labels.get(key.target)?);
            let Some(found) = graph.edges(vec![key])?.pop() else {
                return Err(not_found(no_edge(edge)));
            };
            context.record(&[
                ("source", names.0.into()),
                ("kind", found.kind.into()),
                ("target", names.1.into()),
                ("attributes", Field::Attributes(found.attributes)),
                ("source_id", found.source.to_string().into()),
                ("target_id", found.target.to_string().into()),
            ])
        }
        Edge::List {
            block,
            direction,
            scope,
            limit,
        } => {
            let target = Target::open_to_read(context, GRAPH_TIMEOUT)?;
            let graph = target.at(scope.rev)?;
            match block {
                None => list_edges(context, &graph, &scope.kinds, *limit),
                Some(block) => {
                    let filter = EdgeFilter {
                        direction: *direction,
                        scope: scope.clone(),
                    };
                    list_edges_of(context, &graph, block, &filter, *limit)
                }
            }
        }
    }
}

fn no_edge(edge: &EdgeKey) -> String {
    let EdgeKey {
        source,
        kind,
        target,
    } = edge;
    format!("edge {source} -{kind}-> {target} does not exist")
}

fn key_of(graph: &View<'_>, edge: &EdgeKey) -> Result<wire::EdgeKey, Failure> {
    let (from, to) = (find(graph, &edge.source)?, find(graph, &edge.target)?);
    Ok(wire::EdgeKey::new(from, &edge.kind, to))
}

/// Writes an edge between blocks that exist; gives whether something changed, and the revision.
fn write_edge(
    context: &mut Context<'_, '_>,
    edge: &EdgeKey,
    write: args::Write,
    make: impl FnOnce(wire::EdgeKey) -> wire::GraphWrite,
) -> Result<(bool, Revision), Failure> {
    let target = Target::open_to_write(context, write.durability, GRAPH_TIMEOUT)?;
    let key = key_of(&target.at(None)?, edge)?;
    let written = target.write(make(key))?;
    target.close()?;
    Ok(written)
}

/// Every edge, by source, kind and target.
fn list_edges(
    context: &mut Context<'_, '_>,
    graph: &View<'_>,
    kinds: &[String],
    limit: Option<u64>,
) -> Result<(), Failure> {
    let has_ids = context.global.output == Output::Json;
    let mut printer = context.printer(false);
    let mut rows = printer.rows(edge_columns(has_ids));
    let mut left = limit.unwrap_or(u64::MAX);
    let mut waiting: Vec<bowline::Edge> = Vec::new();
    first(
        |visit| graph.for_each_edge(visit),
        &mut |edge: bowline::Edge| {
            if left == 0 {
                return Ok(Next::Stop);
            }
            if kinds.is_empty() || kinds.contains(&edge.kind) {
                left -= 1;
                waiting.push(edge);
            }
            if waiting.len() >= NAMED_AT_ONCE {
                push_edges(graph, &mut rows, &std::mem::take(&mut waiting), has_ids)?;
            }
            Ok(Next::More)
        },
    )?;
    push_edges(graph, &mut rows, &waiting, has_ids)?;
    rows.finish()?;
    Ok(())
}

/// The edges of a block, in the order of its neighbors. There is no request for them on the wire, but one for the
/// neighbors and one for edges by their keys.
fn list_edges_of(
    context: &mut Context<'_, '_>,
    graph: &View<'_>,
    block: &BlockRef,
    edges: &EdgeFilter,
    limit: Option<u64>,
) -> Result<(), Failure> {
    let id = find(graph, block)?;
    // The block is its own neighbor in both directions by an edge to itself, which is one edge.
    let is_again = |neighbor: &Neighbor| neighbor.direction == Way::In && neighbor.id == id;
    let mut asked = limit;
    let neighbors = loop {
        let mut found = graph.neighbors(id, edges, asked)?;
        let count = found.len();
        if edges.direction == Direction::Both {
            found.retain(|neighbor| !is_again(neighbor));
        }
        let dropped = (count - found.len()) as u64;
        match (limit, asked) {
            (Some(limit), Some(before)) if before < limit + dropped && count as u64 >= before => {
                asked = Some(limit + dropped);
            }
            _ => {
                found.truncate(at_most(limit));
                break found;
            }
        }
    };
    let has_ids = context.global.output == Output::Json;
    let mut printer = context.printer(false);
    let mut rows = printer.rows(edge_columns(has_ids));
    for part in neighbors.chunks(NAMED_AT_ONCE) {
        let keys = part.iter().map(|neighbor| match neighbor.direction {
            Way::In => wire::EdgeKey::new(neighbor.id, &*neighbor.kind, id),
            Way::Out | Way::Both => wire::EdgeKey::new(id, &*neighbor.kind, neighbor.id),
        });
        let found = graph.edges(keys.collect())?;
        push_edges(graph, &mut rows, &found, has_ids)?;
    }
    rows.finish()?;
    Ok(())
}

fn edge_columns(has_ids: bool) -> &'static [&'static str] {
    const COLUMNS: &[&str] = &[
        "source",
        "kind",
        "target",
        "attributes",
        "source_id",
        "target_id",
    ];
    match has_ids {
        true => COLUMNS,
        false => &COLUMNS[..4],
    }
}

/// Prints edges with the names of their ends, which are read for all of them at once.
fn push_edges(
    graph: &View<'_>,
    rows: &mut Rows<'_, '_>,
    edges: &[bowline::Edge],
    has_ids: bool,
) -> Result<(), Failure> {
    let ends = edges.iter().flat_map(|edge| [edge.source, edge.target]);
    let mut labels = Labels::of(graph, ends)?;
    for edge in edges {
        let mut row = vec![
            labels.get(edge.source)?.into(),
            edge.kind.as_str().into(),
            labels.get(edge.target)?.into(),
            Field::Attributes(edge.attributes.clone()),
        ];
        if has_ids {
            row.extend([edge.source, edge.target].map(|id| id.to_string().into()));
        }
        rows.push(row)?;
    }
    Ok(())
}
