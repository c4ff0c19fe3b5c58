//! Clauses that write.

use std::collections::HashSet;

use bowline_types::Direction;

use super::matching::needs;
use super::pattern::{already_bound, conflicts};
use super::query::eager;
use super::types::wants;
use super::{Compiler, Scope};
use crate::error::{Detail, Error, Result};
use crate::plan::{CreateNode, CreateRelationship, Expr, PathPart, Plan, Remove, Set, Slot};
use crate::syntax::ast;
use crate::value::Type;

/// What a pattern creates, in order.
#[derive(Default)]
struct Creation {
    nodes: Vec<CreateNode>,
    relationships: Vec<CreateRelationship>,
    paths: Vec<(Slot, Expr)>,
}

impl Creation {
    /// What the properties of the next node or relationship cannot read. CREATE makes all nodes first, then the relationships, and
    /// the paths last. MERGE looks for all of it before it makes anything, so none can be read there.
    fn unmade(&self, strict: bool, is_of_node: bool) -> impl Iterator<Item = Slot> {
        let nodes = self.nodes.iter().map(|node| node.slot);
        let relationships = self.relationships.iter().map(|it| it.slot);
        let paths = self.paths.iter().map(|(slot, _)| *slot);
        let nodes = nodes.filter(move |_| !strict);
        let relationships = relationships.filter(move |_| !strict || is_of_node);
        nodes.chain(relationships).chain(paths)
    }
}

