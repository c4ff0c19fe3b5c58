//! Operators that hold all of their rows: sort, and the eager read before a clause that writes.

use std::cmp::Ordering;

use super::context::{Context, charge_of};
use super::evaluate::evaluate;
use super::read::count;
use super::stream::{Input, Row, Stream};
use crate::error::Result;
use crate::plan::Expr;
use crate::value::Value;

pub(super) struct Sort<'p> {
    pub input: Input<'p>,
    pub keys: &'p [(Expr, bool)],
    /// How many rows are wanted, if a LIMIT follows.
    pub limit: Option<&'p Expr>,
    pub sorted: Option<std::vec::IntoIter<Row>>,
    pub bytes: u64,
}

/// A row, and the values by which it is sorted.
type Keyed = (Vec<Value>, Row);

fn order(keys: &[(Expr, bool)], a: &[Value], b: &[Value]) -> Ordering {
    for ((x, y), (_, descending)) in a.iter().zip(b).zip(keys) {
        let order = if *descending { y.order(x) } else { x.order(y) };
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

impl Stream for Sort<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        if let Some(sorted) = &mut self.sorted {
            let next = sorted.next();
            if next.is_none() {
                cx.release(std::mem::take(&mut self.bytes));
            }
            return Ok(next);
        }
        let wanted = match self.limit {
            Some(limit) => usize::try_from(count(limit, cx)?).unwrap_or(usize::MAX),
            None => usize::MAX,
        };
        let mut rows: Vec<Keyed> = Vec::new();
        let (by, mut bytes) = (self.keys, self.bytes);
        // Whether the first `wanted` rows are sorted: what does not come before the last of them is not wanted.
        let mut is_full = false;
        self.input.drain(cx, &mut |row, cx| {
            let mut keys = Vec::with_capacity(by.len());
            for (key, _) in by {
                keys.push(evaluate(key, row, cx)?);
            }
            if is_full && order(by, &keys, &rows[wanted - 1].0).is_ge() {
                return Ok(());
            }
            bytes += cx.charge(&keys)? + cx.charge(row)?;
            rows.push((keys, row.clone()));
            // With a LIMIT, only the best rows are kept.
            if rows.len() > wanted.saturating_mul(2).saturating_add(1024) {
                rows.sort_by(|(a, _), (b, _)| order(by, a, b));
                is_full = wanted > 0;
                for (keys, row) in rows.drain(wanted..) {
                    let freed = charge_of(&keys) + charge_of(&row);
                    cx.release(freed);
                    bytes -= freed.min(bytes);
                }
            }
            Ok(())
        })?;
        rows.sort_by(|(a, _), (b, _)| order(by, a, b));
        let row_of = |(keys, row): Keyed| {
            let freed = charge_of(&keys);
            cx.release(freed);
            bytes -= freed.min(bytes);
            row
        };
        let sorted: Vec<Row> = rows.into_iter().map(row_of).collect();
        self.bytes = bytes;
        self.sorted = Some(sorted.into_iter());
        self.next(cx)
    }
}

pub(super) struct Eager<'p> {
    pub input: Input<'p>,
    pub rows: Option<std::vec::IntoIter<Row>>,
    pub bytes: u64,
}

impl Stream for Eager<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        if self.rows.is_none() {
            let mut rows = Vec::new();
            while let Some(row) = self.input.next(cx)? {
                self.bytes += cx.charge(&row)?;
                rows.push(row);
            }
            self.rows = Some(rows.into_iter());
        }
        let next = self.rows.as_mut().and_then(Iterator::next);
        if next.is_none() {
            cx.release(std::mem::take(&mut self.bytes));
        }
        Ok(next)
    }
}
