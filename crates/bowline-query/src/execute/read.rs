//! Operators that read row by row.

use std::collections::HashSet;

use bowline_types::BlockId;

use super::context::Context;
use super::evaluate::{evaluate, holds};
use super::stream::{Each, Input, Row, Stream};
use crate::call::ProcedureRows;
use crate::error::{Class, Detail, Error, Result, Span};
use crate::function::{Numbers, numbers};
use crate::plan::{Expr, Kind, Plan, Slot};
use crate::value::{Equivalent, Name, Nested, Node, Value};

/// The row with which a plan was opened.
pub(super) struct Argument(pub Option<Row>);

impl Stream for Argument {
    fn next(&mut self, _: &mut Context<'_>) -> Result<Option<Row>> {
        Ok(self.0.take())
    }
}

/// How many nodes a page has.
pub(super) const PAGE: usize = 256;

pub(super) struct Scan<'p> {
    pub input: Input<'p>,
    pub slot: Slot,
    pub label: Option<&'p Name>,
    pub row: Option<Row>,
    pub page: std::vec::IntoIter<BlockId>,
    pub last: Option<BlockId>,
    pub exhausted: bool,
}

impl Stream for Scan<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        loop {
            if self.row.is_none() {
                self.row = self.input.next(cx)?;
                self.last = None;
                self.exhausted = false;
                self.page = Vec::new().into_iter();
            }
            let Some(row) = &self.row else {
                return Ok(None);
            };
            if let Some(id) = self.page.next() {
                cx.tick()?;
                let mut row = row.clone();
                row[self.slot] = Value::Node(Node::from(id));
                return Ok(Some(row));
            }
            if self.exhausted {
                self.row = None;
                continue;
            }
            let mut page = Vec::new();
            let label = self.label.map(|label| &**label);
            cx.graph().nodes(label, self.last, PAGE, &mut page)?;
            self.exhausted = page.len() < PAGE;
            self.last = page.last().copied();
            self.page = page.into_iter();
        }
    }

    fn drain(&mut self, cx: &mut Context<'_>, each: &mut Each<'_>) -> Result<()> {
        // Of the row that was begun.
        while self.row.is_some()
            && let Some(mut row) = self.next(cx)?
        {
            each(&mut row, cx)?;
        }
        let (slot, label) = (self.slot, self.label.map(|label| &**label));
        self.input.drain(cx, &mut |row, cx| {
            let (mut page, mut last) = (Vec::new(), None);
            loop {
                page.clear();
                cx.graph().nodes(label, last, PAGE, &mut page)?;
                for id in &page {
                    cx.tick()?;
                    row[slot] = Value::Node(Node::from(*id));
                    each(row, cx)?;
                }
                if page.len() < PAGE {
                    break;
                }
                last = page.last().copied();
            }
            row[slot] = Value::Null;
            Ok(())
        })
    }
}

pub(super) struct IsNode<'p> {
    pub input: Input<'p>,
    pub slot: Slot,
    pub span: Span,
}

impl Stream for IsNode<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        while let Some(row) = self.input.next(cx)? {
            match &row[self.slot] {
                Value::Node(_) => return Ok(Some(row)),
                Value::Null => {}
                other => {
                    let message = format!("a node is needed, not {}", other.type_name());
                    return Err(Error::wrong_type(message).at(self.span));
                }
            }
        }
        Ok(None)
    }
}

pub(super) struct Filter<'p> {
    pub input: Input<'p>,
    pub predicate: &'p Expr,
}

impl Stream for Filter<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        while let Some(mut row) = self.input.next(cx)? {
            if holds(self.predicate, &mut row, cx)? {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    fn drain(&mut self, cx: &mut Context<'_>, each: &mut Each<'_>) -> Result<()> {
        let predicate = self.predicate;
        self.input
            .drain(cx, &mut |row, cx| match holds(predicate, row, cx)? {
                true => each(row, cx),
                false => Ok(()),
            })
    }
}

pub(super) struct Project<'p> {
    pub input: Input<'p>,
    pub items: &'p [(Slot, Expr)],
}

