//! `graph neighbors|reach|path|order|components|stats|dot`.

use std::collections::HashSet;

use bowline::BlockId;
use bowline_client::graph::Stop;

use super::transfer::{block_item, edge_item};
use crate::args::{Bounds, EdgeFilter, ExportFormat, Graph, Scope};
use crate::context::{Context, at_most, not_found};
use crate::exit::Failure;
use crate::export;
use crate::import::BlockRef;
use crate::output::Field;
use crate::store::remote::GRAPH_TIMEOUT;
use crate::store::resolve::{Labels, find};
use crate::store::target::Target;

pub(crate) fn run(context: &mut Context<'_, '_>, args: &Graph) -> Result<(), Failure> {
    match args {
        Graph::Neighbors {
            block,
            edges,
            limit,
        } => neighbors(context, block, edges, *limit),
        Graph::Reach {
            block,
            edges,
            bounds,
            depth_first,
        } => reach(context, block, edges, bounds, *depth_first),
        Graph::Path {
            from,
            to,
            weight,
            edges,
            bounds,
        } => path(context, (from, to), weight.as_deref(), edges, bounds),
        Graph::Order { scope } => order(context, scope),
        Graph::Components {
            scope,
            strong,
            limit,
        } => components(context, scope, *strong, *limit),
        Graph::Stats { scope } => stats(context, scope),
        Graph::Dot {
            block,
            edges,
            bounds,
        } => dot(context, block.as_ref(), edges, bounds),
    }
}

fn neighbors(
    context: &mut Context<'_, '_>,
    block: &BlockRef,
    edges: &EdgeFilter,
    limit: Option<u64>,
) -> Result<(), Failure> {
    let target = Target::open(context, GRAPH_TIMEOUT)?;
    let graph = target.at(edges.scope.rev)?;
    let id = find(&graph, block)?;
    let mut found = graph.neighbors(id, edges, limit)?;
    found.truncate(at_most(limit));
    let mut labels = Labels::of(&graph, found.iter().map(|neighbor| neighbor.id))?;
    let mut printer = context.printer(false);
    let mut rows = printer.rows(&["block", "kind", "direction", "id"]);
    for neighbor in found {
        let way = if neighbor.direction == bowline::Direction::In {
            "in"
        } else {
            "out"
        };
        rows.push(vec![
            labels.get(neighbor.id)?.into(),
            neighbor.kind.as_ref().into(),
            way.into(),
            neighbor.id.to_string().into(),
        ])?;
    }
    rows.finish()?;
    Ok(())
}

fn stop_text(stop: Stop) -> &'static str {
    match stop {
        Stop::Exhausted => "everything reachable was visited",
        Stop::MaxDepth => "stopped by --max-depth; there is more beyond",
        Stop::Limit => "stopped by --limit; there is more",
        Stop::MaxBytes => "stopped by --max-bytes; there is more",
        Stop::LimitOfServer => "stopped by the server's --max-traversal-blocks; there is more",
    }
}

fn reach(
    context: &mut Context<'_, '_>,
    block: &BlockRef,
    edges: &EdgeFilter,
    bounds: &Bounds,
    depth_first: bool,
) -> Result<(), Failure> {
    let target = Target::open(context, GRAPH_TIMEOUT)?;
    let graph = target.at(edges.scope.rev)?;
    let start = find(&graph, block)?;
    let found = graph.traverse(start, edges, bounds, depth_first)?;
    let mut labels = Labels::of(&graph, found.visits.iter().map(|visit| visit.id))?;
    let count = found.visits.len();
    {
        let mut printer = context.printer(false);
        let mut rows = printer.rows(&["depth", "block", "from", "kind", "id"]);
        for visit in found.visits {
            let from = visit.parent.map(|parent| labels.get(parent)).transpose()?;
            rows.push(vec![
                u64::from(visit.depth).into(),
                labels.get(visit.id)?.into(),
                from.into(),
                visit.kind.map(|kind| kind.to_string()).into(),
                visit.id.to_string().into(),
            ])?;
        }
        rows.finish()?;
    }
    let stop = stop_text(found.stop);
    context.remark(&format!(
        "{count} blocks over {} edges: {stop}",
        found.edges_touched
    ))
}

