//! Which names can be seen, where they are in the row, and what is known of their types.

use crate::error::{Detail, Error, Span, nearest};
use crate::plan::Slot;
use crate::value::{Name, Type};

#[derive(Clone, Copy, Debug)]
pub(super) struct Binding {
    pub slot: Slot,
    pub kind: Type,
    /// Bound by the expression itself, as the variable of a comprehension is.
    pub local: bool,
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
        self.insert(
            name,
            Binding {
                slot,
                kind,
                local: false,
            },
        );
    }

    pub fn bind_local(&mut self, name: Name, slot: Slot, kind: Type) {
        self.insert(
            name,
            Binding {
                slot,
                kind,
                local: true,
            },
        );
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
        self.get(name).ok_or_else(|| self.undefined(name, span))
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
