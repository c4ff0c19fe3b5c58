//! MERGE: what matches, or else what is created. Each row sees what the rows before it created.

use super::context::Context;
use super::evaluate::evaluate;
use super::stream::{Input, Row, Stream};
use super::write::{create, set};
use crate::error::{Class, Detail, Error, Result};
use crate::plan::{CreateNode, CreateRelationship, Expr, Kind, Plan, Set, Slot};

pub(super) struct Merge<'p> {
    pub input: Input<'p>,
    pub matching: &'p Plan,
    pub nodes: &'p [CreateNode],
    pub relationships: &'p [CreateRelationship],
    pub on_create: &'p [Set],
    pub on_match: &'p [Set],
    pub paths: &'p [(Slot, Expr)],
    pub open: fn(&'p Plan, Row) -> Input<'p>,
    pub done: Option<std::vec::IntoIter<Row>>,
}

impl Stream for Merge<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        if self.done.is_none() {
            let mut rows = Vec::new();
            while let Some(row) = self.input.next(cx)? {
                self.merge(row, &mut rows, cx)?;
            }
            self.done = Some(rows.into_iter());
        }
        Ok(self.done.as_mut().and_then(Iterator::next))
    }
}

impl Merge<'_> {
    fn merge(&self, mut row: Row, rows: &mut Vec<Row>, cx: &mut Context<'_>) -> Result<()> {
        self.refuse_nulls(&mut row, cx)?;
        // All matches are found before the first is changed.
        let mut matched = Vec::new();
        let mut stream = (self.open)(self.matching, row.clone());
        while let Some(found) = stream.next(cx)? {
            cx.charge(&found)?;
            matched.push(found);
        }
        if !matched.is_empty() {
            for mut found in matched {
                set(self.on_match, &mut found, cx)?;
                rows.push(found);
            }
            return Ok(());
        }
        create(self.nodes, self.relationships, &mut row, cx)?;
        for (slot, path) in self.paths {
            row[*slot] = evaluate(path, &mut row, cx)?;
        }
        set(self.on_create, &mut row, cx)?;
        rows.push(row);
        Ok(())
    }

    /// A null property would never match, so each run would create another one.
    fn refuse_nulls(&self, row: &mut Row, cx: &mut Context<'_>) -> Result<()> {
        let nodes = self
            .nodes
            .iter()
            .filter_map(|node| node.properties.as_ref());
        let relationships = self
            .relationships
            .iter()
            .filter_map(|r| r.properties.as_ref());
        for properties in nodes.chain(relationships) {
            let Kind::Map(entries) = &properties.kind else {
                continue;
            };
            for (name, value) in entries {
                if evaluate(value, row, cx)?.is_null() {
                    let message = format!("MERGE cannot look for a property `{name}` that is null");
                    return Err(Error::runtime(
                        Class::SemanticError,
                        Detail::MergeReadOwnWrites,
                        message,
                    )
                    .help("use coalesce for a value that is never null")
                    .at(value.span));
                }
            }
        }
        Ok(())
    }
}
