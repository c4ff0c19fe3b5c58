//! From a node along its relationships: one step, several, or the shortest way.
//!
//! Several steps are a depth-first walk with a stack of its own. Within one MATCH no relationship is followed twice, so
//! a walk ends even where the graph has circles.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bowline_types::{BlockId, Direction};

use super::context::Context;
use super::evaluate::{evaluate, holds};
use super::steps::Steps;
use super::stream::{Each, Input, Row, Stream};
use crate::error::{Error, Result};
use crate::plan::Expansion;
use crate::syntax::ast::Shortest;
use crate::value::{Node, Properties, Relationship, RelationshipId, Value};

type Id = Arc<RelationshipId>;

pub(super) struct Expand<'p> {
    pub input: Input<'p>,
    pub expansion: &'p Expansion,
    state: State,
}

/// What is left of the present row.
enum State {
    None,
    Single {
        row: Row,
        steps: Steps,
    },
    Walk(Box<Walk>),
    Shortest(Box<Ways>),
    /// The row, if it fits.
    Found(Option<Row>),
}

/// The shortest ways of a row, from the end back. There may be more of them than memory holds.
struct Ways {
    row: Row,
    from: BlockId,
    reached: Reached,
    /// Ends of ways: a node, and the relationships from there to the end, the last one first.
    open: Vec<(BlockId, Vec<Id>)>,
}

/// For each node that a search has reached: its distance, and the relationships by which it is reached at that distance.
type Reached = HashMap<BlockId, (u64, Vec<Id>)>;

struct Walk {
    row: Row,
    wanted: Properties,
    used: HashSet<Id>,
    /// The cursor of each node on the way.
    stack: Vec<Steps>,
    /// The relationships taken: one fewer than cursors.
    taken: Vec<Id>,
    nodes: Vec<BlockId>,
    /// The way that consists of the first node alone was considered.
    begun: bool,
}

