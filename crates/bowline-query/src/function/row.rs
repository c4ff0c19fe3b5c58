//! A row of a table of functions, and what functions may use.

use jiff::ZonedDateTime;

use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::value::{Type, Value};

/// What functions may use besides their arguments.
pub(crate) struct Env<'a> {
    pub graph: &'a dyn Graph,
    pub now: &'a ZonedDateTime,
    pub random: &'a mut dyn FnMut() -> f64,
    pub room: &'a dyn Room,
}

/// Who is asked before a large value is made.
pub(crate) trait Room {
    /// Refuses a value of so many bytes, if the query may not hold it.
    fn room_for(&self, bytes: u64) -> Result<()>;
}

/// The code of a function.
type Code = fn(&mut Env<'_>, &[Value]) -> Result<Value>;

/// A function.
pub(crate) struct Function {
    pub name: &'static str,
    pub least: usize,
    pub most: usize,
    /// The types that each argument may have; the last row stands for all further arguments; none for any type.
    pub arguments: &'static [&'static [Type]],
    pub result: Type,
    /// Null if an argument is null.
    pub strict: bool,
    pub call: Code,
}

impl Function {
    /// Whether it yields the same for the same arguments, each time within a query.
    pub fn is_same_again(&self) -> bool {
        self.name != "rand"
    }

    /// Whether it is `range`, whose numbers can be had one by one.
    pub fn is_range(&self) -> bool {
        self.name == "range"
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A row of a table.
pub(super) const fn function(
    name: &'static str,
    least: usize,
    most: usize,
    arguments: &'static [&'static [Type]],
    result: Type,
    call: Code,
) -> Function {
    Function {
        name,
        least,
        most,
        arguments,
        result,
        strict: true,
        call,
    }
}

/// A row of a function that looks at nulls itself.
pub(super) const fn lenient(
    name: &'static str,
    least: usize,
    most: usize,
    result: Type,
    call: Code,
) -> Function {
    Function {
        name,
        least,
        most,
        arguments: &[],
        result,
        strict: false,
        call,
    }
}

/// The error of a call whose argument has a wrong type.
pub(super) fn wrong(name: &str, wanted: &str, value: &Value) -> Error {
    Error::wrong_type(format!(
        "`{name}` takes {wanted}, not {}",
        value.type_name()
    ))
}
