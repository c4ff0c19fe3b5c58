//! The trait of operators.

use super::context::Context;
use crate::error::Result;
use crate::value::Value;

/// The values of all slots.
pub(crate) type Row = Vec<Value>;

/// Rows, one at a time.
pub(crate) trait Stream {
    /// The next row, or `None` at the end. After the end, or an error, it is not called again.
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>>;
}

/// An operator's input.
pub(super) type Input<'p> = Box<dyn Stream + 'p>;
