//! The relationships of a node, page by page.

use std::sync::Arc;

use bowline_types::{BlockId, Direction};

use super::context::Context;
use crate::error::Result;
use crate::value::{Name, RelationshipId};

/// How many relationships a page has.
const PAGE: usize = 256;

/// A cursor over the relationships of a node. Both directions: first those that leave, then those that reach; a loop is
/// seen once.
pub(super) struct Steps {
    node: BlockId,
    /// The directions that are left; the last is the present one.
    directions: Vec<Direction>,
    both: bool,
    page: std::vec::IntoIter<Arc<RelationshipId>>,
    last: Option<Arc<RelationshipId>>,
    exhausted: bool,
}

impl Steps {
    pub fn new(node: BlockId, direction: Direction) -> Steps {
        let both = direction == Direction::Both;
        let directions = if both {
            vec![Direction::In, Direction::Out]
        } else {
            vec![direction]
        };
        Steps {
            node,
            directions,
            both,
            page: Vec::new().into_iter(),
            last: None,
            exhausted: false,
        }
    }

    /// The next relationship of one of the kinds, or of any.
    pub fn next(
        &mut self,
        kinds: &[Name],
        cx: &mut Context<'_>,
    ) -> Result<Option<Arc<RelationshipId>>> {
        loop {
            let Some(direction) = self.directions.last().copied() else {
                return Ok(None);
            };
            for id in self.page.by_ref() {
                let seen_before = self.both && direction == Direction::In && id.source == id.target;
                if !seen_before {
                    cx.tick()?;
                    return Ok(Some(id));
                }
            }
            if self.exhausted {
                self.directions.pop();
                self.last = None;
                self.exhausted = false;
                continue;
            }
            let mut page = Vec::new();
            cx.graph().relationships(
                self.node,
                direction,
                kinds,
                self.last.as_deref(),
                PAGE,
                &mut page,
            )?;
            self.exhausted = page.len() < PAGE;
            self.last = page.last().cloned();
            self.page = page.into_iter();
        }
    }
}
