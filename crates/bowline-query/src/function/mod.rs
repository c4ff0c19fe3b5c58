//! The functions of the language, in tables.
//!
//! A function is a row: its name, how many arguments it takes, what types they have, what it yields, and the code. The
//! compiler checks calls against the row; names are compared without regard to case, as openCypher's are.

mod clock;
mod entity;
mod list;
mod number;
mod row;
mod text;

pub(crate) use list::{Numbers, numbers};
pub(crate) use row::{Env, Function, Room};

const TABLES: [&[Function]; 5] = [
    entity::FUNCTIONS,
    list::FUNCTIONS,
    number::FUNCTIONS,
    text::FUNCTIONS,
    clock::FUNCTIONS,
];

/// The function of the name.
pub(crate) fn find(name: &str) -> Option<&'static Function> {
    TABLES
        .iter()
        .copied()
        .flatten()
        .find(|function| function.name.eq_ignore_ascii_case(name))
}

/// The names of all functions that are no aggregates, for those who help to type queries.
///
/// ```
/// assert!(bowline_query::function_names().any(|name| name == "toUpper"));
/// ```
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLES
        .iter()
        .copied()
        .flatten()
        .map(|function| function.name)
}
