//! [`Fallible`]: the result type of measurements.

use std::error::Error;

pub type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;
