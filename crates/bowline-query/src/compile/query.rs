//! Clauses in a row, UNION, subqueries, CALL.

use std::collections::HashSet;

use super::pattern::already_bound;
use super::types::wants;
use super::{Column, Compiler, Scope, parts};
use crate::error::{Class, Detail, Error, Result, Span, nearest};
use crate::plan::{Expr, Kind, Plan, Slot};
use crate::syntax::ast::{self, Clause, ClauseKind};
use crate::value::{Name, Type};

impl Compiler<'_> {
    /// Compiles a query whose plan starts with the row it is opened with.
    pub(super) fn query(
        &mut self,
        query: &ast::Query,
        scope: &Scope,
        top: bool,
    ) -> Result<(Plan, Vec<Column>)> {
        let (plan, columns) = self.single(&query.first, scope, top)?;
        let Some(first) = query.unions.first() else {
            return Ok((plan, columns));
        };
        let (plan, columns) = self.apart(plan, columns, scope, first.at.0);
        let mut inputs = vec![plan];
        for union in &query.unions {
            self.grow(union.at.0)?;
            if union.all != first.all {
                let message = "UNION and UNION ALL cannot be mixed";
                return Err(Error::syntax(
                    Detail::InvalidClauseComposition,
                    message,
                    union.at.0,
                ));
            }
            let (plan, others) = self.single(&union.clauses, scope, top)?;
            inputs.push(self.align(plan, &columns, &others, union.at.0)?);
        }
        let mut plan = Plan::Union { inputs };
        if !first.all {
            let slots = columns.iter().map(|column| column.slot).collect();
            plan = Plan::Distinct {
                input: Box::new(plan),
                slots,
            };
        }
        Ok((plan, columns))
    }

    /// Gives a slot of its own to each column of the first branch, into which the others write: two columns may show the same
    /// slot, or one that the query was given.
    fn apart(
        &mut self,
        plan: Plan,
        mut columns: Vec<Column>,
        scope: &Scope,
        span: Span,
    ) -> (Plan, Vec<Column>) {
        let mut taken: HashSet<Slot> = scope.iter().map(|(_, binding)| binding.slot).collect();
        let mut items = Vec::new();
        for column in &mut columns {
            if !taken.insert(column.slot) {
                let slot = self.named_slot(&column.name);
                items.push((slot, Expr::new(Kind::Slot(column.slot), span)));
                column.slot = slot;
            }
        }
        if items.is_empty() {
            return (plan, columns);
        }
        let input = Box::new(plan);
        (Plan::Project { input, items }, columns)
    }

    /// Moves the columns of a branch to the slots of the first branch.
    fn align(&mut self, plan: Plan, to: &[Column], from: &[Column], span: Span) -> Result<Plan> {
        let same =
            to.len() == from.len() && to.iter().all(|a| from.iter().any(|b| a.name == b.name));
        if !same {
            let names = |columns: &[Column]| {
                columns
                    .iter()
                    .map(|column| column.name.to_string())
                    .collect::<Vec<_>>()
                    .join(", ")
            };
            let message = format!(
                "the parts of a UNION return the same columns; these return ({}) and ({})",
                names(to),
                names(from)
            );
            return Err(
                Error::syntax(Detail::DifferentColumnsInUnion, message, span)
                    .help("rename columns with AS"),
            );
        }
        let mut items = Vec::new();
        for column in to {
            let source = from
                .iter()
                .find(|other| other.name == column.name)
                .expect("checked above");
            items.push((column.slot, Expr::new(Kind::Slot(source.slot), span)));
        }
        Ok(Plan::Project {
            input: Box::new(plan),
            items,
        })
    }

    /// The query of EXISTS, COUNT or COLLECT, which need not end with RETURN.
    pub(super) fn inner_query(
        &mut self,
        query: &ast::Query,
        scope: &Scope,
    ) -> Result<(Plan, Vec<Column>)> {
        if query.unions.is_empty()
            && matches!(
                query.first.last().map(|c| &c.kind),
                Some(ClauseKind::Match { .. })
            )
        {
            let mut plan = Plan::Argument;
            let mut next = scope.clone();
            for clause in &query.first {
                self.grow(clause.at.0)?;
                (plan, next) = match &clause.kind {
                    ClauseKind::With {
                        projection,
                        predicate,
                    } => self.with(projection, predicate.as_ref(), plan, &next, scope)?,
                    _ => self.clause(clause, plan, &next)?,
                };
            }
            return Ok((plan, Vec::new()));
        }
        self.query(query, scope, false)
    }

    fn single(
        &mut self,
        clauses: &[Clause],
        scope: &Scope,
        top: bool,
    ) -> Result<(Plan, Vec<Column>)> {
        let mut plan = Plan::Argument;
        let mut scope = scope.clone();
        let outer = scope.clone();
        let mut taken = 0;
        while let Some(clause) = clauses.get(taken) {
            let i = taken;
            let last = i + 1 == clauses.len();
            // One that is last is refused below.
            if top
                && let Some((parts, count)) = parts::together(&clauses[i..], &scope)
                && i + count < clauses.len()
            {
                for clause in &clauses[i..i + count] {
                    self.grow(clause.at.0)?;
                }
                (plan, scope) = self.match_parts(&parts, plan, &scope)?;
                taken += count;
                continue;
            }
            taken += 1;
            self.grow(clause.at.0)?;
            match &clause.kind {
                ClauseKind::Return(projection) => {
                    if !last {
                        let message = "RETURN ends a query, but a clause follows";
                        return Err(Error::syntax(
                            Detail::InvalidClauseComposition,
                            message,
                            clause.at.0,
                        )
                        .help("use WITH to go on"));
                    }
                    let projected = self.projection(projection, None, plan, &scope, true)?;
                    return Ok((projected.plan, projected.columns));
                }
                ClauseKind::Call {
                    name,
                    arguments,
                    yields,
                } if clauses.len() == 1 && top => {
                    return self.standalone_call(name, arguments.as_deref(), yields.as_ref());
                }
                ClauseKind::With {
                    projection,
                    predicate,
                } => {
                    let predicate = predicate.as_ref();
                    (plan, scope) = self.with(projection, predicate, plan, &scope, &outer)?;
                }
                _ => {
                    let reads = matches!(
                        clause.kind,
                        ClauseKind::Match { .. } | ClauseKind::Unwind { .. }
                    );
                    if last && reads {
                        let message = "a query cannot end with this clause";
                        return Err(Error::syntax(
                            Detail::InvalidClauseComposition,
                            message,
                            clause.at.0,
                        )
                        .help("add RETURN, or a clause that writes"));
                    }
                    (plan, scope) = self.clause(clause, plan, &scope)?;
                }
            }
        }
        without_return(clauses, plan)
    }

    /// WITH, behind which a subquery keeps the names that it was given.
    fn with(
        &mut self,
        projection: &ast::Projection,
        predicate: Option<&ast::Expr>,
        plan: Plan,
        scope: &Scope,
        given: &Scope,
    ) -> Result<(Plan, Scope)> {
        let projected = self.projection(projection, predicate, plan, scope, false)?;
        let mut next = projected.scope;
        for (name, binding) in given.iter() {
            if !next.contains(name) {
                next.insert(name.clone(), *binding);
            }
        }
        Ok((projected.plan, next))
    }

    /// A clause other than WITH and RETURN.
    fn clause(&mut self, clause: &Clause, plan: Plan, scope: &Scope) -> Result<(Plan, Scope)> {
        match &clause.kind {
            ClauseKind::Match {
                optional: false,
                patterns,
                predicate,
            } => self.match_patterns(patterns, predicate.as_ref(), plan, scope),
            ClauseKind::Match {
                optional: true,
                patterns,
                predicate,
            } => {
                let (inner, next) =
                    self.match_patterns(patterns, predicate.as_ref(), Plan::Argument, scope)?;
                let nulls = next
                    .iter()
                    .filter(|(name, _)| !scope.contains(name))
                    .map(|(_, binding)| binding.slot)
                    .collect();
                let plan = Plan::Optional {
                    input: Box::new(plan),
                    inner: Box::new(inner),
                    nulls,
                };
                Ok((plan, next))
            }
            ClauseKind::Unwind { list, variable } => self.unwind(list, variable, plan, scope),
            ClauseKind::Create(patterns) => self.create(patterns, plan, scope),
            ClauseKind::Merge {
                pattern,
                on_create,
                on_match,
            } => self.merge(pattern, on_create, on_match, plan, scope),
            ClauseKind::Set(items) => {
                let items = self.set_items(items, scope)?;
                Ok((
                    Plan::Set {
                        input: eager(plan),
                        items,
                    },
                    scope.clone(),
                ))
            }
            ClauseKind::Remove(items) => {
                let items = self.remove_items(items, scope)?;
                Ok((
                    Plan::Remove {
                        input: eager(plan),
                        items,
                    },
                    scope.clone(),
                ))
            }
            ClauseKind::Delete {
                detach,
                expressions,
            } => {
                let expressions = self.deletions(expressions, scope)?;
                let plan = Plan::Delete {
                    input: eager(plan),
                    expressions,
                    detach: *detach,
                };
                Ok((plan, scope.clone()))
            }
            ClauseKind::Call {
                name,
                arguments,
                yields,
            } => self.call_procedure(name, arguments.as_deref(), yields.as_ref(), plan, scope),
            ClauseKind::Subquery {
                scope: imports,
                query,
            } => self.call_subquery(imports.as_deref(), query, clause.at.0, plan, scope),
            ClauseKind::Foreach {
                variable,
                list,
                clauses,
            } => self.foreach(variable, list, clauses, plan, scope),
            ClauseKind::With { .. } | ClauseKind::Return(_) => {
                let message = "this clause cannot stand here";
                Err(Error::syntax(
                    Detail::InvalidClauseComposition,
                    message,
                    clause.at.0,
                ))
            }
        }
    }

    fn unwind(
        &mut self,
        list: &ast::Expr,
        variable: &ast::Ident,
        plan: Plan,
        scope: &Scope,
    ) -> Result<(Plan, Scope)> {
        let (compiled, known) = self.expression(list, scope)?;
        let element = match &list.kind {
            ast::ExprKind::List(items) if !items.is_empty() => {
                items.iter().fold(Type::Null, |all, item| {
                    all.or(match &item.kind {
                        ast::ExprKind::Literal(literal) => super::types::type_of(&literal.0),
                        ast::ExprKind::Map(_) => Type::Map,
                        _ => Type::Any,
                    })
                })
            }
            _ if known == Type::Relationships => Type::Relationship,
            _ => Type::Any,
        };
        if scope.contains(&variable.name) {
            return Err(already_bound(variable));
        }
        let slot = self.named_slot(&variable.name);
        let mut next = scope.clone();
        let element = if element == Type::Null {
            Type::Any
        } else {
            element
        };
        next.bind(variable.name.clone(), slot, element);
        Ok((
            Plan::Unwind {
                input: Box::new(plan),
                slot,
                list: compiled,
            },
            next,
        ))
    }

    fn foreach(
        &mut self,
        variable: &ast::Ident,
        list: &ast::Expr,
        clauses: &[Clause],
        plan: Plan,
        scope: &Scope,
    ) -> Result<(Plan, Scope)> {
        let (compiled, known) = self.expression(list, scope)?;
        wants(known, &[Type::List], "a list", list.span)?;
        let slot = self.slot();
        let mut inner_scope = scope.clone();
        inner_scope.bind(variable.name.clone(), slot, Type::Any);
        let mut inner = Plan::Argument;
        for clause in clauses {
            let writes = matches!(
                clause.kind,
                ClauseKind::Create(_)
                    | ClauseKind::Merge { .. }
                    | ClauseKind::Set(_)
                    | ClauseKind::Remove(_)
                    | ClauseKind::Delete { .. }
                    | ClauseKind::Foreach { .. }
            );
            if !writes {
                let message = "only clauses that write can stand in FOREACH";
                return Err(Error::syntax(
                    Detail::InvalidClauseComposition,
                    message,
                    clause.at.0,
                ));
            }
            self.grow(clause.at.0)?;
            (inner, inner_scope) = self.clause(clause, inner, &inner_scope)?;
        }
        let plan = Plan::Foreach {
            input: eager(plan),
            slot,
            list: compiled,
            inner: Box::new(inner),
        };
        Ok((plan, scope.clone()))
    }

    fn call_subquery(
        &mut self,
        imports: Option<&[ast::Ident]>,
        query: &ast::Query,
        span: Span,
        plan: Plan,
        scope: &Scope,
    ) -> Result<(Plan, Scope)> {
        let mut inner_scope = Scope::default();
        for ident in imports.unwrap_or_default() {
            inner_scope.insert(ident.name.clone(), scope.resolve(&ident.name, ident.span)?);
        }
        let mut query = query.clone();
        if imports.is_none() {
            self.import(&mut query, scope, &mut inner_scope)?;
        }
        let (inner, columns) = self.query(&query, &inner_scope.given(), false)?;
        if columns.is_empty() {
            return Err(Error::unsupported("CALL { … } without RETURN", span));
        }
        let mut next = scope.clone();
        for column in columns {
            if scope.contains(&column.name) {
                return Err(already_bound(&ast::Ident {
                    name: column.name,
                    span,
                }));
            }
            next.bind(column.name, column.slot, column.kind);
        }
        let input = if inner.writes() {
            eager(plan)
        } else {
            Box::new(plan)
        };
        Ok((
            Plan::Apply {
                input,
                inner: Box::new(inner),
            },
            next,
        ))
    }

    /// A WITH of plain variables at the start of a subquery imports them.
    fn import(&self, query: &mut ast::Query, scope: &Scope, inner: &mut Scope) -> Result<()> {
        let Some(ClauseKind::With {
            projection,
            predicate,
        }) = query.first.first().map(|c| &c.kind)
        else {
            return Ok(());
        };
        let at = projection.at.0;
        let bare = |item: &ast::ProjectionItem| match (&item.alias, &item.expression.kind) {
            (None, ast::ExprKind::Variable(name)) => Some(name.clone()),
            _ => None,
        };
        let names: Option<Vec<Name>> = projection.items.iter().map(bare).collect();
        let plain = predicate.is_none()
            && projection.order.is_empty()
            && projection.skip.is_none()
            && projection.limit.is_none()
            && !projection.distinct
            && !projection.wildcard
            && query.unions.is_empty();
        let (Some(names), true) = (names, plain) else {
            return Err(Error::unsupported(
                "CALL { WITH … } with more than names of variables",
                at,
            ));
        };
        for name in names {
            let binding = scope.resolve(&name, at)?;
            inner.insert(name, binding);
        }
        query.first.remove(0);
        Ok(())
    }

    fn standalone_call(
        &mut self,
        name: &ast::Ident,
        arguments: Option<&[ast::Expr]>,
        yields: Option<&ast::Yield>,
    ) -> Result<(Plan, Vec<Column>)> {
        let signature = self.signature(name)?;
        let items: Vec<(ast::Ident, ast::Ident)> = match yields {
            Some(yields) if !yields.all => yields.items.clone(),
            _ => {
                let all = signature.outputs.iter();
                all.map(|(output, _)| ast::Ident {
                    name: output.clone(),
                    span: name.span,
                })
                .map(|ident| (ident.clone(), ident))
                .collect()
            }
        };
        let arguments: Vec<ast::Expr> = match arguments {
            Some(arguments) => arguments.to_vec(),
            // Without brackets, parameters of the arguments' names are passed.
            None => signature.inputs[..signature.inputs.len() - signature.optional]
                .iter()
                .map(|(input, _)| {
                    ast::Expr::new(ast::ExprKind::Parameter(input.clone()), name.span)
                })
                .collect(),
        };
        let predicate = yields.and_then(|yields| yields.predicate.as_ref());
        let scope = Scope::default();
        let (plan, scope) =
            self.call_with(name, &arguments, &items, predicate, Plan::Argument, &scope)?;
        let columns = items
            .iter()
            .map(|(_, variable)| {
                let binding = scope.get(&variable.name).expect("bound by the call");
                Column {
                    name: variable.name.clone(),
                    slot: binding.slot,
                    kind: binding.kind,
                }
            })
            .collect::<Vec<_>>();
        if columns.is_empty() {
            return Ok((
                Plan::Discard {
                    input: Box::new(plan),
                },
                columns,
            ));
        }
        Ok((plan, columns))
    }

    fn call_procedure(
        &mut self,
        name: &ast::Ident,
        arguments: Option<&[ast::Expr]>,
        yields: Option<&ast::Yield>,
        plan: Plan,
        scope: &Scope,
    ) -> Result<(Plan, Scope)> {
        let signature = self.signature(name)?;
        let Some(arguments) = arguments else {
            let message = "a call within a query has its arguments in brackets";
            return Err(Error::syntax(
                Detail::InvalidArgumentPassingMode,
                message,
                name.span,
            ));
        };
        if let Some(yields) = yields.filter(|yields| yields.all) {
            let message = "YIELD * is for a call that stands alone";
            return Err(
                Error::syntax(Detail::UnexpectedSyntax, message, yields.at.0)
                    .help("name the outputs"),
            );
        }
        if yields.is_none()
            && !signature.outputs.is_empty()
            && arguments.len() + signature.optional >= signature.inputs.len()
        {
            let message = format!("the outputs of `{}` are not used", name.name);
            return Err(
                Error::syntax(Detail::UndefinedVariable, message, name.span).help("add YIELD")
            );
        }
        let items = yields
            .map(|yields| yields.items.clone())
            .unwrap_or_default();
        let predicate = yields.and_then(|yields| yields.predicate.as_ref());
        self.call_with(name, arguments, &items, predicate, plan, scope)
    }

    fn call_with(
        &mut self,
        name: &ast::Ident,
        arguments: &[ast::Expr],
        items: &[(ast::Ident, ast::Ident)],
        predicate: Option<&ast::Expr>,
        plan: Plan,
        scope: &Scope,
    ) -> Result<(Plan, Scope)> {
        let signature = self.signature(name)?;
        let span = name.span;
        self.calls = true;
        let most = signature.inputs.len();
        let least = most - signature.optional;
        if !(least..=most).contains(&arguments.len()) {
            let names: Vec<&str> = signature.inputs.iter().map(|(name, _)| &**name).collect();
            let count = match least == most {
                true => most.to_string(),
                false => format!("{least} to {most}"),
            };
            let (name, names, given) = (&name.name, names.join(", "), arguments.len());
            let message = format!("`{name}` takes {count} arguments ({names}), not {given}");
            return Err(Error::syntax(
                Detail::InvalidNumberOfArguments,
                message,
                span,
            ));
        }
        let mut compiled = Vec::new();
        for (argument, (input, wanted)) in arguments.iter().zip(&signature.inputs) {
            let (expr, known) = self.expression(argument, scope)?;
            // An integer is taken where a float is wanted.
            let accepted = if *wanted == Type::Float {
                Type::Number
            } else {
                *wanted
            };
            let what = format!("{} for `{input}`", wanted.name());
            wants(known, &[accepted], &what, argument.span)?;
            compiled.push(expr);
        }
        let mut next = scope.clone();
        let mut outputs = Vec::new();
        for (output, variable) in items {
            let found = signature
                .outputs
                .iter()
                .position(|(known, _)| *known == output.name);
            let Some(at) = found else {
                let message = format!("`{}` has no output `{}`", name.name, output.name);
                let error = Error::syntax(Detail::UndefinedVariable, message, output.span);
                let near = nearest(
                    &output.name,
                    signature.outputs.iter().map(|(name, _)| &**name),
                );
                return Err(match near {
                    Some(near) => error.help(format!("did you mean `{near}`?")),
                    None => error,
                });
            };
            if next.contains(&variable.name) {
                return Err(already_bound(variable));
            }
            let slot = self.named_slot(&variable.name);
            next.bind(variable.name.clone(), slot, signature.outputs[at].1);
            outputs.push((at, slot));
        }
        let mut plan = Plan::Call {
            input: Box::new(plan),
            procedure: signature.name.clone(),
            arguments: compiled,
            outputs,
        };
        if let Some(predicate) = predicate {
            let predicate = self.boolean(predicate, &next)?;
            plan = Plan::Filter {
                input: Box::new(plan),
                predicate,
            };
        }
        Ok((plan, next))
    }

    fn signature(&self, name: &ast::Ident) -> Result<crate::call::Signature> {
        self.procedures.signature(&name.name).ok_or_else(|| {
            let message = format!("there is no procedure `{}`", name.name);
            let error = Error::compile(
                Class::ProcedureError,
                Detail::ProcedureNotFound,
                message,
                name.span,
            );
            let names: Vec<Name> = self.procedures.names();
            match nearest(&name.name, names.iter().map(|name| &**name)) {
                Some(near) => error.help(format!("did you mean `{near}`?")),
                None => error,
            }
        })
    }
}