impl<'p> Expand<'p> {
    pub fn new(input: Input<'p>, expansion: &'p Expansion) -> Expand<'p> {
        Expand {
            input,
            expansion,
            state: State::None,
        }
    }

    /// Begins with a row.
    fn begin(&self, mut row: Row, cx: &mut Context<'_>) -> Result<State> {
        let expansion = self.expansion;
        let Some(from) = from_of(&row, expansion)? else {
            return Ok(State::None);
        };
        let mut wanted = Properties::new();
        for (name, value) in &expansion.properties {
            wanted.insert(name.clone(), evaluate(value, &mut row, cx)?);
        }
        if expansion.shortest.is_some() {
            return shortest(expansion, row, from, &wanted, cx);
        }
        if expansion.relationship_bound {
            return Ok(State::Found(self.check_bound(row, from, &wanted, cx)?));
        }
        let steps = Steps::new(from, expansion.direction);
        if expansion.length.is_none() {
            return Ok(State::Single { row, steps });
        }
        let mut used = HashSet::new();
        collect_used(&row, &expansion.distinct_from, &mut used);
        Ok(State::Walk(Box::new(Walk {
            row,
            wanted,
            used,
            stack: vec![steps],
            taken: Vec::new(),
            nodes: vec![from],
            begun: false,
        })))
    }

    /// The row already holds the relationship, or the list of them.
    fn check_bound(
        &self,
        row: Row,
        from: BlockId,
        wanted: &Properties,
        cx: &mut Context<'_>,
    ) -> Result<Option<Row>> {
        let expansion = self.expansion;
        let mut ids: Vec<Id> = match &row[expansion.relationship] {
            Value::Relationship(relationship) if expansion.length.is_none() => {
                vec![relationship.id.clone()]
            }
            Value::List(list) if expansion.length.is_some() => {
                let relationships = list.iter().map(|value| match value {
                    Value::Relationship(relationship) => Some(relationship.id.clone()),
                    _ => None,
                });
                match relationships.collect::<Option<Vec<_>>>() {
                    Some(ids) => ids,
                    None => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        if expansion.reversed {
            ids.reverse();
        }
        let (least, most) = expansion.length.unwrap_or((1, 1));
        let mut used = HashSet::new();
        collect_used(&row, &expansion.distinct_from, &mut used);
        let mut at = from;
        for id in &ids {
            let fits = match expansion.direction {
                Direction::Out => id.source == at,
                Direction::In => id.target == at,
                Direction::Both => id.source == at || id.target == at,
            };
            let kind = expansion.kinds.is_empty() || expansion.kinds.contains(&id.kind);
            if !fits || !kind || !used.insert(id.clone()) || !holds_all(id, wanted, cx)? {
                return Ok(None);
            }
            at = id.other(at);
        }
        let length = ids.len() as u64;
        if length < least || length > most {
            return Ok(None);
        }
        Ok(self.arrive(row, at))
    }

    /// The row with the node reached, unless another one is wanted.
    fn arrive(&self, mut row: Row, to: BlockId) -> Option<Row> {
        if self.expansion.to_bound {
            match &row[self.expansion.to] {
                Value::Node(node) if node.id == to => Some(row),
                _ => None,
            }
        } else {
            row[self.expansion.to] = Value::Node(Node::from(to));
            Some(row)
        }
    }

    fn single(&self, row: &Row, steps: &mut Steps, cx: &mut Context<'_>) -> Result<Option<Row>> {
        let expansion = self.expansion;
        let Value::Node(from) = &row[expansion.from] else {
            return Ok(None);
        };
        while let Some(id) = steps.next(&expansion.kinds, cx)? {
            if is_used(row, &expansion.distinct_from, &id) {
                continue;
            }
            let to = id.other(from.id);
            if let Some(mut next) = self.arrive(row.clone(), to) {
                next[expansion.relationship] = Value::Relationship(Relationship::from(id));
                return Ok(Some(next));
            }
        }
        Ok(None)
    }

    fn walk(&self, walk: &mut Walk, cx: &mut Context<'_>) -> Result<Option<Row>> {
        let (least, most) = self.expansion.length.unwrap_or((1, 1));
        if !walk.begun {
            walk.begun = true;
            if least == 0
                && let Some(row) = self.arrived(walk)
            {
                return Ok(Some(row));
            }
        }
        loop {
            let depth = walk.taken.len() as u64;
            let Some(steps) = walk.stack.last_mut() else {
                return Ok(None);
            };
            let next = if depth < most {
                steps.next(&self.expansion.kinds, cx)?
            } else {
                None
            };
            let Some(id) = next else {
                walk.stack.pop();
                walk.nodes.pop();
                if let Some(id) = walk.taken.pop() {
                    walk.used.remove(&id);
                }
                continue;
            };
            if walk.used.contains(&id) || !holds_all(&id, &walk.wanted, cx)? {
                continue;
            }
            let at = *walk.nodes.last().expect("as many nodes as cursors");
            let to = id.other(at);
            walk.used.insert(id.clone());
            walk.taken.push(id);
            walk.nodes.push(to);
            walk.stack.push(Steps::new(to, self.expansion.direction));
            if walk.taken.len() as u64 >= least
                && let Some(row) = self.arrived(walk)
            {
                return Ok(Some(row));
            }
        }
    }

    fn arrived(&self, walk: &Walk) -> Option<Row> {
        let to = *walk.nodes.last().expect("as many nodes as cursors");
        let mut row = self.arrive(walk.row.clone(), to)?;
        row[self.expansion.relationship] = list(&walk.taken, self.expansion.reversed);
        Some(row)
    }
}

/// So many ends of relationships are held at once.
const ENDS_MAX: usize = 1 << 14;

/// Whether nothing but the nodes at the ends of a node's relationships is asked for, and no relationship of the row can be among
/// these.
fn needs_ends_only(row: &Row, from: BlockId, expansion: &Expansion) -> bool {
    let is_among = |id: &Id| match expansion.direction {
        Direction::Out => id.source == from,
        Direction::In => id.target == from,
        Direction::Both => true,
    };
    let holds_one = |value: &Value| matches!(value, Value::Relationship(it) if is_among(&it.id));
    let may_be_used = |slot: &usize| match &row[*slot] {
        Value::List(list) => list.iter().any(holds_one),
        value => holds_one(value),
    };
    !expansion.is_read
        && !expansion.to_bound
        // Both: a loop is met twice.
        && expansion.direction != Direction::Both
        && !expansion.distinct_from.iter().any(may_be_used)
}

/// From where a row goes on, if from anywhere.
fn from_of(row: &Row, expansion: &Expansion) -> Result<Option<BlockId>> {
    match &row[expansion.from] {
        Value::Node(node) => Ok(Some(node.id)),
        Value::Null => Ok(None),
        other => Err(Error::wrong_type(format!(
            "a node is needed, not {}",
            other.type_name()
        ))),
    }
}

impl Stream for Expand<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        let expansion = self.expansion;
        loop {
            let mut state = std::mem::replace(&mut self.state, State::None);
            let found = match &mut state {
                State::None => None,
                State::Single { row, steps } => self.single(row, steps, cx)?,
                State::Walk(walk) => self.walk(walk, cx)?,
                State::Shortest(ways) => ways.next(expansion.relationship, cx)?,
                State::Found(row) => row.take(),
            };
            if found.is_some() {
                self.state = state;
                return Ok(found);
            }
            let Some(row) = self.input.next(cx)? else {
                return Ok(None);
            };
            self.state = self.begin(row, cx)?;
        }
    }

    fn drain(&mut self, cx: &mut Context<'_>, each: &mut Each<'_>) -> Result<()> {
        let expansion = self.expansion;
        let is_plain = expansion.length.is_none()
            && expansion.shortest.is_none()
            && !expansion.relationship_bound
            && expansion.properties.is_empty();
        // Those of the row that was begun, and all where there is more to a row than two values.
        while !(is_plain && matches!(self.state, State::None))
            && let Some(mut row) = self.next(cx)?
        {
            each(&mut row, cx)?;
        }
        if !is_plain {
            return Ok(());
        }
        self.input.drain(cx, &mut |row, cx| {
            let Some(from) = from_of(row, expansion)? else {
                return Ok(());
            };
            if needs_ends_only(row, from, expansion) {
                let (kinds, direction) = (&expansion.kinds, expansion.direction);
                let (mut ends, mut is_all) = (Vec::new(), true);
                cx.graph().ends(&[from], direction, kinds, &mut |_, to| {
                    is_all = ends.len() < ENDS_MAX;
                    ends.push(to);
                    is_all
                })?;
                if is_all {
                    for to in ends {
                        cx.tick()?;
                        row[expansion.to] = Value::Node(Node::from(to));
                        each(row, cx)?;
                    }
                    row[expansion.to] = Value::Null;
                    return Ok(());
                }
            }
            let mut steps = Steps::new(from, expansion.direction);
            while let Some(id) = steps.next(&expansion.kinds, cx)? {
                if is_used(row, &expansion.distinct_from, &id) {
                    continue;
                }
                let to = id.other(from);
                match &row[expansion.to] {
                    Value::Node(node) if expansion.to_bound && node.id == to => {}
                    _ if expansion.to_bound => continue,
                    _ => row[expansion.to] = Value::Node(Node::from(to)),
                }
                row[expansion.relationship] = Value::Relationship(Relationship::from(id));
                each(row, cx)?;
            }
            row[expansion.relationship] = Value::Null;
            if !expansion.to_bound {
                row[expansion.to] = Value::Null;
            }
            Ok(())
        })
    }
}

