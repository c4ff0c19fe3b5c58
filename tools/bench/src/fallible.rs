//! The result of everything that a measurement does.

use std::error::Error;

pub type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;