/// Reads all rows before a clause that writes. What writes already yields no row before its last write.
pub(super) fn eager(plan: Plan) -> Box<Plan> {
    match plan {
        Plan::Argument
        | Plan::Eager { .. }
        | Plan::Create { .. }
        | Plan::Merge { .. }
        | Plan::Set { .. }
        | Plan::Remove { .. }
        | Plan::Delete { .. }
        | Plan::Foreach { .. } => Box::new(plan),
        plan => Box::new(Plan::Eager {
            input: Box::new(plan),
        }),
    }
}

/// A query whose last clause is no RETURN.
fn without_return(clauses: &[Clause], plan: Plan) -> Result<(Plan, Vec<Column>)> {
    match clauses.last().map(|clause| &clause.kind) {
        Some(ClauseKind::With { .. }) => {
            let span = clauses.last().map_or(Span::default(), |clause| clause.at.0);
            let message = "a query cannot end with WITH";
            Err(Error::syntax(Detail::InvalidClauseComposition, message, span).help("add RETURN"))
        }
        Some(_) => Ok((
            Plan::Discard {
                input: Box::new(plan),
            },
            Vec::new(),
        )),
        None => Err(Error::syntax(
            Detail::UnexpectedSyntax,
            "the query is empty",
            Span::default(),
        )),
    }
}
