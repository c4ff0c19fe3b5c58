//! MATCH: where to start, which way to walk, when to filter.
//!
//! Patterns are planned one after the other: first those that touch what is already bound, then the one whose cheapest
//! node and first step give the fewest rows by the graph's counts. Within a path the plan starts at a bound node or at the
//! cheapest one, walks to the path's end, then from the start to its beginning. Each conjunct of WHERE filters as soon
//! as all of its variables are bound, behind what the patterns ask of the same variables.
//!
//! What a step of variable length asks of each of its relationships is asked on the way, so the order of work is one in which the
//! variables of its property map are bound before, where there is such an order.
//!
//! No relationship is followed twice within one MATCH: every expansion lists the slots of those before it.

use std::collections::HashSet;

use super::parts::Part;
use super::pattern::{PatternSlots, already_bound, conflicts};
use super::scope::Origin;
use super::shortest::{Search, Searches};
use super::{Compiler, Scope, seek};
use crate::error::{Detail, Error, Result};
use crate::plan::{Expansion, Expr, Kind, Plan, Slot};
use crate::syntax::ast::{self, Binary, ExprKind, Quantifier};
use crate::value::{Name, Type};

/// A condition, and the slots of this MATCH that it reads.
pub(super) struct Condition {
    needs: HashSet<Slot>,
    pub(super) predicate: Expr,
    /// Whether a pattern asks it, and not WHERE, which may fail on what the pattern leaves out.
    is_of_pattern: bool,
}

/// What has been planned of a MATCH.
pub(super) struct Progress {
    plan: Plan,
    /// The slots that hold a value by now.
    pub(super) bound: HashSet<Slot>,
    /// The slots of relationships that were followed, of each part.
    followed: Vec<Vec<Slot>>,
    /// Whose pattern is walked.
    part: usize,
    /// The one that was followed last, if nothing can ask for it.
    unread: Option<Slot>,
    conditions: Vec<Condition>,
}

/// A pattern that is not planned yet, and the part that it is of.
struct Waiting<'a> {
    pattern: &'a ast::Pattern,
    slots: PatternSlots,
    part: usize,
    search: Search,
}

impl Progress {
    pub(super) fn apply_conditions(&mut self) {
        let mut waiting = Vec::new();
        for condition in std::mem::take(&mut self.conditions) {
            if condition.needs.is_subset(&self.bound) {
                self.wrap(|input| Plan::Filter {
                    input,
                    predicate: condition.predicate,
                });
            } else {
                waiting.push(condition);
            }
        }
        self.conditions = waiting;
    }

    pub(super) fn wrap(&mut self, operator: impl FnOnce(Box<Plan>) -> Plan) {
        let input = std::mem::replace(&mut self.plan, Plan::Argument);
        self.plan = operator(Box::new(input));
    }
}