fn list(ids: &[Id], reversed: bool) -> Value {
    let mut values: Vec<Value> = ids
        .iter()
        .map(|id| Value::Relationship(Relationship::from(id.clone())))
        .collect();
    if reversed {
        values.reverse();
    }
    Value::list(values)
}

fn collect_used(row: &Row, slots: &[usize], used: &mut HashSet<Id>) {
    for slot in slots {
        match &row[*slot] {
            Value::Relationship(relationship) => {
                used.insert(relationship.id.clone());
            }
            Value::List(list) => {
                for value in list.iter() {
                    if let Value::Relationship(relationship) = value {
                        used.insert(relationship.id.clone());
                    }
                }
            }
            _ => {}
        }
    }
}

fn is_used(row: &Row, slots: &[usize], id: &Id) -> bool {
    let same = |value: &Value| matches!(value, Value::Relationship(other) if other.id == *id);
    slots.iter().any(|slot| match &row[*slot] {
        Value::List(list) => list.iter().any(same),
        value => same(value),
    })
}

/// Whether a relationship has all of these properties.
fn holds_all(id: &Id, wanted: &Properties, cx: &mut Context<'_>) -> Result<bool> {
    if wanted.is_empty() {
        return Ok(true);
    }
    let Some(held) = cx.graph().relationship(id)? else {
        return Ok(false);
    };
    Ok(wanted.iter().all(|(name, value)| {
        held.get(name)
            .is_some_and(|held| held.equals(value) == Some(true))
    }))
}