impl Stream for Project<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        let Some(mut row) = self.input.next(cx)? else {
            return Ok(None);
        };
        // All items are computed before the first is stored: an item may read a slot that another one gets.
        let mut values = Vec::with_capacity(self.items.len());
        for (_, expr) in self.items {
            values.push(evaluate(expr, &mut row, cx)?);
        }
        for ((slot, _), value) in self.items.iter().zip(values) {
            row[*slot] = value;
        }
        Ok(Some(row))
    }

    fn drain(&mut self, cx: &mut Context<'_>, each: &mut Each<'_>) -> Result<()> {
        let items = self.items;
        let mut values = Vec::with_capacity(items.len());
        self.input.drain(cx, &mut |row, cx| {
            for (_, expr) in items {
                values.push(evaluate(expr, row, cx)?);
            }
            for ((slot, _), value) in items.iter().zip(&mut values) {
                std::mem::swap(&mut row[*slot], value);
            }
            each(row, cx)?;
            // The row is that of the input again.
            for ((slot, _), value) in items.iter().zip(&mut values).rev() {
                std::mem::swap(&mut row[*slot], value);
            }
            values.clear();
            Ok(())
        })
    }
}

pub(super) struct Distinct<'p> {
    pub input: Input<'p>,
    pub slots: &'p [Slot],
    pub seen: HashSet<Equivalent>,
}

impl Stream for Distinct<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        while let Some(row) = self.input.next(cx)? {
            let key: Vec<Value> = self.slots.iter().map(|slot| row[*slot].clone()).collect();
            let key = Equivalent(key);
            if !self.seen.contains(&key) {
                cx.charge(&key.0)?;
                self.seen.insert(key);
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    fn drain(&mut self, cx: &mut Context<'_>, each: &mut Each<'_>) -> Result<()> {
        let (slots, seen) = (self.slots, &mut self.seen);
        self.input.drain(cx, &mut |row, cx| {
            let key: Vec<Value> = slots.iter().map(|slot| row[*slot].clone()).collect();
            let key = Equivalent(key);
            if seen.contains(&key) {
                return Ok(());
            }
            cx.charge(&key.0)?;
            seen.insert(key);
            each(row, cx)
        })
    }
}

/// The number of a SKIP or LIMIT.
pub(super) fn count(expr: &Expr, cx: &mut Context<'_>) -> Result<u64> {
    // It reads no variable, but may bind some of its own.
    let mut row = match expr.kind {
        Kind::Literal(_) | Kind::Parameter(_) => Vec::new(),
        _ => vec![Value::Null; cx.slots],
    };
    let value = evaluate(expr, &mut row, cx)?;
    let syntax =
        |detail, message: String| Error::runtime(Class::SyntaxError, detail, message).at(expr.span);
    match value {
        Value::Int(count) => u64::try_from(count).map_err(|_| {
            syntax(
                Detail::NegativeIntegerArgument,
                format!("a number of rows cannot be {count}"),
            )
        }),
        other => Err(syntax(
            Detail::InvalidArgumentType,
            format!("a number of rows is an integer, not {}", other.type_name()),
        )),
    }
}

pub(super) struct Skip<'p> {
    pub input: Input<'p>,
    pub count: &'p Expr,
    pub left: Option<u64>,
}

impl Stream for Skip<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        let mut left = match self.left {
            Some(left) => left,
            None => count(self.count, cx)?,
        };
        while left > 0 {
            left -= 1;
            if self.input.next(cx)?.is_none() {
                return Ok(None);
            }
        }
        self.left = Some(0);
        self.input.next(cx)
    }
}

pub(super) struct Limit<'p> {
    pub input: Input<'p>,
    pub count: &'p Expr,
    pub drain: bool,
    pub left: Option<u64>,
}

impl Stream for Limit<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        let left = match self.left {
            Some(left) => left,
            None => count(self.count, cx)?,
        };
        if left > 0 {
            self.left = Some(left - 1);
            return self.input.next(cx);
        }
        self.left = Some(0);
        if self.drain {
            while self.input.next(cx)?.is_some() {}
        }
        Ok(None)
    }
}

pub(super) struct Unwind<'p> {
    pub input: Input<'p>,
    pub slot: Slot,
    pub list: &'p Expr,
    pub row: Row,
    pub values: Unwound,
}

/// The elements that are left of a list.
pub(super) enum Unwound {
    List(Nested<Vec<Value>>, usize),
    /// Of a range, which is not made as a list: it may be long.
    Range(Numbers),
    /// What is no list is one element.
    Single(Option<Value>),
}

impl Unwound {
    fn of(expr: &Expr, row: &mut Row, cx: &mut Context<'_>) -> Result<Unwound> {
        if let Kind::Call(function, arguments) = &expr.kind
            && function.is_range()
        {
            let values = arguments.iter().map(|it| evaluate(it, row, cx));
            let values = values.collect::<Result<Vec<Value>>>()?;
            if values.iter().any(Value::is_null) {
                return Ok(Unwound::Single(None));
            }
            let numbers = numbers(&values).map_err(|error| error.at(expr.span))?;
            return Ok(Unwound::Range(numbers));
        }
        Ok(match evaluate(expr, row, cx)? {
            Value::Null => Unwound::Single(None),
            Value::List(list) => Unwound::List(list, 0),
            single => Unwound::Single(Some(single)),
        })
    }
}