impl Compiler<'_> {
    /// Plans patterns on top of a plan. Gives back the scope with what they bind.
    pub(super) fn match_patterns(
        &mut self,
        patterns: &[ast::Pattern],
        predicate: Option<&ast::Expr>,
        input: Plan,
        outer: &Scope,
    ) -> Result<(Plan, Scope)> {
        let part = Part {
            patterns,
            predicate,
            passes: None,
        };
        self.match_parts(&[part], input, outer)
    }

    /// Plans several MATCH clauses as one.
    pub(super) fn match_parts(
        &mut self,
        parts: &[Part<'_>],
        input: Plan,
        outer: &Scope,
    ) -> Result<(Plan, Scope)> {
        let bound: HashSet<Slot> = outer.iter().map(|(_, binding)| binding.slot).collect();
        let mut progress = Progress {
            plan: input,
            bound: bound.clone(),
            followed: vec![Vec::new(); parts.len()],
            part: 0,
            unread: None,
            conditions: Vec::new(),
        };
        let mut scope = outer.clone();
        let mut scopes = Vec::new();
        let mut left = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            let before = scope.clone();
            let mut slots = Vec::new();
            let mut relationships = Vec::new();
            for pattern in part.patterns {
                self.grow(pattern.at.0)?;
                slots.push(self.bind_pattern(pattern, &before, &mut scope, &mut relationships)?);
            }
            let mut searches = Searches::of(part)?;
            // First what the patterns ask: WHERE may fail on what they leave out.
            for (pattern, slots) in part.patterns.iter().zip(&slots) {
                for (node, slot) in pattern.nodes.iter().zip(&slots.nodes) {
                    self.node_conditions(node, *slot, &scope, &bound, &mut progress.conditions)?;
                }
            }
            if let Some(predicate) = part.predicate {
                let conditions = &mut progress.conditions;
                self.split(predicate, &scope, &bound, &mut searches, conditions)?;
            }
            let placed = part.patterns.iter().zip(slots);
            left.extend(placed.enumerate().map(|(at, (pattern, slots))| Waiting {
                pattern,
                slots,
                part: number,
                search: searches.take(at, pattern, &scope, &bound),
            }));
            scopes.push(scope.clone());
            if let Some(passes) = &part.passes {
                let passed = passes
                    .iter()
                    .filter_map(|name| Some((name, scope.get(name)?)));
                let mut next = Scope::default();
                for (name, binding) in passed {
                    next.insert((*name).clone(), binding);
                }
                scope = next;
            }
        }
        progress.apply_conditions();
        while !left.is_empty() {
            let (at, start) = self.cheapest(&left, &scopes, &progress)?;
            let Waiting {
                pattern,
                slots,
                part,
                search,
            } = left.remove(at);
            progress.part = part;
            let scope = &scopes[part];
            if pattern.shortest.is_some() {
                self.walk_shortest(pattern, &slots, search, scope, &mut progress)?;
            } else {
                self.walk(pattern, &slots, start, scope, &mut progress)?;
            }
        }
        for condition in std::mem::take(&mut progress.conditions) {
            progress.wrap(|input| Plan::Filter {
                input,
                predicate: condition.predicate,
            });
        }
        if let Some(slot) = progress.unread {
            leave_unread(&mut progress.plan, slot);
        }
        Ok((progress.plan, scope))
    }

    /// Gives slots to a pattern's parts, and binds its variables.
    fn bind_pattern(
        &mut self,
        pattern: &ast::Pattern,
        outer: &Scope,
        scope: &mut Scope,
        relationships: &mut Vec<Name>,
    ) -> Result<PatternSlots> {
        // Beside an aggregate, the pattern is part of an expression.
        let origin = match self.grouping {
            Some(_) => Origin::Local,
            None => Origin::Row,
        };
        let mut nodes = Vec::new();
        let mut steps = Vec::new();
        for node in &pattern.nodes {
            nodes.push(match &node.variable {
                None => self.slot(),
                Some(ident) => match scope.known(&ident.name, ident.span)? {
                    Some(binding) => {
                        conflicts(ident, binding.kind, Type::Node)?;
                        if binding.kind != Type::Node {
                            let (name, slot) = (ident.name.clone(), binding.slot);
                            scope.bind_as(binding.origin, name, slot, Type::Node);
                        }
                        binding.slot
                    }
                    None => {
                        let slot = self.named_slot(&ident.name);
                        scope.bind_as(origin, ident.name.clone(), slot, Type::Node);
                        slot
                    }
                },
            });
        }
        for step in &pattern.relationships {
            let kind = if step.length.is_some() {
                Type::Relationships
            } else {
                Type::Relationship
            };
            let Some(ident) = &step.variable else {
                steps.push(self.slot());
                continue;
            };
            if relationships.contains(&ident.name) {
                let message = format!(
                    "relationship `{}` cannot stand twice in a MATCH",
                    ident.name
                );
                return Err(Error::syntax(
                    Detail::RelationshipUniquenessViolation,
                    message,
                    ident.span,
                )
                .help("a relationship is followed once; give the second a name of its own"));
            }
            steps.push(match scope.known(&ident.name, ident.span)? {
                Some(binding) => {
                    conflicts(ident, binding.kind, kind)?;
                    if !outer.contains(&ident.name) {
                        conflicts(ident, Type::Node, kind)?;
                    }
                    binding.slot
                }
                None => {
                    let slot = self.named_slot(&ident.name);
                    scope.bind_as(origin, ident.name.clone(), slot, kind);
                    slot
                }
            });
            relationships.push(ident.name.clone());
        }
        if let Some(ident) = &pattern.variable {
            if scope.contains(&ident.name) {
                return Err(already_bound(ident));
            }
            let slot = self.named_slot(&ident.name);
            scope.bind_as(origin, ident.name.clone(), slot, Type::Path);
        }
        Ok(PatternSlots {
            nodes,
            relationships: steps,
        })
    }

    /// The conditions of a node pattern: labels and properties.
    fn node_conditions(
        &mut self,
        node: &ast::NodePattern,
        slot: Slot,
        scope: &Scope,
        bound: &HashSet<Slot>,
        conditions: &mut Vec<Condition>,
    ) -> Result<()> {
        let span = node.at.0;
        let own = || HashSet::from([slot]);
        if node.labels.is_some() {
            self.grow(span)?;
        }
        if let Some(labels) = &node.labels {
            let kind = Kind::HasLabels(Expr::new(Kind::Slot(slot), span).boxed(), labels.clone());
            conditions.push(Condition {
                needs: own(),
                predicate: Expr::new(kind, span),
                is_of_pattern: true,
            });
        }
        for (name, value) in self.property_tests(node.properties.as_ref(), scope)? {
            self.grow(span)?;
            let mut needs = needs(node.properties.as_ref(), scope, bound);
            needs.insert(slot);
            let predicate = property_equals(slot, name, value);
            conditions.push(Condition {
                needs,
                predicate,
                is_of_pattern: true,
            });
        }
        if let Some(predicate) = &node.predicate {
            let first = conditions.len();
            self.split(
                predicate,
                scope,
                bound,
                &mut Searches::default(),
                conditions,
            )?;
            for condition in &mut conditions[first..] {
                condition.needs.insert(slot);
                condition.is_of_pattern = true;
            }
        }
        Ok(())
    }

    /// Splits a condition at its ANDs. What a shortest path is asked goes to its search.
    fn split(
        &mut self,
        predicate: &ast::Expr,
        scope: &Scope,
        bound: &HashSet<Slot>,
        searches: &mut Searches<'_>,
        conditions: &mut Vec<Condition>,
    ) -> Result<()> {
        if let ExprKind::Binary(Binary::And, a, b) = &predicate.kind {
            self.split(a, scope, bound, searches, conditions)?;
            return self.split(b, scope, bound, searches, conditions);
        }
        self.grow(predicate.span)?;
        if self.search_test(predicate, scope, bound, searches)? {
            return Ok(());
        }
        let compiled = self.boolean(predicate, scope)?;
        let needs = needs(Some(predicate), scope, bound);
        conditions.push(Condition {
            needs,
            predicate: compiled,
            is_of_pattern: false,
        });
        Ok(())
    }

    /// Which of the remaining patterns to plan next, and at which of its nodes to start: where nothing is asked on the way that is
    /// not known by then, and where the fewest rows are expected, of the start and of the first step from it.
    fn cheapest(
        &self,
        left: &[Waiting<'_>],
        scopes: &[Scope],
        progress: &Progress,
    ) -> Result<(usize, usize)> {
        let bound = &progress.bound;
        let mut best: Option<((usize, usize, u64), usize, usize)> = None;
        for (at, waiting) in left.iter().enumerate() {
            let Waiting { pattern, slots, .. } = waiting;
            for (i, node) in pattern.nodes.iter().enumerate() {
                let cost = if bound.contains(&slots.nodes[i]) {
                    0
                } else {
                    let labels = labels_of(node);
                    let of_label = 1 + self.graph.node_count(labels.first().map(|it| &**it))?;
                    let slot = slots.nodes[i];
                    let conditions = &progress.conditions;
                    let by_index = seek::cheapest(self.graph, &labels, slot, bound, conditions)?;
                    let starts = by_index.map_or(of_label, |(cost, _)| cost.min(of_label));
                    starts.saturating_add(self.first_steps(pattern, i, starts, of_label)?)
                };
                let late = late(waiting, i, &scopes[waiting.part], bound);
                // A search for a shortest path cannot be asked later, so it waits first.
                let cost = match pattern.shortest {
                    Some(_) => (late, 0, cost),
                    None => (0, late, cost),
                };
                if best.is_none_or(|(least, _, _)| cost < least) {
                    best = Some((cost, at, i));
                }
            }
        }
        let (_, at, start) = best.expect("a pattern has a node");
        Ok((at, start))
    }

    /// How many relationships are expected from `starts` of the nodes with the label of a pattern's node, of which there are
    /// `of_label`, in the step that is taken first.
    fn first_steps(
        &self,
        pattern: &ast::Pattern,
        node: usize,
        starts: u64,
        of_label: u64,
    ) -> Result<u64> {
        let steps = &pattern.relationships;
        let Some(step) = steps.get(node).or_else(|| steps.get(node.checked_sub(1)?)) else {
            return Ok(0);
        };
        let mut all: u64 = 0;
        match step.kinds.as_slice() {
            [] => all = self.graph.relationship_count(None)?,
            kinds => {
                for kind in kinds {
                    all = all.saturating_add(self.graph.relationship_count(Some(kind))?);
                }
            }
        }
        let share = u128::from(all) * u128::from(starts) / u128::from(of_label.max(1));
        Ok(u64::try_from(share).unwrap_or(u64::MAX))
    }

    /// Plans a path from one of its nodes to both ends.
    fn walk(
        &mut self,
        pattern: &ast::Pattern,
        slots: &PatternSlots,
        start: usize,
        scope: &Scope,
        progress: &mut Progress,
    ) -> Result<()> {
        self.enter(pattern, slots, start, progress)?;
        for i in start..pattern.relationships.len() {
            self.step(pattern, slots, i, false, scope, progress)?;
        }
        for i in (0..start).rev() {
            self.step(pattern, slots, i, true, scope, progress)?;
        }
        self.name_path(pattern, slots, scope, progress);
        Ok(())
    }

    pub(super) fn name_path(
        &self,
        pattern: &ast::Pattern,
        slots: &PatternSlots,
        scope: &Scope,
        progress: &mut Progress,
    ) {
        if let Some(ident) = &pattern.variable {
            let slot = scope.get(&ident.name).expect("bound with the pattern").slot;
            let items = vec![(slot, Self::path(slots.path(pattern), pattern.at.0))];
            progress.wrap(|input| Plan::Project { input, items });
            progress.bound.insert(slot);
            progress.apply_conditions();
        }
    }

    /// Begins a path at a node.
    pub(super) fn enter(
        &self,
        pattern: &ast::Pattern,
        slots: &PatternSlots,
        start: usize,
        progress: &mut Progress,
    ) -> Result<()> {
        let slot = slots.nodes[start];
        let node = &pattern.nodes[start];
        if !progress.bound.contains(&slot) {
            let labels = labels_of(node);
            let (bound, conditions) = (&progress.bound, &progress.conditions);
            let by_index = seek::cheapest(self.graph, &labels, slot, bound, conditions)?;
            progress.bound.insert(slot);
            if let Some(ast::Labels::Name(label)) = &node.labels {
                // The scan tells it.
                let is_told = |it: &Condition| is_label_test(&it.predicate, slot, label);
                progress.conditions.retain(|it| !is_told(it));
            }
            let label = labels.into_iter().next();
            progress.wrap(|input| match by_index {
                Some((_, seek)) => Plan::Seek {
                    input,
                    slot,
                    seek: Box::new(seek),
                },
                None => Plan::Scan { input, slot, label },
            });
        } else {
            progress.wrap(|input| Plan::IsNode {
                input,
                slot,
                span: node.at.0,
            });
        }
        progress.apply_conditions();
        Ok(())
    }

    fn step(
        &mut self,
        pattern: &ast::Pattern,
        slots: &PatternSlots,
        i: usize,
        backward: bool,
        scope: &Scope,
        progress: &mut Progress,
    ) -> Result<()> {
        let step = &pattern.relationships[i];
        self.grow(step.at.0)?;
        let (from, to) = if backward { (i + 1, i) } else { (i, i + 1) };
        let (relationship, to) = (slots.relationships[i], slots.nodes[to]);
        let direction = if backward {
            step.direction.reversed()
        } else {
            step.direction
        };
        let relationship_bound = progress.bound.contains(&relationship);
        let properties = step.properties.as_ref();
        let needs = needs(properties, scope, &progress.bound);
        let tests = self.property_tests(properties, scope)?;
        let (on_the_way, behind) = match step.length {
            Some(_) if needs.is_empty() => (tests, Vec::new()),
            _ => (Vec::new(), tests),
        };
        let expansion = Expansion {
            from: slots.nodes[from],
            relationship,
            relationship_bound,
            to,
            to_bound: progress.bound.contains(&to),
            direction,
            kinds: step.kinds.clone(),
            length: step.length.map(length),
            properties: on_the_way,
            element_tests: Vec::new(),
            distinct_from: progress.followed[progress.part].clone(),
            reversed: backward,
            is_read: true,
            shortest: None,
        };
        progress.followed[progress.part].push(relationship);
        // Of those before, this one had to differ.
        let is_unread = pattern.variable.is_none()
            && step.variable.is_none()
            && step.length.is_none()
            && step.properties.is_none()
            && step.predicate.is_none();
        progress.unread = is_unread.then_some(relationship);
        progress.wrap(|input| Plan::Expand {
            input,
            expansion: Box::new(expansion),
        });
        progress.bound.extend([relationship, to]);
        // As with nodes, WHERE is asked after what the pattern asks, also of nodes before.
        let waiting = std::mem::take(&mut progress.conditions);
        let (of_pattern, of_where): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .partition(|condition| condition.is_of_pattern);
        progress.conditions = of_pattern;
        for (name, value) in behind {
            let needs = &needs - &progress.bound;
            let predicate = match step.length {
                None => property_equals(relationship, name, value),
                Some(_) => {
                    let element = self.slot();
                    each(relationship, element, property_equals(element, name, value))
                }
            };
            progress.conditions.push(Condition {
                needs,
                predicate,
                is_of_pattern: true,
            });
        }
        if let Some(predicate) = &step.predicate {
            let bound = progress.bound.clone();
            self.split(
                predicate,
                scope,
                &bound,
                &mut Searches::default(),
                &mut progress.conditions,
            )?;
        }
        progress.conditions.extend(of_where);
        progress.apply_conditions();
        Ok(())
    }
}