/// Whether an element of a shortest path, a node or a relationship, fits what is asked of such elements.
fn fits(
    expansion: &Expansion,
    is_node: bool,
    element: impl Fn() -> Value,
    row: &mut Row,
    cx: &mut Context<'_>,
) -> Result<bool> {
    let tests = expansion.element_tests.iter();
    for test in tests.filter(|test| test.is_of_nodes == is_node) {
        row[test.slot] = element();
        let is_fit = holds(&test.predicate, row, cx);
        row[test.slot] = Value::Null;
        if !is_fit? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The shortest ways of a row between its two nodes, yet to be given.
fn shortest(
    expansion: &Expansion,
    mut row: Row,
    from: BlockId,
    wanted: &Properties,
    cx: &mut Context<'_>,
) -> Result<State> {
    let Value::Node(to) = &row[expansion.to] else {
        return Ok(State::None);
    };
    let to = to.id;
    let least = expansion.length.map_or(1, |(least, _)| least);
    if from == to && least > 0 {
        return Err(Error::Unsupported {
            what: "a shortest path from a node to itself".into(),
            span: None,
            place: None,
        });
    }
    let first = || Value::Node(Node::from(from));
    if !fits(expansion, true, first, &mut row, cx)? {
        return Ok(State::None);
    }
    let reached = match from == to {
        true => Some(Reached::new()),
        false => search(expansion, &mut row, from, to, wanted, cx)?,
    };
    Ok(match reached {
        None => State::None,
        Some(reached) => State::Shortest(Box::new(Ways {
            row,
            from,
            reached,
            open: vec![(to, Vec::new())],
        })),
    })
}

/// Searches one node from another, breadth first. `None`: it is not reached.
fn search(
    expansion: &Expansion,
    row: &mut Row,
    from: BlockId,
    to: BlockId,
    wanted: &Properties,
    cx: &mut Context<'_>,
) -> Result<Option<Reached>> {
    let most = expansion.length.map_or(u64::MAX, |(_, most)| most);
    let mut reached = Reached::from([(from, (0, Vec::new()))]);
    let mut queue = VecDeque::from([from]);
    let mut found_at = u64::MAX;
    while let Some(at) = queue.pop_front() {
        let distance = reached[&at].0;
        if distance >= found_at || distance >= most {
            break;
        }
        let mut steps = Steps::new(at, expansion.direction);
        while let Some(id) = steps.next(&expansion.kinds, cx)? {
            let it = || Value::Relationship(Relationship::from(id.clone()));
            if !holds_all(&id, wanted, cx)? || !fits(expansion, false, it, row, cx)? {
                continue;
            }
            let next = id.other(at);
            let node = || Value::Node(Node::from(next));
            if !reached.contains_key(&next) && !fits(expansion, true, node, row, cx)? {
                continue;
            }
            match reached.get_mut(&next) {
                None => {
                    reached.insert(next, (distance + 1, vec![id]));
                    queue.push_back(next);
                    if next == to {
                        found_at = distance + 1;
                    }
                }
                Some((known, ways))
                    if *known == distance + 1 && expansion.shortest == Some(Shortest::All) =>
                {
                    ways.push(id);
                }
                Some(_) => {}
            }
        }
    }
    Ok((found_at < u64::MAX).then_some(reached))
}

impl Ways {
    /// The row with the next way in a slot.
    fn next(&mut self, slot: usize, cx: &mut Context<'_>) -> Result<Option<Row>> {
        while let Some((at, way)) = self.open.pop() {
            cx.tick()?;
            if at == self.from {
                let mut row = self.row.clone();
                row[slot] = list(&way, true);
                return Ok(Some(row));
            }
            for id in self.reached[&at].1.iter().rev() {
                let mut longer = way.clone();
                longer.push(id.clone());
                self.open.push((id.other(at), longer));
            }
        }
        Ok(None)
    }
}