fn path(
    context: &mut Context<'_, '_>,
    (from, to): (&BlockRef, &BlockRef),
    weight: Option<&str>,
    edges: &EdgeFilter,
    bounds: &Bounds,
) -> Result<(), Failure> {
    let target = Target::open(context, GRAPH_TIMEOUT)?;
    let graph = target.at(edges.scope.rev)?;
    let (start, end) = (find(&graph, from)?, find(&graph, to)?);
    let Some(found) = graph.path((start, end), weight, edges, bounds.max_depth)? else {
        return Err(not_found(format!("no path leads from {from} to {to}")));
    };
    let mut labels = Labels::of(&graph, found.blocks.iter().copied())?;
    {
        let mut printer = context.printer(false);
        let mut rows = printer.rows(&["step", "block", "over", "id"]);
        for (step, id) in found.blocks.iter().enumerate() {
            let over = step
                .checked_sub(1)
                .map(|edge| found.kinds[edge].to_string());
            let label = labels.get(*id)?;
            let step = step as u64;
            rows.push(vec![
                step.into(),
                label.into(),
                over.into(),
                id.to_string().into(),
            ])?;
        }
        rows.finish()?;
    }
    context.remark(&format!("{} edges, cost {}", found.kinds.len(), found.cost))
}

fn order(context: &mut Context<'_, '_>, scope: &Scope) -> Result<(), Failure> {
    let target = Target::open(context, GRAPH_TIMEOUT)?;
    let graph = target.at(scope.rev)?;
    let ids = match graph.order(scope)? {
        Ok(ids) => ids,
        Err(cycle) => {
            // With the names people know, not only the ids.
            let mut labels = Labels::of(&graph, cycle.iter().copied())?;
            let names = cycle.iter().map(|id| labels.get(*id));
            let names: Vec<_> = names.collect::<Result<_, _>>()?;
            let text = format!("the graph has a cycle: {}", names.join(" -> "));
            return Err(Failure::new(crate::exit::Exit::Invalid, text));
        }
    };
    let mut labels = Labels::of(&graph, ids.iter().copied())?;
    let mut printer = context.printer(false);
    let mut rows = printer.rows(&["position", "block", "id"]);
    for (position, id) in ids.into_iter().enumerate() {
        let label = labels.get(id)?;
        rows.push(vec![
            (position as u64 + 1).into(),
            label.into(),
            id.to_string().into(),
        ])?;
    }
    rows.finish()?;
    Ok(())
}

fn components(
    context: &mut Context<'_, '_>,
    scope: &Scope,
    strong: bool,
    limit: Option<u64>,
) -> Result<(), Failure> {
    let target = Target::open(context, GRAPH_TIMEOUT)?;
    let graph = target.at(scope.rev)?;
    let mut found = graph.components(scope, strong)?;
    // Stable, so that equally large ones keep their order.
    found.sort_by_key(|component| std::cmp::Reverse(component.len()));
    let count = found.len();
    found.truncate(at_most(limit));
    let mut labels = Labels::of(&graph, found.iter().flatten().copied())?;
    {
        let mut printer = context.printer(false);
        let mut rows = printer.rows(&["component", "size", "blocks"]);
        for (number, component) in found.into_iter().enumerate() {
            let size = component.len() as u64;
            let names = component.into_iter().map(|id| labels.get(id));
            let names = Field::List(names.collect::<Result<_, _>>()?);
            rows.push(vec![(number as u64 + 1).into(), size.into(), names])?;
        }
        rows.finish()?;
    }
    let what = if strong { "strongly" } else { "weakly" };
    context.remark(&format!("{count} {what} connected components"))
}

fn stats(context: &mut Context<'_, '_>, scope: &Scope) -> Result<(), Failure> {
    let target = Target::open(context, GRAPH_TIMEOUT)?;
    let statistics = target.at(scope.rev)?.statistics(scope)?;
    context.record(&statistics)
}

fn dot(
    context: &mut Context<'_, '_>,
    block: Option<&BlockRef>,
    edges: &EdgeFilter,
    bounds: &Bounds,
) -> Result<(), Failure> {
    let target = Target::open(context, GRAPH_TIMEOUT)?;
    let graph = target.at(edges.scope.rev)?;
    let mut chosen: HashSet<BlockId> = HashSet::new();
    let start = block.map(|block| find(&graph, block)).transpose()?;
    if let Some(start) = start {
        let found = graph.traverse(start, edges, bounds, false)?;
        chosen.extend(found.visits.into_iter().map(|visit| visit.id));
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
