//! `graph rank|communities|triangles|clustering|k-hop|simple-paths`.
//!
//! They work on a directory: the wire has no calls for them. A table shows the first [`SHOWN`] results if `--limit` does not
//! say how many, and its last line how many there are; JSON has all.

use std::cmp::Reverse;

use bowline::{BlockId, BlockValues, Path};

use super::graph::components;
use crate::args::{Algorithm, Output};
use crate::context::{Context, at_most, counted, not_found};
use crate::exit::Failure;
use crate::interrupt;
use crate::output::Field;
use crate::store::graph::direction;
use crate::store::resolve::{Labels, find};
use crate::store::view::View;

/// How many results a table shows.
const SHOWN: u64 = 20;

pub(super) fn run(context: &mut Context<'_, '_>, args: &Algorithm) -> Result<(), Failure> {
    let scope = match args {
        Algorithm::Rank { edges, .. }
        | Algorithm::KHop { edges, .. }
        | Algorithm::SimplePaths { edges, .. } => &edges.scope,
        Algorithm::Communities { scope, .. }
        | Algorithm::Triangles { scope, .. }
        | Algorithm::Clustering { scope, .. } => scope,
    };
    let directory = context.open_to_read()?;
    let snapshot = match scope.rev {
        Some(revision) => directory.snapshot_at(revision)?,
        None => directory.snapshot(),
    };
    let graph = snapshot.graph().cancelable(&interrupt::cancel());
    let view = &View::Local(snapshot);
    let kinds = &scope.kinds;
    match args {
        Algorithm::Rank {
            damping,
            iterations,
            edges,
            limit,
        } => {
            let ranks = graph.page_rank().kinds(kinds).damping(*damping);
            let ranks = ranks.iterations(*iterations);
            let ranks = ranks.direction(direction(edges.direction)).run()?;
            largest(
                context,
                view,
                &["block", "rank", "id"],
                &ranks,
                *limit,
                Field::Fine,
            )
        }
        Algorithm::Communities {
            iterations, limit, ..
        } => {
            let labels = graph.communities().kinds(kinds).iterations(*iterations);
            let mut groups = labels.run()?.groups();
            // Stable, so that equally large ones keep their order.
            groups.sort_by_key(|group| Reverse(group.len()));
            let count = groups.len();
            groups.truncate(shown(context, *limit));
            components(context, view, &["community", "size", "blocks"], &groups)?;
            left(
                context,
                groups.len(),
                count,
                ("community", "communities"),
                "",
            )
        }
        Algorithm::Triangles { limit, .. } => {
            let counts = graph.triangles().kinds(kinds).per_block()?;
            triangles(context, view, &counts, *limit)
        }
        Algorithm::Clustering {
            undirected, limit, ..
        } => {
            let coefficients = graph.clustering_coefficients().kinds(kinds);
            let found = match undirected {
                true => coefficients.undirected().run()?,
                false => coefficients.run()?,
            };
            clustering(context, view, &found, *limit)
        }
        Algorithm::KHop {
            block,
            hops,
            edges,
            limit,
        } => {
            let near = graph.k_hop(find(view, block)?, *hops).kinds(kinds);
            let near = near.direction(direction(edges.direction)).run()?;
            neighborhood(context, view, &near, *limit)
        }
        Algorithm::SimplePaths {
            from,
            to,
            edges,
            max_depth,
            limit,
        } => {
            let ends = (find(view, from)?, find(view, to)?);
            let search = graph.simple_paths(ends.0, ends.1).kinds(kinds);
            let search = search.direction(direction(edges.direction));
            let search = match max_depth {
                Some(depth) => search.max_depth(*depth),
                None => search,
            };
            let mut paths = search.find()?.peekable();
            match paths.peek() {
                Some(_) => simple_paths(context, view, paths, *limit),
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
fn largest<T: Copy + PartialOrd>(
    context: &mut Context<'_, '_>,
    view: &View<'_>,
    columns: &'static [&'static str],
    values: &BlockValues<T>,
    limit: Option<u64>,
    field: impl Fn(T) -> Field,
) -> Result<(), Failure> {
    let found = values.largest(shown(context, limit));
    let mut labels = Labels::of(view, found.iter().map(|(id, _)| *id))?;
    let rows = found.iter().map(|(id, value)| {
        let (label, id) = (labels.get(*id)?, id.to_string());
        Ok(vec![label.into(), field(*value), id.into()])
    });
    context.rows(columns, rows)?;
    left(context, found.len(), values.len(), ("block", "blocks"), "")
}

/// The blocks in most triangles, and the number of triangles.
fn triangles(
    context: &mut Context<'_, '_>,
    view: &View<'_>,
    counts: &BlockValues<u64>,
    limit: Option<u64>,
) -> Result<(), Failure> {
    let columns = &["block", "triangles", "id"];
    largest(context, view, columns, counts, limit, Field::Number)?;
    // Each was counted at its three corners.
    let count = counts.iter().map(|(_, count)| count).sum::<u64>() / 3;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    context.remark(&counted(count, "triangle"))
}

/// The blocks with the largest coefficients, and the mean of all.
fn clustering(
    context: &mut Context<'_, '_>,
    view: &View<'_>,
    found: &BlockValues<f64>,
    limit: Option<u64>,
) -> Result<(), Failure> {
    let columns = &["block", "coefficient", "id"];
    largest(context, view, columns, found, limit, Field::Real)?;
    let sum: f64 = found.iter().map(|(_, coefficient)| coefficient).sum();
    let mean = sum / (found.len().max(1) as f64);
    context.remark(&format!("{mean:.3} on average"))
}

/// The blocks around another, the nearest first.
fn neighborhood(
    context: &mut Context<'_, '_>,
    view: &View<'_>,
    near: &BlockValues<u32>,
    limit: Option<u64>,
) -> Result<(), Failure> {
    let mut found: Vec<(BlockId, u32)> = near.iter().collect();
    // Stable, so that those of one distance stay in the order of their ids.
    found.sort_by_key(|(_, hops)| *hops);
    let levels = found.chunk_by(|a, b| a.1 == b.1);
    let level = |level: &[(BlockId, u32)]| format!("{} at distance {}", level.len(), level[0].1);
    let levels: Vec<String> = levels.map(level).collect();
    found.truncate(shown(context, limit));
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
    left(context, found.len(), near.len(), ("block", "blocks"), &more)
}

/// The paths, each as it is found.
fn simple_paths(
    context: &mut Context<'_, '_>,
    view: &View<'_>,
    mut paths: impl Iterator<Item = bowline::Result<Path>>,
    limit: Option<u64>,
) -> Result<(), Failure> {
    let shown = shown(context, limit);
    let mut labels = Labels::of(view, [])?;
    let mut count = 0;
    let rows = paths.by_ref().take(shown).map(|path| {
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
    // Whether there is one more is worth a look: who reads the paths above would take them for all there are.
    if paths.next().transpose()?.is_none() {
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
