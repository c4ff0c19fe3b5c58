//! [`PathStream`]: simple paths, as a server finds them.
//!
//! A long path comes in pieces. A piece has as many kinds as blocks, the edges that leave them, except the last of a
//! path, which has one fewer.
//!
//! Invariant: pieces that fit no path are an error, never a shorter path.

use std::collections::VecDeque;

use bowline_proto::v1 as pb;
use bowline_types::Revision;

use super::Path;
use super::parts::Parts;
use super::wire::ids_of;
use crate::Result;
use crate::v1::senseless;

/// The simple paths between two blocks, as the server finds them. Dropping it ends the search.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::{BlockId, PathStream};
///
/// let (ann, dan) = (BlockId::from_name("ann"), BlockId::from_name("dan"));
/// let mut paths: PathStream = client.graph().simple_paths(ann, dan).limit(10).await?;
/// while let Some(path) = paths.next().await? {
///     println!("{} edges at revision {}", path.cost, paths.revision());
/// }
/// if paths.more() {
///     println!("there are more; the server stopped: {}", paths.is_stopped_by_server());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is read until it is asked for"]
pub struct PathStream {
    parts: Parts<pb::SimplePathsReply>,
    joiner: Joiner,
    /// Whether there are more paths, and whether the server's own limit left them out. Known at the end.
    end: Option<(bool, bool)>,
}

impl PathStream {
    pub(super) fn new(parts: Parts<pb::SimplePathsReply>) -> PathStream {
        PathStream {
            parts,
            joiner: Joiner::default(),
            end: None,
        }
    }

    /// The revision that is read.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::BlockId;
    /// # let [app, lib] = ["app", "lib"].map(BlockId::from_name);
    /// let paths = client.graph().simple_paths(app, lib).await?;
    /// println!("every path is of revision {}", paths.revision());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.parts.revision
    }

    /// The next path; `None` after the last.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::BlockId;
    /// # let [app, lib] = ["app", "lib"].map(BlockId::from_name);
    /// let mut paths = client.graph().simple_paths(app, lib).await?;
    /// while let Some(path) = paths.next().await? {
    ///     println!("{:?}", path.blocks);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Disconnected`, `TimedOut`, `InvalidReply` when the stream ends before its last part. What came before
    /// is right; search again from the start.
    pub async fn next(&mut self) -> Result<Option<Path>> {
        loop {
            if let Some(path) = self.joiner.whole.pop_front() {
                return Ok(Some(path));
            }
            let Some(part) = self.parts.next().await? else {
                return Ok(None);
            };
            for piece in part.paths {
                self.joiner.add(piece)?;
            }
            if part.is_last {
                self.joiner.finish()?;
                self.end = Some((part.more, part.is_of_server));
            }
        }
    }

    /// Whether a limit left paths out. Known once [`next`](PathStream::next) has given `None`.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::BlockId;
    /// # let [app, lib] = ["app", "lib"].map(BlockId::from_name);
    /// let mut paths = client.graph().simple_paths(app, lib).limit(10).await?;
    /// while paths.next().await?.is_some() {}
    /// println!("{}", if paths.more() { "there are more" } else { "that is all" });
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn more(&self) -> bool {
        self.end.is_some_and(|(more, _)| more)
    }

    /// Whether the limit that left paths out is the server's own.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::BlockId;
    /// # let [app, lib] = ["app", "lib"].map(BlockId::from_name);
    /// let mut paths = client.graph().simple_paths(app, lib).await?;
    /// while paths.next().await?.is_some() {}
    /// if paths.is_stopped_by_server() {
    ///     println!("the server tells no more paths: bound their length with `max_depth`");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_stopped_by_server(&self) -> bool {
        self.end.is_some_and(|(_, is_of_server)| is_of_server)
    }
}

/// Joins the pieces of paths.
#[derive(Debug, Default)]
struct Joiner {
    whole: VecDeque<Path>,
    /// The path that has begun.
    begun: Option<Path>,
}

impl Joiner {
    fn add(&mut self, piece: pb::PathPart) -> Result<()> {
        let blocks = ids_of(&piece.blocks)?;
        let kinds = piece.kinds.into_iter().map(Into::into);
        match &mut self.begun {
            Some(path) if piece.continues => {
                path.blocks.extend(blocks);
                path.kinds.extend(kinds);
            }
            None if piece.continues => {
                return Err(senseless("a path goes on that has not begun"));
            }
            _ => {
                self.finish()?;
                self.begun = Some(Path {
                    blocks,
                    kinds: kinds.collect(),
                    cost: 0.0,
                });
            }
        }
        let is_whole = |path: &Path| path.kinds.len() < path.blocks.len();
        if self.begun.as_ref().is_some_and(is_whole) {
            self.finish()?;
        }
        Ok(())
    }

    /// Ends the path that has begun.
    fn finish(&mut self) -> Result<()> {
        let Some(mut path) = self.begun.take() else {
            return Ok(());
        };
        if path.kinds.len() + 1 != path.blocks.len() {
            return Err(senseless("a path has not one edge between each two blocks"));
        }
        path.cost = path.kinds.len() as f64;
        self.whole.push_back(path);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BlockId, id_bytes};
    use super::*;
    use crate::Error;

    fn piece(blocks: std::ops::Range<u128>, kinds: usize, continues: bool) -> pb::PathPart {
        pb::PathPart {
            blocks: blocks.map(|id| id_bytes(BlockId(id))).collect(),
            kinds: vec!["next".to_owned(); kinds],
            continues,
        }
    }

    #[test]
    fn pieces_of_paths_are_joined() {
        let mut joiner = Joiner::default();
        // A path of three pieces, one without edges, and one of one piece.
        for piece in [
            piece(0..2, 2, false),
            piece(2..4, 2, true),
            piece(4..5, 0, true),
            piece(7..8, 0, false),
            piece(8..10, 1, false),
        ] {
            joiner.add(piece).unwrap();
        }
        joiner.finish().unwrap();
        let found: Vec<_> = joiner
            .whole
            .iter()
            .map(|path| (path.blocks.len(), path.cost))
            .collect();
        assert_eq!(found, [(5, 4.0), (1, 0.0), (2, 1.0)]);
        assert!(
            (0..5)
                .map(BlockId)
                .eq(joiner.whole[0].blocks.iter().copied())
        );
    }

    #[test]
    fn pieces_that_fit_no_path_are_an_error() {
        for pieces in [
            vec![piece(0..2, 1, true)],
            vec![piece(0..2, 0, false)],
            vec![piece(0..2, 3, false)],
            vec![piece(0..2, 2, false), piece(0..2, 1, false)],
        ] {
            let mut joiner = Joiner::default();
            let joined = pieces.into_iter().try_for_each(|piece| joiner.add(piece));
            let joined = joined.and_then(|()| joiner.finish());
            assert!(matches!(joined, Err(Error::InvalidReply { .. })));
        }
    }
}
