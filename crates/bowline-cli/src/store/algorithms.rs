//! The algorithms on the graph of a view, each for a directory and for a cluster.
//!
//! A cluster sends what is shown, and figures about the rest.

use std::cmp::Reverse;
use std::iter::Sum;

use bowline::{BlockId, BlockValues, Graph, Path, PathIter, Snapshot};
use bowline_client::graph::{PathStream, ValuesReply};

use super::graph::direction;
use super::view::{RemoteView, View};
use crate::args::{EdgeFilter, Scope};
use crate::exit::{Exit, Failure};
use crate::interrupt;

/// The blocks with the largest values, and figures about all blocks.
pub(crate) struct Largest<T> {
    pub(crate) found: Vec<(BlockId, T)>,
    /// How many blocks have a value.
    pub(crate) count: usize,
    /// The sum of all values.
    pub(crate) sum: T,
}

impl<T: Copy + PartialOrd + Sum> Largest<T> {
    fn of(values: &BlockValues<T>, shown: usize) -> Largest<T> {
        Largest {
            found: values.largest(shown),
            count: values.len(),
            sum: values.iter().map(|(_, value)| value).sum(),
        }
    }

    fn of_reply(reply: ValuesReply<T>) -> Largest<T> {
        Largest {
            found: reply.values,
            count: usize::try_from(reply.count).unwrap_or(usize::MAX),
            sum: reply.sum,
        }
    }
}

/// The simple paths between two blocks, as they are found.
pub(crate) enum Paths<'a> {
    Local(Box<PathIter>),
    Remote(&'a RemoteView<'a>, Box<PathStream>),
}

/// The limit of a request that gives so many results.
fn limit(shown: usize) -> Option<u64> {
    (shown < usize::MAX).then_some(shown as u64)
}

/// The graph of a directory, whose computations an interrupt ends.
pub(super) fn local(snapshot: &Snapshot) -> Graph {
    snapshot.graph().cancelable(&interrupt::cancel())
}