impl Compiler<'_> {
    pub(super) fn create(
        &mut self,
        patterns: &[ast::Pattern],
        plan: Plan,
        scope: &Scope,
    ) -> Result<(Plan, Scope)> {
        let mut next = scope.clone();
        let mut creation = Creation::default();
        for pattern in patterns {
            self.create_pattern(pattern, true, &mut next, &mut creation)?;
        }
        let Creation {
            nodes,
            relationships,
            paths,
        } = creation;
        let mut plan = Plan::Create {
            input: eager(plan),
            nodes,
            relationships,
        };
        if !paths.is_empty() {
            plan = Plan::Project {
                input: Box::new(plan),
                items: paths,
            };
        }
        Ok((plan, next))
    }

    /// Adds what a pattern creates. `strict` is for CREATE; in MERGE a relationship may lack a direction.
    fn create_pattern(
        &mut self,
        pattern: &ast::Pattern,
        strict: bool,
        scope: &mut Scope,
        creation: &mut Creation,
    ) -> Result<()> {
        if pattern.shortest.is_some() {
            return Err(Error::syntax(
                Detail::UnexpectedSyntax,
                "a shortest path is found, not created",
                pattern.at.0,
            ));
        }
        for step in &pattern.relationships {
            Self::check_creatable(step, strict)?;
        }
        let alone = pattern.relationships.is_empty();
        let mut nodes = Vec::new();
        for node in &pattern.nodes {
            nodes.push(self.create_node(node, alone, strict, scope, creation)?);
        }
        let mut parts = vec![PathPart::Node(nodes[0])];
        for (i, step) in pattern.relationships.iter().enumerate() {
            if let Some(ident) = step
                .variable
                .as_ref()
                .filter(|ident| scope.contains(&ident.name))
            {
                return Err(already_bound(ident));
            }
            let kind = Self::single_kind(step)?;
            let unmade = creation.unmade(strict, false);
            let properties = self.made_properties(step.properties.as_ref(), scope, unmade)?;
            let slot = self.slot();
            if let Some(ident) = &step.variable {
                self.names.insert(slot, ident.name.clone());
                scope.bind(ident.name.clone(), slot, Type::Relationship);
            }
            let (source, target) = match step.direction {
                Direction::In => (nodes[i + 1], nodes[i]),
                _ => (nodes[i], nodes[i + 1]),
            };
            let span = step.at.0;
            creation.relationships.push(CreateRelationship {
                slot,
                source,
                kind,
                target,
                properties,
                span,
            });
            parts.push(PathPart::Relationship(slot));
            parts.push(PathPart::Node(nodes[i + 1]));
        }
        if let Some(ident) = &pattern.variable {
            if scope.contains(&ident.name) {
                return Err(already_bound(ident));
            }
            let slot = self.slot();
            scope.bind(ident.name.clone(), slot, Type::Path);
            creation.paths.push((slot, Self::path(parts, pattern.at.0)));
        }
        Ok(())
    }

    fn create_node(
        &mut self,
        node: &ast::NodePattern,
        alone: bool,
        strict: bool,
        scope: &mut Scope,
        creation: &mut Creation,
    ) -> Result<Slot> {
        Self::refuse_condition(node.predicate.as_ref())?;
        if let Some(ident) = &node.variable
            && let Some(binding) = scope.get(&ident.name)
        {
            conflicts(ident, binding.kind, Type::Node)?;
            if alone || node.labels.is_some() || node.properties.is_some() {
                return Err(already_bound(ident));
            }
            return Ok(binding.slot);
        }
        let unmade = creation.unmade(strict, true);
        let properties = self.made_properties(node.properties.as_ref(), scope, unmade)?;
        let labels = Self::plain_labels(node.labels.as_ref(), node.at.0)?;
        let slot = self.slot();
        if let Some(ident) = &node.variable {
            self.names.insert(slot, ident.name.clone());
            scope.bind(ident.name.clone(), slot, Type::Node);
        }
        creation.nodes.push(CreateNode {
            slot,
            labels,
            properties,
        });
        Ok(slot)
    }

    /// The properties of something that is created, of which some variables stand for what is not made by then.
    fn made_properties(
        &mut self,
        properties: Option<&ast::Expr>,
        scope: &Scope,
        unmade: impl Iterator<Item = Slot>,
    ) -> Result<Option<Expr>> {
        let reads = needs(properties, scope, &HashSet::new());
        let unmade: HashSet<Slot> = unmade.filter(|slot| reads.contains(slot)).collect();
        match unmade.is_empty() {
            true => self.new_properties(properties, scope),
            false => self.new_properties(properties, &scope.before(&unmade)),
        }
    }

    pub(super) fn merge(
        &mut self,
        pattern: &ast::Pattern,
        on_create: &[ast::SetItem],
        on_match: &[ast::SetItem],
        plan: Plan,
        scope: &Scope,
    ) -> Result<(Plan, Scope)> {
        for step in &pattern.relationships {
            if let Some(ident) = step
                .variable
                .as_ref()
                .filter(|ident| scope.contains(&ident.name))
            {
                return Err(already_bound(ident));
            }
            Self::check_creatable(step, false)?;
            Self::single_kind(step)?;
        }
        for node in &pattern.nodes {
            if let Some(ident) = node
                .variable
                .as_ref()
                .filter(|ident| scope.contains(&ident.name))
            {
                let bare = node.labels.is_none() && node.properties.is_none();
                if !bare || pattern.relationships.is_empty() {
                    return Err(already_bound(ident));
                }
            }
        }
        let patterns = std::slice::from_ref(pattern);
        let (matching, matched) = self.match_patterns(patterns, None, Plan::Argument, scope)?;
        let mut created = scope.clone();
        let mut creation = Creation::default();
        self.create_pattern(pattern, false, &mut created, &mut creation)?;
        // Both ways bind the same names; what is created is moved to the slots of what is matched.
        let Creation {
            mut nodes,
            mut relationships,
            mut paths,
        } = creation;
        let moved = |slot: Slot| -> Slot {
            let name = created
                .iter()
                .find(|(_, binding)| binding.slot == slot)
                .map(|(name, _)| name);
            name.and_then(|name| matched.get(name))
                .map_or(slot, |binding| binding.slot)
        };
        for node in &mut nodes {
            node.slot = moved(node.slot);
        }
        for relationship in &mut relationships {
            relationship.slot = moved(relationship.slot);
            relationship.source = moved(relationship.source);
            relationship.target = moved(relationship.target);
        }
        for (slot, path) in &mut paths {
            *slot = moved(*slot);
            if let crate::plan::Kind::Path(parts) = &mut path.kind {
                for part in parts {
                    match part {
                        PathPart::Node(slot)
                        | PathPart::Relationship(slot)
                        | PathPart::Relationships(slot) => *slot = moved(*slot),
                    }
                }
            }
        }
        let plan = Plan::Merge {
            input: eager(plan),
            matching: Box::new(matching),
            nodes,
            relationships,
            on_create: self.set_items(on_create, &matched)?,
            on_match: self.set_items(on_match, &matched)?,
            paths,
        };
        Ok((plan, matched))
    }

    pub(super) fn set_items(&mut self, items: &[ast::SetItem], scope: &Scope) -> Result<Vec<Set>> {
        let mut compiled = Vec::new();
        for item in items {
            compiled.push(match item {
                ast::SetItem::Property { target, key, value } => {
                    let (target, known) = self.expression(target, scope)?;
                    wants(
                        known,
                        &[Type::Node, Type::Relationship],
                        "a node or a relationship",
                        target.span,
                    )?;
                    let value = self.expression(value, scope)?.0;
                    Set::Property {
                        target,
                        key: key.name.clone(),
                        value,
                    }
                }
                ast::SetItem::Properties {
                    target,
                    value,
                    replace,
                } => {
                    let binding = scope.resolve(&target.name, target.span)?;
                    let entities = [Type::Node, Type::Relationship];
                    wants(
                        binding.kind,
                        &entities,
                        "a node or a relationship",
                        target.span,
                    )?;
                    let (value, known) = self.expression(value, scope)?;
                    let maps = [Type::Map, Type::Node, Type::Relationship];
                    wants(known, &maps, "a map, a node or a relationship", value.span)?;
                    Set::Properties {
                        target: binding.slot,
                        value,
                        replace: *replace,
                        span: target.span,
                    }
                }
                ast::SetItem::Labels { target, labels } => {
                    let binding = scope.resolve(&target.name, target.span)?;
                    wants(binding.kind, &[Type::Node], "a node", target.span)?;
                    Set::Labels {
                        target: binding.slot,
                        labels: labels.clone(),
                        span: target.span,
                    }
                }
            });
        }
        Ok(compiled)
    }

    pub(super) fn remove_items(
        &mut self,
        items: &[ast::RemoveItem],
        scope: &Scope,
    ) -> Result<Vec<Remove>> {
        let mut compiled = Vec::new();
        for item in items {
            compiled.push(match item {
                ast::RemoveItem::Property { target, key } => {
                    let (target, known) = self.expression(target, scope)?;
                    wants(
                        known,
                        &[Type::Node, Type::Relationship],
                        "a node or a relationship",
                        target.span,
                    )?;
                    Remove::Property {
                        target,
                        key: key.name.clone(),
                    }
                }
                ast::RemoveItem::Labels { target, labels } => {
                    let binding = scope.resolve(&target.name, target.span)?;
                    wants(binding.kind, &[Type::Node], "a node", target.span)?;
                    Remove::Labels {
                        target: binding.slot,
                        labels: labels.clone(),
                        span: target.span,
                    }
                }
            });
        }
        Ok(compiled)
    }

    pub(super) fn deletions(
        &mut self,
        expressions: &[ast::Expr],
        scope: &Scope,
    ) -> Result<Vec<Expr>> {
        let mut compiled = Vec::new();
        for expr in expressions {
            if let ast::ExprKind::HasLabels(..) = expr.kind {
                let message = "DELETE takes nodes, relationships and paths, not labels";
                return Err(Error::syntax(Detail::InvalidDelete, message, expr.span)
                    .help("use REMOVE for labels"));
            }
            let (expr, known) = self.expression(expr, scope)?;
            let deletable = [Type::Node, Type::Relationship, Type::Path];
            wants(
                known,
                &deletable,
                "a node, a relationship or a path",
                expr.span,
            )?;
            compiled.push(expr);
        }
        Ok(compiled)
    }
}
