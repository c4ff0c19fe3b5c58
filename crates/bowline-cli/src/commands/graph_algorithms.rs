//! `graph rank|communities|triangles|clustering|k-hop|simple-paths`.
//!
//! A table shows the first [`SHOWN`] results if `--limit` does not say how many, and its last line how many there are;
//! JSON has all.

use std::iter;

use bowline::{BlockId, Path};

use super::graph::components;
use crate::args::{Algorithm, Output};
use crate::context::{Context, at_most, counted, not_found};
use crate::exit::Failure;
use crate::output::Field;
use crate::remote::GRAPH_TIMEOUT;
use crate::store::algorithms::{Largest, Paths};
use crate::store::resolve::{Labels, find};
use crate::store::target::Target;
use crate::store::view::View;

/// How many results a table shows.
const SHOWN: u64 = 20;

pub(super) fn run(context: &mut Context<'_, '_>, args: &Algorithm) -> Result<(), Failure> {
    let (scope, limit) = match args {
        Algorithm::Rank { edges, limit, .. }
        | Algorithm::KHop { edges, limit, .. }
        | Algorithm::SimplePaths { edges, limit, .. } => (&edges.scope, *limit),
        Algorithm::Communities { scope, limit, .. }
        | Algorithm::Triangles { scope, limit, .. }
        | Algorithm::Clustering { scope, limit, .. } => (scope, *limit),
    };
    let target = Target::open_to_read(context, GRAPH_TIMEOUT)?;
    let view = &target.at(scope.rev)?;
    let shown = shown(context, limit);
    match args {
        Algorithm::Rank {
            damping,
            iterations,
            edges,
            ..
        } => {
            let ranks = view.ranks((*damping, *iterations), edges, shown)?;
            let columns = &["block", "rank", "id"];
            largest(context, view, columns, &ranks, Field::Fine)
        }
        Algorithm::Communities { iterations, .. } => {
            let (groups, count) = view.communities(scope, *iterations, shown)?;
            components(context, view, &["community", "size", "blocks"], &groups)?;
            let names = ("community", "communities");
            left(context, groups.len(), count, names, "")
        }
        Algorithm::Triangles { .. } => triangles(context, view, &view.triangles(scope, shown)?),
        Algorithm::Clustering { undirected, .. } => {
            let found = view.clustering(scope, *undirected, shown)?;
            clustering(context, view, &found)
        }
        Algorithm::KHop {
            block, hops, edges, ..
        } => {
            let near = view.k_hop(find(view, block)?, *hops, edges)?;
            neighborhood(context, view, near, shown)
        }
        Algorithm::SimplePaths {
            from,
            to,
            edges,
            max_depth,
            ..
        } => {
            let ends = (find(view, from)?, find(view, to)?);
            let mut paths = view.simple_paths(ends, edges, *max_depth, shown)?;
            match paths.next()? {
                Some(first) => simple_paths(context, view, first, paths, shown),
                None => Err(not_found(format!("no path leads from {from} to {to}"))),
            }
        }
    }
}

/// How many results are shown.
fn shown(context: &Context<'_, '_>, limit: Option<u64>) -> usize {
    match (limit, context.global.output) {
        (None, Output::Table) => at_most(Some(SHOWN)),
        (limit, _) => at_most(limit),
    }
}

/// Says how many of the results are above, and how the others can be had.
fn left(
    context: &mut Context<'_, '_>,
    shown: usize,
    count: usize,
    (one, several): (&str, &str),
    more: &str,
) -> Result<(), Failure> {
    let name = if count == 1 { one } else { several };
    match count - shown {
        0 => context.remark(&format!("{count} {name}{more}")),
        left => context.remark(&format!(
            "{count} {name}{more}, {left} of them not shown: --limit shows more, -o json all"
        )),
    }
}

