//! Which names can be seen, where they are in the row, and what is known of their types.

use std::collections::HashSet;

use crate::error::{Detail, Error, Span, nearest};
use crate::plan::Slot;
use crate::value::{Name, Type};

#[derive(Clone, Copy, Debug)]
pub(super) struct Binding {
    pub slot: Slot,
    pub kind: Type,
    pub origin: Origin,
}

/// What a variable belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// The rows of the query.
    Row,
    /// The expression itself, which binds it as a comprehension does.
    Local,
    /// The query around this subquery, for all of whose rows it is the same.
    Given,
    /// A group, as its key.
    Key,
    /// The rows of a group, which differ: it must not be read.
    Ungrouped,
    /// What the present clause makes later: it must not be read.
    Unmade,
}

impl Origin {
    /// Whether the variable must not be read.
    pub fn is_hidden(self) -> bool {
        matches!(self, Origin::Ungrouped | Origin::Unmade)
    }
}

/// Names in the order in which they were bound. Scopes are small, so a list is searched.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    bindings: Vec<(Name, Binding)>,
}

impl Scope {
    pub fn get(&self, name: &str) -> Option<Binding> {
        self.bindings
            .iter()
            .rev()
            .find(|(known, _)| &**known == name)
            .map(|(_, binding)| *binding)
    }

    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Binds a name, which hides an older one.
    pub fn bind(&mut self, name: Name, slot: Slot, kind: Type) {
        self.bind_as(Origin::Row, name, slot, kind);
    }

    pub fn bind_as(&mut self, origin: Origin, name: Name, slot: Slot, kind: Type) {
        self.insert(name, Binding { slot, kind, origin });
    }

    pub fn insert(&mut self, name: Name, binding: Binding) {
        self.bindings.retain(|(known, _)| *known != name);
        self.bindings.push((name, binding));
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Name, &Binding)> {
        self.bindings.iter().map(|(name, binding)| (name, binding))
    }

    pub fn is_empty(&self) -> bool {
        self.bindings.is_empty()
    }

    /// The variable's binding, or the error that it has none.
    pub fn resolve(&self, name: &str, span: Span) -> Result<Binding, Error> {
        let known = self.known(name, span)?;
        known.ok_or_else(|| self.undefined(name, span))
    }

    /// The variable's binding, if it has one. It is an error if it must not be read.
    pub fn known(&self, name: &str, span: Span) -> Result<Option<Binding>, Error> {
        match self.get(name) {
            Some(binding) if binding.origin == Origin::Ungrouped => Err(not_of_group(name, span)),
            Some(binding) if binding.origin == Origin::Unmade => Err(not_made(name, span)),
            known => Ok(known),
        }
    }

    /// The same names, of which those of some slots must not be read yet.
    pub fn before(&self, unmade: &HashSet<Slot>) -> Scope {
        let mut before = self.clone();
        for (_, binding) in &mut before.bindings {
            if unmade.contains(&binding.slot) {
                binding.origin = Origin::Unmade;
            }
        }
        before
    }

    /// The same names, as a subquery sees them.
    pub fn given(&self) -> Scope {
        let mut given = self.clone();
        for (_, binding) in &mut given.bindings {
            if !binding.origin.is_hidden() {
                binding.origin = Origin::Given;
            }
        }
        given
    }

    pub fn undefined(&self, name: &str, span: Span) -> Error {
        let error = Error::syntax(
            Detail::UndefinedVariable,
            format!("variable `{name}` is not defined"),
            span,
        );
        match nearest(name, self.bindings.iter().map(|(known, _)| &**known)) {
            Some(near) => error.help(format!("did you mean `{near}`?")),
            None if self.bindings.is_empty() => {
                error.help("no variable is bound here; bind it by MATCH, UNWIND or WITH")
            }
            None => {
                let known: Vec<&str> = self.bindings.iter().map(|(name, _)| &**name).collect();
                error.help(format!("the variables here are: {}", known.join(", ")))
            }
        }
    }
}

/// The error that a variable is read of a group.
pub(super) fn not_of_group(name: &str, span: Span) -> Error {
    let message = format!("`{name}` is not the same for all rows of a group");
    Error::syntax(Detail::AmbiguousAggregationExpression, message, span)
        .help("add it to the items by itself, or project it in a WITH before")
}

/// The error that a variable is read within the clause that makes what it stands for.
fn not_made(name: &str, span: Span) -> Error {
    let message = format!("`{name}` stands for what this clause makes, which is not there yet");
    Error::syntax(Detail::UndefinedVariable, message, span)
        .help("set the property in a SET behind the clause")
}
