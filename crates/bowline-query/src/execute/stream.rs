//! The trait of operators.

use super::context::Context;
use crate::error::Result;
use crate::value::Value;

/// The values of all slots.
pub(crate) type Row = Vec<Value>;

/// What is done with each row. It leaves the values of the row as they are.
pub(crate) type Each<'e> = dyn FnMut(&mut Row, &mut Context<'_>) -> Result<()> + 'e;

/// Rows, one at a time.
pub(crate) trait Stream {
    /// The next row, or `None` at the end. After the end, or an error, it is not called again.
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>>;

    /// Hands over all rows that are left, for who needs no row of its own. Operators that only add values, or leave rows out,
    /// do so in the row of their input, which saves a copy for each row.
    fn drain(&mut self, cx: &mut Context<'_>, each: &mut Each<'_>) -> Result<()> {
        while let Some(mut row) = self.next(cx)? {
            each(&mut row, cx)?;
        }
        Ok(())
    }
}

/// An operator's input.
pub(super) type Input<'p> = Box<dyn Stream + 'p>;