/// The blocks with the largest values.
fn largest<T: Copy>(
    context: &mut Context<'_, '_>,
    view: &View<'_>,
    columns: &'static [&'static str],
    values: &Largest<T>,
    field: impl Fn(T) -> Field,
) -> Result<(), Failure> {
    let found = &values.found;
    let mut labels = Labels::of(view, found.iter().map(|(id, _)| *id))?;
    let rows = found.iter().map(|(id, value)| {
        let (label, id) = (labels.get(*id)?, id.to_string());
        Ok(vec![label.into(), field(*value), id.into()])
    });
    context.rows(columns, rows)?;
    left(context, found.len(), values.count, ("block", "blocks"), "")
}

/// The blocks in most triangles, and the number of triangles.
fn triangles(
    context: &mut Context<'_, '_>,
    view: &View<'_>,
    counts: &Largest<u64>,
) -> Result<(), Failure> {
    let columns = &["block", "triangles", "id"];
    largest(context, view, columns, counts, Field::Number)?;
    // Each was counted at its three corners.
    let count = usize::try_from(counts.sum / 3).unwrap_or(usize::MAX);
    context.remark(&counted(count, "triangle"))
}

/// The blocks with the largest coefficients, and the mean of all.
fn clustering(
    context: &mut Context<'_, '_>,
    view: &View<'_>,
    found: &Largest<f64>,
) -> Result<(), Failure> {
    let columns = &["block", "coefficient", "id"];
    largest(context, view, columns, found, Field::Real)?;
    // The sum of no numbers is -0, which a reply does not keep: with 0 it is 0.
    let mean = (found.sum + 0.0) / (found.count.max(1) as f64);
    context.remark(&format!("{mean:.3} on average"))
}

/// The blocks around another, the nearest first.
fn neighborhood(
    context: &mut Context<'_, '_>,
    view: &View<'_>,
    mut found: Vec<(BlockId, u32)>,
    shown: usize,
) -> Result<(), Failure> {
    let count = found.len();
    let levels = found.chunk_by(|a, b| a.1 == b.1);
    let level = |level: &[(BlockId, u32)]| format!("{} at distance {}", level.len(), level[0].1);
    let levels: Vec<String> = levels.map(level).collect();
    found.truncate(shown);
    let mut labels = Labels::of(view, found.iter().map(|(id, _)| *id))?;
    let rows = found.iter().map(|(id, hops)| {
        let (label, id) = (labels.get(*id)?, id.to_string());
        Ok(vec![u64::from(*hops).into(), label.into(), id.into()])
    });
    context.rows(&["hops", "block", "id"], rows)?;
    let more = match levels.is_empty() {
        true => String::new(),
        false => format!(": {}", levels.join(", ")),
    };
    left(context, found.len(), count, ("block", "blocks"), &more)
}

/// The paths, each as it is found.
fn simple_paths(
    context: &mut Context<'_, '_>,
    view: &View<'_>,
    first: Path,
    mut paths: Paths<'_>,
    shown: usize,
) -> Result<(), Failure> {
    let mut labels = Labels::of(view, [])?;
    let mut count = 0;
    let found = iter::once(Ok(first)).chain(iter::from_fn(|| paths.next().transpose()));
    let rows = found.take(shown).map(|path| {
        let Path { blocks, kinds, .. } = path?;
        count += 1;
        let kinds = kinds.iter().map(ToString::to_string).collect();
        Ok(vec![
            (count as u64).into(),
            (blocks.len() as u64 - 1).into(),
            Field::List(labels.all(&blocks)?),
            Field::List(kinds),
        ])
    });
    context.rows(&["path", "edges", "blocks", "over"], rows)?;
    // Checks whether there is one more: otherwise the paths above would be taken for all there are.
    if shown > 0 && !paths.has_more()? {
        return context.remark(&counted(count, "path"));
    }
    match context.global.output {
        Output::Json => context.record(&[("stopped_by", "--limit".into())]),
        Output::Table => context.remark(&format!(
            "the first {}; there are more: --limit shows more, -o json all",
            counted(count, "path")
        )),
    }
}