/// Has the step to a relationship leave it out of its rows.
fn leave_unread(plan: &mut Plan, slot: Slot) {
    match plan {
        Plan::Expand { expansion, .. } if expansion.relationship == slot => {
            expansion.is_read = false;
        }
        Plan::Expand { input, .. }
        | Plan::Filter { input, .. }
        | Plan::Project { input, .. }
        | Plan::IsNode { input, .. }
        | Plan::Scan { input, .. }
        | Plan::Seek { input, .. } => leave_unread(input, slot),
        _ => {}
    }
}

pub(super) fn length(length: (Option<u64>, Option<u64>)) -> (u64, u64) {
    (length.0.unwrap_or(1), length.1.unwrap_or(u64::MAX))
}

/// The labels that a node must have, if they are a plain conjunction.
fn labels_of(node: &ast::NodePattern) -> Vec<Name> {
    let labels = node.labels.as_ref().and_then(ast::Labels::conjunction);
    labels.unwrap_or_default()
}

/// Whether an expression only asks for a label of a node.
fn is_label_test(predicate: &Expr, slot: Slot, label: &Name) -> bool {
    match &predicate.kind {
        Kind::HasLabels(of, ast::Labels::Name(asked)) => {
            asked == label && matches!(of.kind, Kind::Slot(held) if held == slot)
        }
        _ => false,
    }
}

