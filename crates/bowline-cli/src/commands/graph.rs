//! `graph neighbors|reach|path|order|components|stats|dot`; the algorithms are in [`super::graph_algorithms`], queries in
//! [`super::query`], indexes in [`super::indexes`].

use std::cmp::Reverse;
use std::collections::HashSet;

use bowline::{BlockId, Direction, Neighbor, Path, Stop, Traversal};

use super::transfer::{block_item, edge_item};
use super::{graph_algorithms, indexes, query};
use crate::args::{Bounds, EdgeFilter, ExportFormat, Graph, Output};
use crate::context::{Context, at_most, counted, not_found};
use crate::exit::{Exit, Failure};
use crate::export;
use crate::import::BlockRef;
use crate::output::Field;
use crate::remote::GRAPH_TIMEOUT;
use crate::store::resolve::{Labels, find};
use crate::store::target::Target;
use crate::store::view::View;

pub(crate) fn run(context: &mut Context<'_, '_>, args: &Graph) -> Result<(), Failure> {
    let scope = match args {
        Graph::Neighbors { edges, .. }
        | Graph::Reach { edges, .. }
        | Graph::Path { edges, .. }
        | Graph::Dot { edges, .. } => &edges.scope,
        Graph::Order { scope } | Graph::Components { scope, .. } | Graph::Stats { scope } => scope,
        Graph::Algorithm(args) => return graph_algorithms::run(context, args),
        Graph::Query(args) => return query::run(context, args),
        Graph::Index(args) => return indexes::run(context, args),
    };
    let target = Target::open_to_read(context, GRAPH_TIMEOUT)?;
    let graph = &target.at(scope.rev)?;
    match args {
        Graph::Neighbors {
            block,
            edges,
            limit,
        } => {
            let mut found = graph.neighbors(find(graph, block)?, edges, *limit)?;
            found.truncate(at_most(*limit));
            neighbors(context, graph, found)
        }
        Graph::Reach {
            block,
            edges,
            bounds,
            depth_first,
        } => {
            let start = find(graph, block)?;
            let found = graph.traverse(start, edges, bounds, *depth_first)?;
            reached(context, graph, found)
        }
        Graph::Path {
            from,
            to,
            weight,
            default_weight,
            edges,
            max_depth,
        } => {
            let ends = (find(graph, from)?, find(graph, to)?);
            let weight = (weight.as_deref(), *default_weight);
            let found = graph
                .path(ends, weight, edges, *max_depth)
                .map_err(|failure| with_names(graph, &failure))?;
            match found {
                Some(found) => path(context, graph, &found),
                None => Err(not_found(format!("no path leads from {from} to {to}"))),
            }
        }
        Graph::Order { scope } => match graph.order(scope)? {
            Ok(ids) => order(context, graph, &ids),
            Err(cycle) => {
                // With the names people know, not only the ids.
                let mut labels = Labels::of(graph, cycle.iter().copied())?;
                let names: Vec<_> = labels.all(&cycle)?;
                let text = format!("the graph has a cycle: {}", names.join(" -> "));
                Err(Failure::new(Exit::Invalid, text))
            }
        },
        Graph::Components {
            strong,
            limit,
            scope,
        } => {
            let mut found = graph.components(scope, *strong)?;
            // Stable, so that equally large ones keep their order.
            found.sort_by_key(|component| Reverse(component.len()));
            let count = found.len();
            found.truncate(at_most(*limit));
            components(context, graph, &["component", "size", "blocks"], &found)?;
            let what = if *strong { "strongly" } else { "weakly" };
            let count = counted(count, &format!("{what} connected component"));
            context.remark(&count)
        }
        Graph::Stats { scope } => context.record(&graph.statistics(scope)?),
        Graph::Dot {
            block,
            edges,
            bounds,
        } => dot(context, graph, block.as_ref(), edges, bounds),
        Graph::Algorithm(args) => graph_algorithms::run(context, args),
        Graph::Query(args) => query::run(context, args),
        Graph::Index(args) => indexes::run(context, args),
    }
}

fn neighbors(
    context: &mut Context<'_, '_>,
    graph: &View<'_>,
    found: Vec<Neighbor>,
) -> Result<(), Failure> {
    let mut labels = Labels::of(graph, found.iter().map(|neighbor| neighbor.id))?;
    let rows = found.into_iter().map(|neighbor| {
        let way = match neighbor.direction {
            Direction::In => "in",
            Direction::Out | Direction::Both => "out",
        };
        Ok(vec![
            labels.get(neighbor.id)?.into(),
            neighbor.kind.as_ref().into(),
            way.into(),
            neighbor.id.to_string().into(),
        ])
    });
    context.rows(&["block", "kind", "direction", "id"], rows)
}

