//! [`Cancel`]: a flag by which another thread ends a long computation.
//!
//! Reading a graph loads the flag for every edge, and an algorithm at least once for every 1,024 vertices, so both end
//! within milliseconds. Only the transposition of a view and a sort by degree, which are short beside the reading, run
//! to their ends. What has been computed is discarded: a part of a result would look like a whole one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Error, Result};

/// Ends a long computation from another thread. Clones share one flag.
///
/// ```
/// use bowline::{Cancel, Db, Error};
///
/// let db = Db::in_memory()?;
/// let cancel = Cancel::new();
/// let graph = db.snapshot().graph().cancelable(&cancel);
/// cancel.cancel(); // from another thread, as a rule
/// assert!(matches!(graph.page_rank().run(), Err(Error::Canceled)));
/// assert!(cancel.is_canceled() && cancel.check().is_err());
/// assert!(!Cancel::never().is_canceled());
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Cancel {
    /// `None` is never canceled.
    flag: Option<Arc<AtomicBool>>,
}

impl Default for Cancel {
    fn default() -> Cancel {
        Cancel::new()
    }
}

impl Cancel {
    /// A flag that is not set.
    #[must_use]
    pub fn new() -> Cancel {
        Cancel {
            flag: Some(Arc::new(AtomicBool::new(false))),
        }
    }

    /// A flag that cannot be set.
    #[must_use]
    pub const fn never() -> Cancel {
        Cancel { flag: None }
    }

    /// Sets the flag, for all clones and for good.
    pub fn cancel(&self) {
        if let Some(flag) = &self.flag {
            // The flag carries no other data, so no order is needed.
            flag.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the flag is set.
    #[must_use]
    #[inline]
    pub fn is_canceled(&self) -> bool {
        self.flag
            .as_ref()
            .is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// Fails once the flag is set.
    ///
    /// # Errors
    /// `Canceled`.
    #[inline]
    pub fn check(&self) -> Result<()> {
        match self.is_canceled() {
            true => Err(Error::Canceled),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_the_flag_and_never_is_never_set() {
        let cancel = Cancel::new();
        let clone = cancel.clone();
        assert!(cancel.check().is_ok() && !clone.is_canceled());
        clone.cancel();
        assert!(matches!(cancel.check(), Err(Error::Canceled)));
        assert!(!Cancel::default().is_canceled());

        let never = Cancel::never();
        never.cancel();
        assert!(never.check().is_ok());
    }
}