impl Iterator for Unwound {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        match self {
            Unwound::List(list, next) => {
                let value = list.get(*next)?.clone();
                *next += 1;
                Some(value)
            }
            Unwound::Range(numbers) => numbers.next(),
            Unwound::Single(value) => value.take(),
        }
    }
}

impl Stream for Unwind<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        loop {
            if let Some(value) = self.values.next() {
                cx.tick()?;
                let mut row = self.row.clone();
                row[self.slot] = value;
                return Ok(Some(row));
            }
            let Some(mut row) = self.input.next(cx)? else {
                return Ok(None);
            };
            self.values = Unwound::of(self.list, &mut row, cx)?;
            self.row = row;
        }
    }
}

pub(super) struct Optional<'p> {
    pub input: Input<'p>,
    pub inner: &'p Plan,
    pub nulls: &'p [Slot],
    pub current: Option<(Input<'p>, Option<Row>)>,
    pub open: fn(&'p Plan, Row) -> Input<'p>,
}

impl Stream for Optional<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        loop {
            if let Some((stream, fallback)) = &mut self.current {
                if let Some(row) = stream.next(cx)? {
                    *fallback = None;
                    return Ok(Some(row));
                }
                let fallback = fallback.take();
                self.current = None;
                if let Some(mut row) = fallback {
                    for slot in self.nulls {
                        row[*slot] = Value::Null;
                    }
                    return Ok(Some(row));
                }
            }
            let Some(row) = self.input.next(cx)? else {
                return Ok(None);
            };
            self.current = Some(((self.open)(self.inner, row.clone()), Some(row)));
        }
    }
}

pub(super) struct Apply<'p> {
    pub input: Input<'p>,
    pub inner: &'p Plan,
    pub current: Option<Input<'p>>,
    pub open: fn(&'p Plan, Row) -> Input<'p>,
}

impl Stream for Apply<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        loop {
            if let Some(stream) = &mut self.current
                && let Some(row) = stream.next(cx)?
            {
                return Ok(Some(row));
            }
            let Some(row) = self.input.next(cx)? else {
                return Ok(None);
            };
            self.current = Some((self.open)(self.inner, row));
        }
    }
}

pub(super) struct Union<'p> {
    pub inputs: std::vec::IntoIter<Input<'p>>,
    pub current: Option<Input<'p>>,
}

impl Stream for Union<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        loop {
            if let Some(stream) = &mut self.current
                && let Some(row) = stream.next(cx)?
            {
                return Ok(Some(row));
            }
            self.current = self.inputs.next();
            if self.current.is_none() {
                return Ok(None);
            }
        }
    }
}

/// Runs its input for what it writes.
pub(super) struct Discard<'p>(pub Input<'p>);

impl Stream for Discard<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        while self.0.next(cx)?.is_some() {}
        Ok(None)
    }
}

pub(super) struct Call<'p> {
    pub input: Input<'p>,
    pub procedure: &'p Name,
    pub arguments: &'p [Expr],
    pub outputs: &'p [(usize, Slot)],
    pub row: Row,
    pub rows: Option<ProcedureRows>,
}

impl Stream for Call<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        loop {
            if let Some(rows) = &mut self.rows {
                if let Some(values) = rows.next() {
                    cx.tick()?;
                    let values = values?;
                    let mut row = self.row.clone();
                    for (at, slot) in self.outputs {
                        row[*slot] = values.get(*at).cloned().unwrap_or_default();
                    }
                    return Ok(Some(row));
                }
                self.rows = None;
            }
            let Some(mut row) = self.input.next(cx)? else {
                return Ok(None);
            };
            let mut arguments = Vec::new();
            for argument in self.arguments {
                arguments.push(evaluate(argument, &mut row, cx)?);
            }
            let procedures = cx.setting.procedures;
            let signature = procedures.signature(self.procedure);
            let without_output = signature.is_some_and(|signature| signature.outputs.is_empty());
            let rows = procedures.call(self.procedure, &arguments, cx.graph())?;
            // A procedure without outputs is called for its effect, and passes its row on.
            self.rows = Some(match without_output {
                true => Box::new(std::iter::once(Ok(Vec::new()))),
                false => rows,
            });
            self.row = row;
        }
    }
}