fn reached(
    context: &mut Context<'_, '_>,
    graph: &View<'_>,
    found: Traversal,
) -> Result<(), Failure> {
    let mut labels = Labels::of(graph, found.visits.iter().map(|visit| visit.id))?;
    let count = found.visits.len();
    let rows = found.visits.into_iter().map(|visit| {
        let from = visit.parent.map(|parent| labels.get(parent)).transpose()?;
        Ok(vec![
            u64::from(visit.depth).into(),
            labels.get(visit.id)?.into(),
            from.into(),
            visit.kind.map(|kind| kind.to_string()).into(),
            visit.id.to_string().into(),
        ])
    });
    context.rows(&["depth", "block", "from", "kind", "id"], rows)?;
    let (stop, bound) = match found.stop {
        Stop::Exhausted => ("everything reachable was visited", None),
        Stop::MaxDepth => (
            "stopped by --max-depth; there is more beyond",
            Some("--max-depth"),
        ),
        Stop::Limit => ("stopped by --limit; there is more", Some("--limit")),
        Stop::MaxBytes => ("stopped by --max-bytes; there is more", Some("--max-bytes")),
        Stop::MaxNeighbors => (
            "neighbors beyond --max-neighbors were left out",
            Some("--max-neighbors"),
        ),
        Stop::LimitOfServer => (
            "stopped by the server's --max-traversal-blocks; there is more",
            Some("--max-traversal-blocks"),
        ),
    };
    if let (Output::Json, Some(bound)) = (context.global.output, bound) {
        // Without this record, the blocks would be taken for all there are.
        context.record(&[("stopped_by", bound.into())])?;
    }
    let edges = usize::try_from(found.edges_touched).unwrap_or(usize::MAX);
    let (blocks, edges) = (counted(count, "block"), counted(edges, "edge"));
    context.remark(&format!("{blocks} over {edges}: {stop}"))
}

/// A failure about an edge, with the names of its blocks in the place of their ids.
fn with_names(graph: &View<'_>, failure: &Failure) -> Failure {
    let named = || {
        let (from, rest) = failure.message.strip_prefix("edge ")?.split_once(" -> ")?;
        let (to, rest) = rest.split_once(" has ")?;
        let (BlockRef::Id(from), BlockRef::Id(to)) = (BlockRef::parse(from), BlockRef::parse(to))
        else {
            return None;
        };
        let ids = [BlockId(from), BlockId(to)];
        let names = Labels::of(graph, ids).ok()?.all(&ids).ok()?;
        Some(format!("edge {} -> {} has {rest}", names[0], names[1]))
    };
    let message = named().unwrap_or_else(|| failure.message.clone());
    Failure::new(failure.exit, message)
}

fn path(context: &mut Context<'_, '_>, graph: &View<'_>, found: &Path) -> Result<(), Failure> {
    let mut labels = Labels::of(graph, found.blocks.iter().copied())?;
    let rows = found.blocks.iter().enumerate().map(|(step, id)| {
        let over = step.checked_sub(1).map(|edge| &*found.kinds[edge]);
        let (label, id) = (labels.get(*id)?, id.to_string());
        Ok(vec![
            (step as u64).into(),
            label.into(),
            over.into(),
            id.into(),
        ])
    });
    context.rows(&["step", "block", "over", "id"], rows)?;
    let edges = counted(found.kinds.len(), "edge");
    context.remark(&format!("{edges}, cost {}", found.cost))
}

fn order(context: &mut Context<'_, '_>, graph: &View<'_>, ids: &[BlockId]) -> Result<(), Failure> {
    let mut labels = Labels::of(graph, ids.iter().copied())?;
    let rows = (1_u64..).zip(ids).map(|(position, id)| {
        let (label, id) = (labels.get(*id)?, id.to_string());
        Ok(vec![position.into(), label.into(), id.into()])
    });
    context.rows(&["position", "block", "id"], rows)
}

/// Numbered sets of blocks.
pub(super) fn components(
    context: &mut Context<'_, '_>,
    graph: &View<'_>,
    columns: &'static [&'static str],
    found: &[Vec<BlockId>],
) -> Result<(), Failure> {
    let mut labels = Labels::of(graph, found.iter().flatten().copied())?;
    let rows = (1_u64..).zip(found).map(|(number, component)| {
        let size = component.len() as u64;
        let names = Field::List(labels.all(component)?);
        Ok(vec![number.into(), size.into(), names])
    });
    context.rows(columns, rows)
}

fn dot(
    context: &mut Context<'_, '_>,
    graph: &View<'_>,
    block: Option<&BlockRef>,
    edges: &EdgeFilter,
    bounds: &Bounds,
) -> Result<(), Failure> {
    let mut chosen: HashSet<BlockId> = HashSet::new();
    let start = block.map(|block| find(graph, block)).transpose()?;
    if let Some(start) = start {
        let found = graph.traverse(start, edges, bounds, false)?;
        if found.stop == Stop::LimitOfServer {
            let text = "more can be reached than the server tells at once: give --limit or --max-depth, or raise the \
                        server's --max-traversal-blocks";
            return Err(Failure::new(Exit::Invalid, text));
        }
        chosen.extend(found.visits.into_iter().map(|visit| visit.id));
    } else if !bounds.are_none() {
        let text = "bounds and --where are those of a traversal: name the block that it starts at, or leave them out";
        return Err(Failure::new(Exit::Usage, text));
    }
    let is_chosen = |id: &BlockId| start.is_none() || chosen.contains(id);
    let mut writer = export::writer(ExportFormat::Dot, &mut *context.streams.stdout);
    let kinds = &edges.scope.kinds;
    graph.for_each_block(&mut |block| {
        if is_chosen(&block.id) {
            writer.item(&block_item(block))?;
        }
        Ok(())
    })?;
    graph.for_each_edge(&mut |edge| {
        let passes = kinds.is_empty() || kinds.contains(&edge.kind);
        if passes && is_chosen(&edge.source) && is_chosen(&edge.target) {
            writer.item(&edge_item(edge))?;
        }
        Ok(())
    })?;
    Ok(writer.finish()?)
}