fn property_equals(slot: Slot, name: Name, value: Expr) -> Expr {
    let span = value.span;
    let held = Expr::new(
        Kind::Property(Expr::new(Kind::Slot(slot), span).boxed(), name),
        span,
    );
    Expr::new(
        Kind::Binary(Binary::Equal, held.boxed(), value.boxed()),
        span,
    )
}

/// Whether a condition holds for each element of a list.
fn each(list: Slot, element: Slot, predicate: Expr) -> Expr {
    let span = predicate.span;
    let kind = Kind::Quantified {
        quantifier: Quantifier::All,
        slot: element,
        list: Expr::new(Kind::Slot(list), span).boxed(),
        predicate: predicate.boxed(),
    };
    Expr::new(kind, span)
}

/// How many steps of a path are asked on the way for what is not bound by then, if the path is begun at a node.
fn late(waiting: &Waiting<'_>, start: usize, scope: &Scope, bound: &HashSet<Slot>) -> usize {
    let Waiting { pattern, slots, .. } = waiting;
    if pattern.shortest.is_some() {
        let is_known = |slot: &Slot| bound.contains(slot) || slots.nodes.contains(slot);
        return usize::from(!waiting.search.waits.iter().all(is_known));
    }
    let asks = |step: &ast::RelationshipPattern| step.length.is_some() && step.properties.is_some();
    if !pattern.relationships.iter().any(asks) {
        return 0;
    }
    let mut bound = bound.clone();
    bound.insert(slots.nodes[start]);
    let after = (start..pattern.relationships.len()).map(|i| (i, i + 1));
    let before = (0..start).rev().map(|i| (i, i));
    let mut late = 0;
    for (i, to) in after.chain(before) {
        let step = &pattern.relationships[i];
        if asks(step) && !needs(step.properties.as_ref(), scope, &bound).is_empty() {
            late += 1;
        }
        bound.extend([slots.relationships[i], slots.nodes[to]]);
    }
    late
}

/// The slots that an expression reads and that are not bound before this MATCH. An expression with a subquery, a
/// pattern or a map projection waits for all of them.
pub(super) fn needs(
    expr: Option<&ast::Expr>,
    scope: &Scope,
    bound: &HashSet<Slot>,
) -> HashSet<Slot> {
    let mut needs = HashSet::new();
    if let Some(expr) = expr {
        collect_needs(expr, scope, &mut needs);
    }
    needs.retain(|slot| !bound.contains(slot));
    needs
}

fn collect_needs(expr: &ast::Expr, scope: &Scope, needs: &mut HashSet<Slot>) {
    match &expr.kind {
        ExprKind::Variable(name) => needs.extend(scope.get(name).map(|binding| binding.slot)),
        ExprKind::Subquery(..) | ExprKind::Pattern(_) | ExprKind::PatternComprehension { .. } => {
            needs.extend(scope.iter().map(|(_, binding)| binding.slot));
        }
        ExprKind::MapProjection { .. } => {
            needs.extend(scope.iter().map(|(_, binding)| binding.slot));
        }
        _ => expr.for_each_child(&mut |child| collect_needs(child, scope, needs)),
    }
}