impl View<'_> {
    /// The blocks with the largest ranks.
    pub(crate) fn ranks(
        &self,
        (damping, iterations): (f64, u32),
        edges: &EdgeFilter,
        shown: usize,
    ) -> Result<Largest<f64>, Failure> {
        macro_rules! set_all {
            ($ranks:expr) => {
                $ranks
                    .kinds(&edges.scope.kinds)
                    .direction(direction(edges.direction))
                    .damping(damping)
                    .iterations(iterations)
            };
        }
        match self {
            View::Local(snapshot) => {
                let ranks = set_all!(local(snapshot).page_rank()).run()?;
                Ok(Largest::of(&ranks, shown))
            }
            View::Remote(view) => {
                let ranks = set_all!(view.remote.graph.page_rank());
                let reply = ask!(view, set!(ranks, limit(limit(shown))));
                Ok(Largest::of_reply(reply))
            }
        }
    }

    /// The blocks in most triangles.
    pub(crate) fn triangles(&self, scope: &Scope, shown: usize) -> Result<Largest<u64>, Failure> {
        match self {
            View::Local(snapshot) => {
                let counts = local(snapshot).triangles().kinds(&scope.kinds);
                Ok(Largest::of(&counts.per_block()?, shown))
            }
            View::Remote(view) => {
                let counts = view.remote.graph.triangles().kinds(&scope.kinds);
                let reply = ask!(view, set!(counts, limit(limit(shown))));
                Ok(Largest::of_reply(reply))
            }
        }
    }

    /// The blocks with the largest clustering coefficients.
    pub(crate) fn clustering(
        &self,
        scope: &Scope,
        undirected: bool,
        shown: usize,
    ) -> Result<Largest<f64>, Failure> {
        macro_rules! set_all {
            ($coefficients:expr) => {{
                let coefficients = $coefficients.kinds(&scope.kinds);
                match undirected {
                    true => coefficients.undirected(),
                    false => coefficients,
                }
            }};
        }
        match self {
            View::Local(snapshot) => {
                let found = set_all!(local(snapshot).clustering_coefficients()).run()?;
                Ok(Largest::of(&found, shown))
            }
            View::Remote(view) => {
                let found = set_all!(view.remote.graph.clustering_coefficients());
                let reply = ask!(view, set!(found, limit(limit(shown))));
                Ok(Largest::of_reply(reply))
            }
        }
    }

    /// The largest communities, and how many there are.
    pub(crate) fn communities(
        &self,
        scope: &Scope,
        iterations: u32,
        shown: usize,
    ) -> Result<(Vec<Vec<BlockId>>, usize), Failure> {
        match self {
            View::Local(snapshot) => {
                let labels = local(snapshot).communities().kinds(&scope.kinds);
                let mut groups = labels.iterations(iterations).run()?.groups();
                // Stable, so that equally large ones keep their order.
                groups.sort_by_key(|group| Reverse(group.len()));
                let count = groups.len();
                groups.truncate(shown);
                Ok((groups, count))
            }
            View::Remote(view) => {
                let labels = view.remote.graph.communities().kinds(&scope.kinds);
                let labels = labels.iterations(iterations);
                let reply = ask!(view, set!(labels, limit(limit(shown))));
                let count = usize::try_from(reply.count).unwrap_or(usize::MAX);
                Ok((reply.communities, count))
            }
        }
    }

    /// The blocks around another with their distances, the nearest first, and those of one distance by id.
    pub(crate) fn k_hop(
        &self,
        start: BlockId,
        hops: u32,
        edges: &EdgeFilter,
    ) -> Result<Vec<(BlockId, u32)>, Failure> {
        let kinds = &edges.scope.kinds;
        match self {
            View::Local(snapshot) => {
                let near = local(snapshot).k_hop(start, hops).kinds(kinds);
                let near = near.direction(direction(edges.direction)).run()?;
                let mut found: Vec<(BlockId, u32)> = near.iter().collect();
                // Stable, so that those of one distance stay in the order of their ids.
                found.sort_by_key(|(_, hops)| *hops);
                Ok(found)
            }
            View::Remote(view) => {
                let near = view.remote.graph.k_hop(start, hops).kinds(kinds);
                let near = near.direction(direction(edges.direction));
                Ok(ask!(view, near).blocks)
            }
        }
    }

    /// The simple paths, of which so many will be taken.
    pub(crate) fn simple_paths(
        &self,
        (from, to): (BlockId, BlockId),
        edges: &EdgeFilter,
        max_depth: Option<u32>,
        shown: usize,
    ) -> Result<Paths<'_>, Failure> {
        macro_rules! set_all {
            ($search:expr) => {{
                let search = $search.kinds(&edges.scope.kinds);
                let search = search.direction(direction(edges.direction));
                set!(search, max_depth(max_depth))
            }};
        }
        match self {
            View::Local(snapshot) => {
                let search = set_all!(local(snapshot).simple_paths(from, to));
                Ok(Paths::Local(Box::new(search.find()?)))
            }
            View::Remote(view) => {
                let search = set_all!(view.remote.graph.simple_paths(from, to));
                // Whether there is one at all is to be known in any case.
                let search = set!(search, limit(limit(shown.max(1))));
                let stream = ask!(view, search, revision());
                Ok(Paths::Remote(view, Box::new(stream)))
            }
        }
    }
}

impl Paths<'_> {
    /// The next path.
    pub(crate) fn next(&mut self) -> Result<Option<Path>, Failure> {
        let (view, stream) = match self {
            Paths::Local(paths) => return Ok(paths.next().transpose()?),
            Paths::Remote(view, stream) => (view, stream),
        };
        let found = view.remote.wait(stream.next())?;
        if found.is_none() && stream.is_stopped_by_server() {
            let text = "there are more paths than the server gives at once: give --limit or --max-depth, or \
                        raise the server's --max-traversal-blocks";
            return Err(Failure::new(Exit::Invalid, text));
        }
        Ok(found)
    }

    /// Whether there are more, after those that were to be taken.
    pub(crate) fn has_more(&mut self) -> Result<bool, Failure> {
        let is_found = self.next()?.is_some();
        Ok(is_found || matches!(self, Paths::Remote(_, stream) if stream.more()))
    }
}
